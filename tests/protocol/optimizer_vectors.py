"""A hundred pinned steps per optimizer, alone and with all that can be laid around it.

`python -m tests.protocol.optimizer_vectors` writes optimizer_vectors.json anew. Add what is new; a
change of what is there is a new protocol version: peers that disagree on one of these numbers can't
train together.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from protocol import noise, optimizers
from protocol.state import params_hash

PATH = Path(__file__).with_name("optimizer_vectors.json")
COMMENT = "100 steps each; regenerate with: python -m tests.protocol.optimizer_vectors"
SIZES = (80, 16, 48, 3)
SIZE = sum(SIZES)
STEPS = 100
BETAS = {"momentum": 0.8, "beta1": 0.9, "beta2": 0.97, "epsilon": 1e-6, "maximum_speed": 0.12}
AROUND = {"weight_decay": 0.01, "clip_norm": 0.7, "lookahead_steps": 7, "lookahead_alpha": 0.4}
TABLES = {"alone": BETAS, "wrapped": {**BETAS, **AROUND}}


def total(step: int) -> np.ndarray:
    """Sums of noise that look arbitrary, drift, and are the same everywhere."""
    octets = noise.stream(2**63 + 11, noise.Domain.AUDIT, step, 4 * SIZE).view("<u4")
    sums: np.ndarray = octets.astype(np.int64) % 200_001 - 99_000 + 300 * step
    return sums


def run(kind: str, around: str) -> dict[str, Any]:
    """What is pinned of an optimizer after STEPS steps."""
    table = dict(TABLES[around])
    if kind != "novograd":
        table["l2"] = 0.02
    made = optimizers.make(kind, table, SIZES)
    theta = np.linspace(-1.0, 1.0, SIZE, dtype=np.float32)
    slots = made.initial_slots(SIZE)
    for index in range(STEPS):
        step, slots = made.step(total(index), 1e-6, theta, slots, 0.02 + 0.001 * (index % 5))
        theta = (theta.astype(np.float64) + step).astype(np.float32)
    digests = {
        name: hashlib.blake2b(slot.astype("<f8").tobytes(), digest_size=16).hexdigest()
        for name, slot in sorted(slots.items())
    }
    return {"optimizer": kind, "around": around, "params_hash": params_hash(theta)} | {
        "slots": digests
    }


def answers() -> list[dict[str, Any]]:
    """Every optimizer of Shoal's own with its answers."""
    own = [name for name, kind in optimizers.OPTIMIZERS.items() if _is_ours(kind)]
    return [run(kind, around) for kind in sorted(own) for around in TABLES]


def _is_ours(kind: type[optimizers.Optimizer]) -> bool:
    return kind.__module__.startswith("protocol.")


if __name__ == "__main__":
    PATH.write_text(json.dumps({"comment": COMMENT, "runs": answers()}, indent=1) + "\n")
