"""The commands `shoal identity`: show, export and import the keys of this machine."""

from __future__ import annotations

import itertools
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protocol.identity import Identity


class Key(StrEnum):
    """What a key of this machine is for."""

    worker = "worker"
    host = "host"


Whose = Annotated[
    Key,
    typer.Option(
        "--of", help="worker: what `shoal join` works as; host: what a standby signs with."
    ),
]
Home = Annotated[
    Path | None,
    typer.Option(envvar="SHOAL_HOME", help="Where the keys lie; by default ~/.local/share/shoal."),
]
PASSPHRASE = "SHOAL_PASSPHRASE"


def register(app: typer.Typer) -> None:
    """Add `identity` to the `shoal` command."""
    commands = typer.Typer(
        help="Show, export and import the keys that this machine takes part with.",
        no_args_is_help=True,
    )
    commands.command(name="show", epilog="Example: shoal identity show")(show)
    commands.command(
        name="export",
        epilog="Example: shoal identity export me.key. The passphrase is asked for, or is "
        f"{PASSPHRASE} in the environment.",
    )(export)
    commands.command(name="import", epilog="Example: shoal identity import me.key")(import_)
    app.add_typer(commands, name="identity")


def show(whose: Whose = Key.worker, home: Home = None) -> None:
    """Print the fingerprint of this machine's key, made where it has none: what --admit and
    --delegate take."""
    from protocol.identity import Identity

    print(Identity.load_or_create(key_file(home, whose)).fingerprint)


def export(
    file: Annotated[Path, typer.Argument(help="A file that does not exist.")],
    whose: Whose = Key.worker,
    home: Home = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without a passphrase: whoever reads it has the key.")
    ] = False,
) -> None:
    """Write this machine's key to a file, encrypted, to work as the same elsewhere too."""
    from protocol.exported import LEAST_CHARACTERS, exported, write_file
    from protocol.identity import Identity, IdentityError

    identity = Identity.load(key_file(home, whose))
    content = identity.secret
    if not plain:
        passphrase = _passphrase(confirm=True)
        if len(passphrase) < LEAST_CHARACTERS:
            raise IdentityError(
                f"a passphrase of {len(passphrase)} characters: it has at least "
                f"{LEAST_CHARACTERS}; several words are best"
            )
        content = exported(identity, passphrase)
    write_file(file, content)
    how = "as it is: keep it where nobody else can read it" if plain else "encrypted"
    print(f"{file} has the key {identity.fingerprint}, {how}")


def import_(
    file: Annotated[Path, typer.Argument(help="What `shoal identity export` wrote.")],
    whose: Whose = Key.worker,
    home: Home = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="In the place of another key, which is kept beside it."),
    ] = False,
) -> None:
    """Take part with a key that was exported elsewhere; both machines may, at the same time."""
    from protocol.exported import imported, is_encrypted, read_file

    content = read_file(file)
    identity = imported(content, _passphrase() if is_encrypted(content) else "", file)
    path = key_file(home, whose)
    kept_as = _make_room(path, identity, force=force)
    identity.save(path)
    print(f"{path} has the key {identity.fingerprint}")
    if kept_as is not None:
        print(f"the key that was there is {kept_as}")


def key_file(home: Path | None, whose: Key) -> Path:
    """Where a key of this machine lies."""
    return (home or Path.home() / ".local" / "share" / "shoal") / f"{whose}.key"


def _make_room(path: Path, identity: Identity, *, force: bool) -> Path | None:
    """Move another key away, where that is asked for; where it is now. Raises ShoalError."""
    from protocol.identity import Identity, IdentityError

    if not path.exists():
        return None
    if not force:
        there = Identity.load(path).fingerprint
        same = there == identity.fingerprint
        raise IdentityError(
            f"{path} has {'that very key' if same else f'the key {there}'} already: "
            "--force puts this one in its place, and keeps that one beside it"
        )
    kept_as = next(
        place
        for number in itertools.count(1)
        if not (place := path.with_name(f"{path.name}.{number}")).exists()
    )
    path.rename(kept_as)
    return kept_as


def _passphrase(*, confirm: bool = False) -> str:
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    answer: str = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return answer
