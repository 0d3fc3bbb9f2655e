"""The command `shoal plot`: the curves of runs in one picture."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coordinator.curves import Curve

ENDINGS = (".png", ".svg", ".pdf")


class What(StrEnum):
    """Whose returns."""

    MEMBERS = "members"
    CENTRE = "centre"


class By(StrEnum):
    """Along which axis."""

    VERSION = "version"
    EPISODES = "episodes"
    STEPS = "steps"
    TIME = "time"


def register(app: typer.Typer) -> None:
    """Add `plot` to the `shoal` command."""
    app.command(epilog="Example: shoal plot runs/* --by episodes --out compared.svg")(plot)


def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="The directories of the runs.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf.")] = Path(
        "returns.png"
    ),
    what: Annotated[
        What, typer.Option(help="The returns of the perturbed members, or of the centre.")
    ] = What.MEMBERS,
    by: Annotated[By, typer.Option(help="What runs are compared by.")] = By.EPISODES,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="A curve for each run, though some differ by their seed alone, which else are one "
            "curve: their mean.",
        ),
    ] = False,
) -> None:
    """Draw return curves with 95 % bands: of one run over its episodes, of seeds over runs."""
    from protocol.errors import ShoalError
    from protocol.figures import shown

    if out.suffix.lower() not in ENDINGS:
        raise ShoalError(f"--out {out} ends in {out.suffix or 'nothing'}: end it in .png or .svg")
    curves = gathered(runs, what.value, by.value, apart)
    draw(curves, what.value, by.value, out)
    whose = "the centre" if what is What.CENTRE else "members"
    for name, curve in curves.items():
        last = f"{shown(float(curve.mean[-1]))} at the end" if curve.x.size else "none yet"
        print(f"{name}: mean return of {whose} {last}")
    print(f"picture in {out}")


def gathered(runs: list[Path], what: str, by: str, apart: bool) -> dict[str, Curve]:
    """The curves of some runs by what they are called. Raises `ShoalError`."""
    from coordinator.curves import of_run, of_seeds
    from protocol.errors import ShoalError

    groups: dict[str, list[tuple[str, Curve]]] = {}
    for path in runs:
        key, name, lines = told(path)
        groups.setdefault(str(path) if apart else key, []).append((name, of_run(lines, what, by)))
    curves: dict[str, Curve] = {}
    for members in groups.values():
        name = members[0][0]
        if len(members) > 1:
            others = len(members) - 1
            name = f"{name} and {others} other {'seed' if others == 1 else 'seeds'}"
        while name in curves:
            name += "'"
        curves[name] = of_seeds([curve for _, curve in members])
    if not any(curve.x.size for curve in curves.values()):
        raise ShoalError(
            f"none of these runs has returns of its {what} yet: wait for an update, or name others"
        )
    return curves


def told(path: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """(what runs of other seeds have in common, name, lines of metrics) of a run directory.

    Raises `ShoalError` where it is none; lines that are damaged are left out.
    """
    from msgspec.structs import replace

    from coordinator.metrics_file import METRICS, all_lines
    from protocol import spec as run_spec
    from protocol.errors import ShoalError

    try:
        lines = list(all_lines(path))
    except OSError as error:
        raise ShoalError(
            f"{path / METRICS} can't be read ({error.strerror or error}): give the directory of a "
            "run"
        ) from None
    spec = run_spec.parse(run_spec.load(path / "spec.toml"))
    alike = replace(spec, seed=0, name="any")
    return run_spec.to_bytes(alike).hex(), path.resolve().name, lines


def draw(curves: dict[str, Curve], what: str, by: str, out: Path) -> None:
    """Write the picture. Raises `ShoalError` where it can't be."""
    from coordinator.curves import AXES
    from protocol.errors import ShoalError

    try:
        import matplotlib as mpl
    except ImportError:
        raise ShoalError(
            "a picture needs matplotlib: install it with pip install 'shoal[plot]'"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.0, 4.0), layout="constrained")
    for name, curve in curves.items():
        (line,) = axes.plot(curve.x, curve.mean, label=name)
        low, high = curve.mean - curve.half, curve.mean + curve.half
        axes.fill_between(curve.x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(AXES[by][1])
    axes.set_ylabel(f"return of {'the centre' if what == 'centre' else 'members'}, 95 % interval")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(out, dpi=150)
    except OSError as error:
        raise ShoalError(
            f"--out {out} can't be written ({error.strerror or error}): name a file in a folder "
            "that you may write to"
        ) from None
    finally:
        pyplot.close(figure)
