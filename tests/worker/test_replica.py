from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import waiting
from protocol.amended import MOST_BYTES, Amended
from protocol.errors import ShoalError
from protocol.messages import CatchUp, Chunk, ChunkRequest, Cohort, Manifest, Update
from protocol.proof import cut, proof
from protocol.snapshot import state_digest, to_bytes
from protocol.spec import RunSpec
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from worker import replica as module
from worker.following import Follower
from worker.replica import (
    Apply,
    Ask,
    Begin,
    Command,
    Dropped,
    Followed,
    Forget,
    GiveUp,
    Replica,
    Restore,
    Restored,
    Tell,
)

LENGTH = 12
PAYLOAD = bytes(300)
SLOW = settings(max_examples=50, deadline=None)


def small(**sections: object) -> RunSpec:
    return run_spec(
        "CartPole-v1",
        **{"policy": {"kind": "linear"}, **sections},
        strategy={"population": 16},
        normalizer={"enabled": True},
    )


def wide() -> RunSpec:
    """A run whose snapshots have several windows of chunks."""
    return run_spec("CartPole-v1", policy={"hidden": [30_000]}, strategy={"population": 2})


HOST = Host(small())
HOST.grow(LENGTH)
FORK = Host(small())
FORK.grow(5)
FORK.number = 2
FORK._random.integers(0, 10, 3)  # another way from here on
FORK.grow(4)
WIDE = Host(wide())
WIDE.grow(3)
GIVEN = Host(small())
GIVEN.grow(1)
GIVEN.states = [dataclasses.replace(GIVEN.states[1], version=0)]  # where another run was
GIVEN.updates.clear()
GIVEN.spec = small(
    policy={
        "kind": "linear",
        "initialisation": "given",
        "initial_digest": state_digest(GIVEN.states[0]).hex(),
    }
)
GIVEN.grow(4)
FOLLOWERS = {host: Follower(host.spec) for host in (HOST, FORK, WIDE, GIVEN)}
PEERS = ["a" * 16 + "-" + letter * 6 for letter in "bcdef"]
PEER, OTHER = PEERS[:2]


@dataclass
class World:
    """A replica, its slow work done at once or kept back, and the time."""

    host: Host
    now: float = 1000.0
    lazy: bool = False
    asked: list[tuple[float, CatchUp | ChunkRequest]] = field(default_factory=list)
    of_peers: list[tuple[str, ChunkRequest]] = field(default_factory=list)
    reached: list[Followed | Restored] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    jobs: list[Begin | Apply | Restore] = field(default_factory=list)
    dropped: int = 0
    gave_up: str = ""

    def __post_init__(self) -> None:
        spec = self.host.spec
        initial = bytes.fromhex(spec.policy.initial_digest)
        self.replica = Replica(spec.versions_kept, Random(3), initial)
        self.obey(self.replica.tick(self.now))

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Ask() if command.server:
                    assert isinstance(command.message, ChunkRequest)
                    self.of_peers.append((command.server, command.message))
                case Followed() | Restored():
                    self.reached.append(command)
                case Ask():
                    self.asked.append((self.now, command.message))
                case Tell():
                    self.told.append(command.text)
                case Forget():
                    self.forgotten.append(command.version)
                case Dropped():
                    self.dropped += 1
                case GiveUp():
                    self.gave_up = command.reason
                case _ if self.lazy:
                    self.jobs.append(command)
                case _:
                    self.work(command)

    def work(self, job: Begin | Apply | Restore) -> None:
        follower, replica = FOLLOWERS[self.host], self.replica
        try:
            if isinstance(job, Begin):
                step = follower.begin()
                self.obey(replica.begun(job.ticket, step, follower.snapshot_bytes, self.now))
                return
            if isinstance(job, Apply):
                step = follower.apply(job.before, job.update)
            else:
                step = follower.restore(job.data, job.version)
        except Exception as error:
            self.obey(replica.failed(job.ticket, error, self.now))
        else:
            self.obey(replica.advanced(job.ticket, step, self.now))

    def update(self, version: int, host: Host | None = None) -> None:
        update = (host or self.host).updates[version]
        if self.replica.wants(version):
            self.obey(self.replica.update(update, PAYLOAD, self.now))

    def known(self, version: int, host: Host | None = None) -> None:
        self.obey(self.replica.known(version, (host or self.host).digest(version), self.now))

    def welcomed(self) -> None:
        host = self.host
        self.obey(self.replica.welcomed(host.version, host.digest(), self.now))

    def pass_time(self, seconds: float, answer: Callable[[], None] = lambda: None) -> None:
        """Tick every tenth of a second; whatever is asked may be answered."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.obey(self.replica.tick(self.now))
            answer()

    @property
    def digest(self) -> bytes:
        return self.replica.points[self.replica.version].digest

    @property
    def arrived(self) -> bool:
        return self.replica.version == self.host.version and self.digest == self.host.digest()


def answering(world: World, loses: Callable[[], bool] = lambda: False) -> Callable[[], None]:
    """A coordinator that sends the missed updates, some of which get lost."""
    done = [0]

    def answer() -> None:
        for _, request in world.asked[done[0] :]:
            assert isinstance(request, CatchUp)
            for version in range(request.version, world.host.version):
                if not loses():
                    world.update(version)
        done[0] = len(world.asked)

    return answer


# Updates.


def test_it_begins_at_the_version_that_the_spec_defines():
    world = World(HOST)
    assert world.replica.version == 0
    assert world.digest == HOST.digest(0)
    assert not world.replica.behind


@SLOW
@given(
    deliveries=st.lists(st.integers(0, LENGTH - 1), max_size=40),
    seed=st.integers(0, 2**32),
    losses=st.floats(0.0, 0.5),
    lazy=st.booleans(),
)
def test_drops_duplicates_and_reorders_end_at_the_right_hash(deliveries, seed, losses, lazy):
    """Whatever came in whatever order: once answers arrive at all, we are where the host is."""
    world, fate = World(HOST), Random(seed)
    world.lazy = lazy

    def work_off() -> None:
        while world.jobs and fate.random() < 0.7:
            world.work(world.jobs.pop(0))

    for version in deliveries:
        world.update(version)
        work_off()
    contiguous = 0
    while contiguous in deliveries:
        contiguous += 1
    if not lazy:
        assert world.replica.version == contiguous
    world.welcomed()
    respond = answering(world, lambda: fate.random() < losses)

    def answer() -> None:
        work_off()
        respond()

    for _ in range(60):
        world.pass_time(5.0, answer)
        if world.arrived:
            break
    assert world.arrived
    assert not world.dropped
    assert not world.gave_up
    asked_when_there = len(world.asked)
    world.pass_time(60.0, answer)
    assert len(world.asked) == asked_when_there


@SLOW
@given(st.lists(st.integers(0, LENGTH - 1), max_size=30), st.booleans())
def test_a_gap_that_nobody_fills_is_asked_for_at_a_bounded_rate(deliveries, welcome):
    world = World(HOST)
    if welcome:
        world.welcomed()
    for version in deliveries:
        world.update(version)
    world.pass_time(120.0)
    if not welcome:
        assert world.asked == []  # nobody would hear it
        return
    assert not world.arrived or set(deliveries) == set(range(LENGTH))
    if not world.arrived:
        assert 8 <= len(world.asked) <= 30
        assert {request.version for _, request in world.asked[-3:]} == {world.replica.version}


def test_a_newcomer_asks_at_once_and_says_that_it_has_nothing():
    world = World(HOST)
    world.welcomed()
    assert world.asked == [(1000.0, CatchUp(0))]
    answering(world)()
    assert world.arrived


def test_a_task_may_overtake_its_update_without_a_question():
    world = World(HOST)
    world.obey(world.replica.welcomed(0, HOST.digest(0), world.now))
    world.known(1)
    assert world.replica.behind
    assert world.replica.standing(1, HOST.digest(1)) == "ahead"
    world.pass_time(0.1)
    world.update(0)
    assert world.replica.standing(1, HOST.digest(1)) == "ready"
    world.pass_time(5.0)
    assert world.asked == []


def test_a_version_that_does_not_come_is_asked_for_after_some_grace():
    world = World(HOST)
    world.obey(world.replica.welcomed(0, HOST.digest(0), world.now))
    world.update(0)
    world.known(3)
    world.pass_time(1.0)
    assert [request for _, request in world.asked] == [CatchUp(1)]
    assert 1000.2 <= world.asked[0][0] <= 1000.5


def test_answers_that_keep_coming_are_not_asked_for_again():
    world = World(HOST)
    world.welcomed()
    for version in range(LENGTH):
        world.pass_time(0.3)
        world.update(version)
    assert len(world.asked) == 1


def test_an_answer_that_is_only_a_part_is_soon_asked_to_go_on():
    """A coordinator sends so many updates at a time."""
    world = World(HOST)
    world.welcomed()
    for version in range(5):
        world.update(version)
    world.pass_time(0.7)
    assert [request for _, request in world.asked] == [CatchUp(0), CatchUp(5)]


def test_hints_without_proof_are_followed_but_not_for_ever():
    world = World(HOST)
    world.obey(world.replica.welcomed(0, HOST.digest(0), world.now))

    def forge() -> None:
        world.obey(world.replica.hinted(2**40, world.now))

    world.pass_time(200.0, forge)
    assert 3 <= len(world.asked) <= 15
    assert not world.replica.behind  # tasks go on meanwhile
    world.update(0)
    assert world.replica.version == 1


def test_a_beat_finds_the_last_update_missing():
    world = World(HOST)
    world.obey(world.replica.welcomed(0, HOST.digest(0), world.now))
    world.obey(world.replica.hinted(1, world.now))
    world.pass_time(0.6)
    assert [request for _, request in world.asked] == [CatchUp(0)]


def test_updates_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr(waiting, "MOST", 4)
    world = World(HOST)
    for version in range(LENGTH - 1, 0, -1):
        world.update(version)
    assert [one for one in range(LENGTH) if one in world.replica._waiting] == [1, 2, 3, 4]
    world.update(0)  # the newest makes room for it
    assert world.replica.version == 4


# What is kept.


def test_recent_versions_are_kept_and_older_ones_forgotten():
    world = World(HOST)
    kept = HOST.spec.versions_kept
    for version in range(LENGTH):
        world.update(version)
    assert sorted(world.replica.points) == list(range(LENGTH - kept + 1, LENGTH + 1))
    assert world.forgotten == list(range(LENGTH - kept + 1))
    oldest = LENGTH - kept + 1
    assert world.replica.standing(oldest, HOST.digest(oldest)) == "ready"
    assert world.replica.standing(oldest - 1, HOST.digest(oldest - 1)) == "gone"
    assert world.replica.standing(LENGTH, bytes(16)) == "differs"


def test_a_pinned_version_stays_until_the_last_pin_is_out():
    world = World(HOST)
    world.replica.pin(0)
    world.replica.pin(0)
    for version in range(LENGTH):
        world.update(version)
    assert 0 in world.replica.points
    world.obey(world.replica.unpin(0, world.now))
    assert 0 in world.replica.points
    world.obey(world.replica.unpin(0, world.now))
    assert 0 not in world.replica.points
    assert world.forgotten[-1] == 0


def test_every_version_is_evaluated_with_its_own_sigma_and_normalisation():
    world = World(HOST)
    for version in range(LENGTH):
        world.update(version)
    for version, point in world.replica.points.items():
        expected = HOST.states[version]
        assert point.sigma == expected.sigma
        assert (point.theta == expected.theta).all()
        assert point.normalization is not None
        assert expected.normalizer is not None
        assert (point.normalization.shift == expected.normalizer.measure()[0]).all()
        assert (point.normalization.mean == expected.normalizer.policy_input()[0]).all()


# Other parameters than the run's.


def lying(version: int) -> Update:
    return msgspec.structs.replace(HOST.updates[version], digest_after=b"x" * 16)


def test_a_wrong_hash_is_said_and_the_state_fetched_afresh():
    world = World(HOST)
    world.welcomed()
    for version in range(4):
        world.update(version)
    world.obey(world.replica.update(lying(4), PAYLOAD, world.now))
    assert world.dropped == 1
    wrong, right = (b"x" * 16).hex(), HOST.digest(5).hex()
    assert wrong in world.told[0]
    assert right in world.told[0]
    assert [request for _, request in world.asked][-1] == CatchUp(0)
    assert sorted(world.forgotten) == [0, 1, 2, 3, 4]
    answering(world)()
    assert world.arrived
    assert not world.gave_up


def test_three_in_a_row_are_enough():
    world = World(HOST)
    world.welcomed()
    for time in range(3):
        assert not world.gave_up, time
        for version in range(4):
            world.update(version)
        world.obey(world.replica.update(lying(4), PAYLOAD, world.now))
    assert world.dropped == 2
    assert "3 times in a row" in world.gave_up
    assert world.replica.tick(world.now + 1000.0) == []


def test_mismatches_far_apart_do_not_add_up():
    world = World(HOST)
    world.welcomed()
    for at in (2, 4, 6):
        for version in range(at):
            world.update(version)
        world.obey(world.replica.update(lying(at), PAYLOAD, world.now))
        for version in range(at + 1):
            world.update(version)
        assert world.replica.version == at + 1
    assert world.dropped == 3
    assert not world.gave_up


def test_another_version_0_than_ours_ends_it():
    world = World(HOST)
    for _ in range(3):
        world.obey(world.replica.welcomed(0, b"y" * 16, world.now))
    assert (b"y" * 16).hex() in world.gave_up


def test_a_proved_digest_is_held_against_ours_now_and_later():
    world = World(HOST)
    world.welcomed()
    world.update(0)
    world.obey(world.replica.known(1, b"z" * 16, world.now))
    assert world.dropped == 1
    world.obey(world.replica.known(3, b"z" * 16, world.now))
    for version in range(3):
        world.update(version)
    assert world.dropped == 2


def test_a_run_that_went_far_back_is_followed_there():
    """Further than the versions that are kept, so no digest tells."""
    world = World(HOST)
    for version in range(LENGTH):
        world.update(version)
    back = LENGTH - len(world.replica.points) - 1
    world.obey(world.replica.welcomed(back, HOST.digest(back), world.now))
    assert world.dropped == 1
    assert f"went back to version {back} from {LENGTH}" in world.told[-1]
    for version in range(back):
        world.update(version)
    assert (world.replica.version, world.dropped) == (back, 1)
    assert not world.replica.behind


def test_a_run_that_went_a_little_back_keeps_what_it_has():
    world = World(HOST)
    for version in range(LENGTH):
        world.update(version)
    world.obey(world.replica.welcomed(LENGTH - 1, HOST.digest(LENGTH - 1), world.now))
    assert world.dropped == 0


def test_a_run_that_went_another_way_is_followed_there():
    """The host went back and made other versions, in a later epoch."""
    world = World(FORK)
    for version in range(8):
        world.update(version, HOST)
    assert world.replica.version == 8
    world.update(5)
    assert world.dropped == 1
    world.welcomed()
    answering(world)()
    assert world.arrived
    for version in range(LENGTH):
        world.update(version, HOST)  # the old way, once more: of no interest
    assert world.arrived
    assert world.dropped == 1
    assert not world.replica.behind


def test_a_leader_of_the_past_proves_nothing_of_how_far_the_run_is():
    world = World(HOST)
    world.obey(world.replica.welcomed(0, HOST.digest(0), world.now))
    world.replica.led(2)
    world.update(5)
    assert not world.replica.behind
    world.replica.led(1)
    later = msgspec.structs.replace(HOST.updates[6], epoch=2)
    world.obey(world.replica.update(later, PAYLOAD, world.now))
    assert world.replica.behind


def test_work_on_a_dropped_state_is_void():
    world = World(HOST)
    world.welcomed()
    world.update(0)
    world.lazy = True
    world.update(1)
    (job,) = world.jobs
    world.obey(world.replica.known(1, b"z" * 16, world.now))
    world.work(job)
    assert world.replica.version == 0
    (begin,) = world.jobs[1:]
    assert isinstance(begin, Begin)


def test_a_process_that_can_not_compute_says_so_and_ends():
    world = World(HOST)
    world.lazy = True
    world.update(0)
    (job,) = world.jobs
    world.obey(world.replica.failed(job.ticket, ShoalError("5e-324 became 0"), world.now))
    assert world.gave_up == "5e-324 became 0"


# Snapshots.


def serve(world: World, loses: Callable[[], bool] = lambda: False) -> Callable[[], None]:
    """A coordinator that offers a snapshot and sends the chunks that are asked for."""
    manifest, chunks = world.host.snapshot()
    done = [0]

    def answer() -> None:
        while done[0] < len(world.asked):
            request = world.asked[done[0]][1]
            done[0] += 1
            if isinstance(request, CatchUp):
                if not loses():
                    world.obey(world.replica.manifest(manifest, world.now))
                continue
            assert request.count <= 8
            for index in range(request.first, min(request.first + request.count, len(chunks))):
                data = chunks[index]
                if loses():
                    data = b"\x00" + data[1:]
                if not loses():
                    chunk = Chunk(request.version, index, data)
                    world.obey(world.replica.chunk(chunk, world.now))

    return answer


def test_a_snapshot_comes_in_windows_and_later_updates_follow_it():
    manifest, chunks = WIDE.snapshot(2)
    assert len(chunks) > 8
    world = World(WIDE)
    world.obey(world.replica.welcomed(2, WIDE.digest(2), world.now))
    world.obey(world.replica.manifest(manifest, world.now))
    assert world.asked[-1][1] == ChunkRequest(2, 0, 8)
    world.update(2)  # made while the snapshot is on its way
    for index, data in enumerate(chunks):
        assert world.replica.version == 0
        world.obey(world.replica.chunk(Chunk(2, index, data), world.now))
    assert world.arrived
    assert [request for _, request in world.asked] == [
        CatchUp(0),
        ChunkRequest(2, 0, 8),
        ChunkRequest(2, 8, len(chunks) - 8),
    ]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 0.4))
def test_lost_and_forged_chunks_only_delay_a_snapshot(seed, losses):
    world, fate = World(WIDE), Random(seed)
    world.welcomed()
    answer = serve(world, lambda: fate.random() < losses)
    for _ in range(100):
        world.pass_time(5.0, answer)
        if world.arrived:
            break
    assert world.arrived
    assert not world.dropped


def test_a_snapshot_that_nobody_serves_is_given_up_and_asked_for_anew():
    world = World(WIDE)
    world.welcomed()
    world.obey(world.replica.manifest(WIDE.snapshot()[0], world.now))
    world.pass_time(40.0)
    requests = [request for _, request in world.asked]
    assert requests.count(CatchUp(0)) >= 2
    assert sum(isinstance(request, ChunkRequest) for request in requests) == 1
    assert "nobody sends the snapshot any more" in world.told[0]
    world.pass_time(20.0, serve(world))
    assert world.arrived


def test_a_newer_offer_replaces_the_one_that_is_no_longer_served():
    world = World(WIDE)
    world.welcomed()
    world.obey(world.replica.manifest(WIDE.snapshot(2)[0], world.now))
    world.obey(world.replica.manifest(WIDE.snapshot(3)[0], world.now))
    assert world.asked[-1][1] == ChunkRequest(3, 0, 8)
    world.obey(world.replica.manifest(WIDE.snapshot(2)[0], world.now))
    for index, data in enumerate(WIDE.snapshot(3)[1]):
        world.obey(world.replica.chunk(Chunk(3, index, data), world.now))
    assert world.arrived


@pytest.mark.parametrize(
    "change",
    [
        {"total": 10**9},
        {"chunks": b"c" * 16},
        {"digest": b"d" * 16},
    ],
)
def test_an_impossible_offer_is_ignored(change):
    world = World(WIDE)
    world.welcomed()
    manifest = msgspec.structs.replace(WIDE.snapshot()[0], **change)
    world.obey(world.replica.manifest(manifest, world.now))
    assert "of no use" in world.told[0]
    assert world.replica.snapshot_share is None


def test_an_offer_that_we_did_not_ask_for_is_ignored():
    world = World(WIDE)
    world.obey(world.replica.manifest(WIDE.snapshot()[0], world.now))
    assert world.replica.snapshot_share is None


def give(world: World, version: int | None = None, *indexes: int) -> None:
    """Send these chunks of a version, or all."""
    manifest, chunks = world.host.snapshot(version)
    for index in indexes or range(len(chunks)):
        chunk = Chunk(manifest.version, index, chunks[index])
        world.obey(world.replica.chunk(chunk, world.now))


def offer(world: World, version: int | None = None, *servers: str) -> None:
    """The coordinator's answer to a request to catch up."""
    manifest = msgspec.structs.replace(world.host.snapshot(version)[0], servers=servers)
    world.obey(world.replica.manifest(manifest, world.now))


def test_peers_are_asked_at_the_same_time_for_a_window_each():
    world = World(WIDE)
    world.obey(world.replica.welcomed(2, WIDE.digest(2), world.now))
    offer(world, 2, PEER, OTHER)
    total = len(WIDE.snapshot(2)[1])
    assert 8 < total <= 16
    windows = {(request.first, request.count) for _, request in world.of_peers}
    assert windows == {(0, 8), (8, total - 8)}
    assert {server for server, _ in world.of_peers} == {PEER, OTHER}
    give(world, 2)
    assert world.replica.version == 2
    assert [request for _, request in world.asked] == [CatchUp(0)]
    (restored,) = world.reached
    assert isinstance(restored, Restored)
    assert bytes(restored.data) == b"".join(WIDE.snapshot(2)[1])


def test_what_follows_a_snapshot_is_asked_for_at_once():
    world = World(WIDE)
    world.welcomed()
    offer(world, 1, PEER)
    world.pass_time(3.0)
    give(world, 1)
    assert world.asked[-1] == (world.now, CatchUp(1))
    answering(world)()
    assert world.arrived


def test_peers_that_are_silent_are_named_and_what_is_here_is_kept():
    world = World(WIDE)
    world.welcomed()
    offer(world, 3, PEER, OTHER)
    give(world, 3, *range(1, 10))
    world.pass_time(20.0)
    assert "nobody sends the snapshot any more" in world.told[0]
    failed = next(m.failed for _, m in world.asked if isinstance(m, CatchUp) and m.failed)
    assert sorted(failed) == sorted([PEER, OTHER])
    share = world.replica.snapshot_share
    assert share is not None
    assert share > 0.5
    offer(world, 3)  # the coordinator itself
    requests = [m for _, m in world.asked if isinstance(m, ChunkRequest)]
    assert requests == [ChunkRequest(3, 0, 1)]
    give(world, 3, 0)
    give(world, 3, *range(10, len(WIDE.snapshot(3)[1])))
    assert world.arrived


def test_what_is_here_outlives_a_connection_and_a_coordinator():
    world = World(WIDE)
    world.welcomed()
    offer(world, 3, PEER)
    give(world, 3, 0, 1, 2)
    world.obey(world.replica.disconnected(world.now))
    asked = len(world.of_peers)
    world.pass_time(60.0)
    assert len(world.of_peers) == asked
    world.welcomed()
    assert world.of_peers[asked:] == [(PEER, ChunkRequest(3, 3, 8))]
    assert [m for _, m in world.asked] == [CatchUp(0)]
    offer(world, 3, OTHER)  # the same again, while it is on its way
    offer(world, 2, OTHER)  # an older one
    assert world.of_peers[asked + 1 :] == []
    give(world, 3)
    assert world.arrived


def test_another_digest_begins_anew():
    world = World(WIDE)
    world.welcomed()
    offer(world, 2, PEER)
    give(world, 2, 0, 1, 2)
    offer(world, 3, OTHER)
    assert world.replica.snapshot_share == 0.0
    assert world.of_peers[-1] == (OTHER, ChunkRequest(3, 0, 8))


def test_an_offer_that_an_update_contradicts_is_refused():
    world = World(WIDE)
    world.welcomed()
    update = msgspec.structs.replace(WIDE.updates[2], state_digest=b"e" * 16)
    world.obey(world.replica.update(update, PAYLOAD, world.now))
    offer(world, 3)
    assert (b"e" * 16).hex() in world.told[0]
    assert WIDE.snapshot(3)[0].digest.hex() in world.told[0]
    assert world.replica.snapshot_share is None
    # A later leader may have led elsewhere, and its own offer is not bound by that.
    later = msgspec.structs.replace(WIDE.updates[1], epoch=9)
    world.obey(world.replica.update(later, PAYLOAD, world.now))
    offer(world, 3)
    assert world.replica.snapshot_share is not None


def test_signed_updates_are_passed_on_as_they_came():
    world = World(HOST)
    for version in (1, 0, 2):
        payload = bytes([version]) * 300
        world.obey(world.replica.update(HOST.updates[version], payload, world.now))
    assert [(step.state.version, step.payload[0], step.update.epoch) for step in world.reached] == [  # type: ignore[union-attr]
        (1, 0, 1),
        (2, 1, 1),
        (3, 2, 1),
    ]


# A run whose version 0 the spec does not tell.


def test_a_given_beginning_comes_as_a_snapshot_that_the_spec_proves():
    world = World(GIVEN)
    assert world.replica.state is None
    assert world.replica.behind
    world.obey(world.replica.welcomed(0, GIVEN.digest(0), world.now))
    assert [m for _, m in world.asked] == [CatchUp(0, "snapshot")]
    assert world.replica.standing(0, GIVEN.digest(0)) == "ahead"
    forged = msgspec.structs.replace(HOST.snapshot(0)[0])
    world.obey(world.replica.manifest(forged, world.now))
    assert "of no use" in world.told[0]
    offer(world, 0, PEER)
    give(world, 0)
    assert world.replica.version == 0
    assert world.replica.standing(0, GIVEN.digest(0)) == "ready"
    assert not world.replica.behind
    world.pass_time(30.0)
    assert len(world.asked) == 1
    for version in range(GIVEN.version):
        world.update(version)
    assert world.arrived


def test_a_given_beginning_may_be_left_out_for_a_later_snapshot():
    world = World(GIVEN)
    world.welcomed()
    for version in range(GIVEN.version):
        world.update(version)  # of no use yet
    assert world.replica.state is None
    offer(world, 2)
    give(world, 2)
    assert world.arrived


def test_a_given_beginning_is_fetched_anew_where_parameters_are_not_the_runs():
    world = World(GIVEN)
    world.welcomed()
    offer(world, 0)
    give(world, 0)
    wrong = msgspec.structs.replace(GIVEN.updates[0], digest_after=b"x" * 16)
    world.obey(world.replica.update(wrong, PAYLOAD, world.now))
    assert world.dropped == 1
    assert world.asked[-1][1] == CatchUp(0, "snapshot")
    assert world.replica.behind
    offer(world, 2)
    give(world, 2)
    for version in range(2, GIVEN.version):
        world.update(version)
    assert world.arrived


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_any_servers_and_any_interruptions_end_at_the_exact_state(seed, forked):
    """Servers that serve, lie, say nothing or go; lost connections; new offers of the coordinator:
    the state arrives, or somebody is asked again."""
    fate = Random(seed)
    world = World(GIVEN if forked else WIDE)
    chunks = [world.host.snapshot(version)[1] for version in range(world.host.version + 1)]
    manners = {server: fate.choice("slnv") for server in PEERS}
    served, seen, heard, connected = 0, 0, 0, True
    world.welcomed()

    def answer() -> None:
        nonlocal served, seen, heard, connected
        if fate.random() < 0.02:
            connected = not connected
            if connected:
                world.welcomed()
            else:
                world.obey(world.replica.disconnected(world.now))
        if not connected:
            served, seen = len(world.asked), len(world.of_peers)
            return
        while served < len(world.asked):
            message = world.asked[served][1]
            served += 1
            if isinstance(message, ChunkRequest):
                send(message, fate.choice("sssn"))
                continue
            if fate.random() < 0.3:
                continue
            if fate.random() < 0.4 and world.replica.state is not None:
                for version in range(message.version, world.host.version):
                    world.update(version)
                continue
            servers = fate.sample(PEERS, fate.randrange(len(PEERS)))
            offer(world, fate.randint(0, world.host.version), *servers)
        while seen < len(world.of_peers):
            server, request = world.of_peers[seen]
            seen += 1
            send(request, manners[server])

    def send(request: ChunkRequest, manner: str) -> None:
        of = chunks[request.version]
        for index in range(request.first, min(request.first + request.count, len(of))):
            if manner == "n" or (manner == "v" and fate.random() < 0.3):
                return
            data = bytes(len(of[index])) if manner == "l" else of[index]
            world.obey(world.replica.chunk(Chunk(request.version, index, data), world.now))

    for _ in range(100):
        heard = len(world.asked) + len(world.of_peers)
        world.pass_time(30.0, answer)
        if world.arrived:
            break
        if connected:
            assert len(world.asked) + len(world.of_peers) > heard
    assert world.arrived
    assert not world.dropped
    assert not world.gave_up


def test_a_snapshot_with_an_impossible_state_counts_as_a_mismatch():
    world = World(WIDE)
    world.welcomed()
    data = [b"\xff" * len(chunk) for chunk in WIDE.snapshot()[1]]
    proved = proof(data)
    manifest = Manifest(3, proved.digest, *proved)
    world.obey(world.replica.manifest(manifest, world.now))
    for index, chunk in enumerate(data):
        world.obey(world.replica.chunk(Chunk(3, index, chunk), world.now))
    assert world.dropped == 1
    assert not world.gave_up


# Nothing that is signed by a hostile host, or comes from strangers, raises.

digests = st.binary(min_size=16, max_size=16) | st.integers(0, LENGTH).map(HOST.digest)
versions = st.integers(0, LENGTH + 2) | st.integers(0, 2**40)
cohorts = st.builds(
    Cohort,
    first=st.integers(0, 2**47 - 1),
    version=versions,
    multiplier=st.integers(1, 60),
    weights=st.binary(max_size=40) | st.just(HOST.updates[0].cohorts[0].weights),
)
updates = st.builds(
    Update,
    epoch=st.integers(0, 3),
    version=versions,
    cohorts=st.lists(cohorts, max_size=3).map(tuple),
    scale=st.floats(allow_nan=False, allow_infinity=False),
    learning_rate=st.floats(allow_nan=False, allow_infinity=False),
    sigma=st.floats(allow_nan=False, allow_infinity=False),
    observed=st.just(()),
    episodes=st.integers(0, 2**53),
    steps=st.integers(0, 2**53),
    digest_before=digests,
    digest_after=digests,
)
manifests = st.builds(
    Manifest,
    version=versions,
    digest=digests,
    total=st.integers(1, 2**34) | st.just(FOLLOWERS[HOST].snapshot_bytes),
    chunks=st.binary(max_size=48),
)
chunks = st.builds(
    Chunk, version=versions, index=st.integers(0, 2**20), data=st.binary(min_size=1, max_size=50)
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.just("update"), updates)
        | st.tuples(st.just("genuine"), st.integers(0, LENGTH - 1))
        | st.tuples(st.just("manifest"), manifests)
        | st.tuples(st.just("chunk"), chunks)
        | st.tuples(st.just("known"), st.tuples(versions, digests))
        | st.tuples(st.just("hint"), versions)
        | st.tuples(st.just("wait"), st.floats(0.0, 100.0)),
        max_size=25,
    )
)
def test_whatever_comes_nothing_is_raised_and_what_is_kept_is_bounded(events):
    world = World(HOST)
    world.welcomed()
    for what, value in events:
        replica = world.replica
        match what:
            case "update":
                world.obey(replica.update(value, PAYLOAD, world.now))
            case "genuine":
                world.update(value)
            case "manifest":
                world.obey(replica.manifest(value, world.now))
            case "chunk":
                world.obey(replica.chunk(value, world.now))
            case "known":
                world.obey(replica.known(*value, world.now))
            case "hint":
                world.obey(replica.hinted(value, world.now))
            case "wait":
                world.now += value
                world.obey(replica.tick(world.now))
        assert len(replica.points) <= HOST.spec.versions_kept
        assert len(replica._digests) <= module.DIGESTS_KEPT
        for version, point in replica.points.items():
            assert point.version == version
    assert len(world.asked) <= 40


# What the run's settings may not become.


@pytest.mark.parametrize(
    ("amendments", "reason"),
    [
        ({"strategy.populatoin": 4.0}, "amendments that this version does not know"),
        ({"strategy.population": 0.0}, "strategy.population is 0: must be at least 2"),
        ({"strategy.population": 3.0}, "must be even"),
        ({"strategy.population": 2.0**60}, "must be at most 120,000"),
        ({"optimizer.learning_rate": -1.0}, "must be more than 0"),
    ],
)
def test_a_hostile_amendment_is_told_and_the_honest_update_followed(amendments, reason):
    world = World(HOST)
    world.welcomed()
    world.update(0)
    wrong = msgspec.structs.replace(HOST.updates[1], amendments=amendments)
    world.obey(world.replica.update(wrong, PAYLOAD, world.now))
    assert any(reason in line for line in world.told), world.told
    for version in range(3):
        world.update(version)
    assert isinstance(world.reached[-1], Followed) and world.reached[-1].state.version == 3


def test_a_snapshot_may_tell_settings_and_nothing_else_beside_the_state():
    amended = dataclasses.replace(WIDE.states[2], amended=Amended((("stop.target", 1.0),)))
    plain, settings = len(to_bytes(WIDE.states[2])), len(amended.amended.to_bytes())
    for beyond, useless in ((0, False), (settings, False), (MOST_BYTES + 1, True), (-1, True)):
        world = World(WIDE)
        world.welcomed()
        proved = proof(cut(bytes(plain + beyond)))
        manifest = Manifest(2, proved.digest, proved.total, proved.digests, (PEER,))
        world.obey(world.replica.manifest(manifest, world.now))
        assert any("of no use" in line for line in world.told) is useless
