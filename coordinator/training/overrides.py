"""What a program says of a run: a spec in any of its forms, and settings laid over it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypedDict

import numpy as np

from coordinator import settings
from coordinator.composing import Composed, compose
from coordinator.pool.presets import PRESETS
from protocol import registry
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.installed import granted
from protocol.spec import RunSpec, SpecError

Source: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | RunSpec"
"""The id of an environment, whose preset is taken; a run file; its values; or a whole spec."""
Table: TypeAlias = "Mapping[str, Any]"


class Overrides(TypedDict, total=False):
    """Settings by name, as the options of `shoal host` are called, or whole tables of the run
    spec, of which only what is named there changes.

    `None` says that nothing is to be: `target=None` trains on beyond a preset's target.
    """

    name: str
    seed: int
    environment: Table
    objective: str | Table
    parameters: int
    minimise: bool
    policy: str | Table
    hidden: Sequence[int]
    strategy: str | Table
    shaping: str
    population: int
    sigma: float
    noise: str
    optimizer: str | Table
    learning_rate: float
    normalize: bool
    normalizer: Table
    pool: str | Table
    quorum: float
    max_staleness: int
    centre: Table
    stop: Table
    target: float | None
    updates: int | None
    episodes: int | None
    steps: int | None
    seconds: float | None
    preset: str
    init: str | os.PathLike[str]


NAMES = tuple(Overrides.__annotations__)
TABLES = (
    "environment",
    "objective",
    "policy",
    "strategy",
    "optimizer",
    "normalizer",
    "pool",
    "centre",
    "stop",
)
NOTHING: Mapping[str, Any] = MappingProxyType({})


def composed(
    source: Source | None, overrides: Mapping[str, Any] = NOTHING, modules: Sequence[str] = ()
) -> Composed:
    """The run that a program wants; may ask processes of its own, for seconds.

    modules: that environments, policies and objectives may be imported from.

    Raises `ShoalError` with the field, the value, the rule and the remedy.
    """
    allowed = allow(modules)
    values = spec_values(overrides)
    init, preset = overrides.get("init"), overrides.get("preset")
    if not isinstance(preset, str | None):
        raise SpecError(f"preset is {preset!r:.60}: must be the id of an environment, or 'none'")
    return compose(
        _base(source),
        values,
        allowed=allowed,
        init=None if init is None else path_of("init", init),
        preset=preset,
    )


def allow(modules: Sequence[str]) -> tuple[str, ...]:
    """Modules that this process and those it starts may import from now on. Raises `ShoalError`
    where one is not to be found."""
    if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
        raise ShoalError(f"environments={modules!r:.80}: must be a list of names of modules")
    if "__main__" in modules:
        raise ShoalError(
            "environments has '__main__': workers can't import what a script or notebook itself "
            "defines; move it to a file beside, and give that one's name"
        )
    allowed = granted(modules, "environments")
    registry.allow(allowed)
    return allowed


def spec_values(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The spec values, table by table, of overrides. Raises `SpecError` for an unknown name."""
    for name in overrides:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, 1)
            raise SpecError(
                f"{name[:60]!r} is no setting of a run: "
                + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMES)}")
            )
    said = {name: _plain(value) for name, value in overrides.items()}
    if "environment" in said and not isinstance(said["environment"], Mapping):
        raise SpecError(
            f"environment is {said['environment']!r:.60}: must be a table of values; the modules "
            "that workers may import are environments=[...]"
        )
    tables = {
        name: value
        for name, value in said.items()
        if name in TABLES and (isinstance(value, Mapping) or name not in settings.FIELDS)
    }
    if isinstance(pool := tables.get("pool"), str):
        tables["pool"] = _pool(pool)
    short = {name: value for name, value in said.items() if name not in tables}
    return run_spec.merge(tables, settings.spec_values(short))


def _pool(name: str) -> Mapping[str, Any]:
    """The settings of the pool of that name. Raises `SpecError`."""
    if name not in PRESETS:
        raise SpecError(f"pool is {name[:40]!r}: must be one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy's, wherever they are, as Python's."""
    match value:
        case np.generic() | np.ndarray():
            return value.tolist()
        case Mapping():
            return {key: _plain(within) for key, within in value.items()}
        case list() | tuple():
            return [_plain(within) for within in value]
    return value


def _base(source: Source | None) -> str | Mapping[str, Any] | None:
    """What a run begins with, as `compose` takes it. Raises `SpecError`."""
    match source:
        case None | str():
            return source
        case RunSpec():
            return run_spec.to_plain(source)
        case Mapping():
            values: Mapping[str, Any] = _plain(source)
            return values
        case os.PathLike():
            path = path_of("spec", source)
            if path.suffix != ".toml":
                raise SpecError(f"spec {str(path)[:80]!r}: a run file ends in .toml")
            return str(path)
    raise SpecError(
        f"spec is of type {type(source).__name__}: must be the id of an environment, the path of a "
        "run file, a mapping of its values, or a RunSpec"
    )


def path_of(name: str, value: Any) -> Path:
    """The path that an argument of that name is. Raises `SpecError`."""
    try:
        return Path(value)
    except TypeError:
        raise SpecError(f"{name} is {value!r:.80}: must be a path") from None
