"""``zerolayer kernels``: what fusion can buy, and how the kernels are checked."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

app = App(name="kernels", help="The fused transformer block: bounds, and checks of its kernels.")

app.command("zerolayer.verbs.kernels_check:check", name="check")
app.command("zerolayer.verbs.kernels_tune:tune", name="tune")

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Counts = Annotated[list[int] | None, Parameter(consume_multiple=True, negative="")]


@app.command
def bounds(
    *,
    model: Names = None,
    gpu: str = "H200",
    batch: Counts = None,
    length: Counts = None,
    phase: Literal["decode", "prefill"] = "decode",
    precision: Literal["bf16", "fp16", "fp32", "fp8"] = "bf16",
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Predict one block in every variant, and where x2.3 and -41 % can hold against each.

    Parameters
    ----------
    model
        Models of the catalogue, or paths of TOML files (default: gpt-2 llama-3.2-1b llama-3.1-8b).
    gpu
        A GPU of the catalogue, or the path of a TOML file.
    batch
        Sequences together (default: 1 8).
    length
        Tokens of context (decode) or of prompt (prefill) of each (default: 1024).
    phase
        decode: each sequence adds one token; prefill: whole prompts.
    precision
        Of the weights. FP8 kernels do not exist here: modelled, unmeasured.
    plot
        Where to write the picture of the border (PNG, SVG or PDF).
    """
    from dispatch import hardware
    from dispatch.errors import InputError
    from kernels import bounds as b

    for name, values in (("--batch", batch), ("--length", length)):
        for value in values or ():
            if value < 1:
                raise InputError.at(name, f"{value} given", "give whole numbers of 1 or more")
    card = hardware.gpu(gpu)
    shapes = [hardware.model(n) for n in model or ("gpt-2", "llama-3.2-1b", "llama-3.1-8b")]
    works = [
        b.Work(m, card, phase, count, tokens, precision)
        for m in shapes for count in batch or (1, 8) for tokens in length or (1024,)
    ]  # fmt: skip
    if plot is not None:
        from kernels.picture import draw

        draw(card, shapes[0], precision, plot)
    rows = [_row(work) for work in works]
    border = _border(card, precision) if phase == "decode" else []
    note = _note(card, precision)
    if json:
        from json import dumps

        print(dumps({"gpu": card.name, "note": note, "rows": rows, "border": border}, indent=2))
        return 0
    _show(card.name, phase, rows, border, note)
    return 0


def _row(work: Any) -> dict[str, Any]:
    from kernels import bounds as b

    found = b.bounds(work)
    return {
        "model": work.model.name, "phase": work.phase, "batch": work.batch,
        "length": work.length, "precision": work.precision, "gpu": work.gpu.name,
        "floor_us": b.floor_s(work) * 1e6, "least_bytes": b.least_bytes(work),
        "variants": {
            name: {
                "us": one.total_s * 1e6, "launches": one.launches, "barriers": one.barriers,
                "dram_bytes": one.dram_bytes, "logical_bytes": one.logical_bytes,
            }
            for name, one in found.items()
        },
        "against": {
            v.baseline: {
                "speedup": v.speedup, "dram_saved": v.dram_saved,
                "logical_saved": v.logical_saved, "x2.3": v.speed_holds, "-41%": v.bytes_hold,
            }
            for v in b.verdicts(work)
        },
    }  # fmt: skip


def _border(card: Any, precision: str) -> list[dict[str, Any]]:
    from kernels import bounds as b
    from kernels.variants import BASELINES

    found = []
    for name in BASELINES:
        widest = b.widest_block(card, name, precision=precision)
        found.append({
            "baseline": name, "hidden": widest.hidden if widest else 0,
            "parameters": widest.layer_weights if widest else 0,
        })  # fmt: skip
    return found


def _note(card: Any, precision: str) -> str:
    from dispatch.hardware import calibration
    from kernels import measured

    known = measured.costs(card.name)
    if known is not None:
        costs = f"launch and barrier costs measured on {known.gpu} on {known.date}"
    else:
        fit = calibration(card, "fused").fits.get("launch")
        costs = f"launch and barrier costs {fit.source if fit else 'assumed'}; none measured here"
    told = f"Modelled from the catalogue and the cost model; {costs}."
    if precision == "fp8":
        told += " FP8: modelled, unmeasured (the kernels are BF16, FP16 and FP32)."
    return told


def _show(
    card: str, phase: str, rows: list[dict[str, Any]], border: list[dict[str, Any]], note: str
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for row in rows:
        title = f"{row['model']} block, {phase}, batch {row['batch']}, {row['length']} tokens"
        table = Table(title=f"{title}, {card}, {row['precision']}", box=None, title_justify="left")
        for heading in ("variant", "µs", "launches", "DRAM MB", "fused is", "DRAM bytes", "claims"):
            table.add_column(heading, justify="left" if heading == "variant" else "right")
        table.add_row(
            "floor", f"{row['floor_us']:.1f}", "", f"{row['least_bytes'] / 1e6:.1f}", "", "", ""
        )
        for name, one in row["variants"].items():
            against = row["against"].get(name)
            told = ["", "", ""]
            if against:
                holds = [c for c in ("x2.3", "-41%") if against[c]]
                saved = against["dram_saved"] * 100
                ratio = f"×{against['speedup']:.2f}"
                told = [ratio, f"{-saved + 0.0:+.0f} %", " ".join(holds) or "-"]
            launches = f"{one['launches']}" + (f"+{one['barriers']}b" if one["barriers"] else "")
            megabytes = f"{one['dram_bytes'] / 1e6:.1f}"
            table.add_row(name, f"{one['us']:.1f}", launches, megabytes, *told)
        console.print(table)
        console.print()
    if border:
        console.print(f"x2.3 in decode at batch 1, 128 tokens, {card}: GPT-like blocks up to")
        for one in border:
            size = f"{one['parameters'] / 1e6:.1f} M parameters (hidden {one['hidden']})"
            border_told = size if one["hidden"] else "no size at all"
            console.print(f"  against {one['baseline']:<18} {border_told}")
        console.print()
    console.print(note, soft_wrap=False)
