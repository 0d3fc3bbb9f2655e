"""The fields of a policy that is no plain network, and what is wrong with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from protocol.networks import Image, Tensor, feature_sizes
from protocol.spaces import Box, Discrete, MultiDiscrete, Space, leaves

Scalar = bool | int | float | str
Activation = Literal[
    "tanh",
    "relu",
    "celu",
    "elu",
    "gelu",
    "gelu_tanh",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "identity",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]

NamePattern = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_.*?\[\]-]{1,128}\Z",
        description="a name or a pattern of letters, digits and _ . - * ? [ ], at most 128",
    ),
]
Convolution = tuple[
    Annotated[int, msgspec.Meta(ge=1, le=1 << 12)],
    Annotated[int, msgspec.Meta(ge=1, le=64)],
    Annotated[int, msgspec.Meta(ge=1, le=64)],
]
"""Channels, kernel, stride."""
ModulePath = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?=.{0,200}\Z)([A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)?\Z",
        description="a module and a class in it, such as my_package.policies:Net",
    ),
]
Arguments = Annotated[
    dict[str, Scalar | Annotated[tuple[Scalar, ...], msgspec.Meta(max_length=64)]],
    msgspec.Meta(max_length=64),
]
Parameter = tuple[
    Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[A-Za-z0-9_.-]{1,128}\Z",
            description="letters, digits and _ . -, at most 128",
        ),
    ],
    Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 24)], ...], msgspec.Meta(max_length=8)
    ],
]
"""Name and shape."""


def package(module: str) -> str:
    """The package of a class's path, which a volunteer allows: `a` of `a.b:C`."""
    return module.partition(":")[0].partition(".")[0]


def choices(space: Space) -> tuple[int, ...] | None:
    """Of how many each of an observation's choices is one; None where not all of it is choices."""
    found: list[int] = []
    for part in leaves(space):
        if isinstance(part, Discrete):
            found.append(part.n)
        elif isinstance(part, MultiDiscrete):
            found += part.choices
        else:
            return None
    return tuple(found)


def reals(space: Space) -> int:
    """How many real numbers the values of a space have."""
    return sum(part.size for part in leaves(space) if isinstance(part, Box))


def convolutions_fault(seen: Image, convolutions: Sequence[Convolution]) -> str | None:
    """What is wrong with the convolutions of such images, and what to do."""
    for layer, (before, after) in enumerate(pairwise(feature_sizes(seen, convolutions))):
        if min(after) < 1:
            return (
                f"policy.convolutions has a kernel of {convolutions[layer][1]} in layer {layer}, "
                f"which sees only {before[1]} x {before[2]}: give a smaller kernel, smaller "
                "strides before it, or fewer layers"
            )
    return None


def parameters_fault(module: str, parameters: Sequence[Parameter]) -> str | None:
    """What is wrong with the parameters of a module, and what to do."""
    names = [name for name, _ in parameters]
    if not names:
        return (
            f"policy.parameters is empty: those of {module} are read when `shoal host` makes a "
            "run, and a policy without any has nothing to train"
        )
    if len(set(names)) < len(names) or any(name.startswith("observation.") for name in names):
        return (
            "policy.parameters has a name twice, or one that begins with 'observation.', which "
            "policy files use: rename the parts of the module"
        )
    return None


def plain_arguments(
    arguments: Mapping[str, Scalar | tuple[Scalar, ...]],
) -> list[tuple[str, Scalar]]:
    """Each name with each scalar of its value."""
    return [
        (name, part)
        for name, value in arguments.items()
        for part in (value if isinstance(value, tuple) else (value,))
    ]


def tensors(parameters: Sequence[Parameter]) -> tuple[Tensor, ...]:
    """The parameters of a module as tensors."""
    return tuple(Tensor(name, shape) for name, shape in parameters)
