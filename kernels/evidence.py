"""What a run may say of the kernels' two claims: measured on a card where it was, else modelled.

C6 (×2.3 against the three-stage calls) and C7 (−41 % bytes) as a manifest carries them. A model is
no measurement: without a file of ``zerolayer kernels check --gpu`` the status says so.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from dispatch.hardware import Gpu, Model
from kernels import bounds, measured
from kernels.spec import LEAST_CAPABILITY

MEASURED_NOT: Final = "not measured here"
_AGAINST: Final = ("three_stage_graph", "strong", "hf")
_SHAPE: Final = (8, 1024)  # sequences and tokens of the decode that is told of


@dataclass(frozen=True, slots=True)
class Block:
    """One GPU's share of a model's block, as a pool of a fleet runs it."""

    model: Model
    gpu: Gpu
    tp: int = 1
    precision: str = "bf16"

    @property
    def share(self) -> Model:
        """The shape of that share: heads and FFN divided, the residual stream whole."""
        m, tp = self.model, self.tp
        return replace(
            m, heads=max(m.heads // tp, 1), kv_heads=max(m.kv_heads // tp, 1),
            ffn=max(m.ffn // tp, 1),
        )  # fmt: skip


def claims(blocks: Iterable[Block]) -> dict[str, Any]:
    """Return C6 and C7 over *blocks* (each once, in order), with the figures that they rest on.

    ``status`` is one of a report's own: holds, does not hold, not measured here.
    """
    able = [b for b in dict.fromkeys(blocks) if b.gpu.compute_capability >= LEAST_CAPABILITY]
    rows = [_row(block) for block in able]
    if not rows:
        told = "no GPU of this fleet runs the fused kernels (compute capability 8.0 or later)"
        nothing = {"measured": told, "status": MEASURED_NOT}
        return {"C6": nothing, "C7": dict(nothing), "blocks": []}
    batch, length = _SHAPE
    at = f"decode of {batch} x {length:,} tokens"
    speed = _modelled(rows, "speedup", lambda x: f"×{x:.2f}")
    saved = _modelled(rows, "dram_saved", lambda x: f"{-100 * x + 0.0:+.0f} %")
    found = {
        "C6": {"measured": f"modelled, {at}: {speed}", "status": MEASURED_NOT},
        "C7": {"measured": f"modelled DRAM bytes, {at}: {saved}", "status": MEASURED_NOT},
    }
    known = [one for name in dict.fromkeys(b.gpu.name for b in able) if (one := _measured(name))]
    for claim in ("C6", "C7"):
        own = [one[claim] for one in known if claim in one]
        if own:
            holds = all(holds for _, holds in own)
            status = "holds" if holds else "does not hold"
            found[claim] = {"measured": "; ".join(told for told, _ in own), "status": status}
    return {**found, "blocks": rows}


def _row(block: Block) -> dict[str, Any]:
    batch, length = _SHAPE
    work = bounds.Work(block.share, block.gpu, bounds.DECODE, batch, length, block.precision)
    against = {name: bounds.verdict(work, name) for name in _AGAINST}
    return {
        "model": block.model.name, "gpu": block.gpu.name, "tp": block.tp,
        "precision": block.precision, "batch": batch, "length": length,
        "against": {
            name: {"speedup": round(v.speedup, 4), "dram_saved": round(v.dram_saved, 4)}
            for name, v in against.items()
        },
    }  # fmt: skip


def _modelled(rows: list[dict[str, Any]], key: str, told: Any) -> str:
    parts = []
    for name in _AGAINST:
        values = sorted(row["against"][name][key] for row in rows)
        low, high = told(values[0]), told(values[-1])
        parts.append(f"{low if low == high else f'{low} to {high}'} against {name}")
    return ", ".join(parts)


def _measured(card: str) -> dict[str, tuple[str, bool]]:
    """Return what was measured on *card*, by claim: its words, and whether it holds everywhere."""
    path = measured.FOLDER / f"{card.lower()}.json"
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    times: dict[tuple[str, int, int], dict[str, float]] = {}
    moved: dict[str, float] = {}
    for row in document["rows"]:
        if row["kind"] == "time" and row.get("phase") == "decode" and "us" in row:
            shape = (row["model"], row["batch"], row["length"])
            times.setdefault(shape, {})[row["variant"]] = row["us"]
        if row["kind"] == "bytes" and "dram_bytes" in row and row["shape"] == [*_BYTES_AT]:
            moved[row["variant"]] = row["dram_bytes"]
    head = f"measured on {document['gpu']} on {document['date']}, three-stage in a graph"
    ratios = [t["three_stage_graph"] / t["fused"] for t in times.values()
              if {"three_stage_graph", "fused"} <= set(t)]  # fmt: skip
    found: dict[str, tuple[str, bool]] = {}
    if ratios:
        told = f"{head}: ×{min(ratios):.2f} to ×{max(ratios):.2f} over {len(ratios)} decode shapes"
        found["C6"] = told, min(ratios) >= bounds.SPEED_CLAIM
    if {"fused", "three_stage"} <= set(moved):
        saved = 1.0 - moved["fused"] / moved["three_stage"]
        told = f"{head}: {-100 * saved + 0.0:+.0f} % DRAM bytes ({_BYTES_AT[0]}, one decode)"
        found["C7"] = told, saved >= bounds.BYTES_CLAIM
    return found


_BYTES_AT: Final = ("llama-3.2-1b", 1, 1024)
