"""The address that a managed broker listens on: taken, checked and named."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from coordinator.broker.rules import HOST, Rules
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.broker.tls import Tls


def take(host: str, port: int) -> socket.socket:
    """Listen on a TCP socket at `host`:`port` (0: a free port); no one has been accepted yet.

    Raises ShoalError, naming the address, the rule and the remedy, where that cannot be.
    """
    where = f"{host}:{port}"
    if not 0 <= port <= 65535:
        raise ShoalError(f"cannot listen on {where}: a port is 0 to 65535; 0 takes a free one")
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise ShoalError(
            f"cannot listen on {where}: a broker needs an address of this machine and a port up "
            f"to 65535 ({error}); use 127.0.0.1, or 0.0.0.0 for all of its addresses"
        ) from error
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ShoalError(f"cannot listen on {where}: {_why(error)}") from error
    return listener


def in_use(host: str, port: int) -> ShoalError:
    """Return the error for an address that another program holds."""
    return ShoalError(f"cannot listen on {host}:{port}: {_IN_USE}")


def url(host: str, port: int, tls: Tls | None = None) -> str:
    """Return the MQTT URL of a broker at an address."""
    if tls is not None:
        return tls.url(host, port)
    return f"mqtt://[{host}]:{port}" if ":" in host else f"mqtt://{host}:{port}"


def as_host(url: str, rules: Rules | None) -> str:
    """Return the URL with the host's password, where the broker asks for it: for no screen."""
    return url if rules is None else url.replace("://", f"://{HOST}:{rules.password}@", 1)


def inward(host: str) -> str:
    """The address at which this machine itself reaches a broker that listens on `host`."""
    return _ANY.get(host, host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a broker that listens on `host`."""
    return host.startswith(_LOOPBACK)


def outward(host: str) -> str:
    """The address of this machine that others reach a broker at which listens on `host`.

    For all addresses it is the one that the way out of this machine starts from; where there is no
    way out, as in a network of its own, that of an interface which is up; without one, loopback.
    """
    if host not in _ANY:
        return host
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    somewhere = ("2001:db8::1", 9) if family == socket.AF_INET6 else ("192.0.2.1", 9)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(somewhere)  # finds a route; nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return first_outward(_interfaces(family)) or _ANY[host]


def first_outward(interfaces: Iterable[tuple[str, str]]) -> str:
    """The address, of (interface, address) in the system's order, that other machines most likely
    reach; empty where there is none. Bridges to containers come last."""
    usable = [
        (name.startswith(_BRIDGES), place, address)
        for place, (name, address) in enumerate(interfaces)
        if not is_loopback(address) and not address.lower().startswith(_OF_A_LINK)
    ]
    return min(usable)[2] if usable else ""


def _interfaces(family: socket.AddressFamily) -> list[tuple[str, str]]:
    """The addresses of the interfaces that are up."""
    import psutil

    states = psutil.net_if_stats()
    return [
        (name, each.address)
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family == family and name in states and states[name].isup
    ]


_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Names for all addresses of this machine -> the one to reach it at from itself."""

_BRIDGES = ("docker", "br-", "virbr", "lxc", "cni")
"""How interfaces are called at which only containers and virtual machines are."""

_OF_A_LINK = ("169.254.", "fe80:")
"""Addresses that hold on one link alone."""

_LOOPBACK = ("127.", "localhost", "::1")

_IN_USE = (
    "another program listens there and a port has one owner; "
    "stop it, or choose another port (0 takes a free one)"
)


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return _IN_USE
    if error.errno in (errno.EACCES, errno.EPERM):
        return "ports below 1024 belong to the administrator; choose a higher one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "that is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all of them"
    return f"{error.strerror}; choose another address or port"
