import sys

import pytest

from protocol import registry
from protocol.errors import ShoalError
from protocol.registry import Registry

GROUP = "shoal.tests"
PLUGIN = """
from tests.protocol.test_registry import Base, Shell

LOADED = True

class Oak(Base):
    pass

class Stone:
    pass
"""


class Base:
    pass


class Shell(Base):
    pass


@pytest.fixture
def trees(monkeypatch):
    monkeypatch.setattr(registry, "_allowed", set())
    trees = Registry("tree.kind", GROUP, Base)
    trees.add("shell", Shell)
    return trees


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that adds three trees."""
    (tmp_path / "woods").mkdir()
    (tmp_path / "woods" / "__init__.py").write_text("")
    (tmp_path / "woods" / "tall.py").write_text(PLUGIN)
    info = tmp_path / "woods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: woods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\noak = woods.tall:Oak\nstone = woods.tall:Stone\n"
        "gone = woods.felled:Gone\nshell = woods.tall:Oak\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("woods", "woods.tall"):
        sys.modules.pop(name, None)


def test_what_is_registered_is_found(trees):
    assert trees.find("shell") is Shell
    assert list(trees) == ["shell"] and len(trees) == 1


def test_a_name_that_nobody_has_is_told_with_those_there_are(trees):
    with pytest.raises(ShoalError, match=r"tree.kind is 'elm': must be one of shell,"):
        trees.find("elm")
    with pytest.raises(ShoalError, match=f"installed package adds to {GROUP}: install it"):
        trees.find("elm")


@pytest.mark.parametrize("allowed", ["woods", "woods.tall", registry.ANY])
def test_an_installed_package_that_is_allowed_adds_its_own(trees, package, allowed):
    registry.allow([allowed])
    assert trees.find("oak").__module__ == "woods.tall"
    assert trees.find("oak") is trees["oak"]


@pytest.mark.parametrize("allowed", [[], ["wood"], ["woods.tal"], ["woods.tall.more"]])
def test_code_that_is_not_allowed_is_not_imported(trees, package, allowed):
    registry.allow(allowed)
    with pytest.raises(
        ShoalError, match=r"'oak', of the package 'woods'.*with --allow-module woods"
    ):
        trees.find("oak")
    assert "woods.tall" not in sys.modules


def test_a_package_takes_no_name_that_is_taken(trees, package):
    registry.allow(["woods"])
    assert trees.find("shell") is Shell
    assert "woods.tall" not in sys.modules
    with pytest.raises(ShoalError, match=r"'shell' is registered already, by tests\.protocol"):
        trees.add("shell", type("Other", (Base,), {}))
    trees.add("shell", Shell)


def test_what_is_no_such_class_is_refused(trees, package):
    registry.allow(["woods"])
    with pytest.raises(
        ShoalError, match=r"tree.kind = 'stone' is .*Stone.*: must be a class.*\.Base"
    ):
        trees.find("stone")
    with pytest.raises(
        ShoalError, match=r"'gone', and woods\.felled:Gone can't be loaded .*felled"
    ):
        trees.find("gone")
