"""The bytes of a trace file: plain, gzip or zstd told by their first bytes, never by the name."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from dispatch.encodings import to_utf8, wide
from dispatch.errors import InputError

GZIP, ZSTD, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_CHUNK: Final = 1 << 20
LONGEST_LINE: Final = 64 << 20  # bytes; a longer line is no trace of requests
_PICKLE: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(slots=True)
class Source:
    """A file that is read once or more, with its compression found by content."""

    path: Path
    packing: str = field(init=False)
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        if self.path.is_dir():
            raise InputError.at(str(self.path), "is a folder", "name one trace file")
        if self.path.exists() and not self.path.is_file():
            raise InputError.at(
                str(self.path), "is a pipe or a device, and a trace is read more than once",
                "write it to a file first",
            )  # fmt: skip
        try:
            with self.path.open("rb") as raw:
                magic = raw.read(8)
        except FileNotFoundError:
            raise InputError.at(str(self.path), "no such file", "check the path") from None
        except OSError as error:
            raise InputError.at(str(self.path), f"cannot be read: {error.strerror}") from None
        self.packing = "gzip" if magic[:2] == GZIP else "zstd" if magic[:4] == ZSTD else "plain"
        self.head = self._read_head()
        self._refuse_foreign()

    def _read_head(self) -> bytes:
        with self.open() as stream:
            return bytes(stream.read(1 << 16))

    def _refuse_foreign(self) -> None:
        place = str(self.path)
        if not self.head.strip():
            raise InputError.at(place, "is empty", "a trace needs at least one request")
        if self.head[:2] in _PICKLE:
            raise InputError.at(
                place,
                "is a Python pickle, which can run code when it is loaded; it is never opened",
                "export it as JSON lines where it was made",
            )
        if self.head[:4] == b"PK\x03\x04":
            raise InputError.at(place, "is a zip archive", "unpack it and name one file of it")
        if self.head[:4] == PARQUET:
            return
        if encoding := wide(self.head):
            raise InputError.at(
                place, f"looks like {encoding} text, not UTF-8", to_utf8(encoding, place)
            )
        if b"\0" in self.head[:4096]:
            raise InputError.at(
                place, "holds binary data, not a text format or Parquet", "check the file"
            )

    @property
    def is_parquet(self) -> bool:
        return self.head[:4] == PARQUET

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield the unpacked bytes; a damaged or cut archive is an InputError."""
        try:
            with self._unpacked() as stream:
                yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._damaged(error) from None
        except OSError as error:
            if self.packing == "plain":
                raise InputError.at(str(self.path), f"cannot be read: {error}") from None
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        return InputError.at(
            str(self.path),
            f"is a damaged or cut {self.packing} file ({error})",
            "fetch or pack it again",
        )

    @contextmanager
    def _unpacked(self) -> Iterator[IO[bytes]]:
        if self.packing == "gzip":
            with gzip.open(self.path, "rb") as stream:
                yield stream  # type: ignore[misc]
        elif self.packing == "zstd":
            import pyarrow as pa

            packed: Any = pa.CompressedInputStream(pa.OSFile(str(self.path)), "zstd")
            with packed:
                yield packed
        else:
            with self.path.open("rb") as plain:
                yield plain

    def sha256(self) -> str:
        """Return the digest of the unpacked bytes, so that packing does not change a trace."""
        digest = hashlib.sha256()
        with self.open() as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (line number from 1, bytes without the line end); a missing last newline is fine.

        A line end is LF or CRLF. A byte-order mark is dropped. Empty lines are left out.
        """
        with self.open() as stream:
            rest, number = b"", 0
            while chunk := stream.read(_CHUNK):
                parts = (rest + chunk).split(b"\n")
                rest = parts.pop()
                if len(rest) > LONGEST_LINE:
                    raise InputError.at(
                        f"{self.path}: line {number + len(parts) + 1}",
                        f"is longer than {LONGEST_LINE >> 20} MiB",
                        "check that this is a trace of one request a line",
                    )
                for part in parts:
                    number += 1
                    yield from self._line(number, part)
            yield from self._line(number + 1, rest)

    @staticmethod
    def _line(number: int, line: bytes) -> Iterator[tuple[int, bytes]]:
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line := line.strip(b"\r"):
            yield number, line

    def text(self) -> io.BytesIO:
        """Return all bytes in memory; for formats that are one document."""
        with self.open() as stream:
            return io.BytesIO(stream.read())
