"""Learning where nothing is known of laws but their outcomes: Kullback-Leibler balls, and the loss over all of them [F8].

What is claimed rests on one event for each law: it lies in its ball for ever. Labels are those of `docs/models.md`.
Shapes: L laws, B outcomes at most, S states, K actions, n = S K rows, H levels.
"""

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from richobs.classes.laws import UnknownLaws
from richobs.classes.model_arrays import REWARD_TOLERANCE
from richobs.core.errors import BrokenPromise, EpisodeLimit
from richobs.core.events import Event, Progress, Said, event
from richobs.core.outcome import LOWER, Outcome, StopReason, claim_words
from richobs.core.types import Floats, Ints, Mask
from richobs.core.words import number_words
from richobs.learners.families.confirm import CONFIRM, FEW, PHASE, Confirming, LossBounded
from richobs.learners.families.steps import ENDED, LAST, STARTED, Batch, read_steps, step_words
from richobs.learners.models.living import ALARM, ZETA
from richobs.stats import bets
from richobs.stats.shares import Spendable

IN_BALLS = "every law lies in its ball for ever"
TURNS = 4  # one batch of so many is of the policy that would be claimed
TOLD = 512  # unknown probabilities whose intervals are stated at most
TILTS = 24  # halvings that look for the best tilt; every tilt gives a bound
LEAST_TILT, MOST_TILT = 1e-9, 1e4  # of the spread of values
ROUNDING = 1e-9  # nats by which a radius may be too small
_lgamma = np.vectorize(math.lgamma, otypes=[np.float64])


def log_mixtures(counts: Floats, sizes: Ints) -> Floats:
    """Returns `[L]` the log-likelihood of counts `[L, B]` by the mixture of laws by a Dirichlet law with parameters 1/2."""
    real = np.arange(counts.shape[1]) < sizes[:, None]
    own = np.where(real, _lgamma(counts + 0.5) - math.lgamma(0.5), 0.0).sum(axis=1)
    return np.asarray(own + _lgamma(sizes / 2) - _lgamma(counts.sum(axis=1) + sizes / 2))


def pooled(members: Floats, law: Ints, n_laws: int) -> Floats:
    """Returns `[L, ...]` sums over the members of each law, of numbers `[n, ...]` of rows."""
    sums = np.zeros((n_laws, *members.shape[1:]))
    np.add.at(sums, law, members)
    return sums


def radii(members: Floats, law: Ints, sizes: Ints, log_death: float) -> Floats:
    """Returns `[L]` numbers that KL(counted, true) exceeds for no law, each with the probability that `log_death` states.

    A mixture of laws by a Dirichlet law is a forecast: it exceeds the true law's likelihood by a factor of at most 1/d for
    ever, and n KL(counted, true) is the largest log-likelihood less that of the true law. Where a law has several members,
    a tenth of the money is on a forecast that gives each of them a law of its own. A negative radius: no law is left.

    Args:
        members: `[n, B]` how often each outcome was seen, by rows (state, action).
        law: `[n]` of each row.
        sizes: `[L]` outcomes of each law.
        log_death: log(1/d).
    """
    counts = pooled(members, law, len(sizes))
    n, shared = counts.sum(axis=1), np.bincount(law, minlength=len(sizes)) > 1
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(counts > 0, counts * np.log(counts / n[:, None]), 0.0).sum(axis=1)
        mixed = log_mixtures(counts, sizes)
        apart = pooled(log_mixtures(members, sizes[law]), law, len(sizes))
        both = np.logaddexp(math.log(1 - ALARM) + mixed, math.log(ALARM) + apart)
        found = (log_death + most - np.where(shared, both, mixed) + 2 * ZETA * n + ROUNDING) / n
    return np.where(sizes == 1, 0.0, np.where(n > 0, found, np.inf))


def most_in_ball(law: Floats, radius: Floats, values: Floats, real: Mask) -> Floats:
    """Returns `[n]` numbers that p @ values exceeds for no p with KL(law, p) <= radius.

    For every v above all values, p @ values <= v - exp(-radius) exp(law @ log(v - values)), by Jensen's inequality. The
    place v is found by halving; whichever it is, it gives a bound.

    Args:
        law: `[B, n]` counted probabilities; anything where the radius is infinite.
        radius: `[n]` of each ball; infinity allows every p.
        values: `[B, n]`.
        real: `[B, n]` outcomes that are listed.
    """
    top = np.where(real, values, -np.inf).max(axis=0)
    below = np.where(real, top - values, 0.0)  # [B, n]
    spread, shrink = below.max(axis=0), np.exp(-radius)
    safe = np.where(spread > 0, spread, 1.0)
    low, high = np.full(len(top), math.log(LEAST_TILT)), np.full(len(top), math.log(MOST_TILT))
    for _ in range(TILTS):
        middle = (low + high) / 2
        above = safe * np.exp(middle) + below
        slope = shrink * np.exp((law * np.log(above)).sum(axis=0)) * (law / above).sum(axis=0)
        low, high = np.where(slope > 1, middle, low), np.where(slope > 1, high, middle)
    tilt = safe * np.exp(high)
    bound = top + tilt - shrink * np.exp((law * np.log(tilt + below)).sum(axis=0))
    return np.where(spread > 0, np.minimum(bound, top), top)


class Planned(NamedTuple):
    """Bounds over all laws of all balls, and policies."""

    upper: float  # V* is at most this
    low: float  # the policy's value is at least this
    regret: float  # and at most this below V*
    actions: Ints  # [H, S] the policy
    explore: Ints  # [H, S] where the regret comes from


@dataclass(frozen=True)
class Rows:
    """The outcomes of a family of unknown laws, by rows (state, action)."""

    law: Ints  # [n]
    next: Ints  # [B, n] S where the episode ends
    reward: Floats  # [B, n]
    real: Mask  # [B, n]
    start: Floats  # [S]
    horizon: int

    @classmethod
    def of(cls, family: UnknownLaws) -> "Rows":
        """Returns the rows of a family."""
        arrays, S, B = family.arrays, family.n_states, len(family.padding)
        to = np.where(arrays.done, S, arrays.next)[:, 0].reshape(B, -1)
        reward, real = arrays.reward[:, 0].reshape(B, -1), ~family.padding[:, 0].reshape(B, -1)
        return cls(family.law.ravel(), to.astype(np.int64), reward, real, arrays.start[0], family.horizon)

    def plan(self, counts: Floats, radius: Floats, policy: Ints | None = None) -> Planned:
        """Plans over all laws within the radii `[L]` of what was counted `[L, B]` (Proposition F8).

        The policy is a given one `[H, S]`, or that of the lower values.
        """
        S = len(self.start)
        K = len(self.law) // S
        law = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)).T[:, self.law]  # [B, n]
        law = np.where(self.real & (self.real.sum(axis=0) == 1), 1.0, law)
        size = radius[self.law]
        U, W, D = np.zeros(S + 1), np.zeros(S + 1), np.zeros(S + 1)
        actions, explore = np.zeros((self.horizon, S), np.int64), np.zeros((self.horizon, S), np.int64)
        every = np.arange(S)

        def most(values: Floats) -> Floats:
            return most_in_ball(law, size, values, self.real).reshape(S, K)

        for h in reversed(range(self.horizon)):
            high, least = most(self.reward + U[self.next]), -most(-self.reward - W[self.next])
            lost = most(D[self.next])
            pi = least.argmax(axis=1) if policy is None else policy[h]
            above, below = high.max(axis=1), least[every, pi]
            leaving = high - below[:, None]
            leaving[every, pi] = lost[every, pi]
            actions[h], explore[h] = pi, leaving.argmax(axis=1)
            U[:S], W[:S], D[:S] = above, below, np.minimum(above - below, leaving.max(axis=1))
        upper, low, regret = (float(self.start @ x[:S]) for x in (U, W, D))
        return Planned(upper, low, regret, actions, explore)


def law_intervals(family: UnknownLaws, counts: Floats, radius: Floats) -> dict[str, tuple[float, float, float]]:
    """Returns of each unknown probability, as "law[outcome]", the ends of what is left and what was counted."""
    sizes = family.sizes.tolist()
    places = [(law, b) for law, n in enumerate(sizes) if n > 1 for b in range(n)]
    if not 0 < len(places) <= TOLD:
        return {}
    laws, outcomes = np.array(places).T
    counted = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)).T[:, laws]  # [B, i]
    is_it = (np.arange(len(counted))[:, None] == outcomes).astype(np.float64)
    real = np.arange(len(counted))[:, None] < family.sizes[laws]
    high = most_in_ball(counted, radius[laws], is_it, real)
    low = -most_in_ball(counted, radius[laws], -is_it, real)
    likely = np.where(counts.sum(axis=1)[laws] > 0, counted[outcomes, np.arange(len(laws))], 1 / family.sizes[laws])
    names = [f"{family.names[law]}[{b}]" for law, b in places]
    ends = zip(np.maximum(low, 0.0), np.minimum(high, 1.0), likely, strict=True)
    return {name: (float(a), float(z), float(m)) for name, (a, z, m) in zip(names, ends, strict=True)}


def log_deaths(family: UnknownLaws, share: Spendable) -> float:
    """Returns log(1/d) of each law: all of more than one outcome share evenly."""
    unknown = max(1, int((family.sizes > 1).sum()))
    return math.log(bets.death(share)) + math.log(unknown)


@dataclass
class LawSearch(Confirming):
    """What was counted of every law."""

    planned: Planned | None = None
    last: Ints | None = None  # [H, S] the last policy that was played often enough for a claim

    def __post_init__(self) -> None:
        super().__post_init__()
        family = self.family
        self.rows = Rows.of(family)
        self.members: Floats = np.zeros((family.law.size, len(family.padding)))  # [n, B] counts by rows
        self._rewards: Floats = np.unique(family.arrays.reward)
        self._log_death = log_deaths(family, self._likelihood)

    @property
    def family(self) -> UnknownLaws:
        """The class."""
        family: UnknownLaws = self.functions
        return family

    @property
    def counts(self) -> Floats:
        """`[L, B]` how often each outcome of each law was seen."""
        return pooled(self.members, self.rows.law, len(self.family.names))

    @property
    def radius(self) -> Floats:
        """`[L]` of each ball.

        Raises:
            BrokenPromise: no one law explains what the members of a group did.
        """
        radius = radii(self.members, self.rows.law, self.family.sizes, self._log_death)
        if (radius < 0).any():
            raise BrokenPromise(self._misfit(int(radius.argmin())))
        return radius

    def _misfit(self, law: int) -> str:
        """Returns, in words, the member of a group that differs most from the others."""
        mine, K = np.flatnonzero(self.rows.law == law), self.family.n_actions
        seen, all_seen = self.members[mine], self.counts[law]
        expected = seen.sum(axis=1, keepdims=True) * all_seen / all_seen.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.where(seen > 0, seen * np.log(seen / expected), 0.0).sum(axis=1)
        worst = int(lost.argmax())
        told = ", ".join(
            f"outcome {b} {int(seen[worst, b]):,} times where {expected[worst, b]:.1f} are expected"
            for b in range(int(self.family.sizes[law]))
        )
        return (
            f"the states and actions of {self.family.names[law]!r} do not have one law. State {mine[worst] // K}, action "
            f"{mine[worst] % K} differs most: {told}. If they had one, this would happen with probability at most "
            f"{self.delta:g}. Put those that may differ into groups of their own."
        )

    def plan(self, policy: Ints | None = None) -> Planned:
        """Plans within the balls of what was counted."""
        return self.rows.plan(self.counts, self.radius, policy)

    def gap(self, planned: Planned) -> float:
        """Returns how far the policy's value may be below V*."""
        return planned.regret + 2 * self.error

    def count(self, batch: Batch) -> None:
        """Counts the steps that tell which outcome of a law came.

        Raises:
            BrokenPromise: something came that is not listed.
        """
        family, arrays = self.family, self.family.arrays
        for step, n in zip(batch.steps, batch.n, strict=True):
            kind, s, a, after, reward = step
            if kind == STARTED:
                if arrays.start[0, int(s)] == 0:
                    raise BrokenPromise(f"an episode began in state {int(s)}, which the family holds impossible.")
                continue
            at = (slice(None), 0, int(s), int(a))
            fits = ~family.padding[at] & (
                np.abs(arrays.reward[at] - reward) <= 2 * REWARD_TOLERANCE * max(1.0, abs(reward))
            )
            if kind != LAST:
                fits &= arrays.done[at] if after == ENDED else ~arrays.done[at] & (arrays.next[at] == int(after))
            if not fits.any():
                raise BrokenPromise(
                    f"the real system is none of the family's simulators: {step_words(step)} is not listed."
                )
            if family.tells[int(kind == LAST), int(s), int(a)]:
                self.members[int(s) * family.n_actions + int(a), int(fits.argmax())] += n

    def tell(self, event: Event) -> None:
        """Tells whoever listens."""
        policy = None if self.planned is None else partial(self.policy, self.planned.actions)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, self.lower, policy))


def run_laws(search: LawSearch) -> Outcome:
    """Plays and plans until the loss is at most epsilon and the policy's own episodes confirm it."""
    for played in search.earlier():
        search.count(read_steps(search.family.arrays, search._rewards, played))
    while True:
        planned = search.planned = search.plan()
        shown = search.gap(planned) <= search.epsilon
        search.shown_at = search.engine.ledger.total if shown and search.shown_at is None else search.shown_at
        tell_loss(search, search.gap(planned), shown)
        try:
            if not shown:
                turn = search.rounds % TURNS == TURNS - 1
                why = "the policy so far" if turn else "the policy that meets what is unknown and matters"
                play_laws(search, why, planned.actions if turn else planned.explore, search.next_size)
                continue
            play_laws(search, "the policy that is to be claimed", planned.actions, CONFIRM, confirms=True)
        except EpisodeLimit:
            return law_outcome(search, planned.actions, False)
        again = search.plan(planned.actions)  # what was seen since counts too
        if search.gap(again) <= search.epsilon:
            search.doubt(again.low - search.error, again.upper + search.error)
            search.planned = again
            tell_loss(search, search.gap(again), True)
            return law_outcome(search, planned.actions, True)
        search.lower = search.reward_range[0]  # another policy may be chosen


def tell_loss(search: LawSearch, gap: float, shown: bool) -> None:
    """Tells what the policy loses within the balls."""
    search.tell(
        LossBounded(phase=PHASE, regret=gap, proved=shown, epsilon=search.epsilon, cells=0, planned_at=(), witness=())
    )


def play_laws(search: LawSearch, why: str, actions: Ints, n: int, confirms: bool = False) -> None:
    """Plays a batch and counts what came."""
    played = search.play(actions, n, confirms)
    search.count(read_steps(search.family.arrays, search._rewards, played))
    if search.is_confirmed(actions):
        search.last = actions
    unknown = search.counts[search.family.sizes > 1].sum(axis=1)
    search.tell(
        LawsCounted(
            phase=PHASE,
            n=n,
            why=why,
            earned=float(played.returns.mean()),
            laws=len(unknown),
            seen=int((unknown > 0).sum()),
            median=float(np.median(unknown)) if len(unknown) else 0.0,
        )
    )


@dataclass(frozen=True)
class LawConstants:
    """What a search with unknown laws began with, and what its claim rests on."""

    tuning: dict[str, Any]
    laws: list[str]
    zeta: float  # declared relative error of one probability
    error: float  # of a value: rounding, and rewards that count as equal
    counts: list[list[float]]  # [S K][B] how often each outcome came, by states and actions
    log_death: float  # log(1/d) of each law
    actions: list[list[int]]  # [H][S] the policy
    gap: float  # what it loses within the balls, errors included
    looked: int  # policies that were to be claimed so far
    returns: list[float]  # totals of the episodes that confirmed the last of them
    earns: list[float]  # interval of the policy's value, from its own episodes
    shown_at: int | None  # episodes after which the loss was at most epsilon for the first time
    theta: dict[str, list[float]]  # of each unknown probability: low, high, counted


def law_outcome(search: LawSearch, actions: Ints, certified: bool) -> Outcome:
    """Returns the answer: the policy, the claim in words, and the shares of delta that were spent."""
    family, most = search.family, search.reward_range[1]
    if not certified and not search.is_confirmed(actions) and search.last is not None:
        actions = search.last
    guaranteed = certified or search.is_confirmed(actions)
    planned = search.plan(actions)
    gap = search.gap(planned)
    if not certified:
        search.forget_earned()
    claimed = max(search.epsilon, gap)
    search.upper = min(most, planned.upper + search.error)
    if guaranteed:
        search._likelihood.claim(IN_BALLS, (), search.engine.ledger.total, search._log_death)
        if search.looked:
            search._earned.claim(LOWER, (), CONFIRM, search.lower)
    reason = StopReason.EVERY_MODEL if certified else StopReason.EPISODES_SPENT
    groups = f"each of {len(family.names):,} groups of states and actions has one law"
    theta = law_intervals(family, search.counts, search.radius)
    words = claim_words(
        search.delta,
        claimed,
        [f"the real system has the outcomes that are listed, and {groups}", *search.recorded_words],
        sampling=search.engine.ledger.assumes,
        lower=search.lower,
        upper=search.upper,
        reward_range=search.reward_range,
        reason=reason,
    )
    return Outcome(
        policy=search.policy(actions),
        claim=words if guaranteed else FEW,
        learner="families",
        epsilon=claimed if guaranteed else search.epsilon,
        delta=search.delta,
        reason=reason if guaranteed else StopReason.BUDGET_SPENT,
        guaranteed=guaranteed,
        upper=search.upper if guaranteed else None,
        lower=search.lower if guaranteed else None,
        rounds=search.rounds,
        claims=search.share.claims() if guaranteed else (),
        theta=theta or None,
        remarks=() if certified else (f"within the balls the policy loses up to {number_words(gap, up=True)}",),
        constants=LawConstants(
            tuning=asdict(search.tuning),
            laws=family.names,
            zeta=ZETA,
            error=search.error,
            counts=search.members.tolist(),
            log_death=search._log_death,
            actions=actions.tolist(),
            gap=gap,
            looked=search.looked,
            returns=search.confirmation,
            earns=[search.lower, search.earns_at_most],
            shown_at=search.shown_at,
            theta={name: list(ends) for name, ends in theta.items()},
        ),
    )


@event("families", "counting", "how well are the unknown laws known?", "laws seen", "laws")
class LawsCounted(Event):
    """Episodes were counted, of laws of which only the outcomes are known."""

    why: str  # what was played
    earned: float  # mean total
    laws: int  # of more than one outcome
    seen: int  # of them
    median: float  # times that half of the laws were seen at least

    def said(self) -> Said:
        """Returns what the episodes showed."""
        left = f"{self.seen:,} of {self.laws:,} laws were seen, half of them {self.median:,.0f} times or more"
        sentence = f"{self.n:,} episodes of {self.why} earned {self.earned:.3g}; {left}"
        return Said(f"{self.seen:,} seen", sentence, self.seen, self.laws)
