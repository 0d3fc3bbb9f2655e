"""Whether the broker lets a session write where it must: it drops the rest without a word. Pure."""

from __future__ import annotations

from collections.abc import Callable

from protocol import topics
from protocol.greeting import Greeting
from protocol.messages import TriedKind

ATTEMPTS = 4
"""Hellos that say so together: one may overtake the messages that try."""
UNANSWERED = 3
"""Hellos without an answer, from a leader that lives, after which the broker is to blame too."""

KINDS: dict[TriedKind, Callable[[str, str, str], str]] = {
    "results": topics.results,
    "status": topics.status,
}


class Trial:
    """What the leader has heard of us so far.

    Attributes:
        unheard: kinds of topics that are still to be tried.
    """

    def __init__(self, greeting: Greeting) -> None:
        self.unheard: tuple[TriedKind, ...] = tuple(KINDS)
        self._greeting = greeting
        self._attempts = 0
        self._unanswered = 0

    @property
    def topics(self) -> list[str]:
        """Where empty messages are due before a hello."""
        return [self._greeting.topic(KINDS[kind]) for kind in self.unheard]

    def said_hello(self) -> str:
        """A hello goes out; what to tell the volunteer of those before it, mostly nothing."""
        self._unanswered += 1
        if self._unanswered != UNANSWERED + 1:
            return ""
        where, back = self._greeting.topic(topics.request), self._greeting.topic(topics.inbox)
        return (
            f"the host lives, and answered none of {UNANSWERED} hellos: it is busy, or the broker "
            f"drops what we publish on {where} or keeps {back} from us; then ask its owner to "
            "allow that"
        )

    def lost(self) -> None:
        """The leader or the broker is gone: nobody can answer."""
        self._unanswered = 0

    def welcomed(self, heard: tuple[TriedKind, ...] | None) -> bool:
        """A hello is answered; whether to say another one, to try again."""
        self._unanswered = 0
        if heard is None:
            self.unheard = ()
        self.unheard = tuple(kind for kind in self.unheard if kind not in (heard or ()))
        self._attempts += 1
        return bool(self.unheard) and self._attempts < ATTEMPTS

    @property
    def verdict(self) -> str:
        """Why there is no taking part over this broker; empty while nothing is wrong."""
        if not self.unheard or self._attempts < ATTEMPTS:
            return ""
        where = " and ".join(self.topics)
        return (
            f"the broker drops what this worker publishes on {where}: its results would be lost; "
            "give user:password@ in the address, or ask the broker's owner to allow that"
        )
