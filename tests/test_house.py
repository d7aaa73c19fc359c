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


def imports(path: Path, *, on_load: bool = False) -> set[str]:
    """Return the packages that *path* imports anywhere, or only when it is loaded itself."""
    tree = ast.parse(path.read_text())
    later = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = set()
    for node in ast.walk(tree):
        if on_load and id(node) in later:
            continue
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
        assert not imports(path) & {"simpy", "time", "datetime", "asyncio", "threading"}, path


def test_the_core_loads_without_the_libraries_of_tables() -> None:
    # Journal.to_pandas imports pandas when it is called, and nothing else of the core does
    for path in (ROOT / "dispatch").rglob("*.py"):
        assert not imports(path, on_load=True) & {"pandas", "pyarrow"}, path
        lazily = {"pandas"} if path.name == "journal.py" else set()
        assert imports(path) & {"pandas", "pyarrow"} <= lazily, path
