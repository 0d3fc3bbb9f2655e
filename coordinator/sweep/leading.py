"""Leads one run of a sweep: begun or gone on with, to its end or as far as it may go now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coordinator.broker.provide import Provided, is_external
from coordinator.host import Run, load
from coordinator.sweep import trained
from coordinator.sweep.measures import Evaluation
from coordinator.sweep.planning import Turn
from coordinator.sweep.specs import Specs
from coordinator.sweep.stalling import Stall
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.progress import Outcome
    from coordinator.server import Server
    from coordinator.sweep.telling import Counted

End = Literal["finished", "waiting", "stopped"]
"""How a turn ended: the run is over; it is to go on later; a person stopped it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the runs of a sweep are led.

    Attributes:
        directory_of: a point and a seed: where their run is kept.
        key: that signs for all of them.
        priority: of each, among the runs of workers that serve others too.
        rely: keys of workers that are ours.
        few: whether so few runs are left that workers may keep a place in all of them.
        say: gets lines for people.
    """

    directory_of: Callable[[str, int], Path]
    key: Path
    specs: Specs
    provided: Provided
    priority: float
    rely: Callable[[], list[bytes]]
    few: Callable[[], bool]
    say: Callable[[str], None]
    counted: Counted

    def of(self, turn: Turn) -> Path:
        """The directory of a run."""
        return self.directory_of(turn.tried.point.name, turn.run.seed)


class Led:
    """A run that has its turn."""

    def __init__(
        self,
        place: Place,
        turn: Turn,
        on_begun: Callable[[str], None],
        on_judged: Callable[[], None],
    ) -> None:
        """`on_begun` gets the run's id before anybody hears of it; `on_judged` is called whenever
        its centre was."""
        self.turn = turn
        self._place = place
        self._on_begun = on_begun
        self._on_judged = on_judged
        self._server: Server | None = None
        self._ending: tuple[str, bool] | None = None
        """why it is to end now, and whether workers are to wait for it"""
        self._stall = Stall()
        self._given_up = ""

    async def run(self) -> tuple[End, str, tuple[Evaluation, ...]]:
        """Lead it: how it ended, why, and its curve. Raises `ShoalError` where it can't go on."""
        place, turn = self._place, self.turn
        where = place.of(turn)
        run = await asyncio.to_thread(self._opened, where)
        if run is None:
            spec = place.specs.of(turn.tried.point, turn.run.seed).spec
            return "finished", "", await asyncio.to_thread(trained.told, where, spec)
        try:
            self._on_begun(run.id)
            outcome = await self._lead(run)
        finally:
            await asyncio.to_thread(run.directory.discard)
        curve = await asyncio.to_thread(trained.told, where, run.spec)
        if outcome.state == "finished":
            return "finished", "", curve
        if self._given_up:
            raise ShoalError(self._given_up)
        return ("waiting" if self._ending else "stopped"), outcome.reason, curve

    def end(self, reason: str, waits: bool) -> None:
        """End the turn, orderly; `waits`: whether workers are to wait for the run."""
        if self._ending is None:
            self._ending = reason, waits
            # Whoever calls may be called by the server itself, in the middle of a decision.
            asyncio.get_running_loop().call_soon(self._end_now)

    def look(self, moment: float) -> None:
        """Give it up where nobody here can get on with it."""
        if self._server is not None and self._ending is None:
            self._given_up = self._stall.look(self._server.overview(), moment)
            if self._given_up:
                self.end(self._given_up, waits=False)

    def _end_now(self) -> None:
        if self._server is not None and self._ending is not None:
            reason, waits = self._ending
            (self._server.pause if waits else self._server.stop)(reason)

    def _opened(self, where: Path) -> Run | None:
        place, turn = self._place, self.turn
        if trained.has_begun(where):
            return trained.go_on(where)
        return trained.begin(where, place.specs.of(turn.tried.point, turn.run.seed), place.key)

    async def _lead(self, run: Run) -> Outcome:
        place = self._place
        run = replace(run, priority=place.priority)
        course = await asyncio.to_thread(load, run, place.say)
        # Compiled code has been loaded in that thread.
        from coordinator.hosting import Listeners, lead

        try:
            run.directory.remember(place.provided.choice)
            listeners = Listeners(
                on_event=place.say,
                on_update=place.counted.begin(course.recovered.progress),
                on_metrics=self._measured,
                on_lead=self._led,
            )
            return await lead(
                run,
                course,
                place.provided.address,
                listeners,
                owns_broker=not is_external(place.provided.choice),
            )
        finally:
            await asyncio.to_thread(course.log.close)

    def _led(self, server: Server | None) -> None:
        self._server = server
        if server is None:
            return
        for key in self._place.rely():
            server.rely_on(key)
        asyncio.get_running_loop().call_soon(self._end_now)

    def _measured(self, line: Mapping[str, Any]) -> None:
        """Learn what the centre was worth, and stop where the run has gone as far as it may."""
        if line["kind"] != "centre":
            return
        run, until = self.turn.run, self.turn.until
        judged = Evaluation(
            version=line["version"],
            mean=line["mean_return"],
            deviation=line["return_deviation"],
            episodes=line["episodes"],
            full=line["full"],
            used=0,
        )
        run.curve = (*(e for e in run.curve if e.version < judged.version), judged)
        if until is not None and judged.version >= until:
            reason = f"it is compared with others at update {until:,}"
            self.end(reason, waits=self._place.few())
        self._on_judged()
