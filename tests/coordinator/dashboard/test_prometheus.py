"""`/metrics`, read by a parser of its format."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.dashboard import prometheus
from coordinator.overview import Overview
from tests.coordinator.dashboard.pictures import HOSTILE, picture, worker

UNITS = ("seconds", "bytes", "directions", "members", "return", "episodes", "steps", "results")


def read(shown: Overview | None, run: str = "test-1") -> dict[tuple[str, str], float]:
    """Values by name and the label beside the run."""
    found = {}
    for family in text_string_to_metric_families(prometheus.text(run, shown)):
        assert family.documentation and family.type in ("gauge", "counter")
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run") == run
            found[sample.name, " ".join(labels.values())] = sample.value
    return found


def test_a_led_run_has_all_its_figures() -> None:
    views = [worker(1), worker(2, state="resting", standing="new"), worker(3)]
    found = read(picture(*views, outcomes={"accepted": 40, "late": 2}, unable=(("no", 3),)))
    assert found["shoal_leading", ""] == 1
    assert found["shoal_version", ""] == 7
    assert found["shoal_episodes_total", ""] == 640
    assert found["shoal_env_steps_total", ""] == 12_345
    assert found["shoal_wire_bytes_total", ""] == 9_999
    assert found["shoal_mean_return", ""] == 123.4
    assert found["shoal_centre_return", ""] == 150.0
    assert found["shoal_batch_directions", "leased"] == 12
    assert found["shoal_workers", "working"] == 2 and found["shoal_workers", "resting"] == 1
    assert found["shoal_workers_by_standing", "new"] == 1
    assert found["shoal_results_total", "accepted"] == 40
    assert found["shoal_results_total", "refused"] == 0
    assert found["shoal_unable_workers", ""] == 3
    assert found["shoal_run_state", "running"] == 1 and found["shoal_run_state", "paused"] == 0


def test_what_is_not_known_is_not_told() -> None:
    found = read(picture(mean=None, centre=None, target=None))
    named = {name for name, _ in found}
    assert not named & {"shoal_mean_return", "shoal_centre_return", "shoal_target_return"}
    assert read(None) == {("shoal_leading", ""): 0.0}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_word_breaks_the_format(hostile: str) -> None:
    found = read(picture(environment=hostile), run=hostile)
    assert found["shoal_run_info", hostile] == 1


def test_names_say_what_they_count() -> None:
    for line in prometheus.text("test-1", picture(worker(1))).splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) shoal_[a-z_]+ .+|shoal_[a-z_]+\{.+\} \S+", line)
