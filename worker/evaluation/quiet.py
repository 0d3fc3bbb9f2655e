"""Keeps one remark to its user out of what our processes write: MuJoCo's on an attribute of a
model."""

from __future__ import annotations

import sys

from gymnasium.envs.registration import EnvSpec

MODELS = "gymnasium.envs.mujoco."
DEPRECATED = "compiler attribute 'settotalmass' is deprecated"
"""Said of every instance of HalfCheetah, whose model is Gymnasium's: nothing that a volunteer could
mend, and in the end it is all that is left of what a process has said."""


def quieten(registration: EnvSpec) -> None:
    """Have MuJoCo leave out that remark, where the environment is one of Gymnasium's with it.

    Its other warnings go to the error stream, and not into a file in the current folder as well,
    which would grow with every one.
    """
    if not str(registration.entry_point).startswith(MODELS):
        return
    try:
        import mujoco  # type: ignore[import-untyped]
    except ImportError:  # said when the environment is made
        return
    mujoco.set_mju_user_warning(_warn)


def _warn(words: str) -> None:
    if not words.startswith(DEPRECATED):
        print(f"WARNING: {words}", file=sys.stderr)
