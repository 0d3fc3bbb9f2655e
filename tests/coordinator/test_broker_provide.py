"""How the broker that a host was asked for is secured, and what it is called for others."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.broker.provide import is_secured, provide
from coordinator.broker.tls import brought
from coordinator.directory import BrokerChoice
from protocol.address import parse_address
from protocol.certificate import self_signed
from protocol.errors import ShoalError
from tests.contract.raw import RawClient

EVERYWHERE = BrokerChoice(broker="embedded", bind="0.0.0.0", port=0, advertise="pool.example")


async def test_strangers_get_tls_with_the_same_certificate_every_time(tmp_path: Path) -> None:
    assert is_secured(EVERYWHERE)
    async with provide(EVERYWHERE, tmp_path, ()) as first:
        public = parse_address(first.public)
        assert (public.scheme, public.host) == ("mqtts", "pool.example")
        assert public.port == first.choice.port != 0
        assert first.address.certificate == public.certificate is not None
        assert (first.address.user, public.user) == ("host", None)
        assert first.address.password is not None
        assert first.address.password not in f"{first.address}{first.address!r}{first.public}"
        (await RawClient.connect(first.address.broker_with_credentials, "host")).abort()
    assert stat.S_IMODE((tmp_path / "broker.key").stat().st_mode) == 0o600
    async with provide(first.choice, tmp_path, ()) as again:
        assert again.public == first.public
        assert again.address.password != first.address.password
    async with provide(replace(EVERYWHERE, tls=False), tmp_path, ()) as plain:
        assert plain.public == f"mqtt://pool.example:{plain.choice.port}"
        assert plain.address.user == "host"  # strangers have rules all the same
    alone = replace(EVERYWHERE, bind="127.0.0.1", advertise=None)
    async with provide(alone, tmp_path, ()) as loopback:
        assert loopback.public == f"mqtt://127.0.0.1:{loopback.choice.port}"
        assert str(loopback.address) == loopback.public


async def test_a_certificate_that_was_brought_is_used(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    for path, content in zip((certificate, key), self_signed(["pool.example"]), strict=True):
        path.write_bytes(content)
    choice = replace(EVERYWHERE, tls_cert=str(certificate), tls_key=str(key))
    async with provide(choice, tmp_path, ()) as provided:
        pin = parse_address(provided.public).certificate
        assert pin == brought(certificate, key).pin
    assert not (tmp_path / "broker.key").exists()
    other = tmp_path / "other.pem"
    other.write_bytes(self_signed(["x"])[1])
    for wrong in (other, tmp_path / "none.pem", certificate):
        with pytest.raises(ShoalError, match=r"--tls-cert .*must be a certificate and its private"):
            brought(certificate, wrong)
    with pytest.raises(ShoalError, match="must be a certificate"):
        brought(key, key)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"broker": "mqtt://host", "tls": True}, "only for a broker that Shoal starts"),
        ({"broker": "mqtt://host", "tls_cert": "x"}, "only for a broker that Shoal starts"),
        ({"tls_cert": "x"}, "belong together"),
        ({"tls_cert": "x", "tls_key": "y", "tls": False}, "leave one of them out"),
    ],
)
async def test_what_does_not_go_together_is_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(ShoalError, match=named):
        async with provide(replace(EVERYWHERE, **changes), tmp_path, ()):  # type: ignore[arg-type]
            pass


async def test_a_broker_of_others_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_BROKER_PASSWORD", "secret")
    choice = BrokerChoice(broker="wss://me@broker.example/mqtt")
    async with provide(choice, tmp_path, (), "http://proxy:3128") as provided:
        assert (provided.address.password, provided.address.proxy) == (
            "secret",
            "http://proxy:3128",
        )
        assert provided.choice == choice  # what the environment says is kept nowhere
    assert not is_secured(choice)
