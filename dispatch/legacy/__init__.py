"""The legacy routing layer: header rules, 47 keys, a ledger of them, and imports of real ones."""

from dispatch.legacy.config import HARDWARE_KEYS, KEYS, OTHER_KEYS, PROBE_KEYS, LegacyConfig
from dispatch.legacy.router import (
    MODEL_HEADER,
    PRECISION_HEADER,
    LegacyRouter,
    Peer,
    Translated,
)

__all__ = [
    "HARDWARE_KEYS",
    "KEYS",
    "MODEL_HEADER",
    "OTHER_KEYS",
    "PRECISION_HEADER",
    "PROBE_KEYS",
    "LegacyConfig",
    "LegacyRouter",
    "Peer",
    "Translated",
]
