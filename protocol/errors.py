"""The errors that are a person's to mend: one line with the value, the rule and the remedy."""

from __future__ import annotations


class ShoalError(Exception):
    """A mistake that its reader can mend; the command line prints it and exits with `exit_code`."""

    exit_code = 2
