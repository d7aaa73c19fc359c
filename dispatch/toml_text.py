"""Scalars as TOML text; the standard library reads TOML and does not write it."""

import json


def scalar(value: object) -> str:
    """Return one string, truth value or number as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for the one control character that JSON lets pass.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
