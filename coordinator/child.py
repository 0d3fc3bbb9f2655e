"""Ends a child process that the host started: asked to first, then made to."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process


async def end(process: Process, seconds: float) -> None:
    """End it, which closes its input too; by force where it takes longer than so many seconds."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
