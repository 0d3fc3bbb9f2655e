"""The environment of one's own that docs/evaluation.md shows is registered and played."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.test_python import ROOT
from worker import bench, play
from worker.compiled import environment
from worker.policies.making import Grant


def test_the_environment_of_the_documents_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# my_package/envs\.py[^\n]*\n(.*?)```", text, re.DOTALL)
    module = "environment_of_the_documents"
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(environment, "_registered", dict(environment._registered))
    changes = {"environment": {"kwargs": {"speed": 0.5}}, "policy": {"hidden": [4]}}
    subject = bench.untrained("jax:Centre-v0", changes, Grant((module,)))
    theta = np.zeros_like(subject.theta)
    theta[-1] = 1.0  # always the second action, which goes up
    trained = play.TrainedPolicy(subject.spec, "centre", 0, theta, None)
    told: list[tuple[int, float, int]] = []
    play.play(trained, 3, allowed=(module,), on_episode=lambda *said: told.append(said))
    for _, total, steps in told:  # from within 1 of the centre to beyond 2, half a unit a step
        assert 3 <= steps <= 6 and -sum(range(5)) < total < 0
