"""`shoal demo`: broker, coordinator and workers as real processes on this machine, start to end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.child import end
from coordinator.dashboard.opening import Beside
from coordinator.host import Run, heed_signals, join_command, load
from coordinator.local import STOP, LocalWorkers, Way
from coordinator.progress import Outcome
from protocol.address import parse_address
from protocol.errors import ShoalError

if TYPE_CHECKING:
    from coordinator.server import Server
    from coordinator.watching import Watching

BROKER_START = 20.0
"""Seconds that the broker may take to listen."""


async def demo(
    run: Run,
    workers: int,
    broker: str,
    console: Watching,
    dashboard: AbstractAsyncContextManager[Beside],
    allowed: tuple[str, ...] = (),
) -> Outcome:
    """Train on this machine until the run ends; whatever was started is gone afterwards.

    `dashboard` makes listeners tell others, too. `allowed` modules may register environments on the
    workers.

    Raises `ShoalError` where the broker or the last worker ends before the run does.
    """
    logs = run.directory.path / "logs"
    logs.mkdir()
    broker_process, url = await _start_broker(broker, logs)
    try:
        # Workers start while this process still warms up; they wait for the run to appear.
        join = join_command(run, url)
        way = Way(parse_address(join.split()[-1]), {}, allowed, nice=0, name="demo")
        async with LocalWorkers(run.directory.path, lambda: way, console.event) as local:
            console.employ(local)
            for _ in range(workers):
                await local.add()
            course = await asyncio.to_thread(load, run, console.event)
            # Compiled code has been loaded in that thread.
            from coordinator.hosting import Listeners, lead

            def led(server: Server | None) -> None:
                heed_signals(server)
                local.led(server)
                console.lead(server)

            listeners = Listeners(
                console.event,
                console.update,
                on_ready=lambda: console.ready(join),
                on_metrics=console.measure,
                on_lead=led,
            )

            async def leads() -> Outcome:
                async with dashboard as beside:
                    told = beside(listeners, join)
                    return await lead(run, course, parse_address(url), told, owns_broker=True)

            leading = asyncio.ensure_future(leads())
            watching = asyncio.ensure_future(_watch(broker_process, local, logs))
            done, _ = await asyncio.wait({leading, watching}, return_when=asyncio.FIRST_COMPLETED)
            if leading not in done:
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
                raise watching.result()
            watching.cancel()
            outcome = leading.result()
            if outcome.state != "paused":
                await local.let_go()
            return outcome
    finally:
        await end(broker_process, STOP)


async def _start_broker(kind: str, logs: Path) -> tuple[Process, str]:
    command = [sys.executable, "-m", "coordinator.broker", "--port", "0", "--kind", kind]
    command += ["--exit-with-parent", "--log-directory", str(logs)]
    with (logs / "broker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BROKER_START):
            line = (await process.stdout.readline()).decode().strip()
    except TimeoutError:
        line = ""
    words = line.split()
    if not words or not words[-1].startswith("mqtt"):
        await end(process, STOP)
        reason = (logs / "broker.log").read_text(errors="replace").strip()[-300:]
        raise ShoalError(f"the broker did not start: {reason or 'see ' + str(logs)}")
    return process, words[-1]


async def _watch(broker: Process, workers: LocalWorkers, logs: Path) -> ShoalError:
    """Returns the reason once the run can't go on: no broker, or no worker left."""
    gone = asyncio.ensure_future(workers.gone.wait())
    broker_gone = asyncio.ensure_future(broker.wait())
    done, _ = await asyncio.wait({gone, broker_gone}, return_when=asyncio.FIRST_COMPLETED)
    if broker_gone in done:
        return ShoalError(f"the broker ended (exit code {broker.returncode}): see {logs}")
    last = (logs / "worker-0.log").read_text(errors="replace").strip().splitlines()[-1:]
    return ShoalError(f"all workers ended: {' '.join(last) or 'see ' + str(logs)}")
