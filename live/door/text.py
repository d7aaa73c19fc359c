"""The text of one choice as it grows: tokens decoded, stop strings found and held back."""

from collections.abc import Sequence

from live.tokens import Decoder


class Text:
    """Feeds tokens in, gives text out that can no longer become part of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._decoder = Decoder()
        self._held = ""
        self.stopped = False
        self.tokens = 0

    def feed(self, tokens: Sequence[int]) -> str:
        """Return the text that *tokens* set free; nothing after a stop string."""
        for token in tokens:
            if self.stopped:
                break
            self.tokens += 1
            self._held += self._decoder.feed(token)
            self._find_stop()
        return self._release()

    def end(self) -> str:
        """Return all that is left: no more tokens come."""
        if self.stopped:
            return ""
        self._held += self._decoder.flush()
        self._find_stop()
        text, self._held = self._held, ""
        return text

    def _find_stop(self) -> None:
        hits = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            self._held = self._held[: min(hits)]
            self.stopped = True

    def _release(self) -> str:
        keep = 0 if self.stopped else self._partial()
        free = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return free

    def _partial(self) -> int:
        """Return the length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest
