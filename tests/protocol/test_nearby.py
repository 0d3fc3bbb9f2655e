from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.address import AddressError, parse_address
from protocol.nearby import LONGEST_TEXT, Nearby, announced, heard, networks

URL = "mqtts://192.0.2.7:8883/cartpole-1a2b3c4d#" + "a" * 26 + "." + "e" * 26


def entries(said: dict[str, str]) -> dict[bytes, bytes | None]:
    return {key.encode(): value.encode() for key, value in said.items()}


@pytest.mark.parametrize("asks", [True, False])
def test_what_is_announced_is_heard(asks: bool) -> None:
    found = Nearby(parse_address(URL), "CartPole-v1", asks)
    assert heard(entries(announced(found))) == found


def test_nothing_secret_is_announced() -> None:
    address = replace(
        parse_address(URL.replace("://", "://me:word@")),
        invite="shoal-invite-" + "b" * 52,
        proxy="http://me:other@proxy:3128",
    )
    said = str(announced(Nearby(address, "CartPole-v1", True)))
    for secret in ("word", "invite", "other", "me:", "proxy"):
        assert secret not in said


def test_an_address_that_does_not_fit_is_refused() -> None:
    long = replace(parse_address(URL), host=".".join(["a" * 63] * 3))
    with pytest.raises(AddressError, match="--advertise"):
        announced(Nearby(long, "CartPole-v1"))


@given(
    st.dictionaries(
        st.sampled_from([b"url", b"environment", b"asks", b"v"]),
        st.none() | st.binary(max_size=LONGEST_TEXT) | st.just(URL.encode()),
    )
)
def test_whatever_somebody_announces_is_read_or_nothing(said: dict[bytes, bytes | None]) -> None:
    found = heard(said)
    if found is not None:
        assert found.environment.isprintable()
        assert len(found.environment) <= 100
        assert str(found.address).isprintable()
        assert found.address.user is None and found.address.fingerprint is not None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mqtt://h",
        URL.partition("#")[0],
        URL.replace("://", "://me:word@"),
        "http://h",
        "\x1b[2J",
    ],
)
def test_who_names_no_run_and_key_is_not_heard(url: str) -> None:
    assert heard({b"url": url.encode(), b"environment": b"x"}) is None


def test_networks_are_chosen_by_the_environment() -> None:
    assert networks({}) is None
    assert networks({"SHOAL_LOCAL_NETWORK": " "}) is None
    assert networks({"SHOAL_LOCAL_NETWORK": "192.0.2.7, 10.0.0.1"}) == ["192.0.2.7", "10.0.0.1"]
