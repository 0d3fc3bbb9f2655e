"""The options of the dashboard, and whether it can be had here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import ShoalError

TOKEN = "SHOAL_DASHBOARD_TOKEN"
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 200
NEEDED = ("starlette", "uvicorn")

Port = Annotated[
    int | None,
    typer.Option(
        "--dashboard",
        metavar="PORT",
        min=0,
        max=65535,
        help="Show the run on a web page at this port, and its figures for Prometheus at /metrics; "
        "0 takes a free one.",
        show_default=False,
    ),
]
Bind = Annotated[
    str | None,
    typer.Option(
        "--dashboard-bind",
        metavar="ADDRESS",
        help="Address that the dashboard listens on; by default 127.0.0.1, this machine alone.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--dashboard-token-file",
        help="File with a token: who has it may ban, audit, trust and stop from the dashboard. "
        f"{TOKEN} in the environment does the same. Without one it only shows.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The dashboard that somebody wants.

    Attributes:
        token: that orders take; None: none are taken. It is shown to nobody.
    """

    port: int
    bind: str = "127.0.0.1"
    token: str | None = None


def choice(port: int | None, bind: str | None, token_file: Path | None) -> Choice | None:
    """What the options say; None without a dashboard. Raises `ShoalError`."""
    if port is None:
        for name, value in (("--dashboard-bind", bind), ("--dashboard-token-file", token_file)):
            if value is not None:
                raise ShoalError(
                    f"{name} {value} is for a dashboard, which nobody asked for: add "
                    "--dashboard PORT"
                )
        return None
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise ShoalError(
            f"--dashboard {port} needs {' and '.join(missing)}: install what it takes with "
            "pip install 'shoal[dashboard]'"
        )
    return Choice(port, bind or "127.0.0.1", _token(token_file))


def _token(file: Path | None) -> str | None:
    if file is None:
        token, where = os.environ.get(TOKEN), TOKEN
        if not token:
            return None
    else:
        where = f"--dashboard-token-file {file}"
        try:
            if file.stat().st_mode & 0o077:
                raise ShoalError(f"{where} can be read by others on this machine: chmod 600 {file}")
            token = file.read_text(encoding="utf-8", errors="replace")[: LONGEST_TOKEN + 2].strip()
        except OSError as error:
            raise ShoalError(
                f"{where} can't be read ({error.strerror or error}): name a file that you may read"
            ) from None
    printable = token.isascii() and token.isprintable() and " " not in token
    if not (SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN and printable):
        raise ShoalError(
            f"{where} holds {len(token)} characters: a token has {SHORTEST_TOKEN} to "
            f"{LONGEST_TOKEN} letters, digits and signs, such as openssl rand -hex 16 makes"
        )
    return token
