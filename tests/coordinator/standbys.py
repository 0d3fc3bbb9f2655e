"""Standbys in this process, beside leaders that can be cut off at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from coordinator import host, hosting, update
from coordinator.hosting import Listeners, Role
from coordinator.log import LogReader, UpdateRow
from coordinator.peers import Leader
from coordinator.pool.events import CloseBatch
from coordinator.progress import Outcome
from protocol import replay
from protocol.address import parse_address
from protocol.authority import Authority
from protocol.identity import Identity, digest_of, fingerprint
from protocol.messages import Update
from protocol.spec import RunSpec
from protocol.state import params_hash
from tests.coordinator.runs import Led, contribution
from tests.coordinator.scripted import DEADLINE

PATIENCE = 0.6
"""Seconds; with BEATS of a third of it."""
BEATS = 0.2


def appointing(
    spec: RunSpec, directory: Path, url: str, *delegates: Identity, identity: Identity | None = None
) -> Led:
    """A new run that these may take over, while it is led."""
    key = None
    if identity is not None:
        key = directory.parent / f"{directory.name}.key"
        identity.save(key)
    digests = tuple(digest_of(delegate.fingerprint) for delegate in delegates)
    return Led(host.prepare(spec, directory, key, digests), url)


class Standing:
    """Somebody who follows a run, or leads it, in a task of its own."""

    def __init__(self, directory: Path, run: str, work: Callable[[Listeners], Any]) -> None:
        self.path = directory
        self.run = run
        self.lines: list[str] = []
        self.ready = asyncio.Event()
        self._news = asyncio.Event()
        listeners = Listeners(
            on_event=self._hear,
            on_update=lambda progress: self._news.set(),
            on_follow=lambda standby: self._news.set(),
            on_ready=self.ready.set,
        )
        self.running: asyncio.Task[Outcome] = asyncio.create_task(work(listeners))
        self.running.add_done_callback(lambda task: self._news.set())

    def _hear(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that happens here makes the condition true."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    if self.running.done():
                        self.running.result()
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), 0.1)
        except TimeoutError:
            raise AssertionError("\n".join(self.lines)) from None

    async def said(self, text: str) -> None:
        await self.until(lambda: self.says(text))

    async def version(self, version: int) -> None:
        await self.until(lambda: self.logged >= version)

    @property
    def logged(self) -> int:
        try:
            with LogReader(self.path / "log.sqlite") as log:
                return log.version
        except Exception:
            return 0

    async def outcome(self) -> Outcome:
        try:
            async with asyncio.timeout(DEADLINE):
                return await asyncio.shield(self.running)
        except TimeoutError:
            raise AssertionError("\n".join(self.lines)) from None

    async def end(self) -> None:
        """As a crash would."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@contextlib.asynccontextmanager
async def standing_by(
    run: str,
    root: bytes,
    url: str,
    directory: Path,
    identity: Identity,
    patience: float = PATIENCE,
) -> AsyncIterator[Standing]:
    """A standby of this run."""

    def work(listeners: Listeners) -> Any:
        address = parse_address(url)
        return hosting.stand_by(
            run, fingerprint(root), identity, directory, address, listeners, patience
        )

    standing = Standing(directory, run, work)
    try:
        yield standing
    finally:
        await standing.end()


@contextlib.asynccontextmanager
async def returning(
    directory: Path, url: str, role: Role = "resume", patience: float = PATIENCE
) -> AsyncIterator[Standing]:
    """A host that goes on with the run in a directory, over a broker that others use."""
    run = host.resume(directory)
    course = host.load(run, lambda line: None)

    def work(listeners: Listeners) -> Any:
        return hosting.host(run, course, parse_address(url), role, listeners, patience)

    standing = Standing(directory, run.id, work)
    try:
        yield standing
    finally:
        await standing.end()
        course.log.close()
        run.directory.close()


def payloads(directory: Path) -> list[bytes]:
    """The history in a run directory."""
    with LogReader(directory / "log.sqlite") as log:
        return log.updates(0, log.version)


def aside(directory: Path) -> list[int]:
    """The versions of the updates that were set aside there."""
    with LogReader(directory / "log.sqlite") as log:
        return [row.update.version for row in log.aside_rows()]


def hashes(spec: RunSpec, directory: Path, authority: Authority) -> list[str]:
    """The hash of every version of the history there: each signature and each step is checked."""
    state, rules = replay.initial_state(spec), replay.arithmetic(spec)
    found = [params_hash(state.theta)]
    for payload in payloads(directory):
        update = authority.open_update(payload)
        assert isinstance(update, Update)
        state = replay.follow(spec, rules, state, update)
        found.append(params_hash(state.theta))
    return found


def secret(directory: Path) -> bytes:
    return (directory / "secret").read_bytes()


class Cable:
    """A way to a broker that can be cut and mended."""

    def __init__(self, url: str) -> None:
        self._port = parse_address(url).port
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._cut = False
        self.url = ""

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def cut(self) -> None:
        self._cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self._cut = False

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        if self._cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends |= {writer, back}
        with contextlib.suppress(OSError):
            await asyncio.gather(_pipe(reader, back), _pipe(there, writer))


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


def add_updates(directory: Path, count: int) -> None:
    """Updates that the leader of the run in this directory logged, and nobody heard of."""
    run = host.resume(directory)
    course = host.load(run, lambda line: None)
    leader = Leader(run.id, run.identity, course.epoch, course.authority)
    state, rules = course.recovered.versions.current, replay.arithmetic(run.spec)
    for version in range(state.version, state.version + count):
        first = version * run.spec.directions
        batch = contribution(run.spec, state, first, run.spec.directions)
        made, payload = update.make_signed(
            run.spec, rules, leader, state, CloseBatch(version, (batch,), ())
        )
        course.log.append(UpdateRow(version, payload, 0.0, made.members, 0, 0.0, 1))
        state = made.after
    course.log.close()
    run.directory.close()
