"""`python -m worker.evaluation.child`: the process in which environments run."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO

from protocol.errors import ShoalError
from protocol.packing import WireError
from worker.evaluation import pipe
from worker.evaluation.throttle import Throttle
from worker.evaluation.words import one_line, words_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from protocol.spec import RunSpec
    from worker.evaluation.jobs import Normalization
    from worker.evaluation.lanes import InPlay, Lanes, Take

ALIVE_SECONDS = 1.0
REST_SECONDS = 0.05
"""Rest at a time, after which requests and signs of life are thought of."""
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY_SCORE = "500"  # of 1000 on Linux: as if it took half of the memory more


class Inbox:
    """Requests, read by a thread that also ends the process with its parent.

    The thread sees the end of the pipe even while an environment's step doesn't return.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self._requests: SimpleQueue[pipe.Request] = SimpleQueue()
        self.empty = self._requests.empty
        """whether there is no request; asked before every step"""

    def start(self) -> None:
        """Start reading."""
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> pipe.Request:
        """The next request, when there is one."""
        return self._requests.get()

    def _read(self) -> None:
        try:
            while (request := pipe.read_request(self.stream)) is not None:
                self._requests.put(request)
        except (WireError, OSError) as error:
            print(f"evaluation process: {error}", file=sys.stderr)
        os._exit(0)


class Evaluator:
    """Does what is asked: requests are heard between the steps of the parts in hand."""

    def __init__(self, inbox: Inbox, outgoing: BinaryIO) -> None:
        self.inbox = inbox
        self.outgoing = outgoing
        self.versions: dict[int, tuple[NDArray[np.float32], Normalization | None]] = {}
        self.unread: dict[int, str] = {}
        """why the parameters of a version could not be had"""
        self.process = os.getpid()
        self.spec: RunSpec | None = None
        self.lanes: Lanes | None = None
        self.throttle: Throttle | None = None
        self.parts: dict[InPlay, int] = {}
        """those in hand, with their numbers"""
        self.next_alive = 0.0

    def serve(self) -> None:
        """Work until the process ends with its parent."""
        while True:
            self.answer(self.inbox.next())
            while self.parts:
                self.pulse()
                self.step()

    def answer(self, request: pipe.Request) -> None:
        """Do what is asked, or begin it."""
        if isinstance(request, pipe.Evaluate):
            self.evaluate(request)
        elif isinstance(request, pipe.Cancel):
            self.cancel(request.part)
        elif isinstance(request, pipe.Theta):
            self.keep(request)
        elif isinstance(request, pipe.Drop):
            self.versions.pop(request.version, None)
            self.unread.pop(request.version, None)
        elif isinstance(request, pipe.Configure):
            self.configure(request)

    def say(self, reply: pipe.Reply) -> None:
        """Send a reply; a copy of this process, which an environment or a module may have made by a
        fork, would say it once more."""
        if os.getpid() != self.process:
            os._exit(1)
        self.outgoing.write(pipe.frame(reply))
        self.outgoing.flush()

    def trial_pulse(self, take: Take) -> None:
        """Say about once a second that the trial goes on."""
        if time.monotonic() >= self.next_alive:
            self.say_alive()

    def pulse(self) -> None:
        """Between steps: hear what is asked, say what is finished, rest."""
        while True:
            while not self.inbox.empty():
                self.answer(self.inbox.next())
            now = time.monotonic()
            if now >= self.next_alive:
                self.say_alive()
            if self.throttle is None:
                return
            rest = self.throttle.rest(time.process_time(), now)
            if not rest:
                return
            time.sleep(min(rest, REST_SECONDS))

    def step(self) -> None:
        """Take a step in all lanes; tell of the parts that are over by it."""
        assert self.lanes is not None
        try:
            ended = self.lanes.step()
        except ShoalError as error:
            self.give_up(one_line(str(error), pipe.REASON_LENGTH))
        except BaseException as error:  # whatever the run's own code raises: no signal comes here
            traceback.print_exc()
            self.give_up(f"evaluation broke off: {words_of(error)}")
        else:
            for playing in ended:
                self.tell(playing)
                del self.parts[playing]

    def say_alive(self) -> None:
        """Give a sign of life: what is finished of the parts in hand, if there is something."""
        if not sum(self.tell(playing) for playing in self.parts):
            self.say(pipe.Alive())
        self.next_alive = time.monotonic() + ALIVE_SECONDS

    def configure(self, request: pipe.Configure) -> None:
        """Load what evaluation needs, make the environment and try it out."""
        try:
            from protocol import registry
            from protocol.spec import from_bytes
            from worker.evaluation import makers, memory, starting
            from worker.limits import too_long
            from worker.policies import devices
            from worker.policies.making import Grant

            self.forget()
            registry.allow(request.allowed)
            spec = self.spec = from_bytes(request.spec)
            if request.memory and devices.choose(request.device, spec) == devices.CPU:
                memory.bound(request.memory)
            starting.set_up(spec, request.device)
            maker = makers.maker(spec, request.allowed)
            steps = starting.longest(spec, maker)
            if wrong := too_long(spec.environment.id, steps, request.longest):
                raise ShoalError(wrong)
            grant = Grant(request.allowed, request.device)
            found, self.lanes = starting.start(
                spec, maker, self.trial_pulse, request.trial, grant, request.lanes
            )
            if request.share < 1.0:
                self.throttle = Throttle(request.share, time.process_time(), time.monotonic())
        except ShoalError as error:
            self.say(pipe.Unavailable(one_line(str(error), pipe.REASON_LENGTH)))
        except BaseException as error:
            traceback.print_exc()
            self.say(pipe.Unavailable(f"evaluation can't start here: {words_of(error)}"))
        else:
            remark = one_line(self.lanes.policy.remark, pipe.REASON_LENGTH)
            speed = found.speed * request.share
            lanes = found.lanes, found.together
            self.say(pipe.Ready(speed, found.numeric_class, remark, *lanes))

    def forget(self) -> None:
        """Nothing of a run before this one counts any more."""
        lanes, self.lanes, self.throttle = self.lanes, None, None
        self.versions.clear()
        self.unread.clear()
        self.parts.clear()
        if lanes is not None:
            lanes.close()
            del lanes
            gc.collect()  # environments hold one another, and little that is made from now on

    def keep(self, request: pipe.Theta) -> None:
        """Keep a version's parameters, unless they are dropped already."""
        from worker.evaluation.jobs import Normalization
        from worker.evaluation.shared import mapped

        columns, version = request.normalization, request.version
        normalization = None if columns is None else Normalization.from_bytes(columns)
        try:
            theta = mapped(request.path, request.inode, request.size)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            reason = f"the parameters of version {version} can't be read from {request.path}: {why}"
            self.unread[version] = one_line(reason, pipe.REASON_LENGTH)
            self.say(pipe.Unread(version))
            return
        self.unread.pop(version, None)
        self.versions[version] = theta, normalization

    def evaluate(self, request: pipe.Evaluate) -> None:
        """Begin a part, which goes on beside those that are in hand."""
        from worker.evaluation.jobs import EvaluationJob

        version = request.version
        if self.lanes is None or version not in self.versions:
            lacking = f"version {version} is not among the parameters kept here"
            self.say(pipe.Failed(request.part, self.unread.get(version, lacking)))
            return
        job = EvaluationJob(
            request.kind,
            request.version,
            request.first,
            request.count,
            request.episodes,
            request.sigma,
            request.cap,
            request.per_direction,
        )
        try:
            playing = self.lanes.start(job, *self.versions[version])
        except Exception as error:
            traceback.print_exc()
            self.say(pipe.Failed(request.part, f"evaluation can't begin: {words_of(error)}"))
        else:
            self.parts[playing] = request.part

    def cancel(self, part: int) -> None:
        """Stop a part, unless it is over, and tell what is finished of it."""
        for playing, number in self.parts.items():
            if number == part:
                self.tell(playing)
                self.fail(playing, "cancelled")
                return

    def give_up(self, reason: str) -> None:
        """Fail all parts in hand, since it is not known which of them broke the step."""
        for playing in list(self.parts):
            self.fail(playing, reason)

    def fail(self, playing: InPlay, reason: str) -> None:
        """Let go of a part, and say why."""
        assert self.lanes is not None
        self.lanes.stop(playing)
        self.say(pipe.Failed(self.parts.pop(playing), reason))

    def tell(self, playing: InPlay) -> bool:
        """Say what is finished of a part and was not told before, if there is something."""
        from protocol import normalizer

        found = playing.take()
        if found is None:
            return False
        reply = pipe.Evaluated(
            self.parts[playing],
            found.first,
            found.returns.tobytes(),
            found.lengths.tobytes(),
            normalizer.to_bytes(found.observed) if found.observed else b"",
            found.failed,
        )
        self.say(reply)
        return True


def main() -> None:
    """Take the pipe for ourselves, tie the process to its parent, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What an environment prints goes to the error stream, what it reads is empty.
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    _die_with_parent()
    _go_first()
    inbox = Inbox(incoming)
    inbox.start()
    with contextlib.suppress(Exception):  # said in the answer to `Configure`, which meets it again
        _load()
    Evaluator(inbox, outgoing).serve()


def _load() -> None:
    """Load all that any run needs, most of it the compiler's own parts."""
    import numpy as np

    from protocol import noise
    from worker.evaluation import environments, probe  # noqa: F401

    noise.members(noise.RADEMACHER, 0, 0, 1, np.zeros(1, np.float32), 0.0)


def _die_with_parent() -> None:
    """Have the kernel kill this process with its parent, for when no thread of ours gets to run."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _go_first() -> None:
    """Have the kernel end this process, not its parent, where the machine has no memory left."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write(OUT_OF_MEMORY_SCORE)


if __name__ == "__main__":
    main()
