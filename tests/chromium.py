"""A headless Chromium of the system's, driven over its own protocol: no other package is needed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

DEADLINE = 20.0
"""Seconds that anything in a page may take before it counts as failed."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def executable() -> str | None:
    """The browser; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A tab.

    Attributes:
        troubles: what its console says of errors, in order: (source, text).
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.troubles: list[tuple[str, str]] = []
        self._connection = connection
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self._hearing = asyncio.create_task(self._hear())

    async def open(self) -> None:
        """Make the tab."""
        made = await self.do("Target.createTarget", url="about:blank")
        attached = await self.do("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.do(f"{domain}.enable")

    async def do(self, method: str, **given: Any) -> dict[str, Any]:
        """Have the browser do something, and wait for its answer."""
        number = next(self._numbers)
        said = {"id": number, "method": method, "params": given}
        if self._session is not None:
            said["sessionId"] = self._session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._connection.send(json.dumps(said))
        async with asyncio.timeout(DEADLINE):
            return await answer

    async def go(self, url: str) -> None:
        """Load a page."""
        await self.do("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """What an expression is in the page."""
        told = await self.do(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise AssertionError(f"{script}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def until(self, condition: str, deadline: float = DEADLINE) -> None:
        """Wait until an expression is true in the page."""
        try:
            async with asyncio.timeout(deadline):
                while not await self.value(condition):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise AssertionError(f"not within {deadline} s: {condition}\n{text[:2000]}") from None

    async def resize(self, width: int, height: int, phone: bool = False) -> None:
        """A window of that many pixels."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    async def picture(self, file: Path, whole: bool = False) -> None:
        """Keep what it looks like."""
        taken = await self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        """Hear no more."""
        self._hearing.cancel()

    async def _hear(self) -> None:
        async for raw in self._connection:
            said = json.loads(raw)
            if "id" in said:
                answer = self._answers.pop(said["id"], None)
                if answer is not None and not answer.done():
                    if "error" in said:
                        answer.set_exception(AssertionError(said["error"]))
                    else:
                        answer.set_result(said["result"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.troubles.append(("exception", str(said["params"]["exceptionDetails"])))
            elif said["method"] == "Runtime.consoleAPICalled":
                if said["params"]["type"] in ("error", "warning", "assert"):
                    self.troubles.append(("console", str(said["params"]["args"])))
            elif said["method"] == "Log.entryAdded":
                entry = said["params"]["entry"]
                if entry["level"] in ("error", "warning"):
                    told = f"{entry['text']} {entry.get('url', '')}"
                    self.troubles.append((entry["source"], told))


@contextlib.asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Page]:
    """A tab of a browser of its own, whose profile is in that folder."""
    found = executable()
    assert found is not None
    process = await asyncio.create_subprocess_exec(
        found,
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
        *("--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb"),
        *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        start_new_session=True,
    )
    draining: asyncio.Task[None] | None = None
    try:
        address = await _address(process)
        draining = asyncio.create_task(_drain(process))
        async with connect(address, max_size=None, proxy=None) as connection:
            page = Page(connection)
            await page.open()
            try:
                yield page
            finally:
                page.close()
    finally:
        if draining is not None:
            draining.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(5.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: Process) -> str:
    """Where its protocol is spoken."""
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE):
        while line := await process.stderr.readline():
            if line.startswith(b"DevTools listening on "):
                return line.decode().split()[-1]
    raise AssertionError("the browser did not start")


async def _drain(process: Process) -> None:
    assert process.stderr is not None
    while await process.stderr.readline():
        pass
