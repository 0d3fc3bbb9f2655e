"""When the embedded broker has more to do than it is good for, in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

GOOD_FOR = 100
"""Workers."""
CROWDED = 80
"""Connections from where on that is near."""
LATE, WAITING = 0.5, 1 << 20
"""Seconds that the event loop is behind, and bytes that wait for clients to take them, from where
on that is too much."""
FIRM_AFTER = 10.0
"""Seconds for which it must be so: kernels are compiled, and bursts pass."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much the broker has to do at one moment: `connected` clients, `late` seconds that its
    loop is behind, `waiting` bytes that clients have yet to take."""

    connected: int = 0
    late: float = 0.0
    waiting: int = 0


class Advice:
    """Says when to move to mosquitto: each reason once, where it lasts."""

    def __init__(self, remedy: str) -> None:
        """`remedy`: what a person can do."""
        self._remedy = remedy
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self, load: Load, now: float) -> str:
        """What to tell the host now; empty: nothing."""
        reasons = {
            "connected": (load.connected >= CROWDED, f"{load.connected} clients are connected"),
            "late": (load.late >= LATE, f"it is {load.late:.1f} s behind"),
            "waiting": (load.waiting >= WAITING, f"{load.waiting / 1e6:.1f} MB wait for clients"),
        }
        for name, (holds, words) in reasons.items():
            if not holds:
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) >= FIRM_AFTER and name not in self._told:
                self._told.add(name)
                return (
                    f"the embedded broker is good for about {GOOD_FOR} workers, and {words}: "
                    f"{self._remedy}"
                )
        return ""
