"""The search: explore, freeze, verify, verify what is left over; attempts until the bound is at most epsilon.

Labels in brackets are those of docs/linear.md. What is fixed before which phase:

- before B: the policy pi, V, lambda, the share d, every policy of B and P with its number of episodes;
- before C: F, and every policy of C with its number of episodes.
"""

import math
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from richobs.core.environment import TOLERANCE
from richobs.core.errors import EpisodeLimit, InvalidInput
from richobs.core.events import Event, Progress
from richobs.core.outcome import LOWER, UPPER, Outcome, StopReason, claim_words
from richobs.core.policies import Policy, Uniform
from richobs.core.types import Floats, Ints
from richobs.core.words import number_words
from richobs.learners.base import Search
from richobs.learners.linear.data import Data, Features, joined
from richobs.learners.linear.events import Attempted, Explored
from richobs.learners.linear.fits import Bound, Fit, Frozen, Mean, certified, fitted, fitted_mean, quadratic
from richobs.learners.linear.linearity import check_linear
from richobs.learners.linear.planning import Plan, Planned, planned
from richobs.stats.bets import death, lower_bound_of_mean
from richobs.stats.shares import Share

LINEAR = (
    "given all that was seen and done before, the mean of the reward plus a function of what is seen next is linear in the "
    "features, for the functions that the run froze (every linear MDP has this)"
)
LOSS = "V* - V(policy) is at most"
FINAL, WIDER, AGAIN = 0.5, 0.1, 0.4  # of delta: the first attempt at epsilon, those at 2, 4, ... epsilon, further ones
GAP, EACH = 0.9, 0.05  # of an attempt's share: the bound on the loss; W, and the upper bound of V(pi)
WIDEST = 0.25  # of the range of totals: no attempt is made for a wider bound
MIX = (("best", 0.4), ("optimistic", 0.3), ("random", 0.3))  # of the episodes of B and C
SECOND = 0.35  # episodes of C for each one of B
EXPLORED = 0.8  # episodes to freeze from for each one of B
STANDARD_ERRORS = 2.0  # of an optimistic plan
LEFT_OVER_ERRORS = 1.0  # that F adds
PER_FEATURE = 8  # episodes of B for each feature, at least
CORRECTION, STEP = 0.3, 1.7  # power of what an attempt gave over its target that corrects predictions; the most of it
SAFETY = 1.1  # by which the predicted bound of an attempt at epsilon stays below it
ROUNDS = 12  # of the search for lambda and the number of episodes


@dataclass(frozen=True)
class Tuning:
    """How eager a search by linear values is."""

    start: int = 64
    """Episodes of the random policy that a run begins with."""
    growth: float = 0.125
    """Episodes of each further batch of exploration, as a part of those before."""

    def __post_init__(self) -> None:
        if self.start < 2:
            raise InvalidInput(f"tuning: start must be at least 2; got {self.start}.")
        if not 0 < self.growth <= 1:
            raise InvalidInput(f"tuning: growth must lie in (0, 1]; got {self.growth}.")


class Sizes(NamedTuple):
    """Episodes of the phases of an attempt, and lambda."""

    first: int  # of B
    earned: int  # of P, the policy's own
    second: int  # of C
    rate: float
    scale: float  # what the bound would be without noise in the plan


@dataclass(frozen=True)
class Attempt:
    """An attempt that ended with a bound, and everything that the bound rests on."""

    policy: Planned
    bound: Bound
    share: float
    frozen: Frozen
    second: tuple[Fit, ...]
    earned: Mean
    start: Mean
    starts: Ints | None  # [X] how often C began at each context, where these are listed
    value: float  # mean return of the policy
    lower: float
    upper: float
    n: int  # episodes of B, P and C


@dataclass
class LinearSearch(Search):
    """What was seen so far, which attempts were made, and what of delta was spent."""

    features: Features = field(init=False)  # of the class
    seen: list[Data] = field(default_factory=list)
    targets: list[float] = field(init=False)  # of further attempts; the last one is epsilon
    tried: int = 0  # attempts
    again: int = 0  # of them at epsilon
    batches: int = 0  # of exploration
    caution: float = 1.0  # factor on predicted bounds, learned from attempts at epsilon
    best: Attempt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.features = Features(self.functions)
        wider = [self.epsilon * 2**k for k in range(1, 60) if self.epsilon * 2**k <= WIDEST * self.span]
        self.targets = [*wider[::-1], self.epsilon]

    @property
    def span(self) -> float:
        """Width of the range of totals."""
        return self.reward_range[1] - self.reward_range[0]

    @property
    def known(self) -> bool:
        """Whether all contexts are listed."""
        return self.features.tables is not None

    @property
    def contexts(self) -> list[Floats] | float:
        """Per level `[X, K, d]` all features there can be, or their largest length."""
        return self.features.norm if self.features.tables is None else self.features.tables

    def at(self, level: int) -> Floats | float:
        """Returns all features there can be at a level, or their largest length."""
        return self.features.norm if self.features.tables is None else self.features.tables[level]

    @property
    def cut(self) -> list[tuple[float, float]]:
        """Ends of V_h: what can be earned from there on; without ends where contexts are not listed [L2]."""
        if not self.known:
            return [(-math.inf, math.inf)] * self.features.horizon
        (low, high), (least, most) = self.step_range, self.reward_range
        low, high, H = min(low, 0.0), max(high, 0.0), self.features.horizon
        return [(max(low * (H - h), least - high * h), min(high * (H - h), most - low * h)) for h in range(H)]

    @property
    def next_share(self) -> float:
        """The part of delta that the next attempt gets: fixed by its number, so that all of them add up to delta [L3]."""
        left = len(self.targets) - 1
        if left:
            return self.delta * WIDER * 0.5**left
        return self.delta * (FINAL if not self.again else AGAIN / (self.again * (self.again + 1)))

    def data(self) -> Data:
        """Returns everything that was seen."""
        self.seen = [joined(self.seen, self.known)]
        return self.seen[0]

    def play(self, policy: Policy, n: int, purpose: str) -> Data:
        """Plays episodes of one policy."""
        return self.features.read(self.episodes(policy, n, purpose, "search"))

    def tell(self, event: Event) -> None:
        """Tells whoever listens."""
        best = self.best
        policy = None if best is None else best.policy.learned
        upper, lower = (None, None) if best is None else (best.upper, best.lower)
        self.notify(Progress(event, self.engine.ledger.total, upper, lower, policy))


def run(search: LinearSearch) -> None:
    """Explores and attempts until a policy is certified, or until the episodes are spent."""
    _explore(search, None)
    try:
        while search.best is None or search.best.bound.total > search.epsilon:
            plan, sizes = _sized(search)
            if search.data().n < EXPLORED * sizes.first:
                _explore(search, (plan, sizes))
            else:
                _attempt(search, plan, sizes)
    except EpisodeLimit:
        return


def _explore(search: LinearSearch, known: tuple[Plan, Sizes] | None) -> None:
    """Plays a batch of the greedy, the optimistic or the random policy, in turn."""
    policy: Policy = Uniform(search.features.n_actions)
    name, n, needed = "random", search.tuning.start, 0
    if known is not None:
        name = ("greedy", "optimistic", "random")[search.batches % 3]
        plan, sizes = known
        n, needed = max(search.tuning.start, int(search.tuning.growth * search.data().n)), sizes.first
        if name == "greedy":
            policy = Planned(search.features, plan.w, plan.bonus)
        elif name == "optimistic":
            policy = _optimistic(search)
        search.batches += 1
    played = search.play(policy, n, "exploration")
    search.seen.append(played)
    total = sum(part.n for part in search.seen)
    search.tell(
        Explored(
            phase="exploration",
            n=n,
            policy=name,
            earned=float(played.returns.mean()),
            episodes=total,
            needed=math.ceil(EXPLORED * needed),
        )
    )


def _optimistic(search: LinearSearch) -> Planned:
    plan = planned(search.data(), bonus=STANDARD_ERRORS, cut=search.cut)
    return Planned(search.features, plan.w, plan.bonus)


def _sized(search: LinearSearch) -> tuple[Plan, Sizes]:
    """Returns the greedy plan, and the episodes with which an attempt is predicted to reach its target.

    The prediction is a guess; lambda and all sizes follow from it and are fixed before the attempt.
    """
    data, features = search.data(), search.features
    H = features.horizon
    plan = planned(data, cut=search.cut)
    d = search.next_share * GAP
    target = search.targets[0] / (1 if len(search.targets) > 1 else SAFETY)
    least = PER_FEATURE * max(features.dim(h) for h in range(H))
    n, rate = float(least), 1.0
    gaps = [table - table.max(axis=1, keepdims=True) for table in plan.tables]
    errors = [quadratic(level.phi, spread) for level, spread in zip(data.levels, plan.spread, strict=True)]
    ratio, needed = 1.0, 1e-12
    for _ in range(ROUNDS):
        scale = rate / 2 / n
        worst = planned(data, given=lambda h, _, scale=scale: gaps[h] + scale * errors[h])  # type: ignore[misc]
        along = max(float(worst.tables[0].max(axis=1)[data.levels[0].x].mean()) / scale, 1e-12)
        ratio = min(max(math.sqrt(plan.variance / along), 0.05), 2.0)
        needed = 1.1 * (along + plan.variance / ratio)
        z = math.sqrt(sum(features.dim(h) for h in range(H)) / n)
        caution = search.caution * 0.95 * (1 + 3 * z + 10 * z * z)
        n = max(least, 2 * math.log(1 / d) * needed * (caution / target) ** 2)
        n = min(n, 1e15)
        rate = math.sqrt(2 * math.log(1 / d) * n / needed)
    first = math.ceil(n)
    return plan, Sizes(first, max(2, math.ceil(ratio * n)), max(least, math.ceil(SECOND * n)), rate, search.targets[0])


def _mixed(search: LinearSearch, policies: dict[str, Policy], n: int, purpose: str) -> Data:
    """Plays n episodes of policies that were fixed before, each its part."""
    counts = [max(1, round(part * n)) for _, part in MIX]
    parts = [search.play(policies[name], count, purpose) for (name, _), count in zip(MIX, counts, strict=True)]
    return joined(parts, search.known)


def _attempt(search: LinearSearch, plan: Plan, sizes: Sizes) -> None:
    """Freezes V and pi, verifies V [L1], freezes F, verifies it [L2], and keeps the bound if it is the best one."""
    features, H = search.features, search.features.horizon
    before, share = search.data(), search.share.part(search.next_share)
    pi = Planned(features, plan.w, plan.bonus)  # the greedy plan has no bonus
    policies: dict[str, Policy] = {"best": pi, "optimistic": _optimistic(search), "random": Uniform(features.n_actions)}
    frozen = Frozen(list(plan.w), search.cut, sizes.rate)
    first = _mixed(search, policies, sizes.first, "B")
    own = search.play(pi, sizes.earned, "P")
    search.seen += [first, own]
    fits = _fits(search, frozen, first, rest=False)
    for h in range(H):
        (y, ends), (old, _) = (_answered(search, frozen, data, h, rest=False) for data in (first, before))
        known = before.levels[h], old - before.levels[h].taken @ frozen.w[h]
        check_linear(h, first.levels[h], y, ends, known, search.known, search.tried + 1, H)
    frozen = Frozen(frozen.w, frozen.cut, frozen.rate, fits)
    unseen = tuple(h for h in range(H) if fits[h].solved() is None)
    made: Attempt | None = None
    spent = 0
    if not unseen:
        rest = planned(
            search.data(),
            given=lambda h, level: frozen.bracket(h, level.phi),
            bonus=LEFT_OVER_ERRORS,
            ahead=float(sizes.second),
        )
        frozen = Frozen(frozen.w, frozen.cut, frozen.rate, fits, tuple(rest.w), tuple(rest.bonus))
        second = _mixed(search, policies, sizes.second, "C")
        search.seen.append(second)
        spent = second.n
        made = _bounded(search, frozen, pi, own, second, first.n + own.n + second.n, before, share)
        unseen = tuple(h for h in range(H) if made.second[h].solved() is None)
    _settled(search, made, unseen, sizes, first.n + own.n + spent)


def _answered(
    search: LinearSearch, frozen: Frozen, data: Data, h: int, rest: bool
) -> tuple[Floats, tuple[float, float]]:
    """Returns `[m]` y of a level and its ends: r + V_{h+1}, or F_{h+1} for the rest; nothing comes after an early end."""
    low = high = 0.0
    after: Floats | None = None
    if h + 1 < len(data.levels):
        phi, every = data.levels[h + 1].phi, search.at(h + 1)
        after = frozen.left_over(h + 1, phi) if rest else frozen.value(h + 1, phi)
        low, high = frozen.left_over_ends(h + 1, every) if rest else frozen.value_ends(h + 1, every)
    if search.features.functions.may_end:
        low, high = min(low, 0.0), max(high, 0.0)
    least, most = (0.0, 0.0) if rest else search.step_range
    slack = TOLERANCE * max(1.0, abs(least), abs(most))  # that rewards are allowed
    return data.levels[h].answers(after, not rest), (least + low - slack, most + high + slack)


def _fits(search: LinearSearch, frozen: Frozen, data: Data, rest: bool) -> tuple[Fit, ...]:
    """Returns least squares on fresh episodes: of r + V_{h+1} [L1], or of F_{h+1} for the rest [L2]."""
    fits = []
    for h, level in enumerate(data.levels):
        y, ends = _answered(search, frozen, data, h, rest)
        guess = frozen.f[h] if rest else frozen.w[h]
        fits.append(fitted(level, y, guess, ends, frozen.rate, search.at(h)))
    return tuple(fits)


def _bounded(
    search: LinearSearch, frozen: Frozen, pi: Planned, own: Data, second: Data, n: int, before: Data, share: Share
) -> Attempt:
    """Returns the attempt: its bound, W from the policy's own returns, and U."""
    gap, low, high = share.split(GAP, EACH, EACH)
    (least, most), d = search.reward_range, gap.spend()
    zero = frozen.value_ends(0, search.at(0))
    start = frozen.value(0, own.levels[0].phi)[own.levels[0].x]
    guess = float(frozen.value(0, before.levels[0].phi)[before.levels[0].x].mean())
    guess -= float(before.returns.mean())
    earned = fitted_mean(start - own.returns, guess, (zero[0] - most, zero[1] - least), frozen.rate)
    left = frozen.left_over(0, second.levels[0].phi)[second.levels[0].x]
    past = frozen.left_over(0, before.levels[0].phi)[before.levels[0].x]
    ends = frozen.left_over_ends(0, search.at(0))
    fits = _fits(search, frozen, second, rest=True)
    mean = fitted_mean(left, float(past.mean()), ends, frozen.rate)
    bound = certified(frozen, fits, earned, mean, search.contexts, d, search.span)
    total = min(bound.total, search.span)
    unit = (own.returns - least) / search.span
    smallest = min(0.05, search.epsilon / search.span / 4)
    lower = least + search.span * lower_bound_of_mean(unit, smallest, death(low))
    above = most - search.span * lower_bound_of_mean(1 - unit, smallest, death(high))
    upper = min(most, above + total)
    gap.claim(LOSS, (), n, total)
    low.claim(LOWER, (), own.n, lower)
    high.claim(UPPER, (), n, upper)
    value = float(own.returns.mean())
    began = second.levels[0]
    starts = np.bincount(began.x, minlength=len(began.phi)) if search.known else None
    return Attempt(pi, bound._replace(total=total), d, frozen, fits, earned, mean, starts, value, lower, upper, n)


def _settled(search: LinearSearch, made: Attempt | None, unseen: tuple[int, ...], sizes: Sizes, n: int) -> None:
    """Keeps the best attempt, and learns from one at epsilon that failed."""
    search.tried += 1
    bound = Bound(search.span, 0.0, 0.0, (), 0.0, 0.0) if made is None else made.bound
    if made is not None and (search.best is None or bound.total < search.best.bound.total):
        search.best = made
    if len(search.targets) > 1:
        search.targets.pop(0)
    else:
        search.again += 1
    search.caution *= min(max(bound.total / sizes.scale, 1 / STEP), STEP) ** CORRECTION
    finite = all(map(math.isfinite, bound.excess))
    search.tell(
        Attempted(
            phase="verification",
            n=n,
            attempt=search.tried,
            bound=bound.total,
            target=sizes.scale,
            epsilon=search.epsilon,
            predicted=bound.predicted,
            left_over=bound.left_over,
            excess=bound.excess if finite else (),
            noise=bound.noise,
            deviation=bound.deviation,
            unseen=unseen,
        )
    )


@dataclass(frozen=True)
class LinearConstants:
    """What a claim rests on: everything that was frozen, and the sums of the phases."""

    tuning: dict[str, Any]
    contexts: str  # over what suprema were taken
    attempts: int
    episodes: int  # of B, P and C of the attempt that is claimed
    share: float
    rate: float
    w: list[list[float]]
    cut: list[list[float]] | None  # None: V is not cut
    f: list[list[float]]
    bonus: list[list[list[float]]]
    first: list[list[Any]]  # per level A, b and the weighted squares
    second: list[list[Any]]
    earned: list[float]
    start: list[float]
    starts: list[int] | None  # how often phase C began at each context; None where these are not listed
    bound: list[Any]  # its parts


def outcome(search: LinearSearch) -> Outcome:
    """Returns the answer: the policy of the best attempt, or the greedy one without a claim."""
    best = search.best
    if best is None or best.bound.total >= search.span:
        plan = planned(search.data(), cut=search.cut)
        return Outcome(
            policy=Planned(search.features, plan.w, plan.bonus).learned(),
            claim="No guarantee: the episodes allowed were spent before an attempt gave a bound.",
            learner="linear",
            epsilon=search.span,
            delta=search.delta,
            reason=StopReason.EPISODES_SPENT,
            guaranteed=False,
            rounds=search.tried,
            claims=search.share.claims(),
        )
    certified_now = best.bound.total <= search.epsilon
    epsilon = search.epsilon if certified_now else best.bound.total
    wording = partial(
        claim_words, search.delta, assumptions=assumptions(search.features), sampling=search.engine.ledger.assumes
    )
    remarks = () if certified_now else (_remark(search, best),)
    return Outcome(
        policy=best.policy.learned(),
        claim=wording(epsilon=epsilon, lower=best.lower, upper=best.upper, reward_range=search.reward_range),
        learner="linear",
        epsilon=epsilon,
        delta=search.delta,
        reason=StopReason.CERTIFIED if certified_now else StopReason.EPISODES_SPENT,
        value_hat=best.value,
        upper=best.upper,
        lower=best.lower,
        rounds=search.tried,
        claims=search.share.claims(),
        remarks=remarks,
        constants=_constants(search, best),
        wording=wording,
    )


def assumptions(features: Features) -> list[str]:
    """Returns what the bound on V* rests on, in words: linear means, and what the class declares of what was not seen."""
    known = features.tables is not None
    reach = (
        "every observation is one of the contexts" if known else f"no feature vector is longer than {features.norm:g}"
    )
    left_out = [
        f"feature {j} of level {h} is linear in those before it, as it is up to rounding"
        for h, without in enumerate(features.left_out)
        for j in without
    ]
    ends = [] if features.functions.may_end else ["no episode ends before the last level"]
    return [LINEAR, reach, *left_out, *ends]


def _remark(search: LinearSearch, best: Attempt) -> str:
    worst = int(np.argmax(best.bound.excess)) if best.bound.excess else 0
    return (
        f"{search.tried} attempts were made; the best bound on the loss is {number_words(best.bound.total, up=True)}, of "
        f"which {best.bound.noise + best.bound.deviation:.3g} is chance and {math.fsum(best.bound.excess):.3g} lies between "
        f"contexts, most of it at level {worst}"
    )


def _constants(search: LinearSearch, best: Attempt) -> LinearConstants:
    frozen = best.frozen
    return LinearConstants(
        tuning=asdict(search.tuning),
        contexts="all contexts, listed" if search.known else f"all features of length at most {search.features.norm:g}",
        attempts=search.tried,
        episodes=best.n,
        share=best.share,
        rate=frozen.rate,
        w=[w.tolist() for w in frozen.w],
        cut=[list(ends) for ends in frozen.cut] if search.known else None,
        f=[f.tolist() for f in frozen.f],
        bonus=[bonus.tolist() for bonus in frozen.bonus],
        first=[[part.tolist() for part in fit] for fit in frozen.first],
        second=[[part.tolist() for part in fit] for fit in best.second],
        earned=list(best.earned),
        start=list(best.start),
        starts=None if best.starts is None else best.starts.tolist(),
        bound=[list(part) if isinstance(part, tuple) else part for part in best.bound],
    )
