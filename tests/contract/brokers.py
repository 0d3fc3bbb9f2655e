"""The brokers that Shoal can start, and whether this machine can test them."""

from __future__ import annotations

import os

import pytest

from coordinator.broker.mosquitto import find_mosquitto

KINDS = ("embedded", "mosquitto")


def require(kind: str) -> None:
    """Skip the test where `kind` is not installed, or fail it where all brokers are required."""
    if kind == "mosquitto" and find_mosquitto() is None:
        if os.environ.get("SHOAL_REQUIRE_BROKERS") == "1":
            pytest.fail("mosquitto is not installed, and SHOAL_REQUIRE_BROKERS=1")
        pytest.skip("mosquitto is not installed")
