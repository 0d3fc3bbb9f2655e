"""Evolution strategies by name: how returns become integer weights, and these a next state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.errors import ShoalError
from protocol.strategies.ars import ARS
from protocol.strategies.base import (
    SHARES,
    STRATEGIES,
    Adapted,
    Cohort,
    Gradient,
    Returns,
    Situation,
    Strategy,
    Sums,
    Weighting,
    hyperparameters,
    multiplier,
    strategy,
)
from protocol.strategies.cem import CEM
from protocol.strategies.hill_climbing import HillClimbing
from protocol.strategies.openai_es import OpenAIES
from protocol.strategies.pgpe import PGPE
from protocol.strategies.random_search import RandomSearch
from protocol.strategies.sep_cma import SepCMA
from protocol.strategies.shapings import SHAPINGS, Shaped, Shaping, quantised, shape, shaping
from protocol.strategies.snes import SNES

__all__ = [
    "ARS",
    "CEM",
    "PGPE",
    "SHAPINGS",
    "SHARES",
    "SNES",
    "STRATEGIES",
    "Adapted",
    "Cohort",
    "Gradient",
    "HillClimbing",
    "OpenAIES",
    "RandomSearch",
    "Returns",
    "SepCMA",
    "Shaped",
    "Shaping",
    "Situation",
    "Strategy",
    "Sums",
    "Weighting",
    "get",
    "hyperparameters",
    "make",
    "multiplier",
    "quantised",
    "shape",
    "shaping",
    "strategy",
]


def get(kind: str) -> type[Strategy]:
    """The strategy of that name. Raises ShoalError for a name that is not registered."""
    return STRATEGIES.find(kind)


def make(kind: str, values: Mapping[str, Any]) -> Strategy:
    """A strategy from a table of hyperparameters, of which it takes those that are its own.

    Raises:
        ShoalError: an unknown kind, or a hyperparameter out of range.
    """
    chosen = get(kind)
    own = hyperparameters(chosen)
    taken = {name: value for name, value in values.items() if name in own and value is not None}
    try:
        return chosen(**taken)
    except (TypeError, ValueError) as error:
        raise ShoalError(f"strategy {kind!r} refuses its fields: {error}") from None
