"""A worker's place in its home: one name for one process, its socket, and what it was told.

Several workers may have one home. Each takes a free place, `<name>`, `<name>-2`, and so on, by a
lock that goes with the process however that ends: nobody has to guess whether a number still means
a living process, and what a dead one left is the next one's to remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json
from worker.wishes import NOTHING, Wishes

FOLDER = "workers"
UNNAMED = "worker"
MOST = 256
"""Workers of one name that have one home."""
LARGEST = 4096
"""Bytes of a file of ours that are read."""


class PlaceError(ShoalError):
    """The home can't be used."""


@dataclass(frozen=True)
class Spot:
    """A place in a home, whoever has it.

    Attributes:
        folder: of all places of the home.
    """

    folder: Path
    name: str

    @property
    def socket(self) -> Path:
        """Where the worker that has it listens."""
        return self.folder / f"{self.name}.sock"

    @property
    def _kept(self) -> Path:
        return self.folder / f"{self.name}.json"

    def wishes(self) -> Wishes:
        """What the volunteer said last; nothing where that can't be read."""
        with contextlib.suppress(DamagedJson, OSError):
            return read_json(_read(self._kept), Wishes)
        return NOTHING

    def keep(self, wishes: Wishes) -> None:
        """Keep what the volunteer says, also for the next worker here. Raises `PlaceError`."""
        try:
            if wishes == NOTHING:
                self._kept.unlink(missing_ok=True)
            else:
                write_whole(self._kept, msgspec.json.encode(wishes) + b"\n")
        except OSError as error:
            raise PlaceError(
                f"{self._kept} can't be written ({error.strerror or error}): make room, or see to "
                "its rights"
            ) from None


@dataclass(frozen=True)
class Neighbour(Spot):
    """A place as others see it; `pid` is 0 where no process has it."""

    pid: int


@dataclass(frozen=True)
class Place(Spot):
    """A place that this process has, by its lock."""

    lock: IO[str]

    def leave(self) -> None:
        """Let another process have it; what the volunteer said stays."""
        with contextlib.suppress(OSError):
            self.socket.unlink(missing_ok=True)
        self.lock.close()


def take(home: Path, name: str) -> Place | None:
    """The first free place of a name. None where the system has no such locks; raises `PlaceError`
    where the home can't be written."""
    if sys.platform == "win32":
        return None
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, MOST + 1):
            place = plain(name) if number == 1 else f"{plain(name)}-{number}"
            lock = _lock_patiently(folder / f"{place}.lock")
            if lock is not None:
                lock.truncate()
                lock.write(json.dumps({"pid": os.getpid(), "since": round(time.time())}) + "\n")
                lock.flush()
                (folder / f"{place}.sock").unlink(missing_ok=True)
                return Place(folder, place, lock)
    except OSError as error:
        raise PlaceError(
            f"{folder} can't be used ({error.strerror or error}): see to its rights, or give "
            "another --home"
        ) from None
    raise PlaceError(
        f"{MOST} workers named {plain(name)} have the home {home}: give another --name"
    )


def neighbours(home: Path) -> list[Neighbour]:
    """All places of a home, in the order of their names."""
    return sorted(_neighbours(home / FOLDER), key=lambda found: found.name)


def plain(name: str) -> str:
    """A name as files may have it: letters, digits, `-`, `_` and `.`, no more than 40."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or UNNAMED


def _neighbours(folder: Path) -> Iterator[Neighbour]:
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):  # another user's, as of who was root once: no other's
            lock = _lock(path)
            if lock is not None:
                lock.close()
            yield Neighbour(folder, path.stem, _pid(path) if lock is None else 0)


def _lock(path: Path) -> IO[str] | None:
    """The file, locked until it is closed; None where another process has it. Raises OSError."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    lock = os.fdopen(handle, "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        lock.close()
        raise
    return lock


def _lock_patiently(path: Path) -> IO[str] | None:
    """The same, given a moment: who asks whether a place is free has its lock for an instant."""
    for _ in range(3):
        if (lock := _lock(path)) is not None:
            return lock
        time.sleep(0.01)
    return None


def _pid(path: Path) -> int:
    with contextlib.suppress(DamagedJson, OSError):
        said = read_json(_read(path), dict[str, int])
        return said.get("pid", 0)
    return 0


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST)
