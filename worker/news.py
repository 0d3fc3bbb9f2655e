"""What a volunteer is told of the run and of what the worker waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.authority import Announcement
from protocol.figures import span
from protocol.messages import Epoch
from protocol.spec import RunSpec
from worker.commands import Say
from worker.evaluation.memory import shown
from worker.presence import Presence
from worker.replica import Replica

SLOW_BROKER = 0.5
"""Seconds without an answer of the broker from where on that is worth a word."""


def counted(count: int, word: str) -> str:
    """A count and its word: `1 task`, `2 tasks`."""
    return f"{count} {word}{'s' * (count != 1)}"


def introduced(run: str, spec: RunSpec, leadership: str, checked: bool) -> str:
    """A run that we come to know; `checked`: whether the join line named the key that leads it."""
    proof = "as the join line says" if checked else "NOT checked against a join line"
    trained = "" if spec.objective is not None else f"{spec.policy.kind} policy with "
    return (
        f"run {run}: {spec.environment.id}, {trained}{spec.size:,} parameters; "
        f"led by {leadership} ({proof})"
    )


def changed(
    known: Announcement | None, led: Announcement, leadership: str, unanswered: int
) -> list[Say]:
    """What is new in an announcement that holds from now on, after `known`; `unanswered`: results
    that are kept meanwhile."""
    lines = []
    epoch = led.epoch
    if known is not None and led.leader != known.leader:
        lines.append(Say(f"led by {leadership} from now on (epoch {epoch.number})", warning=True))
    elif known is not None and led.precedence != known.precedence:
        lines.append(Say(f"the host is back (epoch {epoch.number})", warning=True))
    state = "running" if known is None else known.epoch.state
    if epoch.state == "paused" and (known is None or epoch.reason != known.epoch.reason):
        kept = f", {counted(unanswered, 'result')} kept" if unanswered else ""
        why = f"the host says: {epoch.reason}" if epoch.reason else "the host paused the run"
        lines.append(Say(f"{why}; waiting{kept}", warning=True))
    elif epoch.state != state:
        lines.append(
            Say("the run goes on" if epoch.state == "running" else f"the run is {epoch.state}")
        )
    return lines


def leaving(running: int, unanswered: int, seconds_left: float | None, why: str) -> str:
    """What is still to be done before we leave: tasks that run, then answers to results; empty
    where that is nothing.

    `seconds_left`: that the tasks may take, where that is known; `why`: where nobody at the
    keyboard wants it, who would press Ctrl-C.
    """
    if running:
        left = "" if seconds_left is None else f", {_left(seconds_left)}"
        todo = f"finishing {counted(running, 'task')}{left}"
        again = "hands it back" if running == 1 else "hands them back"
    elif unanswered:
        todo = f"waiting for the answer to {counted(unanswered, 'result')}"
        again = "leaves at once"
    else:
        return ""
    return f"{why}: {todo}" if why else f"{todo}; Ctrl-C again {again}"


def idle_because(
    run: str,
    epoch: Epoch | None,
    presence: Presence,
    following: Replica | None,
    *,
    running: int,
    queued: int,
    ready: bool,
    finishing: bool,
    paused: str,
    slowed: float,
    leased: bool,
    broker: float = 0.0,
) -> str:
    """Why nothing is being evaluated; empty while something is.

    `running`: tasks being evaluated; `queued`: that wait for their turn; `ready`: whether
    evaluation has started; `finishing`: whether we leave; `paused`: why the volunteer has us take
    no tasks; `slowed`: seconds for which the host wants to hear little; `leased`: whether updates
    come at a pace, so that who gets no task waits for the next one; `broker`: after how many the
    broker answers.
    """
    if running:
        return ""
    if queued:
        return "another run has its turn"
    if not presence.connected:
        return "no connection to the broker"
    if epoch is None or following is None:
        return f"waiting for the host of {run} to announce itself"
    if not ready:
        return "starting evaluation (the first time on a machine: up to a minute)"
    if epoch.state == "paused":
        return epoch.reason or "the run is paused by its host"
    if presence.absent:
        return presence.absent
    if not presence.welcomed and not slowed:
        return "said hello, waiting for the welcome"
    if slowed:
        return f"slowed down by the host for {slowed:.0f} s"
    if following.snapshot_share is not None:
        return f"fetching a snapshot, {following.snapshot_share:.0%} is here"
    if following.behind:
        return f"catching up from version {following.version} to {following.latest_heard}"
    if paused:
        return paused
    if presence.phase == "paused":
        return "the run is paused by its host"
    if finishing:
        return "waiting for answers to the last results"
    if presence.phase == "updating":
        return "the update is being made"
    if broker >= SLOW_BROKER:
        return f"waiting for a task, over a broker that answers after {broker:.1f} s"
    if leased:
        return fully_leased(following.version)
    return "waiting for a task"


def fully_leased(version: int) -> str:
    """What who waits for the update after a version is told."""
    return f"update {version} fully leased"


def device(children: int, share: float, device: str = "cpu") -> str:
    """What runs the evaluations, for the host."""
    policies = f", {device}" if device.startswith("cuda") else ""
    return f"cpu x{children}" + policies + (f" at {_percent(share)}" if share < 1.0 else "")


def ready(speed: float, lanes: Sequence[int], children: int, share: float, memory: float) -> str:
    """Evaluation processes are ready, of so many lanes, each for a share of a core and for so many
    bytes of memory."""
    ready = len(lanes)
    cores = f"{ready} of {children} cores" if ready < children else counted(children, "core")
    limit = f"{_percent(share)} of " if share < 1.0 else ""
    figure = f"{speed:,.0f}" if speed >= 10.0 else f"{speed:.2g}"
    each = f"up to {shown(memory)} of memory{' each' if children > 1 else ''}"
    few, many = min(lanes), max(lanes)
    wide = counted(few, "lane") if few == many else f"{few} to {many} lanes"
    return f"evaluation is ready: {figure} steps/s ({limit}{cores}, {wide} and {each})"


def _left(seconds: float) -> str:
    return f"about {span(seconds)} left" if seconds >= 0.5 else "a moment left"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
