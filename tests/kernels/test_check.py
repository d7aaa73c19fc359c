"""The checks: the GPU script tried on a CPU, its files, and what is said where there is no GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dispatch.errors import InputError, NotMeasurable
from dispatch.hardware.calibration import Launch
from kernels import measured, tuned
from kernels.gpu import check
from kernels.gpu.clock import Clock
from kernels.interpreter.honest import honest
from kernels.spec import BlockSpec

TASTE = check.Size(
    copy_bytes=1 << 12, side=16, chain=(1, 2), cold_bytes=1.0, timings=1, bitwise=1, company=2,
    spec=BlockSpec(16, 2, 1, 16, 16),
    decodes=(("gpt-2", 1, 5),), prompts=(("gpt-2", 1, 6),), compiled=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def taste() -> list[dict[str, Any]]:
    with honest():
        return list(check.rows(Clock(torch.device("cpu")), TASTE))


@pytest.mark.slow
def test_the_gpu_script_runs_through_on_a_cpu(taste: list[dict[str, Any]]) -> None:
    assert {row["kind"] for row in taste} == {
        "ceiling", "cost", "right", "time", "tuned", "bytes"
    }  # fmt: skip
    assert not [row for row in taste if row["kind"] == "time" and "error" in row]
    wrong = [row for row in taste if row.get("wrong")]
    assert not wrong
    variants = {r["variant"] for r in taste if r["kind"] == "time" and r["phase"] == "decode"}
    assert {
        "fused", "fused_warm", "split5", "split5_dependent", "split5_dependent_warm", "sdpa_graph",
        "three_stage_graph", "three_stage", "hf",
    } <= variants  # fmt: skip


@pytest.mark.slow
def test_every_result_is_one_line_of_json(taste: list[dict[str, Any]]) -> None:
    for row in taste:
        assert json.loads(json.dumps(row)) == row


@pytest.mark.slow
def test_what_the_check_writes_is_what_plans_read(
    taste: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = check.document("x86_64", taste)
    path = check.write({**result, "gpu": "NVIDIA H200"}, tmp_path)
    assert path.name == "h200.json"
    found = measured.read(path)
    assert {name for name, _ in found.values} == {"graph_us", "eager_us", "once_us", "barrier_us"}
    assert found.launch(Launch()).barrier_us == dict(found.values)["barrier_us"]
    times = tuned.read(path).find(TASTE.spec or BlockSpec(2, 1, 1, 2, 2), "decode", "bf16", 1, 5)
    assert set(times) == {"mega", "split5", "torch"}


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    path.write_text('{"gpu": "H200"}')
    with pytest.raises(InputError, match="is no result of"):
        measured.read(path)


def test_shapes_stop_starting_when_time_is_up() -> None:
    class Late(Clock):
        @property
        def spent_s(self) -> float:
            return 201.0

    with honest():
        found = list(check.rows(Late(torch.device("cpu")), TASTE))
    left = [row["what"] for row in found if row["kind"] == "left_out"]
    assert left == ["right", "decode", "prefill", *["bytes of fused", "bytes of three_stage"],
                    "bytes of fused"]  # fmt: skip


def test_a_case_that_fails_is_named_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no kernel image is available\nand more")

    monkeypatch.setattr(check, "right", broken)
    monkeypatch.setattr(check.shapes, "decode_times", broken)
    monkeypatch.setattr(check.shapes, "prompt_times", broken)
    with honest():
        found = list(check.rows(Clock(torch.device("cpu")), TASTE, named=True))
    failed = [row for row in found if row["kind"] == "failed"]
    assert [row["what"] for row in failed] == [
        "right gpt-2 1 5", "decode gpt-2 1 5", "prefill gpt-2 1 6"
    ]  # fmt: skip
    assert failed[0]["error"] == "RuntimeError: no kernel image is available"
    assert [row["at"] for row in found if row["kind"] == "case"] == list(range(8))
    assert {"ceiling", "cost", "bytes"} <= {row["kind"] for row in found}


def test_a_fresh_process_goes_on_where_the_last_one_ended() -> None:
    found = list(check.rows(Clock(torch.device("cpu")), TASTE, first=5, named=True))
    assert [row["at"] for row in found if row["kind"] == "case"] == [5, 6, 7]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured_and_that_is_said() -> None:
    with pytest.raises(NotMeasurable, match="nothing was measured"):
        check.device()


def test_ncus_table_is_summed_over_kernels_and_units() -> None:
    text = (
        '==PROF== Connected\n"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"\n'
        '"","","Mbyte","Kbyte"\n"0","block_kernel","121.5","500"\n"1","b","1,000.0","0"\n'
    )
    assert check.parse_ncu(text) == pytest.approx(121.5e6 + 5e5 + 1e9)


def test_nothing_under_measured_was_invented() -> None:
    for path in sorted(measured.FOLDER.glob("*.json")) if measured.FOLDER.is_dir() else ():
        document = json.loads(path.read_text())
        assert document["rows"], path
        assert document["versions"]["torch"], path
