"""Run one broker in the foreground, as a process of its own: ``python -m coordinator.broker``."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from coordinator.broker.choose import open_broker
from protocol.errors import ShoalError


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or, where asked for, the end of standard input -> exit code."""
    parser = argparse.ArgumentParser(prog="python -m coordinator.broker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=1883, help="port; 0 takes a free one")
    parser.add_argument("--kind", default="auto", choices=("auto", "embedded", "mosquitto"))
    parser.add_argument("--log-directory", type=Path, help="where mosquitto's log goes")
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="also stop when standard input ends, as it does when the process that holds it dies",
    )
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_serve(options))
    except ShoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.exit_with_parent:
        threading.Thread(target=_await_end_of_input, args=(loop, stop), daemon=True).start()
    async with open_broker(
        options.kind, options.host, options.port, options.log_directory
    ) as broker:
        print(f"shoal broker: listening on {broker.url}", flush=True)
        await stop.wait()


def _await_end_of_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main())
