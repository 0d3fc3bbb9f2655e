"""Run files in TOML, read and written, and the settings that are laid over them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol.spec.run import RunSpec, to_plain
from protocol.spec.sections import SpecError


def to_toml(spec: RunSpec) -> str:
    """The spec as a TOML file that `load` reads back to an equal spec."""
    lines: list[str] = []
    _write_table(lines, (), {k: v for k, v in to_plain(spec).items() if k != "protocol"})
    return "\n".join(lines).lstrip("\n") + "\n"


def load(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file; `parse` judges them. Raises `SpecError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"no run file {path}; give a TOML file or an environment id") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"can't read the run file {path}: {error}") from None
    except ValueError as error:  # an integer of thousands of digits among them
        raise SpecError(f"{path} is not valid TOML: {error}; mend that line") from None
    except RecursionError:
        raise SpecError(f"{path} has values too deep in one another: use fewer levels") from None


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, table by table."""
    merged = dict(base)
    for key, value in changes.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def settings(assignments: Iterable[str]) -> dict[str, Any]:
    """Nested values of `section.field=value` texts (`--set`); a value is TOML, else text."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(re.fullmatch(r"\w+", key, re.ASCII) for key in keys):
            raise SpecError(
                f"--set {assignment[:80]!r} is not of the form section.field=value, "
                "for example --set strategy.sigma=0.05"
            )
        nested = _toml_or_text(text.strip())
        for key in reversed(keys):
            nested = {key: nested}
        changes = merge(changes, nested)
    return changes


def _toml_or_text(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def _write_table(lines: list[str], path: tuple[str, ...], table: Mapping[str, Any]) -> None:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and v is not None}
    if path and (plain or not table):
        lines.append(f"\n[{'.'.join(path)}]")
    lines.extend(f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(lines, (*path, key), value)


def _toml_key(key: str) -> str:
    """A key as it is, or quoted where it has more than letters, digits and dashes."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for one character that only TOML must escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml_value(item)}' for key, item in value.items())}}}"
    return repr(value)
