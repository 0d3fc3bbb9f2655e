"""What `shoal worker doctor` found: a line for each thing that it looked at. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: in a word or two.
        state: `fail` keeps this machine from taking part, `warn` may come to matter.
        text: what is so.
        remedy: what to do about it; empty where nothing is to be done.
    """

    what: str
    state: State
    text: str
    remedy: str = ""


def lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each."""
    return [
        f"{found.state:4}  {found.what:13}  {found.text}"
        + (f": {found.remedy}" if found.remedy else "")
        for found in findings
    ]


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether nothing keeps this machine from taking part."""
    return all(found.state != "fail" for found in findings)


def plain(findings: Iterable[Finding]) -> dict[str, Any]:
    """The same for programs."""
    found = list(findings)
    return {"healthy": healthy(found), "findings": [asdict(finding) for finding in found]}
