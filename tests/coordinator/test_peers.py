"""Who is let in, with which key, and what becomes of those who leave."""

from __future__ import annotations

import msgspec
import pytest

from coordinator import peers
from coordinator.peers import Leader, Peers
from coordinator.pool.events import SessionId
from protocol.envelope import open_signed, peek_signed, signed
from protocol.identity import (
    Identity,
    SessionKeys,
    Transcript,
    key_digest,
    new_nonce,
    new_session,
    run_id,
)
from protocol.messages import Bye, Credit, Hello, Message, Status, Welcome
from protocol.packing import WireError
from protocol.spec import PROTOCOL_VERSION

HOST = Identity(bytes(range(32)))
RUN = run_id("test", HOST.public_key)
LEADER = Leader.of_own(RUN, HOST, 7)
DIGEST = b"d" * 16


class Worker:
    """Makes what a worker's session says."""

    def __init__(self) -> None:
        self.identity = Identity.generate()
        self.id = SessionId(self.identity.worker, new_session())
        self.keys: dict[bytes, SessionKeys] = {}

    def hello(self, **changes: object) -> Hello:
        keys, nonce = SessionKeys.generate(), new_nonce()
        self.keys[nonce] = keys
        hello = Hello(
            PROTOCOL_VERSION,
            "0",
            self.identity.public_key,
            keys.public_key,
            nonce,
            "n",
            "d",
            2,
            0.0,
        )
        return msgspec.structs.replace(hello, **changes)

    def signed(self, message: Message, label: str = "hello") -> bytes:
        return signed(self.identity, label, (RUN, self.id.session), message)

    def key(self, answer: bytes) -> bytes:
        """The session key that the welcome leads to."""
        context = (RUN, self.id.worker, self.id.session)
        welcome = open_signed(answer, HOST.public_key, "welcome", context)
        assert isinstance(welcome, Welcome)
        return self.keys[welcome.nonce].agree(
            Transcript(
                run=RUN,
                epoch=welcome.epoch,
                session=self.id.session,
                worker_key=self.identity.public_key,
                host_key=HOST.public_key,
                worker_exchange=self.keys[welcome.nonce].public_key,
                host_exchange=welcome.exchange_key,
                worker_nonce=welcome.nonce,
            )
        )


def greet(everybody: Peers, worker: Worker, payload: bytes) -> peers.Greeting:
    return everybody.greet(worker.id, payload, 5, DIGEST)


def test_both_sides_of_a_welcome_have_the_same_key() -> None:
    everybody, worker = Peers(LEADER), Worker()
    greeting = greet(everybody, worker, worker.signed(worker.hello()))
    peer = everybody.get(worker.id)
    assert peer is not None and not greeting.refused
    assert peer.session_key == worker.key(greeting.answer)
    context = (RUN, worker.id.worker, worker.id.session)
    welcome = open_signed(greeting.answer, HOST.public_key, "welcome", context)
    assert isinstance(welcome, Welcome)
    assert (welcome.epoch, welcome.version, welcome.digest) == (7, 5, DIGEST)


def test_a_welcome_tells_on_which_topics_its_session_was_heard_trying() -> None:
    everybody, worker, other = Peers(LEADER), Worker(), Worker()

    def heard(of: Worker) -> object:
        welcome = peek_signed(greet(everybody, of, of.signed(of.hello())).answer)
        assert isinstance(welcome, Welcome)
        return welcome.heard

    assert heard(worker) == ()
    for kind in ("status", "req", "status", "elsewhere"):
        everybody.tried(worker.id, kind)
    assert heard(worker) == ("status",)
    everybody.tried(worker.id, "results")
    assert heard(worker) == ("status", "results")
    assert heard(other) == ()


def test_new_hello_of_a_session_makes_a_new_key() -> None:
    everybody, worker = Peers(LEADER), Worker()
    answers = [greet(everybody, worker, worker.signed(worker.hello())).answer for _ in range(3)]
    keys = [worker.key(answer) for answer in answers]
    peer = everybody.get(worker.id)
    assert peer is not None and peer.session_key == keys[-1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize("gone", [False, True])
def test_hello_that_came_before_changes_no_key(gone: bool) -> None:
    everybody, worker = Peers(LEADER), Worker()
    hellos = [worker.signed(worker.hello()) for _ in range(3)]
    for hello in hellos:
        greet(everybody, worker, hello)
    peer = everybody.get(worker.id)
    if gone:
        everybody.leave(worker.id)
    for hello in hellos:
        with pytest.raises(WireError, match="came before"):
            greet(everybody, worker, hello)
    assert everybody.get(worker.id) == peer


def test_nonces_kept_are_bounded() -> None:
    everybody, worker = Peers(LEADER), Worker()
    for _ in range(peers.NONCES_KEPT + 20):
        greet(everybody, worker, worker.signed(worker.hello()))
    peer = everybody.get(worker.id)
    assert peer is not None and len(peer.nonces) == peers.NONCES_KEPT


def test_hello_of_a_key_that_gives_no_secret_is_no_hello() -> None:
    everybody, worker = Peers(LEADER), Worker()
    with pytest.raises(WireError, match="useless key"):
        greet(everybody, worker, worker.signed(worker.hello(exchange_key=bytes(32))))
    assert everybody.get(worker.id) is None


def test_hello_must_be_the_workers_own() -> None:
    everybody, worker, other = Peers(LEADER), Worker(), Worker()
    theirs = other.hello()
    for payload, reason in (
        (signed(other.identity, "hello", (RUN, worker.id.session), theirs), "another worker's"),
        (worker.signed(other.hello()), "another worker's"),
        (signed(other.identity, "hello", (RUN, worker.id.session), worker.hello()), "signature"),
        (signed(worker.identity, "hello", ("x", worker.id.session), worker.hello()), "signature"),
        (signed(worker.identity, "hello", (RUN, "aaaaaa"), worker.hello()), "signature"),
        (worker.signed(worker.hello(), label="status"), "signature"),
        (worker.signed(Status("idle", 0)), "not a hello"),
    ):
        with pytest.raises(WireError, match=reason):
            greet(everybody, worker, payload)
    assert everybody.get(worker.id) is None


@pytest.mark.parametrize(("change", "remedy"), [(-1, "the worker"), (1, "the host")])
def test_other_protocol_is_refused_with_the_remedy(
    change: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PROTOCOL_VERSION", 5)
    everybody, worker = Peers(LEADER), Worker()
    greeting = greet(everybody, worker, worker.signed(worker.hello(protocol=5 + change)))
    assert greeting.refused == f"protocol {5 + change} is spoken there, 5 here: upgrade {remedy}"
    assert everybody.get(worker.id) is None
    context = (RUN, worker.id.worker, worker.id.session)
    welcome = open_signed(greeting.answer, HOST.public_key, "welcome", context)
    assert isinstance(welcome, Welcome) and welcome.refused == greeting.refused


def test_more_sessions_than_there_is_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 3)
    everybody = Peers(LEADER)
    workers = [Worker() for _ in range(5)]
    refused = [
        greet(everybody, worker, worker.signed(worker.hello())).refused for worker in workers
    ]
    assert [bool(reason) for reason in refused] == [False] * 3 + [True] * 2
    # Who is here may say hello again, and a place that is free is taken.
    assert not greet(everybody, workers[0], workers[0].signed(workers[0].hello())).refused
    everybody.leave(workers[1].id)
    assert not greet(everybody, workers[4], workers[4].signed(workers[4].hello())).refused


def test_there_is_always_room_for_who_may_lead_after_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 1)
    delegate, first, second = Worker(), Worker(), Worker()
    digests = [key_digest(delegate.identity.public_key)]
    authority = LEADER.authority.amended(HOST, 1, HOST.public_key, digests)
    everybody = Peers(Leader(RUN, HOST, 7, authority))
    greetings = [
        greet(everybody, worker, worker.signed(worker.hello()))
        for worker in (first, second, delegate)
    ]
    assert [bool(greeting.refused) for greeting in greetings] == [False, True, False]


def test_who_left_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 3)
    everybody = Peers(LEADER)
    workers = [Worker() for _ in range(5)]
    for worker in workers:
        greet(everybody, worker, worker.signed(worker.hello()))
        everybody.leave(worker.id)
    known = [everybody.get(worker.id) is not None for worker in workers]
    assert known == [False, False, True, True, True]


def test_goodbye_of_an_earlier_connection_says_nothing_of_a_later_one() -> None:
    """The will of one that is thought lost comes late, or somebody says it again."""
    everybody, worker = Peers(LEADER), Worker()
    wills = [worker.signed(Bye("lost", life), label="status") for life in range(4)]
    for life in (1, 2):
        greet(everybody, worker, worker.signed(worker.hello(life=life)))
    for will in wills[:2]:
        with pytest.raises(WireError, match="2 is there"):
            everybody.read_bye(worker.id, will)
    # Of the third nothing else was heard: it was lost too, and so is the second.
    assert [everybody.read_bye(worker.id, will).life for will in wills[2:]] == [2, 3]
    everybody.leave(worker.id)
    with pytest.raises(WireError, match="2 is there"):
        everybody.read_bye(worker.id, wills[1])


def test_credit_that_was_said_before_is_not_heard_again() -> None:
    everybody, worker = Peers(LEADER), Worker()
    greet(everybody, worker, worker.signed(worker.hello()))
    for number in (1, 2, 5):
        everybody.take_credit(worker.id, Credit(2, 0, number))
    for number in (1, 4, 5):
        with pytest.raises(WireError, match="5 was here"):
            everybody.take_credit(worker.id, Credit(0, 0, number))
    greet(everybody, worker, worker.signed(worker.hello()))
    everybody.take_credit(worker.id, Credit(2, 0, 1))  # under another key: nobody can repeat it


def test_goodbye_must_be_the_sessions_own() -> None:
    everybody, worker, other = Peers(LEADER), Worker(), Worker()
    bye = worker.signed(Bye("left"), label="status")
    with pytest.raises(WireError, match="stranger"):
        everybody.read_bye(worker.id, bye)
    greet(everybody, worker, worker.signed(worker.hello()))
    assert everybody.read_bye(worker.id, bye) == Bye("left")
    for payload in (
        signed(other.identity, "status", (RUN, worker.id.session), Bye("left")),
        signed(worker.identity, "status", (RUN, "aaaaaa"), Bye("left")),
        worker.signed(Bye("left"), label="hello"),
        worker.signed(Status("idle", 0), label="status"),
    ):
        with pytest.raises(WireError):
            everybody.read_bye(worker.id, payload)


def test_who_is_gone_is_reminded_now_and_then() -> None:
    everybody, worker = Peers(LEADER), Worker()
    assert not everybody.should_remind(worker.id, 0.0)
    greet(everybody, worker, worker.signed(worker.hello()))
    assert not everybody.should_remind(worker.id, 0.0)
    everybody.leave(worker.id)
    asked = [now for now in range(20) if everybody.should_remind(worker.id, float(now))]
    assert asked == [0, 5, 10, 15]
    greet(everybody, worker, worker.signed(worker.hello()))
    assert not everybody.should_remind(worker.id, 30.0)
