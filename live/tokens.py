"""Text to tokens and back: one token a UTF-8 byte, so that no tokenizer has to be installed.

A checkpoint's own vocabulary is served by token ids (the API takes lists of ids as a prompt).
"""

import codecs
from collections.abc import Sequence

BYTES = 256


def encode(text: str) -> list[int]:
    """Return one token for each UTF-8 byte."""
    return list(text.encode("utf-8"))


def decode(tokens: Sequence[int]) -> str:
    """Return the text of *tokens*; ids that are no bytes appear as ``<id>``."""
    decoder = Decoder()
    return "".join(decoder.feed(t) for t in tokens) + decoder.flush()


class Decoder:
    """Decodes token by token; an incomplete character waits for its other bytes."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Return the text that is complete after *token*."""
        if token < BYTES:
            return self._utf8.decode(bytes((token,)))
        return self.flush() + f"<{token}>"

    def flush(self) -> str:
        """Return what is left of an incomplete character."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
