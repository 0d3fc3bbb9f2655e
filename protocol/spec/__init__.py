"""The run spec: everything that defines a run, in one validated model that never changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol import objective, optimizers
from protocol.errors import ShoalError
from protocol.mistakes import explain
from protocol.packing import WireError, unpack
from protocol.spec.checks import check
from protocol.spec.files import load, merge, settings, to_toml
from protocol.spec.run import (
    RunSpec,
    outputs,
    seen_choices,
    seen_image,
    tensors,
    to_bytes,
    to_plain,
)
from protocol.spec.sections import (
    LONGEST_EPISODE,
    MAX_DIRECTIONS,
    MAX_PARAMETERS,
    MAX_POPULATION,
    MAX_STATISTICS,
    CentreSpec,
    EnvironmentSpec,
    NormalizerSpec,
    OptimizerSpec,
    PolicySpec,
    PoolSpec,
    SpecError,
    StopSpec,
    StrategySpec,
)

__all__ = [
    "LONGEST_EPISODE",
    "MAX_DIRECTIONS",
    "MAX_PARAMETERS",
    "MAX_POPULATION",
    "MAX_STATISTICS",
    "PROTOCOL_VERSION",
    "CentreSpec",
    "EnvironmentSpec",
    "NormalizerSpec",
    "OptimizerSpec",
    "PolicySpec",
    "PoolSpec",
    "RunSpec",
    "SpecError",
    "StopSpec",
    "StrategySpec",
    "completed",
    "from_bytes",
    "load",
    "merge",
    "outputs",
    "parse",
    "seen_choices",
    "seen_image",
    "settings",
    "tensors",
    "to_bytes",
    "to_plain",
    "to_toml",
]

PROTOCOL_VERSION = 1


def parse(raw: Mapping[str, Any]) -> RunSpec:
    """The validated spec of plain values (from TOML, flags or the wire). Raises `SpecError`."""
    spoken = raw.get("protocol", PROTOCOL_VERSION)
    if spoken != PROTOCOL_VERSION:
        raise SpecError(
            f"the run speaks protocol {repr(spoken)[:40]}, this Shoal speaks {PROTOCOL_VERSION}: "
            "install the version of Shoal that the run needs"
        )
    try:
        raw = _with_own_values(completed(raw))
        spec = msgspec.convert(raw, RunSpec)
    except msgspec.ValidationError as error:
        raise SpecError(explain(str(error), raw, RunSpec)) from None
    except RecursionError:
        raise SpecError(
            "the run spec has tables too deep in one another: use fewer levels"
        ) from None
    check(spec)
    return spec


def completed(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain values with what an objective, where there is one, has in the place of an environment
    and a policy."""
    if raw.get("objective") is None:
        return raw
    said: dict[str, Any] = dict(raw)
    for table, values in objective.around(raw).items():
        given = raw.get(table, {})
        said[table] = {**values, **given} if isinstance(given, Mapping) else given
    return said


def from_bytes(data: bytes) -> RunSpec:
    """The spec that `to_bytes` packed, validated anew. Raises `SpecError`."""
    try:
        raw = unpack(data)
    except WireError as error:
        raise SpecError(f"the run spec can't be read ({error}): the host must mend it") from None
    if not isinstance(raw, dict):
        raise SpecError("the run spec is not a table: the host must mend it")
    try:
        return parse(raw)
    except SpecError as error:
        raise SpecError(
            f"this Shoal can't take part in the run: {error} (the host may use a newer Shoal: "
            "upgrade, or tell the host)"
        ) from None


def _with_own_values(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """`raw`, with what the kind of optimizer has of its own where `raw` says nothing.

    Of fields alone that are always written: what is read back must be what was written.
    """
    said = raw.get("optimizer", {})
    if not isinstance(said, Mapping) or not isinstance(said.get("kind"), str):
        return raw
    try:
        own = optimizers.own_values(optimizers.get(said["kind"]))
    except ShoalError:
        return raw  # told with the other mistakes
    always = set(OptimizerSpec.__struct_fields__) - set(OptimizerSpec.later)
    known = {name: value for name, value in own.items() if name in always}
    return {**raw, "optimizer": {**known, **said}}
