"""The command `shoal pools`: runs that announce themselves on the local network."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `pools` to the `shoal` command."""
    app.command(name="pools", epilog="Example: shoal pools --seconds 5")(pools)


def pools(
    seconds: Annotated[
        float, typer.Option(min=0.5, max=60.0, help="Seconds to look for them.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")] = False,
) -> None:
    """List runs that hosts on the local network announce, with the line that joins each.

    Anybody on the network can announce anything: compare the key, after the #, with what the host
    shows.
    """
    from protocol.address import join_line
    from worker.nearby import look_around

    found = asyncio.run(look_around(seconds))
    for nearby in found:
        address = nearby.address
        assert address.run is not None
        assert address.fingerprint is not None
        if as_json:
            said = {"run": address.run, "url": str(address), "environment": nearby.environment}
            print(json.dumps({**said, "asks_token": nearby.asks}))
            continue
        token = "SHOAL_INVITE=TOKEN " if nearby.asks else ""
        line = join_line(address.pinned_broker, address.run, address.fingerprint)
        print(f"{token}{line}    ({nearby.environment})")
    if not found:
        print("no run is announced on the local network: ask for a join line", file=sys.stderr)
