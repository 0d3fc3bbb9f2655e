"""Tasks beside the rest, whose failures somebody hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Starts tasks, and holds on to them while they run."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure` is told what made a task fail."""
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the rest."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def settle(self) -> None:
        """Returns when those that run now are done."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def cancel(self) -> None:
        """End them all."""
        for task in self._running:
            task.cancel()
        await self.settle()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._on_failure(failure)
