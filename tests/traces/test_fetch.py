"""Public traces by name: from a server that breaks off, from a mirror, from nowhere."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dispatch.errors import InputError
from traces import datasets
from traces.fetch import fetch

BYTES = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"2031-01-02 09:00:00,5,6\n" * 4000
NAME = "azure-2023-conv"


class Shop(ThreadingHTTPServer):
    """Serves BYTES; ``breaks_at`` cuts the first answer short, ``ranges`` is what was asked for."""

    breaks_at = 0
    content = BYTES
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.ranges: list[str | None] = []


class Clerk(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        content = self.server.content
        if self.server.status != 200 or first >= len(content):
            self.send_error(416 if self.server.status == 200 else self.server.status)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        cut, self.server.breaks_at = self.server.breaks_at, 0
        self.wfile.write(content[first : cut or None])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    with Shop() as server:
        known = replace(
            datasets.DATASETS[NAME],
            url=f"http://127.0.0.1:{server.server_port}/t.csv",
            sha256=hashlib.sha256(BYTES).hexdigest(),
            size_bytes=len(BYTES),
        )
        monkeypatch.setitem(datasets.DATASETS, NAME, known)
        monkeypatch.setattr(datasets, "folders", lambda: iter([tmp_path / "found"]))
        (tmp_path / "found").mkdir()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_trace_is_fetched_once_and_checked(shop: Shop, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    got = fetch(NAME, folder=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert got.path.read_bytes() == BYTES
    assert got.checked
    assert seen[-1] == (len(BYTES), len(BYTES))
    again = fetch(NAME, folder=tmp_path)
    assert again.origin == "already here"
    assert len(shop.ranges) == 1


def test_a_broken_transfer_resumes_where_it_broke(shop: Shop, tmp_path: Path) -> None:
    shop.breaks_at = 30_000
    with pytest.raises(InputError, match=r"broke off.*it resumes"):
        fetch(NAME, folder=tmp_path)
    assert not (tmp_path / datasets.DATASETS[NAME].file).exists()
    assert fetch(NAME, folder=tmp_path).path.read_bytes() == BYTES
    assert shop.ranges[0] is None
    assert shop.ranges[1] is not None
    resumed_at = int(shop.ranges[1].removeprefix("bytes=").rstrip("-"))
    assert 0 < resumed_at <= 30_000


def test_a_part_longer_than_the_file_starts_afresh(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / f"{datasets.DATASETS[NAME].file}.part").write_bytes(b"x" * (len(BYTES) + 5))
    assert fetch(NAME, folder=tmp_path).path.read_bytes() == BYTES


def test_a_file_of_another_digest_is_not_kept(shop: Shop, tmp_path: Path) -> None:
    shop.content = BYTES + b"more\n"
    with pytest.raises(InputError, match="it was not kept"):
        fetch(NAME, folder=tmp_path)
    assert [p for p in tmp_path.iterdir() if p.is_file()] == []


def test_a_server_that_has_it_no_more_is_told_in_words(shop: Shop, tmp_path: Path) -> None:
    shop.status = 404
    with pytest.raises(InputError, match=r"answers 404.*--mirror.*licence CC-BY"):
        fetch(NAME, folder=tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_mirror_folder_serves_plain_and_packed_copies_at_any_depth(
    shop: Shop, tmp_path: Path, packed: bool
) -> None:
    mirror = tmp_path / "mirror" / "deep"
    mirror.mkdir(parents=True)
    file = datasets.DATASETS[NAME].file
    if packed:
        (mirror / f"{file}.gz").write_bytes(gzip.compress(BYTES))
    else:
        (mirror / file).write_bytes(BYTES)
    got = fetch(NAME, folder=tmp_path / "here", mirror=tmp_path / "mirror")
    assert got.path.read_bytes() == BYTES
    assert got.checked
    assert shop.ranges == []


def test_a_mirror_without_it_says_where_it_comes_from(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no Azure.*comes from http"):
        fetch(NAME, folder=tmp_path / "here", mirror=tmp_path)


def test_offline_is_a_clear_error_and_asks_nobody(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--offline was given.*--mirror"):
        fetch(NAME, folder=tmp_path, offline=True)
    assert shop.ranges == []


def test_no_network_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(datasets.DATASETS[NAME], url="http://127.0.0.1:9/t.csv")
    monkeypatch.setitem(datasets.DATASETS, NAME, known)
    with pytest.raises(InputError, match=r"no connection"):
        fetch(NAME, folder=tmp_path)


def test_a_copy_where_traces_are_looked_for_is_not_fetched_again(
    shop: Shop, tmp_path: Path
) -> None:
    copy = tmp_path / "found" / f"{datasets.DATASETS[NAME].file}.gz"
    copy.write_bytes(gzip.compress(BYTES))
    assert fetch(NAME).path == copy
    assert shop.ranges == []


@pytest.mark.parametrize("name", sorted(datasets.DATASETS))
def test_every_public_trace_has_a_licence_and_a_pinned_or_named_origin(name: str) -> None:
    known = datasets.DATASETS[name]
    assert known.licence
    assert known.url.startswith("https://")
    assert known.url.endswith(known.file)
    assert len(known.sha256) in (0, 64)
