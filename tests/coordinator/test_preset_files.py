"""Every preset is a run that its environment can be trained with, and the table tells it truly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coordinator import preset_files
from coordinator.composing import compose
from coordinator.presets_command import COLUMNS, described
from protocol.command import run
from protocol.errors import ShoalError
from protocol.section import plain
from shoal import app

DOCUMENTS = Path(__file__).parents[2]
NAMES = preset_files.names()


def test_there_are_presets() -> None:
    assert {"CartPole-v0", "CartPole-v1", "MountainCarContinuous-v0"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_a_whole_spec_with_the_spaces_of_its_environment(name: str) -> None:
    spec = compose(name, {}).spec
    assert spec.environment.id == name
    assert spec.stop.target is not None
    gymnasium = pytest.importorskip("gymnasium")
    from worker.evaluation import environments, spaces

    try:
        instance = environments.make(environments.registered(name), {}, ())
    except (ShoalError, gymnasium.error.Error) as error:
        pytest.skip(f"{name} is not installed here: {error}")
    try:
        assert plain(spec.environment.observation) == plain(spaces.observations(instance))
        assert plain(spec.environment.action) == plain(spaces.actions(instance))
    finally:
        instance.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_its_task_and_where_its_target_is_from(name: str) -> None:
    file = preset_files.named(name)
    assert file.summary.endswith(".") and file.text.startswith(f"# {file.summary}\n")
    told = described(file)
    assert told["target"] == file.values["stop"]["target"]
    assert told["target_source"]
    if told["target_source"] == "Gymnasium's threshold":
        gymnasium = pytest.importorskip("gymnasium")
        assert told["target"] == gymnasium.spec(name).reward_threshold


def test_presets_are_found_by_name_alone() -> None:
    for name in ("../presets/CartPole-v1", "/etc/passwd", "", ".", "..", "gymnasium:CartPole-v1"):
        assert preset_files.find(name) is None
    found = preset_files.find("CartPole-v1")
    assert found is not None
    assert found.values["environment"]["id"] == "CartPole-v1"


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_wins_over_the_preset(name: str) -> None:
    spec = compose(name, {"strategy": {"sigma": 0.77}, "stop": {"target": 1.5}}).spec
    assert (spec.strategy.sigma, spec.stop.target) == (0.77, 1.5)
    assert spec.strategy.kind == compose(name, {}).spec.strategy.kind


def presets(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(app, ["presets", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_table_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = presets(capsys)
    head, *lines = out.splitlines()
    assert code == 0
    assert head.split()[: len(COLUMNS) - 1] == list(COLUMNS.values())[:-1]
    assert [line.split()[0] for line in lines] == NAMES
    cartpole = lines[NAMES.index("CartPole-v1")]
    assert re.split(r"\s{2,}", cartpole)[1:6] == ["mlp 32", "openai-es", "64", "0.1", "normalised"]


def test_a_pool_that_leaves_stragglers_is_told() -> None:
    text = preset_files.named("CartPole-v1").text + "\n[pool]\nquorum = 0.9\n"
    told = described(preset_files.PresetFile("CartPole-v1", text))
    assert told["pool"] == "quorum 0.9" != described(preset_files.named("CartPole-v1"))["pool"]


def test_what_is_printed_of_one_is_a_run_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = presets(capsys, "MountainCar-v0")
    (tmp_path / "run.toml").write_text(out)
    assert code == 0
    assert compose(str(tmp_path / "run.toml"), {}) == compose("MountainCar-v0", {})


def test_json_of_all_and_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[dict[str, Any]] = json.loads(presets(capsys, "--json")[1])
    assert [line["environment"] for line in told] == NAMES
    one = json.loads(presets(capsys, "CartPole-v1", "--json")[1])
    assert one.pop("spec") == preset_files.named("CartPole-v1").values
    assert one == told[NAMES.index("CartPole-v1")]


def test_an_unknown_one_is_answered_with_names_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = presets(capsys, "cartpole-v2")
    assert (code, out) == (2, "")
    assert error == "error: no preset for 'cartpole-v2': did you mean CartPole-v1, CartPole-v0?\n"
    assert presets(capsys, "Pong")[2].endswith(f"there are {', '.join(NAMES)}\n")


@pytest.mark.parametrize("name", NAMES)
def test_the_documents_name_every_preset(name: str) -> None:
    assert f"`{name}`" in (DOCUMENTS / "docs" / "presets.md").read_text(encoding="utf-8")
    assert name in (DOCUMENTS / "README.md").read_text(encoding="utf-8")
