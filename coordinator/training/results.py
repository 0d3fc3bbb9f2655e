"""How a training stands and how it ended, as programs are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coordinator import curves, metrics_file
from coordinator.curves import AXES, KINDS, Curve
from coordinator.host import interval
from coordinator.pool.events import CentreJudged
from protocol.errors import ShoalError
from protocol.messages import RunState
from protocol.spec import RunSpec

if TYPE_CHECKING:
    from coordinator.progress import Outcome, Progress


class StopTraining(Exception):  # noqa: N818
    """Raised by `on_update` to end the training; its text is the reason."""


class Policy(Protocol):
    """A trained policy that acts; see `shoal.load_policy`.

    Attributes:
        spec: of the run.
        version: whose parameters these are.
    """

    spec: RunSpec
    version: int

    def reset(self, seed: int = 0) -> None:
        """An episode begins: memories are emptied."""

    def __call__(self, observation: Any) -> Any:
        """The action for an observation."""

    def environment(self, render_mode: str | None = None) -> Any:
        """A new environment of the run, wrapped and cut as in training."""


class Loader(Protocol):
    """Loads the policy of a run directory, as `shoal.load_policy` does."""

    def __call__(
        self, path: Path, /, *, best: bool = False, allow_modules: Sequence[str] = ()
    ) -> Policy:
        """The policy. Raises `ShoalError`."""


@dataclass(frozen=True, slots=True)
class CentreReturn:
    """An evaluation of the unperturbed policy over fresh episodes.

    Attributes:
        version: of its parameters.
        mean, deviation: of the returns of its episodes, in the environment's unit.
        episodes: how many.
        interval: in which the true mean lies with 95 % confidence; None of a single episode.
    """

    version: int
    mean: float
    deviation: float
    episodes: int
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, judged: CentreJudged | None) -> CentreReturn | None:
        """That of what the pool judged; None where it judged nothing."""
        if judged is None:
            return None
        return cls(judged.version, judged.mean, judged.deviation, judged.episodes, interval(judged))


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How a training stands after an update.

    Attributes:
        run: its name.
        version: updates that the parameters have had.
        mean_return: of the members of the last update, which are perturbed; NaN where there are
            none.
        centre: the last evaluation of the unperturbed policy; None before the first.
        episodes, steps: that counted, of the environment, since the run began.
        workers: that take part.
        seconds: for which the run has been led, in all.
    """

    run: str
    version: int
    mean_return: float
    centre: CentreReturn | None
    episodes: int
    steps: int
    workers: int
    seconds: float

    @classmethod
    def of(cls, run: str, progress: Progress, seconds: float) -> TrainingProgress:
        """A picture of what goes on changing."""
        return cls(
            run,
            progress.version,
            progress.mean,
            CentreReturn.of(progress.centre),
            progress.episodes,
            progress.steps,
            progress.workers,
            seconds,
        )


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """How a training ended.

    Attributes:
        run: its name.
        directory: where all that is kept of it lies.
        solved: whether it reached its target.
        state: `finished`; or `stopped` or, by `shoal stop --pause`, `paused` before its end: then
            it can be resumed.
        reason: why it ended, in a line.
        version: of the parameters that it returns.
        centre: the last evaluation of that version's policy; None where there was none.
        updates, episodes, steps: that counted, since the run began; steps of the environment.
        seconds: for which the run has been led, in all.
        params_hash: 32 hexadecimal digits that prove the parameters.
    """

    run: str
    directory: Path
    solved: bool
    state: RunState
    reason: str
    version: int
    centre: CentreReturn | None
    updates: int
    episodes: int
    steps: int
    seconds: float
    params_hash: str
    _load: Loader = field(repr=False, compare=False)
    _modules: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(
        cls,
        run: str,
        directory: Path,
        outcome: Outcome,
        seconds: float,
        load: Loader,
        modules: tuple[str, ...],
    ) -> TrainingResult:
        """What a run came to."""
        return cls(
            run,
            directory,
            outcome.reached,
            outcome.state,
            outcome.reason,
            outcome.version,
            CentreReturn.of(outcome.centre),
            outcome.updates,
            outcome.progress.episodes,
            outcome.progress.steps,
            seconds,
            outcome.params_hash,
            load,
            modules,
        )

    def policy(self, *, best: bool = False) -> Policy:
        """The policy that the run returns, to act with; with `best`, the version whose centre was
        judged best. Raises `ShoalError` where it does not act: an objective's parameters."""
        return self._load(self.directory, best=best, allow_modules=self._modules)

    def curve(self, what: str = "centre", by: str = "version") -> Curve:
        """How the returns went: `x`, `mean`, and `half` the width of the 95 % interval of each
        mean, float64 of shape (points,).

        Args:
            what: `centre`, of the unperturbed policy, or `members`.
            by: what `x` is: `version`, `episodes`, `steps` of the environment, or `time` in
                seconds.

        Raises:
            ShoalError: it is none of these, or the run directory is gone.
        """
        for name, value, known in (("what", what, KINDS), ("by", by, AXES)):
            if value not in known:
                raise ShoalError(f"{name}={value!r:.60}: must be one of {', '.join(known)}")
        try:
            return curves.of_run(list(metrics_file.all_lines(self.directory)), what, by)
        except OSError as error:
            raise ShoalError(
                f"the curves of {self.directory} can't be read ({error.strerror}): bring the run "
                "directory back"
            ) from None


OnUpdate = Callable[[TrainingProgress], bool | None]
"""Gets how a training stands after each update; False ends it."""
