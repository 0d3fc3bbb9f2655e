"""From an evaluation to the result that answers its task. Pure."""

from __future__ import annotations

from protocol import normalizer
from protocol.messages import MAX_FAILURES, Part, Result, Task, encode, pack_returns
from protocol.packing import MAX_MESSAGE
from worker.evaluation.jobs import Evaluation

ENVELOPE = 64
"""Bytes of a message that are left to its wrapping, and some."""
SMALL = MAX_MESSAGE // 2
"""Bytes that fit into a message whatever the rest of a result is, where no episode failed."""


class NoResultError(Exception):
    """An evaluation that no message can hold; the text says why."""


def result_of(task: Task, evaluation: Evaluation) -> Result:
    """The result of a task, or the part of it that was evaluated. Raises `NoResultError`."""
    count = len(evaluation.returns)
    if len(evaluation.failed) > MAX_FAILURES:
        first = evaluation.failed[0][1]
        raise NoResultError(
            f"{len(evaluation.failed)} of {count} directions fail, at first: {first}"
        )
    before = evaluation.first - task.first
    after = task.count - count - before
    returns, lengths = pack_returns(evaluation.returns, evaluation.lengths)
    observed = evaluation.observed
    result = Result(
        task=task.task,
        kind=task.kind,
        version=task.version,
        first=evaluation.first,
        count=count,
        episodes=task.episodes,
        token=task.token,
        returns=returns,
        lengths=lengths,
        observed=b"" if observed is None else normalizer.to_bytes(observed),
        failed=evaluation.failed,
        part=Part(before, after) if before or after else None,
    )
    if len(returns) + len(lengths) + len(result.observed) > SMALL or result.failed:
        size = len(encode(result))
        if size > MAX_MESSAGE - ENVELOPE:
            raise NoResultError(f"its result has {size:,} bytes, over the limit of a message")
    return result
