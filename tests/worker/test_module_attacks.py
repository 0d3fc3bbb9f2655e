"""Modules that misbehave in real processes: contained, told, and nothing of others is changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import pytest_asyncio

torch = pytest.importorskip("torch")

from protocol.spec import RunSpec  # noqa: E402
from tests.worker.evaluating import DEADLINE, assert_same, processes, until, whole  # noqa: E402
from tests.worker.test_modules import ALLOWED, spec_of  # noqa: E402
from worker.evaluation import children, environments  # noqa: E402
from worker.evaluation.children import Evaluators  # noqa: E402
from worker.evaluation.jobs import (  # noqa: E402
    EnvironmentUnavailable,
    Evaluation,
    EvaluationJob,
    WorkerFailure,
)
from worker.evaluation.lanes import Lanes  # noqa: E402
from worker.policies import making  # noqa: E402
from worker.policies.making import Grant  # noqa: E402
from worker.policies.modules import PolicyUnavailable  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = EvaluationJob("members", 0, 3, 2, sigma=0.5)


def theta_of(spec: RunSpec) -> Any:
    return np.random.default_rng(1).normal(0, 0.5, spec.size).astype(np.float32)


def expected(spec: RunSpec) -> Evaluation:
    """What the module gives that has no moods."""
    pure = spec_of("Branches")
    assert pure.tensors == spec.tensors
    lanes = Lanes(pure, environments.maker(pure.environment), 3, grant=Grant(ALLOWED))
    return lanes.evaluate(JOB, theta_of(spec))


def making_trouble(spec: RunSpec, made: str) -> RunSpec:
    """The same run, whose module does that when it is made."""
    policy = msgspec.structs.replace(spec.policy, arguments={"made": made})
    return msgspec.structs.replace(spec, policy=policy)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("orders") / "order"


@pytest.fixture(scope="module")
def spec(orders: Path) -> RunSpec:
    return spec_of("Moody", orders=str(orders))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(spec: RunSpec) -> AsyncIterator[Evaluators]:
    evaluators = Evaluators(DEADLINE)
    await evaluators.start(spec, 1, ALLOWED)
    await evaluators.set_theta(0, theta_of(spec))
    yield evaluators
    await evaluators.close()


@contextlib.contextmanager
def ordered(orders: Path, what: str) -> Any:
    fresh = orders.with_suffix(".new")
    fresh.write_text(what)
    fresh.rename(orders)  # never seen half-written
    try:
        yield
    finally:
        orders.unlink()


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("raise", "evaluation broke off: ValueError: no more"),
        ("exit", "evaluation broke off: RuntimeError: SystemExit: 3"),
        ("interrupt", "evaluation broke off: KeyboardInterrupt"),
        ("shape", r"tests.worker.nets:Moody gives outputs .* \[\(1,\)\] now, and gave \[\(2,\)\]"),
    ],
)
async def test_what_its_forward_raises_fails_jobs_and_nothing_else(
    pool, spec, orders, order, words
):
    before = processes(pool)
    with ordered(orders, order), pytest.raises(WorkerFailure, match=words):
        await asyncio.wait_for(whole(pool, JOB), DEADLINE)
    assert_same(await asyncio.wait_for(whole(pool, JOB), DEADLINE), expected(spec))
    assert processes(pool) == before


@pytest.mark.parametrize("order", ["print", "reseed"])
async def test_what_it_does_beside_its_outputs_changes_no_return(pool, spec, orders, order):
    before = processes(pool)
    job = JOB if order == "reseed" else EvaluationJob("members", 0, 3, 1, sigma=0.5)
    with ordered(orders, order):
        found = await asyncio.wait_for(whole(pool, job), DEADLINE)
    np.testing.assert_array_equal(found.returns, expected(spec).returns[: job.count])
    assert processes(pool) == before


async def test_outputs_that_are_no_numbers_choose_the_same_action_each_time(pool, spec, orders):
    with ordered(orders, "nan"):
        found, again = [await asyncio.wait_for(whole(pool, JOB), DEADLINE) for _ in range(2)]
    assert_same(found, again)
    assert_same(await asyncio.wait_for(whole(pool, JOB), DEADLINE), expected(spec))


async def test_a_forward_that_forks_does_no_harm(pool, spec, orders):
    job = asyncio.create_task(whole(pool, JOB))
    with ordered(orders, "fork"):
        await asyncio.sleep(0.01)
    found = await asyncio.wait_for(job, DEADLINE)
    np.testing.assert_array_equal(found.returns, expected(spec).returns)
    assert_same(await asyncio.wait_for(whole(pool, JOB), DEADLINE), expected(spec))


async def test_a_forward_that_hangs_is_named_and_its_work_is_done_again(
    pool, spec, orders, monkeypatch
):
    lost = list[str]()
    monkeypatch.setattr(pool, "on_lost", lost.append)
    pool.patience = 1.5
    with ordered(orders, "hang"):
        job = asyncio.create_task(whole(pool, JOB))
        await until(lambda: bool(lost))
    pool.patience = DEADLINE
    assert_same(await asyncio.wait_for(job, DEADLINE), expected(spec))
    assert lost == [
        "an evaluation process said nothing for 1.5 s: a step or reset of CartPole-v1, or its "
        "policy tests.worker.nets:Moody, does not come to an end"
    ]


@pytest.mark.parametrize(
    ("made", "words", "patience"),
    [
        ("interrupt", r"evaluation can't start here: KeyboardInterrupt", DEADLINE),
        (
            "hang",
            r"trying out CartPole-v1, or its policy tests.worker.nets:Moody, does not come",
            3.0,
        ),
    ],
)
async def test_a_module_that_can_not_be_made_is_said_at_the_start(
    made, words, patience, monkeypatch
):
    monkeypatch.setattr(children, "STARTS_LONGER", 1)
    monkeypatch.setattr(children, "TRIES", 2)
    sound = spec_of("Moody")
    harmful = making_trouble(sound, made)
    evaluators = Evaluators(patience)
    with pytest.raises(EnvironmentUnavailable, match=words) as told:
        await asyncio.wait_for(evaluators.start(harmful, 1, ALLOWED), DEADLINE)
    assert str(told.value).isprintable()


async def test_a_module_that_forks_while_it_is_made_says_it_once():
    sound = spec_of("Moody")
    forking = making_trouble(sound, "fork")
    evaluators = Evaluators(DEADLINE)
    await evaluators.start(forking, 1, ALLOWED)
    await evaluators.set_theta(0, theta_of(sound))
    assert_same(await asyncio.wait_for(whole(evaluators, JOB), DEADLINE), expected(sound))
    await evaluators.close()


@pytest.mark.parametrize("kind", ["complex", "meta"])
async def test_outputs_of_another_kind_or_elsewhere_are_refused(kind):
    with pytest.raises(PolicyUnavailable, match="must be real numbers on cpu"):
        making.make(spec_of("Odd", kind=kind), 2, Grant(ALLOWED))
