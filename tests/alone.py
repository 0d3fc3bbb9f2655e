"""Runs without a pool: all members of every version, in the lanes of this process, in order."""

from __future__ import annotations

from coordinator import update
from coordinator.pool.events import CloseBatch, Contribution, SessionId
from protocol import normalizer, replay
from protocol.spec import RunSpec
from protocol.state import State
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes

LANES = 4


def trained(spec: RunSpec, updates: int) -> State:
    """The state after so many updates, each of all directions of its version; see
    `protocol.replay.arithmetic` for what a spec makes of them. Nothing here waits for a centre."""
    lanes = Lanes(spec, environments.maker(spec.environment), LANES)
    rules, state = replay.arithmetic(spec), replay.initial_state(spec)
    while state.version < updates:
        first = state.version * spec.directions
        job = EvaluationJob(
            "members",
            state.version,
            first,
            spec.directions,
            1,
            state.sigma,
            per_direction=spec.members_per_direction,
        )
        view = Normalization.of(state.normalizer) if state.normalizer else None
        found = lanes.evaluate(job, state.basis, view)
        observed = b"" if found.observed is None else normalizer.to_bytes(found.observed)
        whole = Contribution(
            SessionId("w", "s"), state.version, first, found.returns, found.lengths, observed
        )
        closed = CloseBatch(state.version, (whole,), ())
        state = update.make(spec, rules, state, 1, closed).after
    lanes.close()
    return state
