"""Measures evaluation in this process beside the bare environment loop, and where its time goes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from protocol import backends, replay, wrappers
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from worker import play
from worker.describe import describe
from worker.evaluation import environments, starting
from worker.evaluation.blocks import member_seeds
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes
from worker.evaluation.playing import Environment, Maker
from worker.evaluation.probe import probe
from worker.evaluation.quiet import quieten
from worker.evaluation.vector import Share, Step, Vector, VectorMaker
from worker.evaluation.words import words_of
from worker.policies import devices
from worker.policies.making import NOTHING, Grant
from worker.policies.policy import Act, Policy

TURNS = 11
PASSES = 3
"""Over which the parts are timed."""
ACTIONS = 4096
"""Random actions of the bare loop, made beforehand and taken in turn."""
CALIBRATION_ROUNDS, CALIBRATION_CALLS = 5, 4000

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """What is measured: members around these parameters, at the spec's sigma.

    Attributes:
        name: of the parameters, for people.
        theta: float32, shape (spec.size,).
        normalization: where the spec has the normaliser on.
        grant: what the volunteer lets the environment and the policy use.
    """

    spec: RunSpec
    name: str
    theta: NDArray[np.float32]
    normalization: Normalization | None
    grant: Grant = NOTHING


@dataclasses.dataclass(frozen=True)
class Pace:
    """What a loop did in some CPU time."""

    steps: int
    episodes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Steps per CPU second."""
        return self.steps / self.seconds


def trained(path: Path, grant: Grant = NOTHING) -> Subject:
    """The policy of a run directory, or of a file in it. Raises `ShoalError`."""
    found = play.load(path)
    name = f"{found.run} version {found.version}"
    return Subject(found.spec, name, found.theta, found.normalization, grant)


def untrained(environment: str, changes: dict[str, Any], grant: Grant = NOTHING) -> Subject:
    """Version 0 of a run in this environment; `changes` are laid over a spec of defaults.

    Raises `ShoalError`: no such environment here, one whose episodes may never end, a mistake in
    `changes`.
    """
    said = changes.get("environment", {})
    around = wrappers.parse(said.get("wrappers", []))
    backend = said.get("backend") or backends.of(environment)
    found = describe(environment, said.get("kwargs", {}), grant.modules, around, backend)
    if not found["max_episode_steps"] and not said.get("max_steps"):
        raise ShoalError(
            f"{environment} has no time limit of its own, so an episode might never end: give one, "
            "for example --set environment.max_steps=1000"
        )
    spaces = {name: found[name] for name in ("observation", "action")}
    named = {"id": environment, "backend": backend}
    raw = run_spec.merge({"name": "bench", "environment": {**named, **spaces}}, changes)
    given = None
    if raw.get("policy", {}).get("kind") == "module":
        from worker.describe_module import describe as describe_module

        parameters, given = describe_module(raw["policy"], raw["environment"], 0, grant.modules)
        begins = {"parameters": parameters, "initialisation": "zero"}
        raw = run_spec.merge(raw, {"policy": begins})
    spec = run_spec.parse(raw)
    state = replay.initial_state(spec)
    theta = state.theta if given is None else given
    normalization = Normalization.of(state.normalizer) if state.normalizer is not None else None
    return Subject(spec, "untrained", theta, normalization, grant)


def measure(
    subject: Subject,
    seconds: float,
    progress: Progress = lambda text: None,
    lanes: int = 0,
) -> dict[str, Any]:
    """Rates in CPU seconds, ours and the bare loop's in turns, their ratio, and shares of time.

    Args:
        seconds: about how long it takes, the first calls not counted.
        progress: told what is being done.
        lanes: how many; 0 for as many as an evaluation process would choose.

    Raises:
        ShoalError: no such environment here, or an episode of it fails.
    """
    spec = subject.spec
    if spec.objective is not None:
        raise ShoalError(
            f"{spec.objective.function} is an objective, a function without steps: time its calls"
        )
    if spec.environment.backend == backends.JAX:
        starting.set_up(spec, subject.grant.device)
        from worker.compiled import benching

        theta, normalization = subject.theta, subject.normalization
        return benching.measure(spec, theta, normalization, subject.grant, seconds, progress, lanes)
    maker = environments.maker(spec.environment, subject.grant.modules)
    quieten(maker.registration)
    progress("loading what is compiled, trying the environment out")
    ours, bare = Ours(subject, maker, lanes), Bare(maker)
    pairs = ours.pairs_for(seconds / (2 * TURNS + PASSES))
    members = spec.members_per_direction * pairs
    seeds = _seeds(subject, pairs)
    evaluated, stepped = [], []
    for turn in range(TURNS):
        progress(f"turn {turn + 1} of {TURNS}: {members:,} members, then the bare loop")
        evaluated.append(ours.play(pairs))
        stepped.append(bare.play(seeds, evaluated[-1].steps))
    ours.close()
    bare.close()
    progress("timing the parts")
    return {
        "environment": spec.environment.id,
        "policy": spec.policy.module or spec.policy.kind,
        "path": ours.lanes.policy.path,
        "device": devices.choose(subject.grant.device, spec),
        "parameters": spec.size,
        "theta": subject.name,
        "sigma": spec.strategy.sigma,
        "normalizer": spec.normalizer.enabled,
        "lanes": ours.lanes.count,
        "vectorised": isinstance(ours.maker, VectorMaker),
        "steps_per_second": _median(pace.rate for pace in evaluated),
        "bare_steps_per_second": _median(pace.rate for pace in stepped),
        "ratio": _median(a.rate / b.rate for a, b in zip(evaluated, stepped, strict=True)),
        "evaluations_per_second": _median(members / pace.seconds for pace in evaluated),
        "episode_steps": _steps_of_an_episode(evaluated),
        "bare_episode_steps": _steps_of_an_episode(stepped),
        **{f"share_{part}": share for part, share in shares(ours, pairs).items()},
    }


class Ours:
    """Members of a subject on lanes of this process: so many, or with 0 as many as an evaluation
    process would choose.

    Raises:
        EnvironmentUnavailable: it can't be made here, or all its trial episodes fail.
    """

    def __init__(self, subject: Subject, maker: environments.Maker, lanes: int = 0) -> None:
        found = probe(subject.spec, maker, lambda take: None, grant=subject.grant, lanes=lanes)
        self.subject, self.maker, self.fresh = subject, found.maker, found.fresh
        self.lanes = Lanes(
            subject.spec, found.maker, found.lanes, fresh=found.fresh, grant=subject.grant
        )
        self.fewest = math.ceil(found.lanes / subject.spec.members_per_direction)
        """pairs, or members without a mirror, that fill the lanes once"""
        self.play(self.fewest)  # makes the instances

    def pairs_for(self, seconds: float) -> int:
        """How many pairs take about so long, but as many as there are lanes for."""
        pace = self.play(self.fewest)
        return max(self.fewest, int(self.fewest * seconds / max(pace.seconds, 1e-4)))

    def play(self, pairs: int) -> Pace:
        """Evaluate the first so many pairs of members. Raises `ShoalError`: an episode fails."""
        return _play(self.lanes, self.subject, pairs)

    def close(self) -> None:
        """Close the environments."""
        self.lanes.close()


class Bare:
    """The environment alone, without any wrapper, stepped with random actions."""

    def __init__(self, maker: environments.Maker) -> None:
        self.limit = maker.limit
        self.environment: gymnasium.Env[Any, Any] = maker.make().unwrapped
        space = self.environment.action_space
        space.seed(0)
        self.actions = [space.sample() for _ in range(ACTIONS)]

    def play(self, seeds: Sequence[int], steps: int) -> Pace:
        """Take so many steps, in episodes that begin with these seeds, over and over.

        Raises `ShoalError`: one of them fails.
        """
        step, limit = self.environment.step, self.limit
        following, episodes, length, over = itertools.cycle(seeds), 0, 0, True
        begin = time.process_time()
        try:
            for action in itertools.islice(itertools.cycle(self.actions), steps):
                if over:
                    self.environment.reset(seed=next(following))
                    episodes, length = episodes + 1, 0
                _, _, terminated, truncated, _ = step(action)
                length += 1
                over = terminated or truncated or length == limit
        except Exception as error:
            raise ShoalError(f"an episode of random actions failed: {words_of(error)}") from None
        return Pace(steps, episodes, time.process_time() - begin)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


class Stopwatch:
    """Sums up how long calls take."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed."""
        clock = time.perf_counter

        def call(*args: Any, **kwargs: Any) -> Any:
            begin = clock()
            result = function(*args, **kwargs)
            self.seconds += clock() - begin
            self.calls += 1
            return result

        return call


class TimedEnvironment:
    """An environment whose resets and steps are timed."""

    def __init__(self, environment: Environment, watch: Stopwatch) -> None:
        self.reset, self.step = watch.timed(environment.reset), watch.timed(environment.step)
        self.close = environment.close


class TimedMaker:
    """Makes timed environments."""

    def __init__(self, maker: Maker, watch: Stopwatch) -> None:
        self.maker, self.watch, self.limit = maker, watch, maker.limit

    def make(self) -> Environment:
        """A new instance."""
        return TimedEnvironment(self.maker.make(), self.watch)


class TimedVector(Vector):
    """Environments that step as one, timed."""

    def __init__(self, vector: Vector, watch: Stopwatch) -> None:
        super().__init__()
        self.vector, self.watch = vector, watch
        self.as_one = vector.as_one
        self._reset = watch.timed(vector.reset)

    def share(self) -> Share:
        """One more of its environments."""
        return Share(self, self.vector.share().number)

    def reset(self, number: int, seed: int) -> Any:
        """Begin an episode."""
        return self._reset(number, seed)

    def release(self, number: int) -> None:
        """Let go of one of its environments."""
        self.vector.release(number)

    def prepare_step(self, numbers: NDArray[np.int64]) -> Step:
        """What takes a step in each of those, timed."""
        return self.watch.timed(self.vector.prepare_step(numbers))


class TimedPolicy:
    """A policy whose choices of actions are timed; all else of it is as it was."""

    def __init__(self, policy: Policy, watch: Stopwatch) -> None:
        self.policy = policy
        self.watch = watch

    def prepare_act(self, *arguments: Any) -> Act:
        """What chooses actions, timed."""
        return self.watch.timed(self.policy.prepare_act(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)


class TimedLanes(Lanes):
    """Lanes whose environments, policy and building of members are timed."""

    def __init__(
        self, spec: RunSpec, maker: Maker, count: int, *, fresh: bool, grant: Grant
    ) -> None:
        self.watches = {name: Stopwatch() for name in ("environment", "policy", "noise")}
        watch = self.watches["environment"]
        timed: Maker = (
            VectorMaker(TimedVector(maker.vector, watch), maker.limit)
            if isinstance(maker, VectorMaker)
            else TimedMaker(maker, watch)
        )
        super().__init__(spec, timed, count, fresh=fresh, grant=grant)
        self.policy = cast(Policy, TimedPolicy(self.policy, self.watches["policy"]))

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Write the members of a block."""
        self.watches["noise"].timed(super().build)(*args, **kwargs)


def shares(ours: Ours, pairs: int) -> dict[str, float]:
    """Which shares of the time the parts of evaluation have, less what timing takes: `environment`,
    `policy`, `noise` and the `overhead` of all else. Of some passes over so many pairs the one
    counts that other work on the machine held up least."""
    count = ours.lanes.count
    subject = ours.subject
    lanes = TimedLanes(subject.spec, ours.maker, count, fresh=ours.fresh, grant=subject.grant)
    _play(lanes, ours.subject, ours.fewest)  # makes the instances
    whole, parts = min((_timed_pass(lanes, ours.subject, pairs) for _ in range(PASSES)), key=_whole)
    lanes.close()
    return {name: part / whole for name, part in parts.items()}


def _timed_pass(lanes: TimedLanes, subject: Subject, pairs: int) -> tuple[float, dict[str, float]]:
    """Seconds of a pass over so many pairs, and of its parts, less what timing takes."""
    for watch in lanes.watches.values():
        watch.seconds, watch.calls = 0.0, 0
    begin = time.perf_counter()
    _play(lanes, subject, pairs)
    whole = time.perf_counter() - begin
    inside, around = cost_of_timing()
    parts = {name: watch.seconds - inside * watch.calls for name, watch in lanes.watches.items()}
    whole -= around * sum(watch.calls for watch in lanes.watches.values())
    parts["overhead"] = whole - sum(parts.values())
    return whole, parts


def _whole(timed: tuple[float, dict[str, float]]) -> float:
    return timed[0]


def cost_of_timing() -> tuple[float, float]:
    """Seconds that timing adds to what is measured of a call, and to the time around it."""

    def nothing(_: object) -> None:
        pass

    def seconds(function: Callable[[object], None]) -> float:
        begin = time.perf_counter()
        for _ in range(CALIBRATION_CALLS):
            function(None)
        return (time.perf_counter() - begin) / CALIBRATION_CALLS

    inside, around = [], []
    for _ in range(CALIBRATION_ROUNDS):
        watch = Stopwatch()
        bare = seconds(nothing)
        around.append(seconds(watch.timed(nothing)) - bare)
        inside.append(watch.seconds / watch.calls - bare)
    return _median(inside), _median(around)


def _play(lanes: Lanes, subject: Subject, pairs: int) -> Pace:
    """Evaluate so many pairs of members. Raises `ShoalError`: an episode fails."""
    job = _job(subject, pairs)
    begin = time.process_time()
    found: Evaluation = lanes.evaluate(job, subject.theta, subject.normalization)
    spent = time.process_time() - begin
    if found.failed:
        raise ShoalError(f"{subject.spec.environment.id} fails here: {found.failed[0][1]}")
    return Pace(int(found.lengths.sum()), found.returns.size * job.episodes, spent)


def _job(subject: Subject, pairs: int) -> EvaluationJob:
    episodes, sigma = subject.spec.environment.episodes, subject.spec.strategy.sigma
    each = subject.spec.members_per_direction
    return EvaluationJob("members", 0, 0, pairs, episodes, sigma, per_direction=each)


def _seeds(subject: Subject, pairs: int) -> list[int]:
    """Of the members' episodes."""
    seeds: list[int] = member_seeds(subject.spec, _job(subject, pairs)).ravel().tolist()
    return seeds


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _steps_of_an_episode(paces: Sequence[Pace]) -> float:
    return sum(pace.steps for pace in paces) / sum(pace.episodes for pace in paces)
