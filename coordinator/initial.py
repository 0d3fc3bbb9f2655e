"""Version 0 of a run from a file: PyTorch's state dict, safetensors, or another run's state."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator.describing import Question, ask
from coordinator.directory import spec_in
from protocol import normalizer, policy_file, replay, snapshot, state
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.networks import Tensor
from protocol.normalizer import NormalizerState
from protocol.packing import WireError
from protocol.spec import RunSpec, SpecError
from protocol.state import State

READ_TIMEOUT = 120.0
"""Seconds that PyTorch may take to load and to read a file."""
MOST_TOLD = 6
"""Differences between a file and a policy that are told of."""
FRAMES = 1 << 17
"""As so many frames count a mean and deviation in a file that doesn't say of how many they are. A
power of 2, so that policies see the same bits as with those of the file."""
MOST_FRAMES = 1 << 52
"""That statistics may be of: with many more float64 would not count the next."""
LARGEST = float(np.finfo(np.float32).max)
"""Of means and deviations."""

Tensors = Mapping[str, NDArray[np.floating]]


class Begun(NamedTuple):
    """The spec of a run that begins with what a file holds, its version 0, and a line for people
    about the observation statistics, empty where neither has any."""

    spec: RunSpec
    first: State
    told: str


class _Seen(NamedTuple):
    """Observation statistics in a file; `exact` where it has them as a run's state does."""

    frames: float
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    exact: bool


def begin(spec: RunSpec, file: Path) -> Begun:
    """A run with this spec that begins with the parameters in a file, and with its observation
    statistics where the run has a normaliser.

    Raises `SpecError`.
    """
    found = read(file)
    theta = matched(spec.tensors, found.tensors, file, ordered=found.ordered)
    statistics, told = _statistics(spec, found.tensors, file)
    return Begun(*given(spec, theta, statistics), told)


def given(
    spec: RunSpec, theta: NDArray[np.float32], statistics: NormalizerState | None = None
) -> tuple[RunSpec, State]:
    """The spec of a run that begins with these parameters, and its version 0; with fresh
    statistics where none are given."""
    first = state.initial_state(
        replay.arithmetic(spec), theta, spec.strategy.sigma_at(0), statistics
    )
    digest = snapshot.state_digest(first).hex()
    policy = msgspec.structs.replace(spec.policy, initialisation="given", initial_digest=digest)
    spec = msgspec.structs.replace(spec, policy=policy)
    return run_spec.parse(run_spec.to_plain(spec)), first


class Found(NamedTuple):
    """The tensors of a file, by name; `ordered` where their order is that of the layers, which
    safetensors files don't keep."""

    tensors: Tensors
    ordered: bool


def read(file: Path) -> Found:
    """The tensors of a file, or of the policy in a run's directory; of a snapshot those of its
    policy. Raises `SpecError`."""
    if file.is_dir():
        file = file / "policy.safetensors"
    if not file.is_file():
        raise SpecError(
            f"--init {file}: there is no such file; give a state dict of PyTorch, a safetensors "
            "file, a snapshot of a run, or the directory of one that has kept a policy"
        )
    if _begins_as_snapshot(file):
        return Found(_snapshot(file), ordered=False)
    if file.suffix == ".safetensors":
        return Found(_safetensors(file), ordered=False)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        converted = Path(folder) / "tensors.safetensors"
        names = _convert(file, converted)
        tensors = _safetensors(converted)
        return Found({name: tensors[name] for name in names}, ordered=True)


def matched(
    expected: tuple[Tensor, ...], found: Tensors, file: Path, *, ordered: bool
) -> NDArray[np.float32]:
    """The parameters in the order of theta: by their names, or, where a file is ordered and the
    shapes are the same one after the other, in its order.

    Raises `SpecError`, which says of each tensor what differs.
    """
    parameters = {k: v for k, v in found.items() if k not in policy_file.STATISTICS}
    named = [parameters.get(tensor.name) for tensor in expected]
    if all(v is not None and v.shape == t.shape for v, t in zip(named, expected, strict=True)):
        chosen = [value for value in named if value is not None]
    elif ordered and [value.shape for value in parameters.values()] == [t.shape for t in expected]:
        chosen = list(parameters.values())
    else:
        raise SpecError(
            f"--init {file} does not fit the policy: {_differences(expected, parameters)}; set "
            "policy.kind and policy.hidden as they were there"
        )
    theta = np.concatenate([value.ravel() for value in chosen]).astype(np.float32)
    if not np.isfinite(theta).all():
        raise SpecError(f"--init {file} has NaN or infinity among its parameters: give another")
    return theta


def _differences(expected: tuple[Tensor, ...], found: Tensors) -> str:
    names = {tensor.name for tensor in expected}
    told = [
        f"{t.name} of {t.shape} is missing"
        if t.name not in found
        else f"{t.name} is {found[t.name].shape}, not {t.shape}"
        for t in expected
        if t.name not in found or found[t.name].shape != t.shape
    ]
    told += [f"it has {name} of {v.shape}" for name, v in found.items() if name not in names]
    more = f", and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return "; ".join(told[:MOST_TOLD]) + more


def _safetensors(file: Path) -> Tensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError) as error:
        raise SpecError(f"--init {file} can't be read ({error}): give another file") from None
    return {
        name: value if name in policy_file.STATISTICS else value.astype(np.float32)
        for name, value in tensors.items()
        if np.issubdtype(value.dtype, np.floating)
    }


def _begins_as_snapshot(file: Path) -> bool:
    """Whether it is one, whatever its name: state dicts end in .bin, too."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(snapshot.MAGIC)) == snapshot.MAGIC
    except OSError as error:
        raise SpecError(
            f"--init {file} can't be read ({error.strerror}): give another file"
        ) from None


def _snapshot(file: Path) -> Tensors:
    """The tensors of the policy of a snapshot that lies in the directory of its run."""
    try:
        spec = spec_in(file.absolute().parent.parent)
        then = snapshot.from_bytes(replay.arithmetic(spec), file.read_bytes())
    except (OSError, ShoalError, WireError) as error:
        raise SpecError(
            f"--init {file} is no snapshot in the directory of its run ({error}): give that "
            "directory"
        ) from None
    return policy_file.to_tensors(spec, then.theta, then.normalizer)


def _statistics(spec: RunSpec, found: Tensors, file: Path) -> tuple[NormalizerState | None, str]:
    """The statistics in a file where the run has a place for them, and a line about it."""
    seen = _exact(found) or _stated(found)
    if seen is None and not spec.normalizer.enabled:
        return None, ""
    if seen is None:
        return None, (
            f"--init {file} holds no observation statistics: the run's begin anew, so its policy "
            "sees other numbers than it may know; --no-normalize leaves observations as they are"
        )
    if not spec.normalizer.enabled:
        return None, (
            f"--init {file} holds observation statistics, which a run without a normaliser leaves "
            "out, so its policy sees other numbers than it knows: --normalize takes them along"
        )
    size, frames = spec.environment.observation.size, seen.frames
    if not seen.mean.shape == seen.squares.shape == (size,):
        raise SpecError(
            f"--init {file} has observation statistics of shape {seen.mean.shape}, the run's are "
            f"of ({size},): give the environment as it was there, or --no-normalize"
        )
    possible = (np.abs(seen.mean) <= LARGEST) & (seen.squares <= frames * LARGEST**2)
    if not (
        frames == np.floor(frames)
        and 0.0 <= frames <= MOST_FRAMES
        and (possible & (seen.squares >= 0.0)).all()
    ):
        raise SpecError(f"--init {file} has impossible observation statistics: give another file")
    kept = normalizer.continued(frames, seen.mean, seen.squares, 1 + spec.pool.max_staleness)
    untold = "" if seen.exact else ", which it has no number of"
    return kept, (
        f"--init {file}: its observation statistics go on, as those of {frames:,.0f} frames{untold}"
    )


def _exact(found: Tensors) -> _Seen | None:
    """The statistics of a file that has all of them."""
    count, mean, squares = (
        found.get(name) for name in (policy_file.COUNT, policy_file.EXACT_MEAN, policy_file.SQUARES)
    )
    if count is None or count.size != 1 or mean is None or squares is None:
        return None
    wide = np.float64
    return _Seen(float(count.ravel()[0]), mean.astype(wide), squares.astype(wide), exact=True)


def _stated(found: Tensors) -> _Seen | None:
    """The statistics of a file that has a mean and an inverse deviation alone."""
    mean, inverse = found.get(policy_file.MEAN), found.get(policy_file.INVERSE)
    if mean is None or inverse is None:
        return None
    constant, inverse = inverse == 0.0, inverse.astype(np.float64)
    deviation = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, inverse))
    squares = np.where(inverse < 0.0, -1.0, deviation * deviation * FRAMES)
    return _Seen(float(FRAMES), mean.astype(np.float64), squares, exact=False)


def _convert(file: Path, out: Path) -> list[str]:
    """Have a process of its own read a state dict: the coordinator never imports PyTorch."""
    said = ask(
        Question(
            "worker.read_state_dict",
            f"--init {file}",
            [f"--out={out}", "--", str(file)],
            READ_TIMEOUT,
            "give a smaller file",
        )
    )
    names: list[str] = said["names"]
    return names
