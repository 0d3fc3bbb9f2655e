"""Episodes of a list, played in lanes that are refilled the moment an episode ends."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol.messages import LARGEST_RETURN, MAX_FAILURE_REASON
from worker.evaluation.vector import Share, Step
from worker.evaluation.words import words_of
from worker.policies.actions import Chosen
from worker.policies.policy import Act, Policy, View


class Environment(Protocol):
    """What the loop needs of an environment."""

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        """Begin an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Take one step."""

    def close(self) -> None:
        """Let go of what it holds."""


class Maker(Protocol):
    """Where environments come from."""

    @property
    def limit(self) -> int:
        """Steps after which an episode is cut; 0 where nothing cuts it."""

    def make(self) -> Environment:
        """A new instance."""


class Instances:
    """The environments of the lanes, made when they are needed and kept until they fail.

    Args:
        count: of lanes.
        fresh: make a new instance for every episode, for environments that a reset doesn't renew.
    """

    def __init__(self, maker: Maker, count: int, *, fresh: bool) -> None:
        self.maker, self.count, self.fresh = maker, count, fresh
        self._made: list[Environment | None] = [None] * count

    def of(self, lane: int) -> Environment:
        """The lane's instance, made where there is none."""
        instance = self._made[lane]
        if instance is None:
            instance = self._made[lane] = self.maker.make()
        return instance

    def discard(self, lane: int) -> None:
        """Close the lane's instance; the next episode gets a new one."""
        instance, self._made[lane] = self._made[lane], None
        if instance is not None:
            with contextlib.suppress(BaseException):
                instance.close()

    def close(self) -> None:
        """Close all of them."""
        for lane in range(self.count):
            self.discard(lane)


class Episode(NamedTuple):
    """One episode to play.

    Attributes:
        row: of the parameters.
        group: episodes that fail together: the position of a direction in its block.
        slot: entry of the observation sums, or -1.
        quiet: without noise on the actions.
    """

    row: int
    group: int
    slot: int
    seed: int
    quiet: bool = False


class Play:
    """A list of episodes, sorted by group, and the lanes that play it; others play other lists.

    Episodes start in the order of the list. Once one has failed, the rest of its group is not
    started; since all before it were, the reason kept is the same in any number of lanes.

    Attributes:
        totals: float64, sum of rewards of each.
        lengths: int64, steps of each.
        failures: position and reason per group, those of its first episode that failed.
    """

    def __init__(
        self,
        instances: Instances,
        policy: Policy,
        episodes: list[Episode],
        cap: int = 0,
    ) -> None:
        """`cap`: steps after which an episode is cut, if the maker's limit is no less; 0 never."""
        self.instances, self.policy = instances, policy
        self.limit = min(filter(None, (instances.maker.limit, cap)), default=0)
        self.episodes = episodes
        self.totals = np.zeros(len(episodes))
        self.lengths = np.zeros(len(episodes), dtype=np.int64)
        self.failures: dict[int, tuple[int, str]] = {}
        self.begun = 0
        """episodes that were started, or never will be"""
        self.playing: list[int] = []
        """lanes in the middle of an episode"""
        self.tick = 0
        """steps that every lane has had the chance to take"""
        self.position = [0] * instances.count
        """which episode each lane plays"""
        self.reward = [0.0] * instances.count
        self.began = [0] * instances.count
        self.cut = [0] * instances.count
        """tick at which each lane's episode is cut; 0 never"""
        self.moved = False
        """whether a lane came, left or changed its environment since `arrange`"""
        self.steps: list[Callable[[Any], tuple[Any, Any, bool, bool, Any]]] = []
        self.targets: list[NDArray[Any]] = []
        self.shares: list[Share] = []
        """environments of the lanes, where they are shares of a vector"""

    @property
    def pending(self) -> bool:
        """Whether there are episodes that a lane may start."""
        return self.begun < len(self.episodes)

    @property
    def over(self) -> bool:
        """Whether nothing is left to play."""
        return not self.playing and not self.pending

    def join(self, lane: int) -> bool:
        """Let a lane that plays nothing play along; False where no episode is left for it."""
        if not self.begin(lane):
            return False
        self.playing.append(lane)
        self.moved = True
        return True

    def refill(self, over: list[int]) -> list[int]:
        """Start the next episodes in lanes whose episode is over; those that find none are free."""
        free = [lane for lane in over if not self.begin(lane)]
        for lane in free:
            self.playing.remove(lane)
            self.moved = True
        return free

    def finished(self) -> int:
        """How many groups, from the first on, have nothing left to play; asked between steps."""
        unfinished = {self.position[lane] for lane in self.playing}
        if self.pending:
            unfinished.add(self.begun)
        if not unfinished:
            return self.episodes[-1].group + 1
        return self.episodes[min(unfinished)].group

    def arrange(self) -> None:
        """Have at hand what the steps of the lanes need."""
        environments = [self.instances.of(lane) for lane in self.playing]
        self.shares = [one for one in environments if isinstance(one, Share)]
        if not self.shares:
            self.steps = [environment.step for environment in environments]
            self.targets = [self.policy.targets[lane] for lane in self.playing]
        self.moved = False

    def advance(self, chosen: Chosen) -> list[int]:
        """Take these actions; the lanes whose episode is over by it."""
        over: list[int] = []
        reward_of, cut = self.reward, self.cut
        self.tick = tick = self.tick + 1
        for lane, step, target, action in zip(
            self.playing, self.steps, self.targets, chosen, strict=True
        ):
            try:
                observation, reward, terminated, truncated, _ = step(action)
                reward_of[lane] += float(reward)
                if terminated or truncated or tick == cut[lane]:
                    self.end(lane)
                    over.append(lane)
                else:
                    target[...] = observation
            except BaseException as error:
                self.fail(lane, f"step {tick - self.began[lane]} raised {words_of(error)}")
                over.append(lane)
        return over

    def book(self, rewards: list[float], ended: list[bool]) -> list[int]:
        """Note a step that all lanes have taken as one; the lanes whose episode is over by it."""
        over: list[int] = []
        reward_of, cut = self.reward, self.cut
        self.tick = tick = self.tick + 1
        for lane, reward, end in zip(self.playing, rewards, ended, strict=True):
            reward_of[lane] += reward
            if end or tick == cut[lane]:
                self.end(lane)
                over.append(lane)
        return over

    def break_off(self, error: BaseException) -> list[int]:
        """Fail all lanes, since a step that they were to take as one raised this; all are over."""
        self.tick += 1
        for lane in self.playing:
            self.fail(lane, f"step {self.tick - self.began[lane]} raised {words_of(error)}")
        return list(self.playing)

    def begin(self, lane: int) -> bool:
        """Start the next episode that a lane can start; False where none is left."""
        while self.pending:
            position = self.begun
            self.begun += 1
            episode = self.episodes[position]
            if episode.group in self.failures:
                continue
            self.position[lane] = position
            self.began[lane] = self.tick
            self.cut[lane] = self.tick + self.limit if self.limit else 0
            self.reward[lane] = 0.0
            self.policy.begin(lane, episode.row, episode.slot, episode.seed, episode.quiet)
            if self.instances.fresh:
                self.discard(lane)
            environment, target = self.instances.of(lane), self.policy.targets[lane]
            try:
                observation, _ = environment.reset(seed=episode.seed)
                if np.size(observation) != target.size:
                    raise ValueError(f"an observation has shape {np.shape(observation)}")
                target[...] = observation
            except BaseException as error:
                self.fail(lane, f"reset raised {words_of(error)}")
                continue
            return True
        return False

    def end(self, lane: int) -> None:
        """Book a lane's episode, which is over."""
        position, total = self.position[lane], self.reward[lane]
        if not abs(total) <= LARGEST_RETURN:
            self.fail(lane, f"{self.tick - self.began[lane]} steps' rewards add up to {total}")
            return
        self.totals[position] = total
        self.lengths[position] = self.tick - self.began[lane]

    def fail(self, lane: int, reason: str) -> None:
        """Book a lane's episode as failed, and give up its environment."""
        position = self.position[lane]
        group = self.episodes[position].group
        known = self.failures.get(group)
        if known is None or position < known[0]:
            self.failures[group] = (position, reason[:MAX_FAILURE_REASON])
        self.discard(lane)

    def discard(self, lane: int) -> None:
        """Give a lane's environment up; its next episode gets a new one."""
        self.instances.discard(lane)
        self.moved = True

    def strike_unsound(self) -> list[int]:
        """Fail the lanes whose observation the policy can't take, and name them."""
        unsound = [lane for lane in self.playing if not self.policy.sound(lane)]
        for lane in unsound:
            step = self.tick - self.began[lane]
            self.fail(lane, f"the observation after step {step} is not finite or not in its space")
        return unsound


class Crew:
    """Plays whose lanes act together, by one call of the policy, since they see alike.

    Args:
        parameters: what the rows of all their episodes are in, in the policy's order.
    """

    def __init__(self, policy: Policy, plays: list[Play], parameters: Any, view: View) -> None:
        self.policy, self.plays, self.parameters, self.view = policy, plays, parameters, view
        self.lanes = np.empty(0, dtype=np.int64)
        self.act: Act = lambda: None
        self.step_as_one: Step | None = None
        """where the environments of all lanes are shares of a vector"""
        self.parts: list[tuple[Play, slice]] = []
        """where the lanes of each play are among them"""

    def step(self) -> list[int]:
        """Take one step in each of their lanes; those that have nothing to play any more."""
        if any(play.moved for play in self.plays) or not self.lanes.size:
            self.arrange()
        if not self.lanes.size:
            return []
        chosen = self.act()
        if chosen is None:
            over = [play.strike_unsound() for play in self.plays]
        elif self.step_as_one is not None:
            over = self.advance(self.step_as_one, chosen)
        else:
            over = [play.advance(chosen[part]) for play, part in self.parts]
        free: list[int] = []
        for play, lanes in zip(self.plays, over, strict=True):
            if lanes:
                free += play.refill(lanes)
        return free

    def arrange(self) -> None:
        """Have at hand what the steps of the lanes need."""
        for play in self.plays:
            play.arrange()
        lanes = [lane for play in self.plays for lane in play.playing]
        self.lanes = np.array(lanes, dtype=np.int64)
        self.act = self.policy.prepare_act(self.lanes, self.parameters, self.view)
        ends = list(itertools.accumulate(len(play.playing) for play in self.plays))
        parts = (
            slice(end - len(play.playing), end) for play, end in zip(self.plays, ends, strict=True)
        )
        self.parts = list(zip(self.plays, parts, strict=True))
        shares = [share for play in self.plays for share in play.shares]
        numbers = np.array([share.number for share in shares], dtype=np.int64)
        self.step_as_one = shares[0].vector.prepare_step(numbers) if shares else None

    def advance(self, step: Step, chosen: Chosen) -> list[list[int]]:
        """Take these actions as one; for each play the lanes whose episode is over by it."""
        try:
            observations, rewards, ended = step(chosen)
        except BaseException as error:
            return [play.break_off(error) for play in self.plays]
        self.policy.targets[self.lanes] = observations
        told, over = rewards.tolist(), ended.tolist()
        return [play.book(told[part], over[part]) for play, part in self.parts]
