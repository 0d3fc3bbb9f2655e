"""The systemd unit of a worker: that of deploy/, or one for the machine that asks. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from protocol.exit_codes import REPEATED, SENT_AWAY

FATAL = (*REPEATED, SENT_AWAY)
"""What is for a person to look at: to try again would not help."""
SYSTEM_HOME = "/var/lib/shoal"
HIDDEN = ("/home/", "/root/", "/run/user/")
"""What `ProtectHome=yes` hides from a unit."""


@dataclass(frozen=True, slots=True)
class Service:
    """What differs from machine to machine.

    Attributes:
        command: how `shoal` is started, with its whole path.
        arguments: of `shoal join`.
        home: of a unit of one user; empty for the usual one.
        configuration: that this machine has already; empty for none.
    """

    command: str = "/opt/shoal/bin/shoal"
    arguments: str = "--cores auto"
    home: str = ""
    configuration: str = ""


def system_unit(service: Service) -> str:
    """A unit for whoever administers the machine: a user of its own, who sees nothing else."""
    hidden = service.command.startswith(HIDDEN)
    return f"""\
# A volunteer's worker under systemd, hardened: it sees its own folder and the network.
#   useradd --system --home-dir {SYSTEM_HOME} --shell /usr/sbin/nologin shoal
#   {_bring(service)}
#   systemctl enable --now shoal-worker
# `shoal worker service` prints this unit for the machine that it runs on. /etc/shoal/worker.env may
# have any option as a variable, such as SHOAL_INVITE or SHOAL_CORES, SHOAL_BROKER_USER and
# SHOAL_BROKER_PASSWORD too.
{_UNIT}
[Service]
User=shoal
EnvironmentFile=-/etc/shoal/worker.env
Environment=SHOAL_HOME={SYSTEM_HOME} NUMBA_CACHE_DIR=/var/cache/shoal
{_start(service)}
{_SHARE}
StateDirectory=shoal
CacheDirectory=shoal
{_CONFINED}ProtectSystem=strict
ProtectHome={"read-only" if hidden else "yes"}
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RemoveIPC=yes
CapabilityBoundingSet=
# Not MemoryDenyWriteExecute: kernels are compiled at run time. For a GPU: PrivateDevices=no.

[Install]
WantedBy=multi-user.target
"""


def user_unit(service: Service) -> str:
    """A unit of one user, which needs no administrator; it is confined as far as that goes."""
    home = f"Environment={quoted(f'SHOAL_HOME={service.home}')}\n" if service.home else ""
    return f"""\
# A volunteer's worker as a service of one user.
#   shoal worker service --user > ~/.config/systemd/user/shoal-worker.service
#   systemctl --user enable --now shoal-worker
#   loginctl enable-linger   # so that it works while nobody is logged in
# ~/.config/shoal/worker.env may have any option as a variable, such as SHOAL_JOIN or SHOAL_INVITE.
{_UNIT}
[Service]
EnvironmentFile=-%h/.config/shoal/worker.env
{home}{_start(service)}
{_SHARE}
{_CONFINED}
[Install]
WantedBy=default.target
"""


_UNIT = """\
[Unit]
Description=Shoal worker
After=network-online.target
Wants=network-online.target
"""
_SHARE = """\
CPUWeight=idle
IOSchedulingClass=idle
MemoryMax=60%
TasksMax=512
"""
_CONFINED = """\
UMask=0077
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""


def _bring(service: Service) -> str:
    """How the unit learns which run to join."""
    if service.configuration:
        return (
            f"install -o shoal -m 600 -D {shlex.quote(service.configuration)} "
            f"{SYSTEM_HOME}/worker.toml"
        )
    line = "SHOAL_JOIN=mqtts://broker:8883/RUN#KEY"
    return f'install -m 600 -D /dev/stdin /etc/shoal/worker.env <<< "{line}"'


def _start(service: Service) -> str:
    arguments = f" {service.arguments}" if service.arguments else ""
    most, last = ", ".join(map(str, FATAL[:-1])), FATAL[-1]
    return f"""\
ExecStart={service.command} join{arguments}
# 0: the run has ended. {most} and {last} are for a person to look at.
Restart=on-failure
RestartPreventExitStatus={" ".join(map(str, FATAL))}
RestartSec=30
KillSignal=SIGTERM
TimeoutStopSec=15
"""


def quoted(word: str) -> str:
    """A word as a unit has it: without specifiers, in quotes where it has blanks."""
    text = word.replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return f'"{text}"' if " " in text else text
