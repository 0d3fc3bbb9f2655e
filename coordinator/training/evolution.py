"""Ask and tell: a run's strategy and optimizer, for who evaluates the members by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coordinator import update
from coordinator.pool.events import CloseBatch, Contribution, SessionId
from coordinator.training import evolution_file
from coordinator.training.overrides import Source, composed, path_of, spec_values
from protocol import noise, replay, state
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from protocol.state import State

if TYPE_CHECKING:
    from typing import Unpack

    from coordinator.training.overrides import Overrides

OURS = "shoal:Evolution"
"""In the place of the function of an objective: the values come by `Evolution.tell`."""
ONESELF = SessionId("evolution", "")


class Evolution:
    """The same noise, ranks and update as a pool has, bit for bit, one version after the other.

        evolution = Evolution({"strategy": {"population": 64}}, 10)
        while evolution.version < 100:
            members = evolution.ask()
            evolution.tell([-(member**2).sum() for member in members])

    A pool that waits for all members (`pool="sync"`) and gets the same returns has the same
    parameters after each update.
    """

    def __init__(
        self,
        spec: Source | None = None,
        parameters: int | ArrayLike | None = None,
        /,
        *,
        environments: Sequence[str] = (),
        **settings: Unpack[Overrides],
    ) -> None:
        """At version 0.

        Args:
            spec: of a run, in any form that `shoal.train` takes; or the tables `strategy`,
                `optimizer` and `seed` alone, as a mapping, where `parameters` are given.
            parameters: how many there are, which begin at 0; or those to begin with, shape
                (size,), float32. By default those of the run's policy.
            environments: modules that the environment's spaces or the policy are asked of.
            settings: laid over the spec, as in `shoal.train`.

        Raises:
            ShoalError: the spec or the parameters break a rule; or updates of the run need more
                than returns: a normaliser of observations, or a strategy that evaluates its centre.
        """
        if parameters is None and _names_nothing(spec, settings):
            parameters = settings.pop("parameters", None)
            if parameters is None:
                raise ShoalError(
                    "nothing says which parameters there are: give their number after the spec, "
                    "Evolution(None, 10), or an environment's id, whose policy has them"
                )
        theta = None if parameters is None else _parameters(parameters)
        if theta is not None and _names_nothing(spec, settings):
            own: dict[str, Any] = {"name": "evolution", "objective": _objective(theta.size)}
            own["centre"] = {"episodes": 1, "screening": 1}
            spec = {**own, **(spec or {})} if isinstance(spec, Mapping | None) else own
        wanted = composed(spec, settings, environments)
        rules = replay.arithmetic(wanted.spec)
        if theta is not None:
            first = state.initial_state(rules, theta, wanted.spec.strategy.sigma_at(0))
        else:
            first = wanted.first or replay.initial_state(wanted.spec)
        self._begin(wanted.spec, first)

    def _begin(self, spec: RunSpec, now: State) -> None:
        _require_returns_enough(spec)
        self._spec = spec
        self._rules = replay.arithmetic(spec)
        self._state = now
        self._asked = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Go on where `save` was called. Raises `ShoalError` where the file is none of its."""
        found = cls.__new__(cls)
        found._begin(*evolution_file.read(path_of("path", path)))
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write spec and state to a safetensors file, whole or not at all. Raises `ShoalError`
        where the disk takes none."""
        evolution_file.write(path_of("path", path), self._spec, self._state)

    @property
    def spec(self) -> RunSpec:
        """Of the run."""
        return self._spec

    @property
    def version(self) -> int:
        """Updates so far."""
        return self._state.version

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self._rules.size

    @property
    def population(self) -> int:
        """Members of a version."""
        return self._spec.directions * self._spec.members_per_direction

    @property
    def centre(self) -> NDArray[np.float32]:
        """The parameters that members are perturbed from, shape (size,), read-only."""
        return self._state.theta

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that prove the centre: a pool's `params_hash`."""
        return state.params_hash(self._state.theta)

    @property
    def spread(self) -> float | NDArray[np.float64]:
        """The size of the perturbations: of all parameters; or of each, shape (size,), read-only,
        where the strategy adapts them one by one. A run that freezes or scales parameters
        multiplies it by their factors."""
        return self._state.spread

    def ask(self) -> NDArray[np.float32]:
        """The members of this version, shape (population, size): where they are mirrored, that at
        +sigma and that at -sigma of one direction after the other. The same until `tell`."""
        self._asked = True
        return noise.members(
            self._spec.strategy.noise,
            self._spec.seed,
            self._first,
            self._spec.directions,
            self._state.theta,
            self._member_spread,
            per_direction=self._spec.members_per_direction,
        )

    def tell(self, returns: ArrayLike, lengths: ArrayLike | None = None) -> None:
        """Make the update of what the members returned, to the next version.

        Args:
            returns: one a member, in the order of `ask`, shape (population,), finite; the higher,
                the better. Of several episodes their mean.
            lengths: steps of each member's episodes together, shape (population,), integers above
                0; only where the spec has `environment.cap` or `alive_bonus`. By default 1.

        Raises:
            ShoalError: there are not as many returns as members, one is not finite, nobody asked
                for the members, or the update leaves the range of float32. The version stays as
                it was.
        """
        if not self._asked:
            raise ShoalError(
                f"tell before ask: version {self.version} has members that nobody asked for; call "
                "ask, evaluate what it gives, then tell"
            )
        shape = (self._spec.directions, self._spec.members_per_direction)
        found = _vector("returns", returns, self.population)
        steps = self._lengths(lengths)
        contribution = Contribution(
            ONESELF, self.version, self._first, found.reshape(shape), steps.reshape(shape), b""
        )
        closed = CloseBatch(self.version, (contribution,), ())
        try:
            made = update.make(self._spec, self._rules, self._state, 1, closed)
        except (ValueError, ArithmeticError) as error:
            raise ShoalError(f"no update can be made of these returns: {error}") from None
        self._state = made.after
        self._asked = False

    @property
    def _first(self) -> int:
        """The first direction of this version's batch."""
        return self.version * self._spec.directions

    @property
    def _member_spread(self) -> noise.Spread:
        """As workers have it, who get the sigmas of parameters as float32."""
        now = self._state
        sigmas = None if now.sigmas is None else now.sigmas.astype(np.float32)
        if self._rules.factors is None:
            return now.sigma if sigmas is None else sigmas
        return (now.sigma if sigmas is None else sigmas) * self._rules.factors

    def _lengths(self, given: ArrayLike | None) -> NDArray[np.int64]:
        environment = self._spec.environment
        if given is None:
            if environment.cap or environment.alive_bonus:
                raise ShoalError(
                    "the spec has environment.cap or alive_bonus, which updates need the steps of "
                    "episodes for: give lengths, one a member"
                )
            return np.ones(self.population, dtype=np.int64)
        lengths = _vector("lengths", given, self.population)
        most = self._spec.longest * environment.episodes
        if not ((lengths >= 1) & (lengths <= most) & (lengths == np.floor(lengths))).all():
            raise ShoalError(f"lengths: must be whole numbers of steps, from 1 to {most:,}")
        return lengths.astype(np.int64)


def _names_nothing(spec: Source | None, settings: Mapping[str, Any]) -> bool:
    """Whether neither says what is evaluated."""
    said = {**(spec if isinstance(spec, Mapping) else {}), **spec_values(settings)}
    return isinstance(spec, Mapping | None) and not {"environment", "objective"} & set(said)


def _objective(size: int) -> dict[str, Any]:
    return {"function": OURS, "parameters": size}


def _parameters(given: int | ArrayLike) -> NDArray[np.float32]:
    """What to begin with. Raises `ShoalError`."""
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if not 1 <= given <= run_spec.MAX_PARAMETERS:
            raise ShoalError(f"parameters={given}: must be from 1 to {run_spec.MAX_PARAMETERS:,}")
        return np.zeros(int(given), dtype=np.float32)
    found = _vector("parameters", given, None)
    with np.errstate(over="ignore"):
        theta = found.astype(np.float32)
    if not np.isfinite(theta).all():
        raise ShoalError("parameters has a number beyond float32: give smaller ones")
    return theta


def _vector(name: str, given: ArrayLike, size: int | None) -> NDArray[np.float64]:
    """A row of finite numbers, of a size where one is given. Raises `ShoalError`."""
    try:
        found = np.asarray(given)
        if found.dtype.kind not in "biuf":
            raise TypeError
        values = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ShoalError(f"{name} of type {type(given).__name__}: must be real numbers") from None
    if values.ndim != 1 or (values.size != size if size is not None else not values.size):
        rule = f"({size},), one a member" if size is not None else "(size,), of one at least"
        raise ShoalError(f"{name} of shape {values.shape}: must be {rule}")
    finite = np.isfinite(values)
    if not finite.all():
        place = int(np.argmin(finite))
        raise ShoalError(
            f"{name} has {values[place]} at position {place}: must be finite; give a member that "
            "failed a low return of its own"
            if name == "returns"
            else f"{name} has {values[place]} at position {place}: must be finite"
        )
    return values


def _require_returns_enough(spec: RunSpec) -> None:
    """Raises `ShoalError` where updates need more than returns."""
    if spec.normalizer.enabled:
        raise ShoalError(
            "normalizer.enabled is true, and Evolution sees no observations: give normalize=False, "
            "and normalise them where you evaluate; or let shoal.train evaluate"
        )
    if spec.needs_acceptance:
        raise ShoalError(
            f"strategy.kind is {spec.strategy.kind!r}, which keeps a step by the evaluation of its "
            "centre, and Evolution is told of members alone: take another, or shoal.train"
        )
