"""What a run spec refuses of strategies, and what a new run has of its own."""

import pytest

from coordinator.composing import compose
from protocol import spec as run_spec
from protocol import strategies
from protocol.spec import SpecError
from tests.protocol.test_spec import parse

GAUSSIAN = {"noise": "gaussian"}
PLAIN = {"kind": "sgd", "momentum": 0.0}


def of(kind, optimizer=PLAIN, pool=None, **values):
    own = {"kind": kind, **GAUSSIAN, **values}
    return parse(strategy=own, optimizer=optimizer, pool=pool or {})


@pytest.mark.parametrize("kind", ["pgpe", "snes", "sep-cma", "cem"])
def test_what_adapts_sigma_refuses_rademacher_with_the_reason(kind):
    assert of(kind).strategy.noise == "gaussian"
    with pytest.raises(SpecError, match=f'"{kind}", which adapts sigma.*squares are all 1: use "g'):
        of(kind, noise="rademacher")


@pytest.mark.parametrize("kind", strategies.STRATEGIES)
def test_late_returns_are_refused_where_they_do_not_count(kind):
    if strategies.get(kind).accepts_stale:
        assert of(kind, pool={"max_staleness": 2}).pool.max_staleness == 2
        return
    with pytest.raises(SpecError, match=r"pool\.max_staleness is 2.*set it to 0"):
        of(kind, pool={"max_staleness": 2})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "ars", "mirrored": False}, "compares mirrored members, but strategy.mirrored"),
        ({"kind": "pgpe", "mirrored": False}, "compares mirrored members"),
        ({"kind": "snes", "population": 60_002}, "30,001 directions: at most 30,000 fit"),
        (
            {"kind": "snes", "shaping": "raw"},
            "strategy.shaping is given but .* no such setting",
        ),
        ({"kind": "snes", "elites": 0.5}, r"strategy\.elites is given .* \(it has sigma_rate\)"),
        (
            {"kind": "openai-es", "shaping": "rawr"},
            "strategy.shaping is 'rawr': must be one of",
        ),
        ({"kind": "openai-es", "arguments": {"x": 1}}, "strategy.x is given"),
        ({"kind": "cem", "elites": 1.5}, "elites = 1.5: must satisfy 0 < elites <= 1"),
        ({"kind": "cma-es"}, "strategy.kind is 'cma-es': must be one of ars, cem, hill-climbing"),
    ],
)
def test_fields_that_do_not_fit_are_named(values, words):
    with pytest.raises(SpecError, match=words):
        of(**values)


@pytest.mark.parametrize("kind", ["snes", "sep-cma", "cem"])
def test_an_own_step_takes_no_optimizer_that_bends_it(kind):
    for wrong in ({"kind": "adam"}, {"momentum": 0.5}, {"clip_norm": 1.0}, {"weight_decay": 0.1}):
        with pytest.raises(SpecError, match=r'its own step.*use kind "sgd" with momentum 0'):
            of(kind, {**PLAIN, **wrong})


@pytest.mark.parametrize("kind", strategies.STRATEGIES)
def test_a_flag_alone_composes_a_run_of_it(kind):
    spec = compose("CartPole-v1", {"strategy": {"kind": kind}}).spec
    assert spec.strategy.kind == kind
    assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec
    for table, values in strategies.get(kind).defaults.items():
        for name, value in values.items():
            assert getattr(getattr(spec, table), name) == value


def test_what_is_said_wins_over_what_a_strategy_has():
    flags = {"strategy": {"kind": "pgpe"}, "optimizer": {"kind": "adam"}}
    spec = compose("CartPole-v1", flags).spec
    assert (spec.optimizer.kind, spec.strategy.noise) == ("adam", "gaussian")
