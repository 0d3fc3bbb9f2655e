"""Which settings of a run hold at its last version, and since when, as its log tells."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.history.past import Past
from coordinator.recovery import peeked
from protocol import amendments
from protocol.amended import Amended


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the run spec that may change.

    Attributes:
        field: as `section.name`.
        value: that holds, or is about to; None for none.
        since: the version from which on; 0 for what never changed, None where only an archived part
            of the log tells.
        spec: what the run spec says.
    """

    field: str
    value: float | None
    since: int | None
    spec: float | None


def settings(past: Past) -> tuple[Amended, list[Setting]]:
    """The values that hold at the last version, as `protocol.amendments` takes them, and all fields
    that may change; see `opened` for the archives. Signatures are taken for granted: `verify` looks
    at them. Raises `LogError`."""
    values: dict[str, float] = {}
    since: dict[str, int | None] = {}
    if past.base > 0:
        values.update(past.beginning().amended.values)
        since.update(dict.fromkeys(values))
    first = past.base
    for log, bound in past.pieces(past.version):
        for row in log.rows(first, bound):
            update = peeked(log, row)
            values.update(update.amendments)
            for field in update.amendments:
                since[field] = amendments.holds_from(field, update.version)
        first = max(first, bound)
    found = []
    for field in amendments.AMENDABLE:
        spec = amendments.value_of(past.spec, field)
        found.append(Setting(field, values.get(field, spec), since.get(field, 0), spec))
    return Amended(tuple(sorted(values.items()))), found
