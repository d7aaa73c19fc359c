"""Evidence from the live world: the arms of a scenario behind real doors, judged like simulated."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reports.evidence
import sim
from dispatch.errors import InputError
from dispatch.journal import Journal
from dispatch.outcomes import Outcome
from live.shapes import PRESETS
from scenarios import arms, history
from scenarios.live_cell import LiveReplayer, config
from scenarios.load import load
from scenarios.run import run
from scenarios.schema import Scenario
from scenarios.verify import verify

SCENARIO = """
name = "two-cards"
replicates = 1
drain_s = 30.0
baseline = "legacy"
candidate = "direct"
[trace]
source = "SOURCE"
[traffic.precision]
"" = 0.4
fp16 = 0.3
bf16 = 0.3
[model]
name = "llama-2-13b"
precision = "fp16"
[[fleet.pools]]
name = "small"
gpu = "A100-40G"
count = 2
weight = 3
group = "a100-40g"
[[fleet.pools]]
name = "large"
gpu = "A100-80G"
count = 1
weight = 2
group = "a100-80g"
[slo]
ttft_p99_s = 30.0
[[arms]]
name = "legacy"
door = { kind = "legacy", settings = { long_prompt_tokens = 900, fp16_group = "a100-40g" } }
policy = { name = "static_weights" }
[[arms]]
name = "direct"
policy = { name = "topology" }
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("scenario")
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "arrival_s": np.arange(30) * 0.03,
            "prompt_tokens": rng.choice([20, 200, 1000], 30),
            "output_tokens": rng.integers(1, 4, 30),
        }
    )
    rows.to_csv(folder / "trace.csv", index=False)
    text = SCENARIO.replace("SOURCE", str(folder / "trace.csv"))
    (folder / "two-cards.toml").write_text(text)
    return load(str(folder / "two-cards.toml"))


@pytest.fixture(scope="module")
def folder(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of the live world, with its report."""
    target = tmp_path_factory.mktemp("live") / "run"
    make = partial(LiveReplayer, model="tiny")
    run(scenario, target, quiet=True, finish=reports.evidence.write, live=make)
    return target


@pytest.mark.slow
def test_a_live_run_leaves_a_folder_like_a_simulated_one(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["world"] == "live"
    requests = pd.read_parquet(folder / "requests.parquet")
    assert sorted(requests.arm.unique()) == ["direct", "legacy"]
    assert set(requests.outcome) == {Outcome.finished}
    for name, about in manifest["arms"].items():
        (facts,) = about["facts"]
        assert facts["offered"] == 30
        assert facts["outcomes"]["finished"] == 30
        assert sum(d["placed"] for d in facts["devices"]) == 30, name
        assert any("not in speed" in note for note in facts["notes"])
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_live_figures_are_verified_from_the_journal_and_never_run_again(
    folder: Path, tmp_path: Path
) -> None:
    found = verify(folder, quiet=True)
    assert found.good
    assert not found.rerun
    summary = json.loads((folder / "summary.json").read_text())
    summary["verdict"]["answer"] = "changed by hand"
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "summary.json").write_text(json.dumps(summary))
    assert not verify(copy, quiet=True).good


@pytest.mark.slow
def test_the_simulated_legacy_door_picks_as_the_live_one_did(
    scenario: Scenario, folder: Path
) -> None:
    decisions = pd.read_parquet(folder / "decisions.parquet")
    live = decisions[decisions.arm == "legacy"].sort_values("time_s")
    order = live.request.to_numpy()  # the picks hang on the order in which requests came
    rows = history.load(scenario).take(order, np.arange(len(order)) * 1.0)
    journal = Journal(arm="legacy")
    arm = scenario.arms[0]
    sim.replay(rows, arms.setup(scenario, arm), arms.seed(scenario, 0), journal)
    simulated = journal.to_pandas("decisions").sort_values("time_s")
    assert list(simulated.request) == list(range(30))
    assert list(simulated.device) == list(live.device)
    assert set(live.device) == {0, 1, 2}


def test_a_device_holds_as_many_tokens_as_the_modelled_card(scenario: Scenario) -> None:
    journal = Journal(arm="x")
    rows = history.load(scenario).take(np.arange(1))
    modelled = sim.replay(rows, arms.setup(scenario, scenario.arms[1]), 0, journal).devices
    setup = config(scenario, scenario.arms[1])
    token = PRESETS["tiny"].kv_bytes_per_token
    assert [d.kv_mib * 2**20 / token for d in setup.devices] == [
        m["capacity_tokens"] for m in modelled
    ]
    assert [d.name for d in setup.devices] == ["small-0", "small-1", "large-0"]
    assert [d.weight for d in setup.devices] == [3, 3, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"faults": [{"kind": "gpu_lost", "at_s": 1.0}]}, "cannot be injected"),
        ({"transfer": {"enabled": True}}, "moves no KV"),
    ],
)
def test_what_the_live_world_cannot_do_is_refused_before_it_starts(
    scenario: Scenario, change: dict[str, Any], message: str
) -> None:
    wanted = Scenario.model_validate({**scenario.model_dump(), **change})
    with pytest.raises(InputError, match=message):
        config(wanted, wanted.arms[1])


def test_a_legacy_door_with_another_policy_is_refused(scenario: Scenario) -> None:
    arm = scenario.arms[0].model_copy(update={"policy": scenario.arms[1].policy})
    with pytest.raises(InputError, match="picks by static weights"):
        config(scenario, arm)
