"""Version 0 of a fork comes chunk by chunk, and only as the spec says that it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from coordinator.standby.beginning import PATIENCE, WINDOW, Beginning
from protocol import proof, replay, snapshot
from protocol.messages import CHUNK, Chunk
from protocol.spec import RunSpec
from tests.coordinator.runs import spec_of

LARGE: dict[str, Any] = {
    "environment": {"observation": {"kind": "box", "shape": [200_000]}},
    "optimizer": {"kind": "adam", "learning_rate": 0.1},
}


def given() -> tuple[RunSpec, list[Chunk]]:
    """A run of several megabytes that was given its version 0, and that in chunks."""
    spec = spec_of(**{k: v for k, v in LARGE.items() if k == "environment"})
    origin = replay.initial_state(spec)
    theta = np.linspace(0.0, 1.0, spec.size, dtype=np.float32)
    data = snapshot.to_bytes(dataclasses.replace(origin, theta=theta))
    digest = proof.proof(proof.cut(data)).digest.hex()
    policy = {"initialisation": "given", "initial_digest": digest}
    spec = spec_of(policy=policy, environment=LARGE["environment"])
    chunks = [Chunk(0, i, bytes(part)) for i, part in enumerate(proof.cut(data))]
    assert len(chunks) > 2 * WINDOW
    return spec, chunks


def test_windows_follow_one_another_until_all_is_here() -> None:
    spec, chunks = given()
    beginning = Beginning(spec)
    asked = 0
    while not beginning.complete:
        request = beginning.request(0.0)
        assert request is not None and (request.version, request.first) == (0, asked)
        assert beginning.request(0.0) is None
        for chunk in reversed(chunks[asked : asked + request.count]):
            beginning.take(chunk)
        asked += request.count
    assert asked == len(chunks)
    assert beginning.data == b"".join(chunk.data for chunk in chunks)
    assert beginning.request(100.0) is None


def test_what_is_lost_is_asked_for_again() -> None:
    spec, chunks = given()
    beginning = Beginning(spec)
    beginning.request(0.0)
    beginning.take(chunks[0])
    assert beginning.request(PATIENCE / 2) is None
    request = beginning.request(PATIENCE)
    assert request is not None and (request.first, request.count) == (1, WINDOW)


def test_a_forged_chunk_spoils_nothing_for_good() -> None:
    spec, chunks = given()
    beginning = Beginning(spec)
    for attempt in range(2):
        while (request := beginning.request(0.0)) is not None:
            for chunk in chunks[request.first : request.first + request.count]:
                forged = attempt == 0 and chunk.index == 3
                beginning.take(Chunk(0, chunk.index, bytes(CHUNK)) if forged else chunk)
        assert beginning.complete == (attempt == 1)


def test_chunks_that_fit_nowhere_are_passed_over() -> None:
    spec, chunks = given()
    beginning = Beginning(spec)
    beginning.request(0.0)
    beginning.take(Chunk(1, 0, chunks[0].data))
    beginning.take(Chunk(0, 0, chunks[0].data[:-1]))
    beginning.take(Chunk(0, 2**20, chunks[0].data))
    beginning.take(chunks[WINDOW])
    request = beginning.request(PATIENCE)
    assert request is not None and request.first == 0
