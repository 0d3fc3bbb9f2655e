"""How well a run learns, told from one update: do pairs agree, are returns alike, where does it go;
pure and cheap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import Contribution
from protocol.state import State

BLOCK = 8192
"""Parameters at a time: they stay in the cache, and linear algebra keeps to one core."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What an update tells; NaN where it tells nothing. docs/diagnostics.md has the formulas.

    Attributes:
        pair_signal_to_noise: mean square of a pair's difference over the variance of its sum.
        tie_share: share of the members whose return another member has, too.
        step_norm: length of the step.
        step_cosine: of the angle to the step before.
        theta_norm: length of the parameters before it, without those that are frozen.
        sigma_ratio: length of a perturbation over that.
    """

    pair_signal_to_noise: float
    tie_share: float
    step_norm: float
    step_cosine: float
    theta_norm: float
    sigma_ratio: float


def diagnose(
    contributions: Sequence[Contribution],
    earlier: State | None,
    before: State,
    after: State,
    factors: NDArray[np.float64] | None = None,
) -> Diagnostics:
    """The diagnostics of the update `before` -> `after`, made of these contributions.

    `earlier` is the version before those, None where nobody has it; `factors` are those of
    `protocol.state.Arithmetic`.
    """
    parts = [part.returns for part in contributions]
    returns = np.concatenate(parts) if parts else np.empty((0, 1))
    returns = returns[~np.isnan(returns[:, 0])]
    last = None if earlier is None else earlier.theta
    step, cosine, length = _steps(last, before, after, factors)
    perturbation = _reach(before, factors)
    return Diagnostics(
        pair_signal_to_noise=pair_signal_to_noise(returns),
        tie_share=tie_share(returns.ravel()),
        step_norm=step,
        step_cosine=cosine,
        theta_norm=length,
        sigma_ratio=perturbation / length if length else math.nan,
    )


def pair_signal_to_noise(returns: NDArray[np.float64]) -> float:
    """mean((r+ - r-)^2) / var(r+ + r-) over mirrored pairs, shape (pairs, 2).

    Where sigma times the slope says all, r+ and r- lie on either side of one value, and it is
    large; returns that have nothing to do with the direction give 1. NaN without mirrors, with
    fewer than two pairs, or where all sums are the same.
    """
    pairs, members = returns.shape
    if pairs < 2 or members != 2:
        return math.nan
    plus, minus = returns.T
    with np.errstate(over="ignore", invalid="ignore"):  # a return may be as large as floats go
        sums, differences = plus + minus, plus - minus
        sums -= sums.sum() / pairs
        noise = float(sums @ sums) / (pairs - 1)
        signal = float(differences @ differences) / pairs
    return signal / noise if noise > 0.0 else math.nan


def tie_share(returns: NDArray[np.float64]) -> float:
    """Share of the returns, shape (members,), that are not alone with their value."""
    if not returns.size:
        return math.nan
    ordered = np.sort(returns)
    same = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
    return float((same[1:] | same[:-1]).mean())


def _steps(
    earlier: NDArray[np.float32] | None,
    before: State,
    after: State,
    factors: NDArray[np.float64] | None,
) -> tuple[float, float, float]:
    """(length of the step, its cosine to the one before, length of the parameters before it)."""
    theta, moved = before.theta, after.theta
    square = square_before = product = length = 0.0
    for begin in range(0, theta.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        start = theta[part]
        step = moved[part] - start
        square += float(step @ step)
        if earlier is not None:
            last = start - earlier[part]
            square_before += float(last @ last)
            product += float(step @ last)
        perturbed = start if factors is None else start[factors[part] != 0.0]
        length += float(perturbed @ perturbed)
    norms = math.sqrt(square) * math.sqrt(square_before)
    return math.sqrt(square), product / norms if norms else math.nan, math.sqrt(length)


def _reach(before: State, factors: NDArray[np.float64] | None) -> float:
    """The length of a perturbation."""
    if before.sigmas is None and factors is None:
        return before.sigma * math.sqrt(before.theta.size)
    sigmas = before.sigmas if factors is None else factors * before.spread
    assert sigmas is not None
    square = 0.0
    for begin in range(0, sigmas.size, BLOCK):
        part = sigmas[begin : begin + BLOCK]
        square += float(part @ part)
    return math.sqrt(square)
