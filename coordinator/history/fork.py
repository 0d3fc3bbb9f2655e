"""Makes a new run of any version of an old one.

What is carried over: the parameters; the optimizer's slots where its kind and what is laid around
it stay the same; the observation statistics where both runs normalise; the settings that held at
that version, changed since the run began or not. What begins anew: the
version and all counters, so that rules such as `stop.updates` count from the fork on; sigma, which
is the new spec's; and the seed, so that perturbations which made the parameters are not tried on
them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from coordinator.directory import RunDirectory
from coordinator.history.past import HistoryError, Past
from coordinator.log import ROOT, UpdateLog
from protocol import amendments, normalizer, replay, snapshot, strategies
from protocol import spec as run_spec
from protocol.identity import Identity, new_secret, run_id
from protocol.spec import RunSpec
from protocol.state import State, accepting, params_hash

_NO_DIGEST_YET = "0" * 32


@dataclass(frozen=True, slots=True)
class Forked:
    """A run that can be led, and what it has of the old one."""

    run: str
    directory: Path
    spec: RunSpec
    params_hash: str
    keeps_slots: bool
    keeps_statistics: bool
    amended: tuple[tuple[str, float], ...] = ()
    """settings that the old run's spec has another value of, and that the version had"""


def fork(past: Past, origin: State, changes: Mapping[str, Any], where: Path | None) -> Forked:
    """Make the directory of a run that begins with `origin`, a version of the past run.

    `changes` are values of the spec, table by table. Raises `ShoalError`: a value that breaks a
    rule, a change of the policy's shape, a directory that is taken.
    """
    old = amendments.in_force(past.spec, origin.amended)
    spec = changed_spec(old, origin.version, changes)
    state = carried_over(old, spec, origin)
    digest = snapshot.state_digest(state).hex()
    policy = msgspec.structs.replace(spec.policy, initial_digest=digest)
    spec = msgspec.structs.replace(spec, policy=policy)
    identity = Identity.generate()
    run = run_id(spec.name, identity.public_key)
    directory = RunDirectory.create(where if where is not None else Path("runs") / run, run)
    try:
        identity.save(directory.key_path)
        directory.keep_secret(new_secret())
        directory.write_spec(spec)
        directory.snapshots.freeze(state)
        with closing(UpdateLog(directory.log_path, run)) as log:
            log.note(ROOT, identity.public_key.hex())
    except BaseException:
        directory.discard()
        raise
    directory.close()
    return Forked(
        run=run,
        directory=directory.path,
        spec=spec,
        params_hash=params_hash(state.theta),
        keeps_slots=_same_slots(old, spec, origin),
        keeps_statistics=origin.normalizer is not None and state.normalizer is not None,
        amended=tuple(
            (field, value)
            for field, value in origin.amended.values
            if amendments.value_of(spec, field) == value
        ),
    )


def changed_spec(old: RunSpec, version: int, changes: Mapping[str, Any]) -> RunSpec:
    """The spec of a fork at that version, but for the digest of the state that it begins with.

    Raises `SpecError`, and `HistoryError` for changes that a fork can't have.
    """
    _require_ours(changes)
    begins = {"initialisation": "given", "initial_digest": _NO_DIGEST_YET}
    raw = run_spec.merge(_without_strange(old, changes), {"seed": next_seed(old.seed, version)})
    spec = run_spec.parse(run_spec.merge(run_spec.merge(raw, changes), {"policy": begins}))
    if spec.tensors != old.tensors:
        raise HistoryError(
            f"the policy would have weights {_shape(spec.layers)}, the parameters of the old run "
            f"are for {_shape(old.layers)}: leave policy.hidden, policy.kind and the spaces of the "
            "environment as they are, or begin a new run with `shoal host`"
        )
    return spec


def _without_strange(old: RunSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of the old spec; where the strategy or the optimizer changes, without what
    the new one has no such setting for, which nobody could take back."""
    plain = run_spec.to_plain(old)
    kind = _new_kind(plain, changes, "strategy")
    if kind in strategies.STRATEGIES:
        chosen = strategies.get(kind)
        known = set(chosen.settings())
        if chosen.needs_gaussian:
            plain["strategy"].pop("schedule", None)
        for name in ("arguments", *old.strategy.own):
            if name not in known:
                plain["strategy"].pop(name, None)
    if _new_kind(plain, changes, "optimizer"):
        plain["optimizer"].pop("arguments", None)
    return plain


def _new_kind(plain: Mapping[str, Any], changes: Mapping[str, Any], table: str) -> str:
    """The kind that a table of the spec changes to; empty where it stays."""
    values = changes.get(table)
    kind = values.get("kind") if isinstance(values, Mapping) else None
    return kind if isinstance(kind, str) and kind != plain[table]["kind"] else ""


def carried_over(old: RunSpec, new: RunSpec, origin: State) -> State:
    """Version 0 of a fork: what of the old run's state its spec has a place for."""
    rules = replay.arithmetic(new)
    statistics, seen = None, origin.normalizer
    if rules.observation_dims:
        statistics = normalizer.initial_state(rules.observation_dims, rules.window)
        if seen is not None:
            statistics = normalizer.continued(seen.count, seen.mean, seen.squares, rules.window)
    # What the strategy had adapted was for another sigma: it begins anew with the one given.
    adapted = rules.strategy.begin(rules.size, new.strategy.sigma_at(0))
    first = State(
        version=0,
        theta=origin.theta,
        slots=(
            dict(origin.slots)
            if _same_slots(old, new, origin)
            else rules.optimizer.initial_slots(rules.size)
        ),
        sigma=adapted.sigma,
        normalizer=statistics,
        cap=None if rules.cap is None else 0,
        sigmas=adapted.sigmas,
        memory=adapted.memory,
    )
    return accepting(rules, first)


def _same_slots(old: RunSpec, new: RunSpec, origin: State) -> bool:
    """Whether the fork's optimizer goes on where the old run's was: of the same kind, with the same
    things laid around it."""
    rules = replay.arithmetic(new)
    fresh = rules.optimizer.initial_slots(rules.size)
    return old.optimizer.kind == new.optimizer.kind and (
        {name: slot.shape for name, slot in origin.slots.items()}
        == {name: slot.shape for name, slot in fresh.items()}
    )


def next_seed(seed: int, version: int) -> int:
    """The seed of a fork that is given none: of the old one and the version, so that all forks of
    one version share their perturbations and can be compared."""
    octets = blake2b(f"fork {seed} {version}".encode(), digest_size=8).digest()
    return int.from_bytes(octets, "little") >> 1


def changes_of(
    assignments: Iterable[str], name: str | None = None, seed: int | None = None
) -> dict[str, Any]:
    """The values of `section.field=value` texts, of a name and of a seed. Raises `SpecError`."""
    changes = run_spec.settings(assignments)
    named = {"name": name, "seed": seed}
    return changes | {key: value for key, value in named.items() if value is not None}


def _require_ours(changes: Mapping[str, Any]) -> None:
    policy = changes.get("policy")
    for field in ("initialisation", "initial_digest"):
        if isinstance(policy, Mapping) and field in policy:
            raise HistoryError(
                f"policy.{field} can't be set to {policy[field]!r}: a fork begins with the "
                "parameters of the version that it is made of, leave it out"
            )


def _shape(layers: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{inputs}x{outputs}" for inputs, outputs in layers)
