"""Evaluation processes of a run that is over evaluate the next one, as new ones would."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.spec import RunSpec
from tests.worker import reference
from tests.worker.evaluating import (
    DEADLINE,
    EVERY,
    LANES,
    alive,
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
from tests.worker.reference import TOYS, run_spec
from worker.evaluating import Evaluating
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import WorkerFailure
from worker.spares import MOST, Spares


async def begun_again(evaluators: Evaluators, spec: RunSpec) -> None:
    await evaluators.start(spec, 2, [TOYS], lanes=LANES)
    await until(lambda: evaluators.ready == 2)
    view = reference.normalization(spec) if spec.normalizer.enabled else None
    await evaluators.set_theta(0, reference.theta(spec), view)


def other(**sections: Any) -> RunSpec:
    """Another run of the environment of `toy()`, with a policy and a seed of its own."""
    environment = {"kwargs": dict(toy().environment.kwargs)}
    return run_spec("ToyWalk-v0", environment=environment, **sections)


async def test_a_second_run_in_the_same_processes_gives_what_it_gives_alone() -> None:
    evaluators = await started(toy(), 2)
    first, pids = await whole(evaluators, members(0, 5)), processes(evaluators)
    assert_same(first, alone(toy(), members(0, 5)))
    spec = other(policy={"hidden": [8]}, seed=12, normalizer={"enabled": False})
    assert evaluators.suits(spec)
    assert evaluators.free()
    assert evaluators.ready == 0
    with pytest.raises(WorkerFailure, match="version 0 is not among"):
        await whole(evaluators, members(0, 1))
    await begun_again(evaluators, spec)
    assert processes(evaluators) == pids
    assert_same(await whole(evaluators, members(3, 6)), alone(spec, members(3, 6)))
    assert evaluators.free()
    await begun_again(evaluators, toy())
    assert_same(await whole(evaluators, members(0, 5)), first)
    await evaluators.close()
    assert not any(map(alive, pids))


def test_processes_suit_a_run_of_the_same_environment_without_a_module_alone() -> None:
    evaluators = Evaluators()
    assert evaluators.suits(toy())
    evaluators._spec = toy()
    assert evaluators.suits(other(seed=9))
    assert not evaluators.suits(run_spec("CartPole-v1"))
    assert not evaluators.suits(toy(trouble="raise"))
    policy = replace(toy().policy, kind="torch", module="tests.worker.nets:Plain")
    assert not evaluators.suits(replace(toy(), policy=policy))


def test_they_may_take_as_much_memory_as_their_next_run_may() -> None:
    nothing: Any = None
    next_run = Evaluating(*[nothing] * 5, lambda: 7 << 30, *[nothing] * 3)
    assert next_run._ours(Evaluators(memory_limit=1 << 30)).memory_limit == 7 << 30


async def test_processes_at_work_or_gone_are_not_given_on() -> None:
    evaluators = await started(toy(trouble="hang", every=EVERY), 1)
    job = asyncio.create_task(whole(evaluators, cursed()))
    await until(lambda: any(child.parts for child in evaluators._children))
    assert not evaluators.free()
    spares = Spares()
    await spares.give(evaluators, 0.0)
    assert spares.take(toy()) is None
    assert not evaluators._children
    with pytest.raises(WorkerFailure):
        await job


async def test_a_process_that_dies_while_it_is_spare_is_replaced() -> None:
    evaluators = await started(toy(), 2)
    spares = Spares()
    await spares.give(evaluators, 0.0)
    dead = processes(evaluators)[0]
    os.kill(dead, signal.SIGKILL)
    await until(lambda: dead not in processes(evaluators) and len(processes(evaluators)) == 2)
    again = spares.take(toy())
    assert again is evaluators
    await asyncio.wait_for(begun_again(again, toy()), DEADLINE)
    assert_same(await whole(again, members(0, 3)), alone(toy(), members(0, 3)))
    await again.close()


async def test_only_a_few_are_kept_and_not_for_long() -> None:
    spares = Spares()
    kept = [await started(toy(), 1) for _ in range(MOST + 1)]
    for moment, evaluators in enumerate(kept):
        await spares.give(evaluators, float(moment))
    assert not kept[MOST]._children, "there is no place for it"
    await spares.end(1.0)
    assert not kept[0]._children
    assert spares.take(run_spec("CartPole-v1")) is None
    assert spares.take(toy()) is kept[1]
    assert spares.take(toy()) is None
    await kept[1].close()
    await spares.end(math.inf)
