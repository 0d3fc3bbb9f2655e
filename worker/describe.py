"""`python -m worker.describe ENV_ID`: prints an environment's spaces and limits as a JSON line."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from protocol.errors import ShoalError


def describe(
    environment_id: str, kwargs: dict[str, Any], allowed: Sequence[str] = ()
) -> dict[str, Any]:
    """Spaces in the run spec's words, step limit and reward threshold (None where there is none).

    Raises:
        EnvironmentUnavailable: unknown, not installed, or with spaces that no policy here takes.
    """
    import msgspec

    from worker.evaluation import environments

    registration = environments.registered(environment_id, allowed)
    instance = environments.make(registration, kwargs)
    try:
        return {
            "observation": msgspec.to_builtins(environments.observations(instance)),
            "action": msgspec.to_builtins(environments.actions(instance)),
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
    parser.add_argument("--allow-module", action="append", default=[], metavar="MODULE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints
            found = describe(options.environment, table(options.kwargs), options.allow_module)
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


if __name__ == "__main__":
    main()
