"""Who is here, by numeric class: how many workers, and how many of them are believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.pool.events import SessionId
from coordinator.pool.roster import Session
from coordinator.trust import Trust

ALL = b"all classes"
"""Stands for the class of everybody; the classes themselves have 16 bytes, or none."""


class Classes:
    """Counts sessions by worker and class, so that no event has to look at them all."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._here: set[SessionId] = set()
        self._sessions: dict[bytes, Counter[str]] = {}
        self._classes: dict[str, set[bytes]] = {}
        """of a worker that is here"""
        self._believed: Counter[bytes] = Counter()
        self._is_believed: set[str] = set()
        """who of them is counted so"""

    def workers(self, numeric: bytes) -> Iterable[str]:
        """Who of a class is here; nobody has the empty class in common with anybody."""
        return self._sessions.get(numeric, ()) if numeric else ()

    def size(self, numeric: bytes) -> int:
        """How many workers of a class are here."""
        return len(self._sessions.get(numeric, ())) if numeric else 0

    @property
    def any_shared(self) -> bool:
        """Whether any two workers are of one class."""
        return any(len(here) > 1 for numeric, here in self._sessions.items() if numeric != ALL)

    def of(self, worker: str) -> Iterable[bytes]:
        """The classes of a worker that is here."""
        return [numeric for numeric in self._classes.get(worker, ()) if numeric != ALL]

    def believed(self, numeric: bytes) -> int:
        """How many of them are believed."""
        return self._believed[numeric]

    def moved(self, session: Session, numeric: bytes) -> None:
        """A session came, or came again; its class was that one, where it was here."""
        if session.id in self._here:
            if session.numeric == numeric:
                return
            self._leave(session.id.worker, numeric)
        self._here.add(session.id)
        self._enter(session.id.worker, session.numeric)

    def went(self, session: Session) -> None:
        """A session is gone."""
        self._here.remove(session.id)
        self._leave(session.id.worker, session.numeric)

    def _enter(self, worker: str, of: bytes) -> None:
        for numeric in (ALL, of):
            if numeric:
                self._sessions.setdefault(numeric, Counter())[worker] += 1
                known = self._classes.setdefault(worker, set())
                if numeric not in known:
                    known.add(numeric)
                    self._believed[numeric] += worker in self._is_believed
        self.changed(worker)

    def _leave(self, worker: str, of: bytes) -> None:
        for numeric in (ALL, of):
            if not numeric:
                continue
            here = self._sessions[numeric]
            here[worker] -= 1
            if not here[worker]:
                del here[worker]
                self._classes[worker].remove(numeric)
                self._believed[numeric] -= worker in self._is_believed
                if not here:
                    del self._sessions[numeric], self._believed[numeric]
        if not self._classes[worker]:
            del self._classes[worker]
            self._is_believed.discard(worker)

    def changed(self, worker: str) -> None:
        """The standing of a worker may be another than it was."""
        if worker not in self._classes:
            return
        before, now = worker in self._is_believed, self._trust.is_believed(worker)
        if before == now:
            return
        (self._is_believed.add if now else self._is_believed.remove)(worker)
        for numeric in self._classes[worker]:
            self._believed[numeric] += now - before
