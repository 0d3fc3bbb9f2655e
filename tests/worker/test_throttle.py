import pytest

from worker.evaluation.throttle import PERIOD, Throttle


class Machine:
    """A process with a throttle, on a machine that may be busy with others."""

    def __init__(self, share: float, step: float, delay: float = 0.0) -> None:
        self.cpu, self.now = 3.0, 100.0
        self.throttle = Throttle(share, self.cpu, self.now)
        self.step, self.delay = step, delay
        self.longest = 0.0

    def run(self, seconds: float) -> float:
        """The share used of so many seconds."""
        cpu, end, begin = self.cpu, self.now + seconds, self.now
        while self.now < end:
            began = self.now
            while not (rest := self.throttle.rest(self.cpu, self.now)):
                self.cpu += self.step
                self.now += self.step
            self.longest = max(self.longest, self.now - began)
            self.now += min(rest, 0.05) + self.delay
        return (self.cpu - cpu) / (self.now - begin)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("step", [1e-5, 7e-4])
def test_every_second_has_its_share(share, step):
    machine = Machine(share, step)
    for _ in range(20):
        assert machine.run(1.0) == pytest.approx(share, abs=0.1 * share + step)
    assert machine.longest <= 2 * PERIOD + step


def test_a_step_that_takes_long_is_made_up_for_by_long_rests():
    machine = Machine(0.1, 0.5)
    assert machine.run(200.0) == pytest.approx(0.1, rel=0.1)


def test_rests_that_last_too_long_are_made_up_for():
    assert Machine(0.5, 1e-4, delay=0.004).run(50.0) == pytest.approx(0.5, rel=0.02)


def test_who_had_nothing_to_do_has_saved_nothing():
    machine = Machine(0.1, 1e-4)
    machine.run(1.0)
    machine.now += 60.0
    assert machine.run(0.5) <= 0.1 + 0.1 * PERIOD / 0.5 + 0.01


def test_the_whole_of_a_core_needs_no_rest():
    throttle = Throttle(1.0, 0.0, 0.0)
    assert not any(throttle.rest(tick / 100, tick / 100) for tick in range(1000))
