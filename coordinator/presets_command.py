"""The command `shoal presets`: a table of the environments that have one, and what each says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coordinator.preset_files import PresetFile

COLUMNS = {
    "environment": "environment",
    "policy": "policy",
    "strategy": "strategy",
    "population": "members",
    "sigma": "sigma",
    "optimizer": "optimizer",
    "learning_rate": "rate",
    "pool": "pool",
    "target": "target",
    "target_source": "which is",
}
"""What the table shows, and under which heading."""


def register(app: typer.Typer) -> None:
    """Add `presets` to the `shoal` command."""
    app.command(epilog="Example: shoal presets CartPole-v1 > run.toml")(presets)


def presets(
    environment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ENV]", help="Print the preset of this environment, which is a run file."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say it in JSON, on stdout.")] = False,
) -> None:
    """List the environments with settings that were found by measurement."""
    from coordinator import preset_files

    if environment is None:
        told = [described(file) for file in preset_files.every()]
        print(json.dumps(told) if as_json else table(told))
        return
    file = preset_files.named(environment)
    if as_json:
        print(json.dumps({**described(file), "spec": file.values}))
    else:
        print(file.text, end="")


def described(file: PresetFile) -> dict[str, Any]:
    """What a preset trains and by what, as plain values."""
    from protocol import spec as run_spec

    spec = run_spec.parse({"name": "preset", **file.values})
    waits_for_all = spec.pool.quorum == 1.0 and spec.pool.max_staleness == 0
    hidden = ",".join(str(width) for width in spec.policy.hidden)
    layered = spec.policy.kind not in ("linear", "tabular")
    return {
        "environment": file.environment,
        "summary": file.summary,
        "policy": f"{spec.policy.kind} {hidden}" if layered else spec.policy.kind,
        "strategy": spec.strategy.kind,
        "population": spec.strategy.population,
        "sigma": spec.strategy.sigma,
        "optimizer": spec.optimizer.kind,
        "learning_rate": spec.optimizer.learning_rate,
        "pool": "sync" if waits_for_all else f"quorum {spec.pool.quorum:g}",
        "target": spec.stop.target,
        "target_source": file.target_source,
    }


def table(told: list[dict[str, Any]]) -> str:
    """The presets as lines of columns, under their headings."""
    rows = [list(COLUMNS.values())]
    rows += [[_shown(line[field]) for field in COLUMNS] for line in told]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
