"""The strategy and the shaping that the documents show, as an installed package brings them."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
USE = """
import numpy as np
from protocol import registry, strategies
from protocol.spec import SpecError
from tests.coordinator.runs import spec_of
from tests.protocol.strategies import runs

chosen = {"strategy": {"kind": "bold", "shaping": "winners", "arguments": {"boldness": 3}}}
try:
    spec_of(**chosen)
except SpecError as error:
    assert "--allow-module own" in str(error), error
registry.allow(["own"])
spec = spec_of(**chosen)
made = spec.strategy.make(1)
assert (made.kind, made.shaping, made.boldness) == ("bold", "winners", 3)
found = runs.optimised(made, lambda x: -float(x @ x), np.ones(5, np.float32), 30, learning_rate=0.1)
assert np.abs(found.theta).max() < 0.5, found.theta
"""


def test_a_package_adds_a_strategy_and_a_shaping(tmp_path):
    text = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    points = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bold.py").write_text(code)
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    lines = points.replace('project.entry-points."', "").replace('"]', "]")
    (info / "entry_points.txt").write_text(lines.replace('"', "").replace("my_package", "own"))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{USE}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
