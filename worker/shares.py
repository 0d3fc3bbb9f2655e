"""What a volunteer says of how much each run may have of the machine: `--share`. Pure."""

from __future__ import annotations

import math
import re

from protocol.errors import ShoalError

LEAST, MOST = 0.01, 100.0
"""Bounds of a share that is not 0."""
MOST_NAMED = 64
"""Runs that are named at most."""
LONGEST_SHOWN = 60
"""Characters of a wrong word that are shown."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class Shares:
    """How much each run is to have, beside the others: 1 where nothing is said."""

    def __init__(self, named: dict[str, float]) -> None:
        """`named`: shares by the name of a run, or by its name with the eight digits of its key,
        which goes before."""
        self._named = named

    def of(self, run: str) -> float:
        """The share of a run, by its name with the digits; 0: it is refused."""
        return self._named.get(run, self._named.get(run.rpartition("-")[0], 1.0))


def parse(text: str) -> Shares:
    """Read `humanoid=2,cartpole=1`. Raises ShoalError that names the part that is wrong."""
    named: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, number = (piece.strip() for piece in part.partition("="))
        if not separator or not _NAME.fullmatch(name):
            raise ShoalError(
                f"--share {_shown(part)}: must be the name of a run and its share, such as "
                "humanoid=2; several with commas between them"
            )
        if name in named:
            raise ShoalError(f"--share {_shown(part)}: {name} is named twice; leave one out")
        named[name] = _share(number, part)
    if len(named) > MOST_NAMED:
        raise ShoalError(f"--share names {len(named)} runs: it may name {MOST_NAMED}, leave some")
    return Shares(named)


def weighed(share: float, priority: float) -> str:
    """What is told of the weight of a run that is joined; empty where nobody said anything of it.

    Args:
        share: the volunteer's.
        priority: the host's.
    """
    if share == priority == 1.0:
        return ""
    return f", with weight {share * priority:g}: share {share:g} times the host's {priority:g}"


def _share(number: str, part: str) -> float:
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    if share != 0.0 and not LEAST <= share <= MOST:
        raise ShoalError(
            f"--share {_shown(part)}: the share must be 0, which refuses the run, or a number "
            f"from {LEAST:g} to {MOST:g}"
        )
    return share


def _shown(part: str) -> str:
    return repr(part if len(part) <= LONGEST_SHOWN else f"{part[: LONGEST_SHOWN - 3]}...")
