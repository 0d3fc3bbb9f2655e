"""The commands `shoal worker status|pause|resume|finish|leave|policy`, for workers that run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import ShoalError
from worker.home import home_of
from worker.join_options import Home

if TYPE_CHECKING:
    from worker.control import Answer, Report, Request
    from worker.places import Neighbour
    from worker.view import RunView

Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Only the worker of that name, as status tells it; without: all."
    ),
]
Pid = Annotated[
    int | None, typer.Option(min=1, metavar="PID", help="Only the worker with this process id.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, an object for each worker.")]


def register(commands: typer.Typer) -> None:
    """Add them to the `shoal worker` commands."""
    for command, example in (
        (status, "shoal worker status --json"),
        (pause, "shoal worker pause --for 2h"),
        (resume, "shoal worker resume"),
        (finish, "shoal worker finish --name calm-otter"),
        (leave, "shoal worker leave --pid 1234"),
        (policy, "shoal worker policy --save mine.safetensors, then shoal play mine.safetensors"),
    ):
        commands.command(epilog=f"Example: {example}")(command)


def status(name: Name = None, pid: Pid = None, home: Home = None, as_json: Json = False) -> None:
    """Print how the workers of this machine are, and why they are idle if they are."""
    from worker.control import Request

    _ask_all(home, name, pid, Request("status"), as_json)


def pause(
    lasting: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Go on by itself after 90s, 45m, 2h or 1h30m; without it, or 0: never.",
            show_default=False,
        ),
    ] = "0",
    name: Name = None,
    pid: Pid = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Take no new tasks, also after a restart, until told to resume; the tasks at hand are
    finished."""
    from worker.control import Request
    from worker.spans import seconds_of

    seconds = None if lasting.strip() == "0" else seconds_of(lasting, "--for")
    _ask_all(home, name, pid, Request("pause", seconds), as_json)


def resume(name: Name = None, pid: Pid = None, home: Home = None, as_json: Json = False) -> None:
    """Take tasks again after pause; let a worker begin again that was told to finish."""
    from worker import control_client
    from worker.control import Request
    from worker.wishes import NOTHING

    directory = home_of(home)
    silent = [place for place in control_client.chosen(directory, name, pid) if not place.pid]
    waiting = [place for place in silent if place.wishes() != NOTHING]
    for place in waiting:
        place.keep(NOTHING)
        if not as_json:
            print(f"{place.name}: works when it is started again")
    there = [place for place in control_client.chosen(directory, name, pid) if place.pid]
    if there or not waiting:
        _ask_all(home, name, pid, Request("resume"), as_json)


def finish(name: Name = None, pid: Pid = None, home: Home = None, as_json: Json = False) -> None:
    """Finish the tasks at hand and leave; a service does not begin again before `resume`."""
    from worker.control import Request

    _ask_all(home, name, pid, Request("finish"), as_json)


def leave(name: Name = None, pid: Pid = None, home: Home = None, as_json: Json = False) -> None:
    """Hand the tasks at hand back and leave at once."""
    from worker.control import Request

    _ask_all(home, name, pid, Request("leave"), as_json)


def policy(
    save: Annotated[
        Path, typer.Option("--save", metavar="FILE", help="A .safetensors file to write.")
    ],
    run: Annotated[
        str,
        typer.Option(
            metavar="RUN", help="Whose, where the worker serves several.", show_default=False
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    name: Name = None,
    pid: Pid = None,
    home: Home = None,
) -> None:
    """Keep a copy of the policy that a running worker helps to train, for `shoal play`."""
    from protocol.disk import write_whole
    from worker import control_client
    from worker.control import LONGEST_RUN, Request

    if save.suffix != ".safetensors":
        raise ShoalError(f"--save {save}: end its name in .safetensors, as `shoal play` wants it")
    if save.exists() and not force:
        raise ShoalError(f"--save {save} exists: give another name, or --force")
    there = control_client.running(home_of(home), name, pid)
    if len(there) > 1:
        names = ", ".join(place.name for place in there)
        raise ShoalError(f"{len(there)} workers run here, {names}: choose one with --name")
    if len(run) > LONGEST_RUN:
        raise ShoalError(
            f"--run {run[:40]!r}...: a run's name has at most {LONGEST_RUN} characters"
        )
    said, data = control_client.ask(there[0], Request("policy", run=run))
    try:
        write_whole(save, data)
    except OSError as error:
        raise ShoalError(
            f"--save {save} can't be written ({error.strerror or error}): "
            "name a file in a folder that you may write to"
        ) from None
    print(f"{save} has the policy of {said.text}: shoal play {save}")


def described(report: Report) -> str:
    """A report in lines for a person."""
    from protocol.figures import span
    from worker.console import harmless, status_line

    rates = (report.evaluations_per_second, report.steps_per_second)
    runs = report.view.runs
    run = f"in {report.run}" if report.run else f"in {len(runs)} runs" if runs else "looks for runs"
    first = f"{report.name} (pid {report.pid}): {run} at {report.broker}"
    for_long = f"for {span(report.seconds)}, as {report.worker}"
    each = [f"\n    {harmless(_of_run(run))}" for run in runs]
    status = harmless(status_line(report.view, rates))
    return f"{harmless(first)}, {harmless(for_long)}\n  {status}{''.join(each)}"


def _of_run(run: RunView) -> str:
    had, wanted = 100.0 * run.had, 100.0 * run.wanted
    idle = f"; idle: {run.idle_because}" if run.idle_because else ""
    return (
        f"{run.run}: version {run.version}, {run.done:,} tasks done, {had:.0f} % of the time "
        f"({wanted:.0f} % wanted){idle}"
    )


def _ask_all(
    home: Path | None, name: str | None, pid: int | None, wanted: Request, as_json: bool
) -> None:
    """Print what every worker that is meant answers. Raises `ShoalError` once all were asked."""
    from worker import control_client

    wrong = []
    for place in control_client.running(home_of(home), name, pid):
        try:
            said, _ = control_client.ask(place, wanted)
        except ShoalError as error:
            wrong.append(error)
        else:
            _print(place, said, as_json)
    if wrong:
        raise wrong[0]


def _print(place: Neighbour, said: Answer, as_json: bool) -> None:
    if as_json:
        import msgspec

        print(msgspec.json.encode(said.report or said).decode())
    elif said.report is not None:
        print(described(said.report))
    else:
        from worker.console import harmless

        print(f"{place.name} (pid {place.pid}): {harmless(said.text)}")
