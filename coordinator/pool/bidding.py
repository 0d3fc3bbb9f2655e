"""What the host bids be done with a worker, whatever the pool thinks of it."""

from __future__ import annotations

from coordinator.pool.auditing import Auditing
from coordinator.pool.dispatch import Dispatch
from coordinator.pool.events import (
    Audit,
    Ban,
    Command,
    Happened,
    Rely,
    Sentenced,
    SessionId,
    Unban,
)
from coordinator.pool.roster import Roster, Session
from coordinator.pool.sentences import Sentences
from coordinator.trust import Trust

Bidding = Ban | Unban | Rely | Audit


class Host:
    """Does it, and gives the sessions of banned workers nothing."""

    def __init__(
        self,
        trust: Trust,
        roster: Roster,
        dispatch: Dispatch,
        sentences: Sentences,
        auditing: Auditing | None,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done."""
        self._trust = trust
        self._roster = roster
        self._dispatch = dispatch
        self._sentences = sentences
        self._auditing = auditing
        self._commands = commands
        self._refused: dict[SessionId, int] = {}
        """tasks that sessions of banned workers want to hold"""

    def bids(self, event: Bidding, now: float) -> None:
        """The host wants something of a worker."""
        match event:
            case Ban():
                self._ban(event, now)
            case Unban():
                self._trust.unban(event.worker)
                self._let_in(event.worker, "may work again", now)
            case Rely():
                self._trust.rely_on(event.worker)
                self._let_in(event.worker, "is trusted", now)
            case Audit():
                self._trust.doubt(event.worker)

    def refuses(self, session: Session, credit: int, now: float) -> bool:
        """A session wants to hold so many tasks: whether it gets none, as its worker is banned."""
        if session.id.worker not in self._trust.banned:
            return False
        self._refused[session.id] = credit
        self._roster.set_credit(session, 0)
        self._roster.note_room(session, now)
        return True

    def left(self, id: SessionId) -> None:
        """A session is gone."""
        if self._refused:
            self._refused.pop(id, None)

    def _ban(self, event: Ban, now: float) -> None:
        worker = event.worker
        self._trust.ban(worker, event.reason)
        for session in self._roster.sessions.values():
            if session.id.worker == worker:
                self._refused.setdefault(session.id, session.credit)
        if self._auditing is not None:
            self._auditing.classes.changed(worker)
            self._auditing.forget(worker)
        self._sentences.pass_on(worker, "banned", event.reason)
        self._sentences.carry_out(now)

    def _let_in(self, worker: str, said: str, now: float) -> None:
        """Its standing is another; what its sessions wanted they get."""
        if self._auditing is not None:
            self._auditing.classes.changed(worker)
        for session in [s for s in self._roster.sessions.values() if s.id.worker == worker]:
            credit = self._refused.pop(session.id, None)
            if credit is not None:
                self._roster.set_credit(session, credit)
            self._dispatch.feed(session, now)
        self._commands.append(Happened(f"{worker} {said}"))
        self._commands.append(Sentenced(worker))
