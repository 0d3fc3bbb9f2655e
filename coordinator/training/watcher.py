"""Watches a training for the program that started it: its callback, its stop, what failed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coordinator.progress import Progress
from coordinator.training.results import OnUpdate, StopTraining, TrainingProgress
from coordinator.training.showing import Status
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.local import LocalWorkers
    from coordinator.server import Server


class Watcher:
    """Takes what happens, as `coordinator.watching.Watching` has it.

    Attributes:
        failure: what the program's own callback raised.
        stranded: set once no worker of this machine is left that would ever come back.
        seconds: for which the run has been led, in all.
    """

    def __init__(
        self, run: str, on_update: OnUpdate | None, status: Status, tells_way: bool
    ) -> None:
        """`tells_way`: whether others can join, and are to be told how."""
        self.failure: BaseException | None = None
        self.stranded: asyncio.Future[ShoalError] = asyncio.get_running_loop().create_future()
        self.seconds = 0.0
        self._run = run
        self._on_update = on_update
        self._status = status
        self._tells_way = tells_way
        self._server: Server | None = None
        self._ending = False
        self._gone: asyncio.Task[None] | None = None

    def say(self, line: str) -> None:
        """What goes on before the first update is of no interest."""

    def event(self, line: str) -> None:
        """Likewise in the pool."""

    def go_on(self, progress: Progress, directory: Path) -> None:
        """What counted before is told with all that comes."""

    def update(self, progress: Progress) -> None:
        """The state of the run after an update: for the line, and for the program."""
        if self._server is not None:
            self.seconds = self._server.seconds
        now = TrainingProgress.of(self._run, progress, self.seconds)
        self._status.show(now)
        if self._on_update is None or self._ending:
            return
        try:
            self._heed(self._on_update(now))
        except StopTraining as asked:
            self._stop(str(asked) or "stopped by on_update")
        except BaseException as error:  # sys.exit() is to leave a run that waits, too
            self.failure = error
            self.pause("paused: on_update failed")

    def measure(self, line: Mapping[str, Any]) -> None:
        """It is in the run directory."""

    def follow(self, version: int, goal: int) -> None:
        """Somebody else leads: there is nothing to decide."""

    def ready(self, join: str) -> None:
        """Workers can join."""
        if self._tells_way:
            self._status.say(f"volunteers join with:  {join}")

    def lead(self, server: Server | None) -> None:
        """We lead the run from now on; None: no more."""
        if self._server is not None:
            self.seconds = self._server.seconds
        self._server = server

    def employ(self, workers: LocalWorkers) -> None:
        """The workers of this machine: without any that could come back the run would wait for
        ever."""
        self._gone = asyncio.create_task(self._await_gone(workers))

    def clear(self) -> None:
        """Leave the terminal as it was found."""
        self._status.close()

    def close(self, progress: Progress) -> None:
        """The last state is in the result."""
        self._status.close()

    def pause(self, reason: str) -> bool:
        """Have the run wait for who goes on with it: whether it is ours, so that it will."""
        self._ending = True
        if self._server is None:
            return False
        self._server.pause(reason)
        return True

    async def end(self) -> None:
        """Watch no more."""
        self._status.close()
        if self._gone is not None:
            self._gone.cancel()
            await asyncio.gather(self._gone, return_exceptions=True)

    def _heed(self, answer: object) -> None:
        """What the program says to an update."""
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ShoalError(
                "on_update gave something to be awaited, which nobody awaits: give a plain function"
            )
        if isinstance(answer, bool | np.bool_) and not answer:
            self._stop("stopped by on_update")

    def _stop(self, reason: str) -> None:
        self._ending = True
        if self._server is not None:
            self._server.stop(reason)

    async def _await_gone(self, workers: LocalWorkers) -> None:
        await workers.gone.wait()
        self.stranded.set_result(
            ShoalError(f"all workers of this machine ended: {workers.last_words}")
        )
