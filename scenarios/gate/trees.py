"""Base and head as folders: the merge base in a git worktree, the head as it stands."""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dispatch import registry
from dispatch.errors import InputError, NotMeasurable


@dataclass(frozen=True, slots=True)
class Tree:
    """One side of the gate: a folder and the commit that it holds."""

    folder: Path
    commit: str
    dirty: bool = False


def git(repo: Path, *args: str) -> str:
    """Return what git prints; a failure is an InputError with git's own words."""
    done = subprocess.run(
        ["git", "-C", str(repo), *args], capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["git failed"]
        hint = f"give --repo a git repository that holds it (this is {repo})"
        raise InputError.at(f"git {' '.join(args)}", words[-1], hint)
    return done.stdout.strip()


def head_tree(repo: Path, *, allow_dirty: bool) -> Tree:
    """Return the working tree as head; uncommitted changes are refused unless allowed."""
    top = Path(git(repo, "rev-parse", "--show-toplevel"))
    commit = git(top, "rev-parse", "HEAD")
    changed = git(top, "status", "--porcelain", "--untracked-files=no")
    if changed and not allow_dirty:
        first = changed.splitlines()[0].strip()
        raise InputError.at(
            str(top),
            f"uncommitted changes ({first} …) would be measured as commit {commit[:10]}",
            "commit them, or pass --dirty to measure the working tree as it is",
        )
    return Tree(top, commit, bool(changed))


def lend_policies(tree: Tree) -> None:
    """Let this process use the policies that *tree* declares, installed or not, as it has them.

    The tree's own class wins over an installed one of that name: the head is what is simulated.
    """
    file = tree.folder / "pyproject.toml"
    if not file.exists():
        return
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError.at(str(file), str(error), "mend it first") from None
    declared = project.get("entry-points", {}).get(registry.GROUP, {})
    if declared:
        sys.path[:0] = [str(tree.folder), str(tree.folder / "src")]
    for name, value in declared.items():
        registry.declare(name, value)


def base_commit(top: Path, ref: str | None) -> str:
    """Return the commit that head is compared with.

    With *ref*, the merge base of HEAD and *ref*. Without, the merge base with origin's or the
    local main branch; where HEAD is that branch itself, HEAD's first parent.
    """
    candidates = [ref] if ref else ["origin/main", "origin/master", "main", "master"]
    head = git(top, "rev-parse", "HEAD")
    for name in candidates:
        if not _knows(top, name):
            continue
        try:
            base = git(top, "merge-base", "HEAD", name)
        except InputError:
            raise NotMeasurable(
                f"HEAD and {name} have no merge base; fetch more history "
                "(a shallow clone hides it) or name another --base"
            ) from None
        if base != head or ref:
            return base
    if ref:
        raise InputError.at(f"--base {ref}", "no such commit", "name a branch, tag or commit")
    if not _knows(top, "HEAD~1"):
        raise NotMeasurable(
            f"{head[:10]} has no parent to compare with; name a --base or run --tier 0,1 only"
        )
    return git(top, "rev-parse", "HEAD~1")


def _knows(top: Path, name: str) -> bool:
    probe = ["git", "-C", str(top), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@contextmanager
def worktree(top: Path, commit: str) -> Iterator[Tree]:
    """Check *commit* out into a temporary worktree and remove it again, come what may."""
    with tempfile.TemporaryDirectory(prefix="zerolayer-gate-") as scratch:
        folder = Path(scratch) / "base"
        git(top, "worktree", "add", "--detach", "--quiet", str(folder), commit)
        try:
            yield Tree(folder, commit)
        finally:
            subprocess.run(
                ["git", "-C", str(top), "worktree", "remove", "--force", str(folder)],
                capture_output=True,
                check=False,
            )
