"""Plays a trained policy in its environment: the lanes of training, with something to see."""

from __future__ import annotations

import os
import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol import learners
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.policy_file import SPEC, PolicyError, from_tensors
from protocol.spec import RunSpec
from protocol.state import State, basis, params_hash
from worker.compiled.makers import CompiledMaker
from worker.evaluation import makers
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes
from worker.evaluation.makers import RunMaker
from worker.evaluation.playing import Environment
from worker.member import MemberName, Perturbed
from worker.policies.making import Grant

if TYPE_CHECKING:
    from worker.compiled.learners import LearnerLanes

LATEST = "policy.safetensors"
"""The latest policy of a run; of one that has ended that which it returned."""
BEST = "best.safetensors"
"""That whose centre was judged best."""
FILMS = (".mp4", ".gif")
FREE = -1
"""MuJoCo's number of the camera that stands where somebody puts it."""
FOLLOWING = "track"
"""What MuJoCo models call the camera that goes with the body."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables of which a window on Linux needs one."""


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """A policy as a run directory keeps it.

    Attributes:
        theta: float32, shape (spec.size,).
        normalization: of its version, None without a normaliser.
        member: the perturbed policy to be played; None: the policy itself.
    """

    spec: RunSpec
    run: str
    version: int
    theta: NDArray[np.float32]
    normalization: Normalization | None
    member: Perturbed | None = None


class Writer(Protocol):
    """Where frames of a video go."""

    def append_data(self, frame: Any) -> None:
        """One RGB frame, uint8, shape (height, width, 3)."""

    def close(self) -> None:
        """Finish the file."""


def load(path: Path, name: str = LATEST) -> TrainedPolicy:
    """The policy of a run directory, LATEST or BEST, or of a file in one. Raises `PolicyError`."""
    from safetensors import SafetensorError, safe_open

    named = path.suffix == ".safetensors"
    file = path if named else path / name
    try:
        with file.open("rb"):
            pass
    except PermissionError:
        raise PolicyError(
            f"you may not read {file}: ask its owner for the right to, or play as that user"
        ) from None
    except OSError:
        remedy = "give the directory of a run"
        if name == BEST and (path / LATEST).exists():
            remedy = (
                "no evaluation of its centre is over yet, or another host has led it since; "
                f"`shoal log {path}` tells them all, and `shoal replay` rebuilds any version"
            )
        raise PolicyError(f"{path} holds no {name}: {remedy}") from None
    try:
        with safe_open(file, framework="numpy") as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise PolicyError(f"{file} can't be read ({error}): copy it again from the host") from None
    spec = _spec_of(file, about)
    theta, statistics = from_tensors(spec, tensors, file)
    expected = about.get("params_hash")
    if expected is not None and expected != params_hash(theta):
        raise PolicyError(
            f"{file} says params_hash {expected} but holds {params_hash(theta)}: it is damaged, "
            "copy it again"
        )
    version = about.get("version", "0")
    normalization = None
    if statistics is not None:
        size = spec.environment.observation.size
        normalization = Normalization(*statistics, np.zeros(size), np.ones(size))
    return TrainedPolicy(
        spec=spec,
        run=about.get("run", spec.name),
        version=int(version) if re.fullmatch(r"\d{1,12}", version) else 0,
        theta=theta,
        normalization=normalization,
    )


def _spec_of(file: Path, about: Mapping[str, str]) -> RunSpec:
    """The spec of a policy file's run: its own where it has one, else that which lies beside it."""
    if SPEC in about:
        try:
            return run_spec.parse(tomllib.loads(about[SPEC]))
        except (ValueError, RecursionError, run_spec.SpecError) as error:
            raise PolicyError(
                f"{file} has a spec of its own that can't be read ({error}): save it again"
            ) from None
    described = file.parent / "spec.toml"
    if not described.exists():
        raise PolicyError(f"there is no {described}: put the policy into the directory of its run")
    return run_spec.parse(run_spec.load(described))


def of_version(
    spec: RunSpec, run: str, state: State, name: MemberName | None = None
) -> TrainedPolicy:
    """The policy of a version, or a member of it. Raises `ShoalError` where it has no such one."""
    return TrainedPolicy(
        spec,
        run,
        state.version,
        state.theta,
        None if state.normalizer is None else Normalization.of(state.normalizer),
        None if name is None else Perturbed.of(spec, state, name),
    )


def play(
    policy: TrainedPolicy,
    episodes: int,
    *,
    render: bool = False,
    video: Path | None = None,
    allowed: tuple[str, ...] = (),
    on_episode: Callable[[int, float, int], None] = lambda episode, total, steps: None,
) -> NDArray[np.float64]:
    """The returns of the first episodes of the centre, or of a member; shape (episodes,).

    Args:
        render: open the environment's own window.
        video: write a film to this file; the ending (.mp4, .gif) names its kind.
        on_episode: told episode, return and steps as each ends.

    Raises:
        ShoalError: no such environment here, an environment that fails, no display for a window, a
            film that can't be made.
    """
    learning = policy.spec.policy.kind in learners.KINDS
    if learning and (render or video is not None):
        raise ShoalError(
            f"a {policy.spec.policy.kind} policy learns within an episode, and there is nothing to "
            "see of that: leave --render and --video out"
        )
    if video is not None:
        _require_writable(video)
    if render:
        _require_display()
    else:
        # Frames are drawn in memory; SDL would look for a display, and complain without one.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    maker = makers.maker(policy.spec, allowed)
    if video is not None:
        # JAX warns of forks; the encoder is another program at once, which needs none of its locks.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    writer = _open_video(video, maker) if video is not None else None
    mode = "human" if render else "rgb_array" if writer is not None else None
    # A new instance per episode, as training takes where a reused one would play differently;
    # not behind a window, which would close and open.
    member = policy.member
    seeds = iter(()) if member is None else member.seeds(policy.spec, episodes)

    def seeds_of(spec: RunSpec, job: EvaluationJob) -> NDArray[np.int64]:
        return np.array([[next(seeds)]])

    lanes: Lanes | LearnerLanes
    if learning:
        from worker.compiled.learners import LearnerLanes, Programs

        assert isinstance(maker, CompiledMaker)
        programs = Programs(policy.spec, maker.functional, 1)
        lanes = LearnerLanes(policy.spec, programs, seeds_of)
    else:
        watched = _Watched(maker, mode, writer)
        grant = Grant(allowed)
        lanes = Lanes(policy.spec, watched, 1, fresh=not render, grant=grant, seeds_of=seeds_of)
    made_of = basis(policy.theta, None if member is None else member.sigmas)
    returns = []
    try:
        for episode in range(episodes):
            if member is None:
                job = EvaluationJob("centre", policy.version, episode, 1)
            else:
                job = member.job
            done = lanes.evaluate(job, made_of, policy.normalization)
            if done.failed:
                raise ShoalError(f"episode {episode} failed: {done.failed[0][1]}")
            returns.append(float(done.returns.flat[0]))
            on_episode(episode, returns[-1], int(done.lengths.flat[0]))
    finally:
        lanes.close()
        if writer is not None:
            writer.close()
    return np.array(returns)


@dataclass(frozen=True)
class _Watched:
    """A maker whose environments can be seen: by their own window, or frame by frame in a film."""

    maker: RunMaker
    mode: str | None
    writer: Writer | None

    @property
    def limit(self) -> int:
        return self.maker.limit

    def make(self) -> Environment:
        instance = self.maker.make(self.mode)
        if self.writer is None:
            return instance
        follow(instance)
        return _Filmed(instance, self.writer)


def follow(environment: Any) -> None:
    """Let the camera of a MuJoCo task go with its body, where the model has one that does.

    Gymnasium 1.4 leaves such a camera alone and looks from a place from which the body soon walks
    away. Any other camera that a run's arguments choose stays.
    """
    bare = getattr(environment, "unwrapped", environment)
    renderer: Any = getattr(bare, "mujoco_renderer", None)
    if renderer is None or renderer.camera_id != FREE:
        return
    import mujoco  # type: ignore[import-untyped]

    kind = mujoco.mjtObj.mjOBJ_CAMERA
    renderer.camera_id = mujoco.mj_name2id(bare.model, kind, FOLLOWING)


class _Filmed:
    """An environment that hands each of its frames to a writer."""

    def __init__(self, environment: Any, writer: Writer) -> None:
        self._environment = environment
        self._writer = writer

    def reset(self, *, seed: int) -> tuple[Any, Any]:
        began = self._environment.reset(seed=seed)
        self._writer.append_data(self._environment.render())
        return began

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        stepped = self._environment.step(action)
        self._writer.append_data(self._environment.render())
        return stepped

    def close(self) -> None:
        self._environment.close()


class _Even:
    """A writer of frames whose sides its format needs even: odd ones get one more row or column."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def append_data(self, frame: Any) -> None:
        height, width = frame.shape[:2]
        edges = ((0, height % 2), (0, width % 2), (0, 0))
        self._writer.append_data(np.pad(frame, edges, mode="edge"))

    def close(self) -> None:
        self._writer.close()


def _require_display() -> None:
    """Where a window can't open, say so instead of SDL, which would in words of its own."""
    if sys.platform == "linux" and not any(os.environ.get(name) for name in DISPLAYS):
        raise ShoalError(
            "--render human needs a display, and none of DISPLAY and WAYLAND_DISPLAY is set: "
            "write a film instead with --video film.mp4"
        )


def _require_writable(video: Path) -> None:
    """A film that can't be kept should fail before it is played."""
    if video.suffix.lower() not in FILMS:
        raise ShoalError(
            f"--video {video} ends in {video.suffix or 'nothing'}: end its name in "
            f"{' or '.join(FILMS)}"
        )
    folder = video.parent
    try:
        if not folder.is_dir():
            raise ShoalError(
                f"--video {video}: there is no folder {folder}, make it first or name another"
            )
        new = not video.exists()
        with video.open("ab"):
            pass
        if new:
            video.unlink()
    except OSError as error:
        raise ShoalError(
            f"--video {video} can't be written ({error.strerror or error}): "
            "name a file in a folder that you may write to"
        ) from None


def _open_video(file: Path, maker: RunMaker) -> Writer:
    try:
        import imageio
    except ImportError:
        raise ShoalError(
            "a video needs imageio: install it with pip install 'shoal[render]'"
        ) from None
    rate = _frames_per_second(maker)
    film = file.suffix.lower() == ".mp4"
    options: dict[str, Any] = {"duration": 1000.0 / rate, "loop": 0}
    if film:
        # Left to itself it stretches frames to sides that divide by 16.
        options = {"fps": rate, "macro_block_size": 2, "ffmpeg_log_level": "error"}
    try:
        writer: Writer = imageio.get_writer(file, **options)
    except (ImportError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ShoalError(
            f"{file} can't be written as a video ({reason}): "
            "install what it takes with pip install 'shoal[render]'"
        ) from None
    return _Even(writer) if film else writer


def _frames_per_second(maker: RunMaker) -> int:
    instance = maker.make("rgb_array")
    try:
        return int(instance.metadata.get("render_fps", 30))
    finally:
        instance.close()
