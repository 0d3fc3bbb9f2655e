"""Writes what a run leaves on disk, in order, in a thread of its own: no disk holds the loop up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from coordinator.directory import RunDirectory
from coordinator.log import UpdateLog
from coordinator.pool.events import CentreJudged
from coordinator.update import Made
from coordinator.versions import Version
from protocol.policy_file import to_tensors
from protocol.spec import RunSpec

POLICY_SECONDS = 1.0
"""The policy file is rewritten at most this often while the run goes on."""
POLICY_SHARE = 0.1
"""Share of the time that rewriting it may take."""


class Recorder:
    """Owns the run directory and its log. What can't be written ends the run: `on_failure`."""

    def __init__(
        self,
        spec: RunSpec,
        directory: RunDirectory,
        log: UpdateLog,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is called in the event loop."""
        self._spec = spec
        self._directory = directory
        self._log = log
        self._on_failure = on_failure
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        self._policy_pending = False
        self._next_policy = 0.0

    def begin(self) -> None:
        """Write what a run directory has from the start."""
        self._later(self._directory.write_spec, self._spec)

    async def update(self, made: Made, payload: bytes) -> None:
        """Returns when the update has reached the disk. Raises `LogError`."""
        loop = asyncio.get_running_loop()
        update = made.update
        await loop.run_in_executor(
            self._thread, self._log.append, update.version, payload, made.members, update.late
        )

    def evaluation(self, judged: CentreJudged) -> None:
        """Keep an evaluation of the centre."""
        self._later(
            self._log.record_evaluation,
            judged.version,
            judged.episodes,
            judged.mean,
            judged.deviation,
            judged.full,
        )

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self._later(self._directory.write_metrics, values)

    def latest_policy(self, version: Version) -> None:
        """Offer the parameters of a version: written where the file is old enough."""
        if not self._policy_pending and time.monotonic() >= self._next_policy:
            self.policy(version)

    def policy(self, version: Version) -> None:
        """Write the parameters of a version to the policy file."""
        self._policy_pending = True
        self._later(self._write_policy, version)

    async def settle(self) -> None:
        """Returns when all is written, or `on_failure` was told that it is not."""
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)

    async def close(self) -> None:
        """Write what is left and let go of the files."""
        await asyncio.to_thread(self._thread.shutdown)
        self._log.close()
        self._directory.close()

    def _later(self, write: Callable[..., None], *what: Any) -> None:
        loop = asyncio.get_running_loop()

        def report(done: Future[None]) -> None:
            failure = done.exception()
            if failure is not None:
                loop.call_soon_threadsafe(self._on_failure, failure)

        self._thread.submit(write, *what).add_done_callback(report)

    def _write_policy(self, version: Version) -> None:
        began = time.monotonic()
        point = version.point
        normalisation = None if point.normalizer is None else point.normalizer.policy_input()
        self._directory.write_policy(
            to_tensors(self._spec, point.theta, normalisation),
            {
                "run": self._directory.run,
                "version": str(point.version),
                "params_hash": version.digest.hex(),
            },
        )
        ended = time.monotonic()
        self._next_policy = ended + max(POLICY_SECONDS, (ended - began) / POLICY_SHARE)
        self._policy_pending = False
