"""A run folder appears whole or not at all: built beside its place, synced, renamed."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dispatch.errors import InputError

MANIFEST = "manifest.json"


def check_target(target: Path, force: bool) -> None:
    """Refuse a *target* that must not be replaced, before any work is done."""
    where = target.absolute()
    if where.is_symlink() or (where.exists() and not where.is_dir()):
        raise InputError.at(str(target), "is no folder", "name a folder that does not exist yet")
    if where.exists():
        if not force:
            raise InputError.at(
                str(target), "exists already", "choose another -o, or --force to replace it"
            )
        if any(where.iterdir()) and not (where / MANIFEST).is_file():
            raise InputError.at(
                str(target),
                "holds files but no manifest.json, so it is no run folder",
                "choose another -o; --force replaces run folders only",
            )
    home = where.parent
    while not home.exists():
        home = home.parent
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        raise InputError.at(str(target), f"{home} cannot be written to", "choose another -o")


@contextlib.contextmanager
def whole(target: Path, force: bool = False) -> Iterator[Path]:
    """Yield a scratch folder that becomes *target* if the block ends well, else vanishes.

    It is this process's alone from here on: whoever else wants *target* meanwhile is refused at
    once, before work that would be lost. What a process left that was killed is cleared away.
    """
    check_target(target, force)
    where = target.absolute()
    made: list[Path] = []
    try:
        made = _make_parents(where.parent)
        scratch, claim = _claim(target, where.parent / f".{where.name}.partial")
    except OSError as error:
        _remove(made)
        raise InputError.at(
            str(target), f"cannot be made: {error.strerror}", "choose another -o"
        ) from None
    try:
        check_target(target, force)  # it may have come between the look at it and the claim
        with room(str(target), "make room there, or choose another -o"):
            yield scratch
            _sync(scratch)
        scratch.chmod(0o777 & ~_umask())
        check_target(target, force)  # something else may have taken the name meanwhile
        _move(scratch, where)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        _remove(made)
        raise
    finally:
        os.close(claim)


@contextlib.contextmanager
def room(place: str, way_out: str) -> Iterator[None]:
    """Say where there is no room, and the *way_out*: those who write often name no file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError.at(place, os.strerror(error.errno).lower(), way_out) from None
        raise


def _claim(target: Path, scratch: Path) -> tuple[Path, int]:
    """Return *scratch* made empty, and the descriptor whose lock says that it is in use.

    The lock ends with its process however that goes, so that no id of a process need be trusted.
    """
    while True:
        scratch.mkdir(mode=0o700, exist_ok=True)
        claim = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(claim), os.stat(scratch)):
                for path in scratch.iterdir():  # of a run that was killed
                    shutil.rmtree(path) if _is_folder(path) else path.unlink()
                return scratch, claim
        except BlockingIOError:
            os.close(claim)
            raise InputError.at(
                str(target), f"another zerolayer is writing it now (in {scratch})",
                "wait for it, or choose another -o",
            ) from None  # fmt: skip
        except FileNotFoundError:
            pass  # it became its run meanwhile
        except BaseException:
            os.close(claim)
            raise
        os.close(claim)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(made: list[Path]) -> None:
    """Remove the parents that were made, but only those that are still empty."""
    for folder in reversed(made):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _make_parents(folder: Path) -> list[Path]:
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    for path in missing:
        path.mkdir(exist_ok=True)
    return missing


def _move(scratch: Path, where: Path) -> None:
    """Rename; an old run folder steps aside first and comes back if the rename fails."""
    if not where.exists():
        scratch.rename(where)
    else:
        aside = Path(tempfile.mkdtemp(prefix=f".{where.name}.", suffix=".old", dir=where.parent))
        where.rename(aside / "run")
        try:
            scratch.rename(where)
        except BaseException:
            (aside / "run").rename(where)
            aside.rmdir()
            raise
        shutil.rmtree(aside)
    _sync_folder(where.parent)


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_manifest(folder: Path) -> dict[str, object]:
    """Return the manifest of a run folder; an InputError says what is wrong with it."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError.at(
            str(folder), f"has no {MANIFEST}", "expected a folder that `zerolayer evidence` wrote"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError.at(
            str(path), f"is no JSON: {error}", "the run folder is damaged"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("manifest_version") != 1:
        raise InputError.at(str(path), "is no manifest of a zerolayer run", "expected version 1")
    return manifest
