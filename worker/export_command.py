"""The command `shoal export`: a trained policy as a file for other programs."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from worker.play_command import Rebuild, Version, chosen
from worker.policy_options import AllowModule, Best, RunDirectory, folder_of


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
    Format.TORCHSCRIPT: ".torchscript.pt",
    Format.ONNX: ".onnx",
    Format.GYMNASIUM: "",
}


def register(app: typer.Typer, rebuild: Rebuild) -> None:
    """Add `export` to the `shoal` command; `rebuild` reads the history of runs."""
    app.command(name="export", epilog="Example: shoal export runs/cartpole-v1-1a2b3c4d --to onnx")(
        Exporting(rebuild).export
    )


class Exporting:
    """The command."""

    def __init__(self, rebuild: Rebuild) -> None:
        self._rebuild = rebuild

    def export(
        self,
        run_dir: RunDirectory,
        to: Annotated[
            Format,
            typer.Option(
                help="safetensors and torch hold the tensors by name; torchscript and onnx take an "
                "observation and give an action; gymnasium-policy is a folder with a Python class."
            ),
        ] = Format.TORCHSCRIPT,
        out: Annotated[
            Path | None,
            typer.Option(
                help="File to write, or folder; by default RUN_DIR/exported and an ending."
            ),
        ] = None,
        best: Best = False,
        version: Version = None,
        episodes: Annotated[
            int,
            typer.Option(
                min=0,
                max=1000,
                help="Episodes over which the file is compared with our kernels.",
            ),
        ] = 3,
        allow_module: AllowModule = None,
    ) -> None:
        """Export a trained policy, normaliser and actions included, and try the file out."""
        from protocol import registry
        from protocol.errors import ShoalError
        from protocol.installed import granted
        from worker import export as exporting
        from worker.acting import require_acting

        allowed = granted(allow_module)
        registry.allow(allowed)
        trained = chosen(self._rebuild, run_dir, best, version)
        require_acting(trained, run_dir)
        target = out or folder_of(run_dir) / f"exported{ENDINGS[to]}"
        if not os.access(target.parent, os.W_OK) or target.is_dir() != (
            to is Format.GYMNASIUM and target.exists()
        ):
            raise ShoalError(
                f"--out {target} can't be written: name a "
                f"{'folder' if to is Format.GYMNASIUM else 'file'} in a folder that is yours to "
                "write to"
            )
        path = exporting.export(trained, to.value, target, allowed)
        print(f"{trained.run} version {trained.version} in {path}")
        if to.value not in exporting.WHOLE:
            print("it holds tensors alone: whoever reads it brings the policy's form")
        elif episodes:
            steps, strays = exporting.check(trained, path, to.value, episodes, allowed)
            told = f"the same actions as ours at {steps - strays:,} of {steps:,} steps"
            print(f"tried out over {episodes} episodes: {told}")
