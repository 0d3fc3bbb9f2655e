import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.entrust import open_secret, seal_secret
from protocol.identity import new_secret
from protocol.messages import Entrust, decode, encode
from protocol.packing import WireError

keys = st.binary(min_size=32, max_size=32)


@given(keys, keys)
def test_secret_comes_out_as_it_went_in(session_key: bytes, secret: bytes) -> None:
    assert open_secret(session_key, seal_secret(session_key, secret)) == secret


def test_box_fits_its_message_and_hides_the_secret() -> None:
    session_key, secret = new_secret(), new_secret()
    box = seal_secret(session_key, secret)
    assert decode(encode(Entrust(box))) == Entrust(box)
    assert secret not in box
    assert box != seal_secret(session_key, secret)


def test_another_session_cannot_open_it() -> None:
    box = seal_secret(new_secret(), new_secret())
    with pytest.raises(WireError, match="not sealed in this session"):
        open_secret(new_secret(), box)


def test_any_damage_is_noticed() -> None:
    session_key = new_secret()
    box = seal_secret(session_key, new_secret())
    for index in range(len(box)):
        damaged = bytes([*box[:index], box[index] ^ 1, *box[index + 1 :]])
        with pytest.raises(WireError):
            open_secret(session_key, damaged)


@given(st.binary(max_size=256))
def test_nonsense_is_refused(box: bytes) -> None:
    with pytest.raises(WireError):
        open_secret(bytes(32), box)


def test_secret_of_another_length_is_refused() -> None:
    with pytest.raises(WireError, match="31 bytes"):
        open_secret(bytes(32), seal_secret(bytes(32), bytes(31)))
