"""Simulated requests per second, the ratio to the stepwise engine, and what cost hangs on.

    python benchmarks/sim.py [--rounds N] [--large] [--week] [--plot FILE.svg]

Prints each figure with its bar: 20,000 requests/s on one core for the Azure 2023 conversation hour
on 8 replicas. The reference engine is the judge of the tests: it steps every token of every
sequence. Times are of the processor; a bare Python loop beside each run says how fast the core was.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)  # not this folder: its sim.py is no package
sys.path.insert(0, str(ROOT / "tests" / "sim"))

from stepwise import Item, Stepwise  # noqa: E402

from dispatch.hardware import gpu, memory_plan, model  # noqa: E402
from sim.clock import Clock, nanoseconds  # noqa: E402
from sim.cost import StepCost  # noqa: E402
from sim.pace import Pace  # noqa: E402
from traces import change  # noqa: E402
from traces.trace import Trace  # noqa: E402
from zerolayer import simulations as s  # noqa: E402

BAR_PER_S = 20_000
FEW = 2_000  # requests that the reference engine is given: it takes its time


def stepwise_per_s(trace: Trace) -> float:
    """Return requests per second of the stepwise engine, 8 of them in turn, no journal at all."""
    card, shape = gpu("A100-80G"), model("llama-3.1-8b")
    blocks = memory_plan(card, shape).capacity_tokens // 16
    cost = Pace(StepCost(card, shape))
    env = Clock()
    engines = [Stepwise(env, cost, kv="paged", blocks=blocks) for _ in range(8)]

    def arrive(item: Any) -> None:
        engines[item.name % 8].submit(item)

    for row in range(len(trace)):
        prompt, output = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
        item = Item(row, prompt, output, output)
        env.call_at(nanoseconds(float(trace.arrival_s[row])), arrive, item)
    began = time.process_time()
    env.run()
    return len(trace) / (time.process_time() - began)


def plot(path: Path) -> None:
    """Draw what a request costs by its output length and by the size of the fleet."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "zerolayer"
    from matplotlib import pyplot

    by_output, by_fleet = s.by_output(), s.by_fleet()
    for output, us in by_output:
        print(f"output of {output:5} tokens: {us:6.1f} us a request")
    for count, us, decision_us in by_fleet:
        print(f"{count:5} replicas: {us:6.1f} us a request, {decision_us:.1f} us of it the policy")
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    axes[0].plot(*zip(*by_output, strict=True), "o-", color="#225588")
    axes[0].set(
        xscale="log", xlabel="output tokens a request", ylabel="µs a request", ylim=(0, None)
    )
    counts, whole, decision = zip(*by_fleet, strict=True)
    rest = [a - b for a, b in zip(whole, decision, strict=True)]
    axes[1].plot(counts, whole, "o-", color="#225588", label="all")
    axes[1].plot(counts, rest, "s--", color="#bb6622", label="without the policy's decision")
    axes[1].set(xscale="log", xlabel="replicas")
    axes[1].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    print(f"drawn: {path}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="1.8 million requests, 4,000 GPUs")
    parser.add_argument("--week", action="store_true", help="27.3 million requests, in parts")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    hour = s.hour()
    rows = {}
    for shape in (s.HOUR_ON_8_LEAST, s.HOUR_ON_8):
        run = rows[shape.policy] = s.timed(shape, lambda: hour, hour.name, rounds=given.rounds)
        bar = shape.bar_per_s or BAR_PER_S
        print(
            f"{hour.name}, {run.requests:,} requests, 8 replicas, {shape.policy}: {run.per_s:,.0f} "
            f"requests/s (bar {bar:,.0f}); {run.iterations:,} iterations in {run.events:,} events; "
            f"bare loop {run.loop_ns:.0f} ns"
        )
    few = change.slice(hour, limit=FEW)
    ours = s.timed(s.Shape("few", 8, "round_robin"), lambda: few, hour.name, rounds=given.rounds)
    reference = stepwise_per_s(few)
    print(
        f"stepwise reference on the first {FEW}: {reference:,.0f} requests/s; this engine, with "
        f"door, dispatcher and journal: {ours.per_s:,.0f}, {ours.per_s / reference:.0f} times"
    )
    if given.large:
        run = s.timed(s.FLEET_OF_4000, lambda: s.at_rate(30_000.0, 60.0), "Poisson")
        print(
            f"{run.shape.name}: {run.requests:,} requests in {run.wall_s:.0f} s (bar 150), "
            f"{run.cpu_s:.0f} s of processor, {run.peak_bytes / 2**30:.2f} GiB (bar 4); "
            f"bare loop {run.loop_ns:.0f} ns"
        )
    if given.week:
        rate = s.WEEK_REQUESTS / 604_800
        run = s.timed(s.WEEK, lambda: s.at_rate(rate, 604_800.0, daily=0.5), "a week")
        print(
            f"{run.shape.name}: {run.per_s:,.0f} requests/s, {run.wall_s:.0f} s, "
            f"{run.peak_bytes / 2**30:.2f} GiB"
        )
    if given.plot:
        plot(given.plot)


if __name__ == "__main__":
    main()
