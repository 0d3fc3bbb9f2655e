"""What keeps arithmetic equal everywhere: no inexact compiler mode, no library that brings one."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import protocol

FOLDER = Path(protocol.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
FORBIDDEN_OPTIONS = {"fastmath", "parallel", "error_model"}
FORBIDDEN_NAMES = {"prange", "pow", "exp", "log", "tanh", "sin", "cos"}
NUMERIC = {
    "exact.py",
    "kernels.py",
    "noise.py",
    "normalizer.py",
    "optimizers",
    "ranking.py",
    "snapshot.py",
    "state.py",
    "strategies",
    "streams.py",
}


def inexact(tree):
    """Words in the code, not in its strings, that change or leave IEEE arithmetic."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_OPTIONS:
            yield node.arg
        if (
            isinstance(node, ast.Attribute)
            and node.attr in FORBIDDEN_NAMES
            and not (isinstance(node.value, ast.Name) and node.value.id == "exact")
        ):
            yield node.attr
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            yield node.id


def modules_after(imports):
    code = f"import sys, json\n{imports}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    return loaded | {name.split(".")[0] for name in loaded}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_inexact_compiler_mode(source):
    found = set(inexact(ast.parse(source.read_text())))
    assert not found & (FORBIDDEN_OPTIONS | {"prange"})
    if source.relative_to(FOLDER).parts[0] in NUMERIC:
        assert not found


@pytest.mark.parametrize(
    "line", ["njit(fastmath=True)", "njit(parallel=True)", "njit(error_model='numpy')", "np.exp(x)"]
)
def test_the_search_finds_what_it_looks_for(line):
    assert list(inexact(ast.parse(line)))


def test_the_protocol_brings_no_library_that_changes_arithmetic():
    every = "import pkgutil, importlib, protocol\n" + (
        "for m in pkgutil.walk_packages(protocol.__path__, 'protocol.'):\n"
        "    importlib.import_module(m.name)"
    )
    loaded = modules_after(every)
    assert {"protocol", "numba", "numpy"} <= loaded
    assert not loaded & {"torch", "jax", "jaxlib", "gymnasium", "worker", "coordinator"}
    # Where SciPy is installed, as with JAX, Numba asks for its version, for nothing that computes.
    computes = {"linalg", "special", "fft", "sparse", "stats", "optimize", "integrate", "signal"}
    assert not loaded & {f"scipy.{part}" for part in computes}


def test_words_and_ranks_need_no_compiler():
    light = "spec, messages, ranking, exact, normalizer, streams, optimizers, strategies"
    assert "numba" not in modules_after(f"from protocol import {light}")
