"""Who holds which snapshot, and whom joiners are sent to: single decisions, then invariants."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.pool.events import SessionId
from coordinator.serving import holders
from coordinator.serving.holders import Holders, Offer, peer_name
from protocol.frozen import Frozen
from protocol.proof import Proof, proof

Found = tuple[Offer, tuple[SessionId, ...]]
PROOF = proof([b"state"])
NEVER = -1


def session(number: int, machine: int = 0) -> SessionId:
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    name = letters[number // 32 % 32] + letters[number % 32]
    return SessionId(name.rjust(16, "a"), letters[machine] * 6)


WORKERS = [session(number) for number in range(200)]
JOINERS = [session(number) for number in range(200, 400)]


def frozen(version: int, proved: Proof = PROOF) -> Frozen:
    return Frozen(Path("nowhere"), version, proved)


def with_holders(count: int, version: int = 64, own: bool = False) -> Holders:
    """A snapshot with so many holders, each of which was asked."""
    known = Holders(Random(5))
    asked = known.reached(version, PROOF, [(id, 1.0) for id in WORKERS[:count]])
    assert all(known.add(version, id) for id in asked)
    fetched = [id for id in WORKERS[:count] if id not in asked]
    for id in fetched:
        tell(known, id)
        known.add(version, id)
    if own:
        known.keep(frozen(version))
    return known


def tell(known: Holders, joiner: SessionId, now: float = 0.0, after: int = NEVER) -> Found:
    """Send a joiner to whoever there is."""
    found = known.find(joiner, after, now)
    assert found is not None
    known.send(joiner, *found)
    return found


def fail(known: Holders, joiner: SessionId, *servers: SessionId) -> None:
    known.blame(joiner, [peer_name(server) for server in servers])


def test_nobody_has_anything_at_first() -> None:
    known = Holders(Random(5))
    assert known.find(JOINERS[0], NEVER, 0.0) is None
    assert known.own(64) is None
    assert not known.add(64, WORKERS[0])


def test_asked_session_is_a_holder_once_it_says_so() -> None:
    known = Holders(Random(5))
    (asked,) = known.reached(64, PROOF, [(WORKERS[0], 1.0)])
    assert asked == WORKERS[0]
    assert known.find(JOINERS[0], NEVER, 0.0) is None
    assert known.add(64, asked)
    offer, servers = tell(known, JOINERS[0])
    assert (offer.version, offer.proof, servers) == (64, PROOF, (asked,))


def test_who_was_not_asked_is_no_holder() -> None:
    known = with_holders(1)
    for version in (0, 63, 64, 128, 1 << 40):
        assert not known.add(version, WORKERS[9])
    assert not known.add(128, WORKERS[0])
    assert tell(known, JOINERS[0])[1] == (WORKERS[0],)


def test_holders_that_an_earlier_epoch_asked_are_believed() -> None:
    known = Holders(Random(5))
    known.keep(frozen(64))
    assert known.add(64, WORKERS[0])
    assert tell(known, JOINERS[0])[1] == (WORKERS[0],)
    known.reached(128, PROOF, [])
    known.keep(frozen(128))
    assert not known.add(128, WORKERS[0])


def test_who_fetched_a_snapshot_hands_it_on_but_not_to_itself() -> None:
    known = with_holders(1)
    tell(known, JOINERS[0])
    assert known.add(64, JOINERS[0])
    assert set(tell(known, JOINERS[1])[1]) == {WORKERS[0], JOINERS[0]}
    assert tell(known, JOINERS[0])[1] == (WORKERS[0],)


def test_few_are_asked_the_fast_ones_more_often_but_not_always() -> None:
    known = Holders(Random(5))
    speeds = [(id, 1000.0 if place < 10 else 100.0) for place, id in enumerate(WORKERS[:20])]
    times: Counter[SessionId] = Counter()
    for version in range(64, 64 * 501, 64):
        asked = known.reached(version, PROOF, speeds)
        assert len(set(asked)) == holders.ASKED
        times.update(asked)
    fast = [times[id] for id in WORKERS[:10]]
    slow = [times[id] for id in WORKERS[10:20]]
    assert min(fast) > 2 * max(slow) > 0
    assert max(fast) < 500


def test_sessions_of_unknown_speed_are_asked_too() -> None:
    known = Holders(Random(5))
    assert set(known.reached(64, PROOF, [(id, 0.0) for id in WORKERS[:3]])) == set(WORKERS[:3])
    assert known.reached(128, PROOF, []) == []


def test_at_most_so_many_holders_are_named_and_all_get_joiners() -> None:
    known = with_holders(40)
    times: Counter[SessionId] = Counter()
    for second, joiner in enumerate(JOINERS):
        _, servers = tell(known, joiner, float(second))
        assert len(set(servers)) == holders.NAMED
        times.update(servers)
    assert set(times) == set(WORKERS[:40])


def test_who_comes_in_one_moment_gets_one_offer() -> None:
    known = with_holders(40)
    assert len({tell(known, joiner, 10.0)[1] for joiner in JOINERS[:10]}) == 1
    assert len({tell(known, JOINERS[0], 10.0 + second)[1] for second in range(10)}) > 5


def test_session_that_left_is_no_holder() -> None:
    known = with_holders(3)
    known.leave(WORKERS[1])
    assert set(tell(known, JOINERS[0])[1]) == {WORKERS[0], WORKERS[2]}


def test_one_complaint_sends_only_the_joiner_elsewhere() -> None:
    known = with_holders(3)
    tell(known, JOINERS[0])
    fail(known, JOINERS[0], WORKERS[1])
    assert set(tell(known, JOINERS[0])[1]) == {WORKERS[0], WORKERS[2]}
    assert set(tell(known, JOINERS[1])[1]) == set(WORKERS[:3])


def test_second_workers_complaint_ends_a_holder() -> None:
    three = [(id, 1.0) for id in WORKERS[:3]]
    known = with_holders(3)
    for joiner in JOINERS[:2]:
        tell(known, joiner)
        fail(known, joiner, WORKERS[1])
    assert set(tell(known, JOINERS[2])[1]) == {WORKERS[0], WORKERS[2]}
    assert not known.add(64, WORKERS[1])
    for version in (128, 192):
        assert set(known.reached(version, PROOF, three)) == {WORKERS[0], WORKERS[2]}
        assert not known.add(version, WORKERS[1])
    # Liars could have said so: once that snapshot is history, it has a new chance.
    known.reached(256, PROOF, three)
    assert WORKERS[1] in known.reached(320, PROOF, three)


def test_holder_that_left_and_came_back_has_a_new_chance() -> None:
    known = with_holders(3)
    for joiner in JOINERS[:2]:
        tell(known, joiner)
        fail(known, joiner, WORKERS[1])
    known.leave(WORKERS[1])
    assert WORKERS[1] in known.reached(128, PROOF, [(id, 1.0) for id in WORKERS[:3]])


def test_sessions_of_one_worker_are_one_witness() -> None:
    known = with_holders(3)
    for machine in range(10):
        liar = session(300, machine)
        tell(known, liar)
        fail(known, liar, *WORKERS[:3])
        fail(known, liar, *WORKERS[:3])
    assert set(tell(known, JOINERS[0])[1]) == set(WORKERS[:3])


def test_who_was_not_sent_to_a_holder_cannot_blame_it() -> None:
    known = with_holders(3)
    for joiner in JOINERS[:2]:
        fail(known, joiner, *WORKERS[:3])
    known.keep(frozen(0))
    for joiner in JOINERS[:2]:
        known.send(joiner, Offer(0, PROOF), ())
        fail(known, joiner, *WORKERS[:3])
        known.blame(joiner, ["", "x" * 23])
    assert set(tell(known, JOINERS[5])[1]) == set(WORKERS[:3])


def test_joiner_deserted_by_all_gets_it_from_the_coordinator() -> None:
    known = with_holders(20, own=True)
    _, servers = tell(known, JOINERS[0])
    fail(known, JOINERS[0], *servers)
    offer, servers = tell(known, JOINERS[0], 100.0)
    assert (offer.version, servers) == (64, ())
    assert offer.frozen is not None
    # It stays so for this snapshot; others, and the next snapshot, are a new matter.
    assert tell(known, JOINERS[0], 200.0)[1] == ()
    assert len(tell(known, JOINERS[1])[1]) == holders.NAMED
    known.reached(128, PROOF, [(WORKERS[0], 1.0)])
    known.add(128, WORKERS[0])
    assert tell(known, JOINERS[0])[1] == (WORKERS[0],)


def test_joiner_deserted_by_all_is_sent_to_others_where_the_coordinator_has_none() -> None:
    known = with_holders(20)
    _, first = tell(known, JOINERS[0])
    fail(known, JOINERS[0], *first)
    _, second = tell(known, JOINERS[0])
    assert second and not set(first) & set(second)


def test_coordinator_serves_where_there_is_no_holder() -> None:
    known = Holders(Random(5))
    known.reached(64, PROOF, [])
    known.keep(frozen(64))
    assert known.own(64) == frozen(64)
    assert tell(known, JOINERS[0])[1] == ()
    known.lose(64)
    known.lose(65)
    assert known.own(64) is None
    assert known.find(JOINERS[0], NEVER, 0.0) is None


def test_joiner_of_the_coordinator_is_sent_to_a_holder_once_there_is_one() -> None:
    known = Holders(Random(5))
    known.reached(64, PROOF, [(WORKERS[0], 1.0)])
    known.keep(frozen(64))
    assert tell(known, JOINERS[0])[1] == ()
    known.add(64, WORKERS[0])
    known.blame(JOINERS[0], [])
    assert tell(known, JOINERS[0])[1] == (WORKERS[0],)


def test_newest_snapshot_that_is_to_be_had_is_offered() -> None:
    known = with_holders(1)
    known.reached(128, PROOF, [(WORKERS[1], 1.0)])
    assert tell(known, JOINERS[0])[0].version == 64
    known.keep(frozen(128))
    assert tell(known, JOINERS[0])[0].version == 128
    known.lose(128)
    assert tell(known, JOINERS[0])[0].version == 64
    known.add(128, WORKERS[1])
    assert tell(known, JOINERS[0])[0].version == 128
    assert known.find(JOINERS[0], 127, 0.0) is not None
    assert known.find(JOINERS[0], 128, 0.0) is None


def test_old_snapshots_are_forgotten_but_not_version_0() -> None:
    known = Holders(Random(5))
    known.keep(frozen(0))
    for version in range(64, 64 * 10, 64):
        known.reached(version, PROOF, [])
        known.keep(frozen(version))
    kept = [version for version in range(0, 64 * 10, 64) if known.own(version) is not None]
    assert kept == [0, 448, 512, 576]


def test_snapshot_of_a_history_that_was_given_up_has_no_holders() -> None:
    known = with_holders(3, own=True)
    known.reached(64, proof([b"another"]), [])
    assert known.find(JOINERS[0], NEVER, 0.0) is None
    known.keep(frozen(64, proof([b"another"])))
    assert tell(known, JOINERS[0])[1] == ()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "MOST_JOINERS", 50)
    known = with_holders(100, own=True)
    assert len(known._offers[64].holders) == holders.MOST_HOLDERS
    for joiner in JOINERS:
        tell(known, joiner)
        fail(known, joiner, *WORKERS)
    assert len(known._joiners) == 50
    assert known._struck and not known._offers[64].holders.keys() & known._struck.keys()
    for id in (*WORKERS, *JOINERS):
        known.leave(id)
    assert not known._joiners and not known._struck


versions = st.sampled_from([0, 64, 128, 192, 256])
sessions = st.sampled_from([session(n, m) for n in range(6) for m in range(2)])
steps = st.one_of(
    st.tuples(st.just("reached"), versions, st.lists(sessions, unique=True)),
    st.tuples(st.just("keep"), versions),
    st.tuples(st.just("lose"), versions),
    st.tuples(st.just("add"), versions, sessions),
    st.tuples(st.just("leave"), sessions),
    st.tuples(st.just("blame"), sessions, st.lists(sessions.map(peer_name), max_size=16)),
    st.tuples(st.just("find"), sessions, versions),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(0, 99))
def test_no_joiner_is_sent_where_it_should_not_go(story: list[tuple], seed: int) -> None:
    """Whatever happens: holders said so, are here, are not the joiner, and there is an offer."""
    known = Holders(Random(seed))
    said: set[tuple[int, SessionId]] = set()
    for now, (what, *rest) in enumerate(story):
        match what:
            case "reached":
                version, able = rest
                asked = known.reached(version, PROOF, [(id, 1.0) for id in able])
                assert set(asked) <= set(able) and len(asked) == len(set(asked)) <= holders.ASKED
            case "keep":
                known.keep(frozen(rest[0]))
            case "lose":
                known.lose(rest[0])
            case "add":
                if known.add(*rest):
                    said.add((rest[0], rest[1]))
            case "leave":
                known.leave(rest[0])
                said = {(version, id) for version, id in said if id != rest[0]}
            case "blame":
                known.blame(*rest)
            case "find":
                joiner, after = rest
                found = known.find(joiner, after, now / 3)
                if found is None:
                    continue
                offer, servers = found
                assert offer.version > after
                assert servers or offer.frozen is not None
                assert len(set(servers)) == len(servers) <= holders.NAMED
                assert joiner not in servers
                assert all((offer.version, server) in said for server in servers)
                known.send(joiner, offer, servers)
