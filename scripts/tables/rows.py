"""What is reproduced: each row of the tables, its settings, its seeds, and what it must reach."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from coordinator.composing import compose
from protocol.spec import RunSpec, StopSpec

SEEDS = tuple(range(10))
"""Those that are reported; settings were chosen on seeds from 100 on."""


@dataclass(frozen=True)
class Row:
    """One row: a run that is made once for each seed.

    Attributes:
        name: in file names and for `--only`.
        table: heading of the table that it belongs to.
        claim: what was published or measured elsewhere, for the same budget.
        must: what the row is there to show, in words; empty where it only stands beside another.
        environment: Gymnasium's id.
        settings: tables of the run spec, over the preset of the environment.
        updates: after which the run ends; None where `episodes` or `target` end it.
        episodes: members' episodes after which it ends.
        target: mean return of the centre that ends it.
        judged_every: updates between two evaluations of the centre.
        judged: fresh episodes of each.
        seeds: that are reported.
    """

    name: str
    table: str
    environment: str
    settings: Mapping[str, Mapping[str, Any]]
    claim: str = ""
    must: str = ""
    updates: int | None = None
    episodes: int | None = None
    target: float | None = None
    judged_every: int = 1
    judged: int = 100
    seeds: Sequence[int] = SEEDS

    def spec(self) -> RunSpec:
        """The run of this row, with seed 0."""
        spec = compose(self.environment, dict(self.settings)).spec
        centre = replace(spec.centre, evaluate_every=self.judged_every, episodes=self.judged)
        if centre.screening > centre.episodes:
            centre = replace(centre, screening=centre.episodes)
        stop = StopSpec(target=self.target, updates=self.updates, episodes=self.episodes)
        return replace(spec, name=self.name, centre=centre, stop=stop)

    @property
    def digest(self) -> str:
        """Names these settings: results of others are not mixed with theirs."""
        plain = json.dumps([self.environment, self.settings, self._ends], sort_keys=True)
        return hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()

    @property
    def _ends(self) -> list[Any]:
        return [self.updates, self.episodes, self.target, self.judged_every, self.judged]


CARTPOLE_GRU = "CartPole-v1, GRU with 367 parameters, 512 episodes an update, 25 updates"
ACROBOT_GRU = "Acrobot-v1, GRU with 603 parameters, 512 episodes an update, 25 updates"


def _gru(layers: int) -> dict[str, Any]:
    """portable-es's: layers of 5 units, a head over the states of all."""
    return {"kind": "gru", "hidden": [5] * layers, "initialisation": "zero"}


def _cartpole(name: str, claim: str, optimizer: Mapping[str, Any], must: str = "") -> Row:
    return Row(
        name=f"cartpole-gru-{name}",
        table=CARTPOLE_GRU,
        environment="CartPole-v1",
        settings={
            "policy": _gru(2),
            "strategy": {"population": 512, "sigma": 0.1},
            "optimizer": optimizer,
        },
        claim=claim,
        must=must,
        updates=25,
        judged_every=25,
    )


def _acrobot(name: str, claim: str, optimizer: Mapping[str, Any], must: str = "") -> Row:
    return Row(
        name=f"acrobot-gru-{name}",
        table=ACROBOT_GRU,
        environment="Acrobot-v1",
        settings={
            "policy": _gru(3),
            "strategy": {"population": 512, "sigma": 0.1},
            "optimizer": optimizer,
        },
        claim=claim,
        must=must,
        updates=25,
        judged_every=25,
        judged=200,
    )


ROWS: tuple[Row, ...] = (
    _cartpole(
        "normalised",
        "NovoGrad 497.6",
        {"kind": "normalised", "learning_rate": 0.5, "momentum": 0.8},
        must="members' mean return at update 25 is 499 or more and the centre's 500, in every seed",
    ),
    _acrobot(
        "adam",
        "AdaBelief -82.1",
        {"kind": "adam", "learning_rate": 0.1},
        must="the median of the centres is -81 or more, none below -90",
    ),
)


def select(names: Sequence[str]) -> list[Row]:
    """The rows whose names begin with one of these; all of them where there is none."""
    return [row for row in ROWS if not names or any(row.name.startswith(name) for name in names)]
