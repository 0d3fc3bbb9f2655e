"""A sweep in its directory: what its file says, its points and how they stand, kept on disk."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Self

from coordinator.directory import BrokerChoice, spec_in
from coordinator.sweep import extending, file, planning, report
from coordinator.sweep.file import SweepError, SweepFile
from coordinator.sweep.judging import Verdict
from coordinator.sweep.measures import Aim
from coordinator.sweep.planning import Trained, Tried, Turn
from coordinator.sweep.points import Point, all_points
from coordinator.sweep.report import Row
from coordinator.sweep.specs import Specs
from coordinator.sweep.store import LOCK, STORE, Store, explained
from coordinator.sweep.trained import told
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.kept_json import DamagedJson, read_json

BASE = "base.toml"
BROKER = "broker.json"
KEY = "sweep.key"
RUNS = "runs"
_FILE, _PATH, _BASE, _TARGET, _CONFIDENCE = "file", "path", "base", "target", "confidence"
"""What is noted: the text of the sweep file, its name, the text of the base where that is a file,
and of `Aim`, in JSON."""


class Sweep:
    """What is known of a sweep, and its runs as they come to something.

    Attributes:
        said: by its file.
        aim: what runs are measured by.
        tried: its points, in their order.
    """

    def __init__(self, store: Store, allowed: Sequence[str] = ()) -> None:
        """`allowed` modules may register its environment. Raises `SweepError`."""
        self._store = store
        self._allowed = allowed
        self.directory = store.directory
        self.said = file.parse(store.needed(_FILE), Path(store.needed(_PATH)))
        with explained(store.directory):
            target = json.loads(store.needed(_TARGET))
            confidence = json.loads(store.needed(_CONFIDENCE))
        self.aim = Aim(self.said.metric, target, confidence)
        self.tried = store.points()

    @classmethod
    def begin(
        cls, path: Path, directory: Path, allowed: Sequence[str], say: Callable[[str], None]
    ) -> Self:
        """A new sweep of a file; `say` gets a line for each point that can't be trained.

        Raises `ShoalError`; then nothing is left of it.
        """
        text = file.load(path)
        said = file.parse(text, path)
        source, base = said.base, ""
        if source.endswith(".toml"):
            source = str(path.parent / source)
            base = file.load(Path(source))
        points = [] if said.sampled == "tpe" else all_points(said)
        specs = Specs(said, source, allowed)
        tried = [_tried(number, point, said, specs) for number, point in enumerate(points)]
        _refuse_all_wrong(tried)
        _tell_wrong(tried, say)
        notes = {
            _FILE: text,
            _PATH: path.name,
            _BASE: base,
            _TARGET: json.dumps(specs.aim.target),
            _CONFIDENCE: json.dumps(specs.aim.confidence),
        }
        return cls(Store.create(directory, notes, tried), allowed)

    def grow(self, path: Path, say: Callable[[str], None]) -> None:
        """Take in the points and seeds that a file has beyond those of the sweep; `say` as for
        `begin`. Raises `ShoalError`; then it is as before."""
        text = file.load(path)
        after = file.parse(text, Path(self._store.noted(_PATH)))
        extending.refuse_other(self.said, after)
        points = [] if after.sampled == "tpe" else all_points(after)
        new = extending.new_points(points, self.tried)
        more = [
            _tried(number, point, after, self.specs)
            for number, point in enumerate(new, len(self.tried))
        ]
        _tell_wrong(more, say)
        runs = {each.number: extending.new_runs(after.all_seeds, each) for each in self.tried}
        self._store.grow({_FILE: text}, more, runs)
        self.said, self.tried = after, self._store.points()
        say(f"{len(more)} more points, {sum(map(len, runs.values()))} more runs of earlier ones")

    @cached_property
    def specs(self) -> Specs:
        """Makes the specs of its runs. Raises `ShoalError`."""
        source = self.said.base
        if base := self._store.noted(_BASE):
            source = str(self.directory / BASE)
            self._write(BASE, base.encode())
        return Specs(self.said, source, self._allowed)

    @property
    def key(self) -> Path:
        """The key that leads all of its runs."""
        return self.directory / KEY

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done."""
        return not self._drawn_next() and not any(planning.turns(self.tried, self.verdicts()))

    def verdicts(self) -> list[Verdict]:
        """What becomes of each point, by what is known now."""
        return planning.verdicts(self.tried, self.said.stop, self.aim)

    def rows(self) -> list[Row]:
        """Its table, the best point first."""
        return report.rows(self.tried, self.verdicts(), self.aim)

    def directory_of(self, point: str, seed: int) -> Path:
        """Of the run of that point with this seed."""
        return self.directory / RUNS / f"{point}-{seed}"

    def look_at_runs(self) -> None:
        """Take in what the runs that are under way tell of themselves, whoever leads them."""
        for each in self.tried:
            for run in each.runs:
                where = self.directory_of(each.point.name, run.seed)
                if run.state == "running":
                    with contextlib.suppress(ShoalError):
                        run.curve = told(where, spec_in(where))

    def draw(self) -> None:
        """Add the points that are to be tried next, where those depend on what became of others.

        Raises `ShoalError`.
        """
        if self.said.sampled != "tpe" or planning.under_way(self.tried, self.verdicts()):
            return
        from coordinator.sweep.sampling import keep_study

        keep_study(self.directory / STORE, self.said, self.rows(), self.aim)
        points = self._drawn_next()
        specs = self.specs
        more = [_tried(number, point, self.said, specs) for number, point in points]
        self._store.add(more)
        self.tried.extend(more)

    def begun(self, turn: Turn, run: str) -> None:
        """A run is about to be led, by that id."""
        turn.run.state, turn.run.run = "running", run
        self.keep(turn)

    def keep(self, turn: Turn) -> None:
        """A run is so now."""
        self._store.keep(turn.tried.number, turn.run)

    def try_again(self) -> int:
        """Let runs that failed, or that a person stopped, go on, or begin: how many they are."""
        again = [
            (each, run)
            for each in self.tried
            for run in each.runs
            if run.state in ("failed", "stopped")
        ]
        for each, run in again:
            run.state, run.why = "pending", ""
            if not each.rungs or not any(each.rungs):
                each.rungs = _tried(each.number, each.point, self.said, self.specs).rungs
            self._store.keep(each.number, run)
        return len(again)

    def remember(self, choice: BrokerChoice) -> None:
        """Keep the broker that its runs are led over, for the next time."""
        # Its URL may have a password.
        self._write(BROKER, json.dumps(asdict(choice)).encode() + b"\n")

    def remembered(self) -> BrokerChoice:
        """The broker that its runs were led over last time. Raises `SweepError`."""
        path = self.directory / BROKER
        try:
            return read_json(path.read_bytes(), BrokerChoice)
        except FileNotFoundError:
            return BrokerChoice()
        except (OSError, DamagedJson) as error:
            raise SweepError(
                f"{path} can't be read ({error}): remove it, and give --broker"
            ) from None

    def discard(self) -> None:
        """Let go of it; and where no run of it was begun, so that nobody has its key, take away its
        files: a next try can begin there."""
        self.close()
        if not any(run.run for each in self.tried for run in each.runs):
            for name in (STORE, KEY, BROKER, BASE, LOCK):
                with contextlib.suppress(OSError):
                    (self.directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: logs worth reading
                self.directory.rmdir()

    def close(self) -> None:
        """Let go of it."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drawn_next(self) -> list[tuple[int, Point]]:
        """Numbers and points of those that are to be tried next."""
        if self.said.sampled != "tpe" or planning.under_way(self.tried, self.verdicts()):
            return []
        from coordinator.sweep.sampling import drawn_next

        return drawn_next(self.said, self.rows(), self.aim)

    def _write(self, name: str, data: bytes) -> None:
        try:
            write_whole(self.directory / name, data)
        except OSError as error:
            raise SweepError(
                f"{self.directory} can't take {name} ({error.strerror or error}): see to the disk"
            ) from None


def _tried(number: int, point: Point, said: SweepFile, specs: Specs) -> Tried:
    """A point that is about to be tried; its runs have failed where its spec can't be."""
    rungs = [0] * (0 if said.stop is None else said.stop.rungs)
    runs = [Trained(seed) for seed in said.all_seeds]
    try:
        rungs = specs.rungs(specs.of(point, said.all_seeds[0]).spec)
    except ShoalError as error:
        for run in runs:
            run.state, run.why = "failed", str(error)
    return Tried(number, point, runs, rungs)


def _tell_wrong(tried: Sequence[Tried], say: Callable[[str], None]) -> None:
    for each in tried:
        if each.runs[0].state == "failed":
            say(f"point {each.point.name} ({each.point.label}) fails: {each.runs[0].why}")


def _refuse_all_wrong(tried: Sequence[Tried]) -> None:
    """Raises `SweepError` where no point can be trained."""
    if tried and all(each.runs[0].state == "failed" for each in tried):
        raise SweepError(f"no point can be trained: {tried[0].runs[0].why}")
