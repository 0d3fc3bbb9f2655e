"""The command `shoal invite`: makes, lists and revokes the invites of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `invite` to the `shoal` command."""
    app.command(epilog="Example: shoal invite runs/<run> --label ann --machines 3")(invite)


def invite(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Where the run is kept.")],
    label: Annotated[str, typer.Option(help="Whom it is for; only you see it.")] = "",
    machines: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many workers' keys it admits.")
    ] = 1,
    list_all: Annotated[
        bool, typer.Option("--list", help="Show the invites and who came with them.")
    ] = False,
    revoke: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Let it admit nobody any more, and who came with it leave."
        ),
    ] = None,
) -> None:
    """Invite somebody to a run that is led with --admission invite: prints a token, once."""
    from coordinator import admission
    from protocol.errors import ShoalError

    if not (run_dir / "run").is_file():
        raise ShoalError(f"{run_dir} holds no run: give the directory of one, runs/<name>")
    if revoke is not None:
        gone = admission.revoke(run_dir, revoke)
        print(f"revoked {gone.id}")
        return
    if list_all:
        admitted = admission.admitted_by(run_dir)
        for one in admission.read_invites(run_dir):
            state = "revoked" if one.revoked else f"{len(admitted.get(one.id, ()))}/{one.machines}"
            print(f"{one.id}  {state:>9}  {one.label}".rstrip())
            for worker in admitted.get(one.id, ()):
                print(f"    {worker}")
        return
    made, token = admission.invite(run_dir, label, machines)
    print(f"invite {made.id}, to revoke it by; the token is shown this once:")
    print(f"SHOAL_INVITE={token}")
    if admission.read_settings(run_dir).mode != "invite":
        print("the run takes everybody, or a list, until it is led with --admission invite")
