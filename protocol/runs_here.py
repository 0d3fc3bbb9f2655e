"""Which runs are led through a broker, by what those say who answer `who`; pure."""

from __future__ import annotations

from protocol import topics
from protocol.envelope import open_plain
from protocol.identity import fingerprint, run_belongs_to
from protocol.messages import Here
from protocol.packing import WireError

MOST_RUNS = 64
OPEN = ("running", "paused")
"""States of a run that can be joined."""


class RunsHere:
    """Whoever said `here`, checked as far as that is possible without the join line."""

    def __init__(self, expected_fingerprint: str | None = None) -> None:
        self._expected = expected_fingerprint
        self._found: dict[str, Here] = {}

    def hear(self, payload: bytes) -> None:
        """Take in an answer. Raises `WireError`."""
        self._take(self._genuine(payload))

    def _genuine(self, payload: bytes) -> Here:
        here = open_plain(payload)
        if not isinstance(here, Here):
            raise WireError("not an answer to who")
        genuine = topics.RUN_PATTERN.fullmatch(here.run) and run_belongs_to(here.run, here.host_key)
        if not genuine:
            raise WireError(f"the run {here.run[:60]!r} is not its key's")
        if self._expected not in (None, fingerprint(here.host_key)):
            raise WireError("another key than the join line's")
        return here

    def _take(self, here: Here) -> None:
        known = self._found.get(here.run)
        if known is not None and known.state in OPEN:
            return  # anybody may say that it is over: the signed epoch tells
        if known is not None or len(self._found) < MOST_RUNS:
            self._found[here.run] = here

    def forget(self, run: str) -> None:
        """What was said of a run holds no more, until it is said again."""
        self._found.pop(run, None)

    @property
    def all(self) -> list[Here]:
        """All of them, by name."""
        return sorted(self._found.values(), key=lambda here: here.run)

    @property
    def open(self) -> list[Here]:
        """Those that can be joined."""
        return [here for here in self.all if here.state in OPEN]
