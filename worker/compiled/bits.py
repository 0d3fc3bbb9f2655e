"""Random words by number: a cheap generator for what is drawn at every step.

Word `c` of a key `(a, b)` of two 32-bit words is mix(mix(c * 0x9E3779B9 + a) ^ b), where `mix`
is a finaliser of two multiplications in the manner of MurmurHash3's, with the constants that
C. Wellons found to spread bits most evenly. There is no state: any word can be had alone. It is no
generator for secrets; JAX's own (threefry) takes ten times as long.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

STRIDE = 0x9E3779B9
ONE = 1.0 / (1 << 24)


def mix(word: jax.Array) -> jax.Array:
    """Another word for each of these, uint32; every bit depends on all of them."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)


def words(keys: jax.Array, number: jax.Array) -> jax.Array:
    """The word of that number of each key.

    Args:
        keys: uint32, shape (2, k).
        number: uint32, shape () or (k,); numbers begin anew after 2**32.

    Returns:
        uint32, shape (k,).
    """
    return mix(mix(number * jnp.uint32(STRIDE) + keys[0]) ^ keys[1])


def uniform(word: jax.Array) -> jax.Array:
    """Float32 in [0, 1) of the upper 24 bits."""
    return (word >> 8).astype(jnp.float32) * jnp.float32(ONE)


def below(word: jax.Array, many: jax.Array) -> jax.Array:
    """One of `many` numbers from 0 on, of the lower 16 bits; each is as likely but for 2**-16.

    Args:
        many: uint32, at most 2**16.
    """
    return ((word & 0xFFFF) * many) >> 16


def keys(seed: jax.Array, many: int) -> jax.Array:
    """So many keys of a seed, by threefry.

    Args:
        seed: int or uint32, shape ().

    Returns:
        uint32, shape (2, many).
    """
    return jax.random.bits(jax.random.key(seed), (many, 2), jnp.uint32).T
