"""The driver's calls of the 50 ms loop, their arguments made once and their answers read at once.

``pynvml`` builds its structures, looks its functions up and wraps every member anew at each call:
at 20 calls a second and GPU that, and not the driver, is what sampling costs. The structures, the
library and the errors here are still its own.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

# The C structures of nvml.h, read at once.
_MEMORY: Final = struct.Struct("@8xQQQQ")  # version, then total, reserved, free, used
_FIELD: Final = struct.Struct("@IIqqIIQ")  # id, scope, time, latency, type, error, value


class Calls:
    """Memory (version 2) and field values of one GPU; *fields* are (id, scope) pairs.

    One buffer each, overwritten by the next call: read an answer before asking again.
    """

    def __init__(self, api: Any, handle: Any, fields: Sequence[tuple[int, int]]) -> None:
        self._error = api.NVMLError
        at = ctypes.c_void_p
        self._ask_memory = _function(api, "nvmlDeviceGetMemoryInfo_v2", at, at)
        self._ask_fields = _function(api, "nvmlDeviceGetFieldValues", at, ctypes.c_int32, at)
        self._handle = ctypes.cast(handle, at)
        self._memory = api.c_nvmlMemory_v2_t(version=api.nvmlMemory_v2)
        self._fields = (api.c_nvmlFieldValue_t * len(fields))()
        for value, (field_id, scope) in zip(self._fields, fields, strict=True):
            value.fieldId, value.scopeId = field_id, scope
        self._memory_at = at(ctypes.addressof(self._memory))
        self._fields_at = at(ctypes.addressof(self._fields))
        self._count = ctypes.c_int32(len(fields))

    def memory(self) -> tuple[int, int, int, int]:
        """Return total, reserved, free and used bytes; raise NVMLError."""
        if code := self._ask_memory(self._handle, self._memory_at):
            raise self._error(code)
        total, reserved, free, used = _MEMORY.unpack(self._memory)
        return total, reserved, free, used

    def fields(self) -> Iterator[tuple[int, int, int, int, int, int, int]]:
        """Return (id, scope, time in µs, latency, type, error, value) of each; raise NVMLError."""
        if code := self._ask_fields(self._handle, self._count, self._fields_at):
            raise self._error(code)
        return _FIELD.iter_unpack(self._fields)


def _function(api: Any, name: str, *types: Any) -> Callable[..., int]:
    """Return a function of the library that is ours alone; one that an old driver lacks fails."""
    try:
        found = api.nvmlLib[name]
    except AttributeError:
        return lambda *arguments: int(api.NVML_ERROR_FUNCTION_NOT_FOUND)
    found.argtypes = list(types)
    return cast(Callable[..., int], found)
