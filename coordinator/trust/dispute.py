"""Who is wrong where two workers say different things of one episode; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

SUPPORTERS = 3
"""Workers that have to say the same before anybody who says otherwise is taken to be wrong."""
LEAD = 8
"""So many more than say anything else, where they are not the majority of all who could be asked:
where a quarter of a large pool lies by one rule, that goes wrong once in 3^8 disputes."""


class Dispute:
    """Units `[first, end)` at `version` of which workers of one numeric class, who have to get the
    same numbers, say different things; others of the class are asked until it is clear.

    `sums`: whether the observation sums are what differs; then the range is that of the results.
    """

    def __init__(
        self, version: int, first: int, end: int, numeric: bytes, sums: bool = False
    ) -> None:
        self.version = version
        self.first = first
        self.end = end
        self.numeric = numeric
        self.sums = sums
        self.said: dict[str, bytes] = {}
        """by worker, what it says in a form that compares"""

    def hear(self, worker: str, said: bytes) -> None:
        """A worker says this; what it said first stands."""
        self.said.setdefault(worker, said)

    def wrong(
        self, electorate: int, trusted: Set[str], mute: Set[str] = frozenset()
    ) -> frozenset[str] | None:
        """Who is proved wrong, or None where it is not clear yet; what the `mute` say counts for
        nothing, but may be wrong.

        The word of any `trusted` worker is taken; else that which most say, once they are
        `SUPPORTERS` and either more than half of the `electorate`, all of the class who could be
        asked, or lead by `LEAD`. So liars that share a rule frame nobody while they are a minority
        of a small pool, and hardly ever in a large one.
        """
        believed = [said for worker, said in self.said.items() if worker in trusted]
        if believed:
            right = believed[0]
        else:
            heard = [said for worker, said in self.said.items() if worker not in mute]
            counts = Counter(heard).most_common(2)
            if not counts:
                return None
            right, most = counts[0]
            lead = most - (counts[1][1] if len(counts) > 1 else 0)
            if most < SUPPORTERS or (2 * most <= electorate and lead < LEAD):
                return None
        return frozenset(w for w, said in self.said.items() if said != right and w not in trusted)
