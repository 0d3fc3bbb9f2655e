"""A place in the line of succession: hears a run, keeps its log, and knows when to lead."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from coordinator.leading import Contact
from coordinator.recovery import last_epoch
from coordinator.standby.answering import Answering
from coordinator.standby.beginning import Beginning
from coordinator.standby.following import (
    NOBODY,
    Apply,
    Ask,
    Command,
    Entry,
    Follower,
    GiveUp,
    Part,
    Tell,
)
from coordinator.standby.gathering import Gathering
from coordinator.standby.guest import INTRODUCTION, Guest
from coordinator.standby.ledger import Ledger
from coordinator.standby.vigil import Vigil
from coordinator.tasks import Tasks
from protocol import messages, topics
from protocol.address import Address
from protocol.allowance import Allowance
from protocol.authority import Announcement, Authority, precedence
from protocol.clock import now
from protocol.envelope import Wrapping, open_plain, peek_signed, plain, wrapping_of
from protocol.errors import ShoalError
from protocol.identity import Identity, fingerprint
from protocol.link import Link, Will, client_id
from protocol.messages import Epoch
from protocol.packing import WireError
from protocol.replay import MismatchError
from protocol.spec import RunSpec, SpecError, from_bytes

TICK_SECONDS = 0.05
STATUS_SECONDS = 10.0
HELLO_SECONDS = 3.0
"""Seconds after which a hello that nobody answered is said again."""
LAST_UPDATES_SECONDS = 3.0
"""Seconds that we have at the end of a run to apply what came."""
LEVEL_SILENCE = 6.0
"""Seconds without a sign of life after which nobody is waited for any more who has what we lack."""
MOST_LACKING = 64
"""Updates that may be lost when we lead, at most. Workers keep as many: where more are proved that
nobody gave us, we can't have asked everybody who has them."""
SIGNATURES_PER_SECOND = 1000
SIGNATURES_AT_ONCE = 4000
"""Signatures that are looked at; updates that are left out are asked for again."""

_LOGGER = logging.getLogger("shoal.standby")


class FollowError(ShoalError):
    """The run can't be followed."""


class Standby:
    """Follows a run with its log. As a context: connected to the broker while it is entered.

    Attributes:
        ledger: the run on our disk, None until its spec is known.
        gathered: whether all peers were asked for what we might lack.
    """

    def __init__(
        self,
        run: str,
        root_fingerprint: str,
        identity: Identity,
        address: Address,
        patience: float,
        ledger: Ledger | Callable[[RunSpec, Authority], Awaitable[Ledger]],
        *,
        say: Callable[[str], None],
        on_progress: Callable[[Standby], None] = lambda standby: None,
    ) -> None:
        """`ledger`: what is there of the run, or what opens it once the run is known.

        `say` gets lines for people. Needs a running event loop.
        """
        self.ledger = ledger if isinstance(ledger, Ledger) else None
        self.gathered = False
        self._open = ledger
        self._run = run
        self._identity = identity
        self._say = say
        self._on_progress = on_progress
        known = self.ledger.authority if self.ledger is not None else None
        self._guest = Guest(run, root_fingerprint, identity, known)
        self._guest.invite = address.invite
        self._last_epoch = 0
        self._vigil = Vigil(patience)
        self._follower: Follower | None = None
        self._gathering: Gathering | None = None
        self._beginning: Beginning | None = None
        self._random = random.Random()
        self._services = Tasks(self._fail)
        self._work = Tasks(self._fail)
        """what goes on in threads, which can't be cancelled"""
        self._opening = False
        self._failure: BaseException | None = None
        self._alive = asyncio.Event()
        self._echoed = False
        self._hello_at = 0.0
        self._status_at = 0.0
        self._refused = ""
        self._noticed = ""
        self._newest = 0
        self._reached = 0
        self._held_to = NOBODY
        self._told_lacking = False
        self._told_rank: int | None = -1
        self._answering = Answering(self._tell, self._random)
        self._signatures = Allowance(SIGNATURES_PER_SECOND, SIGNATURES_AT_ONCE)
        self._contact = Contact(address, say)
        self._link = Link(
            address,
            client_id=client_id(identity.worker, self._guest.session),
            on_message=self._on_message,
            name=identity.worker,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_retry=self._contact.failed,
            on_connecting=self._on_connecting,
            subscriptions=topics.worker_filters(run, identity.worker, self._guest.session),
        )
        if self.ledger is not None:
            self._begin(self.ledger)

    async def __aenter__(self) -> Standby:
        self._services.start(self._link.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._link.publish(self._guest.topic(topics.status), self._guest.bye(lost=False), qos=1)
        await self._link.close()
        self._answering.close()
        await self._work.settle()
        for tasks in (self._work, self._services):
            await tasks.cancel()

    # What whoever runs us wants to know and to be done.

    @property
    def led_by(self) -> Announcement | None:
        """Who leads, as far as anybody proved."""
        return self._guest.led

    @property
    def version(self) -> int:
        """How far our log is."""
        return 0 if self._follower is None else self._follower.version

    @property
    def goal(self) -> int:
        """How far the run is said to be."""
        return 0 if self._follower is None else max(self._follower.goal, self._follower.version)

    @property
    def settled(self) -> bool:
        """Whether our log is known to be the beginning of the leader's."""
        return self._follower is not None and self._follower.settled and not self._follower.busy

    @property
    def next_epoch(self) -> int:
        """The number that we would announce: above any that was proved."""
        announced = 0 if self.led_by is None else self.led_by.epoch.number
        logged = 0 if self._follower is None else self._follower.precedence[0]
        return max(announced, logged, self._last_epoch) + 1

    @property
    def rank(self) -> int | None:
        """Our rank as leader of that epoch; None: we are not appointed."""
        authority = self._guest.authority
        if authority is None:
            return None
        return authority.rank(self.next_epoch, self._identity.public_key)

    @property
    def lacks(self) -> int:
        """How many updates are signed, by whoever leads or led last, that our log does not have."""
        led_at = 0 if self.led_by is None else self.led_by.epoch.version
        return max(0, max(self._reached, led_at) - self.version)

    async def contact(self) -> None:
        """Returns once the broker has answered. Raises `UnreachableError` or `FatalLinkError`."""
        waiting = asyncio.ensure_future(self._contact.wait())
        try:
            while not waiting.done():
                self._raise_failure()
                await asyncio.wait((waiting,), timeout=TICK_SECONDS)
            waiting.result()
        finally:
            waiting.cancel()

    async def until_led(self, seconds: float) -> bool:
        """Whether somebody is proved to lead, or have led, within so many seconds."""
        until = now() + seconds
        while self.led_by is None and now() < until:
            await self._tick()
        return self.led_by is not None

    async def listen(self, seconds: float) -> bool:
        """Whether a leader is alive: heard within so many seconds."""
        until = now() + seconds
        while not self._alive.is_set() and now() < until:
            await self._tick()
        return self._alive.is_set()

    def outranks(self, number: int) -> bool:
        """Whether an epoch that we led is of a greater precedence than whoever leads now."""
        authority, said = self._guest.authority, self.led_by
        if authority is None or said is None or number < 1:
            return False
        rank = authority.rank(number, self._identity.public_key)
        return rank is not None and precedence(number, rank) > said.precedence

    def tell_who_leads(self) -> None:
        """Say why we do not lead."""
        said = self.led_by
        if said is not None:
            self._say(
                f"{self._run} is led by {fingerprint(said.leader)} ({_who(said)}) in epoch "
                f"{said.epoch.number}, which is at version {max(said.epoch.version, self.goal)}: "
                "following it as a standby; --take-over would make it step aside"
            )

    async def follow(self) -> Epoch | None:
        """Follow until the run ends: how, or None: it is our turn to lead, and nobody else does.

        Raises `ShoalError` where we can't go on.
        """
        if self._follower is not None and self.led_by is not None:
            self._hold_to(self.led_by)
        self._on_progress(self)
        while True:
            said = self.led_by
            if said is not None and said.epoch.state in ("finished", "stopped"):
                return await self._conclude(said.epoch)
            rank = self.rank
            if self.ledger is not None and rank is not None and self._vigil.turn(rank, now()):
                silence = self._vigil.silence(now())
                self._say(f"nobody leads: no sign of life for {silence:.1f} s; asking the others")
                self._alive.clear()
                if await self.gather(unless=self._alive.is_set):
                    if self.can_go_on():
                        return None
                    self._vigil.connected(now())  # and asked again after as long
                if self.led_by is not None:
                    self._hold_to(self.led_by)
            await self._tick()

    async def draw_level(self) -> None:
        """Follow whoever leads until our log is level with theirs, or they fall silent or stop."""
        said = self.led_by
        if said is None or self._follower is None:
            return
        self._hold_to(said)
        while self.led_by is not None and self.led_by.epoch.state == "running":
            if self._vigil.silence(now()) > LEVEL_SILENCE:
                return
            if self.settled and self.version >= self.goal:
                self._say(f"level with who leads, at version {self.version}")
                return
            await self._tick()

    async def gather(self, unless: Callable[[], bool] = lambda: False) -> bool:
        """Collect what peers have beyond us; True once nobody has. False: somebody leads, by a new
        epoch or as `unless` tells, or the broker does not even let us hear ourselves."""
        follower = self._follower
        assert follower is not None
        before = self.led_by
        gathering = self._gathering = Gathering(now(), self._random)
        # Whoever followed a later epoch than our last update's may be behind us, and yet right.
        last, _ = follower.precedence
        from_version = follower.version if self.next_epoch <= last + 1 else 0
        everybody = topics.ask(self._run, topics.ALL, self._guest.peer)
        self._echoed = False
        self._link.publish(everybody, plain(messages.Latest(from_version)), qos=1)
        version, missing = follower.version, 0
        try:
            while not gathering.done:
                if unless() or self._place != (None if before is None else before.precedence):
                    return False
                at = (follower.precedence[0], follower.version)
                if gathering.tick(*at, follower.busy, now()):
                    epoch, missing = gathering.goal
                    self._do(follower.gathered((epoch, 0), missing, now()))
                    if missing > follower.version + MOST_LACKING:
                        # They may not have what comes next for us; their last proves how far it is.
                        self._ask(messages.CatchUp(missing - 1, want="updates"))
                await self._tick()
        finally:
            self._gathering = None
        if not self._echoed:
            # A connection that is dead though nobody told us: silence means nothing.
            self._vigil.connected(now())
            return False
        self.gathered = True
        if follower.version > version:
            self._say(f"peers had updates {version} to {follower.version - 1}, which we lacked")
        elif missing > follower.version:
            self._say(f"somebody claims version {missing}, but sends no updates that prove it")
        return True

    def can_go_on(self) -> bool:
        """Whether leading from where our log ends would lose no more than a few updates; says so
        where it would lose more."""
        lacks = self.lacks
        if lacks <= MOST_LACKING:
            return True
        if not self._told_lacking:
            self._told_lacking = True
            self._say(
                f"not leading: the run is at version {self.version + lacks}, our log ends at "
                f"{self.version}, and all between would be lost; resume who has it, or go back "
                "on purpose with --resume and --take-over"
            )
        return False

    async def fetch_beginning(self, spec: RunSpec) -> bytes:
        """Version 0 of a run that was given one, from its leader; what the spec says proves it."""
        beginning = self._beginning = Beginning(spec)
        self._say("fetching version 0, which the run was given")
        while not beginning.complete:
            request = beginning.request(now()) if self._guest.agreed else None
            if request is not None:
                topic = self._guest.topic(topics.request)
                self._link.publish(topic, self._guest.seal(request), qos=1)
            await asyncio.sleep(TICK_SECONDS)
        self._beginning = None
        return beginning.data

    # What comes in.

    def _on_connecting(self) -> None:
        topic = self._guest.topic(topics.status)
        self._link.will = Will(topic, self._guest.begin_life(), 1, False)

    def _on_connected(self, first: bool) -> None:
        self._contact.made(first)
        self._vigil.connected(now())
        self._guest.forget()
        self._hello_at = 0.0

    def _on_disconnected(self, reason: str) -> None:
        self._vigil.disconnected()
        self._guest.forget()
        if self._follower is not None:
            self._do(self._follower.unheard(now()))
        self._say(f"broker lost: {reason}")

    def _on_message(self, topic: str, payload: bytes) -> None:
        """Anything from the broker: hostile until proved otherwise."""
        parsed = topics.parse(topic)
        if parsed is None or parsed.run != self._run:
            return
        try:
            if parsed.kind == "epoch":
                self._hear_epoch(payload)
            elif parsed.kind == "beat":
                self._hear_beat(open_plain(payload))
            elif parsed.kind == "update":
                self._hear_latest(self._hear_update(payload))
            elif parsed.kind == "in":
                self._hear_leader(payload)
            elif parsed.kind == "snap" and parsed.server is not None:
                self._hear_peer(parsed.server, payload)
            elif parsed.kind == "ask" and parsed.joiner is not None:
                self._hear_question(parsed.joiner, open_plain(payload))
        except WireError as error:
            _LOGGER.debug("ignored a message on %s: %s", topic, error)
        except ShoalError as error:
            self._fail(error)

    def _hear_epoch(self, payload: bytes) -> None:
        if not payload:
            return  # somebody cleared what the broker retains
        self._look_at_signature()
        news = self._guest.hear_epoch(payload)
        said = self._guest.led
        assert said is not None
        if self.ledger is not None and said.authority != self.ledger.authority:
            self.ledger.learn(said.authority)
        if news:
            self._vigil.proved(said.epoch.number, now())
            self._hello_at = 0.0
            self._say(f"epoch {said.epoch.number} is led by {_who(said)}")
            self._tell_rank()
            if self._follower is None:
                self._open_ledger(said)
            elif self._gathering is None:
                self._hold_to(said)

    def _hear_beat(self, message: messages.AnyMessage) -> None:
        if not isinstance(message, messages.Beat):
            raise WireError("not a beat")
        if self._vigil.beat(message, now()):
            self._alive.set()
            said = self.led_by
            at_hand = said is not None and message.epoch == said.epoch.number
            if at_hand and self._follower is not None and self._gathering is None:
                self._do(self._follower.hinted(message.version, now()))

    def _hear_update(self, payload: bytes) -> Entry | None:
        """An update, from whomever; None where it is of no use."""
        follower, ledger = self._follower, self.ledger
        if follower is None or ledger is None:
            return None
        self._look_at_signature()
        entry = ledger.open(payload)
        if not follower.wants(entry.version):
            return None
        ours = ledger.entry(entry.version) if entry.version < follower.version else None
        if self._gathering is not None and ours is None:
            self._gathering.moved(now())
        self._do(follower.heard(entry, ours, now()))
        if entry.precedence >= max(follower.precedence, self._others_place):
            self._reached = max(self._reached, entry.version + 1)
        return entry

    def _hear_latest(self, entry: Entry | None) -> None:
        """An update that everybody hears: one that nobody could know before is a sign of life."""
        if entry is None or entry.version < self._newest or entry.precedence != self._place:
            return
        self._newest = entry.version + 1
        self._vigil.proved(entry.update.epoch, now())
        self._alive.set()

    def _hear_leader(self, payload: bytes) -> None:
        if wrapping_of(payload) is Wrapping.SEALED:
            self._hear_sealed(self._guest.unseal(payload))
            return
        if isinstance(peek_signed(payload), messages.Update):
            self._hear_update(payload)
            return
        self._look_at_signature()
        welcome = self._guest.hear_welcome(payload)
        self._vigil.proved(welcome.epoch, now())
        if welcome.refused:
            if welcome.refused != self._refused:
                self._say(f"the leader does not let us in: {welcome.refused}")
            self._refused = welcome.refused
            return
        self._refused = ""
        if self._follower is not None and self._gathering is None:
            self._newest = max(self._newest, welcome.version)
            self._reached = max(self._reached, welcome.version)
            self._do(self._follower.welcomed(welcome.version, welcome.digest, now()))

    def _hear_sealed(self, message: messages.AnyMessage) -> None:
        match message:
            case messages.Entrust():
                secret = self._guest.secret(message)
                if self.ledger is not None:
                    self._work.start(self._keep_secret(self.ledger, secret))
            case messages.Notice(code="hello-again"):
                self._guest.forget()
                self._hello_at = 0.0
            case messages.Notice(code="say") if message.text != self._noticed:
                self._noticed = message.text
                self._say(f"the leader says: {message.text}")
            case _:
                return

    def _hear_peer(self, server: str, payload: bytes) -> None:
        """The answer of a peer to what we gather, or a part of version 0."""
        if self._beginning is not None:
            part = open_plain(payload)
            if isinstance(part, messages.Chunk):
                self._beginning.take(part)
        if self._gathering is None:
            return
        if wrapping_of(payload) is Wrapping.SIGNED:
            self._hear_update(payload)
            return
        said = open_plain(payload)
        if isinstance(said, messages.Reached):
            self._gathering.reached(server, said)

    def _hear_question(self, joiner: str, question: messages.AnyMessage) -> None:
        """Somebody gathers what we might have; we hear our own question too."""
        if joiner == self._guest.peer:
            self._echoed = True
        elif self.ledger is not None:
            self._answering.hear(joiner, question, self.ledger)

    def _tell(self, joiner: str, payload: bytes) -> None:
        self._link.publish(topics.snapshot(self._run, self._guest.peer, joiner), payload)

    # What is done.

    def _hold_to(self, said: Announcement) -> None:
        """Follow whoever leads that epoch, from a new hello on."""
        assert self._follower is not None
        self._newest = 0
        if self._held_to != said.precedence:
            self._held_to, self._reached = said.precedence, 0
        self._hello_at = 0.0
        self._guest.forget()
        self._do(self._follower.led(said.precedence, now()))

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Apply():
                    self._work.start(self._apply(command.entry))
                case Part():
                    self._work.start(self._part(command.version))
                case Ask():
                    self._ask(command.message)
                case Tell():
                    self._say(command.text)
                case GiveUp():
                    self._fail(FollowError(command.reason))

    def _ask(self, message: messages.CatchUp) -> None:
        if self._gathering is not None:
            for peer in self._gathering.asked:
                topic = topics.ask(self._run, peer, self._guest.peer)
                self._link.publish(topic, plain(message), qos=1)
        elif self._guest.agreed:
            request = self._guest.topic(topics.request)
            self._link.publish(request, self._guest.seal(message), qos=1)

    async def _apply(self, entry: Entry) -> None:
        assert self.ledger is not None and self._follower is not None
        try:
            await asyncio.to_thread(self.ledger.advance, entry)
        except (MismatchError, WireError) as error:
            self._do(self._follower.failed(str(error), now()))
        else:
            self._do(self._follower.advanced(now()))
            self._on_progress(self)

    async def _part(self, version: int) -> None:
        ledger, follower = self.ledger, self._follower
        assert ledger is not None and follower is not None
        said = self.led_by
        leader = "others" if said is None else f"epoch {said.epoch.number}, led by {_who(said)}"
        count = await asyncio.to_thread(ledger.set_back, version, f"the run went on with {leader}")
        ours = f"{count} updates of ours (versions {version} to {version + count - 1}) are"
        if count == 1:
            ours = f"1 update of ours (version {version}) is"
        self._say(
            f"the run went on from version {version} without us: {ours} set aside in "
            f"{ledger.log.path}"
        )
        self._do(follower.parted(ledger.digest, ledger.precedence, now()))
        self._on_progress(self)

    def _tell_rank(self) -> None:
        """Say whether we may lead, where that has changed."""
        rank = self.rank
        if rank == self._told_rank:
            return
        self._told_rank = rank
        key = self._identity.fingerprint
        if rank is None:
            self._say(f"not appointed: ask the host to add --delegate {key}")
        elif rank > 0:
            self._say(f"appointed as delegate {rank}: leads once everybody before it is silent")

    async def _keep_secret(self, ledger: Ledger, secret: bytes) -> None:
        if ledger.directory.has_secret and ledger.directory.read_secret() == secret:
            return
        await asyncio.to_thread(ledger.directory.keep_secret, secret)
        self._say("entrusted with the run's secret: work in progress will count if we lead")

    def _open_ledger(self, said: Announcement) -> None:
        if not self._opening:
            self._opening = True
            self._services.start(self._make_ledger(said))

    async def _make_ledger(self, said: Announcement) -> None:
        try:
            spec = from_bytes(said.epoch.spec)
        except SpecError as error:
            raise FollowError(f"{self._run} can't be followed by this version: {error}") from None
        assert not isinstance(self._open, Ledger)
        ledger = await self._open(spec, said.authority)
        self.ledger = ledger
        if self.led_by is not None:
            ledger.learn(self.led_by.authority)
        self._begin(ledger)
        if self.led_by is not None:
            self._hold_to(self.led_by)

    def _begin(self, ledger: Ledger) -> None:
        self._last_epoch = last_epoch(ledger.log, ledger.authority)
        self._vigil.outdone(self._last_epoch)
        self._follower = Follower(
            ledger.version, ledger.digest, ledger.precedence, ledger.log.base, self._random
        )

    async def _tick(self) -> None:
        await asyncio.sleep(TICK_SECONDS)
        self._raise_failure()
        time = now()
        self._vigil.tick(time)
        if self._follower is not None:
            self._do(self._follower.tick(time))
        if self._link.connected and self.led_by is not None:
            self._keep_session(time)

    def _keep_session(self, time: float) -> None:
        request, status = self._guest.topic(topics.request), self._guest.topic(topics.status)
        if not self._guest.agreed or self._vigil.wants_proof(time):
            if time >= self._hello_at:
                self._hello_at = time + HELLO_SECONDS
                hello = self._guest.hello(INTRODUCTION, credit=0, version=self.version)
                self._link.publish(request, hello, qos=1)
        elif time >= self._status_at:
            self._status_at = time + STATUS_SECONDS
            alive = self._guest.seal(messages.Status("idle", self.version))
            self._link.publish(status, alive, qos=1)

    async def _conclude(self, ended: Epoch) -> Epoch:
        """The run is over: get what we lack of it while anybody is there who has it."""
        until = now() + LAST_UPDATES_SECONDS
        while (self._follower is None or self._follower.busy) and now() < until:
            await self._tick()
        follower = self._follower
        if follower is None:
            raise FollowError(f"{self._run} has ended before we had anything of it: {ended.reason}")
        latest = max(self.goal, ended.version)
        if not follower.settled or follower.version < latest:
            await self.gather()
        if follower.version < latest:
            self._say(f"nobody gave us the updates from version {follower.version} to {latest}")
        return ended

    @property
    def _place(self) -> tuple[int, int] | None:
        return None if self.led_by is None else self.led_by.precedence

    @property
    def _others_place(self) -> tuple[int, int]:
        """The place of who leads instead of us: updates of an earlier one may have been outdone."""
        said = self.led_by
        if said is None or said.leader == self._identity.public_key:
            return NOBODY
        return said.precedence

    def _look_at_signature(self) -> None:
        if not self._signatures.take(1, now()):
            raise WireError("more signatures than there is time for")

    def _fail(self, failure: BaseException) -> None:
        if self._failure is None:
            self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _who(said: Announcement) -> str:
    return "the run key" if said.epoch.rank == 0 else f"delegate {said.epoch.rank}"
