from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from coordinator import initial
from coordinator.composing import compose
from protocol import snapshot
from protocol.errors import ShoalError
from protocol.policy_file import to_tensors
from protocol.spec import RunSpec, SpecError
from tests.worker.reference import run_spec
from worker import read_state_dict


def spec_of(**policy: Any) -> RunSpec:
    return run_spec(policy={"kind": "gru", "hidden": [3, 2], **policy})


def theta_of(spec: RunSpec) -> Any:
    return np.arange(spec.size, dtype=np.float32) / 7


def test_a_policy_file_and_a_runs_directory_begin_a_run(tmp_path: Path) -> None:
    spec = spec_of()
    tensors = to_tensors(spec, theta_of(spec), (np.ones(4, np.float32), np.ones(4, np.float32)))
    save_file(tensors, tmp_path / "policy.safetensors")
    for file in (tmp_path, tmp_path / "policy.safetensors"):
        begun, first = initial.begin(spec, file)
        np.testing.assert_array_equal(first.theta, theta_of(spec))
        assert first.version == 0 and begun.policy.initialisation == "given"
        assert begun.policy.initial_digest == snapshot.state_digest(first).hex()


def test_a_state_dict_of_torch_begins_a_run_by_its_names_or_its_order(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    spec = spec_of()
    parts = {
        name: torch.from_numpy(tensor)
        for name, tensor in to_tensors(spec, theta_of(spec), None).items()
    }
    torch.save({"model_state_dict": dict(reversed(parts.items())), "epoch": 3}, tmp_path / "a.pt")
    renamed = {f"net.{place}": part for place, part in enumerate(parts.values())}
    torch.save({**renamed, "steps": torch.tensor(5)}, tmp_path / "b.pt")
    np.testing.assert_array_equal(initial.begin(spec, tmp_path / "b.pt")[1].theta, theta_of(spec))
    read_state_dict.convert(tmp_path / "a.pt", tmp_path / "a.safetensors")
    first = initial.begin(spec, tmp_path / "a.safetensors")[1]
    np.testing.assert_array_equal(first.theta, theta_of(spec))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gru.0.bias_ih": None}, ["gru.0.bias_ih of (9,) is missing"]),
        (
            {"readout.weight": np.ones((2, 6)), "more": np.ones(3)},
            ["readout.weight is (2, 6), not (2, 5)", "it has more of (3,)"],
        ),
        ({"readout.bias": np.array([1.0, np.nan])}, ["NaN or infinity"]),
        (dict.fromkeys(["gru.0.bias_ih"]) | {"x": np.ones(9)}, ["missing", "it has x"]),
    ],
)
def test_what_does_not_fit_is_told_layer_by_layer(
    tmp_path: Path, change: dict[str, Any], words: list[str]
) -> None:
    spec = spec_of()
    tensors = to_tensors(spec, theta_of(spec), None) | change
    kept = {name: np.asarray(t, np.float32) for name, t in tensors.items() if t is not None}
    save_file(kept, tmp_path / "a.safetensors")
    with pytest.raises(SpecError) as caught:
        initial.begin(spec, tmp_path / "a.safetensors")
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_files_that_hold_no_parameters_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "a.pt").write_bytes(b"cos\nsystem\n(S'touch harmed'\ntR.")
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(ShoalError, match=r"torch.save"):
        read_state_dict.convert(tmp_path / "a.pt", tmp_path / "out")
    for name, words in (
        ("a.safetensors", "can't be read"),
        ("b", "there is no such file"),
    ):
        with pytest.raises(SpecError, match=words):
            initial.read(tmp_path / name)


def test_composing_takes_the_parameters_and_no_other_initialisation(tmp_path: Path) -> None:
    flags = {"policy": {"kind": "linear"}}
    spec, _ = compose("CartPole-v1", flags)
    save_file(to_tensors(spec, theta_of(spec), None), tmp_path / "a.safetensors")
    spec, first = compose("CartPole-v1", flags, init=tmp_path / "a.safetensors")
    assert first is not None and spec.policy.initialisation == "given"
    np.testing.assert_array_equal(first.theta, theta_of(spec))
    with pytest.raises(SpecError, match=r"--init .* leave one out"):
        compose("CartPole-v1", flags, ["policy.initialisation=zero"], init=tmp_path)
