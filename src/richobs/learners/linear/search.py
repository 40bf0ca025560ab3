"""The search: explore, freeze, verify, verify what is left over; attempts until the bound is at most epsilon.

Labels in brackets are those of docs/linear.md. What is fixed before which phase:

- before B: the policy pi, V, lambda, the share d, every policy of B and P with its number of episodes;
- before C: F, and every policy of C with its number of episodes.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from richobs.core.environment import TOLERANCE
from richobs.core.errors import EpisodeLimit, InvalidInput
from richobs.core.events import ChartKind, Event, Progress, Reading, Said, event
from richobs.core.outcome import LOWER, UPPER, Outcome, StopReason, ToleranceCurve, ToleranceRow, claim_words
from richobs.core.policies import Policy, Uniform
from richobs.core.types import Floats, Ints
from richobs.core.words import number_words
from richobs.learners.base import Search
from richobs.learners.linear.data import Data, Features, check_linear, joined
from richobs.learners.linear.fits import (
    LARGEST_BET,
    Ball,
    Bound,
    Fit,
    Frozen,
    Mean,
    Region,
    Simplex,
    blurred,
    certified,
    fitted,
    fitted_mean,
    growth,
    leverage,
    quadratic,
    reaches,
    visits_of,
)
from richobs.learners.linear.planning import Aim, Plan, Planned, design, moves, planned, planned_value, uncertain
from richobs.learners.stopping import PATIENCE, Patience
from richobs.stats.bets import death, lower_bound_of_mean
from richobs.stats.shares import Share

LINEAR = (
    "given all that was seen and done before, the mean of the reward plus the value of what is seen next is linear in the "
    "features, and so is the mean of what is left over there, for the values and left-over functions that the run froze "
    "(every linear MDP has this)"
)
NEARLY_LINEAR = LINEAR.replace("is linear in the", "is within {zeta} of a linear function of the")
LOSS = "V* - V(policy) is at most"
EXCESS = ChartKind(
    "excess",
    "Bound by level",
    "What the bound on V* - V(policy) gets from each level, in each attempt.",
    curves="level",
)
BOUND = ChartKind("bound", "Bound on the loss", "The bound on V* - V(policy) of each attempt.", limit="epsilon")
FINAL, WIDER, AGAIN = 0.5, 0.1, 0.4  # of delta: the first attempt at epsilon, those at 2, 4, ... epsilon, further ones
GAP, EACH = 0.9, 0.05  # of an attempt's share: the bound on the loss; W, and the upper bound of V(pi)
WIDEST = 0.25  # of the range of totals: no attempt is made for a wider bound
DESIGN = 4  # policies of B and C beside the greedy and the random one, each played as often
SECOND = 0.35  # episodes of C for each one of B
EXPLORED = 0.8  # episodes to freeze from for each one of B
LEFT_OVER_ERRORS = 1.0  # that F adds
PER_FEATURE = 8  # episodes of B for each feature, at least
CORRECTION, STEP = 0.3, 1.7  # power of what an attempt gave over its target that corrects predictions; the most of it
SAFETY = 1.1  # by which the predicted bound of an attempt at epsilon stays below it
LEAST_DEVIATION = 0.05  # of the target: a larger lambda would gain nothing, and ask for more episodes of P
OWN_BET = 0.5  # of one episode of P, at the most
CAUTION = 3.0  # by how much a predicted bound grows with the root of features over episodes
SOME = 512  # contexts and actions whose bets are looked at
ROUNDS = 12  # of the search for lambda and the number of episodes
LEAST_CHANCE = 0.25  # of the target, or of what a tolerance costs: an attempt is not made for less chance
LONG, LONGEST = 8, 32  # times the episodes of the last improvement after which a run ends: with a bound, without one
MOST = 2**26  # episodes of a phase: no attempt is made with more
RUNGS = 10  # powers of two of the range of totals in a tolerance curve


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
    floor: float = 0.0  # what the tolerance adds to a bound, about


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

    zeta: tuple[float, ...] = ()  # of each level: how far means may be from linear; nothing: they are linear
    features: Features = field(init=False)  # of the class
    seen: list[Data] = field(default_factory=list)
    targets: list[float] = field(init=False)  # of further attempts; the last one is epsilon
    tried: int = 0  # attempts
    again: int = 0  # of them at epsilon
    batches: int = 0  # of exploration
    caution: float = 1.0  # factor on predicted bounds, learned from attempts at epsilon
    best: Attempt | None = None
    unseen: tuple[int, ...] = ()  # levels with a direction that the last attempt did not see
    patience: Patience = field(default_factory=Patience)
    ended: StopReason = StopReason.EPISODES_SPENT  # why, where not by a certificate
    asked: int = 0  # episodes of the last batch or attempt that was begun

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
    def contexts(self) -> list[Floats] | Region:
        """Per level `[X, K, d]` all features there can be, or where they lie."""
        return everywhere(self.features)

    def at(self, level: int) -> Floats | Region:
        """Returns all features there can be at a level, or where they lie."""
        every = everywhere(self.features)
        return every if isinstance(every, Region) else every[level]

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


def everywhere(features: Features) -> list[Floats] | Region:
    """Returns per level `[X, K, d]` all features there can be; where they lie if contexts are not listed."""
    if features.tables is not None:
        return features.tables
    return Simplex() if features.functions.probabilities else Ball(features.functions.norm)


def run(search: LinearSearch) -> None:
    """Explores and attempts until a policy is certified, the episodes are spent, or more of them have long not helped."""
    try:
        _explore(search, None)
        while search.best is None or search.best.bound.total > search.epsilon:
            plan, sizes = _sized(search)
            n = search.data().n
            if max(sizes.first, sizes.earned, sizes.second) > MOST and n > MOST // 1_000:
                search.ended = StopReason.STALLED
                return
            if n < EXPLORED * sizes.first:
                _explore(search, (plan, sizes))
            else:
                _attempt(search, plan, sizes)
                if _gives_up(search, sizes):
                    return
    except EpisodeLimit:
        return


def _gives_up(search: LinearSearch, sizes: Sizes) -> bool:
    """Returns whether the bound has long not become smaller; notes why the run then ends."""
    total = search.span if search.best is None else search.best.bound.total
    floored = sizes.floor > (1 - LEAST_CHANCE) * search.epsilon
    search.patience.times = PATIENCE if floored else LONGEST if total >= search.span else LONG
    if not search.patience.ends(total, search.engine.ledger.total):
        return False
    search.ended = StopReason.TOLERANCE if floored else StopReason.STALLED
    return True


def _explore(search: LinearSearch, known: tuple[Plan, Sizes] | None) -> None:
    """Plays a batch of the greedy policy, of one that goes where least is known, or of the random one, in turn."""
    policy: Policy = Uniform(search.features.n_actions)
    name, n, needed = "random", search.tuning.start, 0
    if known is not None:
        name = ("greedy", "curious", "random")[search.batches % 3]
        plan, sizes = known
        n, needed = max(search.tuning.start, int(search.tuning.growth * search.data().n)), sizes.first
        if name == "greedy":
            policy = Planned(search.features, plan.greedy)
        elif name == "curious":
            square = [noise * inverse for noise, inverse in zip(plan.noise, plan.inverse, strict=True)]
            policy = Planned(search.features, uncertain(search.data(), moves(search.data(), plan), square))
        search.batches += 1
    search.asked = n
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


def _sized(search: LinearSearch) -> tuple[Plan, Sizes]:
    """Returns the greedy plan, and the episodes with which an attempt is predicted to reach its target.

    The prediction is a guess; lambda and all sizes follow from it and are fixed before the attempt.
    """
    data, features = search.data(), search.features
    H = features.horizon
    plan = planned(data, cut=search.cut)
    gaps = [table - table.max(axis=1, keepdims=True) for table in plan.tables]
    law, floor = moves(data, plan), 0.0
    if search.zeta:
        blurs = [
            (1 + (h + 1 < H))
            * search.zeta[h]
            * (1 + leverage(level.phi, plan.inverse[h], visits_of(level, search.known)))
            for h, level in enumerate(data.levels)
        ]
        gaps = [gap + blur for gap, blur in zip(gaps, blurs, strict=True)]
        floor = planned_value(data, law, gaps)
        while len(search.targets) > 1 and search.targets[0] < floor:
            search.targets.pop(0)
    d = search.next_share * GAP
    target = search.targets[0] / (1 if len(search.targets) > 1 else SAFETY)
    target = max(target - floor, LEAST_CHANCE * max(target, floor)) if floor else target
    least = PER_FEATURE * max(features.dim(h) for h in range(H))
    n, rate = float(least), 1.0
    errors = [quadratic(level.phi, spread) for level, spread in zip(data.levels, plan.spread, strict=True)]
    bets = [_bets(search, data, plan, h) for h in range(H)]
    ratio, needed = 1.0, 1e-12
    for _ in range(ROUNDS):
        scale = rate / 2 / n
        grown = [_grown(rate * data.n / n * bet, most) for bet, most in bets]
        given = [gap + scale * more * error for gap, more, error in zip(gaps, grown, errors, strict=True)]
        along = max((planned_value(data, law, given) - floor) / scale, 1e-12)
        ratio = min(max(math.sqrt(math.fsum(plan.noise) / along), 0.05), 2.0)
        needed = 1.1 * (along + math.fsum(plan.noise) / ratio)
        z = math.sqrt(sum(features.dim(h) for h in range(H)) / n)
        caution = search.caution * 0.95 * (1 + CAUTION * z)
        wanted = min(max(least, 2 * math.log(1 / d) * needed * (caution / target) ** 2), 1e15)
        n = math.sqrt(n * wanted)  # half a step: a whole one may go to and fro between few and many
        rate = min(math.sqrt(2 * math.log(1 / d) * n / needed), math.log(1 / d) / (LEAST_DEVIATION * target))
    first = math.ceil(n)
    own = max(2, math.ceil(ratio * n), math.ceil(rate * search.span / OWN_BET))
    second = max(least, math.ceil(SECOND * n))
    return plan, Sizes(first, own, second, rate, search.targets[0], floor)


def _bets(search: LinearSearch, data: Data, plan: Plan, h: int) -> tuple[Floats, float]:
    """Returns `[C]` how far samples of a level can move a prediction, and range^2/4 of y over its variance."""
    level = data.levels[h]
    low, high = _ends(search, Frozen(plan.w, search.cut, 1.0), h, rest=False)
    rows = level.rows[np.flatnonzero(level.sums())[:SOME]]
    reach = reaches(rows, plan.inverse[h], search.at(h))
    return reach * (high - low), (high - low) ** 2 / 4 / max(plan.noise[h], 1e-12)


def _grown(bets: Floats, most: float) -> float:
    """Returns how much larger than a variance the weights of samples are, on average; 1 where nothing was seen."""
    if not len(bets):
        return 1.0
    return float(np.where(bets <= LARGEST_BET, np.minimum(growth(np.minimum(bets, LARGEST_BET)), most), most).mean())


def _mixed(search: LinearSearch, policies: list[Policy], n: int, purpose: str) -> Data:
    """Plays n episodes of policies that were fixed before, each as often."""
    return joined([search.play(policy, math.ceil(n / len(policies)), purpose) for policy in policies], search.known)


def _attempt(search: LinearSearch, plan: Plan, sizes: Sizes) -> None:
    """Freezes V and pi, verifies V [L1], freezes F, verifies it [L2], and keeps the bound if it is the best one."""
    features, H = search.features, search.features.horizon
    before, share = search.data(), search.share.part(search.next_share)
    pi = Planned(features, plan.greedy)
    aims = design(before, plan, moves(before, plan), DESIGN)
    policies: list[Policy] = [pi, Uniform(features.n_actions), *(Planned(features, aim) for aim in aims)]
    frozen = Frozen(list(plan.w), search.cut, sizes.rate, zeta=search.zeta)
    search.asked = sizes.first + sizes.earned + sizes.second
    first = _mixed(search, policies, sizes.first, "B")
    own = search.play(pi, sizes.earned, "P")
    search.seen += [first, own]
    fits = _fits(search, frozen, first, before, rest=False)
    zetas = search.zeta or (0.0,) * H
    for h in range(H):
        y, old = (_answers(frozen, data, h, rest=False) for data in (first, before))
        known, ends = (before.levels[h], old - _forecast(before, h, frozen.w[h])), _ends(search, frozen, h, rest=False)
        check_linear(h, first.levels[h], y, ends, known, search.known, search.tried + 1, H, zeta=zetas[h])
    frozen = replace(frozen, first=fits)
    unseen = tuple(h for h in range(H) if fits[h].solved() is None)
    made: Attempt | None = None
    spent = 0
    if not unseen:
        rest = planned(
            search.data(),
            given=lambda h, level: frozen.bracket(h, level.phi) + blurred(frozen.blurs(h)[1], level.phi, fits[h]),
            bonus=LEFT_OVER_ERRORS,
            ahead=float(sizes.second),
        )
        frozen = replace(frozen, f=tuple(rest.w), bonus=tuple(rest.bonus))
        second = _mixed(search, policies, sizes.second, "C")
        search.seen.append(second)
        spent = second.n
        made = _bounded(search, frozen, pi, own, second, first.n + own.n + second.n, before, share)
        unseen = tuple(h for h in range(H) if made.second[h].solved() is None)
    _settled(search, made, unseen, sizes, first.n + own.n + spent)


def _answers(frozen: Frozen, data: Data, h: int, rest: bool) -> Floats:
    """Returns `[m]` y of a level: r + V_{h+1}, or F_{h+1} for the rest; nothing comes after an early end."""
    after: Floats | None = None
    if h + 1 < len(data.levels):
        phi = data.levels[h + 1].phi
        after = frozen.left_over(h + 1, phi) if rest else frozen.value(h + 1, phi)
    return data.levels[h].answers(after, not rest)


def _forecast(data: Data, h: int, guess: Floats) -> Floats:
    """Returns `[m]` phi.guess of what was seen and done at a level."""
    level = data.levels[h]
    return level.each(level.rows @ guess)


def _ends(search: LinearSearch, frozen: Frozen, h: int, rest: bool) -> tuple[float, float]:
    """Returns the smallest and the largest y that a level can have."""
    low = high = 0.0
    if h + 1 < search.features.horizon:
        every = search.at(h + 1)
        low, high = frozen.left_over_ends(h + 1, every) if rest else frozen.value_ends(h + 1, every)
    if search.features.functions.may_end:
        low, high = min(low, 0.0), max(high, 0.0)
    least, most = (0.0, 0.0) if rest else search.step_range
    slack = TOLERANCE * max(1.0, abs(least), abs(most))  # that rewards are allowed
    return least + low - slack, most + high + slack


def _fits(search: LinearSearch, frozen: Frozen, data: Data, before: Data, rest: bool) -> tuple[Fit, ...]:
    """Returns least squares on fresh episodes: of r + V_{h+1} [L1], or of F_{h+1} for the rest [L2].

    Episodes from before guess how far answers are from what is frozen.
    """
    fits = []
    for h, level in enumerate(data.levels):
        y, old = (_answers(frozen, part, h, rest) for part in (data, before))
        guess = frozen.f[h] if rest else frozen.w[h]
        variance = float(np.mean((old - _forecast(before, h, guess)) ** 2)) if len(old) else 0.0
        fits.append(fitted(level, y, guess, _ends(search, frozen, h, rest), frozen.rate, search.at(h), variance))
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
    fits = _fits(search, frozen, second, before, rest=True)
    mean = fitted_mean(left, float(past.mean()), ends, frozen.rate)
    bound = certified(frozen, fits, earned, mean, search.contexts, d, search.span)
    total = (
        min(bound.total, search.span) if bound.total >= 0 else search.span
    )  # no loss is below 0: that bound is false
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
    search.unseen = unseen
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
    contexts: str  # over what suprema were taken, and how
    attempts: int
    episodes: int  # of B, P and C of the attempt that is claimed
    share: float
    rate: float
    w: list[list[float]]
    cut: list[list[float]] | None  # None: V is not cut
    v_range: list[list[float]]  # per level the smallest and the largest V of all contexts there can be
    f_range: list[list[float]]  # likewise F, which is not cut
    f: list[list[float]]
    bonus: list[list[list[float]]]
    first: list[list[Any]]  # per level A, b and the weighted squares
    second: list[list[Any]]
    earned: list[float]
    start: list[float]
    zeta: list[float]  # of each level: how far means may be from linear; nothing: they are
    starts: list[int] | None  # how often phase C began at each context; None where these are not listed
    bound: list[Any]  # its parts


def outcome(search: LinearSearch) -> Outcome:
    """Returns the answer: the policy of the best attempt, or the greedy one without a claim; any where nothing was seen."""
    best = search.best
    if best is None or best.bound.total >= search.span:
        return Outcome(
            policy=Planned(search.features, _greedy(search)).learned(),
            claim=f"No guarantee: {_why_no_bound(search)}.",
            learner="linear",
            epsilon=search.span,
            delta=search.delta,
            reason=search.ended,
            guaranteed=False,
            rounds=search.tried,
            claims=search.share.claims(),
        )
    certified_now = best.bound.total <= search.epsilon
    epsilon = search.epsilon if certified_now else best.bound.total
    wording = partial(
        claim_words,
        search.delta,
        assumptions=assumptions(search.features, search.zeta),
        sampling=search.engine.ledger.assumes,
    )
    remarks = () if certified_now else (_remark(search, best),)
    answer = Outcome(
        policy=best.policy.learned(),
        claim=wording(epsilon=epsilon, lower=best.lower, upper=best.upper, reward_range=search.reward_range),
        learner="linear",
        epsilon=epsilon,
        delta=search.delta,
        reason=StopReason.CERTIFIED if certified_now else search.ended,
        value_hat=best.value,
        upper=best.upper,
        lower=best.lower,
        rounds=search.tried,
        claims=search.share.claims(),
        remarks=remarks,
        constants=_constants(search, best),
        wording=wording,
    )
    return replace(answer, replay=partial(tolerance_curve, search, best, answer))


def _greedy(search: LinearSearch) -> Aim:
    """Returns the greedy plan of everything that was seen; that of no values where nothing was."""
    if search.seen:
        return planned(search.data(), cut=search.cut).greedy
    dims = [search.features.dim(h) for h in range(search.features.horizon)]
    return Aim([np.zeros(d) for d in dims], [np.zeros((d, d)) for d in dims])


def _why_no_bound(search: LinearSearch) -> str:
    """Returns, in words, why a run ends without a bound below the range of totals."""
    if search.ended is StopReason.EPISODES_SPENT:
        asked = f"what it asked for next was {search.asked:,} of them"
        return f"the episodes allowed, {search.engine.ledger.max_episodes:,}, did not suffice for a bound; {asked}"
    spent = f"{search.tried} attempts with {search.engine.ledger.total:,} episodes gave no bound"
    if search.unseen and search.known:
        where = ", ".join(map(str, search.unseen))
        return (
            f"{spent}, because no policy that was played moved along every direction of the features at level {where}. "
            "Leave out contexts that cannot occur, and features that they alone have"
        )
    if search.zeta:
        return f"{spent}: the tolerance alone may hide as much as can be earned"
    advice = "Ask for a wider epsilon"
    if isinstance(search.contexts, Ball):
        advice = f"List the contexts, or centre and scale the features: norm={search.contexts.norm:g} is large"
    return f"{spent} below the range of totals. {advice}"


def assumptions(features: Features, zeta: tuple[float, ...] = ()) -> list[str]:
    """Returns what the bound on V* rests on, in words: linear means, and what the class declares of what was not seen."""
    every = everywhere(features)
    reach = str(every) if isinstance(every, Region) else "every observation is one of the contexts"
    left_out = [
        f"feature {j} of level {h} is linear in those before it, as it is up to rounding"
        for h, without in enumerate(features.left_out)
        for j in without
    ]
    ends = [] if features.functions.may_end else ["no episode ends before the last level"]
    linear = NEARLY_LINEAR.format(zeta=_tolerated(zeta)) if zeta else LINEAR
    return [linear, reach, *left_out, *ends]


def _tolerated(zeta: tuple[float, ...]) -> str:
    """Returns a tolerance in words."""
    if len(set(zeta)) == 1:
        return f"{zeta[0]:g}"
    return f"{', '.join(f'{at:g}' for at in zeta)} (level by level)"


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
        contexts=supremum_words(search.contexts),
        attempts=search.tried,
        episodes=best.n,
        share=best.share,
        rate=frozen.rate,
        w=[w.tolist() for w in frozen.w],
        cut=[list(ends) for ends in frozen.cut] if search.known else None,
        v_range=[list(frozen.value_ends(h, search.at(h))) for h in range(len(frozen.w))],
        f_range=[list(frozen.left_over_ends(h, search.at(h))) for h in range(len(frozen.w))],
        f=[f.tolist() for f in frozen.f],
        bonus=[bonus.tolist() for bonus in frozen.bonus],
        first=_sums(frozen.first, frozen.zeta),
        second=_sums(best.second, frozen.zeta),
        zeta=list(frozen.zeta),
        earned=list(best.earned),
        start=list(best.start),
        starts=None if best.starts is None else best.starts.tolist(),
        bound=[list(part) if isinstance(part, tuple) else part for part in best.bound],
    )


def supremum_words(contexts: list[Floats] | Region) -> str:
    """Returns, in words, over what suprema were taken, and how."""
    if isinstance(contexts, Ball):
        return f"all features no longer than {contexts.norm:g}, by an inequality of matrices"
    if isinstance(contexts, Simplex):
        return "all features that are probabilities, by those with one feature that is 1"
    return f"all {sum(len(phi) for phi in contexts):,} contexts of {len(contexts)} levels, one by one"


def _sums(fits: tuple[Fit, ...], zeta: tuple[float, ...]) -> list[list[Any]]:
    """Returns the sums of a phase in plain values; how often what was seen only where means may be off."""
    return [[part.tolist() for part in (fit if zeta else fit[:3])] for fit in fits]


def tolerance_curve(search: LinearSearch, best: Attempt, answer: Outcome) -> ToleranceCurve:
    """Returns what the same phases say of the policy if means are farther from linear [T]: the events are the same ones."""
    H, own = search.features.horizon, best.frozen.zeta or (0.0,)
    wider = [search.span * 2.0**-k for k in range(RUNGS, 0, -1)]
    rows = [
        ToleranceRow(min(own), answer.epsilon, best.upper, math.inf)
    ]  # what is claimed allows for that at every level
    for zeta in [max(own), *(rung for rung in wider if rung > max(own))]:
        bound = certified(
            best.frozen, best.second, best.earned, best.start, search.contexts, best.share, search.span, [zeta] * H
        )
        total = max(best.bound.total, min(bound.total, search.span))
        upper = min(search.reward_range[1], best.upper + total - best.bound.total)
        rows.append(ToleranceRow(zeta, max(answer.epsilon, total), upper, math.inf))
    if len(set(own)) == 1:
        del rows[0]  # the same as the next one
    return ToleranceCurve(tuple(rows), answer.epsilon, together=True)


@event("linear", "exploration", "are there enough episodes to freeze a value function?", "episodes", "needed")
class Explored(Event):
    """Episodes were played to learn where to look."""

    policy: str  # whose, in words
    earned: float  # mean return
    episodes: int  # that a value function can be frozen from
    needed: int  # for an attempt

    def said(self) -> Said:
        """Returns how far an attempt is."""
        enough = self.episodes >= self.needed
        sentence = f"{self.n:,} episodes of the {self.policy} policy earned {self.earned:.3g}"
        outlook = "" if enough else f"an attempt needs {self.needed:,} episodes to freeze a value function from"
        return Said("enough" if enough else "not yet", sentence, self.episodes, self.needed, outlook=outlook)


@event("linear", "attempt", "does the policy lose little against every other one?", "bound on the loss", "asked")
class Attempted(Event):
    """A frozen value function was verified on fresh episodes, and then what was left over."""

    attempt: int
    bound: float  # on V* - V(policy); infinite where a direction was not seen
    target: float  # that the attempt was made for
    epsilon: float
    predicted: float  # mean of V_0 - return
    left_over: float  # mean of F_0
    excess: tuple[float, ...]  # by level
    noise: float
    deviation: float
    unseen: tuple[int, ...]  # levels with a direction that was not seen

    def said(self) -> Said:
        """Returns the bound, and what it is made of."""
        if self.unseen:
            where = ", ".join(map(str, self.unseen))
            return Said(
                "no bound", f"attempt {self.attempt}: a direction of the features was not seen at level {where}"
            )
        verdict = "certified" if self.bound <= self.epsilon else "too wide"
        sentence = (
            f"attempt {self.attempt}: the policy loses at most {number_words(self.bound, up=True)}, {self.epsilon:g} is "
            f"asked; {self.predicted + self.left_over:.3g} of it was measured, {self.noise + self.deviation:.3g} is chance, "
            f"{math.fsum(self.excess):.3g} lies between contexts"
        )
        logs = tuple(math.log(max(e, 1e-12)) for e in self.excess)
        readings = (
            Reading(BOUND, (math.log(max(self.bound, 1e-12)),), math.log(self.epsilon)),
            Reading(EXCESS, logs),
        )
        return Said(verdict, sentence, self.bound, self.epsilon, readings=readings)
