from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import topics
from protocol.frames import PacketReader, acknowledgement, publish_packet
from protocol.packing import WireError
from protocol.wire_count import WireCount

RUN = "cartpole-1a2b3c4d"
WORKER = "abcdefghijklmnop"
SESSION = "qrs234"
PEER = f"{WORKER}-{SESSION}"

TOPICS = {
    "in": topics.inbox(RUN, WORKER, SESSION),
    "results": topics.results(RUN, WORKER, SESSION),
    "update": topics.update(RUN),
    "req": topics.request(RUN, WORKER, SESSION),
    "status": topics.status(RUN, WORKER, SESSION),
    "beat": topics.beat(RUN),
    "epoch": topics.epoch(RUN),
    "snap": topics.snapshot(RUN, PEER, PEER),
    "who": topics.WHO,
    "here": topics.HERE,
    "other": "somebody/else",
}


def feed(wire: WireCount, direction: str, data: bytes) -> None:
    for packet in PacketReader().feed(data):
        wire.count(direction, packet)


@pytest.mark.parametrize("name", TOPICS)
@pytest.mark.parametrize("direction", ["sent", "received"])
def test_a_message_counts_for_its_topic(name: str, direction: str) -> None:
    wire = WireCount()
    packet = publish_packet(TOPICS[name].encode(), bytes(300), 0, False, 0)
    feed(wire, direction, packet * 3)
    assert wire.snapshot() == {f"{direction} publish {name}": 3 * len(packet)}
    assert wire.packets() == {f"{direction} publish {name}": 3}


def test_an_acknowledgement_counts_for_what_it_acknowledges() -> None:
    wire = WireCount()
    epoch = publish_packet(TOPICS["epoch"].encode(), b"e", 1, True, 7)
    results = publish_packet(TOPICS["results"].encode(), b"r", 1, False, 7)
    feed(wire, "sent", epoch)
    feed(wire, "received", results)
    feed(wire, "received", acknowledgement(7))
    feed(wire, "sent", acknowledgement(7))
    assert wire.snapshot() == {
        "sent publish epoch": len(epoch),
        "received puback epoch": 4,
        "received publish results": len(results),
        "sent puback results": 4,
    }


def test_an_identifier_is_acknowledged_once() -> None:
    wire = WireCount()
    feed(wire, "sent", publish_packet(TOPICS["epoch"].encode(), b"e", 1, True, 7))
    feed(wire, "received", acknowledgement(7) * 2)
    assert wire.snapshot()["received puback epoch"] == 4
    assert wire.snapshot()["received puback other"] == 4


def test_a_new_connection_forgets_the_identifiers_of_the_last() -> None:
    wire = WireCount()
    feed(wire, "sent", publish_packet(TOPICS["epoch"].encode(), b"e", 1, True, 7))
    before = wire.snapshot()
    wire.forget_identifiers()
    assert wire.snapshot() == before
    feed(wire, "received", acknowledgement(7))
    assert wire.snapshot()["received puback other"] == 4


def test_everything_else_is_control() -> None:
    wire = WireCount()
    feed(wire, "sent", b"\xc0\x00")
    feed(wire, "received", b"\xd0\x00" + b"\x20\x02\x00\x00" + b"\x90\x03\x00\x01\x00")
    assert wire.snapshot() == {"sent control": 2, "received control": 11}


def test_only_tasks_results_and_updates_are_the_cost_of_an_episode() -> None:
    wire, expected = WireCount(), 0
    for packet_id, (name, topic) in enumerate(TOPICS.items(), start=1):
        packet = publish_packet(topic.encode(), bytes(packet_id), 1, False, packet_id)
        feed(wire, "sent", packet)
        feed(wire, "received", acknowledgement(packet_id))
        if name in ("in", "results", "update"):
            expected += len(packet) + 4
    feed(wire, "sent", b"\xc0\x00")
    assert wire.episode_bytes() == expected


def test_the_snapshot_is_a_plain_dictionary_of_its_moment() -> None:
    wire = WireCount()
    feed(wire, "sent", b"\xc0\x00")
    before = wire.snapshot()
    feed(wire, "sent", b"\xc0\x00")
    assert json.loads(json.dumps(before)) == {"sent control": 2}
    assert wire.snapshot() == {"sent control": 4}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sent", "received"]),
            st.binary(min_size=1, max_size=60)
            | st.builds(
                publish_packet,
                st.sampled_from([topic.encode() for topic in TOPICS.values()]),
                st.binary(max_size=200),
                st.sampled_from([0, 1]),
                st.booleans(),
                st.integers(1, 5),
            )
            | st.builds(acknowledgement, st.integers(1, 5)),
        ),
        max_size=30,
    )
)
def test_every_byte_of_every_packet_is_counted_once(parts: list[tuple[str, bytes]]) -> None:
    wire, expected = WireCount(), {"sent": 0, "received": 0}
    for direction, data in parts:
        try:
            packets = PacketReader().feed(data)
        except WireError:
            continue
        for packet in packets:
            wire.count(direction, packet)
            expected[direction] += packet.size
    assert {name: wire.total(name) for name in expected} == expected
    assert sum(wire.snapshot().values()) == sum(expected.values())


def test_a_hostile_stream_does_not_make_the_count_grow() -> None:
    wire = WireCount()
    for number in range(1000):
        topic = f"shoal/1/{number}/{number}/x".encode()
        wire.count_publish("received", topic, number % 65535 + 1, 10)
    assert list(wire.snapshot()) == ["received publish other"]
