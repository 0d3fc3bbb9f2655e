import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from protocol.spec import RunSpec  # noqa: E402
from tests.worker import nets  # noqa: E402
from tests.worker.reference import run_spec  # noqa: E402
from tests.worker.test_policies import plain_view  # noqa: E402
from worker.evaluation import environments  # noqa: E402
from worker.evaluation.children import Evaluators  # noqa: E402
from worker.evaluation.jobs import (  # noqa: E402
    EnvironmentUnavailable,
    Evaluation,
    EvaluationJob,
)
from worker.evaluation.lanes import Lanes  # noqa: E402
from worker.policies import making, modules  # noqa: E402
from worker.policies.batched import ModulePolicy  # noqa: E402
from worker.policies.making import Grant  # noqa: E402
from worker.policies.modules import PolicyUnavailable  # noqa: E402
from worker.policies.recurrence import replace  # noqa: E402

ALLOWED = ("tests.worker",)
JOB = EvaluationJob("members", 0, 3, 24, sigma=0.5)


def spec_of(name: str, **arguments: Any) -> RunSpec:
    path = f"tests.worker.nets:{name}"
    found = modules.parameters_of(modules.load(path, arguments, ALLOWED))
    policy = {"kind": "module", "module": path, "arguments": arguments, "parameters": found}
    return run_spec(policy=policy)


def policy_of(spec: RunSpec, lanes: int) -> ModulePolicy:
    made = making.make(spec, lanes, Grant(ALLOWED))
    assert isinstance(made, ModulePolicy)
    return made


def with_parameters(spec: RunSpec, row: Any) -> Any:
    """A module of the policy's class as PyTorch itself runs it."""
    module = modules.load(spec.policy.module, spec.policy.arguments, ALLOWED)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(row), module.parameters())
    return module


MODULES = [
    ("Net", {}, "vmap"),
    ("Net", {"hidden": (40, 17)}, "vmap"),
    *(("Remembers", {"kind": kind}, "vmap") for kind in ("GRU", "LSTM", "RNN")),
    *(("Remembers", {"kind": f"{kind}Cell"}, "vmap") for kind in ("GRU", "LSTM", "RNN")),
    ("Delay", {}, "vmap"),
    ("Branches", {}, "loop"),
    *(
        ("Hooked", {"added": added}, "vmap")
        for added in ("hook", "pre-hook", "parametrization", "forward")
    ),
    ("Asks", {"kind": "GRUCell"}, "vmap"),
    ("Asks", {"kind": "GRU"}, "loop"),
    ("Shared", {}, "vmap"),
    ("Tied", {}, "vmap"),
    *(("Idioms", {"kind": kind}, "vmap") for kind in ("GRU", "LSTM")),
    ("CellIdioms", {}, "vmap"),
]


@pytest.mark.parametrize(("name", "arguments", "path"), MODULES)
def test_each_lane_gives_what_the_module_gives_alone(name, arguments, path):
    """Episodes of (row, steps), one after the other in each lane, some lanes moved at a time."""
    spec = spec_of(name, **arguments)
    policy, few = policy_of(spec, 32), policy_of(spec, 1)
    assert (policy.path, few.path) == (path, path)
    assert ("plain sums" in policy.remark) == (name == "Asks")
    rng = np.random.default_rng(3)
    rows = rng.normal(0, 0.5, (6, spec.size)).astype(np.float32)
    playing: dict[int, Any] = {}
    for tick in range(12):
        for lane in range(32):
            if lane not in playing or rng.random() < 0.2:
                row = int(rng.integers(6))
                policy.begin(lane, row, -1, 0)
                playing[lane] = (with_parameters(spec, rows[row]), [], row)
        moved = np.arange(32) if tick % 3 else np.sort(rng.choice(32, 20, replace=False))
        policy.observations[:] = rng.normal(size=(32, 4))
        assert policy.act(moved, rows, plain_view(spec)) is not None
        for position, lane in enumerate(moved):
            module, state, _ = playing[lane]
            seen = torch.from_numpy(policy.observations[lane : lane + 1].copy())
            given = module(seen, *state)
            if isinstance(given, tuple):
                state[:] = given[1:]
                given = given[0]
            np.testing.assert_allclose(
                policy.outputs[position], given.ravel().numpy(), rtol=1e-4, atol=1e-5
            )
        if tick == 0:  # the same bits in another lane, beside others
            few.begin(0, playing[moved[7]][2], -1, 0)
            few.observations[:] = policy.observations[moved[7]]
            few.act(np.array([0]), rows, plain_view(spec))
            np.testing.assert_array_equal(few.outputs[0], policy.outputs[7])


@pytest.mark.parametrize(
    "original",
    [
        torch.nn.GRU(5, 7, 2, batch_first=True, bidirectional=True),
        torch.nn.LSTM(5, 7, 2, bidirectional=True),
        torch.nn.LSTM(5, 7, proj_size=3),
        torch.nn.RNN(5, 7, 2, nonlinearity="relu", bias=False),
    ],
    ids=["GRU", "LSTM", "projected", "RNN"],
)
@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 5)])
def test_recurrent_modules_are_replaced_by_equals_of_the_same_names(original, shape):
    holder = torch.nn.ModuleDict({"core": copy.deepcopy(original)})
    names = list(dict(holder.named_parameters()))
    replaced, where = replace(holder)
    assert where == ["core"] and list(dict(replaced.named_parameters())) == names
    steps = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, state = original(steps)
        expected, last = original(steps, state)
        found, ended = replaced["core"](steps, state)
    for one, other in zip((expected, *last), (found, *ended), strict=True):
        torch.testing.assert_close(one, other)


def test_returns_do_not_depend_on_the_lanes():
    spec = spec_of("Remembers")
    maker = environments.maker(spec.environment)
    theta = np.random.default_rng(1).normal(0, 0.5, spec.size).astype(np.float32)
    one, many = (Lanes(spec, maker, count, grant=Grant(ALLOWED)) for count in (3, 50))
    first, second = one.evaluate(JOB, theta), many.evaluate(JOB, theta)
    np.testing.assert_array_equal(first.returns, second.returns)
    assert first.returns.std() > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Counts", "changes its buffers"),
        ("Dice", "gives other outputs each time"),
        ("Awake", "begins with another state than zeros"),
        ("Two", "gives tuple for one observation"),
        ("Undefined", "gives NaN"),
        ("Odd", "gives complex64 for one observation"),
        ("Exits", r"fails on an observation of shape \(1, 4\) \(SystemExit: 3\)"),
        ("Remembering", "a state that holds int"),
        ("Grows", "gives another form of state"),
        ("OldNorm", "can't be copied"),
    ],
)
def test_what_depends_on_more_than_it_is_given_is_refused(name, words):
    with pytest.raises(PolicyUnavailable, match=words) as told:
        policy_of(spec_of(name), 2)
    assert "\n" not in str(told.value)


def test_a_module_that_would_end_the_process_fails_instead():
    with pytest.raises(PolicyUnavailable, match=r"can't be made \(SystemExit: 3\)"):
        modules.load("tests.worker.nets:Exits", {"made": True}, ALLOWED)
    spec = spec_of("ExitsLater")
    policy = policy_of(spec, 1)
    policy.begin(0, 0, -1, 0)
    policy.observations[:] = 1e7
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        policy.act(np.array([0]), np.zeros((1, spec.size), np.float32), plain_view(spec))


def test_what_stands_in_is_compared_with_what_it_stands_for():
    assert "plain sums can't stand in for core" in policy_of(spec_of("Asks"), 2).remark
    assert policy_of(spec_of("Remembers"), 2).remark == ""


def test_what_can_not_be_batched_is_named():
    remark = policy_of(spec_of("Branches"), 2).remark
    assert "Branches: lanes are computed one after the other: gate (Gate) can't be" in remark


@pytest.mark.parametrize(
    ("path", "arguments", "allowed", "words"),
    [
        ("tests.worker.nets:Net", {}, ("tests.work", "nets"), "--allow-module tests"),
        ("tests.worker.nowhere:Net", {}, ALLOWED, "can't be imported"),
        ("tests.worker.nets:Nat", {}, ALLOWED, "can't be imported"),
        ("tests.worker.nets:load", {}, ALLOWED, "must be a class that inherits"),
        ("tests.worker.nets:Tensor", {}, ALLOWED, "must be a class that inherits"),
        ("tests.worker.nets:Net", {"width": 3}, ALLOWED, "policy.arguments"),
    ],
)
def test_a_module_that_can_not_be_had_is_refused(path, arguments, allowed, words):
    with pytest.raises(PolicyUnavailable, match=words):
        modules.load(path, arguments, allowed)


def test_a_module_with_other_parameters_than_the_spec_says_is_refused():
    spec = spec_of("Net")
    other = modules.load(spec.policy.module, {"hidden": (9,)}, ALLOWED)
    with pytest.raises(PolicyUnavailable, match=r"hidden\.0\.weight.*install the version"):
        modules.require_same(spec.policy.module, other, spec.policy.parameters)
    module = modules.load(spec.policy.module, {}, ALLOWED)
    modules.require_same(spec.policy.module, module, spec.policy.parameters)


def test_nothing_is_imported_that_is_not_allowed():
    code = (
        "import sys\n"
        "from worker.policies import modules\n"
        "try: modules.load('tests.worker.nets:Net', {}, ('tests.workers',))\n"
        "except modules.PolicyUnavailable: pass\n"
        "sys.exit(bool({'tests.worker.nets', 'tests', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_parameters_are_what_pytorch_makes_of_the_seed():
    first, again, other = (modules.load("tests.worker.nets:Net", {}, ALLOWED, s) for s in (5, 5, 6))
    torch.manual_seed(5)
    expected = nets.Net()
    for one, two, three in zip(
        first.parameters(), again.parameters(), expected.parameters(), strict=True
    ):
        assert torch.equal(one, two) and torch.equal(one, three)
    assert not torch.equal(first.out.weight, other.out.weight)


async def test_a_process_plays_a_module_that_is_allowed_and_says_how():
    spec = spec_of("Branches")
    evaluators = Evaluators()
    with pytest.raises(EnvironmentUnavailable, match=r"is not allowed here.*--allow-module tests"):
        await evaluators.start(spec, 1)
    evaluators = Evaluators()
    await evaluators.start(spec, 1, ALLOWED)
    try:
        assert "gate (Gate) can't be" in evaluators.remark
        theta = np.random.default_rng(1).normal(0, 0.5, spec.size).astype(np.float32)
        await evaluators.set_theta(0, theta)
        told: list[Evaluation] = []
        await evaluators.evaluate(JOB, told.append)
    finally:
        await evaluators.close()
    here = Lanes(spec, environments.maker(spec.environment), 3, grant=Grant(ALLOWED))
    np.testing.assert_array_equal(
        np.concatenate([part.returns for part in told]), here.evaluate(JOB, theta).returns
    )
