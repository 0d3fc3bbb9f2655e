"""Writes docs/run-spec.md from the declaration of the run spec: every field, bound and default."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec

from protocol import amendments, objective, schedules, spaces, spec, wrappers
from protocol.tables import describe

DOCUMENT = Path(__file__).parent.parent / "docs" / "run-spec.md"
HEAD = """# The run spec

Everything that defines a run. A run file is TOML with these tables; flags of `shoal host` set the
most used fields, `--set section.field=value` any of them. What is left out has its default; spaces
are read from the environment. A run's spec is public and never changes; its directory keeps it as
`spec.toml`.

Tables marked *preset* have other defaults for environments that have a [preset](presets.md).

`shoal set` may change some of it
[while a run goes on](operating.md#changing-settings-while-a-run-goes-on), as part of the run's
history and not of its spec:
"""
SPACES = """### Spaces

`observation` and `action` are spaces of Gymnasium's, in these words. A policy has so many inputs
and outputs:

| space | inputs, of an observation | outputs, for an action |
|---|---|---|
| `box` of `float32` | its numbers as they are | one each, put in bounds by `policy.squash` |
| `box` of `uint8` | its bytes over 255; bytes until the policy reads them | no actions |
| `discrete` | `n`: 1 for the one chosen, else 0 | `n`: `policy.choice` chooses one |
| `multi-discrete` | each choice as in `discrete`, one after the other | the same |
| `multi-binary` | its zeros and ones | one each: on where positive, or drawn with its logistic |
| `tuple`, `dict` | those of its parts, in the order of Gymnasium's `flatten` | those of its parts |

An environment's box is read as `uint8` where it is of that type with bounds 0 and 255, as images
are. Its `dtype` may be set to `float32` in a run file: policies then read 0 to 255. A normaliser
sees inputs as this table has them, up to 4,687 of them. It takes no images: a box of bytes has to
be read as `float32` to be normalised, unless it is a part of a `tuple` or `dict`.

A robot that sees a small grey image beside two speeds, and drives while it may also honk, is so
described:

    [environment]
    id = "Robot-v0"
    observation.kind = "dict"
    observation.names = ["camera", "speeds"]
    observation.spaces = [
        {kind = "box", shape = [8, 8], dtype = "uint8"},
        {kind = "box", shape = [2]},
    ]
    action.kind = "tuple"
    action.spaces = [
        {kind = "box", shape = [2], low = [-1.0, 0.0], high = [1.0, 1.0]},
        {kind = "discrete", n = 2},
    ]

Its policies have 66 inputs and 4 outputs.
"""
WRAPPERS = """### Wrappers

`wrappers` lists what lies around the environment: Gymnasium's own wrappers, and of these only the
following. The spaces of the spec are those outside of them all. In a run file (whose environment,
here, needs `pip install "gymnasium[box2d]"` on the host and on each volunteer's machine):

    [environment]
    id = "CarRacing-v3"
    kwargs = {continuous = false}
    wrappers = [{kind = "action-repeat", n = 4}, {kind = "frame-stack", n = 3}]

A step of `action-repeat` or `atari` is several of the environment's, whose own time limit goes on
to count its own; `max_steps` counts the policy's.
"""
SECTIONS = (
    ("", spec.RunSpec),
    ("environment", spec.EnvironmentSpec),
    ("objective", objective.ObjectiveSpec),
    ("policy", spec.PolicySpec),
    ("strategy", spec.StrategySpec),
    ("optimizer", spec.OptimizerSpec),
    ("optimizer.schedule", schedules.Schedule),
    ("normalizer", spec.NormalizerSpec),
    ("pool", spec.PoolSpec),
    ("centre", spec.CentreSpec),
    ("stop", spec.StopSpec),
)
PRESET = {"policy", "strategy", "optimizer", "normalizer", "centre", "stop"}


def remarks(section: type[msgspec.Struct]) -> dict[str, str]:
    """The texts that stand below a section's fields."""
    body = ast.parse(inspect.getsource(section)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def shown(default: object) -> str:
    """A default as it stands in a TOML file."""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{list(default) if isinstance(default, tuple) else default!r}`"


def tagged(kinds: Iterable[type[msgspec.Struct]]) -> list[str]:
    """A table of what a list of sections may hold: a row for each kind."""
    rows = []
    for kind in kinds:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        texts = remarks(kind)
        fields = []
        for field in info.fields:
            words = "list of spaces" if field.name == "spaces" else describe(field.type)
            default = "" if field.required else f", default {shown(field.default)}"
            about = texts.get(field.name, "")
            fields.append(f"`{field.name}`: {words}{default}{'. ' if about else ''}{about}")
        meaning = " ".join((inspect.getdoc(kind) or "").split())
        rows.append(f"| `{info.tag}` | {meaning} | {'<br>'.join(fields)} |")
    return ["| `kind` | meaning | fields |", "|---|---|---|", *rows]


def document() -> str:
    """The whole page."""
    lines = [HEAD + ", ".join(f"`{field}`" for field in amendments.AMENDABLE) + ".\n"]
    for name, section in SECTIONS:
        info = msgspec.inspect.type_info(section)
        assert isinstance(info, msgspec.inspect.StructType)
        texts = remarks(section)
        rows = []
        for field in info.fields:
            kind = describe(field.type)
            if isinstance(field.type, msgspec.inspect.StructType) or field.name == "protocol":
                continue
            default = "required" if field.required else shown(field.default)
            if field.name in ("observation", "action"):
                kind, default = "a space, see below", "read from the environment"
            if field.name == "wrappers":
                kind = "up to 8 wrappers, see below"
            if field.name == "name":
                default = "from the environment's id"
            if field.default == {} or field.default_factory is dict:
                default = "none"
            rows.append(f"| `{field.name}` | {kind} | {default} | {texts.get(field.name, '')} |")
        title = f"`[{name}]`" if name else "At the top"
        mark = " (*preset*)" if name in PRESET else ""
        lines += [f"## {title}{mark}", "", inspect.getdoc(section) or "", ""]
        lines += ["| field | type and bounds | default | meaning |", "|---|---|---|---|", *rows, ""]
        if name == "environment":
            lines += [SPACES, *tagged(get_args(spaces.Space)), ""]
            lines += [WRAPPERS, *tagged(get_args(wrappers.Wrapper)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(DOCUMENT.read_text(encoding="utf-8") != document())
    DOCUMENT.write_text(document(), encoding="utf-8")
