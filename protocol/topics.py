"""Builds and reads the MQTT topics of Shoal, and says which of them each side subscribes to."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, get_args

from protocol.errors import ShoalError

PREFIX = "shoal/1"
WHO = f"{PREFIX}/who"
HERE = f"{PREFIX}/here"

MAX_TOPIC_BYTES = 128
"""No topic of Shoal is longer (the longest, `snap` with the longest run, has 111 bytes)."""

Kind = Literal[
    "epoch", "beat", "update", "in", "req", "results", "status", "snap", "ask", "who", "here"
]

RUN_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
RUN_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{8}")
WORKER_PATTERN = re.compile(r"[a-z2-7]{16}")
SESSION_PATTERN = re.compile(r"[a-z2-7]{6}")
PEER_PATTERN = re.compile(r"[a-z2-7]{16}-[a-z2-7]{6}")
ALL = "all"
"""In place of a server: every peer is asked."""

_BROADCAST_KINDS: dict[str, Kind] = {"epoch": "epoch", "beat": "beat", "update": "update"}
_SESSION_KINDS: dict[str, Kind] = {
    "in": "in",
    "req": "req",
    "results": "results",
    "status": "status",
}
_PEER_KINDS: dict[str, Kind] = {"snap": "snap", "ask": "ask"}
_PUBLIC_KINDS: dict[str, Kind] = {WHO: "who", HERE: "here"}

_CLASSES: dict[bytes, str] = {kind.encode(): kind for kind in get_args(Kind)}


class TopicError(ShoalError):
    """A part that no topic may contain."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic taken apart; what its kind does not carry is None.

    `worker` and `session` belong to in, req, results and status; `server` and `joiner` to snap and
    ask, each a peer `<worker>-<session>`, or ALL where all are asked; `run` to all but who and
    here.
    """

    kind: Kind
    run: str | None = None
    worker: str | None = None
    session: str | None = None
    server: str | None = None
    joiner: str | None = None


def epoch(run: str) -> str:
    """The retained announcement of the run's coordinator."""
    return _broadcast(run, "epoch")


def beat(run: str) -> str:
    """The coordinator's heartbeat."""
    return _broadcast(run, "beat")


def update(run: str) -> str:
    """The signed updates, in order."""
    return _broadcast(run, "update")


def inbox(run: str, worker: str, session: str) -> str:
    """What the coordinator tells one session of one worker (the topic's kind is `in`)."""
    return _of_session(run, "in", worker, session)


def request(run: str, worker: str, session: str) -> str:
    """What one session asks of the coordinator."""
    return _of_session(run, "req", worker, session)


def results(run: str, worker: str, session: str) -> str:
    """The results of one session."""
    return _of_session(run, "results", worker, session)


def status(run: str, worker: str, session: str) -> str:
    """The life signs of one session; its will says that the session is gone."""
    return _of_session(run, "status", worker, session)


def snapshot(run: str, server: str, joiner: str) -> str:
    """What one peer serves to another: chunks, updates; both as `peer` names them."""
    _check("run", run, RUN_PATTERN)
    _check("serving peer", server, PEER_PATTERN)
    _check("joining peer", joiner, PEER_PATTERN)
    return f"{PREFIX}/{run}/snap/{server}/{joiner}"


def ask(run: str, server: str, joiner: str) -> str:
    """What one peer asks of another one, or of ALL; answered on `snapshot(run, server, joiner)`."""
    _check("run", run, RUN_PATTERN)
    if server != ALL:
        _check("serving peer", server, PEER_PATTERN)
    _check("joining peer", joiner, PEER_PATTERN)
    return f"{PREFIX}/{run}/ask/{server}/{joiner}"


def peer(worker: str, session: str) -> str:
    """One session of one worker as a single topic level: two machines may share a key."""
    _check("worker", worker, WORKER_PATTERN)
    _check("session", session, SESSION_PATTERN)
    return f"{worker}-{session}"


LEADER_SESSION = "aaaaaa"
"""How whoever leads names itself where a peer serves a snapshot: it has no session."""


def parse(topic: str) -> Topic | None:
    """The topic taken apart, or None for whatever Shoal never publishes to."""
    return None if len(topic) > MAX_TOPIC_BYTES else _parsed(topic)


@functools.lru_cache(maxsize=16_384)
def _parsed(topic: str) -> Topic | None:
    """The same few thousand come again and again."""
    public = _PUBLIC_KINDS.get(topic)
    if public is not None:
        return Topic(public)
    levels = topic.split("/", 6)
    if not 4 <= len(levels) <= 6 or levels[0] != "shoal" or levels[1] != "1":
        return None
    run = levels[2]
    if RUN_PATTERN.fullmatch(run) is None:
        return None
    if len(levels) == 4:
        broadcast = _BROADCAST_KINDS.get(levels[3])
        return None if broadcast is None else Topic(broadcast, run)
    if len(levels) != 6:
        return None
    kind = _SESSION_KINDS.get(levels[3])
    if kind is not None:
        worker, session = levels[4], levels[5]
        if WORKER_PATTERN.fullmatch(worker) and SESSION_PATTERN.fullmatch(session):
            return Topic(kind, run, worker, session)
        return None
    between = _PEER_KINDS.get(levels[3])
    if between is not None:
        server, joiner = levels[4], levels[5]
        anyone = between == "ask" and server == ALL
        if (anyone or PEER_PATTERN.fullmatch(server)) and PEER_PATTERN.fullmatch(joiner):
            return Topic(between, run, server=server, joiner=joiner)
    return None


def topic_class(topic: bytes) -> str:
    """What the bytes of a message count as: a `Kind`, or `other`. Cheap, and total."""
    levels = topic.split(b"/", 4)
    if len(levels) < 3 or levels[0] != b"shoal" or levels[1] != b"1":
        return "other"
    return _CLASSES.get(levels[min(3, len(levels) - 1)], "other")


def coordinator_filters(run: str) -> dict[str, int]:
    """What a leading coordinator subscribes to: filter -> QoS."""
    _check("run", run, RUN_PATTERN)
    return {
        f"{PREFIX}/{run}/req/+/+": 1,
        f"{PREFIX}/{run}/results/+/+": 1,
        f"{PREFIX}/{run}/status/+/+": 1,
        epoch(run): 1,  # to notice who overwrites what newcomers need
        WHO: 0,
    }


def leader_filters(run: str) -> dict[str, int]:
    """What follows a run's leader, without taking part: filter -> QoS.

    Exact topics: a broker need not send retained messages for a filter with wildcards.
    """
    return {epoch(run): 1, beat(run): 0, update(run): 0}


def worker_filters(run: str, worker: str, session: str) -> dict[str, int]:
    """What one session of a worker subscribes to: filter -> QoS."""
    return {
        **leader_filters(run),
        inbox(run, worker, session): 0,
        f"{PREFIX}/{run}/snap/+/{peer(worker, session)}": 0,
        f"{PREFIX}/{run}/ask/{peer(worker, session)}/+": 0,
        f"{PREFIX}/{run}/ask/{ALL}/+": 0,
    }


def _broadcast(run: str, kind: str) -> str:
    _check("run", run, RUN_PATTERN)
    return f"{PREFIX}/{run}/{kind}"


def _of_session(run: str, kind: str, worker: str, session: str) -> str:
    _check("run", run, RUN_PATTERN)
    _check("worker", worker, WORKER_PATTERN)
    _check("session", session, SESSION_PATTERN)
    return f"{PREFIX}/{run}/{kind}/{worker}/{session}"


def _check(what: str, value: str, pattern: re.Pattern[str]) -> None:
    if pattern.fullmatch(value) is None:
        raise TopicError(
            f"{value[:80]!r} cannot be the {what} in a topic: it must match {pattern.pattern}"
        )
