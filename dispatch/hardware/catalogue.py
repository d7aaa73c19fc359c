"""GPUs and models as data: one TOML file each, bundled or in a folder of the user's.

A user adds a GPU or a model without code: a file of the same keys in ``$ZEROLAYER_HARDWARE/gpus``
or ``$ZEROLAYER_HARDWARE/models``, or a path to one where a name is asked for.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from dispatch.errors import InputError, Problem, UnknownNameError, nearest

HERE: Final = Path(__file__).parent
PRECISION_BYTES: Final[Mapping[str, float]] = {
    "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0,
    "int4": 0.5 + 2.0 / 128,  # a 16-bit scale for each group of 128 weights
}  # fmt: skip
TOPOLOGIES: Final = ("nvswitch", "cube_mesh", "pairwise", "pcie")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU: bytes, bytes per second, dense FLOP per second by precision, links."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops: Mapping[str, float] = field(hash=False)
    sms: int
    l2_bytes: int
    compute_capability: float
    topology: str
    nvlink_bytes_per_s: float  # per direction and GPU; 0 where there is none
    pcie_bytes_per_s: float  # per direction
    price_usd_per_h: float = 0.0
    host_ratio: float = 1.0  # host time of a node with it, over that of a node with A100s
    sibling: str = ""  # a GPU of the same die: its constants serve where this one has none
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    origin: str = ""

    def flops_for(self, precision: str) -> float:
        """Return the dense rate for weights of *precision*.

        INT4 weights are widened to 16 bits before they are multiplied; BF16 without hardware for it
        runs at the FP32 rate; FP8 without hardware for it is weight-only and runs at 16 bits.
        """
        if precision in ("int4", "fp8", "int8") and not (
            precision in self.flops and precision != "int4"
        ):
            return self.flops["fp16"]
        if precision == "bf16" and "bf16" not in self.flops:
            return self.flops["fp32"]
        return self.flops[precision]


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a decoder-only transformer."""

    name: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    vocab: int
    context_tokens: int
    tied_embeddings: bool = False
    norm: str = "rms"
    bias: str = "none"
    positions: str = "rope"
    aliases: tuple[str, ...] = ()
    source: str = ""
    origin: str = ""

    @property
    def layer_weights(self) -> int:
        """Weights of the four projections of one layer (what a GEMM reads)."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + self.hidden * self.ffn * (3 if self.gated else 2)

    @property
    def counted_parameters(self) -> int:
        """Parameters recomputed from the shape; a check on ``parameters``."""
        kv = self.kv_heads * self.head_dim
        q = self.heads * self.head_dim
        bias = 0
        if self.bias in ("qkv", "all"):
            bias += q + 2 * kv
        if self.bias == "all":
            bias += 2 * self.hidden + self.ffn * (2 if self.gated else 1)
        width = 2 if self.norm == "layer" else 1  # LayerNorm has a bias, RMSNorm has none
        layer = self.layer_weights + bias + 2 * width * self.hidden
        embeddings = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        if self.positions == "learned":
            embeddings += self.context_tokens * self.hidden
        return self.layers * layer + embeddings + width * self.hidden

    def weights_bytes(self, precision: str) -> float:
        """Return the bytes of all weights: projections at *precision*, the rest at 16 bits."""
        wide = 4.0 if precision == "fp32" else 2.0
        quantised = self.layers * self.layer_weights
        return quantised * PRECISION_BYTES[precision] + (self.parameters - quantised) * wide

    def kv_bytes_per_token(self, kv_precision: str) -> float:
        """Return the bytes of keys and values of one token over all layers and heads."""
        return (
            2.0 * self.layers * self.kv_heads * self.head_dim * PRECISION_BYTES[kv_precision]
        )  # fmt: skip


T = TypeVar("T", bound=Gpu | Model)


def gpu(name: str) -> Gpu:
    """Return a GPU by name, alias or path of a TOML file; names ignore case.

    Raises UnknownNameError with the near miss, InputError for a file that cannot be used.
    """
    return _find("gpu", name, gpus(), _gpu)


def model(name: str) -> Model:
    """Return a model by name, alias or path of a TOML file; names ignore case.

    Raises UnknownNameError with the near miss, InputError for a file that cannot be used.
    """
    return _find("model", name, models(), _model)


def gpus() -> dict[str, Gpu]:
    """Return every GPU by name, the user's over the bundled ones."""
    return _gpus(os.environ.get("ZEROLAYER_HARDWARE", ""))


def models() -> dict[str, Model]:
    """Return every model by name, the user's over the bundled ones."""
    return _models(os.environ.get("ZEROLAYER_HARDWARE", ""))


@cache
def _gpus(user: str) -> dict[str, Gpu]:
    return _load("gpus", user, _gpu)


@cache
def _models(user: str) -> dict[str, Model]:
    return _load("models", user, _model)


def _find(kind: str, name: str, known: dict[str, T], build: Callable[[Path], T]) -> T:
    if name.endswith(".toml"):
        return build(Path(name))
    wanted = name.strip().lower()
    for key in known:
        names = (known[key].name, *known[key].aliases)
        if wanted in (one.lower() for one in names):
            return known[key]
    raise UnknownNameError("", kind, name, known)


def _load(folder: str, user: str, build: Callable[[Path], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for root in (HERE, *([Path(user)] if user else [])):
        for path in sorted((root / folder).glob("*.toml")):
            built: T = build(path)
            found[built.name] = built
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Return the document in *path*; InputError where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError.at(str(path), "no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError.at(str(path), f"cannot be read as TOML: {error}") from None
    except RecursionError:
        raise InputError.at(str(path), "is nested too deep", "expected tables of figures") from None


def _gpu(path: Path) -> Gpu:
    raw = read_toml(path)
    link = raw.pop("link", {})
    flat = {**raw, **{f"link.{key}": value for key, value in link.items()}}
    problems: list[Problem] = []

    def number(key: str, least: float = 0.0) -> float:
        value = flat.pop(key, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            problems.append(
                Problem(str(path), f"{key} = {value!r}", f"expected a number of at least {least:g}")
            )
            return 1.0
        return float(value)

    rates = flat.pop("tflops", {})
    if "fp16" not in rates or "fp32" not in rates:
        problems.append(Problem(str(path), "tflops lacks fp16 or fp32", "give both, dense"))
    topology = flat.pop("link.topology", "pcie")
    if topology not in TOPOLOGIES:
        problems.append(
            Problem(str(path), f"link.topology = {topology!r}", nearest(str(topology), TOPOLOGIES))
        )
    entry = Gpu(
        name=str(flat.pop("name", path.stem)),
        memory_bytes=int(number("memory_bytes", 1)),
        bandwidth_bytes_per_s=number("bandwidth_gb_per_s", 1) * 1e9,
        flops={str(k): float(v) * 1e12 for k, v in rates.items()},
        sms=int(number("sms", 1)),
        l2_bytes=int(number("l2_bytes")),
        compute_capability=number("compute_capability", 1),
        topology=str(topology),
        nvlink_bytes_per_s=number("link.nvlink_gb_per_s") * 1e9,
        pcie_bytes_per_s=number("link.pcie_gb_per_s", 0.1) * 1e9,
        price_usd_per_h=number("price_usd_per_h") if "price_usd_per_h" in flat else 0.0,
        host_ratio=number("host_ratio", 0.01) if "host_ratio" in flat else 1.0,
        sibling=str(flat.pop("sibling", "")),
        aliases=tuple(flat.pop("aliases", ())),
        sources=dict(flat.pop("sources", {})),
        origin=str(path),
    )
    known = {f.name for f in fields(Gpu)} | {"bandwidth_gb_per_s", "tflops", "link"}
    problems += [Problem(str(path), f"unknown key {k!r}", nearest(k, known)) for k in flat]
    if problems:
        raise InputError(problems)
    return entry


def _model(path: Path) -> Model:
    raw = read_toml(path)
    given = {**raw, "origin": str(path), "name": raw.get("name", path.stem)}
    given["aliases"] = tuple(raw.get("aliases", ()))
    problems: list[Problem] = []
    known = {f.name: f for f in fields(Model)}
    problems += [
        Problem(str(path), f"unknown key {k!r}", nearest(k, known)) for k in given if k not in known
    ]
    for name, spec in known.items():
        value = given.get(name, spec.default)
        if value is MISSING:
            problems.append(Problem(str(path), f"{name} is missing", "give it as the others do"))
        elif spec.type in (int, "int") and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            problems.append(Problem(str(path), f"{name} = {value!r}", "expected a whole number"))
    if problems:
        raise InputError(problems)
    return Model(**given)
