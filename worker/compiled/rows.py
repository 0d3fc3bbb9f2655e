"""Which row of a table is that of an observation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from protocol.policies import choices
from protocol.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple


def row(space: Space, observation: Any) -> jax.Array:
    """The row of an observation that is all choices; the last counts up first. int32, shape ()."""
    found = jnp.int32(0)
    for value, many in zip(_chosen(space, observation), choices(space) or (), strict=True):
        found = found * many + value
    return found


def _chosen(space: Space, observation: Any) -> list[jax.Array]:
    """Each choice in an observation, from 0."""
    if isinstance(space, Discrete):
        return [observation.astype(jnp.int32) - space.start]
    if isinstance(space, MultiDiscrete):
        start = space.start or (0,) * len(space.choices)
        flat = observation.astype(jnp.int32).ravel()
        return [flat[place] - begin for place, begin in enumerate(start)]
    if isinstance(space, Tuple | Dict):
        names = space.names if isinstance(space, Dict) else range(len(space.spaces))
        parts = [observation[name] for name in names]
        return [
            chosen
            for part, value in zip(space.spaces, parts, strict=True)
            for chosen in _chosen(part, value)
        ]
    raise TypeError(f"a {type(space).__name__} is no choice")
