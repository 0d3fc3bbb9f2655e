"""Evolution strategies by name: how returns become integer weights."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import ShoalError
from protocol.strategies.base import SHARES, Cohort, Strategy, Weighting, multiplier
from protocol.strategies.openai_es import OpenAIES

__all__ = [
    "SHARES",
    "STRATEGIES",
    "Cohort",
    "OpenAIES",
    "Strategy",
    "Weighting",
    "get",
    "multiplier",
]

STRATEGIES: Mapping[str, type[Strategy]] = {strategy.kind: strategy for strategy in (OpenAIES,)}


def get(kind: str) -> type[Strategy]:
    """The strategy of that name. Raises ShoalError for a name that is not registered."""
    try:
        return STRATEGIES[kind]
    except KeyError:
        names = ", ".join(STRATEGIES)
        raise ShoalError(f"strategy {kind!r}: must be one of {names}") from None
