"""What stands before the pages: headers that browsers keep to, whom we answer, how many connect."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""At once: each is an open file of the coordinator's."""
FIRST_REQUEST_SECONDS = 10.0
"""In which who connects says what it wants."""
LOOK_SECONDS = 5.0
"""In which who was answered says the next thing, and who is answered takes something of it."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Of every answer: nothing but our own files runs or loads, and nothing is kept."""
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Answers who may ask, and sets the headers.

    On the loopback a request must name it as its host: else a stranger's page could have its own
    name lead here, and read what it is answered (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, bind: str) -> None:
        self._app = app
        self._names = LOOPBACK_NAMES | {bind} if is_loopback(bind) else None
        self._headers = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        app = self._app
        if self._names is not None and host_of(scope) not in self._names:
            app = PlainTextResponse(
                "This dashboard answers to 127.0.0.1 and localhost alone.\n", status_code=421
            )
        await app(scope, receive, with_headers)


class Connection(H11Protocol):
    """A connection, one of a bounded number, that is not kept for who says or takes nothing."""

    _before: tuple[Any, int] = (None, 0)
    """when we looked: the last request if it was answered, and the bytes that nobody took"""

    def connection_made(self, transport: Any) -> None:
        """Somebody connected."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        """Let go of it, with all that waits for it, where it is closing, where nothing whole was
        asked since the last look, or where nothing was taken: uvicorn would wait for ever."""
        if self not in self.connections:
            return
        answered, waits = self._before
        left = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if self.cycle is answered or self.transport.is_closing() or (left and left == waits):
            self.transport.abort()
            return
        # What is not answered yet is not None, which stands for nothing at all.
        self._before = self.cycle if self.cycle.response_complete else self, left
        self.loop.call_later(LOOK_SECONDS, self._look)


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def host_of(scope: Scope) -> str:
    """The host that a request names, without the port; empty where it names none, or several."""
    named = [value for key, value in scope["headers"] if key == b"host"]
    if len(named) != 1:
        return ""
    found = HOST.fullmatch(named[0].decode("latin-1").lower())
    return "" if found is None else found[1] or found[2]
