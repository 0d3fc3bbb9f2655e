"""What a picture of a sweep shows of its axis."""

from coordinator.sweep.pictures import window


def test_a_wide_interval_of_two_seeds_leaves_the_points_apart() -> None:
    bottom, top = window([100.0, 300.0], [2000.0, 10.0]) or (0.0, 0.0)
    assert (bottom, top) == (-10.0, 410.0)


def test_intervals_that_fit_are_shown_whole() -> None:
    bottom, top = window([100.0, 300.0], [20.0, 10.0]) or (0.0, 0.0)
    assert (bottom, top) == (70.0, 320.0)


def test_means_that_are_one_leave_the_axis_to_the_picture() -> None:
    assert window([5.0, 5.0], [1.0, 0.0]) is None
