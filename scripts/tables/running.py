"""One seed of one row, as a real pool: `shoal demo` with one worker, all of it on one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from protocol.spec import to_toml
from scripts.tables.rows import Row


@dataclass(frozen=True)
class Result:
    """What one seed came to.

    Attributes:
        members: mean return of the perturbed population of the last update.
        centre: mean return of the unperturbed policy over `judged` fresh episodes, the last one.
        deviation: of those episodes.
        reached: whether the run's target was met, where it has one.
        updates, episodes, steps: until the end; of members alone.
        seconds: of the run, from its start.
        cpu_seconds: of coordinator, broker and worker together, start-up included.
        load: average number of processes that wanted to run on this machine, ours included.
        curve: (episodes, mean return of the members) of every update.
    """

    row: str
    settings: str
    seed: int
    members: float
    centre: float
    deviation: float
    judged: int
    reached: bool
    updates: int
    episodes: int
    steps: int
    seconds: float
    cpu_seconds: float
    load: float
    curve: list[tuple[int, float]]


def run(row: Row, seed: int, core: int) -> Result:
    """Train with one seed on one core; raises SystemExit where the run fails."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as errors:
        spec, kept = Path(directory) / "run.toml", Path(directory) / "run"
        spec.write_text(to_toml(row.spec()))
        command = [sys.executable, "-m", "shoal", "demo", str(spec), "--seed", str(seed)]
        command += ["--workers", "1", "--broker", "mosquitto", "--json", "--run-dir", str(kept)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not (kept / "metrics.jsonl").exists() or not output.strip():
            errors.seek(0)
            raise SystemExit(f"{row.name}, seed {seed}: {errors.read().strip()[-500:]}")
        told = json.loads(output.splitlines()[-1])
        lines = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    return _result(row, seed, told, lines, used.ru_utime + used.ru_stime)


def _result(
    row: Row, seed: int, told: dict[str, Any], lines: list[dict[str, Any]], cpu_seconds: float
) -> Result:
    updates = [line for line in lines if line["kind"] == "update"]
    centres = [line for line in lines if line["kind"] == "centre" and line["full"]]
    return Result(
        row=row.name,
        settings=row.digest,
        seed=seed,
        members=updates[-1]["mean_return"],
        centre=centres[-1]["mean_return"] if centres else float("nan"),
        deviation=centres[-1]["return_deviation"] if centres else float("nan"),
        judged=centres[-1]["episodes"] if centres else 0,
        reached=bool(told["solved"]),
        updates=told["updates"],
        episodes=told["episodes"],
        steps=told["env_steps"],
        seconds=told["seconds"],
        cpu_seconds=round(cpu_seconds, 2),
        load=round(os.getloadavg()[0], 1),
        curve=[(line["episodes"], line["mean_return"]) for line in updates],
    )


class Book:
    """Results on disk, one line of JSON each, in a file for each row."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def results(self, row: Row) -> list[Result]:
        """Those of a row's present settings, by seed."""
        path = self._path(row)
        lines = path.read_text().splitlines() if path.exists() else []
        found = [Result(**json.loads(line)) for line in lines]
        return sorted((r for r in found if r.settings == row.digest), key=lambda r: r.seed)

    def add(self, row: Row, result: Result) -> None:
        """Keep one more."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._path(row).open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def open_seeds(self, row: Row) -> list[int]:
        """Seeds that have no result yet."""
        done = {result.seed for result in self.results(row)}
        return [seed for seed in row.seeds if seed not in done]

    def _path(self, row: Row) -> Path:
        return self.directory / f"{row.name}.jsonl"
