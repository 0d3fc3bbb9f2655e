import json
import subprocess
import sys
from typing import Any

import pytest

from protocol.errors import ShoalError
from protocol.spec import parse
from tests.worker.reference import TOYS
from worker.describe import describe, table


def run(*arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "worker.describe", *arguments], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    return done.returncode, json.loads(lines[0])


def test_an_environment_is_described_in_the_words_of_the_spec():
    code, found = run("Pendulum-v1", "--kwargs", '{"g": 9.0}')
    assert code == 0
    assert found["max_episode_steps"] == 200 and found["reward_threshold"] is None
    environment = {
        "id": "Pendulum-v1",
        "observation": found["observation"],
        "action": found["action"],
    }
    spec = parse({"name": "test", "environment": environment})
    assert spec.environment.observation.size == 3 and spec.environment.action.low == (-2.0,)


def test_a_mistake_is_one_clear_line_and_exit_code_2():
    code, found = run("CartPol-v1")
    assert code == 2 and list(found) == ["error"]
    assert "CartPol-v1" in found["error"] and "did you mean CartPole-v1" in found["error"]


def test_what_an_environment_prints_stays_off_the_line():
    code, found = run("ToyChatter-v0", "--allow-module", TOYS)
    assert code == 0 and found["observation"]["shape"] == [2]


def test_arguments_must_be_an_object():
    for text in ("{", "[]", "3"):
        with pytest.raises(ShoalError, match="JSON object"):
            table(text)
    assert table('{"g": 9.0}') == {"g": 9.0}


def test_the_reward_threshold_is_told():
    assert describe("CartPole-v1", {})["reward_threshold"] == 475.0


def test_an_unusable_space_is_a_persons_mistake():
    with pytest.raises(ShoalError, match="Text"):
        describe("ToyOdd-v0", {}, [TOYS])
