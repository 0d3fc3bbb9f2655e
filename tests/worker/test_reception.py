from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import Chunk, ChunkRequest, Manifest
from protocol.proof import proof
from worker import reception as module
from worker.reception import AT_ONCE, COORDINATOR, PATIENCE, WINDOW, Reception, unusable

SMALL = 16  # bytes of a chunk here
VERSION = 64


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", SMALL)


def manifest_of(data: bytes, *servers: str, version: int = VERSION) -> Manifest:
    parts = [data[at : at + SMALL] for at in range(0, len(data), SMALL)]
    proved = proof(parts)
    return Manifest(version, proved.digest, *proved, servers)


def bytes_of(chunks: int) -> bytes:
    """So many chunks, the last one shorter than the others."""
    return Random(chunks).randbytes(SMALL * chunks - 5)


def name(number: int) -> str:
    return "a" * 16 + "-" + "bcdefghijk"[number] * 6


@dataclass
class Peer:
    """A server of some character, which sends a chunk every so many seconds."""

    data: bytes
    manner: str = "serves"  # or lies, stalls, drips (one chunk of a window), vanishes
    pace: float = 0.05
    gone_after: int = 5
    sent: int = 0
    ready: float = 0.0
    window: list[int] = field(default_factory=list)
    asked: list[ChunkRequest] = field(default_factory=list)

    def ask(self, request: ChunkRequest, now: float) -> None:
        self.asked.append(request)
        self.window = list(range(request.first, request.first + request.count))
        self.ready = now + self.pace

    def sends(self, now: float) -> Iterator[Chunk]:
        while self.window and now >= self.ready:
            index = self.window.pop(0)
            self.ready += self.pace
            if self.manner == "stalls" or (
                self.manner == "vanishes" and self.sent >= self.gone_after
            ):
                continue
            part = self.data[index * SMALL : (index + 1) * SMALL]
            if self.manner == "lies":
                part = bytes(len(part))
            if self.manner == "drips":
                self.window.clear()
            self.sent += 1
            yield Chunk(VERSION, index, part)


@dataclass
class Room:
    """A joiner among its servers."""

    reception: Reception
    peers: dict[str, Peer]
    now: float = 100.0
    wrong: int = 0

    def pass_time(self, seconds: float) -> None:
        """Until then, or until it is complete or deserted."""
        end = self.now + seconds
        while self.now < end and not (self.reception.complete or self.reception.deserted):
            self.turn()
            self.now += 0.1

    def turn(self) -> None:
        for server, request in self.reception.requests(self.now):
            assert request.count <= WINDOW
            assert request.version == VERSION
            peer = self.peers[server]
            # One window at a time: it has sent all it will of the one before, or is late.
            peer.ask(request, self.now)
        self.check()
        for peer in self.peers.values():
            for chunk in peer.sends(self.now):
                if not self.reception.take(chunk, self.now):
                    self.wrong += 1

    def check(self) -> None:
        servers = self.reception._servers
        assert sum(bool(server.window) for server in servers) <= AT_ONCE
        assert all(len(server.window) <= WINDOW for server in servers)
        owed = Counter(index for server in servers for index in server.window)
        assert all(times <= 2 for times in owed.values())


def room(chunks: int, **manners: str) -> Room:
    data = bytes_of(chunks)
    peers = {name(i): Peer(data, manner) for i, manner in enumerate(manners.values())}
    reception = Reception(manifest_of(data, *peers), Random(1))
    return Room(reception, peers)


manners = st.sampled_from(["serves", "lies", "stalls", "drips", "vanishes"])
peers = st.lists(
    st.tuples(manners, st.floats(0.01, 2.0), st.integers(0, 30)), min_size=1, max_size=8
)


@settings(max_examples=100, deadline=None)
@given(peers, st.integers(1, 90), st.integers(0, 2**32))
def test_the_exact_bytes_arrive_or_everybody_is_given_up(servers, chunks, seed):
    data = bytes_of(chunks)
    among = {
        name(i): Peer(data, manner, pace, gone_after)
        for i, (manner, pace, gone_after) in enumerate(servers)
    }
    there = Room(Reception(manifest_of(data, *among), Random(seed)), among)
    there.pass_time(2000.0)
    reception = there.reception
    honest = [key for key, peer in among.items() if peer.manner == "serves"]
    assert not set(honest) & set(reception.failed)
    if honest:
        assert reception.complete
    if reception.complete:
        assert reception.data == data
        assert reception.share == 1.0
        assert not reception.deserted
        assert reception.requests(there.now + 100.0) == []
    else:
        assert reception.deserted
        assert sorted(reception.failed) == sorted(among)
    assert len(reception.data) == len(data)


@settings(max_examples=50, deadline=None)
@given(st.integers(9, 60), st.integers(0, 8), st.integers(0, 2**32))
def test_what_is_here_is_kept_when_the_same_snapshot_is_offered_again(chunks, cut, seed):
    data = bytes_of(chunks)
    first = Peer(data, "vanishes", gone_after=cut)
    there = Room(Reception(manifest_of(data, name(0)), Random(seed)), {name(0): first})
    there.pass_time(60.0)
    assert there.reception.deserted
    assert there.reception.failed == (name(0),)
    there.reception.offer([])
    assert there.reception.failed == ()
    there.peers[COORDINATOR] = coordinator = Peer(data)
    there.pass_time(60.0)
    assert there.reception.data == data
    assert first.sent == cut
    assert coordinator.sent == chunks - cut


def test_no_chunk_comes_twice_while_all_servers_are_well():
    there = room(100, a="serves", b="serves", c="serves", d="serves", e="serves")
    there.pass_time(60.0)
    assert there.reception.complete
    assert there.wrong == 0
    sent = sorted(peer.sent for peer in there.peers.values())
    assert sent[0] == 0  # four at once, the fifth is not needed
    assert sent[1] >= 8
    assert sum(sent) == 100


def test_the_order_of_the_servers_is_left_to_chance():
    servers = [name(i) for i in range(8)]
    firsts = set()
    for seed in range(40):
        reception = Reception(manifest_of(bytes_of(9), *servers), Random(seed))
        firsts.add(reception.requests(0.0)[0][0])
    assert firsts == set(servers)


def test_one_server_of_two_that_is_gone_costs_little_time():
    there = room(16, a="serves", b="stalls")
    began = there.now
    there.pass_time(60.0)
    assert there.reception.complete
    assert there.now - began < 2.5  # its window is taken over long before it is given up


def test_a_slow_server_is_not_a_lost_one():
    there = room(16, a="serves")
    there.peers[name(0)].pace = PATIENCE - 0.5
    there.pass_time(200.0)
    assert there.reception.complete
    assert there.reception.failed == ()


def test_a_slow_line_is_not_the_servers_fault():
    """Windows of four servers come over it one after the other."""
    there = room(64, a="serves", b="serves", c="serves", d="serves")
    pipe: list[Chunk] = []
    for server, request in there.reception.requests(there.now):
        there.peers[server].ask(request, there.now)
    asked = there.now
    while not there.reception.complete:
        there.now += 0.8
        for server, request in there.reception.requests(there.now):
            there.peers[server].ask(request, there.now)
        for peer in there.peers.values():
            peer.ready = 0.0
            pipe += peer.sends(there.now)
        if pipe:
            there.reception.take(pipe.pop(0), there.now)
        assert there.now - asked < 100.0
    assert there.reception.failed == ()


def test_after_an_interruption_the_same_servers_are_asked_at_once():
    there = room(12, a="serves")
    ((_, first),) = there.reception.requests(0.0)
    there.reception.take(Chunk(VERSION, 0, there.peers[name(0)].data[:SMALL]), 0.1)
    assert there.reception.requests(0.2) == []
    there.reception.interrupted()
    assert (first.first, first.count) == (0, 8)
    assert there.reception.requests(0.3) == [(name(0), ChunkRequest(VERSION, 1, 8))]


def test_chunks_of_another_version_or_out_of_range_count_for_nothing():
    there = room(3, a="serves")
    part = there.peers[name(0)].data[:SMALL]
    assert not there.reception.take(Chunk(VERSION + 1, 0, part), 0.0)
    assert not there.reception.take(Chunk(VERSION, 3, part), 0.0)
    assert not there.reception.take(Chunk(VERSION, 1, part), 0.0)
    assert there.reception.take(Chunk(VERSION, 0, part), 0.0)
    assert not there.reception.take(Chunk(VERSION, 0, part), 0.0)
    assert there.reception.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "change",
    [
        {"total": 10},
        {"chunks": b"c" * 16},
        {"digest": b"d" * 16},
        {"servers": (name(0), "shoal/1/#")},
    ],
)
def test_an_impossible_manifest_is_of_no_use(change):
    data = bytes_of(3)
    manifest = manifest_of(data, name(0))
    assert unusable(manifest, len(data)) == ""
    assert unusable(msgspec.structs.replace(manifest, **change), len(data)) != ""
