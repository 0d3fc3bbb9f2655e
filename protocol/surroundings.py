"""What the environment of a process adds to a broker's address: who we are, and the way there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from protocol.address import MAX_CREDENTIAL_BYTES, Address, AddressError, parse_address
from protocol.dial import check_proxy
from protocol.invites import seed_of

USER, PASSWORD, PROXY = "SHOAL_BROKER_USER", "SHOAL_BROKER_PASSWORD", "SHOAL_PROXY"
INVITE = "SHOAL_INVITE"


def address_from_here(
    text: str,
    proxy: str | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    invite: str | None = None,
) -> Address:
    """The address that `text` and the environment give together.

    What the text says goes before: credentials in the environment are for an address without a
    password. `proxy` and `invite` go before those in the environment. Raises ShoalError, which
    never repeats a password or a token.
    """
    address = parse_address(text)
    user, password = environment.get(USER), environment.get(PASSWORD)
    for name, value in ((USER, user), (PASSWORD, password)):
        if value is not None and ("\0" in value or len(value.encode()) > MAX_CREDENTIAL_BYTES):
            raise AddressError(f"{name}: it may have at most {MAX_CREDENTIAL_BYTES} bytes")
    if address.user is None and user:
        address = replace(address, user=user, password=password)
    elif address.user is not None and address.password is None:
        address = replace(address, password=password)
    invite = (invite or environment.get(INVITE) or "").strip()
    if invite:
        seed_of(invite)
        address = replace(address, invite=invite)
    proxy = proxy or environment.get(PROXY) or None
    return address if proxy is None else replace(address, proxy=check_proxy(proxy))
