"""Policies that are PyTorch modules, of many lanes at once, each with parameters of its own."""

from __future__ import annotations

import math
import os
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from protocol.spaces import Box
from protocol.spec import RunSpec
from worker.evaluation.words import words_of
from worker.policies import recurrence
from worker.policies.calls import prepared
from worker.policies.examination import (
    STEPS,
    TOLERANCE,
    agree,
    copied,
    examine,
    noise,
    places_of,
)
from worker.policies.policy import Forward, Policy, View, see, unsound
from worker.policies.tape import Tape, Unrecorded

LANES_STEP = 32
"""Lanes of a batch are a multiple of it. PyTorch computes what is left of a vector at the end of an
array by other code: with a multiple of the longest vector there is nothing left, and no lane is
computed otherwise than another."""
LARGEST_TOGETHER = 1 << 22
"""Parameters up to which lanes are computed together: a step of more takes so long by itself that
it saves nothing."""
ALIGNMENT = 16
"""Float32s of a vector: the parameters of each lane begin at a multiple of it."""
WITHOUT_RULE = re.compile(r"batching rule for ([\w:.]*\w)")
"""What PyTorch warns of where `vmap` goes through lanes one by one."""

Step = Callable[[], tuple[Tensor, list[Tensor]]]
"""Gives outputs and states of the lanes of a batch."""


@njit(cache=True, error_model="numpy")
def look(
    lanes: NDArray[np.int64],
    observations: NDArray[np.float32],
    slots: NDArray[np.int64],
    view: View,
    inputs: NDArray[np.float32],
) -> int:
    """Count the lanes' frames, and write into their rows of `inputs` what their policy sees.

    Returns the number of those lanes whose observation is not finite; where there is one, nothing
    else has been done.
    """
    broken = unsound(lanes, observations)
    if broken:
        return broken
    for lane in lanes:
        room = inputs[lane]
        seen = see(observations[lane], slots[lane], view, room)
        if not view[0].size:
            for i in range(room.size):  # a slice would take the compiler seconds
                room[i] = seen[i]
    return 0


class Batch:
    """Lanes that are computed together: their parameters and states, on the device.

    All stay where they are, so that what is done with them can be recorded.

    Attributes:
        parameters: by name, each of shape (lanes, *its own).
        inputs: what the policy sees, shape (lanes, 1, *observation).
        states: what the policy remembers, each of shape (lanes, *its own).
    """

    def __init__(
        self,
        tensors: Iterable[tuple[str, tuple[int, ...]]],
        states: Iterable[Tensor],
        seen: Tensor,
        device: torch.device,
    ) -> None:
        """`seen`: what the lanes see, written on the CPU."""
        lanes = len(seen)
        self._seen, self.inputs = seen, seen.to(device)
        self.parameters: dict[str, Tensor] = {}
        self._flat: list[tuple[int, int, Tensor]] = []
        begin = 0
        for name, shape in tensors:
            size = int(np.prod(shape, dtype=np.int64))
            padded = -(-size // ALIGNMENT) * ALIGNMENT
            flat = torch.zeros(lanes, padded, device=device)[:, :size]
            self.parameters[name] = flat.view(lanes, *shape)
            self._flat.append((begin, begin + size, flat))
            begin += size
        self.states = [
            torch.zeros(lanes, *state.shape, dtype=state.dtype, device=device) for state in states
        ]

    def begin(self, places: Tensor, rows: Tensor) -> None:
        """Episodes begin in the lanes at these places, with parameters of shape (count, size)."""
        for begin, end, flat in self._flat:
            flat.index_copy_(0, places, rows[:, begin:end])
        for state in self.states:
            state.index_fill_(0, places, 0)

    def look(self) -> None:
        """Take over what lanes see."""
        if self.inputs is not self._seen:
            self.inputs.copy_(self._seen)

    def remember(self, places: Tensor | None, states: Sequence[Tensor]) -> None:
        """The states are moved on: of the lanes at these places, or of all."""
        # Copies first: a state may be made of another, or of the inputs.
        copies = [
            state.clone() if places is None else state.index_select(0, places) for state in states
        ]
        for state, moved in zip(self.states, copies, strict=True):
            if places is None:
                state.copy_(moved)
            else:
                state.index_copy_(0, places, moved)


class ModulePolicy(Policy):
    """One run's policy as a PyTorch module, on some lanes.

    The module sees a batch of one observation, of shape (1, *observation), and gives outputs for
    it; or (outputs, state) where it takes the state that it gave before as a second argument. The
    state is zero when an episode begins. Its buffers are constants.
    """

    gives_deviations = True

    def __init__(self, spec: RunSpec, lanes: int, module: nn.Module, device: str = "cpu") -> None:
        """Raises `PolicyUnavailable` where the module can't be this run's policy."""
        super().__init__(spec, lanes)
        # Before the device is used: the same sums each time, in full precision.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_num_threads(1)
        torch.backends.mha.set_fastpath_enabled(False)  # it has no rule for batches
        self.order = np.arange(spec.size, dtype=np.int32)
        self._name = spec.policy.module or spec.policy.kind
        self.device = torch.device(device)
        seen = spec.environment.observation
        self._shape = (1, *(seen.shape if isinstance(seen, Box) else (seen.size,)))
        self._outputs = self.outputs.shape[1]
        self._module = module.to(self.device)
        self._places = places_of(module)
        stand_in, replaced = recurrence.replace(copied(self._name, module))
        with torch.inference_mode():
            inputs = noise(self._shape, 0).to(self.device)
            self._traits = examine(self._name, copied(self._name, module), inputs, self._outputs)
            self._shapes = [(self._outputs,), *(tuple(one.shape) for one in self._traits.states)]
            differs = bool(replaced) and not self._equals(stand_in)
            if replaced and not differs:
                self._module = stand_in
            self._wide, why, slow = self._try_out(spec.size, -(-lanes // LANES_STEP) * LANES_STEP)
            count = -(-lanes // self._wide)
            self._inputs = np.zeros((count * self._wide, math.prod(self._shape)), np.float32)
            self._batches = [self._batch(seen) for seen in np.split(self._inputs, count)]
            self._steps = [] if why else [self._recorded(batch) for batch in self._batches]
        self.path = "loop" if why else "vmap"
        self.numerics = numerics(self.device)
        remarks = []
        if differs:
            remarks.append(f"plain sums can't stand in for {', '.join(replaced)}")
        if why:
            remarks.append(f"lanes are computed one after the other: {why}")
        elif slow:
            remarks.append(
                f"of its operations {', '.join(slow)} are computed one lane after the other, for "
                "want of a rule that batches them"
            )
        self.remark = f"{self._name}: {'; '.join(remarks)}" if remarks else ""
        self._results = np.zeros((len(self._inputs), self._outputs), dtype=np.float32)
        self._fresh = np.ones(lanes, dtype=np.bool_)
        """lanes whose episode has begun, and that have not its parameters yet"""

    def begin(self, lane: int, row: int, slot: int, seed: int, quiet: bool = False) -> None:
        """An episode begins in the lane; see `Policy.begin`."""
        super().begin(lane, row, slot, seed, quiet)
        self._fresh[lane] = True

    def prepare_forward(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Forward:
        """What writes `outputs`; see `Policy.prepare_forward`."""
        seen = prepared(look, lanes, self.observations, self.slots, tuple(view), self._inputs)

        def forward() -> int:
            broken: int = seen()
            if not broken:
                self._forward(lanes, parameters)
            return broken

        return forward

    def _forward(self, lanes: NDArray[np.int64], parameters: Any) -> None:
        with torch.inference_mode():
            begun = lanes[self._fresh[lanes]]
            if begun.size:
                self._take_up(begun, parameters)
            for number, batch in enumerate(self._batches):
                first = number * self._wide
                within = lanes[(lanes >= first) & (lanes < first + self._wide)]
                if len(within):
                    batch.look()
                    self._compute(number, within - first)
        self.outputs[: lanes.size] = self._results[lanes]

    def _take_up(self, begun: NDArray[np.int64], parameters: NDArray[np.float32]) -> None:
        """Give lanes in which an episode begins their parameters."""
        self._fresh[begun] = False
        rows = self._rows_of(parameters, self.rows[begun])
        for number, batch in enumerate(self._batches):
            inside = begun // self._wide == number
            if inside.any():
                places = torch.from_numpy(begun[inside] % self._wide).to(self.device)
                batch.begin(places, rows[torch.from_numpy(inside).to(self.device)])

    def _rows_of(self, parameters: Any, rows: NDArray[np.int64]) -> Tensor:
        """Those rows of members, or of theta alone, on the device."""
        if isinstance(parameters, Tensor):
            return parameters[torch.from_numpy(rows).to(self.device)]
        return torch.from_numpy(parameters[rows]).to(self.device)

    def _compute(self, number: int, places: NDArray[np.int64]) -> None:
        """The results of the lanes at these places of a batch, whose states are moved on."""
        batch, first = self._batches[number], number * self._wide
        if self._steps:
            outputs, states = self._steps[number]()
            self._results[first : first + self._wide] = outputs.numpy(force=True)
            if states:
                moved = torch.from_numpy(places).to(self.device)
                batch.remember(None if len(places) == self._wide else moved, states)
            return
        for place in places.tolist():
            outputs, states = self._alone(batch, place)
            self._results[first + place] = outputs.numpy(force=True)
            for state, moved in zip(batch.states, states, strict=True):
                state[place] = moved

    def _batch(self, seen: NDArray[np.float32]) -> Batch:
        """Lanes that see what is written to the rows of `seen`."""
        named = ((name, tuple(value.shape)) for name, value in self._module.named_parameters())
        inputs = torch.from_numpy(seen).view(-1, *self._shape)
        return Batch(named, self._traits.states, inputs, self.device)

    def _recorded(self, batch: Batch) -> Step:
        """A step of the lanes of a batch, as quick as it can be had."""
        step = partial(self._together, batch)
        kept = [*batch.parameters.values(), batch.inputs, *batch.states]
        try:
            tape: Step = Tape(step, kept)
        except Unrecorded:
            return step
        # With other values than those that it was recorded with.
        self._begin_trial(batch)
        pairs = zip(pytree.tree_leaves(tape()), pytree.tree_leaves(step()), strict=True)
        return tape if all(torch.equal(one, other) for one, other in pairs) else step

    def _equals(self, stand_in: nn.Module) -> bool:
        """Whether what stands in for the module gives what it does."""
        row, begin, parameters = self._trial_rows()[0], 0, {}
        for name, value in self._module.named_parameters():
            parameters[name] = row[begin : begin + value.numel()].view(value.shape)
            begin += value.numel()
        placed = {place: parameters[name] for place, name in self._places.items()}
        inputs = noise((STEPS, *self._shape), 3).to(self.device)
        return agree((self._module, stand_in), placed, inputs, self._traits)

    def _trial_rows(self) -> Tensor:
        """Parameters of four lanes, near those that the module has."""
        theta = torch.cat([value.reshape(-1) for value in self._module.parameters()])
        return theta + 0.1 * noise((4, theta.numel()), 1).to(self.device)

    def _begin_trial(self, batch: Batch) -> None:
        """Give lanes something to compute: four of them, over and over."""
        rows = self._trial_rows()
        places = torch.arange(len(batch.inputs), device=self.device)
        batch.begin(places, rows[places % 4])
        batch.inputs.copy_(noise((4, *self._shape), 2).to(self.device)[places % 4])

    def _one(
        self, parameters: dict[str, Tensor], inputs: Tensor, states: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs, shape (outputs,), and states of one lane."""
        arguments: tuple[Any, ...] = (inputs,)
        if self._traits.structure is not None:
            arguments = (inputs, pytree.tree_unflatten(states, self._traits.structure))
        placed = {place: parameters[name] for place, name in self._places.items()}
        try:
            given = functional_call(self._module, placed, arguments, tie_weights=False)
        except SystemExit as error:  # a failure of the module, not the end of this process
            raise RuntimeError(words_of(error)) from None
        moved = [] if self._traits.structure is None else pytree.tree_leaves(given[1])
        outputs = (given if self._traits.structure is None else given[0]).reshape(-1).float()
        found = [tuple(one.shape) for one in (outputs, *moved)]
        # Fewer would be taken for all of them, since NumPy repeats a single one.
        if found != self._shapes:
            raise ValueError(
                f"{self._name} gives outputs and states of the shapes {found} now, and gave "
                f"{self._shapes} when it was tried out"
            )
        return outputs, moved

    def _together(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Outputs and states of all lanes, through `torch.func`."""
        arguments = batch.parameters, batch.inputs, batch.states
        found: tuple[Tensor, list[Tensor]] = vmap(self._one)(*arguments)
        return found

    def _alone(self, batch: Batch, place: int) -> tuple[Tensor, list[Tensor]]:
        parameters = {name: value[place] for name, value in batch.parameters.items()}
        return self._one(parameters, batch.inputs[place], [state[place] for state in batch.states])

    def _try_out(self, size: int, lanes: int) -> tuple[int, str, list[str]]:
        """Whether lanes can be computed together, by a trial: how many, or why not; and of which
        operations they are not even so."""
        if size > LARGEST_TOGETHER:
            return lanes, f"with {size:,} parameters that saves nothing", []

        def tried(count: int) -> tuple[Batch, Tensor]:
            """So many lanes, and their outputs."""
            batch = self._batch(np.zeros((count, math.prod(self._shape)), np.float32))
            self._begin_trial(batch)
            return batch, self._together(batch)[0]

        inside: list[str] = []
        hooks = [
            part.register_forward_pre_hook(lambda *_, name=name: inside.append(name))
            for name, part in self._module.named_modules()
        ]
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                batch, few = tried(LANES_STEP)
            many = tried(lanes)[1] if lanes > LANES_STEP else few
        except Exception as error:
            named = inside[-1] if inside else ""
            part = type(self._module.get_submodule(named)).__name__
            where = f"{named} ({part})" if named else part
            return lanes, f"{where} can't be: {words_of(error, 120)}", []
        finally:
            for hook in hooks:
                hook.remove()
        if not torch.equal(few, few[:4].repeat(LANES_STEP // 4, 1)):
            return lanes, "the place of a lane beside others would change its outputs", []
        for place in range(4):
            alone, _ = self._alone(batch, place)
            if not torch.allclose(alone, few[place], TOLERANCE, TOLERANCE):
                return lanes, "together they would give other outputs than alone", []
        same = torch.equal(many, few[:4].repeat(lanes // 4, 1))
        slow = {op for one in said for op in WITHOUT_RULE.findall(str(one.message))}
        return (lanes if same else LANES_STEP), "", sorted(slow)


def numerics(device: torch.device) -> str:
    """What decides the last bits of what PyTorch computes: versions, and the device's kind."""
    parts: list[Any] = [torch.__version__, device.type]
    if device.type == "cuda":
        parts += [torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)]
        parts += [torch.version.cuda, torch.backends.cudnn.version()]
    else:
        parts += [_processor(), torch.backends.cpu.get_cpu_capability(), torch.__config__.show()]
    return " ".join(map(str, parts))


def _processor() -> str:
    """The processor's model: libraries choose their code by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return next((line for line in lines if line.startswith("model name")), platform.machine())
