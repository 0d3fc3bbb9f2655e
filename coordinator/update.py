"""From the contributions of a closed batch to the update that everybody replays: pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import msgspec
import numpy as np

from coordinator.peers import Leader
from coordinator.pool.events import CentreJudged, CloseBatch, Contribution
from protocol import amendments, messages, noise, normalizer, snapshot, state
from protocol.batches import Layout
from protocol.envelope import peek_signed, signed
from protocol.errors import ShoalError
from protocol.packing import MAX_MESSAGE, WireError, pack_integers
from protocol.proof import Proof
from protocol.spec import EnvironmentSpec, RunSpec
from protocol.state import Arithmetic, CohortTerms, State, UpdateTerms
from protocol.strategies import Cohort, Situation, Weighting

SNAPSHOT_EVERY = 64
"""Every so many updates the signed update carries the digest of the full state."""
MOST_JUDGED = 64
"""Evaluations of the centre that an update tells of."""
MOST_COHORTS = 4096
SMALLEST_GAP = 8
"""Missing directions between two that take more room as weights of 0 than another cohort does."""
NOTHING = Weighting((), (), 0.0, 0)
MOST_DROPPED = 4096
"""Dropped directions that an update names; more than that are dropped just the same."""


Group: TypeAlias = tuple[int, int]
"""The batch and the version of returns."""


class UpdateError(ShoalError):
    """An update that can't be made or told: the run can't go on as it was set up."""


@dataclass(frozen=True, eq=False)
class Made:
    """An update, the state that it leads to, and what a person wants to know of it."""

    update: messages.Update
    after: State
    members: int
    best: float
    mean: float
    deviation: float
    workers: int
    """sessions whose returns counted"""
    proof: Proof | None
    """of the state that it leads to, at snapshot versions"""
    left_out: int = 0
    """accepted members that it does without, since they fit no message"""


def make_signed(
    spec: RunSpec,
    rules: Arithmetic,
    leader: Leader,
    before: State,
    closed: CloseBatch,
    judged: Sequence[CentreJudged] = (),
    seconds: float = 0.0,
    changes: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Made, bytes]:
    """The update that follows from a closed batch, and the message that tells it to everybody.

    `judged`: evaluations of the centre to tell with it, at most MOST_JUDGED; `seconds`: that the
    run has been led for; `changes`: settings that it amends. Where it would be too large for a
    message, returns of earlier versions are left out, the oldest first. Raises `UpdateError` where
    it is too large all the same, or leads nowhere.
    """
    for candidate in _less_and_less(closed):
        try:
            made = make(spec, rules, before, leader.epoch, candidate, changes)
        except (ValueError, ArithmeticError) as error:
            raise UpdateError(f"the run can't go on: {error}") from None
        said = msgspec.structs.replace(
            made.update,
            signer=leader.signer,
            judged=told(judged),
            seconds=seconds,
            workers=made.workers,
        )
        left_out = _members(closed) - _members(candidate)
        made = dataclasses.replace(made, update=said, left_out=left_out)
        payload = signed(leader.identity, "update", (leader.run,), made.update)
        if _is_readable(payload):
            return made, payload
    population = amendments.in_force(spec, before.amended).strategy.population
    raise UpdateError(
        f"update {before.version} does not fit a message of {MAX_MESSAGE:,} bytes: lower "
        f"strategy.population ({population:,}), or switch normalizer.enabled off "
        f"({spec.environment.observation.size:,} observations)"
    )


def told(judged: Sequence[CentreJudged]) -> tuple[messages.Judged, ...]:
    """Evaluations of the centre as messages tell them, the first MOST_JUDGED."""
    return tuple(
        messages.Judged(e.version, e.episodes, e.mean, e.deviation, e.steps, e.full)
        for e in judged[:MOST_JUDGED]
    )


def make(
    spec: RunSpec,
    rules: Arithmetic,
    before: State,
    epoch: int,
    closed: CloseBatch,
    changes: Mapping[str, float] = MappingProxyType({}),
) -> Made:
    """The update `before.version` -> + 1 of these contributions; the same in any order of them.

    `spec` is the run's own; `changes`: settings that hold from the next version on. Raises
    ValueError or ArithmeticError where `protocol.state.apply` does, `SpecError` for changes that
    the run can't have.
    """
    now, layout = amendments.in_force(spec, before.amended), amendments.layout(spec, before.amended)
    group = partial(_group, layout)
    contributions = sorted(closed.contributions, key=lambda part: (*group(part), part.first))
    cohorts = _cohorts(spec, before.version, contributions, group)
    situation = Situation(before.version, rules.size, before.sigma, noise.unit(spec.strategy.noise))
    weighting = NOTHING if closed.reverts else rules.strategy.weigh(cohorts, situation)
    terms = UpdateTerms(
        cohorts=_terms(cohorts, weighting),
        scale=weighting.scale,
        learning_rate=now.optimizer.learning_rate_at(before.version),
        sigma=_sigma(spec, rules, before, closed.reverts),
        observations=_observations(spec, contributions),
        episodes=weighting.members * spec.environment.episodes,
        steps=sum(part.steps for part in contributions),
        scalars=weighting.scalars,
        reverts=closed.reverts,
        amended=amendments.amend(spec, before.amended, before.version, changes),
    )
    after = state.apply(rules, before, terms)
    proof = None
    if after.version % SNAPSHOT_EVERY == 0:
        proof = snapshot.prove(after)
    update = messages.Update(
        epoch=epoch,
        version=before.version,
        cohorts=tuple(
            messages.Cohort(
                term.first_direction,
                term.version,
                term.multiplier,
                pack_integers(term.weights),
            )
            for term in terms.cohorts
        ),
        scale=terms.scale,
        learning_rate=terms.learning_rate,
        sigma=after.sigma,
        observed=tuple(
            messages.Observed(version, normalizer.to_bytes(sums))
            for version, sums in terms.observations
        ),
        episodes=terms.episodes,
        steps=terms.steps,
        digest_before=state.params_digest(before.theta),
        digest_after=state.params_digest(after.theta),
        late=sum(
            spec.members_per_direction * int(cohort.present.sum())
            for cohort in cohorts
            if cohort.age > 0
        ),
        dropped=closed.dropped[:MOST_DROPPED],
        state_digest=b"" if proof is None else proof.digest,
        amendments=dict(changes),
        squares=tuple(pack_integers(row) for row in weighting.squares),
        scalars=terms.scalars,
        reverts=terms.reverts,
    )
    best, mean, deviation = _summary(contributions)
    return Made(
        update=update,
        after=after,
        members=weighting.members,
        best=best,
        mean=mean,
        deviation=deviation,
        workers=len({part.session for part in contributions}),
        proof=proof,
    )


def _sigma(spec: RunSpec, rules: Arithmetic, before: State, reverts: bool) -> float:
    """The size of the perturbations of the next version."""
    if not rules.strategy.judges_sigma:
        return spec.strategy.sigma_at(before.version + 1)
    if not before.is_candidate:
        return before.sigma
    return rules.strategy.judged_sigma(before.sigma, better=not reverts)


def _is_readable(payload: bytes) -> bool:
    """Whether peers can take the update: small enough, every field within its bounds."""
    try:
        peek_signed(payload)
    except WireError:
        return False
    return True


def _less_and_less(closed: CloseBatch) -> Iterator[CloseBatch]:
    """The batch; then, one after the other, without the returns of its oldest versions."""
    yield closed
    for oldest in sorted({part.version for part in closed.contributions} - {closed.version}):
        fresher = tuple(part for part in closed.contributions if part.version > oldest)
        yield dataclasses.replace(closed, contributions=fresher)


def _members(closed: CloseBatch) -> int:
    """Members whose returns it brings."""
    return sum(int(part.returns[part.valid].size) for part in closed.contributions)


def _group(layout: Layout, contribution: Contribution) -> Group:
    """(batch, version): what makes one cohort."""
    return layout.index(contribution.first), contribution.version


def _cohorts(
    spec: RunSpec,
    version: int,
    ordered: Sequence[Contribution],
    group: Callable[[Contribution], Group],
) -> list[Cohort]:
    """The contributions, in order, as as many cohorts as make the message small.

    All of a cohort are of one batch and version; where few are missing between two, their weights
    of 0 take less room than another cohort would. What that is changes no sum.
    """
    gap = SMALLEST_GAP
    while len(groups := _neighbours(ordered, group, gap)) > MOST_COHORTS:
        gap *= 4
    return [_cohort(spec.environment, version, parts) for parts in groups]


def _neighbours(
    ordered: Sequence[Contribution], group: Callable[[Contribution], Group], gap: int
) -> list[list[Contribution]]:
    """Contributions of one batch and version with fewer than `gap` directions between them."""
    groups: list[list[Contribution]] = []
    for _, alike in itertools.groupby(ordered, key=group):
        end = -math.inf
        for part in alike:
            if part.first - end >= gap:
                groups.append([])
            groups[-1].append(part)
            end = max(end, part.first + len(part.returns))
    return groups


def _cohort(environment: EnvironmentSpec, version: int, parts: Sequence[Contribution]) -> Cohort:
    """Directions from first to last, NaN where one is missing; of the returns, which are means over
    episodes, goes what being alive brought."""
    bonus = environment.alive_bonus_at(version) / environment.episodes
    first, evaluated = parts[0].first, parts[0].version
    end = max(part.first + len(part.returns) for part in parts)
    returns = np.full((end - first, parts[0].returns.shape[1]), np.nan)
    for part in parts:
        # What failed in one part may have come in another.
        valid = part.valid
        place = part.first - first
        compared = part.returns - bonus * part.lengths if bonus else part.returns
        returns[place : place + len(valid)][valid] = compared[valid]
    plus, *minus = returns.T
    return Cohort(first, evaluated, version - evaluated, plus, minus[0] if minus else None)


def _terms(cohorts: Sequence[Cohort], weighting: Weighting) -> tuple[CohortTerms, ...]:
    squares = weighting.squares or [None] * len(cohorts)
    rows = zip(cohorts, weighting.weights, weighting.multipliers, squares, strict=True)
    return tuple(
        CohortTerms(cohort.first_direction, cohort.version, weights, share, square)
        for cohort, weights, share, square in rows
    )


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


def _summary(contributions: Sequence[Contribution]) -> tuple[float, float, float]:
    """(best, mean, deviation) of all returns; NaN where there are none."""
    returns = np.concatenate(
        [np.empty(0), *(part.returns[part.valid].ravel() for part in contributions)]
    )
    if not returns.size:
        return float("nan"), float("nan"), float("nan")
    with np.errstate(over="ignore", invalid="ignore"):  # a return may be as large as floats go
        return float(returns.max()), float(returns.mean()), float(returns.std())
