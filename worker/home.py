"""Where a volunteer's key, configuration and what belongs to its workers lie."""

from __future__ import annotations

from pathlib import Path


def home_of(given: Path | None) -> Path:
    """The directory that was given, or the usual one."""
    return given or Path.home() / ".local" / "share" / "shoal"


def configuration_file(home: Path) -> Path:
    """What `shoal join` reads where no other file is named."""
    return home / "worker.toml"
