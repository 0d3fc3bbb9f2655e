"""What the dashboard answers: the page, its stream, the film, orders, `/metrics` and `/healthz`."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from coordinator.dashboard import film, prometheus
from coordinator.dashboard.audience import Full
from coordinator.dashboard.film import Film
from coordinator.dashboard.fragments import GZIP_HEADER, Fragment
from coordinator.dashboard.guard import Guard
from coordinator.dashboard.ordering import Said
from coordinator.overview import Overview
from protocol.allowance import Allowance
from protocol.clock import now
from protocol.errors import ShoalError

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STALL_SECONDS = 10.0
"""In which a page takes what waits for it."""
LONGEST_ORDER = 4096
"""Bytes."""
GUESSES_PER_SECOND, GUESSES_AT_ONCE = 0.2, 10.0
"""Wrong tokens that are looked at."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the pages are made from.

    Attributes:
        run: its name.
        listen: a seat in the audience, as a stream of events. Raises `Full`.
        look: the picture of the run, a second old at most; None while we do not lead it.
        role: leading, following or starting.
        order: does what somebody with the token wants. Raises `ShoalError`.
        token: None: no orders are taken.
    """

    run: str
    bind: str
    film: Film
    listen: Callable[[], AsyncGenerator[Fragment, None]]
    look: Callable[[], Overview | None]
    role: Callable[[], str]
    order: Callable[[Said], None]
    token: str | None


class Stream(Response):
    """An answer that goes on until its parts end, the other side leaves, or it takes nothing."""

    def __init__(self, parts: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        leaving = asyncio.ensure_future(_left(receive))
        try:
            while (part := await self._next(leaving)) is not None:
                async with asyncio.timeout(STALL_SECONDS):
                    body = {"type": "http.response.body", "body": part, "more_body": True}
                    await send(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return  # the connection is closed, as the answer has no end
        finally:
            leaving.cancel()
            await self._parts.aclose()

    async def _next(self, leaving: asyncio.Future[None]) -> bytes | None:
        """The next part; None once there is none, or nobody to take it."""
        coming = asyncio.ensure_future(anext(self._parts, None))
        try:
            await asyncio.wait((coming, leaving), return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


class Pages:
    """The answers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._guesses = Allowance(GUESSES_PER_SECOND, GUESSES_AT_ONCE)
        self._files = dict(_static())

    def app(self) -> Guard:
        """The application."""
        routes = [
            Route("/", self._file, methods=["GET"]),
            Route("/static/{name}", self._file, methods=["GET"]),
            Route("/stream", self._stream, methods=["GET"]),
            Route("/film", self._film, methods=["GET"]),
            Route("/orders", self._order, methods=["POST"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/healthz", self._health, methods=["GET"]),
        ]
        return Guard(Starlette(routes=routes), self._desk.bind)

    async def _file(self, request: Request) -> Response:
        found = self._files.get(request.path_params.get("name", "index.html"))
        if found is None:
            return PlainTextResponse("There is no such page.\n", status_code=404)
        plain, zipped, kind = found
        if _takes_gzip(request):
            return Response(zipped, headers={"Content-Encoding": "gzip"}, media_type=kind)
        return Response(plain, media_type=kind)

    async def _stream(self, request: Request) -> Response:
        try:
            told = self._desk.listen()
        except Full:
            return PlainTextResponse(
                "As many pages listen as may: close one.\n", 503, headers={"Retry-After": "10"}
            )
        headers = {"Content-Type": "text/event-stream; charset=utf-8"}
        if _takes_gzip(request):
            return Stream(_zipped(told), {**headers, "Content-Encoding": "gzip"})
        return Stream(_plain(told), headers)

    async def _film(self, request: Request) -> Response:
        if not self._desk.film.has_room:
            return PlainTextResponse("As many watch the film as may.\n", 503)
        return Stream(self._desk.film.frames(), {"Content-Type": film.CONTENT_TYPE})

    async def _order(self, request: Request) -> Response:
        token = self._desk.token
        if token is None:
            return _refused(403, "this dashboard only shows: its host gave it no token")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.encode(), token.encode())
        if scheme.lower() != "bearer" or not right:
            # Who has the right one is never kept out: it is too long to be found by trying.
            if self._guesses.delay(now()) > 0.0:
                return _refused(429, "too many wrong tokens: wait a moment")
            self._guesses.overdraw(1.0)
            return _refused(401, "the token is not the one that the host set")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_ORDER:
                return _refused(413, f"an order has {LONGEST_ORDER} bytes at most")
        try:
            self._desk.order(msgspec.json.decode(body, type=Said))
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            return _refused(400, f"this is no order ({str(error)[:100]})")
        except ShoalError as error:
            return _refused(409, str(error))
        return JSONResponse({"done": True})

    async def _metrics(self, request: Request) -> Response:
        said = prometheus.text(self._desk.run, self._desk.look())
        return Response(said, headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _health(self, request: Request) -> Response:
        role = self._desk.role()
        status = 503 if role == "starting" else 200
        return JSONResponse({"run": self._desk.run, "role": role}, status)


def _static() -> list[tuple[str, tuple[bytes, bytes, str]]]:
    """The files of the page, which are few: name, (as it is, zipped, media type)."""
    found = []
    for file in files("coordinator.dashboard").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            plain = file.read_bytes()
            found.append((file.name, (plain, gzip.compress(plain, mtime=0), kind)))
    return found


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


async def _zipped(told: AsyncGenerator[Fragment, None]) -> AsyncGenerator[bytes, None]:
    yield GZIP_HEADER
    async with contextlib.aclosing(told):
        async for each in told:
            yield each.deflated


async def _plain(told: AsyncGenerator[Fragment, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(told):
        async for each in told:
            yield each.plain


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)
