"""What a run answers, and beside it what happened on the way."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from richobs.engines import Ledger
from richobs.policy import LearnedPolicy
from richobs.problem import Path


class StopReason(enum.Enum):
    """Why a run ended; the value is the sentence a person reads."""

    NEAR_OPTIMAL = "the policy earns what the surviving functions predict for the best one"


@dataclass(frozen=True)
class Event:
    """One test of a run."""

    kind: str  # "consensus", "elimination" or "rollout"
    phase: str  # "search" or "demand"
    path: Path
    verdict: str  # "agree" / "disagree", "kept", "near-optimal" / "failed"
    statistic: float  # spread of the values, smallest risk, or |V(pi)-hat - V*-hat|
    threshold: float  # eps_test, largest risk that survives, or eps_demand
    n: int  # episodes the test took
    log_size_before: float  # survivors, as natural logarithms
    log_size_after: float


@dataclass(frozen=True)
class Outcome:
    """The answer of a run."""

    policy: LearnedPolicy
    epsilon: float
    delta: float
    schedule: str
    v_star_hat: float  # estimate of V*
    value_hat: float  # estimate of V(policy)
    log_size: float  # of the surviving functions
    reason: StopReason
    ledger: Ledger = field(repr=False)
    trace: tuple[Event, ...] = field(repr=False)  # every test, in order
    constants: Any = field(repr=False)  # what the schedule computed before it began
    rounds: int = 0  # of on-demand exploration

    @property
    def episodes(self) -> int:
        """Episodes spent in all."""
        return self.ledger.total

    @property
    def claim(self) -> str:
        """What is guaranteed, in words."""
        return (
            f"With probability at least {1 - self.delta:g} the policy's value is within {self.epsilon:g} of optimal, "
            "provided assumptions 1-3."
        )


@dataclass(frozen=True)
class Progress:
    """Where a run stands, told after every test."""

    event: Event
    episodes: int


Callback = Callable[[Progress], None]
