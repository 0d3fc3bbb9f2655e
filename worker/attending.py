"""Takes part in all runs at a broker that it may and can, as they come and go."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from protocol.clock import now
from protocol.errors import ShoalError
from protocol.exit_codes import DONE, UNREACHABLE
from protocol.identity import Identity
from protocol.link import FatalLinkError
from worker import commands, discovery, preflight
from worker.attendance import Attendance
from worker.console import Say
from worker.discovery import Discovery
from worker.membership import EPOCH_WITHIN, Membership, retrying, unreachable
from worker.settings import Settings
from worker.shares import weighed
from worker.spares import KEPT_FOR, Spares
from worker.turns import Turns
from worker.view import RunView, View, added, over, together

if TYPE_CHECKING:
    from worker.room import Room

LOOK_SECONDS, APART_SECONDS = 0.25, 0.02
"""Seconds between two looks at which runs are here, and how ours are; and where somebody says that
one is here, who may say so without end."""
SILENT_FOR = 120.0
"""Seconds without a sign of life of a host after which its place is another's, unless results of
ours wait for it."""
IDLE = "no run is here; asking again"


class NoRunError(ShoalError):
    """No run is here, and we were told not to wait for one."""

    exit_code = UNREACHABLE


class Attending:
    """All that a worker takes part in which was not told what to join.

    Attributes:
        members: by the name of their run.
        paused: why none of them takes tasks; empty while they do.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        say: Say,
        random: Random,
        room: Room,
    ) -> None:
        self.members: dict[str, Membership] = {}
        self.paused = ""
        self._settings = settings
        self._identity = identity
        self._say = say
        self._random = random
        self._room = room
        self._turns = Turns(settings.children)
        self._spares = Spares()
        self._attendance = Attendance()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._parking: set[str] = set()
        self._past = View()
        """of the runs that are left"""
        self._stopping = ""
        self._said: dict[tuple[str, bool], list[str]] | None = None
        """what runs say at this moment, and which of them; None while it is said at once"""
        self._ended: commands.Leave | None = None
        """how the first run ended that could not be served"""
        self._served = False
        self._told_idle = False
        self._dialled = 0.0
        self._over: asyncio.Future[commands.Leave] = asyncio.get_running_loop().create_future()
        self._discovery = Discovery(
            settings.address,
            identity,
            random,
            on_connecting=self._on_connecting,
            on_connected=self._on_connected,
            on_disconnected=lambda reason: say(f"lost the broker: {reason}", warning=True),
            on_retry=self._on_retry,
        )

    async def run(self) -> commands.Leave:
        """Take part until somebody ends it; how that was.

        Raises NoRunError, UnreachableError, FatalLinkError, and what nobody foresaw.
        """
        looking = asyncio.ensure_future(self._look_for_ever())
        asking = asyncio.ensure_future(self._discovery.run())
        try:
            await asyncio.wait((looking, asking, self._over), return_when=asyncio.FIRST_COMPLETED)
            if not self._over.done():
                for life in (looking, asking):
                    if life.done():
                        life.result()
                raise AssertionError("nobody asks for runs any more")
            return self._over.result()
        finally:
            looking.cancel()
            for life in self._lives.values():
                life.cancel()
            await asyncio.gather(looking, *self._lives.values(), return_exceptions=True)
            await self._spares.end(math.inf)
            await self._discovery.link.close()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def stop(self, why: str) -> None:
        """Join no further run, and end once none is left; `why`: the last word."""
        self._stopping = self._stopping or why
        if not self.members:
            self._end(commands.Leave(DONE, why))

    def all(self, do: Callable[[Membership], None]) -> None:
        """Do something with each of them; what several have to say to that is said once."""
        said = self._said = {}
        for member in list(self.members.values()):
            do(member)
        self._said = None
        for (text, warning), runs in said.items():
            self._say(text if len(runs) > 1 else f"{runs[0]}: {text}", warning)

    def view(self) -> View:
        """All of them as one."""
        self._turns.look()
        sharing = self._turns.sharing
        views = {run: member.view() for run, member in self.members.items()}
        runs = tuple(
            RunView(
                run,
                sharing.wanted(run),
                sharing.lately(run),
                sharing.had(run),
                view.done,
                view.episodes,
                view.version,
                view.idle_because,
            )
            for run, view in sorted(views.items())
        )
        now_here = list(views.values()) or [View(idle_because=IDLE)]
        # Alone, it tells what only one can tell, such as its version.
        shown = together(now_here)
        return dataclasses.replace(shown, runs=runs, **added(self._past, shown))

    # Who comes and goes.

    async def _look_for_ever(self) -> None:
        news = self._discovery.news
        while True:
            self._look(now())
            short = self._room.is_short(self._settings.children, len(self.members))
            await self._spares.end(math.inf if short else now() - KEPT_FOR)
            await asyncio.sleep(APART_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await news.wait()
                    news.clear()

    def _look(self, moment: float) -> None:
        for member in self.members.values():
            self._see(member, moment)
        if self._stopping:
            return
        shares, here = self._settings.shares, self._discovery.runs.open
        wanted = [run.run for run in here if shares.of(run.run)]
        while run := self._attendance.next(wanted, self._lives, self._has_room(), moment):
            priority = next(found.priority for found in here if found.run == run)
            self._join(run, shares.of(run), priority)
        if not self._parking:
            short = self._room.is_short(self._settings.children, len(self.members))
            idle = {run: moment - member.worked for run, member in self.members.items()}
            places = {run: moment - member.began for run, member in self.members.items()}
            if run := self._attendance.makes_room(idle, places, short, moment):
                self._park(run)
        self._tell_idle()

    def _has_room(self) -> bool:
        return self._room.has_for_more(self._settings.children, len(self.members))

    def _see(self, member: Membership, moment: float) -> None:
        """Leave a run that nobody leads, as far as we hear."""
        if member.held:
            self._attendance.served(member.run)
        if not member.announced:
            if moment - member.began > EPOCH_WITHIN:
                member.leave(UNREACHABLE, "nobody announced it")
        elif member.silence(moment) > SILENT_FOR and not member.view().unanswered:
            member.leave(UNREACHABLE, f"its host was silent for {SILENT_FOR:.0f} s")

    def _tell_idle(self) -> None:
        if self._lives or not self._discovery.answered.is_set():
            self._told_idle = self._told_idle and not self._lives
            return
        if self._settings.once:
            self._end_once()
        elif not self._told_idle:
            self._told_idle = True
            broker, every = self._settings.address.broker, discovery.ASK_EVERY
            which = "that can be served " if self._discovery.runs.open else ""
            self._say(f"no run {which}is led at {broker} now; asking every {every:.0f} s")

    def _end_once(self) -> None:
        if self._ended is not None and not self._served:
            self._end(self._ended)
        elif self._served or self._ended is not None:
            self._end(commands.Leave(DONE, "no run is here any more"))
        elif not self._over.done():
            self._over.set_exception(
                NoRunError(
                    f"no run is led at {self._settings.address.broker}: start one with "
                    "`shoal host`, or check the address"
                )
            )

    def _join(self, run: str, share: float, priority: float) -> None:
        weight = share * priority
        address = dataclasses.replace(self._settings.address, run=run)
        member = Membership(
            dataclasses.replace(self._settings, once=False),
            address,
            self._identity,
            lambda text, warning=False: self._tell(run, text, warning),
            lambda text, warning=False: None,  # our own line to the broker tells it
            self._turns,
            self._spares,
            lambda: self._room.of_child(self._settings, len(self.members)),
            self._random,
            lambda: self._elsewhere(run),
        )
        self.members[run] = member
        if self.paused:
            member.pause(self.paused)
        self._say(f"joins {address}{weighed(share, priority)}")
        self._lives[run] = asyncio.create_task(self._belong(member, weight))

    def _tell(self, run: str, text: str, warning: bool) -> None:
        """What a run has to say."""
        if self._said is None:
            self._say(f"{run}: {text}", warning)
        else:
            self._said.setdefault((text, warning), []).append(run)

    def _elsewhere(self, run: str) -> int:
        """Tasks that other runs than that one had, or have."""
        others = (member.held for name, member in self.members.items() if name != run)
        return self._past.done + sum(others)

    def _park(self, run: str) -> None:
        self._parking.add(run)
        self._say(f"{run}: makes room for others")
        self.members[run].finish("makes room for others")

    async def _belong(self, member: Membership, weight: float) -> None:
        """Take part in a run to its end, or to ours."""
        run = member.run
        try:
            leave = await member.take_part(weight)
        except FatalLinkError as error:
            leave = commands.Leave(UNREACHABLE, str(error))
        except ShoalError as error:
            leave = commands.Leave(error.exit_code, str(error))
        except Exception as error:  # as where there is one run alone
            if not self._over.done():
                self._over.set_exception(error)
            return
        finally:
            self._served = self._served or bool(member.held)
            self._past = dataclasses.replace(self._past, **added(self._past, over(member.view())))
            del self.members[run], self._lives[run]
        self._left(run, leave)

    def _left(self, run: str, leave: commands.Leave) -> None:
        if run in self._parking:
            self._parking.discard(run)
            self._attendance.parked(run, now())
        else:
            self._discovery.runs.forget(run)
            if self._attendance.ended(run, leave.code, leave.text, now()):
                self._say(f"{run}: {leave.text}", warning=leave.code != DONE)
            if leave.code != DONE:
                self._ended = self._ended or leave
        if self._stopping and not self.members:
            self._end(commands.Leave(DONE, self._stopping))

    def _end(self, leave: commands.Leave) -> None:
        if not self._over.done():
            self._over.set_result(leave)

    # The line to the broker.

    def _on_connecting(self) -> None:
        self._dialled = now()

    def _on_connected(self, first: bool) -> None:
        if first:
            self._say(preflight.reached(self._settings.address, now() - self._dialled))

    def _on_retry(self, reason: str, delay: float) -> None:
        address = self._settings.address
        if not self._settings.once:
            self._say(retrying(address, reason, delay), warning=True)
        elif not self._over.done():
            self._over.set_exception(unreachable(address, reason))
