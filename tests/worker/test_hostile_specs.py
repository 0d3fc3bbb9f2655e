"""Specs that mean harm, or are honest and don't fit this machine: one clear line, soon."""

from __future__ import annotations

import math
import resource
import sys
import time
from typing import Any

import msgspec
import pytest

from protocol import spec as run_specs
from protocol.packing import MAX_MESSAGE, pack
from protocol.spec import SpecError
from tests.worker.evaluating import DEADLINE
from tests.worker.reference import box, discrete, run_spec
from worker.evaluation import environments
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable

SECONDS = 2.0
"""That any answer may take, on a machine that is busy."""
MEMORY = 256 << 20

NAN, INFINITY = math.nan, math.inf
IMAGE = {**box(84, 84, 1), "dtype": "uint8"}
MODULE = {
    "kind": "module",
    "module": "package.nets:Net",
    "parameters": [["a", [1]]],
    "initialisation": "given",
    "initial_digest": "0" * 32,
}


def stack(n: Any) -> dict[str, Any]:
    return {"kind": "frame-stack", "n": n}


def nested(depth: int, width: int = 1) -> dict[str, Any]:
    space = discrete(2)
    for _ in range(depth):
        space = {"kind": "tuple", "spaces": [space] * width}
    return space


def named(*names: str, spaces: int) -> dict[str, Any]:
    return {"kind": "dict", "names": list(names), "spaces": [discrete(2)] * spaces}


def acting(low: Any, high: Any, size: int = 1) -> dict[str, Any]:
    return {**box(size), "low": [low] * size, "high": [high] * size}


def seen(space: dict[str, Any]) -> dict[str, Any]:
    return {"observation": space}


def cnn(*convolutions: Any, image: Any = IMAGE) -> dict[str, Any]:
    policy = {"kind": "cnn", "convolutions": list(convolutions)}
    return {"policy": policy, "environment": seen(image)}


def module(**changes: Any) -> dict[str, Any]:
    return {"policy": {**MODULE, **changes}}


ENVIRONMENT: list[tuple[str, dict[str, Any], str]] = [
    # name, fields of the environment, words of the answer
    ("nine wrappers", {"wrappers": [stack(1)] * 9}, "environment.wrappers is .* at most 8"),
    ("no frames", {"wrappers": [stack(0)]}, r"wrappers\[0\].n is 0: must be at least 1"),
    ("101 frames", {"wrappers": [stack(101)]}, r"n is 101: must be at most 100"),
    ("half a frame", {"wrappers": [stack(1.5)]}, r"n is 1.5: must be a whole number"),
    ("frames by word", {"wrappers": [stack("all")]}, r"n is 'all': must be a whole number"),
    ("frames unsaid", {"wrappers": [{"kind": "frame-stack"}]}, r"wrappers\[0\].n` is missing"),
    ("a wrapper of their own", {"wrappers": [{"kind": "record-video"}]}, "'record-video': must be"),
    ("a wrapper by name", {"wrappers": "atari"}, "'atari': must be a list"),
    ("a screen of 10^9", {"wrappers": [{"kind": "atari", "screen_size": 10**9}]}, "screen_size is"),
    ("10^9 no-ops", {"wrappers": [{"kind": "atari", "noop_max": 10**9}]}, "noop_max is 1000000000"),
    ("an endless repeat", {"wrappers": [{"kind": "action-repeat", "n": 10**9}]}, "at most 100"),
    ("a clip at NaN", {"wrappers": [{"kind": "reward-clip", "low": NAN}]}, r"low is nan: must be"),
    ("a clip at -inf", {"wrappers": [{"kind": "reward-clip", "low": -INFINITY}]}, "low is -inf"),
    ("a clip upside down", {"wrappers": [{"kind": "reward-clip", "low": 2.0}]}, "lower one comes"),
    ("seven tuples", seen(nested(7)), "environment.observation has composite spaces more than 6"),
    ("thirty tuples", seen(nested(30)), "more than 6 deep in one another: use fewer levels"),
    ("1331 parts", seen(nested(3, 11)), "more than 1,024 parts: join some"),
    ("257 parts", seen(nested(1, 257)), "environment.observation.spaces is .* at most 256"),
    ("no parts", seen({"kind": "tuple", "spaces": []}), "spaces is .*: must be at least 1"),
    ("a box of 10^57", seen(box(*[1 << 24] * 8)), r"has 6.28e\+57 numbers, over the limit of"),
    ("a box of 2^25", seen(box(1 << 25)), r"shape\[0\] is 33554432: must be at most 16,777,216"),
    ("nine axes", seen(box(*[1] * 9)), "environment.observation.shape is .* at most 8"),
    ("no numbers", seen(box(0)), r"shape\[0\] is 0: must be at least 1"),
    ("fewer than none", seen(box(-1)), r"shape\[0\] is -1"),
    ("complex numbers", seen({**box(1), "dtype": "complex128"}), "dtype is 'complex128'"),
    ("2^62 observations", seen(discrete(2**62)), "environment.observation.n is 461168601842738790"),
    ("2^64 observations", seen(discrete(2**64 - 1)), "n is 18446744073709551615: must be at most"),
    ("4096 x 2^20 choices", seen({"kind": "multi-discrete", "choices": [1 << 20] * 4096,
                                  "shape": [4096]}), "over the limit of 16,777,216"),
    ("choices astray", seen({"kind": "multi-discrete", "choices": [2], "shape": [4096]}),
     "1 choices and 0 starts in an array of shape"),
    ("2^48 switches", seen({"kind": "multi-binary", "shape": [1 << 24, 1 << 24]}), "over the limi"),
    ("a name twice", seen(named("a", "a", spaces=2)), "2 spaces and 1 different names"),
    ("a name too few", seen(named("a", spaces=2)), "2 spaces and 1 different names"),
    ("a name that rings", seen(named("\x07", spaces=1)), "a name that can't be printed"),
    ("a space unknown", seen({"kind": "sequence"}), "kind is 'sequence': must be one of"),
    ("a space without kind", seen({"shape": [4]}), "environment.observation.kind"),
    ("no space", seen({}), "environment.observation.kind"),
    ("no actions", {"action": discrete(0)}, "environment.action.n is 0: must be at least 1"),
    ("actions from 2^62", {"action": {**discrete(2), "start": 2**62}}, "environment.action.start"),
    ("actions to NaN", {"action": acting(0.0, NAN)}, "environment.action has a bound that is NaN"),
    ("actions to infinity", {"action": acting(0.0, INFINITY)}, "need finite ones"),
    ("actions without bounds", {"action": box(3)}, "3 elements but 0 low and 0 high bounds"),
    ("actions of bytes", {"action": {**acting(0.0, 1.0), "dtype": "uint8"}}, "a box of uint8"),
    ("5000 bounds", {"action": acting(0.0, 1.0, 5000)}, "can't be read .*: the host must mend it"),
    ("an id with spaces", {"id": "../../x y"}, "environment.id is '../../x y': must be letters"),
    ("an id of 129", {"id": "a" * 129}, "must be letters, digits and .* at most 128"),
    ("another backend", {"backend": "atari"}, "must be one of 'gymnasium', 'jax', 'objec"),
    ("an argument 'a b'", {"kwargs": {"a b": 1}}, "environment.kwargs has the name 'a b'"),
    ("an argument of 65", {"kwargs": {"x" * 65: 1}}, "a Python name of at most 64"),
    ("an argument of NaN", {"kwargs": {"a": NAN}}, "environment.kwargs.a is nan: must be finite"),
    ("an argument of 2^64", {"kwargs": {"a": 2**64 - 1}}, "kwargs.a is 1844.*: must fit 64 bits"),
    ("a long argument", {"kwargs": {"a": "x" * 257}}, "kwargs.a is 257 bytes long"),
    ("a table as argument", {"kwargs": {"a": {"b": 1}}}, "environment.kwargs is .* must be one of"),
    ("65 arguments", {"kwargs": {f"a{n}": 1 for n in range(65)}}, "at most 64 entries"),
    ("a cap of 1", {"cap": 1.0}, "environment.cap is 1.0: must be above 1"),
    ("a cap of NaN", {"cap": NAN}, "environment.cap is nan"),
    ("a cap of infinity", {"cap": INFINITY}, "environment.cap is inf: must be at most 1,000"),
    ("a cap below 0", {"cap": -1.0}, "environment.cap is -1.0: must be at least 0"),
    ("a cap of no steps", {"cap_minimum": 0}, "cap_minimum is 0: must be at least 1"),
    ("no episodes", {"episodes": 0}, "environment.episodes is 0: must be at least 1"),
    ("1025 episodes", {"episodes": 1025}, "environment.episodes is 1025: must be at most 1,024"),
    ("episodes by word", {"episodes": "8"}, "environment.episodes is '8': must be a whole number"),
    ("10^7 + 1 steps", {"max_steps": 10**7 + 1}, "max_steps is 10000001: must be at most"),
    ("2^64 steps", {"max_steps": 2**64 - 1}, "max_steps is 18446744073709551615: must be"),
    ("steps below 0", {"max_steps": -1}, "environment.max_steps is -1: must be at least 0"),
    ("another seeding", {"seeding": "random"}, "environment.seeding is 'random': must be one of"),
]  # fmt: skip

OTHERS: list[tuple[str, dict[str, Any], str]] = [
    # name, tables, words of the answer
    ("8 x 65536 units", {"policy": {"hidden": [65536] * 8}}, r"3.01e\+10 parameters, over the lim"),
    ("65537 units", {"policy": {"hidden": [65537]}}, r"policy.hidden\[0\] is 65537: must be at mo"),
    ("no units", {"policy": {"hidden": [0]}}, r"policy.hidden\[0\] is 0: must be at least 1"),
    ("nine layers", {"policy": {"hidden": [1] * 9}}, "policy.hidden is .* at most 8 entries"),
    ("65536 gated units", {"policy": {"kind": "gru", "hidden": [65536]}}, r"1.29e\+10 parameters"),
    ("no image", {"policy": {"kind": "cnn"}}, "are no images of two or three dimensions"),
    ("a stride of 0", cnn([8, 3, 0]), r"policy.convolutions\[0\]\[2\] is 0: must be at least 1"),
    ("no stride", cnn([8, 3]), r"policy.convolutions\[0\] is \[8, 3\]: must be 3 entries long"),
    ("a stride too many", cnn([8, 3, 1, 1]), r"\[8, 3, 1, 1\]: must be 3 entries long"),
    ("a kernel too large", cnn([8, 64, 1], [8, 64, 1]), "kernel of 64 in layer 1, which sees only"),
    ("10^9 weights", cnn([4096, 64, 1], image={**box(84, 84, 83), "dtype": "uint8"}), r"1.45e\+09"),
    ("a path with a ;", module(module="os;import sys:X"), "policy.module is 'os;import sys:X': mu"),
    ("a path with dots", module(module="..os:X"), "must be a module and a class in it, such as"),
    ("a path on disk", module(module="/etc/passwd:X"), "policy.module is '/etc/passwd:X'"),
    ("a path of lines", module(module="os:X\n"), r"policy.module is 'os:X\\n'"),
    ("a path with NUL", module(module="o\0s:X"), r"policy.module is 'o\\x00s:X'"),
    ("a long path", module(module="a." * 120 + "b:X"), "must be a module and a class"),
    ("no class", module(module="os"), "policy.module is 'os': must be a module and a class in it"),
    ("a path and an mlp", {"policy": {"module": "os:system"}}, 'kind is "mlp" with policy.mo'),
    ("no parameters", module(parameters=[]), "policy.parameters is empty"),
    ("parameters twice", module(parameters=[["a", [1]]] * 2), "policy.parameters has a name twice"),
    ("a name on disk", module(parameters=[["../a", [1]]]), r"'../a': must be letters, digits and"),
    ("a name alone", module(parameters=[["a"]]), r"policy.parameters\[0\] is .* 2 entries long"),
    ("10^12 parameters", module(parameters=[["a", [10**6] * 2]]), r"1e\+12 parameters"),
    ("10^57 parameters", module(parameters=[["a", [1 << 24] * 8]]), r"6.28e\+57 parameters"),
    ("a digest of z", module(initial_digest="zz"), "must be 32 hexadecimal digits"),
    ("arguments in arguments", module(arguments={"a": {"b": 1}}), "policy.arguments"),
    ("10^9 members", {"strategy": {"population": 10**9}}, "strategy.population is 1000000000"),
    ("a sigma of NaN", {"strategy": {"sigma": NAN}}, "strategy.sigma is nan"),
    ("a name on disk too", {"name": "../../x"}, "name is '../../x': must be lower-case letters"),
    ("another protocol", {"protocol": 2}, "speaks protocol 2"),
    ("fields unknown", {"evil\n\x1b[2J": 1}, "unknown field"),
]  # fmt: skip

CASES = [(name, {"environment": fields}, words) for name, fields, words in ENVIRONMENT] + OTHERS


def peak() -> int:
    """Bytes that this process has had at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.parametrize(
    ("tables", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_spec_that_breaks_a_rule_is_refused_in_one_line(
    tables: dict[str, Any], words: str
) -> None:
    raw: dict[str, Any] = {"name": "test", "seed": 7, **tables}
    plain = {"id": "CartPole-v1", "observation": box(4), "action": discrete(2)}
    raw["environment"] = {**plain, **tables.get("environment", {})}
    data = pack(raw)
    assert len(data) < MAX_MESSAGE
    began, before = time.monotonic(), peak()
    with pytest.raises(SpecError, match=words) as told:
        run_specs.from_bytes(data)
    line = str(told.value)
    assert line.isprintable() and len(line) < 500 and "`str`" not in line
    assert time.monotonic() - began < SECONDS and peak() - before < MEMORY


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93\x01",
        pack([1, 2]),
        pack("x" * 1000),
        b"\x91" * 3000 + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81" * 1000,
    ],
    ids=range(8),
)
def test_what_is_no_spec_at_all_is_refused_in_one_line(data: bytes) -> None:
    before = peak()
    with pytest.raises(SpecError, match="the host must mend it") as told:
        run_specs.from_bytes(data)
    assert str(told.value).isprintable() and peak() - before < MEMORY


CHEETAH = {
    "id": "HalfCheetah-v5",
    "observation": box(17),
    "action": acting(-1.0, 1.0, 6),
}
PONG = {**box(4, 84, 84), "dtype": "uint8"}

HERE: list[tuple[str, dict[str, Any], str]] = [
    # name, fields of the environment, words of the answer
    ("an argument unknown", {"kwargs": {"pole": 3}}, "'pole': 3.*: give it arguments that it take"),
    ("another's id", {"kwargs": {"id": "Pendulum-v1"}}, "multiple values for argument 'id'"),
    ("steps by word", {"kwargs": {"max_episode_steps": "x"}}, "to be an integer"),
    ("steps below 0", {"kwargs": {"max_episode_steps": -5}}, r"actually: -5\): mend these"),
    ("a window", {"kwargs": {"render_mode": "human"}}, "render_mode is 'human', which would open"),
    ("all frames kept", {"kwargs": {"render_mode": "rgb_array_list"}}, "keeps every frame"),
    ("a mode of 5", {"kwargs": {"render_mode": 5}}, "CartPole-v1 can't be made here with environm"),
    ("100^8 frames", {"wrappers": [stack(100)] * 8, "observation": box(100, 4)},
     "100 frames are 400,000,000 numbers, over the limit of 16,777,216\\): take it off"),
    ("Atari of no game", {"wrappers": [{"kind": "atari"}], "observation": PONG},
     "can't be wrapped in 'atari'"),
    ("Atari that is not here", {"id": "ALE/Nowhere-v5", "observation": PONG}, "install the packag"),
    ("no bounds to rescale", {"wrappers": [{"kind": "rescale-observation"}]}, "'rescale-observati"),
    ("a map that is none", {"id": "FrozenLake-v1", "kwargs": {"map_name": "9999x9999"},
                            "observation": discrete(16), "action": discrete(4)}, "KeyError: '9999"),
    ("more observations", {"observation": box(5)}, "the observation space of CartPole-v1 is .* he"),
    ("observations of bytes", {"observation": {**box(4), "dtype": "uint8"}}, "install the version"),
    ("more actions", {"action": discrete(3)}, "the action space of CartPole-v1 is .* here but"),
    ("other actions", {"action": {**discrete(2), "start": 1}}, "or mend the spec"),
    ("an id that imports", {"id": "os:CartPole-v1"}, "would import the module 'os'"),
    ("arguments that import", {"id": "GymV21Environment-v0", "kwargs": {"env_id": "os"}},
     "imports any module that its arguments name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"), [case[1:] for case in HERE], ids=[case[0] for case in HERE]
)
def test_an_environment_that_can_not_be_as_the_spec_says_is_told_in_one_line(
    fields: dict[str, Any], words: str
) -> None:
    fields = dict(fields)
    spec = run_spec(fields.pop("id", "CartPole-v1"), environment=fields)
    spec = run_specs.from_bytes(run_specs.to_bytes(spec))
    began, before = time.monotonic(), peak()
    with pytest.raises(EnvironmentUnavailable, match=words) as told:
        environments.maker(spec.environment).make()
    line = str(told.value)
    assert line.isprintable() and len(line) < 500
    assert time.monotonic() - began < 2 * SECONDS and peak() - before < MEMORY


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"xml_file": "/etc/passwd"}, "can't be made here"),
        ({"xml_file": "../../nowhere.xml"}, "nowhere.xml does not exist"),
        ({"frame_skip": 0}, r"frame_skip.*: 0"),
        ({"ctrl_cost_weight": "much"}, "every trial episode of HalfCheetah-v5 fails here"),
        ({"reset_noise_scale": 1e308}, "every trial episode of HalfCheetah-v5 fails here"),
    ],
    ids=str,
)
def test_arguments_that_a_simulator_chokes_on_are_told(fields: dict[str, Any], words: str) -> None:
    pytest.importorskip("mujoco")
    from worker.evaluation.probe import probe

    given = {key: value for key, value in CHEETAH.items() if key != "id"}
    spec = run_spec("HalfCheetah-v5", environment={**given, "kwargs": fields})
    with pytest.raises(EnvironmentUnavailable, match=words) as told:
        probe(spec, environments.maker(spec.environment), lambda take: None)
    assert str(told.value).isprintable()


async def test_a_process_says_that_an_environment_is_another_one_here_and_work_goes_on() -> None:
    honest = run_spec("CartPole-v1")
    environment = msgspec.structs.replace(
        honest.environment, observation=run_spec("Pendulum-v1").environment.observation
    )
    other = msgspec.structs.replace(honest, environment=environment)
    evaluators = Evaluators(DEADLINE)
    with pytest.raises(EnvironmentUnavailable, match=r"\(4,\).* here but Box\(shape=\(3,\)"):
        await evaluators.start(other, 1, lanes=8)
    assert not evaluators._children
    evaluators = Evaluators(DEADLINE)
    await evaluators.start(honest, 1, lanes=8)
    assert evaluators.ready == 1
    await evaluators.close()
