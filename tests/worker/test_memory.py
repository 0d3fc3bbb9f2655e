from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import psutil
import pytest

from tests.worker.evaluating import (
    DEADLINE,
    EVERY,
    alone,
    assert_same,
    cursed,
    members,
    processes,
    started,
    toy,
    until,
    whole,
)
from tests.worker.reference import TOYS
from tests.worker.toy_environments import LEAK
from worker.evaluation import cgroups, children, memory, process
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.memory import Meter

ROOM = 30
"""Episodes' worth of leaks that a process has room for."""


def own(evaluators: Evaluators) -> int:
    (pid,) = processes(evaluators)
    return Meter(pid).own()


async def leaking(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> Evaluators:
    """A process that has room for the leaks of some episodes."""
    monkeypatch.setattr(children, "LOOK_SECONDS", 0.002)
    # Few lanes, whose speed is measured with few episodes, all of which leak.
    evaluators = await started(toy(trouble="leak", every=EVERY), 1, lanes=8)
    monkeypatch.setattr(evaluators, "on_lost", told.append)
    await whole(evaluators, members(0, 1))  # all that a part needs is loaded
    assert evaluators.memory_limit is not None
    assert evaluators.memory_limit > memory.LEAST  # where nobody says it
    evaluators.memory_limit = own(evaluators) + ROOM * LEAK
    return evaluators


async def test_what_leaks_slowly_is_replaced_between_parts_and_the_work_goes_on(monkeypatch):
    told = list[str]()
    evaluators = await leaking(monkeypatch, told)
    monkeypatch.setattr(process, "WORN", 1.0 - 10 * LEAK / evaluators.memory_limit)
    for first in range(40, 68, 4):  # none that it has tried itself out with
        job = members(first, 4)
        found = await asyncio.wait_for(whole(evaluators, job), DEADLINE)
        assert_same(found, alone(toy(), job))
    await evaluators.close()
    assert 1 <= len(told) <= 2
    for words in told:
        assert re.fullmatch(
            r"an evaluation process grew to \d+ MiB of the \d+ MiB that it may take, "
            "and is replaced",
            words,
        )


async def test_what_leaks_too_much_in_one_part_gives_all_returns_all_the_same(monkeypatch):
    told = list[str]()
    evaluators = await leaking(monkeypatch, told)
    monkeypatch.setattr(process, "WORN", 1.0)  # ended in the middle, whatever it has in hand
    job = members(1, 80)
    found = await asyncio.wait_for(whole(evaluators, job), DEADLINE)
    await evaluators.close()
    assert_same(found, alone(toy(), job))
    assert len(told) >= 2
    assert all("the limit is" in words for words in told)


async def test_what_takes_too_much_alone_fails_by_name(monkeypatch):
    monkeypatch.setattr(children, "LOOK_SECONDS", 0.002)
    evaluators = await started(toy(trouble="gulp", every=EVERY), 1)
    await whole(evaluators, members(0, 1))
    evaluators.memory_limit = own(evaluators) + (100 << 20)
    found = await asyncio.wait_for(whole(evaluators, cursed()), DEADLINE)
    await evaluators.close()
    ((direction, reason),) = found.failed
    assert direction == cursed().first
    assert re.fullmatch(
        r"twice its process grew to \d+ MiB, the limit is \d+ MiB: raise --memory-limit "
        "or --memory, or mend the environment",
        reason,
    )


async def test_a_limit_that_no_process_keeps_is_said_at_the_start(monkeypatch):
    monkeypatch.setattr(children, "LOOK_SECONDS", 0.002)
    monkeypatch.setattr(children, "TRIES", 1)
    evaluators = Evaluators(memory_limit=20 << 20)
    with pytest.raises(EnvironmentUnavailable, match=r"ToyWalk-v0 .* the limit is 20 MiB: raise"):
        await evaluators.start(toy(), 1, [TOYS])


def test_what_is_free_is_shared_but_no_process_gets_less_than_it_needs(monkeypatch):
    free = psutil.virtual_memory()._replace(available=100 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(cgroups, "memory_left", lambda: None)
    assert memory.fair_limit(1, 1000) == 50 << 30
    assert memory.fair_limit(25, 1000) == 2 << 30
    assert memory.fair_limit(25, 1 << 28) == (1 << 30) + (16 << 30)
    monkeypatch.setattr(cgroups, "memory_left", lambda: 12 << 30)
    assert memory.fair_limit(2, 1000) == 3 << 30
    monkeypatch.setattr(cgroups, "memory_left", lambda: 200 << 30)  # more than the machine has
    assert memory.fair_limit(2, 1000) == 25 << 30


def test_the_memory_of_a_process_that_is_gone_is_none():
    assert Meter(2**22 + 1).own() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_the_kernel_ends_processes_before_the_worker():
    evaluators = Evaluators()
    evaluators.prepare(1)
    await until(lambda: bool(evaluators._children))
    (pid,) = processes(evaluators)
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    await until(lambda: int(Path(f"/proc/{pid}/oom_score_adj").read_text()) > mine)
    await evaluators.close()
