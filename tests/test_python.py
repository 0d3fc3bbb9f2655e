"""What programs use of Shoal: the examples of its document run, its types are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import shoal

ROOT = Path(__file__).parent.parent


async def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they would in a notebook, where `train` is for scripts, and so awaited here."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if file := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / file[1]).write_text(block)
            continue
        awaited = re.sub(r"(?<!await )shoal\.train\(", "await shoal.train_async(", block)
        code = compile(awaited, "docs/python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(code, CodeType)
        running = eval(code, names)
        if inspect.isawaitable(running):
            await running
    assert names["result"].updates == 3 and names["result"].run.startswith("corridor-v0-")
    assert names["evolution"].version == 100
    assert abs(names["evolution"].centre - 3.0).max() < 0.5
    assert sorted(path.name for path in (tmp_path / "runs").iterdir())[:1] == ["adam"]


def functions(path: Path) -> dict[str, tuple[str, str]]:
    """Arguments and what is returned, of each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: (ast.unparse(node.args), ast.unparse(node.returns) if node.returns else "")
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_types_that_tools_read_are_those_of_the_code() -> None:
    stubs = functions(ROOT / "shoal-stubs" / "__init__.pyi")
    code = functions(ROOT / "shoal.py")
    assert {"train", "train_async"} <= set(stubs)
    assert all(code[name] == told for name, told in stubs.items())


def test_all_that_it_says_it_has_is_there() -> None:
    assert all(hasattr(shoal, name) for name in shoal.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        shoal.trian  # type: ignore[attr-defined]  # noqa: B018


def test_to_import_it_loads_nothing_that_only_trainings_need() -> None:
    code = (
        "import sys, shoal\n"
        "heavy = {'numba', 'gymnasium', 'coordinator.training'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
