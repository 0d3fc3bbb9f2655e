"""Writes what a run leaves on disk, in order, in a thread of its own: no disk holds the loop up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from coordinator.directory import RunDirectory
from coordinator.log import EvaluationRow, ResultRow, UpdateLog, UpdateRow, Value
from coordinator.pool.confidence import merit
from coordinator.pool.events import CentreJudged, KeepResult, SessionId
from coordinator.update import Made
from coordinator.versions import Version
from protocol import messages
from protocol.frozen import Frozen
from protocol.policy_file import to_tensors
from protocol.proof import Proof
from protocol.spec import RunSpec
from protocol.state import State

POLICY_SECONDS = 1.0
"""The policy file is rewritten at most this often while the run goes on."""
POLICY_SHARE = 0.1
"""Share of the time that rewriting it may take."""
GROUP_SECONDS = 0.1
"""Results wait for others at most so long, so that all are synced at once."""
SNAPSHOT_SHARE = 0.1
"""Share of the time that freezing states may take; who goes on replays more where some are left
out."""

Named = tuple[SessionId, messages.ResultName]
"""A result: who sent it, and what that session calls it."""


class Recorder:
    """Owns what is written to the run directory and its log while the run is led.

    What can't be written ends the run: `on_failure`. Callbacks are called in the event loop.
    """

    def __init__(
        self,
        spec: RunSpec,
        directory: RunDirectory,
        log: UpdateLog,
        on_kept: Callable[[tuple[Named, ...]], None],
        on_frozen: Callable[[Frozen], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_kept` is told of results that can't be lost any more, `on_frozen` of snapshots that
        are there."""
        self._spec = spec
        self._directory = directory
        self._log = log
        self._on_kept = on_kept
        self._on_frozen = on_frozen
        self._on_failure = on_failure
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        self._freezer = ThreadPoolExecutor(1, thread_name_prefix="freezer")
        self._results: list[ResultRow] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._policy_pending = False
        self._next_policy = 0.0
        self._merit: tuple[float, int] = (-math.inf, 0)
        """of the best version so far"""
        self._best: tuple[Version, CentreJudged] | None = None
        """that, where it is not written"""
        self._next_best = 0.0
        self._freezing = False
        self._next_snapshot = 0.0

    def begin(self, state: State) -> None:
        """Write what a run directory has from the start; `state` is the one that we begin with."""
        if state.version == 0 and not self._directory.snapshots.versions():
            self.snapshot(state)
        self._merit = _merit_of(self._directory.best())

    def result(self, keep: KeepResult, message: messages.Result) -> None:
        """Keep an accepted result, with others that come soon; `on_kept` tells when it is."""
        arrived = keep.arrived
        row = ResultRow(
            worker=arrived.session.worker,
            session=arrived.session.session,
            name=arrived.name,
            kind=arrived.kind,
            version=arrived.version,
            until=keep.until,
            payload=messages.encode(message),
        )
        self._results.append(row)
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(GROUP_SECONDS, self._flush)

    async def update(self, made: Made, payload: bytes) -> None:
        """Returns when the update has reached the disk, and with it the results that it has used.

        Raises `LogError`.
        """
        update = made.update
        row = UpdateRow(
            version=update.version,
            payload=payload,
            made_at=time.time(),
            members=made.members,
            late=update.late,
            seconds=update.seconds,
            workers=update.workers,
        )
        used = self._take(lambda r: r.kind == "members" and r.until <= update.version)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._log.append, row)
        self._tell_kept(used)

    def evaluation(self, judged: CentreJudged, seconds: float) -> None:
        """Keep an evaluation of the centre, and with it the results that it has used."""
        row = EvaluationRow(
            version=judged.version,
            episodes=judged.episodes,
            mean=judged.mean,
            deviation=judged.deviation,
            steps=judged.steps,
            full=judged.full,
            judged_at=time.time(),
            seconds=seconds,
        )
        used = self._take(lambda r: r.kind == "centre" and r.version <= judged.version)
        self._later(
            self._thread, self._log.record_evaluation, row, then=lambda: self._tell_kept(used)
        )

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self._later(self._thread, self._directory.write_metrics, values)

    def note(self, key: str, value: Value) -> None:
        """Keep a value in the log."""
        self._later(self._thread, self._log.note, key, value)

    def latest_policy(self, version: Version) -> None:
        """Offer the parameters of a version: written where the file is old enough."""
        if not self._policy_pending and time.monotonic() >= self._next_policy:
            self.policy(version)
        self._offer_best()

    def judged(self, version: Version, judged: CentreJudged) -> None:
        """The centre of a version was evaluated: it is written to a file of its own where it is the
        best so far."""
        reached = merit(judged.mean, judged.deviation, judged.episodes)
        if reached > self._merit:
            self._merit = reached
            self._best = version, judged
            self._offer_best()

    def policy(self, version: Version) -> None:
        """Write the parameters of a version to the policy file."""
        self._policy_pending = True
        self._later(self._thread, self._write_policy, version)

    def snapshot(self, state: State, proof: Proof | None = None, needed: bool = False) -> None:
        """Offer a state to go on from: frozen where the last one was long enough ago, or somebody
        needs one.

        It takes no time from what else is written. `proof`: the state's, where it is known.
        """
        if not self._freezing and (needed or time.monotonic() >= self._next_snapshot):
            self._freezing = True
            loop = asyncio.get_running_loop()
            self._later(self._freezer, self._freeze, state, proof, loop)

    async def settle(self) -> None:
        """Returns when all is written, or `on_failure` was told that it is not."""
        self._flush()
        self._next_best = 0.0
        self._offer_best()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, lambda: None)

    async def close(self) -> None:
        """Returns when nothing is being written any more."""
        if self._flushing is not None:
            self._flushing.cancel()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._freezer.shutdown)

    def _flush(self) -> None:
        """Write the results that wait."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        rows, self._results = self._results, []
        if rows:
            self._later(
                self._thread, self._log.keep_results, rows, then=lambda: self._tell_kept(rows)
            )

    def _take(self, used: Callable[[ResultRow], bool]) -> list[ResultRow]:
        """The results that wait and need not be written, as what has used them is written now."""
        if self._log.keeps_returns:
            self._flush()
            return []
        taken = [row for row in self._results if used(row)]
        if taken:
            self._results = [row for row in self._results if not used(row)]
        return taken

    def _tell_kept(self, rows: list[ResultRow]) -> None:
        if rows:
            self._on_kept(tuple((SessionId(row.worker, row.session), row.name) for row in rows))

    def _later(
        self,
        thread: Executor,
        write: Callable[..., None],
        *what: Any,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Write in that thread, after what it has to write already; then tell, in the loop."""
        loop = asyncio.get_running_loop()

        def report(done: Future[None]) -> None:
            failure = done.exception()
            if failure is not None:
                loop.call_soon_threadsafe(self._on_failure, failure)
            else:
                loop.call_soon_threadsafe(then)

        thread.submit(write, *what).add_done_callback(report)

    def _write_policy(self, version: Version) -> None:
        began = time.monotonic()
        write_policy(self._spec, self._directory, version)
        ended = time.monotonic()
        self._next_policy = ended + max(POLICY_SECONDS, (ended - began) / POLICY_SHARE)
        self._policy_pending = False

    def _offer_best(self) -> None:
        """Write the best version, unless that of a moment ago was written just now."""
        if self._best is not None and time.monotonic() >= self._next_best:
            version, judged = self._best
            self._best, self._next_best = None, math.inf
            self._later(self._thread, self._write_best, version, judged)

    def _write_best(self, version: Version, judged: CentreJudged) -> None:
        began = time.monotonic()
        said = {
            "mean_return": repr(judged.mean),
            "return_deviation": repr(judged.deviation),
            "episodes": str(judged.episodes),
        }
        _write(self._spec, self._directory, self._directory.best_path, version, said)
        ended = time.monotonic()
        self._next_best = ended + max(POLICY_SECONDS, (ended - began) / POLICY_SHARE)

    def _freeze(self, state: State, proof: Proof | None, loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        frozen = self._directory.snapshots.freeze(state, proof)
        loop.call_soon_threadsafe(self._on_frozen, frozen)
        self._directory.forget_snapshots(self._log.base)
        ended = time.monotonic()
        self._next_snapshot = ended + (ended - began) * (1.0 / SNAPSHOT_SHARE - 1.0)
        self._freezing = False


def write_policy(spec: RunSpec, directory: RunDirectory, version: Version) -> None:
    """Replace the policy file by the parameters of a version. Raises `DirectoryError`."""
    _write(spec, directory, directory.policy_path, version, {})


def _write(
    spec: RunSpec,
    directory: RunDirectory,
    path: Path,
    version: Version,
    about: Mapping[str, str],
) -> None:
    """Replace a policy file, which says these things of itself too. Raises `DirectoryError`."""
    point = version.point
    directory.write_policy(
        path,
        to_tensors(spec, point.theta, point.normalizer),
        {
            "run": directory.run,
            "version": str(point.version),
            "params_hash": version.digest.hex(),
            **about,
        },
    )


def _merit_of(about: Mapping[str, str]) -> tuple[float, int]:
    """The merit that the file of the best policy claims; the least where it claims none."""
    try:
        mean, deviation = float(about["mean_return"]), float(about["return_deviation"])
        return merit(mean, deviation, int(about["episodes"]))
    except (KeyError, ValueError):
        return -math.inf, 0
