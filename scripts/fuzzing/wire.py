"""Decoders of what comes over the wire: from workers, coordinators, brokers and strangers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from websockets.protocol import State

from coordinator import update as updating
from coordinator.broker import packets
from coordinator.broker.packets import PacketRefused
from coordinator.peers import Leader, Peers
from coordinator.pool.events import CloseBatch, SessionId
from coordinator.results import judge
from protocol import amendments, normalizer, replay, snapshot, topics
from protocol import spec as run_spec
from protocol.address import parse_address
from protocol.amended import NOTHING
from protocol.amended import from_bytes as settings_from_bytes
from protocol.authority import Authority, read_epoch
from protocol.entrust import open_secret, seal_secret
from protocol.envelope import (
    open_plain,
    open_sealed,
    open_signed,
    peek_signed,
    plain,
    sealed,
    signed,
    wrapping_of,
)
from protocol.errors import ShoalError
from protocol.frames import PacketReader, publication, publish_packet
from protocol.identity import Identity, SessionKeys, lease_token, run_id
from protocol.invites import invited_by, proof_of, token_of
from protocol.messages import (
    Epoch,
    Hello,
    Message,
    Result,
    Status,
    Task,
    Update,
    decode,
    encode,
)
from protocol.packing import (
    WireError,
    pack,
    pack_integers,
    pack_reals,
    unpack,
    unpack_integers,
    unpack_reals,
)
from protocol.replay import MismatchError
from protocol.topics import TopicError
from protocol.websocket import WebSocket
from protocol.wire_count import WireCount
from scripts.fuzzing.decoder import Decoder
from scripts.fuzzing.messages import every_message
from tests.contract.raw import CONNECT, connect_packet, packet, publish_body, text
from tests.coordinator.runs import contribution, spec_of
from tests.coordinator.scripted import evaluate
from worker.evaluation import answers
from worker.evaluation import pipe as pipes
from worker.evaluation.jobs import EvaluationJob

HOST, WORKER = Identity(b"h" * 32), Identity(b"w" * 32)
RUN = run_id("test", HOST.public_key)
SESSION, SECRET, KEY = "abcdef", b"s" * 32, b"k" * 32
ID = SessionId(WORKER.worker, SESSION)
SPEC = spec_of(normalizer={"enabled": True}, environment={"cap": 2.0})
AMENDED = amendments.amend(
    SPEC, NOTHING, 3, {"stop.target": 7.5, "strategy.population": 40.0, "stop.updates": 90.0}
)
CLIMBING = spec_of(
    strategy={"kind": "hill-climbing", "mirrored": False, "noise": "gaussian"},
    optimizer={"kind": "sgd", "learning_rate": 1.0},
)
"""A spec whose states remember an accepted one."""


def messages(scratch: Path) -> Decoder:
    """Messages of every type, as they are read wherever they come."""
    return Decoder("msgpack", every_message(), decode, (WireError,))


def envelope(scratch: Path) -> Decoder:
    """Whole payloads: plain, signed and sealed."""
    status = Status("idle", 3)
    corpus = (plain(status), signed(WORKER, "status", (RUN,), status), _sealed(status))

    def read(payload: bytes) -> object:
        opened: list[Callable[[], object]] = [
            lambda: wrapping_of(payload),
            lambda: open_plain(payload),
            lambda: peek_signed(payload),
            lambda: open_signed(payload, WORKER.public_key, "status", (RUN,)),
            lambda: open_sealed(payload, KEY, "to coordinator"),
        ]
        return [_refused(each) for each in opened]

    return Decoder("bytes", corpus, read, ())


def epoch(scratch: Path) -> Decoder:
    """Announcements that a host signed, and all that a newcomer makes of them."""
    authority = Authority(RUN, HOST.public_key).amended(
        HOST, 2, HOST.public_key, (WORKER.public_key[:16],)
    )
    corpus = tuple(
        encode(
            Epoch(
                *(1, RUN, HOST.public_key, number, 0, run_spec.to_bytes(spec), "running", 7),
                digest=b"d" * 16,
                charters=authority.charters[: number - 1],
            )
        )
        for number, spec in ((1, SPEC), (2, CLIMBING))
    )

    def read(body: bytes) -> object:
        heard = read_epoch(_signed(HOST, "epoch", (RUN,), body), RUN)
        return run_spec.from_bytes(heard.epoch.spec), heard.leader, heard.precedence

    return Decoder("msgpack", corpus, read, (WireError, run_spec.SpecError))


def spec(scratch: Path) -> Decoder:
    """Run specs as a host publishes them."""
    corpus = tuple(run_spec.to_bytes(each) for each in (SPEC, CLIMBING, spec_of()))
    return Decoder("msgpack", corpus, _used_spec, (run_spec.SpecError,))


def hello(scratch: Path) -> Decoder:
    """Hellos that a worker signed."""
    invite = proof_of(token_of(b"i" * 32), RUN, WORKER.public_key)
    exchange = SessionKeys.generate().public_key
    corpus = tuple(
        encode(
            Hello(
                *(1, "0", WORKER.public_key, exchange, b"n" * 16, "name", "device", 2, 1e4),
                held=(result_of().lease,) * held,
                invite=invite * held,
            )
        )
        for held in (0, 1)
    )
    leader = Leader.of_own(RUN, HOST)

    def read(body: bytes) -> object:
        return Peers(leader).greet(ID, _signed(WORKER, "hello", (RUN, SESSION), body), 0, b"d" * 16)

    return Decoder("msgpack", corpus, read, (WireError,))


def result(scratch: Path) -> Decoder:
    """Results of leases that were given: only what they say is judged."""
    corpus = tuple(encode(result_of(kind)) for kind in ("members", "centre"))

    def read(body: bytes) -> object:
        message = decode(body)
        if not isinstance(message, Result):
            raise WireError("another message")
        return judge(SPEC, RUN, SECRET, ID, _leased(message), 40)

    return Decoder("msgpack", corpus, read, (WireError,))


def update(scratch: Path) -> Decoder:
    """Updates that a host signed, as a replica applies them."""
    rules, before = replay.arithmetic(SPEC), replay.initial_state(SPEC)

    def read(body: bytes) -> object:
        message = decode(body)
        if not isinstance(message, Update):
            raise WireError("another message")
        return replay.follow(SPEC, rules, before, message)

    plain = first_update(SPEC)
    amended = msgspec.structs.replace(plain, amendments=dict(AMENDED.values))
    return Decoder("msgpack", (encode(plain), encode(amended)), read, (WireError, MismatchError))


def state(scratch: Path) -> Decoder:
    """Snapshots, as they lie on disk and come from peers."""
    specs = (SPEC, CLIMBING)
    rules = [replay.arithmetic(each) for each in specs]
    corpus = tuple(snapshot.to_bytes(replay.initial_state(each)) for each in specs)

    def read(data: bytes) -> object:
        of = len(data) == len(corpus[1])
        return replay.restored(specs[of], rules[of], data)

    later = dataclasses.replace(replay.initial_state(SPEC), version=9, amended=AMENDED)
    return Decoder("bytes", (*corpus, snapshot.to_bytes(later)), read, (WireError,))


def settings(scratch: Path) -> Decoder:
    """Settings that updates have changed, behind a snapshot."""

    def read(data: bytes) -> object:
        found = settings_from_bytes(data)
        amendments.check(SPEC, 9, found)
        return amendments.in_force(SPEC, found)

    return Decoder("msgpack", (AMENDED.to_bytes(),), read, (WireError,))


def arrays(scratch: Path) -> Decoder:
    """Packed arrays and observation sums."""
    sums = result_of().observed
    corpus = (
        pack_integers(np.arange(6)),
        pack_reals(np.linspace(0.0, 1.0, 6)),
        pack_integers(np.array([2**40, -(2**40)])),
        sums,
    )

    def read(data: bytes) -> object:
        readers: list[Callable[[], object]] = [
            lambda: unpack_integers(data, 4096),
            lambda: unpack_reals(data, 4096),
            lambda: normalizer.from_bytes(data, 2),
        ]
        return [_refused(each) for each in readers]

    return Decoder("bytes", corpus, read, ())


def secret(scratch: Path) -> Decoder:
    """Boxes with the run's secret, for delegates."""
    corpus = (seal_secret(KEY, SECRET),)
    return Decoder("bytes", corpus, lambda box: open_secret(KEY, box), (WireError,))


def frames(scratch: Path) -> Decoder:
    """What a broker sends to a client, cut into packets and counted."""
    topic = topics.update(RUN).encode()
    corpus = (
        publish_packet(topic, bytes(100), 0, False, 0),
        publish_packet(topic, bytes(3), 1, True, 7) + b"\x40\x02\x00\x07\xd0\x00",
        b"\x20\x02\x00\x00" + publish_packet(topic, bytes(200_000), 1, False, 8)[:500],
    )

    def read(data: bytes) -> object:
        reader, count = PacketReader(), WireCount()
        for begin in range(0, len(data), 65_536):
            for each in reader.feed(data[begin : begin + 65_536]):
                count.count("received", each)
                if each.kind == 3:
                    publication(each)
        return count.snapshot()

    return Decoder("bytes", corpus, read, (WireError,))


def broker(scratch: Path) -> Decoder:
    """What a client sends to the embedded broker."""
    topic = topics.results(RUN, WORKER.worker, SESSION)
    corpus = (
        connect_packet("c", user="u", password="p"),
        packet(0x32, publish_body(topic, bytes(50), 3)),
        packet(0x82, b"\x00\x07" + text(topic) + b"\x01" + text("a/+") + b"\x00"),
        packet(0xA2, b"\x00\x07" + text(topic)) + packet(0x40, b"\x00\x07"),
    )

    def read(data: bytes) -> object:
        buffer = bytearray(data)
        while taken := packets.take_packets(buffer, 1 << 18):
            for first, body in taken:
                if first >> 4 == packets.PUBLISH:
                    packets.read_publish(first, body, 256)
                elif first >> 4 in (packets.SUBSCRIBE, packets.UNSUBSCRIBE):
                    packets.read_filters(first, body, 64, 256)
                elif first >> 4 != CONNECT >> 4:
                    packets.packet_id_of(body)
        return len(buffer)

    return Decoder("bytes", corpus, read, (PacketRefused,))


def topic(scratch: Path) -> Decoder:
    """Topics that messages come under."""
    corpus = (
        topics.WHO,
        topics.epoch(RUN),
        topics.results(RUN, WORKER.worker, SESSION),
        topics.ask(RUN, topics.ALL, topics.peer(WORKER.worker, SESSION)),
    )

    def read(payload: bytes) -> object:
        topics.topic_class(payload)
        return topics.parse(payload.decode(errors="replace"))

    return Decoder("text", tuple(each.encode() for each in corpus), read, (TopicError,))


def join_line(scratch: Path) -> Decoder:
    """Addresses that a volunteer was given."""
    pin = HOST.fingerprint
    corpus = (
        "mqtt://127.0.0.1:1883",
        f"mqtts://user:p%40ss@example.org:8883/{RUN}#{pin}.{pin}",
        f"wss://[::1]:443/mqtt/{RUN}#{pin}",
        f"ws://example.org/some/where/{RUN}",
    )

    def read(payload: bytes) -> object:
        address = parse_address(payload.decode(errors="replace"))
        return parse_address(str(address)) == address

    return Decoder("text", tuple(each.encode() for each in corpus), read, (ShoalError,))


def invite(scratch: Path) -> Decoder:
    """Tokens that a volunteer was given, and proofs of them that a host is shown."""
    token = token_of(b"i" * 32)

    def read(payload: bytes) -> object:
        invited_by(RUN, WORKER.public_key, payload)
        return proof_of(payload.decode(errors="replace"), RUN, WORKER.public_key)

    return Decoder("text", (token.encode(), f" {token}\n".encode()), read, (ShoalError,))


def charters(scratch: Path) -> Decoder:
    """Chains of charters, as they lie in a log and come with an epoch."""
    chain = Authority(RUN, HOST.public_key)
    for number in (2, 5):
        chain = chain.amended(HOST, number, HOST.public_key, (b"d" * 16,))
    corpus = (pack(list(chain.charters)),)

    def read(data: bytes) -> object:
        said = unpack(data)
        if not isinstance(said, list) or not all(isinstance(each, bytes) for each in said):
            raise WireError("no list of charters")
        found = Authority.read(RUN, HOST.public_key, said)
        return found.rank(7, WORKER.public_key), found.run_key(3)

    return Decoder("msgpack", corpus, read, (WireError,))


def pipe(scratch: Path) -> Decoder:
    """What an evaluation process, beside which environments run, says to the worker."""
    spoken: list[pipes.Reply] = [
        pipes.Ready(1e4, bytes(16), "remark", 8, True),
        pipes.Evaluated(3, 0, bytes(32), bytes(32), b"", ((1, "why"),)),
        pipes.Failed(3, "why"),
        pipes.Alive(),
    ]
    corpus = tuple(pipes.frame(each)[pipes.HEADER :] for each in spoken)
    asked = EvaluationJob("members", 0, 0, 2)

    def read(body: bytes) -> object:
        reply = pipes.reply(body)
        if isinstance(reply, pipes.Evaluated):
            try:
                return answers.evaluation(spec_of(), asked, reply)
            except ValueError as error:  # as the daemon takes it
                raise WireError(str(error)[:100] or "no arrays") from None
        return reply

    return Decoder("msgpack", corpus, read, (WireError,))


def websocket(scratch: Path) -> Decoder:
    """What a server of WebSockets answers, and the frames that it sends."""
    address = parse_address("ws://example.org/mqtt")
    frame = b"\x82\x04\x20\x02\x00\x00" + b"\x89\x00" + b"\x82\x7e\x01\x00" + bytes(256)
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    corpus = (frame, b"\x88\x02\x03\xe8" + frame, answer + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")

    async def hear(data: bytes) -> object:
        heard = Mute()
        socket = WebSocket(asyncio.Protocol(), address)
        socket.connection_made(heard)
        if not data.startswith(b"HTTP"):  # the answer depends on what was asked
            socket.opened.set_result(None)
            socket._frames.state = State.OPEN
            socket._frames.parser = socket._frames.parse()
            next(socket._frames.parser)
        socket.data_received(data)
        socket.eof_received()
        socket.connection_lost(None)
        return socket.opened.done() and socket.opened.exception()

    loop = asyncio.new_event_loop()
    return Decoder("bytes", corpus, lambda data: loop.run_until_complete(hear(data)), ())


WIRE: dict[str, Callable[[Path], Decoder]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(messages, envelope, epoch, spec, hello, result, update, state, settings, arrays),
        *(secret, frames, broker, topic, join_line, invite, charters, pipe, websocket),
    )
}
"""By the names that people give."""


class Mute(asyncio.Transport):
    """Takes all that is written, and sends it nowhere."""

    def write(self, data: object) -> None:
        """Take it."""

    def close(self) -> None:
        """Be closed."""

    def abort(self) -> None:
        """Be closed at once."""


def _sealed(message: Message) -> bytes:
    return sealed(KEY, "to coordinator", message)


def _signed(identity: Identity, label: str, context: tuple[str, ...], body: bytes) -> bytes:
    """As `signed` does with a message, whatever the body is."""
    return b"\x01" + identity.sign(label, *context, body) + body


def _refused(read: Callable[[], object]) -> object:
    try:
        return read()
    except WireError:
        return None


def _used_spec(data: bytes) -> object:
    """What everybody who reads a spec asks of it."""
    read = run_spec.from_bytes(data)
    assert run_spec.from_bytes(run_spec.to_bytes(read)) == read
    return read.size, read.directions, read.versions_kept, replay.arithmetic(read)


def result_of(kind: str = "members") -> Result:
    """An honest result of a range that was leased."""
    task = Task(9, kind, 0, b"d" * 16, 4, 4, 1, b"t" * 16)  # type: ignore[arg-type]
    return _leased(evaluate(SPEC, replay.initial_state(SPEC), task))


def _leased(message: Result) -> Result:
    """The result, as if its range had been leased."""
    lease = message.lease
    token = lease_token(
        *(SECRET, RUN, lease.task, ID.worker, lease.version, lease.first, lease.count),
        *(lease.episodes, lease.kind),
    )
    return msgspec.structs.replace(message, token=token)


def first_update(spec: run_spec.RunSpec) -> Update:
    """That of version 0."""
    before = replay.initial_state(spec)
    closed = CloseBatch(0, (contribution(spec, before, 0, spec.directions),), ())
    return updating.make(spec, replay.arithmetic(spec), before, 1, closed).update
