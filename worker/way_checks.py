"""Looks at the way to a run: name, port, TLS, password, announcement, and whether it takes us."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from protocol.address import Address
from protocol.errors import ShoalError
from protocol.exit_codes import NO_ENVIRONMENT, SENT_AWAY, UNREACHABLE
from protocol.identity import Identity
from protocol.link import FatalLinkError
from worker import preflight
from worker.console import harmless
from worker.daemon import Daemon
from worker.findings import Finding
from worker.handshake import UnsuitableError, WrongLineError
from worker.membership import UnreachableError
from worker.settings import Settings
from worker.view import View
from worker.visit import NoAnswerError, SilentRunError, Visit, visit

WAY_SECONDS = 5.0
"""Seconds that a name, a port, or TLS may take."""
TRIAL_SECONDS = 180.0
"""Seconds until the host takes us: kernels are compiled the first time on a machine."""
REASONS = {
    "certificate": "TLS",
    "credentials": "password",
    "authorisation": "password",
    "subscription": "topics",
}
CODES = {
    NO_ENVIRONMENT: "environment",
    UNREACHABLE: "topics",
    SENT_AWAY: "admission",
}


async def way(settings: Settings, identity: Identity) -> AsyncIterator[Finding]:
    """What is found on the way to the run, up to the first thing that bars it."""
    address = settings.address
    if address.proxy is None:
        for check in (_name, _port):
            found = await check(address)
            yield found
            if found.state == "fail":
                return
        if address.tls:
            yield await _certificate_date(address)
    try:
        visited = await visit(address, identity)
    except ShoalError as error:
        found = _barred(error)
        if isinstance(error, NoAnswerError) and not address.tls:
            found = replace(found, remedy="where it speaks TLS, write mqtts://")
        yield found
        return
    yield Finding("broker", "ok", preflight.reached(address, visited.seconds))
    found = _run(visited)
    yield found
    if visited.epoch is None or found.state == "fail":
        return
    yield Finding("version", "ok", preflight.accepted())
    async for found in _takes_us(replace(settings, address=visited.address), identity):
        yield found


async def _name(address: Address) -> Finding:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WAY_SECONDS):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or "no answer"
        return Finding(
            "name",
            "fail",
            f"{address.host} has no address here ({why})",
            "check its spelling, and this machine's DNS; or ask the host for a number",
        )
    shown = sorted({str(entry[4][0]) for entry in found})
    return Finding("name", "ok", f"{address.host} is {', '.join(shown[:4])}")


async def _port(address: Address) -> Finding:
    where = f"port {address.port} of {address.host}"
    try:
        async with asyncio.timeout(WAY_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()
    except TimeoutError:
        return Finding(
            "port", "fail", f"{where} does not answer", "a firewall may be on the way; ask the host"
        )
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        return Finding(
            "port", "fail", f"{where} is closed ({why})", "is the host up? check the join line"
        )
    return Finding("port", "ok", f"{where} is open")


async def _certificate_date(address: Address) -> Finding:
    """Whether our clock is one at which the broker's certificate had been made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is only looked at; the visit judges it
    try:
        async with asyncio.timeout(WAY_SECONDS):
            _, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=address.host
            )
    except (OSError, TimeoutError) as error:
        why = getattr(error, "reason", None) or str(error) or "no answer"
        return Finding(
            "TLS",
            "fail",
            f"there is none ({str(why)[:120]})",
            "is the address mqtt://, not mqtts://?",
        )
    with contextlib.closing(writer):
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    from cryptography import x509

    try:
        made = x509.load_der_x509_certificate(shown).not_valid_before_utc
    except ValueError:
        return Finding("TLS", "fail", "its certificate is none", "ask the broker's owner")
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    if now < made:
        return Finding(
            "TLS",
            "warn",
            f"it is {now:%Y-%m-%d} here, the broker's certificate is of {made:%Y-%m-%d}",
            "set this machine's clock",
        )
    return Finding("TLS", "ok", f"the broker's certificate is of {made:%Y-%m-%d}")


def _barred(error: ShoalError) -> Finding:
    """What keeps us from the run, from the words of who found out: they have the remedy."""
    what = "broker"
    match error:
        case FatalLinkError():
            what = REASONS.get(error.reason, "broker")
        case SilentRunError():
            what = "run"
        case UnsuitableError():
            what = "version"
        case WrongLineError():
            what = "key"
        case NoAnswerError() | UnreachableError():
            what = "broker"
    return Finding(what, "fail", harmless(str(error)))


def _run(visited: Visit) -> Finding:
    where = visited.address.broker
    if visited.epoch is None:
        if not visited.runs:
            return Finding("run", "fail", f"none is led at {where}", "ask the host; or wait for it")
        names = ", ".join(here.run for here in visited.runs[:8])
        return Finding(
            "run", "fail", f"several are led at {where}: {names}", "give the join line of one"
        )
    assert visited.spec is not None
    epoch = visited.epoch
    text = (
        f"{visited.address.run}: {harmless(visited.spec.environment.id)}, {epoch.state}, "
        f"led by {visited.address.fingerprint}"
    )
    if epoch.state in ("finished", "stopped"):
        return Finding("run", "fail", text, "it is over: ask the host for another")
    return Finding("run", "ok", text)


async def _takes_us(settings: Settings, identity: Identity) -> AsyncIterator[Finding]:
    """Take part for a moment, without a task: environment, topics, and the host's welcome."""
    told = _Told()
    daemon = Daemon(replace(settings, credit=0, once=True, children=1), identity, told)
    running = asyncio.ensure_future(daemon.run())
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            while not running.done() and not (daemon.session and daemon.session.settled):
                await asyncio.wait((running,), timeout=0.1)
    except TimeoutError:
        yield Finding(
            "host",
            "fail",
            f"it has not taken this worker within {TRIAL_SECONDS:.0f} s: {told.idle_because}",
            "ask the host",
        )
        daemon.terminate()
        await asyncio.gather(running, return_exceptions=True)
        return
    if running.done():
        try:
            what = CODES.get(running.result(), "host")
        except ShoalError as error:
            yield _barred(error)
        else:
            yield Finding(what, "fail", told.last)
        return
    for line in told.tested:
        yield Finding("environment", "ok", line)
    yield Finding("topics", "ok", "the broker passes on what this worker publishes")
    yield Finding("host", "ok", "it takes this worker")
    daemon.terminate()
    await asyncio.gather(running, return_exceptions=True)


class _Told:
    """A console that remembers what matters to a doctor."""

    def __init__(self) -> None:
        self.last = ""
        self.idle_because = ""
        self.tested: list[str] = []

    def say(self, text: str, warning: bool = False) -> None:
        """Take a line."""
        self.last = harmless(text)
        if preflight.TESTED in text:
            self.tested.append(self.last)

    def show(self, view: View, now: float) -> None:
        """Take the status."""
        self.idle_because = view.idle_because

    def close(self) -> None:
        """Nothing to do."""
