"""How agents choose actions by what they estimate them to be worth.

Values come as a list with an array for each action, float32 of shape (agents,): so a step of all
agents is computed in a few passes, without a table of its own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from worker.compiled import bits


def best(values: Sequence[jax.Array], word: jax.Array) -> jax.Array:
    """For each agent an action with the largest value: any of those, where there are several."""
    largest = largest_of(values)
    return any_of([value == largest for value in values], word)


def greedily(
    values: Sequence[jax.Array], epsilon: jax.Array, coin: jax.Array, word: jax.Array
) -> jax.Array:
    """For each agent a best action, or with probability epsilon one of all."""
    largest, explores = largest_of(values), bits.uniform(coin) < epsilon
    return any_of([(value == largest) | explores for value in values], word)


def softly(values: Sequence[jax.Array], temperature: jax.Array, word: jax.Array) -> jax.Array:
    """For each agent an action, as likely as the softmax of values / temperature says."""
    weights = soft_weights(values, temperature)
    drawn = bits.uniform(word) * total(weights)
    chosen, passed = jnp.zeros(word.shape, jnp.int32), jnp.zeros_like(drawn)
    for weight in weights[:-1]:
        passed = passed + weight
        chosen = chosen + (drawn >= passed)
    return chosen


def soft_weights(values: Sequence[jax.Array], temperature: jax.Array) -> list[jax.Array]:
    """What the softmax of values / temperature has of each action, before it is divided by all."""
    largest = largest_of(values)
    return [jnp.exp((value - largest) / temperature) for value in values]


def any_of(among: Sequence[jax.Array], word: jax.Array) -> jax.Array:
    """The place of one of those that are true, each as likely; at least one is."""
    many = total([true.astype(jnp.uint32) for true in among])
    wanted = bits.below(word, many)
    chosen, passed = jnp.zeros(word.shape, jnp.int32), jnp.zeros_like(wanted)
    for place, true in enumerate(among):
        chosen = jnp.where(true & (passed == wanted), place, chosen)
        passed = passed + true.astype(jnp.uint32)
    return chosen


def first_best(values: Sequence[jax.Array]) -> jax.Array:
    """For each agent the first action with the largest value."""
    largest, place = values[0], jnp.zeros(values[0].shape, jnp.int32)
    for number, value in enumerate(values[1:], start=1):
        place = jnp.where(value > largest, number, place)
        largest = jnp.maximum(largest, value)
    return place


def pick(values: Sequence[jax.Array], place: jax.Array) -> jax.Array:
    """Of each agent's values the one at its place."""
    picked = values[0]
    for number, value in enumerate(values[1:], start=1):
        picked = jnp.where(place == number, value, picked)
    return picked


def largest_of(values: Sequence[jax.Array]) -> jax.Array:
    """Each agent's largest value."""
    return functools.reduce(jnp.maximum, values)


def total(values: Sequence[jax.Array]) -> jax.Array:
    """Each agent's values, added up in their order."""
    return functools.reduce(operator.add, values)
