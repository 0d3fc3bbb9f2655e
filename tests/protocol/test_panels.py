"""Every option of the long commands has its place in their help, and no place is for nothing."""

from __future__ import annotations

import pytest
from typer.main import get_command

import shoal
from coordinator import cli as host_cli
from coordinator import demo_command
from worker import cli as worker_cli


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("host", host_cli.PANELS),
        ("demo", demo_command.PANELS),
        ("join", worker_cli.PANELS),
    ],
)
def test_each_option_is_in_one_panel(name: str, panels: dict[str, str]) -> None:
    command = get_command(shoal.app).commands[name]  # type: ignore[attr-defined]
    shown = {p.name: p for p in command.params if not getattr(p, "hidden", False)}
    named = [one for names in panels.values() for one in names.split()]
    options = {name for name, p in shown.items() if p.param_type_name == "option"}
    assert sorted(named) == sorted(options)
    for panel, names in panels.items():
        for one in names.split():
            assert shown[one].rich_help_panel == panel
