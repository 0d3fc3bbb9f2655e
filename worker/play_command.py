"""The command `shoal play`: a trained policy in its environment, with its returns."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.policy_options import AllowModule, Best, RunDirectory, folder_of

if TYPE_CHECKING:
    from protocol.spec import RunSpec
    from protocol.state import State
    from worker.play import TrainedPolicy


class Render(StrEnum):
    """How to watch."""

    NONE = "none"
    HUMAN = "human"


Rebuild = Callable[[Path, int], "tuple[RunSpec, str, State]"]
"""Gives spec, name and the state of a version of the run in a directory. Raises `ShoalError`."""

Version = Annotated[
    int | None, typer.Option("--version", min=0, help="Any version, rebuilt from the run's log.")
]
Member = Annotated[
    str | None,
    typer.Option(
        "--member",
        metavar="VERSION:+DIRECTION",
        help="A perturbed policy, in the episodes that it was evaluated in: direction 40961 of "
        "version 812 is 812:+40961, mirrored 812:-40961.",
    ),
]


def register(app: typer.Typer, rebuild: Rebuild) -> None:
    """Add `play` and `record` to the `shoal` command; `rebuild` reads the history of runs."""
    commands = Playing(rebuild)
    app.command(name="play", epilog="Example: shoal play runs/cartpole-v1-1a2b3c4d --episodes 5")(
        commands.play
    )
    app.command(
        name="record", epilog="Example: shoal record runs/cartpole-v1-1a2b3c4d --out film.gif"
    )(commands.record)


class Playing:
    """The two commands."""

    def __init__(self, rebuild: Rebuild) -> None:
        self._rebuild = rebuild

    def play(
        self,
        run_dir: RunDirectory,
        episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes to play.")] = 10,
        render: Annotated[Render, typer.Option(help="human opens a window.")] = Render.NONE,
        video: Annotated[
            Path | None, typer.Option(help="Write a film to this file: .mp4 or .gif.")
        ] = None,
        best: Best = False,
        version: Version = None,
        member: Member = None,
        allow_module: AllowModule = None,
    ) -> None:
        """Play a trained policy: the fresh episodes that its centre was judged by, one by one."""
        from protocol import registry
        from protocol.errors import ShoalError
        from protocol.figures import shown
        from protocol.installed import granted
        from worker import play as playing

        allowed = granted(allow_module)
        registry.allow(allowed)
        if video is not None and render is Render.HUMAN:
            raise ShoalError("--render human and --video exclude each other: choose one")
        policy = chosen(self._rebuild, run_dir, best, version, member)
        of = "" if member is None else f", member {member}"
        print(f"{policy.run} version {policy.version}{of}: {policy.spec.environment.id}")
        returns = playing.play(
            policy,
            episodes,
            render=render is Render.HUMAN,
            video=video,
            allowed=allowed,
            on_episode=lambda episode, total, steps: print(
                f"episode {episode}: return {total:g}, {steps} steps", flush=True
            ),
        )
        many = "1 episode" if episodes == 1 else f"{episodes:,} episodes"
        print(f"mean return {shown(float(returns.mean()))} over {many}")
        if video is not None:
            print(f"film in {video}")

    def record(
        self,
        run_dir: RunDirectory,
        out: Annotated[
            Path | None,
            typer.Option(help="Film to write: .mp4 or .gif; by default film.mp4 in RUN_DIR."),
        ] = None,
        episodes: Annotated[int, typer.Option(min=1, max=1000, help="Episodes to film.")] = 1,
        best: Best = False,
        version: Version = None,
        member: Member = None,
        allow_module: AllowModule = None,
    ) -> None:
        """Film a trained policy: what `shoal play --video` does, with a name for the film."""
        film = out or folder_of(run_dir) / "film.mp4"
        self.play(
            run_dir,
            episodes,
            video=film,
            best=best,
            version=version,
            member=member,
            allow_module=allow_module,
        )


def chosen(
    rebuild: Rebuild,
    run_dir: Path,
    best: bool,
    version: int | None,
    member: str | None = None,
) -> TrainedPolicy:
    """The policy that these options name. Raises `ShoalError`."""
    from protocol.errors import ShoalError
    from worker import member as members
    from worker import play as playing

    asked = {"--best": best, "--version": version is not None, "--member": member is not None}
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise ShoalError(f"{' and '.join(given)} exclude each other: choose one")
    name = None if member is None else members.parse(member)
    if name is not None:
        version = name.version
    if version is None:
        return playing.load(run_dir, playing.BEST if best else playing.LATEST)
    spec, run, state = rebuild(folder_of(run_dir), version)
    return playing.of_version(spec, run, state, name)
