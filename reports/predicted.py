"""What the kernels' bounds predict of C6 and C7 for this run's model and cards: a model, no result.

Bounds are of one block on one GPU (:mod:`kernels.bounds`); tensor parallelism is left out.
"""

from dataclasses import dataclass
from typing import Final

from dispatch import hardware
from dispatch.errors import InputError
from reports.document import Paragraph, Section, Table
from reports.numbers import number, signed
from reports.pressure import section_of
from reports.tables import Run

BATCHES: Final = (1, 32)
THREE_STAGE: Final = "three_stage"
WORST: Final = "hf"
_LEAST_CAPABILITY: Final = 8.0  # the fused kernel is written for Ampere and later
_PRECISIONS: Final = ("fp16", "bf16", "fp32", "fp8")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The fused block against one baseline: decode of *batch* sequences of *length* tokens."""

    gpu: str
    batch: int
    length: int
    baseline: str
    speedup: float
    saved: float
    """Share of the baseline's DRAM bytes."""
    speed_holds: bool
    bytes_hold: bool


def predictions(run: Run) -> tuple[Prediction, ...]:
    """Return all baselines on every card of the candidate's fleet that can run the kernel."""
    from kernels import bounds

    config = section_of(run.scenario, "model")
    precision = str(config.get("precision", "fp16"))
    if precision not in _PRECISIONS:
        return ()
    try:
        model = hardware.model(str(config.get("name", "")))
        cards = [hardware.gpu(n) for n in dict.fromkeys(_gpus(run))]
    except InputError:  # the user's own model or card, which is not at hand here
        return ()
    length = _context(run)
    found = []
    for card in cards:
        if card.compute_capability < _LEAST_CAPABILITY:
            continue
        for batch in BATCHES:
            work = bounds.Work(model, card, bounds.DECODE, batch, length, precision)
            found += [
                Prediction(
                    card.name, batch, length, v.baseline, v.speedup, v.dram_saved, v.speed_holds,
                    v.bytes_hold,
                )
                for v in bounds.verdicts(work)
            ]  # fmt: skip
    return tuple(found)


def _gpus(run: Run) -> list[str]:
    return [str(d.get("gpu")) for d in run.devices(run.candidate)]


def _context(run: Run) -> int:
    """Return the mean context of a token: the prompt and half of the output."""
    cell = run.of(run.candidate)[0]
    mean = float((cell["prompt_tokens"] + cell["output_tokens"] / 2).mean())
    return max(1, round(mean))


def told(found: tuple[Prediction, ...], claim: str) -> str:
    """Say what is predicted of C6 or C7; that nothing was measured comes first."""
    if not found:
        return "not measured on a GPU, and no bound for this model, precision and cards"
    cards = ", ".join(dict.fromkeys(p.gpu for p in found))
    parts = []
    for name, words in ((THREE_STAGE, "the three-stage calls"), (WORST, "Hugging-Face style")):
        own = [p for p in found if p.baseline == name]
        if claim == "C6":
            ends = [f"×{number(f(p.speedup for p in own))}" for f in (min, max)]
        else:
            ends = [signed(-100 * f(p.saved for p in own)) for f in (min, max)]
        shown = " to ".join(dict.fromkeys(ends))
        parts.append(f"{shown}{'' if claim == 'C6' else ' %'} against {words}")
    batches = " and ".join(map(str, BATCHES))
    what = "time" if claim == "C6" else "DRAM bytes"
    return (
        f"not measured on a GPU; bounds predict for {what} {', '.join(parts)} ({cards}; decode, "
        f"batch {batches}, {found[0].length:,} tokens)"
    )


def add_to(section: Section, found: tuple[Prediction, ...]) -> None:
    """Append the table of all predictions to *section*."""
    if not found:
        return
    rows = [
        (
            p.gpu, str(p.batch), p.baseline, f"×{number(p.speedup)}", f"{signed(-100 * p.saved)} %",
            " and ".join(c for c, holds in _holds(p).items() if holds) or "neither",
        )
        for p in found
    ]  # fmt: skip
    head = ("GPU", "batch", "against", "fused is", "DRAM bytes", "predicted to hold")
    caption = f"C6 and C7 as the bounds predict them: decode, {found[0].length:,} tokens"
    section.add(
        Table(caption, head, rows, frozenset({0, 2, 5}), folded=True),
        Paragraph(
            "Predictions of a cost model for one block on one GPU, from catalogue rates and "
            "launch costs; no kernel was timed for them. `zerolayer kernels bounds` shows more "
            "shapes, and `zerolayer kernels check --gpu` measures.",
            "note",
        ),
    )


def _holds(p: Prediction) -> dict[str, bool]:
    return {"×2.3": p.speed_holds, "−41 %": p.bytes_hold}
