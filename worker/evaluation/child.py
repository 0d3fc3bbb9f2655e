"""`python -m worker.evaluation.child`: the process in which environments run."""

from __future__ import annotations

import contextlib
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
    from worker.evaluation.jobs import Evaluation, Normalization
    from worker.evaluation.lanes import Lanes, Take

ALIVE_SECONDS = 1.0
REST_SECONDS = 0.05
"""Rest at a time, after which cancelled parts and signs of life are thought of."""
PR_SET_PDEATHSIG = 1


class Interrupted(Exception):  # noqa: N818 - what happened to the part, said as such
    """The part in hand was cancelled."""


class Inbox:
    """Requests, read by a thread that also ends the process with its parent.

    The thread sees the end of the pipe even while an environment's step doesn't return.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.cancelled: set[int] = set()
        self._requests: SimpleQueue[pipe.Request] = SimpleQueue()

    def start(self) -> None:
        """Start reading."""
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> pipe.Request:
        """The next request, when there is one."""
        return self._requests.get()

    def _read(self) -> None:
        try:
            while (request := pipe.read_request(self.stream)) is not None:
                if isinstance(request, pipe.Cancel):
                    self.cancelled.add(request.part)
                else:
                    self._requests.put(request)
        except (WireError, OSError) as error:
            print(f"evaluation process: {error}", file=sys.stderr)
        os._exit(0)


class Evaluator:
    """Answers requests, one after the other."""

    def __init__(self, inbox: Inbox, outgoing: BinaryIO) -> None:
        self.inbox = inbox
        self.outgoing = outgoing
        self.versions: dict[int, tuple[NDArray[np.float32], Normalization | None]] = {}
        self.spec: RunSpec | None = None
        self.lanes: Lanes | None = None
        self.throttle: Throttle | None = None
        self.part = -1
        self.next_alive = 0.0

    def serve(self) -> None:
        """Answer until the process ends with its parent."""
        while True:
            request = self.inbox.next()
            if isinstance(request, pipe.Evaluate):
                self.evaluate(request)
            elif isinstance(request, pipe.Theta):
                self.keep(request)
            elif isinstance(request, pipe.Drop):
                self.versions.pop(request.version, None)
            elif isinstance(request, pipe.Configure):
                self.configure(request)

    def say(self, reply: pipe.Reply) -> None:
        """Send a reply."""
        self.outgoing.write(pipe.frame(reply))
        self.outgoing.flush()

    def trial_pulse(self, take: Take) -> None:
        """Say about once a second that the trial goes on."""
        if time.monotonic() >= self.next_alive:
            self.say_alive(None)

    def pulse(self, take: Take) -> None:
        """Between the steps of a part: say what is finished, rest, stop where nobody waits."""
        while True:
            if self.part in self.inbox.cancelled:
                if (finished := take()) is not None:
                    self.say_evaluated(finished)
                raise Interrupted
            now = time.monotonic()
            if now >= self.next_alive:
                self.say_alive(take())
            if self.throttle is None:
                return
            rest = self.throttle.rest(time.process_time(), now)
            if not rest:
                return
            time.sleep(min(rest, REST_SECONDS))

    def say_alive(self, finished: Evaluation | None) -> None:
        """Give a sign of life, which carries what is finished."""
        if finished is None:
            self.say(pipe.Alive())
        else:
            self.say_evaluated(finished)
        self.next_alive = time.monotonic() + ALIVE_SECONDS

    def configure(self, request: pipe.Configure) -> None:
        """Load what evaluation needs, make the environment and try it out."""
        try:
            from protocol.spec import from_bytes
            from worker.evaluation import environments
            from worker.evaluation.lanes import Lanes, lane_count
            from worker.evaluation.probe import probe

            spec = self.spec = from_bytes(request.spec)
            maker = environments.maker(spec.environment, request.allowed)
            found = probe(spec, maker, self.trial_pulse, request.trial)
            count = lane_count(spec.size, found.step_seconds)
            self.lanes = Lanes(spec, maker, count, fresh=found.fresh)
            if request.share < 1.0:
                self.throttle = Throttle(request.share, time.process_time(), time.monotonic())
        except ShoalError as error:
            self.say(pipe.Unavailable(one_line(str(error), pipe.REASON_LENGTH)))
        except Exception as error:
            traceback.print_exc()
            self.say(pipe.Unavailable(f"evaluation can't start here: {words_of(error)}"))
        else:
            self.say(pipe.Ready(found.speed * request.share, found.numeric_class))

    def keep(self, request: pipe.Theta) -> None:
        """Keep a version's parameters, unless they are dropped already."""
        from worker.evaluation.jobs import Normalization
        from worker.evaluation.shared import mapped

        columns = request.normalization
        normalization = None if columns is None else Normalization.from_bytes(columns)
        try:
            theta = mapped(request.path, request.inode)
        except OSError as error:
            print(f"evaluation process: version {request.version}: {error}", file=sys.stderr)
            return
        self.versions[request.version] = theta, normalization

    def evaluate(self, request: pipe.Evaluate) -> None:
        """Evaluate a part."""
        self.part = request.part
        try:
            self.say_evaluated(self.evaluated(request))
        except Interrupted:
            self.say(pipe.Failed(request.part, "cancelled"))
        except ShoalError as error:
            self.say(pipe.Failed(request.part, one_line(str(error), pipe.REASON_LENGTH)))
        except Exception as error:
            traceback.print_exc()
            self.say(pipe.Failed(request.part, f"evaluation broke off: {words_of(error)}"))
        finally:
            self.part = -1
            self.inbox.cancelled.discard(request.part)

    def evaluated(self, request: pipe.Evaluate) -> Evaluation:
        """What a part gave, less what its pulses told."""
        from worker.evaluation.jobs import EvaluationJob

        if self.lanes is None:
            raise ShoalError("a part was asked for before the environment was ready")
        if request.version not in self.versions:
            raise ShoalError(f"version {request.version} is not among the parameters kept here")
        job = EvaluationJob(
            request.kind,
            request.version,
            request.first,
            request.count,
            request.episodes,
            request.sigma,
        )
        theta, normalization = self.versions[request.version]
        return self.lanes.evaluate(job, theta, normalization, self.pulse)

    def say_evaluated(self, found: Evaluation) -> None:
        """Tell the returns of the next directions of the part in hand."""
        from protocol import normalizer

        reply = pipe.Evaluated(
            self.part,
            found.returns.tobytes(),
            found.lengths.tobytes(),
            normalizer.to_bytes(found.observed) if found.observed else b"",
            found.failed,
        )
        self.say(reply)


def main() -> None:
    """Take the pipe for ourselves, tie the process to its parent, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What an environment prints goes to the error stream, what it reads is empty.
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    _die_with_parent()
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


if __name__ == "__main__":
    main()
