"""A mosquitto of ours serves whoever starts it, from a directory that nobody else may enter."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coordinator.broker import Rules
from coordinator.broker.mosquitto import MosquittoBroker
from coordinator.broker.passwords import hashed
from coordinator.broker.tls import own
from protocol import topics
from tests.contract.brokers import require
from tests.contract.raw import DEADLINE, RawClient

NOBODY = "nobody"
ROOT = Path(__file__).parent.parent.parent
RUN, ANN = "cartpole-1a2b3c4d", "a" * 16


async def serve(directory: Path) -> None:
    """All that mosquitto reads at its start, and again later, it can read; and nobody else."""
    directory.mkdir(mode=0o700)
    tls, rules = own(directory, ["127.0.0.1"]), Rules(passes={"ann": hashed("first")})
    async with MosquittoBroker("127.0.0.1", 0, None, directory, tls, rules) as broker:
        strangers = broker.public("127.0.0.1").partition("#")[0]
        host = await RawClient.connect(broker.url, "host")
        await host.publish(topics.epoch(RUN), b"led", qos=1, retain=True)
        await RawClient.connect(strangers.replace("://", "://ann:first@"), "ann")
        broker.admit({"bob": hashed("second")})
        bob = strangers.replace("://", "://bob:second@")
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    client = await RawClient.connect(bob, "bob")
                    break
                except PermissionError:
                    await asyncio.sleep(0.02)
        await client.subscribe(topics.epoch(RUN), 1)
        assert (await client.message()).payload == b"led"
        assert broker._folder is not None
        assert stat.S_IMODE(broker._folder.stat().st_mode) == 0o700
        for path in broker._folder.iterdir():
            if path.name != "mosquitto.db":  # mosquitto's own, in a folder that is closed
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert sorted(path.name for path in directory.iterdir()) == [
        "broker.crt",
        "broker.key",
        "mosquitto.log",
    ]


async def test_it_serves_who_runs_the_tests(tmp_path: Path) -> None:
    require("mosquitto")
    await serve(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_it_serves_a_user_without_rights() -> None:
    require("mosquitto")
    folder = Path(tempfile.mkdtemp(prefix="shoal-test-"))  # pytest's own is root's alone
    try:
        user = pwd.getpwnam(NOBODY)
        os.chown(folder, user.pw_uid, user.pw_gid)
        done = subprocess.run(
            [sys.executable, "-m", "tests.contract.test_users", str(folder / "run")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, f"{user.pw_uid}\n"), done.stderr
    finally:
        shutil.rmtree(folder)


def main(directory: Path) -> None:
    """Whatever is needed has been imported: where Python lies, nobody may not read."""
    user = pwd.getpwnam(NOBODY)
    with tempfile.TemporaryDirectory() as folder:
        own(Path(folder), [])
    "localhost".encode("idna")
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    asyncio.run(serve(directory))
    print(os.geteuid())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
