"""The page about policies says what the code says."""

import re
from pathlib import Path

import pytest

from dispatch import registry
from dispatch.policy import Policy
from tests.dispatch.core_world import World
from zerolayer.cli import build
from zerolayer.verbs import policies as verb

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_reference_is_what_the_verb_prints() -> None:
    printed = verb.reference([registry.describe(name) for name in registry.shipped()])
    assert TEXT.endswith(printed), f"print it anew: zerolayer policies --markdown, into {PAGE.name}"


def test_every_shipped_policy_has_its_heading_once() -> None:
    headings = re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)
    assert headings == list(registry.shipped())


def test_every_policy_that_the_page_names_exists() -> None:
    (table,) = re.findall(r"\| question \| arms \|\n(.*?)\n\n", TEXT, re.DOTALL)
    arms = [row.rpartition("| ")[2] for row in table.splitlines()]
    for name in re.findall(r"`([a-z0-9_]+)`", " ".join(arms)):
        assert name in registry.names() or name in ("credit", "failure_penalty_s"), name


def test_the_example_of_an_own_policy_works() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    scope: dict[str, object] = {"__name__": "example"}
    exec(compile(source, str(PAGE), "exec"), scope)
    policy = registry.build(scope["Warmest"], "warmest", {"tries": 3})
    assert isinstance(policy, Policy)
    world = World("random", 3)
    world.dispatcher.policy = world.policy = policy
    world.dispatcher._choose = policy.choose
    assert world.place() == 0


@pytest.mark.parametrize("words", [[], ["topology"], ["--json"], ["topology", "--json"]])
def test_the_verb_prints_within_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert build()(["policies", *words], result_action="return_value") == 0
    printed = capsys.readouterr().out
    assert "topology" in printed
    if "--json" not in words:
        assert max(map(len, printed.splitlines())) <= 80
