"""Writes docs/run-spec.md from the declaration of the run spec: every field, bound and default."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

import msgspec

from protocol import spec
from protocol.tables import describe

DOCUMENT = Path(__file__).parent.parent / "docs" / "run-spec.md"
HEAD = """# The run spec

Everything that defines a run. A run file is TOML with these tables; flags of `shoal host` set the
most used fields, `--set section.field=value` any of them. What is left out has its default; spaces
are read from the environment. A run's spec is public and never changes; its directory keeps it as
`spec.toml`.

Tables marked *preset* have other defaults for environments that Shoal has a preset for
(`coordinator/presets/`).
"""
SECTIONS = (
    ("", spec.RunSpec),
    ("environment", spec.EnvironmentSpec),
    ("policy", spec.PolicySpec),
    ("strategy", spec.StrategySpec),
    ("optimizer", spec.OptimizerSpec),
    ("normalizer", spec.NormalizerSpec),
    ("pool", spec.PoolSpec),
    ("centre", spec.CentreSpec),
    ("stop", spec.StopSpec),
)
PRESET = {"policy", "strategy", "optimizer", "stop"}


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


def document() -> str:
    """The whole page."""
    lines = [HEAD]
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
                kind, default = "`box` or `discrete`", "read from the environment"
            if field.name == "name":
                default = "from the environment's id"
            if field.default == {} or field.default_factory is dict:
                default = "none"
            rows.append(f"| `{field.name}` | {kind} | {default} | {texts.get(field.name, '')} |")
        title = f"`[{name}]`" if name else "At the top"
        mark = " (*preset*)" if name in PRESET else ""
        lines += [f"## {title}{mark}", "", inspect.getdoc(section) or "", ""]
        lines += ["| field | type and bounds | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(DOCUMENT.read_text(encoding="utf-8") != document())
    DOCUMENT.write_text(document(), encoding="utf-8")
