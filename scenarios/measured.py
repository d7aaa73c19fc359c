"""Tables of measured times, recognised by what is in them, in one tidy form a kind.

Formats: Splitwise's perf_model, Vidur's profiles, APEX's profiles, aiconfigurator's tables (CSV or
Parquet), Helix's batch-size-to-time pairs, and per-request timings of a vLLM run (JSON lines).
Units of a tidy table are bytes, tokens and microseconds.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pandas as pd

from dispatch import hardware
from dispatch.errors import InputError, UnknownNameError

_SUFFIXES: Final = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
_PASSES: Final = {
    "input_layernorm": "norm", "post_attention_layernorm": "norm", "add": "add",
    "attn_rope": "rope", "mlp_act": "act",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One file's measurements of one *kind*, with the stack they were taken under.

    *kind* is whole, gemm, elementwise, prefill_attention, decode_attention, all_reduce, layer or
    serving. *table* has a column ``gpu`` of catalogue names and a column ``us`` (whole: two).
    """

    kind: str
    stack: str
    path: Path
    table: pd.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unread:
    """A file, or a part of one, that is not covered, and why."""

    path: Path
    why: str


def read_folder(folder: Path) -> tuple[list[Measured], list[Unread]]:
    """Return everything under *folder* that is recognised, and what is not and why.

    Raises InputError where there is no such folder or nothing in it is recognised.
    """
    if not folder.is_dir():
        raise InputError.at(str(folder), "no such folder", "--data takes a folder of tables")
    found: list[Measured] = []
    unread: list[Unread] = []
    for path in sorted(p for p in folder.rglob("*") if p.name.endswith(_SUFFIXES)):
        try:
            for item in read(path):
                (found if isinstance(item, Measured) else unread).append(item)  # type: ignore[arg-type]
        except (ValueError, KeyError, OSError, UnicodeDecodeError) as error:
            unread.append(Unread(path, f"cannot be read: {type(error).__name__}: {error}"))
    if not found:
        raise InputError.at(
            str(folder), "no table of a known format", "docs/cost-model.md lists the formats"
        )
    return found, unread


def read(path: Path) -> Iterator[Measured | Unread]:
    """Yield what one file holds."""
    if ".jsonl" in path.name:
        yield from _serving(path)
        return
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    columns = set(table.columns)
    for needs, reader in _READERS:
        if needs <= columns:
            yield from reader(path, table)
            return
    if len(columns) == 2 and "bs2time" in path.name:
        yield from _helix(path)
        return
    yield Unread(path, f"columns of no known format: {', '.join(sorted(columns)[:6])}")


def _known(path: Path, table: pd.DataFrame, names: pd.Series) -> Iterator[tuple[pd.DataFrame, str]]:
    """Yield the rows of each GPU that the catalogue knows, then a reason for the others."""
    gpus: dict[str, str] = {}
    for name in names.unique():
        try:
            gpus[name] = hardware.gpu(str(name)).name
        except UnknownNameError:
            yield table.iloc[:0], f"GPU {name!r} is not in the catalogue"
    kept = names.isin(list(gpus))
    if kept.any():
        yield table[kept].assign(gpu=names[kept].map(gpus)), ""


def _one_gpu(path: Path) -> str:
    """Return the catalogue name of the GPU that a file's name speaks of, else its folders'."""
    for part in reversed(path.parts):
        words = part.lower()
        for key, name in _PATH_GPUS:
            if re.search(rf"(?<![a-z0-9]){key}(?![0-9])", words):
                paired = f"{name}-PAIR"
                return paired if "pairwise" in words and paired in hardware.gpus() else name
    raise ValueError("no GPU is named in its path")


_PATH_GPUS: Final = (
    ("h200", "H200"), ("h100", "H100-80G"), ("a100", "A100-80G"), ("v100", "V100-16G"),
    ("a40", "A40"), ("l40s", "L40S"), ("l4", "L4"), ("t4", "T4"), ("a10g?", "A10"),
    ("h20", "H20"), ("b200", "B200"), ("rtx4090", "RTX-4090"),
)  # fmt: skip


def _splitwise(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    synthetic = table.hardware.str.contains("pcap")
    if synthetic.any():
        yield Unread(path, f"{synthetic.sum()} rows of a power-capped H100 are synthetic")
    table = table[(table.token_size == 128) & ~synthetic]
    models = {}
    for name in table.model.unique():
        try:
            models[name] = hardware.model(name).name
        except UnknownNameError:
            yield Unread(path, f"model {name!r} is not in the catalogue")
    table = table[table.model.isin(list(models))]
    keys = ["model", "hardware", "tensor_parallel", "prompt_size", "batch_size"]
    table = table.groupby(keys)[["prompt_time", "token_time"]].median().reset_index()
    for rows, why in _known(path, table, table.hardware):
        if why:
            yield Unread(path, why)
            continue
        tidy = pd.DataFrame({
            "gpu": rows.gpu, "model": rows.model.map(models), "tp": rows.tensor_parallel,
            "prompt": rows.prompt_size, "batch": rows.batch_size,
            "prompt_us": rows.prompt_time * 1e3, "token_us": rows.token_time * 1e3,
        })  # fmt: skip
        yield Measured("whole", "eager-2023", path, tidy)


def _vidur_layer(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    gpu = _one_gpu(path)
    keys = ["num_tensor_parallel_workers", "num_tokens", "n_head", "n_kv_head", "n_embd",
            "n_expanded_embd", "vocab_size", "use_gated_mlp"]  # fmt: skip
    medians = [c for c in table.columns if c.endswith(".median")]
    t = table.groupby(keys)[medians].median().reset_index()
    tp, d = t.num_tensor_parallel_workers, t.n_embd / t.n_head
    kv = (t.n_kv_head / tp).clip(lower=1)
    wide = t.n_expanded_embd * t.use_gated_mlp.map({True: 2, False: 1}) / tp
    shapes = {
        "attn_pre_proj": ((t.n_head / tp + 2 * kv) * d, t.n_embd),
        "attn_post_proj": (t.n_embd, t.n_embd / tp),
        "mlp_up_proj": (wide, t.n_embd),
        "mlp_down_proj": (t.n_embd, t.n_expanded_embd / tp),
    }
    gemms = [
        pd.DataFrame({"gpu": gpu, "op": op, "m": t.num_tokens, "n": n, "k": k, "precision": "fp16",
                      "us": t[f"time_stats.{op}.median"] * 1e3})
        for op, (n, k) in shapes.items() if f"time_stats.{op}.median" in t
    ]  # fmt: skip
    yield Measured("gemm", "vidur", path, pd.concat(gemms).dropna().reset_index(drop=True))
    hidden = 2.0 * t.num_tokens * t.n_embd
    moved = {
        "input_layernorm": 2 * hidden, "post_attention_layernorm": 2 * hidden, "add": 3 * hidden,
        "attn_rope": 4.0 * t.num_tokens * (t.n_head / tp + kv) * d,
        "mlp_act": 2.0 * t.num_tokens * (wide + t.n_expanded_embd / tp),
    }  # fmt: skip
    passes = [
        pd.DataFrame({"gpu": gpu, "op": _PASSES[op], "bytes": size, "rows": t.num_tokens,
                      "width": t.n_embd, "us": t[f"time_stats.{op}.median"] * 1e3})
        for op, size in moved.items() if f"time_stats.{op}.median" in t
    ]  # fmt: skip
    yield Measured("elementwise", "vidur", path, pd.concat(passes).dropna().reset_index(drop=True))


def _vidur_attention(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    gpu = _one_gpu(path)
    tp = table.num_tensor_parallel_workers
    t = pd.DataFrame({
        "gpu": gpu, "heads": table.n_q_head / tp, "kv_heads": (table.n_kv_head / tp).clip(lower=1),
        "head_dim": table.n_embd / table.n_q_head, "kv_bytes": 2.0, "batch": table.batch_size,
        "new": table.prefill_chunk_size, "past": table.kv_cache_size,
    })  # fmt: skip
    for phase, kind in (("attn_prefill", "prefill_attention"), ("attn_decode", "decode_attention")):
        if f"time_stats.{phase}.median" in table:
            rows = t.assign(us=table[f"time_stats.{phase}.median"] * 1e3, context=t.past).dropna()
            if len(rows):
                yield Measured(kind, "vidur", path, rows)


def _vidur_reduce(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    keys = ["num_workers", "devices_per_node", "size"]
    t = table.groupby(keys)["time_stats.all_reduce.median"].median().reset_index()
    yield Measured("all_reduce", "vidur", path, pd.DataFrame({
        "gpu": _one_gpu(path), "n": t.num_workers, "per_node": t.devices_per_node,
        "bytes": t["size"], "backend": "nccl", "us": t["time_stats.all_reduce.median"] * 1e3,
    }))  # fmt: skip


def _apex_collective(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    if "all_reduce" not in path.name:
        yield Unread(path, "a collective that the model does not have (only all-reduce)")
        return
    t = table.groupby(["gpu", "num_nodes", "num_gpus_per_node", "size(kb)"])["time(us)"]
    t = t.median().reset_index()
    for rows, why in _known(path, t, t.gpu):
        if why:
            yield Unread(path, why)
            continue
        yield Measured("all_reduce", "apex", path, pd.DataFrame({
            "gpu": rows.gpu, "n": rows.num_nodes * rows.num_gpus_per_node,
            "per_node": rows.num_gpus_per_node, "bytes": rows["size(kb)"] * 1024.0,
            "backend": "nccl", "us": rows["time(us)"],
        }))  # fmt: skip


def _apex_gemm(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    for rows, why in _known(path, table, table.gpu):
        if why:
            yield Unread(path, why)
            continue
        yield Measured("gemm", "apex", path, pd.DataFrame({
            "gpu": rows.gpu, "op": "gemm", "m": rows.m, "n": rows.n, "k": rows.k,
            "precision": "fp16", "us": rows["time(us)"],
        }))  # fmt: skip


def _ai_gemm(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    kinds = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_block": "fp8"}
    known = table.gemm_dtype.isin(list(kinds))
    if not known.all():
        left = ", ".join(sorted(table.gemm_dtype[~known].unique()))
        yield Unread(path, f"{(~known).sum()} GEMM rows of types {left}")
    table = table[known]
    for rows, why in _known(path, table, table.device):
        if why:
            yield Unread(path, why)
            continue
        yield Measured("gemm", "vllm", path, pd.DataFrame({
            "gpu": rows.gpu, "op": "gemm", "m": rows.m, "n": rows.n, "k": rows.k,
            "precision": rows.gemm_dtype.map(kinds), "us": rows.latency * 1e3,
        }))  # fmt: skip


def _ai_attention(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    decode = table.op_name.str.contains("generation").any()
    for rows, why in _known(path, table, table.device):
        if why:
            yield Unread(path, why)
            continue
        tidy = pd.DataFrame({
            "gpu": rows.gpu, "batch": rows.batch_size, "heads": rows.num_heads,
            "kv_heads": rows.num_key_value_heads, "head_dim": rows.head_dim, "new": rows.isl,
            "past": 0, "context": rows.isl + rows.step,
            "kv_bytes": rows.kv_cache_dtype.map(lambda kind: 1.0 if "fp8" in str(kind) else 2.0),
            "us": rows.latency * 1e3,
        })  # fmt: skip
        kind = "decode_attention" if decode else "prefill_attention"
        yield Measured(kind, "vllm", path, tidy)


def _ai_reduce(path: Path, table: pd.DataFrame) -> Iterator[Measured | Unread]:
    kept = table.op_name == "all_reduce"
    if "nccl_dtype" in table:
        kept &= table.nccl_dtype == "half"
    if not kept.all():
        yield Unread(path, f"{(~kept).sum()} rows of other collectives or types")
    table = table[kept]
    backend = table.get("backend", pd.Series("nccl", index=table.index))
    for rows, why in _known(path, table, table.device):
        if why:
            yield Unread(path, why)
            continue
        yield Measured("all_reduce", "vllm", path, pd.DataFrame({
            "gpu": rows.gpu, "n": rows.num_gpus, "per_node": rows.num_gpus,
            "bytes": rows.message_size * 2.0,  # the column counts 16-bit elements
            "backend": backend.loc[rows.index].str.replace("vllm_", "custom_"),
            "us": rows.latency * 1e3,
        }))  # fmt: skip


_HELIX_MODELS: Final = {
    "llama2_70b": "llama-2-70b", "llama70b": "llama-2-70b", "llama_70b": "llama-2-70b",
    "llama30b": "llama-30b", "llama_30b": "llama-30b", "llama2_13b": "llama-2-13b",
    "llama2_7b": "llama-2-7b",
}  # fmt: skip


def _helix(path: Path) -> Iterator[Measured | Unread]:
    words = path.stem.lower()
    gpu = _one_gpu(path)
    if gpu == "A100-80G":
        gpu = "A100-40G"  # Helix's cluster had 40 GB cards
    model = next((name for key, name in _HELIX_MODELS.items() if key in words), None)
    phase = next((p for p in ("prompt", "decode") if p in words), None)
    if model is None or phase is None:
        yield Unread(path, "neither its model nor its phase is in its name")
        return
    t = pd.read_csv(path, header=None, names=["tokens", "ms"])
    t = t[t.tokens > 0]
    yield Measured("layer", "helix", path, pd.DataFrame({
        "gpu": gpu, "model": model, "phase": phase, "tokens": t.tokens, "us": t.ms * 1e3,
    }))  # fmt: skip


def _serving(path: Path) -> Iterator[Measured | Unread]:
    table = pd.read_json(path, lines=True)
    needs = {"input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts"}
    if not needs <= set(table.columns):
        yield Unread(path, "JSON lines that are no per-request timings")
        return
    for other in sorted(path.parent.glob("*meta*.json"), key=lambda p: (-_alike(p, path), p.name)):
        facts = json.loads(other.read_text(encoding="utf-8"))
        if facts.get("num_requests") == len(table):
            yield Measured("serving", "vllm", path, table, facts)
            return
    yield Unread(path, "no meta.json of the same run beside it")


def _alike(a: Path, b: Path) -> int:
    """Return how many letters two file names have in common at their start."""
    return sum(
        1 for _ in takewhile(lambda two: two[0] == two[1], zip(a.name, b.name, strict=False))
    )


_Reader = Callable[[Path, pd.DataFrame], Iterator[Measured | Unread]]
_READERS: Final[tuple[tuple[set[str], _Reader], ...]] = (
    ({"prompt_size", "batch_size", "token_size", "prompt_time", "tensor_parallel"}, _splitwise),
    ({"time_stats.mlp_up_proj.median", "num_tokens", "n_embd"}, _vidur_layer),
    ({"n_q_head", "prefill_chunk_size", "kv_cache_size", "n_embd"}, _vidur_attention),
    ({"time_stats.all_reduce.median", "num_workers", "size"}, _vidur_reduce),
    ({"gpu", "num_nodes", "num_gpus_per_node", "size(kb)", "time(us)"}, _apex_collective),
    ({"gpu", "m", "k", "n", "time(us)"}, _apex_gemm),
    ({"gemm_dtype", "m", "n", "k", "latency"}, _ai_gemm),
    ({"isl", "num_heads", "num_key_value_heads", "latency"}, _ai_attention),
    ({"op_name", "num_gpus", "message_size", "latency"}, _ai_reduce),
)
