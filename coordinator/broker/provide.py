"""The broker of a run, as its host was asked for it: which one, how it is secured, where it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator import admission
from coordinator.broker.address import inward, is_loopback, outward
from coordinator.broker.advice import Advice
from coordinator.broker.choose import RunningBroker, open_broker
from coordinator.broker.embedded import EmbeddedBroker
from coordinator.broker.rules import Rules
from coordinator.directory import BrokerChoice
from protocol.address import Address, parse_address
from protocol.errors import ShoalError
from protocol.surroundings import address_from_here

PORT, TLS_PORT = 1883, 8883
WATCH_SECONDS = 0.5
"""Between two looks at the invites of a run: nobody types a token faster."""
LOAD_SECONDS = 1.0
"""Between two looks at how much the embedded broker has to do."""


@dataclass(frozen=True, slots=True)
class Provided:
    """A broker that can be connected to."""

    address: Address
    """where the host reaches it"""
    public: str
    """its URL for others; may have the host's credentials, which no join line shows"""
    choice: BrokerChoice
    """what to ask for next time, to have the same one"""

    @property
    def for_workers(self) -> Address:
        """Where workers of this machine reach it: at a broker of ours that others reach, too, the
        host's way in takes the host alone."""
        if not is_secured(self.choice):
            return self.address
        public = parse_address(self.public)
        if public.tls and public.certificate is None:
            return public  # its certificate is for that name
        return replace(public, host=inward(self.choice.bind))


def is_external(choice: BrokerChoice) -> bool:
    """Whether somebody else runs the broker."""
    return "://" in choice.broker


def is_secured(choice: BrokerChoice) -> bool:
    """Whether it is ours, and others than this machine reach it: strangers have rules there."""
    return not is_external(choice) and not is_loopback(choice.bind)


@asynccontextmanager
async def provide(
    choice: BrokerChoice,
    directory: Path,
    leaders: Iterable[str],
    proxy: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> AsyncIterator[Provided]:
    """Start the broker where it is ours; it runs while the context is open.

    directory: of the run, for the broker's log and certificate.
    leaders: worker names of the keys that may lead the run, over a broker that has rules.
    proxy: to go through to one that is not ours.
    tell: gets a line where the host should take another broker.

    Raises ShoalError.
    """
    if is_external(choice):
        _refuse_beside_url(choice)
        address = address_from_here(choice.broker, proxy)
        yield Provided(address, address.broker_with_credentials, choice)
        return
    place = choice.advertise or outward(choice.bind)
    with_tls = choice.tls if choice.tls is not None else not is_loopback(choice.bind)
    tls = None
    if choice.tls_cert or choice.tls_key:
        from coordinator.broker.tls import brought

        if not (choice.tls_cert and choice.tls_key):
            raise ShoalError("--tls-cert and --tls-key belong together: give both")
        if choice.tls is False:
            raise ShoalError("--no-tls with --tls-cert: leave one of them out")
        tls = brought(Path(choice.tls_cert), Path(choice.tls_key))
    elif with_tls:
        from coordinator.broker.tls import own

        tls = own(directory, [place, "localhost", "127.0.0.1"])
    port = choice.port if choice.port is not None else PORT if tls is None else TLS_PORT
    rules, settings = None, admission.read_settings(directory)
    if is_secured(choice):
        passes = admission.passes(directory, settings)
        rules = Rules(leaders=frozenset(leaders), passes=passes)
    async with open_broker(
        choice.broker, choice.bind, port, directory, tls=tls, rules=rules
    ) as opened:
        public = opened.public(place)
        choice = replace(choice, port=parse_address(public).port)
        watching: list[asyncio.Task[None]] = []
        if rules is not None and settings.mode == "invite":
            watched = _watch(opened, directory, settings, rules.passes)
            watching.append(asyncio.create_task(watched))
        if isinstance(opened, EmbeddedBroker):
            watching.append(asyncio.create_task(_advise(opened, directory, tell)))
        try:
            yield Provided(parse_address(opened.url), public, choice)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


async def _watch(
    broker: RunningBroker,
    directory: Path,
    settings: admission.Settings,
    known: Mapping[str, str] | None,
) -> None:
    """Let in at once who is invited while the broker runs, and nobody whose invite is revoked."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            passes = await asyncio.to_thread(admission.passes, directory, settings)
        except ShoalError:
            continue  # the host says so to whoever comes next
        if passes is not None and passes != known:
            known = passes
            broker.admit(passes)


async def _advise(broker: EmbeddedBroker, directory: Path, tell: Callable[[str], None]) -> None:
    """Tell the host when the pool outgrows a broker that it is in one process with."""
    now = asyncio.get_running_loop().time
    advice = Advice(
        "install mosquitto, end the host with SIGTERM, which workers wait through, and go on with "
        f"shoal host --resume {directory} --broker mosquitto"
    )
    while True:
        began = now()
        await asyncio.sleep(LOAD_SECONDS)
        late = max(0.0, now() - began - LOAD_SECONDS)
        if line := advice.look(replace(broker.load, late=late), now()):
            tell(line)


def _refuse_beside_url(choice: BrokerChoice) -> None:
    given = {"--tls or --no-tls": choice.tls is not None, "--tls-cert": choice.tls_cert}
    if names := [name for name, value in given.items() if value]:
        raise ShoalError(
            f"{', '.join(names)}: only for a broker that Shoal starts, not for "
            f"{parse_address(choice.broker).broker}: leave it out"
        )
