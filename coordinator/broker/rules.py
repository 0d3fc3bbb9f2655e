"""Who may say and read what at a broker of ours that strangers reach.

A client's user name is its worker's name, which nobody proves: authority is the signature on what
is said. The rules keep strangers from filling the topics of the coordinator and of others.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field

from protocol import topics

HOST = "host"
"""The coordinator's user name; the only one with a password."""

_HASH_ROUNDS = 101
"""mosquitto's own number: the password has 128 random bits, so nothing is gained by more."""

_READ_BY_ALL = frozenset(("epoch", "beat", "update", "here"))
_OF_SESSION = frozenset(("req", "results", "status"))


@dataclass(frozen=True, slots=True)
class Rules:
    """The host's password, and the names of the keys that may take its place."""

    password: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(16))
    leaders: frozenset[str] = frozenset()

    def lets_in(self, user: str | None, password: str | None) -> bool:
        """Whether a client is who it says, as far as anybody asks."""
        if user != HOST:
            return True
        return secrets.compare_digest((password or "").encode(), self.password.encode())

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
            return parsed.worker == user
        if parsed.kind == "snap":
            return _is_of(user, parsed.server)
        return parsed.kind == "ask" and _is_of(user, parsed.joiner)

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
                return worker == user
            case [_, "snap", _, joiner]:
                return user is not None and joiner.startswith(f"{user}-")
            case [_, "ask", server, _]:
                return server == topics.ALL or (user is not None and server.startswith(f"{user}-"))
        return False

    def _leads(self, user: str | None) -> bool:
        return user == HOST or user in self.leaders


def access_list(rules: Rules) -> str:
    """The rules as an acl_file of mosquitto.

    It can't take `<worker>-<session>` apart, so anybody may serve snapshots there: what is served
    proves itself.
    """
    prefix = topics.PREFIX
    lines = [
        f"pattern write {topics.WHO}",
        f"pattern read {topics.HERE}",
        *(f"pattern read {prefix}/+/{kind}" for kind in ("epoch", "beat", "update")),
        f"pattern read {prefix}/+/in/%u/+",
        *(f"pattern write {prefix}/+/{kind}/%u/+" for kind in ("req", "results", "status")),
        *(f"pattern readwrite {prefix}/+/{kind}/+/+" for kind in ("snap", "ask")),
    ]
    for leader in sorted(rules.leaders):
        lines += [f"user {leader}", f"topic readwrite {prefix}/#"]
    return "\n".join(lines) + "\n"


def password_file(rules: Rules) -> str:
    """The host's password as a password_file of mosquitto: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    hashed = hashlib.pbkdf2_hmac("sha512", rules.password.encode(), salt, _HASH_ROUNDS)
    parts = (base64.b64encode(part).decode() for part in (salt, hashed))
    return f"{HOST}:$7${_HASH_ROUNDS}${'$'.join(parts)}\n"


def _is_of(user: str, peer: str | None) -> bool:
    return peer is not None and peer.startswith(f"{user}-")
