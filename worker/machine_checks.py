"""Looks at this machine, as far as a worker depends on it: files, limits, memory, processes."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from protocol.errors import ShoalError
from protocol.identity import Identity
from worker.evaluation.memory import EMPTY, LEAST, shown
from worker.findings import Finding
from worker.names import label_of

FILES_NEEDED, FILES_WANTED = 64, 256
"""Files that may be open at once: a worker has some for each process and each connection."""
DISK_WANTED = 500_000_000
"""Bytes free for snapshots, which peers get, and compiled kernels."""
SPAWN_SECONDS = 30.0
A_DAY = 86400.0
EXTRAS = {
    "Box2D": ("LunarLander, BipedalWalker", "pip install 'gymnasium[box2d]'"),
    "mujoco": ("Hopper, HalfCheetah, ...", "pip install 'shoal[mujoco]'"),
}


def home(directory: Path) -> tuple[Finding, Identity]:
    """Whether the home can be written, and the worker's key there, or one for now."""
    key = directory / "worker.key"
    try:
        identity = Identity.load_or_create(key)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except (ShoalError, OSError) as error:
        why = error if isinstance(error, ShoalError) else f"{directory}: {error.strerror}"
        remedy = "make it writable for this user, or name another with --home or SHOAL_HOME"
        return Finding("home", "fail", str(why), remedy), Identity.generate()
    who = f"{directory}; this is {label_of(identity.worker)} ({identity.worker})"
    return Finding("home", "ok", who), identity


def configuration(file: Path, says: int, *, secret: bool) -> Finding:
    """What the configuration is; `says`: how many options, `secret`: whether one is a token."""
    if not file.exists():
        return Finding("configuration", "ok", f"none; {file} could be one")
    text = f"{file}, {says} option{'s' * (says != 1)}"
    if secret and os.name == "posix" and file.stat().st_mode & 0o077:
        return Finding(
            "configuration", "warn", f"{text}; others can read the token", f"chmod 600 {file}"
        )
    return Finding("configuration", "ok", text)


def open_files(allowed: int) -> Finding:
    """Whether enough files may be open at once."""
    text = f"{allowed:,} may be open at once"
    if allowed >= FILES_WANTED:
        return Finding("open files", "ok", text)
    remedy = f"ulimit -n {4 * FILES_WANTED}, or LimitNOFILE= in the unit"
    return Finding("open files", "warn" if allowed >= FILES_NEEDED else "fail", text, remedy)


def files_allowed() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return FILES_WANTED
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_WANTED if soft == resource.RLIM_INFINITY else soft


def memory(free: int, processes: int) -> Finding:
    """Whether what is free is enough for so many evaluation processes."""
    each = free // processes
    text = f"{shown(free)} free for {processes} evaluation process{'es' * (processes != 1)}"
    if each >= LEAST // 2:
        return Finding("memory", "ok", text)
    remedy = "lend fewer cores, or end something else"
    return Finding("memory", "fail" if each < EMPTY else "warn", text, remedy)


def memory_free() -> int:
    """Bytes that are free here, or in our control group where that has less."""
    import psutil

    from worker.evaluation import cgroups

    free = int(psutil.virtual_memory().available)
    left = cgroups.memory_left()
    return free if left is None else min(free, left)


def scratch() -> Finding:
    """Whether there is room in the temporary folder."""
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("scratch", "fail", str(error)[:200], "set TMPDIR to a folder of yours")
    text = f"{shown(free)} free in {folder}"
    if free >= DISK_WANTED:
        return Finding("scratch", "ok", text)
    return Finding("scratch", "warn", text, "make room, or set TMPDIR to another folder")


def clock(now: float, installed: float) -> Finding:
    """Whether the clock can be right: it is not before `installed`, when Shoal came here."""
    shown_now = time.strftime("%Y-%m-%d %H:%M", time.localtime(now))
    if now < installed - A_DAY:
        return Finding(
            "clock",
            "warn",
            f"it is {shown_now} here, before Shoal was installed",
            "set it: no message needs it, but TLS and the lines' times do",
        )
    return Finding("clock", "ok", f"it is {shown_now} here")


def packages() -> Finding:
    """Which environments there are for certain."""
    try:
        version = importlib.metadata.version("gymnasium")
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", "fail", "gymnasium is missing", "pip install gymnasium")
    lacking = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if not lacking:
        return Finding("packages", "ok", f"gymnasium {version}, {', '.join(EXTRAS)}")
    which = ", ".join(f"{name} ({EXTRAS[name][0]})" for name in lacking)
    remedy = "; ".join(EXTRAS[name][1] for name in lacking)
    return Finding(
        "packages", "warn", f"gymnasium {version} without {which}", f"for these {remedy}"
    )


async def processes() -> Finding:
    """Whether this process may start others, which import what they need."""
    began = time.perf_counter()
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import numpy",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return Finding(
            "processes",
            "fail",
            f"none can be started ({error.strerror})",
            "allow more with ulimit -u, or TasksMax= in the unit",
        )
    try:
        async with asyncio.timeout(SPAWN_SECONDS):
            _, said = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return Finding(
            "processes", "fail", f"one did nothing for {SPAWN_SECONDS:.0f} s", "see what is busy"
        )
    seconds = time.perf_counter() - began
    if child.returncode != 0:
        words = said.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
        text = f"one ended with {child.returncode} ({words[0][:120]})"
        return Finding("processes", "fail", text, "reinstall Shoal in a fresh environment")
    return Finding("processes", "ok", f"one starts in {seconds:.1f} s")
