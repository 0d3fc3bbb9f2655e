"""Follows a run as `shoal host --standby` was asked to, and leads it when it is our turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.dashboard import options as dashboards
from coordinator.dashboard.opening import opened
from coordinator.ending import tell_the_end
from coordinator.history.cli import this_command

if TYPE_CHECKING:
    from coordinator.progress import Outcome
    from coordinator.server import Server
    from coordinator.watching import Watching


def stand_by_as_asked(
    url: str,
    run_dir: Path | None,
    key: Path | None,
    home: str,
    patience: float,
    proxy: str | None,
    console: Watching,
    as_json: bool,
    watched: dashboards.Choice | None,
    modules: tuple[str, ...],
) -> None:
    """Follow the run of a join line with this machine's key, or that in `key`, after so many
    seconds of patience as its leader. Raises `ShoalError` where that can't be."""
    from coordinator.history.keys import home_key
    from protocol.address import join_line
    from protocol.errors import ShoalError
    from protocol.identity import Identity
    from protocol.surroundings import address_from_here

    address = address_from_here(url, proxy)
    run, root = address.run, address.fingerprint
    if run is None or root is None:
        raise ShoalError(
            f"--standby {address}: give the whole line that volunteers join with, "
            "mqtt://HOST:PORT/RUN#FINGERPRINT; the host prints it"
        )
    key_file = home_key(home) if key is None else key
    identity = Identity.load(key) if key is not None else Identity.load_or_create(key_file)
    where = run_dir if run_dir is not None else Path("runs") / run
    console.say(f"standby {identity.fingerprint} for the run {run}, kept in {where}")

    async def standing() -> Outcome:
        from coordinator.host import heed_signals
        from coordinator.hosting import Listeners, stand_by

        def led(server: Server | None) -> None:
            heed_signals(server)
            console.lead(server)

        listeners = Listeners(
            on_event=console.event,
            on_update=console.update,
            on_follow=lambda standby: console.follow(standby.version, standby.goal),
            on_ready=lambda: console.ready(join_line(url, run, root)),
            on_metrics=console.measure,
            on_lead=led,
        )
        line = join_line(url, run, root)
        async with opened(watched, run, where, modules, console.say) as beside:
            told = beside(listeners, line)
            return await stand_by(run, root, identity, where, address, told, patience)

    again = f"host --standby {address} --run-dir {where}"
    try:
        outcome = asyncio.run(standing())
    except KeyboardInterrupt:
        console.say(f"no standby any more; go on as one: {this_command()} {again}")
        raise
    finally:
        console.clear()
    if outcome.state == "stopped":  # there is nobody to follow
        again = f"host --resume {where} --broker {address.pinned_broker} --key {key_file}"
    tell_the_end(console, where, outcome, again, as_json)


def refuse_beside_standby(given: list[str]) -> None:
    """A standby follows a run as it is, over the broker that the run is at. Raises `ShoalError`
    where options of these names are given."""
    from protocol.errors import ShoalError

    if given:
        raise ShoalError(
            f"--standby follows a run as it is, over its own broker: leave out {', '.join(given)}"
        )
