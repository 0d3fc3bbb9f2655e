"""A compiled run in an evaluation process of its own, as volunteers have it."""

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.worker import reference
from tests.worker.compiled.toys import LIMIT, TOYS, drift_spec
from tests.worker.evaluating import processes, until
from tests.worker.test_process import cpu_seconds
from worker.compiled.environment import functional
from worker.compiled.lanes import CompiledLanes
from worker.evaluation import children, process
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, join
from worker.evaluation.memory import Meter

DEADLINE = 60.0
LONG = EvaluationJob("members", 0, 0, 1 << 17, 1, 0.3)


async def test_a_process_gives_what_lanes_here_give():
    spec = drift_spec(normalizer={"enabled": True})
    theta, view = reference.theta(spec), reference.normalization(spec)
    job = EvaluationJob("members", 2, 5, 40, 1, 0.3)
    evaluators = Evaluators(DEADLINE)
    await evaluators.start(spec, 1, [TOYS], lanes=16)
    try:
        assert evaluators.numeric_class and "compiled by JAX" in evaluators.remark
        await evaluators.set_theta(2, theta, view)
        told = []
        await evaluators.evaluate(job, told.append)
    finally:
        await evaluators.close()
    lanes = CompiledLanes(spec, functional(spec.environment.id, {}), 16, limit=LIMIT)
    expected, found = lanes.evaluate(job, theta, view), join(told)
    np.testing.assert_array_equal(found.returns, expected.returns)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    assert found.observed == expected.observed


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_a_process_computes_with_one_thread_and_keeps_to_its_share():
    spec = drift_spec()
    evaluators = Evaluators(DEADLINE, share=0.25)
    await evaluators.start(spec, 1, [TOYS], lanes=16)
    await evaluators.set_theta(0, reference.theta(spec), None)
    (pid,) = processes(evaluators)
    names = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/comm")]
    job = asyncio.create_task(evaluators.evaluate(LONG, lambda part: None))
    await until(lambda: bool(evaluators._children[0].parts))
    await asyncio.sleep(0.5)  # what the start cost is paid for
    began, used = time.monotonic(), cpu_seconds(pid)
    await asyncio.sleep(2.0)
    share = (cpu_seconds(pid) - used) / (time.monotonic() - began)
    assert not job.done()
    job.cancel()
    await evaluators.close()
    assert sum("XLAEigen" in name for name in names) == 1  # as many as XLA computes with
    assert 0.05 < share < 0.31  # less where the machine is busy


async def test_a_process_that_grows_over_its_limit_is_ended_and_says_so(monkeypatch):
    monkeypatch.setattr(children, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(process, "WORN", 1.0)  # not between two parts
    told: list[str] = []
    spec = drift_spec(environment={"kwargs": {"leak": 16 << 10}})
    evaluators = Evaluators(DEADLINE, on_lost=told.append)
    await evaluators.start(spec, 1, [TOYS], lanes=16)
    await evaluators.set_theta(0, reference.theta(spec), None)
    (pid,) = processes(evaluators)
    evaluators.memory_limit = Meter(pid).own() + (32 << 20)
    job = asyncio.create_task(evaluators.evaluate(LONG, lambda part: None))
    await until(lambda: bool(told))
    job.cancel()
    await evaluators.close()
    assert "MiB, the limit is" in told[0]
