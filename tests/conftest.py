"""Shared fixtures: public data that is not in the repository, and replayable hypothesis runs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

settings.register_profile(
    "house",
    deadline=None,  # never time in a test
    print_blob=True,  # a failure prints what replays it
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


def find_data(name: str) -> Path | None:
    """Return a data file by its name, plain or .gz, at any depth of the data folders."""
    for folder in (os.environ.get("ZEROLAYER_DATA"), ROOT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            for found in sorted(Path(folder).rglob(Path(name).name + "*")):
                if found.name in (Path(name).name, Path(name).name + ".gz"):
                    return found
    return None


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """Look up a data file; outside CI a missing one skips with a reason, under CI=true it fails."""

    def look_up(name: str) -> Path:
        found = find_data(name)
        if found is None:
            message = f"{name} is not under $ZEROLAYER_DATA or ../shared/data"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        return found

    return look_up
