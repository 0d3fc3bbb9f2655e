"""Sorts the options of a command into panels of its help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand


def in_panels(
    panels: Mapping[str, str], command: type[TyperCommand] = TyperCommand
) -> type[TyperCommand]:
    """A kind of command, made of another, whose help shows options by what they are about.

    Args:
        panels: the names of the parameters of each, divided by blanks; the rest stays together.
    """
    panel_of = {name: panel for panel, names in panels.items() for name in names.split()}

    class Sorted(command):  # type: ignore[misc,valid-type]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            for parameter in self.params:
                if parameter.name in panel_of:
                    parameter.rich_help_panel = panel_of[parameter.name]

    return Sorted
