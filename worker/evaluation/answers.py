"""What a job's part gave, from what its process says, or from how it was lost."""

from __future__ import annotations

import numpy as np

from protocol import normalizer
from protocol.messages import MAX_FAILURE_REASON
from protocol.packing import WireError
from protocol.spec import RunSpec
from worker.evaluation import pipe
from worker.evaluation.jobs import Evaluation, EvaluationJob


def evaluation(run_spec: RunSpec, asked: EvaluationJob, reply: pipe.Evaluated) -> Evaluation:
    """The evaluation in a reply: of some or all that is left of a part, from its first on.

    Raises `WireError` or `ValueError`.
    """
    dims = run_spec.environment.observation.size
    returns = np.frombuffer(reply.returns, np.float64).reshape(-1, *asked.shape[1:])
    if not 1 <= len(returns) <= asked.count:
        raise WireError(f"{len(returns)} directions where 1 to {asked.count} are due")
    if reply.first != asked.first:
        raise WireError(f"directions from {reply.first} where {asked.first} is the next")
    if any(not asked.first <= one < asked.first + len(returns) for one, _ in reply.failed):
        raise WireError("a failed direction is not of the part")
    return Evaluation(
        first=asked.first,
        returns=returns,
        lengths=np.frombuffer(reply.lengths, np.int64).reshape(returns.shape),
        observed=normalizer.from_bytes(reply.observed, dims) if reply.observed else None,
        failed=reply.failed,
    )


def crashed(run_spec: RunSpec, job: EvaluationJob, reason: str) -> Evaluation:
    """The evaluation of a single direction, or episode of the centre, that ended its process."""
    counted = run_spec.normalizer.enabled and job.kind == "members"
    return Evaluation(
        first=job.first,
        returns=np.full(job.shape, np.nan),
        lengths=np.zeros(job.shape, np.int64),
        observed=normalizer.no_observations(run_spec.environment.observation.size)
        if counted
        else None,
        failed=((job.first, reason[:MAX_FAILURE_REASON]),),
    )
