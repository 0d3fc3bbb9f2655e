"""Makes updates: computed, kept, and only then published; and keeps the run's counts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from coordinator import metrics, update
from coordinator.amending import Amending
from coordinator.diagnostics import Diagnostics, diagnose
from coordinator.peers import Leader, Peer, Peers
from coordinator.pool.events import CentreJudged, CloseBatch, Event, SessionId, Updated
from coordinator.pool.roster import Session
from coordinator.progress import Progress
from coordinator.recorder import Recorder
from coordinator.recovery import Recovered
from coordinator.serving import Serving
from coordinator.tallies import Tallies
from coordinator.update import Made
from coordinator.voice import Voice
from protocol import amendments, messages, replay
from protocol.clock import now
from protocol.packing import MAX_MESSAGE
from protocol.spec import RunSpec
from protocol.state import State
from protocol.wire_count import WireCount

IN_STEP_SECONDS = 60.0
"""Who returned a result so recently follows the run."""


class Maker:
    """Turns closed batches into updates, and evaluations of the centre into news.

    Attributes:
        progress: how the run stands, kept up to date here.
    """

    def __init__(
        self,
        spec: RunSpec,
        leader: Leader,
        recovered: Recovered,
        sessions: dict[SessionId, Session],
        peers: Peers,
        recorder: Recorder,
        voice: Voice,
        serving: Serving,
        wire: WireCount,
        amending: Amending,
        progress: Progress,
        *,
        decide: Callable[[Event], None],
        on_update: Callable[[Progress], None],
        say: Callable[[str], None],
        over: asyncio.Event,
        tallies: Tallies,
        on_metrics: Callable[[Mapping[str, Any]], None] = lambda line: None,
    ) -> None:
        """`recovered` is where the run was when we began to lead; `sessions` are the pool's, to
        which `decide` passes events; `say` takes a line for people, `on_metrics` each line of
        metrics. No update is kept any more once
        the run is `over`."""
        self.progress = progress
        self._spec = spec
        self._rules = replay.arithmetic(spec)
        self._leader = leader
        self._versions = recovered.versions
        self._bytes_before = recovered.progress.wire_bytes
        self._untold = list(recovered.untold)
        self._began = time.monotonic() - recovered.seconds
        self._sessions = sessions
        self._peers = peers
        self._recorder = recorder
        self._voice = voice
        self._serving = serving
        self._wire = wire
        self._amending = amending
        self._decide = decide
        self._on_update = on_update
        self._say = say
        self._over = over
        self._tallies = tallies
        self._on_metrics = on_metrics

    @property
    def seconds(self) -> float:
        """For which the run has been led, by us and before us."""
        return time.monotonic() - self._began

    @property
    def told(self) -> tuple[messages.Judged, ...]:
        """The evaluations that no update has told of yet."""
        return update.told(self._untold)

    async def make(self, closed: CloseBatch) -> None:
        """Compute, keep, then publish: nobody hears of what could still be lost."""
        began = time.monotonic()
        told = tuple(self._untold[: update.MOST_JUDGED])
        before = self._versions.current
        changes = self._amending.look(before.amended)
        made, payload = await asyncio.to_thread(self._compute, before, closed, told, changes)
        if self._over.is_set():
            return  # nobody waits for it any more
        # Volunteers wait for the disk, and for nothing that they need not know.
        _, found = await asyncio.gather(
            self._recorder.update(made, payload),
            asyncio.to_thread(self._diagnose, before, closed, made),
        )
        del self._untold[: len(told)]
        self._versions.add(made.after, made.update.digest_after)
        if made.proof is not None:
            self._serving.reached(made.after.version, made.proof, self._in_step())
        if made.left_out:
            self._say(
                f"update {made.update.version} goes without {made.left_out:,} late members: with "
                f"them it does not fit a message of {MAX_MESSAGE:,} bytes; next time give a lower "
                f"strategy.population ({made.members:,} members counted), or pool.stale_share"
            )
        self._voice.update(payload)
        self._amending.carried(changes, before.amended, before.version)
        self._decide(self._updated(made))
        self._count(made.update.episodes, made.update.steps)
        self._tallies.used(
            closed.contributions, self._spec.members_per_direction, self._labels(closed)
        )
        self.progress.version = made.after.version
        if not made.update.reverts:
            self.progress.mean = made.mean
        if made.proof is not None:
            self._recorder.snapshot(made.after, made.proof, self._serving.lacking)
        took = time.monotonic() - began
        line = metrics.of_update(made, found, self.progress, self.seconds, took)
        self._measured(line)
        self._recorder.latest_policy(self._versions.get(made.after.version))
        self._on_update(self.progress)

    def judged(self, centre: CentreJudged) -> None:
        """The centre of a version was evaluated."""
        self._versions.judge(centre)
        self.progress.centre = centre
        self._count(centre.episodes, centre.steps)
        self._untold.append(centre)
        self._recorder.evaluation(centre, self.seconds)
        with contextlib.suppress(KeyError):  # too long ago
            self._recorder.judged(self._versions.get(centre.version), centre)
        self._measured(metrics.of_centre(centre, self.seconds))

    def count_wire(self) -> None:
        """Bring the bytes on the wire up to date."""
        self.progress.wire_bytes = self._bytes_before + self._wire.episode_bytes()

    def _labels(self, closed: CloseBatch) -> dict[str, tuple[str, str]]:
        """Name and device of the workers whose returns were used, as they last said."""
        peers = (self._peers.get(part.session) for part in closed.contributions)
        return {peer.id.worker: (peer.name, peer.device) for peer in peers if peer is not None}

    def _compute(
        self,
        before: State,
        closed: CloseBatch,
        told: tuple[CentreJudged, ...],
        changes: Mapping[str, float],
    ) -> tuple[Made, bytes]:
        """The update of a batch, and the message with it."""
        return update.make_signed(
            self._spec, self._rules, self._leader, before, closed, told, self.seconds, changes
        )

    def _updated(self, made: Made) -> Updated:
        """The pool's event for an update, with what it changed of the settings."""
        version, held = made.after.version, made.after.amended
        if not made.update.amendments:
            return Updated(version)
        spec = self._spec
        return Updated(version, amendments.in_force(spec, held), amendments.layout(spec, held))

    def _diagnose(self, before: State, closed: CloseBatch, made: Made) -> Diagnostics:
        """What an update tells of the run."""
        earlier = None
        with contextlib.suppress(KeyError):  # that of a run that goes on may not be known
            earlier = self._versions.get(before.version - 1).point
        return diagnose(closed.contributions, earlier, before, made.after, self._rules.factors)

    def _measured(self, line: Mapping[str, Any]) -> None:
        """A line of metrics, for the disk and for who watches."""
        self._recorder.metrics(line)
        self._on_metrics(line)

    def _in_step(self) -> list[tuple[Peer, float]]:
        """Who takes tasks, and returned one of late, with its speed: it has the latest state."""
        since = now() - IN_STEP_SECONDS
        able = [s for s in self._sessions.values() if s.credit > 0 and s.last_result > since]
        found = ((self._peers.get(session.id), session.speed) for session in able)
        return [(peer, speed) for peer, speed in found if peer is not None]

    def _count(self, episodes: int, steps: int) -> None:
        self.progress.episodes += episodes
        self.progress.steps += steps
        self.count_wire()
