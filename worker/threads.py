"""Slow work in a thread, its outcome in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """The result of `work`, done in a thread that a process which ends does not wait for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def deliver(value: Result | None, error: Exception | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=run, name="replica", daemon=True).start()
    return result
