"""What PyTorch's allocator could still give, from a snapshot of the form that torch documents."""

from typing import Any

from live.segments import view

MIB = 1 << 20


def segment(device: int, *blocks: tuple[int, str]) -> dict[str, Any]:
    return {
        "device": device,
        "total_size": sum(size for size, _ in blocks) * MIB,
        "blocks": [{"size": size * MIB, "state": state} for size, state in blocks],
    }


def test_the_largest_block_is_the_drivers_or_an_inactive_one() -> None:
    segments = [
        segment(0, (12, "active_allocated"), (8, "inactive")),
        segment(0, (20, "inactive")),
        segment(1, (400, "inactive")),
    ]
    seen = view(segments, 0, 10 * MIB)
    assert (seen.free_bytes, seen.block_bytes) == (38 * MIB, 20 * MIB)
    assert view(segments, 0, 31 * MIB).block_bytes == 30 * MIB  # whole segments of 2 MiB
    assert seen.fragmentation == 1 - 20 / 38


def test_what_waits_for_its_stream_is_not_free() -> None:
    seen = view([segment(0, (16, "active_pending_free"))], 0, 0)
    assert (seen.free_bytes, seen.block_bytes, seen.fragmentation) == (0, 0, 0)
