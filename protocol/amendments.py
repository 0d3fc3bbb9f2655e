"""Which settings of a run may change while it goes on, and what then holds from which version on.

An update k that carries amendments leads to version k + 1, and from that on they hold. The batch is
the exception: directions of batch k + 1 may have been given out before the update was made, so
`strategy.population` holds from batch k + 2 on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from protocol import spec as run_spec
from protocol.amended import NOTHING, Amended
from protocol.batches import Layout
from protocol.packing import WireError
from protocol.spec import RunSpec, SpecError

POPULATION, TARGET = "strategy.population", "stop.target"
WHOLE = (
    POPULATION,
    "stop.updates",
    "stop.episodes",
    "stop.steps",
    "pool.copies",
)
"""Settings that are whole numbers; amendments are float64 all the same."""
AMENDABLE = (
    POPULATION,
    "optimizer.learning_rate",
    TARGET,
    "stop.confidence",
    "stop.updates",
    "stop.episodes",
    "stop.steps",
    "stop.seconds",
    "pool.quorum",
    "pool.patience",
    "pool.copies",
    "pool.stale_share",
    "pool.task_seconds",
    "pool.minimum_task_seconds",
    "pool.lease_floor",
)
"""Fields of the run spec that may change. All others decide how states follow one another, or what
volunteers agreed to evaluate."""
BATCHES_AHEAD = 2
"""The first batch of the size that update k tells is k + this: no direction of it is given out."""


def amend(spec: RunSpec, held: Amended, version: int, changes: Mapping[str, float]) -> Amended:
    """What holds after update `version`, which carries these changes; before it, `held` does.

    Raises `SpecError` with field, value, rule and remedy where the run can't have that.
    """
    if not changes:
        return held
    for label, value in changes.items():
        _require_amendable(label, value)
    values = {**dict(held.values), **{label: value + 0.0 for label, value in changes.items()}}
    before, after = in_force(spec, held), _with(spec, values)
    layout = held.layout
    if after.directions != before.directions:
        known = layout or Layout.even(spec.directions)
        layout = known.resized(version + BATCHES_AHEAD, after.directions)
    return Amended(tuple(sorted(values.items())), layout)


def in_force(spec: RunSpec, held: Amended) -> RunSpec:
    """The spec with the settings that hold. Raises `SpecError` as `amend`."""
    return spec if not held.values else _with(spec, dict(held.values))


def layout(spec: RunSpec, held: Amended) -> Layout:
    """Which directions the batches have, those alone whose returns may still count."""
    return Layout.even(spec.directions) if held.layout is None else held.layout


def check(spec: RunSpec, version: int, held: Amended) -> None:
    """Raises `WireError` for settings, of a state from the wire, that this version of the run can't
    have."""
    if held == NOTHING:
        return
    try:
        for label, value in held.values:
            _require_amendable(label, value)
        now = in_force(spec, held)
    except SpecError as error:
        raise WireError(f"a state with settings that the run can't have: {error}") from None
    known = layout(spec, held)
    first, last = known.stretches[0], known.stretches[-1]
    if last.count != now.directions or known.most > run_spec.MAX_DIRECTIONS:
        raise WireError("a state whose batches have another size than its settings say")
    if first.index > version or last.index > version + BATCHES_AHEAD - 1:
        raise WireError("a state whose batches change before anybody can have said so")


def holds_from(label: str, version: int) -> int:
    """The first version that a change of update `version` holds at."""
    return version + (BATCHES_AHEAD if label == POPULATION else 1)


def shown(label: str, value: float | None) -> str:
    """A setting's value for people."""
    if value is None:
        return "none"
    return f"{value:.0f}" if label in WHOLE else f"{value:.12g}"


def value_of(spec: RunSpec, label: str) -> float | None:
    """What a spec says of a field that may change; None where it says nothing."""
    table, name = label.split(".")
    value = getattr(getattr(spec, table), name)
    return None if value is None else float(value)


def _require_amendable(label: str, value: float) -> None:
    if label not in AMENDABLE:
        raise SpecError(
            f"{label[:64]!a} can't change while a run goes on: give one of "
            f"{', '.join(AMENDABLE)}, or begin a new run of any version with `shoal fork --set`"
        )
    if not math.isfinite(value):
        raise SpecError(f"{label} is {value}: must be finite")


def _with(spec: RunSpec, values: Mapping[str, float]) -> RunSpec:
    changes: dict[str, Any] = {}
    for label, value in values.items():
        table, name = label.split(".")
        whole = label in WHOLE and value.is_integer()
        changes.setdefault(table, {})[name] = int(value) if whole else value
    return run_spec.parse(run_spec.merge(run_spec.to_plain(spec), changes))
