"""Looking on the loopback interface for what others announce there, whatever they announce."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from random import Random

import pytest
from zeroconf import ServiceInfo, Zeroconf

from protocol.address import parse_address
from protocol.nearby import SERVICE, Nearby, announced
from worker import nearby
from worker.nearby import look_around

MINE = "Nearby-v0"
URL = "mqtt://192.0.2.7:1883/cartpole-1a2b3c4d#" + "a" * 26


@pytest.fixture
def network() -> Iterator[Zeroconf]:
    opened = Zeroconf(interfaces=["127.0.0.1"])
    yield opened
    opened.close()


def service(name: str, properties: dict[str, str]) -> ServiceInfo:
    return ServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        addresses=[socket.inet_aton("127.0.0.1")],
        port=1883,
        properties=properties,
        server=f"{name}.local.",
    )


def test_it_finds_what_is_announced_and_lets_the_rest_be(network: Zeroconf) -> None:
    found = Nearby(parse_address(URL), MINE, True)
    for name, said in {
        "good": announced(found),
        "twin": announced(found),
        "nothing": {},
        "no-key": {"url": "mqtt://192.0.2.7:1883", "environment": "x"},
        "steering": {"url": "\x1b[2J", "environment": "\x1b]0;owned\x07"},
    }.items():
        network.register_service(service(name, said), cooperating_responders=True)
    seen = asyncio.run(look_around(1.0))  # other tests may announce runs here, too
    assert [nearby for nearby in seen if nearby.environment == MINE] == [found]
    assert all(nearby.environment.isprintable() for nearby in seen)


def test_it_looks_at_so_many_at_most(network: Zeroconf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "MOST_FOUND", 3)
    for number in range(6):
        url = URL.replace("1a2b3c4d", f"0000000{number}")
        said = announced(Nearby(parse_address(url), "CartPole-v1"))
        network.register_service(service(f"r{number}", said), cooperating_responders=True)
    assert len(asyncio.run(look_around(1.0))) <= 3


def test_packets_that_are_none_hide_nobody_and_leave_no_word(
    network: Zeroconf, caplog: pytest.LogCaptureFixture
) -> None:
    """Names that are too long, lengths that lie, noise: some break the library's own browser."""
    found = Nearby(parse_address(URL), MINE)
    network.register_service(service("flooded", announced(found)), cooperating_responders=True)
    random, over = Random(1), threading.Event()

    def flood() -> None:
        kind = b"\x06_shoal\x04_tcp\x05local\x00"
        answer = b"\0\0\x84\0\0\0\0\x01\0\0\0\0"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            stranger.bind(("127.0.0.1", 5353))
            home = socket.inet_aton("127.0.0.1")
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, home)
            while not over.wait(0.002):
                name = bytes([40]) + random.randbytes(40) + kind
                record = kind + struct.pack(">HHIH", 12, 1, 120, len(name)) + name
                for packet in (
                    answer + record,
                    answer + random.randbytes(80),
                    random.randbytes(80),
                ):
                    stranger.sendto(packet, ("224.0.0.251", 5353))

    stranger = threading.Thread(target=flood)
    stranger.start()
    try:
        seen = asyncio.run(look_around(1.5))
    finally:
        over.set()
        stranger.join()
    assert [nearby for nearby in seen if nearby.environment == MINE] == [found]
    assert caplog.records == []
