"""A real dashboard at a real port, of a run that is made up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from coordinator.dashboard.options import Choice
from coordinator.dashboard.shell import Dashboard
from coordinator.hosting import Listeners
from coordinator.overview import Overview
from tests.coordinator.dashboard.pictures import picture

TOKEN = "0123456789abcdef"
JOIN = "shoal join mqtt://127.0.0.1:1883/test-12345678#abcd"


class MadeUp:
    """A run that stands as a test says, and notes what is ordered."""

    def __init__(self, shown: Overview) -> None:
        self.shown = shown
        self.looks = 0
        self.orders: list[Any] = []

    def overview(self) -> Overview:
        self.looks += 1
        return self.shown

    def heed(self, order: Any) -> None:
        self.orders.append(order)

    def stop(self, reason: str) -> None:
        self.orders.append(reason)


class Served:
    """A dashboard, what it shows, and a way to ask it."""

    def __init__(self, dashboard: Dashboard, run: MadeUp, client: httpx.AsyncClient) -> None:
        self.dashboard = dashboard
        self.url = dashboard.url
        self.run = run
        self.client = client
        self.told = dashboard.beside(Listeners(on_event=lambda line: None), f"{JOIN}  (a remark)")

    async def order(self, token: str | None = TOKEN, **said: Any) -> httpx.Response:
        """Order something."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.client.post("/orders", json=said, headers=headers)


@contextlib.asynccontextmanager
async def served(
    directory: Path,
    *,
    shown: Overview | None = None,
    token: str | None = None,
    port: int = 0,
    bind: str = "127.0.0.1",
) -> AsyncIterator[Served]:
    """A dashboard of a run that is led."""
    run = MadeUp(shown or picture())
    async with (
        Dashboard(Choice(port, bind, token), "test-12345678", directory) as dashboard,
        httpx.AsyncClient(base_url=dashboard.url, trust_env=False, timeout=20.0) as client,
    ):
        found = Served(dashboard, run, client)
        found.told.on_lead(run)  # type: ignore[arg-type]
        yield found
