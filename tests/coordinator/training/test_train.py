"""Programs train: real brokers, workers and callbacks; stopped, interrupted, resumed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest

import shoal
from coordinator.history.verify import verify_directory
from coordinator.log import LogReader
from protocol.errors import ShoalError
from tests.chaos.processes import DEADLINE, ROOT, Running, assert_sound, updates
from tests.worker import problems

ENDLESS: dict[str, Any] = {
    "seed": 1,
    "workers": 1,
    "target": None,
    "updates": 3000,  # so that what nothing stops ends, and is found
    "quiet": True,
}
SHORT: dict[str, Any] = {"updates": 2, "centre": {"episodes": 2, "screening": 1}}
NOWHERE = {
    "name": "nowhere",
    "environment": {
        "id": "Nowhere-v0",
        "max_steps": 10,
        "observation": {"kind": "box", "shape": [2]},
        "action": {"kind": "discrete", "n": 2},
    },
}


def noted(directory: Path, name: str) -> object:
    with LogReader(directory / "log.sqlite") as log:
        return log.noted(name)


def until(version: int) -> Any:
    """Stops the training there."""
    return lambda progress: progress.version < version


def test_a_training_reaches_its_target_and_its_policy_acts(tmp_path: Path) -> None:
    told: list[shoal.TrainingProgress] = []
    thresholds = gc.get_threshold()
    gc.unfreeze()  # what other runs of this process froze
    result = shoal.train(
        "CartPole-v1",
        seed=1,
        target=60,
        workers=2,
        directory=tmp_path / "run",
        on_update=told.append,
        quiet=True,
    )
    assert result.solved and result.state == "finished" and "target" in result.reason
    assert result.centre is not None and result.centre.interval is not None
    low, high = result.centre.interval
    assert result.centre.mean >= 60 and low < result.centre.mean < high
    assert result.centre.version == result.version and result.centre.episodes == 100
    assert [progress.version for progress in told] == [*range(1, result.updates + 1)]
    assert 0 < told[0].episodes < result.episodes <= result.steps and told[0].run == result.run
    assert 0.0 < told[-1].seconds <= result.seconds
    assert_sound(result.directory, result.updates)
    curve = result.curve()
    assert curve.x[-1] == result.version and curve.mean[-1] == result.centre.mean
    assert result.curve("members", by="steps").x.shape == (result.updates,)
    with pytest.raises(ShoalError, match="what='median': must be one of members, centre"):
        result.curve("median")
    policy = result.policy()
    assert policy.version == result.version
    environment = policy.environment()
    observation, _ = environment.reset(seed=0)
    policy.reset()
    assert policy(observation) in (0, 1)
    assert gc.get_threshold() == thresholds and not gc.get_freeze_count()


def test_a_callback_stops_a_training_which_then_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = shoal.train("CartPole-v1", directory=run, on_update=until(2), **ENDLESS)
    assert (first.state, first.solved, first.reason) == ("stopped", False, "stopped by on_update")
    assert first.updates >= 2

    def enough(progress: shoal.TrainingProgress) -> None:
        if progress.version >= first.updates + 2:
            raise shoal.StopTraining("good enough")

    second = shoal.train("CartPole-v1", directory=run, resume=True, on_update=enough, **ENDLESS)
    assert second.run == first.run and second.reason == "good enough"
    assert second.updates >= first.updates + 2 and second.seconds > first.seconds
    assert_sound(run, second.updates)
    with pytest.raises(ShoalError, match=r"strategy.sigma is 0.1, not 0.2; a run's spec never"):
        shoal.train("CartPole-v1", directory=run, resume=True, sigma=0.2, **ENDLESS)
    with pytest.raises(ShoalError, match=r"already holds a run: go on with it \(resume=True\)"):
        shoal.train("CartPole-v1", directory=run, **ENDLESS)


def test_what_a_callback_raises_is_raised_and_the_run_waits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def fails(progress: shoal.TrainingProgress) -> None:
        raise KeyError("a mistake of the program")

    with pytest.raises(KeyError, match="a mistake of the program"):
        shoal.train("CartPole-v1", directory=run, on_update=fails, **ENDLESS)
    assert noted(run, "state") == "paused"

    def interrupted(progress: shoal.TrainingProgress) -> None:
        raise SystemExit("enough")

    with pytest.raises(SystemExit, match="enough"):
        shoal.train(directory=run, resume=True, workers=1, on_update=interrupted, quiet=True)
    assert capfd.readouterr().err == ""  # no callback of the event loop failed

    async def waits(progress: shoal.TrainingProgress) -> None: ...

    with pytest.raises(ShoalError, match="on_update is a coroutine function"):
        shoal.train(directory=run, resume=True, on_update=waits, quiet=True)  # type: ignore[arg-type]
    with pytest.raises(ShoalError, match="on_update gave something to be awaited"):
        shoal.train(directory=run, resume=True, workers=1, on_update=lambda now: waits(now))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_callback_that_leaves_the_program_pauses_the_run_quietly(
    leaving: BaseException, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def leave(progress: shoal.TrainingProgress) -> None:
        raise leaving

    with pytest.raises(type(leaving)):
        shoal.train("CartPole-v1", directory=tmp_path / "run", on_update=leave, **ENDLESS)
    assert noted(tmp_path / "run", "state") == "paused"
    assert capfd.readouterr().err == ""


async def test_trainings_beside_one_another(tmp_path: Path) -> None:
    thresholds = gc.get_threshold()
    results = await asyncio.gather(
        *(
            shoal.train_async(
                "CartPole-v1", directory=tmp_path / str(seed), **{**ENDLESS, **SHORT, "seed": seed}
            )
            for seed in (1, 2)
        )
    )
    assert [result.updates for result in results] == [2, 2]
    assert results[0].run != results[1].run
    assert results[0].params_hash != results[1].params_hash
    assert gc.get_threshold() == thresholds


async def test_a_training_is_awaited_and_who_cancels_it_pauses_it(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match=r"await shoal\.train_async"):
        shoal.train("CartPole-v1", directory=tmp_path / "never")
    assert not (tmp_path / "never").exists()
    run, going = tmp_path / "run", asyncio.Event()
    before = signal.getsignal(signal.SIGINT)
    training = asyncio.create_task(
        shoal.train_async(
            "CartPole-v1", directory=run, on_update=lambda progress: going.set(), **ENDLESS
        )
    )
    await going.wait()
    assert signal.getsignal(signal.SIGINT) is before
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert noted(run, "state") == "paused" and updates(run)


@pytest.mark.parametrize("begun", ["", "early/run", "early/logs/worker-0.log"])
async def test_a_training_that_is_cancelled_before_anybody_heard_of_it_leaves_nothing(
    begun: str, tmp_path: Path
) -> None:
    nobody = "mqtt://127.0.0.1:1"
    early = asyncio.create_task(
        shoal.train_async("CartPole-v1", directory=tmp_path / "early", broker=nobody, **ENDLESS)
    )
    async with asyncio.timeout(DEADLINE):
        while not (tmp_path / begun).exists():
            await asyncio.sleep(0.001)
    early.cancel()
    with pytest.raises(asyncio.CancelledError):
        await early
    assert not (tmp_path / "early").exists()


def test_a_training_in_another_thread(tmp_path: Path) -> None:
    results: list[shoal.TrainingResult] = []

    def trains() -> None:
        results.append(
            shoal.train("CartPole-v1", directory=tmp_path / "run", **{**ENDLESS, **SHORT})
        )

    thread = threading.Thread(target=trains)
    thread.start()
    thread.join()
    assert results[0].updates == 2 and results[0].state == "finished"


def test_an_environment_that_workers_lack_ends_the_training_with_its_reason(
    tmp_path: Path,
) -> None:
    with pytest.raises(ShoalError, match=r"Nowhere-v0"):
        shoal.train("Nowhere-v0", directory=tmp_path / "asked")
    assert not (tmp_path / "asked").exists()
    with pytest.raises(ShoalError, match=r"all workers of this machine ended: .*Nowhere-v0"):
        shoal.train(NOWHERE, workers=1, directory=tmp_path / "run", quiet=True)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "what should be trained"),
        ({"spec": "CartPole-v1", "workers": -1}, "workers=-1: must be 'auto'"),
        ({"spec": "CartPole-v1", "workers": True}, "workers=True: must be 'auto'"),
        ({"spec": "CartPole-v1", "broker": "ftp"}, "broker 'ftp': it must be auto, embedded"),
        ({"spec": "CartPole-v1", "workers": 0}, "workers=0 with broker='embedded', which nobody"),
        ({"spec": "CartPole-v1", "broker": 1883}, "broker=1883: must be 'embedded'"),
        ({"spec": "CartPole-v1", "directory": 5}, "directory is 5: must be a path"),
        ({"spec": "CartPole-v1", "on_update": 5}, "on_update=5: must be a function"),
        ({"spec": "CartPole-v1", "resume": True}, "give its directory"),
        ({"spec": "CartPole-v1", "environments": "toys"}, "must be a list of names of modules"),
        ({"spec": "CartPole-v1", "environments": ["toyz"]}, "environments 'toyz': no such module"),
        ({"spec": "CartPole-v1", "environments": ["__main__"]}, "move it to a file beside"),
        ({"resume": True}, "holds no run to go on with"),
    ],
)
def test_a_wrong_use_is_one_line_and_leaves_nothing(
    given: dict[str, Any], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if given != {"spec": "CartPole-v1", "resume": True}:
        given = {"directory": tmp_path / "run", **given}
    with pytest.raises(ShoalError, match=rule) as error:
        shoal.train(given.pop("spec", None), **given)
    assert "\n" not in str(error.value)
    assert "exception occurred" not in "".join(traceback.format_exception(error.value))
    assert not (tmp_path / "run").exists()


SCRIPT = """
import sys
import shoal

def progressed(progress):
    print("version", progress.version, flush=True)
    return progress.version < int(sys.argv[2])

if __name__ == "__main__":
    result = shoal.train(
        "Toy-v0", workers=1, environments=["toys_of_mine"], directory=sys.argv[1], resume=True,
        on_update=progressed, seed=3, population=8, hidden=[4])
    print("ended", result.state, result.updates, result.policy().environment().spec.id)
"""
TOYS = """
import gymnasium

class Toy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), float(action), False, False, {}

    def _seen(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype("float32")

gymnasium.register("Toy-v0", Toy, max_episode_steps=5)
"""


def started(script: Path, *arguments: str) -> Running:
    """A script that is run from another folder than its own."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=script.parent.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run = Running(process, mark.encode())
    run.start_reading()
    return run


def test_a_script_with_environments_of_its_own_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train_toys.py").write_text(SCRIPT)
    (folder / "toys_of_mine.py").write_text(TOYS)
    run = tmp_path / "run"
    first = started(folder / "train_toys.py", str(run), "100000")
    try:
        first.await_line("version 3")
        first.signal(signal.SIGINT)
        assert first.await_end() == -signal.SIGINT, first.lines
        assert first.lines[-1] == "KeyboardInterrupt"
        first.await_quiet()
    finally:
        first.process.kill()
    assert noted(run, "state") == "paused"
    made = len(updates(run))
    second = started(folder / "train_toys.py", str(run), str(made + 2))
    assert second.await_end() == 0, second.lines
    assert second.lines[0] == f"version {made + 1}"
    word, state, reached, environment = second.lines[-1].split()
    assert (word, state, environment) == ("ended", "stopped", "Toy-v0")
    verdict = verify_directory(run, (), lambda version, of: None)
    assert verdict.sound and verdict.reached == int(reached) >= made + 2
    second.await_quiet()


def test_an_objective_is_trained_as_by_ask_and_tell_bit_for_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "seed": 11,
        "strategy": {"kind": "snes", "population": 12, "sigma": 0.3},
        "policy": {"sigma_scale": {"parameters": 0.5}},
        "pool": "sync",
    }
    result = shoal.train(
        objective="tests.worker.problems:sphere",
        parameters=5,
        minimise=True,
        updates=6,
        workers=1,
        directory=tmp_path / "run",
        environments=["tests.worker.problems"],
        quiet=True,
        **settings,
    )
    assert result.updates == 6 and result.state == "finished"
    evolution = shoal.Evolution(None, 5, **settings)
    while evolution.version < 6:
        evolution.tell([-problems.sphere(member) for member in evolution.ask()])
    assert updates(tmp_path / "run")[-1]["params_hash"] == evolution.digest
