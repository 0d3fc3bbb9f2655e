"""Runs a command line: a person's mistake is one line and an exit code, never a traceback."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import ShoalError
from protocol.exit_codes import INTERRUPTED, WRONG_USE
from protocol.figures import printable

PLAINLY = {
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole "
    "number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
}
"""What the parser of the command line says, and what a person reads."""


def run(app: Callable[..., Any], arguments: Sequence[str] | None = None) -> int:
    """The exit code of a typer application on these arguments, by default the process's own."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(given, standalone_mode=False)
    except ShoalError as error:
        print(f"error: {_harmless(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # The parser's own complaints; their classes move between its versions.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if message():  # else the help was shown, and says it all
            print(f"error: {_one_line(message(), error, given)}", file=sys.stderr)
        return int(getattr(error, "exit_code", WRONG_USE))
    return code if isinstance(code, int) else 0


def hangups() -> tuple[signal.Signals, ...]:
    """The signal that the end of a terminal sends, where this system has it and nobody, as nohup
    does, wants it ignored."""
    found = getattr(signal, "SIGHUP", None)
    return () if found is None or signal.getsignal(found) is signal.SIG_IGN else (found,)


def _harmless(text: str) -> str:
    """Lines without control characters: an error may quote what strangers wrote."""
    return "\n".join(map(printable, text.split("\n")))


def _one_line(message: str, error: Exception, given: Sequence[str]) -> str:
    """What is wrong, the value it is wrong with where it can be told, and where help is."""
    text = " ".join(message.split()).rstrip(".")
    for theirs, ours in PLAINLY.items():
        text = text.replace(theirs, ours)
    options = getattr(getattr(error, "param", None), "opts", ())
    for option in options:
        for place, argument in enumerate(given):
            if argument == option and place + 1 < len(given):
                text += f" (given: {given[place + 1][:80]!r})"
            elif argument.startswith(f"{option}="):
                text += f" (given: {argument.partition('=')[2][:80]!r})"
    return f"{text}; see --help"
