"""``zerolayer predict`` and ``zerolayer validate``: the cost model, asked and judged."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import JsonOption


def predict(
    *,
    model: Annotated[str, Parameter(help="A model of the catalogue, or a TOML file.")],
    gpu: Annotated[str, Parameter(help="A GPU of the catalogue, or a TOML file.")],
    tp: Annotated[int, Parameter(help="GPUs that share the model (tensor parallel).")] = 1,
    prompt: Annotated[int, Parameter(help="Prompt tokens of each sequence.")] = 512,
    batch: Annotated[int, Parameter(help="Sequences that run together.")] = 1,
    output: Annotated[int, Parameter(help="Output tokens; a token's time is half-way.")] = 128,
    precision: Annotated[str, Parameter(help="fp16, bf16, fp8, int8 or int4 weights.")] = "fp16",
    stack: Annotated[
        str, Parameter(help="Software whose constants to use: eager-2023, vllm, ...")
    ] = "eager-2023",
    plan: Annotated[
        str | None, Parameter(help="Kernel plan; the stack's own where not given.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Say what one shape costs: the time of its prompts, of an output token, and their parts.

    The default stack is the one whose whole-model times were measured (Splitwise, 2023: eager
    launches). ``--stack vllm`` is a present-day engine with CUDA graphs.
    """
    from scenarios.predict import milliseconds
    from scenarios.predict import predict as ask
    from zerolayer.output import print_json, print_table, print_text

    found = ask(
        model, gpu, tp=tp, prompt=prompt, batch=batch, output=output, precision=precision,
        stack=stack, kernel_plan=plan,
    )  # fmt: skip
    if json:
        print_json(found.as_dict())
        return 0
    facts = found.facts
    parts = zip(milliseconds(found.prompt).items(), milliseconds(found.token).values(), strict=True)
    rows = [(name.replace("_", " "), f"{a:.2f}", f"{b:.2f}") for (name, a), b in parts]
    rows.append(("total", f"{found.prompt.total_s * 1e3:.2f}", f"{found.token.total_s * 1e3:.2f}"))
    print_text([
        f"{facts['model']} {facts['precision']} on {facts['tp']} x {facts['gpu']}, "
        f"{batch} x {prompt} tokens, stack {facts['stack']}, plan {facts['kernel_plan']}"
    ])  # fmt: skip
    print_table("", ("part", "prompt, ms", "token, ms"), rows, numbers=2)
    for note in found.notes:
        print_text([f"note: {note}"])
    return 0


def validate(
    *,
    data: Annotated[
        Path | None,
        Parameter(
            help="Folder of measured tables; $ZEROLAYER_DATA or ../shared/data if not given."
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Hold the cost model against measured tables: the error of each, beside its bar.

    Exit code 0 where every bar holds, 1 where one is missed, 2 where nothing can be read.
    """
    from scenarios.validate import validate as judge
    from scenarios.validate_text import default_folder, serving_table, serving_title, table
    from zerolayer.output import print_json, print_text

    folder = data if data is not None else default_folder()
    found = judge(folder)
    if json:
        print_json(found.as_dict(folder))
        return 0 if found.holds else 1
    for line in table(found):
        print(line)
    for run in found.serving:
        print()
        print_text([serving_title(run)])
        for line in serving_table(run):
            print(line)
    for unread in found.unread:
        print_text([f"not read: {unread.path.name}: {unread.why}"])
    for note in found.notes:
        print_text([f"note: {note}"])
    print("All bars hold." if found.holds else "A bar is missed: see `miss` above.")
    return 0 if found.holds else 1
