"""Settings that a person wants changed: in the run directory until an update carries them.

Other orders are heeded at most once, and one that a crash loses is given again. A change of the
history must not be lost between two versions, so it stays here until it is in the log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from protocol.amended import MOST_VALUES
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json

WANTED, LOCK = "wanted.json", "wanted.lock"
MOST_BYTES = 1 << 16


def read(path: Path) -> dict[str, float]:
    """What is wanted, by field of the run spec; nothing where the file is not there.

    Raises `ShoalError` where it can't be read or is damaged.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        found = read_json(data, dict[str, float])
        if len(data) > MOST_BYTES or len(found) > MOST_VALUES:
            raise DamagedJson("it is too long")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ShoalError(f"{path} can't be read ({error}): see to the disk") from None
    except DamagedJson as error:
        raise ShoalError(
            f"{path} is damaged ({error}): remove it, and say again what to set"
        ) from None
    return found


def add(path: Path, changes: Mapping[str, float]) -> None:
    """Leave word of changes; the last word on a field holds. Raises `ShoalError`."""
    with _alone(path):
        _write(path, {**read(path), **changes})


def remove(path: Path, done: Mapping[str, float]) -> None:
    """These are done: what was wanted since, of the same fields, stays. Raises `ShoalError`."""
    with _alone(path):
        left = {field: value for field, value in read(path).items() if done.get(field) != value}
        _write(path, left)


def _write(path: Path, wanted: Mapping[str, float]) -> None:
    if wanted:
        write_whole(path, json.dumps(wanted).encode())
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else writes meanwhile. The lock is on a file of its own, as the other is replaced, and
    only its owner can open it: on the directory other users could keep the host waiting."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(path.with_name(LOCK), flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        raise ShoalError(f"{path} can't be written ({error}): see to the disk") from None
