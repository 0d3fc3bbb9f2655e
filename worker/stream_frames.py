"""Plays the newest policy of a run for who watches: frames and news go to standard output."""

from __future__ import annotations

import argparse
import ctypes.util
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.errors import ShoalError
from protocol.film import FRAME, HEAD, NEWS

if TYPE_CHECKING:
    from worker.acting import LoadedPolicy

FRAMES_PER_SECOND = 10.0
EPISODE_SECONDS = 60.0
"""After which an episode is cut: there is a newer policy by then."""
BETWEEN_SECONDS = 1.0
"""In which the last frame of an episode stays."""
NEWS_SECONDS = 1.0
WIDEST = 640
"""Pixels: larger frames are made smaller."""
QUALITY = 80
"""Of the JPEGs."""
EPISODES_PER_VERSION = 1 << 16
"""As seeds count them."""


def main(arguments: list[str]) -> None:
    """Play until standard input ends; say why where there is nothing to see."""
    os.nice(19)
    parser = argparse.ArgumentParser(prog="python -m worker.stream_frames")
    parser.add_argument("--allow-module", action="append", default=[])
    parser.add_argument("run_dir", type=Path)
    given = parser.parse_args(arguments)
    threading.Thread(target=_end_with_input, daemon=True).start()
    draw_without_display(os.environ)
    say = Mouth(sys.stdout.buffer.fileno())
    try:
        for _ in play(given.run_dir, tuple(given.allow_module), say):
            pass
    except ShoalError as error:
        say.news({"error": _public(str(error), given.run_dir)})
    except Exception as error:  # of the environment, which may raise anything
        said = f"{_words(error)}: try shoal record {given.run_dir} on the host"
        say.news({"error": _public(said, given.run_dir)})


class Mouth:
    """Says frames and news to a file descriptor; what environments print goes elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self._out = os.fdopen(os.dup(descriptor), "wb")
        os.dup2(sys.stderr.fileno(), descriptor)

    def frame(self, jpeg: bytes) -> None:
        """A picture."""
        self._say(FRAME, jpeg)

    def news(self, said: dict[str, Any]) -> None:
        """What is played."""
        self._say(NEWS, json.dumps(said).encode())

    def _say(self, kind: bytes, body: bytes) -> None:
        self._out.write(HEAD.pack(kind, len(body)) + body)
        self._out.flush()


def draw_without_display(environment: Any) -> None:
    """Let pictures be drawn in memory, where nobody said how and there is no display."""
    environment.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not environment.get("DISPLAY"):
        drawn_by = "osmesa" if ctypes.util.find_library("OSMesa") else "egl"
        environment.setdefault("MUJOCO_GL", drawn_by)
        environment.setdefault("PYOPENGL_PLATFORM", environment["MUJOCO_GL"])


def play(
    run_dir: Path,
    allowed: tuple[str, ...],
    say: Mouth,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[float]:
    """Episodes of the newest policy, each by its newest version; gives the return of each.

    Raises `ShoalError` where it can't be shown.
    """
    from protocol import registry
    from worker.acting import load_policy

    registry.allow(allowed)
    encode = _encoder()
    environment: Any = None
    seen: tuple[int, int] | None = None
    policy: LoadedPolicy | None = None
    episode = 0
    try:
        while True:
            newest = _mark(run_dir)
            if policy is None or newest != seen:
                policy, seen, episode = load_policy(run_dir, allow_modules=allowed), newest, 0
            if environment is None:
                environment = _seen(policy)
            yield _episode(policy, environment, episode, encode, say, clock, sleep)
            episode += 1
    finally:
        if environment is not None:
            environment.close()


def _episode(
    policy: LoadedPolicy,
    environment: Any,
    episode: int,
    encode: Callable[[Any], bytes],
    say: Mouth,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> float:
    """Play one episode at the speed of life; its return so far where it is cut."""
    rate = float(environment.metadata.get("render_fps") or 30)
    stride = max(1, round(rate / FRAMES_PER_SECOND))
    seed = _seed(policy, episode)
    observation, _ = environment.reset(seed=seed)
    policy.reset(seed)
    total, steps, over = 0.0, 0, False
    began = due = clock()
    told = began - NEWS_SECONDS
    while True:
        if over or steps % stride == 0:
            say.frame(encode(environment.render()))
            if over or clock() - told >= NEWS_SECONDS:
                told = clock()
                about = {"episode": episode, "steps": steps, "return": round(total, 3)}
                say.news({"version": policy.version, **about, "over": over})
            if over or clock() - began > EPISODE_SECONDS:
                sleep(BETWEEN_SECONDS)
                return total
            due = max(due + stride / rate, clock() - 1.0)
            sleep(max(0.0, due - clock()))
        observation, reward, terminated, truncated, _ = environment.step(policy(observation))
        total += float(reward)
        steps += 1
        over = bool(terminated or truncated)


def _seed(policy: LoadedPolicy, episode: int) -> int:
    """That of an episode of the centre: those that the policy is judged by come first."""
    from protocol import noise

    index = policy.version * EPISODES_PER_VERSION + episode % EPISODES_PER_VERSION
    return noise.episode_seed(policy.spec.seed, index, domain=noise.Domain.CENTRE)


def _seen(policy: LoadedPolicy) -> Any:
    """The policy's environment, to be seen. Raises `ShoalError`."""
    from worker.play import follow

    environment = policy.environment("rgb_array")
    follow(environment)
    return environment


def _encoder() -> Callable[[Any], bytes]:
    """Makes JPEGs of frames. Raises `ShoalError` where nothing here can."""
    try:
        from PIL import Image
    except ImportError:
        raise ShoalError(
            "frames need Pillow: install it on the host with pip install 'shoal[render]'"
        ) from None
    import numpy as np

    def encode(frame: Any) -> bytes:
        pixels = np.asarray(frame)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ShoalError(
                "the environment draws no pictures in memory (render_mode rgb_array): watch the "
                "policy with shoal play --render human"
            )
        image = Image.fromarray(pixels)
        if image.width > WIDEST:
            image = image.resize((WIDEST, round(image.height * WIDEST / image.width)))
        written = io.BytesIO()
        image.save(written, "JPEG", quality=QUALITY)
        return written.getvalue()

    return encode


def _mark(run_dir: Path) -> tuple[int, int] | None:
    """Changes with the policy file."""
    from worker.play import LATEST

    try:
        found = (run_dir / LATEST).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _public(said: str, run_dir: Path) -> str:
    """Without the place of the run on this machine, which is nobody's business."""
    return said.replace(str(run_dir), run_dir.name)[:500]


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")


def _end_with_input() -> None:
    """Whoever started us holds the other end of our input."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
