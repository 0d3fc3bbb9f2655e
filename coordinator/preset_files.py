"""The presets of environments: a run file each, whose comments tell the task and the target."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from protocol.errors import ShoalError

NO_PRESET = "none"
"""In place of a preset's name: the defaults of the run spec."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_FOLDER = resources.files("coordinator") / "presets"
_SOURCE = re.compile(r"^target = [^#\n]+# (?P<source>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class PresetFile:
    """What a file says.

    Attributes:
        environment: Gymnasium's id, and the file's name.
        text: the file, a run file by itself.
    """

    environment: str
    text: str

    @property
    def values(self) -> dict[str, Any]:
        """Values of the run spec."""
        return tomllib.loads(self.text)

    @property
    def summary(self) -> str:
        """The first comment: what the task is."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def target_source(self) -> str:
        """Where its target comes from: the comment behind it."""
        found = _SOURCE.search(self.text)
        return "" if found is None else found["source"]


def find(environment: str) -> PresetFile | None:
    """The preset of the environment with this id, or None."""
    if not _NAME.fullmatch(environment):
        return None
    file = _FOLDER / f"{environment}.toml"
    return PresetFile(environment, file.read_text(encoding="utf-8")) if file.is_file() else None


def names() -> list[str]:
    """Ids of the environments that have a preset, in order."""
    files = (file.name for file in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def every() -> Iterator[PresetFile]:
    """All presets, in the order of their names."""
    for name in names():
        found = find(name)
        if found is not None:
            yield found


def named(name: str) -> PresetFile:
    """The preset of the environment with this id. Raises `ShoalError` with names like it."""
    found = find(name)
    if found is None:
        by_lower = {known.lower(): known for known in names()}
        close = difflib.get_close_matches(name.lower(), by_lower, n=3)
        like = f"did you mean {', '.join(by_lower[match] for match in close)}?" if close else ""
        raise ShoalError(
            f"no preset for {name[:80]!r}: {like or 'there are ' + ', '.join(names())}"
        )
    return found
