"""Snapshots on disk: states frozen at their versions, chunk by chunk proved and handed out."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from protocol import snapshot
from protocol.errors import ShoalError
from protocol.messages import CHUNK
from protocol.state import DIGEST_BYTES, Arithmetic, State

_NAME = re.compile(r"snapshot-(\d{1,13})\.bin")


class FrozenError(ShoalError):
    """A snapshot that can't be written or read."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A snapshot in a file, and what proves it."""

    path: Path = field(repr=False)
    version: int
    total: int
    digests: bytes = field(repr=False)
    """16 bytes for each chunk"""

    @property
    def digest(self) -> bytes:
        """The digest of the whole state."""
        return snapshot.manifest_digest(self.total, self.digests)

    @property
    def chunks(self) -> int:
        """How many there are."""
        return len(self.digests) // DIGEST_BYTES

    def chunk(self, index: int) -> bytes:
        """The bytes of a chunk, 0 <= index < chunks. Raises `FrozenError`."""
        try:
            with self.path.open("rb") as file:
                file.seek(index * CHUNK)
                return file.read(CHUNK)
        except OSError as error:
            raise FrozenError(f"can't read the snapshot {self.path}: {error.strerror}") from None

    def thaw(self, rules: Arithmetic) -> State:
        """The state. Raises `FrozenError` where the file can't be read, and `WireError` where it
        holds no state of a run with this arithmetic."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise FrozenError(f"can't read the snapshot {self.path}: {error.strerror}") from None
        return snapshot.from_bytes(rules, data)


class Snapshots:
    """The snapshots of one run in a directory of its own, `snapshot-<version>.bin` each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def freeze(self, state: State) -> Frozen:
        """Keep a state: on disk and synced when this returns, or not there at all.

        Raises `FrozenError`.
        """
        return self.keep(state.version, snapshot.to_bytes(state))

    def keep(self, version: int, data: bytes) -> Frozen:
        """Keep a state's bytes, likewise."""
        path = self._path(version)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=".snapshot-")
            with contextlib.ExitStack() as undo:
                undo.callback(Path(name).unlink, missing_ok=True)
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
        except OSError as error:
            raise FrozenError(
                f"can't keep the snapshot {path}: {error.strerror or error}: see to the disk"
            ) from None
        return Frozen(path, version, len(data), snapshot.chunk_digests(data))

    def open(self, version: int) -> Frozen:
        """The snapshot of a version that is here. Raises `FrozenError`."""
        path = self._path(version)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FrozenError(f"can't read the snapshot {path}: {error.strerror}") from None
        return Frozen(path, version, len(data), snapshot.chunk_digests(data))

    def versions(self) -> list[int]:
        """The versions whose snapshots are here, ascending."""
        try:
            names = [entry.name for entry in self.directory.iterdir()]
        except OSError:
            return []
        found = (_NAME.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match is not None)

    def remove(self, version: int) -> None:
        """Let go of a snapshot, if it is here."""
        with contextlib.suppress(OSError):
            self._path(version).unlink()

    def _path(self, version: int) -> Path:
        return self.directory / f"snapshot-{version}.bin"
