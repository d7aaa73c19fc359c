"""One request's story, and two runs side by side."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import synthetic_journal as sj

from dispatch.errors import InputError
from dispatch.outcomes import Outcome
from reports import attribution, drills, shadow
from reports.diff import compare
from reports.explain import explain, picture_svg
from reports.tables import read_manifest, read_run

Run = tuple[Path, dict[str, Any]]


def an_oom(run: Run) -> int:
    table = pq.read_table(run[0] / "requests.parquet").to_pandas()
    rows = table[(table.arm == "legacy") & (table.replicate == 0)]
    return int(rows[(rows.outcome == Outcome.oom) & (rows.fitting_device >= 0)].request.iloc[0])


def test_a_story_says_what_the_graph_said_how_old_it_was_and_what_happened(stand_in: Run) -> None:
    text = explain(*stand_in, an_oom(stand_in)).text()
    for part in ("the graph said: largest block", "old", "best by score", "ended as oom"):
        assert part in text
    assert "would have held it" in text
    assert "direct:" in text


def test_a_story_keeps_to_one_replicate(stand_in: Run) -> None:
    story = explain(*stand_in, 3, replicate=2)
    assert story.replicate == 2
    assert [p.arm for p in story.parts] == ["legacy", "direct-static", "direct"]
    json.dumps(story.as_dict(), allow_nan=False)


def test_an_unknown_request_is_refused_with_the_known_range(stand_in: Run) -> None:
    with pytest.raises(InputError, match="ids run from 0 to 1499"):
        explain(*stand_in, 10**9)


@pytest.mark.parametrize("request_id", [10**20, 2**63, -(2**63) - 1])
def test_an_id_that_no_column_holds_is_an_unknown_request(stand_in: Run, request_id: int) -> None:
    with pytest.raises(InputError, match="ids run from 0 to 1499"):
        explain(*stand_in, request_id)
    with pytest.raises(InputError, match="replicates 0 to"):
        explain(*stand_in, 0, replicate=request_id)


@pytest.mark.parametrize("name", ["requests", "decisions"])
def test_a_damaged_table_is_named_with_the_way_out(
    stand_in: Run, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "run"
    shutil.copytree(stand_in[0], place)
    (place / "manifest.json").write_text(json.dumps(stand_in[1]))
    table = place / f"{name}.parquet"
    content = bytearray(table.read_bytes())
    content[40 : len(content) // 2] = bytes(len(content) // 2 - 40)
    table.write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}\.parquet: is damaged .*; run it again"):
        explain(place, stand_in[1], 3)
    if name == "requests":
        with pytest.raises(InputError, match=r"requests\.parquet: is damaged .*; run it again"):
            compare(place, place)


def test_a_damaged_summary_is_named(stand_in: Run, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(stand_in[0], place)
    (place / "manifest.json").write_text(json.dumps(stand_in[1]))
    (place / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary\.json: cannot be read"):
        compare(place, place)


def test_the_picture_of_a_story_is_a_whole_svg_file(stand_in: Run) -> None:
    root = ET.fromstring(picture_svg(explain(*stand_in, an_oom(stand_in))))
    assert root.tag.endswith("svg")


def save(folder: Path, *arms: sj.Arm, **options: Any) -> Path:
    manifest = sj.write(folder, arms, **{"n": 800, **options})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


A = sj.Arm("legacy", legacy=True, noise=0.01)


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    run = save(tmp_path / "a", A, sj.DIRECT)
    found = compare(run, run)
    assert found.is_paired
    assert found.settings == ()
    assert not any(f.clear for f in found.moved)


def test_a_slower_run_is_shown_to_have_moved_and_the_setting_is_named(tmp_path: Path) -> None:
    a = save(tmp_path / "a", A, sj.Arm("direct", 1.0, noise=0.01))
    b = save(tmp_path / "b", A, sj.Arm("direct", 1.5, noise=0.01), title="slower")
    found = compare(a, b)
    moved = {(f.arm, f.figure) for f in found.moved if f.clear}
    assert ("direct", "e2e p50") in moved
    assert not any(arm == "legacy" for arm, _ in moved)
    assert [s[0] for s in found.settings] == ["scenario.title"]


def test_runs_on_other_traffic_are_compared_unpaired(tmp_path: Path) -> None:
    a = save(tmp_path / "a", A, sj.DIRECT)
    b = save(tmp_path / "b", A, sj.DIRECT, seed=8)
    assert not compare(a, b).is_paired


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_arms_that_differ_in_one_switch_are_told_from_those_that_differ_in_two(
    stand_in: Run,
) -> None:
    steps = {(s.a, s.b): s.switches for s in attribution.analyse(read_run(*stand_in))}
    assert steps["legacy", "direct-static"] == ("layer",)
    assert steps["direct-static", "direct"] == ("placement",)
    assert steps["legacy", "direct"] == ("layer", "placement")


def test_the_share_of_the_layer_is_said_from_the_arm_that_deletes_it_alone(stand_in: Run) -> None:
    run = read_run(*stand_in)
    assert "deleting the layer alone" in attribution.sentence(run, attribution.analyse(run), None)


def test_an_arm_agrees_with_itself_and_strangers_agree_by_chance(tmp_path: Path) -> None:
    run = read_run(tmp_path, sj.write(tmp_path, (A, sj.DIRECT), n=2000))
    found = shadow.analyse(run).pair
    assert found is not None
    assert found.agree.mean == pytest.approx(found.chance.mean, abs=0.03)
    path = tmp_path / "decisions.parquet"
    table = pq.read_table(path).to_pandas()
    table["device"] = (table.request % 4).astype("int32")
    table.to_parquet(path)
    found = shadow.analyse(run).pair
    assert found is not None
    assert found.agree.mean == 1.0


def test_a_fault_shows_in_the_drill_and_is_over_when_it_is_over(tmp_path: Path) -> None:
    fault = {"kind": "gpu_lost", "at_s": 60.0, "duration_s": 40.0, "pool": "a100-40g", "replica": 0}
    manifest = sj.write(tmp_path, (A, sj.DIRECT), n=1500, faults=[fault])
    path = tmp_path / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    hit = (table.arm == "legacy") & table.arrival_s.between(60, 100) & (table.request % 2 == 0)
    table.loc[hit, ["outcome", "root_cause"]] = (Outcome.failed, 9)
    table.to_parquet(path)
    found, rule = drills.analyse(read_run(tmp_path, manifest))
    legacy, direct = found
    assert legacy.missed_during > 0.4 > legacy.missed_before
    assert 30 <= legacy.recover_s <= 60
    assert direct.recover_s == 0.0
    assert rule is not None
    assert rule.alarms_baseline <= 0.01 * rule.batches + 1


def test_an_arm_that_only_one_run_has_is_named_once(tmp_path: Path) -> None:
    for name, arms in (("a", (A, sj.DIRECT)), ("b", (A, sj.STATIC, sj.DIRECT))):
        manifest = sj.write(tmp_path / name, arms, n=120, replicates=2)
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.only == ("direct-static",)
    assert not [key for key, *_ in found.settings if "direct-static" in key]
