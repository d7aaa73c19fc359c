"""From logits to tokens: greedy, or drawn by (seed, position)."""

import torch
from torch import Tensor

from dispatch import keyed
from live.sequence import Sequence


def sample(logits: Tensor, sequences: list[Sequence]) -> list[int]:
    """Return one token a row: the best at temperature 0, else drawn by (seed, position)."""
    best: list[int] = logits.argmax(dim=-1).tolist()
    for row, sequence in enumerate(sequences):
        job = sequence.job
        if job.temperature > 0:
            draw = keyed.bits(keyed.stream(job.seed, "sample"), sequence.produced)
            generator = torch.Generator().manual_seed(draw)
            weights = torch.softmax(logits[row].float().cpu() / job.temperature, dim=-1)
            best[row] = int(torch.multinomial(weights, 1, generator=generator))
    return best
