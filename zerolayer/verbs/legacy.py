"""``zerolayer legacy``: the ledger of the 47 keys, and imports of other routers' files."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="legacy", help="The legacy routing layer: what it does, and what of it is missed.")

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


@app.command
def ledger(*, json: Json = False) -> int:
    """List the 47 keys: what each does, what becomes of it without the layer, and its test.

    Exit code 1 where a row names a test that does not exist.
    """
    from dispatch.legacy.ledger import has_test
    from dispatch.legacy.ledger import ledger as rows_of

    root = Path(__file__).parents[2]
    rows = [(row, has_test(row, root)) for row in rows_of()]
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps([{**asdict(row), "test_exists": exists} for row, exists in rows], indent=2))
    else:
        for row, exists in rows:
            mark = {True: "", False: " [no such test]", None: ""}[exists]
            print(f"{row.key} ({row.kind}): {row.without}")
            _told("does", row.does)
            _told("instead", row.how)
            _told("test", row.test.partition("::")[2] + mark)
        fates = [row.without for row, _ in rows]
        counts = ", ".join(f"{fates.count(f)} {f}" for f in ("gone", "replaced", "needed"))
        print(f"{len(rows)} keys: {counts}. By construction, not by measurement (C9).")
    return 1 if any(exists is False for _, exists in rows) else 0


def _told(name: str, text: str) -> None:
    """Print one indented fact of a key; a test's name stays whole, to be searched for."""
    import textwrap

    print(
        textwrap.fill(
            text, 80, initial_indent=f"    {name:<8}", subsequent_indent=" " * 12,
            break_long_words=False,
        )
    )  # fmt: skip


@app.command(name="import")
def import_(
    file: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Read nginx upstream blocks, Envoy clusters or our own TOML into the legacy configuration.

    Prints the configuration as TOML (or writes it to ``-o``) and lists what could not be carried
    over. YAML needs the yaml module; Envoy JSON needs nothing.
    """
    import sys

    from dispatch.legacy.imports import read_file

    found = read_file(file)
    if output is not None:
        output.write_text(found.as_toml(), encoding="utf-8")
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps(asdict(found), indent=2))
        return 0
    if output is None:
        print(found.as_toml(), end="")
    print(
        f"{len(found.settings)} keys and {len(found.peers)} servers carried over; "
        f"{len(found.left)} things were not:",
        file=sys.stderr,
    )
    for row in found.left:
        print(f"  {row.place}: {row.what} ({row.why})", file=sys.stderr)
    return 0
