"""How a run stands by what whoever leads it tells everybody, over the broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from coordinator.leading import Contact
from coordinator.report import Report, State, pace
from protocol import amendments, topics
from protocol.address import Address, join_line
from protocol.authority import Announcement, read_epoch
from protocol.clock import now
from protocol.envelope import open_plain, plain
from protocol.errors import ShoalError
from protocol.exit_codes import UNREACHABLE
from protocol.identity import Identity, fingerprint, new_session
from protocol.link import Link, client_id
from protocol.messages import Beat, Here, Judged, Update, Who
from protocol.packing import WireError
from protocol.runs_here import OPEN, RunsHere
from protocol.spec import RunSpec, SpecError, from_bytes

ANSWERS_WITHIN = 1.0
"""Seconds that all who lead a run have to answer who is here."""
BEAT_WITHIN = 5.0
"""Seconds without a beat after which nobody leads: there is one every 2 s."""
MOST_UPDATES = 64
SHOWN = (amendments.TARGET, amendments.POPULATION)
"""Settings in a report that updates may change."""


class NobodyError(ShoalError):
    """Nobody has ever announced the run there."""

    exit_code = UNREACHABLE


class Heard:
    """All that was heard of a run; what is not proved is nothing. Pure."""

    def __init__(self, address: Address, began: float) -> None:
        """`address` with the run; listening began at `began`."""
        assert address.run is not None
        self._run = address.run
        self._fingerprint = address.fingerprint
        self._began = began
        self._announced: Announcement | None = None
        self._spec: RunSpec | None = None
        self._updates: deque[tuple[float, Update]] = deque(maxlen=MOST_UPDATES)
        self._set: dict[str, float] = {}
        """settings that updates changed while we listened, by field of the run spec"""
        self._judged: Judged | None = None
        self._beat: Beat | None = None
        self._beat_at = began

    @property
    def announced(self) -> bool:
        """Whether somebody proved to lead the run, or to have led it."""
        return self._announced is not None

    @property
    def over(self) -> bool:
        """Whether nothing is to come any more."""
        said = self._announced
        return said is not None and said.epoch.state in ("finished", "stopped")

    def hear(self, topic: str, payload: bytes, now: float) -> None:
        """Anything from the broker. Raises `WireError` for what is nothing."""
        if topic == topics.epoch(self._run):
            self._announce(payload)
        elif topic == topics.beat(self._run):
            beat = open_plain(payload)
            if isinstance(beat, Beat):
                self._beat, self._beat_at = beat, now
        elif topic == topics.update(self._run) and self._announced is not None:
            update = self._announced.authority.open_update(payload)
            if not self._updates or update.version > self._updates[-1][1].version:
                self._updates.append((now, update))
                self._set.update(update.amendments)
                self._judge(update.judged)

    def report(self, now: float) -> Report | None:
        """How the run stands; None: nobody has announced it."""
        said, spec = self._announced, self._spec
        if said is None:
            return None
        epoch, judged = said.epoch, self._judged
        last = self._updates[-1] if self._updates else None
        beat = self._beat if self._beat is not None and self._beat.epoch == epoch.number else None
        target = None if spec is None else self._set.get(amendments.TARGET, spec.stop.target)
        population = None
        if spec is not None:
            population = int(self._set.get(amendments.POPULATION, spec.strategy.population))
        version = epoch.version if beat is None else max(epoch.version, beat.version)
        if last is not None:
            version = max(version, last[1].version + 1)
        made = [(update.version, update.seconds) for _, update in self._updates]
        state, why = self._state(beat, now)
        return Report(
            run=self._run,
            state=state,
            why=why,
            environment="" if spec is None else spec.environment.id,
            epoch=epoch.number,
            led_by=fingerprint(said.leader),
            version=version,
            target=target,
            centre=None if judged is None else judged.mean,
            centre_deviation=None if judged is None else judged.deviation,
            centre_version=None if judged is None else judged.version,
            centre_episodes=None if judged is None else judged.episodes,
            population=population,
            as_begun=tuple(field for field in SHOWN if field not in self._set),
            workers=None if last is None else last[1].workers,
            learning_rate=None if last is None else last[1].learning_rate,
            updates_per_minute=pace(made),
            update_age=None if last is None else now - last[0],
            seconds=None if last is None else last[1].seconds,
        )

    def _announce(self, payload: bytes) -> None:
        known = self._announced
        heard = read_epoch(payload, self._run, None if known is None else known.authority)
        if self._fingerprint not in (None, fingerprint(heard.epoch.host_key)):
            raise WireError("another key than the join line's")
        if known is not None and heard.precedence < known.precedence:
            return
        with suppress(SpecError):  # it may name what is not installed, or not allowed, here
            self._spec = from_bytes(heard.epoch.spec)
        self._announced = heard
        self._judge(heard.epoch.judged)

    def _judge(self, told: tuple[Judged, ...]) -> None:
        for judged in told:
            if self._judged is None or judged.version >= self._judged.version:
                self._judged = judged

    def _state(self, beat: Beat | None, now: float) -> tuple[State, str]:
        assert self._announced is not None
        epoch = self._announced.epoch
        if epoch.state in ("finished", "stopped"):
            return ("ended" if epoch.state == "finished" else "stopped"), epoch.reason
        if epoch.state == "paused":
            return "paused", epoch.reason
        if now - self._beat_at >= BEAT_WITHIN or (beat is not None and beat.phase == "lost"):
            return "silent", "nobody is heard to lead it: its host is gone, or cut off"
        if beat is not None and beat.phase == "paused":
            return "paused", "nothing new is leased, by the host's word"
        return "running", ""


@asynccontextmanager
async def _linked(
    address: Address, on_message: Callable[[str, bytes], None], filters: dict[str, int]
) -> AsyncIterator[Link]:
    """A connection that only listens. Raises `UnreachableError` and `FatalLinkError`."""
    identity = Identity.generate()
    contact = Contact(address, lambda line: None, "check the address, and that its host is up")

    def hear(topic: str, payload: bytes) -> None:
        try:
            on_message(topic, payload)
        except WireError:
            return  # others may say what they like

    link = Link(
        address,
        client_id=client_id(identity.worker, new_session()),
        on_message=hear,
        name=identity.worker,
        on_connected=contact.made,
        on_retry=contact.failed,
        subscriptions=filters,
    )
    linking = asyncio.ensure_future(link.run())
    contacting = asyncio.ensure_future(contact.wait())
    try:
        await asyncio.wait((linking, contacting), return_when=asyncio.FIRST_COMPLETED)
        if linking.done():
            linking.result()
        await contacting
        yield link
    finally:
        contacting.cancel()
        await link.close()
        linking.cancel()
        await asyncio.gather(linking, contacting, return_exceptions=True)


async def runs_at(address: Address) -> list[Here]:
    """Which runs are led at a broker. Raises `ShoalError` where it can't be reached."""
    found = RunsHere(address.fingerprint)
    filters = {topics.HERE: 0}
    async with _linked(address, lambda topic, payload: found.hear(payload), filters) as link:
        link.publish(topics.WHO, plain(Who()))
        await asyncio.sleep(ANSWERS_WITHIN)
    return found.all


async def only_run_at(address: Address) -> Address:
    """The address with the only run that is led there. Raises `ShoalError`."""
    runs = [here for here in await runs_at(address) if here.state in OPEN]
    if len(runs) == 1:
        return replace(address, run=runs[0].run)
    if not runs:
        raise NobodyError(f"no run is led at {address.broker}: check the address")
    lines = [join_line(address.pinned_broker, one.run, fingerprint(one.host_key)) for one in runs]
    urls = "\n".join(f"  {line.split()[-1]}" for line in lines)
    raise ShoalError(f"{len(runs)} runs are at {address.broker}; name one of them:\n{urls}")


async def reports(address: Address, first: float, every: float) -> AsyncIterator[Report]:
    """How the run at an address stands, after `first` seconds of listening and then `every` so
    often, until it is over. Raises `ShoalError`."""
    if address.run is None:
        address = await only_run_at(address)
    assert address.run is not None
    heard = Heard(address, now())
    filters = topics.leader_filters(address.run)
    async with _linked(address, lambda topic, data: heard.hear(topic, data, now()), filters):
        pause = first
        while True:
            await _listen(heard, pause)
            report = heard.report(now())
            if report is None:
                raise NobodyError(
                    f"nobody has announced the run {address.run} at {address.broker} with the join "
                    "line's key: check the line, or ask who leads it"
                )
            yield report
            if heard.over:
                return
            pause = every


async def _listen(heard: Heard, seconds: float) -> None:
    """Listen for so long; less where nothing more is to come."""
    until = now() + seconds
    while now() < until and not heard.over:
        await asyncio.sleep(min(0.1, max(0.0, until - now())))
