import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from protocol import noise
from protocol.spec import RunSpec
from tests.worker import reference
from tests.worker.reference import run_spec
from worker.evaluation import environments, probe
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.policies import batched, devices, making, modules
from worker.policies.devices import DeviceError
from worker.policies.making import Grant

torch = pytest.importorskip("torch")

from worker.policies.forms import form  # noqa: E402
from worker.policies.on_device import DevicePolicy  # noqa: E402

IMAGES = {"observation": {"kind": "box", "shape": [9, 8, 2], "dtype": "uint8"}}
MOVES = {"action": {**reference.box(2), "low": [-9.0, -9.0], "high": [9.0, 9.0]}}
POLICIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "linear"}, {}),
    ({"kind": "mlp", "hidden": [16, 12]}, {}),
    ({"kind": "mlp", "hidden": [7], "activation": "relu"}, {}),
    ({"kind": "mlp", "hidden": [7, 6], "activation": "gelu"}, {}),
    ({"kind": "gru", "hidden": [5, 4]}, {}),
    ({"kind": "lstm", "hidden": [5, 4]}, {}),
    ({"kind": "mlp", "action_noise": "learned", "squash": "tanh"}, MOVES),
    ({"kind": "lstm", "hidden": [5, 4], "action_noise": "learned"}, MOVES),
    ({"kind": "gru", "hidden": [5, 4], "action_noise": "predicted"}, MOVES),
    ({"kind": "tabular"}, {"observation": reference.discrete(9)}),
    ({"kind": "cnn", "hidden": [6], "convolutions": [[5, 3, 2], [4, 2, 1]]}, IMAGES),
]


def on_device(spec: RunSpec, lanes: int) -> DevicePolicy:
    """What runs on a GPU, on the CPU."""
    return DevicePolicy(spec, lanes, form(spec), "cpu")


@pytest.mark.parametrize(("policy", "environment"), POLICIES)
def test_built_in_policies_agree_with_their_pytorch_forms(policy, environment):
    spec = run_spec(policy=policy, environment=environment)
    assert modules.parameters_of(form(spec)) == [(t.name, t.shape) for t in spec.tensors]
    ours, theirs = making.make(spec, 6), on_device(spec, 6)
    assert (ours.path, theirs.path, theirs.remark) == ("kernel", "vmap", "")
    theta, rng = reference.theta(spec), np.random.default_rng(3)
    rows, members = ours.room(6), theirs.room(6)
    ours.members(5, 3, theta[ours.order], 0.3, rows)
    theirs.members(5, 3, theta, 0.3, members)
    for lane in range(6):
        ours.begin(lane, lane, -1, 0)
        theirs.begin(lane, lane, -1, 0)
    for _ in range(4):
        most = 9 if spec.policy.kind == "tabular" else 256
        seen = rng.integers(0, most, (6, *ours.targets[0].shape))
        for mine, other, value in zip(ours.targets, theirs.targets, seen, strict=True):
            mine[...] = other[...] = value
        lanes = np.arange(6)
        empty, none = np.empty(0), np.empty(0, np.float32)
        sums = np.zeros((0, spec.environment.observation.size, 4), np.uint64)
        view = batched.View(none, none, np.float32(5), empty, empty, sums)
        mine, other = ours.act(lanes, rows, view), theirs.act(lanes, members, view)
        assert mine is not None and other is not None
        many = ours.outputs.shape[1]
        scale = np.abs(ours.outputs).max()
        np.testing.assert_allclose(
            theirs.outputs[:, :many], ours.outputs, rtol=1e-4, atol=1e-5 * scale
        )
        np.testing.assert_allclose(other, mine, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", noise.KINDS)
@pytest.mark.parametrize(("first", "count"), [(0, 8), (13, 1), (5, 21)])
def test_members_of_a_device_are_those_of_the_protocol_bit_for_bit(kind, first, count):
    spec = run_spec(strategy={"noise": kind})
    policy, theta = on_device(spec, 2), reference.theta(spec)
    expected = noise.members(kind, spec.seed, first, count, theta, 0.37)
    rows = policy.room(2 * count)
    policy.members(first, count, theta, 0.37, rows)
    np.testing.assert_array_equal(rows.numpy(), expected)
    alone = on_device(run_spec(strategy={"noise": kind, "mirrored": False}), 2)
    mirrorless = alone.room(count)
    alone.members(first, count, theta, 0.37, mirrorless)
    np.testing.assert_array_equal(mirrorless.numpy(), expected[::2])
    sigmas = np.linspace(0.01, 1.0, theta.size)
    policy.members(first, count, theta, sigmas, rows)
    np.testing.assert_array_equal(
        rows.numpy(), noise.members(kind, spec.seed, first, count, theta, sigmas)
    )
    if count > 1:
        policy.members(first + 1, 1, theta, 0.37, rows)
        np.testing.assert_array_equal(rows[:2].numpy(), expected[2:4])
    policy.centre(theta, rows)
    np.testing.assert_array_equal(rows[0].numpy(), theta)


def test_episodes_on_a_device_are_those_of_our_kernels():
    spec = run_spec(
        "Pendulum-v1", policy={"kind": "gru", "hidden": [6]}, environment={"max_steps": 40}
    )
    maker = environments.maker(spec.environment)
    theta = reference.theta(spec)
    job = EvaluationJob("members", 0, 2, 20, sigma=0.2)
    kernels, device = Lanes(spec, maker, 8), Lanes(spec, maker, 8)
    device.policy = on_device(spec, 8)
    device.policy.block_bytes = 8 * spec.size * 6  # several blocks
    found, expected = device.evaluate(job, theta), kernels.evaluate(job, theta)
    np.testing.assert_allclose(found.returns, expected.returns, rtol=0.05)
    centre = EvaluationJob("centre", 0, 0, 3)
    found, expected = device.evaluate(centre, theta), kernels.evaluate(centre, theta)
    np.testing.assert_allclose(found.returns, expected.returns, rtol=0.05)


def test_numeric_classes_are_of_one_version_and_device(monkeypatch):
    spec = run_spec(policy={"hidden": [3]})
    maker = environments.maker(spec.environment)
    monkeypatch.setattr(making, "make", lambda spec, lanes, grant: on_device(spec, lanes))

    def found() -> bytes:
        return probe.probe(spec, maker, lambda take: None).numeric_class

    first = found()
    assert first == found() != b""
    monkeypatch.setattr(batched, "numerics", lambda device: "another version")
    assert found() not in (first, b"")


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:x", "CPU", ""])
def test_other_words_for_a_device_are_refused(text):
    with pytest.raises(DeviceError, match="must be auto, cpu, cuda"):
        devices.parse(text)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    assert (devices.parse("auto"), devices.parse("cpu")) == ("auto", "cpu")
    monkeypatch.setattr(devices, "cuda_devices", lambda: 0)
    with pytest.raises(DeviceError, match=r"has none \(or no driver\).*use --device cpu"):
        devices.parse("cuda")
    monkeypatch.setattr(devices, "cuda_devices", lambda: 2)
    with pytest.raises(DeviceError, match="has 2 of them"):
        devices.parse("cuda:2")
    assert devices.parse("cuda:1") == "cuda:1"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(DeviceError, match="install a PyTorch built for CUDA"):
        devices.choose("cuda:1", run_spec())


def test_auto_gives_small_networks_to_our_kernels_and_others_to_a_device(monkeypatch):
    cnn = run_spec(policy={"kind": "cnn", "convolutions": [[2, 2, 1]]}, environment=IMAGES)
    monkeypatch.setattr(devices, "cuda_devices", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose("auto", run_spec()) == "cpu"
    assert devices.choose("auto", cnn) == "cuda:0"
    monkeypatch.setattr(devices, "cuda_devices", lambda: 0)
    assert devices.choose("auto", cnn) == "cpu"


def test_pytorch_is_loaded_for_no_policy_of_our_own():
    code = (
        "import sys\n"
        "from tests.worker.reference import run_spec\n"
        "from worker.policies.making import Grant, make, together\n"
        "spec = run_spec()\n"
        "make(spec, 2, Grant((), 'auto')), together(spec, Grant((), 'auto'))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert making.make(run_spec(), 2, Grant((), "auto")).numerics == ""
