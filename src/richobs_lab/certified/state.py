"""The state of a certified search, and the parts that can be passed in: its sizes, and the bounds that claims use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from richobs import FunctionClass, InvalidInput, LearnedPolicy, Progress
from richobs.core.events import Callback, Event
from richobs.core.queries import Engine
from richobs.core.types import Floats, Ints, Member, Path
from richobs.stats.shares import Series, Share
from richobs_lab.certified import bounds
from richobs_lab.certified.survivors import Survivors, survivors

PHASE = "certified"
RELATIVE = 0.8  # share of an elimination's delta that goes to the relative test; the absolute one gets the rest
LARGEST = 2**60  # episodes of a batch: larger numbers do not fit into 64 bits
RESERVE = 0.01  # share of delta that is kept for what takes over; eliminations and verifications halve the rest


@dataclass(frozen=True)
class Tuning:
    """The sizes that the search uses; claims hold for every choice."""

    trials: int = 16
    """Rollouts that try a candidate and find its paths."""
    pilot: int = 32
    """Episodes that choose reference, levels and size of a batch."""
    smallest: int = 64
    """Smallest batch."""
    largest: int = 512
    """Largest batch of the first stage; doubled when all pairs on a candidate's path were tested at that size."""
    margin: float = 0.7
    """A batch is sized so that the slack is this share of the error seen in the pilot."""
    verification: int = 64
    """Smallest number of rollouts before the first look at a candidate's value; a third more from look to look."""

    def __post_init__(self) -> None:
        least = {"trials": 1, "pilot": 2, "smallest": 2, "largest": self.smallest, "verification": 2}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} must be at least {low}; got {getattr(self, name)}.")
        if not 0 < self.margin <= 1:
            raise InvalidInput(f"margin must lie in (0, 1]; got {self.margin}.")


@dataclass(frozen=True)
class Bounds:
    """The statistics that claims rest on, each a function of arrays that spends one share of delta."""

    value_radius: Callable[..., Floats] = bounds.value_radius
    elimination_slack: Callable[..., Floats] = bounds.elimination_slack
    residual_radius: Callable[..., float] = bounds.residual_radius
    return_lower_bound: Callable[..., float] = bounds.return_lower_bound
    mean_upper_bound: Callable[..., Floats] = bounds.mean_upper_bound


class Candidate(NamedTuple):
    """A policy and what is certified of it."""

    member: Member
    lower: float  # W
    mean: float  # of its verification rollouts
    n: int


@dataclass
class CertifiedSearch:
    """What survives, what is known of the root, what was tested and how much of delta is left."""

    engine: Engine
    functions: FunctionClass
    epsilon: float
    delta: float
    seed: int  # of the choice among equally promising survivors
    notify: Callback
    tuning: Tuning
    bounds: Bounds
    space: Survivors = field(init=False)
    low: list[Floats] = field(init=False)  # per level [N] smallest and
    high: list[Floats] = field(init=False)  # largest value of max_a f
    b: float = field(init=False)  # largest value in the class
    root_upper: Floats = field(init=False)  # [N_0] V^f(root) is at most this, on E2
    root_guess: Floats = field(init=False)  # [N_0] what V^f(root) seems to be
    share: Share = field(init=False)  # the whole of delta
    reserve: Share = field(init=False)  # for what takes over
    eliminations: Series = field(init=False)  # for eliminations and radii
    verifications: Series = field(init=False)  # for U and W
    stage: int = field(init=False)  # size of the largest batch now
    tested: dict[tuple[Path, int], int] = field(default_factory=dict)  # (node, action) -> size of its largest batch
    best: Candidate | None = None
    tried: Member | None = None  # the last candidate
    rounds: int = 0
    probes: int = 0  # batches played
    fruitless: int = 0  # batches in a row that dropped nothing
    stuck: int = 0  # such batches in all
    disappointed: int = 0  # candidates that looked right in trials and failed on more rollouts

    def __post_init__(self) -> None:
        H = self.functions.horizon
        self.space = survivors(self.functions)
        self.low, self.high = (list(t) for t in zip(*(self.functions.value_bounds(h) for h in range(H)), strict=True))
        self.b = max(float(high.max()) for high in self.high)
        self.root_upper, self.root_guess = self.high[0].copy(), self.high[0].copy()
        self.share = Share(self.delta)
        half = (1 - RESERVE) * self.delta / 2
        self.reserve = self.share.part(RESERVE * self.delta)
        self.eliminations, self.verifications = Series(self.share.part(half)), Series(self.share.part(half))
        self.stage = self.tuning.largest

    @property
    def upper(self) -> float:
        """U: the largest value that a survivor may have at the root."""
        return float(self.root_upper[self.space.alive(0)].max())

    @property
    def guess(self) -> float:
        """What the most promising survivor seems to be worth at the root."""
        return float(np.minimum(self.root_guess, self.root_upper)[self.space.alive(0)].max())

    @property
    def chance(self) -> str:
        """The sentence that every `BrokenPromise` ends with."""
        return f"With all assumptions true this happens with probability at most {self.delta:g}."

    def sizes(self) -> Ints:
        """Returns the sizes that a batch of this stage may have, in steps of a quarter."""
        sizes = [self.tuning.smallest]
        while (n := max(sizes[-1] + 1, int(1.25 * sizes[-1]))) <= self.stage:
            sizes.append(n)
        return np.array(sizes)

    def tell(self, event: Event) -> None:
        """Notifies an event."""
        lower = self.best.lower if self.best is not None else 0.0
        member = self.tried if self.best is None else self.best.member
        policy = None if member is None else partial(LearnedPolicy, self.functions, member)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, lower, policy))
