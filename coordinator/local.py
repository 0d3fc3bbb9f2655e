"""Workers of the host's own: child processes on this machine, kept alive, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coordinator.child import end
from protocol.address import Address
from protocol.clock import now
from protocol.errors import ShoalError
from protocol.exit_codes import DONE, REPEATED
from protocol.identity import Identity
from protocol.installed import environment

if TYPE_CHECKING:
    from coordinator.server import Server

MOST_WORKERS = 256
LAST_BYTES = 4096
"""Of a log, in which its last line is looked for: it grows for as long as its worker lives."""
GOODBYE = 5.0
"""Seconds that workers have to leave by themselves once the run has ended."""
STOP = 3.0
"""Seconds that a worker has to end which is told to."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before one that ended is started again: each time twice as many."""
GOOD_AFTER = 30.0
"""Seconds for which one must have lived before that begins anew."""


def wanted(text: str, cores: int) -> int:
    """How many workers `--local-workers` asks for on a machine with `cores`. Raises ShoalError."""
    if text == "auto":
        return max(1, cores - 1)
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) and int(text) <= MOST_WORKERS:
        return int(text)
    raise ShoalError(
        f"--local-workers {text[:40]!r}: must be auto, all cores but one, or a number from 0 to "
        f"{MOST_WORKERS}"
    )


def pause_before(failures: int) -> float:
    """Seconds before a worker is started again that ended so many times in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 30))


def unconfigured(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what a volunteer of this machine says there to workers of other runs."""
    return {name: value for name, value in environment.items() if not name.startswith("SHOAL_")}


@dataclass(frozen=True, slots=True)
class Way:
    """How workers of this machine get into the run.

    Attributes:
        address: of the run at its broker, or of the broker alone where they serve all runs there,
            without credentials.
        secrets: what the broker and the host ask them for, as variables of their environment: no
            list of processes shows these.
        allowed: modules that may register environments.
        nice: how far all else on this machine goes first.
        name: what the host's lines call them, before a number.
    """

    address: Address
    secrets: Mapping[str, str]
    allowed: tuple[str, ...] = ()
    nice: int = 10
    name: str = "local"


def way_in(
    reached: Address,
    run: str | None,
    root_fingerprint: str | None,
    token: str,
    proxy: str | None,
) -> Way:
    """The way into a run whose broker this machine reaches at `reached`, by the credentials there;
    None for both: into all runs there. `token`: what the broker asks for, empty where it asks for
    nothing."""
    from protocol import surroundings

    secrets = {}
    if token:
        secrets[surroundings.INVITE] = token
    if proxy:
        secrets[surroundings.PROXY] = proxy
    if reached.user is not None:
        secrets[surroundings.USER] = reached.user
        secrets[surroundings.PASSWORD] = reached.password or ""
    address = replace(
        reached,
        user=None,
        password=None,
        proxy=None,
        invite="",
        run=run,
        fingerprint=root_fingerprint,
    )
    return Way(address, secrets)


class _Worker:
    """One of them, through all its processes."""

    def __init__(self, number: int, logs: Path) -> None:
        self.number = number
        self.home = logs / f"worker-{number}"
        self.log = logs / f"worker-{number}.log"
        self.identity = Identity.load_or_create(self.home / "worker.key")
        self.process: Process | None = None
        self.keeping: asyncio.Task[None] | None = None
        self.unwanted = False

    async def start(self, way: Way) -> Process:
        command = [sys.executable, "-m", "worker", str(way.address), "--cores", "1"]
        command += ["--nice", str(way.nice), "--name", f"{way.name}-{self.number}"]
        command += ["--home", str(self.home), "--exit-with-parent"]
        command += [f"--allow-module={module}" for module in way.allowed]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=log,
                stderr=log,
                env=environment({**unconfigured(os.environ), **way.secrets}, way.allowed),
                start_new_session=True,
            )
        return self.process

    def last_words(self) -> str:
        """The last line of its log."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LAST_BYTES))
            lines = log.read(LAST_BYTES).decode(errors="replace").strip().splitlines()
            return lines[-1][:200] if lines else ""
        return ""


class LocalWorkers:
    """All of them. Each has a key of its own in the run directory: the host takes its word against
    all others', and lets it in whoever else may come.

    Attributes:
        gone: set while none is left that would ever come back, and there was one.
        last_words: how the last of them ended that does not come back.
    """

    def __init__(self, directory: Path, way: Callable[[], Way], say: Callable[[str], None]) -> None:
        """`directory`: of the run, for keys and logs. `way` is asked for once the first one starts;
        `say` gets lines for people."""
        self.gone = asyncio.Event()
        self.last_words = ""
        self._logs = directory / "logs"
        self._find_way = way
        self._say = say
        self._workers: list[_Worker] = []
        self._changing = asyncio.Lock()
        """held while one comes or goes: no two have the same number, and so the same key"""
        self._server: Server | None = None

    @cached_property
    def _way(self) -> Way:
        return self._find_way()

    @property
    def count(self) -> int:
        """How many there are, those included that are about to start again."""
        return len(self._workers)

    @property
    def public_keys(self) -> list[bytes]:
        """Their keys, which stay theirs whenever they are started again."""
        return [worker.identity.public_key for worker in self._workers]

    def led(self, server: Server | None) -> None:
        """We lead the run from now on, by that server; None: no more."""
        self._server = server
        if server is not None:
            for worker in self._workers:
                server.rely_on(worker.identity.public_key)

    async def add(self) -> None:
        """One more, unless there are as many as there can be. Raises `ShoalError`."""
        async with self._changing:
            if self.count < MOST_WORKERS:
                await self._add()

    async def _add(self) -> None:
        taken = {worker.number for worker in self._workers}
        number = next(n for n in range(MOST_WORKERS) if n not in taken)
        try:
            self._logs.mkdir(exist_ok=True)
            worker = _Worker(number, self._logs)
            await worker.start(self._way)
        except OSError as error:
            raise ShoalError(
                f"a worker of this machine can't be started in {self._logs} ({error}): see to the "
                "disk, or leave out --local-workers"
            ) from None
        self._workers.append(worker)
        self.gone.clear()
        if self._server is not None:
            self._server.rely_on(worker.identity.public_key)
        worker.keeping = asyncio.create_task(self._keep(worker))

    async def remove(self) -> None:
        """One less: the last that came hands its tasks back, and ends."""
        async with self._changing:
            if self._workers:
                await self._end(self._workers.pop())

    async def let_go(self) -> None:
        """Wait for all to leave by themselves: they know that the run has ended."""
        for worker in self._workers:
            worker.unwanted = True
        processes = [w.process for w in self._workers if w.process is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await asyncio.gather(*(process.wait() for process in processes))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all that are left."""
        async with self._changing:
            workers, self._workers = self._workers, []
            await asyncio.gather(*map(self._end, workers))

    async def _keep(self, worker: _Worker) -> None:
        """Start it again whenever it ends, as long as that may help."""
        failures = 0
        while worker.process is not None:
            began = now()
            code = await worker.process.wait()
            if worker.unwanted:
                return
            name = f"{self._way.name}-{worker.number}"
            if code == DONE:
                self._tell_last(f"{name} has left")
                break
            why = f"{name} ended ({_how(code)}): {worker.last_words() or f'see {worker.log}'}"
            if code in REPEATED:
                self._tell_last(f"{why}; it is not started again")
                break
            failures = 1 if now() - began >= GOOD_AFTER else failures + 1
            pause = pause_before(failures)
            self._say(f"{why}; started again in {pause:.0f} s")
            await asyncio.sleep(pause)
            try:
                await worker.start(self._way)
            except OSError as error:
                self._tell_last(f"{name} can't be started again ({error})")
                break
        self._workers.remove(worker)
        if not self._workers:
            self.gone.set()

    def _tell_last(self, line: str) -> None:
        self.last_words = line
        self._say(line)

    async def _end(self, worker: _Worker) -> None:
        worker.unwanted = True
        process = worker.process
        if process is not None and process.returncode is None:
            await end(process, STOP)
        if worker.keeping is not None:
            worker.keeping.cancel()
            await asyncio.gather(worker.keeping, return_exceptions=True)
        if worker.process is not None and worker.process is not process:
            await end(worker.process, STOP)  # it was just being started again


def _how(code: int) -> str:
    """What an exit code means."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
