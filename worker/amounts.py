"""How much of this machine a volunteer gives, as people write it: cores, shares, sizes, rates."""

from __future__ import annotations

import re

from protocol.errors import ShoalError
from worker.evaluation.memory import EMPTY


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
    size = bytes_in(text)
    if size < EMPTY:
        raise ShoalError(
            f"--memory-limit {text[:40]!r}: must be auto, or at least {EMPTY >> 20}MiB for each "
            "process, which one takes that does nothing yet: give more, such as 2GiB or 800MB"
        )
    return size


def bytes_in(text: str) -> int:
    """A size as people write it, in bytes; 0 where it is none."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?(|[kKMG]i?)B?", text.strip(), re.ASCII)
    if match is None:
        return 0
    base = 1024 if match[2].endswith("i") else 1000
    return int(float(match[1]) * base ** " kMG".index(match[2][:1].replace("K", "k") or " "))
