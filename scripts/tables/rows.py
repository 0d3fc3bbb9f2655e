"""What is reproduced: each row of the tables, its settings, its seeds, and what it must reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
        settings: tables of the run spec, over the defaults.
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
        spec = compose(self.environment, dict(self.settings), preset="none").spec
        centre = replace(spec.centre, evaluate_every=self.judged_every, episodes=self.judged)
        if centre.screening > centre.episodes:
            centre = replace(centre, screening=centre.episodes)
        stop = StopSpec(target=self.target, updates=self.updates, episodes=self.episodes)
        return replace(spec, name=self.name, centre=centre, stop=stop)

    @property
    def digest(self) -> str:
        """Names these settings: results of others are not mixed with theirs."""
        return self.spec().digest.hex()


CARTPOLE_GRU = "CartPole-v1, GRU with 367 parameters, 512 episodes an update, 25 updates"
ACROBOT_GRU = "Acrobot-v1, GRU with 603 parameters, 512 episodes an update, 25 updates"


def _gru(layers: int) -> dict[str, Any]:
    """portable-es's: layers of 5 units, a head over the states of all."""
    return {"kind": "gru", "hidden": [5] * layers, "initialisation": "zero"}


def _recurrent(
    environment: str,
    layers: int,
    judged: int,
    table: str,
    name: str,
    claim: str,
    optimizer: Mapping[str, Any],
    must: str = "",
) -> Row:
    return Row(
        name=f"{environment.split('-')[0].lower()}-gru-{name}",
        table=table,
        environment=environment,
        settings={
            "policy": _gru(layers),
            "strategy": {"population": 512, "sigma": 0.1},
            "optimizer": optimizer,
        },
        claim=claim,
        must=must,
        updates=25,
        judged_every=25,
        judged=judged,
    )


_cartpole = partial(_recurrent, "CartPole-v1", 2, 100, CARTPOLE_GRU)
_acrobot = partial(_recurrent, "Acrobot-v1", 3, 200, ACROBOT_GRU)


LINEAR = {"kind": "linear", "initialisation": "zero"}
CLIMBERS = "CartPole-v0, solved at a centre's mean of 195 over 100 fresh episodes"
ARS = "MuJoCo, ARS V2-t, a linear policy with normalised observations"


def _climber(name: str, claim: str, must: str, settings: Mapping[str, Mapping[str, Any]]) -> Row:
    return Row(
        name=f"cartpole-v0-{name}",
        table=CLIMBERS,
        environment="CartPole-v0",
        settings=settings,
        claim=claim,
        must=must,
        target=195.0,
        updates=500,
    )


def _ars(
    environment: str, claim: str, must: str, target: float, episodes: int, **chosen: Any
) -> Row:
    """`chosen`: learning rate, seeds if not all, and fields of the strategy."""
    rate, seeds = chosen.pop("learning_rate"), chosen.pop("seeds", SEEDS)
    return Row(
        name=f"ars-{environment.split('-')[0].lower()}",
        table=ARS,
        environment=environment,
        settings={
            "policy": LINEAR,
            "normalizer": {"enabled": True},
            "strategy": {"kind": "ars", "noise": "gaussian", **chosen},
            "optimizer": {"kind": "sgd", "learning_rate": rate, "momentum": 0.0},
        },
        claim=claim,
        must=must,
        target=target,
        episodes=episodes,
        judged_every=4,
        judged=20,
        seeds=seeds,
    )


ROWS: tuple[Row, ...] = (
    _cartpole(
        "normalised",
        "the best of portable-es is NovoGrad with 497.6",
        {"kind": "normalised", "learning_rate": 0.5, "momentum": 0.8},
        must="members' mean return at update 25 is 499 or more and the centre's 500, in every seed",
    ),
    _cartpole(
        "novograd",
        "portable-es 497.6",
        {"kind": "novograd", "learning_rate": 0.05, "beta1": 0.9},
    ),
    _cartpole("adabelief", "portable-es 484.1", {"kind": "adabelief", "learning_rate": 0.1}),
    _cartpole("adam", "portable-es 220.9", {"kind": "adam", "learning_rate": 0.1}),
    _cartpole("amsgrad", "portable-es (AdaMM) 129.0", {"kind": "amsgrad", "learning_rate": 0.1}),
    _cartpole("radam", "portable-es 48.6", {"kind": "radam", "learning_rate": 0.5, "beta2": 0.9}),
    _cartpole("clipup", "", {"kind": "clipup", "learning_rate": 0.5}),
    _acrobot(
        "adam",
        "the best of portable-es is AdaBelief with -82.1",
        {"kind": "adam", "learning_rate": 0.1, "beta2": 0.9},
        must="the median of the centres is -81 or more, none below -90",
    ),
    _climber(
        "hill-climbing",
        "470 s published, 65 to 69 s when it was run again, by a rolling mean of 100 iterations",
        "under 5 s of one core, in every seed",
        {
            "policy": LINEAR,
            "strategy": {
                "kind": "hill-climbing",
                "elites": 0.4,
                "keep": "always",
                "population": 20,
                "sigma": 1.0,
            },
        },
    ),
    _climber(
        "openai-es",
        "160 s when it was run again",
        "under 10 s of one core, in every seed",
        {
            "policy": {"kind": "mlp", "hidden": [32], "initialisation": "zero"},
            "strategy": {"population": 50, "sigma": 0.1},
            "optimizer": {"kind": "normalised", "learning_rate": 0.5, "momentum": 0.8},
        },
    ),
    _ars(
        "Swimmer-v5",
        "ARS V2-t 427 episodes to 325",
        "325 within 1,000 episodes in 7 of 10 seeds or more",
        target=325.0,
        episodes=1000,
        population=16,
        elites=0.5,
        sigma=0.3,
        learning_rate=0.3,
    ),
    _ars(
        "HalfCheetah-v5",
        "ARS V2-t 1,707 episodes to 3,430",
        "3,000 within 4,000 episodes in 4 of 5 seeds or more",
        target=3000.0,
        episodes=4000,
        population=64,
        elites=0.125,
        sigma=0.03,
        learning_rate=0.02,
        seeds=SEEDS[:5],
    ),
)


def select(names: Sequence[str]) -> list[Row]:
    """The rows whose names begin with one of these; all of them where there is none."""
    return [row for row in ROWS if not names or any(row.name.startswith(name) for name in names)]
