"""A small real run of every strategy: over a broker, with two workers, replayed from its log."""

import msgspec
import numpy as np
import pytest

from coordinator import update
from coordinator.history.verify import verify_directory
from coordinator.pool.events import CloseBatch
from protocol import messages, replay, strategies
from protocol import spec as run_spec
from protocol.packing import WireError, pack_integers
from protocol.replay import MismatchError
from protocol.state import params_hash
from tests.coordinator import runs

UPDATES = 6


def spec_of(kind):
    own = run_spec.merge(strategies.get(kind).defaults, {"strategy": {"kind": kind}})
    return runs.spec_of(**run_spec.merge(own, {"stop": {"updates": UPDATES}}))


@pytest.mark.parametrize("kind", strategies.STRATEGIES)
async def test_a_run_over_the_wire_is_the_one_that_its_log_and_its_definition_give(kind, tmp_path):
    spec = spec_of(kind)
    outcome = await runs.play(spec, tmp_path, workers=2)
    assert outcome.updates == UPDATES
    verdict = verify_directory(tmp_path / "run", (), lambda *_: None)
    assert verdict.sound and verdict.reached == UPDATES
    if not spec.needs_acceptance:  # whose candidates may be taken back
        defined = runs.states_of(spec, UPDATES)
        assert verdict.params_hash == params_hash(defined[-1].theta)
        assert len({params_hash(state.theta) for state in defined}) == UPDATES + 1


def first_update(kind):
    spec = spec_of(kind)
    rules, before = replay.arithmetic(spec), replay.initial_state(spec)
    parts = [runs.contribution(spec, before, first, 4) for first in range(0, spec.directions, 4)]
    made = update.make(spec, rules, before, 1, CloseBatch(0, tuple(parts), ()))
    return spec, rules, before, made


@pytest.mark.parametrize("kind", ["pgpe", "snes", "sep-cma", "cem"])
def test_an_update_with_a_sigma_for_each_parameter_is_checked_before_it_counts(kind):
    spec, rules, before, made = first_update(kind)
    sent = messages.decode(messages.encode(made.update))
    after = replay.follow(spec, rules, before, sent)
    np.testing.assert_array_equal(after.sigmas, made.after.sigmas)
    assert (after.sigmas != before.sigmas).any()
    short = tuple(pack_integers(np.ones(3, np.int64)) for _ in sent.squares)
    for squares, words in (
        ((), "weights of squares in a run of"),
        (sent.squares * 2, "weights of squares"),
        (short, "as many weights of squares as weights"),
        ((b"\x04" + bytes(8),) * len(sent.squares), "array width"),
    ):
        with pytest.raises(WireError, match=words):
            replay.follow(spec, rules, before, msgspec.structs.replace(sent, squares=squares))
    with pytest.raises(MismatchError, match=r"sigma 9\.0, we get"):
        replay.follow(spec, rules, before, msgspec.structs.replace(sent, sigma=9.0))


def test_squares_that_a_run_has_no_use_for_are_refused():
    _, _, _, foreign = first_update("snes")
    spec, rules, before, made = first_update("openai-es")
    assert made.update.squares == () and made.update.scalars == ()
    wrong = msgspec.structs.replace(made.update, squares=foreign.update.squares)
    with pytest.raises(WireError, match="squares"):
        replay.follow(spec, rules, before, wrong)


@pytest.mark.parametrize("kind", ["sep-cma", "cem"])
@pytest.mark.parametrize("scalars", [(), (-1.0,), (1.0, 1.0)])
def test_scalars_that_no_update_has_are_refused(kind, scalars):
    spec, rules, before, made = first_update(kind)
    wrong = msgspec.structs.replace(made.update, scalars=scalars)
    with pytest.raises(WireError, match="can't be applied"):
        replay.follow(spec, rules, before, wrong)
