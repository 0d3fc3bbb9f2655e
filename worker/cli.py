"""The volunteer's command: `shoal join`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import ShoalError
from worker.evaluation.memory import EMPTY

if TYPE_CHECKING:
    from worker.daemon import Daemon

EXIT_CODES = (
    "Exit codes: 0 the run ended, or you left; 2 wrong use, or several runs to choose from; "
    "3 this version can't take part; 4 the environment is not installed; 5 the broker or the run "
    "can't be reached, or its key is not the join line's; 6 the host sends this worker "
    "away, or it can't follow the run."
)


MOST_LANES = 1024  # more only take memory


def register(app: typer.Typer) -> None:
    """Add the volunteer's command to the `shoal` command."""
    app.command(
        name="join",
        epilog=f"Example: shoal join mqtt://host:1883 --cores auto. {EXIT_CODES}",
    )(join)


def join(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The line that the host prints: mqtt://HOST:PORT/RUN#FINGERPRINT; all after HOST "
            "may be left out. Credentials: USER:PASSWORD@ before HOST, or SHOAL_BROKER_USER and "
            "SHOAL_BROKER_PASSWORD in the environment.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Label that the host sees.")] = "",
    invite: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="What the host gave, where it takes only whom it knows. As SHOAL_INVITE in the "
            "environment nobody else on this machine sees it.",
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            help="Go to the broker through http://HOST:PORT or socks5://HOST:PORT; without it, "
            "through SHOAL_PROXY in the environment.",
        ),
    ] = None,
    cores: Annotated[
        str, typer.Option(help="Evaluation processes: a number, all, or auto for all but one.")
    ] = "1",
    cpu_share: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="How much of each of these cores evaluation may use: 10%, or 0.1."
        ),
    ] = "100%",
    memory_limit: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Memory that each evaluation process may take: 2GiB, 800MB; auto shares half of "
            "what is free among them. One that takes more is replaced.",
        ),
    ] = "auto",
    credit: Annotated[
        int,
        typer.Option(
            min=1, max=64, help="Tasks held at once: with 2 the next is here when one ends."
        ),
    ] = 2,
    home: Annotated[
        Path | None,
        typer.Option(
            envvar="SHOAL_HOME", help="Where worker.key lies; by default ~/.local/share/shoal."
        ),
    ] = None,
    allow_module: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-module",
            help="Module that may register environments, hold the policy, add a strategy or an "
            "optimizer; repeatable.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where policies are computed: cpu; cuda or cuda:1, a GPU, by PyTorch; or auto: "
            "on a GPU where there is one and the policy gains by it."
        ),
    ] = "auto",
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_LANES,
            help="Episodes that each evaluation process plays side by side; by default it measures "
            "how many are fastest here. Returns are the same.",
        ),
    ] = None,
    parameter_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parameters of a policy at most: a run with more is not joined.",
            show_default=False,
        ),
    ] = None,
    episode_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps of an episode at most: a run whose episodes may last longer is not joined.",
            show_default=False,
        ),
    ] = None,
    task_limit: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=1e6,
            help="Seconds that a task may take: what is finished of it is sent then, the rest is "
            "given back.",
        ),
    ] = 3600.0,
    upload_limit: Annotated[
        str,
        typer.Option(
            metavar="RATE",
            help="Bytes per second that other workers may get: 500kB, 4MB; 0 is none.",
        ),
    ] = "4MB",
    nice: Annotated[
        int,
        typer.Option(
            min=0,
            max=19,
            help="How far all else on this machine goes first: 0 not at all, 19 wherever it can.",
        ),
    ] = 19,
    once: Annotated[
        bool, typer.Option("--once", help="End where broker or run are not there; don't wait.")
    ] = False,
    json_log: Annotated[
        bool, typer.Option("--json-log", help="Write lines of JSON instead.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write warnings only.")] = False,
    exit_with_parent: Annotated[
        bool,
        typer.Option(
            "--exit-with-parent",
            help="Leave once standard input ends, for programs that start workers.",
        ),
    ] = False,
) -> None:
    """Lend this machine to a run: evaluate its policies until the run ends, or Ctrl-C."""
    children = cores_granted(cores, usable_cores())
    share = share_of_a_core(cpu_share)
    limit = bytes_per_second(upload_limit)
    from worker.policies.devices import parse as parse_device

    policies_on = parse_device(device)
    memory = bytes_of_memory(memory_limit)

    from protocol.surroundings import address_from_here

    address = address_from_here(url, proxy, invite=invite)
    be_nice(nice)

    from protocol import registry
    from protocol.identity import Identity
    from protocol.installed import granted
    from protocol.spec import LONGEST_EPISODE, MAX_PARAMETERS
    from worker.console import open_console
    from worker.daemon import Daemon, Settings
    from worker.limits import Limits

    allowed = granted(allow_module)
    registry.allow(allowed)
    settings = Settings(
        address=address,
        name=name,
        children=children,
        cpu_share=share,
        memory_limit=memory,
        credit=credit,
        allowed=allowed,
        device=policies_on,
        lanes=lanes or 0,
        once=once,
        upload_limit=limit,
        limits=Limits(
            parameter_limit or MAX_PARAMETERS, episode_limit or LONGEST_EPISODE, task_limit
        ),
    )
    directory = home or Path.home() / ".local" / "share" / "shoal"
    identity = Identity.load_or_create(directory / "worker.key")
    console = open_console("json" if json_log else "quiet" if quiet else "auto")
    daemon = Daemon(settings, identity, console)
    raise typer.Exit(asyncio.run(_run(daemon, exit_with_parent)))


def cores_granted(text: str, usable: int) -> int:
    """How many evaluation processes `--cores` asks for on a machine with `usable` cores."""
    if text == "all":
        return usable
    if text == "auto":
        return max(1, usable - 1)
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) and 1 <= int(text) <= usable:
        return int(text)
    raise ShoalError(
        f"--cores {text[:40]!r}: must be all, auto, or a number from 1 to {usable}, the cores that "
        "this process may use: give fewer, or all"
    )


def share_of_a_core(text: str) -> float:
    """What `--cpu-share` says: from 1% to 100%, or the same as a number from 0.01 to 1."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?) ?(%?)", text.strip(), re.ASCII)
    share = float(match[1]) / (100.0 if match[2] else 1.0) if match else 0.0
    if not 0.01 <= share <= 1.0:
        raise ShoalError(
            f"--cpu-share {text[:40]!r}: must be a share of a core from 1% to 100%, such as 10% "
            "or 0.1"
        )
    return share


def bytes_per_second(text: str) -> float:
    """What `--upload-limit` says: a number, and B, kB, MB or GB (powers of 1,000) or nothing."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([kKMG]?)B?(?:/s)?", text.strip(), re.ASCII)
    if match is None:
        raise ShoalError(
            f"--upload-limit {text[:40]!r}: must be bytes per second such as 4MB, 500kB or 0"
        )
    return float(match[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[match[2]]


def bytes_of_memory(text: str) -> int | None:
    """What `--memory-limit` says: a number and B, kB, MB, GB, or KiB, MiB, GiB; None for `auto`."""
    if text == "auto":
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?(|[kKMG]i?)B?", text.strip(), re.ASCII)
    size = 0
    if match is not None:
        base = 1024 if match[2].endswith("i") else 1000
        size = int(float(match[1]) * base ** " kMG".index(match[2][:1].replace("K", "k") or " "))
    if size < EMPTY:
        raise ShoalError(
            f"--memory-limit {text[:40]!r}: must be auto, or at least {EMPTY >> 20}MiB for each "
            "process, which one takes that does nothing yet: give more, such as 2GiB or 800MB"
        )
    return size


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def be_nice(level: int) -> None:
    """Let everything else on the machine go first; evaluation processes inherit it."""
    if level and hasattr(os, "nice"):
        os.nice(max(0, level - os.nice(0)))


async def _run(daemon: Daemon, exit_with_parent: bool) -> int:
    loop = asyncio.get_running_loop()
    for number, react in ((signal.SIGINT, daemon.interrupt), (signal.SIGTERM, daemon.terminate)):
        try:
            loop.add_signal_handler(number, react)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_, react=react: loop.call_soon_threadsafe(react))
    if exit_with_parent:
        threading.Thread(
            target=_watch_input, args=(loop, daemon.terminate), name="parent", daemon=True
        ).start()
    return await daemon.run()


def _watch_input(loop: asyncio.AbstractEventLoop, react: Callable[[], None]) -> None:
    """Whoever started us holds the other end of our input; it ends with them."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    with contextlib.suppress(RuntimeError):  # we may be leaving already
        loop.call_soon_threadsafe(react)
