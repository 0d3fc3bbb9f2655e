"""The line of a training: rewritten in place, where a person watches alone."""

from __future__ import annotations

import dataclasses
import io
import sys
from types import ModuleType

import pytest

from coordinator.training.results import CentreReturn, TrainingProgress
from coordinator.training.showing import NOTEBOOK, Status, line_of, suitable_stream

NOW = TrainingProgress("toy-1a2b3c4d", 3, float("nan"), None, 10, 100, 2, 5.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_tells_what_is_known() -> None:
    assert line_of(NOW, 0.0) == (
        "toy-1a2b3c4d: 5 s  update 3  centre -  members -  0 steps/s  workers 2"
    )
    centre = CentreReturn(2, 475.0, 1.0, 100, (474.0, 476.0))
    later = dataclasses.replace(NOW, centre=centre, mean_return=0.25)
    assert "centre 475.0 (version 2)  members 0.25  1,234 steps/s" in line_of(later, 1234.0)


def test_it_is_rewritten_now_and_then_and_lines_stay_above_it() -> None:
    stream, times = io.StringIO(), iter([0.0, 0.01, 10.0, 10.01])
    status = Status(stream, lambda: next(times))
    status.show(NOW)
    status.show(dataclasses.replace(NOW, version=4))
    status.show(dataclasses.replace(NOW, version=5, steps=400, seconds=7.0))
    status.say("joined")
    status.show(dataclasses.replace(NOW, version=6, steps=400, seconds=7.0))
    status.close()
    status.close()
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3 and "update 6" in lines[1] and lines[2] == ""
    states = lines[0].split("\r")
    assert ["update 3" in states[1], "update 5" in states[2]] == [True, True]
    assert "150 steps/s" in states[2] and states[3].rstrip() == "joined"
    assert len(states[3]) >= len(states[2])


def test_a_stream_that_is_closed_ends_nothing() -> None:
    stream = io.StringIO()
    status = Status(stream)
    stream.close()
    status.show(NOW)
    status.say("joined")
    Status(None).say("nobody")


def test_it_is_for_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert suitable_stream() is None
    monkeypatch.setattr(sys, "stderr", None)
    assert suitable_stream() is None
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert suitable_stream() is terminal
    ipython = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert suitable_stream() is terminal
    shell = type(NOTEBOOK, (), {})()
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell, raising=False)
    assert suitable_stream() is sys.stdout
