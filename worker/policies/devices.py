"""Which device a policy is computed on; PyTorch is asked only where there may be one."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys

from protocol import backends
from protocol.errors import ShoalError
from protocol.spec import RunSpec

CPU = "cpu"
WORDS = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
GAINING = ("cnn", "module")
"""Policies that `auto` computes on a GPU: our own kernels are done with the small networks of the
others in less time than a GPU takes to begin."""


class DeviceError(ShoalError):
    """The volunteer asked for a device that is not there."""


def parse(text: str) -> str:
    """What `--device` says. Raises `DeviceError`, also where there can be no such device."""
    if WORDS.fullmatch(text) is None:
        raise DeviceError(f"--device {text[:40]!r}: must be auto, cpu, cuda, or cuda:1 for another")
    if text.startswith("cuda"):
        index = int(text.partition(":")[2] or 0)
        if index >= (count := cuda_devices()):
            found = f"has {count} of them, numbered from 0" if count else "has none (or no driver)"
            raise DeviceError(
                f"--device {text}: this machine {found}: give another, or use --device cpu"
            )
        if importlib.util.find_spec("torch") is None:
            raise DeviceError(
                f"--device {text} needs PyTorch, which is not installed: pip install "
                "'shoal[torch]', or use --device cpu"
            )
    return text


def cuda_devices() -> int:
    """How many CUDA devices the driver knows: PyTorch would take seconds to load."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def choose(asked: str, spec: RunSpec) -> str:
    """The device that a run's policy is computed on: `cpu` or `cuda:i`; see `worker.compiled` for
    what JAX computes.

    Args:
        asked: as `parse` lets it through.

    Raises:
        DeviceError: PyTorch can't use the device that was asked for.
    """
    if spec.environment.backend == backends.JAX:  # which is asked by itself
        return asked if asked.startswith("cuda") else CPU
    if asked == "auto":
        wanted = spec.policy.kind in GAINING and cuda_devices()
        if not wanted or importlib.util.find_spec("torch") is None:
            return CPU
        import torch

        return "cuda:0" if torch.cuda.is_available() else CPU
    if asked == CPU:
        return CPU
    import torch

    index = int(asked.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise DeviceError(
            f"--device {asked}: PyTorch {torch.__version__} can't use it: install a PyTorch built "
            "for CUDA and this machine's driver, or use --device cpu"
        )
    return f"cuda:{index}"
