from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.errors import ShoalError
from worker import shares
from worker.sharing import AT_WORK, CREDIT, HALF, LONGEST, SHORTEST, WORTH, Sharing

WEIGHTS = st.floats(0.1, 10.0)
COSTS = st.floats(0.001, 1.0)


@dataclass
class Machine:
    """Evaluates what a queue lets begin, one task after the other, in virtual time."""

    sharing: Sharing
    held: dict[str, int] = field(default_factory=dict)
    began: list[str] = field(default_factory=list)
    at_work: list[str] = field(default_factory=list)

    def gives(self, run: str, tasks: int) -> None:
        self.held[run] = tasks
        self.sharing.offer(run, tasks)
        self.begins()

    def begins(self) -> None:
        while run := self.sharing.begin():
            self.held[run] -= 1
            self.at_work.append(run)
            self.began.append(run)
            assert len(set(self.at_work)) == 1, "one run has all cores at a time"
            assert len(self.at_work) <= AT_WORK or len(self.held) == 1

    def works(self, seconds: float) -> str:
        """The first task that is at work is done after so long."""
        run = self.at_work.pop(0)
        self.sharing.passed(seconds)
        self.sharing.ended(run)
        return run


def machine(weights: Sequence[float], cores: int = 1) -> Machine:
    sharing = Sharing(cores)
    made = Machine(sharing)
    for number, weight in enumerate(weights):
        sharing.join(f"run{number}", weight)
        made.held[f"run{number}"] = 0
    return made


@given(
    st.lists(WEIGHTS, min_size=2, max_size=6),
    st.lists(COSTS, min_size=20, max_size=300),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(0, 300),
)
def test_runs_that_always_have_tasks_get_their_shares_within_a_quantum(
    weights: list[float], costs: list[float], credit: int, cores: int, since: int
) -> None:
    """From any moment on: by weight, no two are further apart than what each may have at once."""
    work = machine(weights, cores)
    runs = list(work.held)
    for run in runs:
        work.gives(run, credit)
    before = dict.fromkeys(runs, 0.0)
    for number, seconds in enumerate(costs):
        if number == min(since, len(costs) - 1):
            before = {run: work.sharing.had(run) for run in runs}
        done = work.works(seconds)
        work.gives(done, work.held[done] + 1)
    at_once = work.sharing.quantum + AT_WORK * cores * max(costs)
    had = {run: work.sharing.had(run) - before[run] for run in runs}
    assert sum(work.sharing.had(run) for run in runs) == pytest.approx(cores * sum(costs))
    for one, weight in zip(runs, weights, strict=True):
        for other, weight_of_other in zip(runs, weights, strict=True):
            apart = had[one] / weight - had[other] / weight_of_other
            assert apart <= at_once * (1.0 / weight + 1.0 / weight_of_other) + 1e-6


@given(
    st.lists(WEIGHTS, min_size=3, max_size=6),
    st.lists(COSTS, min_size=20, max_size=200),
    st.integers(1, 8),
    st.integers(0, 100),
    st.booleans(),
)
@example([1.0, 10.0, 0.1], [0.05] * 150, 2, 5, False)
@example([1.0, 10.0, 0.1], [0.05] * 150, 2, 5, True)
def test_who_comes_or_comes_back_has_its_share_from_then_on(
    weights: list[float], costs: list[float], cores: int, moment: int, known: bool
) -> None:
    """Whoever has the turn at that moment, and however small its weight: it owes nothing."""
    work = machine(weights, cores)
    late, *others = list(work.held)
    if not known:
        work.sharing.leave(late)
    for run in others:
        work.gives(run, 2 * AT_WORK)
    before = dict.fromkeys(work.held, 0.0)
    for number, seconds in enumerate(costs):
        if number == min(moment, len(costs) - 1):
            if not known:
                work.sharing.join(late, weights[0])
            work.gives(late, 2)
            before = {run: work.sharing.had(run) for run in work.held}
        done = work.works(seconds)
        work.gives(done, work.held[done] + 1)
    at_once = work.sharing.quantum + AT_WORK * cores * max(costs)
    had = {run: work.sharing.had(run) - before[run] for run in work.held}
    for run, weight in zip(others, weights[1:], strict=True):
        behind = had[run] / weight - had[late] / weights[0]
        assert behind <= at_once * (1.0 / weight + 1.0 / weights[0]) + 1e-6


@pytest.mark.parametrize("credit", [1, AT_WORK, 2 * AT_WORK])
def test_a_small_share_is_no_larger_where_others_have_no_task_at_hand_for_a_moment(
    credit: int,
) -> None:
    """While all that they hold is at work, or one is done and the next not here."""
    work = machine([10.0, 0.1])
    for run in work.held:
        work.gives(run, credit)
    for _ in range(20_000):
        done = work.works(0.05)
        work.gives(done, work.held[done] + 1)
    small = work.sharing.had("run1") / (work.sharing.had("run0") + work.sharing.had("run1"))
    assert small == pytest.approx(0.1 / 10.1, rel=0.05)


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), COSTS), min_size=1, max_size=200
)


@given(st.lists(st.one_of(st.just(0.0), WEIGHTS), min_size=1, max_size=5), ARRIVALS)
def test_somebody_works_while_anybody_has_a_task(
    weights: list[float], arrivals: list[tuple[int, int, float]]
) -> None:
    work = machine(weights)
    runs = list(work.held)
    for number, tasks, seconds in arrivals:
        run = runs[number % len(runs)]
        work.gives(run, work.held[run] + tasks)
        if work.at_work:
            work.works(seconds)
            work.begins()
        wanted = [r for r, weight in zip(runs, weights, strict=True) if weight and work.held[r]]
        assert work.at_work or not wanted
    refused = {run for run, weight in zip(runs, weights, strict=True) if not weight}
    assert not refused & set(work.began)


@given(
    st.lists(WEIGHTS, min_size=2, max_size=5),
    st.lists(COSTS, min_size=1, max_size=40),
    COSTS,
)
def test_who_was_away_saves_up_no_more_than_a_turn(
    weights: list[float], costs: list[float], longest: float
) -> None:
    """However long it had no task, it gets no more than its share and that from then on."""
    work = machine(weights)
    away, *others = list(work.held)
    for run in others:
        work.gives(run, 2)
    for _ in range(200):
        done = work.works(longest)
        work.gives(done, work.held[done] + 1)
    before = {run: work.sharing.had(run) for run in work.held}
    credit = work.sharing.credit
    work.gives(away, 2)
    for seconds in costs:
        done = work.works(seconds)
        work.gives(done, work.held[done] + 1)
    at_once = work.sharing.quantum + AT_WORK * max(longest, *costs)
    had = {run: work.sharing.had(run) - before[run] for run in work.held}
    assert credit <= CREDIT * at_once
    for run, weight in zip(others, weights[1:], strict=True):
        ahead = had[away] / weights[0] - had[run] / weight
        assert ahead <= credit / weights[0] + at_once * (1.0 / weights[0] + 1.0 / weight) + 1e-6


@given(st.lists(WEIGHTS, min_size=2, max_size=6))
@settings(max_examples=30)
def test_nobody_starves(weights: list[float]) -> None:
    work = machine(weights)
    for run in work.held:
        work.gives(run, 2)
    rounds = sum(weights) / min(weights)
    for _ in range(int(20 * rounds) + 20):
        done = work.works(0.1)
        work.gives(done, work.held[done] + 1)
    assert set(work.began) == set(work.held)


def test_a_run_stays_for_its_quantum_which_is_long_where_changes_are_dear() -> None:
    work = machine([1.0, 1.0])
    assert work.sharing.quantum == SHORTEST
    for run in work.held:
        work.gives(run, 2)

    def changes(tasks: int) -> int:
        work.began.clear()
        for _ in range(tasks):
            done = work.works(0.05)
            work.gives(done, work.held[done] + 1)
        return sum(one != two for one, two in zip(work.began, work.began[1:], strict=False))

    cheap = changes(200)
    for _ in range(50):
        work.sharing.switched(0.1)
    assert work.sharing.quantum == pytest.approx(WORTH * 0.1, rel=0.01)
    assert changes(200) < cheap / 5
    for _ in range(50):
        work.sharing.switched(60.0)
    assert work.sharing.quantum == LONGEST


def test_runs_come_and_go() -> None:
    work = machine([1.0, 3.0])
    work.gives("run0", 1)
    work.gives("run1", 1)
    assert work.sharing.wanted("run1") == 0.75
    work.sharing.leave("run0")
    assert work.sharing.wanted("run1") == 1.0
    work.at_work.clear()
    work.begins()
    assert work.began == ["run0", "run1"]
    work.sharing.offer("run0", 3)
    work.works(1.0)
    work.begins()
    assert work.sharing.begin() == ""
    assert (work.sharing.had("run1"), work.sharing.had("run0")) == (1.0, 0.0)
    work.sharing.join("run2", 1.0)
    work.gives("run1", 2)
    work.gives("run2", 1)
    work.works(SHORTEST)
    work.works(SHORTEST)
    work.begins()
    assert work.began[-1] == "run2", "who comes has missed nothing, and owes nothing"


def test_what_is_shown_of_shares_is_of_the_last_minutes() -> None:
    work = machine([1.0, 1.0])
    for run, seconds in (("run0", 600.0), ("run1", HALF)):
        work.gives(run, 1)
        work.works(seconds)
    early, late = work.sharing.lately("run0"), work.sharing.lately("run1")
    assert early + late == pytest.approx(1.0)
    assert early == pytest.approx(5.0 / 6.0), "600 s of work, of which a minute made half"
    for _ in range(600):
        work.gives("run1", 1)
        work.works(1.0)
    assert work.sharing.lately("run1") == pytest.approx(1.0, abs=0.02)
    assert work.sharing.had("run0") == 600.0
    work.sharing.leave("run0")
    assert work.sharing.lately("run1") == 1.0
    assert work.sharing.lately("run0") == 0.0


# What the volunteer says.


def test_a_share_is_said_by_a_run_s_name_or_its_whole_name() -> None:
    said = shares.parse("humanoid=2, cartpole=0,humanoid-12345678=0.5")
    assert said.of("humanoid-87654321") == 2.0
    assert said.of("humanoid-12345678") == 0.5
    assert said.of("cartpole-12345678") == 0.0
    assert said.of("cartpole-two-12345678") == 1.0
    assert shares.parse("").of("anything-12345678") == 1.0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("humanoid", "name of a run and its share"),
        ("=2", "name of a run and its share"),
        ("Upper/Case=1", "name of a run and its share"),
        ("a=1,a=2", "named twice"),
        ("a=-1", "from 0.01 to 100"),
        ("a=nan", "from 0.01 to 100"),
        ("a=inf", "from 0.01 to 100"),
        ("a=0.001", "from 0.01 to 100"),
        ("a=much", "from 0.01 to 100"),
        (",".join(f"run{n}=1" for n in range(65)), "may name 64"),
        ("x" * 5000, "'xxxx"),
    ],
)
def test_a_share_that_says_nothing_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ShoalError, match=rule) as refused:
        shares.parse(text)
    assert len(str(refused.value)) < 300
