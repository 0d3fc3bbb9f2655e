"""The errors that are a person's to mend: one line with the value, the rule and the remedy."""

from __future__ import annotations

from protocol.exit_codes import WRONG_USE


class ShoalError(Exception):
    """A mistake that its reader can mend; the command line prints it and exits with `exit_code`."""

    exit_code = WRONG_USE
