"""Small environments, registered with Gymnasium, that do what real ones do wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import register
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple, utils

LONG = 15.0
"""Seconds that what is left behind goes on."""
LEAK, GULP = 4 << 20, 16 << 20
"""Bytes that are kept of each episode, and that are taken at a time."""
MOST = 64
"""Gulps after which it is enough, for where nobody limits them."""
hoard: dict[int, bytes] = {}


class Panic(BaseException):
    """Not even an `Exception`, as what libraries in other languages raise."""


class UnsayableError(Exception):
    """Fails once more when it is asked what it is."""

    def __str__(self) -> str:
        raise RuntimeError


class Walk(gymnasium.Env[Any, Any]):
    """Random observations; rewards depend on all observations and actions so far.

    Args:
        trouble: what goes wrong in step 3 of every episode whose seed is a multiple of `every`;
            `tell` raises in step 1 to 4 of any episode that lasts so long; `slow` takes 0.1 s for
            each of `slow_steps` more, and raises in every fifth other episode; `crash` ends the
            process, without a signal where the seed is even; `leak` keeps something of every
            episode for ever; `gulp` takes memory until it is ended; `tally` writes the seed of
            every episode that begins to `gate`, and takes its time; `double` makes a copy of the
            process, and both go on.
        gate: a file that `hang` waits for, and makes one beside it that is called `.waiting`, or ""
            to hang for ever; `slow` makes it.
    """

    def __init__(
        self,
        trouble: str = "none",
        every: int = 3,
        gate: str = "",
        lasts: int = 9,
        slow_steps: int = 10,
    ) -> None:
        self.observation_space = Box(-10.0, 10.0, (2,), np.float64)
        self.action_space = Discrete(3)
        self.trouble, self.every, self.gate, self.lasts = trouble, every, gate, lasts
        self.slow_steps = slow_steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        assert seed is not None
        self.seed = seed
        self.cursed = self.trouble != "none" and seed % self.every == 0
        if self.cursed and self.trouble == "raise-in-reset":
            raise RuntimeError("no start")
        if self.trouble == "leak" and seed not in hoard:
            hoard[seed] = b"!" * LEAK
        if self.trouble == "tally":
            with Path(self.gate).open("a") as tally:
                tally.write(f"{seed}\n")
        self.time, self.memory = 0, 0.0
        self.length = int(self.np_random.integers(1, self.lasts + 1)) + (4 if self.cursed else 0)
        if self.cursed and self.trouble == "slow":
            self.length += self.slow_steps
        return self.np_random.normal(size=2), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        self.time += 1
        observation = self.np_random.normal(size=2)
        self.memory = np.sin(3.0 * self.memory + float(action) + observation[0])
        reward: Any = np.float32(self.memory)
        if self.trouble == "tell" and self.time == 1 + self.seed % 4:
            raise ValueError(f"seed {self.seed}")
        if self.trouble in ("leak", "tally"):
            time.sleep(0.001)
        if self.trouble == "slow" and self.cursed:
            time.sleep(0.1)
        elif self.trouble == "slow" and self.seed % 5 == 1:
            raise ValueError(f"seed {self.seed}")
        if self.cursed and self.time == 3:
            if self.trouble == "raise":
                raise ValueError("broken\nleg")
            if self.trouble == "exit":
                sys.exit(1)
            if self.trouble == "panic":
                raise Panic
            if self.trouble == "unsayable":
                raise UnsayableError
            if self.trouble == "half-a-character":
                raise ValueError("file \udcff")
            if self.trouble == "crash" and self.seed % 2 == 0:
                os._exit(3)
            if self.trouble == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self.trouble == "gulp":
                for gulp in range(MOST):
                    hoard[-gulp] = b"!" * GULP
                    time.sleep(0.01)
            if self.trouble == "fork":  # a server of its own, which has all that we have
                if not os.fork():
                    os.setsid()
                    time.sleep(LONG)
                    os._exit(0)
                os._exit(4)
            if self.trouble == "double":
                os.fork()
            if self.trouble == "serve":  # a server of its own, which writes where we do
                subprocess.Popen(["sleep", f"{LONG}"], start_new_session=True)
            if self.trouble == "slow" and self.gate:
                Path(self.gate).touch()
            if self.trouble == "hang" and self.gate:
                Path(f"{self.gate}.waiting").touch()
            if self.trouble in ("hang", "serve"):
                while not (self.gate and os.path.exists(self.gate)):  # noqa: PTH110
                    time.sleep(0.01)
            reward = {"nan": float("nan"), "infinite": float("inf"), "word": "much"}.get(
                self.trouble, reward
            )
            if self.trouble == "nan-observation":
                observation[1] = float("nan")
            if self.trouble == "shape":
                observation = np.zeros(3)
        return observation, reward, self.time >= self.length, False, {}


class Worn(Walk):
    """An instance that each reset wears a little more."""

    def __init__(self) -> None:
        super().__init__()
        self.wear = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        observation, info = super().reset(seed=seed)
        self.memory = self.wear
        self.wear += 0.25
        return observation, info


class Dice(Walk):
    """Never the same episode twice."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.frombuffer(os.urandom(2), np.int8) / 100.0, {}


class Miser(gymnasium.Env[Any, Any]):
    """Keeps every action that it was given; its reward is the distance from the one before."""

    def __init__(self, shape: tuple[int, ...] = (2, 3)) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Box(
            np.array([[-1.0], [0.0]], np.float32), np.array([[1.0], [3.0]], np.float32)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.hoard = [np.zeros((2, 1), np.float32)]
        return self.look(), {}

    def look(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        assert self.action_space.contains(action)
        self.hoard.append(action)
        reward = np.abs(self.hoard[-1] - self.hoard[-2]).sum()
        return self.look(), reward, False, len(self.hoard) > 6, {}


class Ladder(gymnasium.Env[Any, Any]):
    """Discrete rungs 5 .. 8 and moves 3 .. 4; the reward is the rung."""

    def __init__(self) -> None:
        self.observation_space = Discrete(4, start=5)
        self.action_space = Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.rung = 5 + int(self.np_random.integers(4))
        return self.rung, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        assert self.action_space.contains(action)
        self.rung = min(8, max(5, self.rung + (1 if action == 4 else -1)))
        return self.rung, self.rung, False, False, {}


class Garden(gymnasium.Env[Any, Any]):
    """Observations and actions of every kind of space; the reward depends on all actions so far."""

    def __init__(self) -> None:
        self.observation_space = Dict(
            {
                "view": Box(0, 255, (2, 2), np.uint8),
                "beds": MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [0, -5]]),
                "gates": MultiBinary(3),
                "inside": Tuple((Discrete(3, start=2), Box(-np.inf, np.inf, (2,), np.float64))),
            }
        )
        self.action_space = Tuple(
            (
                Discrete(3, start=-1),
                Dict({"valves": MultiBinary([2, 2]), "power": Box(-1.0, 2.0, (2,))}),
                MultiDiscrete([3, 2], start=[1, 0]),
            )
        )
        self.weights = np.arange(1.0, 1.0 + utils.flatdim(self.action_space))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.given: list[Any] = []
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        assert self.action_space.contains(action)
        self.given.append(action)
        reward = sum(
            float(utils.flatten(self.action_space, each) @ self.weights) for each in self.given
        )
        return self.observation_space.sample(), reward, len(self.given) > 6, False, {}


class Chatter(Walk):
    """Prints all the time, also past Python's own streams."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        print("step", self.time)
        os.write(1, b"\x05\x00\x00\x00noise")
        return super().step(action)


class Absent(Walk):
    """Needs a package that is not there."""

    def __init__(self) -> None:
        raise gymnasium.error.DependencyNotInstalled(
            "Toys are not installed, run `pip install toys`"
        )


class Odd(Walk):
    """An action space that no policy takes."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Text(3)


class Endless(Walk):
    """Episodes that nothing ends."""

    def __init__(self) -> None:
        super().__init__(lasts=10**9)


class Unbounded(Walk):
    """Actions without bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (1,))


for kind in (Walk, Worn, Dice, Miser, Ladder, Garden, Chatter, Absent, Odd, Unbounded):
    register(f"Toy{kind.__name__}-v0", kind, max_episode_steps=30)
register(
    "ToyRescaled-v0",
    Miser,
    max_episode_steps=4,
    additional_wrappers=(
        gymnasium.wrappers.RescaleAction.wrapper_spec(min_action=-1.0, max_action=1.0),
    ),
)
register("ToyEndless-v0", Endless)
register("ToyAlbum-v0", Miser, max_episode_steps=30, kwargs={"shape": (9, 8, 3)})
