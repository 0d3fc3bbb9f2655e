from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import authority, messages, topics
from protocol.envelope import open_signed, peek_signed, plain, sealed, signed
from protocol.greeting import CLIENT_VERSION
from protocol.identity import Identity, fingerprint
from protocol.normalizer import no_observations
from protocol.packing import pack
from protocol.spec import RunSpec
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from worker import replica, session
from worker.commands import (
    Abandon,
    Command,
    CompareClocks,
    Evaluate,
    Leave,
    Say,
    Send,
    StartEvaluation,
)
from worker.evaluation.jobs import Evaluation
from worker.following import Follower
from worker.handshake import Handshake
from worker.limits import Limits
from worker.session import Session

SPEC = run_spec(
    "CartPole-v1",
    policy={"kind": "linear"},
    strategy={"population": 16},
    normalizer={"enabled": True},
)
FOLLOWER = Follower(SPEC)
WORKER = Identity(b"w" * 32)
M = TypeVar("M", bound=messages.Message)


def host_of(versions: int = 0, spec: RunSpec = SPEC) -> Host:
    host = Host(spec)
    host.grow(versions)
    return host


@dataclass
class Desk:
    """A session with a scripted host at the other end, and no evaluation but what a test says."""

    host: Host
    expected: str | None = None
    credit: int = 2
    name: str = "tester"
    device: str = "cpu x1"
    now: float = 5000.0
    sent: list[Send] = field(default_factory=list)
    said: list[Say] = field(default_factory=list)
    jobs: list[Evaluate] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    started: list[StartEvaluation] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    compared: list[int] = field(default_factory=list)
    left: Leave | None = None
    held_back: list[Command] | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        handshake = Handshake(self.host.run, WORKER, "aaaabb", self.expected)
        checked = self.expected is not None
        chosen = session.Settings(self.credit, self.name, self.device, checked, limits=self.limits)
        self.session = Session(handshake, chosen, Random(5))
        self.follower = FOLLOWER if self.host.spec == SPEC else Follower(self.host.spec)

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(payload=b""):
                    self.tried.append(command.topic)
                case Send():
                    self.sent.append(command)
                case Say():
                    self.said.append(command)
                case Evaluate():
                    self.jobs.append(command)
                case Abandon():
                    self.abandoned.append(command.task)
                case StartEvaluation():
                    self.started.append(command)
                case CompareClocks():
                    self.compared.append(command.theirs)
                case Leave():
                    self.left = command
                case replica.Forget():
                    pass
                case _ if self.held_back is not None:
                    self.held_back.append(command)
                case _:
                    self.follow(command)

    def follow(self, command: Any) -> None:
        try:
            if isinstance(command, replica.Begin):
                step, size = self.follower.begin(), self.follower.snapshot_bytes
                self.obey(self.session.begun(command.ticket, step, size, self.now))
                return
            if isinstance(command, replica.Apply):
                step = self.follower.apply(command.before, command.update)
            else:
                step = self.follower.restore(command.data, command.version)
        except Exception as error:
            self.obey(self.session.failed(command.ticket, error, self.now))
        else:
            self.obey(self.session.advanced(command.ticket, step, self.now))

    # What comes in.

    def hears(self, topic: str, payload: bytes) -> None:
        self.obey(self.session.message(topic, payload, self.now))

    def hears_epoch(self, payload: bytes | None = None) -> None:
        payload = self.host.epoch() if payload is None else payload
        self.hears(topics.epoch(self.host.run), payload)

    def hears_beat(self, payload: bytes | None = None) -> None:
        payload = self.host.beat() if payload is None else payload
        self.hears(topics.beat(self.host.run), payload)

    def hears_update(self, version: int) -> None:
        self.hears(topics.update(self.host.run), self.host.update(version))

    def is_told(self, message: messages.Message) -> None:
        self.hears(self.host.inbox, self.host.sealed(message))

    def connected(self) -> None:
        self.obey(self.session.connected(self.now))

    def ready(self, speed: float = 1000.0) -> None:
        self.obey(self.session.can_evaluate(speed, b"c" * 16, self.now))

    def welcomed(self, **changes: Any) -> None:
        """All the way to a session that takes tasks."""
        self.connected()
        self.hears_epoch()
        self.ready()
        self.is_welcomed(**changes)

    def is_welcomed(self, **changes: Any) -> None:
        hello = self.hellos()[-1]
        self.hears(self.inbox, self.host.welcome(hello.topic, hello.payload, **changes))

    def begins_anew(self) -> None:
        """The coordinator has forgotten us, and welcomes us again."""
        self.pass_time(2.0)
        self.is_told(messages.Notice("hello-again", ""))
        self.pass_time(0.1)
        self.is_welcomed()

    @property
    def inbox(self) -> str:
        return topics.inbox(self.host.run, WORKER.worker, "aaaabb")

    def pass_time(self, seconds: float, beats: bool = True) -> None:
        for tenth in range(round(seconds * 10)):
            self.now += 0.1
            if beats and tenth % 20 == 0:
                self.hears_beat()
            self.obey(self.session.tick(self.now))

    def finishes(self, task: int | None = None, evaluation: Evaluation | None = None) -> None:
        """The evaluation of a task, by default the oldest, is done."""
        job = next(job for job in self.jobs if task in (None, job.task))
        self.jobs.remove(job)
        self.obey(self.session.evaluated(job.task, evaluation or done(job), self.now))

    # What went out.

    def take_sent(self, kind: str) -> Send:
        """The oldest payload that was sent on a kind of topic, taken away."""
        for send in self.sent:
            parsed = topics.parse(send.topic)
            assert parsed is not None
            if parsed.kind == kind:
                self.sent.remove(send)
                return send
        raise AssertionError(f"nothing was sent on {kind}")

    def told(self, kind: type[M]) -> list[M]:
        """Every message of a type that we sealed, taken away."""
        found = []
        for send in list(self.sent):
            try:
                message = self.host.unsealed(send.payload)
            except Exception:
                continue
            if isinstance(message, kind):
                self.sent.remove(send)
                found.append(message)
        return found

    def hellos(self) -> list[Send]:
        """Every hello, taken away."""
        found = [send for send in self.sent if send.payload[0] == 1 and "/req/" in send.topic]
        self.sent = [send for send in self.sent if send not in found]
        return found

    @property
    def warnings(self) -> str:
        return "\n".join(say.text for say in self.said if say.warning)


def done(job: Evaluate) -> Evaluation:
    shape = job.job.shape
    count = job.job.count
    observed = None if job.job.kind == "centre" else no_observations(4)
    returns = np.arange(np.prod(shape), dtype=float).reshape(shape) + count
    return Evaluation(job.job.first, returns, np.full(shape, 7), observed)


# Who is believed.


def test_the_epoch_tells_all_and_the_hello_follows_when_evaluation_is_ready():
    host = host_of()
    desk = Desk(host, expected=host.identity.fingerprint)
    desk.connected()
    assert desk.sent == []
    desk.hears_epoch()
    assert desk.started == [StartEvaluation(SPEC)]
    assert desk.hellos() == []
    assert "as the join line says" in desk.said[0].text
    desk.obey(desk.session.can_evaluate(123.0, b"c" * 16, desk.now, lanes=512))
    hello = desk.take_sent("req")
    desk.hears(desk.inbox, host.welcome(hello.topic, hello.payload))
    assert host.hello is not None
    assert (host.hello.credit, host.hello.speed, host.hello.lanes) == (2, 123.0, 512)
    assert (host.hello.name, host.hello.numeric_class) == ("tester", b"c" * 16)
    assert host.hello.client == CLIENT_VERSION
    assert desk.told(messages.Credit) == []  # the hello said it
    desk.is_told(host.task())
    assert len(desk.jobs) == 1


def test_who_hears_no_epoch_asks_for_it():
    desk = Desk(host_of())

    def asked() -> int:
        desk.obey(desk.session.tick(desk.now))
        return sum(send.topic == topics.WHO for send in desk.sent)

    assert asked() == 0  # no broker yet
    desk.connected()
    assert asked() == 0
    desk.now += session.EPOCH_WITHIN
    assert (asked(), asked()) == (1, 1)
    desk.now += session.ASK_AGAIN
    assert asked() == 2
    desk.hears_epoch()
    desk.now += session.ASK_AGAIN
    assert asked() == 2


def test_a_join_line_is_checked_and_trust_on_first_use_is_said():
    host = host_of()
    desk = Desk(host, expected="a" * 26)
    desk.connected()
    desk.hears_epoch()
    assert desk.started == []
    assert desk.left is not None
    assert desk.left.code == 5
    assert desk.left.text == (
        f"the run {host.run} is led by the key {host.identity.fingerprint}, but your join line "
        f"says {'a' * 26}: the line is mistyped or not this host's; ask the host for a new line"
    )
    desk = Desk(host)
    desk.connected()
    desk.hears_epoch()
    assert host.identity.fingerprint in desk.said[0].text
    assert "NOT checked" in desk.said[0].text


def test_another_key_that_fits_the_name_ends_nothing_once_the_right_one_has_spoken(monkeypatch):
    host = host_of()
    other = Host(SPEC, seed=9)
    forged = msgspec.structs.replace(epoch_of(host), host_key=other.identity.public_key)
    payload = signed(other.identity, "epoch", (host.run,), forged)
    # Found by search: 32 bits of a key are in the name.
    monkeypatch.setattr(authority, "run_belongs_to", lambda run, key: True)
    desk = Desk(host, expected=host.identity.fingerprint)
    desk.connected()
    desk.hears_epoch()
    desk.hears_epoch(payload)
    assert desk.left is None
    assert desk.session.voice.ignored == 1
    desk = Desk(host, expected=host.identity.fingerprint)
    desk.connected()
    desk.hears_epoch(payload[:-1] + bytes([payload[-1] ^ 1]))  # not signed by the key it names
    assert desk.left is None
    assert desk.session.voice.ignored == 1


@pytest.mark.parametrize("forgery", ["other key", "other run", "other signature", "cut"])
def test_a_forged_epoch_is_ignored(forgery):
    host, desk = host_of(), Desk(host_of())
    desk.connected()
    other = Host(SPEC, seed=9)
    payload = {
        "other key": signed(
            other.identity,
            "epoch",
            (host.run,),
            msgspec.structs.replace(epoch_of(host), host_key=other.identity.public_key),
        ),
        "other run": signed(host.identity, "epoch", ("other-00000000",), epoch_of(host)),
        "other signature": signed(other.identity, "epoch", (host.run,), epoch_of(host)),
        "cut": host.epoch()[:-1],
    }[forgery]
    desk.hears_epoch(payload)
    assert desk.started == []
    assert desk.session.voice.ignored == 1
    desk.hears_epoch()
    assert len(desk.started) == 1


def epoch_of(host: Host) -> messages.Epoch:
    message = messages.decode(host.epoch()[65:])
    assert isinstance(message, messages.Epoch)
    return message


def test_an_earlier_epoch_is_no_news():
    host = host_of()
    old = host.epoch("stopped")
    host.number = 2
    desk = Desk(host)
    desk.welcomed()
    desk.hears_epoch(old)
    assert desk.left is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": 2}, "protocol 2"),
        ({"minimum_client": "9.0"}, "9.0 or later"),
        ({"spec": pack({"name": "x"})}, "`environment`"),
        ({"spec": b"\xc1"}, "can't be read"),
    ],
)
def test_what_this_version_does_not_know_ends_it_in_one_line(changes, words):
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch(desk.host.epoch(**changes))
    assert desk.left is not None
    assert desk.left.code == 3
    assert words in desk.left.text
    assert "\n" not in desk.left.text


def test_an_unknown_field_of_a_later_spec_is_named():
    from protocol import spec as run_spec_module

    raw = run_spec_module.to_plain(SPEC) | {"quantum": True}
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch(desk.host.epoch(spec=pack(raw)))
    assert desk.left is not None
    assert desk.left.code == 3
    assert "quantum" in desk.left.text


@pytest.mark.parametrize("version", ["0", "0.1", "0.1.0", "", "0.0.9", "nonsense"])
def test_our_own_or_an_earlier_minimum_version_is_fine(version):
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch(desk.host.epoch(minimum_client=version))
    assert desk.left is None
    assert desk.started


def test_the_version_is_that_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == CLIENT_VERSION


def test_a_spec_that_changes_ends_it():
    desk = Desk(host_of())
    desk.welcomed()
    other = run_spec("CartPole-v1", policy={"kind": "linear"}, strategy={"population": 32})
    changed = Host(other)
    changed.number = 2
    desk.hears_epoch(changed.epoch())
    assert desk.left is not None
    assert desk.left.code == 3
    assert "never" in desk.left.text


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_the_end_of_the_run_is_told_and_ends_the_session(state):
    desk = Desk(host_of(3))
    desk.welcomed()
    desk.hears_epoch(desk.host.epoch(state, reason="the target is reached"))
    assert desk.left is not None
    assert desk.left.code == 0
    assert state in desk.left.text
    assert "the target is reached" in desk.left.text
    assert said_bye(desk) == "left"
    desk.hears_update(0)
    assert desk.session.message(desk.inbox, b"x", desk.now) == []


def said_bye(desk: Desk) -> str:
    bye = desk.take_sent("status")
    context = (desk.host.run, "aaaabb")
    message = open_signed(bye.payload, WORKER.public_key, "status", context)
    assert isinstance(message, messages.Bye)
    return message.reason


def test_a_run_that_is_over_already_is_no_failure():
    desk = Desk(host_of(3))
    desk.connected()
    desk.hears_epoch(desk.host.epoch("finished"))
    assert desk.left is not None
    assert desk.left.code == 0
    assert desk.started == []


def test_a_refusing_welcome_ends_it_with_the_reason():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    desk.is_welcomed(refused="upgrade the worker")
    assert desk.left is not None
    assert desk.left.code == 6
    assert "upgrade the worker" in desk.left.text


def test_hello_is_said_again_until_there_is_a_welcome_and_each_has_its_own_nonce():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    desk.pass_time(60.0)
    hellos = desk.hellos()
    assert 4 <= len(hellos) <= 8
    assert len({send.payload for send in hellos}) == len(hellos)
    desk.hears(desk.inbox, desk.host.welcome(hellos[-1].topic, hellos[-1].payload))
    desk.pass_time(60.0)
    assert desk.hellos() == []


def test_the_latest_answered_hello_decides_and_no_welcome_counts_twice():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    desk.pass_time(15.0)
    first, second = desk.hellos()[:2]
    old = desk.host.welcome(first.topic, first.payload)
    desk.hears(desk.inbox, old)
    desk.hears(desk.inbox, desk.host.welcome(second.topic, second.payload))
    desk.hears(desk.inbox, old)
    assert desk.session.voice.ignored == 1
    desk.is_told(desk.host.task())
    assert len(desk.jobs) == 1


def test_a_welcome_for_another_session_is_ignored():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    hello = desk.hellos()[0]
    welcome = desk.host.welcome(hello.topic, hello.payload)
    wrong = signed(
        desk.host.identity,
        "welcome",
        (desk.host.run, WORKER.worker, "bbbbbb"),
        messages.decode(welcome[65:]),
    )
    desk.hears(desk.inbox, wrong)
    assert desk.session.voice.ignored == 1
    desk.hears(desk.inbox, welcome)
    assert "welcomed" in desk.said[-1].text


# Tasks.


def test_a_task_is_evaluated_and_its_result_is_kept_until_it_is_answered():
    desk = Desk(host_of())
    desk.welcomed()
    task = desk.host.task(first=3, count=2)
    desk.is_told(task)
    (job,) = desk.jobs
    assert (job.job.kind, job.job.first, job.job.count, job.job.version) == ("members", 3, 2, 0)
    assert job.job.sigma == SPEC.strategy.sigma
    assert (job.point.theta == desk.host.states[0].theta).all()
    desk.finishes()
    (send,) = [send for send in desk.sent if "/results/" in send.topic]
    assert send.qos == 1
    (result,) = desk.told(messages.Result)
    assert (result.task, result.token, result.first) == (task.task, task.token, 3)
    returns, lengths = messages.result_arrays(result)
    assert returns.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert lengths.tolist() == [[7, 7], [7, 7]]
    desk.pass_time(9.0)
    assert desk.told(messages.Result) == []
    desk.pass_time(5.0)
    assert desk.told(messages.Result) == [result]
    desk.is_told(messages.Acknowledge((task.task,), "late", "1 version old"))
    desk.pass_time(30.0)
    assert desk.told(messages.Result) == []
    view = desk.session.view(desk.now)
    assert (view.done, view.late, view.episodes, view.steps) == (1, 1, 4, 28)


def test_an_answer_may_ride_on_the_next_task():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.finishes()
    desk.is_told(desk.host.task(first=2, acknowledged=(1,)))
    assert desk.session.view(desk.now).accepted == 1
    assert desk.session.view(desk.now).unanswered == 0


def test_a_centre_task_and_one_of_an_earlier_version_are_evaluated_as_asked():
    desk = Desk(host_of(3))
    desk.welcomed()
    for version in range(3):
        desk.hears_update(version)
    desk.is_told(desk.host.task(first=5, count=4, kind="centre", version=2))
    (job,) = desk.jobs
    assert (job.job.kind, job.job.version, job.job.shape) == ("centre", 2, (4,))
    assert (job.point.theta == desk.host.states[2].theta).all()
    desk.finishes()
    (result,) = desk.told(messages.Result)
    assert messages.result_arrays(result)[0].shape == (4,)
    assert result.observed == b""


def test_members_are_cut_at_the_cap_of_their_version_and_the_centre_never():
    spec = run_spec("CartPole-v1", environment={"cap": 1.5, "cap_minimum": 20})
    desk = Desk(host_of(1, spec), credit=3)
    desk.welcomed()
    desk.hears_update(0)
    for version, kind in ((0, "members"), (1, "members"), (1, "centre")):
        desk.is_told(desk.host.task(first=0, count=1, kind=kind, version=version))
    caps = {(job.job.version, job.job.kind): job.job.cap for job in desk.jobs}
    assert caps == {(0, "members"): 0, (1, "members"): 20, (1, "centre"): 0}


def test_a_task_ahead_of_the_replica_waits_and_asks_to_catch_up():
    desk = Desk(host_of())
    desk.welcomed()
    desk.host.grow(2)
    desk.is_told(desk.host.task(version=2))
    assert desk.jobs == []
    desk.pass_time(1.0)
    assert desk.told(messages.CatchUp) == [messages.CatchUp(0)]
    for version in range(2):
        desk.hears(desk.inbox, desk.host.update(version))  # sent again, in the inbox
    assert len(desk.jobs) == 1
    assert (desk.jobs[0].point.theta == desk.host.states[2].theta).all()


def test_a_task_whose_version_never_comes_is_given_back():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task(version=9))
    desk.pass_time(29.0)
    assert desk.told(messages.Refusal) == []
    desk.pass_time(2.0)
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause) == (1, "gone")


def test_a_version_behind_the_window_is_refused_as_gone():
    desk = Desk(host_of(12))
    desk.welcomed()
    for version in range(12):
        desk.hears_update(version)
    task = desk.host.task(version=1)
    desk.is_told(task)
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.token, refusal.cause) == (task.task, task.token, "gone")
    assert "version 1" in refusal.reason


def test_a_version_stays_while_a_task_of_it_is_evaluated():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task(version=0))
    desk.host.grow(12)
    for version in range(12):
        desk.hears_update(version)
    desk.is_told(desk.host.task(first=2, version=0))
    assert len(desk.jobs) == 2
    desk.finishes()
    desk.finishes()
    desk.is_told(desk.host.task(first=4, version=0))
    assert [refusal.cause for refusal in desk.told(messages.Refusal)] == ["gone"]


def test_duplicates_forgeries_and_garbage_are_ignored_and_counted():
    desk = Desk(host_of())
    desk.welcomed()
    task = desk.host.task()
    desk.is_told(task)
    desk.is_told(task)
    desk.hears(desk.inbox, sealed(b"k" * 32, "to worker", desk.host.task()))
    desk.hears(desk.inbox, sealed(desk.host.key, "to coordinator", desk.host.task()))
    desk.hears(desk.inbox, plain(desk.host.task()))
    desk.hears(desk.inbox, desk.host.sealed(messages.Who()))
    desk.hears(desk.inbox, b"")
    assert len(desk.jobs) == 1
    assert desk.session.voice.ignored == 6
    complaints = [say for say in desk.said if "ignored" in say.text]
    assert len(complaints) == 1  # not one for each
    desk.finishes()
    desk.is_told(task)
    assert desk.jobs == []


@pytest.mark.parametrize(
    "changes",
    [{"episodes": 3}, {"first": 2**47 - 1}, {"kind": "centre", "first": 65_535}],
)
def test_a_task_that_can_not_belong_to_the_run_is_refused_with_the_reason(changes):
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task(**changes))
    (refusal,) = desk.told(messages.Refusal)
    assert refusal.cause == "spec"
    assert refusal.reason
    assert desk.jobs == []
    desk.is_told(desk.host.task())
    assert len(desk.jobs) == 1


def test_more_tasks_than_a_session_can_hold_are_handed_back():
    desk = Desk(host_of())
    desk.welcomed()
    for first in range(70):
        desk.is_told(desk.host.task(first=first, count=1))
    assert len(desk.jobs) == 64
    assert [refusal.cause for refusal in desk.told(messages.Refusal)] == ["handed-back"] * 6


def test_a_failure_of_this_machine_is_refused_as_such():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.obey(desk.session.evaluation_failed(1, "the process was killed", desk.now))
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.cause, refusal.reason) == ("worker", "the process was killed")
    assert "the process was killed" in desk.warnings
    desk.is_told(desk.host.task())
    assert len(desk.jobs) == 2


def test_failed_episodes_travel_in_the_result_and_too_many_do_not():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task(first=10, count=2))
    returns = np.array([[1.0, 2.0], [np.nan, np.nan]])
    failing = Evaluation(
        10, returns, np.array([[3, 3], [0, 0]]), no_observations(4), ((11, "x" * 200),)
    )
    desk.finishes(evaluation=failing)
    (result,) = desk.told(messages.Result)
    assert result.failed == ((11, "x" * 200),)
    messages.result_arrays(result)
    desk.is_told(desk.host.task(first=0, count=300))
    every = Evaluation(
        0,
        np.full((300, 2), np.nan),
        np.zeros((300, 2), np.int64),
        no_observations(4),
        tuple((direction, "raised") for direction in range(300)),
    )
    desk.finishes(evaluation=every)
    (refusal,) = desk.told(messages.Refusal)
    assert refusal.cause == "spec"
    assert "300 of 300" in refusal.reason


def test_another_hash_than_ours_voids_all_work_and_fetches_the_state_afresh():
    desk = Desk(host_of(3))
    desk.welcomed()
    desk.told(messages.CatchUp)
    for version in range(3):
        desk.hears_update(version)
    desk.told(messages.Credit)
    good = desk.host.task()
    desk.is_told(good)
    bad = desk.host.task(first=4, digest=b"x" * 16)
    desk.is_told(bad)
    assert desk.abandoned == [good.task]
    causes = {refusal.task: refusal.cause for refusal in desk.told(messages.Refusal)}
    assert causes == {good.task: "gone", bad.task: "gone"}
    assert (b"x" * 16).hex() in desk.warnings
    assert desk.host.digest().hex() in desk.warnings
    assert desk.told(messages.CatchUp) == [messages.CatchUp(0)]
    assert [message.credit for message in desk.told(messages.Credit)] == [0]
    for version in range(3):
        desk.hears(desk.inbox, desk.host.update(version))
    assert [message.credit for message in desk.told(messages.Credit)] == [2]
    desk.is_told(desk.host.task(first=6))
    assert len(desk.jobs) == 2  # the abandoned one is still in the list of this test


def test_a_machine_that_never_agrees_leaves_with_the_reason():
    desk = Desk(host_of(1))
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    wrong = msgspec.structs.replace(desk.host.updates[0], digest_after=b"x" * 16)
    desk.is_welcomed()
    for _ in range(3):
        desk.hears(desk.inbox, desk.host.signed("update", wrong))
    assert desk.left is not None
    assert desk.left.code == 6
    assert "3 times in a row" in desk.left.text


# Coming late, and credit.


def test_a_newcomer_to_an_old_run_takes_tasks_only_once_it_is_in_step():
    desk = Desk(host_of(4))
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    desk.is_welcomed()
    assert desk.host.hello is not None
    assert desk.host.hello.credit == 0
    assert desk.told(messages.CatchUp) == [messages.CatchUp(0)]
    assert desk.told(messages.Credit) == []
    assert "catching up from version 0 to 4" in desk.session.view(desk.now).idle_because
    for version in range(4):
        desk.hears(desk.inbox, desk.host.update(version))
    assert desk.told(messages.Credit) == [messages.Credit(2, 4, 1)]
    desk.is_told(desk.host.task())
    desk.obey(desk.session.finish(desk.now))
    assert desk.told(messages.Credit) == [messages.Credit(0, 4, 2)]


def test_each_connection_has_a_will_of_its_own():
    desk = Desk(host_of())
    handshake = desk.session.handshake
    wills = [handshake.begin_life() for _ in range(2)]
    context = (handshake.run, handshake.session)
    byes = [open_signed(will, WORKER.public_key, "status", context) for will in wills]
    assert byes == [messages.Bye("lost", 1), messages.Bye("lost", 2)]
    desk.welcomed()
    assert desk.host.hello is not None and desk.host.hello.life == 2


def test_updates_and_manifests_count_only_with_the_signature_of_the_run():
    desk = Desk(host_of(2))
    desk.welcomed()
    other = Host(SPEC, seed=9)
    manifest, _ = desk.host.snapshot()
    for label, message in (("update", desk.host.updates[0]), ("manifest", manifest)):
        for context in (desk.host.run, "other-00000000"):
            identity = other.identity if context == desk.host.run else desk.host.identity
            desk.hears(desk.inbox, signed(identity, label, (context,), message))
    assert desk.session.voice.ignored == 4
    assert desk.session.view(desk.now).version == 0
    assert desk.told(messages.ChunkRequest) == []
    desk.hears(desk.inbox, desk.host.signed("manifest", manifest))
    assert len(desk.told(messages.ChunkRequest)) == 1
    genuine = desk.host.signed("update", desk.host.updates[0])
    changed = bytearray(genuine)
    changed[-1] ^= 1
    desk.hears(desk.inbox, bytes(changed))
    assert desk.session.view(desk.now).version == 0
    for _ in range(2):  # said again it changes nothing
        desk.hears(desk.inbox, genuine)
        assert desk.session.view(desk.now).version == 1


def test_a_task_may_come_while_version_0_is_still_being_made():
    desk = Desk(host_of())
    desk.held_back = []
    desk.welcomed()
    assert desk.host.hello is not None
    assert desk.host.hello.credit == 2
    desk.is_told(desk.host.task())
    assert desk.jobs == []
    (begin,), desk.held_back = desk.held_back, None
    desk.follow(begin)
    assert len(desk.jobs) == 1
    assert desk.told(messages.Credit) == []


def test_a_notice_is_shown_and_one_that_sends_us_away_is_obeyed():
    desk = Desk(host_of(), credit=8)
    desk.welcomed()
    desk.is_told(messages.Notice("say", "the broker is full"))
    assert "the broker is full" in desk.warnings
    desk.is_told(messages.Notice("leave", "no more"))
    assert desk.left is not None
    assert (desk.left.code, said_bye(desk)) == (6, "left")


def test_a_silent_worker_gives_a_sign_of_life_and_a_talking_one_does_not():
    desk = Desk(host_of())
    desk.welcomed()
    desk.pass_time(31.0)
    signs = desk.told(messages.Status)
    assert [sign.state for sign in signs] == ["idle"] * 3
    desk.is_told(desk.host.task())
    desk.pass_time(11.0)
    assert [sign.state for sign in desk.told(messages.Status)] == ["busy"]


# Coming and going of the coordinator and the broker.


def test_after_a_reconnect_it_says_hello_and_sends_what_was_not_answered():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.finishes()
    (result,) = desk.told(messages.Result)
    desk.is_told(desk.host.task(first=2))
    old_key = desk.host.key
    desk.obey(desk.session.disconnected(desk.now))
    desk.pass_time(60.0, beats=False)
    assert desk.sent == []
    assert "no connection" not in desk.session.view(desk.now).idle_because  # it is busy
    desk.connected()
    desk.is_welcomed()
    assert desk.host.key != old_key
    assert desk.told(messages.Result) == [result]
    desk.finishes()
    assert [message.task for message in desk.told(messages.Result)] == [2]


def test_a_new_epoch_means_hello_again():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.finishes()
    desk.told(messages.Result)
    desk.pass_time(3.0)
    desk.host.number = 2
    desk.hears_epoch()
    desk.hears_beat()  # which alone would be no reason to hurry
    desk.pass_time(0.1)
    desk.is_welcomed()
    assert len(desk.told(messages.Result)) == 1


def test_more_speed_needs_no_other_hello_but_another_numeric_class_does():
    desk = Desk(host_of())
    desk.welcomed()
    desk.ready(speed=9000.0)
    desk.pass_time(5.0)
    assert desk.hellos() == []
    desk.obey(desk.session.can_evaluate(9000.0, b"d" * 16, desk.now))
    desk.pass_time(5.0)
    assert desk.hellos()


def test_every_lease_outlives_a_hello_which_names_it():
    desk = Desk(host_of())
    desk.welcomed()
    running, done = desk.host.task(), desk.host.task(first=2)
    desk.host.grow(1)
    waiting = desk.host.task()
    for task in (running, done, waiting):
        desk.is_told(task)
    desk.finishes(done.task)
    desk.begins_anew()
    assert desk.host.hello is not None
    assert [held.task for held in desk.host.hello.held] == [running.task, waiting.task, done.task]
    for held, task in zip(desk.host.hello.held, (running, waiting, done), strict=True):
        for name in messages.Held.__struct_fields__:
            assert getattr(held, name) == getattr(task, name)
    desk.hears_update(0)
    assert [job.task for job in desk.jobs] == [running.task, waiting.task]
    desk.is_told(running)  # who issues a lease again changes nothing
    desk.finishes()
    desk.finishes()
    results = {result.task: result.token for result in desk.told(messages.Result)}
    assert results == {task.task: task.token for task in (running, waiting, done)}


def test_a_coordinator_that_is_gone_is_waited_for_and_greeted_when_it_is_back():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(3.9, beats=False)
    assert desk.warnings == ""  # anybody may have said so
    desk.pass_time(0.2, beats=False)
    assert "gone" in desk.warnings
    desk.finishes()
    desk.pass_time(60.0, beats=False)
    assert desk.hellos() == []
    assert desk.told(messages.Result) == []
    assert desk.warnings.count("gone") == 1
    assert desk.session.view(desk.now).idle_because == "the host is gone"
    desk.hears_beat()
    assert "is back" in desk.warnings
    desk.pass_time(0.1)
    desk.is_welcomed()
    assert len(desk.told(messages.Result)) == 1


def test_a_forged_goodbye_of_the_coordinator_stops_nobody():
    desk = Desk(host_of())
    desk.welcomed()
    for _ in range(20):
        desk.hears_beat(desk.host.beat("lost"))
        desk.pass_time(2.0)  # with the true beats among them
    assert desk.warnings == ""
    assert desk.session.view(desk.now).idle_because != "the host is gone"
    desk.is_told(desk.host.task())
    desk.finishes()
    assert len(desk.told(messages.Result)) == 1
    assert len(desk.hellos()) <= 4


def test_silence_is_noticed():
    desk = Desk(host_of())
    desk.welcomed()
    desk.pass_time(9.0, beats=False)
    assert desk.warnings == ""
    desk.pass_time(2.0, beats=False)
    assert "nothing was heard from the host for 10 s" in desk.warnings
    desk.host.number = 2
    desk.hears_epoch()  # a new incarnation speaks before its first beat
    desk.pass_time(0.1, beats=False)
    assert len(desk.hellos()) == 1


def test_a_stale_announcement_does_not_pass_for_a_living_coordinator():
    desk = Desk(host_of())
    desk.welcomed()
    desk.hears_beat(desk.host.beat("lost"))
    desk.hears_epoch()  # retained, and delivered again
    desk.pass_time(5.0, beats=False)
    assert desk.hellos() == []


def test_forged_beats_cause_few_hellos():
    desk = Desk(host_of())
    desk.welcomed()
    for second in range(60):
        desk.hears_beat(desk.host.beat("lost"))
        desk.hears_beat(desk.host.beat(epoch=5 + second))
        desk.now += 1.0
        desk.obey(desk.session.tick(desk.now))
    assert len(desk.hellos()) <= 7


def test_who_is_never_answered_says_hello_again():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.finishes()
    desk.pass_time(50.0)
    assert len(desk.hellos()) >= 1


# Leaving.


def test_the_first_stop_finishes_what_runs_and_waits_for_the_answer():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.is_told(desk.host.task(first=2, version=1))
    already = len(desk.sent)
    desk.obey(desk.session.finish(desk.now))
    # No credit first: else what is handed back would come again at once.
    credit, refusal = (desk.host.unsealed(send.payload) for send in desk.sent[already:])
    assert credit == messages.Credit(0, 0, 1)
    assert isinstance(refusal, messages.Refusal)
    assert (refusal.task, refusal.cause) == (2, "handed-back")
    del desk.sent[already:]
    assert "Ctrl-C again" in desk.warnings
    desk.is_told(desk.host.task(first=4))
    assert [refusal.cause for refusal in desk.told(messages.Refusal)] == ["handed-back"]
    desk.pass_time(20.0)
    assert desk.left is None
    desk.finishes()
    assert desk.left is None
    desk.pass_time(1.0)
    desk.is_told(messages.Acknowledge((1,), "accepted"))
    assert desk.left is not None
    assert desk.left.code == 0
    desk.told(messages.Status)
    assert said_bye(desk) == "left"


def test_the_wait_for_answers_is_bounded():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.obey(desk.session.finish(desk.now))
    desk.finishes()
    desk.pass_time(4.9)
    assert desk.left is None
    desk.pass_time(0.3)
    assert desk.left is not None
    assert "no answer to 1 result within 5 s" in desk.left.text


def test_who_has_nothing_to_finish_leaves_at_once():
    desk = Desk(host_of())
    desk.obey(desk.session.finish(desk.now))
    assert desk.left == Leave(0, "left")
    desk = Desk(host_of())
    desk.welcomed()
    desk.obey(desk.session.finish(desk.now))
    assert desk.left is not None


def test_handing_back_returns_every_lease_and_says_goodbye():
    desk = Desk(host_of())
    desk.welcomed()
    desk.is_told(desk.host.task())
    desk.is_told(desk.host.task(first=2, version=1))
    desk.obey(desk.session.finish(desk.now))
    desk.obey(desk.session.hand_back(desk.now))
    assert desk.left is None
    desk.obey(desk.session.abandoned(1, desk.now))
    assert desk.told(messages.Credit) == [messages.Credit(0, 0, 1)]
    refusals = desk.told(messages.Refusal)
    assert {refusal.task for refusal in refusals} == {1, 2}
    assert {refusal.cause for refusal in refusals} == {"handed-back"}
    assert desk.abandoned == [1]
    assert said_bye(desk) == "left"
    assert desk.left is not None
    assert desk.left.code == 0
    assert desk.session.hand_back(desk.now) == []
    assert desk.session.evaluated(1, done(desk.jobs[0]), desk.now) == []


def test_a_missing_environment_ends_it_in_one_line():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.obey(desk.session.cannot_evaluate("no environment 'X': install it", desk.now))
    assert desk.left == Leave(4, "no environment 'X': install it")
    assert unable(desk) == "no environment 'X': install it"


def test_who_keeps_its_label_to_itself_keeps_its_reason_too() -> None:
    desk = Desk(host_of(), name="", device="")
    desk.connected()
    desk.hears_epoch()
    desk.obey(desk.session.cannot_evaluate("no environment 'X': install it", desk.now))
    assert desk.left == Leave(4, "no environment 'X': install it")
    assert unable(desk) == session.WITHHELD


def unable(desk: Desk) -> str:
    """What the host is told by the last hello, which says why its worker leaves."""
    hello = peek_signed(desk.sent[-1].payload)
    assert isinstance(hello, messages.Hello) and hello.credit == 0
    return hello.unable


# Hostile bytes.

RUN = host_of().run
HEARD = [
    topics.epoch(RUN),
    topics.beat(RUN),
    topics.update(RUN),
    topics.inbox(RUN, WORKER.worker, "aaaabb"),
    topics.snapshot(RUN, topics.peer("a" * 16, "aaaaaa"), topics.peer(WORKER.worker, "aaaabb")),
    "shoal/1/who",
    "somewhere/else",
]


def genuine(host: Host) -> list[bytes]:
    manifest, chunks = host.snapshot()
    return [
        host.epoch(),
        host.beat(),
        host.update(0),
        host.signed("manifest", manifest),
        plain(messages.Chunk(1, 0, chunks[0][:50])),
        host.sealed(host.task()),
        host.sealed(messages.Acknowledge((1,), "refused", "\x1b[31mred")),
        host.sealed(messages.Notice("say", "hello")),
        host.sealed(messages.Credit(1, 1, 1)),
        host.signed("update", messages.Who()),
        plain(messages.Here(host.run, host.identity.public_key, "X", "running")),
    ]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_bytes_on_any_topic_raise(data):
    desk = Desk(host_of(1))
    stage = data.draw(st.integers(0, 2))
    if stage:
        desk.connected()
        desk.hears_epoch()
    if stage == 2:
        desk.ready()
        desk.is_welcomed()
    desk.host.key = desk.host.key or b"k" * 32
    desk.host.worker, desk.host.session = WORKER.worker, "aaaabb"
    for _ in range(data.draw(st.integers(1, 6))):
        payload = data.draw(st.sampled_from(genuine(desk.host)) | st.binary(max_size=80))
        for _ in range(data.draw(st.integers(0, 2))):
            if payload:
                at = data.draw(st.integers(0, len(payload) - 1))
                byte = data.draw(st.integers(0, 255))
                payload = payload[:at] + bytes([byte]) + payload[at + 1 :]
        desk.hears(data.draw(st.sampled_from(HEARD)), payload)
        desk.pass_time(0.5)
    assert fingerprint(desk.host.identity.public_key) == desk.host.identity.fingerprint


@pytest.mark.parametrize("first", ["epoch", "beat"])
def test_a_host_that_slept_is_greeted_whatever_it_says_first(first: str) -> None:
    """It comes back to the broker as who it was, in the same epoch, with some news."""
    desk = Desk(host_of())
    desk.welcomed()
    desk.hears_beat()
    desk.pass_time(15.0, beats=False)
    desk.sent.clear()
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(15.0, beats=False)
    assert not desk.hellos()
    for word in (first, "epoch", "beat"):
        if word == "epoch":
            desk.hears_epoch(desk.host.epoch(reason="news"))
        else:
            desk.hears_beat()
    assert len(desk.hellos()) == 1
    assert [said.text for said in desk.said if "is back" in said.text] == ["the host is back"]
