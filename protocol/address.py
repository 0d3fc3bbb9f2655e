"""Reads and writes the address of a broker and of a run on it: what `shoal join` is given."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
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

Scheme = Literal["mqtt", "mqtts", "ws", "wss"]

DEFAULT_PATH = "/mqtt"
"""Where brokers take WebSockets, unless an address says otherwise."""

_DEFAULT_PORTS: dict[Scheme, int] = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_PATH_PATTERN = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}")
_HOST_PATTERN = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")


class AddressError(ShoalError):
    """An address that names no broker that we can reach."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker, and where known a run on it and the fingerprint of the key that leads it.

    `str` is fit for a screen or a log: it never shows the password, nor the proxy's.

    Attributes:
        certificate: fingerprint of the key in the broker's certificate, which then need not be
            signed by anybody.
        path: of the WebSocket; empty for others.
        proxy: URL of the proxy to go through; see `protocol.dial`.
        invite: token of the host, for where the broker or the host asks for one; see
            `protocol.invites`.
    """

    scheme: Scheme
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    run: str | None = None
    fingerprint: str | None = None
    certificate: str | None = None
    path: str = ""
    proxy: str | None = field(default=None, repr=False)
    invite: str = field(default="", repr=False)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted and the broker proves its name, or its key."""
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        """Whether MQTT goes through a WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def broker(self) -> str:
        """The broker alone, as people call it: `mqtt://host:1883`."""
        return f"{self.scheme}://{self._location()}"

    @property
    def pinned_broker(self) -> str:
        """The broker alone, without credentials, to reach it again."""
        return self.broker + self._pin()

    @property
    def broker_with_credentials(self) -> str:
        """The broker alone, to connect to it again: never for a screen or a log."""
        return f"{self.scheme}://{self._credentials()}{self._location()}{self._pin()}"

    @property
    def with_credentials(self) -> str:
        """The whole address, which `parse_address` reads: never for a screen or a log."""
        return f"{self.scheme}://{self._credentials()}{self._location()}{self._target()}"

    def __str__(self) -> str:
        credentials = ""
        if self.user is not None:
            secret = ":***" if self.password is not None else ""
            credentials = f"{quote(self.user, safe='')}{secret}@"
        return f"{self.scheme}://{credentials}{self._location()}{self._target()}"

    def _credentials(self) -> str:
        if self.user is None:
            return ""
        secret = f":{quote(self.password, safe='')}" if self.password is not None else ""
        return f"{quote(self.user, safe='')}{secret}@"

    def _location(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = "" if self.path == DEFAULT_PATH else self.path
        return f"{host}:{self.port}{path}"

    def _target(self) -> str:
        path = "" if self.run is None else f"/{self.run}"
        if self.fingerprint is None:
            return path + self._pin()
        pin = "" if self.certificate is None else f".{self.certificate}"
        return f"{path}#{self.fingerprint}{pin}"

    def _pin(self) -> str:
        return "" if self.certificate is None else f"#.{self.certificate}"


def parse_address(text: str) -> Address:
    """Read `mqtt[s]://[user[:password]@]host[:port][/run][#[fingerprint][.certificate]]`.

    `ws://` and `wss://` may have the WebSocket's path before the run. Raises AddressError naming
    the part that is wrong and what to write instead. No message repeats the credentials.
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
    path, run = _path_and_run(text, scheme, parts.path)
    key, certificate = _fingerprints(text, scheme, parts.fragment)
    return Address(
        scheme=scheme,
        host=_host(text, host, bracketed="[" in parts.netloc.rpartition("@")[2]),
        port=_port(text, parts.netloc, scheme),
        user=_credential(text, "user name", parts.username),
        password=_credential(text, "password", parts.password),
        run=run,
        fingerprint=key,
        certificate=certificate,
        path=path,
    )


def join_line(url: str, run: str | None, fingerprint: str) -> str:
    """The command to give to volunteers of `run` on the broker at `url`, or where it is None of all
    runs there that the key leads.

    The host's own credentials are for the host alone: where the broker asks for some, the line
    has USER:PASSWORD in their place.
    """
    address = parse_address(url)
    line = str(replace(address, user=None, password=None, run=run, fingerprint=fingerprint))
    parse_address(line)
    if address.user is not None:
        line = line.replace("://", "://USER:PASSWORD@", 1)
    return f"shoal join {line}"


def _scheme(text: str) -> Scheme:
    scheme, separator, _ = text.partition("://")
    for known in _DEFAULT_PORTS:
        if separator and scheme.lower() == known:
            return known
    raise AddressError(
        f"{_shown(text)} does not begin with mqtt://, mqtts://, ws:// or wss://: "
        f"write it like {EXAMPLE}"
    )


def _host(text: str, host: str, *, bracketed: bool) -> str:
    if bracketed:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise AddressError(
                f"{_shown(text)}: {_named(host)} in brackets is not an IPv6 address: "
                "write it like mqtt://[::1]:1883"
            ) from None
    if len(host) > 253 or _HOST_PATTERN.fullmatch(host) is None:
        raise AddressError(
            f"{_shown(text)}: {_named(host)} is not a host name or an IP address: "
            f"write it like {EXAMPLE}"
        )
    return host


def _port(text: str, netloc: str, scheme: Scheme) -> int:
    # urlsplit takes an empty port, a sign and other scripts' digits; an address has none of them.
    location = netloc.rpartition("@")[2]
    port = location.rpartition("]")[2] if "[" in location else location
    _, separator, digits = port.partition(":")
    if not separator:
        return _DEFAULT_PORTS[scheme]
    if re.fullmatch(r"[0-9]{1,5}", digits) is None or not 1 <= int(digits) <= 65535:
        raise AddressError(
            f"{_shown(text)}: {_named(digits)} is not a port: it must be a number from 1 to 65535"
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


def _path_and_run(text: str, scheme: Scheme, path: str) -> tuple[str, str | None]:
    """The WebSocket's path, empty for other schemes, and the run."""
    if scheme in ("mqtt", "mqtts"):
        return "", None if path in ("", "/") else _run(text, path[1:])
    before, _, last = path.rstrip("/").rpartition("/")
    run = last if RUN_PATTERN.fullmatch(last) else None
    place = before if run else path.rstrip("/")
    if place and _PATH_PATTERN.fullmatch(place) is None:
        raise AddressError(
            f"{_shown(text)}: {_named(place)} is not the path of a WebSocket: write it like "
            f"wss://host{DEFAULT_PATH}"
        )
    return place or DEFAULT_PATH, run


def _run(text: str, run: str) -> str:
    if RUN_PATTERN.fullmatch(run) is None:
        raise AddressError(
            f"{_shown(text)}: {_named(run)} is not a run: it must look like cartpole-1a2b3c4d "
            "(lower-case name, dash, 8 hex digits)"
        )
    return run


def _fingerprints(text: str, scheme: Scheme, fragment: str) -> tuple[str | None, str | None]:
    """Those of the key that leads the run and of the broker's certificate."""
    key, separator, certificate = fragment.lower().partition(".")
    for part in ([key] if key else []) + ([certificate] if separator else []):
        if FINGERPRINT_PATTERN.fullmatch(part) is None:
            raise AddressError(
                f"{_shown(text)}: {_named(part)} is not a key's fingerprint: it must be the 26 "
                "letters and digits after the # in the host's join line, or the 26 after the dot: "
                "copy the whole line"
            )
    if separator and scheme not in ("mqtts", "wss"):
        raise AddressError(
            f"{_shown(text)} has a certificate's fingerprint, but {scheme}:// has no certificate: "
            "write mqtts:// or wss://"
        )
    return key or None, certificate if separator else None


def _named(text: str) -> str:
    """A part of an address as an error may repeat it, not endless either."""
    return repr(text[:60])


def _shown(text: str) -> str:
    """The address as an error may repeat it: without credentials, and not endless."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    location = rest.rpartition("@")[2] if "@" in rest else rest
    hidden = "***@" if "@" in rest else ""
    return repr(f"{scheme}{separator}{hidden}{location}"[:120])
