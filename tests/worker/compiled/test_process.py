"""A compiled run in an evaluation process of its own, as volunteers have it."""

import numpy as np

from tests.worker import reference
from tests.worker.compiled.toys import LIMIT, TOYS, drift_spec
from worker.compiled.environment import functional
from worker.compiled.lanes import CompiledLanes
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, join

DEADLINE = 60.0


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
