"""What JAX computes is seen: our own environments have pictures, and films are made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.worker.compiled.test_acting import trained
from worker import play
from worker.acting import LoadedPolicy
from worker.compiled import drawing
from worker.compiled.environment import functional
from worker.compiled.stepping import Stepped
from worker.evaluation.jobs import EnvironmentUnavailable


def colours(picture: drawing.Picture, at: tuple[int, int], side: int) -> list[int]:
    middle = picture[at[0] * side + side // 2, at[1] * side + side // 2]
    return [int(part) for part in middle]


def test_a_grid_shows_where_one_is_and_is_to_go() -> None:
    arguments = {"rows": 3, "columns": 4, "walls": "1,1 1,2"}
    world = Stepped(functional("jax:GridWorld-v0", arguments))
    world.reset(seed=0)
    side = drawing.LARGEST_CELL
    before = world.render()
    assert before.shape == (3 * side, 4 * side, 3) and before.dtype == np.uint8
    assert colours(before, (0, 0), side) == list(drawing.GREEN)
    assert colours(before, (1, 1), side) == colours(before, (1, 2), side) == list(drawing.BLACK)
    assert colours(before, (2, 3), side) == list(drawing.BLUE)
    world.step(3)  # up
    after = world.render()
    assert colours(after, (1, 3), side) == list(drawing.BLUE)
    assert colours(after, (2, 3), side) == list(drawing.WHITE)


def test_a_large_grid_has_a_small_picture() -> None:
    assert drawing.grid(1024, 2, (0, 0))(3).shape == (1024, 2, 3)


@pytest.mark.parametrize(("place", "angle"), [(0.0, 0.0), (2.4, 0.2), (-2.4, -0.2), (-9.0, 0.0)])
def test_the_cart_and_its_pole_are_where_they_are(place: float, angle: float) -> None:
    picture = drawing.cartpole(np.array([place, 0.0, angle, 0.0], np.float32))
    assert picture.shape == (drawing.HEIGHT, drawing.WIDTH, 3) and picture.dtype == np.uint8
    across = np.flatnonzero((picture == drawing.BROWN).all(axis=2).any(axis=0))
    if abs(place) > 2.4:
        assert across.size == 0  # out of the picture
        return
    foot, length = drawing.WIDTH / 2 + drawing.METRE * place, drawing.METRE * np.sin(angle)
    ends = np.clip([foot + min(0.0, length), foot + max(0.0, length)], 0, drawing.WIDTH - 1)
    assert np.allclose([across[0], across[-1]], ends, atol=drawing.POLE + 1)


def test_cliffs_are_drawn() -> None:
    world = Stepped(functional("jax:CliffWalking-v0", {}))
    world.reset(seed=0)
    picture = world.render()
    assert colours(picture, (3, 5), drawing.LARGEST_CELL) == list(drawing.BROWN)


def test_a_film_is_made_of_what_jax_trained(tmp_path: Path) -> None:
    pytest.importorskip("imageio")
    from PIL import Image

    film = tmp_path / "film.gif"
    returns = play.play(trained(12), 1, video=film)
    assert returns.tolist() == [12.0]
    with Image.open(film) as frames:
        assert (frames.n_frames, frames.size) == (13, (drawing.WIDTH, drawing.HEIGHT))


def test_there_is_no_window() -> None:
    policy = LoadedPolicy(trained(12))
    with pytest.raises(EnvironmentUnavailable, match="no window: make a film"):
        policy.environment("human")
