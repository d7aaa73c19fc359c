"""Which errors say that memory ran out."""

from typing import Final

import torch

MEMORY_ERRORS: Final = (MemoryError, torch.OutOfMemoryError)


def is_memory_error(error: BaseException) -> bool:
    """Say whether torch or Python ran out of memory (the CPU allocator has no class of its own)."""
    if isinstance(error, MEMORY_ERRORS):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text
