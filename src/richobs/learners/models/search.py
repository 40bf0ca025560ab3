"""Learning in a family of models: weigh the models by everything seen, and plan in those that are left.

What is claimed rests on one event: the likelihood never refutes the true model [B4]. Then a policy that loses at most
epsilon in every living model loses at most epsilon in the true one [B5]. Labels are those of `docs/models.md`. Which policy
is played may depend on everything seen before.

One round: plan the optimal policies of the most likely models in every living model, and take the one whose largest loss is
the smallest. If that exceeds epsilon, play a few episodes: in turn of a model drawn by its likelihood, of the model in which
the best policy loses most, and of the best policy itself.
"""

import bisect
import math
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.model_arrays import REWARD_TOLERANCE
from richobs.core.environment import Episodes, implied_step_range
from richobs.core.errors import BrokenPromise, EpisodeLimit, InvalidInput
from richobs.core.events import Event, Progress, Said, event
from richobs.core.functions import ModelFamily, StepwiseFamily
from richobs.core.outcome import Outcome, StopReason, ToleranceCurve, ToleranceRow, claim_words
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.core.words import number_words
from richobs.engines.independence import Watch
from richobs.learners.base import Search, at_least_one
from richobs.learners.models.living import ZETA, Judged, Living, Regrets
from richobs.learners.stopping import LEAST, ClaimDoubted, Doubt, Patience, of_returns
from richobs.stats.shares import Share

PHASE = "models"
RECORDED = "played before the run"
TURNS = ("drawn by its likelihood", "it disputes the best policy", "its policy is the best so far")
ROUNDING = 1024 * 2.0**-52  # relative error of one level of planning: a few roundings for each outcome of an action
REFUTED = "likelihood never refutes the true model"
SPENT = {False: StopReason.EPISODES_SPENT, True: StopReason.TOLERANCE}  # by whether the tolerance ended the search
LISTED = 10_000  # living models that a certificate lists at most
RUNGS = 10  # powers of two below 1: the tolerance curve
MOST_EPISODES, MOST_MODELS = 4_096, 2_048  # with which there is a curve


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    batch: int = 2
    """Episodes of one policy before the models are weighed again; a long search allows a sixteenth of its episodes."""
    look: int = 4
    """How many of the most likely models' policies are planned in every living model after each batch."""

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "look")


def planning_error(
    horizon: int, reward_range: tuple[float, float], step_range: tuple[float, float] | None = None
) -> float:
    """Returns how far the value of a policy in the true system may be from the planned one.

    Three errors are added up. An episode multiplies H + 1 probabilities, each with a relative error of at most ZETA, so two
    laws of whole episodes are at most (H + 1) ZETA apart, and totals lie in the declared range. A reward counts as the
    model's if it differs by at most REWARD_TOLERANCE of its size, or of 1. And sums are rounded in float64.

    Args:
        horizon: number of levels H.
        reward_range: smallest and largest possible sum of an episode's rewards.
        step_range: smallest and largest possible reward of one level; by default what `reward_range` implies.
    """
    low, high = reward_range
    reward = max(map(abs, implied_step_range(reward_range) if step_range is None else step_range))
    size = max(abs(low), abs(high), horizon * reward)
    tolerated = horizon * REWARD_TOLERANCE * max(1.0, reward)
    return float((horizon + 1) * (ZETA * (high - low) + ROUNDING * size) + tolerated)


@dataclass
class ModelSearch(Search):
    """Which models live, which policies were planned in them, and what of delta was spent."""

    alpha: float = 0.0  # how far the real laws may be from those of a model, in total variation
    living: Living = field(init=False)  # B4 spends the whole of delta on them: B5 needs none
    regrets: Regrets = field(init=False)
    error: float = field(init=False)  # of a planned value
    watch: Watch = field(init=False)  # that episodes are independent and of one law
    recorded: int = 0  # episodes that were played before the run
    rounds: int = 0  # batches played
    best: Judged | None = None  # the policy that loses least
    patience: Patience = field(default_factory=Patience)
    gave_up: bool = False  # the tolerance keeps the loss where it is
    returns: dict[int, list[float]] = field(default_factory=dict)  # per model, what its policy earned
    claimable: int = 0  # episodes when a claim could first be made
    doubt: Doubt | None = None  # what speaks against the claim that is made: it is wider for that
    kept: list[Episodes] = field(default_factory=list)  # all batches, while they are few

    def __post_init__(self) -> None:
        super().__post_init__()
        self.living = Living(self.family.n_models, self.share, self.alpha, self.functions.horizon)
        self.regrets = Regrets(self.functions, self.family, self.living, self.tuning.look, self.alpha)
        self.error = planning_error(self.functions.horizon, self.reward_range, self.step_range)
        self.watch = Watch(self.seed, self.reward_range)

    @property
    def family(self) -> ModelFamily:
        """The class, as models: its member i is Q* of model i."""
        family: ModelFamily = self.functions
        return family

    @property
    def upper(self) -> float:
        """U: the largest V* of a living model; no policy earns more than the largest total."""
        above = -math.inf if self.doubt is None else self.doubt.above
        return min(float(self.reward_range[1]), max(self.regrets.upper + self.error, above))

    @property
    def lower(self) -> float:
        """W of the policy that loses least: its smallest value in a living model."""
        low = float(self.reward_range[0])
        if self.best is None or self.best.lowest is None:
            return low
        missing = 0.0 if self.doubt is None else self.doubt.missing
        return max(low, self.best.lowest - self.error - missing)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of living models."""
        return math.log(len(self.living.models))

    @property
    def weighed(self) -> int:
        """Episodes of the run, and those that were played before it."""
        return self.engine.ledger.total + self.recorded

    @property
    def next_size(self) -> int:
        """Episodes of the next batch: known before it is played, and not a matter of how many are allowed."""
        return max(self.tuning.batch, self.engine.ledger.total // 16)

    def gap(self, judged: Judged) -> float:
        """Returns V* less the policy's value in the true model, at the most; U less W where the claim is doubted."""
        shown = max(0.0, judged.regret) + 2 * self.error
        return shown if self.doubt is None else max(shown, self.upper - self.lower)

    def played_by(self, member: int) -> tuple[Floats, Floats]:
        """Returns `[k]` the distinct returns of a model's policy, and how often each came."""
        values, counts = np.unique(np.array(self.returns.get(member, []), dtype=np.float64), return_counts=True)
        return values, counts.astype(np.float64)

    def tell(self, event: Event) -> None:
        """Tells whoever listens."""
        policy = None if self.best is None else partial(LearnedPolicy, self.functions, self.best.member)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, self.lower, policy))


class Tolerant:
    """A policy that takes action 0 at observations that its class does not know.

    The policy itself would stop the run with an error. This one plays on, so that the models are asked about what was seen:
    all of them hold it impossible, and the run ends with the words for that.
    """

    def __init__(self, policy: LearnedPolicy):
        self.policy = policy
        self.unknown = ""  # what the class said about the last such observation

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the policy's actions, and 0 where it has none."""
        try:
            return self.policy.actions(level, x, rng)
        except InvalidInput:
            return np.array([self._action(level, x[i : i + 1], rng) for i in range(len(x))], dtype=np.int64)

    def never_takes(self, level: int, x: Observations, actions: Ints, /) -> Mask:
        """Returns `[n]` where an action is another one: none of them is random."""
        return self.actions(level, x, keyed_generator(0, "not used")) != actions

    def _action(self, level: int, x: Observations, rng: np.random.Generator) -> int:
        try:
            return int(self.policy.actions(level, x, rng)[0])
        except InvalidInput as error:
            self.unknown = str(error)
            return 0


def run(search: ModelSearch, recorded: Episodes | None = None) -> Judged:
    """Plays and plans until a policy is certified, or until the episodes are spent."""
    if recorded is not None:
        search.recorded = recorded.n
        _weigh(search, recorded, None, RECORDED)
    while True:
        best, doubt, spent = _plan(search), None, search.engine.ledger.total
        if best.lowest is not None and (search.gap(best) <= search.epsilon or search.gave_up):
            doubt = doubted(search, best)
            if doubt is None:
                return best
            search.claimable = search.claimable or max(spent, LEAST)
            if search.played_by(best.member)[1].sum() >= LEAST and spent >= 2 * search.claimable:
                search.doubt = doubt
                return best
            size = search.log_size
            search.tell(
                ClaimDoubted(
                    phase=PHASE,
                    log_size_before=size,
                    log_size_after=size,
                    episodes=int(search.played_by(best.member)[1].sum()),
                    why=doubt.words,
                )
            )
        try:
            _play(search, best, doubt is not None)
        except EpisodeLimit:
            tested = [member for member, got in search.returns.items() if len(got) >= LEAST]
            found = [search.regrets.judged(member) for member in tested or [best.member]]
            search.best = min(found, key=lambda judged: judged.regret)
            search.doubt = doubted(search, search.best)
            return search.best


def _plan(search: ModelSearch) -> Judged:
    """Finds the policy that loses least [B5]."""
    enough = search.epsilon - 2 * search.error
    search.best = best = search.regrets.best(math.inf if search.alpha else enough)
    if search.alpha:
        search.gave_up = search.patience.ends(search.gap(best), search.engine.ledger.total, search.log_size)
    size = search.log_size
    search.tell(
        RegretPlanned(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            model=best.member,
            worst=best.worst,
            regret=search.gap(best),
            epsilon=search.epsilon,
        )
    )
    return best


def doubted(search: ModelSearch, best: Judged) -> Doubt | None:
    """Returns what the episodes of the policy itself say against the claim, or that there are too few of them [C]."""
    values, counts = search.played_by(best.member)
    n = int(counts.sum())
    if n < LEAST:
        return Doubt.lack(n, float(search.reward_range[1]))
    low, high = search.reward_range
    promised = float(search.regrets.values(best.member)[search.living.leader])
    allowed = max(search.epsilon, search.gap(best)) / 2
    upper = search.upper
    found = of_returns(values, counts, upper=upper, promised=promised, allowed=allowed, range_of=float(high - low))
    # Models say how rare things are, and the likelihood tests that.
    return None if found is None or found.is_rare else found


def _play(search: ModelSearch, best: Judged, tested: bool = False) -> None:
    """Plays a batch of one model's optimal policy, of the best one where its claim is tested, and weighs it."""
    turn = 2 if tested else search.rounds % len(TURNS)
    if turn == 0:
        rng = keyed_generator(search.seed, "model", search.rounds)
        member = int(search.living.models[rng.choice(len(search.living.models), p=search.living.weights)])
    else:
        member = best.worst if turn == 1 else best.member
    n = search.next_size
    policy = Tolerant(LearnedPolicy(search.functions, member))
    played = search.episodes(policy, n, "play", PHASE)
    search.watch.look(member, played)
    search.returns.setdefault(member, []).extend(played.returns.tolist())
    search.rounds += 1
    _weigh(search, played, member, TURNS[turn], policy.unknown and f" The class says: {policy.unknown}")


def _weigh(search: ModelSearch, played: Episodes, member: int | None, why: str, detail: str = "") -> None:
    """Weighs episodes by every living model and drops those that are refuted [B4].

    Args:
        search: the search.
        played: the episodes.
        member: the model whose policy was played; None for episodes from before the run.
        why: why that one was played.
        detail: what the class says about something in them that no model shows.
    """
    living, size = search.living, search.log_size
    search.kept = [*search.kept, played] if search.weighed <= MOST_EPISODES else []
    before = len(living.models)
    likelihood = search.family.log_likelihood(played, living.models)
    laws = search.family.step_laws(played, living.models) if isinstance(search.family, StepwiseFamily) else None
    try:
        refuted = living.absorb(likelihood, played.n * (played.levels + 1), [] if laws is None else list(laws))
    except BrokenPromise as broken:
        explained = bool((likelihood > -np.inf).any())
        where = _strangest(search) if explained else _first_impossible(search, played)
        raise BrokenPromise(
            f"{broken}: the real system is none of the {search.family.n_models:,} models. {where}{detail} If it were one of "
            f"them, this would happen with probability at most {search.delta:g}.{_hint(search)}"
        ) from None
    search.regrets.keep(refuted.kept)
    search.tell(
        ModelsWeighed(
            phase=PHASE,
            n=played.n if member is not None else 0,
            log_size_before=size,
            log_size_after=search.log_size,
            model=member,
            why=why,
            earned=float(played.returns.mean()),
            promised=None if member is None else search.regrets.optimal(member),
            before=before,
            impossible=refuted.impossible,
            outweighed=refuted.outweighed,
        )
    )


def _strangest(search: ModelSearch) -> str:
    """Returns, in words, where what was seen differs most from what the models that fitted best predicted."""
    found = search.living.alarm.strangest()
    if found is None:
        return "What differs is in the last episodes."
    (counts, fitted, (level, x, action)), name = found
    n = sum(counts.values())
    where = "The first observation"
    if x >= 0:
        where = f"What differs most is at level {level}, observation {x}, action {action}: it"
    came = f"observation {name[0]}" if x < 0 else f"a reward of {name[1]:g}, and then "
    if x >= 0:
        came += "the end or nothing to be seen" if name[0] < 0 else f"observation {name[0]}"
    predicted = fitted.get(name, 0.0)
    return f"{where} gave {came} {counts[name]:,} times of {n:,}, and {predicted:.3g} was predicted as its probability."


def _first_impossible(search: ModelSearch, played: Episodes) -> str:
    """Returns, in words, the first step at which no living model is left that explains the episodes until then."""
    family, models = search.family, search.living.models

    def explained(first: int, last: int, levels: int, by: Ints) -> Ints:
        """Returns the models that hold the first levels of episodes `first` to `last` possible."""
        return by[family.log_likelihood(_part(played, first, last, levels), by) > -np.inf] if last > first else by

    n = bisect.bisect_left(
        range(played.n), True, key=lambda k: not len(explained(0, k + 1, played.levels, models))
    )  # the episode with which the last model goes
    left = explained(0, n, played.levels, models)
    h = bisect.bisect_left(range(played.levels), True, key=lambda k: not len(explained(n, n + 1, k + 1, left)))
    if played.ended and played.ended[h][n]:
        what = f"it ended after level {h - 1}"
    else:
        x, a, r = np.asarray(played.observations[h][n]), played.actions[h][n], played.rewards[h][n]
        what = f"level {h} showed {np.array2string(x, threshold=8)}, and action {a} paid {r:g}"
    number = search.recorded + search.engine.ledger.total - played.n + n + 1
    return f"What no model that was left explains is in episode {number:,}: {what}."


def _part(played: Episodes, first: int, last: int, levels: int) -> Episodes:
    """Returns the first levels of some episodes."""
    some = slice(first, last)
    return Episodes(
        [x[some] for x in played.observations[:levels]],
        [a[some] for a in played.actions[:levels]],
        [r[some] for r in played.rewards[:levels]],
        [e[some] for e in played.ended[:levels]],
    )


@dataclass(frozen=True)
class ModelsConstants:
    """What a search among models began with, and what its claim rests on."""

    tuning: dict[str, Any]
    n_models: int  # N
    zeta: float  # declared relative error of one probability
    planning_error: float  # of a value: what follows from it, from the tolerance of rewards, and from rounding
    refutation_limit: float  # logarithm of the wealth at which a model is refuted
    recorded: int  # episodes that were played before the run
    n_living: int
    living: list[int] | None  # the models that are left; None where they are too many to list
    worst: int  # the model in which the policy loses most
    gap: float  # what it loses there, errors of planning and the tolerance included


def outcome(search: ModelSearch, found: Judged) -> Outcome:
    """Returns the answer: the policy, the claim in words, and the share of delta that was spent."""
    living, gap = search.living, search.gap(found)
    certified = gap <= search.epsilon
    claimed = search.epsilon if certified else gap
    search.share.claim(REFUTED, (), search.weighed, math.exp(living.log_limit))
    likely = int(living.models[living.leader])
    answer = Outcome(
        policy=LearnedPolicy(search.functions, found.member),
        claim=claim_words(
            search.delta,
            claimed,
            _assumptions(search),
            sampling=search.engine.ledger.assumes,
            lower=search.lower,
            upper=search.upper,
            reward_range=search.reward_range,
            from_models=True,
        ),
        learner="models",
        epsilon=claimed,
        delta=search.delta,
        reason=_reason(search, certified),
        value_hat=float(
            search.family.policy_values(LearnedPolicy(search.functions, found.member), np.array([likely]))[0]
        ),
        v_star_hat=float(search.family.optimal_values()[likely]),
        upper=search.upper,
        lower=search.lower,
        log_size=search.log_size,
        rounds=search.rounds,
        claims=search.share.claims(),
        remarks=_remarks(search, found),
        constants=ModelsConstants(
            tuning=asdict(search.tuning),
            n_models=search.family.n_models,
            zeta=ZETA,
            planning_error=search.error,
            refutation_limit=living.log_limit,
            recorded=search.recorded,
            n_living=len(living.models),
            living=living.models.tolist() if len(living.models) <= LISTED else None,
            worst=found.worst,
            gap=gap,
        ),
    )
    return replace(answer, replay=partial(tolerance_curve, search, found, answer))


def says_steps(family: ModelFamily) -> bool:
    """Returns whether models say how likely single steps are: a tolerance is about their laws."""
    hidden = getattr(getattr(family, "models", None), "is_identified", True) is False
    return isinstance(family, StepwiseFamily) and not hidden


def _why_not(search: ModelSearch) -> str:
    """Returns, in words, why the run cannot be looked at with another tolerance; "" where it can."""
    if not says_steps(search.family):
        return "its models do not say how likely single steps are"
    if search.weighed > MOST_EPISODES:
        return f"the run has more than {MOST_EPISODES:,} episodes"
    return f"there are more than {MOST_MODELS:,} models" if search.family.n_models > MOST_MODELS else ""


def _rungs(search: ModelSearch) -> list[float]:
    """Returns the powers of two above the run's own tolerance."""
    return [2.0**-k for k in range(RUNGS, 0, -1) if 2.0**-k > search.alpha]


def _replayed(search: ModelSearch, alpha: float) -> Living | None:
    """Returns the models that live within a tolerance after what was played; None where none does."""
    family, living = search.family, Living(search.family.n_models, Share(search.delta), alpha, search.functions.horizon)
    assert isinstance(family, StepwiseFamily), "_why_not was asked"
    try:
        for played in search.kept:
            laws, likelihood = family.step_laws(played, living.models), family.log_likelihood(played, living.models)
            living.absorb(likelihood, played.n * (played.levels + 1), list(laws or ()))
    except BrokenPromise:
        return None
    return living


def _hint(search: ModelSearch) -> str:
    """Returns, in words, the least tolerance of the ladder that would have left a model; "" where there is none."""
    rungs = [] if _why_not(search) else _rungs(search)
    least = next((alpha for alpha in rungs if _replayed(search, alpha) is not None), None)
    if least is None:
        return ""
    return (
        f" A hint, not a claim: with a tolerance of {number_words(least, up=True)} these episodes would leave a model."
    )


def tolerance_curve(search: ModelSearch, found: Judged, answer: Outcome) -> ToleranceCurve:
    """Returns what the same episodes say of the policy for wider and wider tolerances [M3].

    A row says no less than the rows before it, which stand where no model is left.
    """
    why, (low, high) = _why_not(search), search.reward_range
    if why:
        return ToleranceCurve((), answer.epsilon, why)
    gap, upper, size = answer.epsilon, search.upper, search.log_size
    rows = [ToleranceRow(search.alpha, gap, upper, size)]
    for alpha in _rungs(search):
        living = _replayed(search, alpha)
        if living is not None:
            regrets = Regrets(search.functions, search.family, living, search.tuning.look, alpha)
            gap = max(gap, min(high - low, regrets.judged(found.member).regret + 2 * search.error))
            upper, size = max(upper, min(high, regrets.upper + search.error)), math.log(len(living.models))
        rows.append(ToleranceRow(alpha, gap, upper, size))
    return ToleranceCurve(tuple(rows), answer.epsilon)


def _reason(search: ModelSearch, certified: bool) -> StopReason:
    """Returns why the search ended."""
    if search.doubt is not None and not search.doubt.is_lack:
        return StopReason.DOUBTED
    return StopReason.EVERY_MODEL if certified and search.doubt is None else SPENT[search.gave_up]


def _assumptions(search: ModelSearch) -> tuple[str, ...]:
    """Returns what the claim rests on."""
    n = search.family.n_models
    one = "the real system is the given model" if n == 1 else f"the real system is one of the {n:,} models"
    if search.alpha:
        whose = "the given model's" if n == 1 else f"those of one of the {n:,} models"
        one = (
            f"the laws of the real system, at the start and at every observation and action, are within "
            f"{number_words(search.alpha, up=False)} of {whose} in total variation, on the same outcomes"
        )
    if not search.recorded:
        return (one,)
    log = f"the {search.recorded:,} recorded episodes"
    return one, f"{log} are whole, of this system and not selected by what came of them"


def _remarks(search: ModelSearch, found: Judged) -> tuple[str, ...]:
    """Returns, in words, what is missing where the policy was not certified."""
    gap, left = search.gap(found), len(search.living.models)
    if search.doubt is not None:
        return (f"the claim was made wider, because {search.doubt.words}",)
    if gap <= search.epsilon:
        return ()
    lost = number_words(gap, up=True)
    some = "1 model is" if left == 1 else f"{left:,} models are"
    return (f"{some} left, and in model {found.worst} the best policy found loses up to {lost}",)


@event("models", "weighing", "which models hold what was seen too unlikely?", "models refuted", "models before")
class ModelsWeighed(Event):
    """Episodes were weighed by every living model."""

    model: int | None  # whose optimal policy was played; None for episodes from before the run
    why: str  # why this one was played
    earned: float  # mean total
    promised: float | None  # the model's V*
    before: int  # living models
    impossible: int  # models refuted because something in the episodes is impossible in them
    outweighed: int  # models refuted because the others give the episodes more probability by a factor of 1/d

    def said(self) -> Said:
        """Returns what the episodes did."""
        refuted = self.impossible + self.outweighed
        who = "recorded before" if self.model is None else f"with the policy of model {self.model} ({self.why})"
        left = f"{refuted:,} models refuted, {self.before - refuted:,} left"
        sentence = f"{self.n:,} episodes {who} earned {self.earned:.3g}; {left}"
        return Said("refuted" if refuted else "none refuted", sentence, refuted, self.before)


@event(
    "models",
    "planning",
    "does one policy lose little in every living model?",
    "largest loss in a living model",
    "allowed",
)
class RegretPlanned(Event):
    """The likely models' policies were planned in the living models, and the one that loses least was found."""

    model: int  # whose optimal policy loses least
    worst: int  # the model in which it loses most
    regret: float  # that loss, errors of planning included
    epsilon: float

    def said(self) -> Said:
        """Returns how much is lost, and where."""
        sentence = (
            f"the policy of model {self.model} loses at most {number_words(self.regret, up=True)} in a living model, "
            f"{self.epsilon:g} is allowed; the worst is model {self.worst}"
        )
        verdict = "certified" if self.regret <= self.epsilon else "loses too much"
        return Said(verdict, sentence, self.regret, self.epsilon)
