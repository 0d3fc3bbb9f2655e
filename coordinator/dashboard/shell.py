"""The dashboard of a host: wires the run, the pages and a clock; decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn

from coordinator.dashboard.audience import Audience
from coordinator.dashboard.feed import Feed
from coordinator.dashboard.film import Film
from coordinator.dashboard.fragments import Fragment, fragment, opening
from coordinator.dashboard.guard import Connection
from coordinator.dashboard.history import History
from coordinator.dashboard.options import Choice
from coordinator.dashboard.ordering import Said, ordered
from coordinator.dashboard.pages import Desk, Pages
from coordinator.dashboard.published import Aliases
from coordinator.metrics_file import all_lines
from coordinator.overview import Overview
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.hosting import Listeners

EVERY_SECONDS = 0.8
"""Between two pictures, so that a page is less than a second behind."""
FRESH_SECONDS = 1.0
"""For which one is good for who asks for figures."""
CLOSE_SECONDS = 2

_LOGGER = logging.getLogger("shoal.coordinator")


class Led(Protocol):
    """A run that we lead."""

    def overview(self) -> Overview:
        """How it stands."""

    def heed(self, order: Any) -> None:
        """Do what a person orders."""

    def stop(self, reason: str) -> None:
        """End it."""


class _Uvicorn(uvicorn.Server):
    """Signals are the host's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them alone."""
        yield


class Dashboard:
    """Tells pages how a run stands, while any are open.

    Attributes:
        url: of the page, once it is entered as a context.
    """

    def __init__(
        self, choice: Choice, run: str, run_dir: Path, allowed: Sequence[str] = ()
    ) -> None:
        """`allowed` modules may hold the environment or the policy that is shown."""
        self.url = ""
        self._choice = choice
        self._run = run
        self._directory = run_dir
        self._history = History()
        self._aliases = Aliases(secrets.token_bytes(16))
        self._feed = Feed(self._history, self._aliases)
        self._audience = Audience()
        self._film = Film(run_dir, allowed)
        self._led: Led | None = None
        self._follows: dict[str, Any] | None = None
        self._last: Overview | None = None
        """of a run that we led and that is over"""
        self._seen: tuple[float, Overview | None] = (-FRESH_SECONDS, None)
        self._told_at = -EVERY_SECONDS
        self._whole: asyncio.Task[Fragment] | None = None
        self._join = ""
        self._instance = secrets.token_hex(8)
        self._server: _Uvicorn | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Dashboard:
        """Listen. Raises `ShoalError` where the address can't be had."""
        await asyncio.to_thread(self._read_past)
        listening = _listening(self._choice)
        host, port = self._choice.bind, listening.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        desk = Desk(
            self._run,
            host,
            self._film,
            self._listen,
            self._look,
            self._role,
            self._order,
            self._choice.token,
        )
        config = uvicorn.Config(
            Pages(desk).app(),
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        self._server = _Uvicorn(config)
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listening])),
            asyncio.create_task(self._tell_for_ever()),
        ]
        for task in self._tasks:
            task.add_done_callback(_note_failure)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Tell the end, and close."""
        serving, telling = self._tasks
        telling.cancel()
        with contextlib.suppress(Exception):
            await self._tell()
        self._audience.close()
        await self._film.close()
        assert self._server is not None
        self._server.should_exit = True
        await asyncio.gather(serving, telling, return_exceptions=True)

    def beside(self, listeners: Listeners, join: str) -> Listeners:
        """Listeners that tell us too. `join` is the line that volunteers join with."""
        from coordinator.hosting import both

        self._join = join.partition("  (")[0]
        ours = dataclasses.replace(
            listeners,
            on_event=self._event,
            on_update=lambda progress: None,
            on_ready=lambda: None,
            on_follow=lambda standby: self._follow(standby.version, standby.goal),
            on_metrics=self._history.metrics,
            on_lead=self._lead,
        )
        return both(listeners, ours)

    # What the host tells.

    def _event(self, line: str) -> None:
        self._aliases.learn(line)
        self._history.event(time.time(), line)

    def _lead(self, led: Led | None) -> None:
        if led is None and self._led is not None:
            self._last = self._led.overview()
        self._led = led
        self._follows = None

    def _follow(self, version: int, goal: int) -> None:
        self._follows = {"version": version, "goal": goal}

    def _read_past(self) -> None:
        """What metrics the run has so far."""
        with contextlib.suppress(OSError):
            for line in all_lines(self._directory):
                self._history.metrics(line)

    # What pages are told.

    def _role(self) -> str:
        if self._led is not None:
            return "leading"
        if self._follows is not None:
            return "following"
        return "over" if self._last is not None else "starting"

    def _look(self) -> Overview | None:
        """The run as it is, or was a moment ago; None while we don't lead it."""
        if self._led is None:
            return None
        if time.monotonic() - self._seen[0] >= FRESH_SECONDS:
            self._seen = time.monotonic(), self._led.overview()
        return self._seen[1]

    def _about(self) -> Mapping[str, Any]:
        """What of this host is told beside the run."""
        return {
            "run": self._run,
            "instance": self._instance,
            "role": self._role(),
            "follows": self._follows,
            "join": self._join,
            "orders": self._choice.token is not None,
            "film": self._film.news,
            "time": round(time.time(), 1),
        }

    def _news(self) -> dict[str, Any]:
        shown = self._last if self._led is None and self._follows is None else None
        if self._led is not None:
            shown = self._led.overview()
            self._seen = time.monotonic(), shown
        self._told_at = time.monotonic()
        self._whole = None
        return self._feed.news(shown, self._about())

    async def _tell(self) -> None:
        self._audience.tell(await asyncio.to_thread(fragment, self._news()))

    async def _tell_for_ever(self) -> None:
        """A picture a second, while somebody looks."""
        while True:
            began = time.monotonic()
            if len(self._audience):
                await self._tell()
            await asyncio.sleep(max(0.1, EVERY_SECONDS - (time.monotonic() - began)))

    def _listen(self) -> AsyncGenerator[Fragment, None]:
        """All that is, then all that comes. Raises `Full`."""
        seat = self._audience.sit()
        if time.monotonic() - self._told_at > 2 * EVERY_SECONDS:
            self._news()  # nobody listened, so nobody lacks what was new
        if self._whole is None:
            whole = self._feed.whole()
            self._whole = asyncio.ensure_future(asyncio.to_thread(fragment, whole))
        return self._audience.listen(seat, self._first(self._whole))

    async def _first(self, whole: asyncio.Task[Fragment]) -> Fragment:
        begin, rest = opening(), await asyncio.shield(whole)
        return Fragment(begin.plain + rest.plain, begin.deflated + rest.deflated)

    # What somebody with the token wants.

    def _order(self, said: Said) -> None:
        if self._led is None:
            raise ShoalError("this host does not lead the run now: order it of who does")
        order = ordered(said, self._aliases)
        if order is None:
            self._led.stop("stopped by the host (dashboard)")
        else:
            self._led.heed(order)


def _listening(choice: Choice) -> socket.socket:
    """A socket at the address. Raises `ShoalError`."""
    bind, port = choice.bind, choice.port
    try:
        found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address, family=family, backlog=64)
    except OSError as error:
        raise ShoalError(
            f"--dashboard {port}: {bind} can't be listened on ({error.strerror or error}): "
            "give a free port, or 0, and an address of this machine with --dashboard-bind"
        ) from None
    listening.setblocking(False)
    return listening


def _note_failure(task: asyncio.Task[Any]) -> None:
    """The run goes on without its pages."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        _LOGGER.error("the dashboard has failed, the run goes on", exc_info=failure)
