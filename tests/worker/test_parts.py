import numpy as np
import pytest

from worker.evaluation.jobs import Evaluation, EvaluationJob, WorkerFailure
from worker.evaluation.parts import Waiting
from worker.evaluation.progress import SOON_SECONDS, TELL_SECONDS, Work

JOB = EvaluationJob("members", 0, 10, 20, 1, 0.5)


def done(first: int, count: int) -> Evaluation:
    return Evaluation(first, np.full((count, 2), float(first)), np.full((count, 2), 7))


def ranges(pieces: list[Evaluation]) -> list[tuple[int, int]]:
    return [(piece.first, piece.end) for piece in pieces]


async def test_what_is_finished_is_told_in_runs_and_once():
    work = Work(JOB)
    for first, count in ((14, 2), (25, 5), (10, 4), (20, 1)):
        work.add(done(first, count))
    assert ranges(work.take(1.0)) == [(10, 16), (20, 21), (25, 30)]
    assert work.take(2.0) == []
    work.add(done(16, 4))
    assert not work.over.done()
    work.add(done(21, 4))
    assert work.over.done()
    assert ranges(work.take(3.0)) == [(16, 20), (21, 25)]


async def test_it_is_told_every_few_seconds_while_there_is_more_to_come():
    work = Work(JOB)
    work.add(done(10, 5))
    assert not work.due(1e6)  # the job waits for its turn
    work.begin(1e6)
    work.begin(2e6)  # its second part
    assert not work.due(1e6 + 0.99 * TELL_SECONDS)
    assert work.due(1e6 + TELL_SECONDS)
    work.take(1e6 + TELL_SECONDS)
    assert not work.due(1e6 + 9 * TELL_SECONDS)  # there is nothing
    work.add(done(15, 1))
    assert not work.due(1e6 + 1.9 * TELL_SECONDS)
    assert work.due(1e6 + 2 * TELL_SECONDS)
    work.add(done(16, 14))
    assert not work.due(1e6 + 9 * TELL_SECONDS)  # it is over


async def test_a_job_that_is_nearly_done_is_left_alone_for_a_while():
    work = Work(JOB)
    work.begin(0.0)
    work.add(done(10, 19))
    assert not work.due(TELL_SECONDS)
    assert work.due(TELL_SECONDS + SOON_SECONDS)  # unless its end takes its time


async def test_suspects_go_one_by_one_to_fresh_processes_which_take_nothing_else_before():
    waiting = Waiting()
    work, other = Work(JOB), Work(EvaluationJob("centre", 0, 0, 4))
    waiting.add(work, 2)
    waiting.add(other, 1)
    begun, second = waiting.take(fresh=True), waiting.take(fresh=False)
    assert begun and second and not second.suspect
    begun.finished = 7
    waiting.suspect(begun)
    alone = []
    while (part := waiting.take(fresh=True)) and part.suspect:
        alone.append((part.job.first, part.job.count))
    assert alone == [(17, 1), (18, 1), (19, 1)]
    assert part and part.work is other
    assert waiting.take(fresh=True) is None


async def test_what_nobody_waits_for_any_more_does_not_wait_either():
    waiting = Waiting()
    work, other = Work(JOB), Work(JOB)
    waiting.add(work, 3)
    waiting.add(other, 1)
    taken = waiting.take(fresh=False)
    assert taken
    waiting.suspect(taken)
    work.over.cancel()
    waiting.withdraw(work)
    assert len(waiting) == 1
    waiting.fail("no process is left")
    assert not len(waiting)
    with pytest.raises(WorkerFailure, match="no process is left"):
        await other.over


async def test_without_a_fresh_process_only_suspects_fail():
    waiting = Waiting()
    work, other = Work(JOB), Work(JOB)
    waiting.add(work, 1)
    waiting.add(other, 1)
    taken = waiting.take(fresh=False)
    assert taken
    waiting.suspect(taken)
    waiting.fail_suspects("it does not start")
    assert isinstance(work.over.exception(), WorkerFailure)
    assert not other.over.done()
    assert len(waiting) == 1
