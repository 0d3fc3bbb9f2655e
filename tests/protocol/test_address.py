from __future__ import annotations

import dataclasses
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.address import FINGERPRINT_PATTERN, Address, AddressError, join_line, parse_address
from protocol.identity import fingerprint
from protocol.topics import RUN_PATTERN

RUN = "cartpole-1a2b3c4d"
PRINT = "abcdefghijklmnopqrstuvwxya"

CREDENTIALS = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=40
)
FINGERPRINTS = st.binary(min_size=32, max_size=32).map(fingerprint)
HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,10}){0,3}", fullmatch=True)


def test_a_plain_address_has_the_default_port() -> None:
    assert parse_address("mqtt://example.org") == Address("mqtt", "example.org", 1883)
    assert parse_address("mqtts://example.org") == Address("mqtts", "example.org", 8883)
    assert parse_address("MQTT://Example.org:1884/").port == 1884


def test_a_join_address_has_everything() -> None:
    address = parse_address(f"mqtts://me:se%40cret@[::1]:8884/{RUN}#{PRINT.upper()}")
    assert address == Address("mqtts", "::1", 8884, "me", "se@cret", RUN, PRINT)
    assert address.tls
    assert address.broker == "mqtts://[::1]:8884"
    assert str(address) == f"mqtts://me:***@[::1]:8884/{RUN}#{PRINT}"


@given(
    st.sampled_from(["mqtt", "mqtts", "ws", "wss"]),
    HOSTS | st.ip_addresses(v=6).map(lambda ip: f"[{ip}]"),
    st.integers(1, 65535),
    st.none() | CREDENTIALS,
    st.none() | CREDENTIALS,
    st.none() | st.from_regex(RUN_PATTERN, fullmatch=True),
    st.none() | FINGERPRINTS,
    st.none() | FINGERPRINTS,
    st.sampled_from(["", "/mqtt", "/a/b.c"]),
)
def test_every_address_reads_back(
    scheme: str,
    host: str,
    port: int,
    user: str | None,
    password: str | None,
    run: str | None,
    key: str | None,
    certificate: str | None,
    place: str,
) -> None:
    credentials = ""
    if user is not None:
        credentials = quote(user, safe="")
        if password is not None:
            credentials += ":" + quote(password, safe="")
        credentials += "@"
    else:
        password = None
    certificate = certificate if scheme in ("mqtts", "wss") else None
    place = place if scheme in ("ws", "wss") else ""
    path = f"{place}/{run}" if run else place
    fragment = f"#{key or ''}" if key or certificate else ""
    fragment += f".{certificate}" if certificate else ""
    text = f"{scheme}://{credentials}{host}:{port}{path}{fragment}"
    if len(text) > 1024 or len((user or "").encode()) > 256 or len((password or "").encode()) > 256:
        return
    address = parse_address(text)
    assert (address.scheme, address.host, address.port) == (scheme, host.strip("[]"), port)
    assert (address.user, address.password) == (user, password)
    assert (address.run, address.fingerprint) == (run, key)
    assert address.certificate == certificate
    assert address.path == (place or ("/mqtt" if address.websocket else ""))
    if password is None:
        assert parse_address(str(address)) == address
    again = parse_address(address.broker_with_credentials)
    assert again == dataclasses.replace(address, run=None, fingerprint=None)


@given(st.from_regex(r"[0-9]{3}[!-~]{8,30}[0-9]{3}", fullmatch=True))
def test_the_password_is_never_shown(password: str) -> None:
    address = parse_address(f"mqtt://me:{quote(password, safe='')}@host:1883")
    assert address.password == password
    for shown in (str(address), repr(address), f"{address}", address.broker):
        assert password not in shown
        assert quote(password, safe="") not in shown


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "mqtt://"),
        ("localhost", "does not begin with mqtt://"),
        ("localhost:1883", "does not begin with mqtt://"),
        ("http://host", "does not begin with mqtt://"),
        ("ws://host/a b", "space"),
        ("wss://host/mqtt//x", "path of a WebSocket"),
        ("wss://host/%2e", "path of a WebSocket"),
        ("mqtt:host", "does not begin"),
        ("mqtt://", "not a host name"),
        ("mqtt://:1883", "not a host name"),
        ("mqtt://ho st", "space"),
        ("mqtt://host\n", "space or a control character"),
        ("mqtt://host\0", "control character"),
        ("mqtt://h%6fst", "not a host name"),
        ("mqtt://-host", "not a host name"),
        ("mqtt://a..b", "not a host name"),
        ("mqtt://" + "a" * 64, "not a host name"),
        ("mqtt://h\u00f6st", "not a host name"),
        ("mqtt://host:", "not a port"),
        ("mqtt://host:0", "1 to 65535"),
        ("mqtt://host:65536", "1 to 65535"),
        ("mqtt://host:+1", "not a port"),
        ("mqtt://host:1_0", "not a port"),
        ("mqtt://host:\u0661", "not a port"),
        ("mqtt://host:1:2", "not a port"),
        ("mqtt://[::1", "not an"),
        ("mqtt://[zz]:1883", "not an"),
        ("mqtt://[1.2.3.4]", "not an"),
        ("mqtt://host?x=1", "query"),
        ("mqtt://host?", "query"),
        ("mqtt://host/cartpole", "not a run"),
        (f"mqtt://host/{RUN}/more", "not a run"),
        (f"mqtt://host//{RUN}", "not a run"),
        (f"mqtt://host/{RUN}#abc", "26 letters"),
        (f"mqtt://host/{RUN}#{PRINT[:-1]}b", "26 letters"),
        (f"mqtt://host/{RUN}#{PRINT}a", "26 letters"),
        (f"mqtts://host/{RUN}#{PRINT}.", "26 after the dot"),
        (f"mqtts://host/{RUN}#{PRINT}.{PRINT}.{PRINT}", "26 after the dot"),
        (f"mqtt://host/{RUN}#{PRINT}.{PRINT}", "has no certificate"),
        (f"ws://host#.{PRINT}", "has no certificate"),
        ("mqtt://@host", "user name before the @ is empty"),
        ("mqtt://:secret@host", "user name before the @ is empty"),
        ("mqtt://%ff@host", "UTF-8"),
        ("mqtt://me:%00@host", "NUL"),
        ("mqtt://" + "u" * 300 + "@host", "at most 256 bytes"),
        ("mqtt://" + "a" * 2000, "too long"),
    ],
)
def test_errors_name_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    [
        "http://me:hunter2@host",
        "me:hunter2@host",
        "mqtt://me:hunter2@host:x",
        "mqtt://me:hunter2@ho st",
        "mqtt://me:hunter2@[::1",
        "mqtt://me:hunter2@host/bad",
        "mqtt://me:hunter2@host#bad",
        "mqtt://me:hunter2%ff@host",
        "ws://me:hunter2@host/%",
        "mqtt://me:hunter2@host?x",
        "mqtt://me:hunter2/@host",
        "mqtt://me:hunter2#@host",
        "mqtt://me:hunter2?@host",
    ],
)
def test_errors_never_repeat_the_password(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=100) | st.text(max_size=60).map(lambda text: f"mqtt://{text}"))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    try:
        address = parse_address(text)
    except AddressError:
        return
    assert 1 <= address.port <= 65535
    assert address.host


def test_the_join_line_reads_back_and_keeps_the_hosts_password() -> None:
    line = join_line("mqtt://host:1883", RUN, PRINT)
    assert line == f"shoal join mqtt://host:1883/{RUN}#{PRINT}"
    assert parse_address(line.split()[-1]).fingerprint == PRINT
    line = join_line("mqtts://me:secret@host", RUN, PRINT)
    assert line == f"shoal join mqtts://USER:PASSWORD@host:8883/{RUN}#{PRINT}"
    assert "secret" not in line
    line = join_line(f"wss://host/mqtt#.{PRINT}", RUN, PRINT)
    assert line == f"shoal join wss://host:443/{RUN}#{PRINT}.{PRINT}"
    assert parse_address(f"wss://host/{RUN}").pinned_broker == "wss://host:443"
    pinned = parse_address(line.split()[-1])
    assert pinned.pinned_broker == f"wss://host:443#.{PRINT}"


def test_fingerprints_of_keys_are_those_that_addresses_take() -> None:
    for byte in range(64):
        assert FINGERPRINT_PATTERN.fullmatch(fingerprint(bytes([byte]) * 32))


def test_the_broker_with_credentials_leads_to_the_same_broker() -> None:
    address = parse_address("mqtts://ann%40x:p%2Fw@[::1]:99/cartpole-1a2b3c4d")
    again = parse_address(address.broker_with_credentials)
    assert again == dataclasses.replace(address, run=None)
