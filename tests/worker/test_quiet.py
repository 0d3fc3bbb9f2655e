"""What MuJoCo says of Gymnasium's own models, and what else it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mujoco")

ROOT = Path(__file__).parents[2]

SAYING = """
import os, sys
sys.path.insert(0, {root!r})
import gymnasium
from worker.evaluation import environments, quiet
if {quietly}:
    quiet.quieten(environments.registered("HalfCheetah-v5"))
for _ in range(2):
    env = gymnasium.make("HalfCheetah-v5", disable_env_checker=True).unwrapped
    env.reset(seed=0)
print("made", file=sys.stderr)
env.data.qvel[0] = 1e300
env.do_simulation(env.action_space.sample(), 1)
"""


@pytest.mark.parametrize("quietly", [True, False])
def test_one_remark_is_left_out_and_other_warnings_are_not(tmp_path: Path, quietly: bool) -> None:
    code = SAYING.format(root=str(ROOT), quietly=quietly)
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    before, _, after = told.stderr.partition("made")
    assert before.count("'settotalmass' is deprecated") == (0 if quietly else 2)
    assert "unstable" in after
    if quietly:
        assert before == "" and not list(tmp_path.iterdir())
