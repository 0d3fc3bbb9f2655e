"""Times the building of a large policy's members against all of their evaluation, and its memory.

CartPole-v1 with an MLP of about 1,000,000 parameters, 256 members, short episodes, one process.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from protocol.spec import parse
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes, lane_count

STEP_SECONDS = 10e-6  # of CartPole, about
VERSIONS = 1  # kept by this process
JOB = EvaluationJob("members", 0, 0, 128, 1, 0.5)


def main() -> None:
    """Print the share of building, and peak memory beside its bound."""
    spec = parse(
        {
            "name": "large",
            "environment": {
                "id": "CartPole-v1",
                "observation": {"kind": "box", "shape": [4]},
                "action": {"kind": "discrete", "n": 2},
            },
            "policy": {"kind": "mlp", "hidden": [512, 1900]},
            "normalizer": {"enabled": False},
        }
    )
    lanes = Lanes(spec, environments.maker(spec.environment), lane_count(spec.size, STEP_SECONDS))
    theta = np.zeros(spec.size, dtype=np.float32)
    warm = EvaluationJob("members", 0, 0, 1, 1, 0.5)
    lanes.evaluate(warm, theta)
    begin = time.process_time()
    steps = int(lanes.evaluate(JOB, theta).lengths.sum())
    whole = time.process_time() - begin
    begin = time.process_time()
    for first in range(0, JOB.count, 8):
        lanes.build(EvaluationJob("members", 0, first, 8, 1, 0.5), theta)
    building = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bound = 3 * spec.size * (lanes.instances.count + VERSIONS) * 4 + 500_000_000
    print(f"{spec.size:,} parameters, {2 * JOB.count} members, {steps:,} steps in {whole:.2f} s")
    print(f"building: {building / whole:.1%} of the time; peak memory {peak:,} of {bound:,} bytes")


if __name__ == "__main__":
    main()
