"""What a run answers, and beside it what happened on the way."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from richobs.engines import Ledger
from richobs.policy import LearnedPolicy
from richobs.problem import Path

LOWER, UPPER = "V(policy) is at least", "V* is at most"  # the claims that bounds are read off from


class StopReason(enum.Enum):
    """Why a run ended; the value is the sentence a person reads."""

    NEAR_OPTIMAL = "the policy earns what the surviving functions predict for the best one"
    CERTIFIED = "the bounds on V* and on the policy's value are within epsilon"
    EPISODES_SPENT = "the episodes allowed were spent; the bounds hold, but are farther apart than asked"


@dataclass(frozen=True)
class Event:
    """One test of a run."""

    kind: (
        str  # paper: "consensus", "elimination", "rollout"; certified: "trial", "elimination", "verification", "stage"
    )
    phase: str  # "search" or "demand"; "certified"
    path: Path
    verdict: str  # (dis)agree, dropped or none dropped, near-optimal, failed, promising, open, certified, doubled
    statistic: float  # spread of the values, smallest risk, |V(pi)-hat - V*-hat|, U - W, or the batch that told nothing
    threshold: float  # eps_test, largest risk that survives, eps_demand, epsilon, or the largest batch from here on
    n: int  # episodes the test took
    log_size_before: float  # survivors, as natural logarithms
    log_size_after: float


@dataclass(frozen=True)
class Claim:
    """One statement that a certified answer rests on, with its share of delta."""

    kind: str  # what is claimed, in words
    path: Path  # where
    n: int  # episodes it rests on
    share: float  # probability with which it may be false
    value: float  # the number in it: a bound, a radius, or the reference's risk


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
    rounds: int = 0  # candidates tried
    upper: float | None = None  # U with V* <= U, where the schedule certifies one
    lower: float | None = None  # W with V(policy) >= W
    claims: tuple[Claim, ...] = field(default=(), repr=False)  # what U and W rest on
    remarks: tuple[str, ...] = ()  # what the search struggled with, in words
    premise: str = ""  # what the claim presupposes besides, in words
    settings: Any = field(default=None, repr=False)  # what the run was asked to do

    @property
    def episodes(self) -> int:
        """Episodes spent in all."""
        return self.ledger.total

    @property
    def claim(self) -> str:
        """What is guaranteed, in words."""
        sure = Decimal(1) - Decimal(repr(self.delta))  # exact: 1 - 1e-9 must not read as 1
        return (
            f"With probability at least {sure} the policy's value is within {self.epsilon!r} of optimal, provided "
            f"assumptions 1-3{self.premise}."
        )


@dataclass(frozen=True)
class Progress:
    """Where a run stands, told after every test."""

    event: Event
    episodes: int
    upper: float | None = None  # U so far, where the schedule certifies one
    lower: float | None = None  # W of the best candidate so far


Callback = Callable[[Progress], None]
