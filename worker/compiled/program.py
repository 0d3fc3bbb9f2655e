"""A run as compiled programs: lanes that begin episodes, and a few steps of all lanes at once."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from protocol.spec import RunSpec
from worker.compiled.environment import Functional
from worker.compiled.networks import network
from worker.compiled.values import Choosing, inputs

STEPS = 16
"""Of a chunk of all lanes, at most, between two looks at which of them are done."""
AT_ONCE = 4
"""Steps between two looks at how many lanes play on."""


class Lane(NamedTuple):
    """What stays as it is while a lane's episode lasts: (size,), and (inputs,) or (0,) each."""

    parameters: Any
    mean: Any
    inverse_deviation: Any


class Episode(NamedTuple):
    """What a lane's step changes, and the key that its steps' keys are made of."""

    state: Any
    observation: Any
    memory: Any
    key: Any
    time: Any


class Told(NamedTuple):
    """What a chunk tells of each step and lane: shapes (steps, lanes), frames with (inputs,) more.

    Attributes:
        sound: whether the observation that the lane acted upon was finite and in its space.
        frames: these observations, as policies read them before they are normalised.
    """

    rewards: Any
    terminated: Any
    sound: Any
    frames: Any


class Programs:
    """The programs of one run; each is compiled once for each number of lanes.

    Attributes:
        order: int32 (size,): lanes' parameters are parameter order[j] at j.
        choosing: says how many numbers each step takes.
    """

    def __init__(self, spec: RunSpec, functional: Functional) -> None:
        self.spec, self.functional = spec, functional
        self._network = network(spec)
        self.order = self._network.order
        self.choosing = Choosing(spec)
        self.inputs = spec.environment.observation.size
        self.normalised = spec.normalizer.enabled
        self._clip = np.float32(spec.normalizer.bound)
        self.begin = jax.jit(self._begin, donate_argnums=(0, 1))
        self.begin_all = jax.jit(self._begin_all)
        self.chunk = jax.jit(self._chunk, donate_argnums=(1,))
        self.narrow = jax.jit(self._narrow)
        self.widen = jax.jit(self._widen, static_argnums=(2,))

    def blank(self, lanes: int) -> tuple[Lane, Episode]:
        """Lanes that play nothing."""
        episodes = jax.jit(jax.vmap(self._new))(np.zeros(lanes, np.uint32))
        seen = self.inputs if self.normalised else 0
        shapes = (self.spec.size, seen, seen)
        return Lane(*(jnp.zeros((lanes, many), jnp.float32) for many in shapes)), episodes

    def _new(self, seed: Any) -> Episode:
        reset, steps = jax.random.split(jax.random.key(seed))
        state, observation = self.functional.reset(reset)
        state, observation = jax.tree.map(jnp.asarray, (state, observation))
        memory = self._network.memory
        return Episode(state, observation, memory, jax.random.key_data(steps), jnp.int32(0))

    def _begin(self, lanes: Lane, episodes: Episode, new: Any, rows: Lane, seeds: Any) -> Any:
        """New episodes with these seeds and rows in the lanes that `new` is true of."""
        fresh = jax.vmap(self._new)(seeds)
        choose = functools.partial(_where, new)
        return jax.tree.map(choose, rows, lanes), jax.tree.map(choose, fresh, episodes)

    def _begin_all(self, rows: Lane, seeds: Any) -> tuple[Lane, Episode]:
        """New episodes in all lanes, whatever was there before."""
        return rows, jax.vmap(self._new)(seeds)

    def _chunk(
        self, lanes: Lane, episodes: Episode, drawn: Any, playing: Any, cuts: Any, enough: Any
    ) -> tuple[Episode, Told, Any]:
        """Steps of all lanes until `enough` of them or fewer play on, at most as many as there is
        drawn for; what they tell, and how many they are: what is told of later ones is void.

        Args:
            drawn: shapes (steps, lanes, numbers).
            playing, cuts: (lanes,), which lanes play, and the steps after which each is cut.
        """
        step = jax.vmap(self._step)
        most = jax.tree.leaves(drawn)[0].shape[0] // AT_ONCE
        drawn = jax.tree.map(lambda all: all.reshape(most, AT_ONCE, *all.shape[1:]), drawn)

        def some(episodes: Episode, playing: Any, numbers: Any) -> Any:
            def one(now: Any, numbers: Any) -> Any:
                episodes, playing = now
                episodes, told = step(lanes, episodes, numbers)
                playing &= told.sound & ~told.terminated & (episodes.time < cuts)
                return (episodes, playing), told

            return jax.lax.scan(one, (episodes, playing), numbers)

        def goes_on(now: Any) -> Any:
            taken, _, playing, _ = now
            return (taken < most) & (playing.sum() > enough)

        def go_on(now: Any) -> Any:
            taken, episodes, playing, told = now
            numbers = jax.tree.map(lambda all: all[taken], drawn)
            (episodes, playing), more = some(episodes, playing, numbers)
            told = jax.tree.map(lambda all, few: all.at[taken].set(few), told, more)
            return taken + 1, episodes, playing, told

        first = jax.tree.map(lambda all: all[0], drawn)
        shapes = jax.eval_shape(some, episodes, playing, first)[1]
        room = jax.tree.map(lambda few: jnp.zeros((most, *few.shape), few.dtype), shapes)
        begin = jnp.int32(0), episodes, playing, room
        taken, episodes, _, told = jax.lax.while_loop(goes_on, go_on, begin)
        told = jax.tree.map(lambda all: all.reshape(AT_ONCE * most, *all.shape[2:]), told)
        return episodes, told, AT_ONCE * taken

    def _step(self, lane: Lane, episode: Episode, drawn: Any) -> tuple[Episode, Told]:
        frame = inputs(self.spec.environment.observation, episode.observation)
        seen = frame
        if self.normalised:
            seen = (frame - lane.mean) * lane.inverse_deviation
            seen = jnp.clip(seen, -self._clip, self._clip)
        outputs, memory = self._network.apply(lane.parameters, episode.memory, seen)
        action = self.choosing.action(outputs, lane.parameters, drawn)
        key = jax.random.fold_in(jax.random.wrap_key_data(episode.key), episode.time)
        state, observation, reward, terminated = self.functional.step(episode.state, action, key)
        state, observation = jax.tree.map(
            lambda new, old: jnp.asarray(new, old.dtype),
            (state, observation),
            (episode.state, episode.observation),
        )
        told = Told(
            jnp.asarray(reward, jnp.float32),
            jnp.asarray(terminated, jnp.bool_),
            jnp.isfinite(frame).all(),
            frame if self.normalised else jnp.zeros(0, jnp.float32),
        )
        return Episode(state, observation, memory, episode.key, episode.time + 1), told

    def _narrow(self, lanes: Lane, episodes: Episode, which: Any) -> tuple[Lane, Episode]:
        """Only those lanes, in that order."""
        take: Any = functools.partial(jax.tree.map, lambda array: array[which])
        return take(lanes), take(episodes)

    def _widen(self, lanes: Lane, episodes: Episode, count: int) -> tuple[Lane, Episode]:
        """So many lanes, the first of them those."""

        def padded(array: Any) -> Any:
            more = count - array.shape[0]
            return jnp.concatenate([array, jnp.zeros((more, *array.shape[1:]), array.dtype)])

        return jax.tree.map(padded, lanes), jax.tree.map(padded, episodes)


def _where(new: NDArray[np.bool_], one: Any, other: Any) -> Any:
    """Rows of `one` where a lane is new, else of `other`."""
    return jnp.where(jnp.reshape(new, (-1,) + (1,) * (one.ndim - 1)), one, other)
