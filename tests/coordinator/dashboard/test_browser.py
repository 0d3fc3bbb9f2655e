"""The page in a real browser: of a real run, through a restart, on a phone, with hostile names."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from coordinator import host
from coordinator.dashboard.feed import Feed
from coordinator.dashboard.history import History
from coordinator.dashboard.options import Choice
from coordinator.dashboard.published import Aliases
from coordinator.dashboard.shell import Dashboard
from coordinator.hosting import Listeners, lead
from coordinator.progress import Outcome
from protocol.address import parse_address
from tests import chromium
from tests.chromium import Page, browsing
from tests.coordinator.dashboard.pictures import HOSTILE, picture, update_line, worker
from tests.coordinator.dashboard.serving import JOIN, TOKEN, served
from tests.coordinator.runs import begun, broker, spec_of
from tests.coordinator.scripted import ScriptedWorker

pytestmark = pytest.mark.skipif(
    chromium.executable() is None,
    reason="no chromium on the PATH: apt-get install --no-install-recommends chromium",
)
TEXT = "document.body.innerText"


@contextlib.asynccontextmanager
async def hosted(run: host.Run, url: str, port: int) -> AsyncIterator[Dashboard]:
    """A run led as `shoal host` does it, with its dashboard."""
    course = host.load(run, lambda line: None)
    try:
        async with Dashboard(Choice(port), run.id, run.directory.path) as dashboard:
            told = dashboard.beside(Listeners(lambda line: None), f"shoal join {url}/{run.id}")
            leading: asyncio.Task[Outcome] = asyncio.create_task(
                lead(run, course, parse_address(url), told, owns_broker=True)
            )
            try:
                yield dashboard
            finally:
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
    finally:
        course.log.close()
        run.directory.close()


def version_shown(number: int) -> str:
    return f"document.querySelector('#updates td')?.textContent === '{number}'"


async def test_a_run_is_shown_live_and_again_after_a_restart(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 1000})
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(broker(tmp_path / "broker"))
        page = await stack.enter_async_context(browsing(tmp_path / "profile"))
        first = begun(spec, tmp_path / "run")
        async with hosted(first, url, 0) as dashboard:
            await page.go(dashboard.url)
            await page.until(f"{TEXT}.includes('no worker is here')")
            volunteer = ScriptedWorker(url, first.id, pause_at=3)
            await stack.enter_async_context(volunteer)
            await page.until(version_shown(3))
            await page.until("document.querySelectorAll('.body .row').length === 1")
            assert await page.value("document.querySelector('.body .row').innerText") != ""
            assert await page.value("document.title") == f"{first.id} · 3"
            volunteer.pause_at = 5
            volunteer.begin()
            await page.until(version_shown(5))  # without being loaded anew
            assert page.troubles == []
            port = urlsplit(dashboard.url).port
        await page.until("!document.getElementById('stale').hidden")
        told = await page.value("document.getElementById('stale').textContent")
        assert told.startswith("No word from the host since ")
        assert await page.value(version_shown(5))
        async with hosted(host.resume(tmp_path / "run"), url, port or 0):
            await page.until("document.getElementById('stale').hidden")
            await page.until("document.getElementById('link').textContent.includes('live')")
            await page.until(version_shown(5))  # the past is not lost
            volunteer.pause_at = 7
            volunteer.begin()
            await page.until(version_shown(7))
            epoch = await page.value("document.getElementById('about').textContent")
            assert "epoch 2" in epoch
        # While nobody was there the browser itself said so; the page made no mistake.
        assert {source for source, _ in page.troubles} <= {"network"}


async def test_strangers_words_are_text_and_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    crowd = [
        worker(number, name=name, device=name, trouble=name, state="resting")
        for number, name in enumerate(HOSTILE)
    ]
    shown = picture(
        *crowd,
        quiet=HOSTILE[0],
        busy=HOSTILE[2],
        environment=HOSTILE[1],
        unable=tuple((name, 2) for name in HOSTILE),
    )
    lines = [update_line(version) for version in range(1, 40)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with served(tmp_path, shown=shown, token=TOKEN) as site, browsing(tmp_path / "p") as page:
        for name in HOSTILE:
            site.told.on_event(f"somebody ({name}): joined")
        await page.resize(390, 844, phone=True)
        await page.go(site.url)
        await page.until("document.querySelectorAll('.body .row').length === 6")
        await page.value("document.querySelector('.body .row').click()")
        for size in ((390, 844), (844, 390), (1400, 900)):
            await page.resize(*size, phone=size[0] < 1000)
            await page.until(f"innerWidth === {size[0]}")
            assert await page.value("document.documentElement.scrollWidth") <= size[0]
        text = await page.value(TEXT)
        assert "<script>document.title='pwned'</script>" in text and HOSTILE[1] in text
        assert "\u202e" not in text and "\x1b" not in text
        assert "a" * 201 not in text
        assert await page.value("document.title") == "test-12345678 · 7"
        assert await page.value("document.querySelectorAll('body script, img[src=x]').length") == 0
        assert JOIN in text
        assert [told for told in page.troubles if "/film" not in told[1]] == []


async def test_what_colours_tell_is_told_without_them(tmp_path: Path) -> None:
    views = [
        worker(1, state="working", share=0.5),
        worker(2, state="resting", share=0.3),
        worker(3, state="paused", share=0.2, standing="quarantined"),
    ]
    async with served(tmp_path, shown=picture(*views)) as site, browsing(tmp_path / "p") as page:
        await page.do("Emulation.setEmulatedVisionDeficiency", type="achromatopsia")
        await page.go(site.url)
        await page.until("document.querySelectorAll('.body .row').length === 3")
        rows = await page.value(
            "[...document.querySelectorAll('.body .row')].map((row) => row.innerText).join('|')"
        )
        for word in ("working", "resting", "paused", "quarantined"):
            assert word in rows
        legend = await page.value("document.getElementById('pool-legend').innerText")
        assert "class 01234567 (2)" in legend and "resting" in legend
        batch = await page.value("document.getElementById('batch-bar').getAttribute('aria-label')")
        assert batch == "10 settled, 12 leased, 10 free"
        # Two classes differ in their patterns, not in their hues alone: a tile has two shades.
        shades = await page.value(SHADES)
        assert shades[0] == 1 and shades[1] > 1
        assert await page.value(CONTRAST) >= 4.5


SHADES = """[...document.querySelectorAll('#pool-legend canvas')].map((canvas) => {
  const dots = canvas.getContext('2d').getImageData(2, 2, 24, 8).data;
  const seen = new Set();
  for (let i = 0; i < dots.length; i += 4) {
    seen.add((0.3 * dots[i] + 0.59 * dots[i + 1] + 0.11 * dots[i + 2]) >> 5);
  }
  return seen.size;
})"""
CONTRAST = """(() => {
  const light = (name) => {
    const all = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const parts = [1, 3, 5].map((at) => parseInt(all.slice(at, at + 2), 16) / 255);
    const linear = parts.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const papers = ['--paper', '--card'];
  const inks = ['--ink', '--soft', '--accent', '--good', '--bad'];
  return Math.min(...papers.flatMap((p) => inks.map((i) => ratio(light(p), light(i)))));
})()"""


async def test_a_thousand_rows_take_the_elements_of_a_screen(tmp_path: Path) -> None:
    views = [worker(number, share=1e-3, speed=float(number)) for number in range(1000)]
    async with served(tmp_path, shown=picture(*views)) as site, browsing(tmp_path / "p") as page:
        await page.go(site.url)
        await page.until("document.querySelector('.body .row')?.innerText.includes('worker-999')")
        assert await page.value("document.querySelectorAll('.body .row').length") < 40
        await _click_column(page, "steps/s")  # now the slowest first
        await page.until("document.querySelector('[aria-sort=ascending]') !== null")
        tops: list[Any] = await page.value(
            "[...document.querySelectorAll('.body .row')].map((row) => [row.offsetTop, "
            "row.innerText.split(' ')[0]]).sort((a, b) => a[0] - b[0]).map((row) => row[1])"
        )
        assert [top.split()[0] for top in tops[:3]] == ["worker-0", "worker-1", "worker-2"]
        await page.value("document.getElementById('body').scrollTop = 32 * 500")
        await page.until(f"{TEXT}.includes('worker-505')")
        await page.value(
            "(() => { const find = document.getElementById('find'); find.value = 'worker-77';"
            "find.dispatchEvent(new Event('input')); })()"
        )
        await page.until("document.querySelectorAll('.body .row').length === 11")
        assert page.troubles == []


async def _click_column(page: Page, name: str) -> None:
    await page.value(
        "[...document.querySelectorAll('.columns button')]"
        f".find((button) => button.textContent.startsWith('{name}')).click()"
    )


async def test_who_has_the_token_bans_from_the_page(tmp_path: Path) -> None:
    async with (
        served(tmp_path, shown=picture(worker(1), worker(2)), token=TOKEN) as site,
        browsing(tmp_path / "p") as page,
    ):
        await page.go(site.url)
        await page.until("document.querySelectorAll('.body .row').length === 2")
        await page.value("window.confirm = () => true")
        await page.value("document.querySelector('.body .row').click()")
        button = "document.querySelector('#details button')"
        await page.until(f"{button}?.textContent === 'ban'")
        await page.value("document.getElementById('token').value = 'not the right one'")
        await page.value(f"{button}.click()")
        answer = "document.getElementById('answer').textContent"
        await page.until(f"{answer} === 'the token is not the one that the host set'")
        await page.value(f"document.getElementById('token').value = '{TOKEN}'")
        await page.value(f"{button}.click()")
        await page.until(f"{answer} === 'ban: the host does it'")
        assert [order.worker for order in site.run.orders] == [worker(2).worker]


STORED = """(async () => {
  const { Store } = await import('/static/store.js');
  const store = new Store();
  for (const told of TOLD) store.take(told);
  return {
    rows: [...store.workers.keys()].sort(),
    speeds: [...store.workers.values()].map((row) => row[7]).sort(),
    versions: store.members.map((point) => point[0]),
    events: store.events.map((event) => event[1]),
    next: store.next,
  };
})()"""


async def test_a_page_takes_each_item_once_whatever_was_on_its_way(tmp_path: Path) -> None:
    history = History()
    feed = Feed(history, Aliases(b"k" * 16))
    told = []
    for moment, crowd in enumerate(((1, 2, 3), (2, 3, 4), (3, 4, 5))):
        history.metrics(update_line(moment + 1))
        history.event(float(moment), f"event {moment}")
        views = [worker(number, speed=float(moment)) for number in crowd]
        told.append(feed.news(picture(*views, version=moment), {"time": moment}))
        if moment == 1:  # the page came before this was sent, and gets it twice
            told = [feed.whole(), told[-1]]
    async with served(tmp_path) as site, browsing(tmp_path / "p") as page:
        await page.go(f"{site.url}healthz")
        said = msgspec.json.encode(told).decode()
        stored = await page.value(STORED.replace("TOLD", said))
        assert stored["rows"] == sorted(f"{worker(n).worker}/aaaaaa" for n in (3, 4, 5))
        assert stored["speeds"] == [2.0, 2.0, 2.0]
        assert stored["versions"] == [1, 2, 3]
        assert stored["events"] == ["event 0", "event 1", "event 2"]
        assert stored["next"] == {"members": 3, "centres": 0, "updates": 3, "events": 3}
