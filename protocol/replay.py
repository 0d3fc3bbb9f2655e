"""From the run spec and its updates to the state: what every peer does, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol import amendments, normalizer, optimizers, snapshot, state
from protocol.amended import NOTHING, Amended
from protocol.cap import Cap
from protocol.initialisation import initial_theta
from protocol.messages import Update
from protocol.packing import WireError, unpack_integers
from protocol.proof import Data
from protocol.spec import LONGEST_EPISODE, EnvironmentSpec, RunSpec, SpecError
from protocol.state import Arithmetic, CohortTerms, State, UpdateTerms


class MismatchError(Exception):
    """An update that does not lead from our state to where its signer says it leads."""


def arithmetic(spec: RunSpec) -> Arithmetic:
    """What of the spec decides how states follow one another."""
    return Arithmetic(
        noise=spec.strategy.noise,
        run_seed=spec.seed,
        optimizer=optimizers.make(
            spec.optimizer.kind,
            msgspec.structs.asdict(spec.optimizer),
            [tensor.size for tensor in spec.tensors],
        ),
        size=spec.size,
        observation_dims=spec.environment.observation.size if spec.normalizer.enabled else 0,
        window=1 + spec.pool.max_staleness,
        cap=_cap(spec.environment),
        strategy=spec.strategy.make(spec.pool.discount),
        factors=spec.factors,
    )


def _cap(environment: EnvironmentSpec) -> Cap | None:
    if not environment.cap:
        return None
    longest = environment.max_steps or LONGEST_EPISODE
    return Cap(environment.cap, environment.cap_minimum, longest)


def initial_state(spec: RunSpec) -> State:
    """Version 0, where the spec alone defines it: not with `given` initialisation."""
    policy = spec.policy
    if spec.objective is not None:
        return state.initial_state(
            arithmetic(spec), spec.objective.theta, spec.strategy.sigma_at(0)
        )
    theta = initial_theta(
        spec.seed,
        spec.tensors,
        policy.initialisation,
        policy.initial_scale,
        policy.final_scale,
    )
    return state.initial_state(arithmetic(spec), theta, spec.strategy.sigma_at(0))


def restored(spec: RunSpec, rules: Arithmetic, data: Data) -> State:
    """The state in a snapshot. Raises `WireError` where the run has no such state."""
    found = snapshot.from_bytes(rules, data)
    amendments.check(spec, found.version, found.amended)
    return found


def terms(spec: RunSpec, update: Update, held: Amended = NOTHING) -> UpdateTerms:
    """The numbers of an update, unpacked and bounded; before it, the settings in `held` hold.

    Raises `WireError`, also for amendments that the run can't have or that this version does not
    know: to leave one out would lead elsewhere.
    """
    dims = spec.environment.observation.size
    most = amendments.layout(spec, held).most
    cohorts = tuple(
        CohortTerms(
            first_direction=cohort.first,
            version=cohort.version,
            weights=unpack_integers(cohort.weights, most),
            multiplier=cohort.multiplier,
            squares=squares,
        )
        for cohort, squares in zip(update.cohorts, _squares(update, most), strict=True)
    )
    _require_each_once(cohorts)
    return UpdateTerms(
        cohorts=cohorts,
        scale=update.scale,
        learning_rate=update.learning_rate,
        sigma=update.sigma,
        observations=tuple(
            (observed.version, normalizer.from_bytes(observed.sums, dims))
            for observed in update.observed
        ),
        episodes=update.episodes,
        steps=update.steps,
        scalars=update.scalars,
        reverts=update.reverts,
        amended=_amended(spec, update, held),
    )


def _amended(spec: RunSpec, update: Update, held: Amended) -> Amended:
    """The settings that hold after an update. Raises `WireError`."""
    if strange := sorted(update.amendments.keys() - set(amendments.AMENDABLE)):
        raise WireError(
            f"update {update.version} has amendments that this version does not know: "
            f"{', '.join(strange)[:200]!a}"
        )
    try:
        return amendments.amend(spec, held, update.version, update.amendments)
    except SpecError as error:
        raise WireError(f"update {update.version} has an amendment of no use: {error}") from None


def _squares(update: Update, most: int) -> list[NDArray[np.int64] | None]:
    """The weights of squares of each cohort, as many as its weights. Raises `WireError`."""
    if not update.squares:
        return [None] * len(update.cohorts)
    if len(update.squares) != len(update.cohorts):
        raise WireError(f"{len(update.squares)} weights of squares, {len(update.cohorts)} cohorts")
    return [unpack_integers(packed, most) for packed in update.squares]


def _require_each_once(cohorts: Sequence[CohortTerms]) -> None:
    """Cohorts of one batch may interleave; what weighs in one of them may not weigh in another."""
    if any(c.squares is not None and c.squares.size != c.weights.size for c in cohorts):
        raise WireError("a cohort has as many weights of squares as weights")
    counting = [
        c.weights != 0 if c.squares is None else (c.weights | c.squares) != 0 for c in cohorts
    ]
    weighed = [
        c.first_direction + np.flatnonzero(row) for c, row in zip(cohorts, counting, strict=True)
    ]
    directions = np.concatenate(weighed) if weighed else np.empty(0, dtype=np.int64)
    if len(np.unique(directions)) < len(directions):
        raise WireError("a direction counts in two cohorts of one update")


def follow(spec: RunSpec, rules: Arithmetic, before: State, update: Update) -> State:
    """The state after an update.

    Raises `MismatchError` where the hash before is not ours, or the hash after (where the update
    has one, also that of the full state) is not what we get; `WireError` where the update can't be
    applied at all.
    """
    if update.version != before.version:
        raise MismatchError(f"update of version {update.version}, ours is {before.version}")
    ours = state.params_digest(before.theta)
    if update.digest_before != ours:
        raise MismatchError(
            f"update {update.version} starts from {update.digest_before.hex()}, "
            f"our parameters are {ours.hex()}"
        )
    try:
        after = state.apply(rules, before, terms(spec, update, before.amended))
    except (ValueError, ArithmeticError) as error:
        raise WireError(f"update {update.version} can't be applied: {error}") from None
    got = state.params_digest(after.theta)
    if update.digest_after != got:
        raise MismatchError(
            f"update {update.version} leads to {update.digest_after.hex()}, we get {got.hex()}"
        )
    if update.sigma != after.sigma:
        raise MismatchError(
            f"update {update.version} leads to sigma {update.sigma}, we get {after.sigma}"
        )
    # What only later parameters would show: optimizer slots and observation statistics.
    if update.state_digest and update.state_digest != snapshot.state_digest(after):
        raise MismatchError(f"update {update.version} leads to another state than ours")
    return after
