"""`python -m worker.read_state_dict`: a PyTorch state dict as a safetensors file, in its order."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from protocol.errors import ShoalError

NESTED = ("state_dict", "model_state_dict")
"""Names under which checkpoints keep a state dict among other things."""


def convert(file: Path, out: Path) -> list[str]:
    """Write the tensors of a state dict as float32; their names, in order.

    Nothing in the file is executed: PyTorch reads weights only. Raises `ShoalError`.
    """
    from worker.policies.modules import require_torch

    require_torch()
    import numpy as np
    import torch
    from safetensors.numpy import save_file

    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, all about the file
        reason = " ".join(str(error).split())[:160]
        raise ShoalError(
            f"--init {file} is no state dict that PyTorch reads as weights alone ({reason}): write "
            "one with torch.save(module.state_dict(), file)"
        ) from None
    for name in NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping):
        raise ShoalError(
            f"--init {file} holds a {type(found).__name__} and no state dict: write one with "
            "torch.save(module.state_dict(), file)"
        )
    tensors = {
        str(name): np.ascontiguousarray(value.detach().float().numpy())
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    save_file(tensors, out)
    return list(tensors)


def main() -> None:
    """Print the names as a JSON line, or `{"error": ...}` with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m worker.read_state_dict", description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="the safetensors file to write")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    try:
        print(json.dumps({"names": convert(options.file, options.out)}))
    except ShoalError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
