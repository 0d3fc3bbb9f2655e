"""Short names of what people set most of a run, as flags and keywords have them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "name": "name",
        "seed": "seed",
        "objective": "objective.function",
        "parameters": "objective.parameters",
        "minimise": "objective.goal",
        "policy": "policy.kind",
        "hidden": "policy.hidden",
        "strategy": "strategy.kind",
        "shaping": "strategy.shaping",
        "population": "strategy.population",
        "sigma": "strategy.sigma",
        "noise": "strategy.noise",
        "optimizer": "optimizer.kind",
        "learning_rate": "optimizer.learning_rate",
        "normalize": "normalizer.enabled",
        "quorum": "pool.quorum",
        "max_staleness": "pool.max_staleness",
        "target": "stop.target",
        "updates": "stop.updates",
        "episodes": "stop.episodes",
        "steps": "stop.steps",
        "seconds": "stop.seconds",
    }
)
"""The field of the run spec that each is short for."""


def spec_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The spec values, table by table, that settings stand for; those of other names stand for
    none."""
    values: dict[str, Any] = {}
    for short, field in FIELDS.items():
        if short in given:
            for place, value in _values(short, field, given[short]).items():
                *table, name = place.split(".")
                (values.setdefault(table[0], {}) if table else values)[name] = value
    return values


def _values(short: str, field: str, value: Any) -> dict[str, Any]:
    """What one of them stands for, by field."""
    if short == "policy" and isinstance(value, str) and ":" in value:
        return {field: "module", "policy.module": value}
    if short == "minimise":
        return {field: "minimise" if value else "maximise"}
    return {field: value}
