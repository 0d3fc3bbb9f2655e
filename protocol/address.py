"""Reads and writes the address of a broker and of a run on it: what `shoal join` is given."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote_to_bytes, urlsplit

from protocol.errors import ShoalError
from protocol.topics import RUN_PATTERN

MAX_ADDRESS_LENGTH = 1024
"""Characters."""

MAX_CREDENTIAL_BYTES = 256
"""Bytes of UTF-8 in a user name or a password."""

FINGERPRINT_PATTERN = re.compile(r"[a-z2-7]{25}[aeimquy4]")
"""Base32 of 16 bytes: the last character carries 3 bits, so only every fourth one can occur."""

EXAMPLE = "mqtt://host:1883"

_DEFAULT_PORTS: dict[str, int] = {"mqtt": 1883, "mqtts": 8883}
_HOST_PATTERN = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")


class AddressError(ShoalError):
    """An address that names no broker that we can reach."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker, and where known a run on it and the fingerprint of the key that leads it.

    `str` is fit for a screen or a log: it never shows the password.
    """

    scheme: Literal["mqtt", "mqtts"]
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    run: str | None = None
    fingerprint: str | None = None

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted and the broker proves its name."""
        return self.scheme == "mqtts"

    @property
    def broker(self) -> str:
        """The broker alone, without credentials: `mqtt://host:1883`."""
        return f"{self.scheme}://{self._location()}"

    @property
    def broker_with_credentials(self) -> str:
        """The broker alone, to connect to it again: never for a screen or a log."""
        credentials = ""
        if self.user is not None:
            secret = f":{quote(self.password, safe='')}" if self.password is not None else ""
            credentials = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.scheme}://{credentials}{self._location()}"

    def __str__(self) -> str:
        credentials = ""
        if self.user is not None:
            secret = ":***" if self.password is not None else ""
            credentials = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.scheme}://{credentials}{self._location()}{self._target()}"

    def _location(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def _target(self) -> str:
        path = "" if self.run is None else f"/{self.run}"
        fragment = "" if self.fingerprint is None else f"#{self.fingerprint}"
        return path + fragment


def parse_address(text: str) -> Address:
    """Read `mqtt[s]://[user[:password]@]host[:port][/run][#fingerprint]`.

    Raises AddressError naming the part that is wrong and what to write instead. No message
    repeats the credentials.
    """
    if len(text) > MAX_ADDRESS_LENGTH:
        raise AddressError(
            f"an address of {len(text)} characters is too long (at most {MAX_ADDRESS_LENGTH}): "
            f"write it like {EXAMPLE}"
        )
    if any(character.isspace() or not character.isprintable() for character in text):
        raise AddressError(
            f"{_shown(text)} contains a space or a control character: write it like {EXAMPLE}"
        )
    scheme = _scheme(text)
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        # Its own words may repeat the credentials.
        raise AddressError(f"{_shown(text)} is not an address: write it like {EXAMPLE}") from None
    if "@" in parts.path + parts.query + parts.fragment:
        raise AddressError(
            f"{_shown(text)}: a / ? or # in the user name or password must be written as "
            "%2F, %3F or %23"
        )
    if "?" in text:
        raise AddressError(f"{_shown(text)} has a query (?...): leave it out")
    return Address(
        scheme=scheme,
        host=_host(text, host, bracketed="[" in parts.netloc.rpartition("@")[2]),
        port=_port(text, parts.netloc, scheme),
        user=_credential(text, "user name", parts.username),
        password=_credential(text, "password", parts.password),
        run=_run(text, parts.path),
        fingerprint=_fingerprint(text, parts.fragment),
    )


def join_line(url: str, run: str, fingerprint: str) -> str:
    """The command to give to volunteers of `run` on the broker at `url`.

    The host's own credentials are for the host alone: where the broker asks for some, the line
    has USER:PASSWORD in their place.
    """
    address = parse_address(url)
    target = parse_address(f"{address.broker}/{run}#{fingerprint}")
    line = str(target)
    if address.user is not None:
        line = line.replace("://", "://USER:PASSWORD@", 1)
    return f"shoal join {line}"


def _scheme(text: str) -> Literal["mqtt", "mqtts"]:
    scheme, separator, _ = text.partition("://")
    scheme = scheme.lower()
    if separator and scheme in ("ws", "wss"):
        remedy = "mqtts://host:8883" if scheme == "wss" else EXAMPLE
        raise AddressError(
            f"{_shown(text)}: MQTT over WebSocket is not supported; "
            f"use the broker's plain listener, like {remedy}"
        )
    if separator and scheme == "mqtt":
        return "mqtt"
    if separator and scheme == "mqtts":
        return "mqtts"
    raise AddressError(
        f"{_shown(text)} does not begin with mqtt:// or mqtts://: write it like {EXAMPLE}"
    )


def _host(text: str, host: str, *, bracketed: bool) -> str:
    if bracketed:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise AddressError(
                f"{_shown(text)}: {host!r} in brackets is not an IPv6 address: "
                "write it like mqtt://[::1]:1883"
            ) from None
    if len(host) > 253 or _HOST_PATTERN.fullmatch(host) is None:
        raise AddressError(
            f"{_shown(text)}: {host!r} is not a host name or an IP address: write it like {EXAMPLE}"
        )
    return host


def _port(text: str, netloc: str, scheme: str) -> int:
    # urlsplit takes an empty port, a sign and other scripts' digits; an address has none of them.
    location = netloc.rpartition("@")[2]
    port = location.rpartition("]")[2] if "[" in location else location
    _, separator, digits = port.partition(":")
    if not separator:
        return _DEFAULT_PORTS[scheme]
    if re.fullmatch(r"[0-9]{1,5}", digits) is None or not 1 <= int(digits) <= 65535:
        raise AddressError(
            f"{_shown(text)}: {digits!r} is not a port: it must be a number from 1 to 65535"
        )
    return int(digits)


def _credential(text: str, what: str, quoted: str | None) -> str | None:
    if quoted is None:
        return None
    try:
        value = unquote_to_bytes(quoted).decode("utf-8")
    except UnicodeDecodeError:
        raise AddressError(
            f"{_shown(text)}: the {what} is not UTF-8: write special characters as %XX"
        ) from None
    if "\0" in value or len(value.encode("utf-8")) > MAX_CREDENTIAL_BYTES:
        raise AddressError(
            f"{_shown(text)}: the {what} may have no NUL and at most {MAX_CREDENTIAL_BYTES} bytes"
        )
    if what == "user name" and value == "":
        raise AddressError(
            f"{_shown(text)}: the user name before the @ is empty: write user:password@host"
        )
    return value


def _run(text: str, path: str) -> str | None:
    if path in ("", "/"):
        return None
    run = path[1:]
    if RUN_PATTERN.fullmatch(run) is None:
        raise AddressError(
            f"{_shown(text)}: {run!r} is not a run: it must look like cartpole-1a2b3c4d "
            "(lower-case name, dash, 8 hex digits)"
        )
    return run


def _fingerprint(text: str, fragment: str) -> str | None:
    if fragment == "":
        return None
    fingerprint = fragment.lower()
    if FINGERPRINT_PATTERN.fullmatch(fingerprint) is None:
        raise AddressError(
            f"{_shown(text)}: {fragment!r} is not a key's fingerprint: it must be the 26 letters "
            "and digits after the # in the host's join line"
        )
    return fingerprint


def _shown(text: str) -> str:
    """The address as an error may repeat it: without credentials, and not endless."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    location = rest.rpartition("@")[2] if "@" in rest else rest
    hidden = "***@" if "@" in rest else ""
    return repr(f"{scheme}{separator}{hidden}{location}"[:120])
