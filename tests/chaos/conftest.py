"""The broker between a run's processes, and what the run returns when nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.disturbed import RUN
from tests.chaos.processes import undisturbed_hash
from tests.protocol.mosquitto import Mosquitto


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the synchronous run when nothing happens."""
    path = tmp_path_factory.mktemp("undisturbed")
    return undisturbed_hash(path, *RUN, "--pool", "sync")
