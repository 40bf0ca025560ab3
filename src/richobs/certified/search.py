"""Certified LSVEE: an optimistic search whose answer is right whatever the search did.

What is claimed rests on three kinds of events, numbered as in `docs/certified.md`: f* is never dropped [E1], an upper bound
U on V* [E2] and a lower bound W on the policy's value [E3]. The search itself is free to guess, and does so with data
that no claim ever uses: pilots and trial rollouts.

One round: take a survivor that promises most at the root, try its policy, and certify it if it keeps its promise. If it does
not, it is wrong about some step on a path it takes. Play that path open-loop: every level of it yields a batch for one
(node, action) pair and the values of the next node, so functions are tested at all levels at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from richobs.certified.bounds import (
    Budget,
    elimination_slack,
    mean_upper_bound,
    residual_radius,
    return_lower_bound,
    value_radius,
)
from richobs.engines import Engine
from richobs.errors import BrokenPromise, EpisodeLimit, InvalidInput
from richobs.moments import Moments
from richobs.outcome import LOWER, UPPER, Callback, Claim, Event, Outcome, Progress, StopReason
from richobs.policy import LearnedPolicy
from richobs.problem import Floats, FunctionClass, Ints, Member, Path
from richobs.randomness import keyed_generator
from richobs.versions import ActionRisk, VersionSpace, version_space


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    trials: int = 16  # rollouts that try a candidate and find its paths
    pilot: int = 32  # episodes that choose reference, levels and size of a batch
    smallest: int = 64  # batch
    largest: int = 512  # batch of the first stage; doubled whenever a batch eliminates nothing
    margin: float = 0.7  # a batch is sized so that the slack is this share of the error seen in the pilot
    verification: int = 256  # rollouts before the first look at a candidate's value; doubled from look to look

    def __post_init__(self) -> None:
        least = {"trials": 1, "pilot": 2, "smallest": 2, "largest": self.smallest, "verification": 2}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} must be at least {low}; got {getattr(self, name)}.")
        if not 0 < self.margin <= 1:
            raise InvalidInput(f"margin must lie in (0, 1]; got {self.margin}.")


EAGER = Tuning()  # the default
RELATIVE = 0.8  # share of an elimination's delta that goes to the relative test; the absolute one gets the rest
NARROWER = 0.79  # epsilon of what takes over from a search that does not end, as a share of ours
RESERVE = 0.01  # its share of delta; eliminations and verifications get half of the rest each


@dataclass
class Search:
    """The state of a run."""

    engine: Engine
    functions: FunctionClass
    epsilon: float
    delta: float
    seed: int
    callback: Callback | None
    tuning: Tuning
    space: VersionSpace = field(init=False)
    low: list[Floats] = field(init=False)  # per level [N] smallest and
    high: list[Floats] = field(init=False)  # largest value of max_a f
    b: float = field(init=False)  # largest value in the class
    root_upper: Floats = field(init=False)  # [N_0] V^f(root) is at most this, on E2
    root_guess: Floats = field(init=False)  # [N_0] what V^f(root) seems to be
    budget: Budget = field(init=False)  # for eliminations and radii
    verification_budget: Budget = field(init=False)  # for U and W
    stage: int = field(init=False)  # size of the largest batch now
    tested: dict[tuple[Path, int], int] = field(default_factory=dict)  # (node, action) -> size of its largest batch
    claims: list[Claim] = field(default_factory=list)
    trace: list[Event] = field(default_factory=list)
    best: "Candidate | None" = None
    tried: Member | None = None  # the last candidate
    rounds: int = 0
    probes: int = 0  # batches played
    fruitless: int = 0  # batches in a row that dropped nothing
    stuck: int = 0  # such batches in all

    def __post_init__(self) -> None:
        H = self.functions.horizon
        self.space = version_space(self.functions)
        self.low, self.high = (list(t) for t in zip(*(self.functions.top_bounds(h) for h in range(H)), strict=True))
        self.b = max(float(high.max()) for high in self.high)
        self.root_upper, self.root_guess = self.high[0].copy(), self.high[0].copy()
        self.budget, self.verification_budget = Budget(self.half), Budget(self.half)
        self.stage = self.tuning.largest

    @property
    def half(self) -> float:
        """Half of the delta that is spent here."""
        return (1 - RESERVE) * self.delta / 2

    @property
    def upper(self) -> float:
        """U: the largest value that a survivor may have at the root."""
        return float(self.root_upper[self.space.alive(0)].max())

    @property
    def guess(self) -> float:
        """What the most promising survivor seems to be worth at the root."""
        return float(np.minimum(self.root_guess, self.root_upper)[self.space.alive(0)].max())

    def sizes(self) -> Ints:
        """Returns the sizes that a batch of this stage may have, in steps of a quarter."""
        sizes = [self.tuning.smallest]
        while (n := max(sizes[-1] + 1, int(1.25 * sizes[-1]))) <= self.stage:
            sizes.append(n)
        return np.array(sizes)

    def note(
        self, kind: str, path: Path, verdict: str, statistic: float, threshold: float, n: int, before: float
    ) -> None:
        """Writes an event down and tells whoever listens."""
        event = Event(kind, "certified", path, verdict, statistic, threshold, n, before, self.space.log_bound)
        self.trace.append(event)
        if self.callback is not None:
            lower = self.best.lower if self.best is not None else 0.0
            self.callback(Progress(event, self.engine.ledger.total, self.upper, lower))

    def claim(self, kind: str, path: Path, n: int, share: float, value: float) -> None:
        """Writes down a claim that the answer rests on."""
        self.claims.append(Claim(kind, path, n, share, value))


class Candidate(NamedTuple):
    """A policy and what is certified of it."""

    member: Member
    lower: float  # W
    mean: float  # of its verification rollouts
    n: int


class Fallback(NamedTuple):
    """An algorithm that surely ends, for a search that has not."""

    after: int  # episodes of the search
    learn: Callable[
        [], Outcome
    ]  # at NARROWER epsilon and RESERVE delta; its v_star_hat is an eighth of that epsilon off


def certified(
    engine: Engine,
    functions: FunctionClass,
    *,
    epsilon: float,
    delta: float,
    seed: int = 0,
    callback: Callback | None = None,
    tuning: Tuning = EAGER,
    fallback: Fallback | None = None,
) -> Outcome:
    """Learns a policy with V* <= U and V(policy) >= W, U - W <= epsilon, with probability at least 1 - delta.

    If the episodes run out first, the best certificate so far is returned: an honest, wider epsilon.

    Args:
        engine: plays the episodes; its ledger may limit them.
        functions: the class F, which should hold Q*.
        epsilon: how far apart the bounds may be.
        delta: how often they may be wrong.
        seed: of the choice among equally promising survivors.
        callback: told about every test.
        tuning: how eager the search is.
        fallback: what takes over if the search has not ended by then [Theorem 2].
    """
    search = Search(engine, functions, epsilon, delta, seed, callback, tuning)
    reason = StopReason.CERTIFIED
    try:
        while not _round(search):
            if fallback is not None and engine.ledger.total >= fallback.after:
                _take_over(search, fallback)
                break
    except EpisodeLimit:
        if search.best is None:
            if search.tried is None:
                raise
            search.best = Candidate(
                search.tried, 0.0, 0.0, 0
            )  # nothing is known of it but that rewards are not negative
        if not _is_settled(search):
            reason = StopReason.EPISODES_SPENT
    found = search.best
    assert found is not None, "a round that ends the search has found a candidate"
    return Outcome(
        policy=LearnedPolicy(functions, found.member),
        epsilon=epsilon if reason is StopReason.CERTIFIED else search.upper - found.lower,
        delta=delta,
        schedule="certified",
        v_star_hat=search.upper,
        value_hat=found.mean,
        log_size=search.space.log_size,
        reason=reason,
        ledger=engine.ledger,
        trace=tuple(search.trace),
        constants=tuning,
        rounds=search.rounds,
        upper=search.upper,
        lower=found.lower,
        claims=tuple(search.claims),
        remarks=_remarks(search, found, reason),
    )


def _take_over(search: Search, fallback: Fallback) -> None:
    """Lets the fallback learn with what is left of delta.

    V* lies within an eighth of its epsilon of its estimate, and the policy earns at most its epsilon less than V*: an
    interval of 10/8 of its epsilon, which is below ours.
    """
    share, size, narrow = RESERVE * search.delta, search.space.log_bound, NARROWER * search.epsilon
    search.note("handover", (), "taken over", search.engine.ledger.total, fallback.after, 0, size)
    found = fallback.learn()
    upper, lower = found.v_star_hat + narrow / 8, found.v_star_hat - narrow / 8 - narrow
    search.root_upper = np.minimum(search.root_upper, upper)
    search.claim(UPPER, (), found.episodes, share / 2, search.upper)
    if search.best is None or lower > search.best.lower:
        search.best = Candidate(found.policy.member, lower, found.value_hat, found.episodes)
    search.claim(LOWER, (), found.episodes, share / 2, lower)
    if not _is_settled(search):  # it raises where the two algorithms contradict each other
        raise AssertionError("the fallback's bounds are within epsilon by construction")


def _remarks(search: Search, found: Candidate, reason: StopReason) -> tuple[str, ...]:
    """Returns, in words, what the search struggled with."""
    remarks = []
    if search.stage >= 4 * search.tuning.largest:
        remarks.append(
            f"{search.stuck} of {search.probes} batches told no survivors apart, so batches grew from "
            f"{search.tuning.largest:,} to {search.stage:,} episodes: wrong functions are off by little there"
        )
    verified = sum(e.kind == "verification" and e.verdict == "failed" for e in search.trace)
    if verified > max(2, search.rounds // 4):
        remarks.append(f"{verified} of {search.rounds} candidates looked right in trials and failed on more rollouts")
    if reason is StopReason.EPISODES_SPENT:
        short = search.guess - found.mean
        if found.n == 0:
            remarks.append("no candidate was verified yet: all that were tried earned less than they promised")
        elif short > search.epsilon / 2:
            remarks.append(
                f"survivors still promise {search.guess:.3g}, and the best policy so far earned {found.mean:.3g}: wrong "
                "functions remain"
            )
        else:
            remarks.append(
                f"the best policy earned {found.mean:.3g} of {search.guess:.3g} promised in {found.n:,} rollouts: more "
                "rollouts are missing, not more eliminations"
            )
    return tuple(remarks)


def _round(search: Search) -> bool:
    """Tries one optimistic candidate; returns whether the search is over."""
    search.rounds += 1
    alive = search.space.alive(0)
    promise = np.minimum(search.root_guess, search.root_upper)
    first = alive & (promise >= promise[alive].max() - search.epsilon / 8)
    member = search.space.draw(first, keyed_generator(search.seed, "candidate", search.rounds))
    search.tried = member
    policy = LearnedPolicy(search.functions, member)
    size, n = search.space.log_bound, search.tuning.trials
    tried = search.engine.rollout(policy, n, n, phase="certified", purpose="trial")
    doubt = min(0.05, 0.005 / search.epsilon)  # a large epsilon must not make a policy promising that earned nothing
    promising = tried.mean + 2 * math.sqrt(max(tried.variance, doubt) / n) >= search.guess - search.epsilon
    verdict = "promising" if promising else "failed"
    search.note("trial", (), verdict, search.guess - tried.mean, search.epsilon, n, size)
    if promising and _verify(search, member, policy):
        return True
    _probe(search, member, _freshest(search, tried.paths))
    return _is_settled(search)


def _is_settled(search: Search) -> bool:
    """Returns whether the bounds are close enough; raises where they contradict each other."""
    if search.best is None:
        return False
    if search.upper < search.best.lower:
        raise BrokenPromise(
            f"a policy's value is at least {search.best.lower:.6g}, but no surviving function promises more than "
            f"{search.upper:.6g}: Q* is not in the class, or transitions are not deterministic. {_chance(search)}"
        )
    return search.upper - search.best.lower <= search.epsilon


def _verify(search: Search, member: Member, policy: LearnedPolicy) -> bool:
    """Looks at a candidate's value with fresh rollouts, twice as many from look to look; returns whether it is certified.

    One claim with a share d for all looks: look k spends d / (k (k + 1)), half for W [E3] and half for U [E2].
    """
    share = search.verification_budget.spend()
    total, n, look = 0.0, 0, 0
    root: Moments | None = None
    while True:
        look += 1
        part = share / (look * (look + 1)) / 2
        more = max(search.tuning.verification, n)
        size = search.space.log_bound
        total += more * search.engine.rollout(policy, more, 0, phase="certified", purpose="verification").mean
        n += more
        mean = total / n
        lower = return_lower_bound(mean, n, part)
        search.claim(LOWER, (), n, part, lower)
        if search.best is None or lower > search.best.lower:
            search.best = Candidate(member, lower, mean, n)
        if search.upper - lower > search.epsilon and search.guess < search.upper - search.epsilon / 16:
            seen = search.engine.observe((), n - (root.n if root else 0), phase="certified", purpose="root value")
            root = seen if root is None else root + seen
            upper = mean_upper_bound(root.v_mean, root.n, search.low[0], search.high[0], part)
            search.root_upper = np.minimum(search.root_upper, upper)
            search.root_guess = root.v_mean.copy()
            search.claim(UPPER, (), root.n, part, search.upper)
        done = _is_settled(search)
        # Give up where survivors promise more than the policy earns: then survivors must go, not rollouts come.
        hopeless = mean + 3 * math.sqrt(0.25 / n) < search.guess - search.epsilon
        hopeless |= n >= 4 * search.tuning.verification and search.guess - mean > 0.6 * search.epsilon
        hopeless |= n > 32 * math.log(1 / part) / search.epsilon**2
        verdict = "certified" if done else "failed" if hopeless else "open"
        search.note("verification", (), verdict, search.upper - lower, search.epsilon, more, size)
        if done or hopeless:
            return done


def _freshest(search: Search, paths: Ints) -> Path:
    """Returns the path through most (node, action) pairs not yet tested at this stage; the commonest of equals."""
    counts: dict[Path, int] = {}
    for row in paths.tolist():
        counts[tuple(row)] = counts.get(tuple(row), 0) + 1

    def news(path: Path) -> int:
        return sum(search.tested.get((path[:h], a), 0) < search.stage for h, a in enumerate(path))

    return max(counts, key=lambda path: (news(path), counts[path]))


class Guess(NamedTuple):
    """What a pilot says about one level of a path."""

    reference: tuple[int, int]  # g: two kinds of members; fixed before the batch is read
    needed: int | None  # batch that should drop the candidate here; None: no batch of this stage
    drops: bool  # whether some survivor looks droppable


class Kinds(NamedTuple):
    """The living members of one level, told apart as far as one action and the largest value do."""

    members: Ints  # the living
    kind: Ints  # of each
    some: Ints  # one member of each kind

    def of(self, member: int) -> int:
        """Returns the kind of a living member."""
        return int(self.kind[np.searchsorted(self.members, member)])


def _probe(search: Search, member: Member, path: Path) -> None:
    """Plays a path that the candidate takes, and drops what is inconsistent with what was seen, at every level."""
    H = search.functions.horizon
    chain = (member,) * H if isinstance(member, int) else member
    living = []
    for h, a in enumerate(path):
        members = np.flatnonzero(search.space.alive(h))
        some, kind = search.functions.alike(h, members, a)
        living.append(Kinds(members, kind, some))
    shown = [kinds.some for kinds in living]
    pilot = search.engine.play(path, search.tuning.pilot, shown, phase="certified", purpose="pilot")
    guesses = [_guess(search, path, living, pilot, h, chain) for h in range(H)]
    sizes = [g.needed for g in guesses if g.needed is not None]
    n = min(sizes) if sizes and not search.fruitless else search.stage  # a pilot that misled is not believed twice
    chosen = [h for h in reversed(range(H)) if guesses[h].drops or guesses[h].needed is not None]
    chosen = chosen or list(reversed(range(H)))
    batch = search.engine.play(path, n, shown, phase="certified", purpose="batch")
    dropped = [_eliminate(search, path, living, batch, h, guesses[h].reference, n) for h in chosen]
    for h, a in enumerate(path):
        search.tested[path[:h], a] = max(n, search.tested.get((path[:h], a), 0))
    search.root_guess[living[0].members] = batch[0].v_mean[living[0].kind]
    search.probes += 1
    if any(dropped):
        search.fruitless = 0
        return
    search.fruitless += 1
    search.stuck += 1
    if n >= search.stage:
        search.stage *= 2
        size = search.space.log_bound
        search.note("stage", path, "doubled", n, search.stage, 0, size)


def _risk(search: Search, path: Path, living: list[Kinds], moments: list[Moments], h: int) -> ActionRisk:
    """Returns the risks of all survivors at level h under the path's action."""
    a, last = path[h], h == len(path) - 1
    future = np.zeros(1) if last else moments[h + 1].v_mean
    row = living[h].kind[search.space.alive(h)[living[h].members]]
    column = np.zeros(len(row), dtype=np.int64)
    if not last:
        column = living[h + 1].kind[search.space.alive(h + 1)[living[h + 1].members]]
    return ActionRisk(h, moments[h].u_var[:, a], moments[h].u_mean[:, a], future, row, column)


def _guess(
    search: Search, path: Path, living: list[Kinds], pilot: list[Moments], h: int, chain: tuple[int, ...]
) -> Guess:
    last = h == len(path) - 1
    risk = _risk(search, path, living, pilot, h)
    least, i, j = search.space.least(risk)
    mine, next_ = living[h].of(chain[h]), 0 if last else living[h + 1].of(chain[h + 1])
    excess = float(risk.noise[mine] + (risk.gain[mine] - risk.future[next_]) ** 2 - least)
    share = Budget(search.half, search.budget.claims + 2).spend()

    def slack(n: Ints | int, places: Ints) -> Floats:
        e = np.zeros(1) if last else _radius(search, h + 1, living[h + 1].some, pilot[h + 1], n, share, places)
        return elimination_slack(e, n, search.b, RELATIVE * share)

    sizes = search.sizes()
    enough = sizes[slack(sizes, np.full(len(sizes), next_)) <= search.tuning.margin * excess]
    needed = int(enough[0]) if len(enough) else None
    order = np.argsort(risk.future)
    nearest = order[np.clip(np.searchsorted(risk.future[order], risk.gain), 0, len(order) - 1)]
    gaps = risk.noise + (risk.gain - risk.future[nearest]) ** 2 - least
    drops = bool((gaps > slack(needed or search.stage, nearest)).any())
    return Guess((i, j), needed, drops)


def _radius(
    search: Search, level: int, members: Ints, moments: Moments, n: Ints | int, share: float, places: Ints
) -> Floats:
    """Returns the radii of the values at a node, for some places among the members that were played."""
    low, high = search.low[level][members[places]], search.high[level][members[places]]
    return value_radius(moments.v_mean[places], moments.v_var[places], n, low, high, share)


def _eliminate(
    search: Search, path: Path, living: list[Kinds], batch: list[Moments], h: int, reference: tuple[int, int], n: int
) -> bool:
    """Makes two claims at one level: the child's radius for f* [E2], and that f* passes both tests [E1].

    Returns whether anything was dropped.
    """
    last, a, node = h == len(path) - 1, path[h], path[:h]
    risk = _risk(search, path, living, batch, h)
    e = np.zeros(1)
    if not last:
        share = search.budget.spend()
        e = _radius(search, h + 1, living[h + 1].some, batch[h + 1], n, share, np.arange(len(risk.future)))
        search.claim("the child's value is within its radius", path[: h + 1], n, share, float(e[risk.column].max()))
    share = search.budget.spend()
    i, j = reference
    bar = float(risk.noise[i] + (risk.gain[i] - risk.future[j]) ** 2)
    slack = elimination_slack(e, n, search.b, RELATIVE * share)
    reach = e + residual_radius(n, search.b, (1 - RELATIVE) * share)
    size = search.space.log_bound
    search.claim("Q* passes the elimination", (*node, a), n, share, bar)
    dropped = search.space.restrict(risk, bar + slack, reach)
    if not search.space.alive(h).any():
        raise BrokenPromise(
            f"no function is consistent with what action {a} at path {node} showed in {n} episodes: Q* is not in the class, "
            f"or transitions are not deterministic. {_chance(search)}"
        )
    verdict = "dropped" if dropped else "none dropped"
    search.note("elimination", (*node, a), verdict, bar, bar + float(slack.min()), n if h == 0 else 0, size)
    return dropped


def _chance(search: Search) -> str:
    return f"With all assumptions true this happens with probability at most {search.delta:g}."
