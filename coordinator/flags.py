"""The flags of a command that say what a new run is, and the spec values that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from coordinator import settings

Name = Annotated[str | None, typer.Option(help="Name of the run; by default from the environment.")]
Seed = Annotated[
    int | None, typer.Option(help="Names every random number of the run; by default 0.")
]
Objective = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="In the place of an environment: a function of the parameters, to be maximised.",
    ),
]
Parameters = Annotated[int | None, typer.Option(min=1, help="Parameters of the --objective.")]
Minimise = Annotated[
    bool | None,
    typer.Option("--minimise", help="Minimise the --objective: a return is minus its value."),
]
Policy = Annotated[
    str | None,
    typer.Option(
        help="linear, mlp (the default), gru, lstm, cnn, tabular, a learner such as q-learning, or "
        "a PyTorch module as package.module:Class."
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(help="Widths of the layers of an mlp, gru, lstm or cnn, for example 64,64."),
]
Strategy = Annotated[
    str | None,
    typer.Option(help="openai-es (the default), ars, pgpe, snes, sep-cma, cem, ...: see the docs."),
]
Shaping = Annotated[
    str | None,
    typer.Option(help="Of returns: centred-ranks (the default), z-score, sign, raw, normalised."),
]
Population = Annotated[
    int | None, typer.Option(help="Members of an update; even where they are mirrored.")
]
Sigma = Annotated[float | None, typer.Option(help="Size of the perturbations.")]
Noise = Annotated[str | None, typer.Option(help="rademacher, the default, or gaussian.")]
OptimizerKind = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        help="normalised (the default), sgd, nesterov, adam, adamw, adabelief, amsgrad, radam, "
        "novograd, clipup, or one that an installed package adds.",
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(help="Step size of the optimizer; by default what is usual for its kind."),
]
Normalize = Annotated[
    bool | None,
    typer.Option("--normalize/--no-normalize", help="Shift and scale observations."),
]
Quorum = Annotated[
    float | None,
    typer.Option(
        help="Share of a batch that must be in before stragglers may be left behind; by default "
        "1.0: all of it."
    ),
]
Staleness = Annotated[
    int | None,
    typer.Option(
        "--max-staleness",
        help="How many versions old a return may be and still count; by default 0.",
    ),
]
PoolPreset = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="Settings of the pool together: sync waits for every member, quorum for most, "
        "async for nobody; what the run file or a flag says itself still wins.",
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="ENV|none",
        help="Begin with the preset of this environment, not with ENV's own; none: with the plain "
        "defaults. shoal presets lists them.",
    ),
]
Target = Annotated[
    float | None,
    typer.Option(help="Mean return of the unperturbed policy over fresh episodes: ends the run."),
]
Updates = Annotated[
    int | None, typer.Option(help="Updates after which the run ends; its centre is judged then.")
]
Episodes = Annotated[int | None, typer.Option(help="Episodes after which the run ends.")]
Steps = Annotated[int | None, typer.Option(help="Environment steps after which the run ends.")]
Seconds = Annotated[
    float | None, typer.Option(help="Seconds from the start after which the run ends.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Any field of the run spec, such as pool.stale_share=0.1; repeatable.",
    ),
]
Init = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Begin with the parameters in it, and the observation statistics: a state dict of "
        "PyTorch, a safetensors file, or a run's directory or snapshot.",
    ),
]


def spec_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The spec values of the flags that were given, by the names of the command's parameters."""
    said = {name: given[name] for name in settings.FIELDS if given.get(name) is not None}
    if "hidden" in said:
        said["hidden"] = _widths(said["hidden"])
    return settings.spec_values(said)


def _widths(text: str) -> list[int]:
    from protocol.errors import ShoalError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ShoalError(f"--hidden {text!r}: give widths such as 64,64") from None
