"""`python -m worker.describe_module`: prints a PyTorch module's parameters as a JSON line."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import spec as run_spec
from protocol.errors import ShoalError


def describe(
    policy: Mapping[str, Any], environment: Mapping[str, Any], seed: int, allowed: Sequence[str]
) -> tuple[list[Any], NDArray[np.float32]]:
    """Names and shapes of the parameters; their values, as PyTorch makes them, shape (size,).

    Args:
        policy, environment: those sections of the run's spec.

    Raises:
        ShoalError: the module is not allowed or can't be a policy of this environment.
    """
    from worker.policies import modules

    path = str(policy["module"])
    module = modules.load(path, policy.get("arguments", {}), allowed, seed)
    found = [[name, list(shape)] for name, shape in modules.parameters_of(module)]
    trial = {
        "name": "trial",
        "environment": environment,
        "policy": {**policy, "parameters": found, "initialisation": "zero", "initial_digest": ""},
    }
    spec = run_spec.parse(trial)

    import torch

    from worker.policies.batched import ModulePolicy

    theta = torch.cat([value.reshape(-1) for value in module.parameters()]).numpy()
    ModulePolicy(spec, 1, module)  # raises where no worker could play it
    return found, theta


def main() -> None:
    """Print the description, or `{"error": ...}` with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m worker.describe_module", description=__doc__)
    parser.add_argument("--policy", required=True, help="that section of the spec, as JSON")
    parser.add_argument("--environment", required=True, help="likewise")
    parser.add_argument("--seed", type=int, default=0, help="of PyTorch's generator")
    parser.add_argument(
        "--theta", required=True, type=Path, help="file that gets them, little-endian float32"
    )
    parser.add_argument("--allow-module", action="append", default=[], metavar="MODULE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a module prints
            parameters, theta = describe(
                json.loads(options.policy),
                json.loads(options.environment),
                options.seed,
                options.allow_module,
            )
        options.theta.write_bytes(theta.astype("<f4").tobytes())
        print(json.dumps({"parameters": parameters}))
    except ShoalError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
