"""What the dashboard answers over real connections, to friends and to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from coordinator.dashboard import audience, guard, pages, shell
from coordinator.pool.events import Audit, Ban, Paused, Rely, Resumed, Unban
from tests.coordinator.dashboard.pictures import picture, update_line, worker
from tests.coordinator.dashboard.serving import JOIN, TOKEN, Served, served


async def events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])


async def test_a_page_hears_all_then_what_is_new_within_a_second(tmp_path: Path) -> None:
    lines = [update_line(version) for version in range(1, 8)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = picture(worker(1), worker(2))
    async with (
        asyncio.timeout(20),
        served(tmp_path, shown=shown) as site,
        site.client.stream("GET", "/stream") as answer,
    ):
        assert answer.headers["content-encoding"] == "gzip"
        heard = events(answer)
        whole = await anext(heard)
        assert whole["whole"] and whole["summary"]["version"] == 7
        assert whole["summary"]["join"] == JOIN and whole["summary"]["role"] == "leading"
        assert len(whole["workers"]) == 2 and len(whole["updates"]["items"]) == 7
        site.told.on_metrics(update_line(8))
        site.told.on_event("something happened")
        site.run.shown = picture(worker(1), version=8)
        assert shell.EVERY_SECONDS < 1.0  # one picture may be on its way already
        news = [await anext(heard) for _ in range(2)]
        assert [row[0] for told in news for row in told["gone"]] == [worker(2).worker]
        assert [row["version"] for told in news for row in _items(told, "updates")] == [8]
        assert [line for told in news for _, line in _items(told, "events")] == [
            "something happened"
        ]


def _items(told: dict[str, Any], name: str) -> list[Any]:
    items: list[Any] = told.get(name, {"items": []})["items"]
    return items


async def test_nobody_looks_at_the_run_while_no_page_is_open(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        await asyncio.sleep(1.2)
        assert site.run.looks == 0
        assert (await site.client.get("/metrics")).status_code == 200
        for _ in range(20):
            await site.client.get("/metrics")
        assert site.run.looks <= 2


async def test_every_answer_has_the_headers_that_keep_browsers_strict(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        for path in ("/", "/static/main.js", "/metrics", "/healthz", "/nothing", "/static/../x"):
            answer = await site.client.get(path)
            for name, value in guard.HEADERS.items():
                assert answer.headers[name] == value
            assert "server" not in answer.headers
        page = await site.client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        for forbidden in ("<style", "onclick", " style=", "http:", "https:", "//"):
            assert forbidden not in page.text
        assert page.text.count("<script") == 1


async def test_health_and_figures_tell_the_role(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        assert (await site.client.get("/healthz")).json()["role"] == "leading"
        assert 'shoal_version{run="test-12345678"} 7' in (await site.client.get("/metrics")).text
        site.told.on_lead(None)
        assert (await site.client.get("/healthz")).json()["role"] == "over"
        assert 'shoal_leading{run="test-12345678"} 0' in (await site.client.get("/metrics")).text


async def test_a_standby_tells_how_far_it_follows_then_the_run_that_it_leads(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as site:
        site.told.on_lead(None)
        site.told.on_follow(SimpleNamespace(version=3, goal=5))  # type: ignore[arg-type]
        assert (await site.client.get("/healthz")).json()["role"] == "following"
        async with asyncio.timeout(20), site.client.stream("GET", "/stream") as answer:
            heard = events(answer)
            first = await anext(heard)
            assert first["summary"]["follows"] == {"version": 3, "goal": 5}
            assert "version" not in first["summary"] and first["workers"] == []
            site.told.on_lead(site.run)  # type: ignore[arg-type]
            told = await anext(heard)
            while told["summary"]["role"] == "following":
                told = await anext(heard)
            assert told["summary"]["role"] == "leading" and told["summary"]["version"] == 7


HOSTS = {
    "127.0.0.1:1": 200,
    "localhost": 200,
    "LOCALHOST:8080": 200,
    "[::1]:8080": 200,
    "evil.example": 421,
    "127.0.0.1.evil.example:80": 421,
    "localhost:80@evil.example": 421,
    "[localhost]": 421,
    "": 421,
}


async def test_a_name_that_was_bound_anew_to_the_loopback_is_not_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        for host, status in HOSTS.items():
            answer = await site.client.get("/metrics", headers={"Host": host})
            assert answer.status_code == status, host
            assert ("shoal_" in answer.text) == (status == 200)


ORDERS = [
    ({"order": "ban", "worker": worker(1).worker, "reason": "lies"}, Ban(worker(1).worker, "lies")),
    ({"order": "unban", "worker": worker(1).worker}, Unban(worker(1).worker)),
    ({"order": "audit", "worker": worker(1).worker}, Audit(worker(1).worker)),
    ({"order": "trust", "worker": worker(1).worker}, Rely(worker(1).worker)),
    ({"order": "pause"}, Paused("by the host's word")),
    ({"order": "resume"}, Resumed()),
    ({"order": "stop"}, "stopped by the host (dashboard)"),
]


async def test_who_has_the_token_orders(tmp_path: Path) -> None:
    async with served(tmp_path, token=TOKEN) as site:
        for said, order in ORDERS:
            assert (await site.order(**said)).status_code == 200
            assert site.run.orders.pop() == order


async def test_who_hides_is_banned_by_the_name_that_the_page_has(tmp_path: Path) -> None:
    hidden = worker(5, name="", device="")
    async with served(tmp_path, token=TOKEN, shown=picture(hidden)) as site:
        async with asyncio.timeout(20), site.client.stream("GET", "/stream") as answer:
            whole = await anext(events(answer))
        alias = whole["workers"][0][0]
        assert alias.startswith("private-")
        assert (await site.order(order="ban", worker=alias)).status_code == 200
        assert site.run.orders == [Ban(hidden.worker, "by the host's word")]


async def test_who_has_no_token_or_says_no_order_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, token=TOKEN) as site:
        for said, status in (
            ({"order": "ban"}, 409),
            ({"order": "ban", "worker": "../../etc"}, 409),
            ({"order": "explode"}, 400),
            ({"order": "stop", "more": 1}, 400),
            ({"order": "ban", "worker": worker(1).worker, "reason": "x" * 201}, 400),
        ):
            answer = await site.order(**said)
            assert answer.status_code == status and answer.json()["error"]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for body, status in ((b"\xff{", 400), (b"[" * 4000, 400), (b"x" * 5000, 413)):
            answer = await site.client.post("/orders", content=body, headers=headers)
            assert answer.status_code == status
        for token in (None, "x", "wrong", TOKEN + "0", TOKEN[:-1]):
            assert (await site.order(token, order="stop")).status_code == 401
        assert (await site.client.get("/orders")).status_code == 405
        assert site.run.orders == []


async def test_guesses_are_few(tmp_path: Path) -> None:
    async with served(tmp_path, token=TOKEN) as site:
        statuses = [(await site.order(f"guess-{n}", order="stop")).status_code for n in range(30)]
        assert statuses[0] == 401 and statuses[-1] == 429
        assert statuses.count(401) <= 12 and site.run.orders == []
        assert (await site.order(order="stop")).status_code == 200, (
            "others' guesses keep nobody out"
        )


async def test_without_a_token_nothing_can_be_ordered(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        for token in (None, TOKEN, "None"):
            assert (await site.order(token, order="stop")).status_code == 403
        assert site.run.orders == []


async def test_pages_are_few_and_leave_room_when_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as site, contextlib.AsyncExitStack() as open_pages:
        for _ in range(audience.MOST_LISTENERS):
            answer = await open_pages.enter_async_context(site.client.stream("GET", "/stream"))
            assert answer.status_code == 200
        refused = await site.client.get("/stream")
        assert refused.status_code == 503 and refused.headers["retry-after"]
        await open_pages.aclose()
        async with asyncio.timeout(20):
            while (await _status(site)) != 200:
                await asyncio.sleep(0.1)


async def _status(site: Served) -> int:
    async with site.client.stream("GET", "/stream") as answer:
        return answer.status_code


async def test_a_page_that_takes_nothing_is_dropped_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(guard, "FIRST_REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(shell, "EVERY_SECONDS", 0.1)
    crowd = [worker(n, trouble=str(n) * 150) for n in range(2000)]
    async with served(tmp_path, shown=picture(*crowd)) as site:
        port = urlsplit(site.url).port
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(20), site.client.stream("GET", "/stream") as answer:
            heard = events(answer)
            number = 0
            while not await _is_gone(writer):
                number += 1
                site.run.shown = picture(
                    *(worker(n, trouble=str(n) * 150, speed=float(number)) for n in range(2000))
                )
                await anext(heard)
        writer.close()
        assert len(site.dashboard._audience) <= 1


async def _is_gone(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end has closed the connection, of which nothing is read."""
    try:
        writer.write(b" ")
        await writer.drain()
    except OSError:
        return True
    return writer.transport.is_closing()


async def test_who_says_nothing_is_let_go_and_connections_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "FIRST_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 5)
    async with served(tmp_path) as site:
        port = urlsplit(site.url).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        silent[0][1].write(b"GET / HTTP/1.1\r\nX-Slow: ")
        async with asyncio.timeout(20):
            for reader, _ in silent:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        assert (await site.client.get("/healthz")).status_code == 200
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("takes", [True, False])
async def test_who_dribbles_a_second_request_or_takes_no_answers_is_let_go(
    takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "FIRST_REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.3)
    asked = b"GET /static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(tmp_path) as site:
        assert site.dashboard._server is not None
        connections = site.dashboard._server.server_state.connections
        port = urlsplit(site.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(asked if takes else asked * 2000)
        await reader.readuntil(b"\r\n")
        async with asyncio.timeout(10):
            while connections:
                if takes:
                    writer.write(b"x")
                    await reader.read(1024)
                await asyncio.sleep(0.05)
        writer.close()


async def test_the_last_picture_is_told_before_the_end(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        site = await stack.enter_async_context(served(tmp_path))
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=site.url, trust_env=False, timeout=20.0)
        )
        answer = await stack.enter_async_context(client.stream("GET", "/stream"))
        heard = events(answer)
        await anext(heard)
        site.run.shown = picture(state="finished")
        site.told.on_lead(None)
        closing = asyncio.create_task(site.dashboard.__aexit__())
        async with asyncio.timeout(20):
            told = [each["summary"]["state"] async for each in heard]
            await closing
    assert told[-1] == "finished"
