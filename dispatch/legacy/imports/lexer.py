"""Tokens and blocks of an nginx configuration file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dispatch.errors import InputError

_DEEPEST: Final = 100  # blocks; http, server, location and a few more are real ones


@dataclass(slots=True)
class Directive:
    """A directive: its words, the line it begins on, and the directives of its block."""

    words: list[str]
    line: int
    block: list["Directive"] | None = None

    @property
    def name(self) -> str:
        """First word."""
        return self.words[0]

    def all(self, name: str) -> Iterator["Directive"]:
        """Yield the directives called *name* at any depth, in order."""
        for child in self.block or []:
            if child.words and child.name == name:
                yield child
            yield from child.all(name)

    def every(self) -> Iterator["Directive"]:
        """Yield the directives at any depth, in order."""
        for child in self.block or []:
            yield child
            yield from child.every()


@dataclass(slots=True)
class _Reader:
    text: str
    place: str
    at: int = 0
    line: int = 1
    tokens: list[tuple[str, bool, int]] = field(default_factory=list)  # word, quoted, line

    def read(self) -> list[tuple[str, bool, int]]:
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\n":
                self.line += 1
                self.at += 1
            elif c.isspace():
                self.at += 1
            elif c == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif c in "{};":
                self.tokens.append((c, False, self.line))
                self.at += 1
            elif c in "\"'":
                self._quoted(c)
            else:
                self._word()
        return self.tokens

    def _quoted(self, quote: str) -> None:
        start, line, out = self.at, self.line, []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            if self.text[self.at] == "\\" and self.at + 1 < len(self.text):
                self.at += 1
            self.line += self.text[self.at] == "\n"
            out.append(self.text[self.at])
            self.at += 1
        if self.at >= len(self.text):
            raise InputError.at(
                f"{self.place}:{line}", "a quote is not closed", self.text[start:][:20]
            )
        self.at += 1
        self.tokens.append(("".join(out), True, line))

    def _word(self) -> None:
        start = self.at
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "$" and self.text[self.at + 1 : self.at + 2] == "{":
                close = self.text.find("}", self.at)
                self.at = len(self.text) if close < 0 else close + 1
                continue
            if c.isspace() or c in "{};":
                break
            self.at += 1
        self.tokens.append((self.text[start : self.at], False, self.line))


def parse(text: str, place: str) -> Directive:
    """Parse nginx configuration *text* into a root directive, or raise at the line."""
    root = Directive(["(root)"], 1, [])
    stack = [root]
    words: list[str] = []
    line = 0
    for word, quoted, at in _Reader(text, place).read():
        if quoted or word not in "{};":
            line = line if words else at
            words.append(word)
            continue
        if word != "}" and not words:
            raise InputError.at(f"{place}:{at}", f"{word!r} without a directive")
        if word == "}":
            if words or len(stack) == 1:
                raise InputError.at(f"{place}:{at}", "unexpected '}'", "a ';' or '{' is missing")
            stack.pop()
            continue
        made = Directive(words, line, [] if word == "{" else None)
        parent = stack[-1].block
        assert parent is not None
        parent.append(made)
        if word == "{":
            stack.append(made)
            if len(stack) > _DEEPEST:
                raise InputError.at(f"{place}:{at}", "is nested too deeply", "close the blocks")
        words = []
    if words or len(stack) > 1:
        raise InputError.at(f"{place}:{line}", "the file ends inside a block", "close it with '}'")
    return root
