"""The policy that a worker helped to train, as a file that holds the run's spec too."""

from __future__ import annotations

from protocol import spec as run_spec
from protocol.policy_file import SPEC, to_tensors
from protocol.spec import RunSpec
from protocol.state import State, params_hash


def policy_file(spec: RunSpec, run: str, state: State) -> bytes:
    """A version of a run as `shoal play FILE` reads it, wherever it lies."""
    from safetensors.numpy import save

    about = {
        "run": run,
        "version": str(state.version),
        "params_hash": params_hash(state.theta),
        SPEC: run_spec.to_toml(spec),
    }
    return save(to_tensors(spec, state.theta, state.normalizer), metadata=about)
