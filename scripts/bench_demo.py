"""Times `shoal demo CartPole-v1`, start-up included, over many seeds; every seed is shown."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def solve(environment: str, seed: int, workers: int, limit: float, extra: list[str]) -> dict:
    """The demo's own figures, and `wall_seconds` as seen from outside."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "shoal", "demo", environment, "--json"]
        command += ["--workers", str(workers), "--seed", str(seed), "--seconds", str(limit)]
        command += ["--run-dir", str(Path(directory) / "run"), *extra]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit + 60)
        seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"seed {seed}: {done.stderr.strip().splitlines()[-1:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "seed": seed, "wall_seconds": seconds}


def main() -> None:
    """Run the seeds one after the other and print a line for each, then the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", nargs="?", default="CartPole-v1")
    parser.add_argument("--seeds", default="0-4", help="first-last")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a run may train")
    options, extra = parser.parse_known_args()
    first, _, last = options.seeds.partition("-")
    rows = []
    for seed in range(int(first), int(last or first) + 1):
        row = solve(options.environment, seed, options.workers, options.limit, extra)
        rows.append(row)
        print(
            f"seed {seed:3d}: {'solved' if row['solved'] else 'NOT SOLVED'} in "
            f"{row['wall_seconds']:.2f} s, {row['updates']} updates, {row['episodes']:,} episodes, "
            f"{row['env_steps']:,} steps, {row['wire_bytes_per_episode']:.1f} bytes/episode",
            flush=True,
        )
    summary = {
        "environment": options.environment,
        "seeds": len(rows),
        "solved": sum(row["solved"] for row in rows),
        "median_seconds": round(statistics.median(row["wall_seconds"] for row in rows), 3),
        "worst_seconds": round(max(row["wall_seconds"] for row in rows), 3),
        "median_updates": statistics.median(row["updates"] for row in rows),
        "median_steps": statistics.median(row["env_steps"] for row in rows),
        "median_wire_bytes_per_episode": statistics.median(
            row["wire_bytes_per_episode"] for row in rows
        ),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
