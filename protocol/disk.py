"""Files that are there whole or not at all, whatever becomes of the machine meanwhile."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file for its owner only, in one step: it is there whole, or as it was before.

    Raises OSError.
    """
    with contextlib.ExitStack() as undo:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        undo.callback(Path(name).unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)


def sync_directory(directory: Path) -> None:
    """Returns when the names in a directory have reached the disk. Raises OSError."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
