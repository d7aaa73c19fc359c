"""Where each key of a TOML text stands: tomllib keeps no line numbers, errors need them."""

import tomllib

Path = tuple[str | int, ...]

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class LineIndex:
    """Lines of every key, table and array item of a text that tomllib has accepted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._lengths: dict[Path, int] = {}
        self.lines: dict[Path, int] = {(): 1}
        self._scan()

    def line(self, path: Path) -> int:
        """Return the line of *path*, or of its nearest ancestor that the text names."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def _scan(self) -> None:
        table: Path = ()
        while True:
            self._blank(newlines=True)
            if self._at >= len(self._text):
                return
            line = self._line
            if self._text.startswith("[[", self._at):
                self._at += 2
                table = self._resolve(self._keys())
                self._mark(table, line)
                table = (*table, self._next_item(table))
                self._at += 2
            elif self._text[self._at] == "[":
                self._at += 1
                table = self._resolve(self._keys())
                self._at += 1
            else:
                self._pair(table)
                continue
            self._mark(table, line)

    def _resolve(self, keys: Path) -> Path:
        """Return *keys* with the index of the last item after each array of tables on the way."""
        path: Path = ()
        for key in keys[:-1]:
            path = (*path, key)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return (*path, keys[-1])

    def _next_item(self, array: Path) -> int:
        index = self._lengths.get(array, 0)
        self._lengths[array] = index + 1
        return index

    def _mark(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def _pair(self, table: Path) -> None:
        line = self._line
        path = (*table, *self._keys())
        self._mark(path, line)
        self._at += 1  # the equals sign
        self._blank()
        self._value(path)

    def _keys(self) -> Path:
        keys: list[str] = []
        while True:
            self._blank()
            if self._text[self._at] in "\"'":
                keys.append(self._string())
            else:
                start = self._at
                while self._text[self._at] in _BARE:
                    self._at += 1
                keys.append(self._text[start : self._at])
            self._blank()
            if self._text[self._at] != ".":
                return tuple(keys)
            self._at += 1

    def _value(self, path: Path) -> None:
        head = self._text[self._at]
        if head in "\"'":
            self._string()
        elif head == "[":
            self._array(path)
        elif head == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}#\n":
                self._at += 1

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._blank(newlines=True)
            if self._text[self._at] == "]":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._mark((*path, index), self._line)
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while True:
            self._blank(newlines=True)
            if self._text[self._at] == "}":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)

    def _string(self) -> str:
        """Pass over a string; return its text (a key needs it, a value does not)."""
        quote = self._text[self._at]
        fence = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        start = self._at
        self._at += len(fence)
        while not self._text.startswith(fence, self._at):
            if quote == '"' and self._text[self._at] == "\\":
                self._step()
            self._step()
        self._at += len(fence)
        while len(fence) == 3 and self._text[self._at : self._at + 1] == quote:
            self._at += 1  # up to two quotes may stand right before the closing fence
        if len(fence) == 3:
            return ""
        return str(tomllib.loads(f"k = {self._text[start : self._at]}")["k"])

    def _step(self) -> None:
        self._line += self._text[self._at] == "\n"
        self._at += 1

    def _blank(self, newlines: bool = False) -> None:
        blank = " \t\r\n" if newlines else " \t"
        while self._at < len(self._text):
            if self._text[self._at] == "#" and newlines:
                while self._at < len(self._text) and self._text[self._at] != "\n":
                    self._at += 1
            elif self._text[self._at] in blank:
                self._step()
            else:
                return
