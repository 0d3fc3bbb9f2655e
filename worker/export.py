"""Trained policies as files for other programs, with the normaliser and the actions inside."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.policy_file import INVERSE, MEAN, to_tensors
from protocol.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from protocol.spec import RunSpec
from worker.acting import LoadedPolicy
from worker.evaluation.blocks import centre_seeds
from worker.evaluation.jobs import EvaluationJob
from worker.play import TrainedPolicy

if TYPE_CHECKING:
    import torch

FORMATS = ("safetensors", "torch", "torchscript", "onnx", "gymnasium-policy")
WHOLE = ("torchscript", "onnx", "gymnasium-policy")
"""Those that act by themselves; the others hold tensors alone."""
TOLERANCE = 1e-4
"""Of an action, as part of its range where that is larger than 1: two libraries round otherwise."""
STRAY_SHARE = 0.002
"""Of the steps at which a choice may differ, since two outputs were as good as equal."""

Act = Callable[[NDArray[Any], list[NDArray[Any]]], tuple[NDArray[Any], list[NDArray[Any]]]]
"""An observation, in a batch of one, and the memories before it: the action, those after it."""

SCRIPT = '''"""A policy that Shoal trained: `Policy()` acts in {environment}.

    policy = Policy()
    observation, _ = environment.reset()
    policy.reset()
    action = policy(observation)
"""

from pathlib import Path

import numpy as np
import torch


class Policy:
    """Needs PyTorch, and {model} beside this file."""

    def __init__(self) -> None:
        self._module = torch.jit.load(str(Path(__file__).with_name("{model}")))
        self._memories: list[torch.Tensor] = []
        self.reset()

    def reset(self) -> None:
        """An episode begins."""
        self._memories = [torch.zeros(shape) for shape in {memories}]

    def __call__(self, observation):
        """The action for an observation, as `environment.step` takes it."""
        given = torch.as_tensor(np.asarray(observation, dtype=np.float32)).reshape({shape})
        action, *self._memories = self._module(given, *self._memories)
        return {action}
'''


def export(trained: TrainedPolicy, kind: str, out: Path, allowed: tuple[str, ...] = ()) -> Path:
    """Write the policy in one of `FORMATS`; the path of what has to be opened.

    Raises `ShoalError` where the policy has no such form, or what it takes is not installed.
    """
    if kind == "safetensors":
        from safetensors.numpy import save_file

        about = {"version": str(trained.version), "run": trained.run}
        save_file(_named(trained), out, metadata=about)
        return out
    _require("torch", "torch")
    import torch

    if kind == "torch":
        torch.save({name: torch.tensor(value) for name, value in _named(trained).items()}, out)
        return out
    module, memories = _whole(trained, allowed)
    example = (torch.zeros(_shape(trained.spec)), *(torch.zeros(one) for one in memories))
    if kind == "onnx":
        _export_onnx(module, example, out)
        return out
    with torch.inference_mode(), _quiet():
        traced = torch.jit.trace(module, example, check_trace=False)
    model = out
    if kind != "torchscript":
        out.mkdir(exist_ok=True)
        model = out / "policy.pt"
    with _quiet():
        torch.jit.save(traced, str(model))
    if kind == "torchscript":
        return out
    action = trained.spec.environment.action
    text = SCRIPT.format(
        environment=trained.spec.environment.id,
        model="policy.pt",
        memories=memories,
        shape=_shape(trained.spec),
        action="int(action[0])" if isinstance(action, Discrete) else "action[0].numpy()",
    )
    (out / "policy.py").write_text(text, encoding="utf-8")
    return out / "policy.py"


def opened(path: Path, kind: str, spec: RunSpec) -> tuple[Act, list[tuple[int, ...]]]:
    """What an exported file does, by the library that others will run it with, and the shapes of
    its memories."""
    if kind == "onnx":
        import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]

        session = onnxruntime.InferenceSession(str(path))
        names = [one.name for one in session.get_inputs()]

        def run(
            seen: NDArray[Any], memories: list[NDArray[Any]]
        ) -> tuple[NDArray[Any], list[NDArray[Any]]]:
            action, *after = session.run(None, dict(zip(names, [seen, *memories], strict=True)))
            return action, after

        return run, [tuple(one.shape) for one in session.get_inputs()[1:]]
    import torch

    model = path.with_name("policy.pt") if kind == "gymnasium-policy" else path
    with _quiet():
        module = torch.jit.load(str(model))
    shapes = _memories(spec)

    def play(
        seen: NDArray[Any], memories: list[NDArray[Any]]
    ) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        with torch.inference_mode():
            action, *after = module(*map(torch.from_numpy, [seen, *memories]))
        return action.numpy(), [one.numpy() for one in after]

    return play, shapes


def check(
    trained: TrainedPolicy, path: Path, kind: str, episodes: int, allowed: tuple[str, ...] = ()
) -> tuple[int, int]:
    """Play episodes of the centre with our own kernels and ask the file at each step what it would
    do: (steps, steps at which a choice differed).

    Raises `ShoalError` where it would do something else.
    """
    spec = trained.spec
    ours = LoadedPolicy(trained, allowed)
    act, shapes = opened(path, kind, spec)
    environment = ours.environment()
    job = EvaluationJob("centre", trained.version, 0, episodes)
    low, high = _bounds(spec)
    steps = strays = 0
    for seed in centre_seeds(spec, job):
        observation, _ = environment.reset(seed=seed)
        ours.reset(seed)
        memories = [np.zeros(shape, np.float32) for shape in shapes]
        over = False
        while not over:
            action = ours(observation)
            seen = np.array(observation, dtype=np.float32).reshape(_shape(spec))
            theirs, memories = act(seen, memories)
            steps += 1
            if isinstance(spec.environment.action, Box):
                apart = np.abs(theirs[0] - action) / np.maximum(high - low, 1.0)
                if not (apart <= TOLERANCE).all():
                    raise ShoalError(
                        f"{path} acts otherwise than the policy: {theirs[0]}, not {action}, at "
                        f"step {steps}: don't use it, and report this run's spec"
                    )
            elif not np.array_equal(theirs[0], action):
                strays += 1
            observation, _, terminated, truncated, _ = environment.step(action)
            over = terminated or truncated
    environment.close()
    if strays > max(1, STRAY_SHARE * steps):
        raise ShoalError(
            f"{path} acts otherwise than the policy at {strays} of {steps} steps: don't use it, "
            "and report this run's spec"
        )
    return steps, strays


def _whole(
    trained: TrainedPolicy, allowed: tuple[str, ...]
) -> tuple[torch.nn.Module, list[tuple[int, ...]]]:
    """The policy as a module of (observation, *memories) -> (action, *memories)."""
    import torch

    spec = trained.spec
    _require_plain(spec)
    if spec.policy.kind == "module":
        from worker.policies import modules

        network = modules.load(spec.policy.module, spec.policy.arguments, allowed)
        modules.require_same(spec.policy.module, network, spec.policy.parameters)
    else:
        from worker.policies.forms import form

        network = form(spec)
    tensors = _named(trained)
    network.load_state_dict(
        {
            name: torch.tensor(tensors[name]) if name in tensors else value
            for name, value in network.state_dict().items()
        }
    )
    from worker.export_form import Whole

    return Whole(spec, network, tensors.get(MEAN), tensors.get(INVERSE)).eval(), _memories(spec)


def _require_plain(spec: RunSpec) -> None:
    """Raises `ShoalError` where a file of its own can't act as the policy does."""
    remedy = "use `load_policy` in Python, or export its tensors with --to safetensors"
    where = spec.environment
    if not isinstance(where.action, Discrete | MultiDiscrete | MultiBinary | Box):
        raise ShoalError(
            f"actions of {where.id} are of several kinds, and a file gives one: {remedy}"
        )
    if not isinstance(where.observation, Discrete | Box | MultiBinary):
        raise ShoalError(
            f"observations of {where.id} are composite, and a file takes one: {remedy}"
        )
    if spec.policy.choice == "sample" or spec.policy.centre_noise:
        raise ShoalError(f"this policy draws its actions, and a file does not: {remedy}")


def _memories(spec: RunSpec) -> list[tuple[int, ...]]:
    """Shapes of what the policy remembers: of each layer its state, for lstm and then its cell."""
    each = {"gru": 1, "lstm": 2}.get(spec.policy.kind, 0)
    return [(1, units) for units in spec.policy.hidden for _ in range(each)] if each else []


def _shape(spec: RunSpec) -> tuple[int, ...]:
    """Of a batch of one observation."""
    seen = spec.environment.observation
    return (1, *seen.shape) if isinstance(seen, Box | MultiBinary) else (1,)


def _bounds(spec: RunSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of actions, where they are numbers."""
    action = spec.environment.action
    if not isinstance(action, Box):
        return np.zeros(1), np.ones(1)
    low, high = np.array(action.low), np.array(action.high)
    return low.reshape(action.shape), high.reshape(action.shape)


def _named(trained: TrainedPolicy) -> dict[str, NDArray[np.floating]]:
    """All tensors by name, the normaliser's mean and inverse deviation with them."""
    tensors = to_tensors(trained.spec, trained.theta, None)
    if trained.normalization is not None:
        tensors[MEAN] = trained.normalization.mean
        tensors[INVERSE] = trained.normalization.inverse_deviation
    return tensors


def _export_onnx(module: torch.nn.Module, example: tuple[Any, ...], out: Path) -> None:
    _require("onnx", "onnx")
    _require("onnxruntime", "onnx")
    import torch

    memories = range(len(example) - 1)
    with _quiet():  # the newer exporter needs one more package for the same file
        torch.onnx.export(
            module,
            example,
            str(out),
            dynamo=False,
            input_names=["observation", *(f"memory_{i}" for i in memories)],
            output_names=["action", *(f"memory_{i}_after" for i in memories)],
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's advice on newer forms, which fewer programs read yet, and on batches, of
    which there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ShoalError(
            f"this format needs {package}, which is not installed: pip install 'shoal[{extra}]'"
        )
