"""The oracle beside a scenario's arms: a bound, and no arm of any study."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import reports.evidence
from dispatch.outcomes import Outcome
from scenarios.load import load
from scenarios.reference import ORACLE, with_oracle, without
from scenarios.run import run
from tests.scenarios.small import small

WORST = """
[[arms]]
name = "worst"
policy.name = "always_busiest"
"""


def test_the_oracle_is_the_candidate_but_for_who_places(tmp_path: Path) -> None:
    scenario = with_oracle(load(small(tmp_path)))
    direct, oracle = scenario.arms[1:]
    assert (scenario.baseline, scenario.candidate, oracle.name) == ("legacy", "direct", ORACLE)
    assert oracle.engine == direct.engine
    assert oracle.door == direct.door
    assert without(scenario).arms == scenario.arms[:2]


def test_an_oracle_is_added_once_and_never_to_a_single_arm(tmp_path: Path) -> None:
    scenario = load(small(tmp_path))
    assert with_oracle(with_oracle(scenario)) == with_oracle(scenario)
    alone = scenario.model_copy(update={"arms": scenario.arms[:1]})
    assert with_oracle(alone) == alone


def test_what_the_oracle_places_never_dies_of_memory_and_ends_sooner_than_the_worst(
    tmp_path: Path,
) -> None:
    scenario = with_oracle(load(small(tmp_path, limit=400, more=WORST), ["trace.scale=3"]))
    run(scenario, tmp_path / "run", jobs=1, quiet=True, finish=reports.evidence.write)
    table = pq.read_table(tmp_path / "run" / "requests.parquet").to_pandas()
    by_arm = dict(tuple(table.groupby("arm")))
    ooms = {arm: int((rows.outcome == Outcome.oom).sum()) for arm, rows in by_arm.items()}
    assert ooms[ORACLE] == 0 < ooms["worst"]
    done = {arm: rows[rows.outcome == Outcome.finished] for arm, rows in by_arm.items()}
    assert len(done[ORACLE]) > len(done["worst"])


def test_the_report_says_what_part_of_the_possible_gain_the_candidate_takes(
    tmp_path: Path,
) -> None:
    scenario = with_oracle(load(small(tmp_path), ["trace.scale=3"]))
    run(scenario, tmp_path / "run", jobs=1, quiet=True, finish=reports.evidence.write)
    text = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "**Possible gain**: an oracle in the candidate's place" in text
    assert "Regret against the oracle" in text


def test_the_oracle_needs_no_live_world(tmp_path: Path) -> None:
    from zerolayer.cli import main

    scenario = str(small(tmp_path))
    with pytest.raises(SystemExit) as left:
        main(["evidence", scenario, "--world", "live", "--router-log", "x.csv", "-o",
              str(tmp_path / "run")])  # fmt: skip
    assert left.value.code == 2


def test_over_paged_memory_the_oracle_answers_no_fewer_than_the_worst(tmp_path: Path) -> None:
    paged = [
        "arms.*.engine.kv=paged", "arms.*.engine.admission=guarded",
        "arms.*.engine.preemption=recompute", "trace.scale=3", "replicates=1",
    ]  # fmt: skip
    scenario = with_oracle(load(small(tmp_path, limit=300, more=WORST), paged))
    done = run(scenario, None, jobs=1, quiet=True).manifest["arms"]
    finished = {arm: about["facts"][0]["outcomes"]["finished"] for arm, about in done.items()}
    assert finished[ORACLE] >= finished["worst"] > 0
