"""Draws points by what became of earlier ones: Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coordinator.sweep.file import SweepError, SweepFile
from coordinator.sweep.measures import Aim
from coordinator.sweep.points import Point, Range, drawn_from, point
from coordinator.sweep.report import Row

if TYPE_CHECKING:
    from pathlib import Path

    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

AT_ONCE = 4
"""Points that are drawn together, once all before them are over: what is drawn depends on nobody's
speed."""
ATTEMPTS = 10
"""To draw a point that was not tried before; where none is found, a small space is exhausted."""
NEEDS = "sampler = 'tpe' needs Optuna: install it with pip install 'shoal[sweep]'"


def drawn_next(said: SweepFile, rows: Sequence[Row], aim: Aim) -> list[tuple[int, Point]]:
    """Numbers and points of those to be tried next, once those of all `rows` are over; none at the
    end. A function of its arguments. Raises `SweepError` where Optuna is not there.

    Bergstra et al., Algorithms for Hyper-Parameter Optimization (2011).
    """
    ranges = drawn_from(said)
    judged = sorted(rows, key=lambda row: row.number)
    known = {row.point for row in judged}
    found: list[Point] = []
    while len(judged) + len(found) < (said.points or 0) and len(found) < AT_ONCE:
        number = len(judged) + len(found)
        drawn = (
            point(_ask(said, ranges, judged, found, f"{said.seed} {number} {attempt}", aim))
            for attempt in range(ATTEMPTS)
        )
        new = next((one for one in drawn if one.name not in known), None)
        if new is None:
            break
        known.add(new.name)
        found.append(new)
    return list(enumerate(found, len(judged)))


def keep_study(path: Path, said: SweepFile, judged: Sequence[Row], aim: Aim) -> None:
    """Let the sweep's SQLite file have the study, for the tools of Optuna; what is drawn does not
    depend on it. Raises `SweepError`."""
    optuna = _optuna()
    from sqlalchemy.exc import SQLAlchemyError  # which Optuna keeps studies by

    ranges = drawn_from(said)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path.absolute()}",
            study_name=said.name,
            direction=_direction(aim),
            load_if_exists=True,
        )
        there = len(study.get_trials(deepcopy=False))
        by_number = sorted(judged, key=lambda row: row.number)
        study.add_trials([_trial(row, ranges, aim) for row in by_number[there:]])
    except (optuna.exceptions.OptunaError, SQLAlchemyError) as error:
        reason = str(error.__cause__ or error).splitlines()[0][:200]
        raise SweepError(
            f"Optuna's study can't be kept in {path} ({reason}): see to the disk and who owns it"
        ) from None


def _ask(
    said: SweepFile,
    ranges: Mapping[str, Range],
    judged: Sequence[Row],
    under_way: Sequence[Point],
    name: str,
    aim: Aim,
) -> dict[str, Any]:
    """Settings that are worth trying; `name` names what is random in that."""
    optuna = _optuna()
    named = hashlib.blake2b(name.encode(), digest_size=4).digest()
    sampler = optuna.samplers.TPESampler(seed=int.from_bytes(named, "little"), constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction=_direction(aim))
    study.add_trials([_trial(row, ranges, aim) for row in judged])
    for each in under_way:
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params={name: _kept(ranges[name], each.settings[name]) for name in ranges},
                distributions=_distributions(ranges),
            )
        )
    params = study.ask(_distributions(ranges)).params
    return {name: _meant(ranges[name], params[name]) for name in ranges}


def _trial(row: Row, ranges: Mapping[str, Range], aim: Aim) -> FrozenTrial:
    """A point that is over, as Optuna has it; one without a value failed."""
    optuna = _optuna()
    states = optuna.trial.TrialState
    known = row.summary.count > 0 or (aim.less_is_better and row.state != "failed")
    # What a target takes that a seed has not reached is more than any number.
    missed = aim.less_is_better and row.summary.count < len(row.seeds)
    value = math.inf if missed else row.summary.mean
    return optuna.trial.create_trial(
        state=states.COMPLETE if known else states.FAIL,
        value=value if known else None,
        params={name: _kept(ranges[name], row.settings[name]) for name in ranges},
        distributions=_distributions(ranges),
        user_attrs={"point": row.point},
    )


def _distributions(ranges: Mapping[str, Range]) -> dict[str, BaseDistribution]:
    distributions = _optuna().distributions
    found = {}
    for name, range_ in ranges.items():
        if range_.choices:
            choices = [_kept(range_, choice) for choice in range_.choices]
            found[name] = distributions.CategoricalDistribution(choices)
        elif range_.whole:
            found[name] = distributions.IntDistribution(
                int(range_.low), int(range_.high), step=range_.step
            )
        else:
            found[name] = distributions.FloatDistribution(range_.low, range_.high, log=range_.log)
    return found


def _kept(range_: Range, value: Any) -> Any:
    """A value as Optuna keeps it: of choices, which may be lists, their text in JSON."""
    return json.dumps(value, default=str) if range_.choices else value


def _meant(range_: Range, kept: Any) -> Any:
    if range_.choices:
        return json.loads(kept)
    if range_.whole:
        return int(kept)
    return min(max(float(f"{kept:.6g}"), range_.low), range_.high)


def _direction(aim: Aim) -> str:
    return "minimize" if aim.less_is_better else "maximize"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise SweepError(NEEDS) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
