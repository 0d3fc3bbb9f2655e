from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from protocol.envelope import (
    Wrapping,
    open_plain,
    open_sealed,
    open_signed,
    peek_signed,
    plain,
    sealed,
    signed,
    wrapping_of,
)
from protocol.identity import Identity
from protocol.messages import Beat, Credit, Message
from protocol.packing import MAX_MESSAGE, WireError

HOST, STRANGER = (Identity(bytes([n]) * 32) for n in (1, 2))
KEY = bytes(range(32))
CONTEXT = ("run-12345678", "worker")
BEAT = Beat(1, 2, bytes(16), "open")
CREDIT = Credit(2, 7, 1)

PLAIN = plain(BEAT)
SIGNED = signed(HOST, "update", CONTEXT, BEAT)
SEALED = sealed(KEY, "to coordinator", CREDIT)

Opened = Callable[[bytes], Message]
OPENERS: dict[str, tuple[bytes, Message, Opened]] = {
    "plain": (PLAIN, BEAT, open_plain),
    "signed": (
        SIGNED,
        BEAT,
        lambda payload: open_signed(payload, HOST.public_key, "update", CONTEXT),
    ),
    "sealed": (SEALED, CREDIT, lambda payload: open_sealed(payload, KEY, "to coordinator")),
    "peeked": (SIGNED, BEAT, peek_signed),
}


@pytest.mark.parametrize("name", OPENERS)
def test_what_is_wrapped_comes_out(name: str) -> None:
    payload, message, opened = OPENERS[name]
    assert opened(payload) == message


@pytest.mark.parametrize("name", ["signed", "sealed"])
def test_every_changed_byte_is_refused(name: str) -> None:
    payload, _, opened = OPENERS[name]
    for place in range(len(payload)):
        for change in (0x01, 0x80, 0xFF):
            tampered = bytearray(payload)
            tampered[place] ^= change
            with pytest.raises(WireError):
                opened(bytes(tampered))


@pytest.mark.parametrize("name", OPENERS)
def test_a_cut_payload_is_refused(name: str) -> None:
    payload, _, opened = OPENERS[name]
    for end in range(len(payload)):
        with pytest.raises(WireError):
            opened(payload[:end])


@pytest.mark.parametrize("name", ["signed", "sealed"])
def test_nothing_can_be_appended(name: str) -> None:
    payload, _, opened = OPENERS[name]
    with pytest.raises(WireError):
        opened(payload + b"\x00")


@pytest.mark.parametrize("name", OPENERS)
def test_one_wrapping_is_not_taken_for_another(name: str) -> None:
    payload, _, opened = OPENERS[name]
    for other in (PLAIN, SIGNED, SEALED):
        if other[0] != payload[0]:
            with pytest.raises(WireError, match="payload where"):
                opened(other)


def test_a_signature_is_for_one_key_one_use_and_one_place() -> None:
    good = (HOST.public_key, "update", CONTEXT)
    assert open_signed(SIGNED, *good) == BEAT
    for key, label, context in (
        (STRANGER.public_key, "update", CONTEXT),
        (HOST.public_key, "epoch", CONTEXT),
        (HOST.public_key, "updat", ("e", *CONTEXT)),
        (HOST.public_key, "update", ("run-12345678", "other")),
        (HOST.public_key, "update", ("run-12345678",)),
        (HOST.public_key, "update", ("run-12345678worker",)),
        (HOST.public_key, "update", ("run-12345678", "worker", "")),
        (HOST.public_key, "update", tuple(reversed(CONTEXT))),
        (b"", "update", CONTEXT),
        (bytes(32), "update", CONTEXT),
    ):
        with pytest.raises(WireError, match="not by the expected key"):
            open_signed(SIGNED, key, label, context)


def test_a_seal_is_for_one_session_and_one_direction() -> None:
    for key, direction in (
        (KEY, "to worker"),
        (bytes(32), "to coordinator"),
        (KEY[:-1] + b"\x00", "to coordinator"),
    ):
        with pytest.raises(WireError, match="not of this session"):
            open_sealed(SEALED, key, direction)  # type: ignore[arg-type]


def test_a_proof_is_not_taken_from_another_message() -> None:
    other = signed(HOST, "update", CONTEXT, Beat(1, 3, bytes(16), "open"))
    with pytest.raises(WireError):
        OPENERS["signed"][2](SIGNED[:65] + other[65:])
    more = sealed(KEY, "to coordinator", Credit(3, 7, 1))
    with pytest.raises(WireError):
        OPENERS["sealed"][2](SEALED[:17] + more[17:])


def test_a_stranger_can_not_sign_for_the_host() -> None:
    forged = signed(STRANGER, "update", CONTEXT, BEAT)
    with pytest.raises(WireError):
        OPENERS["signed"][2](forged)
    assert peek_signed(forged) == BEAT  # which proves nothing, as it says


@pytest.mark.parametrize("opened", [opened for _, _, opened in OPENERS.values()])
def test_hostile_payloads_raise_nothing_but_wire_errors(opened: Opened) -> None:
    for payload in (b"", b"\x00", b"\x03" + bytes(90), bytes(MAX_MESSAGE + 1), b"\x01" * 200):
        with pytest.raises(WireError):
            opened(payload)
    for first, second in itertools.product(range(4), range(256)):
        with pytest.raises(WireError):
            opened(bytes([first, second]) + bytes(80))


def test_the_wrapping_shows_without_opening() -> None:
    assert [wrapping_of(payload) for payload in (PLAIN, SIGNED, SEALED)] == list(Wrapping)
    for payload in (b"", b"\x07abc", b"\x00", b"\x02" + bytes(16), bytes(MAX_MESSAGE + 1)):
        with pytest.raises(WireError):
            wrapping_of(payload)


def test_the_layout_is_the_one_that_the_protocol_describes() -> None:
    assert len(PLAIN) + 64 == len(SIGNED)
    assert PLAIN[1:] == SIGNED[65:]
    assert len(SEALED) == 17 + len(plain(CREDIT)) - 1
