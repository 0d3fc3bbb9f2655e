"""EvoTorch's GymNE without actors: its evaluation of a population in one process."""

from __future__ import annotations

import logging
import sys

import numpy as np
from work import HIDDEN, NOT_INSTALLED, report

try:
    import evotorch
    import torch
    from evotorch.neuroevolution import GymNE
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(NOT_INSTALLED)

logging.getLogger("evotorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
problem = GymNE(
    "CartPole-v1", f"Linear(obs_length, {HIDDEN}) >> Tanh() >> Linear({HIDDEN}, act_length)"
)


def evaluate(population: np.ndarray) -> int:
    """Steps of an episode of each member."""
    batch = problem.generate_batch(len(population))
    batch.set_values(torch.from_numpy(population))
    before = problem.status.get("total_interaction_count", 0)
    problem.evaluate(batch)
    return int(problem.status["total_interaction_count"] - before)


report(f"EvoTorch {evotorch.__version__} GymNE", evaluate, 16)
