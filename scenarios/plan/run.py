"""From the command line's words to answers."""

from collections.abc import Sequence

from dispatch.errors import InputError, nearest
from scenarios import progress
from scenarios.document import Document
from scenarios.load import resolve
from scenarios.plan.answer import Answer, answering
from scenarios.plan.conduct import conduct
from scenarios.plan.search import Search
from scenarios.schema import ArmConfig, Scenario, SloConfig
from scenarios.sweep import Sweep

MOST = 10_000  # replicas of the largest fleet: what the simulator is measured at


def chosen(
    source: str, overrides: Sequence[str], slos: Sequence[str], arms: Sequence[str]
) -> Scenario:
    """Return the scenario with the arms and SLOs that were asked for; SLOs replace its own."""
    settings = [*overrides]
    if slos:
        keys = {text.partition("=")[0] for text in slos}
        if unknown := sorted(keys - set(SloConfig.model_fields)):
            hint = nearest(unknown[0], SloConfig.model_fields)
            raise InputError.at(f"--slo {unknown[0]}", "unknown SLO", hint)
        settings += [f"slo.{key}=none" for key in SloConfig.model_fields if key not in keys]
        settings += [f"slo.{text}" for text in slos]
    scenario = resolve(Document.read(source), settings)
    names = [arm.name for arm in scenario.arms]
    for name in arms:
        if name not in names:
            raise InputError.at(f"--arm {name}", "unknown arm", nearest(name, names))
    kept = tuple(arm for arm in scenario.arms if not arms or arm.name in arms)
    return scenario.model_copy(update={"arms": kept, "baseline": "", "candidate": ""})


def plan_arms(
    scenario: Scenario, sweep: Sweep, *, most: int, deep: bool = True, quiet: bool = False
) -> list[Answer]:
    """Return the answer of every arm."""
    if not 1 <= most <= MOST:
        raise InputError.at("--most", f"found {most}", f"expected 1 to {MOST:,} replicas")
    notes: list[str] = []

    async def told(arm: ArmConfig) -> Answer:
        found = await answering(Search(scenario, arm, sweep, most), deep=deep)
        fleet = found.search.kinds.text(found.best.counts) if found.best else "no fleet"
        notes.append(f"{arm.name}: {fleet}")
        shown.note("; ".join(notes))
        return found

    with progress.show(f"plan {scenario.name}", 0, "cells", quiet) as shown:
        sweep.shared = shown
        answers = conduct([told(arm) for arm in scenario.arms], sweep)
    sweep.shared = None
    return answers
