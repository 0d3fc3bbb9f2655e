"""Hands what `worker.serving` decides to peers, and keeps the snapshots on disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.clock import now
from protocol.errors import ShoalError
from protocol.link import Link
from worker.scratch import Scratch
from worker.serving import Discard, Freeze, Keep, Serving
from worker.threads import in_thread

if TYPE_CHECKING:
    from protocol.frozen import Frozen

PATIENT_ABOVE = 256 * 1024
"""Unsent bytes above which peers wait: results and signs of life go first."""
PATIENCE = 0.02
"""Seconds between two looks at the unsent bytes."""


class Upload:
    """One session's service for its peers.

    Its snapshots lie in a temporary directory, made when it is first needed.
    """

    def __init__(self, link: Link, serving: Serving, topic: Callable[[str], str]) -> None:
        """`topic`: where a joiner is served."""
        self._link = link
        self._serving = serving
        self._topic = topic
        self._wanted = asyncio.Event()
        self._scratch = Scratch()
        self._closed = False

    @property
    def directory(self) -> Path | None:
        """Where the snapshots are; None while there was none."""
        return self._scratch.path

    def wake(self) -> None:
        """Something may have been asked for."""
        self._wanted.set()

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            delay = self._serving.delay(now())
            if delay is None:
                await self._wanted.wait()
                self._wanted.clear()
            elif delay or self._link.unsent > PATIENT_ABOVE:
                await asyncio.sleep(max(delay, PATIENCE))
            else:
                await self._serve()

    async def _serve(self) -> None:
        turn = self._serving.turn(now())
        if turn is None:
            return
        with contextlib.suppress(ShoalError):  # let go of meanwhile, or a broken disk
            payload = await in_thread(turn.payload)
            self._link.publish(self._topic(turn.joiner), payload)

    async def hold(self, job: Freeze | Keep) -> Frozen:
        """Keep a snapshot on disk. Raises `FrozenError` or MemoryError."""
        return await in_thread(lambda: self._hold(job))

    async def discard(self, job: Discard) -> None:
        """Let go of a snapshot on disk."""
        directory = self.directory
        if directory is not None:
            await in_thread(lambda: _discard(directory, job.version))

    def close(self) -> None:
        """Leave nothing on disk."""
        self._closed = True
        self._scratch.remove()

    def _hold(self, job: Freeze | Keep) -> Frozen:
        from protocol.frozen import FrozenError, Snapshots

        try:
            snapshots = Snapshots(self._scratch.make(), lasting=False)
            if isinstance(job, Freeze):
                return snapshots.freeze(job.state)
            return snapshots.keep(job.version, job.data)
        except OSError as error:
            raise FrozenError(f"can't keep a snapshot: {error.strerror or error}") from None
        finally:
            if self._closed:
                self._scratch.remove()


def _discard(directory: Path, version: int) -> None:
    from protocol.frozen import Snapshots

    Snapshots(directory).remove(version)
