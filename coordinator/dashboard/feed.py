"""What pages are told: all of it once, then what is new each second; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.dashboard.history import History
from coordinator.dashboard.published import COLUMNS, Aliases, Row, row, summary
from coordinator.overview import Overview

REELS = ("members", "centres", "updates", "events")
"""Of the history."""


class Feed:
    """The last picture, and what changed since the one before.

    Items of the history are numbered, and the other parts can be told twice: so a page that gets
    all of it while news are on their way ends up right.
    """

    def __init__(self, history: History, aliases: Aliases) -> None:
        self._history = history
        self._aliases = aliases
        self._rows: dict[str, Row] = {}
        self._summary: dict[str, Any] = {}
        self._told = dict.fromkeys(REELS, 0)

    def news(self, shown: Overview | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """Take in a picture, None while we lead nothing: what is new in it, and since the last one.

        `about`: of this host, beside it.
        """
        before = self._rows
        views = () if shown is None else shown.workers
        rows = {f"{view.worker}/{view.session}": row(view, self._aliases) for view in views}
        self._rows = rows
        self._summary = {**about, **({} if shown is None else summary(shown, self._aliases))}
        told: dict[str, Any] = {
            "summary": self._summary,
            "workers": [each for key, each in rows.items() if before.get(key) != each],
            "gone": [each[:2] for key, each in before.items() if key not in rows],
        }
        for name in REELS:
            reel = getattr(self._history, name)
            first, items = reel.since(self._told[name])
            self._told[name] = reel.next
            if items:
                told[name] = {"first": first, "items": self._hidden(name, items)}
        return told

    def whole(self) -> dict[str, Any]:
        """The last picture, for a page that has nothing."""
        history = self._history
        told: dict[str, Any] = {
            "whole": True,
            "columns": COLUMNS,
            "summary": self._summary,
            "workers": list(self._rows.values()),
        }
        for name in REELS:
            reel = getattr(history, name)
            thin = name in ("members", "centres")
            items = reel.thinned if thin else reel.since(0)[1]
            told[name] = {"next": reel.next, "items": self._hidden(name, items)}
        return told

    def _hidden(self, name: str, items: list[Any]) -> list[Any]:
        """Events without the keys of who keeps to itself."""
        if name != "events":
            return items
        return [(moment, self._aliases.hide(line)) for moment, line in items]
