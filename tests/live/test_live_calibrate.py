"""Calibration: the line is found again, and the simulator's cost model reads it back."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dispatch.dispatcher import Dispatcher
from dispatch.errors import InputError, NotMeasurable
from dispatch.fleet import DeviceInfo
from dispatch.graph import TopologyGraph
from dispatch.hardware import Roofline, calibration, gpu, model, plan
from dispatch.registry import policy
from dispatch.request import Request
from live.calibrate import StepLine, calibration_trace, fit, nonnegative, write
from live.config import LiveConfig
from live.load import parse_config, read_config, slices
from live.shapes import PRESETS, shape_of
from live.tape import Tape, agreement
from zerolayer.live_check import verdict
from zerolayer.live_worlds import compare, same_model, simulated_setup

LINE = StepLine(400e-6, 30e-6, 9e-6, 4e-9, 50e-9, 500, 0.0)


def steps(noise: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    decodes = rng.integers(0, 20, 400)
    chunks = rng.integers(0, 2, 400)
    new = chunks * rng.integers(8, 300, 400)
    frame = pd.DataFrame(
        {
            "device": 0,
            "sequences": decodes + chunks,
            "new": new,
            "pairs": new * (new + 1) / 2.0,
            "decodes": decodes,
            "context": decodes * rng.integers(10, 900, 400),
        }
    )
    took = LINE.predict(frame) * (1 + noise * rng.standard_normal(400))
    end = np.cumsum(took + 1.0)  # idle between two: no part of the next
    return frame.assign(begin_s=end - took, end_s=end)


def test_the_fit_finds_the_line_that_made_the_steps() -> None:
    found = fit(steps())
    for term in ("base", "sequence", "token", "pair", "context"):
        assert getattr(found, term) == pytest.approx(getattr(LINE, term), rel=1e-6)
    assert found.median_error < 1e-9


def test_noise_moves_the_line_little_and_no_cost_is_negative() -> None:
    found = fit(steps(0.1))
    assert found.token == pytest.approx(LINE.token, rel=0.1)
    assert min(found.base, found.sequence, found.token, found.pair, found.context) >= 0


def test_a_column_that_would_be_negative_is_left_out() -> None:
    a = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative(a, np.array([3.0, 2.0, 1.0]))[1] == 0.0


def test_too_few_steps_are_not_fitted() -> None:
    with pytest.raises(NotMeasurable, match="too few"):
        fit(steps().head(10))


def test_the_cost_model_reads_the_measured_line_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = PRESETS["small"]
    write(tmp_path, "measured", shape, LINE, 1 << 30, "a test")
    monkeypatch.setenv("ZEROLAYER_HARDWARE", str(tmp_path))
    card, shaped = gpu("measured"), model("measured")
    cost = Roofline(card, shaped, "fp16", "fp16", 1, plan("strong"), calibration(card, "strong"))
    cases = [
        ((), (), 1, 300.0),
        ((), (), 16, 9000.0),
        ((200,), (0,), 0, 0.0),
        ((64,), (100,), 8, 4e3),
    ]
    for new, past, batch, context in cases:
        pairs = sum(n * (p + (n + 1) / 2) for n, p in zip(new, past, strict=True))
        row = pd.DataFrame(
            [
                {
                    "sequences": len(new) + batch,
                    "new": sum(new),
                    "pairs": pairs,
                    "decodes": batch,
                    "context": context,
                }
            ]
        )
        # The cost model counts pairs in whole tiles of 128 query rows: that much it may differ.
        modelled = cost.parts(new, past, batch, context).total_s
        assert modelled == pytest.approx(float(LINE.predict(row)[0]), rel=0.05)


def test_a_live_set_up_with_every_key_named_can_be_simulated(tmp_path: Path) -> None:
    setup = LiveConfig()
    (tmp_path / "x.door.json").write_text('{"door_us": 900.0, "model": "tiny", "kv": "paged"}')
    modelled = simulated_setup(setup, tmp_path, "x")
    assert modelled.door.decision_us == 900.0
    for key in ("kv", "admission", "max_num_seqs", "max_num_batched_tokens", "preemption"):
        assert getattr(modelled.engine, key) == getattr(setup.engine, key)


def test_the_calibration_trace_visits_lone_requests_and_bursts() -> None:
    made = calibration_trace(20.0, 4096)
    gaps = np.diff(made.arrival_s)
    assert (gaps == 0).any()
    assert (gaps > 0.1).any()
    assert made.prompt_tokens.max() > 10 * made.prompt_tokens.min()


def tape(path: Path) -> None:
    """A dispatcher under some load, on tape."""
    now = [0.0]
    infos = [DeviceInfo(n, "p", "g", kv_bytes_per_token=10, total_bytes=1e4) for n in "abc"]
    graph = TopologyGraph(infos)
    dispatcher = Dispatcher(policy("topology", {}), graph, lambda: now[0], hold_limit=5)
    recorder = Tape()
    recorder.attach(dispatcher)
    for at in range(60):
        now[0] = at * 0.01
        for device in range(3):
            free = 1e4 - (at * 37 * (device + 1)) % 7000
            graph.observe_memory(device, free, free, now[0])
        graph.observe_many("queue", np.arange(3), ([at % 3] * 3, np.arange(3.0)), now[0])
        graph.observe_ring(at % 3, 1e-5 * (1 + at % 7), now[0])
        dispatcher.submit(Request(at, now[0], 100 + at, 20))
        if at > 5:
            dispatcher.started(at - 5)
            dispatcher.finished(at - 5)
    recorder.save(path, infos, "topology", 0)


def test_recorded_graph_states_place_every_request_alike(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    tape(path)
    assert agreement(path) == {"decisions": 60, "alike": 60, "share": 1.0}


def test_a_decision_that_differs_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    tape(path)
    about = json.loads(path.read_text())
    about["decisions"][7][2] = (about["decisions"][7][2] + 1) % 3
    path.write_text(json.dumps(about))
    assert agreement(path)["alike"] == 59


def test_a_simulation_may_miss_by_the_share_or_twice_the_repeats() -> None:
    runs = [{"ttft": np.full(50, 1.0)}, {"ttft": np.full(50, 1.0)}]
    near = compare(runs, {"ttft": np.full(50, 1.09)})
    far = compare(runs, {"ttft": np.full(50, 1.3)})
    assert [row["holds"] for row in near] == [True, None, True]
    assert [row["holds"] for row in far] == [False, None, False]  # p90 is shown, not judged
    unsteady = [{"ttft": np.full(50, 1.0)}, {"ttft": np.full(50, 1.2)}]
    assert compare(unsteady, {"ttft": np.full(50, 1.2)})[0]["holds"]


def test_a_folder_that_was_calibrated_with_another_model_is_refused(tmp_path: Path) -> None:
    line = StepLine(1e-3, 1e-5, 1e-6, 1e-9, 1e-9, 10, 0.0)
    write(tmp_path, "one", shape_of("tiny"), line, 1 << 30, "here")
    same_model(tmp_path / "models" / "one.toml", shape_of("tiny"))
    with pytest.raises(InputError, match=r"was measured with .*; --model small has"):
        same_model(tmp_path / "models" / "one.toml", shape_of("small"))


def test_a_set_up_is_read_with_every_problem_at_once(tmp_path: Path) -> None:
    path = tmp_path / "live.toml"
    path.write_text('colour = 1\n[engine]\nmax_num_seqs = 0\nkv = "flat"\n')
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert len(caught.value.problems) == 3


def test_options_go_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "live.toml"
    path.write_text('[model]\nname = "small"\nseed = 3\n')
    found = read_config(path, model={"name": "tiny"}, devices=slices(3))
    assert (found.model.name, found.model.seed) == ("tiny", 3)
    assert [d.name for d in found.devices] == ["cpu0", "cpu1", "cpu2"]


def test_device_names_may_not_repeat() -> None:
    with pytest.raises(InputError, match="device names repeat"):
        parse_config({"devices": [{"name": "a"}, {"name": "a"}]}, "here")


def test_cuda_devices_are_dealt_out_to_the_cards_there_are() -> None:
    found = slices(5, "cuda", cards=2)
    assert [d["index"] for d in found] == [0, 1, 0, 1, 0]
    assert [d["index"] for d in slices(3, "cuda")] == [0, 1, 2]


def test_a_check_tells_what_failed_from_what_could_not_be_judged() -> None:
    assert verdict({}) == verdict({"holds": True, "steady": True}) == "holds"
    assert verdict({"holds": False}) == "does not hold"
    assert verdict({"holds": False, "steady": False}) == "inconclusive"
