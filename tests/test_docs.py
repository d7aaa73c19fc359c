"""The documents: what they link to exists, and the commands they show are commands."""

import re
from pathlib import Path

import pytest

from zerolayer.cli import _VERBS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [
        target
        for target in targets
        if "://" not in target and not (page.parent / target).resolve().exists()
    ]
    assert not missing, f"{page.name} links to {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_a_verb(page: Path) -> None:
    text = page.read_text()
    blocks = "".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
    shown = set(re.findall(r"^(?:\$ )?zerolayer ([a-z]+)", blocks, re.MULTILINE))
    shown |= set(re.findall(r"(?:`|^    )zerolayer ([a-z]+)", text, re.MULTILINE))
    assert shown <= _VERBS.keys(), f"{page.name} shows {shown - _VERBS.keys()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_benchmark_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"benchmarks/\w+\.py", page.read_text())
    assert not [name for name in named if not (ROOT / name).exists()]
