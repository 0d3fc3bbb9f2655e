"""Does everybody get the same state? `python -m scripts.check_exact` from the root of a checkout.

Makes a run of 1,000 updates with Adam and an observation normaliser (returns are a formula, so that
no environment is needed), keeps its log as a coordinator does, and rebuilds the last version: by a
worker's own code, and by `shoal replay` in processes with other numbers of threads, other SIMD
extensions, other Pythons. Tells the size of the log and how fast it replays.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from coordinator import update
from coordinator.directory import RunDirectory
from coordinator.log import UpdateLog, UpdateRow
from coordinator.peers import Leader
from coordinator.pool.events import CloseBatch
from protocol import replay
from protocol.envelope import peek_signed
from protocol.identity import Identity, run_id
from protocol.snapshot import state_digest
from protocol.spec import RunSpec
from tests.coordinator.runs import contribution, spec_of
from worker.following import Follower

ROOT = Path(__file__).parent.parent
BASELINE = "plain"
VARIATIONS: dict[str, dict[str, str]] = {
    BASELINE: {},
    "one thread": {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    "eight threads": {"NUMBA_NUM_THREADS": "8", "OMP_NUM_THREADS": "8"},
    "kernels for any x86-64": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


def simd_levels() -> dict[str, dict[str, str]]:
    """NumPy with ever fewer of the SIMD extensions that it found on this machine."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    levels = {}
    for index in range(len(found)):
        without = found[index:]
        levels[f"NumPy without {without[0]} and above"] = {
            "NPY_DISABLE_CPU_FEATURES": " ".join(without)
        }
    return levels


def make_run(spec: RunSpec, path: Path, updates: int) -> tuple[str, list[bytes], float]:
    """A run directory with that many updates: the digest of the last state, the updates, and the
    seconds that it took."""
    identity = Identity.generate()
    run = run_id(spec.name, identity.public_key)
    directory = RunDirectory.create(path, run)
    identity.save(directory.key_path)
    directory.write_spec(spec)
    log = UpdateLog(directory.log_path, run)
    leader, rules = Leader.of_own(run, identity), replay.arithmetic(spec)
    state, payloads, began = replay.initial_state(spec), [], time.monotonic()
    for version in range(updates):
        batch = contribution(spec, state, version * spec.directions, spec.directions)
        made, payload = update.make_signed(
            spec, rules, leader, state, CloseBatch(version, (batch,), ())
        )
        log.append(
            UpdateRow(
                version=version,
                payload=payload,
                made_at=time.time(),
                members=made.members,
                late=made.update.late,
                seconds=time.monotonic() - began,
                workers=1,
            )
        )
        payloads.append(payload)
        state = made.after
    log.close()
    directory.close()
    return state_digest(state).hex(), payloads, time.monotonic() - began


def by_a_worker(spec: RunSpec, payloads: list[bytes]) -> str:
    """The digest that a worker's code comes to."""
    follower = Follower(spec)
    first = follower.begin()
    assert first is not None, "the spec tells version 0"
    state = first.state
    for payload in payloads:
        state = follower.apply(state, peek_signed(payload)).state  # type: ignore[arg-type]
    return state_digest(state).hex()


def by_replay(python: str, path: Path, version: int, changes: dict[str, str]) -> dict:
    """What `shoal replay` says in a process with those environment variables."""
    command = [python, "-m", "shoal", "replay", str(path), "--version", str(version)]
    done = subprocess.run(
        [*command, "--json", "--from-start"],
        cwd=ROOT,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Make the run, then print a line for each way to rebuild it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--hidden", default="64,64")
    parser.add_argument(
        "--python", action="append", default=[], help="another interpreter; repeatable"
    )
    options = parser.parse_args()
    spec = spec_of(
        policy={
            "kind": "mlp",
            "hidden": [int(width) for width in options.hidden.split(",")],
            "initialisation": "scaled",
        },
        strategy={"population": options.population, "sigma": 0.1},
        optimizer={"kind": "adam", "learning_rate": 0.02},
        normalizer={"enabled": True},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        expected, payloads, seconds = make_run(spec, path, options.updates)
        size = (path / "log.sqlite").stat().st_size
        print(
            f"{options.updates:,} updates of {spec.size:,} parameters, population "
            f"{options.population}: log {size:,} bytes, {size / options.updates:.0f} an update"
        )
        answers = {"the worker's code": by_a_worker(spec, payloads)}
        speed = 0.0
        for name, changes in {**VARIATIONS, **simd_levels()}.items():
            told = by_replay(sys.executable, path, options.updates, changes)
            answers[name] = told["state_digest"]
            if name == BASELINE:
                speed = told["versions_per_second"]
        for python in options.python:
            answers[python] = by_replay(python, path, options.updates, {})["state_digest"]
        for name, digest in answers.items():
            print(f"{'same' if digest == expected else 'OTHER'}  {digest}  {name}")
        others = [name for name, digest in answers.items() if digest != expected]
        print(
            json.dumps(
                {
                    "updates": options.updates,
                    "ways": len(answers),
                    "others": others,
                    "log_bytes": size,
                    "replayed_versions_per_second": round(speed),
                    "times_faster_than_made": round(speed * seconds / options.updates, 1),
                }
            )
        )
        sys.exit(bool(others))


if __name__ == "__main__":
    main()
