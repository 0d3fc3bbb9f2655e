"""What a session says: to the coordinator, to peers, and to the volunteer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol import topics
from protocol.envelope import plain
from protocol.messages import Message, Result, Status, Who
from worker.commands import Command, Say, Send
from worker.news import counted

if TYPE_CHECKING:
    from worker.handshake import Handshake
    from worker.presence import Presence

COMPLAIN_EVERY = 30.0
"""Seconds between two lines about messages that were ignored."""


class Voice:
    """Puts what was decided into messages, each proved as it must be, and into lines.

    Attributes:
        commands: all that the session wants done, until the daemon takes it.
        spoke: when the coordinator was last told something.
        ignored: messages that were not what they should be.
    """

    def __init__(self, handshake: Handshake, presence: Presence) -> None:
        self.commands: list[Command] = []
        self.spoke = 0.0
        self.ignored = 0
        self._handshake = handshake
        self._presence = presence
        self._complained = float("-inf")

    def take(self) -> list[Command]:
        """What is to be done, which is taken away."""
        commands, self.commands = self.commands, []
        return commands

    # To the coordinator.

    def hello(self, payload: bytes, tried: list[str], now: float) -> None:
        """Ask for a session, after messages without a word where it is to be seen whether they
        come through."""
        self.commands += [Send(topic, b"", 1) for topic in tried]
        self._publish(topics.request, payload, now)

    def request(self, message: Message, now: float) -> None:
        """Tell or ask, where there is a session; else the lease simply runs out."""
        if self._presence.connected and self._handshake.agreed:
            self._publish(topics.request, self._handshake.seal(message), now)

    def result(self, result: Result, now: float) -> None:
        """Send a result."""
        self._publish(topics.results, self._handshake.seal(result), now)

    def status(self, status: Status, now: float) -> None:
        """Give a sign of life."""
        self._publish(topics.status, self._handshake.seal(status), now)

    def bye(self) -> None:
        """Take leave of whoever may know us."""
        if self._presence.connected and self._presence.greeted:
            topic = self._handshake.topic(topics.status)
            self.commands.append(Send(topic, self._handshake.bye(lost=False), 1))

    def ask_who_leads(self) -> None:
        """Ask for the epoch, which should have come by itself."""
        self.commands.append(Send(topics.WHO, plain(Who()), 0))

    # To peers.

    def ask(self, server: str, message: Message) -> None:
        """Ask a peer for what it serves."""
        topic = topics.ask(self._handshake.run, server, self._handshake.peer)
        self.commands.append(Send(topic, plain(message), 0))

    def answer(self, joiner: str, message: Message) -> None:
        """Serve a peer."""
        topic = topics.snapshot(self._handshake.run, self._handshake.peer, joiner)
        self.commands.append(Send(topic, plain(message), 0))

    # To the volunteer.

    def say(self, text: str) -> None:
        """A line for who wants to know."""
        self.commands.append(Say(text))

    def warn(self, text: str) -> None:
        """A line for everybody."""
        self.commands.append(Say(text, warning=True))

    def ignore(self, reason: str, now: float) -> None:
        """Count a message that is not what it should be; say so now and then.

        Before there is any epoch it may be why nothing happens, so it is a warning.
        """
        self.ignored += 1
        if now - self._complained >= COMPLAIN_EVERY:
            self._complained = now
            line = f"ignored {counted(self.ignored, 'message')} so far: {reason}"
            self.commands.append(Say(line, warning=self._handshake.epoch is None))

    def _publish(self, kind: Callable[[str, str, str], str], payload: bytes, now: float) -> None:
        self.commands.append(Send(self._handshake.topic(kind), payload, 1))
        self.spoke = now
