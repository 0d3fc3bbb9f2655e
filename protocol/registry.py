"""Names that a run spec may choose among: what Shoal brings, and what installed packages add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from protocol.errors import ShoalError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind")

_allowed: set[str] = set()
"""Modules whose entry points this process may load, as its user says; for all registries."""
ANY = ""
"""In place of a module: all that is installed."""


def allow(modules: Iterable[str]) -> None:
    """Let this process load what these modules, and those within them, add to registries.

    A spec only names what it needs, so code runs only where it is installed, allowed and named.
    """
    _allowed.update(modules)


def is_within(module: str, allowed: Iterable[str]) -> bool:
    """Whether a module is one of the allowed ones, or lies in one."""
    return any(module == one or module.startswith(f"{one}.") for one in allowed)


class Registry(Mapping[str, type[Kind]], Generic[Kind]):
    """Classes by the name that a run spec has for them.

    Args:
        word: the field of the spec that names one: "optimizer.kind".
        group: of the entry points by which packages add theirs: "shoal.optimizers".
        base: what every one of them inherits from.
    """

    def __init__(self, word: str, group: str, base: type[Kind]) -> None:
        self.word = word
        self.group = group
        self._base = base
        self._kinds: dict[str, type[Kind]] = {}

    def __getitem__(self, name: str) -> type[Kind]:
        """What is registered already. Raises KeyError."""
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in the order in which they came."""
        return iter(self._kinds)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._kinds)

    def add(self, name: str, kind: type[Kind]) -> None:
        """Register a class. Raises ShoalError: the name is another's, or it is no such class."""
        if not (isinstance(kind, type) and issubclass(kind, self._base)):
            raise ShoalError(
                f"{self.word} = {name!r} is {kind!r}: must be a class that inherits from "
                f"{self._base.__module__}.{self._base.__name__}"
            )
        if self._kinds.setdefault(name, kind) is not kind:
            raise ShoalError(
                f"{self.word} = {name!r} is registered already, by {self._kinds[name].__module__}: "
                "choose another name"
            )

    def find(self, name: str) -> type[Kind]:
        """The class of that name, which an allowed package may add just now.

        Raises ShoalError for a name that nobody has, or that only a package has which is not
        allowed, or can't be loaded.
        """
        if name not in self._kinds:
            self._load(name, self._offered(name))
        return self._kinds[name]

    def _offered(self, name: str) -> EntryPoint:
        """The entry point of that name that may be loaded."""
        from importlib.metadata import entry_points  # takes long to load, and is seldom asked

        offers = list(entry_points(group=self.group, name=name))
        if not offers:
            raise ShoalError(
                f"{self.word} is {name!r}: must be one of {', '.join(sorted(self._kinds))}, or one "
                f"that an installed package adds to {self.group}: install it on the host and on "
                "every volunteer's machine"
            )
        for offer in offers:
            if _may_load(offer.module):
                return offer
        package = offers[0].module.partition(".")[0]
        raise ShoalError(
            f"{self.word} is {name!r}, of the package {package!r}, which is not allowed here: only "
            f"code that its user trusts is run; read it, and allow it with --allow-module {package}"
        )

    def _load(self, name: str, offer: EntryPoint) -> None:
        try:
            kind = offer.load()
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ShoalError(
                f"{self.word} is {name!r}, and {offer.value} can't be loaded ({words}): install "
                "the version of its package that the host has"
            ) from None
        self.add(name, kind)


def _may_load(module: str) -> bool:
    return ANY in _allowed or is_within(module, _allowed)
