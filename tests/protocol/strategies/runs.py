"""Runs of a strategy on a function of the parameters, without environment, pool or messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import noise, optimizers, strategies
from protocol.state import Arithmetic, CohortTerms, State, UpdateTerms, apply, initial_state
from protocol.strategies import Cohort, Situation, Strategy, Weighting

RUN_SEED = 11
Objective = Callable[[NDArray[np.float64]], float]


def rules(strategy: Strategy, size: int, optimizer: Mapping[str, Any] | None = None) -> Arithmetic:
    """Of a run with this strategy and its own optimizer, or normalised ascent."""
    own = {"kind": "normalised", "momentum": 0.8, **strategy.defaults.get("optimizer", {})}
    values = {**own, **(optimizer or {})}
    kind = str(values.pop("kind"))
    made = optimizers.make(kind, values)
    return Arithmetic(noise_of(strategy), RUN_SEED, made, size, strategy=strategy)


def noise_of(strategy: Strategy) -> str:
    return str(strategy.defaults.get("strategy", {}).get("noise", "gaussian"))


def learning_rate_of(strategy: Strategy) -> float:
    own: Any = strategy.defaults.get("optimizer", {})
    return float(
        own.get("learning_rate", optimizers.get(own.get("kind", "normalised")).learning_rate)
    )


def situation(arithmetic: Arithmetic, state: State) -> Situation:
    unit = noise.unit(arithmetic.noise)
    return Situation(state.version, arithmetic.size, state.sigma, unit)


def terms(
    state: State, cohorts: Sequence[Cohort], weighting: Weighting, learning_rate: float
) -> UpdateTerms:
    squares = weighting.squares or [None] * len(cohorts)
    return UpdateTerms(
        cohorts=[
            CohortTerms(cohort.first_direction, cohort.version, weights, share, square)
            for cohort, weights, share, square in zip(
                cohorts, weighting.weights, weighting.multipliers, squares, strict=True
            )
        ],
        scale=weighting.scale,
        learning_rate=learning_rate,
        sigma=state.sigma,
        episodes=weighting.members,
        scalars=weighting.scalars,
    )


def evaluated(
    arithmetic: Arithmetic,
    state: State,
    first: int,
    count: int,
    objective: Objective,
    each: int = 2,
) -> Cohort:
    """The returns of consecutive directions around the state's parameters."""
    rows = noise.members(
        arithmetic.noise,
        RUN_SEED,
        first,
        count,
        state.theta,
        state.spread,
        per_direction=each,
    ).astype(np.float64)
    returns = np.array([objective(row) for row in rows]).reshape(count, each)
    minus = returns[:, 1].copy() if each == 2 else None
    return Cohort(first, state.version, 0, returns[:, 0].copy(), minus)


def made(
    arithmetic: Arithmetic, state: State, cohorts: Sequence[Cohort], learning_rate: float
) -> State:
    """The state that follows from the returns."""
    weighting = arithmetic.strategy.weigh(cohorts, situation(arithmetic, state))
    return apply(arithmetic, state, terms(state, cohorts, weighting, learning_rate))


def optimised(
    strategy: Strategy,
    objective: Objective,
    start: NDArray[np.float32],
    updates: int,
    directions: int = 20,
    sigma: float = 0.3,
    learning_rate: float | None = None,
    each: int = 2,
) -> State:
    """The state after so many updates."""
    arithmetic = rules(strategy, start.size)
    rate = learning_rate_of(strategy) if learning_rate is None else learning_rate
    state = initial_state(arithmetic, start, sigma)
    for update in range(updates):
        cohort = evaluated(arithmetic, state, update * directions, directions, objective, each)
        after = made(arithmetic, state, [cohort], rate)
        if strategy.needs_acceptance and centre(after, objective) < centre(state, objective):
            after = dataclasses.replace(state, version=after.version)
        state = after
    return state


def centre(state: State, objective: Objective) -> float:
    return objective(state.theta.astype(np.float64))


def each_way(kind: str) -> tuple[int, ...]:
    """Members of a direction that a strategy may have."""
    return (2,) if strategies.get(kind).needs_mirrors else (2, 1)
