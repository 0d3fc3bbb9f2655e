"""The command `shoal bench`: how fast this machine evaluates, and where its time goes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.errors import ShoalError
from worker.join_options import MOST_LANES

if TYPE_CHECKING:
    from worker.bench import Subject


PATHS = {
    "kernel": "computed by our own kernels",
    "vmap": "computed together by PyTorch",
    "loop": "computed by PyTorch one after the other",
}


def register(app: typer.Typer) -> None:
    """Add `bench` to the `shoal` command."""
    app.command(name="bench", epilog="Example: shoal bench CartPole-v1 --hidden 32")(bench)


def bench(
    source: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="Id of an environment; or the directory of a run, whose trained policy is then "
            "measured.",
        ),
    ] = "CartPole-v1",
    policy: Annotated[
        str | None,
        typer.Option(
            help="Kind of the policy, as in a run file: linear, mlp, gru, lstm, cnn, tabular; or a "
            "PyTorch module as package.module:Class."
        ),
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(metavar="WIDTHS", help="Of the hidden layers: 64,64.")
    ] = None,
    normalizer: Annotated[
        bool, typer.Option("--normalizer", help="Normalise observations.")
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the run spec; repeatable."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600.0, help="About how long to measure.")
    ] = 5.0,
    allow_module: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-module",
            help="Module that may register environments or hold the policy; repeatable.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where the policy is computed: cpu; cuda or cuda:1, a GPU, by PyTorch; or auto: "
            "on a GPU where there is one and the policy gains by it."
        ),
    ] = "auto",
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_LANES,
            help="Episodes that are played side by side; by default it is measured how many are "
            "fastest here, as `shoal join` does.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON.")] = False,
) -> None:
    """Measure evaluation in one process of this machine, beside the bare environment loop."""
    changes = _changes(policy, hidden, normalizer, assignments or [])

    import contextlib
    import json
    import sys

    from protocol import registry
    from protocol.installed import granted
    from worker import bench as measuring
    from worker.policies.devices import parse as parse_device
    from worker.policies.making import Grant

    grant = Grant(granted(allow_module), parse_device(device))
    registry.allow(grant.modules)
    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints
        subject: Subject
        if Path(source).exists():
            _refuse_changes(source, changes)
            subject = measuring.trained(Path(source), grant)
        else:
            subject = measuring.untrained(source, changes, grant)
        found = measuring.measure(
            subject, seconds, lambda text: typer.echo(f"bench: {text}", err=True), lanes or 0
        )
    print(json.dumps(found) if as_json else table(found))


def compiled_table(found: dict[str, Any]) -> str:
    """What was measured of a compiled run, for people."""
    kept = f"{found['programs_found']} of them compiled by an earlier process"
    return "\n".join(
        [
            f"{found['environment']}, {found['policy']} of {found['parameters']:,} parameters, "
            f"sigma {found['sigma']:g}",
            f"one process, {found['lanes']:,} lanes, compiled by JAX {found['jax']} for "
            f"{found['device']}",
            "",
            f"{'compiling':<14}{found['compile_seconds']:>12,.1f} s, {found['programs']} programs, "
            f"{kept}; {found['start_seconds']:,.1f} s until all was tried out",
            _line("evaluation", found["steps_per_second"], "steps/s", found["episode_steps"])
            + ", by the clock",
            f"{'':<14}{found['steps_per_cpu_second']:>12,.0f} steps per second of processor time",
            f"{'evaluations':<14}{found['evaluations_per_second']:>12,.1f} evaluations/s",
        ]
    )


def table(found: dict[str, Any]) -> str:
    """What was measured, for people."""
    if "compile_seconds" in found:
        return compiled_table(found)
    normalised = "observations normalised" if found["normalizer"] else "no normaliser"
    return "\n".join(
        [
            f"{found['environment']}, {found['policy']} of {found['parameters']:,} parameters, "
            f"{found['theta']}, sigma {found['sigma']:g}, {normalised}",
            f"one process, {found['lanes']} lanes, {PATHS[found['path']]} on "
            f"{found['device']}; environments "
            f"{'step as one' if found['vectorised'] else 'step one by one'}",
            "rates by CPU time, shares by the clock",
            "",
            _line("evaluation", found["steps_per_second"], "steps/s", found["episode_steps"]),
            _line(
                "bare loop", found["bare_steps_per_second"], "steps/s", found["bare_episode_steps"]
            )
            + ", random actions",
            f"{'ratio':<14}{100 * found['ratio']:>12.1f} %",
            f"{'evaluations':<14}{found['evaluations_per_second']:>12,.1f} evaluations/s",
            "",
            *(
                f"{name:<14}{100 * found[f'share_{name}']:>12.1f} % of the time"
                for name in ("environment", "policy", "noise", "overhead")
            ),
        ]
    )


def _line(name: str, value: float, unit: str, steps: float) -> str:
    return f"{name:<14}{value:>12,.0f} {unit}, {steps:,.1f} steps an episode"


def _changes(
    policy: str | None, hidden: str | None, normalizer: bool, assignments: list[str]
) -> dict[str, Any]:
    """What the options say, as nested values of the run spec."""
    from protocol import spec as run_spec

    said: dict[str, Any] = {}
    if policy is not None:
        said |= {"kind": "module", "module": policy} if ":" in policy else {"kind": policy}
    if hidden is not None:
        if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", hidden, re.ASCII):
            raise ShoalError(f"--hidden {hidden[:40]!r}: must be widths such as 64,64")
        said["hidden"] = [int(width) for width in hidden.split(",")]
    flags: dict[str, Any] = {"policy": said} if said else {}
    if normalizer:
        flags["normalizer"] = {"enabled": True}
    return run_spec.merge(flags, run_spec.settings(assignments))


def _refuse_changes(source: str, changes: dict[str, Any]) -> None:
    if changes:
        raise ShoalError(
            f"{source} is a run with a policy of its own, so its {', '.join(changes)} can't be "
            "changed: leave these options out, or give the id of an environment"
        )
