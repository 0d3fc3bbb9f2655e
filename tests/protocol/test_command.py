"""A mistake on the command line is one line on stderr and an exit code."""

from __future__ import annotations

import pytest
import typer

from protocol.command import run
from protocol.errors import ShoalError
from protocol.exit_codes import INTERRUPTED

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def count(number: int = typer.Option(1, min=0, max=9)) -> None:
    """Count."""
    if number == 2:
        raise ShoalError("2 is odd: take 3")
    if number == 3:
        raise KeyboardInterrupt
    if number == 4:
        raise typer.Exit(7)
    if number == 6:
        raise ShoalError("they say \x1b[2J\u202e\r:\n  ask them")
    if number == 5:
        raise RuntimeError("a fault of ours")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--number", "1"], 0, ""),
        (["--number", "2"], 2, "error: 2 is odd: take 3\n"),
        (["--number", "3"], INTERRUPTED, ""),
        (["--number", "4"], 7, ""),
        (["--number", "6"], 2, "error: they say ?[2J??:\n  ask them\n"),
    ],
)
def test_exit_codes(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, arguments) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--number", "abc"], "'abc'"), (["--number=77"], "'77'"), (["--numbr", "1"], "--numbr")],
)
def test_wrong_use_is_one_line_with_the_value(
    arguments: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert value in line
    assert line.endswith("see --help")


def test_help_for_want_of_arguments_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    several = typer.Typer(no_args_is_help=True, add_completion=False)
    several.command()(count)
    several.command("other")(count)
    assert run(several, []) == 2
    said = capsys.readouterr()
    assert "Usage" in said.out + said.err
    assert "error" not in said.out + said.err


def test_a_fault_of_ours_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run(app, ["--number", "5"])
