"""Whose environment an id means, by what it begins with."""

from __future__ import annotations

GYMNASIUM = "gymnasium"
JAX = "jax"
PREFIXES = ("gymnax", "brax", "playground", "jax")
"""Before the colon of an id: of environments that JAX compiles."""


def of(environment_id: str) -> str:
    """The backend that an id names, where nobody says another."""
    prefix, colon, _ = environment_id.partition(":")
    return JAX if colon and prefix in PREFIXES else GYMNASIUM


def bare(environment_id: str) -> str:
    """An id without such a prefix."""
    return environment_id.partition(":")[2] if of(environment_id) == JAX else environment_id


def fault(backend: str, environment_id: str) -> str:
    """What is wrong with an id of a backend, and what to do; empty where nothing is."""
    if backend == JAX and ":" in environment_id and of(environment_id) != JAX:
        return (
            f'environment.id is {environment_id!r}: one of backend "jax" is '
            f"{', '.join(f'{prefix}:NAME' for prefix in PREFIXES)}, or the NAME of one of ours"
        )
    if backend == GYMNASIUM and of(environment_id) == JAX:
        return (
            f'environment.id is {environment_id!r} with environment.backend "gymnasium": set the '
            f'backend to "jax", or use the id {bare(environment_id)!r}'
        )
    return ""
