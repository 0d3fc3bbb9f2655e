"""The state of an `Evolution` as a safetensors file: spec and state, written and read."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from protocol import replay, snapshot
from protocol import spec as run_spec
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.packing import WireError
from protocol.spec import RunSpec
from protocol.state import State

SPEC, STATE = "spec", "state"
"""The run's spec in TOML, among the metadata; the state as snapshots have it, uint8."""


def write(path: Path, spec: RunSpec, now: State) -> None:
    """Write both, whole or not at all. Raises `ShoalError` where the disk takes none."""
    from safetensors.numpy import save

    octets = np.frombuffer(snapshot.to_bytes(now), dtype=np.uint8)
    data = save({STATE: octets}, metadata={SPEC: run_spec.to_toml(spec)})
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
            said = (opened.metadata() or {}).get(SPEC)
            if said is None or list(opened.keys()) != [STATE]:
                raise _unfit(path, "it has no spec, or other tensors than the state")
            octets = opened.get_tensor(STATE)
        spec = run_spec.parse(tomllib.loads(said))
        if octets.dtype != np.uint8 or octets.ndim != 1:
            raise _unfit(path, f"its state is {octets.dtype} of shape {octets.shape}")
        return spec, replay.restored(spec, replay.arithmetic(spec), octets.tobytes())
    except (OSError, SafetensorError, WireError, TypeError, ValueError, RecursionError) as error:
        raise _unfit(path, " ".join(str(error).split())[:200]) from None


def _unfit(path: Path, reason: str) -> ShoalError:
    return ShoalError(
        f"{path} holds no state of an Evolution ({reason}): give a file that Evolution.save wrote"
    )
