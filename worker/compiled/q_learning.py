"""Tabular learners, many side by side: Q-learning, expected SARSA, double Q-learning.

Each agent has a table of its own, an environment of its own and hyperparameters of its own. All
tables lie one after the other in one array, so that what an agent reads in a step lies together and
a step writes one number of it, in place. What is kept does not depend on the number of steps.

Papers: Watkins 1989 (Q-learning); van Seijen et al. 2009 (expected SARSA); van Hasselt 2010.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from protocol.policies import choices
from protocol.spaces import Discrete
from worker.compiled import bits
from worker.compiled.environment import Functional
from worker.compiled.exploring import (
    best,
    first_best,
    greedily,
    largest_of,
    pick,
    soft_weights,
    softly,
    total,
)
from worker.compiled.rows import row

BLOCK = 256
"""Agents that are stepped together: the tables of more would not stay in a core's cache."""
DRAWS = 8
"""Words of an agent's stream that belong to a step: two for its action, two each for the keys of
the environment's step and reset, one for the table that learns, and one to spare."""

Kind = Literal["q-learning", "expected-sarsa", "double-q"]
Exploration = Literal["epsilon-greedy", "softmax"]


class Hyperparameters(NamedTuple):
    """Those of each agent, float32 of shape (agents,) each.

    Attributes:
        learning_rate: share of the error by which an estimate moves.
        discount: of a reward one step later.
        exploration: epsilon, the probability of an action drawn from all; or the temperature of
            the softmax.
        optimism: what each estimate is to begin with.
    """

    learning_rate: jax.Array
    discount: jax.Array
    exploration: jax.Array
    optimism: jax.Array


class Agents(NamedTuple):
    """What agents are in the middle of.

    Attributes:
        tables: float32, shape (agents * size of an agent's tables,).
        states: of their environments; agents along the first axis.
        rows: int32, shape (agents,), the row of what they observe.
        steps: int32, shape (agents,), since their episode began.
    """

    tables: jax.Array
    states: Any
    rows: jax.Array
    steps: jax.Array


class Trial(NamedTuple):
    """Agents that play without exploring or learning.

    Attributes:
        left: int32, shape (agents,), episodes that they have not finished.
        returns: float32, shape (agents,), sum of the rewards of those that counted.
        taken: int32, shape (agents,), steps of those.
    """

    agents: Agents
    left: jax.Array
    returns: jax.Array
    taken: jax.Array


@dataclass(frozen=True)
class Learner:
    """How agents learn in an environment whose observations and actions are choices.

    Attributes:
        limit: steps after which an episode is cut; 0 for never. The estimates of where it was cut
            count, unlike those of where it ended.
    """

    environment: Functional
    kind: Kind = "q-learning"
    exploration: Exploration = "epsilon-greedy"
    limit: int = 0

    @property
    def rows(self) -> int:
        """Of a table: one for each observation."""
        return math.prod(choices(self.environment.observation) or ())

    @property
    def actions(self) -> int:
        """Columns of a table."""
        return self.environment.action.size

    @property
    def tables(self) -> int:
        """Tables of an agent."""
        return 2 if self.kind == "double-q" else 1

    @property
    def size(self) -> int:
        """Numbers in an agent's tables."""
        return self.tables * self.rows * self.actions

    def begin(self, hyperparameters: Hyperparameters, keys: jax.Array) -> Agents:
        """Agents at the start of their first episode.

        Args:
            keys: uint32, shape (2, agents); see `bits`.
        """
        return Agents(jnp.repeat(hyperparameters.optimism, self.size), *self._start(keys))

    def train(
        self,
        agents: Agents,
        hyperparameters: Hyperparameters,
        keys: jax.Array,
        first: jax.Array,
        count: jax.Array,
    ) -> Agents:
        """The agents after so many steps more, whose numbers begin with `first`.

        Steps have their random words by their number, so that training may be cut anywhere.

        Args:
            keys: as those of `begin`.
            first, count: uint32, shape (): one program serves any number of steps.
        """

        def block(within: tuple[Agents, Hyperparameters, jax.Array]) -> Agents:
            agents, given, keys = within

            def body(number: jax.Array, agents: Agents) -> Agents:
                return self._learn(agents, given, keys, number)

            return lax.fori_loop(first, first + count, body, agents)

        many = agents.rows.size
        if many == 1:
            # As vectors of two they take a seventh of the time of one number after the other.
            pair = jax.tree.map(
                lambda leaf: jnp.concatenate([leaf, leaf]), (agents, hyperparameters)
            )
            trained = block((*pair, jnp.tile(keys, (1, 2))))
            return jax.tree.map(lambda leaf: leaf[: len(leaf) // 2], trained)
        size = math.gcd(many, BLOCK)
        if size == many or size < BLOCK // 8:
            return block((agents, hyperparameters, keys))
        apart = jax.tree.map(
            lambda leaf: leaf.reshape(many // size, -1, *leaf.shape[1:]), (agents, hyperparameters)
        )
        cut = jnp.moveaxis(keys.reshape(2, many // size, size), 1, 0)
        trained = lax.map(block, (*apart, cut))
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), trained)

    def trial(self, agents: Agents, keys: jax.Array, episodes: int) -> Trial:
        """The agents at the start of so many episodes in which they choose what they think best."""
        many = agents.rows.shape
        # Where training began otherwise: other starts, where these are drawn.
        start = Agents(agents.tables, *self._start(~keys))
        left = jnp.full(many, episodes, jnp.int32)
        return Trial(start, left, jnp.zeros(many), jnp.zeros(many, jnp.int32))

    def play(self, trial: Trial, keys: jax.Array, first: jax.Array, count: jax.Array) -> Trial:
        """The trial after so many steps more, with numbers as those of `train`.

        Agents that have finished all their episodes go on; nothing of it counts.
        """

        def body(number: jax.Array, trial: Trial) -> Trial:
            agents, playing = trial.agents, trial.left > 0
            draw = functools.partial(_draw, keys, number)
            action = best(self._values(agents.tables, self._at(agents.rows)), draw(0))
            moved, reward, _, over = self._step(agents, action, draw)
            return Trial(
                moved,
                trial.left - (playing & over),
                trial.returns + jnp.where(playing, reward, 0.0),
                trial.taken + playing,
            )

        return lax.fori_loop(first, first + count, body, trial)

    def value_maps(self, agents: Agents) -> jax.Array:
        """The largest estimate of each row, the mean of both tables where there are two; float32,
        shape (agents, rows)."""
        tables = agents.tables.reshape(-1, self.tables, self.rows, self.actions)
        return tables.mean(axis=1).max(axis=-1)

    def _start(self, keys: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """States, rows and steps at the start of episodes."""
        states, observations = jax.vmap(self.environment.reset)(_key(keys))
        return states, self._rows(observations), jnp.zeros(keys.shape[1], jnp.int32)

    def _learn(
        self, agents: Agents, given: Hyperparameters, keys: jax.Array, number: jax.Array
    ) -> Agents:
        """One step of each agent, and what it learns of it."""
        draw = functools.partial(_draw, keys, number)
        here = self._at(agents.rows)
        seen = self._columns(agents.tables, here)
        known = _mean_of_tables(seen, self.actions)
        if self.exploration == "softmax":
            action = softly(known, given.exploration, draw(0))
        else:
            action = greedily(known, given.exploration, draw(0), draw(1))
        moved, reward, (after, terminated), _ = self._step(agents, action, draw)
        ahead = self._columns(agents.tables, self._at(after))
        table = (draw(6) >> 31).astype(jnp.int32) if self.tables == 2 else jnp.int32(0)
        worth = self._worth(ahead, table, given.exploration)
        target = reward + given.discount * jnp.where(terminated, 0.0, worth)
        column = table * self.actions + action
        old = pick(seen, column)
        new = old + given.learning_rate * (target - old)
        place = here + table * (self.rows * self.actions) + action
        tables = agents.tables.at[place].set(
            new, mode="promise_in_bounds", unique_indices=True, indices_are_sorted=True
        )
        return moved._replace(tables=tables)

    def _worth(
        self, ahead: Sequence[jax.Array], table: jax.Array, exploration: jax.Array
    ) -> jax.Array:
        """What going on from there is worth, by the estimates for it."""
        if self.kind == "double-q":
            one, other = ahead[: self.actions], ahead[self.actions :]
            values = [jnp.where(table == 0, a, b) for a, b in zip(one, other, strict=True)]
            others = [jnp.where(table == 0, b, a) for a, b in zip(one, other, strict=True)]
            return pick(others, first_best(values))
        if self.kind == "expected-sarsa":
            if self.exploration == "softmax":
                weights = soft_weights(ahead, exploration)
                return total([w * a for w, a in zip(weights, ahead, strict=True)]) / total(weights)
            mean = total(ahead) / self.actions
            return largest_of(ahead) + exploration * (mean - largest_of(ahead))
        return largest_of(ahead)

    def _step(
        self, agents: Agents, action: jax.Array, draw: Callable[[int], jax.Array]
    ) -> tuple[Agents, jax.Array, tuple[jax.Array, jax.Array], jax.Array]:
        """The agents after an action, at the start of a new episode where one is over; rewards; the
        rows that they came to and whether the episode ended there; whether it is over."""
        space = self.environment.action
        assert isinstance(space, Discrete)
        key = _key(jnp.stack([draw(2), draw(3)]))
        states, observations, reward, terminated = jax.vmap(self.environment.step)(
            agents.states, action + space.start, key
        )
        after, steps = self._rows(observations), agents.steps + 1
        over = terminated | (steps >= self.limit) if self.limit else terminated
        fresh = self._start(jnp.stack([draw(4), draw(5)]))
        states, rows, steps = jax.tree.map(
            lambda begun, going: jnp.where(
                over.reshape(-1, *(1,) * (going.ndim - 1)), begun, going
            ),
            fresh,
            (states, after, steps),
        )
        return Agents(agents.tables, states, rows, steps), reward, (after, terminated), over

    def _at(self, rows: jax.Array) -> jax.Array:
        """Where in the array of all tables the agents' rows begin."""
        agents = jnp.arange(rows.size, dtype=jnp.int32)
        return agents * self.size + rows * self.actions

    def _columns(self, tables: jax.Array, at: jax.Array) -> list[jax.Array]:
        """The numbers in the rows that begin there, of one table and of the other."""
        apart = self.rows * self.actions
        return [
            tables.at[at + (table * apart + action)].get(mode="promise_in_bounds")
            for table in range(self.tables)
            for action in range(self.actions)
        ]

    def _values(self, tables: jax.Array, at: jax.Array) -> list[jax.Array]:
        return _mean_of_tables(self._columns(tables, at), self.actions)

    def _rows(self, observations: Any) -> jax.Array:
        """The rows of observations; agents along the first axis."""
        return jax.vmap(functools.partial(row, self.environment.observation))(observations)


def _mean_of_tables(columns: Sequence[jax.Array], actions: int) -> list[jax.Array]:
    tables = [columns[begin : begin + actions] for begin in range(0, len(columns), actions)]
    return [total(each) / len(tables) for each in zip(*tables, strict=True)]


def _draw(keys: jax.Array, number: jax.Array, place: int) -> jax.Array:
    """A word of a step."""
    return bits.words(keys, number * jnp.uint32(DRAWS) + jnp.uint32(place))


def _key(words: jax.Array) -> jax.Array:
    """Keys of JAX's own generator, shape (agents,), of words of shape (2, agents)."""
    return jax.random.wrap_key_data(words.T, impl="threefry2x32")
