"""What returns of an honest worker look like beside those of all, and what others' do."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coordinator.trust import Trust, parts
from coordinator.trust.residuals import ALARM, drifted

Returns = NDArray[np.float64]


def batch(draw: np.random.Generator, counts: list[int], mirrors: int) -> list[tuple[str, Returns]]:
    """Of so many directions by each worker: heavy tails, ties, and a level of each direction."""
    kind, spread = draw.integers(3), draw.random()
    found = []
    for number, count in enumerate(counts):
        level = draw.standard_cauchy((count, 1))
        returns = level + draw.normal(size=(count, mirrors)) * spread
        if kind == 1:
            returns = np.clip(np.rint(returns), 0.0, 5.0)
        elif kind == 2:
            returns = np.exp(np.minimum(returns, 30.0))
        found.append((f"w{number}", returns))
    return found


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    mirrors=st.sampled_from([1, 2]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_the_parts_are_all_of_it_and_residuals_say_nothing_in_sum(
    counts: list[int], mirrors: int, seed: int
) -> None:
    returns = batch(np.random.default_rng(seed), counts, mirrors)
    found = parts(returns)
    if sum(counts) * mirrors < 2:
        assert found == {}
        return
    assert {name: part.members for name, part in found.items()} == {
        name: each.size for name, each in returns if len(each)
    }
    assert all(0.0 <= part.weight <= 1.0 for part in found.values())
    total = sum(part.weight for part in found.values())
    assert abs(total - 1.0) < 1e-9 or total == 0.0  # all returns are equal
    shuffled = parts(returns[::-1])
    assert shuffled.keys() == found.keys()
    for name, part in found.items():
        other = shuffled[name].residual
        assert (part.residual is None) == (other is None)
        if part.residual is not None and other is not None:
            assert np.allclose(part.residual, other)
    flipped = parts([(name, -each) for name, each in returns])
    for name, part in found.items():
        other = flipped[name].residual
        if part.residual is not None and other is not None:
            rank, difference, size = part.residual
            assert np.allclose(other, (-rank, -difference, size))


@given(seed=st.integers(0, 1 << 32), mirrors=st.sampled_from([1, 2]))
@settings(max_examples=10, deadline=None)
def test_residuals_of_the_honest_have_deviation_one_and_raise_no_alarm(
    seed: int, mirrors: int
) -> None:
    draw, trust = np.random.default_rng(seed), Trust(0.04, Random(1))
    seen = []
    for version in range(150):
        for name, part in parts(batch(draw, [1, 3, 8, 20], mirrors)).items():
            assert not trust.used(name, version, part)
            if part.residual is not None:
                seen.append(part.residual)
    means, deviations = np.mean(seen, axis=0), np.std(seen, axis=0)
    assert (abs(means) < 0.25).all() and (abs(deviations - 1.0) < 0.25).all()
    assert trust.record("w0").updates == [[0, 149]] and trust.record("w0").drifts == 0


def test_false_alarms_come_once_in_a_hundred_thousand_batches_at_most() -> None:
    """Of a worker, three values each."""
    draw = np.random.default_rng(3)
    sums, alarms = [0.0] * 6, 0
    for row in draw.normal(size=(100_000, 3)).tolist():
        alarms += drifted(sums, row)
    assert alarms <= 1


def test_who_is_too_good_or_for_one_mirror_or_makes_much_of_little_is_soon_audited() -> None:
    def first(lie: object) -> int:
        """The update at which a liar of four workers is found to drift."""
        draw, trust = np.random.default_rng(1), Trust(0.04, Random(1))
        for version in range(200):
            returns = batch(draw, [8, 8, 8, 8], 2)
            returns[0] = ("w0", lie(returns[0][1], version))  # type: ignore[operator]
            for name, part in parts(returns).items():
                if trust.used(name, version, part):
                    assert name == "w0", "an honest one"
                    assert trust.record("w0").doubtful > 0
                    return version
        return 200

    assert first(lambda returns, version: returns + 2.0) < 60
    assert first(lambda returns, version: np.sort(returns, axis=1)) < 20
    assert first(lambda returns, version: np.repeat(returns[:, :1], 2, axis=1)) < 60
    assert first(lambda returns, version: returns if version < 30 else returns - 3.0) < 90


def test_an_alarm_is_a_sum_beyond_chance_and_begins_anew() -> None:
    sums = [0.0] * 6
    count = 0
    while not drifted(sums, (0.0, -2.5, 0.0)):
        count += 1
        assert max(sums) == sums[3] == 2.0 * count < ALARM
    assert sums == [0.0] * 6


def test_what_updates_used_of_a_worker_is_told() -> None:
    trust = Trust(0.04, Random(1))
    assert trust.record("a").used == ""
    returns = np.arange(8.0).reshape(4, 2)
    for version in (3, 4, 7):
        part = parts([("a", returns[: version - 2]), ("b", returns)])["a"]
        assert not trust.used("a", version, part)
    assert trust.record("a").members == 2 + 4 + 8
    said = trust.record("a").used
    assert said.startswith("updates of versions 3-4, 7 have used 14 members of it, at most 50.0%")
    for version in range(10, 200, 2):
        trust.used("a", version, part)
    assert len(trust.record("a").updates) <= 32
    assert trust.record("a").updates[0][0] == 3 and trust.record("a").updates[-1] == [198, 198]
    trust.ban("a", "it lied")
    trust.unban("a")
    assert trust.record("a").standing == "new" and trust.record("a").used
