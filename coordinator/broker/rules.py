"""Who may say and read what at a broker of ours that strangers reach.

A client's user name is its worker's name, which nobody proves: authority is the signature on what
is said. The rules keep strangers from filling the topics of the coordinator and of others. Where
the host lets in only whom it knows, strangers don't come so far: whoever has a token of it comes in
by that, and may speak for any worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.broker.passwords import hashed, matches
from protocol import topics

HOST = "host"
"""The coordinator's user name."""

_READ_BY_ALL = frozenset(("epoch", "beat", "update", "here"))
_OF_SESSION = frozenset(("req", "results", "status"))


@dataclass(frozen=True, slots=True)
class Rules:
    """The host's password, the names of the keys that may take its place, and who else comes in.

    Attributes:
        passes: user name -> hashed password of each token that lets its owner in; None: everybody
            may come in, without a password.
    """

    password: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(16))
    leaders: frozenset[str] = frozenset()
    passes: Mapping[str, str] | None = field(repr=False, default=None)

    def lets_in(self, user: str | None, password: str | None) -> bool:
        """Whether a client is who it says, as far as anybody asks. May take a tenth of a
        millisecond."""
        if user == HOST:
            return secrets.compare_digest((password or "").encode(), self.password.encode())
        if self.passes is None:
            return True
        kept = self.passes.get(user or "")
        return kept is not None and matches(password or "", kept)

    def knows(self, user: str | None) -> bool:
        """Whether a client that was let in by that name may stay."""
        return self.passes is None or user == HOST or user in self.passes

    def may_publish(self, user: str | None, topic: str) -> bool:
        """Whether a client of that name may say something there, or let its will say it."""
        if self._leads(user):
            return topic.startswith(topics.PREFIX + "/")
        parsed = topics.parse(topic)
        if parsed is None:
            return False
        if parsed.kind == "who":
            return True
        if user is None:
            return False
        if parsed.kind in _OF_SESSION:
            return self._speaks_for(user, parsed.worker)
        if parsed.kind == "snap":
            return self._speaks_for(user, _worker(parsed.server))
        return parsed.kind == "ask" and self._speaks_for(user, _worker(parsed.joiner))

    def may_retain(self, user: str | None) -> bool:
        """Whether what a client of that name says is kept for who comes later: epochs alone are."""
        return self._leads(user)

    def may_read(self, user: str | None, topic_filter: str) -> bool:
        """Whether a client of that name may subscribe to a filter."""
        if self._leads(user):
            return topic_filter.startswith(topics.PREFIX + "/")
        levels = topic_filter.split("/")
        if "#" in levels or levels[:2] != ["shoal", "1"]:
            return False
        match levels[2:]:
            case ["here"]:
                return True
            case [_, kind]:
                return kind in _READ_BY_ALL
            case [_, "in", worker, _]:
                return self._speaks_for(user, worker)
            case [_, "snap", _, joiner]:
                return self._speaks_for(user, _worker(joiner))
            case [_, "ask", server, _]:
                return server == topics.ALL or self._speaks_for(user, _worker(server))
        return False

    def _speaks_for(self, user: str | None, worker: str | None) -> bool:
        return user is not None and (self.passes is not None or worker == user)

    def _leads(self, user: str | None) -> bool:
        return user == HOST or user in self.leaders


def access_list(rules: Rules) -> str:
    """The rules as an acl_file of mosquitto.

    It can't take `<worker>-<session>` apart, so anybody may serve snapshots there: what is served
    proves itself.
    """
    prefix = topics.PREFIX
    worker = "%u" if rules.passes is None else "+"
    lines = [
        f"pattern write {topics.WHO}",
        f"pattern read {topics.HERE}",
        *(f"pattern read {prefix}/+/{kind}" for kind in ("epoch", "beat", "update")),
        f"pattern read {prefix}/+/in/{worker}/+",
        *(f"pattern write {prefix}/+/{kind}/{worker}/+" for kind in ("req", "results", "status")),
        *(f"pattern readwrite {prefix}/+/{kind}/+/+" for kind in ("snap", "ask")),
    ]
    for leader in sorted(rules.leaders):
        lines += [f"user {leader}", f"topic readwrite {prefix}/#"]
    return "\n".join(lines) + "\n"


def password_file(rules: Rules) -> str:
    """The host's password as a password_file of mosquitto."""
    return f"{HOST}:{hashed(rules.password)}\n"


def pass_file(rules: Rules) -> str:
    """The tokens that let somebody in as a password_file of mosquitto, and the host, since an empty
    file would ask nobody."""
    passes = rules.passes or {}
    return password_file(rules) + "".join(f"{user}:{kept}\n" for user, kept in passes.items())


def _worker(peer: str | None) -> str | None:
    """The worker in `<worker>-<session>`."""
    return None if peer is None else peer.rpartition("-")[0]
