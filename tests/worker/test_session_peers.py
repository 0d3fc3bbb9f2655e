"""What a session makes of the coordinator's wishes and of what strangers ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import messages, topics
from protocol.envelope import open_plain, plain
from protocol.frozen import Frozen
from protocol.proof import Proof
from tests.worker.test_session import WORKER, Desk, host_of
from worker import session
from worker.handshake import Handshake
from worker.serving import Discard, Freeze, Keep
from worker.session import Session

US = topics.peer(WORKER.worker, "aaaabb")
JOINER = "j" * 16 + "-" + "k" * 6


@dataclass
class Neighbour(Desk):
    """A session whose volunteer grants peers something."""

    shelf: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        handshake = Handshake(self.host.run, WORKER, "aaaabb", self.expected)
        chosen = session.Settings(self.credit, "tester", "cpu x1", False, upload_limit=1e9)
        self.session = Session(handshake, chosen, Random(5))

    def follow(self, command: Any) -> None:
        if isinstance(command, Freeze | Keep | Discard):
            self.shelf.append(command)
        else:
            super().follow(command)

    def is_asked(self, message: messages.Message, server: str = US, joiner: str = JOINER) -> None:
        self.hears(topics.ask(self.host.run, server, joiner), plain(message))

    def freezes(self, version: int, chunks: int = 3) -> None:
        frozen = Frozen(
            Path("/nowhere"), version, Proof(chunks * messages.CHUNK, bytes(16 * chunks))
        )
        self.obey(self.session.held(frozen, self.now))

    def gives(self) -> list[bytes]:
        """What a joiner gets in the next moments, chunks by their index."""
        given: list[bytes] = []
        while (turn := self.session.serving.turn(self.now)) is not None:
            given.append(getattr(turn, "update", None) or bytes([turn.index]))  # type: ignore[union-attr]
        return given


def test_the_coordinators_wish_is_frozen_and_told_to_every_coordinator():
    desk = Neighbour(host_of())
    desk.welcomed()
    desk.is_told(messages.Serve(2))
    for version in range(2):
        desk.host.grow(1)
        desk.hears_update(version)
    (freeze,) = desk.shelf
    assert freeze.state.version == 2
    assert desk.told(messages.Holding) == []
    desk.freezes(2)
    assert desk.told(messages.Holding) == [messages.Holding(2)]
    desk.obey(desk.session.disconnected(desk.now))
    desk.connected()
    desk.pass_time(1.5)
    desk.is_welcomed()
    assert desk.told(messages.Holding) == [messages.Holding(2)]


def test_a_disk_that_is_full_is_said_once_and_ends_nothing():
    desk = Neighbour(host_of())
    desk.welcomed()
    desk.is_told(messages.Serve(0))
    assert len(desk.shelf) == 1
    desk.obey(desk.session.not_held("can't keep the snapshot: No space left", desk.now))
    assert "No space left" in desk.warnings
    assert desk.left is None
    desk.is_told(messages.Serve(0))
    assert len(desk.shelf) == 2


def test_strangers_get_chunks_and_updates_and_an_answer():
    desk = Neighbour(host_of(3))
    desk.welcomed()
    for version in range(3):
        desk.hears_update(version)
    desk.freezes(2)
    desk.is_asked(messages.ChunkRequest(2, 1, 64))
    assert desk.gives() == [b"\1", b"\2"]
    desk.is_asked(messages.CatchUp(1))
    assert desk.gives() == [desk.host.update(1), desk.host.update(2)]
    desk.is_asked(messages.Latest(1), topics.ALL)
    desk.sent.clear()
    desk.pass_time(0.5)
    answer = desk.take_sent("snap")
    assert answer.topic == topics.snapshot(desk.host.run, US, JOINER)
    assert open_plain(answer.payload) == messages.Reached(3, 1)


def test_where_our_state_was_not_the_runs_nobody_gets_anything():
    desk = Neighbour(host_of(3))
    desk.welcomed()
    desk.hears_update(0)
    desk.freezes(1)
    desk.is_asked(messages.ChunkRequest(1, 0, 8))
    desk.is_told(desk.host.task(version=1, digest=b"z" * 16))
    assert desk.shelf == [Discard(1)]
    assert desk.gives() == []
    desk.is_asked(messages.CatchUp(0))
    assert desk.gives() == []


def test_nobody_is_answered_in_our_own_name():
    desk = Neighbour(host_of(3))
    desk.welcomed()
    for version in range(3):
        desk.hears_update(version)
    desk.is_asked(messages.CatchUp(1), joiner=US)
    assert desk.gives() == []


asked = st.one_of(
    st.builds(messages.ChunkRequest, st.integers(0, 2**40), st.integers(0, 2**20), st.just(64)),
    st.builds(messages.CatchUp, st.integers(0, 2**40)),
    st.builds(messages.Latest, st.integers(0, 2**40)),
    st.builds(messages.ChunkRequest, st.integers(0, 3), st.integers(0, 5), st.integers(1, 64)),
    st.builds(messages.CatchUp, st.integers(0, 4)),
    st.builds(messages.Latest, st.integers(0, 4)),
    st.just(messages.Who()),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(asked, st.booleans(), st.integers(0, 31)), max_size=40), st.integers(0, 3)
)
def test_whatever_strangers_ask_nothing_is_raised_and_little_is_kept(requests, updates):
    desk = Neighbour(host_of(3))
    desk.welcomed()
    for version in range(updates):
        desk.hears_update(version)
    desk.freezes(updates)
    for message, everybody, number in requests:
        joiner = "j" * 16 + "-" + "abcdefghijklmnopqrstuvwxyz234567"[number] * 6
        desk.is_asked(message, topics.ALL if everybody else US, joiner)
        desk.hears(topics.ask(desk.host.run, US, joiner), b"\0" + bytes([number]))
        serving = desk.session.serving
        assert len(serving._orders) <= 16
        assert len(serving._replies) <= 8
    desk.pass_time(1.0)
    given = desk.gives()
    assert len(given) <= 16 * 8
    assert desk.left is None
