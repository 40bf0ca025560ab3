"""Runs on disk."""

import pathlib
from dataclasses import dataclass

from richobs.certificate import Certificate, Verification
from richobs.engines import Ledger
from richobs.learning import Settings
from richobs.outcome import Progress
from richobs.planning import SamplePlan


@dataclass(frozen=True)
class StoredRun:
    """A run as its folder tells it."""

    folder: pathlib.Path
    world: str | None  # id such as "lock/10,seed=3"; None for an environment of the user's own
    settings: Settings
    horizon: int
    n_actions: int
    log_size: float  # natural log of the size of the function class
    state: str  # "finished", "running", "unfinished" (was killed or interrupted) or "stopped" (an error ended it)
    message: str  # the error that stopped it, else ""
    steps: tuple[Progress, ...]  # in order
    ledger: Ledger
    certificate: Certificate | None  # None until finished
    verification: Verification | None  # what `richobs verify` found last, None if never verified
    plan: SamplePlan | None  # the paper's sizes for this problem, where n_states is known
