"""A picture of a run that is led, at one moment: all that screens, pages and metrics show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from coordinator.peers import Leader, Peers
from coordinator.pool import Pool
from coordinator.pool.batch import Batch
from coordinator.pool.events import CentreJudged
from coordinator.pool.roster import Session
from coordinator.progress import Progress
from coordinator.tallies import Tallies
from coordinator.trust import Trust
from protocol.messages import RunState
from protocol.spec import RunSpec

WorkerState = Literal["working", "waiting", "resting", "paused"]
"""`paused`: it wants no task, or can't take one yet; `resting`: it failed or lost some."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A session of a worker. Label and device are its own words: anything printable or not."""

    worker: str
    session: str
    name: str
    device: str
    numeric: str
    """its numeric class, in hex; empty: none"""
    standing: str
    """new, established, quarantined, banned, or trusted"""
    state: WorkerState
    speed: float
    """environment steps per second, as measured; as declared before"""
    share: float
    """of the speed of all, from 0 to 1"""
    tasks: int
    """that it holds"""
    results: int
    """that counted, in all its sessions, as far as they are remembered"""
    silent_seconds: float
    """since it was last heard"""
    trouble: str
    """why it last failed or lost a task; empty where it never did"""


@dataclass(frozen=True, slots=True)
class BatchView:
    """The directions whose returns the next update is made of."""

    index: int
    directions: int
    settled: int
    """accepted, or dropped since their episodes fail"""
    leased: int
    free: int
    early: int
    """of the batch after it, begun already"""
    dropped: int


@dataclass(frozen=True, slots=True)
class CentreView:
    """The last evaluation of the unperturbed policy."""

    version: int
    episodes: int
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class SuspectView:
    """A worker that was proved wrong, or banned."""

    worker: str
    standing: str
    """quarantined or banned"""
    reason: str
    used: str
    """what updates have used of it, in words; empty: nothing"""


@dataclass(frozen=True, slots=True)
class ContributionView:
    """What updates have used of a worker since this host leads, be it here or gone."""

    worker: str
    name: str
    device: str
    members: int
    steps: int


@dataclass(frozen=True, slots=True)
class Overview:
    """How a run stands, who works for it, and why nothing happens if so."""

    run: str
    environment: str
    parameters: int
    epoch: int
    state: RunState
    version: int
    updating: bool
    paused: bool
    """the host wants nothing new leased"""
    seconds: float
    """for which it has been led, by this host and before"""
    population: int
    """members of an update"""
    target: float | None
    episodes: int
    """that counted"""
    steps: int
    mean: float | None
    """of the members of the last update"""
    centre: CentreView | None
    wire_bytes: int
    audited: int
    """directions that were evaluated to check others, since this host leads"""
    quiet: str
    """why no worker is being fed; empty while work is out"""
    busy: str
    """why the coordinator does not keep up; empty while it does"""
    batch: BatchView
    workers: tuple[WorkerView, ...]
    """the fastest first"""
    audit_share: float = 0.0
    """of the directions of established workers that is evaluated twice"""
    suspects: tuple[SuspectView, ...] = ()
    contributions: tuple[ContributionView, ...] = ()
    """the largest first"""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """results since this host leads, by what became of them"""
    unable: tuple[tuple[str, int], ...] = ()
    """why workers could not take part, and how many, as they said themselves or were told"""


def look(
    spec: RunSpec,
    leader: Leader,
    pool: Pool,
    peers: Peers,
    progress: Progress,
    tallies: Tallies,
    state: RunState,
    seconds: float,
    now: float,
) -> Overview:
    """The picture; costs some microseconds a worker."""
    workers = [s for s in pool.sessions.values() if not s.stands_by]
    speeds = {session.id: _finite(session.speed) for session in workers}
    total = sum(speeds.values())
    shown = [_worker(each, peers, pool, speeds[each.id], total, now) for each in workers]
    return Overview(
        run=leader.run,
        environment=spec.environment.id,
        parameters=spec.size,
        epoch=leader.epoch,
        state=state,
        version=pool.version,
        updating=pool.updating,
        paused=pool.paused,
        seconds=seconds,
        population=spec.strategy.population,
        target=spec.stop.target,
        episodes=progress.episodes,
        steps=progress.steps,
        mean=progress.mean if math.isfinite(progress.mean) else None,
        centre=_centre(progress.centre),
        wire_bytes=progress.wire_bytes,
        audited=pool.audited,
        quiet=pool.quiet_because(),
        busy=progress.busy,
        batch=_batch(pool.open_batch, pool.early),
        workers=tuple(sorted(shown, key=lambda each: (-each.speed, each.worker, each.session))),
        audit_share=spec.pool.audit_share,
        suspects=_suspects(pool.trust),
        contributions=_contributions(tallies),
        outcomes=dict(tallies.outcomes),
        unable=tallies.unable,
    )


def classes(workers: Iterable[WorkerView]) -> Mapping[str, int]:
    """How many sessions there are of each numeric class, the largest first."""
    counts: dict[str, int] = {}
    for each in workers:
        counts[each.numeric] = counts.get(each.numeric, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _worker(
    session: Session, peers: Peers, pool: Pool, speed: float, total: float, now: float
) -> WorkerView:
    peer = peers.get(session.id)
    worker = session.id.worker
    record = pool.trust.records.get(worker)
    state: WorkerState = "waiting"
    if session.leases:
        state = "working"
    elif session.credit <= 0:
        state = "paused"
    elif session.rests_until > now:
        state = "resting"
    return WorkerView(
        worker=worker,
        session=session.id.session,
        name="" if peer is None else peer.name,
        device="" if peer is None else peer.device,
        numeric=session.numeric.hex(),
        standing="trusted" if worker in pool.trust.trusted else pool.trust.standing(worker),
        state=state,
        speed=speed,
        share=speed / total if total else 0.0,
        tasks=len(session.leases),
        results=max(session.merit, 0 if record is None else record.results),
        silent_seconds=max(0.0, now - session.heard),
        trouble=session.trouble,
    )


def _centre(judged: CentreJudged | None) -> CentreView | None:
    if judged is None:
        return None
    return CentreView(judged.version, judged.episodes, judged.mean, judged.deviation)


def _batch(batch: Batch, early: int) -> BatchView:
    work = batch.work
    return BatchView(
        index=batch.index,
        directions=work.size,
        settled=batch.settled,
        leased=work.missing - work.unleased.total,
        free=work.unleased.total,
        early=early,
        dropped=len(batch.dropped),
    )


def _suspects(trust: Trust) -> tuple[SuspectView, ...]:
    return tuple(
        SuspectView(worker, record.standing, record.reason, record.used)
        for worker, record in trust.records.items()
        if record.standing in ("quarantined", "banned")
    )


def _contributions(tallies: Tallies) -> tuple[ContributionView, ...]:
    found = sorted(tallies.work.items(), key=lambda each: (-each[1].members, each[0]))
    return tuple(
        ContributionView(worker, work.name, work.device, work.members, work.steps)
        for worker, work in found
    )


def _finite(speed: float) -> float:
    return speed if math.isfinite(speed) and speed > 0.0 else 0.0
