"""`python -m worker.describe ENV_ID`: prints an environment's spaces and limits as a JSON line."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.errors import ShoalError
from protocol.mistakes import explain
from protocol.section import Section, plain
from protocol.wrappers import Wrapper, Wrappers


class Asked(Section, frozen=True, kw_only=True):
    """What of an environment's section decides its spaces, beside its arguments."""

    wrappers: Wrappers = ()


def describe(
    environment_id: str,
    kwargs: dict[str, Any],
    allowed: Sequence[str] = (),
    wrappers: Sequence[Wrapper] = (),
) -> dict[str, Any]:
    """Spaces in the run spec's words, step limit and reward threshold (None where there is none).

    Raises:
        EnvironmentUnavailable: unknown, not installed, or with spaces that no policy here takes.
    """
    from worker.evaluation import environments, spaces

    registration = environments.registered(environment_id, allowed)
    instance = environments.make(registration, kwargs, wrappers)
    try:
        return {
            "observation": plain(spaces.observations(instance)),
            "action": plain(spaces.actions(instance)),
            "max_episode_steps": registration.max_episode_steps,
            "reward_threshold": registration.reward_threshold,
        }
    finally:
        instance.close()


def main() -> None:
    """Print the description, or `{"error": ...}` with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m worker.describe", description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--kwargs", default="{}", help="arguments of the environment, as JSON")
    parser.add_argument("--wrappers", default="[]", help="what lies around it, as a JSON list")
    parser.add_argument("--allow-module", action="append", default=[], metavar="MODULE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints
            kwargs, wrappers = table(options.kwargs), listed(options.wrappers)
            found = describe(options.environment, kwargs, options.allow_module, wrappers)
        print(json.dumps(found))
    except ShoalError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(error.exit_code)


def table(text: str) -> dict[str, Any]:
    """The arguments in a JSON text. Raises `ShoalError`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ShoalError(f"--kwargs {text[:80]!r}: must be a JSON object, as '{{\"name\": value}}'")
    return value


def listed(text: str) -> tuple[Wrapper, ...]:
    """The wrappers in a JSON text. Raises `ShoalError`."""
    try:
        raw = {"wrappers": json.loads(text)}
    except ValueError:
        raise ShoalError(f"--wrappers {text[:80]!r}: must be a JSON list of objects") from None
    try:
        return msgspec.convert(raw, Asked).wrappers
    except msgspec.ValidationError as error:
        raise ShoalError(f"environment.{explain(str(error), raw, Asked)}") from None


if __name__ == "__main__":
    main()
