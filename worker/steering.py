"""Holds a worker to its volunteer's terms and words: the shell around `Governor`.

It looks at the machine every few seconds, answers the commands `shoal worker`, and keeps what they
say.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from typing import Protocol

from protocol.clock import now
from worker import news, wishes
from worker.console import Rates, harmless
from worker.control import Answer, Report, Request
from worker.control_server import ControlServer
from worker.governor import Course, Governor
from worker.permission import Readings, Terms
from worker.places import Place
from worker.threads import in_thread
from worker.view import View

READ_SECONDS = 5.0
"""Seconds between two looks at the machine."""
GOVERN_SECONDS = 0.5
"""Seconds between two looks at the clock and at how far the work is."""


class Steered(Protocol):
    """A worker that can be told what to do."""

    def view(self) -> View:
        """How it is."""

    def follow(self, course: Course) -> None:
        """Pause, go on, or leave."""

    def terminate(self) -> None:
        """Hand everything back and leave at once."""

    def has_read(self, readings: Readings) -> None:
        """What the machine told."""

    def say(self, text: str, warning: bool = False) -> None:
        """A line for the volunteer."""

    async def policy(self, run: str) -> tuple[str, bytes]:
        """What it has of a run's policy, of its only one where none is named: in words, and as a
        file. Raises `ControlError`."""

    def whereabouts(self) -> tuple[str, str, str]:
        """Its own name, that of the run, empty while it looks for one, and the broker."""


class Steering:
    """Steers one worker while its process lives."""

    def __init__(self, terms: Terms, place: Place | None, worker: Steered) -> None:
        """`place`: where it is asked and its wishes are kept; None where the system has none."""
        self._terms = terms
        self._place = place
        self._worker = worker
        kept = place.wishes() if place is not None else wishes.NOTHING
        self._governor = Governor(terms, kept, now())
        self._readings = Readings()
        self._rates = Rates()
        self._began = now()

    async def run(self) -> None:
        """Steer until cancelled."""
        server = None
        if self._place is not None:
            server = ControlServer(self._place.socket, self._answer)
            try:
                await server.open()
            except OSError as error:
                server = None
                self._worker.say(f"`shoal worker` can't reach this worker: {error}", warning=True)
        if kept := self._governor.wishes.kept_pause(time.time()):
            self._worker.say(kept, warning=True)
        reading = asyncio.ensure_future(self._read_for_ever())
        try:
            while True:
                self._govern()
                await asyncio.sleep(GOVERN_SECONDS)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if server is not None:
                await server.close()

    def _govern(self) -> Course:
        view = self._worker.view()
        self._rates.of(view, now())
        local = datetime.now()
        course = self._governor.look(self._readings, view, time.time(), local, now())
        self._worker.follow(course)
        return course

    async def _read_for_ever(self) -> None:
        from worker.readings import Gauge

        try:
            gauge = await in_thread(lambda: Gauge(self._terms))
            while True:
                self._readings = await in_thread(gauge.read)
                self._worker.has_read(self._readings)
                await asyncio.sleep(READ_SECONDS)
        except Exception as error:  # platforms fail in ways of their own
            self._readings = Readings()
            reason = f"{type(error).__name__}: {error}"
            self._worker.say(f"this machine does not tell how it is ({reason})", warning=True)

    # What a second terminal asks.

    async def _answer(self, request: Request) -> tuple[Answer, bytes]:
        if request.word == "status":
            return Answer(report=self._report()), b""
        if request.word == "policy":
            text, data = await self._worker.policy(request.run)
            return Answer(text, size=len(data)), data
        if request.word == "leave":
            self._worker.terminate()
            return Answer("hands back what it has not finished, and leaves"), b""
        assert self._place is not None
        wanted = self._governor.told(request, time.time())
        self._place.keep(wanted)
        self._governor.wishes = wanted
        course = self._govern()
        return Answer(_told(course, self._worker.view())), b""

    def _report(self) -> Report:
        assert self._place is not None
        view, moment = self._worker.view(), now()
        worker, run, broker = self._worker.whereabouts()
        evaluations, steps = self._rates.of(view, moment)
        return Report(
            name=self._place.name,
            pid=os.getpid(),
            worker=worker,
            run=harmless(run),
            broker=harmless(broker),
            seconds=moment - self._began,
            view=view,
            evaluations_per_second=evaluations,
            steps_per_second=steps,
        )


def _told(course: Course, view: View) -> str:
    """What follows of a volunteer's words."""
    if view.leaving or course.leave:
        return view.leaving or f"{course.leave}: leaves"
    if not course.paused:
        return "takes tasks"
    if not view.running:
        return course.paused
    return f"{course.paused}, once it has finished {news.counted(view.running, 'task')}"
