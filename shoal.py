"""The front door: one `shoal` command, made of the host's and the worker's, and what programs use
of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import coordinator.cli
import coordinator.history.cli
import worker.bench_command
import worker.cli
import worker.export_command
import worker.identity_command
import worker.play_command
import worker.pools_command
import worker.worker_command
from protocol.command import run
from protocol.errors import ShoalError

if TYPE_CHECKING:
    import os
    from pathlib import Path
    from typing import Unpack

    from coordinator.training.evolution import Evolution as Evolution
    from coordinator.training.overrides import Overrides, Source
    from coordinator.training.results import CentreReturn as CentreReturn
    from coordinator.training.results import OnUpdate, Policy
    from coordinator.training.results import StopTraining as StopTraining
    from coordinator.training.results import TrainingProgress as TrainingProgress
    from coordinator.training.results import TrainingResult as TrainingResult
    from protocol.spec import RunSpec as RunSpec
    from worker.acting import load_policy as load_policy

_PLACES = {
    "CentreReturn": "coordinator.training.results",
    "Evolution": "coordinator.training.evolution",
    "RunSpec": "protocol.spec",
    "StopTraining": "coordinator.training.results",
    "TrainingProgress": "coordinator.training.results",
    "TrainingResult": "coordinator.training.results",
    "load_policy": "worker.acting",
}
"""What programs use, and where it is: commands have no need to wait for it."""
__all__ = ["ShoalError", "app", "main", "train", "train_async", *_PLACES]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from protocol.greeting import CLIENT_VERSION
        from protocol.spec import PROTOCOL_VERSION

        print(f"shoal {CLIENT_VERSION}, protocol {PROTOCOL_VERSION}")
        raise typer.Exit


@app.callback(epilog="Example: shoal demo, then shoal play runs/<run>")
def before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show which Shoal this is."
        ),
    ] = False,
) -> None:
    """Train policies with Evolution Strategies on machines that nobody controls."""


coordinator.cli.register(app)
worker.cli.register(app)
worker.bench_command.register(app)
worker.play_command.register(app, coordinator.history.cli.rebuilt)
worker.export_command.register(app, coordinator.history.cli.rebuilt)
worker.pools_command.register(app)
worker.identity_command.register(app)
worker.worker_command.register(app)


def main() -> None:
    """Run the command; a user's mistake is one line and an exit code, never a traceback."""
    sys.exit(run(app))


def train(
    spec: Source | None = None,
    *,
    workers: int | Literal["auto"] = "auto",
    broker: str = "embedded",
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    quiet: bool = False,
    environments: Sequence[str] = (),
    **settings: Unpack[Overrides],
) -> TrainingResult:
    """Train on this machine until the run ends, and return how it ended.

    Ctrl-C pauses the run, which `resume` goes on with, and raises KeyboardInterrupt. In a notebook,
    whose event loop runs already, write `await shoal.train_async(...)`.

    Args:
        spec: the id of an environment, whose preset is taken where there is one; the path of a run
            file; its values as a mapping; or a `RunSpec`. None with `objective`, and to resume.
        workers: processes of this machine, one core each; "auto": all cores but one.
        broker: "embedded", in this process; "mosquitto"; or the URL of one, over which volunteers
            can join.
        directory: where the run is kept; by default runs/<run>.
        resume: go on with the run in `directory`, where there is one. Spec and settings may be left
            out then; they can't change a run.
        on_update: gets a `TrainingProgress` after each update, in the thread that trains, which
            waits for it. Where it returns False or raises `StopTraining` the run ends, and can be
            resumed; what else it raises pauses the run, and is raised here.
        quiet: show no progress; it is shown in terminals and notebooks alone.
        environments: modules that workers may import: those that register environments, or hold
            the policy or the objective. They can't import what the script itself defines.
        settings: as the options of `shoal host` are called, such as `seed=1, updates=50,
            target=475`; or whole tables of the run spec, such as `strategy={"sigma": 0.05}`, of
            which only what they name changes. `target=None` trains on beyond a preset's target.

    Raises:
        ShoalError: the run can't begin or go on; it says why, and what to do.
    """
    if _in_event_loop():
        raise ShoalError(
            "shoal.train can't wait inside an event loop that runs already, such as a notebook's: "
            "write `await shoal.train_async(...)` there"
        )
    training = train_async(
        spec,
        workers=workers,
        broker=broker,
        directory=directory,
        resume=resume,
        on_update=on_update,
        quiet=quiet,
        environments=environments,
        **settings,
    )
    return asyncio.run(training)


async def train_async(
    spec: Source | None = None,
    *,
    workers: int | Literal["auto"] = "auto",
    broker: str = "embedded",
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    quiet: bool = False,
    environments: Sequence[str] = (),
    **settings: Unpack[Overrides],
) -> TrainingResult:
    """`train`, to be awaited in an event loop: that of a notebook, for example.

    Whoever cancels it pauses the run, which can be resumed. `on_update` is called in the loop.
    """
    from coordinator.training.leading import Wishes, train

    wishes = Wishes(
        spec, settings, workers, broker, directory, resume, on_update, quiet, environments
    )
    return await train(wishes, _load)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _load(path: Path, *, best: bool = False, allow_modules: Sequence[str] = ()) -> Policy:
    from worker.acting import load_policy

    return load_policy(path, best=best, allow_modules=allow_modules)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


if __name__ == "__main__":
    main()
