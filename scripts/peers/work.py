"""The work that all peers are timed at: CartPole-v1, members of an MLP 4-32-2."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

HIDDEN = 32
SIZE = 4 * HIDDEN + HIDDEN + HIDDEN * 2 + 2
NOT_INSTALLED = 3


def members(kind: str, count: int) -> np.ndarray:
    """Flat parameters, shape (count, SIZE): first weights, first biases, second ones, per output.

    `short`: random policies, which fall soon. `long`: ones that balance for all 500 steps.
    """
    noise = np.random.default_rng(1).standard_normal((count, SIZE)).astype(np.float32)
    if kind == "short":
        return 0.5 * noise
    balancing = np.zeros(SIZE, dtype=np.float32)
    balancing[:4] = (0.05, 0.1, 0.5, 0.5)
    balancing[160], balancing[192] = -1.0, 1.0
    return balancing + 1e-3 * noise


def report(name: str, evaluate: Callable[[np.ndarray], int], fewest: int) -> None:
    """Time `evaluate`, which takes members and gives the steps that their episodes took."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    population = members(kind, fewest)
    evaluate(population)
    steps = episodes = 0
    begin = time.process_time()
    while (spent := time.process_time() - begin) < seconds:
        steps += evaluate(population)
        episodes += fewest
    print(json.dumps({"name": name, "steps": steps, "episodes": episodes, "seconds": spent}))
