"""How JAX is set up in a process: on what device, with how much of it, where programs are kept."""

from __future__ import annotations

import os
from pathlib import Path

from worker.policies.devices import CPU, cuda_devices

SLOW_SECONDS = 0.05
"""Programs that take less to compile are not kept."""


def set_up(asked: str, threads: int = 1) -> str:
    """Set JAX up, before anything has imported it; the device: `cpu` or `cuda:i`.

    Args:
        asked: as `worker.policies.devices.parse` lets it through; `auto` takes a GPU where there is
            one that JAX can use.
        threads: that compute on a CPU; 0 for as many as there are cores.
    """
    device = asked
    if asked == "auto":
        device = "cuda:0" if cuda_devices() and _has_cuda() else CPU
    elif asked == "cuda":
        device = "cuda:0"
    os.environ["JAX_PLATFORMS"] = "cpu" if device == CPU else "cuda"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # a GPU is shared with others
    if threads:
        os.environ["NPROC"] = str(threads)
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SLOW_SECONDS)
    if device != CPU:
        jax.config.update("jax_default_device", jax.devices()[int(device.partition(":")[2])])
    return device


def cache_folder() -> Path:
    """Where compiled programs are kept for the next process: they take seconds to make."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shoal" / "jax"


def _has_cuda() -> bool:
    from importlib.metadata import distributions

    names = (found.metadata["Name"] or "" for found in distributions())
    return any(name.lower().startswith("jax-cuda") for name in names)
