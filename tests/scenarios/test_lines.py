"""Line numbers of TOML keys."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.lines import LineIndex

TEXT = '''#:schema x
name = "a" # [not.a.table]
text = """
[nor.this]
foo "bar" \\"""
"""
[a.b]
c = [1,
  2, # three = 3
  {x = 1, "y.z" = [ 3 ]},
]
[[arms]]
name = 'q'
[arms.door]
kind = "x"
[[arms]]
door.kind = 3
[[arms.list]]
z=1
[[arms.list]]
z = 1979-05-27T07:32:00Z
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("text",), 3),
        (("a", "b"), 7),
        (("a", "b", "c", 1), 9),
        (("a", "b", "c", 2, "y.z"), 10),
        (("arms", 0, "name"), 13),
        (("arms", 0, "door", "kind"), 15),
        (("arms", 1, "door", "kind"), 17),
        (("arms", 1, "list", 0, "z"), 19),
        (("arms", 1, "list", 1, "z"), 21),
    ],
)
def test_a_key_is_found_on_its_line(path: tuple[str | int, ...], line: int) -> None:
    assert LineIndex(TEXT).line(path) == line


def test_a_key_that_is_not_there_takes_the_line_of_its_table() -> None:
    assert LineIndex(TEXT).line(("arms", 0, "door", "workers", "x")) == 14


def paths(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    if isinstance(node, dict):
        for key, value in node.items():
            found += paths(value, (*path, key))
    if isinstance(node, list):
        for number, value in enumerate(node):
            found += paths(value, (*path, number))
    return found


scalars = st.sampled_from(["1", "-2.5e3", "true", '"a # b"', "'it]s'", '"""\nx = 1\n"""', "inf"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ",\n ".join(items) + "]"),
        st.lists(inner, max_size=2).map(
            lambda items: "{" + ", ".join(f'"k {n}" = {v}' for n, v in enumerate(items)) + "}"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(["", "# note", "\n"]), values), max_size=6))
def test_every_key_that_tomllib_reads_has_a_line(entries: list[tuple[str, str]]) -> None:
    text = "".join(f"[t{n}]\nkey = {value} {note}\n" for n, (note, value) in enumerate(entries))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a line break inside an inline table
        return
    index = LineIndex(text)
    for path in paths(document):
        assert path in index.lines
    rows = text.splitlines()
    for n in range(len(entries)):
        assert rows[index.line((f"t{n}",)) - 1] == f"[t{n}]"
