"""`certify_policy`: what any policy earns, with an interval that holds at every number of episodes.

Whoever learned the policy, only its own fresh episodes count, or logged ones with their propensities
(docs/policy-value.md). `judge` is the loop that `compare` uses too: play, look, until there is a verdict. Shapes: n
episodes.
"""

import contextlib
import dataclasses
import enum
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path as FilePath
from typing import Any, ClassVar, Self, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from richobs.core import words
from richobs.core.arguments import real_number, whole_number
from richobs.core.environment import TOLERANCE, Environment, checked_range, declared_by
from richobs.core.errors import BrokenPromise, InvalidInput, RewardOutOfRange, RunStopped
from richobs.core.executors import Workers
from richobs.core.files import write_atomically
from richobs.core.ledger import Ledger
from richobs.core.outcome import LOWER, Claim, sampling_assumptions
from richobs.core.policies import Policy
from richobs.core.problem import SMALLEST, Problem
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.core.version import __version__
from richobs.core.words import at_least, at_most, exact_words, probability_words
from richobs.engines.independence import OneLaw, stop_for
from richobs.judging.logs import Log, as_log, effective_size
from richobs.judging.measures import Episode, Measure, measure_words
from richobs.judging.players import (
    GROWTH,
    Predictor,
    VectorEnvironment,
    environment_digest,
    environment_words,
    player,
    policy_words,
    strangers,
    totals_error,
)
from richobs.judging.record import Calls, Question, opened_record
from richobs.runs.store import CERTIFICATE, REPORT
from richobs.show.chart import Picture, interval_picture, page
from richobs.show.terminal import is_interactive
from richobs.stats.sequences import (
    SMALLEST_SHIFT,
    ConfidenceSequence,
    QuantileSequence,
    WeightedSequence,
    enough_for,
)
from richobs.stats.shares import Share

MAX_EPISODES = 100_000  # where only a threshold is given
BATCH = 32  # episodes between two looks at the beginning
LARGEST_BATCH = 10_000_000  # episodes that are played before anything is looked at
ROUNDING = 1e-12  # relative error of scaling to [0, 1] and back in float64, with room
HOPELESS = 10  # logged episodes are worth so few of the policy's own that nothing can be expected of them
PLANNED = 2**20  # observations that bets on given numbers are made for: how many there are may depend on them
FALSE_ALARM = 1e-4  # probability that a call is stopped though its episodes are independent and of one law
UNBOUNDED = (-sys.float_info.max, sys.float_info.max)  # the range of what a quantile is asked of
ABOVE = "V(policy) is at most"  # the claim that the upper bound is


class Verdict(enum.Enum):
    """Why no more episodes were played; the value is the sentence a person reads."""

    AT_LEAST = "the policy earns at least the threshold"
    BELOW = "the policy earns less than the threshold"
    WITHIN_EPSILON = "the interval is as narrow as was asked"
    A_BETTER = "the first policy earns more than the second"
    B_BETTER = "the second policy earns more than the first"
    NO_DIFFERENCE = "the policies differ by at most epsilon"
    BEST = "the policy is within epsilon of the best"
    EPISODES_SPENT = "the episodes allowed were spent; the interval holds, but nothing else was decided"
    OPEN = "not decided yet; more episodes are being played"


@dataclass(frozen=True)
class PolicyReport:
    """What is certain about the value of a policy, its expected total reward, in the environment's own units."""

    lower: float
    upper: float
    mean: float  # of the totals that were played: an estimate, of which nothing is claimed
    episodes: int
    delta: float  # probability that the interval, or the verdict, is false
    verdict: Verdict
    reward_range: tuple[float, float]  # declared range of an episode's total
    threshold: float | None = None
    epsilon: float | None = None  # width of the interval that was asked for
    seed: int = 0
    claims: tuple[Claim, ...] = dataclasses.field(default=(), repr=False)  # the two bounds and their shares of delta
    checks: int = 0  # episodes that were played a second time, to compare copies; the interval does not rest on them
    assumes: tuple[str, ...] = ()  # what else has to be true so that episodes are independent, in words
    deterministic: bool = False  # whether a model was asked for its deterministic actions
    effective: float | None = None  # of logged episodes: how many of the policy's own they are worth, an estimate
    environment: str = ""  # which one, in a line
    looks: tuple[tuple[int, float, float], ...] = dataclasses.field(default=(), repr=False)  # episodes, lower, upper
    measure: str | None = None  # name of what was measured of episodes; None: their totals
    measure_digest: str | None = None  # SHA-256 of its compiled code and of what it reads
    quantile: float | None = None  # which one the interval is for; None: it is for the mean

    format: ClassVar[str] = "richobs-policy-value"
    each: ClassVar[int] = 1  # episodes of one observation
    first_shift: ClassVar[float] = SMALLEST_SHIFT  # of the bets [V1]

    @property
    def subject(self) -> str:
        """What the interval is for, in a word."""
        if self.quantile is not None:
            return f"{exact_words(self.quantile)} quantile"
        return "value" if self.measure is None else "mean"

    @property
    def is_measured(self) -> bool:
        """Whether the interval is for something else than the mean of totals."""
        return self.measure is not None or self.quantile is not None

    @property
    def measured_words(self) -> str:
        """What the interval is for, in words."""
        if self.measure is None or self.measure_digest is None:
            return f"the {self.subject} of the total reward of an episode of {self.acting('the policy')}"
        which = measure_words(self.measure, self.measure_digest)
        return f"the {self.subject} of {which} over episodes of {self.acting('the policy')}"

    @property
    def bounds(self) -> tuple[str, str]:
        """What the two ends of the interval are, as claims."""
        if not self.is_measured:
            return LOWER, ABOVE
        return f"{self.measured_words} is at least", f"{self.measured_words} is at most"

    @property
    def reason(self) -> str:
        """The verdict in words."""
        told = self.verdict.value
        return told.replace("the policy earns", f"the {self.subject} is") if self.is_measured else told

    @property
    def span(self) -> tuple[float, float]:
        """Smallest and largest possible value of what the interval is for."""
        return self.reward_range

    @property
    def width(self) -> float:
        """How far apart the bounds are."""
        return self.upper - self.lower

    @property
    def is_certified(self) -> bool:
        """Whether the policy is known to earn at least the threshold."""
        return self.verdict is Verdict.AT_LEAST

    @property
    def status(self) -> int:
        """What a gate says: 0 where what was asked is certain, 1 where the opposite is, 3 where neither is."""
        if self.verdict in (Verdict.BELOW, Verdict.B_BETTER):
            return 1
        if self.threshold is not None:
            return 0 if self.verdict is Verdict.AT_LEAST else 3
        asked = self.epsilon is not None or self.each > 1
        return 3 if asked and self.verdict in (Verdict.EPISODES_SPENT, Verdict.OPEN) else 0

    @property
    def units(self) -> str:
        """What the numbers mean, in words."""
        low, high = self.reward_range
        what = "total reward of an episode" if self.measure is None else f"what {self.measure!r} says of an episode"
        if self.quantile is not None:
            meant = f"the smallest number that it does not exceed with probability {exact_words(self.quantile)} or more"
            return f"{what}; its {self.subject} is {meant}"
        return f"{what}, declared to lie in [{exact_words(low)}, {exact_words(high)}]"

    @property
    def claim(self) -> str:
        """What is guaranteed, in a sentence; bounds are rounded outwards."""
        decided = ""
        if self.threshold is not None and self.verdict in (Verdict.AT_LEAST, Verdict.BELOW):
            relation = "at least" if self.verdict is Verdict.AT_LEAST else "less than"
            decided = f", which is {relation} {exact_words(self.threshold)}"
        if self.is_measured:
            said = f"{self.measured_words} is {self.interval_words}"
        else:
            said = f"{self.acting('the policy')} earns {self.interval_words} per episode in expectation"
        return f"{self.chance_words} {said.rstrip(',')}{decided}, {self.provided_words}."

    @property
    def interval_words(self) -> str:
        """The interval, rounded outwards; an end of the declared range is not told as if it were found."""
        low, high = self.span
        if self.lower <= low and self.upper >= high and self.quantile is not None:
            return "not bounded yet"
        if self.lower <= low < self.upper < high:
            return f"at most {at_most(self.upper, self.span)}"
        below = at_least(self.lower, self.span)
        if self.upper >= high and self.lower > low:
            return f"at least {below}"
        all_of_it = ", all of the declared range," if self.lower <= low and self.upper >= high else ""
        return f"between {below} and {at_most(self.upper, self.span)}{all_of_it}"

    @property
    def chance_words(self) -> str:
        """How sure the claim is, rounded downwards to few digits."""
        spent = float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(self.delta)))
        return f"With probability at least {probability_words(spent)}"

    @property
    def provided_words(self) -> str:
        """What has to be true, in a clause."""
        low, high = map(exact_words, self.reward_range)
        assumed = "".join(f"{one}, that " for one in self.assumes)
        if self.quantile is not None:
            return f"provided that {assumed}{self.independence_words}"
        what = "total" if self.measure is None else "value of the measure"
        return f"provided that {assumed}{self.independence_words} and every {what} lies in [{low}, {high}]"

    @property
    def independence_words(self) -> str:
        """What is assumed of the episodes."""
        if self.effective is None:
            return "episodes are independent"
        return (
            "the log's propensities are the probabilities with which its actions were drawn, above 0 wherever the policy "
            "acts, that episodes are of this environment"
        )

    def acting(self, who: str) -> str:
        """Returns who acts, and how where that has to be said."""
        return f"{who}, acting deterministically," if self.deterministic else who

    def __str__(self) -> str:
        """The claim, and what it rests on."""
        more = f", and {self.checks:,} played again to compare copies" if self.checks else ""
        worth = "" if self.effective is None else f" of a log, worth about {self.effective:,.0f} of its own"
        mean = f"{'mean' if self.quantile is None else self.subject} {self.mean:.4g}"
        return f"{self.claim} ({self.episodes:,} episodes{worth}{more}, {mean}; {self.reason}.)"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know besides the claim."""
        if self.effective is None or self.effective >= HOPELESS:
            return ()
        return (
            f"The {self.episodes:,} logged episodes are worth about {self.effective:.1f} of the policy's own: it does what "
            "the log hardly ever did. The interval holds, but no log of this kind makes it narrow; play the policy instead.",
        )

    @classmethod
    def asked(cls, question: Question) -> Self:
        """Returns the report of no episodes: what it shares with the question, by name."""
        shared = {f.name: getattr(question, f.name) for f in dataclasses.fields(cls) if hasattr(question, f.name)}
        return cls(lower=math.nan, upper=math.nan, mean=math.nan, episodes=0, verdict=Verdict.OPEN, **shared)

    def observed(self, question: Question, calls: Calls, n: int) -> Calls:
        """Returns n observations in [0, 1], call by call, of the totals that were drawn."""
        totals = np.concatenate(calls)
        totals = scaled(totals, n, question) if self.quantile is None else checked_totals(totals, n)
        return np.split(totals, np.cumsum([len(call) for call in calls[:-1]]))

    def decided(self, limit: int) -> Verdict:
        """Returns what is certain now, after at most `limit` episodes."""
        if self.threshold is not None and self.lower >= self.threshold:
            return Verdict.AT_LEAST
        if self.threshold is not None and self.upper < self.threshold:
            return Verdict.BELOW
        if self.epsilon is not None and self.width <= self.epsilon:
            return Verdict.WITHIN_EPSILON
        return Verdict.EPISODES_SPENT if self.episodes >= limit else Verdict.OPEN

    def picture(self) -> Picture:
        """Returns the drawing of what happened."""
        marks = [] if self.threshold is None else [self.threshold]
        ends = (
            [v for _, *both in self.looks for v in both if abs(v) < UNBOUNDED[1]] if self.quantile is not None else []
        )
        span = self.span if not ends else (min(*ends, *marks), max(*ends, *marks) + (len({*ends, *marks}) == 1))
        if self.quantile is not None and not ends:
            return interval_picture((), span, marks, self.subject)
        looks = [(n, max(lower, span[0]), min(upper, span[1])) for n, lower, upper in self.looks]
        return interval_picture(looks, span, marks, self.subject)

    def _repr_html_(self) -> str:
        """The claim and a drawing, for a notebook."""
        return page(self.claim, self.picture(), self.rows(), whole=False)

    def rows(self) -> list[tuple[str, str]]:
        """Returns the numbers of the report by name."""
        worth = [] if self.effective is None else [("worth", f"about {self.effective:,.1f} episodes of its own")]
        return [
            ("verdict", self.reason),
            ("mean" if self.quantile is None else self.subject, f"{words.value(self.mean)}, an estimate"),
            ("episodes", f"{self.episodes:,}"),
            *worth,
            ("units", self.units),
            *(("remark", remark) for remark in self.remarks),
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {
            "format": self.format,
            "version": 1,
            "claim": self.claim,
            "verdict": self.verdict.name,
            "reason": self.reason,
            "lower": _known(self.lower),
            "upper": _known(self.upper),
            "mean": self.mean,
            "episodes": self.episodes,
            "checks": self.checks,
            "delta": self.delta,
            "units": self.units,
            "reward_range": None if self.quantile is not None else list(self.reward_range),
            "threshold": self.threshold,
            "epsilon": self.epsilon,
            "deterministic": self.deterministic,
            "effective": self.effective,
            "environment": self.environment,
            "assumes": list(self.assumes),
            "seed": self.seed,
            "looks": [[n, _known(lower), _known(upper)] for n, lower, upper in self.looks],
            "claims": [[c.kind, c.n, c.share, _known(c.value)] for c in self.claims],
            **({} if self.measure is None else {"measure": self.measure, "measure_digest": self.measure_digest}),
            **({} if self.quantile is None else {"quantile": self.quantile}),
            "richobs": __version__,
        }

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the report to a JSON file."""
        with write_atomically(FilePath(file)) as stream:
            stream.write((json.dumps(self.as_json(), indent=2) + "\n").encode())

    def keep(self, place: FilePath | None) -> Self:
        """Writes certificate and page into the folder of a judgement, where there is one; returns the report."""
        if place is not None:
            self.save(place / CERTIFICATE)
            with write_atomically(place / REPORT) as stream:
                stream.write(page(self.claim, self.picture(), self.rows(), whole=True).encode())
        return self


def _known(bound: float) -> float | None:
    """Returns a bound as a file has it: None where there is none."""
    return None if abs(bound) >= UNBOUNDED[1] else bound


Listener = Callable[[Any], None]
Bounding = ConfidenceSequence | WeightedSequence | QuantileSequence
R = TypeVar("R", bound="PolicyReport")
Draw = Callable[[int, int, int], Calls]  # look, episodes of each policy, those before; returns totals call by call


def certify_policy(
    env: Environment | Problem | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | VectorEnvironment | None,
    policy: Policy | Predictor | Callable[[Any], Any] | None,
    *,
    threshold: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.05,
    max_episodes: int | None = None,
    seed: int = 0,
    reward_range: tuple[float, float] | None = None,
    measure: Callable[[Episode], Any] | None = None,
    quantile: float | None = None,
    batch: int = BATCH,
    log: Any = None,
    out: str | os.PathLike[str] | None = None,
    callback: Listener | None = None,
    progress: bool | None = None,
) -> PolicyReport:
    """Plays a policy until it is certain what it is worth, and returns an interval for its value (docs/policy-value.md).

    The interval holds with probability at least 1 - delta at all numbers of episodes at once, so looking after every batch
    and stopping early do not weaken it. It is assumed that episodes are independent and that their totals lie in the
    declared range, and nothing else. The policy must have been fixed before: where it was chosen by means of a call with
    the same seed, choose another seed.

    Args:
        env: a richobs environment or problem, or a Gymnasium environment with any spaces. A Gymnasium environment is reset
            with a fresh seed for every episode, which lasts until the environment says that it is over. A vector
            environment of Gymnasium or Stable-Baselines3 plays several episodes at once, which is faster for models. With
            a log it says which rewards and actions there are, or is None.
        policy: an object with `actions(level, x, rng)` (any policy of richobs), an object with `predict(obs,
            deterministic=True)` (any model of Stable-Baselines3; the claim is about its deterministic actions), or a
            function that takes one observation and returns one action. A function is called for every observation
            separately, so the first two are faster. Numbers from `actions` count a Gymnasium environment's actions from 0,
            as `from_gymnasium` does; `predict` and functions return actions of its space.
        threshold: stop as soon as it is certain that the value is at least this, or that it is less.
        epsilon: stop as soon as the interval is at most this wide, in units of reward.
        delta: probability that the claim is false.
        max_episodes: no more are played. By default, with `epsilon`, as many as surely suffice for it, and otherwise
            100,000.
        seed: of every draw; the same seed gives the same result.
        reward_range: smallest and largest possible total of an episode; by default what the environment declares. A
            Gymnasium environment declares none. With a measure, its range; one that is True or False, 1 or 0, needs none.
        measure: what to measure of an episode instead of its total: a function of a `richobs.Episode` that returns a number,
            such as `lambda episode: episode.total > 0`. The interval is for its mean, and the claim names it and the
            SHA-256 of its compiled code and of what it reads.
        quantile: ask for this quantile of the total (or of the measure) instead of the mean, such as 0.1. It needs no
            range [V10].
        batch: episodes until the first look; later looks come after a sixteenth of all episodes so far.
        log: logged episodes with the probabilities of the actions taken, which are read instead of playing: a
            `richobs.Episodes` with propensities, the name of a CSV file or of one that its method `save` wrote, or a Minari
            dataset.
        out: a folder where every draw is kept: the same call goes on there after it was stopped.
        callback: called with the report so far after every look.
        progress: show the interval as it shrinks; by default in a terminal or a notebook.

    Raises:
        BrokenPromise: two looks contradict each other, so episodes are not independent draws of one law (or the probability
            delta was met); or a check shows that they are not (with those it stops a call with probability 0.0001 at most).
        InvalidInput: nothing says when to stop, or an argument cannot be used.
        Rejected: the environment answered something else than it was asked.
        RewardOutOfRange: an episode's total lies outside the declared range.
    """
    played: Any = env.env if isinstance(env, Problem) else env
    asked = None if measure is None else Measure(measure, is_event=reward_range is None and quantile is None)
    reward_range = measured_range(played, reward_range, asked, quantile, log)
    check_question(reward_range, threshold, epsilon, delta, max_episodes, batch, may_end=log is not None)
    threshold, epsilon = (None if value is None else float(value) for value in (threshold, epsilon))
    given = None if log is None else as_log(log, policy, played, reward_range, keyed_generator(seed, "log"))
    slack = slack_of(played, reward_range) if quantile is None else 0.0
    if max_episodes is None and given is None:
        width = reward_range[1] - reward_range[0]
        max_episodes = default_limit(epsilon if quantile is None else None, slack, width, float(delta))
    most = given.n if given is not None else int(max_episodes or 0)
    question = Question(
        kind="value",
        names=("the policy",),
        reward_range=reward_range,
        delta=float(delta),
        seed=whole_number("seed", seed, least=None),
        batch=int(batch),
        max_episodes=most if max_episodes is None else min(most, int(max_episodes)),
        slack=slack,
        threshold=threshold,
        epsilon=epsilon,
        measure=None if asked is None else asked.name,
        measure_digest=None if asked is None else asked.digest,
        quantile=None if quantile is None else float(quantile),
        **facts_of(env, (policy,), "a log"),
    )
    unknown = [] if asked is None or not asked.unknown else [f"the measure (it reads {', '.join(asked.unknown)})"]
    if given is not None:
        return judge_log(PolicyReport, question, given, out, callback, progress)
    ledger = Ledger(question.max_episodes)
    with (
        opened_record(out, question, [policy], [*strangers(env, [policy]), *unknown]) as record,
        Workers(declared_by(played).processes) as workers,
        listening(callback, progress) as listen,
    ):
        plays = player(played, policy, workers, ledger, asked)

        def draw(look: int, n: int, before: int) -> Calls:
            return record.draw(lambda: plays.alone(n, keyed_generator(question.seed, "policy value", look), before))

        return judge(PolicyReport, question, draw, listen, ledger=ledger).keep(record.place)


def facts_of(env: Any, policies: Sequence[Any], without: str) -> dict[str, Any]:
    """Returns what a question says of environment and policies; `without` stands in for an environment."""
    played, name = (env.env, env.id) if isinstance(env, Problem) else (env, getattr(env, "id", None))
    return {
        "deterministic": all(isinstance(p, Predictor) and not callable(getattr(p, "actions", None)) for p in policies),
        "assumes": assumed_of(played),
        "environment": without if played is None else environment_words(played, name),
        "world": env.id if isinstance(env, Problem) else None,
        "policies": tuple(map(policy_words, policies)),
        "environment_digest": None if played is None else environment_digest(played, name),
    }


def measured_range(
    env: Any, reward_range: tuple[float, float] | None, measure: Measure | None, quantile: Any, log: Any
) -> tuple[float, float]:
    """Returns the declared range of what is measured.

    Raises:
        InvalidInput: nothing declares it, or something does that is of no use.
    """
    if log is not None and (measure is not None or quantile is not None):
        raise InvalidInput("a log has totals alone: leave measure= and quantile= out, or play the policy.")
    if quantile is None:
        return totals_range(env, (0.0, 1.0) if measure is not None and reward_range is None else reward_range)
    if not 0 < real_number("quantile", quantile) < 1:
        raise InvalidInput(f"quantile must lie between 0 and 1, 0.5 for the median; got {quantile!r}.")
    if reward_range is not None:
        raise InvalidInput("a quantile needs no range: leave reward_range out.")
    return UNBOUNDED


def assumed_of(env: Any) -> tuple[str, ...]:
    """Returns what has to be true of an environment so that its episodes are independent, in words."""
    outside = env is None or isinstance(env, gymnasium.Env | VectorEnv | VectorEnvironment)
    return () if outside else sampling_assumptions(env)


def slack_of(env: Any, reward_range: tuple[float, float]) -> float:
    """Returns by how much clipping to the range and rounding may move a mean of totals."""
    low, high = reward_range
    return TOLERANCE + ROUNDING * (high - low) + totals_error(env, reward_range)


def default_limit(epsilon: float | None, slack: float, span: float, delta: float) -> int:
    """Returns after how many observations the interval is surely as narrow as epsilon; MAX_EPISODES where that is None."""
    if epsilon is None:
        return MAX_EPISODES
    return enough_for(min((epsilon - 2 * slack) / span, 1.0), delta / 2)


@contextlib.contextmanager
def listening(callback: Listener | None, progress: bool | None) -> Iterator[Listener]:
    """Yields what is told the report after every look: the terminal, and who asked to be called.

    Raises:
        InvalidInput: the callback cannot be called.
    """
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function of a PolicyReport; got {callback!r:.80}.")
    with _shown(is_interactive() if progress is None else progress) as watch:

        def listen(report: PolicyReport) -> Any:
            watch(report)
            return None if callback is None else callback(report)

        yield listen


def judge_log(
    kind: type[R],
    question: Question,
    given: Log,
    out: str | os.PathLike[str] | None,
    callback: Listener | None,
    progress: bool | None,
) -> R:
    """Judges by logged episodes; the arguments are those of `judge` and `certify_policy`.

    Raises:
        InvalidInput: a folder is given too.
    """
    if out is not None:
        raise InvalidInput("a log is a record already: leave out= out, and keep the report with its method save.")
    with listening(callback, progress) as listen:
        return judge(kind, question, given.draw, listen, log=given)


def judge(
    kind: type[R],
    question: Question,
    draw: Draw,
    listen: Listener,
    *,
    ledger: Ledger | None = None,
    log: Log | None = None,
    planned: int | None = None,
) -> R:
    """Plays and looks until there is a verdict: the report is a function of the question and the draws [V1, V5, V7].

    Args:
        kind: of report.
        question: what was asked, in plain values.
        draw: plays episodes, or reads them.
        listen: called with the report after every look.
        ledger: counts the episodes that are played.
        log: where episodes are logged ones: their observations come with weights, in units of the span.
        planned: observations that the bets are made for, where that is not the most that are played.
    """
    asked = kind.asked(question)
    each, (low, high) = asked.each if log is None else 1, asked.span
    limit = max(1, question.max_episodes // each)
    whole = Share(question.delta)
    below, above = whole.split(0.5, 0.5)
    sequence: Bounding
    if question.quantile is not None:
        sequence = QuantileSequence(planned or limit, question.quantile, below, above)
    elif log is None:
        sequence = ConfidenceSequence(planned or limit, below, above, smallest=asked.first_shift)
    else:
        sequence = WeightedSequence(PLANNED, below, above)
    one_law = OneLaw(Share(FALSE_ALARM), keyed_generator(question.seed, "policy value", "checks"))
    report, look = asked, 0
    ledger = Ledger(question.max_episodes) if ledger is None else ledger
    try:
        while report.verdict is Verdict.OPEN:
            n = min(max(question.batch, sequence.n // GROWTH), limit - sequence.n)
            ledger.charge("value", "rollout", (), each * n)
            calls = draw(look, n, sequence.n)
            if isinstance(sequence, WeightedSequence):
                sequence.add(np.stack(calls[:-1]), calls[-1][None])
            else:
                batch = asked.observed(question, calls, n)
                for call in batch:
                    one_law.add(call)
                if one_law.is_refuted:
                    units = (low, high - low) if question.quantile is None else (0.0, 1.0)
                    stop_for(one_law.returns_words(*units), FALSE_ALARM)
                sequence.add(np.concatenate(batch))
            look += 1
            report = _look(report, sequence, question, limit, log)
            listen(report)
    except RunStopped as stopped:
        stopped.ledger = ledger
        raise
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):  # of somebody's code: a generator on its way changed it
            raise error.__cause__ from None
        raise
    below.claim(asked.bounds[0], (), report.episodes, report.lower)
    above.claim(asked.bounds[1], (), report.episodes, report.upper)
    return dataclasses.replace(report, claims=whole.claims(), checks=ledger.checks)


def _look(before: R, sequence: Bounding, question: Question, limit: int, log: Log | None) -> R:
    """Returns what is certain now, in the environment's units.

    Raises:
        BrokenPromise: the bounds contradict each other.
    """
    (low, high), slack, each = before.span, before.each * question.slack, before.each if log is None else 1
    first, scale = (low, high - low) if question.quantile is None else (0.0, 1.0)
    mean = float(log.means(sequence.n)) if log is not None else getattr(sequence, "mean", math.nan)
    report = dataclasses.replace(
        before,
        lower=max(low, first + scale * sequence.lower - slack),
        upper=min(high, first + scale * sequence.upper + slack),
        mean=first + scale * mean,
        episodes=sequence.n * each,
        effective=None if log is None else effective_size(log.weights[:, : sequence.n]),
    )
    check_bounds(report, question.delta)
    looks = (*before.looks, (report.episodes, report.lower, report.upper))
    return dataclasses.replace(report, verdict=report.decided(limit * each), looks=looks)


def check_bounds(report: PolicyReport, delta: float) -> None:
    """Refuses bounds that contradict each other."""
    if report.lower > report.upper:
        raise BrokenPromise(
            f"after {report.episodes:,} episodes the {report.subject} is certainly at least {report.lower:.6g}, and "
            f"certainly at most {report.upper:.6g}. These bounds contradict each other: episodes are not independent draws "
            f"of one law. If they are, this happens with probability at most {delta:g}."
        )


def totals_range(env: Any, reward_range: tuple[float, float] | None) -> tuple[float, float]:
    """Returns the declared range of an episode's total.

    Args:
        env: what is played.
        reward_range: what the caller declares; it goes before what the environment declares.

    Raises:
        InvalidInput: nothing declares it, or it is not a pair of finite numbers, the first one smaller.
    """
    given = reward_range
    if given is None:
        if isinstance(env, gymnasium.Env | VectorEnv) or not hasattr(env, "reward_range"):
            raise InvalidInput(
                f"{'a log' if env is None else environment_words(env, None)} does not declare what an episode's rewards can "
                "sum to, and no interval is valid without that: give reward_range=(smallest total, largest total), such as "
                "(0, 500) for CartPole-v1."
            )
        given = env.reward_range
    low, high = checked_range("reward_range", given)
    if low == high:
        raise InvalidInput(
            f"reward_range is [{low:g}, {high:g}]: every policy earns {low:g}, nothing is left to certify."
        )
    return low, high


def check_question(
    reward_range: tuple[float, float],
    threshold: Any,
    epsilon: Any,
    delta: Any,
    max_episodes: Any,
    batch: Any = BATCH,
    *,
    may_end: bool = False,
) -> None:
    """Raises `InvalidInput` where an argument cannot be used, or nothing says when to stop and episodes never end."""
    low, high = reward_range
    if threshold is None and epsilon is None and max_episodes is None and not may_end:
        raise InvalidInput(
            "nothing says when to stop: give a threshold to compare the value with, the width epsilon that the interval "
            "should have, or max_episodes."
        )
    for name, value in (("threshold", threshold), ("epsilon", epsilon), ("delta", delta)):
        if value is not None and not math.isfinite(real_number(name, value)):
            raise InvalidInput(f"{name} must be a finite number; got {value!r}.")
    if not SMALLEST <= delta < 1:
        raise InvalidInput(f"delta must lie between {SMALLEST:g} and 1; got {delta!r}.")
    if threshold is not None and not low < threshold <= high:
        raise InvalidInput(
            f"threshold {threshold:g} decides nothing, because totals (with measure=, its values) lie in [{low:g}, "
            f"{high:g}]. Give one above {low:g} and at most {high:g}, or the range that is right as reward_range=."
        )
    if epsilon is not None and epsilon <= 0:
        raise InvalidInput(f"epsilon, the width of the interval, must be above 0; got {epsilon!r}.")
    if max_episodes is not None:
        whole_number("max_episodes", max_episodes, least=1)
    whole_number("batch", batch, least=1, most=LARGEST_BATCH)


def checked_totals(totals: Any, n: int) -> Floats:
    """Returns the totals of n episodes.

    Raises:
        InvalidInput: there are others than so many numbers.
    """
    array = np.asarray(totals, dtype=np.float64)
    if array.shape != (n,):
        raise InvalidInput(f"{n} episodes were to be played; totals of shape {array.shape} arrived.")
    if not np.isfinite(array).all():
        raise RewardOutOfRange(f"an episode's rewards sum to {array[~np.isfinite(array)][0]}, which is not a number.")
    return array


def scaled(totals: Any, n: int, question: Question) -> Floats:
    """Returns the totals of n episodes as numbers in [0, 1], after checking that they lie in the range but for rounding."""
    (low, high), slack = question.reward_range, question.slack
    array = checked_totals(totals, n)
    wrong = ~((array >= low - slack) & (array <= high + slack))
    if wrong.any():
        summed, what = "an episode's rewards sum to", "total"
        if question.measure is not None:
            summed, what = f"the measure {question.measure!r} says of an episode", "measure"
        raise RewardOutOfRange(
            f"{summed} {array[wrong][0]:.6g}; the declared range of the {what} is [{low:g}, {high:g}]. "
            "Declare the range that totals can really have (reward_range)."
        )
    return np.clip((array - low) / (high - low), 0.0, 1.0)


@contextlib.contextmanager
def _shown(wanted: bool) -> Iterator[Listener]:
    """Shows the interval in one line while the block lasts."""
    if not wanted:
        yield lambda report: None
        return
    from rich.console import Console

    from richobs.show.terminal import can_draw

    console = Console(stderr=True, highlight=False, emoji=False)
    if not can_draw(console):  # a notebook without ipywidgets, for instance
        yield lambda report: None
        return
    with console.status("playing") as status:
        yield lambda report: status.update(
            f"{report.episodes:,} episodes: the {report.subject} is {report.interval_words}".rstrip(",")
        )
