"""The state of an `Evolution` as a safetensors file: spec and state, written and read."""

from __future__ import annotations

import tomllib
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol import replay, snapshot
from protocol import spec as run_spec
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.packing import WireError
from protocol.spec import RunSpec
from protocol.state import State

SPEC, STATE, DIGEST = "spec", "state", "digest"
"""The run's spec in TOML, among the metadata; the state as snapshots have it, uint8; and, among the
metadata, what tells that both are as they were written."""


def write(path: Path, spec: RunSpec, now: State) -> None:
    """Write both, whole or not at all. Raises `ShoalError` where the disk takes none."""
    from safetensors.numpy import save

    octets = np.frombuffer(snapshot.to_bytes(now), dtype=np.uint8)
    said = run_spec.to_toml(spec)
    data = save({STATE: octets}, metadata={SPEC: said, DIGEST: _digest(said, octets)})
    try:
        write_whole(path, data)
    except OSError as error:
        raise ShoalError(
            f"{path} can't be written ({error.strerror}): give another place"
        ) from None


def read(path: Path) -> tuple[RunSpec, State]:
    """What `write` wrote. Raises `ShoalError` for any other file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            metadata = opened.metadata() or {}
            said = metadata.get(SPEC)
            if said is None or list(opened.keys()) != [STATE]:
                raise _unfit(path, "it has no spec, or other tensors than the state")
            octets = opened.get_tensor(STATE)
        if metadata.get(DIGEST) != _digest(said, octets):
            raise _unfit(path, "it is damaged")
        spec = run_spec.parse(tomllib.loads(said))
        if octets.dtype != np.uint8 or octets.ndim != 1:
            raise _unfit(path, f"its state is {octets.dtype} of shape {octets.shape}")
        return spec, replay.restored(spec, replay.arithmetic(spec), octets.tobytes())
    except (OSError, SafetensorError, WireError, TypeError, ValueError, RecursionError) as error:
        raise _unfit(path, " ".join(str(error).split())[:200]) from None


def _digest(spec: str, octets: NDArray[np.uint8]) -> str:
    """32 hexadecimal digits."""
    return blake2b(spec.encode() + b"\0" + octets.tobytes(), digest_size=16).hexdigest()


def _unfit(path: Path, reason: str) -> ShoalError:
    return ShoalError(
        f"{path} holds no state of an Evolution ({reason}): give a file that Evolution.save wrote"
    )
