"""From the contributions of a closed batch to the update that everybody replays: pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from coordinator.pool.events import CloseBatch, Contribution
from protocol import messages, noise, normalizer, state, strategies
from protocol.packing import pack_integers
from protocol.spec import RunSpec
from protocol.state import Arithmetic, CohortTerms, State, UpdateTerms
from protocol.strategies import Cohort


@dataclass(frozen=True, eq=False)
class Made:
    """An update, the state that it leads to, and what a person wants to know of it."""

    update: messages.Update
    after: State
    members: int
    late: int
    best: float
    mean: float
    deviation: float
    step_norm: float


def make(spec: RunSpec, rules: Arithmetic, before: State, epoch: int, closed: CloseBatch) -> Made:
    """The update `before.version` -> + 1 of these contributions; the same in any order of them."""
    cohorts = _cohorts(spec, before.version, closed.contributions)
    strategy = strategies.get(spec.strategy.kind)()
    weighting = strategy.weigh(cohorts, before.sigma, noise.unit(spec.strategy.noise))
    counted = [c for c in closed.contributions if not np.all(np.isnan(c.returns[:, 0]))]
    episodes = weighting.members * spec.environment.episodes
    steps = sum(int(c.lengths[~np.isnan(c.returns[:, 0])].sum()) for c in counted)
    observations = _observations(spec, counted)
    terms = UpdateTerms(
        cohorts=tuple(
            CohortTerms(cohort.first_direction, cohort.version, weights, multiplier)
            for cohort, weights, multiplier in zip(
                cohorts, weighting.weights, weighting.multipliers, strict=True
            )
        ),
        scale=weighting.scale,
        learning_rate=spec.optimizer.learning_rate,
        sigma=before.sigma,
        observations=observations,
        episodes=episodes,
        steps=steps,
    )
    after = state.apply(rules, before, terms)
    update = messages.Update(
        epoch=epoch,
        version=before.version,
        cohorts=tuple(
            messages.Cohort(
                term.first_direction, term.version, term.multiplier, pack_integers(term.weights)
            )
            for term in terms.cohorts
        ),
        scale=terms.scale,
        learning_rate=terms.learning_rate,
        sigma=terms.sigma,
        observed=tuple(
            messages.Observed(version, normalizer.to_bytes(sums)) for version, sums in observations
        ),
        episodes=episodes,
        steps=steps,
        digest_before=state.params_digest(before.theta),
        digest_after=state.params_digest(after.theta),
        late=sum(2 * int(c.present.sum()) for c in cohorts if c.age > 0),
        dropped=closed.dropped,
    )
    returns = np.concatenate([c.returns[~np.isnan(c.returns)] for c in counted] or [np.empty(0)])
    moved = after.theta.astype(np.float64) - before.theta.astype(np.float64)
    return Made(
        update=update,
        after=after,
        members=weighting.members,
        late=update.late,
        best=float(returns.max(initial=-np.inf)),
        mean=float(returns.mean()) if returns.size else float("nan"),
        deviation=float(returns.std()) if returns.size else float("nan"),
        step_norm=float(np.linalg.norm(moved)),
    )


def with_state_digest(made: Made, digest: bytes) -> Made:
    """The same, its update proving the full state that it leads to."""
    update = msgspec.structs.replace(made.update, state_digest=digest)
    return dataclasses.replace(made, update=update)


def without_late(closed: CloseBatch) -> CloseBatch:
    """The same batch without returns of earlier versions: for an update too large for a message."""
    fresh = tuple(c for c in closed.contributions if c.version == closed.version)
    return CloseBatch(closed.version, fresh, closed.dropped)


def _cohorts(spec: RunSpec, version: int, contributions: Sequence[Contribution]) -> list[Cohort]:
    """One cohort per batch and version: directions from first to last, NaN where one is missing."""

    def group(contribution: Contribution) -> tuple[int, int]:
        return contribution.first // spec.directions, contribution.version

    cohorts = []
    ordered = sorted(contributions, key=lambda c: (*group(c), c.first))
    for (_, evaluated), parts in itertools.groupby(ordered, key=group):
        members = list(parts)
        first = members[0].first
        end = max(part.first + len(part.returns) for part in members)
        returns = np.full((end - first, 2), np.nan)
        for part in members:
            rows = returns[part.first - first : part.first - first + len(part.returns)]
            fresh = np.isnan(rows[:, 0])
            rows[fresh] = part.returns[fresh]
        cohorts.append(Cohort(first, evaluated, version - evaluated, returns[:, 0], returns[:, 1]))
    return cohorts


def _observations(
    spec: RunSpec, contributions: Sequence[Contribution]
) -> tuple[tuple[int, normalizer.ObservationSums], ...]:
    """The merged sums of what counts, per version that measured them."""
    if not spec.normalizer.enabled:
        return ()
    dims = spec.environment.observation.size
    by_version: dict[int, list[normalizer.ObservationSums]] = {}
    for contribution in contributions:
        sums = normalizer.from_bytes(contribution.observed, dims)
        by_version.setdefault(contribution.version, []).append(sums)
    return tuple(
        (version, normalizer.merge(parts)) for version, parts in sorted(by_version.items())
    )
