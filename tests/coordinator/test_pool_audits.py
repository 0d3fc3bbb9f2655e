"""A pool that believes nobody at first: what is held back, checked, taken out and done again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    Ban,
    CentreJudged,
    CloseBatch,
    Command,
    Happened,
    Joined,
    KeepResult,
    SendAcknowledge,
    SendTask,
    Sentenced,
    SessionId,
    Unban,
    Updated,
)
from coordinator.trust import Trust
from coordinator.trust.trust import PROBATION
from protocol.normalizer import RESOLUTION_BITS, ObservationSums, to_bytes
from tests.coordinator.driver import Driver, of, tasks, units
from tests.coordinator.simulation import counted, result, spec

CLASS = b"numeric class 01"
NAMES = "abcdefgh"


def session(worker: str) -> SessionId:
    return SessionId(worker, "s")


class Crowd(Driver):
    """A pool that audits, and what each of its workers returns."""

    def __init__(
        self, share: float = 0.5, established: str = "", trusted: str = "", **sections: object
    ) -> None:
        run = spec(64, pool={"audit_share": share, "max_staleness": 0}, **sections)
        super().__init__(run)
        self.trust = Trust(share, Random(3), trusted)
        for worker in established:
            self.trust.record(worker).standing = "established"
        self.pool = Pool(run, 0, self.now, trust=self.trust)
        self.liars: set[str] = set()
        self.given: list[SendTask] = []

    def enter(self, workers: str, numeric: bytes = CLASS) -> None:
        for worker in workers:
            self.send(Joined(session(worker), 2, 1000.0, numeric=numeric))

    def send(self, event: object, after: float = 0.0) -> list[Command]:
        commands = super().send(event, after)  # type: ignore[arg-type]
        self.given += tasks(commands)
        return commands

    def held(self, worker: str = "") -> list[SendTask]:
        """The tasks that are out, of one worker or of all."""
        leases = self.pool.leases
        return [t for t in self.given if t.task in leases and worker in (t.session.worker, "")]

    def says(self, task: SendTask) -> Arrived:
        """What the worker of a task returns."""
        arrived = result(task)
        if task.session.worker in self.liars:
            arrived = dataclasses.replace(arrived, returns=arrived.returns[:, ::-1].copy())
        return arrived

    def answer(self, task: SendTask) -> list[Command]:
        return self.send(self.says(task), after=0.05)

    def go_on(self, until: int) -> Iterator[list[Command]]:
        """Everybody works, until so many updates are made."""
        for _ in range(4000):
            if self.pool.version >= until:
                return
            if self.pool.updating:
                yield self.send(Updated(self.pool.version + 1))
            elif held := self.held():
                yield self.answer(held[0])
            else:
                yield self.tick(0.1)
        raise AssertionError(f"no update: {self.pool.quiet_because()}")

    def run(self, until: int) -> list[Command]:
        return [command for commands in self.go_on(until) for command in commands]


def _boasting(arrived: Arrived) -> Arrived:
    """What `a` returns is better than what it found."""
    if arrived.session.worker != "a":
        return arrived
    return dataclasses.replace(arrived, returns=arrived.returns + 0.3)


def test_a_newcomers_result_frees_its_directions_for_others_whose_word_counts() -> None:
    crowd = Crowd(established="b")
    crowd.enter("ab")
    mine = crowd.held("a")[0]
    said = crowd.answer(mine)
    assert not of(said, KeepResult)
    assert [each.outcome for each in of(said, SendAcknowledge)] == ["duplicate"]
    said = crowd.run(1)
    (closed,) = of(said, CloseBatch)
    assert sorted(counted(closed).tolist()) == list(range(32)), "each direction once"
    assert {part.session.worker for part in closed.contributions} == {"b"}
    given = [task for task in crowd.given if task.session.worker == "b"]
    assert units(mine) <= {unit for task in given for unit in units(task)}


def test_newcomers_confirm_each_other_where_nobody_is_established() -> None:
    crowd = Crowd()
    crowd.enter("abc")
    said = crowd.run(12)
    assert [sorted(counted(closed).tolist()) for closed in of(said, CloseBatch)] == [
        list(range(32 * k, 32 * k + 32)) for k in range(12)
    ]
    assert all(crowd.trust.is_believed(worker) for worker in "abc")
    established = [line for line in of(said, Happened) if "established" in line.what]
    assert len(established) == 3


def test_a_worker_that_is_alone_is_believed_for_want_of_others() -> None:
    crowd = Crowd()
    crowd.enter("a")
    said = crowd.run(2)
    assert len(of(said, CloseBatch)) == 2
    assert len({task.first for task in crowd.given}) == len(crowd.given), "nothing is done twice"
    assert crowd.trust.standing("a") == "new"


def test_of_the_established_some_is_evaluated_by_others_too_and_counts_once() -> None:
    crowd = Crowd(share=0.25, established="abc")
    crowd.enter("abc")
    said = crowd.run(8)
    closed = of(said, CloseBatch)
    assert [sorted(counted(each).tolist()) for each in closed] == [
        list(range(32 * k, 32 * k + 32)) for k in range(8)
    ]
    assert 0.15 * 256 < crowd.pool.audited < 0.35 * 256
    assert sum(record.audits for record in crowd.trust.records.values()) > 0
    workers: dict[int, set[str]] = {}
    twice = 0
    for task in crowd.given:
        for unit in units(task):
            known = workers.setdefault(unit, set())
            assert task.session.worker not in known, "checked by who did it"
            twice += bool(known)
            known.add(task.session.worker)
    assert twice >= crowd.pool.audited


def test_without_a_share_nobody_is_checked_and_all_is_believed() -> None:
    crowd = Crowd(share=0.0)
    crowd.enter("abc")
    crowd.liars = {"a"}
    crowd.run(3)
    assert crowd.pool.audited == 0
    given = [unit for task in crowd.given for unit in units(task)]
    assert len(given) == len(set(given)) >= 3 * 32


def test_who_lies_is_found_out_and_its_part_of_the_open_batch_is_done_again() -> None:
    crowd = Crowd(share=1.0, established=NAMES)
    crowd.enter(NAMES)
    crowd.liars = {"a"}
    reopened = 0
    for said in crowd.go_on(3):
        for command in said:
            if isinstance(command, Happened) and "a is quarantined" in command.what:
                reopened = int(command.what.split(";")[1].split()[0])
                assert "are not what" in command.what
                assert ("members of it" in command.what) == bool(crowd.trust.record("a").updates)
        if of(said, Sentenced):
            break
    assert reopened > 0 and crowd.trust.standing("a") == "quarantined"
    crowd.liars = set()
    index = crowd.pool.version
    (closed,) = of(crowd.run(index + 1), CloseBatch)
    assert sorted(counted(closed).tolist()) == list(range(32 * index, 32 * index + 32))
    assert all(part.session.worker != "a" for part in closed.contributions)
    assert not [w for w in NAMES[1:] if crowd.trust.standing(w) != "established"]


def test_a_repeat_offender_is_banned_and_gets_nothing_until_it_is_let_in_again() -> None:
    crowd = Crowd(share=1.0, established=NAMES)
    crowd.enter(NAMES)
    crowd.liars = {"a"}
    for _ in crowd.go_on(60):
        if crowd.trust.standing("a") == "banned":
            break
    assert not crowd.held("a") and crowd.pool.sessions[session("a")].credit == 0
    crowd.given = [task for task in crowd.given if task.session.worker != "a"]
    crowd.run(crowd.pool.version + 2)
    crowd.enter("a")
    assert not [task for task in crowd.given if task.session.worker == "a"]
    crowd.liars = set()
    crowd.send(Unban("a"))
    crowd.run(crowd.pool.version + 2 * PROBATION)
    assert crowd.trust.is_believed("a")


def test_the_word_of_a_trusted_worker_settles_it_where_two_disagree() -> None:
    crowd = Crowd(share=1.0, established="ab", trusted="t")
    crowd.enter("abt")
    crowd.liars = {"a"}
    for _ in crowd.go_on(10):
        if crowd.trust.standing("a") != "established":
            break
    assert crowd.trust.standing("a") == "quarantined"
    assert crowd.trust.is_believed("b") and crowd.trust.is_believed("t")


def test_what_updates_used_of_a_cheat_is_told_when_it_is_found() -> None:
    crowd = Crowd(share=1.0, established=NAMES)
    crowd.enter(NAMES)
    crowd.run(3)
    used = crowd.trust.record("a").members
    assert crowd.trust.record("a").updates == [[0, 2]]
    assert sum(crowd.trust.record(worker).members for worker in NAMES) == 3 * 64
    crowd.liars = {"a"}
    said = [line.what for commands in crowd.go_on(8) for line in of(commands, Happened)]
    (line,) = [line for line in said if "a is quarantined" in line]
    assert "updates of versions 0-" in line
    told = int(line.split("have used ")[1].split()[0])
    assert used <= told <= used + 2 * 64


def test_who_drifts_is_audited_for_it_and_found() -> None:
    crowd = Crowd(share=1e-9, established=NAMES)
    crowd.enter(NAMES)
    crowd.says = lambda task: _boasting(result(task))  # type: ignore[method-assign]
    said = [line.what for line in of(crowd.run(80), Happened)]
    told = [line for line in said if "drifts" in line or "quarantined" in line]
    assert "a drifts" in told[0] and "a is quarantined" in told[1]
    assert crowd.trust.record("a").drifts == 1
    assert all(crowd.trust.is_believed(worker) for worker in NAMES[1:])


def test_two_who_disagree_alone_stay_as_they_were() -> None:
    crowd = Crowd(share=1.0, established="ab")
    crowd.enter("ab")
    crowd.liars = {"a"}
    crowd.run(15)
    assert crowd.trust.is_believed("a") and crowd.trust.is_believed("b")


def test_other_numeric_classes_prove_nothing_by_a_difference() -> None:
    crowd = Crowd(share=1.0, established=NAMES)
    crowd.enter(NAMES[1:])
    crowd.enter("a", b"numeric class 02")

    def says(task: SendTask) -> Arrived:
        arrived = result(task)
        if task.session.worker == "a":
            return dataclasses.replace(arrived, returns=arrived.returns * (1.0 - 2.0**-40))
        return arrived

    crowd.says = says  # type: ignore[method-assign]
    crowd.run(20)
    record = crowd.trust.records["a"]
    assert record.standing == "established" and record.alike > 50 and record.unlike == 0
    crowd.says = Crowd.says.__get__(crowd)  # type: ignore[method-assign]
    crowd.liars = {"a"}
    for _ in crowd.go_on(40):
        if crowd.trust.standing("a") != "established":
            break
    assert "numeric classes" in crowd.trust.record("a").reason


def test_the_centre_is_judged_by_the_established_alone() -> None:
    run = spec(64, pool={"audit_share": 0.5}, centre={"evaluate_every": 1, "episodes": 20})
    crowd = Crowd(established="bcd")
    crowd.pool = Pool(run, 0, crowd.now, trust=crowd.trust)
    crowd.liars = {"a"}
    crowd.enter("abcd")
    said = crowd.run(3)
    judges = {task.session.worker for task in crowd.given if task.kind == "centre"}
    assert judges and not judges & {"a"}
    assert [each.version for each in of(said, CentreJudged)][:2] == [0, 1]
    crowd.trust.convict("b", "it lied")
    crowd.given = [task for task in crowd.held() if task.kind == "members"]
    crowd.run(crowd.pool.version + 2)
    judges = {task.session.worker for task in crowd.given if task.kind == "centre"}
    assert "b" not in judges


class Observers(Crowd):
    """Established workers of a run with a normaliser, some of whom claim to have seen frames far
    away from all before."""

    def __init__(self, far: str) -> None:
        super().__init__(
            share=0.1,
            established=NAMES[:4],
            normalizer={"enabled": True},
            policy={"kind": "linear"},
        )
        self.far = far
        self.enter(NAMES[:4])

    def says(self, task: SendTask) -> Arrived:
        arrived = result(task)
        count, far = int(arrived.lengths.sum()), 40 * (task.session.worker in self.far) + 1
        sums = ObservationSums(count, (0,) * 4, (count * (far << RESOLUTION_BITS) ** 2,) * 4)
        return dataclasses.replace(arrived, observed=to_bytes(sums))


def test_frames_far_from_all_others_count_for_nothing() -> None:
    crowd = Observers("a")
    closed = of(crowd.run(6), CloseBatch)
    assert all(
        part.session.worker != "a"
        for each in closed
        for part in each.contributions
        if part.version > 0
    )
    assert [sorted(counted(each).tolist()) for each in closed] == [
        list(range(32 * k, 32 * k + 32)) for k in range(6)
    ]


def test_frames_that_are_far_for_everybody_count_as_ever() -> None:
    crowd = Observers(NAMES)
    closed = of(crowd.run(6), CloseBatch)
    assert {part.session.worker for each in closed for part in each.contributions} == set("abcd")
    assert all(crowd.trust.is_believed(worker) for worker in NAMES[:4])


class Judges(Crowd):
    """Established workers of a run whose centre is judged at each version; `a` makes up what its
    episodes of the centre return."""

    def __init__(self, lie: float, target: float | None = None, **how: object) -> None:
        super().__init__(established=NAMES[:5], **how)  # type: ignore[arg-type]
        run = spec(
            64,
            pool={"audit_share": self.trust.share, "max_staleness": 0},
            centre={"evaluate_every": 1, "episodes": 20},
            stop={"target": target},
        )
        self.pool = Pool(run, 0, self.now, trust=self.trust)
        self.lie = lie
        self.enter(NAMES[:5])

    def says(self, task: SendTask) -> Arrived:
        arrived = result(task)
        if task.kind == "centre" and task.session.worker == "a":
            return dataclasses.replace(arrived, returns=arrived.returns + self.lie)
        return arrived


def true_mean(judged: CentreJudged) -> float:
    """Of the episodes of the centre that an evaluation is of."""
    task = SendTask(session("x"), 1, "centre", judged.version, 0, judged.episodes)
    return float(result(task).returns.mean())


def test_who_lies_about_the_centre_neither_ends_the_run_nor_makes_a_best() -> None:
    crowd = Judges(lie=1e6, target=1e5, share=1e-9)
    said = crowd.run(6)
    assert crowd.trust.standing("a") in ("quarantined", "banned")
    assert not crowd.pool.ended
    judged = of(said, CentreJudged)
    assert len(judged) >= 4
    for each in judged:
        assert each.mean == pytest.approx(true_mean(each)) and not each.reached
    (line, *_) = [line.what for line in of(said, Happened) if "a is quarantined" in line.what]
    assert "for centre episode" in line and "episodes of the centre too" in line
    assert all(crowd.trust.is_believed(worker) for worker in NAMES[1:5])


def test_who_makes_the_centre_worse_than_it_is_is_found_by_chance() -> None:
    crowd = Judges(lie=-1e6, share=0.2)
    crowd.run(12)
    assert crowd.trust.standing("a") in ("quarantined", "banned")


@pytest.mark.parametrize("share", [1e-9, 0.2, 1.0])
def test_a_true_end_is_vouched_for_and_comes(share: float) -> None:
    """Whatever of it was checked by chance before."""
    crowd = Judges(lie=0.0, target=-1e9, share=share)
    for _ in range(400):
        if crowd.pool.ended:
            break
        held = crowd.held()
        crowd.answer(held[0]) if held else crowd.tick(0.1)
    assert crowd.pool.ended
    by: dict[int, set[str]] = {}
    for task in crowd.given:
        if task.kind == "centre" and task.version == 0:
            for episode in units(task):
                by.setdefault(episode, set()).add(task.session.worker)
    assert len(by) == 20 and all(len(workers) >= 2 for workers in by.values())


def test_an_end_comes_though_nobody_vouches_for_it() -> None:
    """All but one fall silent."""
    crowd = Judges(lie=0.0, target=-1e9, share=1e-9)
    for _ in range(4000):
        if crowd.pool.ended:
            break
        held = crowd.held("b")
        crowd.answer(held[0]) if held else crowd.tick(0.5)
    assert crowd.pool.ended


def test_the_host_bans_by_hand_whoever_it_is() -> None:
    crowd = Crowd(share=0.0)
    crowd.enter("ab")
    first = crowd.held("a")[0]
    said = crowd.answer(first)
    assert of(said, KeepResult)
    said = crowd.send(Ban("a", "by hand"))
    assert any(
        f"a is banned: by hand; {first.count} directions" in line.what
        for line in of(said, Happened)
    )
    assert not crowd.held("a")
    late = crowd.send(crowd.says(first))
    assert [(each.outcome, each.reason) for each in of(late, SendAcknowledge)] == [
        ("refused", "banned: by hand")
    ]
    (closed,) = of(crowd.run(1), CloseBatch)
    assert sorted(counted(closed).tolist()) == list(range(32))
    assert {part.session.worker for part in closed.contributions} == {"b"}


def test_a_pool_that_goes_on_knows_whom_it_knew() -> None:
    crowd = Crowd(share=1.0, established=NAMES)
    crowd.enter(NAMES)
    crowd.send(Ban("b", "by hand"))
    known = crowd.trust.known()
    other = Crowd(share=1.0)
    other.trust.remember(known)
    other.enter(NAMES)
    assert not other.held("b") and other.held("a")
    assert np.isin(["a", "c"], [w for w in NAMES if other.trust.is_believed(w)]).all()


@pytest.mark.parametrize(("failing", "dropped"), [("ab", False), (NAMES, True)])
def test_two_that_say_that_all_fails_leave_nothing_out(failing: str, dropped: bool) -> None:
    """They have to be more than half of the established."""
    crowd = Crowd(share=0.1, established=NAMES, centre={"evaluate_every": 1})
    crowd.enter(NAMES)

    def says(task: SendTask) -> Arrived:
        said = [unit for unit in units(task) if unit < 5 and task.session.worker in failing]
        return result(task, failed=dict.fromkeys(said, "it fails"))

    crowd.says = says  # type: ignore[method-assign]
    said = crowd.run(3)
    lines = [line.what for line in of(said, Happened)]
    left_out = [line for line in lines if "dropped" in line or "given up" in line]
    assert bool(left_out) is dropped, left_out
