"""Q-learning in the usual manner of JAX tutorials: one compiled loop that keeps its whole history.

A stand-in, of our own code, for the published loop of jax_rl: agents vectorised by `vmap` over the
last axis, a key of threefry split at every step, and the tables of every step kept. It counts what
lies behind the end of an episode, as the published one does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

ROWS, COLUMNS, ACTIONS = 8, 12, 4
LEARNING_RATE, DISCOUNT, EPSILON = 0.1, 0.9, 0.1
MOVES = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
START = jnp.array([ROWS - 1, COLUMNS - 1])


def choose(key: Any, state: Any, table: Any) -> tuple[Any, Any]:
    """An action, epsilon-greedy with a random tie-break, and the next key."""
    key, drawn = jax.random.split(key)
    values = table[state[0], state[1]]

    def any_action(drawn: Any) -> Any:
        return jax.random.randint(drawn, (), 0, ACTIONS)

    def best_action(drawn: Any) -> Any:
        best = values == values.max()
        return jax.random.choice(drawn, ACTIONS, p=best / best.sum())

    explores = jax.random.uniform(key) < EPSILON
    return lax.cond(explores, any_action, best_action, drawn), drawn


def move(state: Any, action: Any) -> tuple[Any, Any, Any]:
    """The next state, which is the start where the goal was reached; reward; whether it was."""
    to = jnp.clip(state + MOVES[action], 0, jnp.array([ROWS - 1, COLUMNS - 1]))
    over = jnp.all(to == 0)
    return jnp.where(over, START, to), over.astype(jnp.float32), over


def learn(state: Any, action: Any, reward: Any, after: Any, table: Any) -> Any:
    """The table after a step."""
    old = table[state[0], state[1], action]
    target = reward + DISCOUNT * table[after[0], after[1]].max()
    return table.at[state[0], state[1], action].set(old + LEARNING_RATE * (target - old))


def rollout(key: Any, agents: int, steps: int) -> Any:
    """The tables of every step, shape (steps + 1, rows, columns, actions, agents)."""
    acts = jax.vmap(choose, in_axes=(0, 0, -1))
    moves = jax.vmap(move)
    learns = jax.vmap(learn, in_axes=(0, 0, 0, 0, -1), out_axes=-1)

    def body(number: Any, carried: tuple[Any, ...]) -> tuple[Any, ...]:
        states, keys, history, rewards, overs = carried
        tables = history[number]
        actions, keys = acts(keys, states, tables)
        after, reward, over = moves(states, actions)
        tables = learns(states, actions, reward, after, tables)
        return (
            after,
            keys,
            history.at[number + 1].set(tables),
            rewards.at[number].set(reward),
            overs.at[number].set(over),
        )

    states = jnp.tile(START, (agents, 1))
    history = jnp.zeros((steps + 1, ROWS, COLUMNS, ACTIONS, agents))
    rewards = jnp.zeros((steps, agents))
    overs = jnp.zeros((steps, agents), bool)
    keys = jax.random.split(key, agents)
    return lax.fori_loop(0, steps, body, (states, keys, history, rewards, overs))[2]
