"""What a learner asks and an engine answers.

A query names a policy, a number of episodes and what is wanted of them; an answer holds that and nothing else. A draw is a
pure function of (seed, key of the query, how often that key was asked before, chunk), so every engine of one kind gives
the same answers, in any order. Shapes: n episodes, N members of a level, K actions.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.ledger import Ledger
from richobs.core.moments import Moments, Steps
from richobs.core.policies import Explore, OpenLoop, Policy, Switch, Uniform, fixed_prefix
from richobs.core.types import Floats, Ints, Member, Path


class LevelMoments(NamedTuple):
    """Moments that are wanted of one level."""

    level: int
    members: Ints | None = None  # of these members of the class; of all where None
    rewards: bool = True  # with the actions taken there and their rewards; else of the observations alone


class LevelSteps(NamedTuple):
    """Steps that are wanted of one level: what was seen, done and earned there, whatever policy led to it."""

    level: int
    moves: bool = True  # with what was seen next; not at the last level


class Tally(NamedTuple):
    """How often n episodes did what, per level; observations by their number in the process's list.

    Counts are whole numbers, kept as floats because they may pass 2^63.
    """

    visits: tuple[Floats, ...]  # [X, K]
    rewards: tuple[Floats, ...]  # [X, K] sums
    moves: tuple[Floats, ...]  # [X, K, X'] none at the last level


@dataclass(frozen=True, eq=False)
class Query:
    """Episodes to play, and what is wanted of them."""

    policy: Policy
    n: int
    purpose: str  # what they are for, such as "elimination"; part of the key
    phase: str = "search"  # what the learner is doing, for the ledger
    levels: int | None = None  # play no more levels than that
    returns: bool = False  # mean and variance of the episodes' totals
    paths: int = 0  # the actions of the first so many episodes
    moments: tuple[LevelMoments, ...] = ()
    tally: bool = False  # counts of (level, observation, action)
    episodes: bool = False  # the episodes themselves
    steps: tuple[LevelSteps, ...] = ()  # by level, from the root on

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidInput(f"a query asks for at least one episode; got {self.n}.")
        wanted = [w.level for w in self.steps]
        if wanted != sorted(set(wanted)):
            raise InvalidInput(f"a query lists the levels whose steps it wants once each, in order; got {wanted}.")

    @classmethod
    def observe(cls, path: Path, n: int, *, purpose: str, phase: str = "search") -> "Query":
        """Asks for n observations at the node at `path`, without actions."""
        wanted = (LevelMoments(len(path), rewards=False),)
        return cls(OpenLoop(path), n, purpose, phase, levels=len(path) + 1, moments=wanted)

    @classmethod
    def step(cls, path: Path, n: int, n_actions: int, *, purpose: str, phase: str = "search") -> "Query":
        """Asks for n samples (x, a, r) at the node at `path`, actions drawn uniformly."""
        policy = Switch(OpenLoop(path), len(path), Uniform(n_actions))
        return cls(policy, n, purpose, phase, levels=len(path) + 1, moments=(LevelMoments(len(path)),))

    @classmethod
    def along(cls, path: Path, n: int, members: Sequence[Ints], *, purpose: str, phase: str = "search") -> "Query":
        """Asks for n plays of the action sequence `path`, and at every level the moments of the listed members.

        Samples at different levels of one episode are independent where transitions are deterministic, so each level's
        are a batch of their own.
        """
        wanted = tuple(LevelMoments(h, members[h]) for h in range(len(path)))
        return cls(OpenLoop(path), n, purpose, phase, levels=len(path), moments=wanted)

    @classmethod
    def rollout(cls, policy: Policy, n: int, *, purpose: str, phase: str = "search", paths: int = 0) -> "Query":
        """Asks for the returns of n episodes of a policy, and for the paths of the first ones."""
        return cls(policy, n, purpose, phase, returns=True, paths=paths)

    @property
    def path(self) -> Path:
        """The actions that are always played first, whatever is seen."""
        return fixed_prefix(self.policy)

    @property
    def key(self) -> tuple[Path, str]:
        """Determines the randomness of the draw, together with the seed and how often the same key was asked before."""
        return self.path, self.purpose

    @property
    def words(self) -> list[Any]:
        """The query in plain values, which name members and policy; a record compares them."""
        wanted = [[w.level, _members_words(w.members), w.rewards] for w in self.moments]
        flags = [self.returns, self.paths, self.tally, self.episodes, _policy_words(self.policy)]
        words = [list(self.path), self.n, self.purpose, self.phase, self.levels, wanted, flags]
        return [*words, [list(w) for w in self.steps]] if self.steps else words


@runtime_checkable
class _OfMember(Protocol):
    """A policy that says of which function of a class it is."""

    @property
    def member(self) -> Member:
        """Index of the function."""


def _members_words(members: Ints | None) -> str:
    """Returns which members are meant, in a few characters: their number and a digest."""
    if members is None:
        return "all"
    index = np.asarray(members)
    return f"{len(index)}:{hashlib.sha256(index.astype('<i8').tobytes()).hexdigest()[:16]}"


def _policy_words(policy: Policy) -> list[Any]:
    """Returns a policy in plain values, as far as it says what it is; the path that it begins with is named elsewhere."""
    if isinstance(policy, Switch):
        return ["Switch", _policy_words(policy.first), policy.level, _policy_words(policy.then)]
    if isinstance(policy, Explore):
        return ["Explore", _policy_words(policy.policy), policy.share]
    if isinstance(policy, _OfMember):
        return [type(policy).__name__, np.asarray(policy.member).tolist()]
    return [type(policy).__name__]


class Returns(NamedTuple):
    """The totals of n episodes."""

    mean: float
    variance: float  # divisor n


NO_RETURNS = Returns(math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Answer:
    """What was wanted of n episodes; what was not wanted is empty."""

    n: int
    returns: Returns = NO_RETURNS
    paths: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))  # [first, levels]
    moments: tuple[Moments, ...] = ()  # as the query listed them
    tally: Tally | None = None
    episodes: Episodes | None = None
    steps: tuple[Steps, ...] = ()  # as the query listed them


class Engine(Protocol):
    """Answers queries, and charges every episode to its ledger."""

    @property
    def name(self) -> str:
        """What it is called in settings."""

    @property
    def ledger(self) -> Ledger:
        """Where every episode is charged."""

    def ask(self, query: Query, /) -> Answer:
        """Plays what the query asks for and returns what it wants.

        Raises:
            EpisodeLimit: the episodes allowed do not suffice; nothing was played.
        """
