"""What a process of the worker's tells of environments, modules and files, which alone imports
them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from protocol.installed import environment
from protocol.spec import SpecError


class Question(NamedTuple):
    """What a module of the worker's is asked, by a command line.

    Attributes:
        module: `worker.describe`, for example.
        about: what it is to tell of, as a sentence for people begins: "the policy 'a.b:C'".
        arguments: of the command; what begins no option comes behind a `--`.
        allowed: modules that the process may import.
        seconds: that it may take.
        remedy: what a person does where it takes longer.
    """

    module: str
    about: str
    arguments: Sequence[str]
    seconds: float
    remedy: str
    allowed: Sequence[str] = ()


def ask(question: Question) -> dict[str, Any]:
    """The JSON table that the process prints last. Raises `SpecError`: it says what is wrong, is
    too slow, or tells nothing."""
    about = question.about
    allowing = [f"--allow-module={module}" for module in question.allowed]
    command = [sys.executable, "-m", question.module, *allowing, *question.arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=question.seconds,
            env=environment(os.environ, question.allowed),
        )
    except subprocess.TimeoutExpired:
        raise SpecError(
            f"{about} told nothing within {question.seconds:.0f} s: {question.remedy}"
        ) from None
    except (OSError, ValueError) as error:  # too long for a command, or with a NUL
        raise SpecError(f"{about[:80]} can't be asked for: {error}") from None
    try:
        said = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = None
    if not isinstance(said, dict):
        reason = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
        raise SpecError(f"{about} can't be had here: {reason}")
    if "error" in said:
        raise SpecError(str(said["error"]))
    return said


def as_json(field: str, value: Any) -> str:
    """A value of the spec as an argument. Raises `SpecError` where it has no such form."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise SpecError(
            f"{field} is {str(value)[:80]!r}: it must be made of numbers, texts and booleans"
        ) from None
