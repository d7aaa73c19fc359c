"""What a scenario file says wrong, and how it is told."""

import json
from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.document import Document, bundled_names, merge
from scenarios.load import load
from scenarios.schema import Scenario
from scenarios.toml_text import dump

GOOD = """name = "x"
[fleet]
pools = [{name = "a", gpu = "h100-80g", count = 2}, {name = "b", gpu = "a100-80g", count = 1}]
[defaults.policy]
name = "topology"
params = {b_bin_ratio = 0.2}
[defaults.door]
workers = 3
[[arms]]
name = "old"
door.kind = "legacy"
policy.name = "static_weights"
[[arms]]
name = "new"
"""


def document(folder: Path, text: str) -> Document:
    path = folder / "s.toml"
    path.write_text(text)
    return Document.read(path)


def resolve(folder: Path, text: str, *overrides: str) -> Scenario:
    return document(folder, text).resolve(overrides)


def errors(folder: Path, text: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        resolve(folder, text, *overrides)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_defaults_lie_under_every_arm(tmp_path: Path) -> None:
    scenario = resolve(tmp_path, GOOD)
    assert [(a.door.kind, a.door.workers) for a in scenario.arms] == [("legacy", 3), ("direct", 3)]


def test_parameters_of_another_policy_are_not_inherited(tmp_path: Path) -> None:
    old, new = resolve(tmp_path, GOOD).arms
    assert (old.policy.params, new.policy.params) == ({}, {"b_bin_ratio": 0.2})


def test_lists_replace_and_tables_merge() -> None:
    assert merge({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}}


def test_every_error_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("count = 2", "count = -2, wieght = 1").replace("legacy", "legcy")
    assert errors(tmp_path, text + "seeed = 3\n") == [
        "s.toml:3: fleet.pools[0].count: found -2; expected greater than or equal to 0",
        "s.toml:3: fleet.pools[0].wieght: unknown key; did you mean weight?",
        "s.toml:11: arms[0].door.kind: found 'legcy'; expected 'legacy' or 'direct'; "
        "did you mean legacy?",
        "s.toml:15: arms[1].seeed: unknown key; "
        "known: door, engine, fleet, name, policy, telemetry, title",
    ]


def test_an_error_in_the_defaults_is_told_once_and_where_it_stands(tmp_path: Path) -> None:
    text = GOOD.replace("workers = 3", "workers = 0")
    found = errors(tmp_path, text)
    assert found == [
        "s.toml:8: defaults.door.workers: found 0; expected greater than or equal to 1"
    ]


def test_no_error_points_to_the_web(tmp_path: Path) -> None:
    assert not any("http" in e for e in errors(tmp_path, GOOD.replace('"a"', "3") + "x = {}\n"))


def test_a_section_of_arms_at_the_top_is_told_where_it_belongs(tmp_path: Path) -> None:
    text = "telemetry.interval_ms = 3\n" + GOOD
    assert errors(tmp_path, text) == [
        "s.toml:1: telemetry: unknown key; arms hold it: defaults.telemetry for all, "
        "arms[0].telemetry for one"
    ]


def test_an_unknown_section_of_the_defaults_is_refused(tmp_path: Path) -> None:
    text = GOOD + "[defaults.enigne]\n"
    assert errors(tmp_path, text) == [
        "s.toml:15: defaults.enigne: unknown key; did you mean engine?"
    ]


def test_what_is_no_toml_names_the_line(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, 'name = "x"\nseed 3\n')
    assert found.startswith("s.toml:2: is no TOML: Expected '='")


def test_what_is_no_text_says_so(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no text"):
        Document.read(tmp_path / "s.toml")


def test_a_missing_file_names_the_bundled_scenario_that_was_meant() -> None:
    with pytest.raises(InputError, match="did you mean migration-2023q3"):
        Document.read("migration-2023q4")


def test_arm_names_that_repeat_are_refused(tmp_path: Path) -> None:
    found = errors(tmp_path, GOOD.replace('"old"', '"new"'))
    assert found == [
        "s.toml:10: arms[0].name: arm names repeat: new, new",
        "s.toml:14: arms[1].name: arm names repeat: new, new",
    ]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("candidate=nobody", "candidate: 'nobody' is no arm; arms are old, new"),
        ('arms.0.name="new"', "arms[0].name: arm names repeat: new, new"),
        ("fleet.pools.*.count=0", "fleet.pools: the fleet has no replica"),
        ("fleet.pools=[]", "fleet.pools: is empty; expected one item at least"),
        ("arms=[]", "arms: is empty; expected one item at least"),
        ("seed=x", "seed: found 'x'; expected a valid integer"),
        ("fleet.pools.0.count=2.5", "found 2.5; expected a valid integer"),
        ("model.name=llama-2-70b", "pools[0].gpu: llama-2-70b in fp16 fits no replica"),
    ],
)
def test_an_error_that_an_override_brings_names_it_and_what_is_wrong(
    tmp_path: Path, override: str, told: str
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(GOOD)
    with pytest.raises(InputError) as caught:
        load(path, ["drain_s=9", override])
    said = [str(problem) for problem in caught.value.problems]
    assert said[0].startswith(f"--set {override}: ")
    assert told in said[0]


def test_an_unknown_key_in_a_list_that_is_set_is_told_as_such(tmp_path: Path) -> None:
    found = errors(tmp_path, GOOD, 'faults=[{kind="device_down",at=1}]')
    assert any("faults[0].at: unknown key; did you mean at_s?" in text for text in found)
    assert any("faults[0].kind: found 'device_down'" in text for text in found)


def test_an_error_of_the_file_is_not_laid_at_an_override(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(GOOD + 'title = "x"\n[[faults]]\nkind = "gpu_lost"\n')
    with pytest.raises(InputError) as caught:
        load(path, ["seed=3"])
    (problem,) = caught.value.problems
    assert problem.place.endswith("s.toml:16: faults[0]")


def test_a_baseline_that_is_the_candidate_too_is_refused(tmp_path: Path) -> None:
    found = errors(tmp_path, 'candidate = "new"\n' + GOOD, "baseline=new")
    assert "so nothing would be compared; arms are old, new" in found[0]
    assert found[0].startswith("--set baseline=new: baseline: ")


@pytest.mark.parametrize("levels", [33, 300, 200_000])
def test_a_document_nested_without_end_is_told(tmp_path: Path, levels: int) -> None:
    (tmp_path / "s.toml").write_text("x = " + "[" * levels + "]" * levels)
    with pytest.raises(InputError, match="is nested too deep; expected at most 32 levels"):
        Document.read(tmp_path / "s.toml")


@pytest.mark.parametrize(
    "override", ["trace.synth.x=" + "[" * 5000 + "]" * 5000, "trace.synth" + ".x" * 5000 + "=1"]
)
def test_an_override_nested_without_end_is_told_in_short(tmp_path: Path, override: str) -> None:
    (found,) = errors(tmp_path, GOOD, override)
    assert "is nested too deep" in found
    assert len(found) < 160


def test_a_long_value_is_not_repeated_in_full(tmp_path: Path) -> None:
    for override in ("seed=" + "9" * 5000, "candidate=" + "9" * 5000, "9" * 5000 + "=3"):
        assert not any("9" * 101 in text for text in errors(tmp_path, GOOD, override))


def test_a_byte_order_mark_is_no_part_of_the_scenario(tmp_path: Path) -> None:
    assert resolve(tmp_path, "\ufeff" + GOOD) == resolve(tmp_path, GOOD)


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.toml").symlink_to("b.toml")
    (tmp_path / "b.toml").symlink_to("a.toml")
    (tmp_path / "c.toml").symlink_to("gone.toml")
    for source, told in (
        ("/dev/null", "is no file but a device or a pipe"),
        (tmp_path / "a.toml", "is a link that leads back to itself"),
        (tmp_path / "c.toml", "is a link to gone.toml, which is not there"),
    ):
        with pytest.raises(InputError, match=told):
            Document.read(source)


def test_a_missing_key_says_what_is_expected(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, GOOD.replace('gpu = "a100-80g", ', ""))
    assert found == "s.toml:3: fleet.pools[1].gpu: is missing; expected gpu = a text"


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("fleet.pools.1.count=7", lambda s: s.fleet.pools[1].count == 7),
        ("fleet.pools[1].count=7", lambda s: s.fleet.pools[1].count == 7),
        ("fleet.pools.b.count=7", lambda s: s.fleet.pools[1].count == 7),
        ("arms.new.door.handling_mean_ms=2.5", lambda s: s.arms[1].door.handling_mean_ms == 2.5),
        ("arms.*.door.workers=9", lambda s: [a.door.workers for a in s.arms] == [9, 9]),
        ("defaults.door.workers=9", lambda s: [a.door.workers for a in s.arms] == [9, 9]),
        ("trace.source=azure-2023-conv", lambda s: s.trace.source == "azure-2023-conv"),
        ("trace.source=2023", lambda s: s.trace.source == "2023"),
        ("trace.resample=none", lambda s: s.trace.resample == "none"),
        ("trace.duration_s=none", lambda s: s.trace.duration_s is None),
        ("trace.duration_s=1e3", lambda s: s.trace.duration_s == 1000.0),
        ('traffic.kernel_hint={memory_efficient=1.0, ""=2}', lambda s: len(s.traffic.kernel_hint)),
        ("story_inputs=[]", lambda s: s.story_inputs == ()),
        ('fleet.pools.2={name="c",gpu="h200",count=1}', lambda s: len(s.fleet.pools) == 3),
        ("arms.new.engine.memory_utilization_ratio=0.8", lambda s: s.arms[1].engine is not None),
    ],
)
def test_an_override_reaches_every_key(tmp_path: Path, override: str, read: object) -> None:
    assert read(resolve(tmp_path, GOOD, override))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("seed", "--set seed: is no assignment; expected key=value, as in seed=7"),
        ("seeed=3", "--set seeed=3: seeed: unknown key; did you mean seed?"),
        (
            "fleet.pools.9.count=3",
            "--set fleet.pools.9.count=3: fleet.pools has 2 items; expected an index below 2",
        ),
        ("arms.nw.title=x", "--set arms.nw.title=x: arms has no item 'nw'; did you mean new?"),
        (
            "seed.x=1",
            "--set seed.x=1: seed: found {'x': 1}; expected a valid integer",
        ),
        (
            "arms.*.door.kind=direkt",
            "--set arms.*.door.kind=direkt: arms[0].door.kind: found 'direkt'; "
            "expected 'legacy' or 'direct'; did you mean direct?",
        ),
        ("name.x=1", "--set name.x=1: name is a value, not a table; no key x below it"),
    ],
)
def test_a_wrong_override_is_told_as_it_was_given(tmp_path: Path, override: str, told: str) -> None:
    assert errors(tmp_path, GOOD, override)[0] == told


def test_nan_is_refused_wherever_a_number_stands(tmp_path: Path) -> None:
    found = errors(tmp_path, GOOD, "trace.scale=nan", "fleet.pools.0.weight=nan", "seed=nan")
    assert len(found) == 3


def leaves(node: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    """Return every value of a resolved scenario with the keys that lead to it."""
    items: list[tuple[str, object]] = []
    if isinstance(node, dict):
        items = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list):
        items = [(str(at), value) for at, value in enumerate(node)]
    if not items or not all(key for key, _ in items):  # "" is a share's name: set its whole table
        return [(path, node)]
    return [leaf for key, value in items for leaf in leaves(value, (*path, key))]


def as_toml(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {as_toml(v)}' for k, v in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.parametrize("name", ["migration-2023q3", "h100-2024"])
def test_every_key_of_a_resolved_scenario_can_be_set(name: str) -> None:
    whole = load(name)
    found = leaves(whole.model_dump(mode="json"))
    assert len(found) > 200
    again = load(name, [f"{'.'.join(path)}={as_toml(value)}" for path, value in found])
    assert again == whole


@pytest.mark.parametrize("name", bundled_names())
def test_a_resolved_scenario_is_a_scenario_file_that_says_the_same(
    name: str, tmp_path: Path
) -> None:
    settings = ['traffic.kernel_hint={"" = 1, memory_efficient = 2.5}', "seed=9223372036854775807"]
    whole = load(name, [*settings, "arms.0.title='a \\ \"quoted\" \u00e9 title'"])
    (tmp_path / "s.toml").write_text(dump(whole.model_dump(mode="json")))
    assert load(tmp_path / "s.toml") == whole
