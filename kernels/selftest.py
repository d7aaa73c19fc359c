"""A start-up test on the device itself: a fused plan is used only where it gives right numbers."""

import torch
from torch import Tensor

from kernels import reference
from kernels.launch import Batch, Cache, Shape, Weights, Workspace, run
from kernels.spec import BlockSpec, Tiling, decode_tiling, prompt_tiling

LIMITS = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 2e-6}
DEVICE_LIMITS = {**LIMITS, torch.float32: 2e-5}
"""On a GPU sums run in another order; FP32 gets room for it."""


def random_weights(
    spec: BlockSpec, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Weights:
    """Return random weights of *spec*, sized so that activations stay about one."""
    draw = torch.Generator(device=device).manual_seed(seed)

    def rand(*size: int, scale: float = 0.1, around: float = 0.0) -> Tensor:
        drawn = torch.randn(*size, generator=draw, device=device)
        return (drawn * scale + around).to(dtype)

    d, qkv = spec.hidden, spec.q_width + 2 * spec.kv_width
    found = {
        "norm1": rand(d, around=1.0), "norm2": rand(d, around=1.0),
        "qkv": rand(qkv, d, scale=d**-0.5), "out": rand(d, spec.q_width, scale=spec.q_width**-0.5),
        "up": rand(spec.up_rows, d, scale=d**-0.5), "down": rand(d, spec.ffn, scale=spec.ffn**-0.5),
    }  # fmt: skip
    if spec.norm == "layer":
        found |= {"norm1_b": rand(d), "norm2_b": rand(d)}
    if spec.qkv_bias:
        found |= {"qkv_b": rand(qkv)}
    if spec.bias:
        found |= {"out_b": rand(d), "up_b": rand(spec.up_rows), "down_b": rand(d)}
    return Weights(**found)


def failure(
    spec: BlockSpec, shape: Shape, dtype: torch.dtype, device: torch.device, grid: int = 1,
    tiling: Tiling | None = None, lengths: tuple[int, ...] = (17, 0, -1),
) -> str:  # fmt: skip
    """Run *spec* once with poisoned scratch against float64; return what is wrong, else "".

    Whatever the launch raises is a reason too: a kernel that cannot run is not used.
    """
    try:
        return _failure(spec, shape, dtype, device, grid, tiling, lengths)
    except Exception as error:
        return f"{shape} self-test raised {type(error).__name__}: {str(error).splitlines()[0]}"


def _failure(
    spec: BlockSpec, shape: Shape, dtype: torch.dtype, device: torch.device, grid: int,
    tiling: Tiling | None, lengths: tuple[int, ...],
) -> str:  # fmt: skip
    prompt = shape == "prefill"
    if prompt:
        lengths = (0,)
    rows = 5 if prompt else len(lengths)
    if tiling is None:
        tiling = prompt_tiling(spec, rows) if prompt else decode_tiling(spec, rows)
    weights = random_weights(spec, dtype, device)
    draw = torch.Generator(device=device).manual_seed(1)

    def rand(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    room = max(lengths) + rows + 1
    k = torch.full(
        (len(lengths), room, spec.kv_heads, spec.head_dim), float("nan"), dtype=dtype, device=device
    )
    v = k.clone()
    past = []
    for line, length in enumerate(lengths):
        for tensor in (k, v):
            tensor[line, : max(length, 0)] = rand(max(length, 0), spec.kv_heads, spec.head_dim)
        past.append((k[line, : max(length, 0)].clone(), v[line, : max(length, 0)].clone()))
    x = rand(rows, spec.hidden)
    rope = reference.rope_table(room, spec.head_dim).float().to(device) if spec.rope else None
    space = Workspace(spec, rows, tiling, device, prompt=prompt)
    space.poison()
    batch = (
        Batch.prompts(lengths, [rows], tiling.bq, device)
        if prompt
        else Batch.decode(torch.tensor(lengths, device=device))
    )
    out = torch.full_like(x, float("nan"))
    run(spec, weights, rope, x, Cache.contiguous(k, v), batch, space, tiling, shape, grid, out)
    real = [n for n in lengths if n >= 0]
    spans = [(0, rows)] if prompt else [(i, i + 1) for i in range(len(real))]
    kept = x if prompt else x[: len(real)]
    wanted, _ = reference.block(spec, weights, rope, kept, past[: len(real)], spans)
    gap = (out[: len(kept)].double() - wanted).norm(dim=1) / wanted.norm(dim=1)
    worst = float(gap.max())
    limit = (LIMITS if device.type == "cpu" else DEVICE_LIMITS)[dtype]
    if not worst <= limit:
        return f"{shape} self-test is off by {worst:.2g} (limit {limit:.2g})"
    if out[len(kept) :].any():
        return f"{shape} self-test wrote a padded slot"
    return ""
