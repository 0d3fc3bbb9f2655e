"""Puts a run's wrappers around an environment: Gymnasium's own, wherever it has one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import (
    AtariPreprocessing,
    ClipReward,
    DtypeObservation,
    FrameStackObservation,
)
from gymnasium.wrappers import RescaleObservation as Rescaled

from protocol.spaces import LARGEST
from protocol.wrappers import (
    ActionRepeat,
    Atari,
    FrameStack,
    RescaleObservation,
    RewardClip,
    Wrapper,
)

Environment = gymnasium.Env[Any, Any]


class RepeatedAction(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes each action several times, or until the episode ends; the rewards add up.

    Gymnasium has one like it from version 1.3 on only.
    """

    def __init__(self, environment: Environment, times: int) -> None:
        super().__init__(environment)
        self.times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take the steps of one action."""
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _require_room(environment: Environment, frames: int) -> None:
    """Raises ValueError where so many frames are no observation that a run may have.

    Before anything is made of them: eight stacks of 100 would fill any memory.
    """
    numbers = frames * spaces.flatdim(environment.observation_space)
    if numbers > LARGEST:
        raise ValueError(f"{frames} frames are {numbers:,} numbers, over the limit of {LARGEST:,}")


def wrap(environment: Environment, wrapper: Wrapper) -> Environment:
    """The environment in one wrapper.

    Raises:
        Exception: whatever Gymnasium's wrapper says of an environment that it does not suit.
    """
    match wrapper:
        case FrameStack():
            _require_room(environment, wrapper.n)
            return FrameStackObservation(environment, wrapper.n)
        case ActionRepeat():
            return RepeatedAction(environment, wrapper.n)
        case RewardClip():
            return ClipReward(environment, wrapper.low, wrapper.high)
        case RescaleObservation():
            space = environment.observation_space
            if isinstance(space, spaces.Box) and space.dtype.kind != "f":
                # Gymnasium would round the factor to an integer.
                environment = DtypeObservation(environment, np.float32)
            number = np.float64 if space.dtype == np.float64 else np.float32
            return Rescaled(environment, number(wrapper.low), number(wrapper.high))
        case Atari():
            preprocessed = AtariPreprocessing(
                environment,
                noop_max=wrapper.noop_max,
                frame_skip=wrapper.frame_skip,
                screen_size=wrapper.screen_size,
                terminal_on_life_loss=wrapper.terminal_on_life_loss,
                grayscale_obs=wrapper.grayscale_obs,
            )
            import cv2  # which is there now

            cv2.setNumThreads(1)  # a process of ours is to take one core
            return preprocessed
