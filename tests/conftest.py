"""How the whole suite is collected by several processes at once."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
os.environ["SHOAL_EVENTS"] = "0"
"""For every host that a test starts: it has a third of a second less to load."""
os.environ["SHOAL_LOCAL_NETWORK"] = "127.0.0.1"
"""Hosts of tests are announced on this machine alone."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without looking for garbage, which there is little of; the work is shared."""
    gc.disable()
    try:
        if session.config.args in (session.config.getini("testpaths"), [str(TESTS)]):
            share_imports(getattr(session.config, "workerinput", {}))
        return (yield)
    finally:
        gc.enable()


def share_imports(worker: dict[str, object]) -> None:
    """Import all test modules, each of pytest-xdist's processes from another one on.

    Every process needs all of them. Most of the time of a first import goes to pytest's rewriting
    of assertions, which is cached: each module is rewritten by one and read by the others.
    """
    count = int(str(worker.get("workercount", 1)))
    if count == 1:
        return
    paths = sorted(TESTS.rglob("test_*.py"))
    start = int(str(worker["workerid"]).removeprefix("gw")) * len(paths) // count
    for path in paths[start:] + paths[:start]:
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # said when it is collected
            importlib.import_module(name)
