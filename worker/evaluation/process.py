"""One evaluation process as the daemon sees it: started, spoken to, and seen to its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from pathlib import Path

from protocol.packing import WireError
from protocol.spec import RunSpec
from worker.evaluation import pipe
from worker.evaluation.memory import Meter, shown
from worker.evaluation.parts import Part

SINGLE_THREADED = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
ENDS_WITHIN = 2.0  # seconds that a child which closed its pipe has to end by itself
STREAM_LIMIT = 1 << 16  # bytes that are read ahead
WEIGHED_EVERY = 0.1  # seconds between two looks at what a child takes, of one that works or not
WORN = 7 / 8  # of the memory that a child may take, with which it gets no more parts
KILLED = 9  # the signal that nobody can catch, which Windows has not
LAST_WORDS = 2048  # bytes kept of what a child writes to its error stream


class Lost(Exception):  # noqa: N818 - what happened to the child, said as such
    """A child is gone or past hope; the message says how, without naming it: `died (SIGSEGV)`."""


class Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """The pipes of a process, and the moment of its end.

    `Process.wait` comes later: it waits for the pipes, which something that the process started and
    left behind may hold open for ever.
    """

    def __init__(self) -> None:
        super().__init__(STREAM_LIMIT, asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        """The process has ended."""
        super().process_exited()
        self.exited.set()


class Child:
    """One process, from its start to its end.

    Attributes:
        found: what it found out about this machine, once it can evaluate.
        configured: whether it was told what to evaluate.
        fresh: whether it has been given nothing but suspects yet.
        parts: handed out to it and not answered in full, in order.
        answered: how many it has had besides those.
        silent: seconds for which it owed a word and could have been heard.
        worn: whether it has little memory left to take, and gets no more parts.
        outgrown: how it took too much memory; empty unless it was ended for that.
        struck: whether, once it is seen to its end, somebody else had ended it: nothing that it had
            can be blamed for that.
        ending: whether it is past hope.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, streams: Streams) -> None:
        self.process = process = asyncio.subprocess.Process(
            transport, streams, asyncio.get_running_loop()
        )
        assert process.stdin and process.stdout and process.stderr
        self._transport, self._exited = transport, streams.exited
        self.found: pipe.Ready | None = None
        self.configured = False
        self.fresh = True
        self.parts: list[Part] = []
        self.answered = 0
        self.silent = 0.0
        self.worn = False
        self.outgrown = ""
        self.struck = False
        self.ending = False
        self._given_up = ""
        self._meter = Meter(process.pid)
        self._weighed = -math.inf
        self._unsent: list[bytes] = []
        self._requests, self._replies, self._errors = process.stdin, process.stdout, process.stderr
        self._last_words = b""
        self._ended_by_us = False
        self._listening = asyncio.create_task(self._collect_words())
        self._closing = asyncio.create_task(self._close())

    @property
    def ready(self) -> bool:
        """Whether it can evaluate."""
        return self.found is not None

    def room(self, most: int) -> bool:
        """Whether it may have one more part besides those that it has, `most` in all; nothing may
        stand beside a suspect."""
        suspect = any(part.suspect for part in self.parts)
        return not (self.ending or self.worn or suspect) and len(self.parts) < most

    @classmethod
    async def spawn(cls) -> Child:
        """A new process, in a session of its own: a terminal's Ctrl-C does not reach it."""
        search = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        loop = asyncio.get_running_loop()
        transport, streams = await loop.subprocess_exec(
            Streams,
            sys.executable,
            "-P",  # modules come from this process's search path, not from the current folder
            "-m",
            "worker.evaluation.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **SINGLE_THREADED, "PYTHONPATH": search},
            start_new_session=True,
        )
        return cls(transport, streams)

    def send(self, frame: bytes) -> None:
        """Send a frame; it is lost where the process is gone, as `hear` will tell."""
        self.send_soon(frame)
        self.flush()

    def send_soon(self, frame: bytes) -> None:
        """Send a frame together with the next one, or at the next `flush`: each that goes alone
        interrupts the process."""
        self._unsent.append(frame)

    def flush(self) -> None:
        """Send what waits."""
        if self._unsent:
            self._requests.write(b"".join(self._unsent))
            self._unsent.clear()

    async def hear(self, run_spec: RunSpec) -> pipe.Reply:
        """The next reply, no longer than it can be for what is in hand by then. Raises `Lost`."""
        try:
            header = await self._replies.readexactly(pipe.HEADER)
            directions = max((part.rest.count for part in self.parts), default=0)
            size = pipe.length(header, pipe.reply_limit(run_spec, directions))
            return pipe.reply(await self._replies.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._exit()
            raise Lost(await self.end()) from None
        except WireError as error:
            raise Lost(f"spoke out of turn: {error}") from None

    def weigh(self, limit: float) -> None:
        """End the process if it takes more than `limit` bytes of memory, or nearly as much and has
        nothing to do: what leaks a little with every episode is replaced between two parts."""
        moment = asyncio.get_running_loop().time()
        if self.ending or moment < self._weighed + WEIGHED_EVERY:
            return
        self._weighed = moment
        used = self._meter.own()
        self.worn = self.worn or (self.answered > 0 and used > WORN * limit)
        if used > limit:
            self.outgrown = (
                f"grew to {shown(used)}, the limit is {shown(limit)}: "
                "raise --memory-limit or --memory, or mend the environment"
            )
        elif self.worn and not self.parts:
            self.outgrown = (
                f"grew to {shown(used)} of the {shown(limit)} that it may take, and is replaced"
            )
        if self.outgrown:
            self.kill()

    def give_up(self, reason: str) -> None:
        """End a process that is past hope, for a reason that `end` will give."""
        if not self.ending:
            self._given_up = reason
            self.kill()

    def kill(self) -> None:
        """End the process and what it started, at once."""
        if self.ending:
            return  # its number may be another's by now
        self.ending = True
        self._ended_by_us = not self._exited.is_set()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32":
                os.killpg(self.process.pid, signal.SIGKILL)
            elif not self._exited.is_set():
                self.process.kill()

    async def end(self) -> str:
        """See the process to its end, which comes at once; says how it was.

        A cancellation waits for it: what is cut off half-way stays open.
        """
        ending = asyncio.ensure_future(self._end())
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _end(self) -> str:
        self.kill()
        await self._exited.wait()
        code = self.process.returncode
        assert code is not None
        await asyncio.wait({self._listening}, timeout=1.0)
        self._listening.cancel()
        self._closing.cancel()
        self._transport.close()
        if self.outgrown or self._given_up:
            return self.outgrown or self._given_up
        if code == -KILLED and not self._ended_by_us:
            self.struck = True
            return "was killed from outside (SIGKILL), by somebody or for want of memory"
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        with contextlib.suppress(ValueError):
            how = signal.Signals(-code).name
        lines = self._last_words.decode(errors="replace").split("\n")
        said = " ".join(next((line for line in reversed(lines) if line.strip()), "").split())[:200]
        return f"died ({how})" + (f", after saying: {said}" if said else "")

    async def _exit(self) -> None:
        """Let a process that has closed its pipe come to its own end, for a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN):
                await self._exited.wait()

    async def _close(self) -> None:
        """Close what the process leaves behind, which may hold its pipes: their end is awaited."""
        await self._exited.wait()
        self.kill()
        await asyncio.sleep(ENDS_WITHIN)  # for what is still in them
        self._transport.close()

    async def _collect_words(self) -> None:
        """Keep the last of what the process, environment included, writes to its error stream."""
        while data := await self._errors.read(1 << 16):
            self._last_words = (self._last_words + data)[-LAST_WORDS:]
