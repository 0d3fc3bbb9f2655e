"""`shoal demo`: broker, coordinator and workers as real processes on this machine, start to end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from coordinator.dashboard.opening import Beside
from coordinator.host import Run, join_command, load
from coordinator.progress import Outcome, Progress
from protocol.address import parse_address
from protocol.errors import ShoalError

BROKER_START = 20.0
"""Seconds that the broker may take to listen."""
GOODBYE = 5.0
"""Seconds that workers have to leave by themselves once the run has ended."""


async def demo(
    run: Run,
    workers: int,
    broker: str,
    allowed: tuple[str, ...] = (),
    *,
    on_event: Callable[[str], None],
    on_update: Callable[[Progress], None],
    on_ready: Callable[[str], None],
    dashboard: AbstractAsyncContextManager[Beside],
) -> Outcome:
    """Train on this machine until the run ends; whatever was started is gone afterwards.

    `allowed` modules may register environments on the workers. `on_ready` gets the command that
    more workers of this machine can join with. `dashboard` makes listeners tell others, too.

    Raises `ShoalError` where the broker or the last worker ends before the run does.
    """
    logs = run.directory.path / "logs"
    logs.mkdir()
    children: list[Process] = []
    try:
        broker_process, url = await _start_broker(broker, logs)
        children.append(broker_process)
        # Workers start while this process still warms up; they wait for the run to appear.
        join = join_command(run, url)
        volunteers = []
        for index in range(workers):
            volunteers.append(await _start_worker(join.split()[-1], index, allowed, logs))
            children.append(volunteers[-1])
        course = await asyncio.to_thread(load, run, on_event)
        # Compiled code has been loaded in that thread.
        from coordinator.hosting import Listeners, lead

        listeners = Listeners(on_event, on_update, on_ready=lambda: on_ready(join))

        async def leads() -> Outcome:
            async with dashboard as beside:
                told = beside(listeners, join)
                return await lead(run, course, parse_address(url), told, owns_broker=True)

        leading = asyncio.ensure_future(leads())
        watching = asyncio.ensure_future(_watch(broker_process, volunteers, logs))
        done, _ = await asyncio.wait({leading, watching}, return_when=asyncio.FIRST_COMPLETED)
        if leading not in done:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            raise watching.result()
        watching.cancel()
        outcome = leading.result()
        if outcome.state != "paused":
            await _let_go(volunteers)
        return outcome
    finally:
        for child in reversed(children):
            await _stop(child)


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
        await _stop(process)
        reason = (logs / "broker.log").read_text(errors="replace").strip()[-300:]
        raise ShoalError(f"the broker did not start: {reason or 'see ' + str(logs)}")
    return process, words[-1]


async def _start_worker(join: str, index: int, allowed: tuple[str, ...], logs: Path) -> Process:
    command = [sys.executable, "-m", "worker", join, "--cores", "1", "--nice", "0"]
    command += [f"--allow-module={module}" for module in allowed]
    command += ["--name", f"demo-{index}", "--home", str(logs / f"worker-{index}")]
    command += ["--exit-with-parent"]
    with (logs / f"worker-{index}.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=log, stderr=log, start_new_session=True
        )


async def _watch(broker: Process, volunteers: list[Process], logs: Path) -> ShoalError:
    """Returns the reason once the run can't go on: no broker, or no worker left."""
    gone = asyncio.ensure_future(_all_gone(volunteers))
    broker_gone = asyncio.ensure_future(broker.wait())
    done, _ = await asyncio.wait({gone, broker_gone}, return_when=asyncio.FIRST_COMPLETED)
    if broker_gone in done:
        return ShoalError(f"the broker ended (exit code {broker.returncode}): see {logs}")
    last = (logs / "worker-0.log").read_text(errors="replace").strip().splitlines()[-1:]
    return ShoalError(f"all workers ended: {' '.join(last) or 'see ' + str(logs)}")


async def _all_gone(volunteers: list[Process]) -> int:
    for volunteer in volunteers:
        await volunteer.wait()
    return len(volunteers)


async def _let_go(volunteers: list[Process]) -> None:
    """Wait for workers to leave by themselves: they know that the run has ended."""
    try:
        async with asyncio.timeout(GOODBYE):
            await _all_gone(volunteers)
    except TimeoutError:
        return


async def _stop(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(3.0):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
