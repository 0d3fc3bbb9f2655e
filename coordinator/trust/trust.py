"""The standing of every worker: new, established, quarantined or banned, and who is audited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from random import Random
from typing import Any, Literal

from coordinator.trust.dispute import LEAD, SUPPORTERS
from coordinator.trust.residuals import Part, drifted

Standing = Literal["new", "established", "quarantined", "banned"]

PROBATION = 10
"""Tasks of a newcomer that others have to confirm before its results count by themselves."""
AMENDS = 30
"""Tasks of a quarantined worker that others have to confirm before it is believed again."""
PART = 4
"""An audit is of one direction in so many of a task: a lie shows in each, and so more tasks are
audited at the same cost."""
DOUBTFUL = 5
"""Next tasks that are audited of who was in a dispute that nobody could decide."""
AGAINST, BLIND, LIKE = 0.15, 0.5, 0.75
"""Of how many pairs somebody whose returns point the other way, somebody whose returns say nothing,
and somebody honest are of one mind with a worker of another numeric class."""
SURE = math.log(1e6)
"""Logarithm of how much likelier the first, or the last, must be than the second: whose returns say
nothing comes to it once in a million pairs, an honest worker to the first practically never (Page's
cumulative sums, 1954)."""
LONE = 0.25
"""Share of the directions that are audited of who is of a class in which hardly anybody is
believed: only statistics tell of it."""
MOST_STRETCHES = 32
"""Stretches of updates that are told apart of one worker; the oldest become one."""
MOST_VOICES = 32
"""Workers whose latest comparisons with one worker are remembered."""
MOST_KNOWN = 100_000
"""Workers that are remembered at most."""


@dataclass(slots=True)
class Record:
    """What is known of a worker."""

    standing: Standing = "new"
    reason: str = ""
    """why it is quarantined or banned"""
    results: int = 0
    """tasks, or parts of them, whose returns counted"""
    confirmed: int = 0
    """tasks that others confirmed while they did not count by themselves, since it came or was
    quarantined"""
    audits: int = 0
    """of its tasks that were compared with what another worker got"""
    alike: int = 0
    unlike: int = 0
    """pairs compared with workers of other numeric classes, as in `Comparison`"""
    odds: float = 0.0
    """logarithm of how much likelier it is that its returns point the other way than that they say
    nothing, by those pairs"""
    likeness: float = 0.0
    """likewise, that it is honest"""
    offences: int = 0
    """disputes that it lost, and proofs by statistics"""
    doubtful: int = 0
    """next tasks that are audited whatever is drawn"""
    batches: int = 0
    """updates with a part of it of which residuals could be told"""
    rank: float = 0.0
    difference: float = 0.0
    size: float = 0.0
    """sums over these of its `Residual`s"""
    drift: list[float] = field(default_factory=lambda: [0.0] * 6)
    """cumulative sums of them, as `drifted` has it"""
    drifts: int = 0
    """how often it drifted, and was audited for it"""
    updates: list[list[int]] = field(default_factory=list)
    """[first, last] versions of stretches of updates that used returns of it"""
    members: int = 0
    """that they used"""
    most: float = 0.0
    """the largest share of an update's weight that it had"""
    most_at: int = -1
    """in that update"""
    passed: float = 0.0
    """audits that it should have had by what was drawn so far"""
    drawn: float = -1.0
    """at how many of them the next one comes; negative: it is not drawn yet"""

    @property
    def used(self) -> str:
        """Which updates used returns of it, how many members, with how much weight; empty: none."""
        if not self.updates:
            return ""
        spans = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.updates)
        return (
            f"updates of versions {spans} have used {self.members:,} members of it, at most "
            f"{self.most:.1%} of the weight of one ({self.most_at})"
        )


class Trust:
    """A deterministic function of what it is told and of `draws`.

    Attributes:
        trusted: workers that are always believed.
        records: of workers that returned anything, or were banned.
    """

    def __init__(self, share: float, draws: Random, trusted: Iterable[str] = ()) -> None:
        """`share` of the directions of established workers is audited. Nobody who is audited may
        know `draws`."""
        self.share = share
        self.trusted = set(trusted)
        self.records: dict[str, Record] = {}
        self._draws = draws
        self._voices: dict[str, dict[str, bool]] = {}
        """by worker: who was compared with it last, and whether that spoke for it"""
        self._banned: dict[str, str] = {}

    def record(self, worker: str) -> Record:
        """Of a worker; a new one where nothing is known of it."""
        found = self.records.get(worker)
        if found is None:
            if len(self.records) >= MOST_KNOWN:
                self._forget_one()
            found = self.records[worker] = Record()
            if worker in self.trusted:
                found.standing = "established"
        return found

    @property
    def banned(self) -> Mapping[str, str]:
        """Who is banned, and why."""
        return self._banned

    def standing(self, worker: str) -> Standing:
        """Of a worker."""
        found = self.records.get(worker)
        if found is not None:
            return found.standing
        return "established" if worker in self.trusted else "new"

    def is_believed(self, worker: str) -> bool:
        """Whether its results count by themselves."""
        found = self.records.get(worker)
        return worker in self.trusted if found is None else found.standing == "established"

    def is_suspected(self, worker: str) -> bool:
        """Whether it was proved wrong, and has not made up for it, or is banned."""
        return self.standing(worker) in ("quarantined", "banned")

    # Audits.

    def audited(
        self, worker: str, count: int, whole: bool, lone: bool = False
    ) -> tuple[int, int] | None:
        """A result of so many directions counts: which (first, count) of them another worker is to
        evaluate as well, or None. `whole`: the whole result or nothing of it; `lone`: no others of
        its class can tell whether it is true.

        One at random in each stretch of as many tasks as cost a direction in `1 / share`: so every
        stretch of twice the length has one, and no worker knows which task it is.
        """
        record = self.record(worker)
        record.results += 1
        size = count if whole else -(-count // PART)
        share = max(self.share, LONE) if lone else self.share
        record.passed += min(1.0, share * count / size)
        if record.drawn < 0.0:
            record.drawn = self._draws.random()
        if record.doubtful:
            record.doubtful -= 1
        elif worker in self.trusted or record.passed < record.drawn:
            return None
        else:
            record.drawn = math.floor(record.drawn) + 1.0 + self._draws.random()
        return self._draws.randrange(count - size + 1), size

    def part(self, count: int) -> tuple[int, int]:
        """(first, count) of a part of so many units that nobody can foresee."""
        size = -(-count // PART)
        return self._draws.randrange(count - size + 1), size

    def was_compared(self, worker: str, by: str) -> bool:
        """Whether a worker was compared with another one lately."""
        return by in self._voices.get(worker, ())

    def confirmed(self, worker: str, by: str, electorate: int, exact: bool = True) -> bool:
        """Another worker got the same as this one in a task: whether it is established by that.

        Where that is not `exact`, as they are of different numeric classes, it is the statistics of
        `compared` that have to be sure. So few who confirm each other can't establish themselves:
        of the `electorate`, all who could speak for it, more than half have to, or `LEAD` more than
        speak against it.
        """
        record = self.record(worker)
        record.audits += 1
        self._hear(worker, by, speaks_for=True)
        if record.standing not in ("new", "quarantined"):
            return False
        record.confirmed += exact
        needed = PROBATION if record.standing == "new" else AMENDS
        if record.confirmed < needed and record.likeness * PROBATION < SURE * needed:
            return False
        voices = self._voices[worker].values()
        speak_for = sum(voices)
        if 2 * speak_for <= electorate and 2 * speak_for - len(voices) < LEAD:
            return False
        record.standing, record.reason = "established", ""
        return True

    def contradicted(self, worker: str, by: str) -> None:
        """A worker of another class got something else in a task of a newcomer: no proof, and no
        confirmation either."""
        record = self.record(worker)
        record.audits += 1
        self._hear(worker, by, speaks_for=False)
        record.confirmed = max(0, record.confirmed - 1)

    def compared(self, worker: str, by: str, alike: int, unlike: int) -> bool:
        """Pairs of a worker were compared with those of an established one of another numeric
        class: whether it is proved by now that its returns point the other way.

        At least `SUPPORTERS` have to say so, and more than say otherwise.
        """
        record = self.record(worker)
        if alike != unlike:
            self._hear(worker, by, speaks_for=alike > unlike)
        record.alike += alike
        record.unlike += unlike
        # What spoke for it, or against it, in the past must not outweigh what it does from now on.
        record.odds = max(0.0, record.odds + _gain(alike, unlike, AGAINST))
        record.likeness = max(0.0, record.likeness + _gain(alike, unlike, LIKE))
        if record.odds < SURE or worker in self.trusted:
            return False
        voices = self._voices.get(worker, {}).values()
        against = len(voices) - sum(voices)
        return against >= SUPPORTERS and 2 * against > len(voices)

    def _hear(self, worker: str, by: str, speaks_for: bool) -> None:
        voices = self._voices.setdefault(worker, {})
        voices.pop(by, None)
        voices[by] = speaks_for
        if len(voices) > MOST_VOICES:
            del voices[next(iter(voices))]

    def used(self, worker: str, version: int, part: Part) -> bool:
        """The update of this version used a part of a worker: whether it drifted, so that its next
        tasks are audited."""
        record = self.record(worker)
        record.members += part.members
        if part.weight > record.most:
            record.most, record.most_at = part.weight, version
        stretches = record.updates
        if stretches and stretches[-1][1] in (version - 1, version):
            stretches[-1][1] = version
        else:
            stretches.append([version, version])
            if len(stretches) > MOST_STRETCHES:
                stretches[:2] = [[stretches[0][0], stretches[1][1]]]
        residual = part.residual
        if residual is None:
            return False
        record.batches += 1
        record.rank += residual.rank
        record.difference += residual.difference
        record.size += residual.size
        if not drifted(record.drift, residual):
            return False
        record.drifts += 1
        self.doubt(worker)
        return True

    def doubt(self, worker: str) -> None:
        """It was in a dispute that nobody could decide."""
        self.record(worker).doubtful = DOUBTFUL

    # Sentences.

    def convict(self, worker: str, reason: str) -> Standing:
        """It is proved that the worker returned what is not true: quarantined the first time,
        banned the next."""
        record = self.record(worker)
        record.offences += 1
        record.confirmed, record.odds, record.likeness, record.reason = 0, 0.0, 0.0, reason
        self._voices.pop(worker, None)
        first = record.offences == 1 and record.standing != "banned"
        record.standing = "quarantined" if first else "banned"
        if record.standing == "banned":
            self._banned[worker] = reason
        return record.standing

    def ban(self, worker: str, reason: str) -> None:
        """By the word of the host."""
        record = self.record(worker)
        record.standing, record.reason = "banned", reason
        self._banned[worker] = reason

    def rely_on(self, worker: str) -> None:
        """By the word of the host it is believed from now on, whatever it did."""
        self.trusted.add(worker)
        self.unban(worker)

    def unban(self, worker: str) -> None:
        """It may work again, as a newcomer."""
        self._banned.pop(worker, None)
        self._voices.pop(worker, None)
        before = self.record(worker)
        standing: Standing = "established" if worker in self.trusted else "new"
        self.records[worker] = Record(
            standing,
            updates=before.updates,
            members=before.members,
            most=before.most,
            most_at=before.most_at,
        )

    def _forget_one(self) -> None:
        """The oldest record of a newcomer, else of whom nothing bad is known: keys cost nothing."""
        known = self.records.items()
        newcomers = (w for w, r in known if not r.offences and r.standing == "new")
        harmless = (w for w, r in known if not r.offences and r.standing != "banned")
        oldest = next(chain(newcomers, harmless, self.records))
        self._banned.pop(oldest, None)
        self._voices.pop(oldest, None)
        del self.records[oldest]

    # What outlives a coordinator.

    def known(self) -> dict[str, dict[str, Any]]:
        """All records as plain values."""
        return {worker: asdict(record) for worker, record in self.records.items()}

    def remember(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Take up records that another `known` told of."""
        names = {field.name for field in fields(Record)}
        for worker, values in known.items():
            record = Record(**{name: value for name, value in values.items() if name in names})
            self.records[worker] = record
            if record.standing == "banned":
                self._banned[worker] = record.reason


def _gain(alike: int, unlike: int, likely: float) -> float:
    """Logarithm of how much likelier it makes it that so many pairs are alike, than BLIND."""
    return alike * math.log(likely / BLIND) + unlike * math.log((1 - likely) / (1 - BLIND))
