"""The run directory: what a run leaves on disk, and whose it is."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coordinator import board, holder
from coordinator.board import Board
from coordinator.metrics_file import METRICS, mend
from coordinator.wanted import LOCK, WANTED
from protocol import spec as run_spec
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.frozen import Snapshots
from protocol.identity import KEY_BYTES
from protocol.kept_json import DamagedJson, read_json
from protocol.spec import RunSpec, SpecError
from protocol.topics import RUN_PATTERN

if TYPE_CHECKING:
    from coordinator.log import LogReader, UpdateLog

ORDERS = "orders.jsonl"
_FILES = (
    "run",
    holder.HOLDER,
    "run.key",
    "secret",
    "broker.json",
    "spec.toml",
    METRICS,
    "policy.safetensors",
    "best.safetensors",
    "log.sqlite",
    "log.sqlite-wal",
    "log.sqlite-shm",
    ORDERS,
    WANTED,
    LOCK,
    "mosquitto.log",
    "broker.crt",
    "broker.key",
    "admission.json",
    "invites.json",
    "pool.token",
    "own.token",
)
"""All files that a run may put into its directory, but for the demo's logs."""
SNAPSHOTS = "snapshots"
DIGEST_BYTES = 16
SNAPSHOTS_KEPT = 3
"""The newest ones, beside that of the version that the log begins with and all before it."""


class DirectoryError(ShoalError):
    """The directory is somebody else's, in use, or can't be written."""


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    """The broker that a run is led over, in the words of `shoal host`."""

    broker: str = "auto"
    bind: str = "127.0.0.1"
    port: int | None = None
    """None: the usual one"""
    advertise: str | None = None
    tls: bool | None = None
    """None: where others than this machine reach it"""
    tls_cert: str | None = None
    tls_key: str | None = None


class RunDirectory:
    """`spec.toml`, `log.sqlite`, `metrics.jsonl`, `policy.safetensors`, `best.safetensors`,
    `snapshots/`, `events/`, `secret`, `broker.json`, `run`, `run.key`.

    `run` names the run that it belongs to; a lock on it keeps two coordinators apart, and goes with
    the process however that ends. `run.key` signs what the coordinator says; who has it, is it.
    """

    def __init__(self, path: Path, run: str, lock: IO[str], begun: bool) -> None:
        """The locked directory of a run that others have heard of, `begun`, or not; see `create`
        and `open`."""
        self.path = path
        self.run = run
        self.snapshots = Snapshots(path / SNAPSHOTS)
        self._begun = begun
        self._lock = lock
        self._metrics = self._metrics_path.open("a", encoding="utf-8")
        self._board = Board(path / board.FOLDER)

    @classmethod
    def create(cls, path: Path, run: str) -> Self:
        """Make the directory for a new run. Raises `DirectoryError`."""
        owner = path / "run"
        usable = _explained(path, "can't be used", "see to the disk, or give another --run-dir")
        with usable, contextlib.ExitStack() as undo:
            path.mkdir(parents=True, exist_ok=True)
            if owner.exists():
                holds = owner.read_text(errors="replace").strip()[:60]
                raise DirectoryError(
                    f"{path} already holds the run {holds}: go on with it (shoal host --resume "
                    f"{path}), give another --run-dir, or remove it"
                )
            if any(path.iterdir()):
                raise DirectoryError(f"{path} is not empty: give a new or empty --run-dir")
            lock = undo.enter_context(open(owner, "x", opener=_private))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.write(run + "\n")
            lock.flush()
            holder.take(path)
            directory = cls(path, run, lock, begun=False)
            undo.pop_all()
        return directory

    @classmethod
    def open(cls, path: Path) -> Self:
        """The directory of a run that somebody led before, to go on with it.

        Raises `DirectoryError` where it is none, or another process leads the run at this moment.
        """
        usable = _explained(path, "can't be used", "see to the disk and who owns it")
        with usable, contextlib.ExitStack() as undo:
            try:
                lock = undo.enter_context((path / "run").open("r+", errors="replace"))
            except (FileNotFoundError, NotADirectoryError):
                raise DirectoryError(
                    f"{path} holds no run: give the directory of one, such as runs/<name>"
                ) from None
            with contextlib.suppress(PermissionError):  # another user's, who lets us lead it
                os.fchmod(lock.fileno(), 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DirectoryError(
                    f"the run in {path} is led by another process: stop that one first"
                ) from None
            run = lock.read(100).strip()
            if RUN_PATTERN.fullmatch(run) is None:
                raise DirectoryError(
                    f"{path / 'run'} says {run[:60]!r}, which names no run: "
                    "give the directory of a run that Shoal made"
                )
            holder.take(path)
            mend(path)
            directory = cls(path, run, lock, begun=True)
            undo.pop_all()
        return directory

    @property
    def log_path(self) -> Path:
        """Where the update log lies."""
        return self.path / "log.sqlite"

    @property
    def orders_path(self) -> Path:
        """Where a person leaves orders for whoever leads the run."""
        return self.path / ORDERS

    @property
    def wanted_path(self) -> Path:
        """Where a person leaves word of settings to change."""
        return self.path / WANTED

    @property
    def key_path(self) -> Path:
        """Where the run's signing key lies."""
        return self.path / "run.key"

    @property
    def policy_path(self) -> Path:
        """Where the latest, at the end the returned, parameters lie."""
        return self.path / "policy.safetensors"

    @property
    def best_path(self) -> Path:
        """Where the parameters lie whose centre was judged best."""
        return self.path / "best.safetensors"

    @property
    def _metrics_path(self) -> Path:
        return self.path / METRICS

    @property
    def _secret_path(self) -> Path:
        return self.path / "secret"

    @property
    def _broker_path(self) -> Path:
        return self.path / "broker.json"

    def announced(self) -> None:
        """Others know of the run now: it is not thrown away any more."""
        self._begun = True

    def discard(self) -> None:
        """Close; and where nobody ever heard of the run, remove its files, so that a next try can
        begin."""
        self.close()
        if not self._begun:
            for name in _FILES:
                with contextlib.suppress(OSError):
                    (self.path / name).unlink(missing_ok=True)
            for folder in (SNAPSHOTS, board.FOLDER):
                shutil.rmtree(self.path / folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: somebody's files, or logs worth reading
                self.path.rmdir()

    def write_spec(self, spec: RunSpec) -> None:
        """Keep the spec. Raises `DirectoryError`."""
        self._replace(self.path / "spec.toml", run_spec.to_toml(spec).encode())

    @property
    def has_spec(self) -> bool:
        """Whether the run's spec is here; it is the last that a new directory gets."""
        return (self.path / "spec.toml").exists()

    def read_spec(self) -> RunSpec:
        """The spec of the run. Raises `DirectoryError`."""
        return spec_in(self.path)

    def keep_secret(self, secret: bytes) -> None:
        """Keep the 32 bytes that lease tokens are made with, for the owner only.

        Raises `DirectoryError`.
        """
        self._replace(self._secret_path, secret)

    @property
    def has_secret(self) -> bool:
        """Whether the run's secret is here."""
        return self._secret_path.exists()

    def read_secret(self) -> bytes:
        """The bytes that lease tokens are made with. Raises `DirectoryError`."""
        with _explained(self.path, "does not give the run's secret"):
            secret = self._secret_path.read_bytes()
        if len(secret) != KEY_BYTES:
            raise DirectoryError(
                f"{self._secret_path} has {len(secret)} bytes, the secret of a run has "
                f"{KEY_BYTES}: restore it (shoal key restore), or remove it to have work in "
                "progress evaluated anew"
            )
        return secret

    def remember(self, choice: BrokerChoice) -> None:
        """Keep the broker that the run is led over, for the next time. Raises `DirectoryError`."""
        # Its URL may have a password.
        self._replace(self._broker_path, json.dumps(asdict(choice)).encode() + b"\n")

    def remembered(self) -> BrokerChoice:
        """The broker that the run was led over last time. Raises `DirectoryError`."""
        try:
            return read_json(self._broker_path.read_bytes(), BrokerChoice)
        except FileNotFoundError:
            return BrokerChoice()
        except (OSError, DamagedJson) as error:
            raise DirectoryError(
                f"{self._broker_path} can't be read ({error}): remove it, and give --broker"
            ) from None

    @property
    def has_log(self) -> bool:
        """Whether the run's log was begun.

        Raises `LogError` where it can't be read, and `DirectoryError` where it was begun, by all
        else that lies here, and is gone: who went on would begin the run anew, unasked.
        """
        from coordinator.log import LogReader

        if self.log_path.exists():
            with LogReader(self.log_path) as log:
                if log.begun:
                    return True
        for left in (self._broker_path, self._metrics_path, self.policy_path):
            if left.exists() and left.stat().st_size:
                raise self._without_log(left.name)
        if any(self.snapshots.versions()):
            raise self._without_log(SNAPSHOTS)
        return False

    def _without_log(self, left: str) -> DirectoryError:
        return DirectoryError(
            f"{self.log_path} is gone or empty, though {left} shows that the run was led: restore "
            f"it from a backup, or begin the training anew with shoal host {self.path}/spec.toml"
        )

    def forget_snapshots(self, base: int) -> None:
        """Let go of old snapshots; `base`: the version that the log begins with."""
        for old in [v for v in self.snapshots.versions() if v > base][:-SNAPSHOTS_KEPT]:
            self.snapshots.remove(old)

    def write_metrics(self, values: Mapping[str, Any]) -> None:
        """One line of JSON, at once; what is not a finite number becomes null.

        Raises `DirectoryError`.
        """
        line = json.dumps({name: _finite(value) for name, value in values.items()})
        with _explained(self.path, "can't take another line of metrics"):
            self._metrics.write(line + "\n")
            self._metrics.flush()
        self._board.add(values)

    def write_policy(
        self,
        path: Path,
        tensors: Mapping[str, NDArray[np.floating]],
        about: Mapping[str, str],
    ) -> None:
        """Replace a policy file in one step: a reader sees the old or the new one whole.

        Raises `DirectoryError`.
        """
        from safetensors.numpy import save

        self._replace(path, save(dict(tensors), metadata=dict(about)))

    def best(self) -> dict[str, str]:
        """What the file of the best policy says of itself; empty where there is none."""
        if not self.best_path.exists():
            return {}
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.best_path, framework="numpy") as file:
                return dict(file.metadata() or {})
        except (OSError, SafetensorError):
            return {}

    def close(self) -> None:
        """Let go of the files."""
        with contextlib.suppress(OSError):  # each line was flushed, or its failure told
            self._metrics.close()
        self._board.close()
        self._lock.close()

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file for the owner only, in one step: it is there whole, or as it was before."""
        with _explained(self.path, f"can't take {path.name}"):
            write_whole(path, data)


def _private(path: str, flags: int) -> int:
    """Opens a new file that its owner alone can open: whoever can read it can lock it for ever."""
    return os.open(path, flags, 0o600)


def is_led(path: Path) -> bool:
    """Whether a process leads or follows the run in this directory now. Raises `DirectoryError`."""
    with (
        _explained(path, "can't be used", "see to the disk and who owns it"),
        (path / "run").open("rb") as lock,
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def spec_in(path: Path) -> RunSpec:
    """The spec of the run in a directory, whoever leads it. Raises `DirectoryError`."""
    file = path / "spec.toml"
    try:
        return run_spec.parse(run_spec.load(file))
    except SpecError as error:
        raise DirectoryError(
            f"{file} is not the spec of the run any more ({error}): restore it from a backup"
        ) from None


def known_spec(path: Path, log: LogReader) -> RunSpec:
    """The spec of the run in a directory, which never changes: as its log has it since the run was
    first led.

    Raises `DirectoryError` where spec.toml says anything else, or where it alone can tell, and does
    not.
    """
    from coordinator.log import SPEC

    noted = log.noted(SPEC)
    data = noted[DIGEST_BYTES:] if isinstance(noted, bytes) else b""
    if not data or noted != _proved(data):
        return spec_in(path)  # an old log, or a damaged one
    spec, file = run_spec.from_bytes(data), path / "spec.toml"
    if file.exists() and spec_in(path) != spec:
        raise DirectoryError(
            f"{file} was changed since the run began, and a run spec never changes: restore it, or "
            "remove it, since the log has it too; for other settings use "
            f"shoal fork {path} --set SECTION.FIELD=VALUE"
        )
    return spec


def keep_spec(log: UpdateLog, spec: RunSpec) -> None:
    """Let the log have the run's spec, once and for all."""
    from coordinator.log import SPEC

    if log.noted(SPEC) is None:
        log.note(SPEC, _proved(run_spec.to_bytes(spec)))


def _proved(data: bytes) -> bytes:
    """Bytes, and before them what tells whether they were damaged."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() + data


@contextlib.contextmanager
def _explained(path: Path, problem: str, remedy: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = remedy or f"see to the disk, then go on with shoal host --resume {path}"
        raise DirectoryError(
            f"the run directory {path} {problem} ({error.strerror or error}): {remedy}"
        ) from None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
