"""Live tests share two cores: one torch thread each is faster than two that wait for each other."""

import torch

torch.set_num_threads(1)
