"""Does a run survive? `python -m scripts.check_recovery` from the root of a checkout.

Each trial trains CartPole-v1 in synchronous mode with two workers, kills one process by SIGKILL at
a random moment, and compares the hash at the end with that of an undisturbed run of the same seed.
What is killed: `host` (its broker dies with it) and resumed at once; `worker`, another one joins;
`broker`, a mosquitto that is started again; `leader`, whose place a standby takes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import paho.mqtt.client as mqtt

from protocol.envelope import Wrapping, wrapping_of
from protocol.identity import MAC_BYTES
from protocol.messages import Task, decode
from protocol.packing import WireError
from tests.chaos.processes import Running, await_updates, join_url, running, updates, worker
from tests.protocol.mosquitto import Mosquitto, free_port

UPDATES = 20
SPEC: tuple[str, ...] = (
    "CartPole-v1",
    "--seed",
    "5",
    "--normalize",
    "--quorum",
    "1",
    "--max-staleness",
    "0",
)
SPEC += ("--updates", str(UPDATES), "--set", "stop.target=1e9", "--population", "128")
SPEC += ("--set", "environment.max_steps=100")
SMALL_TASKS = ("--set", "pool.task_seconds=0.02", "--set", "pool.minimum_task_seconds=0")


class Spy:
    """Notes when tasks pass a broker; reconnects every few milliseconds when it is gone."""

    def __init__(self, port: int) -> None:
        self.tasks: list[tuple[float, int]] = []
        """when it passed, and the epoch that leased it"""
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def first_after(self, moment: float, epoch: int = 1, limit: float = 60.0) -> float:
        """Seconds from a moment to the next task of that epoch or a later one."""
        while time.monotonic() < moment + limit:
            for seen, leased_in in list(self.tasks):
                if seen > moment and leased_in >= epoch:
                    return seen - moment
            time.sleep(0.005)
        raise SystemExit(f"no task within {limit:.0f} s")

    def close(self) -> None:
        self._over.set()
        self._thread.join(5.0)

    def _watch(self) -> None:
        while not self._over.is_set():
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
            client.on_message = self._heard
            client.on_connect = lambda client, *_: client.subscribe("shoal/1/+/in/+/+", 0)
            try:
                client.connect("127.0.0.1", self._port, keepalive=10)
                while not self._over.is_set() and client.loop(0.05) == mqtt.MQTT_ERR_SUCCESS:
                    pass
            except OSError:
                time.sleep(0.01)

    def _heard(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        with suppress(WireError):
            if wrapping_of(message.payload) is Wrapping.SEALED:
                task = decode(message.payload[1 + MAC_BYTES :])
                if isinstance(task, Task):
                    # The epoch is in the task's number: no two epochs share one.
                    self.tasks.append((time.monotonic(), 1 + (task.task >> 32)))


def final_hash(run_dir: Path) -> str:
    """The hash of the last version, as the log tells it."""
    command = [sys.executable, "-m", "shoal", "log", str(run_dir), "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    last = json.loads(lines[-1])
    if last["version"] != UPDATES:
        raise SystemExit(f"{run_dir} ends at version {last['version']}, not {UPDATES}")
    return str(last["params_hash"])


class Trial:
    """The processes of one run, all gone when it is left."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        path.mkdir()
        self.path = path
        self.run_dir = path / "run"
        self.port = free_port()
        self._stack = stack

    def start(self, *arguments: object) -> Running:
        """A `shoal` command."""
        return self._stack.enter_context(running("shoal", *map(str, arguments)))

    def host(self, *arguments: str) -> Running:
        """A host on the trial's port."""
        return self.start("host", *arguments, "--port", self.port, "--json")

    def own_broker(self) -> Running:
        """A host with its broker."""
        return self.host(
            *SPEC, *SMALL_TASKS, "--broker", "embedded", "--run-dir", str(self.run_dir)
        )

    def at_broker(self, *more: str) -> Running:
        """A host at a broker of somebody else."""
        url = f"mqtt://127.0.0.1:{self.port}"
        where = ("--broker", url, "--run-dir", self.run_dir)
        return self.start("host", *SPEC, *SMALL_TASKS, *more, *where, "--json")

    def worker(self, name: str, url: str) -> Running:
        """One more worker."""
        return self._stack.enter_context(worker(url, self.path / name))

    def workers(self, leader: Running) -> None:
        """Two workers of that host."""
        for name in ("first", "second"):
            self.worker(name, join_url(leader))

    def mosquitto(self) -> Mosquitto:
        """A broker of its own that keeps its port over restarts."""
        broker = Mosquitto(self.path)
        self._stack.callback(broker.kill)
        broker.start()
        self.port = broker.port
        return broker


def undisturbed(path: Path) -> tuple[str, float]:
    """The hash of a run to which nothing happens, and the seconds from its first update to its
    last."""
    with ExitStack() as stack:
        trial = Trial(path, stack)
        leader = trial.own_broker()
        trial.workers(leader)
        leader.await_end()
        made = updates(trial.run_dir)
        return final_hash(trial.run_dir), made[-1]["seconds"] - made[0]["seconds"]


def kill_host(trial: Trial, wait: Callable[[], None]) -> float:
    """The coordinator and its broker die, and it is resumed at once: seconds to the next task."""
    leader = trial.own_broker()
    trial.workers(leader)
    spy = Spy(trial.port)
    wait()
    leader.signal(signal.SIGKILL)
    killed = time.monotonic()
    leader.await_end()
    resumed = trial.host("--resume", str(trial.run_dir))
    seconds = spy.first_after(killed, epoch=2)
    spy.close()
    resumed.await_end()
    return seconds


def kill_worker(trial: Trial, wait: Callable[[], None]) -> float:
    """A worker dies, another one joins."""
    leader = trial.own_broker()
    url = join_url(leader)
    victim = trial.worker("victim", url)
    trial.worker("other", url)
    spy = Spy(trial.port)
    wait()
    victim.signal(signal.SIGKILL)
    killed = time.monotonic()
    trial.worker("newcomer", url)
    seconds = spy.first_after(killed)
    spy.close()
    leader.await_end()
    return seconds


def kill_broker(trial: Trial, wait: Callable[[], None]) -> float:
    """The broker dies and is started again."""
    broker = trial.mosquitto()
    leader = trial.at_broker()
    trial.workers(leader)
    spy = Spy(trial.port)
    wait()
    broker.kill()
    killed = time.monotonic()
    broker.start()
    seconds = spy.first_after(killed)
    spy.close()
    leader.await_end()
    return seconds


def kill_leader(trial: Trial, wait: Callable[[], None]) -> float:
    """The coordinator dies for good; a standby leads on."""
    trial.mosquitto()
    home = str(trial.path / "standby-home")
    shown = subprocess.run(
        [sys.executable, "-m", "shoal", "key", "show", "--home", home],
        capture_output=True,
        text=True,
        check=True,
    )
    leader = trial.at_broker("--delegate", shown.stdout.split()[-1])
    first_dir, trial.run_dir = trial.run_dir, trial.path / "standby"
    standing = ("host", "--standby", join_url(leader), "--home", home)
    standby = trial.start(*standing, "--run-dir", trial.run_dir)
    standby.await_line("rank")
    trial.workers(leader)
    spy = Spy(trial.port)
    await_updates(first_dir, 1)
    wait()
    leader.signal(signal.SIGKILL)
    killed = time.monotonic()
    seconds = spy.first_after(killed, epoch=2)
    spy.close()
    standby.await_end()
    return seconds


KINDS: dict[str, Callable[[Trial, Callable[[], None]], float]] = {
    "host": kill_host,
    "worker": kill_worker,
    "broker": kill_broker,
    "leader": kill_leader,
}


def attempt(kind: str, path: Path, version: int, delay: float) -> tuple[float, str]:
    """A run in which one dies so many seconds after an update: seconds to the next task, and the
    hash at the end."""
    with ExitStack() as stack:
        trial = Trial(path, stack)
        run_dir = trial.run_dir

        def wait() -> None:
            await_updates(run_dir, version)
            time.sleep(delay)  # the moment is random by design

        took = KINDS[kind](trial, wait)
        return took, final_hash(trial.run_dir)


def main() -> None:
    """Run the trials one after the other, print a line for each, then what they came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kill", choices=[*KINDS, "all"], default="host")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        expected, whole = undisturbed(Path(directory) / "undisturbed")
        print(f"undisturbed: {whole:.1f} s from the first update to the last, hash {expected}")
        for kind in KINDS if options.kill == "all" else (options.kill,):
            same, seconds = 0, []
            for number in range(options.runs):
                version = moments.randint(1, UPDATES - 4)
                delay = moments.uniform(0.0, whole / UPDATES)
                path = Path(directory) / f"{kind}-{number}"
                took, found = attempt(kind, path, version, delay)
                same += found == expected
                seconds.append(took)
                verdict = "same" if found == expected else f"OTHER hash {found}"
                print(
                    f"{kind} {number:2d}: killed {delay:.2f} s after update {version:2d}, "
                    f"next task after {took:.2f} s, {verdict}",
                    flush=True,
                )
            print(
                json.dumps(
                    {
                        "killed": kind,
                        "runs": options.runs,
                        "same_hash": same,
                        "median_seconds_to_next_task": round(statistics.median(seconds), 3),
                        "worst_seconds_to_next_task": round(max(seconds), 3),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
