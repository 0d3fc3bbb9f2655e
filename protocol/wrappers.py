"""The wrappers that a run may put around its environment: these and no others."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from protocol.errors import ShoalError
from protocol.mistakes import explain
from protocol.section import Section

Count = Annotated[int, msgspec.Meta(ge=1, le=100)]
Number = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]


class FrameStack(Section, frozen=True, kw_only=True, tag="frame-stack", tag_field="kind"):
    """The last `n` observations, stacked along a new first axis; the first one `n` times at the
    start."""

    n: Count


class ActionRepeat(Section, frozen=True, kw_only=True, tag="action-repeat", tag_field="kind"):
    """Each action is taken `n` times, or until the episode ends; the rewards add up."""

    n: Count


class RewardClip(Section, frozen=True, kw_only=True, tag="reward-clip", tag_field="kind"):
    """Rewards below `low` or above `high` become these."""

    low: Number = -1.0
    high: Number = 1.0


class RescaleObservation(
    Section, frozen=True, kw_only=True, tag="rescale-observation", tag_field="kind"
):
    """Observations of a bounded Box, scaled from their bounds to `low` and `high`."""

    low: Number = -1.0
    high: Number = 1.0


class Atari(Section, frozen=True, kw_only=True, tag="atari", tag_field="kind"):
    """The usual preprocessing of Atari games (Machado et al. 2018): small grey images, of every
    fourth frame. The environment's own `frameskip` must be 1."""

    noop_max: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 30
    """An episode begins with 1 to so many steps of doing nothing; 0: with none."""
    frame_skip: Count = 4
    """Frames that an action lasts."""
    screen_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 84
    """Pixels of the image's sides."""
    terminal_on_life_loss: bool = False
    """Whether an episode ends with the first life lost."""
    grayscale_obs: bool = True
    """Whether colours become grey."""


Wrapper = FrameStack | ActionRepeat | RewardClip | RescaleObservation | Atari
Wrappers = Annotated[tuple[Wrapper, ...], msgspec.Meta(max_length=8)]
SLOW = (ActionRepeat, Atari)
"""Those whose steps are several of the environment's own."""


class Around(Section, frozen=True, kw_only=True):
    """The part of an environment's section that lists wrappers."""

    wrappers: Wrappers = ()


def parse(raw: Any) -> tuple[Wrapper, ...]:
    """The wrappers of plain values, or of a JSON text of them. Raises `ShoalError`."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raise ShoalError(f"wrappers {raw[:80]!r}: must be a JSON list of objects") from None
    table = {"wrappers": raw}
    try:
        return msgspec.convert(table, Around).wrappers
    except msgspec.ValidationError as error:
        raise ShoalError(f"environment.{explain(str(error), table, Around)}") from None


def fault(wrapper: Wrapper) -> str:
    """What is wrong with a wrapper beyond its fields' types; empty where nothing is."""
    if isinstance(wrapper, RewardClip | RescaleObservation) and not wrapper.low < wrapper.high:
        return f"has low {wrapper.low} and high {wrapper.high}: the lower one comes first"
    return ""
