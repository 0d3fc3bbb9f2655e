"""The command `shoal play`: a trained policy in its environment, with its returns."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from worker.policy_options import AllowModule, Best, RunDirectory, folder_of


class Render(StrEnum):
    """How to watch."""

    NONE = "none"
    HUMAN = "human"


def register(app: typer.Typer) -> None:
    """Add `play` to the `shoal` command."""
    app.command(name="play", epilog="Example: shoal play runs/cartpole-v1-1a2b3c4d --episodes 5")(
        play
    )
    app.command(
        name="record", epilog="Example: shoal record runs/cartpole-v1-1a2b3c4d --out film.gif"
    )(record)


def play(
    run_dir: RunDirectory,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes to play.")] = 10,
    render: Annotated[Render, typer.Option(help="human opens a window.")] = Render.NONE,
    video: Annotated[
        Path | None, typer.Option(help="Write a film to this file: .mp4 or .gif.")
    ] = None,
    best: Best = False,
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
    policy = playing.load(run_dir, playing.BEST if best else playing.LATEST)
    print(f"{policy.run} version {policy.version}: {policy.spec.environment.id}")
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
    print(f"mean return {shown(float(returns.mean()))} over {episodes} episodes")
    if video is not None:
        print(f"film in {video}")


def record(
    run_dir: RunDirectory,
    out: Annotated[
        Path | None,
        typer.Option(help="Film to write: .mp4 or .gif; by default film.mp4 in RUN_DIR."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, max=1000, help="Episodes to film.")] = 1,
    best: Best = False,
    allow_module: AllowModule = None,
) -> None:
    """Film a trained policy: what `shoal play --video` does, with a name for the film."""
    film = out or folder_of(run_dir) / "film.mp4"
    play(run_dir, episodes, video=film, best=best, allow_module=allow_module)
