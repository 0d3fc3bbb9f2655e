"""The text at `/metrics`, in Prometheus' exposition format 0.0.4; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from coordinator.overview import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WORKER_STATES = ("working", "waiting", "resting", "paused")
OUTCOMES = ("accepted", "late", "duplicate", "refused")
RUN_STATES = ("running", "paused", "finished", "stopped")

Sample = tuple[Mapping[str, str], float]


def text(run: str, shown: Overview | None) -> str:
    """All metrics of a run; while we do not lead it, that alone."""
    own = {"run": run}
    lines = _metric(
        "shoal_leading", "gauge", "Whether this host leads the run.", [(own, float(bool(shown)))]
    )
    if shown is None:
        return "".join(lines)

    def gauge(name: str, about: str, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            lines.extend(_metric(name, "gauge", about, [(own, value)]))

    def counter(name: str, about: str, value: float) -> None:
        lines.extend(_metric(name, "counter", about, [(own, value)]))

    def by(name: str, kind: str, about: str, label: str, values: Mapping[str, float]) -> None:
        samples = [({**own, label: key}, value) for key, value in values.items()]
        lines.extend(_metric(name, kind, about, samples))

    states: Counter[str] = Counter(each.state for each in shown.workers)
    standings = Counter(each.standing for each in shown.workers)
    batch, centre = shown.batch, shown.centre
    lines.extend(
        _metric(
            "shoal_run_info",
            "gauge",
            "The run; always 1.",
            [({**own, "environment": shown.environment}, 1.0)],
        )
    )
    by(
        *("shoal_run_state", "gauge", "1 of the state that the run is in.", "state"),
        {state: float(state == shown.state) for state in RUN_STATES},
    )
    gauge("shoal_version", "Updates that the parameters have had.", shown.version)
    gauge("shoal_epoch", "Number of the term of this leader.", shown.epoch)
    gauge("shoal_parameters", "Parameters of the policy.", shown.parameters)
    gauge("shoal_population_members", "Members of an update.", shown.population)
    counter("shoal_led_seconds_total", "Seconds for which the run was led.", shown.seconds)
    counter("shoal_episodes_total", "Episodes that counted.", shown.episodes)
    counter("shoal_env_steps_total", "Environment steps of these episodes.", shown.steps)
    counter(
        "shoal_wire_bytes_total",
        "Bytes for tasks, results, acknowledgements and updates.",
        shown.wire_bytes,
    )
    counter(
        "shoal_audited_directions_total",
        "Directions evaluated again to check others, since this host leads.",
        shown.audited,
    )
    gauge("shoal_mean_return", "Mean return of the members of the last update.", shown.mean)
    gauge("shoal_target_return", "Mean return of the centre that ends the run.", shown.target)
    if centre is not None:
        gauge("shoal_centre_return", "Mean return of the unperturbed policy.", centre.mean)
        gauge("shoal_centre_deviation", "Deviation of its returns.", centre.deviation)
        gauge("shoal_centre_episodes", "Episodes that this is the mean of.", centre.episodes)
        gauge("shoal_centre_version", "Version that was evaluated.", centre.version)
    by(
        *("shoal_workers", "gauge", "Sessions of workers.", "state"),
        {state: float(states[state]) for state in WORKER_STATES},
    )
    by(
        *("shoal_workers_by_standing", "gauge", "Sessions of workers.", "standing"),
        {key: float(count) for key, count in sorted(standings.items())},
    )
    gauge("shoal_speed_env_steps_per_second", "Measured, of all.", _speed(shown))
    by(
        *("shoal_batch_directions", "gauge", "Of the open batch, and of the next.", "state"),
        {
            "settled": float(batch.settled),
            "leased": float(batch.leased),
            "free": float(batch.free),
            "early": float(batch.early),
            "dropped": float(batch.dropped),
        },
    )
    by(
        *("shoal_results_total", "counter", "Results since this host leads.", "outcome"),
        {outcome: float(shown.outcomes.get(outcome, 0)) for outcome in OUTCOMES},
    )
    gauge(
        "shoal_unable_workers",
        "Workers that said that they can't take part, or were not let in.",
        float(sum(count for _, count in shown.unable)),
    )
    gauge("shoal_busy", "1 while the coordinator does not keep up.", float(bool(shown.busy)))
    gauge("shoal_quiet", "1 while no worker is being fed.", float(bool(shown.quiet)))
    return "".join(lines)


def _speed(shown: Overview) -> float:
    return sum(each.speed for each in shown.workers)


def _metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {about}\n", f"# TYPE {name} {kind}\n"]
    for labels, value in samples:
        named = ",".join(f'{key}="{_escaped(said)}"' for key, said in labels.items())
        lines.append(f"{name}{{{named}}} {_figure(value)}\n")
    return lines


def _escaped(said: str) -> str:
    return said.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _figure(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
