"""A mosquitto of our own: configured, started, watched and stopped with this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from coordinator.broker import address
from coordinator.broker.limits import BrokerLimits
from coordinator.broker.rules import Rules, access_list, pass_file, password_file
from coordinator.broker.tls import CERTIFICATE, KEY, Tls
from protocol.errors import ShoalError

_SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where distributions put mosquitto without these being on everyone's PATH."""

_READY = b" running\n"
_ADDRESS_IN_USE = b"Address already in use"
_LOOPBACK = "127.0.0.1"
_USER = "mosquitto"
_FOLDER = "broker"
_SETTINGS, _ACCESS_LIST = "mosquitto.conf", "access.list"
_PASSWORDS, _PASSES = "passwords", "passes"
_RETAINED = "mosquitto.db"
_POLL_SECONDS = 0.002
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_RESTART_SECONDS = 1.0
_FREE_PORT_ATTEMPTS = 5

_AUTOSAVE_SECONDS = 30
"""Each time it also says so in its log."""

_CONNECTIONS = 4096
_QUEUED_PACKETS = 1000
"""At QoS 0 mosquitto bounds a client's queue by packets alone, so these are few."""

_UNACKNOWLEDGED_PACKETS = 5000
_QUEUED_BYTES = 64 * 1024 * 1024
"""At QoS 1 bytes are bounded too; a burst of results must not run over, for it is lost then: a
thousand of 64 KiB. Of ours only who leads, stands by or gathers a snapshot subscribes so."""

_MEMORY_BYTES = 1024 * 1024 * 1024
_MOST_MEMORY_BYTES = _MEMORY_BYTES // 2
"""From where on it is ended: a thousand workers' takes a tenth of that."""
_WATCH_SECONDS = 0.5

_WATCHDOG = 'read _; kill "$0"; rm -rf "$1"'
"""For /bin/sh: its standard input ends when this process does, however it dies.

PR_SET_PDEATHSIG will not do: Linux clears it when mosquitto, started by root, changes its user.
"""

_log = logging.getLogger("shoal.broker")


def find_mosquitto() -> str | None:
    """Return the path of the mosquitto program, or None."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_SYSTEM_FOLDERS)


def configuration(
    folder: Path,
    host: str,
    port: int,
    limits: BrokerLimits,
    *,
    tls: bool = False,
    host_port: int | None = None,
    passes: bool = False,
) -> str:
    """Write the configuration of a mosquitto >= 2.0 that listens on one address.

    What is retained is kept in `folder`, and outlives mosquitto. `tls`: the certificate and its
    key lie there too. `host_port`: the host has a door of its own there, on the loopback, with a
    password; all others are held to the access list in `folder`, and with `passes` have to give a
    password that is listed there. What `limits` has and mosquitto
    has not stays at mosquitto's own value: 90 s to a CONNECT, 65,535 bytes for a topic, any number
    of filters.
    """
    lines = [
        "per_listener_settings true",
        "persistence true",
        f"persistence_location {folder}/",
        f"autosave_interval {_AUTOSAVE_SECONDS}",
        "set_tcp_nodelay true",
        f"max_packet_size {limits.packet_bytes}",
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
        f"listener {port} {host}",
        f"allow_anonymous {'false' if passes else 'true'}",
        f"max_connections {limits.connections}",
        "max_qos 1",
    ]
    if tls:
        lines += [f"certfile {folder / CERTIFICATE}", f"keyfile {folder / KEY}"]
        lines += ["tls_version tlsv1.2"]  # or later
    if passes:
        lines += [f"password_file {folder / _PASSES}"]
    if host_port is not None:
        lines += [f"acl_file {folder / _ACCESS_LIST}"]
        lines += [f"listener {host_port} {_LOOPBACK}", "allow_anonymous false"]
        lines += [f"password_file {folder / _PASSWORDS}", "max_qos 1"]
    return "\n".join(lines) + "\n"


class MosquittoBroker:
    """A mosquitto child process while its context is open; started again if it dies before.

    Its log is appended to `log_directory`/mosquitto.log, or thrown away where there is none. All
    else that it needs lies in a folder of its own, which goes with it: `log_directory`/broker, or
    where we are root, whose folders mosquitto's own user may not enter, a temporary one.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: BrokerLimits | None = None,
        log_directory: Path | None = None,
        tls: Tls | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Choose the address (port 0: a free one) and what clients may take, say and read.

        Nothing is started before the context is entered, which raises ShoalError where mosquitto
        is not installed, does not start, or the address cannot be listened on.
        """
        self._host = host
        self._port = port
        self._host_port: int | None = None
        self._limits = limits or BrokerLimits(connections=_CONNECTIONS, queue_bytes=_QUEUED_BYTES)
        self._log_directory = log_directory
        self._tls = tls
        self._rules = rules
        self._child: _Child | None = None
        self._folder: Path | None = None
        self._cleanup = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """Where the host reaches the broker, like ``mqtt://127.0.0.1:1883``; see `public`."""
        if self._host_port is None:
            return self.public(address.inward(self._host))
        return address.as_host(address.url(_LOOPBACK, self._host_port), self._rules)

    def public(self, host: str) -> str:
        """Where others reach it, at an address of this machine."""
        return address.url(host, self._port, self._tls)

    def admit(self, passes: Mapping[str, str]) -> None:
        """Let in who has one of these passwords, and nobody else any more; needs rules."""
        assert self._rules is not None and self._folder is not None
        self._rules = replace(self._rules, passes=passes)
        self._write(self._folder, _PASSES, pass_file(self._rules).encode())
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):  # it is started again, and reads them
                self._child.server.send_signal(signal.SIGHUP)

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
            folder = self._folder = self._open_folder(cleanup)
            log = (self._log_directory or folder) / "mosquitto.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            cleanup.push_async_callback(self._stop)
            await self._start_somewhere(program, folder, log)
            keeper = asyncio.create_task(self._keep_running(program, folder, log))
            cleanup.push_async_callback(_cancel, keeper)
            watch = asyncio.create_task(self._bound_memory(folder))
            cleanup.push_async_callback(_cancel, watch)
            self._cleanup = cleanup.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop mosquitto and remove its folder."""
        await self._cleanup.aclose()

    def _open_folder(self, cleanup: contextlib.AsyncExitStack) -> Path:
        """An empty folder that we and mosquitto alone can look into; removed in the end."""
        root = os.geteuid() == 0
        if self._log_directory is None or root:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
            if root:
                _give(folder)
            return folder
        folder = self._log_directory.absolute() / _FOLDER
        shutil.rmtree(folder, ignore_errors=True)  # of a host that was killed
        folder.mkdir(parents=True, mode=0o700)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    async def _start_somewhere(self, program: str, folder: Path, log: Path) -> None:
        """Start on the port asked for, or on a free one that is still free a moment later."""
        wanted = self._port
        for _ in range(_FREE_PORT_ATTEMPTS):
            with contextlib.ExitStack() as probes:
                probe = probes.enter_context(address.take(self._host, wanted))
                self._port = probe.getsockname()[1]
                if self._rules is not None:
                    probe = probes.enter_context(address.take(_LOOPBACK, 0))
                    self._host_port = probe.getsockname()[1]
            self._write_settings(folder)
            try:
                self._child = await _Child.start(program, folder, log)
                return
            except _AddressInUseError:
                # With two ports it may be either.
                if wanted and self._rules is None:
                    break
        raise address.in_use(self._host, self._port)

    def _write_settings(self, folder: Path) -> None:
        files = {
            _SETTINGS: configuration(
                folder,
                self._host,
                self._port,
                self._limits,
                tls=self._tls is not None,
                host_port=self._host_port,
                passes=self._rules is not None and self._rules.passes is not None,
            ).encode()
        }
        if self._tls is not None:
            files[CERTIFICATE] = self._tls.certificate.read_bytes()
            files[KEY] = self._tls.key.read_bytes()
        if self._rules is not None:
            files[_ACCESS_LIST] = access_list(self._rules).encode()
            files[_PASSWORDS] = password_file(self._rules).encode()
            files[_PASSES] = pass_file(self._rules).encode()
        for name, content in files.items():
            self._write(folder, name, content)

    def _write(self, folder: Path, name: str, content: bytes) -> None:
        """Put a file that only mosquitto and we can read in the place of the one that is there."""
        path, new = folder / name, folder / f"{name}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        if os.geteuid() == 0:
            _give(new)
        new.replace(path)

    async def _keep_running(self, program: str, folder: Path, log: Path) -> None:
        """Start mosquitto again, on the same port, whenever it ends by itself."""
        while True:
            if self._child is not None:
                code = await self._child.server.wait()
                _log.warning("broker: mosquitto ended by itself (code %d), starting again", code)
                await self._stop()
            try:
                self._child = await _Child.start(program, folder, log)
                continue
            except ShoalError:
                # What it was to retain may be damaged, or more than it can read.
                (folder / _RETAINED).unlink(missing_ok=True)
            except (_AddressInUseError, OSError):
                pass
            await asyncio.sleep(_RESTART_SECONDS)

    async def _bound_memory(self, folder: Path) -> None:
        """End a mosquitto that strangers have retain more and more, before it has no memory left
        for anybody else; it begins again without all that: whoever leads says its epoch anew."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._child is None or _memory(self._child.server.pid) < _MOST_MEMORY_BYTES:
                continue
            _log.warning(
                "broker: mosquitto takes over %d MB, for what it is to retain: ending it",
                _MOST_MEMORY_BYTES // 1_000_000,
            )
            with contextlib.suppress(ProcessLookupError):
                self._child.server.kill()
            (folder / _RETAINED).unlink(missing_ok=True)

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
    async def start(cls, program: str, folder: Path, log: Path) -> _Child:
        """Run `program` as the settings in `folder` say, and wait until it says that it listens."""
        with log.open("ab") as output:
            said_before = output.tell()
            server = await asyncio.create_subprocess_exec(
                program,
                "-c",
                str(folder / _SETTINGS),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,  # a Ctrl-C at the terminal is for us to answer first
            )
        _allow_open_files(server.pid)
        try:
            watchdog = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _WATCHDOG,
                str(server.pid),
                str(folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            await end(server)
            raise
        child = cls(server, watchdog)
        try:
            await child._until_ready(log, said_before)
        except BaseException:
            await child.stop()
            raise
        return child

    async def stop(self) -> None:
        """End both, the watchdog first: it must not signal a process id that is reused."""
        await end(self._watchdog)
        await end(self.server)

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


def _give(path: Path) -> None:
    """Let the user that mosquitto becomes, when root starts it, have a file or a folder."""
    import pwd

    with contextlib.suppress(KeyError):  # then mosquitto itself says that there is no such user
        user = pwd.getpwnam(_USER)
        try:
            os.chown(path, user.pw_uid, user.pw_gid)
        except OSError as error:  # as in a user namespace that has no such user
            raise ShoalError(
                f"broker mosquitto: root must be able to give files to the user {_USER}, and here "
                f"can't ({error.strerror or error}): start the host as another user than root, or "
                "choose the embedded broker"
            ) from None


def _allow_open_files(process_id: int) -> None:
    """Let mosquitto have as many sockets as this system allows, where we may say so (Linux)."""
    if sys.platform == "linux":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError):
            resource.prlimit(process_id, resource.RLIMIT_NOFILE, (most, most))


def _memory(process_id: int) -> int:
    """Bytes that a process takes, where the system tells (Linux); else 0."""
    try:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


async def end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and make it end where it does not."""
    for signal_it in (process.terminate, process.kill):
        with contextlib.suppress(ProcessLookupError):
            signal_it()
        with contextlib.suppress(TimeoutError):
            # `wait_for` of Python 3.11 loses a cancellation that comes as the process ends.
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
            return


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
