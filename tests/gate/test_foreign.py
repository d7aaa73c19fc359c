"""Tier 0 on a repository that is not this one: its own policy is simulated, installed or not."""

from dataclasses import replace
from pathlib import Path

import pytest

from dispatch import registry
from dispatch.errors import InputError
from reports.gate.verdict import Verdict
from scenarios.gate.gate import Options, accept, run
from tests.gate.test_trees import git


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))  # restores sys.path, which the gate extends
    git(tmp_path, "init", "-q", "-b", "main")
    registry._declared.cache_clear()
    return tmp_path


def declare(repo: Path, module: str, kind: str) -> None:
    """Commit a policy ``mine`` that picks as *kind* of ours does."""
    place, _, name = kind.partition(":")
    (repo / f"{module}.py").write_text(
        f"from dispatch.policies.{place} import {name}\n\n\nclass Mine({name}):\n    pass\n"
    )
    (repo / "pyproject.toml").write_text(
        f'[project]\nname = "t"\n[project.entry-points."zerolayer.policies"]\n'
        f'mine = "{module}:Mine"\n'
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", module)


def test_a_foreign_policy_that_picks_otherwise_is_a_regression(repo: Path) -> None:
    options = Options(repo, policy="mine", tiers=(0,), scenarios=("migration-2023q3",), limit=80)
    declare(repo, "picks_one_way", "round_robin:RoundRobin")
    _, moved = accept(options)
    assert {check.detail for check in moved} == {"recorded for the first time"}
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "baseline")
    assert run(options).verdict is Verdict.passed
    declare(repo, "picks_another_way", "least_requests:LeastRequests")
    result = run(options)
    assert result.verdict is Verdict.regression
    assert "placements differ" in " ".join(check.detail for check in result.checks)


def test_without_a_baseline_the_advice_is_the_command_that_writes_the_one_asked_for(
    repo: Path,
) -> None:
    declare(repo, "picks_advice", "round_robin:RoundRobin")
    options = Options(repo, policy="mine", tiers=(0,), scenarios=("h100-2024",), limit=80)
    words = f"gate --accept --repo {repo} --policy mine --scenarios h100-2024 --limit 80"
    with pytest.raises(InputError, match=words):
        run(options)


def test_a_damaged_baseline_is_accepted_anew(repo: Path) -> None:
    declare(repo, "picks_damaged", "round_robin:RoundRobin")
    options = Options(repo, policy="mine", tiers=(0,), scenarios=("migration-2023q3",), limit=80)
    (repo / ".zerolayer").mkdir()
    (repo / ".zerolayer" / "gate.json").write_text("{")
    accept(options)
    assert run(replace(options, allow_dirty=True)).verdict is Verdict.passed


def test_a_project_file_that_cannot_be_read_is_named(repo: Path) -> None:
    (repo / "pyproject.toml").write_text("[project\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "broken")
    with pytest.raises(InputError, match=r"pyproject\.toml"):
        run(Options(repo, tiers=(0,), limit=80))
