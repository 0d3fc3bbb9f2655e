"""Whether a module that a user allows is here, found out without running any of it."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from protocol.errors import ShoalError


def granted(modules: Sequence[str] | None, word: str = "--allow-module") -> tuple[str, ...]:
    """What `word` names. Raises ShoalError for a module that is not installed here, which would
    otherwise allow nothing, without a word."""
    for module in modules or ():
        if not _is_here(module):
            raise ShoalError(
                f"{word} {module[:60]!r}: no such module is installed here"
                f"{_suggestion(module)}; mend the name, or install its package for "
                f"{sys.executable}"
            )
    return tuple(modules or ())


def environment(surroundings: Mapping[str, str], modules: Sequence[str]) -> dict[str, str]:
    """The variables of a process of ours that is to find modules where this one does: in a folder
    that only this one has on its path, such as that of a script."""
    known = surroundings.get("PYTHONPATH", "").split(os.pathsep)
    usual = {*sysconfig.get_paths().values(), *known, "", str(Path.cwd())}
    found = dict.fromkeys(filter(None, map(_folder, modules)))
    ours = {str(Path(folder).absolute()) for folder in sys.path}
    lacking = [folder for folder in found if folder in ours and folder not in usual]
    if not lacking:
        return dict(surroundings)
    path = os.pathsep.join(filter(None, [*known, *lacking]))
    return {**surroundings, "PYTHONPATH": path}


def _folder(module: str) -> str | None:
    """Where the package or file lies that a module is of; None: that can't be told."""
    found = _find(module.partition(".")[0])
    if found is None:
        return None
    places = found.submodule_search_locations
    origin = next(iter(places), None) if places is not None else found.origin
    return None if origin is None else str(Path(origin).parent)


def _is_here(module: str) -> bool:
    """Whether a dotted name can be imported here, or by processes that start in this folder."""
    if not all(name.isidentifier() for name in module.split(".")):
        return False
    first, *inner = module.split(".")
    found = _find(first)
    for name in inner:
        places = None if found is None else found.submodule_search_locations
        if places is None:
            return False
        # By its last name, as if it were no part of a package: else the package would be imported.
        found = PathFinder.find_spec(name, list(places))
    return found is not None


def _find(name: str) -> ModuleSpec | None:
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # a module of this process that was made by hand
        return None
    return found or PathFinder.find_spec(name, [str(Path.cwd())])


def _suggestion(module: str) -> str:
    from difflib import get_close_matches
    from importlib.metadata import packages_distributions  # looks at all that is installed

    first, dot, rest = module.partition(".")
    near = get_close_matches(first.replace("-", "_"), list(packages_distributions()), 1, 0.75)
    return f" (is it {near[0]}{dot}{rest}?)" if near and near[0] != first else ""
