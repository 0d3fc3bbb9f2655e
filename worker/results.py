"""From an evaluation to the result that answers its task. Pure."""

from __future__ import annotations

from protocol import normalizer
from protocol.messages import Result, Task, encode, pack_returns
from protocol.packing import MAX_MESSAGE
from worker.evaluation.jobs import Evaluation

MOST_FAILURES = 256
"""Failed directions that one result can name."""
ENVELOPE = 64
"""Bytes of a message that are left to its wrapping, and some."""


class NoResultError(Exception):
    """An evaluation that no message can hold; the text says why."""


def result_of(task: Task, evaluation: Evaluation) -> Result:
    """The result of a whole task. Raises `NoResultError`."""
    if len(evaluation.failed) > MOST_FAILURES:
        first = evaluation.failed[0][1]
        raise NoResultError(
            f"{len(evaluation.failed)} of {task.count} directions fail, at first: {first}"
        )
    returns, lengths = pack_returns(evaluation.returns, evaluation.lengths)
    observed = evaluation.observed
    result = Result(
        task=task.task,
        kind=task.kind,
        version=task.version,
        first=task.first,
        count=task.count,
        episodes=task.episodes,
        token=task.token,
        returns=returns,
        lengths=lengths,
        observed=b"" if observed is None else normalizer.to_bytes(observed),
        failed=tuple((direction, reason[:200]) for direction, reason in evaluation.failed),
    )
    size = len(encode(result))
    if size > MAX_MESSAGE - ENVELOPE:
        raise NoResultError(f"its result has {size:,} bytes, over the limit of a message")
    return result
