"""What ``zerolayer run`` leaves for Perfetto."""

import gzip
import json

import pytest

from zerolayer.cli import main

SMALL = (
    "--set", "trace.limit=40", "--set", "trace.scale=1.0", "--replicates", "1", "--jobs", "1",
)  # fmt: skip


def test_a_run_writes_a_track_a_slot_and_counters_and_verifies(tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        main(["run", "migration-2023q3", *SMALL, "--quiet", "-o", str(folder)])
    assert ended.value.code == 0
    events = json.loads(gzip.decompress((folder / "timeline.json.gz").read_bytes()))["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert "slot 1" in tracks
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert counters == {"queue", "running", "KV cache bytes", "fragmentation"}
    assert all(e["dur"] >= 0 <= e["ts"] for e in events if e["ph"] == "X")
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(folder), "--jobs", "1", "--quiet"])
    assert ended.value.code == 0
    assert "other bytes" not in capsys.readouterr().out
