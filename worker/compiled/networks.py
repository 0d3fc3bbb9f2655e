"""The built-in policies' networks in JAX, of one lane, with the parameters of `layers.order`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from protocol import networks
from protocol.spec import RunSpec, seen_choices, seen_image
from protocol.spec import outputs as network_outputs
from worker.policies.layers import order as layers_order

MOST_IN_TURN = 32
"""Inputs of a layer whose products are added one after the other: of as many lanes at once, which
vector units do best. Wider layers are products of matrices."""
Apply = Callable[[Any, Any, Any], tuple[Any, Any]]
"""`(parameters, memory, inputs) -> (outputs, memory)`: arrays (size,), any pytree, (inputs,)."""

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "celu": jax.nn.celu,
    "elu": jax.nn.elu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "hardshrink": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0.0),
    "hardsigmoid": lambda x: jnp.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardswish": lambda x: x * jnp.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardtanh": jax.nn.hard_tanh,
    "identity": lambda x: x,
    "leaky_relu": jax.nn.leaky_relu,
    "logsigmoid": jax.nn.log_sigmoid,
    "mish": jax.nn.mish,
    "relu6": jax.nn.relu6,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "softshrink": lambda x: jnp.sign(x) * jnp.maximum(jnp.abs(x) - 0.5, 0.0),
    "softsign": jax.nn.soft_sign,
    "tanhshrink": lambda x: x - jnp.tanh(x),
}
"""By the names that specs have for them."""


class Network(NamedTuple):
    """A network of one lane.

    Attributes:
        order: int32 (size,): it reads parameter order[j] at j.
        memory: what an episode begins with, a pytree of zeros.
        apply: see `Apply`.
    """

    order: NDArray[np.int32]
    memory: Any
    apply: Apply


def network(spec: RunSpec) -> Network:
    """A run's network."""
    kind = spec.policy.kind
    if kind in networks.GATES:
        return _recurrent(spec)
    if kind == "tabular":
        return _table(spec)
    if kind == "cnn":
        return _convolutional(spec)
    activation = ACTIVATIONS[spec.policy.activation]

    def apply(parameters: Any, memory: Any, inputs: Any) -> tuple[Any, Any]:
        return _layers(_parts(spec, parameters), inputs, activation), memory

    return Network(layers_order(spec.tensors), (), apply)


def dense(inputs: Any, weights: Any, biases: Any) -> Any:
    """Outputs of a layer with weights (i, o), of inputs (i,)."""
    if weights.shape[0] > MOST_IN_TURN:
        return jnp.dot(inputs, weights, precision=jax.lax.Precision.HIGHEST) + biases
    total = inputs[0] * weights[0]
    for i in range(1, weights.shape[0]):
        total = total + inputs[i] * weights[i]
    return total + biases


def _parts(spec: RunSpec, parameters: Any) -> Iterator[Any]:
    """The tensors, one after the other: weights as (i, o), of convolutions (k, k, i, o)."""
    begin = 0
    for tensor in spec.tensors:
        shape = tensor.shape
        turned = (shape[2], shape[3], shape[1], shape[0]) if len(shape) == 4 else shape[::-1]
        yield parameters[begin : begin + tensor.size].reshape(turned)
        begin += tensor.size


def _layers(parts: Iterator[Any], inputs: Any, activation: Callable[[Any], Any]) -> Any:
    """Outputs of the dense layers that the parts begin with; what is left over are deviations."""
    current: Any = None
    for weights in parts:
        if weights.ndim == 1:
            break
        seen = inputs if current is None else activation(current)
        current = dense(seen, weights, next(parts))
    return current


def _recurrent(spec: RunSpec) -> Network:
    step = _gru if spec.policy.kind == "gru" else _lstm
    cells = 1 if spec.policy.kind == "gru" else 2
    memory = tuple(
        tuple(jnp.zeros(units, jnp.float32) for _ in range(cells)) for units in spec.policy.hidden
    )

    def apply(parameters: Any, memory: Any, inputs: Any) -> tuple[Any, Any]:
        parts = _parts(spec, parameters)
        moved = []
        current = inputs
        for states in memory:
            weights, recurrent, bias, recurrent_bias = (next(parts) for _ in range(4))
            new = dense(current, weights, bias)
            old = dense(states[0], recurrent, recurrent_bias)
            moved.append(step(new, old, states))
            current = moved[-1][0]
        readout, bias = next(parts), next(parts)
        seen = jnp.concatenate([states[0] for states in moved])
        return dense(seen, readout, bias), tuple(moved)

    return Network(layers_order(spec.tensors), memory, apply)


def _gru(new: Any, old: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """One step of gated units (Cho et al. 2014, the reset as in PyTorch)."""
    new_reset, new_update, new_value = jnp.split(new, 3)
    old_reset, old_update, old_value = jnp.split(old, 3)
    reset = jax.nn.sigmoid(new_reset + old_reset)
    update = jax.nn.sigmoid(new_update + old_update)
    value = jnp.tanh(new_value + reset * old_value)
    return ((1.0 - update) * value + update * states[0],)


def _lstm(new: Any, old: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """One step of long short-term memory (Hochreiter & Schmidhuber 1997)."""
    enter, keep, value, leave = jnp.split(new + old, 4)
    cell = jax.nn.sigmoid(keep) * states[1] + jax.nn.sigmoid(enter) * jnp.tanh(value)
    return jax.nn.sigmoid(leave) * jnp.tanh(cell), cell


def _table(spec: RunSpec) -> Network:
    counts = seen_choices(spec.environment)
    many = network_outputs(spec.policy, spec.environment)

    def apply(parameters: Any, memory: Any, inputs: Any) -> tuple[Any, Any]:
        place, begin = jnp.int32(0), 0
        for count in counts:
            place = place * count + jnp.argmax(inputs[begin : begin + count]).astype(jnp.int32)
            begin += count
        return jax.lax.dynamic_slice(parameters, (place * many,), (many,)), memory

    return Network(np.arange(spec.size, dtype=np.int32), (), apply)


def _convolutional(spec: RunSpec) -> Network:
    image = seen_image(spec.environment)
    sizes = networks.feature_sizes(image, spec.policy.convolutions)
    activation = ACTIVATIONS[spec.policy.activation]

    def apply(parameters: Any, memory: Any, inputs: Any) -> tuple[Any, Any]:
        parts = _parts(spec, parameters)
        if image.channels_first:
            current = inputs.reshape(image.channels, image.height, image.width).transpose(1, 2, 0)
        else:
            current = inputs.reshape(image.height, image.width, image.channels)
        for (_, kernel, stride), (_, height, width) in zip(
            spec.policy.convolutions, sizes[1:], strict=True
        ):
            # Patches beside their own weights: lanes' convolutions in one call would be grouped
            # ones, which are slow.
            rows = [
                current[y : y + stride * height : stride, x : x + stride * width : stride]
                for y in range(kernel)
                for x in range(kernel)
            ]
            patches = jnp.concatenate(rows, -1).reshape(height * width, -1)
            weights, biases = next(parts), next(parts)
            product = jnp.dot(
                patches,
                weights.reshape(-1, weights.shape[-1]),
                precision=jax.lax.Precision.HIGHEST,
            )
            current = activation(product + biases).reshape(height, width, -1)
        return _layers(parts, current.ravel(), activation), memory

    return Network(layers_order(spec.tensors, sizes[-1]), (), apply)
