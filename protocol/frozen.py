"""Snapshots on disk: states frozen at their versions, chunk by chunk proved and handed out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from protocol.disk import sync_directory
from protocol.errors import ShoalError
from protocol.proof import CHUNK_BYTES, Data, Proof, cut, proof

if TYPE_CHECKING:
    from protocol.state import Arithmetic, State

_NAME = re.compile(r"snapshot-(\d{1,13})\.bin")
_PARTIAL = ".snapshot.part"
"""What is being written; one that a crash left is overwritten by the next."""


class FrozenError(ShoalError):
    """A snapshot that can't be written or read."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A snapshot in a file, and what proves it."""

    path: Path = field(repr=False)
    version: int
    proof: Proof = field(repr=False)
    """what a signed update or manifest must say of it"""

    @property
    def digest(self) -> bytes:
        """The digest of the whole state."""
        return self.proof.digest

    @property
    def chunks(self) -> int:
        """How many there are."""
        return self.proof.chunks

    def chunk(self, index: int) -> bytes:
        """The bytes of a chunk, 0 <= index < chunks.

        Raises `FrozenError`, also where they are no longer what was frozen.
        """
        with _reading(self.path), self.path.open("rb") as file:
            file.seek(index * CHUNK_BYTES)
            data = file.read(CHUNK_BYTES)
        if not self.proof.covers(index, data):
            raise FrozenError(f"chunk {index} of the snapshot {self.path} is damaged: remove it")
        return data

    def thaw(self, rules: Arithmetic) -> State:
        """The state. Raises `FrozenError` where the file can't be read, and `WireError` where it
        holds no state of a run with this arithmetic."""
        from protocol import snapshot  # loads the compiled kernels

        with _reading(self.path):
            data = self.path.read_bytes()
        return snapshot.from_bytes(rules, data)


class Snapshots:
    """The snapshots of one run in a directory of its own, `snapshot-<version>.bin` each.

    One thread at a time may write; any number may read.
    """

    def __init__(self, directory: Path, *, lasting: bool = True) -> None:
        """`lasting`: whether they must be there still after the machine loses its power."""
        self.directory = directory
        self._lasting = lasting

    def freeze(self, state: State, known: Proof | None = None) -> Frozen:
        """Keep a state: on disk, and there to last, when this returns, or not there at all.

        `known`: its proof, where somebody made it already: hashing takes long. Raises
        `FrozenError`.
        """
        from protocol import snapshot  # loads the compiled kernels

        return self._write(state.version, snapshot.chunks(state), known)

    def keep(self, version: int, data: Data) -> Frozen:
        """Keep a state's bytes, likewise."""
        return self._write(version, cut(data), None)

    def open(self, version: int) -> Frozen:
        """The snapshot of a version that is here. Raises `FrozenError`."""
        path = self._path(version)
        with _reading(path), path.open("rb") as file:
            return Frozen(path, version, proof(iter(lambda: file.read(CHUNK_BYTES), b"")))

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

    def _write(
        self, version: int, chunks: Iterable[bytes | memoryview], known: Proof | None
    ) -> Frozen:
        path, partial = self._path(version), self.directory / _PARTIAL
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as undo:
                undo.callback(partial.unlink, missing_ok=True)
                with partial.open("wb") as file:
                    if known is None:
                        known = proof(_written(file, chunks))
                    else:
                        file.writelines(chunks)
                    file.flush()
                    if self._lasting:
                        os.fsync(file.fileno())
                partial.replace(path)
            if self._lasting:
                sync_directory(self.directory)
        except OSError as error:
            raise FrozenError(
                f"can't keep the snapshot {path}: {error.strerror or error}: see to the disk"
            ) from None
        return Frozen(path, version, known)

    def _path(self, version: int) -> Path:
        return self.directory / f"snapshot-{version}.bin"


def _written(file: IO[bytes], chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The chunks, each written before it comes out."""
    for chunk in chunks:
        file.write(chunk)
        yield chunk


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FrozenError(f"can't read the snapshot {path}: {error.strerror or error}") from None
