"""A broker of ours where the host takes only whom it knows: strangers don't come in at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator import admission
from coordinator.admission import Settings
from coordinator.broker.passwords import hashed, matches
from coordinator.broker.provide import Provided, provide
from coordinator.directory import BrokerChoice
from coordinator.host import join_command
from protocol import topics
from protocol.address import parse_address
from protocol.link import FatalLinkError, Link
from tests.contract.raw import DEADLINE, RawClient
from tests.coordinator.runs import begun, spec_of

RUN, ANN, SESSION = "cartpole-1a2b3c4d", "a" * 16, "aaaaaa"
HERE = {topics.epoch(RUN): 1}


def choice(kind: str) -> BrokerChoice:
    return BrokerChoice(broker=kind, bind="0.0.0.0", port=0, advertise="127.0.0.1")


def link(provided: Provided, token: str, heard: Callable[[str, bytes], None]) -> Link:
    address = replace(parse_address(provided.public), invite=token)
    return Link(address, client_id="ann", name=ANN, on_message=heard, subscriptions=HERE)


@contextlib.asynccontextmanager
async def running(one: Link) -> object:
    task = asyncio.create_task(one.run())
    try:
        async with asyncio.timeout(DEADLINE):
            while not (one.connected or task.done()):
                await asyncio.sleep(0.005)
        yield task
    finally:
        await one.close()
        await asyncio.gather(task, return_exceptions=True)


async def refused(provided: Provided, token: str) -> str:
    with pytest.raises(FatalLinkError) as caught:
        async with asyncio.timeout(DEADLINE):
            await link(provided, token, lambda *_: None).run()
    assert token == "" or token[13:] not in str(caught.value)
    return str(caught.value)


async def test_strangers_do_not_come_in_and_the_invited_as_long_as_their_invite_holds(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.broker.provide.WATCH_SECONDS", 0.05)
    admission.keep_settings(tmp_path, Settings("invite"))
    async with provide(choice(kind), tmp_path, ()) as provided:
        assert "SHOAL_INVITE" in await refused(provided, "")
        made, token = admission.invite(tmp_path, "ann", 1)
        _, other = admission.invite(tmp_path, "bob", 1)
        host = await RawClient.connect(provided.address.broker_with_credentials, "host")
        await host.subscribe(f"shoal/1/{RUN}/results/+/+", 1)
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while True:  # who is invited while the host runs, too
            one = link(provided, token, lambda *_: None)
            async with running(one) as task:
                if not one.connected:
                    assert asyncio.get_running_loop().time() < deadline
                    continue
                for topic in (topics.results(RUN, ANN, SESSION), topics.epoch(RUN)):
                    one.publish(topic, b"mine", 1)
                assert (await host.message()).payload == b"mine"
                await host.subscribe(topics.epoch(RUN), 1)
                await host.ping()
                assert host.messages == []
                second = link(provided, other, lambda *_: None)
                async with running(second) as stays:
                    admission.revoke(tmp_path, made.id)
                    with pytest.raises(FatalLinkError, match="does not take the invite"):
                        async with asyncio.timeout(DEADLINE):
                            await task
                    async with asyncio.timeout(DEADLINE):
                        while not second.publish(topics.results(RUN, ANN, SESSION), b"stays", 1):
                            await asyncio.sleep(0.005)
                    assert (await host.message()).payload == b"stays"
                    assert not stays.done()
            break
        assert "does not take the invite" in await refused(provided, token)
        host.abort()
    for secret in (token, token[13:], other[13:]):
        assert secret not in caplog.text
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


async def test_the_pools_token_lets_in_whoever_is_on_a_list(tmp_path: Path) -> None:
    admission.keep_settings(tmp_path, Settings("list", ("a" * 26,)))
    async with provide(choice("embedded"), tmp_path, ()) as provided:
        token = admission.pool_token(tmp_path)
        assert (tmp_path / "pool.token").stat().st_mode & 0o777 == 0o600
        async with running(link(provided, token, lambda *_: None)) as task:
            assert not task.done()
        await refused(provided, "")
    async with provide(choice("embedded"), tmp_path, ()) as again:
        assert admission.pool_token(tmp_path) == token
        async with running(link(again, token, lambda *_: None)) as task:
            assert not task.done()


def test_the_line_for_volunteers_has_what_they_need(tmp_path: Path) -> None:
    run = begun(spec_of(), tmp_path / "run")
    path = run.directory.path
    assert join_command(run, "mqtt://h", True).startswith("shoal join mqtt://h:1883/")
    admission.keep_settings(path, Settings("invite"))
    assert f"token of shoal invite {path}" in join_command(run, "mqtt://h", True)
    admission.keep_settings(path, Settings("list", ("a" * 26,)))
    line = join_command(run, "mqtt://h", True)
    assert line.startswith("SHOAL_INVITE=TOKEN shoal join mqtt://h:1883/")
    assert str(path / "pool.token") in line and admission.pool_token(path) not in line
    assert join_command(run, "mqtt://h").startswith("shoal join ")
    run.directory.close()


def test_a_hash_is_of_one_password_and_salted() -> None:
    assert matches("a", hashed("a")) and not matches("b", hashed("a"))
    assert hashed("a") != hashed("a")
    for damaged in ("", "a", "$7$101$?$a", hashed("a")[:-1], hashed("a").replace("101", "1")):
        assert not matches("a", damaged)
