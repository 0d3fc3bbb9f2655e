"""Hold RabbitMQ's MQTT plugin to the contract of brokers: one node, then a cluster of two.

Needs Debian's package rabbitmq-server, or another one that is at `--rabbitmq`, and the test extra.
Everything runs on free ports of the loopback, in a temporary folder, and ends with the script:

    python -m scripts.check_rabbitmq

A table for `docs/operating.md` says which tests of `tests/contract` each of them passes. Takes
about ten minutes: a node starts in some seconds, and several tests wait for what must not come.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from protocol.address import parse_address
from tests.chaos.processes import join_url, running, worker

ROOT = Path(__file__).parent.parent
HOME = Path("/usr/lib/rabbitmq")
START_SECONDS = 400.0
TESTS = ("test_contract.py", "test_takeover.py", "test_outage.py")
QUIET = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Erlang's schedulers spin while they wait, unless told not to."""
CONFIGURATION = """\
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{port}
mqtt.allow_anonymous = true
mqtt.prefetch = 1000
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
log.console = false
"""


@dataclass(frozen=True)
class Node:
    """One node: its name, its port for MQTT, and the folder that it lives in."""

    name: str
    port: int
    epmd: int
    distribution: int
    folder: str
    home: str

    @property
    def url(self) -> str:
        return f"mqtt://guest:guest@127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        place = Path(self.folder)
        return {
            **os.environ,
            "HOME": str(place.parent),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(place / "data"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_PID_FILE": str(place / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": QUIET,
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_PORT": str(self.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def start(self) -> None:
        """Return once it takes MQTT. Raises SystemExit with the end of its log."""
        place = Path(self.folder)
        (place / "pid").unlink(missing_ok=True)
        with (place / "said").open("ab") as said:
            started = subprocess.Popen(
                ["nice", f"{self.home}/bin/rabbitmq-server"],
                cwd=place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and started.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"{self.name} does not start:\n{(place / 'said').read_text()[-2000:]}")

    def end(self, number: signal.Signals) -> None:
        """Return once it is gone."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            process = int((Path(self.folder) / "pid").read_text())
            os.kill(process, number)
            deadline = time.monotonic() + START_SECONDS
            while _lives(process):
                if time.monotonic() > deadline:
                    os.kill(process, signal.SIGKILL)
                time.sleep(0.1)


def _lives(process: int) -> bool:
    """Whether a process is there, and not only waits to be asked how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody has."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def prepared(count: int, folder: Path, home: Path) -> list[Node]:
    """So many nodes of one cluster, ready to be started."""
    epmd, *ports = free_ports(1 + 2 * count)
    cookie = folder / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(16))
    cookie.chmod(0o400)
    nodes = []
    for number in range(count):
        place = folder / f"node{number}"
        place.mkdir()
        node = Node(
            f"shoal{number}@localhost", ports.pop(), epmd, ports.pop(), str(place), str(home)
        )
        lines = CONFIGURATION.format(port=node.port)
        if count > 1:
            lines += "cluster_formation.peer_discovery_backend = classic_config\n"
            for other in range(count):
                line = (
                    f"cluster_formation.classic_config.nodes.{other + 1} = shoal{other}@localhost"
                )
                lines += line + "\n"
        (place / "rabbitmq.conf").write_text(lines)
        (place / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        (place / "node.json").write_text(json.dumps(asdict(node)))
        nodes.append(node)
    return nodes


@contextlib.contextmanager
def cluster(count: int, home: Path) -> Iterator[list[Node]]:
    """So many nodes that run, ended with all that they started."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-rabbitmq-"))
    nodes = prepared(count, folder, home)
    names = subprocess.Popen(
        ["epmd", "-port", str(nodes[0].epmd), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL
    )
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.end(signal.SIGKILL)
        names.kill()
        names.wait()
        shutil.rmtree(folder, ignore_errors=True)


def contract(nodes: list[Node]) -> dict[str, str]:
    """What becomes of each test: `passed`, or why not."""
    restart = f"exec {sys.executable} -m scripts.check_rabbitmq --restart {nodes[0].folder}"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
            + ["-k", "other", f"--junitxml={report}"]
            + [f"tests/contract/{name}" for name in TESTS],
            cwd=ROOT,
            env={
                **os.environ,
                "SHOAL_CONTRACT_BROKER": " ".join(node.url for node in nodes),
                "SHOAL_CONTRACT_RESTART": restart,
            },
            check=False,
        )
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return {_words(case.get("name", "")): _outcome(case) for case in cases}


def run(nodes: list[Node]) -> str:
    """Whether a run comes to its end whose host is at the first node, its worker at the last."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("shoal", "host", "CartPole-v1", "--updates", "4", "--broker", nodes[0].url)
        with running(*arguments, "--run-dir", f"{folder}/run") as host:
            url = parse_address(join_url(host))
            there = f"{nodes[-1].url}/{url.run}#{url.fingerprint}"
            with worker(there, Path(folder)) as joined:
                ends = (host.await_end(), joined.await_end())
        return "passed" if ends == (0, 0) else f"failure: {joined.lines[-1]}"


def _words(name: str) -> str:
    return re.sub(r"\[.*", "", name).removeprefix("test_").replace("_", " ")


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return f"{kind}: {(found.get('message') or '').splitlines()[0][:100]}"
    return "passed"


def version(node: Node) -> str:
    """That of RabbitMQ."""
    said = subprocess.run(
        [f"{node.home}/bin/rabbitmqctl", "version"],
        env=node.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


def main() -> None:
    """Start, test, end, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rabbitmq", type=Path, default=HOME, help="where its bin/ lies")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2], help="sizes of clusters")
    parser.add_argument("--restart", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restart is not None:
        node = Node(**json.loads((options.restart / "node.json").read_text()))
        node.end(signal.Signals[f"SIG{os.environ['SIGNAL']}"])
        node.start()
        return
    if not (options.rabbitmq / "bin" / "rabbitmq-server").exists():
        raise SystemExit(
            f"no RabbitMQ in {options.rabbitmq}: apt install rabbitmq-server, or give --rabbitmq"
        )
    outcomes: list[dict[str, str]] = []
    release = ""
    for count in options.nodes:
        with cluster(count, options.rabbitmq) as nodes:
            release = version(nodes[0])
            outcomes.append(contract(nodes))
            outcomes[-1]["a run with its host and its worker at different nodes"] = run(nodes)
    print(f"\nRabbitMQ {release}\n")
    sizes = [f"{count} node{'s' * (count != 1)}" for count in options.nodes]
    print("| | " + " | ".join(sizes) + " |\n|---|" + "---|" * len(sizes))
    for test in outcomes[0]:
        print(f"| {test} | " + " | ".join(found.get(test, "-") for found in outcomes) + " |")


if __name__ == "__main__":
    main()
