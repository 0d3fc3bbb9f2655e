"""All environments that Gymnasium itself registers, where they can be made, played twice over."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

from protocol import spec as run_spec
from protocol.spec import RunSpec
from tests.worker import toy_environments  # noqa: F401 - registers them
from worker.describe import describe
from worker.evaluation import choosing, environments
from worker.evaluation import probe as probing
from worker.evaluation.jobs import EnvironmentUnavailable, Evaluation, EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.evaluation.playing import Maker

STEPS = 10
JOB = EvaluationJob("members", 0, 40, 2, sigma=1.0)
"""Not the directions that the probe plays."""
MISSING = ("ModuleNotFoundError", "ImportError", "is not installed", "only supported on `mujoco<3`")
"""What is said of those whose package, or that of their time, is not here."""
LATEST = {
    (registration.namespace, registration.name): name
    for name, registration in sorted(gymnasium.registry.items())
    if str(registration.entry_point).startswith("gymnasium.") and name not in environments.IMPORTING
}


def spec_of(environment_id: str) -> RunSpec:
    """A run in an environment; skips the test where it can't be made here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that are out of date
            found = describe(environment_id, {})
    except EnvironmentUnavailable as error:
        if not any(words in str(error) for words in MISSING):
            raise
        pytest.skip(str(error)[:160])
    spaces = {name: found[name] for name in ("observation", "action")}
    return run_spec.parse(
        {
            "name": "registered",
            "seed": 3,
            "environment": {"id": environment_id, "max_steps": STEPS, **spaces},
            "policy": {"kind": "linear"},
        }
    )


def played(spec: RunSpec, maker: Maker, lanes: int, *, fresh: bool) -> Evaluation:
    theta = np.random.default_rng(2).normal(size=spec.size).astype(np.float32)
    made = Lanes(spec, maker, lanes, fresh=fresh)
    try:
        return made.evaluate(JOB, theta)
    finally:
        made.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("environment_id", [*LATEST.values(), "ToyWalk-v0", "ToyWorn-v0"])
def test_what_the_probe_lets_instances_be_used_for_again_plays_as_new_ones(
    environment_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing.RecordingMaker, "limit", STEPS)
    monkeypatch.setattr(probing.ShortMaker, "limit", STEPS)
    monkeypatch.setattr(probing, "SPEED_SECONDS", 0.001)
    monkeypatch.setattr(choosing, "MOST_LANES", 4)  # as many as the members that are played below
    monkeypatch.setattr(choosing, "ROUNDS", 1)
    spec = spec_of(environment_id)
    maker = environments.maker(spec.environment)
    found = probing.probe(spec, maker, lambda take: None)
    assert len(found.numeric_class) == 16, "it never repeats itself"
    new = played(spec, maker, 1, fresh=True)
    assert new.failed == ()
    for lanes in (1, found.lanes):
        used = played(spec, found.maker, lanes, fresh=found.fresh)
        np.testing.assert_array_equal(used.returns, new.returns)
        np.testing.assert_array_equal(used.lengths, new.lengths)
    assert found.fresh == (environment_id == "ToyWorn-v0")
