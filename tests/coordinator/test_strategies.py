"""A small real run of every strategy: over a broker, with two workers, and replayed from its log."""

import pytest

from coordinator.history.verify import verify_directory
from protocol import spec as run_spec
from protocol import strategies
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
