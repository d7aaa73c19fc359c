"""``zerolayer predict``: what it prints, and how it refuses."""

import json

import pytest

from dispatch.errors import InputError, UnknownNameError
from scenarios.predict import predict
from zerolayer.cli import main

ASKED = ["predict", "--model", "llama-2-70b", "--gpu", "H100-80G", "--tp", "4"]


def run(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(words)
    text = capsys.readouterr()
    return int(caught.value.code or 0), text.out, text.err


def test_json_has_both_times_and_parts_that_add_up_to_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, [*ASKED, "--prompt", "512", "--batch", "1", "--json"])
    found = json.loads(out)
    assert code == 0
    for kind in ("prompt", "token"):
        assert found[f"{kind}_time_ms"] == pytest.approx(sum(found[f"{kind}_parts_ms"].values()))
        assert found[f"{kind}_time_ms"] > 1


def test_the_same_question_gets_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, [*ASKED, "--json"]) == run(capsys, [*ASKED, "--json"])


def test_people_get_a_table_that_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, ASKED)
    assert "projections" in out
    assert max(map(len, out.splitlines())) <= 80


def test_times_between_the_measured_tp_2_and_8_lie_between_theirs() -> None:
    at = [predict("llama-2-70b", "H100-80G", tp=tp, prompt=2048).prompt.total_s for tp in (2, 4, 8)]
    assert at[0] > at[1] > at[2]


def test_published_medians_of_an_h100_over_an_a100_hold() -> None:
    """Splitwise (ISCA'24), table IV: TTFT at 1,500 and 1,020 tokens is 0.51 and 0.54 of A100's."""
    for tokens, published in ((1500, 0.51), (1020, 0.54)):
        fast, slow = (
            predict("llama-2-70b", gpu, tp=8, prompt=tokens).prompt.total_s
            for gpu in ("H100-80G", "A100-80G")
        )
        assert fast / slow == pytest.approx(published, abs=0.08)


def test_every_wrong_option_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        predict("llama-2-70b", "A100-80G", tp=3, prompt=0, precision="fp7")
    text = str(caught.value)
    for part in ("--tp", "do not divide by 3", "--prompt", "fp7"):
        assert part in text


def test_an_unknown_stack_is_named() -> None:
    with pytest.raises(UnknownNameError, match="eager-2023"):
        predict("llama-2-70b", "A100-80G", tp=8, stack="eager-2024")


def test_a_batch_that_does_not_fit_is_priced_and_said_not_to_fit() -> None:
    notes = predict("llama-2-70b", "A100-80G", tp=2, prompt=512, batch=64).notes
    assert any("do not fit" in note for note in notes)


def test_a_gpu_without_a_fit_says_so() -> None:
    notes = predict("llama-2-7b", "L4").notes
    assert any("extrapolated" in note for note in notes)


def test_wrong_use_exits_2_with_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, [*ASKED[:-1], "0"])
    assert (code, out) == (2, "")
    assert err.startswith("zerolayer: --tp: found 0")


@pytest.mark.parametrize("name", ["tp", "prompt", "batch", "output"])
def test_a_count_beyond_any_engine_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"--{name}: found 1000.*; expected at most "):
        predict("llama-2-13b", "A100-80G", **{name: 10**23})  # type: ignore[arg-type]
