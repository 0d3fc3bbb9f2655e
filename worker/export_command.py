"""The command `shoal export`: a trained policy as a file for other programs."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What `worker.export.FORMATS` are."""

    SAFETENSORS = "safetensors"
    TORCH = "torch"
    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"
    GYMNASIUM = "gymnasium-policy"


ENDINGS = {
    Format.SAFETENSORS: ".safetensors",
    Format.TORCH: ".pt",
    Format.TORCHSCRIPT: ".pt",
    Format.ONNX: ".onnx",
    Format.GYMNASIUM: "",
}


def register(app: typer.Typer) -> None:
    """Add `export` to the `shoal` command."""
    app.command(name="export", epilog="Example: shoal export runs/cartpole-v1-1a2b3c4d --to onnx")(
        export
    )


def export(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR",
            help="The directory of a run; or a file in it that `shoal replay --save` wrote.",
        ),
    ],
    to: Annotated[
        Format,
        typer.Option(
            help="safetensors and torch hold the tensors by name; torchscript and onnx take an "
            "observation and give an action; gymnasium-policy is a folder with a Python class."
        ),
    ] = Format.TORCHSCRIPT,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, or folder; by default RUN_DIR/exported with an ending."),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The version whose centre was judged best.")
    ] = False,
    episodes: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Episodes over which the file is compared with our own kernels."
        ),
    ] = 3,
    allow_module: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-module",
            help="Module that may register environments or hold the policy; repeatable.",
        ),
    ] = None,
) -> None:
    """Export a trained policy, normaliser and actions included, and try the file out."""
    from protocol import registry
    from protocol.errors import ShoalError
    from worker import export as exporting
    from worker import play as playing

    registry.allow(allow_module or ())
    allowed = tuple(allow_module or ())
    trained = playing.load(run_dir, playing.BEST if best else playing.LATEST)
    if trained.spec.objective is not None:
        raise ShoalError(
            f"{run_dir} holds the parameters of an objective, which don't act: read its "
            "policy.safetensors"
        )
    folder = run_dir.parent if run_dir.suffix == ".safetensors" else run_dir
    target = out or folder / f"exported{ENDINGS[to]}"
    if not os.access(target.parent, os.W_OK) or target.is_dir() != (
        to is Format.GYMNASIUM and target.exists()
    ):
        raise ShoalError(
            f"--out {target} can't be written: name a "
            f"{'folder' if to is Format.GYMNASIUM else 'file'} in a folder that you may write to"
        )
    path = exporting.export(trained, to.value, target, allowed)
    print(f"{trained.run} version {trained.version} in {path}")
    if to.value not in exporting.WHOLE:
        print("it holds tensors alone: whoever reads it brings the policy's form")
    elif episodes:
        steps, strays = exporting.check(trained, path, to.value, episodes, allowed)
        told = f"the same actions as ours at {steps - strays:,} of {steps:,} steps"
        print(f"tried out over {episodes} episodes: {told}")
