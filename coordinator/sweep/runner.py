"""Trains a sweep: its runs as tasks of one event loop, over one broker, some at a time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from coordinator.broker.provide import Provided, is_secured, provide
from coordinator.directory import BrokerChoice, DirectoryError
from coordinator.leading import UnreachableError
from coordinator.local import LocalWorkers, Way, way_in
from coordinator.log import DamagedError, LogError
from coordinator.memory import look_at_all_again
from coordinator.sweep.file import SweepError
from coordinator.sweep.judging import Verdict
from coordinator.sweep.leading import Led, Place
from coordinator.sweep.measures import worth
from coordinator.sweep.planning import Turn, turns
from coordinator.sweep.sweep import Sweep
from coordinator.sweep.telling import Counted, Once, Telling
from protocol.address import join_line
from protocol.command import hangups
from protocol.errors import ShoalError
from protocol.figures import shown
from protocol.identity import Identity
from protocol.link import FatalLinkError

LOOK_SECONDS = 1.0
"""Between two looks at how far it is."""
CLEANED_EVERY = 32
"""Turns after which the memory of those that ended is looked for: what each leaves is little, and a
look at all takes a tenth of a second."""
FEW = 8
"""Runs that workers wait for at a rung: half of what they take part in. Of more they leave each,
which they need seconds to come back to, and serve others meanwhile."""
FATAL = (UnreachableError, FatalLinkError, LogError, DirectoryError, SweepError)
"""What ends a run and would end all others, too; a log that is damaged is one run's alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How a sweep is to be led.

    Attributes:
        choice: the broker, and how it is reached.
        proxy: to go through to a broker that is not ours.
        parallel: runs that are led at a time.
        priority: of each, among the runs of workers that serve others too.
        workers: of this machine.
        modules: that they may import.
    """

    choice: BrokerChoice
    proxy: str | None = None
    parallel: int = 2
    priority: float = 1.0
    workers: int = 0
    modules: tuple[str, ...] = ()


class Runner:
    """Leads the runs of a sweep until all are over, or it is paused."""

    def __init__(
        self,
        sweep: Sweep,
        asked: Asked,
        say: Callable[[str], None],
        event: Callable[[str], None],
    ) -> None:
        """`say` gets the lines that stay, `event` those about workers and tasks."""
        self._sweep = sweep
        self._asked = asked
        self._say = say
        self._event = event
        self._led: dict[asyncio.Task[None], Led] = {}
        self._paused = ""
        self._ended = 0
        """turns that are over"""
        self._counted = Counted()
        self._verdicts: list[Verdict] = []

    async def run(self) -> bool:
        """See it through: whether it has come to its end. Raises `ShoalError`."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM, *hangups())
        for number in numbers:
            loop.add_signal_handler(number, self.pause, f"paused by the host ({number.name})")
        try:
            return await self._run()
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def pause(self, reason: str) -> None:
        """Stop leading: workers keep what they have, and wait for whoever goes on with the runs.
        Asked once more, in whatever they are: `resume` goes on as after a kill."""
        again, self._paused = bool(self._paused), self._paused or reason
        for task, led in self._led.items():
            if again:
                task.cancel()
            else:
                led.end(self._paused, waits=True)

    async def _run(self) -> bool:
        sweep, asked = self._sweep, self._asked
        directory = sweep.directory
        identity = Identity.load_or_create(sweep.key)
        leaders = frozenset({identity.worker}) if is_secured(asked.choice) else frozenset[str]()
        broker = provide(asked.choice, directory, leaders, asked.proxy, self._event)
        async with broker as provided:
            sweep.remember(provided.choice)
            line = join_line(provided.public, None, identity.fingerprint)
            self._say(f"volunteers join with:  {line}")
            way = partial(_way, provided, identity, asked)
            async with LocalWorkers(directory, way, self._event) as local:
                for _ in range(asked.workers):
                    await local.add()
                place = Place(
                    directory_of=sweep.directory_of,
                    key=sweep.key,
                    specs=sweep.specs,
                    provided=provided,
                    priority=asked.priority,
                    rely=lambda: local.public_keys,
                    few=self._few,
                    say=Once(self._event),
                    counted=self._counted,
                )
                try:
                    await self._see_through(place)
                finally:
                    for task in self._led:
                        task.cancel()
                    await asyncio.gather(*self._led, return_exceptions=True)
        return not self._paused

    async def _see_through(self, place: Place) -> None:
        telling = Telling(self._say, self._counted)
        # A host that was killed has not kept how far they came.
        await asyncio.to_thread(self._sweep.look_at_runs)
        while True:
            await asyncio.to_thread(self._sweep.draw)
            self._judge()
            self._fill(place)
            if not self._led:
                if self._paused or self._sweep.over:
                    return
                continue  # the points that were drawn last can't be trained
            done, _ = await asyncio.wait(
                self._led, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                del self._led[task]
                if not task.cancelled():
                    task.result()
                self._ended += 1
                if self._ended % CLEANED_EVERY == 0:
                    look_at_all_again()
            if self._asked.workers or self._counted.episodes:  # somebody can evaluate something
                for led in self._led.values():
                    led.look(time.monotonic())  # which stands still while this machine sleeps
            telling.look(self._sweep.tried, self._verdicts, len(self._led))

    def _few(self) -> bool:
        runs = [run for each in self._sweep.tried for run in each.runs if not run.over]
        return len(runs) <= FEW

    def _judge(self) -> None:
        """Find what becomes of each point, and end the runs of those that are stopped."""
        self._verdicts = self._sweep.verdicts()
        for led in self._led.values():
            if self._verdicts[led.turn.tried.number].stopped is not None:
                led.end("its point is worse than others", waits=False)

    def _fill(self, place: Place) -> None:
        """Lead as many runs at a time as there may be."""
        here = {id(led.turn.run) for led in self._led.values()}
        for turn in turns(self._sweep.tried, self._verdicts):
            if self._paused or len(self._led) >= self._asked.parallel:
                return
            if id(turn.run) not in here:
                led = Led(place, turn, partial(self._sweep.begun, turn), self._judge)
                self._led[asyncio.create_task(self._lead(led))] = led

    async def _lead(self, led: Led) -> None:
        """Lead a run for its turn, and keep how that ended."""
        turn, name = led.turn, _named(led.turn)
        try:
            end, why, curve = await led.run()
        except DamagedError as error:
            await self._failed(turn, error)
        except FATAL:
            raise
        except ShoalError as error:
            await self._failed(turn, error)
        else:
            turn.run.curve = curve
            if end != "waiting":
                turn.run.state, turn.run.why = end, why
                self._event(f"{name}: {end}{': ' * bool(why)}{why}{self._worth(turn)}")
            await asyncio.to_thread(self._sweep.keep, turn)

    def _worth(self, turn: Turn) -> str:
        """What a run came to, in words; empty where it has not come to anything yet."""
        curve, aim = turn.run.curve, self._sweep.aim
        value = worth(curve, aim)
        if value is None:
            return ""
        return f", {aim.metric} {shown(value)} after {curve[-1].version:,} updates"

    async def _failed(self, turn: Turn, error: ShoalError) -> None:
        turn.run.state, turn.run.why = "failed", str(error)
        self._say(f"{_named(turn)} failed: {error}")
        await asyncio.to_thread(self._sweep.keep, turn)


def _named(turn: Turn) -> str:
    point = turn.tried.point
    return f"point {point.name} ({point.label}) seed {turn.run.seed}"


def _way(provided: Provided, identity: Identity, asked: Asked) -> Way:
    """How the host's own workers get to all of its runs."""
    way = way_in(provided.for_workers, None, identity.fingerprint, "", asked.proxy)
    return replace(way, allowed=asked.modules)
