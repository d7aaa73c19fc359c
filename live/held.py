"""What a sequence holds of a KV cache, and its rows in a pass; known without loading torch."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Held:
    """KV memory of one sequence: the arena's address, its pages, tokens that fit and are stored."""

    address: int | None = None
    room_tokens: int = 0
    stored_tokens: int = 0
    pages: list[int] = field(default_factory=list)
    blocks: "Tensor | None" = None  # the pages as a tensor


class Span(Protocol):
    """A run of new tokens of one sequence in the flat batch of a pass."""

    @property
    def held(self) -> Held:
        """KV memory of the sequence."""

    @property
    def start(self) -> int:
        """First row in the batch."""

    @property
    def count(self) -> int:
        """Rows."""

    @property
    def past(self) -> int:
        """Tokens stored before them."""
