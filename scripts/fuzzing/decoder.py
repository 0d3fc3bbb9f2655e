"""What a decoder is to whoever tries it: how its payloads look, and what it may say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.fuzzing.mutating import Form


@dataclass(frozen=True)
class Decoder:
    """One reader of what others wrote.

    Attributes:
        form: of its payloads.
        corpus: payloads that it takes, each of which it must take.
        read: reads a payload, and uses what came out of it as its callers do.
        refusals: the errors that it declares; any other is a fault.
    """

    form: Form
    corpus: tuple[bytes, ...]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
