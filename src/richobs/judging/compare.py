"""`compare` and `compare_returns`: which of two policies earns more, with an interval for the difference [V5].

Both policies play an episode in every round, with the same random numbers where the environment lets them. What is bet on
is the difference of the two totals, one number per round. Shapes: n rounds.
"""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from richobs.core.arguments import whole_number
from richobs.core.errors import InvalidInput
from richobs.core.ledger import Ledger
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.core.words import exact_words
from richobs.judging.logs import as_log
from richobs.judging.measures import totals_alone
from richobs.judging.players import Player, player, strangers
from richobs.judging.record import Calls, Question, opened_record
from richobs.judging.value import (
    PLANNED,
    Listener,
    PolicyReport,
    Verdict,
    check_question,
    default_limit,
    facts_of,
    judge,
    judge_log,
    listening,
    scaled,
    slack_of,
    totals_range,
)
from richobs.show.chart import Picture, interval_picture
from richobs.stats.sequences import DIFFERENCE_SHIFT

PAIRS = 8  # rounds until the first look
ROUNDS = "episodes are independent from round to round"  # what a comparison and a race assume


@dataclass(frozen=True)
class Comparison(PolicyReport):
    """What is certain about V(a) - V(b), in the environment's own units; `lower`, `upper` and `mean` are of it."""

    names: tuple[str, ...] = ("a", "b")
    paired: bool = True  # whether both policies got the same random numbers, round by round

    format: ClassVar[str] = "richobs-comparison"
    each: ClassVar[int] = 2
    first_shift: ClassVar[float] = DIFFERENCE_SHIFT

    @property
    def subject(self) -> str:
        """What the interval is for, in a word."""
        return "difference"

    @property
    def bounds(self) -> tuple[str, str]:
        """What the two ends of the interval are, as claims."""
        return "V(a) - V(b) is at least", "V(a) - V(b) is at most"

    @property
    def span(self) -> tuple[float, float]:
        """Smallest and largest possible difference."""
        width = self.reward_range[1] - self.reward_range[0]
        return -width, width

    @property
    def is_certified(self) -> bool:
        """Whether the first policy is known to be better, or to differ by at most epsilon."""
        return self.verdict in (Verdict.A_BETTER, Verdict.NO_DIFFERENCE)

    @property
    def pairs(self) -> int:
        """Rounds, in each of which both policies played; episodes of the log, where there is one."""
        return self.episodes // (1 if self.effective is not None else self.each)

    @property
    def claim(self) -> str:
        """What is guaranteed, in two sentences; bounds are rounded outwards."""
        a, b = self.names
        decided = {
            Verdict.A_BETTER: f"so {a} earns more than {b}",
            Verdict.B_BETTER: f"so {b} earns more than {a}",
            Verdict.NO_DIFFERENCE: f"so {a} and {b} differ by at most {exact_words(self.epsilon or 0.0)}",
        }.get(self.verdict, f"which does not decide whether {a} or {b} earns more")
        acting = ", both acting deterministically," if self.deterministic else ""
        return (
            f"{self.chance_words} V({a}) - V({b}){acting} is {self.interval_words} per episode in expectation, {decided}. "
            f"This holds {self.provided_words}."
        )

    @property
    def independence_words(self) -> str:
        """What is assumed of the episodes."""
        return ROUNDS if self.effective is None else super().independence_words

    def observed(self, question: Question, calls: Calls, n: int) -> Calls:
        """Returns n observations in [0, 1]: half of 1 plus the difference, in units of the range."""
        a, b = (scaled(totals, n, question) for totals in calls)
        return [(a - b + 1) / 2]

    def decided(self, limit: int) -> Verdict:
        """Returns what is certain now."""
        if self.lower > 0:
            return Verdict.A_BETTER
        if self.upper < 0:
            return Verdict.B_BETTER
        if self.epsilon is not None and -self.epsilon <= self.lower and self.upper <= self.epsilon:
            return Verdict.NO_DIFFERENCE
        return Verdict.EPISODES_SPENT if self.episodes >= limit else Verdict.OPEN

    def picture(self) -> Picture:
        """Returns the drawing of what happened."""
        epsilon = [] if self.epsilon is None else [-self.epsilon, self.epsilon]
        return interval_picture(self.looks, self.span, [0.0, *epsilon], "difference")

    def rows(self) -> list[tuple[str, str]]:
        """Returns the numbers of the report by name."""
        how = "the same random numbers for both" if self.paired else "random numbers of its own for each"
        return [*super().rows(), ("rounds", f"{self.pairs:,}, {how}")]

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {**super().as_json(), "names": list(self.names), "paired": self.paired, "pairs": self.pairs}


@totals_alone
def compare(
    env: Any,
    a: Any,
    b: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.05,
    max_episodes: int | None = None,
    seed: int = 0,
    reward_range: tuple[float, float] | None = None,
    names: Sequence[str] = ("a", "b"),
    paired: bool = True,
    batch: int = PAIRS,
    log: Any = None,
    out: str | os.PathLike[str] | None = None,
    callback: Listener | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Plays two policies until it is certain which earns more; returns an interval for V(a) - V(b) (docs/policy-value.md).

    The interval holds with probability at least 1 - delta at all numbers of episodes at once. It is assumed that rounds are
    independent and that totals lie in the declared range, and nothing else; above all not that episodes of one round are.

    Args:
        env: as `certify_policy` takes them.
        a: a policy, as `certify_policy` takes them.
        b: another one.
        epsilon: stop also as soon as it is certain that the policies differ by at most this.
        delta: probability that the claim is false.
        max_episodes: no more are played, both policies together. By default, with `epsilon`, as many as surely suffice, and
            otherwise 200,000.
        seed: of every draw.
        reward_range: smallest and largest possible total of an episode; by default what the environment declares.
        names: what the policies are called in the claim.
        paired: give both policies the same random numbers in every round, where the environment can be reset with a seed or
            takes its randomness from a generator. Policies that are alike are told apart sooner. What is claimed holds
            either way.
        batch: rounds until the first look.
        log: logged episodes with propensities, which are read instead of playing.
        out: a folder where every draw is kept: the same call goes on there after it was stopped.
        callback: called with the report so far after every look.
        progress: show the interval as it shrinks; by default in a terminal or a notebook.

    Raises:
        As `certify_policy`.
    """
    played: Any = env.env if isinstance(env, Problem) else env
    if a is None or b is None:
        raise InvalidInput("compare needs two policies, with a log too; None arrived.")
    question = question_of("compare", env, (a, b), names, epsilon, delta, max_episodes, seed, reward_range, batch)
    if log is not None:
        given = as_log(log, a, played, question.reward_range, keyed_generator(seed, "log"), other=b)
        question = dataclasses.replace(question, max_episodes=min(given.n, max_episodes or given.n))
        return judge_log(Comparison, question, given, out, callback, progress)
    players = (player(played, a), player(played, b))
    question = dataclasses.replace(question, paired=bool(paired) and all(one.paired for one in players))
    ledger = Ledger(question.max_episodes)
    with (
        opened_record(out, question, (a, b), strangers(env, (a, b))) as record,
        listening(callback, progress) as listen,
    ):

        def draw(look: int, n: int, before: int) -> Calls:
            return record.draw(lambda: rounds(question, players, range(2), look, n, before))

        return judge(Comparison, question, draw, listen, ledger=ledger).keep(record.place)


def rounds(
    question: Question, players: Sequence[Player], living: Sequence[int], look: int, n: int, before: int
) -> Calls:
    """Plays n rounds of some policies, and returns the totals `[n]` of each.

    Round k has a generator of its own, and every policy gets an equal one. Where that cannot be, each gets its own.

    Args:
        question: what is asked.
        players: of all policies.
        living: which of them play.
        look: number of the draw.
        n: rounds.
        before: rounds before.
    """
    calls = []
    for i in living:
        own = keyed_generator(question.seed, question.kind, "own", look, i)
        if question.paired:
            shared = [keyed_generator(question.seed, question.kind, "round", before + k) for k in range(n)]
            calls.append(players[i].rounds(shared, own))
        else:
            calls.append(np.concatenate(players[i].alone(n, own, before)))
    return calls


def compare_returns(
    a: Sequence[float] | Floats,
    b: Sequence[float] | Floats,
    low: float,
    high: float,
    *,
    paired: bool,
    epsilon: float | None = None,
    delta: float = 0.05,
    names: Sequence[str] = ("a", "b"),
) -> Comparison:
    """Compares two policies by what their episodes earned, in the order in which they were played.

    The first return of one is compared with the first of the other, and so on. The numbers are read until there is a
    verdict; it must not depend on them in which order they stand, nor which of them are given.

    Args:
        a: what episodes of the first policy earned.
        b: what those of the second earned.
        low: smallest possible return.
        high: largest possible return.
        paired: whether the k-th episodes of both belong together, such as by the same seed. Then there must be as many of
            each; otherwise only as many are used as both have.
        epsilon: read also until it is certain that the policies differ by at most this.
        delta: probability that the claim is false.
        names: what the policies are called in the claim.

    Raises:
        InvalidInput: the returns cannot be compared.
        RewardOutOfRange: one of them lies outside the range, or is not a number.
    """
    both = [np.asarray(given, dtype=np.float64) for given in (a, b)]
    if any(one.ndim != 1 or not len(one) for one in both):
        raise InvalidInput(
            "compare_returns takes two lists of numbers, one for each episode; one of them is empty or no list."
        )
    if paired and len(both[0]) != len(both[1]):
        raise InvalidInput(
            f"paired returns belong together one by one; there are {len(both[0]):,} and {len(both[1]):,}. "
            "Give as many of each, or paired=False."
        )
    n = min(map(len, both))
    question = question_of("compare", None, (None, None), names, epsilon, delta, 2 * n, 0, (low, high), 1)
    question = dataclasses.replace(question, paired=paired)

    def draw(look: int, n: int, before: int) -> Calls:
        return [one[before : before + n] for one in both]

    return judge(Comparison, question, draw, lambda report: None, planned=PLANNED)


def question_of(
    kind: str,
    env: Any,
    policies: Sequence[Any],
    names: Sequence[str],
    epsilon: float | None,
    delta: float,
    max_episodes: int | None,
    seed: int,
    reward_range: tuple[float, float] | None,
    batch: int,
) -> Question:
    """Returns what is asked of a comparison or a race, once it can be."""
    played: Any = env.env if isinstance(env, Problem) else env
    low, high = reward_range = totals_range(played, reward_range)
    check_question(reward_range, None, epsilon, delta, max_episodes, batch, may_end=True)
    if max_episodes is not None and max_episodes < len(policies):
        raise InvalidInput(f"max_episodes is {max_episodes}, and one round takes {len(policies)} episodes.")
    names = tuple(map(str, names))
    if len(set(names)) != len(policies):
        raise InvalidInput(f"{len(policies)} policies need as many different names; got {', '.join(names)[:80]}.")
    slack = slack_of(played, reward_range)
    if max_episodes is None:
        max_episodes = 2 * default_limit(epsilon, 2 * slack, 2 * (high - low), float(delta))
    return Question(
        kind=kind,
        names=names,
        reward_range=reward_range,
        delta=float(delta),
        seed=whole_number("seed", seed, least=None),
        batch=int(batch),
        max_episodes=int(max_episodes),
        slack=slack,
        epsilon=None if epsilon is None else float(epsilon),
        **facts_of(env, policies, "numbers"),
    )
