"""What `shoal join` may be told: by a flag, the environment, or a volunteer's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from protocol.address import parse_address
from protocol.cores import usable_cores
from worker import permission_options
from worker.amounts import (
    bytes_of_memory,
    bytes_per_second,
    cores_granted,
    share_of_a_core,
)
from worker.configuration import Check
from worker.shares import parse as parse_shares

MOST_LANES = 1024  # more only take memory


class LogFormat(StrEnum):
    """What lines look like."""

    auto = "auto"
    plain = "plain"
    json = "json"


Url = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL]",
        envvar="SHOAL_JOIN",
        show_envvar=False,
        help="The line that the host prints: mqtt://HOST:PORT/RUN#FINGERPRINT; all after HOST "
        "may be left out, and without RUN it serves all runs there. Credentials: USER:PASSWORD@ "
        "before HOST, or SHOAL_BROKER_USER and SHOAL_BROKER_PASSWORD in the environment. Without "
        "it: what the configuration says, or on a terminal a few questions.",
    ),
]
Name = Annotated[
    str,
    typer.Option(help="Label that the host sees; by default one such as calm-otter, of the key."),
]
Private = Annotated[
    bool,
    typer.Option(
        "--private",
        help="Tell the host neither a label nor what machine this is; its pages show private.",
    ),
]
Invite = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="What the host gave, where it takes only whom it knows. As SHOAL_INVITE in the "
        "environment nobody else on this machine sees it.",
    ),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        help="Go to the broker through http://HOST:PORT or socks5://HOST:PORT; without it, "
        "through SHOAL_PROXY in the environment.",
    ),
]
Share = Annotated[
    str,
    typer.Option(
        metavar="RUN=SHARE",
        help="Where it serves several runs, how much of the machine each may have: "
        "humanoid=2,cartpole=1; by a run's name, or the name with its eight digits. Who is not "
        "named has 1; 0 refuses a run.",
        show_default=False,
    ),
]
Cores = Annotated[
    str, typer.Option(help="Evaluation processes: a number, all, or auto for all but one.")
]
CpuShare = Annotated[
    str,
    typer.Option(
        metavar="SHARE", help="How much of each of these cores evaluation may use: 10%, or 0.1."
    ),
]
MemoryLimit = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Memory that each evaluation process may take: 2GiB, 800MB; auto shares half of "
        "what is free among them. One that takes more is replaced.",
    ),
]
Credit = Annotated[
    int,
    typer.Option(min=1, max=64, help="Tasks held at once: with 2 the next is here when one ends."),
]
Home = Annotated[
    Path | None,
    typer.Option(
        envvar="SHOAL_HOME",
        show_envvar=False,
        help="Where worker.key and worker.toml lie; by default ~/.local/share/shoal.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Take from it what neither a flag nor the environment says; by default worker.toml "
        "in --home, where it exists.",
    ),
]
AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-module",
        help="Module that may register environments, hold the policy, add a strategy or an "
        "optimizer; repeatable.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Where policies are computed: cpu; cuda or cuda:1, a GPU, by PyTorch; or auto: "
        "on a GPU where there is one and the policy gains by it."
    ),
]
Lanes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_LANES,
        help="Episodes that each evaluation process plays side by side; by default it measures "
        "how many are fastest here. Returns are the same.",
    ),
]
ParameterLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Parameters of a policy at most: a run with more is not joined.",
        show_default=False,
    ),
]
EpisodeLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Steps of an episode at most: a run whose episodes may last longer is not joined.",
        show_default=False,
    ),
]
TaskLimit = Annotated[
    float,
    typer.Option(
        min=1.0,
        max=1e6,
        help="Seconds that a task may take: what is finished of it is sent then, the rest is "
        "given back.",
    ),
]
UploadLimit = Annotated[
    str,
    typer.Option(
        metavar="RATE",
        help="Bytes per second that other workers may get: 500kB, 4MB; 0 is none.",
    ),
]
Nice = Annotated[
    int,
    typer.Option(
        min=0,
        max=19,
        help="How far all else on this machine goes first: 0 not at all, 19 wherever it can.",
    ),
]
Once = Annotated[
    bool, typer.Option("--once", help="End where broker or run are not there; don't wait.")
]
Format = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        help="auto: one live line on a terminal, plain elsewhere; plain: lines with the time; "
        "json: an object a line.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Write warnings only.")]
ExitWithParent = Annotated[
    bool,
    typer.Option(
        "--exit-with-parent",
        help="Leave once standard input ends, for programs that start workers.",
    ),
]


def _device(text: str) -> object:
    from worker.policies.devices import parse

    return parse(text)


def _invite(text: str) -> object:
    from protocol.invites import seed_of

    return seed_of(text)


def _proxy(text: str) -> object:
    from protocol.dial import check_proxy

    return check_proxy(text)


CHECKS: Mapping[str, Check] = {
    "url": parse_address,
    "invite": _invite,
    "proxy": _proxy,
    "share": parse_shares,
    "cores": lambda text: cores_granted(text, usable_cores()),
    "cpu_share": share_of_a_core,
    "memory_limit": bytes_of_memory,
    "upload_limit": bytes_per_second,
    "device": _device,
    **permission_options.CHECKS,
}
"""What else a value must be, by the names of options."""
