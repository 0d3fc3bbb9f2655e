"""The types of `shoal`, which tools read of packages alone, not of a module."""

import os
from collections.abc import Sequence
from typing import Literal, Unpack

from coordinator.training.evolution import Evolution as Evolution
from coordinator.training.overrides import Overrides, Source
from coordinator.training.results import CentreReturn as CentreReturn
from coordinator.training.results import OnUpdate
from coordinator.training.results import StopTraining as StopTraining
from coordinator.training.results import TrainingProgress as TrainingProgress
from coordinator.training.results import TrainingResult as TrainingResult
from protocol.errors import ShoalError as ShoalError
from protocol.spec import RunSpec as RunSpec
from worker.acting import load_policy as load_policy

def train(
    spec: Source | None = None,
    *,
    workers: int | Literal["auto"] = "auto",
    broker: str = "embedded",
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    quiet: bool = False,
    environments: Sequence[str] = (),
    **settings: Unpack[Overrides],
) -> TrainingResult: ...
async def train_async(
    spec: Source | None = None,
    *,
    workers: int | Literal["auto"] = "auto",
    broker: str = "embedded",
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    quiet: bool = False,
    environments: Sequence[str] = (),
    **settings: Unpack[Overrides],
) -> TrainingResult: ...
def main() -> None: ...
