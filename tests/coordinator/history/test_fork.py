from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator import host
from coordinator.directory import DirectoryError
from coordinator.history.fork import Forked, changed_spec, changes_of, fork, next_seed
from coordinator.history.past import HistoryError, opened
from coordinator.history.rebuild import rebuild
from coordinator.history.verify import verify_directory
from protocol import replay
from protocol.errors import ShoalError
from protocol.snapshot import state_digest
from protocol.state import State, params_hash
from tests.coordinator import runs
from tests.coordinator.history.conftest import lead, spec
from tests.coordinator.test_log import largest_file

Forking = Callable[..., tuple[Forked, State]]


@pytest.fixture
def forked(run_dir: Path, tmp_path: Path) -> Forking:
    """Forks a version of a run, with changes as on the command line; returns version 0 too."""

    def make(
        version: int, *assignments: str, parent: Path = run_dir, to: str = "fork", **named: Any
    ) -> tuple[Forked, State]:
        with opened(parent) as past:
            origin = rebuild(past, version, False, print, lambda done, total: None).state
            made = fork(past, origin, changes_of(assignments, **named), tmp_path / to)
        with opened(made.directory) as past:
            return made, past.beginning()

    return make


def test_fork_begins_where_the_version_was(forked: Forking, states: list[State]) -> None:
    made, first = forked(40, "strategy.sigma=0.05")
    assert made.params_hash == params_hash(first.theta) == params_hash(states[40].theta)
    assert (first.version, first.episodes, first.steps, first.sigma) == (0, 0, 0, 0.05)
    assert made.keeps_slots and made.keeps_statistics
    for name, slot in states[40].slots.items():
        assert np.array_equal(first.slots[name], slot)
    assert first.normalizer is not None and states[40].normalizer is not None
    assert np.array_equal(first.normalizer.mean, states[40].normalizer.mean)
    assert first.normalizer.count == states[40].normalizer.count
    assert made.spec.policy.initialisation == "given"
    assert made.spec.policy.initial_digest == state_digest(first).hex()
    assert (made.spec.strategy.sigma, made.spec.name) == (0.05, "test")
    assert made.run.startswith("test-") and made.directory.name == "fork"


def test_fork_is_led_like_any_run_that_is_resumed(forked: Forking) -> None:
    made, first = forked(40, "optimizer.learning_rate=0.01", name="other")
    run = host.resume(made.directory)
    course = host.load(run, lambda line: None)
    leader = host.enter(run, course, course.epoch + 1)
    assert (leader.epoch, leader.rank) == (1, 0)
    assert state_digest(course.recovered.versions.current) == state_digest(first)
    assert run.id == made.run and made.run.startswith("other-")
    assert run.spec == made.spec and run.directory.has_secret
    course.log.close()
    run.directory.close()
    assert verify_directory(made.directory, (), lambda done, total: None).sound


def test_fork_is_trained_and_forked_again(forked: Forking) -> None:
    made, first = forked(40, "pool.max_staleness=2")
    reached = lead(host.resume(made.directory), 6)
    assert state_digest(reached[0]) == state_digest(first)
    assert verify_directory(made.directory, (), lambda done, total: None).reached == 6
    again, origin = forked(4, parent=made.directory, to="two", seed=9)
    assert again.params_hash == params_hash(reached[4].theta) == params_hash(origin.theta)
    assert again.spec.seed == 9 and again.run != made.run
    assert verify_directory(again.directory, (), lambda done, total: None).sound


@pytest.mark.parametrize(
    ("assignment", "slots", "statistics"),
    [
        ("optimizer.kind='sgd'", False, True),
        ("optimizer.beta1=0.5", True, True),
        ("optimizer.lookahead_steps=5", False, True),
        ("normalizer.enabled=false", True, False),
        ("pool.max_staleness=3", True, True),
        ("environment.episodes=2", True, True),
        ("policy.activation='relu'", True, True),
    ],
)
def test_what_the_new_spec_has_no_place_for_begins_anew(
    forked: Forking, states: list[State], assignment: str, slots: bool, statistics: bool
) -> None:
    made, first = forked(10, assignment)
    assert (made.keeps_slots, made.keeps_statistics) == (slots, statistics)
    rules = replay.arithmetic(made.spec)
    assert first.slots.keys() == rules.optimizer.initial_slots(rules.size).keys()
    assert (first.normalizer is not None) == made.spec.normalizer.enabled
    if first.normalizer is not None and statistics:
        assert first.normalizer.window == rules.window
        measured, expected = first.normalizer.measure(), states[10].normalizer.measure()
        assert all(np.array_equal(*pair) for pair in zip(measured, expected, strict=True))


def test_forks_of_one_version_share_fresh_perturbations(forked: Forking) -> None:
    seeds = [
        forked(version, to=f"{number}")[0].spec.seed for number, version in enumerate((4, 4, 5))
    ]
    assert seeds[0] == seeds[1] != seeds[2] and spec().seed not in seeds
    assert seeds[0] == next_seed(spec().seed, 4) and 0 <= seeds[0] < 1 << 63
    assert forked(4, "seed=7", to="given")[0].spec.seed == 7


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("policy.hidden=[4]", r"weights 2x4 4x2, the parameters of the old run are for 2x3 3x2"),
        ("policy.kind='linear'", "leave policy.hidden, policy.kind"),
        ("policy.initialisation='zero'", "policy.initialisation can't be set to 'zero'"),
        ("policy.initial_digest='00'", "policy.initial_digest can't be set"),
        ("strategy.sigma=-1", "strategy.sigma is -1"),
        ("strategy.sigam=1", "sigam"),
        ("nonsense", "is not of the form"),
    ],
)
def test_change_that_can_not_be_is_one_line(
    forked: Forking, tmp_path: Path, assignment: str, message: str
) -> None:
    with pytest.raises(ShoalError) as caught:
        forked(10, assignment)
    assert message.replace("\\", "") in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "fork").exists()


def test_fork_without_room_leaves_nothing(forked: Forking, tmp_path: Path) -> None:
    with largest_file(2000), pytest.raises(ShoalError) as caught:
        forked(10)
    assert "\n" not in str(caught.value) and not (tmp_path / "fork").exists()
    forked(10)


def test_taken_directory_is_left_alone(forked: Forking, tmp_path: Path) -> None:
    (tmp_path / "fork").mkdir()
    (tmp_path / "fork" / "thesis.txt").touch()
    with pytest.raises(DirectoryError, match="is not empty"):
        forked(10)
    with pytest.raises(HistoryError, match="has reached version 70"):
        forked(99, to="other")


def test_settings_that_another_strategy_does_not_have_are_left_behind() -> None:
    step = {"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0}
    climbing = {"kind": "hill-climbing", "elites": 0.5, "sigma_worse": 0.5, "noise": "gaussian"}
    old = runs.spec_of(strategy=climbing, optimizer=step)
    assert changed_spec(old, 3, {}).strategy == old.strategy
    made = changed_spec(old, 3, changes_of(["strategy.kind=openai-es", "optimizer.kind=adam"]))
    assert made.strategy.own == {} and made.optimizer.kind == "adam"
    kept = changed_spec(old, 3, changes_of(["strategy.kind=cem", "strategy.extra_noise=0"]))
    assert kept.strategy.own == {"elites": 0.5, "extra_noise": 0.0}
    schedule = {"kind": "linear", "updates": 5, "floor": 0.1}
    shaped = {"shaping": "raw", "noise": "gaussian", "schedule": schedule}
    falling = runs.spec_of(strategy=shaped, optimizer=step)
    assert changed_spec(falling, 3, changes_of(["strategy.kind=snes"])).strategy.own == {}
    with pytest.raises(ShoalError, match=r"strategy\.elites is given"):
        changed_spec(old, 3, changes_of(["strategy.kind=snes", "strategy.elites=0.5"]))
    with pytest.raises(ShoalError, match="nothing"):
        changed_spec(old, 3, changes_of(["strategy.kind=nothing"]))
