"""A hundred pinned updates per strategy, optimizer and noise: known answers for every peer.

`python -m tests.protocol.update_vectors` writes update_vectors.json anew. Do that only together
with a new protocol version: peers that disagree on one of these numbers can't train together.
"""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from protocol import kernels, networks, noise, normalizer, optimizers, snapshot, strategies
from protocol.initialisation import initial_theta
from protocol.state import (
    Arithmetic,
    CohortTerms,
    State,
    UpdateTerms,
    apply,
    initial_state,
    params_hash,
)

PATH = Path(__file__).with_name("update_vectors.json")
COMMENT = "100 updates each; regenerate with: python -m tests.protocol.update_vectors"
RUN_SEED = 2**63 + 11
TENSORS = networks.dense((5, 16, 3))
SIZE = 5 * 16 + 16 + 16 * 3 + 3
DIMS = 5
WINDOW = 3
BATCH = 21  # not a multiple of eight, so blocks of noise are cut
UPDATES = 100
OPTIMIZERS = ("normalised", "sgd", "adam")  # of all: see optimizer_vectors
HYPERPARAMETERS = {"momentum": 0.8, "beta1": 0.9, "beta2": 0.999, "l2": 0.01}


def octets(label: int, index: int, count: int) -> np.ndarray:
    """Bytes that look arbitrary and are the same everywhere."""
    return noise.stream(label, noise.Domain.AUDIT, index, count)


def cohort(version: int, age: int) -> strategies.Cohort:
    """Two thirds of a batch, or its late third where age > 0; small integers, so that some tie."""
    first, count = (0, 14) if age == 0 else (14, 7)
    returns = octets(version, age, 2 * count).astype(np.float64).reshape(2, count)
    returns[:, octets(version, 7 + age, count) < 8] = np.nan
    return strategies.Cohort(version * BATCH + first, version, age, returns[0], returns[1])


def observed(state: State, version: int) -> tuple[int, normalizer.ObservationSums]:
    """Sums over 40 frames of drifting mean, measured as `version` measures."""
    halves = octets(version, 50 + state.version, 80 * DIMS).view("<u2").reshape(40, DIMS)
    frames = halves / 4096.0 * np.array([1e-3, 1.0, 30.0, 0.0, 1.0]) + version
    words = np.zeros((DIMS, 4), dtype=np.uint64)
    kernels.observe_frames(frames, *state.normalizer.measure(state.version - version), words)
    return version, normalizer.from_words(40, words)


def terms_of(strategy: strategies.Strategy, arithmetic: Arithmetic, state: State) -> UpdateTerms:
    """The update that a coordinator would make of this version's returns and some late ones; every
    third candidate fails."""
    if state.is_candidate and state.version % 3 == 0:
        return UpdateTerms((), 0.0, 0.05, state.sigma * 0.9, reverts=True)
    cohorts = [cohort(state.version, 0)]
    late = (1, 2) if strategy.accepts_stale else ()
    cohorts += [cohort(state.version - age, age) for age in late if state.version >= age]
    situation = strategies.Situation(
        state.version, arithmetic.size, state.sigma, noise.unit(arithmetic.noise)
    )
    weighting = strategy.weigh(cohorts, situation)
    squares = weighting.squares or [None] * len(cohorts)
    return UpdateTerms(
        cohorts=[
            CohortTerms(part.first_direction, part.version, weights, share, square)
            for part, weights, share, square in zip(
                cohorts, weighting.weights, weighting.multipliers, squares, strict=True
            )
        ],
        scale=weighting.scale,
        learning_rate=0.05,
        sigma=state.sigma * 0.99,
        observations=[observed(state, part.version) for part in cohorts],
        episodes=weighting.members,
        steps=40 * len(cohorts),
        scalars=weighting.scalars,
    )


def run(strategy_kind: str, optimizer_kind: str, noise_kind: str) -> State:
    """The state after UPDATES updates."""
    optimizer = optimizers.make(optimizer_kind, HYPERPARAMETERS)
    strategy = strategies.get(strategy_kind)()
    arithmetic = Arithmetic(noise_kind, RUN_SEED, optimizer, SIZE, DIMS, WINDOW, strategy=strategy)
    theta = initial_theta(RUN_SEED, TENSORS, "scaled", 1.0)
    state = initial_state(arithmetic, theta, sigma=0.1)
    for _ in range(UPDATES):
        state = apply(arithmetic, state, terms_of(strategy, arithmetic, state))
    return state


def answer(state: State) -> dict[str, Any]:
    """What is pinned of a state."""
    return {
        "params_hash": params_hash(state.theta),
        "slots": {
            name: hashlib.blake2b(slot.astype("<f8").tobytes(), digest_size=16).hexdigest()
            for name, slot in sorted(state.slots.items())
        },
        "state_digest": snapshot.state_digest(state).hex(),
    }


def possible(strategy_kind: str, optimizer_kind: str, noise_kind: str) -> bool:
    """Whether a run spec may have them together."""
    strategy = strategies.get(strategy_kind)
    if strategy.needs_gaussian and noise_kind != noise.GAUSSIAN:
        return False
    return optimizer_kind == "sgd" or not strategy.own_step


def combinations() -> list[tuple[str, str, str]]:
    """Every strategy, optimizer and noise that a run spec may have together."""
    every = product(strategies.STRATEGIES, OPTIMIZERS, noise.KINDS)
    return [combination for combination in every if possible(*combination)]


def answers() -> list[dict[str, Any]]:
    """Every combination with its answer."""
    return [
        {"strategy": strategy, "optimizer": optimizer, "noise": kind}
        | answer(run(strategy, optimizer, kind))
        for strategy, optimizer, kind in combinations()
    ]


if __name__ == "__main__":
    PATH.write_text(json.dumps({"comment": COMMENT, "runs": answers()}, indent=1) + "\n")
