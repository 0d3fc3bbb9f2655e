"""The commands that read what a run has been: replay, log, verify, repair, fork, archive, key."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coordinator.history.past import Advance
    from coordinator.history.verify import Verdict
    from protocol.spec import RunSpec
    from protocol.state import State

SHOW_AFTER = 1.0
"""Seconds after which something that takes long shows how far it is."""
REDRAW_EVERY = 0.1
PLAIN_EVERY = 2.0
"""Seconds between two looks at the progress: on a terminal, and elsewhere."""


def _trusted(run_dir: Path) -> Path:
    """The directory: a run that is kept here may use whatever is installed here."""
    from protocol import registry

    registry.allow([registry.ANY])
    return run_dir


RunDir = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="Where the run is kept.", callback=_trusted)
]
AsJson = Annotated[bool, typer.Option("--json", help="Say it in JSON, on stdout.")]
Version = Annotated[int, typer.Option("--version", min=0, help="Version of the parameters.")]
Archives = Annotated[
    list[Path] | None,
    typer.Option("--archive", help="File with the updates that were archived; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the `shoal` command."""
    app.command(epilog="Example: shoal replay runs/cartpole-1a2b3c4d --version 40")(replay)
    app.command(name="log", epilog="Example: shoal log runs/cartpole-1a2b3c4d --last 20")(log)
    app.command(epilog="Example: shoal verify runs/cartpole-1a2b3c4d")(verify)
    app.command(epilog="Example: shoal repair runs/cartpole-1a2b3c4d")(repair)
    app.command(
        epilog="Example: shoal fork runs/cartpole-1a2b3c4d --version 40 --set strategy.sigma=0.05"
    )(fork)
    app.command(epilog="Example: shoal archive runs/cartpole-1a2b3c4d --before 5000")(archive)
    keys = typer.Typer(
        help="Show, back up, restore and rotate the keys that lead runs.", no_args_is_help=True
    )
    one = "runs/cartpole-1a2b3c4d"
    keys.command(name="show", epilog=f"Example: shoal key show {one}")(key_show)
    keys.command(name="backup", epilog=f"Example: shoal key backup {one} my.key")(key_backup)
    keys.command(name="restore", epilog=f"Example: shoal key restore {one} my.key")(key_restore)
    keys.command(name="rotate", epilog=f"Example: shoal key rotate {one}")(key_rotate)
    app.add_typer(keys, name="key")


def replay(
    run_dir: RunDir,
    version: Version,
    save: Annotated[
        Path | None, typer.Option(help="Write the policy to this file, as policy.safetensors.")
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="From the first version, not the nearest snapshot."),
    ] = False,
    archives: Archives = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild any version of a run, bit for bit."""
    from coordinator.history.past import opened
    from coordinator.history.rebuild import rebuild, save_policy
    from protocol.snapshot import state_digest
    from protocol.state import params_hash

    with opened(run_dir, archives or ()) as past:
        with _progress("replayed") as advance:
            rebuilt = rebuild(past, version, from_start, _say, advance)
        if save is not None:
            save_policy(past, rebuilt.state, save)
        digest, whole = params_hash(rebuilt.state.theta), state_digest(rebuilt.state).hex()
        run = past.run
    if as_json:
        _print_json(
            run=run,
            version=version,
            params_hash=digest,
            state_digest=whole,
            from_version=rebuilt.first,
            updates=rebuilt.updates,
            seconds=round(rebuilt.seconds, 6),
            versions_per_second=round(rebuilt.versions_per_second, 1),
            saved=None if save is None else str(save),
        )
        return
    print(f"version {version} of {run}")
    print(f"params_hash   {digest}")
    print(f"state digest  {whole}")
    speed = f", {rebuilt.versions_per_second:,.0f} versions/s" if rebuilt.updates else ""
    print(
        f"rebuilt from version {rebuilt.first} by {rebuilt.updates:,} updates in "
        f"{rebuilt.seconds:.2f} s{speed}"
    )
    if save is not None:
        print(f"policy        {save}")


def rebuilt(run_dir: Path, version: int) -> tuple[RunSpec, str, State]:
    """Spec and name of the run that is kept there, and the state of a version of it.

    Raises `ShoalError`.
    """
    from coordinator.history.past import opened
    from coordinator.history.rebuild import rebuild

    with opened(_trusted(run_dir), ()) as past, _progress("replayed") as advance:
        return past.spec, past.run, rebuild(past, version, False, _say, advance).state


def log(
    run_dir: RunDir,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="Only so many, the latest ones.")
    ] = None,
    archives: Archives = None,
    as_json: AsJson = False,
) -> None:
    """List the updates of a run: one line, or one JSON object, for each."""
    from coordinator.history.listing import HEADER, lines
    from coordinator.history.past import opened

    with opened(run_dir, archives or ()) as past:
        if not as_json:
            print(HEADER)
        for line in lines(past, last):
            print(json.dumps(line.to_json()) if as_json else line.to_text())


def verify(run_dir: RunDir, archives: Archives = None, as_json: AsJson = False) -> None:
    """Prove a run: replay all of it, check every signature, hash and snapshot."""
    from coordinator.history.verify import verify_directory

    with _progress("proved") as advance:
        verdict = verify_directory(run_dir, archives or (), advance)
    if as_json:
        first = verdict.differences[0] if verdict.differences else None
        _print_json(
            run=verdict.run,
            ok=verdict.sound,
            from_version=verdict.base,
            version=verdict.reached,
            claimed_version=verdict.claimed,
            params_hash=verdict.params_hash,
            state_digest=verdict.state_digest,
            signed_states=verdict.signed_states,
            snapshots=list(verdict.snapshots),
            seconds=round(verdict.seconds, 6),
            versions_per_second=round(verdict.versions_per_second, 1),
            trained_seconds=verdict.trained_seconds,
            times_faster=verdict.times_faster and round(verdict.times_faster, 1),
            first_difference=first and {"version": first.version, "reason": first.reason},
            differences=[
                {"version": each.version, "reason": each.reason} for each in verdict.differences
            ],
        )
    else:
        _print_verdict(verdict)
    raise typer.Exit(0 if verdict.sound else 1)


def repair(run_dir: RunDir) -> None:
    """Mend a damaged log: keep everything before the first damage, and the old log beside it."""
    from coordinator.history.repair import repair as mend

    with _progress("replayed") as advance:
        repaired = mend(run_dir, _say, advance)
    if repaired is None:
        print(f"the log in {run_dir} is sound: there is nothing to repair")
        return
    print(f"kept: everything up to version {repaired.version}")
    if repaired.reason:
        lost = "what came after it" if repaired.lost is None else f"{repaired.lost:,} updates"
        print(f"lost: {lost}, since {repaired.reason}")
    else:
        print("lost: nothing that the run needs")
    print(f"the damaged log is {repaired.kept_as}")
    for path in repaired.moved:
        print(f"a snapshot of another state is now {path}")


def fork(
    run_dir: RunDir,
    version: Version,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Any field of the run spec."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--run-dir", help="Where the new run is kept; by default runs/<run>."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new run; by default the same.")] = (
        None
    ),
    seed: Annotated[
        int | None, typer.Option(help="Its seed; by default made of the old seed and the version.")
    ] = None,
    archives: Archives = None,
    as_json: AsJson = False,
) -> None:
    """Make a new run of any version of an old one.

    It begins with the parameters of that version, the optimizer's memory where the kind of
    optimizer stays, and the observation statistics where both runs normalise; all counters begin
    at 0. Lead it with `shoal host --resume`.
    """
    from coordinator.history.fork import changes_of
    from coordinator.history.fork import fork as begin
    from coordinator.history.past import opened
    from coordinator.history.rebuild import rebuild
    from protocol.amendments import shown

    changes = changes_of(assignments or (), name, seed)
    with opened(run_dir, archives or ()) as past:
        with _progress("replayed") as advance:
            origin = rebuild(past, version, False, _say, advance).state
        forked = begin(past, origin, changes, to)
        run = past.run
    if as_json:
        _print_json(
            run=forked.run,
            run_dir=str(forked.directory),
            parent=run,
            parent_version=version,
            params_hash=forked.params_hash,
            seed=forked.spec.seed,
            keeps_slots=forked.keeps_slots,
            keeps_statistics=forked.keeps_statistics,
            amended=dict(forked.amended),
        )
        return
    kept = ["parameters"]
    kept += ["optimizer's memory"] if forked.keeps_slots else []
    kept += ["observation statistics"] if forked.keeps_statistics else []
    print(f"new run {forked.run} with the {', '.join(kept)} of version {version} of {run}")
    print(f"params_hash   {forked.params_hash}")
    for field, value in forked.amended:
        print(f"as it was set  {field} = {shown(field, value)}")
    print(f"lead it with  {this_command()} host --resume {forked.directory}")


def archive(
    run_dir: RunDir,
    before: Annotated[
        int, typer.Option("--before", min=1, help="Updates before this version are moved.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(help="The new file; by default RUN_DIR/archive-<first>-<before>.sqlite."),
    ] = None,
) -> None:
    """Move old updates of a run to a file of their own; a snapshot stays in their place."""
    from coordinator.history.archive import archive as move

    with _progress("proved") as advance:
        archived = move(run_dir, before, to, advance)
    print(
        f"the updates from version {archived.first} to {archived.end} are now in {archived.file}: "
        "keep it, earlier versions can't be rebuilt without it (--archive)"
    )
    print(
        f"the log begins with {archived.snapshot}; it had {archived.bytes_before:,} bytes and has "
        f"{archived.bytes_after:,}"
    )


def key_show(
    run_dir: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN_DIR]", help="Show the key of the run that is kept there."),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Show the key in this file.")] = None,
    home: Annotated[
        str, typer.Option(envvar="SHOAL_HOME", help="Where host.key lies.", show_default=False)
    ] = "",
) -> None:
    """Print a key's fingerprint; without arguments that of this machine, made where it has none.

    This machine's key is what `shoal host --standby` signs with and `--delegate` takes.
    """
    from coordinator.history.keys import home_key
    from protocol.errors import ShoalError
    from protocol.identity import Identity

    if run_dir is not None and key is not None:
        raise ShoalError(f"--key {key}: give a key file or a run directory ({run_dir}), not both")
    if run_dir is not None:
        key = run_dir / "run.key"
    if key is not None:
        print(Identity.load(key).fingerprint)
    else:
        print(Identity.load_or_create(home_key(home)).fingerprint)


def key_backup(
    run_dir: RunDir, file: Annotated[Path, typer.Argument(help="A file that does not exist.")]
) -> None:
    """Write a run's key, secret and charters to a file: whoever has it can lead the run."""
    from coordinator.history.keys import backup

    made = backup(run_dir, file)
    print(
        f"{file} has the key {made.identity.fingerprint} of the run {made.run}: "
        "keep it where nobody else can read it"
    )


def key_restore(
    run_dir: RunDir,
    file: Annotated[Path, typer.Argument(help="What `shoal key backup` wrote.")],
) -> None:
    """Give a run directory, also a standby's, the key, secret and charters of a backup."""
    from coordinator.history.keys import restore

    held, kept_as = restore(run_dir, file)
    print(f"{run_dir} has the key {held.identity.fingerprint} of the run {held.run} again")
    if kept_as is not None:
        print(f"the key that was there is {kept_as}")


def key_rotate(run_dir: RunDir) -> None:
    """Make a new run key, in charge from the run's next epoch on."""
    from coordinator.history.keys import rotate

    rotated = rotate(run_dir)
    print(f"the key {rotated.identity.fingerprint} is in charge from epoch {rotated.epoch} on")
    print(f"the old one is {rotated.kept_as}: back the new one up (shoal key backup)")


def _print_verdict(verdict: Verdict) -> None:
    if verdict.params_hash:
        print(f"{verdict.run}: versions {verdict.base} to {verdict.reached} are proved")
        print(f"params_hash   {verdict.params_hash}")
        print(f"state digest  {verdict.state_digest}")
        held = ", ".join(map(str, verdict.snapshots)) or "none"
        print(f"full states   {verdict.signed_states} signed; snapshots that hold them: {held}")
        speed = f"{verdict.seconds:.2f} s, {verdict.versions_per_second:,.0f} versions/s"
        if verdict.times_faster is not None:
            speed += f", {verdict.times_faster:,.0f} times faster than it was trained"
        print(f"replayed in   {speed}")
    if verdict.sound:
        print("sound: every signature, every hash and every snapshot is as it should be")
        return
    first, *others = verdict.differences
    print(f"first difference at version {first.version}: {first.reason}")
    for each in others[:20]:
        print(f"  and at version {each.version}: {each.reason}")


@contextmanager
def _progress(done: str) -> Iterator[Advance]:
    """Shows on stderr how far something is, once it takes long."""
    live = sys.stderr.isatty()
    began, before = 0.0, -1
    due = 0.0
    drawn = False

    def advance(count: int, total: int) -> None:
        nonlocal began, before, due, drawn
        now = time.monotonic()
        if not 0 <= before <= count:  # what was loaded and compiled until now is no speed
            began, before, due = now, count, now + SHOW_AFTER
        if now < due:
            return
        due = now + (REDRAW_EVERY if live else PLAIN_EVERY)
        speed = (count - before) / (now - began)
        left = (total - count) / speed if speed else 0.0
        line = (
            f"{done} {count:,} of {total:,} versions ({count / max(total, 1):.0%})  "
            f"{speed:,.0f} versions/s  {left:.0f} s left"
        )
        if live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[2K{line[:width]}")
            sys.stderr.flush()
            drawn = True
        else:
            print(line, file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if drawn:
            sys.stderr.write("\r\x1b[2K")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_json(**values: Any) -> None:
    print(json.dumps(values))


def this_command() -> str:
    """How this program can be called again from here."""
    if shutil.which("shoal"):
        return "shoal"
    program = sys.argv[0]
    return f"{sys.executable} {program}" if program.endswith(".py") else program
