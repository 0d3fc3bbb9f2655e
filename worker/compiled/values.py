"""Inputs of observations and actions of outputs, in JAX, for one lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from protocol import policies
from protocol.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    leaves,
)
from protocol.spec import RunSpec

LARGEST_LOG = 10.0
"""See `worker.policies.action_noise`."""


def inputs(space: Space, observation: Any) -> Any:
    """An observation as the flat vector that policies read, float32; NaN where a choice is none."""
    return jnp.concatenate([*_vectors(space, observation)])


def _vectors(space: Space, value: Any) -> Iterator[Any]:
    match space:
        case Box():
            vector = jnp.asarray(value, jnp.float32).ravel()
            yield vector / 255.0 if space.dtype == "uint8" else vector
        case MultiBinary():
            yield jnp.asarray(value, jnp.float32).ravel()
        case Discrete():
            yield _one_hot(value, space.start, space.n)
        case MultiDiscrete():
            flat = jnp.asarray(value).ravel()
            starts = space.start or (0,) * len(space.choices)
            for place, (many, start) in enumerate(zip(space.choices, starts, strict=True)):
                yield _one_hot(flat[place], start, many)
        case Tuple():
            for part, each in zip(space.spaces, value, strict=True):
                yield from _vectors(part, each)
        case Dict():
            for name, part in zip(space.names, space.spaces, strict=True):
                yield from _vectors(part, value[name])


def _one_hot(value: Any, start: int, many: int) -> Any:
    place = jnp.asarray(value, jnp.int32) - start
    hot = (jnp.arange(many) == place).astype(jnp.float32)
    return jnp.where((place >= 0) & (place < many), hot, jnp.nan)


class Choosing:
    """Makes actions of outputs and of the numbers that are drawn for them.

    Attributes:
        shares: numbers of [0, 1) that a step takes: for its choices and switches, where these are
            drawn, in the order of the outputs.
        reals: deviates that a step takes, where there is noise on actions: one for each real.
    """

    def __init__(self, spec: RunSpec) -> None:
        policy, self._space = spec.policy, spec.environment.action
        self._size = self._space.size
        self._sampled, self._tanh = policy.choice == "sample", policy.squash == "tanh"
        self._noise = policy.action_noise
        decisions = 0
        for part in leaves(self._space):
            if isinstance(part, MultiBinary):
                decisions += part.size
            elif isinstance(part, MultiDiscrete):
                decisions += len(part.choices)
            elif isinstance(part, Discrete):
                decisions += 1
        self.shares = decisions if self._sampled else 0
        self.reals = policies.reals(self._space) if self._noise != "none" else 0

    def action(self, outputs: Any, parameters: Any, drawn: tuple[Any, Any]) -> Any:
        """The action of a lane.

        Args:
            outputs: of its network.
            parameters: its own, whose last are the learned deviations' logarithms.
            drawn: float32, so many `shares` and deviates.
        """
        shares, deviates = drawn
        if self.reals:
            if self._noise == "learned":
                deviates = deviates * self._deviation(parameters[-self.reals :])
            elif self._noise == "predicted":
                deviates = deviates * self._deviation(outputs[self._size :])
        taking = _Taking(outputs, shares, deviates)
        return self._value(self._space, taking)

    @staticmethod
    def _deviation(logs: Any) -> Any:
        return jnp.exp(jnp.clip(logs, -LARGEST_LOG, LARGEST_LOG))

    def _value(self, space: Space, taking: _Taking) -> Any:
        match space:
            case Discrete():
                return self._choice(taking, space.n) + space.start
            case MultiDiscrete():
                chosen = jnp.stack([self._choice(taking, many) for many in space.choices])
                starts = jnp.array(space.start or (0,) * len(space.choices), jnp.int32)
                return (chosen + starts).reshape(space.shape)
            case MultiBinary():
                return self._switches(taking, space)
            case Box():
                return self._bounded(taking, space)
            case Tuple():
                return tuple(self._value(part, taking) for part in space.spaces)
        return {
            name: self._value(part, taking)
            for name, part in zip(space.names, space.spaces, strict=True)
        }

    def _choice(self, taking: _Taking, many: int) -> Any:
        outputs = taking.outputs(many)
        if not self._sampled:
            return jnp.argmax(outputs).astype(jnp.int32)
        sums = jnp.cumsum(jnp.exp(outputs - jnp.max(outputs)))
        return jnp.argmax(sums > taking.shares(1)[0] * sums[-1]).astype(jnp.int32)

    def _switches(self, taking: _Taking, space: MultiBinary) -> Any:
        outputs = taking.outputs(space.size)
        least = taking.shares(space.size) if self._sampled else 0.5
        on = jax.nn.sigmoid(outputs) > least
        return on.astype(jnp.int8).reshape(space.shape)

    def _bounded(self, taking: _Taking, space: Box) -> Any:
        low, high = jnp.array(space.low, jnp.float32), jnp.array(space.high, jnp.float32)
        value = taking.outputs(space.size)
        if self.reals:
            value = value + taking.deviates(space.size)
        if self._tanh:
            value = (0.5 * low + 0.5 * high) + (0.5 * high - 0.5 * low) * jnp.tanh(value)
        return jnp.clip(value, low, high).reshape(space.shape)


class _Taking:
    """Numbers that are taken off the front, in order."""

    def __init__(self, outputs: Any, shares: Any, deviates: Any) -> None:
        self._left = [outputs, shares, deviates]

    def _take(self, which: int, many: int) -> Any:
        taken, self._left[which] = self._left[which][:many], self._left[which][many:]
        return taken

    def outputs(self, many: int) -> Any:
        """The next outputs."""
        return self._take(0, many)

    def shares(self, many: int) -> Any:
        """The next numbers of [0, 1)."""
        return self._take(1, many)

    def deviates(self, many: int) -> Any:
        """The next deviates."""
        return self._take(2, many)
