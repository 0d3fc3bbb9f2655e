"""Which of the settings that a person wants the next update carries, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from coordinator import wanted
from protocol import amendments
from protocol.amended import Amended
from protocol.errors import ShoalError
from protocol.spec import RunSpec, SpecError


class Amending:
    """Reads what is wanted, and forgets it once it is in the log."""

    def __init__(self, spec: RunSpec, path: Path, say: Callable[[str], None]) -> None:
        """`spec` is the run's own; `path`: of what is wanted; `say` takes a line for people."""
        self._spec = spec
        self._path = path
        self._say = say
        self._told = ""

    def look(self, held: Amended) -> dict[str, float]:
        """What of it changes the settings that hold; a person hears once of what is new."""
        try:
            asked = wanted.read(self._path)
            if not asked:
                return {}
            changes = self._news(asked, held)
            if len(changes) < len(asked):
                wanted.remove(self._path, _without(asked, changes))
        except ShoalError as error:
            self._tell_once(str(error))
            return {}
        if changes:
            said = ", ".join(f"{f} = {amendments.shown(f, v)}" for f, v in changes.items())
            self._tell_once(f"to be set with the next update: {said}")
        return changes

    def carried(self, changes: Mapping[str, float], held: Amended, version: int) -> None:
        """Update `version`, before which `held` did, is in the log with these changes."""
        if not changes:
            return
        self._say(told(self._spec, changes, held, version))
        self._told = ""
        try:
            wanted.remove(self._path, changes)
        except ShoalError as error:
            self._say(str(error))

    def _news(self, asked: Mapping[str, float], held: Amended) -> dict[str, float]:
        """What differs from what holds; nothing, with a line, where the run can't have it."""
        try:
            amendments.amend(self._spec, Amended(held.values), 0, asked)
        except SpecError as error:
            self._say(f"nothing is set: {error}")
            return {}
        now = amendments.in_force(self._spec, held)
        return {
            field: value
            for field, value in asked.items()
            if value != amendments.value_of(now, field)
        }

    def _tell_once(self, line: str) -> None:
        if self._told != line:
            self._told = line
            self._say(line)


def told(spec: RunSpec, changes: Mapping[str, float], held: Amended, version: int) -> str:
    """What update `version` changes of the settings that `held` until then, in a line."""
    before = amendments.in_force(spec, held)
    parts = []
    for field, value in sorted(changes.items()):
        old = amendments.shown(field, amendments.value_of(before, field))
        since = amendments.holds_from(field, version)
        parts.append(f"{field} {old} -> {amendments.shown(field, value)} from version {since:,} on")
    return f"set: {', '.join(parts)}"


def _without(asked: Mapping[str, float], changes: Mapping[str, float]) -> dict[str, float]:
    return {field: value for field, value in asked.items() if field not in changes}
