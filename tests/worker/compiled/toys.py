"""Small functional environments, and runs in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from protocol.spaces import Box, Discrete
from protocol.spec import RunSpec
from tests.worker.reference import box, discrete, run_spec
from worker.compiled.environment import Functional, register

LIMIT = 40
TOYS = "tests.worker.compiled.toys"


_hoard: list[bytes] = []


def drift(odds: float = 0.05, leak: int = 0) -> Functional:
    """A point in the plane that is pushed along an axis, slips, and ends by chance or far away.

    All numbers are multiples of 1/64, so every order of sums and products is exact.

    Args:
        leak: bytes that each step keeps for good.
    """

    def observe(place: Any) -> Any:
        return place.astype(jnp.float32) / 64.0

    def reset(key: Any) -> tuple[Any, Any]:
        place = jax.random.randint(key, (2,), -64, 65)
        return place, observe(place)

    def step(place: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        if leak:
            jax.debug.callback(lambda _: _hoard.append(b"\1" * leak), place)
        slip, end = jax.random.split(key)
        push = jnp.array([[16, 0], [-16, 0], [0, 16]])[action]
        place = place + push + jax.random.randint(slip, (2,), -8, 9)
        far = (jnp.abs(place) > 256).any()
        reward = 1.0 - observe(place)[0]
        return place, observe(place), reward, far | (jax.random.uniform(end) < odds)

    return Functional(Box(shape=(2,)), Discrete(n=3), LIMIT, reset, step)


register("Drift-v0", drift)


def drift_spec(**sections: Any) -> RunSpec:
    """A run in that environment."""
    environment = {
        "backend": "jax",
        "observation": box(2),
        "action": discrete(3),
        **sections.pop("environment", {}),
    }
    return run_spec("jax:Drift-v0", environment=environment, **sections)
