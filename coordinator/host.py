"""Hosting one run: its key and directory, the server, and signals put together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coordinator.directory import RunDirectory
from coordinator.progress import Outcome, Progress
from protocol.address import join_line, parse_address
from protocol.identity import Identity, run_id
from protocol.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is about to be led: its name, its key, its place on disk."""

    id: str
    identity: Identity
    directory: RunDirectory
    reuses_key: bool
    """whether others may lead, or have led, a run with this key"""


def prepare(spec: RunSpec, where: Path | None, key: Path | None = None) -> Run:
    """Make the run's key and directory. Raises `ShoalError` where the directory is taken.

    Each run has a key of its own unless `key` names one, so no two runs share a name on a broker.
    """
    identity = Identity.load(key) if key is not None else Identity.generate()
    run = run_id(spec.name, identity.public_key)
    directory = RunDirectory(where if where is not None else Path("runs") / run, run)
    identity.save(directory.key_path)
    return Run(run, identity, directory, reuses_key=key is not None)


def join_command(run: Run, broker_url: str) -> str:
    """What volunteers type to take part, where the broker is at that URL for them."""
    return join_line(broker_url, run.id, run.identity.fingerprint)


async def lead(
    spec: RunSpec,
    run: Run,
    broker_url: str,
    *,
    on_event: Callable[[str], None],
    on_update: Callable[[Progress], None],
    on_ready: Callable[[], None],
) -> Outcome:
    """Lead the run over this broker until it ends; SIGINT and SIGTERM end it orderly.

    `on_ready` is called once volunteers can join. Raises `ShoalError` where the run can't
    be led: no broker, somebody who leads it already, a disk that takes no more.
    """
    # Loaded here: compiled code takes a while, and whoever prepares a run may start others first.
    from coordinator.leading import next_epoch
    from coordinator.peers import Leader
    from coordinator.server import Server

    address = parse_address(broker_url)
    epoch = await next_epoch(address, run.id, run.identity) if run.reuses_key else 1
    server = Server(
        spec,
        Leader(run.id, run.identity, epoch),
        run.directory,
        address,
        on_event=on_event,
        on_update=on_update,
        on_ready=on_ready,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(
            number, server.stop, f"stopped by the host ({signal.Signals(number).name})"
        )
    try:
        return await server.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def summary(outcome: Outcome, seconds: float) -> dict[str, object]:
    """The figures of a run that has ended, for `--json`."""
    centre = outcome.centre
    return {
        "solved": outcome.reached,
        "centre_return": None if centre is None else centre.mean,
        "updates": outcome.updates,
        "episodes": outcome.progress.episodes,
        "env_steps": outcome.progress.steps,
        "seconds": round(seconds, 3),
        "wire_bytes_per_episode": round(outcome.progress.wire_bytes_per_episode, 3),
        "params_hash": outcome.params_hash,
    }


def verdict(outcome: Outcome) -> str:
    """One sentence on how the run ended."""
    centre = outcome.centre
    judged = "not evaluated"
    if centre is not None:
        judged = f"{centre.mean:.1f} over {centre.episodes} episodes"
    word = "solved" if outcome.reached else "ended"
    return (
        f"{word}: {outcome.reason}; returns version {outcome.version} "
        f"(params_hash {outcome.params_hash}), centre {judged}"
    )
