"""Public traces by name: fetched once, checked by digest, resumed, or taken from a mirror."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError
from traces import datasets
from traces.source import Source

_CHUNK: Final = 1 << 20
_PIECE: Final = 1 << 14  # what a broken transfer loses at most
_TIMEOUT_S: Final = 30.0
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Where a trace lies now, where it came from, and the digest of its plain bytes."""

    path: Path
    origin: str
    sha256: str
    checked: bool


def fetch(
    name: str,
    *,
    folder: Path | None = None,
    mirror: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Return the public trace *name* in *folder* (the user's cache), fetching it if it must be.

    A copy that is there already and has the right digest is kept, as is one that lies, plain or
    packed, where traces are looked for, unless a *folder* is named. With *mirror* the file is
    taken from that folder, plain or packed, at any depth. A broken transfer leaves a ``.part`` that
    the next call resumes. A wrong digest is an error, and the file is not kept.
    """
    known = datasets.dataset(name)
    found = datasets.search(known.file) if folder is None and mirror is None else None
    folder = folder or datasets.cache_folder()
    for place in (found, folder / known.file):
        here = _held(place, known) if place is not None else None
        if here is not None:
            return here
    if mirror is not None:
        return _from_mirror(known, mirror, folder)
    if offline:
        raise _offline(known, "--offline was given")
    _make(folder)
    target = folder / known.file
    target.unlink(missing_ok=True)  # its digest was wrong, or it would have been returned above
    _download(known, target, progress)
    return _checked(target, known, known.url)


def _held(target: Path, known: datasets.Dataset) -> Fetched | None:
    if not target.exists():
        return None
    digest = Source(target).sha256()
    if known.sha256 and digest != known.sha256:
        return None
    return Fetched(target, "already here", digest, bool(known.sha256))


def _from_mirror(known: datasets.Dataset, mirror: Path, folder: Path) -> Fetched:
    if not mirror.is_dir():
        raise InputError.at(str(mirror), "is no folder", "name the folder that holds the copies")
    found = datasets.search_in(mirror, known.file)
    if found is None:
        raise InputError.at(
            str(mirror), f"holds no {known.file}, plain or .gz", f"it comes from {known.url}"
        )
    _make(folder)
    target = folder / known.file
    part = target.with_name(target.name + ".part")
    try:
        with Source(found).open() as stream, part.open("wb") as copy:
            shutil.copyfileobj(stream, copy, _CHUNK)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return _checked(target, known, str(found))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(folder), f"cannot be made: {error.strerror}") from None


def _checked(target: Path, known: datasets.Dataset, origin: str) -> Fetched:
    digest = hashlib.sha256()
    with target.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    found = digest.hexdigest()
    if known.sha256 and found != known.sha256:
        target.unlink()
        raise InputError.at(
            known.name,
            f"the copy from {origin} has sha256 {found}, not {known.sha256}; it was not kept",
            "the publisher may have changed the file, or the transfer was cut; try again",
        )
    return Fetched(target, origin, found, bool(known.sha256))


def _download(known: datasets.Dataset, target: Path, progress: Progress | None) -> None:
    """Fetch by pooch, into a ``.part`` that a later call goes on with."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    part = target.with_name(target.name + ".part")
    fetcher = _Resuming(part, progress)
    try:
        pooch.retrieve(
            known.url,
            known_hash=None,  # ours is checked below, over the plain bytes
            fname=target.name,
            path=target.parent,
            downloader=fetcher,
        )
    except (OSError, ValueError) as error:
        raise _offline(known, _why(error)) from None
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()


def _why(error: Exception) -> str:
    """Return a network error in few words; the libraries' own run over many lines."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT_S:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the transfer broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"{type(error).__name__}: {error}"


def _offline(known: datasets.Dataset, why: str) -> InputError:
    return InputError.at(
        known.name,
        f"could not be fetched from {known.url} ({why})",
        "with a network, run it again (it resumes); without one, put a copy under $ZEROLAYER_DATA "
        f"or name its folder with --mirror; licence {known.licence}",
    )


@dataclass(slots=True)
class _Resuming:
    """A pooch downloader that asks for the rest of a file that is partly there."""

    part: Path
    progress: Progress | None

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        import requests

        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # a range of packed bytes could not be resumed
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as answer:
            if answer.status_code == 416:
                have = 0
                self.part.unlink()
                return self(url, output_file, pooch, check_only)
            answer.raise_for_status()
            resumed = answer.status_code == 206
            total = int(answer.headers.get("Content-Length", 0)) + (have if resumed else 0)
            with self.part.open("ab" if resumed else "wb") as copy:
                done = have if resumed else 0
                for chunk in answer.iter_content(_PIECE):
                    copy.write(chunk)
                    done += len(chunk)
                    if self.progress is not None:
                        self.progress(done, total)
        shutil.move(self.part, output_file)
        return None
