"""A mosquitto of our own: configured, started, watched and stopped with this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from coordinator.broker import address
from coordinator.broker.limits import BrokerLimits
from protocol.errors import ShoalError

_SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where distributions put mosquitto without these being on everyone's PATH."""

_READY = b" running\n"
_ADDRESS_IN_USE = b"Address already in use"
_POLL_SECONDS = 0.002
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_RESTART_SECONDS = 1.0
_FREE_PORT_ATTEMPTS = 5

_CONNECTIONS = 4096
_QUEUED_PACKETS = 1000
"""At QoS 0 mosquitto bounds a client's queue by packets alone, so these are few."""

_UNACKNOWLEDGED_PACKETS = 5000
"""At QoS 1 bytes are bounded too; a burst of results must not run over, for it is lost then."""

_MEMORY_BYTES = 1024 * 1024 * 1024

_WATCHDOG = 'read _; kill "$0"'
"""For /bin/sh: its standard input ends when this process does, however it dies.

PR_SET_PDEATHSIG will not do: Linux clears it when mosquitto, started by root, changes its user.
"""

_log = logging.getLogger("shoal.broker")


def find_mosquitto() -> str | None:
    """Return the path of the mosquitto program, or None."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_SYSTEM_FOLDERS)


def configuration(host: str, port: int, limits: BrokerLimits) -> str:
    """Write the configuration of a mosquitto >= 2.0 that listens on one address.

    Nothing is kept on disk. What `limits` has and mosquitto has not stays at mosquitto's own
    value: 90 s to a CONNECT, 65,535 bytes for a topic, any number of filters.
    """
    return "\n".join(
        [
            f"listener {port} {host}",
            f"max_connections {limits.connections}",
            "allow_anonymous true",
            "persistence false",
            "set_tcp_nodelay true",
            f"max_packet_size {limits.packet_bytes}",
            "max_qos 1",
            f"max_queued_messages {_QUEUED_PACKETS}",
            f"max_queued_bytes {limits.queue_bytes}",
            f"max_inflight_messages {_UNACKNOWLEDGED_PACKETS}",
            f"max_inflight_bytes {limits.queue_bytes}",
            f"memory_limit {_MEMORY_BYTES}",
            "sys_interval 0",
            "connection_messages false",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "log_type notice",
            "log_type information",
            "log_timestamp_format %Y-%m-%dT%H:%M:%S",
            "",
        ]
    )


class MosquittoBroker:
    """A mosquitto child process while its context is open; started again if it dies before.

    Its log is appended to `log_directory`/mosquitto.log, or thrown away where there is none.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: BrokerLimits | None = None,
        log_directory: Path | None = None,
    ) -> None:
        """Choose the address (port 0: a free one) and what clients may take.

        Nothing is started before the context is entered, which raises ShoalError where mosquitto
        is not installed, does not start, or the address cannot be listened on.
        """
        self._host = host
        self._port = port
        self._limits = limits or BrokerLimits(connections=_CONNECTIONS)
        self._log_directory = log_directory
        self._child: _Child | None = None
        self._cleanup = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """Where this machine reaches the broker, like ``mqtt://127.0.0.1:1883``."""
        return address.url(self._host, self._port)

    @property
    def process_id(self) -> int | None:
        """The process id of mosquitto, None while it is not running."""
        return self._child.server.pid if self._child else None

    async def __aenter__(self) -> Self:
        """Start mosquitto and return once it listens."""
        program = find_mosquitto()
        if program is None:
            raise ShoalError(
                "broker mosquitto: the program must be on PATH and is not; "
                "install it (Debian: apt install mosquitto) or choose the embedded broker"
            )
        async with contextlib.AsyncExitStack() as cleanup:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
            log = (self._log_directory or folder) / "mosquitto.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            settings = folder / "mosquitto.conf"
            cleanup.push_async_callback(self._stop)
            await self._start_somewhere(program, settings, log)
            keeper = asyncio.create_task(self._keep_running(program, settings, log))
            cleanup.push_async_callback(_cancel, keeper)
            self._cleanup = cleanup.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop mosquitto and remove its configuration."""
        await self._cleanup.aclose()

    async def _start_somewhere(self, program: str, settings: Path, log: Path) -> None:
        """Start on the port asked for, or on a free one that is still free a moment later."""
        wanted = self._port
        for _ in range(_FREE_PORT_ATTEMPTS):
            with address.take(self._host, wanted) as probe:
                self._port = probe.getsockname()[1]
            settings.write_text(configuration(self._host, self._port, self._limits))
            try:
                self._child = await _Child.start(program, settings, log)
                return
            except _AddressInUseError:
                if wanted:
                    break
        raise address.in_use(self._host, self._port)

    async def _keep_running(self, program: str, settings: Path, log: Path) -> None:
        """Start mosquitto again, on the same port, whenever it ends by itself."""
        while True:
            if self._child is not None:
                code = await self._child.server.wait()
                _log.warning("broker: mosquitto ended by itself (code %d), starting again", code)
                await self._stop()
            with contextlib.suppress(ShoalError, _AddressInUseError, OSError):
                self._child = await _Child.start(program, settings, log)
                continue
            await asyncio.sleep(_RESTART_SECONDS)

    async def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop()


class _AddressInUseError(Exception):
    """Another program took the port between our look and mosquitto's."""


class _Child:
    """A mosquitto process, and the watchdog that ends it should this process vanish."""

    def __init__(
        self, server: asyncio.subprocess.Process, watchdog: asyncio.subprocess.Process
    ) -> None:
        self.server = server
        self._watchdog = watchdog

    @classmethod
    async def start(cls, program: str, settings: Path, log: Path) -> _Child:
        """Run `program` with `settings` and wait until it says that it listens."""
        with log.open("ab") as output:
            said_before = output.tell()
            server = await asyncio.create_subprocess_exec(
                program,
                "-c",
                str(settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,  # a Ctrl-C at the terminal is for us to answer first
            )
        _allow_open_files(server.pid)
        watchdog = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _WATCHDOG,
            str(server.pid),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            process_group=0,
        )
        child = cls(server, watchdog)
        try:
            await child._until_ready(log, said_before)
        except BaseException:
            await child.stop()
            raise
        return child

    async def stop(self) -> None:
        """End both, the watchdog first: it must not signal a process id that is reused."""
        await _end(self._watchdog)
        await _end(self.server)

    async def _until_ready(self, log: Path, said_before: int) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + _START_SECONDS
        said = b""
        while now() < deadline:
            ended = self.server.returncode is not None
            with log.open("rb") as lines:
                lines.seek(said_before)
                said = lines.read()
            if _READY in said:
                return
            if _ADDRESS_IN_USE in said:
                raise _AddressInUseError
            if ended:
                break
            await asyncio.sleep(_POLL_SECONDS)
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise ShoalError(
            f"broker mosquitto: it must listen within {_START_SECONDS:.0f} s and said {last!r}; "
            "mend that (it must be version 2.0 or later) or choose the embedded broker"
        )


def _allow_open_files(process_id: int) -> None:
    """Let mosquitto have as many sockets as this system allows, where we may say so (Linux)."""
    if sys.platform == "linux":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError):
            resource.prlimit(process_id, resource.RLIMIT_NOFILE, (most, most))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and make it end where it does not."""
    for signal_it in (process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            signal_it()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            return


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
