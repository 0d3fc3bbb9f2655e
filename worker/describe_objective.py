"""`python -m worker.describe_objective`: prints whether an objective takes a seed, as JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings

import msgspec

from protocol.errors import ShoalError
from protocol.objective import ObjectiveSpec


def main() -> None:
    """Print the description, or `{"error": ...}` with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.describe_objective", description=__doc__
    )
    parser.add_argument("objective", help="that section of the spec, as JSON")
    parser.add_argument("--allow-module", action="append", default=[], metavar="MODULE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a module prints
            from worker.evaluation import objectives

            objective = msgspec.json.decode(options.objective, type=ObjectiveSpec)
            found = objectives.maker(objective, options.allow_module)
        print(json.dumps({"seeded": found.seeded}))
    except msgspec.ValidationError as error:
        print(json.dumps({"error": f"objective: {error}"}))
        sys.exit(2)
    except ShoalError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(2)


if __name__ == "__main__":
    main()
