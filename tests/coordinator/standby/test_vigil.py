"""When a silent leader is one that is gone, and whose turn it is then."""

from __future__ import annotations

import pytest

from coordinator.standby.vigil import HEAD_START, PROOF_PATIENCES, STEP, Vigil, turn_after
from protocol.messages import Beat, Phase

PATIENCE = 5.0


def beat(epoch: int, phase: Phase = "open") -> Beat:
    return Beat(epoch, 0, b"d" * 16, phase)


def watching(epoch: int = 1) -> Vigil:
    vigil = Vigil(PATIENCE)
    vigil.connected(0.0)
    vigil.proved(epoch, 0.0)
    return vigil


def test_each_rank_has_its_turn() -> None:
    assert turn_after(1, PATIENCE) == PATIENCE
    assert turn_after(3, PATIENCE) == PATIENCE + 2 * STEP
    assert turn_after(0, PATIENCE) == PATIENCE - HEAD_START
    assert turn_after(0, 0.4) > 0.0
    vigil = watching()
    assert not vigil.turn(1, PATIENCE) and vigil.turn(1, PATIENCE + 0.1)
    assert not vigil.turn(2, PATIENCE + 0.1) and vigil.turn(2, PATIENCE + STEP + 0.1)


def test_a_beat_is_a_sign_of_life() -> None:
    vigil = watching()
    assert vigil.beat(beat(1), 4.0)
    assert not vigil.turn(1, 4.0 + PATIENCE) and vigil.turn(1, 4.1 + PATIENCE)


@pytest.mark.parametrize("phase", ["lost", "finished"])
def test_last_words_are_none(phase: Phase) -> None:
    vigil = watching()
    assert not vigil.beat(beat(1, phase), 4.0)
    assert vigil.turn(1, 5.1)


def test_beats_of_an_earlier_epoch_are_none() -> None:
    """Somebody may send again whatever was ever sent."""
    vigil = watching(epoch=3)
    assert not vigil.beat(beat(2), 4.0)
    assert vigil.turn(1, 5.1)
    known = Vigil(PATIENCE)
    known.outdone(3)
    known.connected(0.0)
    assert not known.beat(beat(2), 4.0) and known.beat(beat(3), 4.0)


def test_beats_without_anything_signed_do_not_count_for_ever() -> None:
    vigil = watching()
    now = 0.0
    while not vigil.turn(1, now):
        now += 1.0
        vigil.beat(beat(1), now)
        assert vigil.wants_proof(now) == (now > 2 * PATIENCE)
        assert now < 1000.0
    assert now > PROOF_PATIENCES * PATIENCE
    assert not vigil.beat(beat(1), now)
    vigil.proved(1, now)
    assert not vigil.turn(1, now + PATIENCE) and not vigil.wants_proof(now + PATIENCE)


def test_what_an_earlier_epoch_signed_is_no_proof() -> None:
    vigil = watching(epoch=3)
    vigil.proved(2, 4.0)
    assert vigil.turn(1, 5.1)


def test_silence_counts_only_while_we_can_hear() -> None:
    vigil = watching()
    vigil.disconnected()
    assert not vigil.turn(1, 100.0) and vigil.silence(100.0) == 0.0
    assert not vigil.beat(beat(1), 100.0)
    vigil.proved(1, 100.0)
    vigil.connected(200.0)
    assert not vigil.turn(1, 204.0) and vigil.turn(1, 205.1)


def test_who_was_asleep_has_heard_nothing_and_knows_nothing() -> None:
    vigil = watching()
    now = 0.0
    while now < PATIENCE - 1.0:
        now += 0.1
        vigil.tick(now)
    now += 3600.0
    vigil.tick(now)
    assert not vigil.turn(1, now) and vigil.silence(now) == 0.0
    awake = now
    while now < awake + PATIENCE:
        now += 0.1
        vigil.tick(now)
    assert vigil.turn(1, now + 0.1)
    vigil.disconnected()
    vigil.tick(now + 3600.0)
    assert not vigil.turn(1, now + 7200.0)
