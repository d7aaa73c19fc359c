"""How the text values of the legacy configuration are read."""

from typing import Final

from dispatch.errors import InputError

RETRY_CLASSES: Final = ("fault", "timeout", "oom")


def hardware_kind(gpu: str) -> str:
    """Return the key prefix of a GPU's catalogue name: v100, a100_40g, a100_80g or none."""
    low = gpu.lower().replace("_", "-")
    if "v100" in low:
        return "v100"
    if "a100" in low:
        return "a100_40g" if "40" in low.split("a100", 1)[1] else "a100_80g"
    return ""


def pairs(key: str, text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``left=right`` parts with commas between them, in order."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        left, separator, right = part.partition("=")
        if not separator or not left.strip() or not right.strip():
            raise InputError.at(
                f"legacy settings.{key}", f"{part!r} is no pair", "write left=right"
            )
        found.append((left.strip(), right.strip()))
    return tuple(found)


def retry_classes(text: str) -> frozenset[str]:
    """Parse failure classes with commas between them."""
    found = frozenset(filter(None, (p.strip() for p in text.split(","))))
    if unknown := sorted(found - set(RETRY_CLASSES)):
        raise InputError.at(
            "legacy settings.retry_on",
            f"unknown class {', '.join(unknown)}",
            f"known: {', '.join(RETRY_CLASSES)}",
        )
    return found
