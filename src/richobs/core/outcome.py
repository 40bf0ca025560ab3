"""What a run answers: policy, claim, and what the claim rests on."""

import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from richobs.core.events import Event
from richobs.core.ledger import Ledger
from richobs.core.policies import SavablePolicy
from richobs.core.settings import Settings
from richobs.core.types import Path

LOWER, UPPER = "V(policy) is at least", "V* is at most"  # kinds of claims that hold the bounds


class StopReason(enum.Enum):
    """Why a run ended; the value is the sentence a person reads."""

    NEAR_OPTIMAL = "the policy earns what the surviving functions predict for the best one"
    CERTIFIED = "the bounds on V* and on the policy's value are within epsilon"
    AGREEMENT = "all surviving functions agree that the policy loses at most epsilon"
    ONE_SURVIVOR = "one function is left, and the policy is optimal under it"
    EPISODES_SPENT = "the episodes allowed were spent; the bounds hold, but are farther apart than asked"
    OWN_RULE = "the learner's own rule says that nothing is left to learn"
    BUDGET_SPENT = "the episodes allowed were spent"


@dataclass(frozen=True)
class Claim:
    """One statement that a certified answer rests on, with its share of delta."""

    kind: str  # what is claimed, in words
    path: Path  # where
    n: int  # episodes it rests on
    share: float  # probability that it is false, at most
    value: float  # the number in it: a bound, a radius, or the reference's risk


@dataclass(frozen=True)
class Outcome:
    """The answer of a run."""

    policy: SavablePolicy
    claim: str  # what is guaranteed, in words; or that nothing is
    learner: str  # who learned
    epsilon: float  # what is claimed; wider than asked where the episodes ran out
    delta: float
    reason: StopReason
    guaranteed: bool = True  # whether anything is claimed of the policy
    value_hat: float | None = None  # estimate of V(policy)
    v_star_hat: float | None = None  # estimate of V*
    upper: float | None = None  # U with V* <= U, where the learner certifies one
    lower: float | None = None  # W with V(policy) >= W
    log_size: float | None = None  # of the surviving functions, as a natural logarithm
    rounds: int = 0  # candidates tried
    claims: tuple[Claim, ...] = field(default=(), repr=False)  # what U and W rest on
    remarks: tuple[str, ...] = ()  # what the search struggled with, in words
    constants: Any = field(default=None, repr=False)  # a dataclass: the numbers that the learner began with
    # What the run adds to the learner's answer:
    settings: Settings = field(default_factory=Settings, repr=False)
    ledger: Ledger = field(default_factory=Ledger, repr=False)
    trace: tuple[Event, ...] = field(default=(), repr=False)  # everything that happened, in order

    @property
    def episodes(self) -> int:
        """Episodes spent in all."""
        return self.ledger.total


def probability_words(delta: float) -> str:
    """Returns 1 - delta exactly: 1 - 1e-9 must not read as 1."""
    return str(Decimal(1) - Decimal(repr(delta)))
