"""Built-in policies give the same returns, bit for bit, whatever of a processor is used."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.digests import RUNS

ROOT = Path(__file__).parents[2]
FOUND = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
"""NumPy's extensions of this machine that it can do without."""
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
PLAIN = {"NPY_DISABLE_CPU_FEATURES": " ".join(FOUND), "OPENBLAS_CORETYPE": "Prescott"}


async def told(changes: dict[str, str]) -> dict[str, Any]:
    """What a process with those environment variables says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.worker.digests"),
        cwd=ROOT,
        env={**os.environ, **changes},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    said: dict[str, Any] = json.loads(output)
    return said


@pytest.mark.filterwarnings("ignore")
async def test_returns_are_the_same_on_any_processor() -> None:
    usual, compiled = await asyncio.gather(told({}), told(GENERIC))
    plain = await told(PLAIN)  # by the kernels that the usual one has compiled
    assert list(usual["digests"]) == [*RUNS, "activations"]
    assert len(set(usual["digests"].values())) == len(RUNS) + 1
    assert (usual["kernels"], compiled["kernels"]) == ("this machine's", "generic")
    assert not set(plain["features"]) & set(FOUND)
    assert compiled["digests"] == usual["digests"]
    assert plain["digests"] == usual["digests"]
