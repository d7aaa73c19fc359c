"""Text that is not UTF-8, told by its first bytes, with the way out."""

import shlex
from typing import Final

_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"),
)  # fmt: skip
_LOOKED_AT: Final = 512


def wide(head: bytes) -> str:
    """Return UTF-16 (LE, BE) or UTF-32 where *head* looks like it, "" where it does not.

    Without a mark, text that is mostly Latin has a zero in every other byte.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    head = head[:_LOOKED_AT]
    pairs = len(head) // 2
    if pairs < 4:
        return ""
    for name, zeros, others in (("UTF-16LE", head[1::2], head[::2]),
                                ("UTF-16BE", head[::2], head[1::2])):  # fmt: skip
        if zeros.count(0) > 0.9 * pairs and others.count(0) < 0.1 * pairs:
            return name
    return ""


def to_utf8(encoding: str, path: str) -> str:
    """Return the command that turns the file at *path* into UTF-8."""
    name = path.rpartition("/")[2]
    words = f"{shlex.quote(path)} > {shlex.quote('utf8-' + name)}"
    return f"convert it: iconv -f {encoding} -t UTF-8 {words}"
