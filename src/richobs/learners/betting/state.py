"""The state of a betting search, and the numbers that say how eager it is."""

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Event, Progress
from richobs.core.functions import FunctionClass
from richobs.core.queries import Engine
from richobs.core.types import Member
from richobs.learners.betting.candidates import Accounts, Candidate
from richobs.learners.betting.checks import Checks
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.roots import Roots
from richobs.learners.betting.survivors import Survivors, survivors
from richobs.stats import bets
from richobs.stats.shares import Series, Share

PHASE = "betting"
SHARES = {  # of delta
    "bets": 0.395,
    "averages": 0.1,
    "interval": 0.15,
    "agreement": 0.15,
    "root": 0.195,
    "reserve": 0.01,  # kept for what takes over from a search that does not end
}


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    first: int = 4
    """Episodes of the first batch of a tenure; it doubles from batch to batch while the candidate stays."""
    largest: int = 8
    """Largest batch of a young search; a search of many episodes allows a sixteenth of them."""
    doubt: float = 2.0
    """Nats by which another survivor must fit better to replace the candidate; a tenth more after every candidate."""
    idle: Literal["explore", "follow"] = "explore"
    """What to do at observations that the candidate holds to be worthless: act at random, or follow its ties."""

    def __post_init__(self) -> None:
        for name, low in (("first", 1), ("largest", self.first)):
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} must be at least {low}; got {getattr(self, name)}.")
        if not self.doubt >= 0:
            raise InvalidInput(f"doubt must be at least 0; got {self.doubt}.")

    def most(self, episodes: int) -> int:
        """Returns the size of the largest batch after so many episodes."""
        return max(self.largest, episodes // 16)


def agreement_bets(epsilon: float, ranges: Ranges, horizon: int) -> bets.Agreement:
    """Returns the bets of agreement: epsilon less what rounding may hide, and the largest loss at a stop."""
    return bets.Agreement.of(epsilon - ranges.rounded, max(ranges.jump, epsilon), horizon)


@dataclass
class BettingSearch:
    """What survives, which candidates were played, and how much of delta is left."""

    engine: Engine
    functions: FunctionClass
    epsilon: float
    delta: float
    seed: int  # of the choice among survivors
    notify: Callback
    tuning: Tuning
    recorded: Episodes | None = None  # played before, by anybody
    given_ranges: Ranges | None = None  # of rewards and values; by default rewards are nonnegative and totals at most 1
    threshold: float | None = None  # value of a policy at which to stop
    device: str | None = None  # where PyTorch holds the pairs of a product class; None for NumPy
    ranges: Ranges = field(init=False)
    share: Share = field(init=False)  # the whole of delta
    refutations: Share = field(init=False)  # for B1
    reserve: Share = field(init=False)
    averages: Series = field(init=False)  # for B2
    intervals: Series = field(init=False)  # for B3
    agreements: Series = field(init=False)
    survivors: Survivors = field(init=False)
    roots: Roots = field(init=False)
    agreement: bets.Agreement = field(init=False)
    checks: Checks = field(init=False)  # that episodes are independent and of one law
    candidates: dict[Member, Candidate] = field(default_factory=dict)  # that were played
    opened: list[Candidate] = field(default_factory=list)  # those with accounts
    played: list[list[int]] = field(
        default_factory=list
    )  # per batch: candidate, episodes, its accounts, groups refuted
    batches: int = 0  # those of recorded episodes included
    rounds: int = 0  # candidates drawn
    tenure: int = 0  # batches of the candidate since it was drawn
    current: Candidate | None = None  # the one that is played now

    def __post_init__(self) -> None:
        H = self.functions.horizon
        self.share = Share(self.delta)
        parts = dict(zip(SHARES, self.share.split(*SHARES.values()), strict=True))
        self.refutations, self.reserve = parts["bets"], parts["reserve"]
        self.averages, self.intervals = Series(parts["averages"]), Series(parts["interval"])
        self.agreements = Series(parts["agreement"])
        self.ranges = ranges = self.given_ranges or Ranges.plain(self.functions)
        self.survivors = survivors(self.functions, self.refutations, ranges, self.device)
        self.roots = Roots(self.functions, parts["root"], ranges)
        self.agreement = agreement_bets(self.epsilon, ranges, H)
        self.checks = Checks(self.seed, ranges)

    @property
    def upper(self) -> float:
        """U: the largest value that a survivor may have at the root."""
        return self.roots.largest(self.survivors.living(0))

    @property
    def lower(self) -> float:
        """The largest W of a candidate so far."""
        return max((c.accounts.lower for c in self.opened if c.accounts is not None), default=self.ranges.least)

    @property
    def chance(self) -> str:
        """The sentence that every broken promise ends with."""
        return f"With all assumptions true this happens with probability at most {self.delta:g}."

    @property
    def next_size(self) -> int:
        """Episodes of the next batch: known before it is played, and not a matter of how many are allowed."""
        return min(self.tuning.first * 2 ** min(self.tenure, 40), self.tuning.most(self.engine.ledger.total))

    def open_accounts(self, candidate: Candidate) -> None:
        """Gives a candidate the next shares; nothing that was played before enters its accounts."""
        shares = (self.averages.next(), self.intervals.next(), self.agreements.next())
        candidate.accounts = Accounts.opened(len(self.opened) + 1, self.epsilon, self.ranges, *shares)
        self.opened.append(candidate)

    def tell(self, event: Event) -> None:
        """Tells whoever listens: of the candidate with the largest W, or of the current one where no W says anything."""
        best, lower = self.current, self.lower
        if lower > self.ranges.least:
            best = next(c for c in self.opened if c.accounts is not None and c.accounts.lower == lower)
        policy = None if best is None else partial(LearnedPolicy, self.functions, best.member)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, lower, policy))
