"""Ask and tell make the updates of a pool, keep their state, and refuse what is no return."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from coordinator.training.evolution import Evolution
from protocol import replay
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from tests.coordinator.runs import led, spec_of
from tests.coordinator.scripted import worths

OWN_STEP = {"optimizer": {"kind": "sgd", "learning_rate": 1.0}}
KINDS: dict[str, dict[str, Any]] = {
    "openai-es": {},
    "gaussian": {"strategy": {"noise": "gaussian"}},
    "ars": {"strategy": {"kind": "ars"}},
    "pgpe": {"strategy": {"kind": "pgpe", "noise": "gaussian"}},
    "snes": {"strategy": {"kind": "snes", "noise": "gaussian", "mirrored": False}, **OWN_STEP},
    "cem": {"strategy": {"kind": "cem", "noise": "gaussian", "mirrored": False}, **OWN_STEP},
    "schedules": {
        "optimizer": {"kind": "adam", "schedule": {"kind": "cosine", "updates": 10}},
        "strategy": {"schedule": {"kind": "linear", "updates": 10, "floor": 0.1}},
    },
}
SMALL: dict[str, Any] = {"strategy": {"population": 8, "sigma": 0.5}, "seed": 7}


def evaluated(evolution: Evolution) -> np.ndarray:
    """What the members are worth, as scripted workers have it."""
    return worths(replay.initial_state(evolution.spec), evolution.ask())


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
async def test_it_makes_the_updates_of_a_pool_bit_for_bit(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    spec = spec_of(**changes)
    evolution = Evolution(spec)
    for _ in range(5):
        evolution.tell(evaluated(evolution))
    async with led(spec, tmp_path) as run, run.worker():
        outcome = await run.outcome()
        made = [line for line in run.metrics if line["kind"] == "update"]
    assert outcome.updates == evolution.version == len(made)
    assert made[-1]["params_hash"] == evolution.digest
    assert made[-1]["sigma"] == pytest.approx(np.mean(evolution.spread), rel=1e-15)


def test_members_are_mirrored_around_the_centre_and_stay_until_told() -> None:
    evolution = Evolution(SMALL, [1.0, 2.0, 3.0])
    members = evolution.ask()
    assert members.dtype == np.float32 and members.shape == (8, 3) == (
        evolution.population,
        evolution.size,
    )
    np.testing.assert_allclose(members[::2] + members[1::2], 2 * np.array([[1.0, 2.0, 3.0]] * 4))
    assert (np.abs(members - evolution.centre) == 0.5).all() and evolution.spread == 0.5
    assert (evolution.ask() == members).all()
    evolution.tell(members.sum(axis=1))
    assert evolution.version == 1 and not (evolution.ask() == members).all()
    assert (evolution.centre > [1.0, 2.0, 3.0]).any()
    with pytest.raises(ValueError, match="read-only"):
        evolution.centre[0] = 0.0


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_what_is_saved_goes_on_alike(changes: dict[str, Any], tmp_path: Path) -> None:
    evolution, file = Evolution(spec_of(**changes)), tmp_path / "state.safetensors"
    evolution.tell(evaluated(evolution))
    evolution.save(file)
    again = Evolution.load(file)
    assert (again.version, again.digest, again.spec) == (1, evolution.digest, evolution.spec)
    with pytest.raises(ShoalError, match="tell before ask"):
        again.tell(np.zeros(again.population))
    for one in (evolution, again):
        one.tell(evaluated(one))
    assert again.digest == evolution.digest


def no_numbers() -> list[object]:
    return [
        None,
        "12345678",
        ["a"] * 8,
        [None] * 8,
        [1j] * 8,
        [[1.0], [1.0, 2.0]],
        [[1.0] * 8],
        [1.0] * 7,
        [1.0] * 9,
        1.0,
        [],
        {},
        [10**400] * 8,
        [float("nan")] + [1.0] * 7,
        [1.0] * 7 + [float("-inf")],
    ]


@pytest.mark.parametrize("returns", no_numbers(), ids=lambda value: repr(value)[:30])
def test_what_is_no_return_is_refused_in_a_line_and_changes_nothing(returns: Any) -> None:
    evolution = Evolution(SMALL, 3)
    evolution.ask()
    before = evolution.digest
    with pytest.raises(ShoalError, match=r"^returns ") as error:
        evolution.tell(returns)
    assert "\n" not in str(error.value)
    assert (evolution.version, evolution.digest) == (0, before)
    evolution.tell(np.arange(8))
    assert evolution.version == 1
    with pytest.raises(ShoalError, match="tell before ask: version 1"):
        evolution.tell(np.arange(8))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_finite_returns_make_an_update_or_are_refused(returns: list[float]) -> None:
    for shaping in ("centred-ranks", "z-score"):
        evolution = Evolution(SMALL, 3, shaping=shaping)
        evolution.ask()
        try:
            evolution.tell(returns)
        except ShoalError:
            assert evolution.version == 0
        assert np.isfinite(evolution.centre).all()


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (lambda: Evolution(), r"nothing says .* Evolution\(None, 10\)"),
        (lambda: Evolution(SMALL), "nothing says which parameters"),
        (lambda: Evolution(SMALL, 0), "parameters=0: must be from 1"),
        (lambda: Evolution(SMALL, "ten"), "must be real numbers"),
        (lambda: Evolution(SMALL, [[1.0]]), r"parameters of shape \(1, 1\)"),
        (lambda: Evolution(SMALL, [1e39]), "beyond float32"),
        (lambda: Evolution(SMALL, [np.nan]), "must be finite"),
        (lambda: Evolution(SMALL, 3, sigme=1.0), "did you mean 'sigma'"),
        (lambda: Evolution(SMALL, 3, population=7), "strategy.population"),
        (lambda: Evolution(spec_of(), 3), r"parameters of shape \(3,\)"),
        (lambda: Evolution(SMALL, 3, strategy="hill-climbing"), "hill-climbing"),
        (lambda: Evolution(spec_of(normalizer={"enabled": True})), "normalizer.enabled is true"),
        (lambda: Evolution(3.0, 3), "spec is of type float"),
    ],
)
def test_what_it_can_not_be_made_of_is_refused_in_a_line(given: Any, rule: str) -> None:
    with pytest.raises(ShoalError, match=rule) as error:
        given()
    assert "\n" not in str(error.value)


def test_lengths_are_asked_for_where_updates_need_them() -> None:
    spec = spec_of(environment={"cap": 2.0, "cap_minimum": 1, "max_steps": 50})
    evolution = Evolution(spec)
    returns = evaluated(evolution)
    with pytest.raises(ShoalError, match="give lengths"):
        evolution.tell(returns)
    for wrong in (0, 51, 1.5):
        with pytest.raises(ShoalError, match="whole numbers of steps, from 1 to 50"):
            evolution.tell(returns, np.full(returns.size, wrong))
    evolution.tell(returns, np.full(returns.size, 20))
    assert evolution.version == 1


def one_bit(file: Path) -> None:
    octets = bytearray(file.read_bytes())
    octets[-30] ^= 1
    file.write_bytes(octets)


def other_seed(file: Path) -> None:
    octets = file.read_bytes()
    assert octets.count(b"seed = 3") == 1
    file.write_bytes(octets.replace(b"seed = 3", b"seed = 4"))


def written(file: Path, state: np.ndarray, said: str) -> None:
    """As `save` writes it, whatever it is."""
    digest = blake2b(said.encode() + b"\0" + state.tobytes(), digest_size=16).hexdigest()
    save_file({"state": state}, file, {"spec": said, "digest": digest})


def other_state(file: Path) -> None:
    written(file, np.zeros(10, np.uint8), run_spec.to_toml(spec_of()))


def no_bytes(file: Path) -> None:
    written(file, np.zeros(10), run_spec.to_toml(spec_of()))


def no_toml(file: Path) -> None:
    written(file, np.zeros(3, np.uint8), "= ]")


def other_spec(file: Path) -> None:
    (state,) = load_file(file).values()
    smaller: RunSpec = spec_of(environment={"observation": {"kind": "box", "shape": [1]}})
    written(file, state, run_spec.to_toml(smaller))


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\x80\x04pickled"),
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"shoal", b"shoad")),
        lambda file: save_file({"state": np.zeros(3, np.uint8)}, file),
        no_toml,
        one_bit,
        other_seed,
        other_state,
        no_bytes,
        other_spec,
    ],
)
def test_a_file_that_is_none_of_its_is_refused_in_a_line(damage: Any, tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    Evolution(spec_of(), seed=3).save(file)
    damage(file)
    with pytest.raises(ShoalError, match="holds no state of an Evolution") as error:
        Evolution.load(file)
    assert "\n" not in str(error.value)


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match="can't be written"):
        Evolution(SMALL, 3).save(tmp_path / "nowhere" / "state.safetensors")
