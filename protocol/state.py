"""The state of a run at one version, and the update that makes the next version from it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import noise, normalizer
from protocol.amended import NOTHING, Amended
from protocol.cap import Cap
from protocol.errors import ShoalError
from protocol.normalizer import NormalizerState, ObservationSums
from protocol.optimizers import Optimizer, Slots, Vector
from protocol.optimizers.base import blocks
from protocol.strategies import Adapted, OpenAIES, Strategy, Sums
from protocol.strategies.base import LARGEST_SIGMA

DIGEST_BYTES = 16
_SMALLEST = 5e-324
_SUSPECTS = ("torch", "jax", "jaxlib", "tensorflow", "brax", "mujoco", "pybullet", "cupy")


@dataclass(frozen=True)
class Arithmetic:
    """What of a run spec decides how states follow one another.

    Attributes:
        noise: kind of the noise, see `protocol.noise`.
        run_seed: 0 <= run_seed < 2**64.
        optimizer: with its hyperparameters.
        size: number of parameters.
        observation_dims: dimensions of the observation normaliser; 0 where there is none.
        window: versions whose returns may count in an update: 1 + max_staleness.
        cap: how the length of episodes is bounded by that of earlier ones; None where it is not.
        strategy: with its hyperparameters.
        factors: what the steps of each parameter are multiplied by, shape (size,); where it is 0,
            the sums of the noise don't count either. None where it is 1 for all.
    """

    noise: str
    run_seed: int
    optimizer: Optimizer
    size: int
    observation_dims: int = 0
    window: int = 1
    cap: Cap | None = None
    strategy: Strategy = field(default_factory=OpenAIES)
    factors: NDArray[np.float64] | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class State:
    """All that a version is; two peers with equal `protocol.snapshot.state_digest` are in step.

    Attributes:
        version: how many updates made it.
        theta: parameters, float32, shape (size,), read-only.
        slots: what the optimizer remembers, float64, read-only.
        sigma: size of the perturbations that evaluate this version; where they have one per
            parameter, what the strategy makes of it.
        normalizer: observation statistics, or None.
        episodes, steps: how many counted so far.
        cap: steps after which members' episodes of this version are cut, 0 for never; None where
            the run has no `Cap`.
        sigmas: sizes of the perturbations per parameter, float64, shape (size,), read-only; None
            where all have `sigma`.
        memory: what the strategy remembers besides, float64, read-only.
        accepted: in a run whose strategy needs acceptance what an update that reverts restores:
            this version itself where it is accepted, else that which the candidate was made from;
            None in other runs.
        amended: the settings that hold otherwise than the spec says.
    """

    version: int
    theta: NDArray[np.float32]
    slots: Slots
    sigma: float
    normalizer: NormalizerState | None
    episodes: int = 0
    steps: int = 0
    cap: int | None = None
    sigmas: Vector | None = None
    memory: Mapping[str, Vector] = field(default_factory=dict)
    accepted: State | None = None
    amended: Amended = NOTHING

    def __post_init__(self) -> None:
        """Make the arrays read-only: a state is shared, never changed."""
        self.theta.setflags(write=False)
        if self.sigmas is not None:
            self.sigmas.setflags(write=False)
        for vector in (*self.slots.values(), *self.memory.values()):
            vector.setflags(write=False)

    @property
    def spread(self) -> float | Vector:
        """The size of the perturbations as `protocol.noise.member` takes it."""
        return self.sigma if self.sigmas is None else self.sigmas

    @property
    def basis(self) -> NDArray[np.float32]:
        """What members are made of besides `sigma`; see `basis`."""
        return basis(self.theta, self.sigmas)

    @property
    def is_candidate(self) -> bool:
        """Whether it may be reverted."""
        return self.accepted is not None and self.accepted.version != self.version


@dataclass(frozen=True, eq=False)
class CohortTerms:
    """Consecutive directions in an update, evaluated at one version.

    Attributes:
        first_direction: direction of the first weight.
        version: at which they were evaluated.
        weights: integers, one a direction; 0 for what is missing or dropped.
        multiplier: how many times they count.
        squares: integers, one a direction, of the squares of the noise; None for a strategy that
            does not use them.
    """

    first_direction: int
    version: int
    weights: NDArray[np.int64]
    multiplier: int
    squares: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class UpdateTerms:
    """All that changes a state into the next one.

    Attributes:
        cohorts: what is summed; without a weight other than 0 there is no step at all.
        scale: the gradient is scale * the exact sum.
        learning_rate: of this step.
        sigma: size of the perturbations of the version that the update makes; a strategy that
            adapts it finds it itself.
        observations: (version, sums) measured under each version; empty without a normaliser.
        episodes, steps: how many this update adds to the counters.
        scalars: what else the strategy needs.
        reverts: whether it restores the accepted version instead, and sums nothing.
        amended: the settings that hold from the next version on; None: those that do now.
    """

    cohorts: Sequence[CohortTerms]
    scale: float
    learning_rate: float
    sigma: float
    observations: Sequence[tuple[int, ObservationSums]] = ()
    episodes: int = 0
    steps: int = 0
    scalars: tuple[float, ...] = ()
    reverts: bool = False
    amended: Amended | None = None


def initial_state(
    arithmetic: Arithmetic,
    theta: NDArray[np.float32],
    sigma: float,
    statistics: NormalizerState | None = None,
) -> State:
    """Version 0: these parameters, fresh slots; fresh statistics, unless some are given to a run
    that keeps them.

    Raises:
        ShoalError: theta has another size than the spec says, or is not finite.
    """
    theta = np.array(theta, dtype=np.float32)
    if theta.shape != (arithmetic.size,):
        raise ShoalError(f"parameters of shape {theta.shape}: must be ({arithmetic.size},)")
    if not np.isfinite(theta).all():
        raise ShoalError("initial parameters with NaN or infinity: must be finite")
    if arithmetic.observation_dims and statistics is None:
        statistics = normalizer.initial_state(arithmetic.observation_dims, arithmetic.window)
    slots = arithmetic.optimizer.initial_slots(arithmetic.size)
    cap = None if arithmetic.cap is None else 0
    adapted = arithmetic.strategy.begin(arithmetic.size, sigma)
    first = State(
        version=0,
        theta=theta,
        slots=slots,
        sigma=adapted.sigma,
        normalizer=statistics,
        cap=cap,
        sigmas=adapted.sigmas,
        memory=adapted.memory,
    )
    return accepting(arithmetic, first)


def accepting(arithmetic: Arithmetic, state: State) -> State:
    """The state as an accepted one, where the strategy needs acceptance."""
    if not arithmetic.strategy.needs_acceptance:
        return state
    return dataclasses.replace(state, accepted=dataclasses.replace(state, accepted=None))


def apply(arithmetic: Arithmetic, state: State, terms: UpdateTerms) -> State:
    """The next version; `state` stays as it is.

    Where the sums are zero everywhere, parameters, slots and what the strategy remembers rest:
    nothing decays or moves on its own. Where the strategy needs acceptance, what is built on is
    accepted by that; terms that revert lead to the accepted version as the next one, with the
    sigma of the terms, and counters and cap go on.

    Raises:
        ValueError: terms that do not fit the state, a sum that could not be exact, or a step that
            leaves the range of float32.
        ShoalError: this process flushes denormal numbers.
    """
    check_denormals()
    _require_fitting(arithmetic, state, terms)
    if terms.reverts:
        return _reverted(arithmetic, state, terms)
    theta, slots = state.theta, state.slots
    adapted = Adapted(state.sigma, state.sigmas, state.memory)
    sums = _sums(arithmetic, state, terms)
    if sums.total.any() or (sums.squares is not None and sums.squares.any()):
        with np.errstate(over="ignore", invalid="ignore"):
            gradient, adapted = arithmetic.strategy.follow(sums, adapted)
            if gradient.total.any():
                step, slots = arithmetic.optimizer.step(
                    gradient.total, gradient.scale, theta, slots, terms.learning_rate
                )
                if arithmetic.factors is not None:
                    step = step * arithmetic.factors
                theta = _moved(theta, step)
        _require_finite(state.version, terms, theta, slots, adapted)
    sigma = adapted.sigma if arithmetic.strategy.needs_gaussian else terms.sigma
    statistics = state.normalizer
    if statistics is not None:
        statistics = normalizer.advance(
            statistics, [(state.version - version, sums) for version, sums in terms.observations]
        )
    cap = state.cap
    if arithmetic.cap is not None:
        cap = arithmetic.cap.after(cap or 0, terms.episodes, terms.steps)
    return State(
        version=state.version + 1,
        theta=theta,
        slots=slots,
        sigma=sigma,
        normalizer=statistics,
        episodes=state.episodes + terms.episodes,
        steps=state.steps + terms.steps,
        cap=cap,
        sigmas=adapted.sigmas,
        memory=adapted.memory,
        accepted=dataclasses.replace(state, accepted=None) if state.accepted else None,
        amended=_amended(arithmetic, state, terms),
    )


def basis(theta: NDArray[np.float32], sigmas: NDArray[Any] | None) -> NDArray[np.float32]:
    """Theta, and after it the sigmas as float32 if there are some: shape (size,) or (2 * size,)."""
    return theta if sigmas is None else np.concatenate([theta, sigmas], dtype=np.float32)


def _reverted(arithmetic: Arithmetic, state: State, terms: UpdateTerms) -> State:
    """The accepted version of the state, as the next one."""
    accepted = state.accepted
    assert accepted is not None
    restored = dataclasses.replace(
        accepted,
        version=state.version + 1,
        sigma=accepted.sigma if arithmetic.strategy.needs_gaussian else terms.sigma,
        episodes=state.episodes + terms.episodes,
        steps=state.steps + terms.steps,
        cap=state.cap,
        amended=_amended(arithmetic, state, terms),
    )
    return accepting(arithmetic, restored)


def _amended(arithmetic: Arithmetic, state: State, terms: UpdateTerms) -> Amended:
    """The settings that hold at the next version: what is accepted or reverted changes none."""
    held = state.amended if terms.amended is None else terms.amended
    return held.reached(state.version + 1, arithmetic.window)


def params_digest(theta: NDArray[np.float32]) -> bytes:
    """16 bytes that prove parameters: BLAKE2b of their little-endian float32."""
    octets = np.ascontiguousarray(theta, dtype="<f4").data
    return hashlib.blake2b(octets, digest_size=DIGEST_BYTES).digest()


def params_hash(theta: NDArray[np.float32]) -> str:
    """`params_digest` for people: 32 hexadecimal digits."""
    return params_digest(theta).hex()


def check_denormals() -> None:
    """Raise ShoalError where this thread flushes denormal numbers to zero.

    Some libraries switch that on for the whole process when they are loaded; from then on sums that
    pass near zero differ from everybody else's.
    """
    if (np.array([_SMALLEST, 2 * sys.float_info.min]) / np.array([1.0, 4.0])).all():
        return
    loaded = [name for name in _SUSPECTS if name in sys.modules]
    raise ShoalError(
        f"5e-324 became 0: a library switched this process to flush denormal numbers "
        f"(loaded: {', '.join(loaded) or 'none of the usual ones'}), so its updates would differ "
        "from every peer's; apply updates in a process that does not import it"
    )


def _moved(theta: NDArray[np.float32], step: Vector) -> NDArray[np.float32]:
    """theta + step, summed in float64 and rounded once."""
    moved = np.empty_like(theta)
    for part in blocks(theta.size):
        moved[part] = (theta[part].astype(np.float64) + step[part]).astype(np.float32)
    return moved


def _sums(arithmetic: Arithmetic, state: State, terms: UpdateTerms) -> Sums:
    """What the strategy is told of an update. Raises OverflowError where a sum is not exact."""
    squares, mass = None, 0
    if arithmetic.strategy.needs_gaussian:
        squares, mass = _exact_squares(arithmetic, terms.cohorts)
    total = _exact_sum(arithmetic, terms.cohorts)
    if arithmetic.factors is not None:
        for sums in (total, squares):
            if sums is not None:
                sums[arithmetic.factors == 0.0] = 0
    return Sums(
        version=state.version,
        total=total,
        scale=terms.scale,
        unit=noise.unit(arithmetic.noise),
        squares=squares,
        mass=mass,
        scalars=terms.scalars,
    )


def _exact_squares(
    arithmetic: Arithmetic, cohorts: Sequence[CohortTerms]
) -> tuple[NDArray[np.int64], int]:
    """The sum over the squares of the noise, less one each, and the sum of the weights alone."""
    rows = [(cohort, cohort.squares) for cohort in cohorts if cohort.squares is not None]
    noise.require_exact_moment(sum(c.multiplier * noise.magnitude(row) for c, row in rows))
    total = np.zeros(arithmetic.size, dtype=np.int64)
    for cohort, row in rows:
        total += noise.second_moment(
            arithmetic.noise,
            arithmetic.run_seed,
            cohort.first_direction,
            row * cohort.multiplier,
            arithmetic.size,
        )
    return total, sum(cohort.multiplier * int(row.sum()) for cohort, row in rows)


def _exact_sum(arithmetic: Arithmetic, cohorts: Sequence[CohortTerms]) -> NDArray[np.int64]:
    weight = sum(cohort.multiplier * noise.magnitude(cohort.weights) for cohort in cohorts)
    noise.require_exact(weight, noise.largest(arithmetic.noise))
    total = np.zeros(arithmetic.size, dtype=np.int64)
    for cohort in cohorts:
        noise.add_weighted_sum(
            arithmetic.noise,
            arithmetic.run_seed,
            cohort.first_direction,
            cohort.weights * cohort.multiplier,
            total,
        )
    return total


def _require_finite(
    version: int, terms: UpdateTerms, theta: NDArray[np.float32], slots: Slots, adapted: Adapted
) -> None:
    vectors = (*slots.values(), *adapted.memory.values())
    if not (np.isfinite(theta).all() and all(np.isfinite(v).all() for v in vectors)):
        raise ValueError(
            f"update {version} leads to parameters that are not finite: "
            f"lower the learning rate of {terms.learning_rate}"
        )
    sigmas = np.array([adapted.sigma]) if adapted.sigmas is None else adapted.sigmas
    fits = (sigmas > 0.0) & (sigmas <= LARGEST_SIGMA)
    if not (fits.all() and 0.0 < adapted.sigma <= LARGEST_SIGMA):
        raise ValueError(
            f"update {version} leads to a sigma that is not above 0, and at most "
            f"{LARGEST_SIGMA:g}: lower the rate at which the strategy adapts it"
        )


def _require_fitting(arithmetic: Arithmetic, state: State, terms: UpdateTerms) -> None:
    if terms.reverts and not state.is_candidate:
        raise ValueError(f"a revert of version {state.version}: it must be a candidate")
    if terms.reverts and (terms.cohorts or terms.observations):
        raise ValueError("a revert with returns: must be none, since it uses none")
    oldest = max(0, state.version - arithmetic.window + 1)
    versions = [cohort.version for cohort in terms.cohorts]
    versions += [version for version, _ in terms.observations]
    for version in versions:
        if not oldest <= version <= state.version:
            raise ValueError(
                f"returns of version {version} in update {state.version}: "
                f"must be of versions {oldest} .. {state.version}"
            )
    if any(cohort.multiplier < 0 for cohort in terms.cohorts):
        raise ValueError("a negative multiplier: must be 0 or more")
    strategy = arithmetic.strategy
    if any((cohort.squares is not None) != strategy.needs_gaussian for cohort in terms.cohorts):
        rule = "must be there" if strategy.needs_gaussian else "must be none"
        raise ValueError(f"weights of squares in a run of {strategy.kind}: {rule}")
    if not all(map(math.isfinite, terms.scalars)):
        raise ValueError(f"scalars {terms.scalars}: must be finite")
    if not math.isfinite(terms.scale):
        raise ValueError(f"scale {terms.scale}: must be finite")
    if not (math.isfinite(terms.learning_rate) and terms.learning_rate >= 0.0):
        raise ValueError(f"learning rate {terms.learning_rate}: must be finite and 0 or more")
    if not 0.0 < terms.sigma <= LARGEST_SIGMA:
        raise ValueError(f"sigma {terms.sigma}: must be above 0, and at most {LARGEST_SIGMA:g}")
    if terms.episodes < 0 or terms.steps < 0:
        raise ValueError(f"{terms.episodes} episodes, {terms.steps} steps: must be 0 or more")
    if terms.observations and state.normalizer is None:
        raise ValueError("observation sums in a run without a normaliser: must be none")
