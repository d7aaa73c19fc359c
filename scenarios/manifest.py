"""Who, what, where and when of a run: everything that is needed to run it again."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from dispatch.hardware import gpu, model
from kernels.evidence import Block, claims
from scenarios.folder import MANIFEST
from scenarios.schema import Scenario

ROOT = Path(__file__).parent.parent
_PACKAGES = (
    "zerolayer", "simpy", "numpy", "pandas", "pyarrow", "pydantic", "matplotlib", "jinja2",
    "sortedcontainers", "torch", "triton", "distributed",
)  # fmt: skip
_ROOMS = ("zerolayer", "dispatch", "sim", "live", "kernels", "traces", "scenarios", "reports")


def now() -> str:
    """Return the time as an ISO 8601 text in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def describe_run(scenario: Scenario, trace: Mapping[str, Any], started_at: str) -> dict[str, Any]:
    """Return the manifest of a run but for its arms and its files."""
    return {
        "manifest_version": 1,
        "world": "sim",
        "scenario": scenario.model_dump(mode="json"),
        "scenario_sha256": scenario_hash(scenario),
        "trace": dict(trace),
        "seed": scenario.seed,
        "replicates": scenario.replicates,
        "kernels": kernel_claims(scenario),
        "randomness": "splitmix64 keys by (seed, concern, ids); PCG64 for bulk draws",
        "code": code_version(),
        "packages": packages(),
        "machine": machine(),
        "argv": sys.argv,
        "python_hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "started_at": started_at,
    }


def kernel_claims(scenario: Scenario) -> dict[str, Any]:
    """Return what the kernels' bounds, or their measurements, say of this scenario's blocks."""
    fleets = [scenario.fleet, *(arm.fleet for arm in scenario.arms)]
    blocks = []
    for pool in (pool for fleet in fleets if fleet is not None for pool in fleet.pools):
        config = pool.model or scenario.model
        blocks.append(Block(model(config.name), gpu(pool.gpu), pool.tp, config.precision))
    return claims(blocks)


def scenario_hash(scenario: Scenario) -> str:
    """Return the sha256 of the resolved scenario as canonical JSON."""
    text = json.dumps(scenario.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def rooms_hash(rooms: Iterable[str]) -> str:
    """Return the sha256 over every source and data file of the named folders of the package."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def hardware_hash() -> str:
    """Return the sha256 over the user's own catalogue and constants, empty where there are none."""
    named = os.environ.get("ZEROLAYER_HARDWARE", "")
    if not named:
        return ""
    digest = hashlib.sha256()
    for path in sorted(Path(named).rglob("*.toml")):
        digest.update(path.relative_to(named).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def code_version() -> dict[str, Any]:
    """Return version, hash of the code as it stands, and commit and diff hash under git."""
    version: dict[str, Any] = {"version": _version("zerolayer"), "sha256": rooms_hash(_ROOMS)}
    if hardware := hardware_hash():
        version["hardware_sha256"] = hardware
    commit = _git("rev-parse", "HEAD")
    if commit:
        diff = _git("diff", "HEAD", "--", *_ROOMS) or ""
        version["commit"] = commit.strip()
        version["dirty"] = bool(diff)
        version["diff_sha256"] = hashlib.sha256(diff.encode()).hexdigest() if diff else None
    return version


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():
        return None  # an installed wheel inside somebody else's repository
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def packages() -> dict[str, str]:
    """Return the versions of the packages that a run rests on, where installed."""
    found = {name: _version(name) for name in _PACKAGES}
    return {name: version for name, version in found.items() if version}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def machine() -> dict[str, Any]:
    """Return what the run ran on."""
    return {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def write(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest as the last file of *folder*, with the hash of every other one."""
    whole = dict(manifest)
    whole["files"] = hashes(folder)
    whole["ended_at"] = now()
    text = json.dumps(whole, indent=1, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return whole


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below *folder* but the manifest."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            found[path.relative_to(folder).as_posix()] = file_hash(path)
    return found


def file_hash(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
