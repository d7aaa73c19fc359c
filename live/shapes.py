"""Shapes of Llama decoders: presets for devices without a checkpoint, and a checkpoint's own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dispatch.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Dimensions of a decoder; ``dtype`` is the torch name of weights and KV cache."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_tokens: int
    rope_theta: float = 10_000.0
    eps: float = 1e-5
    tied: bool = False
    dtype: str = "float32"

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        width = 2 if self.dtype in ("float16", "bfloat16") else 4
        return 2 * self.layers * self.kv_heads * self.head_dim * width

    @property
    def parameters(self) -> int:
        """Number of weights."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        block = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        ends = self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * block + ends


PRESETS: Final = {
    shape.name: shape
    for shape in (
        LlamaShape("tiny", 64, 2, 4, 2, 16, 128, 320, 4096),
        LlamaShape("small", 256, 4, 8, 4, 32, 704, 320, 8192),
        LlamaShape("medium", 768, 8, 12, 4, 64, 2048, 320, 8192),
    )
}


def shape_of(name: str) -> LlamaShape:
    """Return a preset by name, or the shape that the folder *name* states in config.json."""
    if name in PRESETS:
        return PRESETS[name]
    config = Path(name) / "config.json"
    if not config.is_file():
        raise UnknownNameError(
            "live.model.name", "model preset or checkpoint folder", name, PRESETS
        )
    return _from_config(json.loads(config.read_text(encoding="utf-8")), Path(name))


def _from_config(config: dict[str, object], folder: Path) -> LlamaShape:
    def number(key: str, default: float | None = None) -> float:
        value = config.get(key, default)
        if not isinstance(value, int | float):
            raise InputError.at(f"{folder}/config.json", f"{key} is missing or no number")
        return value

    if config.get("rope_scaling"):
        raise InputError.at(f"{folder}/config.json", "rope_scaling is not supported", "remove it")
    heads = int(number("num_attention_heads"))
    hidden = int(number("hidden_size"))
    return LlamaShape(
        name=folder.name,
        hidden=hidden,
        layers=int(number("num_hidden_layers")),
        heads=heads,
        kv_heads=int(number("num_key_value_heads", heads)),
        head_dim=int(number("head_dim", hidden // heads)),
        ffn=int(number("intermediate_size")),
        vocab=int(number("vocab_size")),
        context_tokens=int(number("max_position_embeddings", 4096)),
        rope_theta=float(number("rope_theta", 10_000.0)),
        eps=float(number("rms_norm_eps", 1e-5)),
        tied=bool(config.get("tie_word_embeddings", False)),
        dtype=str(config.get("torch_dtype", config.get("dtype", "float32"))),
    )
