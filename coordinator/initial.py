"""Version 0 of a run from a file: PyTorch's state dict, safetensors, or another run's policy."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator.describing import Question, ask
from protocol import replay, snapshot, state
from protocol import spec as run_spec
from protocol.networks import Tensor
from protocol.spec import RunSpec, SpecError
from protocol.state import State

READ_TIMEOUT = 120.0
"""Seconds that PyTorch may take to load and to read a file."""
MOST_TOLD = 6
"""Differences between a file and a policy that are told of."""
STATISTICS = "observation."
"""Begins the names of what a policy file holds beside parameters."""

Tensors = Mapping[str, NDArray[np.float32]]


def begin(spec: RunSpec, file: Path) -> tuple[RunSpec, State]:
    """The spec of a run that begins with the parameters in a file, and its version 0.

    Raises `SpecError`.
    """
    found = read(file)
    theta = matched(spec.tensors, found.tensors, file, ordered=found.ordered)
    return given(spec, theta)


def given(spec: RunSpec, theta: NDArray[np.float32]) -> tuple[RunSpec, State]:
    """The spec of a run that begins with these parameters, and its version 0."""
    first = state.initial_state(replay.arithmetic(spec), theta, spec.strategy.sigma_at(0))
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
    """The tensors of a file, or of the policy in a run's directory. Raises `SpecError`."""
    if file.is_dir():
        file = file / "policy.safetensors"
    if not file.is_file():
        raise SpecError(
            f"--init {file}: there is no such file; give a state dict of PyTorch, a safetensors "
            "file, or the directory of a run that has kept a policy"
        )
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
    parameters = {k: v for k, v in found.items() if not k.startswith(STATISTICS)}
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
        name: value.astype(np.float32)
        for name, value in tensors.items()
        if np.issubdtype(value.dtype, np.floating)
    }


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
