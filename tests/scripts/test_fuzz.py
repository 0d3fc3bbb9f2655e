"""Every decoder keeps its word on changed payloads; `scripts/fuzz.py` gives them a million."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scripts.fuzzing import trying
from scripts.fuzzing.trying import DECODERS, Fault, tried

SLOW = {"carved": 20, "run-file": 5, "kept-steps": 5, "history": 5, "hello": 2}
"""Of these there are so many times fewer payloads."""
PAYLOADS = 160


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_survives(name: str) -> None:
    payloads = PAYLOADS // SLOW.get(name, 1)
    done = tried(name, payloads, seed=20)
    assert done.payloads == payloads and done.accepted <= payloads
    assert 0 < done.largest < trying.MOST_BYTES and 0.0 < done.slowest < trying.MOST_SECONDS


def test_an_error_that_is_not_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = DECODERS["messages"]

    def undeclared(scratch: Path) -> trying.Decoder:
        return dataclasses.replace(made(scratch), refusals=(KeyError,))

    monkeypatch.setitem(trying.DECODERS, "messages", undeclared)
    with pytest.raises(Fault, match=r"payload [0-9]+ of seed 3: WireError") as found:
        tried("messages", 50, seed=3)
    assert found.value.payload


@pytest.mark.parametrize(
    ("limit", "what"), [("MOST_SECONDS", r"[0-9.]+ s\n"), ("MOST_BYTES", "memory")]
)
def test_time_and_memory_are_bounded(
    limit: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, limit, 0)
    with pytest.raises(Fault, match=what):
        tried("messages", 50, seed=3)


def test_a_payload_can_be_made_again(tmp_path: Path) -> None:
    decoder = DECODERS["messages"](tmp_path)
    made = [trying.payload_of("messages", decoder, 5, number) for number in range(30)]
    assert made == [trying.payload_of("messages", decoder, 5, number) for number in range(30)]
    assert len(set(made)) == 30
