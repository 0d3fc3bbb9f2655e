"""What a run says of itself on the local network (mDNS, DNS-SD), and how it is read."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from protocol.address import Address, AddressError, parse_address
from protocol.figures import printable

SERVICE = "_shoal._tcp.local."
NETWORK = "SHOAL_LOCAL_NETWORK"
"""Variable with the addresses of this machine, comma between, on whose networks alone runs are
announced and looked for."""
LONGEST_TEXT = 255
"""Bytes of one entry, by its protocol: key, =, and value."""
LONGEST_NAME = 63
"""Characters of what is announced; the end of a run's name tells it from others."""


@dataclass(frozen=True, slots=True)
class Nearby:
    """A run that somebody on the local network says is led there; nothing proves it.

    Attributes:
        address: with the run, and the key that is said to lead it.
        environment: as it is said.
        asks: whether a token is needed.
    """

    address: Address
    environment: str
    asks: bool = False


def announced(found: Nearby) -> dict[str, str]:
    """What is announced: no credentials, no token. Raises AddressError where it does not fit."""
    bare = replace(found.address, user=None, password=None, invite="", proxy=None)
    said = {
        "url": str(bare),
        "environment": found.environment[:100],
        "asks": "token" if found.asks else "nothing",
    }
    if any(len(f"{key}={value}".encode()) > LONGEST_TEXT for key, value in said.items()):
        raise AddressError(
            f"{bare.broker} is too long to be announced: give a shorter name with --advertise"
        )
    return said


def heard(properties: Mapping[bytes, bytes | None]) -> Nearby | None:
    """What an announcement says, by anybody; None where it is not whole."""
    url = properties.get(b"url") or b""
    environment = properties.get(b"environment") or b""
    try:
        address = parse_address(url.decode())
        text = environment.decode()
    except (AddressError, UnicodeDecodeError):
        return None
    if address.run is None or address.fingerprint is None or address.user is not None:
        return None
    return Nearby(address, printable(text[:100]), properties.get(b"asks") == b"token")


def hush(loop: asyncio.AbstractEventLoop) -> None:
    """Let nothing be written of what the library makes of a stranger's packets, in its loop."""
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL + 1)
    loop.set_exception_handler(lambda _, context: None)


def networks(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """On which of this machine's addresses alone to speak and listen; None for all."""
    parts = [part.strip() for part in environment.get(NETWORK, "").split(",")]
    return [part for part in parts if part] or None
