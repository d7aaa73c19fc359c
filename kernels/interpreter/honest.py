"""Make Triton's interpreter honest about bfloat16, and count the bytes that kernels touch.

As it is, the interpreter keeps bf16 as bit patterns: a dot multiplies them, sums and comparisons
read them as integers, and a cast to bf16 truncates; all without a word. Here a dot widens its
operands, casts round to nearest even as the device does, and any other bf16 arithmetic raises, so
that "widen to fp32 after every load" is a rule that tests hold.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Traffic:
    """Bytes loaded and stored, and which addresses: ``distinct`` counts each byte once."""

    loaded: int = 0
    stored: int = 0
    _reads: list[NDArray[np.uint64]] = field(default_factory=list)
    _writes: list[NDArray[np.uint64]] = field(default_factory=list)

    def load(self, at: Any, mask: Any, width: int) -> None:
        """Count one load of *width* bytes an element."""
        self.loaded += int(np.count_nonzero(mask)) * width
        self._reads.append(_units(at, mask, width))

    def store(self, at: Any, mask: Any, width: int) -> None:
        """Count one store."""
        self.stored += int(np.count_nonzero(mask)) * width
        self._writes.append(_units(at, mask, width))

    @property
    def distinct_loaded(self) -> int:
        """Bytes loaded at least once."""
        return _distinct(self._reads)

    @property
    def distinct_stored(self) -> int:
        """Bytes stored at least once."""
        return _distinct(self._writes)


def _units(at: Any, mask: Any, width: int) -> NDArray[np.uint64]:
    """Return the 2-byte units that an access touches."""
    at, mask = np.broadcast_arrays(np.asarray(at), np.asarray(mask))
    wanted = at[mask].astype(np.uint64)
    steps = np.arange(0, width, 2, dtype=np.uint64)
    return np.unique((wanted[:, None] + steps[None, :]).ravel())


def _distinct(parts: list[NDArray[np.uint64]]) -> int:
    return 2 * len(np.unique(np.concatenate(parts))) if parts else 0


class Hooks:
    """What happens beside the interpreter's own work; each may be set by a test."""

    def __init__(self) -> None:
        self.traffic: Traffic | None = None
        self.before_atomic: Callable[[Any, Any], None] | None = None
        self.after_atomic: Callable[[Any, Any, Any], None] | None = None
        self.before_access: Callable[[bool], None] | None = None


@contextmanager
def honest() -> Iterator[Hooks]:
    """Patch the interpreter for the length of the block; nothing else in the process changes."""
    from triton.runtime import interpreter

    hooks = Hooks()
    builder = interpreter.InterpreterBuilder
    own = {name: getattr(builder, name) for name in dir(builder) if name.startswith("create_")}
    replaced = {**_bf16(interpreter, own), **_memory(interpreter, own, hooks)}
    saved = {name: builder.__dict__.get(name) for name in (*replaced, "cast_impl")}
    cast = builder.cast_impl
    for name, function in replaced.items():
        setattr(builder, name, function)
    builder.cast_impl = _cast(interpreter, cast)
    try:
        yield hooks
    finally:
        for name, before in saved.items():
            setattr(builder, name, before)


def _is_bf16(handle: Any) -> bool:
    import triton.language as tl

    kind = getattr(handle, "dtype", None)
    return kind is not None and kind.scalar == tl.bfloat16


def widen(data: Any) -> NDArray[np.float32]:
    """Return bf16 bit patterns as float32."""
    bits: NDArray[np.uint32] = np.asarray(data).astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def narrow(data: Any) -> NDArray[np.uint16]:
    """Return float32 as bf16 bit patterns, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, nearest).astype(np.uint16)


def _cast(interpreter: Any, own: Any) -> Any:
    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        import triton.language as tl

        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.bfloat16 and target != tl.bfloat16:
            wide = interpreter.TensorHandle(widen(src.data), tl.float32)
            return wide if target == tl.float32 else own(self, wide, dst_type)
        if target == tl.bfloat16 and source != tl.bfloat16:
            return interpreter.TensorHandle(narrow(src.data.astype(np.float32)), tl.bfloat16)
        return own(self, src, dst_type)

    return cast_impl


def _bf16(interpreter: Any, own: dict[str, Any]) -> dict[str, Any]:
    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        left = widen(a.data) if _is_bf16(a) else a.data
        right = widen(b.data) if _is_bf16(b) else b.data
        # Exact products, one rounding: the order of the sum then hangs on no library.
        total = np.matmul(left.astype(np.float64), right.astype(np.float64)) + d.data
        return interpreter.TensorHandle(total.astype(d.data.dtype), d.dtype.scalar)

    def refusing(name: str) -> Any:
        def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
            if any(_is_bf16(arg) for arg in args):
                raise TypeError(f"bf16 arithmetic in {name}: widen to fp32 after the load")
            return own[name](self, *args, **kwargs)

        return refused

    arithmetic = [
        n for n in own
        if n.startswith(("create_f", "create_max", "create_min", "create_exp", "create_log"))
        and not n.startswith(("create_fp_", "create_f64"))
    ]  # fmt: skip
    replaced = {n: refusing(n) for n in (*arithmetic, "create_sqrt", "create_rsqrt") if n in own}
    return {**replaced, "create_dot": dot, "create_fp_to_fp": _fp_to_fp(own)}


def _fp_to_fp(own: dict[str, Any]) -> Any:
    def fp_to_fp(self: Any, src: Any, dst_type: Any, mode: Any) -> Any:
        import triton.language as tl

        if tl.bfloat16 in (src.dtype.scalar, dst_type.scalar):
            return self.cast_impl(src, dst_type)
        return own["create_fp_to_fp"](self, src, dst_type, mode)

    return fp_to_fp


def _memory(interpreter: Any, own: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    def width(ptrs: Any) -> int:
        return int(interpreter._get_np_dtype(ptrs.get_element_ty()).itemsize)

    def load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        if hooks.before_access:
            hooks.before_access(False)
        if hooks.traffic:
            hooks.traffic.load(ptrs.data, mask.data, width(ptrs))
        return own["create_masked_load"](self, ptrs, mask, *rest)

    def store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if hooks.before_access:
            hooks.before_access(True)
        if hooks.traffic:
            hooks.traffic.store(ptrs.data, mask.data, width(ptrs))
        return own["create_masked_store"](self, ptrs, value, mask, *rest)

    def atomic(self: Any, op: Any, ptr: Any, value: Any, *rest: Any) -> Any:
        if hooks.before_atomic:
            hooks.before_atomic(ptr, value)
        found = own["create_atomic_rmw"](self, op, ptr, value, *rest)
        if hooks.after_atomic:
            hooks.after_atomic(ptr, value, found)
        return found

    return {"create_masked_load": load, "create_masked_store": store, "create_atomic_rmw": atomic}
