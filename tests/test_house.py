"""The rules of the house that a machine can hold."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "dispatch": set(),
    "traces": {"dispatch"},
    "kernels": {"dispatch"},
    "sim": {"traces", "kernels", "dispatch"},
    "live": {"traces", "kernels", "dispatch"},
    "reports": {"traces", "kernels", "dispatch"},
    "scenarios": {"sim", "live", "reports", "traces", "kernels", "dispatch"},
    "zerolayer": {"scenarios", "sim", "live", "reports", "traces", "kernels", "dispatch"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_run_one_way(room: str) -> None:
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[room] - {room}
    for path in (ROOT / room).rglob("*.py"):
        assert not imports(path) & forbidden, path


@pytest.mark.parametrize("room", ["dispatch", "sim", "traces", "scenarios", "reports"])
def test_nothing_needs_torch_to_simulate_plan_or_report(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        assert not imports(path) & {"torch", "triton", "pynvml"}, path


def test_the_core_knows_neither_simpy_nor_a_clock() -> None:
    for path in (ROOT / "dispatch").rglob("*.py"):
        assert not imports(path) & {"simpy", "time", "asyncio", "pandas", "pyarrow"}, path
