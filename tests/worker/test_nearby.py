"""Looking on the loopback interface for what others announce there, whatever they announce."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from zeroconf import ServiceInfo, Zeroconf

from protocol.address import parse_address
from protocol.nearby import SERVICE, Nearby, announced
from worker import nearby
from worker.nearby import look_around

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
    found = Nearby(parse_address(URL), "CartPole-v1", True)
    for name, said in {
        "good": announced(found),
        "twin": announced(found),
        "nothing": {},
        "no-key": {"url": "mqtt://192.0.2.7:1883", "environment": "x"},
        "steering": {"url": "\x1b[2J", "environment": "\x1b]0;owned\x07"},
    }.items():
        network.register_service(service(name, said), cooperating_responders=True)
    assert asyncio.run(look_around(1.0)) == [found]


def test_it_looks_at_so_many_at_most(network: Zeroconf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "MOST_FOUND", 3)
    for number in range(6):
        url = URL.replace("1a2b3c4d", f"0000000{number}")
        said = announced(Nearby(parse_address(url), "CartPole-v1"))
        network.register_service(service(f"r{number}", said), cooperating_responders=True)
    assert len(asyncio.run(look_around(1.0))) == 3
