"""Read and write the safetensors format: a JSON header of offsets, then raw little-endian data.

Format: https://huggingface.co/docs/safetensors (8-byte header length, header, buffer).
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError

_DTYPES: Final = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MAX_HEADER: Final = 100 << 20


def load(folder: Path) -> dict[str, Any]:
    """Return every tensor of the folder's ``*.safetensors`` files by name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError.at(str(folder), "no .safetensors file")
    tensors: dict[str, Any] = {}
    for file in files:
        tensors |= _read(file)
    return tensors


def _read(file: Path) -> dict[str, Any]:
    import torch

    data = file.read_bytes()
    if len(data) < 8:
        raise InputError.at(str(file), "too short for a safetensors header")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(_MAX_HEADER, len(data) - 8):
        raise InputError.at(str(file), f"header of {length} bytes in a file of {len(data)}")
    header = json.loads(data[8 : 8 + length])
    body = memoryview(bytearray(data[8 + length :]))
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _DTYPES:
            raise InputError.at(f"{file}: {name}", f"dtype {entry['dtype']}", "F32, F16 or BF16")
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= len(body):
            raise InputError.at(f"{file}: {name}", "offsets outside the file")
        flat = torch.frombuffer(body[start:end], dtype=getattr(torch, _DTYPES[entry["dtype"]]))
        found[name] = flat.reshape(entry["shape"])
    return found


def save(tensors: Mapping[str, Any], file: Path) -> None:
    """Write *tensors* to one file."""
    import torch

    names = {f"torch.{theirs}": ours for ours, theirs in _DTYPES.items()}
    header, chunks, at = {}, [], 0
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        offsets = [at, at + len(raw)]
        header[name] = {
            "dtype": names[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
        chunks.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))
