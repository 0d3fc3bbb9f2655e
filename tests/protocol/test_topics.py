from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import topics

RUNS = st.from_regex(topics.RUN_PATTERN, fullmatch=True)
WORKERS = st.from_regex(topics.WORKER_PATTERN, fullmatch=True)
SESSIONS = st.from_regex(topics.SESSION_PATTERN, fullmatch=True)

RUN = "cartpole-1a2b3c4d"
WORKER = "abcdefghijklmnop"
SESSION = "qrs234"
PEER = f"{WORKER}-{SESSION}"


def matches(pattern: str, topic: str) -> bool:
    """MQTT 3.1.1, 4.7, for filters without #."""
    wanted, levels = pattern.split("/"), topic.split("/")
    return len(wanted) == len(levels) and all(
        one in ("+", other) for one, other in zip(wanted, levels, strict=True)
    )


@given(RUNS, WORKERS, SESSIONS)
def test_every_topic_reads_back_as_it_was_built(run: str, worker: str, session: str) -> None:
    peer = topics.peer(worker, session)
    built = {
        topics.epoch(run): topics.Topic("epoch", run),
        topics.beat(run): topics.Topic("beat", run),
        topics.update(run): topics.Topic("update", run),
        topics.inbox(run, worker, session): topics.Topic("in", run, worker, session),
        topics.request(run, worker, session): topics.Topic("req", run, worker, session),
        topics.results(run, worker, session): topics.Topic("results", run, worker, session),
        topics.status(run, worker, session): topics.Topic("status", run, worker, session),
        topics.snapshot(run, peer, peer): topics.Topic("snap", run, server=peer, joiner=peer),
        topics.WHO: topics.Topic("who"),
        topics.HERE: topics.Topic("here"),
    }
    assert len(built) == 10
    for text, expected in built.items():
        assert topics.parse(text) == expected
        assert topics.topic_class(text.encode()) == expected.kind
        assert len(text) <= topics.MAX_TOPIC_BYTES


def test_topics_are_those_of_the_protocol() -> None:
    assert topics.epoch(RUN) == f"shoal/1/{RUN}/epoch"
    assert topics.inbox(RUN, WORKER, SESSION) == f"shoal/1/{RUN}/in/{WORKER}/{SESSION}"
    assert topics.request(RUN, WORKER, SESSION) == f"shoal/1/{RUN}/req/{WORKER}/{SESSION}"
    assert topics.snapshot(RUN, PEER, PEER) == f"shoal/1/{RUN}/snap/{PEER}/{PEER}"
    assert topics.WHO == "shoal/1/who"


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "/",
        "shoal",
        "shoal/1",
        "shoal/1/",
        f"shoal/1/{RUN}",
        f"shoal/2/{RUN}/epoch",
        f"Shoal/1/{RUN}/epoch",
        f"/shoal/1/{RUN}/epoch",
        f"shoal/1/{RUN}/epoch/",
        f"shoal/1/{RUN}/epoch/{WORKER}/{SESSION}",
        f"shoal/1/{RUN}/in/{WORKER}",
        f"shoal/1/{RUN}/in/{WORKER}/{SESSION}/more",
        f"shoal/1/{RUN}/in/{WORKER}/+",
        f"shoal/1/{RUN}/in/#",
        f"shoal/1/{RUN}/in/{WORKER.upper()}/{SESSION}",
        f"shoal/1/{RUN}/in/{WORKER}/{SESSION}\n",
        f"shoal/1/{RUN}\n/epoch",
        f"shoal/1/{RUN}/in/{WORKER}0/{SESSION}",
        f"shoal/1/{RUN}/snap/{WORKER}/{SESSION}",
        f"shoal/1/{RUN}/results/{PEER}/{SESSION}",
        f"shoal/1/-{RUN}/epoch",
        "shoal/1/cartpole/epoch",
        "shoal/1/who/",
        f"shoal/1/{RUN}/who",
        f"shoal/1/{'a' * 41}-1a2b3c4d/epoch",
        "shoal/1/" + "a" * 10_000_000,
        "shoal/1/" + "/" * 100_000,
        "\ud800/1",
    ],
)
def test_hostile_topics_are_nobodys(hostile: str) -> None:
    assert topics.parse(hostile) is None


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            ["shoal", "1", RUN, "in", "epoch", "", WORKER, SESSION, PEER, "snap", "+", "#"]
        )
    ).map("/".join)
)
def test_what_parses_is_exactly_what_we_build(text: str) -> None:
    topic = topics.parse(text)
    if topic is None:
        return
    rebuilt = {
        "epoch": lambda: topics.epoch(topic.run),
        "beat": lambda: topics.beat(topic.run),
        "update": lambda: topics.update(topic.run),
        "in": lambda: topics.inbox(topic.run, topic.worker, topic.session),
        "req": lambda: topics.request(topic.run, topic.worker, topic.session),
        "results": lambda: topics.results(topic.run, topic.worker, topic.session),
        "status": lambda: topics.status(topic.run, topic.worker, topic.session),
        "snap": lambda: topics.snapshot(topic.run, topic.server, topic.joiner),
        "who": lambda: topics.WHO,
        "here": lambda: topics.HERE,
    }[topic.kind]()
    assert rebuilt == text


@given(st.binary(max_size=300))
def test_every_topic_has_a_class(topic: bytes) -> None:
    assert topics.topic_class(topic) == "other"


@pytest.mark.parametrize(
    "build",
    [
        lambda: topics.epoch("cartpole"),
        lambda: topics.epoch("../../etc-1a2b3c4d"),
        lambda: topics.update(f"{RUN}/#"),
        lambda: topics.inbox(RUN, "+", SESSION),
        lambda: topics.inbox(RUN, WORKER, "#"),
        lambda: topics.status(RUN, WORKER + "\n", SESSION),
        lambda: topics.snapshot(RUN, WORKER, PEER),
        lambda: topics.worker_filters(RUN, WORKER, "+"),
        lambda: topics.coordinator_filters("+"),
        lambda: topics.leader_filters("#"),
        lambda: topics.peer(WORKER, ""),
    ],
)
def test_no_topic_is_built_of_hostile_parts(build: Callable[[], object]) -> None:
    with pytest.raises(topics.TopicError, match="must match"):
        build()


def test_filters_read_what_the_other_side_writes() -> None:
    to_coordinator = [
        topics.request(RUN, WORKER, SESSION),
        topics.results(RUN, WORKER, SESSION),
        topics.status(RUN, WORKER, SESSION),
        topics.WHO,
    ]
    to_worker = [
        topics.epoch(RUN),
        topics.beat(RUN),
        topics.update(RUN),
        topics.inbox(RUN, WORKER, SESSION),
        topics.snapshot(RUN, f"{'b' * 16}-{'c' * 6}", PEER),
    ]
    coordinator = topics.coordinator_filters(RUN)
    worker = topics.worker_filters(RUN, WORKER, SESSION)
    for topic in to_coordinator:
        assert any(matches(pattern, topic) for pattern in coordinator)
        assert not any(matches(pattern, topic) for pattern in worker)
    for topic in to_worker:
        assert any(matches(pattern, topic) for pattern in worker)
        # The coordinator reads its own epoch, to notice who overwrites it.
        reads = any(matches(pattern, topic) for pattern in coordinator)
        assert reads == (topic == topics.epoch(RUN))
    foreign = topics.inbox(RUN, "b" * 16, SESSION), topics.inbox(RUN, WORKER, "b" * 6)
    assert not any(matches(pattern, topic) for pattern in worker for topic in foreign)


def test_the_retained_epoch_is_read_by_its_exact_topic() -> None:
    assert topics.leader_filters(RUN)[topics.epoch(RUN)] == 1
    assert topics.worker_filters(RUN, WORKER, SESSION)[topics.epoch(RUN)] == 1
