"""`python -m worker` that lies while the file exists which SHOAL_TEST_LIES names: each mirror's
episodes in place of the other's, within range and against the true direction."""

import os
from dataclasses import replace
from pathlib import Path

from protocol.messages import Result, Task
from worker import workload
from worker.__main__ import main
from worker.evaluation.jobs import Evaluation
from worker.results import result_of

LIES = Path(os.environ["SHOAL_TEST_LIES"])


def lie(task: Task, evaluation: Evaluation) -> Result:
    """The result of a task, true or not."""
    if task.kind == "members" and LIES.exists():
        returns, lengths = evaluation.returns[:, ::-1], evaluation.lengths[:, ::-1]
        evaluation = replace(evaluation, returns=returns.copy(), lengths=lengths.copy())
    return result_of(task, evaluation)


if __name__ == "__main__":
    vars(workload)["result_of"] = lie
    main()
