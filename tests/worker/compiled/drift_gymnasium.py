"""`toys.drift` as Gymnasium has environments, for workers without the compiled one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

PUSHES = np.array([[16, 0], [-16, 0], [0, 16]])


class Drift(gymnasium.Env[Any, Any]):
    """A point in the plane that is pushed along an axis, slips, and ends by chance or far away."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._place = self.np_random.integers(-64, 65, 2)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step."""
        self._place = self._place + PUSHES[action] + self.np_random.integers(-8, 9, 2)
        far = bool((np.abs(self._place) > 256).any())
        end = far or self.np_random.random() < 0.05
        return self._seen, 1.0 - float(self._seen[0]), end, False, {}

    @property
    def _seen(self) -> Any:
        return (self._place / 64.0).astype(np.float32)


gymnasium.register("Drift-v0", Drift, max_episode_steps=40)
