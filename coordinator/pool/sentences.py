"""What a quarantine or a ban means: the worker's part of what is open is undone."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.pool.batches import Batches
from coordinator.pool.course import Course
from coordinator.pool.evaluations import Evaluations
from coordinator.pool.events import Command, Happened, Sentenced
from coordinator.pool.leases import Leases
from coordinator.pool.ranges import Blame
from coordinator.pool.roster import Roster
from coordinator.trust import Standing, Trust


class Sentence(NamedTuple):
    """What was decided of a worker, and why."""

    worker: str
    standing: Standing
    reason: str


class Sentences:
    """Carries out what was decided of workers, once what it was decided by is dealt with."""

    def __init__(
        self,
        course: Course,
        roster: Roster,
        leases: Leases,
        batches: Batches,
        evaluations: Evaluations,
        trust: Trust,
        commands: list[Command],
    ) -> None:
        """All parts are the pool's own, shared with it; `commands` takes what is to be done."""
        self._course = course
        self._roster = roster
        self._leases = leases
        self._batches = batches
        self._evaluations = evaluations
        self._trust = trust
        self._commands = commands
        self._passed: list[Sentence] = []

    def pass_on(self, worker: str, standing: Standing, reason: str) -> None:
        """It was decided."""
        self._passed.append(Sentence(worker, standing, reason))

    def carry_out(self, now: float) -> None:
        """Do what was decided."""
        while self._passed:
            self._carry_out(self._passed.pop(0), now)

    def _carry_out(self, sentence: Sentence, now: float) -> None:
        """Take out what the worker has in batches that no update has used, and lease that and what
        it holds to others; who is banned is given nothing any more."""
        worker, standing, reason = sentence
        again, late = self._batches.withdraw(worker, self._course.updating)
        episodes = self._evaluations.withdraw(worker)
        for session in [s for s in self._roster.sessions.values() if s.id.worker == worker]:
            for lease in list(session.leases.values()):
                self._leases.end(lease, session, now, Blame(frozenset({worker})))
            if standing == "banned":
                self._roster.set_credit(session, 0)
            self._roster.distrust(session)
            self._roster.note_room(session, now)
        undone = f"{again:,} directions of it are evaluated again"
        if episodes:
            undone += f", {episodes:,} episodes of the centre too"
        if late:
            undone += f", {late:,} late ones left out"
        if used := self._trust.record(worker).used:
            undone += f"; {used}"
        self._commands.append(Happened(f"{worker} is {standing}: {reason}; {undone}"))
        self._commands.append(Sentenced(worker))
