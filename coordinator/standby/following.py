"""Follows a run for its log: orders signed updates, asks for gaps, finds where histories part.

Pure: events and the time in, commands out. What takes time (an update, the way back to an earlier
version) is asked for by a command, and its outcome comes back as an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from protocol.asking import Asking
from protocol.messages import CatchUp, Update
from protocol.waiting import Waiting

Precedence = tuple[int, int]
"""Of an epoch, as `protocol.authority.precedence` orders them."""

NOBODY: Precedence = (0, 0)
"""Before any epoch."""
LATEST = 2**40
"""No version is later."""
GRACE = 0.2
"""Seconds that a gap may close by itself, and that the rest of an answer may take."""
MOST_WAITING_BYTES = 32 << 20
"""Of updates that wait for an earlier one."""
MISFITS = 3
"""Times in a row that an update of the history that we hold to may not fit our parameters."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An update, proved; `precedence` is that of the epoch that it was made in."""

    update: Update
    payload: bytes = field(repr=False)
    precedence: Precedence

    @property
    def version(self) -> int:
        """The version that it leads on from."""
        return self.update.version


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """Apply and log an update; answered by `advanced`, or by `failed`."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Part:
    """Set our updates from this version on aside, and go back to it; answered by `parted`."""

    version: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask whoever we follow."""

    message: CatchUp


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This machine can't follow the run."""

    reason: str


Command = Apply | Part | Ask | Tell | GiveUp


class Follower:
    """Our history, and what of it the history that we follow has too.

    Of two updates for one version that of the later epoch holds, and with it all that it was built
    on. Once one of ours is outdone, earlier ones are compared, in growing steps back, until one is
    the same; what follows the last common one goes aside.
    """

    def __init__(
        self, version: int, digest: bytes, precedence: Precedence, base: int, random: Random
    ) -> None:
        """We are at `version` with the parameters of `digest`, by an update of an epoch with
        `precedence` (NOBODY at version 0); our log begins at version `base`."""
        self.version = version
        self.precedence = precedence
        self.goal = 0
        """the version that whoever we follow is said to have"""
        self._digest = digest
        self._base = base
        self._limit: Precedence | None = None
        self._theirs = version
        self._proved = LATEST
        self._proof = b""
        self._common = base
        self._differs: int | None = None
        self._step = 1
        self._waiting = Waiting[Entry](MOST_WAITING_BYTES)
        self._job: Apply | Part | None = None
        self._misfits = 0
        self._connected = False
        self._needs: int | None = None
        self._asking = Asking(GRACE, random)
        self._gave_up = False
        self._commands: list[Command] = []

    @property
    def settled(self) -> bool:
        """Whether our history is known to be theirs as far as it goes."""
        return self._differs is None and self._common >= self.version

    @property
    def busy(self) -> bool:
        """Whether a command is under way, or an update that came can be applied."""
        return self._job is not None or (self.settled and self.version in self._waiting)

    def wants(self, version: int) -> bool:
        """Whether an update of that version can be of use."""
        return version >= self._base

    # Events of the wire. Whoever calls these has checked signatures.

    def led(self, precedence: Precedence, now: float) -> list[Command]:
        """We follow an epoch of this precedence: no update of a greater one counts yet."""
        self._hold_to(precedence)
        self._connected = False
        return self._pump(now)

    def gathered(self, precedence: Precedence, version: int, now: float) -> list[Command]:
        """Nobody leads; peers whom we can ask say that they have this version, by an update of an
        epoch of that precedence or less."""
        self._hold_to(precedence)
        self._connected = True
        self._asking.hurry()
        self._theirs = self.goal = version
        return self._pump(now)

    def welcomed(self, version: int, digest: bytes, now: float) -> list[Command]:
        """Who we follow hears us, and is at this version with the parameters of `digest`."""
        self._connected = True
        self._asking.hurry()
        self._theirs = self._proved = self.goal = version
        self._proof = digest
        self._check_proof()
        return self._pump(now)

    def unheard(self, now: float) -> list[Command]:
        """Nobody hears us until we are welcomed again."""
        self._connected = False
        return self._pump(now)

    def hinted(self, version: int, now: float) -> list[Command]:
        """Somebody says, without proof, that the run has this version."""
        self.goal = version
        return self._pump(now)

    def heard(self, entry: Entry, ours: Entry | None, now: float) -> list[Command]:
        """An update, in whatever order and as often as it comes; `ours` is that in our log."""
        if self._limit is None or entry.precedence > self._limit:
            return self._pump(now)
        if entry.precedence < self._limit and entry.version >= self._proved:
            return self._pump(now)  # what the leader had, it has told; the rest is its own
        self.goal = max(self.goal, entry.version + 1)
        if entry.version >= self.version:
            self._keep(entry)
        elif ours is not None and self._job is None:
            self._compare(entry, ours)
        return self._pump(now)

    def tick(self, now: float) -> list[Command]:
        """Time passed."""
        return self._pump(now)

    # Events of the slow work.

    def advanced(self, now: float) -> list[Command]:
        """The update is applied and logged."""
        assert isinstance(self._job, Apply)
        entry, self._job = self._job.entry, None
        self._common = self.version = entry.version + 1
        self._digest, self.precedence = entry.update.digest_after, entry.precedence
        self._misfits = 0
        self._waiting.pass_by(self.version)
        self._check_proof()
        return self._pump(now)

    def failed(self, what: str, now: float) -> list[Command]:
        """The update leads elsewhere than it says."""
        self._job = None
        self._misfit(what)
        return self._pump(now)

    def parted(self, digest: bytes, precedence: Precedence, now: float) -> list[Command]:
        """We are back where `Part` said, with the parameters of `digest`, by an update of an epoch
        with `precedence`."""
        assert isinstance(self._job, Part)
        self.version, self._job = self._job.version, None
        self._digest, self.precedence = digest, precedence
        self._common, self._step = self.version, 1
        self._asking.hurry()
        return self._pump(now)

    # Decisions.

    def _hold_to(self, precedence: Precedence) -> None:
        self._limit = precedence
        self._common = self.version if precedence == self.precedence else self._base
        self._differs, self._step = None, 1
        self._theirs, self._proved = self.version, LATEST
        self._asking.begin_anew()

    def _pump(self, now: float) -> list[Command]:
        if not self._gave_up:
            if self._job is None:
                self._start_job()
            self._ask(now)
        commands, self._commands = self._commands, []
        return commands

    def _start_job(self) -> None:
        if self._differs is not None:
            # Only where all before it is known to be the same, it is where they part.
            if self._differs <= self._common:
                self._part(self._differs)
            return
        if not self.settled:
            # They have all that we share, and less than we have: the rest is ours alone.
            if self._common >= self._proved:
                self._part(self._proved)
            return
        entry = self._waiting.get(self.version)
        if entry is None:
            return
        if entry.update.digest_before == self._digest:
            self._waiting.pop(self.version)
            self._job = Apply(entry)
            self._commands.append(self._job)
        elif entry.precedence > self.precedence and self.version > self._base:
            # What led them here can't have been our last update.
            self._common = self._base
            self._outdone(self.version - 1)
        else:
            self._waiting.pop(self.version)
            if entry.precedence < self.precedence:
                return  # of a history that ours has outdone
            self._misfit(
                f"update {entry.version} starts from {entry.update.digest_before.hex()}, "
                f"our parameters are {self._digest.hex()}"
            )

    def _check_proof(self) -> None:
        """Where they say what parameters they had at our version, ours must be the same."""
        if self.version == self._proved and self._digest != self._proof:
            self._common = self._base
            self._asking.hurry()

    def _compare(self, theirs: Entry, ours: Entry) -> None:
        version = theirs.version
        if theirs.payload == ours.payload:
            if version + 1 == self._proved and ours.update.digest_after != self._proof:
                return  # somebody repeats what was ours alone
            self._common = max(self._common, version + 1)
            if self._differs is not None and self._differs < self._common:
                self._differs = None  # by somebody whom they do not follow either
        elif theirs.precedence > ours.precedence and version >= self._common:
            self._keep(theirs)
            self._outdone(version)

    def _outdone(self, version: int) -> None:
        """Our update of this version is not in their history."""
        if self._differs is None or version < self._differs:
            self._step *= 2
            self._differs = version
            self._asking.hurry()

    def _part(self, version: int) -> None:
        self._differs = None
        self._job = Part(version)
        self._commands.append(self._job)

    def _ask(self, now: float) -> None:
        """Ask for what is missing: at once after a welcome, else after some grace."""
        if not self._connected or self._job is not None:
            return
        needed = self._needed()
        if needed is None:
            self._needs = None
            self._asking.rest()
            return
        if needed != self._needs:
            self._needs = needed
            self._asking.begin_anew()
        if self._asking.due(now):
            self._commands.append(Ask(CatchUp(needed, want="updates")))

    def _needed(self) -> int | None:
        """The version to ask from, or None."""
        if self._differs is not None:
            known = self._common > self._base
            return self._common if known else max(self._base, self._differs - self._step)
        if not self.settled:
            return max(self._base, min(self.version, self._theirs) - 1)
        missing = self.goal > self.version and self.version not in self._waiting
        return self.version if missing else None

    def _keep(self, entry: Entry) -> None:
        self._waiting.keep(entry.version, entry, entry.precedence, len(entry.payload))

    def _misfit(self, what: str) -> None:
        self._misfits += 1
        self._asking.begin_anew()
        if self._misfits < MISFITS:
            self._commands.append(Tell(f"{what}; asking for it again"))
            return
        self._gave_up = True
        self._commands.append(
            GiveUp(
                f"{what}; {MISFITS} times in a row, so this machine or this version computes other "
                "parameters than the run: check its memory, upgrade Shoal, tell the host"
            )
        )
