"""What lies in deploy/ fits the code: options that exist, the access list that brokers get."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from coordinator.broker.rules import HOST, Rules, access_list, password_file
from coordinator.broker.tls import own
from protocol import topics
from shoal import app
from tests.contract.raw import RawClient
from tests.protocol.mosquitto import Mosquitto, free_port

DEPLOY = Path(__file__).parent.parent / "deploy"
RUN, ANN, SESSION = "cartpole-1a2b3c4d", "a" * 16, "aaaaaa"


def test_every_option_that_is_named_exists() -> None:
    group = typer.main.get_command(app)
    options = {
        command: {name for option in found.params for name in option.opts}
        for command, found in group.commands.items()  # type: ignore[attr-defined]
    }
    found = 0
    for path in DEPLOY.iterdir():
        lines = path.read_text().replace("\\\n", " ").splitlines()
        command = ""
        for line in lines:
            if named := re.search(r"\bshoal (host|join)\b|\[\"(join)\"|^ +- (host)$", line):
                command = next(filter(None, named.groups()))
            elif not re.match(r" +- --", line):
                command = ""
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line) if command else ():
                assert option in options[command], f"{path.name}: shoal {command} {option}"
                found += 1
    assert found >= 10


def test_the_access_list_is_the_brokers_own() -> None:
    lines = (DEPLOY / "shoal.acl").read_text().splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("#")) == access_list(Rules())


async def test_mosquitto_takes_the_configuration_and_tells_hosts_from_strangers(
    tmp_path: Path,
) -> None:
    rules, tls = Rules(), own(tmp_path, ["127.0.0.1"])
    (tmp_path / "passwords").write_text(password_file(rules))
    places = {
        "/etc/mosquitto/shoal.passwords": tmp_path / "passwords",
        "/etc/mosquitto/shoal.acl": DEPLOY / "shoal.acl",
        "/etc/mosquitto/certs/fullchain.pem": tls.certificate,
        "/etc/mosquitto/certs/privkey.pem": tls.key,
        "/var/lib/mosquitto/": f"{tmp_path}/",
    }
    text = (DEPLOY / "mosquitto.conf").read_text()
    for place, here in places.items():
        assert place in text
        text = text.replace(place, str(here))
    broker = Mosquitto(tmp_path, "max_connections -1")
    volunteers, hosts = broker.port, free_port()
    text = text.replace("listener 8883", f"listener {volunteers} 127.0.0.1")
    text = text.replace("listener 8884", f"listener {hosts} 127.0.0.1")
    user = re.findall(r"^user .*$", broker.configuration.read_text(), re.MULTILINE)
    broker.configuration.write_text("\n".join([text, *user, ""]))
    broker.start()
    try:
        url = f"mqtts://{HOST}:{rules.password}@127.0.0.1:{hosts}"
        with pytest.raises(PermissionError):
            await RawClient.connect(url.replace(rules.password, "wrong"), "eve")
        host = await RawClient.connect(url, "host")
        await host.subscribe(f"shoal/1/{RUN}/results/+/+", 1)
        ann = await RawClient.connect(f"mqtts://127.0.0.1:{volunteers}", "ann", user=ANN)
        await ann.publish(topics.results(RUN, "b" * 16, SESSION), b"forged", qos=1)
        await ann.publish(topics.results(RUN, ANN, SESSION), b"mine", qos=1)
        assert (await host.message()).payload == b"mine"
        for client in (host, ann):
            client.abort()
    finally:
        broker.kill()
