"""Read a live set-up from TOML, with every problem at once."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dispatch.errors import InputError, NotMeasurable, Problem
from live.config import LiveConfig


def read_config(path: Path | None, **changes: Any) -> LiveConfig:
    """Return the set-up in *path* (the defaults without one), with sections *changes* on top.

    A change of None leaves the section as it is; a dict is merged into the section.
    """
    document: dict[str, Any] = {}
    place = "live set-up"
    if path is not None:
        place = str(path)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError.at(place, error.strerror or "cannot be read") from None
        except tomllib.TOMLDecodeError as error:
            raise InputError.at(place, f"no TOML: {error}") from None
        except RecursionError:
            raise InputError.at(place, "is nested too deep", "expected a set-up") from None
    for name, value in changes.items():
        if isinstance(value, dict):
            document[name] = {**document.get(name, {}), **value}
        elif value is not None:
            document[name] = value
    return parse_config(document, place)


def parse_config(document: dict[str, Any], place: str) -> LiveConfig:
    """Validate *document*, or raise every problem as one InputError."""
    try:
        config = LiveConfig.model_validate(document)
    except ValidationError as error:
        raise InputError(
            Problem(f"{place}: {'.'.join(map(str, item['loc']))}", repr(item["input"]), item["msg"])
            for item in error.errors()
        ) from None
    names = [device.name for device in config.devices]
    if len(set(names)) < len(names):
        raise InputError.at(place, f"device names repeat: {', '.join(names)}")
    return config


def slices(
    count: int, kind: str = "cpu", kv_mib: float = 32.0, cards: int = 0
) -> list[dict[str, Any]]:
    """Return the sections of *count* equal devices; CUDA devices are dealt out to *cards* GPUs."""
    return [
        {
            "name": f"{kind}{at}",
            "kind": kind,
            "index": at % max(1, cards or count) if kind == "cuda" else 0,
            "kv_mib": kv_mib,
        }
        for at in range(count)
    ]


def cuda_count() -> int:
    """Return the number of CUDA devices, or raise NotMeasurable where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise NotMeasurable("torch sees no CUDA device; use CPU devices")
    return int(torch.cuda.device_count())
