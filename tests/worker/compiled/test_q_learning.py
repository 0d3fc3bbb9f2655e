"""Tabular learners: each update by hand, what draws actions, and what training leaves alone."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.spaces import Discrete, MultiDiscrete, Tuple
from worker.compiled import bits, cliff_walking, exploring, grid_world, q_learning, rows
from worker.compiled.environment import Functional
from worker.compiled.q_learning import Agents, Hyperparameters, Learner

ROWS, COLUMNS = 2, 3
SMALL = grid_world.make(rows=ROWS, columns=COLUMNS, step_cost=0.125, limit=0)


def given(
    agents: int, discount: float = 0.9, exploration: float = 0.3, optimism: float = 0.0
) -> Hyperparameters:
    """The same for each of these agents, with a learning rate of a half."""
    each = (0.5, discount, exploration, optimism)
    return Hyperparameters(*(jnp.full(agents, value, jnp.float32) for value in each))


@functools.cache
def trainer(learner: Learner) -> Any:
    """Its training, compiled once for each number of agents."""
    return jax.jit(learner.train)


def trained(
    learner: Learner, hyperparameters: Hyperparameters, keys: Any, steps: int, cut: int = 0
) -> Agents:
    """Agents after so many steps; in two goes, where `cut` says where."""
    agents = jax.jit(learner.begin)(hyperparameters, keys)
    for first, last in ((0, cut), (cut, steps)) if cut else ((0, steps),):
        span = jnp.uint32(first), jnp.uint32(last - first)
        agents = trainer(learner)(agents, hyperparameters, keys, *span)
    return agents


def mixed(word: int) -> int:
    """The finaliser of the generator, in plain numbers."""
    word = ((word ^ word >> 16) * 0x7FEB352D) % 2**32
    word = ((word ^ word >> 15) * 0x846CA68B) % 2**32
    return word ^ word >> 16


class ByHand:
    """One agent, whose tables are plain arrays, and whose words are those of its key."""

    def __init__(self, learner: Learner, each: tuple[float, float, float], key: Any) -> None:
        self.learner, self.key = learner, key
        self.rate, self.discount, self.exploration = each
        self.tables = np.zeros((learner.tables, ROWS * COLUMNS, 4))
        self.cell, self.steps = ROWS * COLUMNS - 1, 0

    def word(self, number: int, place: int) -> int:
        counted = (number * q_learning.DRAWS + place) * 0x9E3779B9 + int(self.key[0])
        return mixed(mixed(counted % 2**32) ^ int(self.key[1]))

    def step(self, number: int) -> None:
        known = self.tables.mean(axis=0)[self.cell]
        first, second = self.word(number, 0), self.word(number, 1)
        if self.learner.exploration == "softmax":
            weights = np.exp((known - known.max()) / self.exploration)
            drawn = (first >> 8) / 2**24 * weights.sum()
            action = int((drawn >= np.cumsum(weights)[:-1]).sum())
        else:
            explores = (first >> 8) / 2**24 < self.exploration
            among = range(4) if explores else np.flatnonzero(known == known.max())
            action = int(among[(second & 0xFFFF) * len(among) >> 16])
        down, right = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
        row, column = divmod(self.cell, COLUMNS)
        to = (row + down, column + right)
        inside = 0 <= to[0] < ROWS and 0 <= to[1] < COLUMNS
        after = to[0] * COLUMNS + to[1] if inside else self.cell
        reward, over = (after == 0) - 0.125, after == 0
        table = self.word(number, 6) >> 31 if len(self.tables) == 2 else 0
        ahead = self.tables[:, after]
        if self.learner.kind == "double-q":
            worth = ahead[1 - table][np.argmax(ahead[table])]
        elif self.learner.kind == "q-learning":
            worth = ahead[0].max()
        elif self.learner.exploration == "softmax":
            weights = np.exp((ahead[0] - ahead[0].max()) / self.exploration)
            worth = (weights * ahead[0]).sum() / weights.sum()
        else:
            worth = self.exploration * ahead[0].mean() + (1 - self.exploration) * ahead[0].max()
        target = reward + (0.0 if over else self.discount * worth)
        self.tables[table, self.cell, action] += self.rate * (
            target - self.tables[table, self.cell, action]
        )
        self.steps += 1
        cut = bool(self.learner.limit) and self.steps == self.learner.limit
        self.cell, self.steps = (ROWS * COLUMNS - 1, 0) if over or cut else (after, self.steps)


@pytest.mark.parametrize(
    ("kind", "exploration"),
    [
        ("q-learning", "epsilon-greedy"),
        ("q-learning", "softmax"),
        ("expected-sarsa", "epsilon-greedy"),
        ("expected-sarsa", "softmax"),
        ("double-q", "epsilon-greedy"),
    ],
)
def test_each_kind_learns_as_it_does_by_hand(kind: Any, exploration: Any) -> None:
    learner = Learner(SMALL, kind, exploration, limit=9)
    keys = bits.keys(jnp.uint32(4), 8)
    agents = trained(learner, given(8), keys, 60)
    tables = np.asarray(agents.tables).reshape(8, learner.tables, -1, 4)
    ends = 0
    for agent in range(8):
        one = ByHand(learner, (0.5, 0.9, 0.3), np.asarray(keys)[:, agent])
        for number in range(60):
            one.step(number)
            ends += one.steps == 0
        np.testing.assert_allclose(tables[agent], one.tables, rtol=1e-5, atol=1e-6)
        assert (agents.rows[agent], agents.steps[agent]) == (one.cell, one.steps)
    assert ends > 30


def test_no_estimate_is_above_what_there_is_to_get() -> None:
    """A reward of 1 at the end is all: who counts what lies behind the end, be it the next start
    or the goal, of which the optimist thinks well, gets more."""
    learner = Learner(grid_world.make(limit=0), limit=0)
    keys, hyperparameters = bits.keys(jnp.uint32(1), 30), given(30, discount=0.99, optimism=1.0)
    agents = trained(learner, hyperparameters, keys, 60_000)
    largest = np.asarray(learner.value_maps(agents)).max(axis=0)
    assert largest.max() <= 1.0
    np.testing.assert_allclose(largest[[1, 12]], 1.0)
    # The start is 18 moves away, the last of which has the reward.
    np.testing.assert_allclose(largest[95], 0.99**17, rtol=0.02)


def test_where_an_episode_is_cut_the_estimates_go_on() -> None:
    """A reward of 1 for ever, by half less a step later, is worth 2: though each is cut at once."""
    nowhere = jnp.int32(0), jnp.int32(0)
    endless = Functional(
        Discrete(n=1),
        Discrete(n=2),
        0,
        lambda key: nowhere,
        lambda state, action, key: (*nowhere, jnp.float32(1.0), jnp.bool_(False)),
    )
    keys = bits.keys(jnp.uint32(1), 4)
    agents = trained(Learner(endless, limit=1), given(4, discount=0.5), keys, 400)
    np.testing.assert_array_equal(agents.steps, 0)
    np.testing.assert_allclose(agents.tables, 2.0, rtol=1e-3)


@pytest.fixture(scope="module")
def along_the_cliff() -> tuple[Learner, Hyperparameters, Any, Agents]:
    """Forty agents after 500 steps along the cliff, in one go."""
    learner = Learner(cliff_walking.make(), "double-q", limit=50)
    keys, hyperparameters = bits.keys(jnp.uint32(9), 40), given(40)
    return learner, hyperparameters, keys, trained(learner, hyperparameters, keys, 500)


def test_training_may_be_cut_anywhere(along_the_cliff: tuple[Any, ...]) -> None:
    learner, hyperparameters, keys, whole = along_the_cliff
    again = trained(learner, hyperparameters, keys, 500, cut=123)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_seed_learns_otherwise(along_the_cliff: tuple[Any, ...]) -> None:
    learner, hyperparameters, _, whole = along_the_cliff
    other = trained(learner, hyperparameters, bits.keys(jnp.uint32(10), 40), 500)
    assert not np.array_equal(whole.tables, other.tables)
    assert len({agent.tobytes() for agent in np.asarray(whole.tables).reshape(40, -1)}) == 40


def test_who_is_beside_an_agent_makes_no_difference() -> None:
    """Be they so many that they are stepped in blocks, few, or none."""
    learner = Learner(SMALL, limit=20)
    keys = bits.keys(jnp.uint32(2), 512)
    many = trained(learner, given(512), keys, 300)
    few = trained(learner, given(40), keys[:, 472:], 300)
    np.testing.assert_array_equal(many.tables.reshape(512, -1)[472:].ravel(), few.tables)
    np.testing.assert_array_equal(many.rows[472:], few.rows)
    alone = trained(learner, given(1), keys[:, 511:], 300)
    np.testing.assert_array_equal(alone.tables, few.tables[-24:])
    assert alone.rows.shape == (1,)


def test_memory_does_not_grow_with_the_steps() -> None:
    """One program serves any number of steps, and needs less than the tables beside them."""
    learner = Learner(SMALL, limit=20)
    hyperparameters, keys = given(40), bits.keys(jnp.uint32(2), 40)
    agents = learner.begin(hyperparameters, keys)
    arguments = agents, hyperparameters, keys, jnp.uint32(0), jnp.uint32(1)
    compiled = trainer(learner).lower(*arguments).compile()
    needed = compiled.memory_analysis()
    tables = agents.tables.nbytes
    assert needed.temp_size_in_bytes < 2 * tables + 64 * 1024
    assert needed.output_size_in_bytes < 2 * tables + 1024
    for steps in (100, 1000, 10_000):
        agents = compiled(agents, hyperparameters, keys, jnp.uint32(0), jnp.uint32(steps))
    assert np.isfinite(agents.tables).all()


def test_trials_play_what_was_learned_and_count_so_many_episodes() -> None:
    learner = Learner(SMALL, limit=20)
    keys = bits.keys(jnp.uint32(3), 32)
    agents = trained(learner, given(32), keys, 3000)
    play = jax.jit(learner.play)
    begin = jax.jit(learner.trial, static_argnums=2)
    trial = play(begin(agents, keys, 5), keys, jnp.uint32(3000), jnp.uint32(7))
    assert (np.asarray(trial.left) > 0).all()
    trial = play(trial, keys, jnp.uint32(3007), jnp.uint32(60))
    np.testing.assert_array_equal(trial.left, 0)
    # Three moves to the goal: five times.
    np.testing.assert_array_equal(trial.taken, 15)
    np.testing.assert_allclose(trial.returns, 5 * (1.0 - 3 * 0.125), rtol=1e-6)
    np.testing.assert_array_equal(trial.agents.tables, agents.tables)


def test_who_never_finds_the_goal_is_cut_in_a_trial() -> None:
    learner = Learner(SMALL, limit=4)
    keys = bits.keys(jnp.uint32(3), 32)
    agents = learner.begin(given(32), keys)
    # Who thinks that running against the right wall is best.
    stubborn = agents._replace(tables=jnp.tile(jnp.array([1.0, 0, 0, 0]), 32 * ROWS * COLUMNS))
    trial = jax.jit(learner.play)(
        learner.trial(stubborn, keys, 2), keys, jnp.uint32(0), jnp.uint32(9)
    )
    np.testing.assert_array_equal(trial.taken, 8)
    np.testing.assert_allclose(trial.returns, -8 * 0.125)


def words(many: int, number: int) -> jax.Array:
    """So many words of as many keys."""
    return jax.jit(bits.words)(bits.keys(jnp.uint32(6), many), jnp.uint32(number))


def shares(actions: jax.Array, many: int = 4) -> NDArray[np.float64]:
    return np.bincount(np.asarray(actions), minlength=many) / actions.size


def of(*values: float) -> list[jax.Array]:
    """These for each of 40,000 agents."""
    return [jnp.full(40_000, value, jnp.float32) for value in values]


def test_of_equally_good_actions_each_is_as_likely() -> None:
    chosen = shares(jax.jit(exploring.best)(of(1.0, 3.0, 3.0, 3.0), words(40_000, 1)))
    np.testing.assert_allclose(chosen, [0.0, 1 / 3, 1 / 3, 1 / 3], atol=0.01)


def test_epsilon_is_the_share_of_actions_drawn_from_all() -> None:
    epsilon = jnp.full(40_000, 0.4, jnp.float32)
    drawn = words(40_000, 1), words(40_000, 2)
    chosen = shares(jax.jit(exploring.greedily)(of(0.0, 2.0, 2.0, -1.0), epsilon, *drawn))
    np.testing.assert_allclose(chosen, [0.1, 0.4, 0.4, 0.1], atol=0.01)


def test_softmax_draws_by_its_probabilities() -> None:
    temperature = jnp.full(40_000, 0.5, jnp.float32)
    chosen = shares(
        jax.jit(exploring.softly)(of(0.0, 0.5, 1.0, -50.0), temperature, words(40_000, 1))
    )
    expected = np.exp([0.0, 1.0, 2.0, -100.0]) / np.exp([0.0, 1.0, 2.0, -100.0]).sum()
    np.testing.assert_allclose(chosen, expected, atol=0.01)


def test_words_are_spread_over_keys_and_numbers() -> None:
    keys = bits.keys(jnp.uint32(6), 64)
    every = jax.vmap(bits.words, in_axes=(None, 0))
    table = np.asarray(jax.jit(every)(keys, jnp.arange(256, dtype=jnp.uint32)))
    assert np.unique(table).size > 0.999 * table.size
    ones = np.unpackbits(table.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    np.testing.assert_allclose(ones, 0.5, atol=0.02)
    series = (table - table.mean(axis=0)) / table.std(axis=0)
    together = np.abs(series.T @ series / 256 - np.eye(64))
    assert together.max() < 0.35  # of 2,016 pairs, with a deviation of 1/16
    assert np.abs((series[1:] * series[:-1]).mean()) < 0.03


def test_rows_of_several_choices_count_the_last_first() -> None:
    space = Tuple(spaces=(Discrete(n=3, start=1), MultiDiscrete(choices=(4, 5), shape=(2,))))
    seen = (jnp.int32(2), jnp.array([3, 1]))
    assert rows.row(space, seen) == (1 * 4 + 3) * 5 + 1
