"""Modules that a user allows are there, or the user reads how to mend it; none of them is run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from protocol.errors import ShoalError
from protocol.installed import environment, granted


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package and a module beside it, in the folder that one is in."""
    (tmp_path / "orchard" / "deep").mkdir(parents=True)
    for name in ("orchard/__init__.py", "orchard/deep/tree.py", "lonely.py"):
        (tmp_path / name).write_text("raise AssertionError('it runs')")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("package")
def test_what_is_there_is_granted_and_not_run() -> None:
    names = ["numpy", "numpy.linalg", "orchard", "orchard.deep", "orchard.deep.tree", "lonely"]
    assert granted(names) == tuple(names)
    assert not {"orchard", "lonely"} & set(sys.modules)
    assert granted(None) == ()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "name",
    ["orchards", "orchard.shallow", "orchard.deep.tree.x", "lonely.x", "", ".", "a b", "x/y"],
)
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ShoalError, match=r"^--allow-module .*no such module.*install its package"):
        granted([name])


def test_the_name_that_was_meant_is_told() -> None:
    with pytest.raises(ShoalError, match=r"\(is it gymnasium\.wrappers\?\)"):
        granted(["gymnaisum.wrappers"])


def test_processes_find_modules_where_this_one_alone_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, here = tmp_path / "scripts", tmp_path / "here"
    for place in (scripts, here):
        (place / f"of_{place.name}").mkdir(parents=True)
        (place / f"of_{place.name}" / "__init__.py").write_text("raise AssertionError('it runs')")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [str(scripts), *sys.path])
    known = {"HOME": "/", "PYTHONPATH": os.pathsep.join(["/a", "/b"])}
    assert environment(known, ()) == known
    assert environment(known, ["numpy", "json", "of_here", "nowhere"]) == known
    assert environment(known, ["of_scripts.deep", "of_scripts"]) == {
        "HOME": "/",
        "PYTHONPATH": os.pathsep.join(["/a", "/b", str(scripts)]),
    }
    assert environment({}, ["of_scripts"]) == {"PYTHONPATH": str(scripts)}
