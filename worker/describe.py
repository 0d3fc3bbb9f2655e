"""`python -m worker.describe ENV_ID`: prints an environment's spaces and limits as a JSON line."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from protocol import backends
from protocol import wrappers as wrapping
from protocol.errors import ShoalError
from protocol.section import plain
from protocol.wrappers import Wrapper


def describe(
    environment_id: str,
    kwargs: dict[str, Any],
    allowed: Sequence[str] = (),
    wrappers: Sequence[Wrapper] = (),
    backend: str = "",
) -> dict[str, Any]:
    """Spaces in the run spec's words, step limit and reward threshold (None where there is none).

    The backend is what the id says, unless it is given.

    Raises:
        EnvironmentUnavailable: unknown, not installed, or with spaces that no policy here takes.
    """
    if (backend or backends.of(environment_id)) == backends.JAX:
        return _described(environment_id, kwargs, allowed)
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


def _described(
    environment_id: str, kwargs: dict[str, Any], allowed: Sequence[str]
) -> dict[str, Any]:
    """The same of an environment of JAX."""
    from worker.compiled import environment

    found = environment.functional(environment_id, kwargs, allowed)
    return {
        "observation": plain(found.observation),
        "action": plain(found.action),
        "max_episode_steps": found.limit or None,
        "reward_threshold": found.threshold,
    }


def main() -> None:
    """Print the description, or `{"error": ...}` with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m worker.describe", description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--kwargs", default="{}", help="arguments of the environment, as JSON")
    parser.add_argument("--wrappers", default="[]", help="what lies around it, as a JSON list")
    parser.add_argument("--backend", default="", help="gymnasium or jax; else as the id says")
    parser.add_argument("--allow-module", action="append", default=[], metavar="MODULE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what an environment prints
            found = describe(
                options.environment,
                table(options.kwargs),
                options.allow_module,
                wrapping.parse(options.wrappers),
                options.backend,
            )
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
