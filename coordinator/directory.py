"""The run directory: what a run leaves on disk, and whose it is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.identity import new_secret
from protocol.spec import RunSpec

_FILES = (
    "run",
    "run.key",
    "secret",
    "spec.toml",
    "metrics.jsonl",
    "policy.safetensors",
    "log.sqlite",
    "log.sqlite-wal",
    "log.sqlite-shm",
    "mosquitto.log",
)
"""All that a run may put into its directory, but for the demo's logs."""


class DirectoryError(ShoalError):
    """The directory is somebody else's, in use, or can't be written."""


class RunDirectory:
    """`spec.toml`, `log.sqlite`, `metrics.jsonl`, `policy.safetensors`, `secret`, `run`, `run.key`.

    `run` names the run that it belongs to; a lock on it keeps two coordinators apart, and goes with
    the process however that ends. `run.key` signs what the coordinator says; who has it, is it.
    """

    def __init__(self, path: Path, run: str) -> None:
        """Make the directory for a new run. Raises `DirectoryError`."""
        self.path = path
        self.run = run
        owner = path / "run"
        with self._written("can't be used"):
            path.mkdir(parents=True, exist_ok=True)
            if owner.exists():
                holds = owner.read_text(errors="replace").strip()[:60]
                raise DirectoryError(
                    f"{path} already holds the run {holds}: give another --run-dir, or remove it"
                )
            if any(path.iterdir()):
                raise DirectoryError(f"{path} is not empty: give a new or empty --run-dir")
            self._lock = owner.open("x")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.write(run + "\n")
            self._lock.flush()
            self._metrics = (path / "metrics.jsonl").open("a", encoding="utf-8")

    @property
    def log_path(self) -> Path:
        """Where the update log lies."""
        return self.path / "log.sqlite"

    @property
    def key_path(self) -> Path:
        """Where the run's signing key lies."""
        return self.path / "run.key"

    @property
    def policy_path(self) -> Path:
        """Where the latest, at the end the returned, parameters lie."""
        return self.path / "policy.safetensors"

    def discard(self) -> None:
        """Close; and where the run made no step, remove its files, so that a next try can begin."""
        self.close()
        if (self.path / "metrics.jsonl").stat().st_size == 0:
            for name in _FILES:
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: somebody's files, or logs worth reading
                self.path.rmdir()

    def write_spec(self, spec: RunSpec) -> None:
        """Keep the spec for people and for `shoal play`. Raises `DirectoryError`."""
        with self._written("can't take the run spec"):
            (self.path / "spec.toml").write_text(run_spec.to_toml(spec), encoding="utf-8")

    def make_secret(self) -> bytes:
        """The 32 bytes that lease tokens are made with, in a file for the owner only.

        Raises `DirectoryError`.
        """
        secret = new_secret()
        with self._written("can't take the run's secret"):
            handle = os.open(self.path / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secret)
        return secret

    def write_metrics(self, values: Mapping[str, Any]) -> None:
        """One line of JSON, at once; what is not a finite number becomes null.

        Raises `DirectoryError`.
        """
        line = json.dumps({name: _finite(value) for name, value in values.items()})
        with self._written("can't take another line of metrics"):
            self._metrics.write(line + "\n")
            self._metrics.flush()

    def write_policy(
        self, tensors: Mapping[str, NDArray[np.float32]], about: Mapping[str, str]
    ) -> None:
        """Replace the policy file in one step: a reader sees the old or the new one whole.

        Raises `DirectoryError`.
        """
        from safetensors.numpy import save

        data = save(dict(tensors), metadata=dict(about))
        with self._written("can't take the policy"), contextlib.ExitStack() as undo:
            handle, name = tempfile.mkstemp(dir=self.path, prefix=".policy-")
            undo.callback(Path(name).unlink, missing_ok=True)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.policy_path)

    def close(self) -> None:
        """Let go of the files."""
        with contextlib.suppress(OSError):  # each line was flushed, or its failure told
            self._metrics.close()
        self._lock.close()

    @contextlib.contextmanager
    def _written(self, problem: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DirectoryError(
                f"the run directory {self.path} {problem} ({error.strerror or error}): "
                "see to the disk, or give another --run-dir"
            ) from None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
