"""What the cost model says of one served shape: prompt and token time, and what they consist of."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from dispatch import hardware
from dispatch.errors import InputError, Problem, short
from dispatch.hardware import Parts, Roofline, calibration, memory_plan, plan
from scenarios.estimate import prompt_parts, stack_plan, token_parts

MEASURED_STACK: Final = "eager-2023"
"""The stack whose prompt and token times of whole models were measured (Splitwise)."""

_MOST: Final = {
    "--tp": 1024, "--prompt": 100_000_000, "--batch": 1_000_000, "--output": 100_000_000,
}  # fmt: skip
"""Beyond these no engine has gone by decades, and products of them leave what floats hold."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Times of one iteration over whole prompts and of one output token, with their parts."""

    prompt: Parts
    token: Parts
    facts: dict[str, Any]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``zerolayer predict --json``."""
        return {
            **self.facts,
            "prompt_time_ms": self.prompt.total_s * 1e3,
            "token_time_ms": self.token.total_s * 1e3,
            "prompt_parts_ms": milliseconds(self.prompt),
            "token_parts_ms": milliseconds(self.token),
            "notes": list(self.notes),
        }


def milliseconds(parts: Parts) -> dict[str, float]:
    """Return every part of an iteration in milliseconds, by name."""
    return {name.removesuffix("_s"): value * 1e3 for name, value in asdict(parts).items()}


def predict(
    model: str, gpu: str, *, tp: int = 1, prompt: int = 512, batch: int = 1, output: int = 128,
    precision: str = "fp16", stack: str = MEASURED_STACK, kernel_plan: str | None = None,
) -> Prediction:  # fmt: skip
    """Return the time of *batch* prompts of *prompt* tokens, and of a token half-way the output.

    Raises InputError with everything that is wrong at once; UnknownNameError for an unknown name.
    """
    card, shape = hardware.gpu(gpu), hardware.model(model)
    _check(shape, tp, prompt, batch, output, precision)
    chosen = plan(kernel_plan or stack_plan(stack))
    cal = calibration(card, chosen.name, stack)
    kv = "fp8" if precision == "fp8" else "fp16"
    cost = Roofline(card, shape, precision, kv, tp, chosen, cal)
    facts = {
        "model": shape.name, "gpu": card.name, "tp": tp, "prompt": prompt, "batch": batch,
        "output": output, "precision": precision, "stack": stack, "kernel_plan": chosen.name,
    }  # fmt: skip
    notes = list(cost.extrapolated)
    span = cal.fits["host"].range.get("tokens") if "host" in cal.fits else None
    if span and not span[0] <= prompt * batch <= span[1]:
        notes.append(
            f"extrapolated: {prompt * batch} prompt tokens are outside the measured "
            f"{span[0]:g} to {span[1]:g}"
        )
    if prompt + output > shape.context_tokens:
        notes.append(
            f"{prompt} + {output} tokens are beyond the {shape.context_tokens} that "
            f"{shape.name} was trained for: extrapolated"
        )
    room = memory_plan(card, shape, precision, kv, tp, kernel_plan=chosen.name,
                       max_batched_tokens=prompt * batch, max_num_seqs=batch)  # fmt: skip
    if room.capacity_tokens < batch * (prompt + output):
        notes.append(
            f"memory: {batch} x {prompt + output} tokens do not fit ({room.capacity_tokens} do)"
        )
    return Prediction(
        prompt_parts(cost, prompt, batch), token_parts(cost, prompt, batch, output), facts,
        tuple(notes),
    )  # fmt: skip


def uneven_heads(shape: hardware.Model, tp: int) -> tuple[str, str] | None:
    """Return why no engine shares *shape* among *tp* GPUs, and the way out; None where one does."""
    if shape.heads % tp == 0:
        return None
    ways = [str(n) for n in range(1, shape.heads + 1) if shape.heads % n == 0]
    found = f"{shape.heads} heads of {shape.name} do not divide by {tp}"
    return found, f"use one of {', '.join(ways)}"


def _check(
    shape: hardware.Model, tp: int, prompt: int, batch: int, output: int, precision: str
) -> None:
    given = {"--tp": tp, "--prompt": prompt, "--batch": batch, "--output": output}
    problems = [
        Problem(name, f"found {short(str(value))}", "expected 1 or more")
        for name, value in given.items() if value < 1
    ]  # fmt: skip
    problems += [
        Problem(name, f"found {short(str(value))}", f"expected at most {_MOST[name]:,}")
        for name, value in given.items() if value > _MOST[name]
    ]  # fmt: skip
    if 1 <= tp <= _MOST["--tp"] and (uneven := uneven_heads(shape, tp)):
        problems.append(Problem("--tp", *uneven))
    if precision not in hardware.PRECISION_BYTES:
        problems.append(
            Problem("--precision", f"unknown precision {precision!r}",
                    f"use one of {', '.join(hardware.PRECISION_BYTES)}")
        )  # fmt: skip
    if problems:
        raise InputError(problems)
