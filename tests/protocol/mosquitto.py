"""Starts a real mosquitto as a child on a free loopback port, for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

START_DEADLINE = 10.0


def mosquitto_path() -> str:
    """The broker's executable; skips the test where there is none, unless brokers are required."""
    path = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        if os.environ.get("SHOAL_REQUIRE_BROKERS") == "1":
            pytest.fail("mosquitto is not installed, and SHOAL_REQUIRE_BROKERS=1 demands it")
        pytest.skip("mosquitto is not installed")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Mosquitto:
    """One broker; it keeps its port when it is killed and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.path = mosquitto_path()
        self.port = free_port()
        self.configuration = directory / f"mosquitto-{self.port}.conf"
        lines = [f"listener {self.port} 127.0.0.1", "set_tcp_nodelay true", *options]
        if not any(line.startswith("allow_anonymous") for line in options):
            lines.append("allow_anonymous true")
        if os.getuid() == 0:
            lines.append("user root")
        self.configuration.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = self.configuration.with_suffix(".log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [self.path, "-c", str(self.configuration)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(self.configuration.with_suffix(".log").read_text())

    def kill(self) -> None:
        """As `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
