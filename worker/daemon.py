"""The worker's process: its runs, and what its volunteer wants of all of them; decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from protocol.clock import now
from protocol.exit_codes import DONE
from protocol.identity import Identity
from protocol.link import FatalLinkError
from worker import commands
from worker.attending import Attending
from worker.console import Console
from worker.control import ControlError
from worker.evaluation.memory import free_now
from worker.governor import Course
from worker.membership import LEFT, Membership, UnreachableError
from worker.names import label_of
from worker.permission import Readings
from worker.places import Place
from worker.room import Room
from worker.session import Session
from worker.settings import Settings
from worker.spares import Spares
from worker.steering import Steering
from worker.stepping import load_following
from worker.threads import in_thread
from worker.turns import Turns
from worker.view import View

SHOW_SECONDS = 0.5
"""Seconds between two looks of the console: to make what it sees costs half as much as a tick."""


class Daemon:
    """One worker process, from its start to its exit code."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        console: Console,
        random: Random | None = None,
        place: Place | None = None,
    ) -> None:
        """`place`: where a second terminal reaches it, and its volunteer's words are kept."""
        self.settings = settings
        self.members: dict[str, Membership] = {}
        """what it takes part in, by the name of the run"""
        self._identity = identity
        self._console = console
        self._random = random or Random()
        self._steering = Steering(settings.terms, place, self)
        self._room = Room(settings.terms.memory)
        self._attending: Attending | None = None
        self._over: asyncio.Future[commands.Leave] | None = None
        self._stops = 0

    async def run(self) -> int:
        """Take part until the run ends or the volunteer leaves; the exit code.

        Raises `ShoalError`, with its exit code, where only a person can help.
        """
        self._over = asyncio.get_running_loop().create_future()
        warming = in_thread(load_following)
        working = asyncio.ensure_future(self._take_part())
        lives = [asyncio.create_task(life) for life in (self._steering.run(), self._show())]
        try:
            waited: list[asyncio.Future[Any]] = [working, *lives, self._over]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            leave = self._how(working, lives)
            self._console.say(leave.text, warning=leave.code != DONE)
            return leave.code
        except FatalLinkError as error:
            raise UnreachableError(str(error)) from None
        finally:
            warming.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            self._console.close()
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    def interrupt(self) -> None:
        """Ctrl-C: the first finishes what runs, the second hands it back."""
        self._stops += 1
        if self._stops > 1:
            self.terminate()
        else:
            self._leave(lambda member: member.finish(), LEFT.text)

    def terminate(self) -> None:
        """SIGTERM: hand everything back and leave at once."""
        self._leave(lambda member: member.hand_back(), LEFT.text)

    # What the volunteer's terms and words come to, and what a second terminal asks.

    @property
    def session(self) -> Session | None:
        """That in the run that it was told to join; None while there is none."""
        return next((member.session for member in self.members.values()), None)

    def view(self) -> View:
        """How the worker is, in all of its runs."""
        if self._attending is not None:
            return self._attending.view()
        return next((member.view() for member in self.members.values()), View())

    def follow(self, course: Course) -> None:
        """Pause, go on, or leave."""
        if course.leave:
            last = f"{course.leave}: {LEFT.text}"
            self._leave(lambda member: member.finish(course.leave), last)
            return
        if self._attending is not None:
            self._attending.paused = course.paused
        self._all(lambda member: member.pause(course.paused))

    def has_read(self, readings: Readings) -> None:
        """Let evaluation processes have what the rest of the worker leaves of its memory."""
        self._room.read(readings, free_now())
        for member in self.members.values():
            evaluators = member.evaluating.evaluators
            if evaluators is not None and self.settings.terms.memory is not None:
                evaluators.memory_limit = self._room.of_child(self.settings, len(self.members))

    def say(self, text: str, warning: bool = False) -> None:
        """A line for the volunteer."""
        self._console.say(text, warning)

    def whereabouts(self) -> tuple[str, str, str]:
        """The worker's own name, that of its run where it is in one alone, and the broker."""
        run = next(iter(self.members)) if len(self.members) == 1 else ""
        return self._identity.worker, run, str(self.settings.address.broker)

    async def policy(self, run: str) -> tuple[str, bytes]:
        """The policy of a run, as far as this worker follows it; empty: of its only one. Raises
        `ControlError`."""
        if not self.members:
            raise ControlError("it follows no run yet: ask again in a moment")
        found = [name for name in self.members if run in ("", name, name.rpartition("-")[0])]
        if len(found) != 1:
            raise ControlError(
                f"it follows {', '.join(sorted(self.members))}: choose one with --run"
            )
        return await self.members[found[0]].policy()

    # The life of the process.

    async def _take_part(self) -> commands.Leave:
        settings, label = self.settings, self.settings.name or label_of(self._identity.worker)
        joins = f"worker {label} ({self._identity.worker}) joins"
        if settings.address.run is None:
            self.say(f"{joins} all runs at {settings.address}")
            self._attending = Attending(
                settings, self._identity, self.say, self._random, self._room
            )
            self.members = self._attending.members
            return await self._attending.run()
        self.say(f"{joins} {settings.address}")
        turns = Turns(settings.children)
        member = Membership(
            settings,
            settings.address,
            self._identity,
            self.say,
            self.say,
            turns,
            Spares(0),
            lambda: self._room.of_child(settings, 1),
            self._random,
        )
        # Of no other run: they load what any needs while this one is announced.
        member.evaluating.prepare()
        self.members[member.run] = member
        return await member.take_part(1.0)

    def _how(
        self, working: asyncio.Future[commands.Leave], lives: list[asyncio.Task[None]]
    ) -> commands.Leave:
        """How it ended. Raises what ended it otherwise."""
        assert self._over is not None
        if working.done():
            return working.result()
        if self._over.done():
            return self._over.result()
        for life in lives:
            if life.done():
                life.result()
        raise AssertionError("nobody steers any more")

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(SHOW_SECONDS)
            self._console.show(self.view(), now())

    def _leave(self, how: Callable[[Membership], None], last: str) -> None:
        """Leave every run in that way, and end; `last`: the words where there is none."""
        self._all(how)
        if self._attending is not None:
            self._attending.stop(last)
        elif not self.members and self._over is not None and not self._over.done():
            self._over.set_result(commands.Leave(DONE, last))

    def _all(self, do: Callable[[Membership], None]) -> None:
        if self._attending is not None:
            self._attending.all(do)
            return
        for member in list(self.members.values()):
            do(member)
