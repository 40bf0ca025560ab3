"""The betting search: bets that Q* cannot win, on all levels of every episode.

What is claimed rests on events about Q* or one policy, labelled as in `docs/betting.md`: bets never refute Q* [B1], nor do
averages [B2]; a policy's value is at least W, or all survivors agree with it [B3]; V* is at most U [U]. Which candidate is
played, and how often, may depend on everything seen before.

One round: draw a survivor that promises most at the root and fits best, and play its policy, a few episodes at a time. Every
level of every episode is a bet against every pair of neighbouring members. The candidate stays until it is refuted, promises
too little, or another fits better; it is certified from its own episodes and those of candidates that choose as it does.

After a run its batches, where they are few, can be given in their order to a fresh search with a wider tolerance: that makes
the tolerance curve, and the hint where no function is left [T6]. Nothing is drawn then, and the run is not touched.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit, InvalidInput
from richobs.core.events import Callback, Event, Progress, nobody
from richobs.core.functions import FunctionClass
from richobs.core.outcome import Outcome, ToleranceCurve, ToleranceRow
from richobs.core.problem import check_alike
from richobs.core.queries import Engine, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Member
from richobs.core.words import number_words
from richobs.engines.independence import Watch
from richobs.learners.betting.candidate import Accounts, Candidate, IdleExploration, followed, same_actions
from richobs.learners.betting.certify import (
    LARGEST,
    SHARES,
    TAKEN_OVER,
    Closed,
    Roots,
    agreed,
    agreement_bets,
    best_interval,
    check_alarm,
    closed,
    doubted,
    outcome,
    promise_bets,
    promise_of,
    promised,
    still_needed,
    strangest,
    tell_closed,
    widened,
)
from richobs.learners.betting.events import (
    PHASE,
    AverageRefuted,
    BatchPlayed,
    CandidateDrawn,
    RecordedRead,
)
from richobs.learners.betting.survivors_listed import ListedSurvivors
from richobs.learners.betting.survivors_product import ProductSurvivors
from richobs.learners.betting.values import Ranges, samples_of, top_values
from richobs.learners.stopping import LEAST, ClaimDoubted, Doubt, Fallback, Patience, ToleranceIsLarge
from richobs.stats import bets
from richobs.stats.shares import Share, Squares

DRAWN_WITHIN, KEPT_WITHIN = 1 / 8, 1 / 4  # of epsilon: how much less than the most a candidate may promise
DOUBT_GROWTH = 0.1  # nats for every candidate drawn
FEW_ACTIONS = 4  # up to which the first batch of a candidate that may be wrong about what is seen has two episodes


RUNGS = 10  # powers of two below the range of totals
MOST_EPISODES, MOST_BYTES = 4_096, 1 << 26  # that are kept of a run
MOST_PAIRS, MOST_VALUES = 1 << 24, 1 << 26  # of neighbouring members, and to be read: few are refuted

WithTolerance = Callable[[Sequence[float]], Ranges]


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    first: int = 0
    """Episodes of the first batch of a tenure; it doubles from batch to batch. 0: what suits the class, 1, 2 or 4."""
    largest: int = 8
    """Largest batch of a young search; a search of many episodes allows a sixteenth of them, at most 8,192."""
    doubt: float = 2.0
    """Nats by which another survivor must fit better to replace the candidate; a tenth more after every candidate."""
    idle: Literal["explore", "follow"] = "explore"
    """What to do at observations that the candidate holds to be worthless: act at random, or follow its ties."""

    wait: Literal["large", "never"] = "large"
    """Whether levels of large classes wait for the next one: less CPU. Never: fewer episodes, where these are dear."""

    def __post_init__(self) -> None:
        for name, low in (("first", 0), ("largest", max(self.first, 1))):
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} must be at least {low}; got {getattr(self, name)}.")
        if not self.doubt >= 0:
            raise InvalidInput(f"doubt must be at least 0; got {self.doubt}.")

    def begins(self, functions: FunctionClass) -> int:
        """Returns the size of the first batch of a tenure.

        Where the members of each level of a product have one range of values, as decoders do, they differ in what they take
        an observation for: a wrong one is off by all that there is, and two episodes show it. Where there are many
        actions nearly all candidates are wrong, and one episode shows most of them.
        """
        bounds = (functions.value_bounds(h) for h in range(functions.horizon))
        alike = functions.is_product and all((low == low[0]).all() and (high == high[0]).all() for low, high in bounds)
        few = 2 if functions.n_actions <= FEW_ACTIONS else 1
        return self.first or min(few if alike else 4, self.largest)

    def most(self, episodes: int) -> int:
        """Returns the size of the largest batch after so many episodes."""
        return max(self.largest, min(episodes // 16, LARGEST))


@dataclass
class Kept:
    """The batches of a run, each with the function whose policy was played and the one it served too, while they are few."""

    batches: list[tuple[tuple[Member, ...], Episodes]] = field(default_factory=list)
    episodes: int = 0
    size: int = 0  # bytes of observations

    @property
    def is_whole(self) -> bool:
        """Whether all of the run is kept."""
        return self.episodes <= MOST_EPISODES and self.size <= MOST_BYTES

    def add(self, members: tuple[Member, ...], played: Episodes) -> None:
        """Keeps a batch, or gives all of them up where they are too many."""
        self.episodes, self.size = self.episodes + played.n, self.size + sum(x.nbytes for x in played.observations)
        self.batches = [*self.batches, (members, played)] if self.is_whole else []


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
    with_tolerance: WithTolerance | None = None  # the ranges with another tolerance; None: nothing is looked at again
    first: int = field(init=False)  # episodes of the first batch of a tenure
    ranges: Ranges = field(init=False)
    share: Share = field(init=False)  # the whole of delta
    refutations: Share = field(init=False)  # for B1
    reserve: Share = field(init=False)
    averages: Squares = field(init=False)  # for B2
    intervals: Squares = field(init=False)  # for B3
    agreements: Squares = field(init=False)
    survivors: ListedSurvivors | ProductSurvivors = field(init=False)
    roots: Roots = field(init=False)
    agreement: bets.Agreement | None = field(init=False)  # None: the tolerance leaves nothing of epsilon
    promises: bets.Shortfall | None = field(init=False)  # None: survivors can agree, or there is no tolerance
    watch: Watch = field(init=False)  # that episodes are independent and of one law
    candidates: dict[Member, Candidate] = field(default_factory=dict)  # that were played
    opened: list[Candidate] = field(default_factory=list)  # those with accounts
    played: list[list[int]] = field(
        default_factory=list
    )  # per batch: candidate, episodes, its accounts, groups refuted, the ally's accounts
    kept: Kept = field(default_factory=Kept)  # what was played, while it is little
    batches: int = 0  # those of recorded episodes included
    rounds: int = 0  # candidates drawn
    tenure: int = 0  # batches of the candidate since it was drawn
    current: Candidate | None = None  # the one that is played now
    ally: Candidate | None = None  # one that chose the same actions so far: episodes enter its accounts too
    claimed: Member | None = None  # whose policy is claimed, once one is
    raised: float = -math.inf  # what a policy seems to earn although survivors promise less
    waits_for: Doubt | None = None  # what made a claim wait before the last batch
    patience: Patience = field(default_factory=Patience)  # with gaps that the tolerance may keep from epsilon

    def __post_init__(self) -> None:
        H, self.first = self.functions.horizon, self.tuning.begins(self.functions)
        self.share = Share(self.delta)
        parts = dict(zip(SHARES, self.share.split(*SHARES.values()), strict=True))
        self.refutations, self.reserve = parts["bets"], parts["reserve"]
        self.averages, self.intervals = Squares(parts["averages"]), Squares(parts["interval"])
        self.agreements = Squares(parts["agreement"])
        self.ranges = ranges = self.given_ranges or Ranges.plain(self.functions)
        if self.functions.is_product:
            waits = self.tuning.wait != "never"
            self.survivors = ProductSurvivors(self.functions, self.refutations, ranges, self.device, waits)
        else:
            self.survivors = ListedSurvivors(self.functions, self.refutations, ranges)
        self.roots = Roots(self.functions, parts["root"], ranges)
        self.agreement = agreement_bets(self.epsilon, ranges, H)
        self.promises = promise_bets(self.epsilon, ranges, self.functions)
        self.watch = Watch(self.seed, (ranges.least, ranges.most))

    @property
    def upper(self) -> float:
        """U: the largest value that a survivor may have at the root; more where a policy seems to earn more."""
        return max(self.roots.largest(self.survivors.living(0)), self.raised)

    @property
    def lower(self) -> float:
        """The largest W of a candidate so far."""
        return max((c.accounts.lower for c in self.opened if c.accounts is not None), default=self.ranges.least)

    @property
    def chance(self) -> str:
        """The sentence that every broken promise ends with."""
        return f"With all assumptions true this happens with probability at most {self.delta:g}."

    def next_size(self, candidate: Candidate) -> int:
        """Returns the episodes of the next batch: known before it is played, and not a matter of how many are allowed.

        They are no more than agreement needs if they go well.
        """
        first, own = self.first, candidate.accounts
        size = min(first * 2 ** min(self.tenure, 40), self.tuning.most(self.engine.ledger.total))
        return size if own is None else min(size, max(first, still_needed(self, own, size)))

    def candidate(self, member: Member) -> Candidate:
        """Returns the candidate of a function, a new one where it was not played before."""
        if member not in self.candidates:
            policy = LearnedPolicy(self.functions, member)
            self.candidates[member] = Candidate(len(self.candidates) + 1, member, policy)
        return self.candidates[member]

    def open_accounts(self, candidate: Candidate) -> None:
        """Gives a candidate the next shares; nothing that was played before enters its accounts."""
        shares = (self.averages.next(), self.intervals.next(), self.agreements.next())
        candidate.accounts = Accounts.opened(len(self.opened) + 1, self.epsilon, self.ranges, *shares)
        if self.promises is not None:
            candidate.accounts.promises = np.zeros_like(self.promises.bets)
        self.opened.append(candidate)

    def tell(self, event: Event) -> None:
        """Tells whoever listens, with the policy that is claimed, or the best one so far, and its own W.

        The best is the candidate with the largest W, or the current one where no W says anything.
        """
        best, largest = self.current, self.lower
        if self.claimed is not None:
            best = self.candidates[self.claimed]
        elif largest > self.ranges.least:
            best = next(c for c in self.opened if c.accounts is not None and c.accounts.lower == largest)
        lower = self.ranges.least if best is None or best.accounts is None else best.accounts.lower
        policy = None if best is None else partial(LearnedPolicy, self.functions, best.member)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, lower, policy))


def betting(
    engine: Engine,
    functions: FunctionClass,
    *,
    epsilon: float,
    delta: float,
    seed: int = 0,
    notify: Callback = nobody,
    tuning: Tuning | None = None,
    threshold: float | None = None,
    recorded: Episodes | None = None,
    ranges: Ranges | None = None,
    fallback: Fallback | None = None,
    device: str | None = None,
    with_tolerance: WithTolerance | None = None,
) -> Outcome:
    """Learns a policy with V* - V(policy) <= epsilon with probability at least 1 - delta.

    If the episodes run out first, the best interval so far is returned: an honest, wider epsilon.

    Args:
        engine: plays the episodes; its ledger may limit them.
        functions: the class F, which should hold Q*.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that a claim is false.
        seed: of the choice among survivors.
        notify: told about every event.
        tuning: how eager the search is.
        threshold: stop as soon as a policy is certified to be worth this, or no policy can be.
        recorded: whole episodes that were played before, by any policies, not selected by what came of them.
        ranges: of rewards and values; by default rewards are nonnegative and totals at most 1.
        fallback: what takes over if the search has not ended by then, with the share of delta that is kept for it.
        device: where PyTorch holds the pairs of a product class; None for NumPy.
        with_tolerance: returns the ranges with another tolerance; None: there is no tolerance curve.
    """
    asked = (engine, functions, epsilon, delta, seed, notify, tuning or Tuning(), recorded, ranges, threshold, device)
    search = BettingSearch(*asked, with_tolerance)
    found = run(search, fallback)
    answer = outcome(search, found)
    return replace(answer, replay=partial(_tolerance_curve, search, found, answer))


def run(search: BettingSearch, fallback: Fallback | None = None) -> Closed:
    """Draws and plays candidates until one is certified, the episodes are spent, or the fallback has learned a policy."""
    candidate: Candidate | None = None
    if search.ranges.lost >= search.epsilon:
        size, least = search.survivors.log_bound, search.ranges.lost
        search.tell(
            ToleranceIsLarge(
                phase=PHASE, log_size_before=size, log_size_after=size, least=least, epsilon=search.epsilon
            )
        )
    _read_recorded(search)
    try:
        while True:
            if fallback is not None and fallback.is_due(search.engine.ledger.total):
                return _hand_over(search, fallback)
            search.current = candidate = _choose(search, candidate)
            _play(search, candidate)
            claim = closed(search, candidate)
            if claim is None and search.ally is not None:
                claim = closed(search, search.ally)
            if claim is None:
                search.claimed = search.waits_for = None
                for each in search.candidates.values():
                    each.claimable = 0
            elif (tested := _tested(search, claim)) is not None:
                return tested
    except EpisodeLimit:
        if candidate is None or not search.played:
            raise
        claim = best_interval(search, candidate)
        candidate = search.candidate(claim.member)
        doubt = doubted(search, candidate, claim) or search.waits_for
        if doubt is None:
            return claim
        check_alarm(search, candidate, doubt)
        return widened(search, candidate, claim, doubt)


def _tested(search: BettingSearch, claim: Closed) -> Closed | None:
    """Plays the claimed policy until its own episodes no longer speak against the claim, or widens the claim [C].

    Where only the function that was played is doubted, the search goes on: another function may explain what was seen.

    Returns:
        The claim as it may be made; None if the search goes on.

    Raises:
        BrokenPromise: they contradict it; with all assumptions true this happens with probability at most delta / 10.
    """
    candidate = search.candidate(claim.member)
    candidate.claimable = candidate.claimable or max(search.engine.ledger.total, LEAST)
    search.claimed = candidate.member
    judge = candidate  # whose function is tested; of an ally's claim that of the candidate that was played
    if candidate is search.ally and search.current is not None and search.current.member in search.survivors:
        judge = search.current
    while True:
        doubt = doubted(search, candidate, claim, judge)
        if doubt is None:
            tell_closed(search, claim)
            return claim._replace(accounts=candidate.accounts)
        check_alarm(search, candidate, doubt)
        if candidate.tested >= LEAST and search.engine.ledger.total >= 2 * candidate.claimable:
            return widened(search, candidate, claim, doubt)
        search.waits_for = None if doubt.is_lack else doubt
        size = search.survivors.log_bound
        said = ClaimDoubted(
            phase=PHASE, log_size_before=size, log_size_after=size, episodes=candidate.tested, why=doubt.words
        )
        if doubt.is_of_judge:
            search.claimed = None
            search.tell(said)
            return None
        if search.current is not candidate:
            search.current, search.ally, search.tenure, judge = candidate, None, 0, candidate
        search.tell(said)
        _play(search, candidate, LEAST - candidate.tested)


def _read_recorded(search: BettingSearch) -> None:
    """Settles all bets on recorded episodes, a batch at a time in their order [B1]. No other claim uses them."""
    log, size = search.recorded, search.survivors.log_bound
    if log is None:
        return
    try:
        with _hinting(search):
            refuted = _settle_recorded(search)
    except BrokenPromise as broken:
        raise BrokenPromise(f"{broken} Nothing was played: this follows from the recorded episodes alone.") from None
    after = search.survivors.log_bound
    search.tell(RecordedRead(phase=PHASE, log_size_before=size, log_size_after=after, episodes=log.n, refuted=refuted))


def _hand_over(search: BettingSearch, fallback: Fallback) -> Closed:
    """Lets an algorithm that surely ends learn, with the share of delta that was kept for it."""
    spent = search.engine.ledger.total
    search.tell(fallback.takes_over(PHASE, search.survivors.log_bound, spent))
    found = fallback.learn()
    search.reserve.spend()
    search.reserve.claim(TAKEN_OVER, (), search.engine.ledger.total - spent, search.epsilon)
    return Closed(found.policy.member, "fallback", search.epsilon, None)


def _choose(search: BettingSearch, candidate: Candidate | None) -> Candidate:
    """Keeps the candidate, or draws another one among survivors that promise most, by how well they fit."""
    space = search.survivors
    promise = search.roots.promise(space.living(0))
    first = promise >= promise.max() - DRAWN_WITHIN * search.epsilon
    fit = space.fit(first)
    allowed = search.tuning.doubt + DOUBT_GROWTH * search.rounds
    behind = None
    least = promise.max() - KEPT_WITHIN * search.epsilon
    if candidate is not None and candidate.member in space and promise[space.root(candidate.member)] >= least:
        behind = fit.behind(candidate.member)
        if behind <= allowed:
            return candidate
    search.rounds += 1
    search.tenure = 0
    member = fit.draw(keyed_generator(search.seed, "candidate", search.rounds))
    known, drawn = search.candidates.get(member), search.candidate(member)
    search.ally = _ally(search, drawn)
    size = space.log_bound
    search.tell(
        CandidateDrawn(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            played_before=known is not None,
            behind=behind,
            allowed=allowed,
        )
    )
    return drawn


def _ally(search: BettingSearch, candidate: Candidate) -> Candidate | None:
    """Returns, of the candidates whose accounts hold more episodes, the one with most that chose the same actions [B3].

    Only a policy whose mean return is within epsilon of U counts: others would not be certified. It is chosen before
    anything is played, from what was seen before.
    """
    within = search.epsilon + search.ranges.lost
    for other in sorted(search.opened, key=lambda c: c.tested, reverse=True):
        own = other.accounts
        if own is None or own.n <= candidate.tested:
            return None
        if other is not candidate and search.upper - own.mean <= within and same_actions(candidate.policy, own.trail):
            return other
    return None


def _play(search: BettingSearch, candidate: Candidate, most: int = 0) -> None:
    """Plays a batch of the candidate's policy, settles all bets on it, and drops what was refuted.

    Args:
        search: the search.
        candidate: whose policy is played.
        most: episodes that are needed, where they are few; by default, and below 1, as many as the search likes.
    """
    if candidate.lacks_accounts:
        search.open_accounts(candidate)
    space, size, product = search.survivors, search.survivors.log_bound, search.functions.is_product
    promised = promise_of(search, candidate.member)
    nearly = search.epsilon / (4 * search.functions.horizon) if search.tuning.idle == "explore" else -math.inf
    worthless = search.ranges.rest + nearly
    policy = IdleExploration(candidate.policy, worthless, search.functions.n_actions)
    n = (
        min(search.next_size(candidate), most) if most > 0 else search.next_size(candidate)
    )  # like policy, forecasts, bets and shares it is fixed before anything is drawn
    played = search.engine.ask(Query(policy, n, "play", PHASE, episodes=True)).episodes
    search.batches, search.tenure = search.batches + 1, search.tenure + 1
    assert played is not None, "the query wants episodes"
    if search.recorded is not None:
        check_alike(search.recorded, played)
    search.watch.look(candidate.number, played)
    both = (candidate,) if search.ally is None else (candidate, search.ally)
    search.kept.add(tuple(c.member for c in both), played)
    with _hinting(search):
        refuted, erring = _settle(search, both, played)
    numbers = [0 if c is None or c.accounts is None else c.accounts.number for c in (candidate, search.ally)]
    search.played.append([candidate.number, n, numbers[0], refuted, numbers[1]])
    search.tell(
        BatchPlayed(
            phase=PHASE,
            n=n,
            log_size_before=size,
            log_size_after=space.log_bound,
            refuted=refuted,
            earned=float(played.returns.mean()),
            promised=promised,
            drawn=candidate.number,
            living=tuple(len(space.living(h)) for h in range(search.functions.horizon if product else 1)),
            wealth=space.log_wealth(candidate.member) if candidate.member in space else (),
            limit=math.log(space.limit),
        )
    )
    for who, h in erring:
        if who.member in space:
            before, number = space.log_bound, 0 if who is candidate else who.number
            with _hinting(search):
                space.kill(who.member, h)
            after, error = space.log_bound, who.mean_error(h)
            search.tell(
                AverageRefuted(
                    phase=PHASE, log_size_before=before, log_size_after=after, at=h, error=error, drawn=number
                )
            )


def _settle(
    search: BettingSearch, served: Sequence[Candidate], played: Episodes
) -> tuple[int, list[tuple[Candidate, int]]]:
    """Settles all bets on a batch: returns how much was refuted, and which candidates averages refute at which levels.

    Args:
        search: the search.
        served: the candidate whose policy was played, and its ally where there is one.
        played: the batch.
    """
    space = search.survivors
    erring = [(candidate, h) for candidate in served for h in _absorb(search, candidate, played)]
    refuted = space.absorb(samples_of(played), search.batches)
    search.roots.absorb(played.observations[0], space.living(0))
    return refuted, erring


def _absorb(search: BettingSearch, candidate: Candidate, played: Episodes) -> list[int]:
    """Adds a batch to the accounts of a candidate, and returns the levels at which averages refute it."""
    space = search.survivors
    trail, earned = followed(played, candidate.policy, search.ranges)
    erring = candidate.absorb(trail, earned)
    if search.promises is not None and candidate.accounts is not None:
        living = space.living(0)
        top, got = top_values(search.functions, 0, living, played.observations[0]), search.ranges
        lack = top.values[top.group] - np.clip(earned, got.least, got.most)
        if (search.promises.bets[living].max(axis=1)[:, None] * (lack - search.promises.epsilon) >= 1).any():
            raise InvalidInput(
                "a function of level 0 has a larger value than its `value_bounds` say, and bets that rest on them would "
                "lose more than they have. Bounds must hold for every observation (docs/skeletons/level_class.py)."
            )
        candidate.accounts.promises[living] += search.promises.growth(living, lack)
    return erring


def _settle_recorded(search: BettingSearch) -> int:
    """Settles all bets on recorded episodes, a batch at a time in their order, and returns how much was refuted [B1]."""
    log, refuted, first = search.recorded, 0, 0
    while log is not None and first < log.n:
        part = log.part(first, first + search.tuning.most(first))
        search.batches += 1
        refuted += search.survivors.absorb(samples_of(part), search.batches)
        first += part.n
    return refuted


def _why_not(search: BettingSearch) -> str:
    """Returns why what was played cannot be looked at again with another tolerance; nothing where it can."""
    if search.with_tolerance is None:
        return "the ranges of the search are fixed"
    log = search.recorded
    if not search.kept.is_whole or (log is not None and log.n > MOST_EPISODES):
        return f"only {MOST_EPISODES:,} episodes and {MOST_BYTES >> 20} MiB of observations are kept, and this run has more"
    sizes = [search.functions.level_size(h) for h in range(search.functions.horizon)]
    pairs = sum(m * n for m, n in itertools.pairwise([*sizes, 1])) if search.functions.is_product else sizes[0]
    if pairs > MOST_PAIRS or sum(sizes) * search.kept.episodes > MOST_VALUES:
        return "the class is too large: with a wide tolerance hardly any function is refuted"
    return ""


def _rungs(search: BettingSearch) -> list[tuple[float, ...]]:
    """Returns the run's own tolerance, and the powers of two above it."""
    own = tuple(search.ranges.eta.tolist())
    wider = [search.ranges.span * 2.0**-k for k in range(RUNGS, 0, -1)]
    return [own, *((rung,) for rung in wider if rung > max(own, default=0.0))]


def _replayed(search: BettingSearch, eta: tuple[float, ...]) -> BettingSearch | None:
    """Returns a search with this tolerance that has seen what was played; None where no function is left."""
    assert search.with_tolerance is not None, "_why_not was asked"
    ranges = search.with_tolerance(eta)
    again = replace(search, given_ranges=ranges, notify=nobody, candidates={}, opened=[], batches=0, claimed=None)
    again.promises = search.promises  # fixed before anything was played
    try:
        _settle_recorded(again)
        for members, played in search.kept.batches:
            served = [again.candidate(some) for some in members]
            if served[0].lacks_accounts:
                again.open_accounts(served[0])
            again.batches += 1
            for who, h in _settle(again, served, played)[1]:
                if who.member in again.survivors:
                    again.survivors.kill(who.member, h)
    except BrokenPromise:
        return None
    return again


@contextlib.contextmanager
def _hinting(search: BettingSearch) -> Iterator[None]:
    """Adds to an error that no function is left where that is seen best, and the least tolerance that leaves one.

    The least of the ladder, which is a hint and not a claim.
    """
    try:
        yield
    except BrokenPromise as broken:
        rungs = [] if _why_not(search) else _rungs(search)[1:]
        least = next((eta[0] for eta in rungs if _replayed(search, eta) is not None), None)
        said = f"{broken}{strangest(search)}"
        if least is not None:
            hint = f"with a tolerance of {number_words(least, up=True)} these episodes would leave a function"
            said = f"{said} A hint, not a claim: {hint}."
        raise BrokenPromise(said) from None


def _tolerance_curve(search: BettingSearch, found: Closed, answer: Outcome) -> ToleranceCurve:
    """Returns what the same episodes say of the policy for wider and wider tolerances [T6].

    A row says no less than the rows before it: stakes depend on the tolerance, so its own bounds may be nearer by chance.
    """
    why = "another algorithm took over, which knows no tolerance" if found.by == "fallback" else _why_not(search)
    rows: list[ToleranceRow] = []
    gap, upper, size = answer.epsilon, -math.inf, -math.inf  # less than the run claims was not tested [C]
    for eta in [] if why else _rungs(search):
        again = _replayed(search, eta)
        if again is not None:  # else the row before it stands
            upper, size = max(upper, again.upper), again.survivors.log_size
            gap = max(gap, _gap(search, again, found, answer))
        rows.append(ToleranceRow(min(eta, default=0.0), gap, upper, size))
    return ToleranceCurve(tuple(rows), answer.epsilon, why)


def _gap(search: BettingSearch, again: BettingSearch, found: Closed, answer: Outcome) -> float:
    """Returns the least that a replay claims of the policy: by its interval, agreement, or as the only survivor."""
    assert answer.lower is not None, "betting has W"
    gap, more = again.upper - answer.lower, again.ranges.lost - search.ranges.lost
    if again.survivors.only == found.member:
        gap = min(gap, again.ranges.hidden + again.ranges.lost)
    again.agreement = agreement_bets(search.epsilon + more, again.ranges, search.functions.horizon)
    own = again.candidate(found.member).accounts
    if own is not None and agreed(again, own) is not None:
        gap = min(gap, search.epsilon + more)
    if own is not None and promised(again, own) is not None:
        gap = min(gap, search.epsilon + (again.ranges.above - search.ranges.above))
    return gap
