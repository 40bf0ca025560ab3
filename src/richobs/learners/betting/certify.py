"""What a run may claim: U for every episode's first observation [U], and two ways to certify a candidate [B3].

Shapes: N_0 members of level 0, m of them alive, A bets of agreement.
"""

import bisect
import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.functions import FunctionClass
from richobs.core.outcome import REACTIVE, REALIZABLE, UPPER, Outcome, StopReason, claim_words
from richobs.core.policies import TIE
from richobs.core.types import Floats, Ints, Member, Observations
from richobs.core.words import number_words
from richobs.learners.betting.candidate import Accounts, Candidate, lost_sums
from richobs.learners.betting.events import PHASE, AgreementTested, ClaimClosed
from richobs.learners.betting.values import Ranges, distinct, samples_of, top_values
from richobs.learners.stopping import (
    ERRORS_APART,
    FALSE_ALARM,
    LEAST,
    RARE,
    RETURNS_APART,
    WON,
    Doubt,
    is_surprising,
    of_returns,
)
from richobs.stats import bets
from richobs.stats.shares import Share, Squares, Supposed

if TYPE_CHECKING:  # the loop calls this module
    from richobs.learners.betting.search import BettingSearch

SHARES = {  # of delta
    "bets": 0.345,
    "averages": 0.05,
    "interval": 0.12,
    "agreement": 0.35,
    "root": 0.125,
    "reserve": 0.01,  # kept for what takes over from a search that does not end
}
RULE = 5  # raised whenever the same seed would decide otherwise; certificates before the second name none
LARGEST = 8_192  # episodes of a batch: they are in memory at once
FIRST_LOOK = 32  # first observations before the first look
NEXT_LOOK = 1.5  # sizes of looks grow by this factor
ASSUMPTIONS = (REACTIVE, REALIZABLE)  # transitions may be random
SMALLEST_BET = 1 / 16  # of epsilon, on returns
LOOK_AGAIN = 1.03  # an interval is looked at again after so many times the episodes
REFUTED = "bets never refute Q*"
TAKEN_OVER = "the algorithm that took over is right: V* - V(policy) is at most"
MOST_ROOTS = (
    1 << 16
)  # members of level 0, each with its own wealth for every candidate, up to which promises are tested
Means = Literal[
    "agreement",
    "promise",
    "interval",
    "one survivor",
    "worth it",
    "not worth it",
    "fallback",
    "tolerance",
    "doubted",
    "nothing",
]  # what a claim rests on
REASONS: dict[Means, StopReason] = {
    "agreement": StopReason.AGREEMENT,
    "promise": StopReason.NEAR_OPTIMAL,
    "interval": StopReason.CERTIFIED,
    "one survivor": StopReason.ONE_SURVIVOR,
    "worth it": StopReason.WORTH_IT,
    "not worth it": StopReason.NOT_WORTH_IT,
    "fallback": StopReason.NEAR_OPTIMAL,
    "tolerance": StopReason.TOLERANCE,
    "doubted": StopReason.DOUBTED,
    "nothing": StopReason.EPISODES_SPENT,
}


class Top(NamedTuple):
    """The root with the largest upper bound."""

    member: int
    looked: int  # first observations at the last look; 0 before the first
    mean: float  # of its values at all first observations so far
    variance: float


class Roots:
    """Means of max_a f_0(x_0, a) and upper bounds on them, for the living members of level 0.

    First observations have one law whatever is played, so all episodes count. Looks are taken after numbers of observations
    that were fixed before anything was played, in the middle of a batch where need be.
    """

    def __init__(self, functions: FunctionClass, share: Share, ranges: Ranges):
        """Starts with the ranges that the class declares.

        Args:
            functions: the class.
            share: probability with which the bound of Q* may fail at any look.
            ranges: of rewards and values.
        """
        self._rounding, self._ranges = bets.ZETA * functions.horizon * ranges.scale, ranges
        self._functions = functions
        self._looks = Squares(share)
        self._low, self._high = functions.value_bounds(0)
        self._sum, self._squares = np.zeros((2, len(self._high)))
        self._due, self._looked = FIRST_LOOK, 0
        self.upper = np.minimum(self._high, ranges.most)  # [N_0]
        self.n = 0

    def promise(self, members: Ints) -> Floats:
        """Returns `[m]` what members seem to be worth at the root."""
        mean = self._sum[members] / self.n if self.n else self.upper[members]
        return np.minimum(mean, self.upper[members])

    def largest(self, members: Ints) -> float:
        """Returns U: the most that one of the members, Q* among them, may be worth at the root [U], [T2]."""
        promised = float(self.upper[members].max()) + self._rounding
        return max(promised, min(promised + self._ranges.above, self._ranges.most))

    def top(self, members: Ints) -> "Top":
        """Returns the member that U comes from, and its values at what was seen."""
        member = int(members[self.upper[members].argmax()])
        mean = float(self._sum[member] / max(self.n, 1))
        variance = max(float(self._squares[member] / max(self.n, 1)) - mean**2, 0.0)
        return Top(member, self._looked, mean, variance)

    def absorb(self, x: Observations, members: Ints) -> None:
        """Adds first observations `[n, ...]`, and takes a look where one is due; only living members matter."""
        while len(x):
            part, x = x[: self._due - self.n], x[self._due - self.n :]
            top = top_values(self._functions, 0, members, part)
            self._sum[members] += top.values.sum(axis=1)[top.group]
            self._squares[members] += (top.values**2).sum(axis=1)[top.group]
            self.n += len(part)
            if self.n == self._due:
                self._due = math.ceil(NEXT_LOOK * self._due)
                self._look(members)

    def _look(self, members: Ints) -> None:
        share, self._looked = self._looks.next(), self.n
        mean = self._sum[members] / self.n
        variance = np.maximum(self._squares[members] / self.n - mean**2, 0.0)
        bound = bets.upper_bound_of_mean(mean, variance, self.n, self._low[members], self._high[members], share)
        self.upper[members] = np.minimum(self.upper[members], bound)
        share.claim(UPPER, (), self.n, self.largest(members))


def agreement_bets(epsilon: float, ranges: Ranges, horizon: int) -> bets.Agreement | None:
    """Returns the bets of agreement: epsilon less what rounding and tolerance may hide, and the largest loss at a stop.

    None where nothing of epsilon is left: survivors may agree then, and it says too little [T4].
    """
    left = epsilon - ranges.rounded - ranges.lost
    return bets.Agreement.of(left, max(ranges.jump, epsilon), horizon) if left > 0 else None


def promise_bets(epsilon: float, ranges: Ranges, functions: FunctionClass) -> bets.Shortfall | None:
    """Returns the bets that a policy earns less than survivors promise, by epsilon less what tolerance and rounding hide.

    They take the share of agreement where that is left out: None where it is not, and where nothing is left [T7].
    """
    left = epsilon - ranges.rounded - ranges.above
    if agreement_bets(epsilon, ranges, functions.horizon) is not None or left <= 0:
        return None
    highest = functions.value_bounds(0)[1]
    return bets.Shortfall.of(left, highest - ranges.least) if len(highest) <= MOST_ROOTS else None


@dataclass(frozen=True)
class PromiseRecord:
    """The numbers from which a reader recomputes a claim by promises [T7]."""

    account: int  # number of the candidate's accounts
    n: int  # its episodes
    threshold: float  # wealth that was needed
    epsilon: float  # mean shortfall that is refuted: epsilon less what rounding and tolerance may hide
    root: int  # the surviving member of level 0 against whose promise the bets won least
    bets: list[float]  # [A]
    weights: list[float]  # [A]
    logs: list[float]  # [A] logarithms of the wealth of each bet
    log_wealth: float  # of all of them
    survivors: str  # digest of the surviving members of all levels


@dataclass(frozen=True)
class AgreementRecord:
    """The numbers from which a reader recomputes a claim by agreement [B3.2]."""

    account: int  # number of the candidate's accounts
    n: int  # its episodes
    threshold: float  # wealth that was needed
    epsilon: float  # mean loss that is refuted: epsilon less what rounding may hide
    jump: float  # largest value at a stop
    theta: list[float]  # [A] largest gap that does not stop an episode
    bets: list[float]  # [A]
    weights: list[float]  # [A]
    taken: list[float]  # [A] what the worst survivor takes away from the logarithm of each bet's wealth
    by_level: list[
        list[float]
    ]  # [H, A] the levels' parts of it: the largest of a surviving member, or of that function
    members: list[list[int]]  # [H, A] the members that attain them
    log_wealth: float
    survivors: str  # digest of the surviving members of all levels


@dataclass(frozen=True)
class IntervalRecord:
    """The numbers that the bounds U and W rest on."""

    root: int  # the surviving member of level 0 with the largest upper bound
    looked: int  # first observations at the last look
    root_mean: float  # of that member's values, over all first observations so far
    root_variance: float
    upper: float  # U
    account: int | None  # number of the policy's accounts; None where it has none
    n: int  # episodes at the last look at W
    mean: float  # of the policy's returns
    threshold: float | None  # wealth that refutes a mean
    lower: float  # W


@dataclass(frozen=True)
class BettingConstants:
    """What a betting search began with, and what its claim rests on."""

    rule: int  # number of the rules of bets, shares and batches
    tuning: dict[str, Any]
    zeta: float  # declared rounding error of the class's values
    floor: float
    cap: float
    money: float  # more than is ever put into the bets against a pair
    shares: dict[str, float]  # how delta is split
    ties: float  # an action is preferred to a smaller one if it is better by more than this times their distance
    refutation_limit: float  # wealth at which a pair dies, or a listed function
    closed_by: str  # what the claim rests on: a key of REASONS
    batches: list[
        list[int]
    ]  # of every batch played: candidate, episodes, number of its accounts (0: none), groups refuted, its ally's accounts
    interval: IntervalRecord
    agreement: AgreementRecord | PromiseRecord | None = None  # of promises where survivors cannot agree


class Closed(NamedTuple):
    """A policy, and what is certified of it."""

    member: Member
    by: Means
    gap: float  # V* - V(policy) is at most this
    accounts: Accounts | None
    agreement: AgreementRecord | PromiseRecord | None = None
    doubt: str = ""  # why the claim is wider than what was shown


def promise_of(search: "BettingSearch", member: Member) -> float:
    """Returns what a function promises at the root, or the most that a survivor does where it is refuted."""
    space = search.survivors
    promise = search.roots.promise(space.living(0))
    return float(promise[space.root(member)] if member in space else promise.max())


def doubted(
    search: "BettingSearch", candidate: Candidate, claim: Closed, judge: Candidate | None = None
) -> Doubt | None:
    """Returns what the policy's own episodes say against the claim, or that there are too few; None for nothing [C].

    What rests on U and W alone does not need that the policy's own function is right.

    Args:
        search: the search.
        candidate: whose policy is claimed.
        claim: what is claimed.
        judge: whose function is tested; by default the candidate itself.
    """
    judge = judge or candidate
    own, ranges, epsilon = candidate.accounts, search.ranges, max(search.epsilon, claim.gap)
    plain, H = claim.by in ("worth it", "not worth it", "tolerance", "nothing"), len(ranges.width)
    if own is None or own.n < LEAST:
        return Doubt.lack(candidate.tested, ranges.most)
    promised, lost = -math.inf if plain else promise_of(search, judge.member), ranges.lost
    limits = {"upper": search.upper, "promised": promised, "allowed": epsilon / 2 + lost, "range_of": ranges.span}
    found = of_returns(own.returns[0], own.returns[1], **limits)
    if found is not None:
        return found
    errs = None if plain else _errs(search, judge, epsilon)
    if errs is not None and judge is candidate:
        return errs
    levels = H if search.functions.is_product else 1  # that a function has a wealth of its own at
    won = 0.0 if plain and search.functions.is_product else search.survivors.least_wealth()
    words = ""
    if won >= WON * levels:
        words = f"bets against what is left of the class hold at least {won:.3g} times the money put in"
    elif search.survivors.only == candidate.member and is_surprising(
        [cells.score for _, cells in _cells(search, candidate)]
    ):  # it is taken for Q*, so whatever was played speaks of it
        words = "the only function that is left errs in what all policies met by more than chance explains"
    if words:
        return Doubt(words, missing=sum(_most_missing(search, candidate, h) for h in range(H)))
    return None if errs is None else errs._replace(words=f"of candidate {judge.number}: {errs.words}", is_of_judge=True)


def _errs(search: "BettingSearch", candidate: Candidate, epsilon: float) -> Doubt | None:
    """Returns at which level a survivor errs on average, in the episodes of its accounts, by more than chance explains."""
    own, ranges, H = candidate.accounts, search.ranges, search.functions.horizon
    if own is None or candidate.member not in search.survivors:
        return None
    for h in range(H):
        mean, error = candidate.error(h)
        chance = max(ERRORS_APART * error, RARE / max(float(own.errors[h, 1]), 1.0)) + float(ranges.residual[h])
        if (abs(mean) - chance) * float(ranges.width[h]) > epsilon / (2 * H):
            return Doubt(_seen(search, candidate, h), missing=_most_missing(search, candidate, h))
    return None


def _most_missing(search: "BettingSearch", candidate: Candidate, level: int) -> float:
    """Returns how far off the candidate's function seems to be at a level, on average along its policy, at the most."""
    mean, error = candidate.error(level)
    return (abs(mean) + RETURNS_APART * error) * float(search.ranges.width[level])


def _seen(search: "BettingSearch", candidate: Candidate, level: int) -> str:
    """Returns, in words, what was predicted along the policy at a level, and what was seen."""
    own, (mean, _) = candidate.accounts, candidate.error(level)
    assert own is not None, "it was played"
    parts = [batch[level] for batch in own.trail]
    x: Observations = np.concatenate([part.x for part in parts])
    actions = np.concatenate([part.actions for part in parts])
    times = np.concatenate([np.ones(len(part.x)) if part.counts is None else part.counts for part in parts])
    some = np.flatnonzero(actions >= 0)
    first, place = distinct(x[some])
    often = int(np.bincount(place, weights=times[some]).argmax())
    shown, action = x[some][first[often]], int(actions[some][first[often]])
    values = candidate.policy.f.values(level, x[some])[np.arange(len(some)), actions[some]]
    predicted = float(values @ times[some] / times[some].sum())
    seen = predicted + mean * float(search.ranges.width[level])
    where = f"most often at observation {np.array2string(np.asarray(shown), threshold=8)} with action {action}"
    return f"at level {level}, {where}, {predicted:.4g} was predicted on average and {seen:.4g} was seen"


class _Cells(NamedTuple):
    """What a function errs by at each observation and action of a level, in all episodes that are kept: C of them."""

    predicted: Floats  # [C]
    mean: Floats  # [C] of y - f
    n: Ints  # [C] how often each came
    score: Floats  # [C] square of the mean beyond chance and tolerance, in standard errors
    x: Observations  # [C, ...]
    actions: Ints  # [C]


def _cells(search: "BettingSearch", candidate: Candidate) -> Iterator[tuple[int, _Cells]]:
    """Yields levels at which something was seen, and what the candidate's function errs by there, whoever played.

    A mean of n outcomes moves by up to width/n with one of them: half of that is no error (the correction for continuity),
    and the variance has a share of an outcome that was not seen.
    """
    f, K = candidate.policy.f, search.functions.n_actions
    steps = [samples_of(played) for _, played in search.kept.batches]
    for h, parts in enumerate(zip(*steps, strict=True)):
        x, actions, y = (np.concatenate([part[i] for part in parts]) for i in range(3))  # rewards, and what follows
        if not len(x):
            continue
        goes_on = np.concatenate([part.goes_on for part in parts])
        if goes_on.any():
            y[goes_on] += f.values(h + 1, np.concatenate([part.next_x for part in parts])).max(axis=1)
        predicted = f.values(h, x)[np.arange(len(x)), actions]
        _, first, cell = np.unique(distinct(x)[1] * K + actions, return_index=True, return_inverse=True)
        n = np.bincount(cell)
        mean, squares = (np.bincount(cell, weights=(y - predicted) ** k) / n for k in (1, 2))
        width = float(search.ranges.width[h])
        beyond = np.maximum(np.abs(mean) - width * (float(search.ranges.residual[h]) + 1 / (2 * n)), 0.0)
        score = n * beyond**2 / (squares - mean**2 + width**2 / (4 * n))
        yield h, _Cells(predicted[first], mean, n, score, x[first], actions[first])


def strangest(search: "BettingSearch") -> str:
    """Returns, in words, where what was played differs most from what the function that was played last predicts."""
    if search.current is None:
        return ""
    worst, words = 0.0, ""
    for h, cells in _cells(search, search.current):
        top = int(cells.score.argmax())
        if cells.score[top] > worst:
            worst, predicted = float(cells.score[top]), cells.predicted[top]
            shown = np.array2string(np.asarray(cells.x[top]), threshold=8)
            words = (
                f" What differs most is at level {h}, observation {shown}, action {cells.actions[top]}: {predicted:.4g} was "
                f"predicted by the function that was played last, and {predicted + cells.mean[top]:.4g} was seen on "
                f"average, {cells.n[top]:,} times."
            )
    return words


def check_alarm(search: "BettingSearch", candidate: Candidate, doubt: Doubt) -> None:
    """Raises `BrokenPromise` where the policy surely earns more than U, but for a tenth of delta [C].

    Where it earns less than predicted some level's errors have a mean, and [B2] refutes the function.
    """
    own = candidate.accounts
    if own is None or doubt.is_lack or doubt.above == -math.inf:
        return
    term = (
        own.interval.amount / SHARES["interval"]
    )  # of delta: each candidate has its own, and they sum to delta at most
    share, ranges = Supposed(FALSE_ALARM * term), search.ranges
    totals, smallest = ranges.unit_totals(own.returns[0]), SMALLEST_BET * search.epsilon / ranges.span
    lower = ranges.least + ranges.span * bets.lower_bound_of_mean(totals, smallest, bets.death(share), own.returns[1])
    if lower > search.upper:
        levels = range(len(ranges.width))
        worst = max(levels, key=lambda h: abs(candidate.error(h)[0]) * float(ranges.width[h]))
        raise BrokenPromise(
            f"{doubt.words}; {_seen(search, candidate, worst)}: {ranges.broken} With all assumptions true this happens with "
            f"probability at most {(1 + FALSE_ALARM) * search.delta:g}."
        )


def widened(search: "BettingSearch", candidate: Candidate, claim: Closed, doubt: Doubt) -> Closed:
    """Returns the claim that what was seen does not speak against: it says less than what was shown, never more [C].

    Where too little was played it says of V* what is always true.
    """
    own, ranges, before = candidate.accounts, search.ranges, search.upper
    search.raised = max(search.upper, min(max(search.upper + doubt.missing, doubt.above), ranges.most))
    lower = ranges.least if own is None else own.look(SMALLEST_BET * search.epsilon, ranges)
    gap = max(claim.gap, search.upper - lower)
    if doubt.is_rare:
        gap = min(gap, max(search.epsilon, claim.gap) + search.upper - before)
    return Closed(candidate.member, "nothing" if doubt.is_lack else "doubted", gap, own, None, doubt.words)


def closed(search: "BettingSearch", candidate: Candidate) -> Closed | None:
    """Returns what certifies the candidate, or the only survivor; None where nothing does yet."""
    space, epsilon, own = search.survivors, search.epsilon, candidate.accounts
    aim = search.threshold
    lost = search.ranges.lost
    if own is not None and own.n >= LOOK_AGAIN * own.looked_at:
        worth_a_look = search.upper - own.mean <= epsilon + lost or (aim is not None and own.mean >= aim)
        if worth_a_look:
            own.look(SMALLEST_BET * epsilon, search.ranges)
    _check_bounds(search)
    found, only = None, space.only
    gap = search.upper - (search.ranges.least if own is None else own.lower)
    if aim is not None and own is not None and own.lower >= aim:
        found = Closed(candidate.member, "worth it", gap, own)
    elif aim is not None and search.upper < aim:
        found = Closed(candidate.member, "not worth it", gap, own)
    elif only is not None and (hidden := search.ranges.hidden + lost) <= epsilon:
        # It is Q* up to rounding and tolerance, and its greedy policy earns V* but for what these hide.
        known = search.candidates.get(only)
        found = Closed(only, "one survivor", hidden, known.accounts if known is not None else None)
    elif own is not None:
        if gap <= epsilon:
            found = Closed(candidate.member, "interval", gap, own)
        else:
            record = agreed(search, own)
            kept = promised(search, own)
            if record is not None:
                found = Closed(candidate.member, "agreement", epsilon, own, record)
            elif kept is not None:
                found = Closed(candidate.member, "promise", epsilon, own, kept)
            elif lost and _gave_up(search, own, gap):
                found = best_interval(search, candidate)._replace(by="tolerance")
    return found


def tell_closed(search: "BettingSearch", claim: Closed) -> None:
    """Tells that a claim is made."""
    size, current = search.survivors.log_bound, search.current
    is_played = current is not None and claim.member == current.member
    search.tell(
        ClaimClosed(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            by=claim.by,
            gap=claim.gap,
            epsilon=search.epsilon,
            drawn=0 if is_played else search.candidate(claim.member).number,
        )
    )


def _gave_up(search: "BettingSearch", own: Accounts, gap: float) -> bool:
    """Returns whether the tolerance keeps the gap from epsilon: not while the mean return is near enough to U [T5]."""
    ends = search.patience.ends(gap, search.engine.ledger.total, search.survivors.log_bound)
    return ends and gap <= search.epsilon + search.ranges.lost and search.upper - own.mean > search.epsilon


def _check_bounds(search: "BettingSearch") -> None:
    """Raises `BrokenPromise` where W of a candidate exceeds U: that contradicts the assumptions and certifies nothing."""
    if search.upper < search.lower:
        raise BrokenPromise(
            f"a policy's value is at least {search.lower:.6g}, but no surviving function promises more than "
            f"{search.upper:.6g}: {search.ranges.broken} {search.chance}"
        )


def agreed(search: "BettingSearch", own: Accounts) -> AgreementRecord | None:
    """Bets, for every survivor f at once, against E[D_f] >= epsilon; returns the numbers where all of them win [B3.2]."""
    account, bet, space = own.agreement, search.agreement, search.survivors
    if bet is None:
        return None
    needed = math.log(bets.death(Supposed(account.amount)))
    if bet.log_wealth(own.n, np.zeros(len(bet.bets))) < needed:
        return None  # even survivors that agree everywhere would not win yet
    if own.agreement_threshold is None:
        own.agreement_threshold = bets.death(account)
    thetas, which = np.unique(bet.theta, return_inverse=True)
    taken: dict[int, Floats] = {}  # per level [A, m]
    levels = list(range(search.functions.horizon))
    levels.insert(0, levels.pop(own.hardest))
    for h in levels:
        gaps, jumps = lost_sums(search.functions, h, space.living(h), own.trail, thetas, float(search.ranges.rest[h]))
        taken[h] = bet.per_gap[:, None] * gaps[which] + bet.per_jump[:, None] * jumps[which]
        worst = space.largest(taken)
        log_wealth = bet.log_wealth(own.n, worst.total)
        if log_wealth < needed:
            own.hardest = h
            break
    own.taken = worst.total
    won = log_wealth >= needed
    size = space.log_bound
    search.tell(
        AgreementTested(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            at=h,
            rests_on=own.n,
            log_wealth=log_wealth,
            needed=needed,
            agreed=won,
            drawn=0
            if search.current is None or search.current.accounts is own
            else search.opened[own.number - 1].number,
        )
    )
    if not won:
        return None
    return AgreementRecord(
        account=own.number,
        n=own.n,
        threshold=own.agreement_threshold,
        epsilon=bet.epsilon,
        jump=bet.jump,
        theta=bet.theta.tolist(),
        bets=bet.bets.tolist(),
        weights=bet.weights.tolist(),
        taken=worst.total.tolist(),
        by_level=[worst.parts[h].tolist() for h in sorted(taken)],
        members=[worst.members[h].tolist() for h in sorted(taken)],
        log_wealth=log_wealth,
        survivors=_digest(search),
    )


def still_needed(search: "BettingSearch", own: Accounts, most: int) -> int:
    """Returns how many more episodes without a loss agreement needs, if survivors lose no more than at the last test.

    `most` where it has enough already, or needs no fewer than that. It chooses the size of a batch; no claim depends on it.
    """
    bet = search.agreement
    if bet is None:
        return most
    needed = math.log(bets.death(Supposed(own.agreement.amount)))
    taken = np.zeros(len(bet.bets)) if own.taken is None else own.taken
    more = bisect.bisect_left(range(most), True, key=lambda k: bet.log_wealth(own.n + k, taken) >= needed)
    return more or most


def promised(search: "BettingSearch", own: Accounts) -> PromiseRecord | None:
    """Bets, for every survivor f at once, against E[V_f(x_0)] - V(pi) >= epsilon; returns the numbers where all win [T7]."""
    bet, space = search.promises, search.survivors
    if bet is None or not own.n:
        return None
    living = space.living(0)
    logs = own.promises[living]  # [m, A]
    total = np.logaddexp.reduce(logs + np.log(bet.weights), axis=1)
    least = int(total.argmin())
    if not total[least] >= math.log(bets.death(Supposed(own.agreement.amount))):  # NaN is no wealth
        return None
    if own.agreement_threshold is None:
        own.agreement_threshold = bets.death(own.agreement)
    return PromiseRecord(
        account=own.number,
        n=own.n,
        threshold=own.agreement_threshold,
        epsilon=bet.epsilon,
        root=int(living[least]),
        bets=bet.bets[living[least]].tolist(),
        weights=bet.weights.tolist(),
        logs=logs[least].tolist(),
        log_wealth=float(total[least]),
        survivors=_digest(search),
    )


def _digest(search: "BettingSearch") -> str:
    """Returns the SHA-256 of the surviving members, level by level."""
    digest = hashlib.sha256()
    for h in range(search.functions.horizon):
        digest.update(search.survivors.living(h).astype("<i8").tobytes() + b";")
    return digest.hexdigest()


def _interval(search: "BettingSearch", own: Accounts | None) -> IntervalRecord:
    """Returns the numbers that U and the policy's W rest on."""
    root = search.roots.top(search.survivors.living(0))
    return IntervalRecord(
        root=root.member,
        looked=root.looked,
        root_mean=root.mean,
        root_variance=root.variance,
        upper=search.upper,
        account=None if own is None else own.number,
        n=0 if own is None else own.looked_at,
        mean=0.0 if own is None else own.mean,
        threshold=None if own is None else own.interval_threshold,
        lower=_lower(search, own),
    )


def best_interval(search: "BettingSearch", candidate: Candidate) -> Closed:
    """Returns the candidate with the largest W once the episodes are spent.

    W is the smallest possible total where no candidate has accounts yet.
    """
    least = search.ranges.least
    best, most = Closed(candidate.member, "nothing", search.upper - least, candidate.accounts), -math.inf
    for other in search.opened:
        own = other.accounts
        assert own is not None, "they were opened"
        if own.look(SMALLEST_BET * search.epsilon, search.ranges) > most:
            most, gap = own.lower, search.upper - own.lower
            best = Closed(other.member, "interval" if gap <= search.epsilon else "nothing", gap, own)
    _check_bounds(search)
    return best


def outcome(search: "BettingSearch", found: Closed) -> Outcome:
    """Returns the answer: the policy, the claim in words, and every share of delta that was spent."""
    own, episodes = found.accounts, search.engine.ledger.total
    certified = found.by not in ("nothing", "worth it", "not worth it", "tolerance", "doubted")
    claimed = search.epsilon if certified else found.gap
    if own is not None:
        own.look(SMALLEST_BET * search.epsilon, search.ranges)
    _check_bounds(search)
    log = search.recorded
    search.refutations.claim(REFUTED, (), episodes + (0 if log is None else log.n), search.survivors.limit)
    for other in search.opened:
        if other.accounts is not None:
            agreed = found.by in ("agreement", "promise") and other.accounts is own
            other.accounts.write_claims(search.epsilon if agreed else None)
    promise = search.roots.promise(search.survivors.living(0))
    wording = partial(
        claim_words,
        search.delta,
        assumptions=_assumptions(search.ranges, log),
        sampling=search.engine.ledger.assumes,
        reason=REASONS[found.by],
    )
    lower, totals = _lower(search, own), (search.ranges.least, search.ranges.most)
    return Outcome(
        policy=LearnedPolicy(search.functions, found.member),
        claim=wording(epsilon=claimed, lower=lower, upper=search.upper, reward_range=totals),
        wording=wording,
        learner="betting",
        epsilon=claimed,
        delta=search.delta,
        reason=REASONS[found.by],
        value_hat=own.mean if own is not None and own.n else None,
        v_star_hat=float(promise.max()),
        upper=search.upper,
        lower=lower,
        log_size=search.survivors.log_size,
        rounds=search.rounds,
        claims=search.share.claims(),
        remarks=_remarks(search, found),
        rounding=search.survivors.rounding,
        constants=BettingConstants(
            rule=RULE,
            tuning=asdict(search.tuning),
            zeta=bets.ZETA,
            floor=bets.FLOOR,
            cap=bets.CAP,
            money=bets.ALL_MONEY,
            shares=dict(SHARES),
            ties=TIE,
            refutation_limit=search.survivors.limit,
            closed_by=found.by,
            batches=search.played,
            interval=_interval(search, own),
            agreement=found.agreement,
        ),
    )


def _lower(search: "BettingSearch", own: Accounts | None) -> float:
    """Returns W of a candidate: the smallest possible total where it has no accounts."""
    return search.ranges.least if own is None else own.lower


def _assumptions(ranges: Ranges, log: Episodes | None) -> tuple[str, ...]:
    """Returns what a claim rests on; a tolerance weakens it, and recorded episodes add something."""
    some = (*ASSUMPTIONS[:-1], ranges.nearest)
    if log is None:
        return some
    which = f"the {log.n:,} recorded episodes"
    words = f"{which} are whole, independent, of this environment and not selected by what came of them"
    return (*some, words)


def _remarks(search: "BettingSearch", found: Closed) -> tuple[str, ...]:
    """Returns, in words, what is missing where nothing was certified, and a threshold that was not decided."""
    aim, lower = search.threshold, _lower(search, found.accounts)
    if aim is not None and lower < aim <= search.upper:
        between = f"between {number_words(lower, up=False)} and {number_words(search.upper, up=True)}"
        return (*_missing(search, found), f"whether a policy is worth {aim:g} is not decided: the bounds lie {between}")
    return _missing(search, found)


def _missing(search: "BettingSearch", found: Closed) -> tuple[str, ...]:
    """Returns, in words, what is missing where nothing was certified."""
    if found.doubt:
        return (f"the claim was made wider, because {found.doubt}",)
    least = number_words(search.ranges.lost, up=True)
    hopeless = f"with this tolerance no epsilon below {least} can be relied on, however many episodes are played"
    if found.by == "tolerance":
        return (hopeless,)
    if found.by != "nothing":
        return ()
    promise = float(search.roots.promise(search.survivors.living(0)).max())
    words = "no candidate was played long enough to bound its value"
    if found.accounts is not None and found.accounts.n > 0:
        earned = f"the best policy earned {found.accounts.mean:.3g} in {found.accounts.n:,} episodes"
        words = f"survivors promise {promise:.3g}, and {earned}"
    return (words, hopeless) if search.ranges.lost >= search.epsilon else (words,)
