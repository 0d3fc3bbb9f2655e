"""A result from the wire, judged: authentic, whole and possible, or refused with the reason."""

from __future__ import annotations

import numpy as np

from coordinator.pool.events import Arrived, SessionId
from protocol import normalizer
from protocol.identity import verify_lease_token
from protocol.messages import Result, result_arrays
from protocol.packing import WireError
from protocol.spec import RunSpec


def judge(spec: RunSpec, run: str, secret: bytes, id: SessionId, result: Result) -> Arrived:
    """The pool's event for this result. Raises `WireError` with the reason to refuse it."""
    authentic = verify_lease_token(
        secret,
        result.token,
        run,
        result.task,
        id.worker,
        result.version,
        result.first,
        result.count,
        result.episodes,
        result.kind,
    )
    if not authentic:
        raise WireError("this worker never had a lease of that range")
    returns, lengths = result_arrays(result)
    if spec.environment.max_steps:
        longest = spec.environment.max_steps * result.episodes
        if np.any(lengths > longest):
            raise WireError(f"an episode of more than {spec.environment.max_steps} steps")
    if spec.normalizer.enabled and result.kind == "members":
        sums = normalizer.from_bytes(result.observed, spec.environment.observation.size)
        frames = int(lengths[~np.isnan(returns)].sum())
        if sums.count != frames:
            raise WireError(f"observation sums of {sums.count} frames for {frames} steps")
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
    )
