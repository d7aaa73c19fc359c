"""Live tests share two cores: one torch thread each is faster than two that wait for each other."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # live_help
torch.set_num_threads(1)
