"""What searches in families share: policies that are played, and a claim that the policy's own episodes confirm [F5]."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.parametric import Unlisted
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.events import ChartKind, Event, Reading, Said, event
from richobs.core.types import Floats, Ints
from richobs.core.words import number_words
from richobs.engines.independence import Watch
from richobs.learners.base import Search
from richobs.learners.models.search import Tolerant, planning_error
from richobs.stats import bets
from richobs.stats.shares import Series, Spendable, Supposed, part_of_series

PHASE = "families"
LOSSES = ChartKind(
    "losses", "Largest loss of the policy", "In points that are left, or bounded over all of them.", limit="epsilon"
)
LEAST_DRAWN = 1e-12  # below it a curve is drawn no lower
ON_LIKELIHOOD = 0.9  # share of delta; the rest is for what the policy earns
CONFIRM = 16  # episodes of the claimed policy before any claim
FEW = f"No guarantee: the episodes were spent before {CONFIRM} of the policy were played, or its loss was bounded."
SLACK = 1e-9  # of the range of totals: rounding of all values over a cell
SMALLEST_MEAN = 1e-3  # of the range of totals: means below it are not told from 0


def policy_of(family: Unlisted, actions: Ints) -> LearnedPolicy:
    """Returns a policy `[H, O]` of a family as one that can be played and saved."""
    book = family.arrays.codebook
    return LearnedPolicy.from_table([book] * len(actions), list(actions), n_actions=family.n_actions)


def value_error(horizon: int, reward_range: tuple[float, float], step_range: tuple[float, float]) -> float:
    """Returns by how much a value may be wrong: rounding, and rewards that count as equal."""
    low, high = reward_range
    return planning_error(horizon, reward_range, step_range) + SLACK * (high - low)


@dataclass
class Confirming(Search):
    """A search that plays policies `[H, O]` of a family, and bounds what the claimed one earns."""

    recorded: Episodes | None = None  # that were played before the run
    watch: Watch = field(init=False)  # that episodes are independent and of one law
    rounds: int = 0
    shown_at: int | None = None  # episodes after which a policy was covered for the first time
    lower: float = math.nan  # W
    earns_at_most: float = math.nan
    looked: int = 0  # policies that were to be claimed
    confirmation: list[float] = field(default_factory=list)  # returns of the last of them
    upper: float = math.nan  # U

    def __post_init__(self) -> None:
        super().__post_init__()
        self._likelihood, self._earned = self.share.split(ON_LIKELIHOOD, 1 - ON_LIKELIHOOD)
        self.looks = Series(self._earned)
        self.watch = Watch(self.seed, self.reward_range)
        self.upper = self.reward_range[1]
        self.forget_earned()
        self.error = value_error(self.functions.horizon, self.reward_range, self.step_range)
        self._numbers: dict[bytes, int] = {}  # of policies that were played
        self.played: dict[int, int] = {}  # episodes of each

    def forget_earned(self) -> None:
        """Drops the bounds of what a policy earns: another one may be claimed."""
        self.lower, self.earns_at_most = self.reward_range

    @property
    def next_size(self) -> int:
        """Episodes of the next batch: not a matter of how many are allowed."""
        return max(self.tuning.batch, self.engine.ledger.total // 8)

    def policy(self, actions: Ints) -> LearnedPolicy:
        """Returns a policy `[H, O]` that can be played and saved."""
        return policy_of(self.functions, actions)

    def play(self, actions: Ints, n: int, confirms: bool) -> Episodes:
        """Returns n episodes of a policy `[H, O]`; those that confirm it bound what it earns, whatever the family says."""
        played = self.episodes(Tolerant(self.policy(actions)), n, "confirm" if confirms else "play", PHASE)
        number = self._numbers.setdefault(actions.tobytes(), len(self._numbers))
        self.watch.look(number, played)
        self.played[number] = self.played.get(number, 0) + n
        self.rounds += 1
        if confirms:
            self.confirmation, self.looked = played.returns.tolist(), self.looked + 1
            halves = self.looks.next().split(0.5, 0.5)
            self.lower, self.earns_at_most = earned(played.returns, self.reward_range, *halves)
        return played

    def earlier(self) -> Iterator[Episodes]:
        """Yields the recorded episodes in their order, in parts that grow: a forecast is fixed before each of them."""
        first, n = 0, 0 if self.recorded is None else self.recorded.n
        while self.recorded is not None and first < n:
            last = min(n, first + max(self.tuning.batch, first // 4))
            yield self.recorded.part(first, last)
            first = last

    @property
    def recorded_words(self) -> list[str]:
        """What a claim assumes of recorded episodes, in words that can follow "that"."""
        if self.recorded is None:
            return []
        log = f"the {self.recorded.n:,} recorded episodes"
        return [f"{log} are whole, independent, of this system and not selected by what came of them"]

    def is_confirmed(self, actions: Ints) -> bool:
        """Returns whether a policy was played often enough for a claim."""
        number = self._numbers.get(actions.tobytes())
        return number is not None and self.played[number] >= CONFIRM

    def doubt(self, low: float, upper: float) -> None:
        """Refuses a claim that the policy's own episodes contradict.

        Args:
            low: the family promises the policy at least this.
            upper: and every policy at most this.

        Raises:
            BrokenPromise: they earn more, or less.
        """
        if low <= self.earns_at_most and self.lower <= upper:
            return
        raise BrokenPromise(
            f"the policy's own episodes show a value in [{self.lower:.4g}, {self.earns_at_most:.4g}], and what is left of "
            f"the family promises at least {low:.4g} and allows at most {upper:.4g}: the real system is none of the "
            f"family's simulators. If it were one, this would happen with probability at most {self.delta:g}."
        )


def earned(
    returns: Floats, reward_range: tuple[float, float], below: Spendable, above: Spendable
) -> tuple[float, float]:
    """Returns bounds of what a policy earns, from its own episodes alone, each but for its share [F5]."""
    low, high = reward_range
    scaled = ((returns - low) / (high - low)).clip(0.0, 1.0)
    least, lacks = (
        bets.lower_bound_of_mean(x, SMALLEST_MEAN, bets.death(share))
        for x, share in ((scaled, below), (1 - scaled, above))
    )
    return low + (high - low) * least, high - (high - low) * lacks


def earned_again(constants: Mapping[str, Any], delta: float, reward_range: tuple[float, float]) -> tuple[float, float]:
    """Returns the bounds of `earned` from what a certificate stores of the episodes that confirmed its policy."""
    j, returns = int(constants["looked"]), np.array(constants["returns"], dtype=np.float64)
    if j < 1 or returns.shape != (CONFIRM,):
        raise ValueError(f"{CONFIRM} episodes confirm a policy; got {returns.shape}")
    half = part_of_series(delta * (1 - ON_LIKELIHOOD), j) / 2
    return earned(returns, reward_range, Supposed(half), Supposed(half))


@event(
    "families",
    "planning",
    "does one policy lose little at every parameter that is left?",
    "largest loss",
    "allowed",
)
class LossBounded(Event):
    """The loss of a policy was looked at in points that live, and where these allow it, bounded over all of them."""

    regret: float  # bound over all cells where one was found, else the largest in points that live
    proved: bool  # whether it is a bound
    epsilon: float
    cells: int  # that were looked at
    planned_at: tuple[float, ...]  # the parameters whose best policy it is
    witness: tuple[float, ...]  # parameters that live and at which it loses more than allowed; () where none are known

    def said(self) -> Said:
        """Returns how much is lost."""
        lost, allowed = number_words(self.regret, up=True), f"{self.epsilon:g} is allowed"
        sentence = f"the policy loses {lost} at a parameter that is left; {allowed}"
        verdict = "loses too much" if self.regret > self.epsilon else "not shown"
        if self.proved:
            verdict = "certified"
            sentence = (
                f"the policy loses at most {lost} wherever parameters are left, in {self.cells:,} cells; {allowed}"
            )
        reading = Reading(LOSSES, (math.log(max(self.regret, LEAST_DRAWN)),), math.log(self.epsilon))
        return Said(verdict, sentence, self.regret, self.epsilon, readings=(reading,))
