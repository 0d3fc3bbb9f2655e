"""Follows the run: puts signed updates in order, asks for what is missing, keeps recent versions.

Pure: events and the time in, commands out. The slow work (`worker.following`) is asked for by a
command and its outcome comes back as an event, so a large update never blocks what decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from protocol.asking import Asking
from protocol.errors import ShoalError
from protocol.messages import CatchUp, Chunk, ChunkRequest, Manifest, Update, Wanted
from protocol.waiting import Waiting
from worker.reception import COORDINATOR, Reception, unusable

if TYPE_CHECKING:
    from protocol.state import State
    from worker.following import Point, Step

GRACE = 0.3
"""Seconds that a gap may close by itself: a task can overtake the update that it needs."""
PAUSE = 0.5
"""Seconds after the last of an answer's updates after which we ask for what still lacks."""
HINTS_IN_VAIN = 3
"""Times that we ask because of an unsigned hint alone before we stop believing hints."""
DISTRUST = 60.0
"""Seconds for which hints then count for nothing."""
MOST_WAITING_BYTES = 16 << 20
"""Of updates that wait for an earlier one."""
MISMATCHES = 3
"""Times in a row that our parameters may differ from the run's before we leave."""
DIGESTS_KEPT = 64
"""Versions whose digests we remember, to notice a run that went another way."""
PROOFS_KEPT = 8
"""Signed digests of whole states that we remember, to hold offers of snapshots against them."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Make version 0 from the spec, if that defines it; answered by `begun`, or by `failed`."""

    ticket: int


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """Apply an update; answered by `advanced`, or by `failed`."""

    ticket: int
    before: State
    update: Update
    payload: bytes
    """as it was signed"""


@dataclass(frozen=True, slots=True, eq=False)
class Restore:
    """Read a snapshot; answered by `advanced`, or by `failed`."""

    ticket: int
    data: bytes | memoryview
    version: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request to a server, or to the coordinator."""

    message: CatchUp | ChunkRequest
    server: str = COORDINATOR


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """A signed update brought us to this state: what we now have for others."""

    state: State
    update: Update
    payload: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A snapshot brought us to this version: what we now have for others."""

    version: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for the volunteer."""

    text: str


@dataclass(frozen=True, slots=True)
class Forget:
    """A version that no evaluation needs any more."""

    version: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Our parameters were not the run's: whatever is being evaluated with them is void."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This machine can't follow the run."""

    reason: str


Command = Begin | Apply | Restore | Ask | Followed | Restored | Tell | Forget | Dropped | GiveUp
Standing = Literal["ready", "ahead", "gone", "differs"]


class Replica:
    """The run's state as far as we have followed it.

    Attributes:
        points: what evaluations need of the last versions, and of those that are pinned.
    """

    def __init__(self, versions_kept: int, random: Random, initial_digest: bytes = b"") -> None:
        """`versions_kept`: how many versions back evaluations may be asked for. `initial_digest`:
        what proves the snapshot of version 0, where the spec does not define that version."""
        self.points: dict[int, Point] = {}
        self._versions_kept = versions_kept
        self._random = random
        self._initial_digest = initial_digest
        self._state: State | None = None
        self._epoch = 0
        self._latest_epoch = 0
        self._state_digests: dict[int, tuple[int, bytes]] = {}
        self._snapshot_bytes = 0
        self._digests: dict[int, bytes] = {}
        self._pins: Counter[int] = Counter()
        self._waiting = Waiting[tuple[Update, bytes]](MOST_WAITING_BYTES)
        self._ticket = 0
        self._job: Begin | Apply | Restore | None = None
        self._reception: Reception | None = None
        self._known = 0
        self._proof: tuple[int, bytes] | None = None
        self._hint = 0
        self._hints_in_vain = 0
        self._hints_from = 0.0
        self._mismatches = 0
        self._mismatched = 0
        self._connected = False
        self._asking = Asking(GRACE, random)
        self._gave_up = False
        self._commands: list[Command] = []

    # What others may want to know.

    @property
    def state(self) -> State | None:
        """The state that we have reached."""
        return self._state

    @property
    def version(self) -> int:
        """The version that we have reached; 0 also before there is any."""
        return 0 if self._state is None else self._state.version

    @property
    def behind(self) -> bool:
        """Whether the run has a later version than we reached, as somebody proved."""
        return self._known > self.version or self._lacks_beginning

    @property
    def latest_heard(self) -> int:
        """The latest version that anybody spoke of, with proof or without."""
        return max(self._known, self._hint)

    @property
    def snapshot_share(self) -> float | None:
        """How much of a snapshot is here, 0 to 1; None where none is on its way."""
        return None if self._reception is None else self._reception.share

    def standing(self, version: int, digest: bytes) -> Standing:
        """Whether parameters are here, to come, gone, or other ones than the digest proves."""
        point = self.points.get(version)
        if point is not None:
            return "ready" if point.digest == digest else "differs"
        if self._state is None or version > self._state.version:
            return "ahead"
        return "gone"

    def wants(self, version: int) -> bool:
        """Whether an update could be of use: asked before the work of checking its signature."""
        return version >= self.version - DIGESTS_KEPT

    # Events of the wire. Whoever calls these has checked signatures and MACs.

    def led(self, epoch: int) -> None:
        """Somebody leads that epoch."""
        self._latest_epoch = max(self._latest_epoch, epoch)

    def welcomed(self, version: int, digest: bytes, now: float) -> list[Command]:
        """The coordinator hears us; the run is at this version, with these parameters."""
        self._connected = True
        self._asking.hurry()
        if version < self.version and version not in self.points:
            # Whoever leads went back, and there is nothing left to compare, or to evaluate there.
            self._mismatch(version, f"the run went back to version {version} from {self.version}")
        return self.known(version, digest, now)

    def disconnected(self, now: float) -> list[Command]:
        """Nobody hears us until we are welcomed again."""
        self._connected = False
        if self._reception is not None:
            self._reception.interrupted()
        return self._pump(now)

    def known(self, version: int, digest: bytes, now: float) -> list[Command]:
        """The run has this version, with these parameters: proved by a signature or a MAC."""
        self._known = max(self._known, version)
        self._proof = (version, digest)
        self._compare(version, digest)
        return self._pump(now)

    def hinted(self, version: int, now: float) -> list[Command]:
        """Somebody says, without proof, that the run has this version."""
        self._hint = version if now >= self._hints_from else 0
        return self._pump(now)

    def update(self, update: Update, payload: bytes, now: float) -> list[Command]:
        """A signed update, in whatever order and as often as it comes."""
        self._remember(update)
        if update.epoch >= self._latest_epoch:  # else who led before may have gone another way
            self._known = max(self._known, update.version + 1)
        if update.version < self.version:
            if update.epoch > self._epoch:
                self._compare(update.version + 1, update.digest_after)
        elif update.epoch >= self._epoch:
            signed = (update, payload)
            self._waiting.keep(update.version, signed, (update.epoch, 0), len(payload))
            if update.version == self.version:
                self._moved(now)
        return self._pump(now)

    def manifest(self, manifest: Manifest, now: float) -> list[Command]:
        """A signed offer of a snapshot; of use where we asked to catch up."""
        reception = self._reception
        if (
            not self._asking.asked
            or isinstance(self._job, Restore)
            or not self._is_beyond(manifest)
        ):
            return self._pump(now)
        if reception is not None and reception.digest == manifest.digest:
            if reception.deserted:
                reception.offer(manifest.servers)
                self._moved(now)
        elif reception is None or reception.deserted or manifest.version > reception.version:
            problem = unusable(manifest, self._snapshot_bytes) or self._contradiction(manifest)
            if problem:
                self._commands.append(Tell(f"the snapshot on offer is of no use: {problem}"))
            else:
                self._known = max(self._known, manifest.version)
                self._reception = Reception(manifest, self._random)
                self._moved(now)
        return self._pump(now)

    def is_served_by(self, server: str) -> bool:
        """Whether a snapshot is on its way, and that server was offered for it; empty: the
        coordinator."""
        return self._reception is not None and self._reception.is_offered(server)

    def chunk(self, chunk: Chunk, now: float) -> list[Command]:
        """A part of a snapshot, from anybody: the manifest proves it."""
        if self._reception is not None and self._reception.take(chunk, now):
            self._moved(now)
        return self._pump(now)

    def tick(self, now: float) -> list[Command]:
        """Time passed."""
        return self._pump(now)

    # Events of the slow work.

    def begun(
        self, ticket: int, step: Step | None, snapshot_bytes: int, now: float
    ) -> list[Command]:
        """Version 0 is made, or is not to be made from the spec; `snapshot_bytes` is how long every
        snapshot of the run must be."""
        self._snapshot_bytes = snapshot_bytes
        if step is not None:
            return self.advanced(ticket, step, now)
        self._take_job(ticket)
        self._asking.hurry()
        return self._pump(now)

    def advanced(self, ticket: int, step: Step, now: float) -> list[Command]:
        """A job brought us to a version."""
        job = self._take_job(ticket)
        if job is None:
            return self._pump(now)
        if isinstance(job, Apply):
            self._epoch = job.update.epoch
            self._commands.append(Followed(step.state, job.update, job.payload))
        elif isinstance(job, Restore):
            self._reception = None
            self._commands.append(Restored(job.version, job.data))
            # What came after the snapshot is missing for certain.
            self._asking.hurry()
        version = step.state.version
        self._state = step.state
        self.points[version] = step.point
        self._digests[version] = step.point.digest
        for old in [v for v in self._digests if v <= version - DIGESTS_KEPT]:
            del self._digests[old]
        self._waiting.pass_by(version)
        if version > self._mismatched:
            self._mismatches = 0
        self._trim()
        self._moved(now)
        if self._proof is not None:
            self._compare(*self._proof)
        return self._pump(now)

    def failed(self, ticket: int, error: Exception, now: float) -> list[Command]:
        """A job came to nothing."""
        job = self._take_job(ticket)
        if job is None:
            return self._pump(now)
        if isinstance(job, Begin) or isinstance(error, ShoalError | MemoryError):
            self._give_up(str(error) or type(error).__name__)
        elif isinstance(job, Apply):
            self._mismatch(job.update.version + 1, str(error))
        else:
            self._mismatch(job.version, str(error))
        return self._pump(now)

    # What evaluations hold on to.

    def pin(self, version: int) -> None:
        """Keep a version that is here, until it is unpinned as often as it was pinned."""
        self._pins[version] += 1

    def unpin(self, version: int, now: float) -> list[Command]:
        """An evaluation needs the version no more."""
        self._pins[version] -= 1
        if self._pins[version] <= 0:
            del self._pins[version]
        self._trim()
        return self._pump(now)

    # Decisions.

    def _pump(self, now: float) -> list[Command]:
        """Start the next job, ask for what is missing, and hand over all commands so far."""
        if not self._gave_up:
            if self._job is None:
                self._start_job()
            self._ask(now)
        commands, self._commands = self._commands, []
        return commands

    def _start_job(self) -> None:
        state, reception = self._state, self._reception
        ticket = self._ticket + 1
        if state is None and not self._lacks_beginning:
            self._job = Begin(ticket)
        elif reception is not None and reception.complete and self._is_beyond(reception):
            self._job = Restore(ticket, reception.data, reception.version)
        elif state is not None and (next_one := self._waiting.pop(state.version)) is not None:
            self._job = Apply(ticket, state, *next_one)
        else:
            return
        self._ticket = ticket
        self._commands.append(self._job)

    def _take_job(self, ticket: int) -> Begin | Apply | Restore | None:
        """The job with that ticket, now over; None where it was dropped meanwhile."""
        job = self._job
        if job is None or job.ticket != ticket:
            return None
        self._job = None
        return job

    @property
    def _lacks_beginning(self) -> bool:
        """Whether we need a snapshot to have any state at all."""
        return bool(self._initial_digest and self._snapshot_bytes) and self._state is None

    def _is_beyond(self, offer: Manifest | Reception) -> bool:
        """Whether a snapshot would bring us on."""
        if self._state is not None:
            return offer.version > self._state.version
        return self._lacks_beginning

    def _ask(self, now: float) -> None:
        """Ask for what is missing: at once after a welcome, else after some grace."""
        if not self._connected or (self._state is None and not self._lacks_beginning):
            return
        if self._receiving(now):
            return
        if self.latest_heard <= self.version and not self._lacks_beginning:
            self._asking.rest()
            return
        if self._job is not None or self._can_go_on:
            return
        if not self._asking.due(now):
            return
        want: Wanted = "snapshot" if self._lacks_beginning else "either"
        failed = () if self._reception is None else self._reception.failed
        self._commands.append(Ask(CatchUp(self.version, want, failed)))
        if not self.behind:
            self._hints_in_vain += 1
            if self._hints_in_vain >= HINTS_IN_VAIN:
                self._hint, self._hints_in_vain = 0, 0
                self._hints_from = now + DISTRUST

    @property
    def _can_go_on(self) -> bool:
        """Whether the next update is here."""
        return self._state is not None and self._state.version in self._waiting

    def _receiving(self, now: float) -> bool:
        """Whether a snapshot is on its way that is worth waiting for; asks for its chunks."""
        reception = self._reception
        if reception is None or isinstance(self._job, Restore):
            return reception is not None
        if not self._is_beyond(reception):
            self._reception = None
            return False
        deserted = reception.deserted
        for server, request in reception.requests(now):
            self._commands.append(Ask(request, server))
        if reception.deserted and not deserted:
            self._commands.append(Tell("nobody sends the snapshot any more: asking again"))
        return not reception.deserted

    def _contradiction(self, manifest: Manifest) -> str:
        """Why it can't be the run's snapshot of that version; empty where it can, as we know."""
        proof = self._initial_digest
        if manifest.version:
            epoch, proof = self._state_digests.get(manifest.version, (0, b""))
            if epoch < self._latest_epoch:
                return ""  # another leader may have led elsewhere
        if not proof or proof == manifest.digest:
            return ""
        return (
            f"it has the digest {manifest.digest.hex()}, "
            f"but version {manifest.version} has {proof.hex()}"
        )

    def _remember(self, update: Update) -> None:
        """What the update proves of whole states."""
        self._latest_epoch = max(self._latest_epoch, update.epoch)
        if update.state_digest:
            version = update.version + 1
            epoch, _ = self._state_digests.get(version, (0, b""))
            if update.epoch >= epoch:
                self._state_digests[version] = update.epoch, update.state_digest
            if len(self._state_digests) > PROOFS_KEPT:
                del self._state_digests[min(self._state_digests)]

    def _moved(self, now: float) -> None:
        """Something of use came, and more may be on its way: ask again only after a pause."""
        self._hints_in_vain = 0
        self._asking.moved(PAUSE, now)

    def _compare(self, version: int, digest: bytes) -> None:
        """Hold a proved digest against ours of the same version."""
        ours = self._digests.get(version)
        if ours is not None and ours != digest:
            self._mismatch(
                version,
                f"version {version} has parameters {digest.hex()}, ours are {ours.hex()}",
            )

    def _mismatch(self, version: int, what: str) -> None:
        """Our parameters are not the run's: say so, and start anew unless that never helps."""
        self._mismatches += 1
        self._mismatched = max(self._mismatched, version)
        if self._mismatches >= MISMATCHES:
            self._give_up(
                f"{what}; {MISMATCHES} times in a row, so this machine or this version computes "
                "other parameters than the run: check its memory, upgrade Shoal, tell the host"
            )
            return
        self._commands.append(Tell(f"{what}; dropping our state and fetching it again"))
        if self._reception is not None and self._reception.complete:
            self._reception = None
        self._state, self._job, self._proof = None, None, None
        self._epoch = 0
        # A later epoch may have gone on from an earlier version than we had heard of.
        self._known, self._hint = version, 0
        self._waiting.clear()
        self._digests.clear()
        self._asking.hurry()
        self._commands += [Forget(old) for old in self.points]
        self.points.clear()
        self._commands.append(Dropped())

    def _give_up(self, reason: str) -> None:
        self._gave_up = True
        self._job = None
        self._commands.append(GiveUp(reason))

    def _trim(self) -> None:
        """Let go of versions that are neither recent nor pinned."""
        for version in list(self.points):
            if version <= self.version - self._versions_kept and version not in self._pins:
                del self.points[version]
                self._commands.append(Forget(version))
