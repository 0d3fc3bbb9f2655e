"""A result from the wire, judged: authentic, whole and possible, or refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coordinator.pool.events import Arrived, HeldLease, SessionId
from protocol import normalizer
from protocol.identity import verify_lease_token
from protocol.messages import Held, Result, result_arrays
from protocol.packing import WireError
from protocol.spec import RunSpec


def judge(
    spec: RunSpec,
    run: str,
    secret: bytes,
    id: SessionId,
    result: Result,
    cap: int = 0,
    largest: int = 0,
) -> Arrived:
    """The pool's event for this result. Raises `WireError` with the reason to refuse it.

    `cap`: steps after which members' episodes of its version are cut; 0 for never, or where nobody
    knows any more. `largest`: directions of the largest batch that may still count; 0 where all are
    as the spec says.
    """
    # Only a range that was leased has a token: a part that is of no lease can't be authentic.
    if not _authentic(run, secret, id, result.lease):
        raise WireError("this worker never had a lease of that range")
    returns, lengths = result_arrays(result, spec.members_per_direction)
    longest = spec.longest
    most = int(lengths.max())
    if most > longest * result.episodes:
        raise WireError(f"an episode of more than {longest:,} steps")
    low, high = spec.environment.lowest_return, spec.environment.highest_return
    if low is not None and np.any(returns < low):
        raise WireError(f"a return below {low:g}, the lowest that there is")
    if high is not None and np.any(returns > high):
        raise WireError(f"a return above {high:g}, the highest that there is")
    if cap and result.kind == "members" and most > cap * result.episodes:
        raise WireError(f"an episode of more than {cap:,} steps, which cut it at this version")
    if spec.normalizer.enabled and result.kind == "members":
        frames = lengths.sum(axis=1)[~np.isnan(returns[:, 0])]
        bound = _most_frames(spec, largest or spec.directions)
        if np.any(frames > bound):
            raise WireError(f"more than {bound:,} frames of a direction")
        sums = normalizer.from_bytes(result.observed, spec.environment.observation.size)
        if sums.count != frames.sum():
            raise WireError(f"observation sums of {sums.count} frames for {frames.sum()} steps")
    elif result.observed:
        raise WireError("observation sums that nobody asked for")
    return Arrived(
        session=id,
        task=result.task,
        kind=result.kind,
        version=result.version,
        first=result.first,
        returns=returns,
        lengths=lengths,
        observed=result.observed,
        failed=result.failed,
        part=result.part,
    )


def genuine(run: str, secret: bytes, id: SessionId, held: Sequence[Held]) -> tuple[HeldLease, ...]:
    """Of the leases that a worker says it holds those that it was really given, in any epoch."""
    return tuple(
        HeldLease(lease.task, lease.kind, lease.version, lease.first, lease.count)
        for lease in held
        if _authentic(run, secret, id, lease)
    )


def _authentic(run: str, secret: bytes, id: SessionId, lease: Held) -> bool:
    """Whether this worker was really given a lease."""
    return verify_lease_token(
        secret,
        lease.token,
        run,
        lease.task,
        id.worker,
        lease.version,
        lease.first,
        lease.count,
        lease.episodes,
        lease.kind,
    )


def _most_frames(spec: RunSpec, largest: int) -> int:
    """Frames of one direction, such that no update can merge more than can be counted."""
    batches = 1 + spec.pool.max_staleness
    return normalizer.MAX_COUNT // (largest * batches)
