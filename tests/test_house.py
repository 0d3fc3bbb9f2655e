"""The rules of the house: who may import whom, and documents that follow the code."""

import ast
import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("protocol", "worker", "coordinator")
ALLOWED = {
    "protocol": {"protocol"},
    "worker": {"worker", "protocol"},
    "coordinator": {"coordinator", "protocol"},
    "shoal": {"shoal", "worker", "coordinator", "protocol"},
}
NEVER_IN_PROTOCOL = {"torch", "jax", "jaxlib", "gymnasium"}


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Full names of all modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_only_what_its_folder_may(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[0] for name in imports(path)} & set(ALLOWED)
    assert ours <= ALLOWED[folder]
    if folder == "protocol":
        assert not {name.split(".")[0] for name in imports(path)} & NEVER_IN_PROTOCOL


def test_no_module_imports_itself_through_others() -> None:
    known = {name_of(path): path for path in modules()}
    edges = {name: (imports(path) & set(known)) - {name} for name, path in known.items()}
    # A package's front re-exports its own rooms: those arrows lead down, not round.
    for name in known:
        edges[name] = {other for other in edges[name] if not name.startswith(other + ".")}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in known:
        visit(name, ())


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_module_opens_with_one_sentence(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text is not None
    assert text.split("\n\n")[0].rstrip().endswith(".")


def script(name: str) -> ModuleType:
    """A script of ours as a module."""
    located = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert located is not None and located.loader is not None
    module = importlib.util.module_from_spec(located)
    located.loader.exec_module(module)
    return module


def test_run_spec_document_has_every_field_as_declared() -> None:
    document = (ROOT / "docs" / "run-spec.md").read_text(encoding="utf-8")
    assert script("write_run_spec").document() == document, "run scripts/write_run_spec.py"


def test_protocol_document_has_every_message_as_declared() -> None:
    writer = script("write_protocol_tables")
    document = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert writer.rewritten(document) == document, "run scripts/write_protocol_tables.py"


def test_host_and_worker_of_a_builtin_policy_never_import_torch() -> None:
    code = (
        "import sys, shoal, coordinator.server, coordinator.demo, worker.evaluation.children\n"
        "heavy = {'torch', 'jax', 'gymnasium'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_starts_the_demo_loads_no_compiled_kernels() -> None:
    # They take most of a second: the workers start first, and load theirs meanwhile.
    code = (
        "import sys, shoal, coordinator.demo, coordinator.composing, coordinator.watching\n"
        "sys.exit('imports numba' if 'numba' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
