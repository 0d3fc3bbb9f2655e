"""`python -m tests.worker.digests`: what a processor makes of episodes in all built-in policies.

The environments' own arithmetic is with integers, and with actions: what a policy does is what
its members' returns are made of.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from typing import Any

import numba
import numpy as np

from protocol import replay, section
from tests.worker import reference
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.policies import elementwise

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("ToyMiser-v0", {"policy": {"kind": "linear"}}),
    "mlp": (
        "ToyMiser-v0",
        {"policy": {"hidden": [19, 9], "squash": "tanh", "action_noise": "predicted"}},
    ),
    "large": ("ToyMiser-v0", {"policy": {"hidden": [360, 360], "squash": "tanh"}}),
    "gaussian": (
        "ToyMiser-v0",
        {
            "strategy": {"noise": "gaussian"},
            "policy": {"hidden": [33], "squash": "tanh", "activation": "elu"},
        },
    ),
    "gru": ("ToyMiser-v0", {"policy": {"kind": "gru", "hidden": [9, 5], "squash": "tanh"}}),
    "lstm": (
        "ToyMiser-v0",
        {
            "policy": {
                "kind": "lstm",
                "hidden": [9, 5],
                "squash": "tanh",
                "initialisation": "orthogonal",
            },
        },
    ),
    "drawn": ("ToyGarden-v0", {"policy": {"hidden": [8], "choice": "sample"}}),
    "cnn": (
        "ToyAlbum-v0",
        {
            "policy": {
                "kind": "cnn",
                "convolutions": [[9, 4, 2], [4, 2, 1]],
                "hidden": [10],
                "squash": "tanh",
            },
        },
    ),
}
"""By name an environment, and the sections of a run in it."""


def digest(environment_id: str, sections: dict[str, Any]) -> str:
    """That of the returns, lengths and observation sums of some members and of their centre."""
    seen = section.plain(run_spec(environment_id).environment.observation)
    if seen.get("dtype") == "uint8":
        seen["dtype"] = "float32"  # images are not normalised
    whole = {"normalizer": {"enabled": True}, "environment": {"observation": seen}, **sections}
    spec = run_spec(environment_id, **whole)
    maker = environments.maker(spec.environment, [TOYS])
    lanes = Lanes(spec, maker, 5)
    theta, view = replay.initial_state(spec).theta, reference.normalization(spec)
    summary = hashlib.blake2b(digest_size=16)
    for job in (
        EvaluationJob("members", 0, 0, 12, 2, sigma=0.7),
        EvaluationJob("centre", 0, 0, 5),
    ):
        found = lanes.evaluate(job, theta, view)
        assert found.failed == () and np.ptp(found.returns) > 0.0
        summary.update(found.returns.tobytes() + found.lengths.tobytes())
        summary.update(repr(found.observed).encode())
    return summary.hexdigest()


def activations() -> str:
    """That of what those activations make of numbers that take the longest ways."""
    values = np.random.default_rng(1).normal(0.0, 4.0, 4000).astype(np.float32)
    summary = hashlib.blake2b(digest_size=16)
    for name in ("gelu", "logsigmoid"):
        found = values.copy()
        elementwise.compiled(name).ctypes(
            found.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), found.size
        )
        summary.update(found.tobytes())
    return summary.hexdigest()


def main() -> None:
    """Print the digests, and what of the processor was used."""
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    told = {
        "digests": {
            **{name: digest(*run) for name, run in RUNS.items()},
            "activations": activations(),
        },
        "kernels": numba.config.CPU_NAME or "this machine's",
        "features": sorted(name for name, there in features.items() if there),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
