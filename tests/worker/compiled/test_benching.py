"""`shoal bench` of a compiled run: compiling is told apart, and what is kept is found again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.worker.test_daemon import ROOT


def bench(cache: Path, *flags: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "bench", *flags, "--seconds", "0.1", "--json"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_compiling_is_told_apart_and_done_once(tmp_path: Path) -> None:
    limit = ("--set", "environment.max_steps=50")
    flags = ("jax:CliffWalking-v0", "--policy", "tabular", "--lanes", "16", *limit)
    first, second = bench(tmp_path, *flags), bench(tmp_path, *flags)
    assert 0.0 < first["compile_seconds"] < first["start_seconds"]
    assert first["steps_per_second"] > 0.0 and first["lanes"] == 16
    assert first["programs"] == second["programs"] > first["programs_found"]
    assert second["programs_found"] > first["programs_found"]
