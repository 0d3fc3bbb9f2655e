"""The latest policy playing, for pages: a process of the worker's makes the frames while somebody
watches."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coordinator.child import end
from protocol.film import FRAME, HEAD, LARGEST, NEWS

MODULE = "worker.stream_frames"
"""Started as a process of its own: the coordinator runs no environment."""
MOST_WATCHERS = 8
LINGER_SECONDS = 3.0
"""After who watched last: pages come back at once where they are loaded anew."""
SILENT_SECONDS = 300.0
"""Without a word after which a process hangs: on the busiest machine it begins in less."""
REST_SECONDS = 30.0
"""Between the end of a process and the next one: what can't be shown now rarely can soon."""
END_SECONDS = 2.0
BOUNDARY = "frame"
CONTENT_TYPE = f"multipart/x-mixed-replace; boundary={BOUNDARY}"


class Film:
    """Frames of the newest policy, for a bounded number of watchers.

    Attributes:
        news: what the process last said of what it plays, or why it can't; empty before.
    """

    def __init__(
        self, run_dir: Path, allowed: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.news: dict[str, Any] = {}
        self._run_dir = run_dir
        self._allowed = allowed
        self._clock = clock
        self._watchers = 0
        self._frame = b""
        self._number = 0
        self._next = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._left_at = 0.0
        self._heard_at = 0.0
        self._closed = False

    @property
    def has_room(self) -> bool:
        """Whether somebody more may watch."""
        return self._watchers < MOST_WATCHERS

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Parts of a multipart answer, each a frame; who is slow misses some."""
        self._watchers += 1
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        try:
            shown = 0
            while not self._closed:
                if self._number > shown and self._frame:
                    shown = self._number
                    yield _part(self._frame)
                await self._next.wait()
        finally:
            self._watchers -= 1
            self._left_at = self._clock()

    async def close(self) -> None:
        """It is over, for all who watch."""
        self._closed = True
        self._turn()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        """Have a process as long as somebody watches."""
        while self._is_wanted():
            process = await self._start()
            try:
                await self._hear(process)
            finally:
                await _end(process)
            if "error" not in self.news:
                self.news = {"error": f"the process that plays ended ({process.returncode})"}
            rested = self._clock() + REST_SECONDS
            while self._is_wanted() and self._clock() < rested:
                await asyncio.sleep(0.1)

    def _is_wanted(self) -> bool:
        return self._watchers > 0 or self._clock() - self._left_at < LINGER_SECONDS

    async def _start(self) -> Process:
        self.news = {}
        allowing = [f"--allow-module={module}" for module in self._allowed]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", MODULE, *allowing, "--", str(self._run_dir)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )

    async def _hear(self, process: Process) -> None:
        """What the process says, until it ends, is silent for too long or nobody watches."""
        assert process.stdout is not None
        hearing = asyncio.create_task(self._take_all(process.stdout))
        try:
            while self._is_wanted() and not hearing.done():
                await asyncio.wait({hearing}, timeout=1.0)
                if self._clock() - self._heard_at > SILENT_SECONDS:
                    self.news = {"error": f"the process that plays hung for {SILENT_SECONDS:.0f} s"}
                    return
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _take_all(self, said: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                self._heard_at = self._clock()
                kind, size = HEAD.unpack(await said.readexactly(HEAD.size))
                if size > LARGEST:
                    return
                self._take(kind, await said.readexactly(size))

    def _take(self, kind: bytes, body: bytes) -> None:
        if kind == FRAME:
            self._frame = body
            self._number += 1
            self._turn()
        elif kind == NEWS:
            with contextlib.suppress(msgspec.DecodeError):
                self.news = msgspec.json.decode(body, type=dict[str, Any])

    def _turn(self) -> None:
        """Wake who waits for a frame."""
        awaited, self._next = self._next, asyncio.Event()
        awaited.set()


def _part(frame: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame)}\r\n\r\n"
    return head.encode() + frame + b"\r\n"


async def _end(process: Process) -> None:
    await end(process, END_SECONDS)
    # What is in the pipe is read, for only then its transport is closed; a child of the process's
    # may hold it open.
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while await process.stdout.read(LARGEST):
                pass
