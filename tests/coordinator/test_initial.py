from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from coordinator import host, initial
from coordinator.composing import compose
from coordinator.history.fork import carried_over
from coordinator.history.past import opened
from coordinator.history.rebuild import rebuild, save_policy
from coordinator.history.verify import verify_directory
from protocol import normalizer, snapshot
from protocol.errors import ShoalError
from protocol.frozen import Snapshots
from protocol.policy_file import to_tensors
from protocol.spec import RunSpec, SpecError
from tests.coordinator import runs
from tests.coordinator.history.conftest import lead
from tests.worker.reference import run_spec
from worker import read_state_dict


def spec_of(**policy: Any) -> RunSpec:
    return run_spec(policy={"kind": "gru", "hidden": [3, 2], **policy})


def theta_of(spec: RunSpec) -> Any:
    return np.arange(spec.size, dtype=np.float32) / 7


def test_a_policy_file_and_a_runs_directory_begin_a_run(tmp_path: Path) -> None:
    spec = spec_of()
    seen = normalizer.continued(2.0, np.ones(4), np.ones(4), 1)
    tensors = to_tensors(spec, theta_of(spec), seen)
    save_file(tensors, tmp_path / "policy.safetensors")
    for file in (tmp_path, tmp_path / "policy.safetensors"):
        begun, first, _ = initial.begin(spec, file)
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
    torch.save({**renamed, "steps": torch.tensor(5)}, tmp_path / "b.bin")
    np.testing.assert_array_equal(initial.begin(spec, tmp_path / "b.bin")[1].theta, theta_of(spec))
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
    spec = compose("CartPole-v1", flags).spec
    save_file(to_tensors(spec, theta_of(spec), None), tmp_path / "a.safetensors")
    spec, first, told = compose("CartPole-v1", flags, init=tmp_path / "a.safetensors")
    assert not told
    assert first is not None and spec.policy.initialisation == "given"
    np.testing.assert_array_equal(first.theta, theta_of(spec))
    with pytest.raises(SpecError, match=r"--init .* leave one out"):
        compose("CartPole-v1", flags, ["policy.initialisation=zero"], init=tmp_path)


def test_who_is_killed_before_the_beginning_is_kept_has_begun_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(snapshots: Snapshots, state: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Snapshots, "freeze", killed)
    save_file(to_tensors(spec_of(), theta_of(spec_of()), None), tmp_path / "policy.safetensors")
    begun, first, _ = initial.begin(spec_of(), tmp_path / "policy.safetensors")
    with pytest.raises(KeyboardInterrupt):
        host.prepare(begun, tmp_path / "run", first=first)
    assert not (tmp_path / "run" / "spec.toml").exists(), "who finds it goes on"


NORMALISED = {"policy": {"kind": "linear"}, "normalizer": {"enabled": True}}


def test_statistics_come_along_to_the_bit_from_whatever_holds_them(tmp_path: Path) -> None:
    old = runs.spec_of(**NORMALISED, pool={"max_staleness": 2})
    states = lead(host.prepare(old, tmp_path / "old"), 3)
    with opened(tmp_path / "old") as past:
        reached = rebuild(past, 3, False, print, lambda done, total: None).state
        save_policy(past, reached, tmp_path / "old" / "policy.safetensors")
    snapshots = host.resume(tmp_path / "old").directory
    snapshots.snapshots.freeze(states[3])
    snapshots.close()
    spec = runs.spec_of(**NORMALISED, seed=5)
    forked = carried_over(old, spec, states[3]).normalizer
    for file in ("", "policy.safetensors", "snapshots/snapshot-3.bin"):
        begun, first, told = initial.begin(spec, tmp_path / "old" / file)
        assert first.normalizer is not None and forked is not None
        np.testing.assert_array_equal(first.theta, states[3].theta)
        assert (first.normalizer.count, first.normalizer.window) == (forked.count, 1)
        for name in ("mean", "squares", "shifts", "exponents"):
            ours, theirs = (getattr(one, name) for one in (first.normalizer, forked))
            np.testing.assert_array_equal(ours, theirs)
        assert f"go on, as those of {forked.count:,.0f} frames" in told and "\n" not in told
    # They are a part of version 0, which the log proves, and of whatever is made of it.
    led = lead(host.prepare(begun, tmp_path / "new", first=first), 2)
    assert verify_directory(tmp_path / "new", (), lambda done, total: None).sound
    with opened(tmp_path / "new") as past:
        again = rebuild(past, 2, True, print, lambda done, total: None).state
    assert snapshot.state_digest(again) == snapshot.state_digest(led[2])
    assert led[2].normalizer is not None and led[2].normalizer.count > forked.count


def test_a_mean_and_deviation_alone_count_as_a_number_of_frames_that_is_told(
    tmp_path: Path,
) -> None:
    spec = run_spec(**NORMALISED)
    inverse = np.array([1 / 3, 0.0, 7.7, 1e-3], np.float32)
    tensors: Any = to_tensors(spec, theta_of(spec), None)
    tensors |= {"observation.mean": np.arange(4, dtype=np.float32) / 3}
    tensors |= {"observation.inverse_deviation": inverse}
    save_file(tensors, tmp_path / "a.safetensors")
    _, first, told = initial.begin(spec, tmp_path / "a.safetensors")
    assert first.normalizer is not None and first.normalizer.count == initial.FRAMES
    np.testing.assert_array_equal(
        first.normalizer.policy_input(), (tensors["observation.mean"], inverse)
    )
    assert f"{initial.FRAMES:,} frames, which it has no number of" in told


@pytest.mark.parametrize(
    ("normalised", "change", "words"),
    [
        (False, {}, "a run without a normaliser leaves out"),
        (True, None, "holds no observation statistics: the run's begin anew"),
        (True, {"observation.exact_mean": np.zeros(3)}, "of shape (3,), the run's are of (4,)"),
        (True, {"observation.count": np.array([1.5])}, "impossible observation statistics"),
        (True, {"observation.count": np.array([np.inf])}, "impossible observation statistics"),
        (True, {"observation.exact_mean": np.full(4, np.nan)}, "impossible"),
        (True, {"observation.exact_mean": np.full(4, 1e39)}, "impossible"),
        (True, {"observation.squared_deviations": np.full(4, -1.0)}, "impossible"),
        (True, {"observation.squared_deviations": np.full(4, 1e300)}, "impossible"),
    ],
)
def test_statistics_without_a_place_or_a_sense_are_told_of(
    tmp_path: Path, normalised: bool, change: dict[str, Any] | None, words: str
) -> None:
    spec = run_spec(policy={"kind": "linear"}, normalizer={"enabled": normalised})
    seen = None if change is None else normalizer.continued(9.0, np.ones(4), np.ones(4), 1)
    tensors: Any = to_tensors(spec, theta_of(spec), seen) | (change or {})
    save_file(tensors, tmp_path / "a.safetensors")
    try:
        _, first, told = initial.begin(spec, tmp_path / "a.safetensors")
        assert (first.normalizer is not None) is normalised
        assert first.normalizer is None or first.normalizer.count == 0.0
    except SpecError as error:
        told = str(error)
    assert words in told and "\n" not in told
    if normalised and change is not None:
        assert "give" in told


def test_a_snapshot_outside_of_its_runs_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "snapshot-3.bin").write_bytes(snapshot.MAGIC)
    with pytest.raises(SpecError, match="is no snapshot in the directory of its run"):
        initial.read(tmp_path / "snapshot-3.bin")
