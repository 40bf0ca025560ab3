"""`select`: one of many policies that is within epsilon of the best, by a race [V6].

All policies that are left play every round. Policy i is dropped when the average over its opponents j of the wealth of bets
on "V_j > V_i" is large: for the best policy every term is a supermartingale, so their average is one, and no union over
pairs is needed. The race ends when one is left, or when every other one that is left is known to be better than the leader
by less than epsilon. Shapes: N policies, O opponents, L bets, t rounds.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask
from richobs.core.words import exact_words
from richobs.engines.independence import OneLaw, stop_for
from richobs.judging.compare import PAIRS, ROUNDS, question_of, rounds
from richobs.judging.measures import totals_alone
from richobs.judging.players import GROWTH, player, strangers
from richobs.judging.record import Calls, Question, opened_record
from richobs.judging.value import FALSE_ALARM, Listener, PolicyReport, Verdict, check_bounds, listening, scaled
from richobs.show.chart import Lane, Picture, lanes_picture
from richobs.stats.bets import death, mixed
from richobs.stats.sequences import ConfidenceSequence
from richobs.stats.shares import Share, Supposed

BETS = np.array([0.95, 0.7, 0.4, 0.2, 0.1])  # [L] on a difference, as parts of the largest bet
PARTS = (
    0.5,
    0.4,
    0.1,
)  # of delta: that the best is dropped, that the leader is chosen wrongly, that its interval is false
MOST_POLICIES = 10_000
MOST_OPPONENTS = 256  # of all policies; where there are more, the best ones after the first look
LEADERS = 3  # that are looked at: the largest means

More = Callable[["Selection"], Mapping[str, Any] | Sequence[Any] | None]
Rounds = Callable[[int, Ints, int, int], Calls]  # look, who plays, rounds, rounds before; totals of each


@dataclass(frozen=True)
class Selection(PolicyReport):
    """Which policy was chosen, and how the race went; `lower`, `upper` and `mean` are of the chosen one's value."""

    chosen: int = 0  # number of the policy, counted from 0
    lanes: tuple[Lane, ...] = dataclasses.field(default=(), repr=False)  # of all policies, in their order

    format: ClassVar[str] = "richobs-selection"

    @property
    def name(self) -> str:
        """What the chosen policy is called."""
        return self.lanes[self.chosen].name

    @property
    def is_certified(self) -> bool:
        """Whether the chosen policy is known to be within epsilon of the best."""
        return self.verdict is Verdict.BEST

    @property
    def claim(self) -> str:
        """What is guaranteed, in two sentences."""
        epsilon, n = exact_words(self.epsilon or 0.0), len(self.lanes)
        if self.verdict is not Verdict.BEST:
            left = sum(lane.state != "dropped" for lane in self.lanes)
            return (
                f"{self.chance_words} the best of {n} policies is among the {left} that are left; it is not decided which "
                f"of them is within {epsilon} of it. This holds {self.provided_words}."
            )
        return (
            f"{self.chance_words} {self.acting(self.name)} is within {epsilon} of the best of {n} policies, and earns "
            f"{self.interval_words} per episode in expectation. This holds {self.provided_words}."
        )

    @property
    def independence_words(self) -> str:
        """What is assumed of the episodes."""
        return ROUNDS

    def picture(self) -> Picture:
        """Returns the drawing of what happened."""
        return lanes_picture(self.lanes)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {**super().as_json(), "chosen": self.chosen, "lanes": [lane._asdict() for lane in self.lanes]}


class Cohort:
    """Policies that joined a race together, and the part of every probability and of all money that is theirs [V6]."""

    def __init__(self, first: int, size: int, number: int, is_open: bool):
        """Takes where they stand.

        Args:
            first: number of the first of them.
            size: how many they are.
            number: of the cohort, from 0.
            is_open: whether others may join later.
        """
        self.members = range(first, first + size)
        self.part = (0.5 if is_open else 1.0) if number == 0 else 0.5 / (number * (number + 1))
        self.opponents = list(self.members)[:MOST_OPPONENTS]


class Race:
    """The accounts of a race: who is left, and what is bet. Everything is in units of the range, so totals lie in [0, 1]."""

    def __init__(self, epsilon: float, slack: float, share: Share, *, is_open: bool):
        """Splits the share.

        Args:
            epsilon: by how much a leader may be worse than the best.
            slack: by how much a mean difference may be off, because totals are clipped and rounded.
            share: probability with which anything claimed may be false.
            is_open: whether policies may join later.
        """
        self._epsilon, self._slack, self._is_open = epsilon, slack, is_open
        self._dropping, self._choosing, self._value = share.split(*PARTS)
        self.drop_share, self.choose_share = self._dropping.spend(), self._choosing.spend()
        self.cohorts: list[Cohort] = []
        self.part: Floats = np.zeros(0)  # [N] of its cohort
        self.alive: Mask = np.zeros(0, dtype=bool)  # [N]
        self.totals: Floats = np.zeros((0, 0))  # [t, N] NaN where it did not play
        self._opponents: Ints = np.zeros(0, dtype=np.int64)  # [O] numbers of those that bet against all others
        self._wealth: Floats = np.zeros((0, 0, len(BETS)))  # [O, N, L] logarithm of the wealth of j's bets against i

    @property
    def n(self) -> int:
        """Policies, those that were dropped included."""
        return len(self.alive)

    @property
    def living(self) -> Ints:
        """Numbers of those that are left."""
        return np.flatnonzero(self.alive)

    def join(self, size: int) -> None:
        """Adds policies, whose accounts begin with the next round."""
        cohort = Cohort(self.n, size, len(self.cohorts), self._is_open)
        self.cohorts.append(cohort)
        t = len(self.totals)
        self.part = np.concatenate([self.part, np.full(size, cohort.part)])
        self.alive = np.concatenate([self.alive, np.ones(size, dtype=bool)])
        self.totals = np.concatenate([self.totals, np.full((t, size), np.nan)], axis=1)
        new = np.zeros((len(self._opponents), size, len(BETS)))
        self._wealth = np.concatenate([self._wealth, new], axis=1)
        if t or size <= MOST_OPPONENTS:
            self._open_accounts(cohort.opponents)

    def _open_accounts(self, opponents: Sequence[int]) -> None:
        self._opponents = np.concatenate([self._opponents, np.array(opponents, dtype=np.int64)])
        new = np.zeros((len(opponents), self.n, len(BETS)))
        self._wealth = np.concatenate([self._wealth, new])

    def add(self, living: Ints, totals: Floats) -> None:
        """Takes the totals `[n, m]` of further rounds of those that are left, settles all bets, and drops."""
        rows = np.full((len(totals), self.n), np.nan)
        rows[:, living] = totals
        self.totals = np.concatenate([self.totals, rows])
        betting = np.flatnonzero(self.alive[self._opponents])
        if len(betting):
            for row in rows:
                d = row[self._opponents[betting], None] - row[living] - self._slack  # [O, m]
                self._wealth[np.ix_(betting, living)] += np.log1p(d[:, :, None] * BETS)
        dropped = living[self.account(living) >= np.log(death(Supposed(self.drop_share)) / self.part[living])]
        self.alive[dropped] = False
        if not self.alive.any():
            raise BrokenPromise(
                f"after {len(self.totals):,} rounds each of {self.n:,} policies is certainly worse than another one. These "
                "statements contradict each other: rounds are not independent draws of one law."
            )
        if not len(self._opponents):  # a first cohort with more policies than opponents: its best ones, before they bet
            first = self.cohorts[0]
            best = np.argsort(-np.nan_to_num(self.means()), kind="stable")[:MOST_OPPONENTS]
            first.opponents = [int(j) for j in np.sort(best)]
            self._open_accounts(first.opponents)

    def account(self, who: Ints) -> Floats:
        """Returns `[m]` the logarithm of the average over opponents of the wealth against each policy [V6]."""
        if not len(self._opponents):
            return np.full(len(who), -np.inf)
        money = []
        for cohort in self.cohorts:
            others = len(cohort.opponents) - np.isin(who, cohort.opponents)  # nobody bets against itself
            part = np.log(cohort.part / np.maximum(others, 1))
            money += [np.where(who == j, -np.inf, part) for j in cohort.opponents]
        return np.logaddexp.reduce(np.stack(money) + mixed(self._wealth[:, who]), axis=0)

    def means(self) -> Floats:
        """Returns `[N]` the mean total of each policy; NaN for one that has not played."""
        played = ~np.isnan(self.totals)
        return np.where(played, self.totals, 0.0).sum(axis=0) / np.where(played.any(axis=0), played.sum(axis=0), np.nan)

    def leader(self) -> int:
        """Returns the one that is left with the largest mean; the first of several."""
        living = self.living
        return int(living[np.argmax(np.nan_to_num(self.means()[living], nan=-1.0))])

    def chosen(self) -> int | None:
        """Returns a policy that is within epsilon of the best, once one is known [V6]."""
        living = self.living
        if len(living) == 1 and len(self.totals):
            return int(living[0])
        order = living[np.argsort(-np.nan_to_num(self.means()[living], nan=-1.0), kind="stable")]
        for b in order[:LEADERS]:
            others = living[living != b]
            if (self.closeness(int(b), others) >= self._needed(int(b), others)).all():
                return int(b)
        return None

    def closeness(self, b: int, others: Ints) -> Floats:
        """Returns `[m]` the logarithm of the wealth of bets against "V_j - V_b >= epsilon", for each other policy j."""
        room = 1 - self._epsilon + self._slack  # of the largest loss
        if room <= 0:
            return np.full(len(others), np.inf)  # no difference can be as large as epsilon
        gain = self._epsilon - self._slack - (self.totals[:, others] - self.totals[:, [b]])
        together = ~np.isnan(gain)  # both have played since the later of them joined
        return mixed(np.log1p(np.where(together, gain, 0.0)[:, :, None] * (BETS / room)).sum(axis=0))

    def _needed(self, b: int, others: Ints) -> Floats:
        """Returns `[m]` the logarithm of the wealth that each other policy j needs against b: a part for each j and b."""
        home = next(c for c in self.cohorts if b in c.members)
        rivals = len(home.members) - np.isin(others, home.members)
        share = self.choose_share * self.part[others] * home.part / np.maximum(rivals, 1)
        return np.log([death(Supposed(float(s))) for s in share])

    def interval(self, i: int, limit: int) -> tuple[float, float]:
        """Returns an interval for the value of a policy: each one has a part of the share for it."""
        home = next(c for c in self.cohorts if i in c.members)
        part = self._value.part(self._value.amount * home.part / len(home.members))
        sequence = ConfidenceSequence(limit, *part.split(0.5, 0.5))
        own = self.totals[:, i]
        sequence.add(own[~np.isnan(own)])
        return sequence.lower, sequence.upper


@totals_alone
def select(
    env: Any,
    policies: Mapping[str, Any] | Sequence[Any],
    *,
    epsilon: float,
    delta: float = 0.05,
    max_episodes: int | None = None,
    seed: int = 0,
    reward_range: tuple[float, float] | None = None,
    paired: bool = True,
    batch: int = PAIRS,
    more: More | None = None,
    out: str | os.PathLike[str] | None = None,
    callback: Listener | None = None,
    progress: bool | None = None,
) -> Selection:
    """Plays policies against each other until one is known to be within epsilon of the best (docs/policy-value.md).

    Args:
        env: as `certify_policy` takes them.
        policies: 2 to 10,000 policies, each as `certify_policy` takes them; or a mapping from names to them.
        epsilon: by how much the chosen policy may be worse than the best, in units of reward.
        delta: probability that the claim is false: that the policy is worse, or its value outside the interval.
        max_episodes: no more are played, all policies together. By default as many as comparisons of all with one surely
            need.
        seed: of every draw. Policies that were chosen by means of a call with the same seed need another one.
        reward_range: smallest and largest possible total of an episode; by default what the environment declares.
        paired: give all policies the same random numbers in every round, where that can be done.
        batch: rounds until the first look.
        more: a function of the report so far, called after every look; the policies that it returns join the race. The
            claim is about the best of all, and a race that others may join takes some more episodes.
        out: a folder where every draw is kept: the same call goes on there after it was stopped.
        callback: called with the report so far after every look.
        progress: show the interval of the leader; by default in a terminal or a notebook.

    Raises:
        As `certify_policy`.
    """
    played: Any = env.env if isinstance(env, Problem) else env
    names, given = named(policies, 0)
    if len(given) < 2:
        raise InvalidInput(
            f"select chooses among at least two policies; got {len(given)}. richobs.certify_policy says what one is worth."
        )
    check = question_of("select", env, given, names, epsilon, delta, max_episodes, seed, reward_range, batch)
    players = [player(played, policy) for policy in given]
    limit = check.max_episodes if max_episodes is not None else check.max_episodes // 2 * len(given)
    question = dataclasses.replace(
        check, paired=bool(paired) and all(p.paired for p in players), max_episodes=limit, is_open=more is not None
    )
    unknown = [*strangers(env, given), *(["whoever joins (more)"] if more is not None else [])]
    with opened_record(out, question, given, unknown) as record, listening(callback, progress) as listen:

        def draw(look: int, living: Ints, n: int, before: int) -> Calls:
            return record.draw(lambda: rounds(question, players, [int(i) for i in living], look, n, before))

        def join(report: Selection) -> tuple[str, ...]:
            asked = more(report) if more is not None else None
            if not asked:
                return ()
            added, new = named(asked, len(players))
            players.extend(player(played, policy) for policy in new)
            return added

        return run(question, draw, listen, join if more is not None else None).keep(record.place)


def named(policies: Mapping[str, Any] | Sequence[Any], before: int) -> tuple[tuple[str, ...], list[Any]]:
    """Returns the names of policies and the policies; those without names are numbered from 0 on.

    Raises:
        InvalidInput: they are neither a mapping nor a sequence, or too many.
    """
    if not isinstance(policies, Mapping | Sequence) or isinstance(policies, str):
        raise InvalidInput(f"policies are a list, or a mapping from names to them; got {policies!r:.80}.")
    if before + len(policies) > MOST_POLICIES:
        raise InvalidInput(f"a race has at most {MOST_POLICIES:,} policies; got {before + len(policies):,}.")
    if isinstance(policies, Mapping):
        return tuple(map(str, policies)), list(policies.values())
    return tuple(f"policy {before + i}" for i in range(len(policies))), list(policies)


def run(
    question: Question, draw: Rounds, listen: Listener, join: Callable[[Selection], tuple[str, ...]] | None
) -> Selection:
    """Runs a race: its report is a function of the question, the draws and who joined.

    Args:
        question: what is asked.
        draw: plays rounds.
        listen: called with the report after every look.
        join: called after every look; returns the names of those that joined.
    """
    low, high = question.reward_range
    span, names = high - low, list(question.names)
    whole = Share(question.delta)
    race = Race((question.epsilon or 0.0) / span, 2 * question.slack / span, whole, is_open=join is not None)
    race.join(len(names))
    report, look, spent = Selection.asked(question), 0, 0
    while report.verdict is Verdict.OPEN:
        living, t = race.living, len(race.totals)
        n = min(max(question.batch, t // GROWTH), (question.max_episodes - spent) // len(living))
        if n:
            calls = draw(look, living, n, t)
            spent += n * len(living)
            race.add(living, np.stack([scaled(totals, n, question) for totals in calls], axis=1))
        look += 1
        chosen = race.chosen()
        verdict = Verdict.BEST if chosen is not None else Verdict.EPISODES_SPENT if n == 0 else Verdict.OPEN
        report = _report(report, race, names, chosen, verdict, spent, question)
        listen(report)
        added = join(report) if join is not None and n else ()
        if added:
            if len({*names, *added}) < len(names) + len(added):
                raise InvalidInput(f"policies of a race have different names; {', '.join(added)[:80]} joined.")
            names += added
            race.join(len(added))
            report = dataclasses.replace(report, verdict=Verdict.OPEN)
    return _finished(report, race, question, whole)


def _report(
    before: Selection,
    race: Race,
    names: Sequence[str],
    chosen: int | None,
    verdict: Verdict,
    spent: int,
    question: Question,
) -> Selection:
    """Returns how the race stands; the value of the leader is an estimate until it ends."""
    low, high = question.reward_range
    leader = race.leader() if chosen is None else chosen
    played, means = (~np.isnan(race.totals)).sum(axis=0), low + (high - low) * race.means()
    states = ["left" if alive else "dropped" for alive in race.alive]
    if chosen is not None:
        states[chosen] = "chosen"
    rows = zip(names, played.tolist(), means.tolist(), states, strict=True)
    return dataclasses.replace(
        before,
        lower=low,
        upper=high,
        mean=float(means[leader]),
        episodes=spent,
        verdict=verdict,
        chosen=leader,
        lanes=tuple(Lane(*row) for row in rows),
    )


def _finished(report: Selection, race: Race, question: Question, whole: Share) -> Selection:
    """Returns the report with the interval of the chosen policy, whose episodes were looked at once more.

    Raises:
        BrokenPromise: its episodes are not of one law, or its bounds contradict each other.
    """
    low, high = question.reward_range
    own = race.totals[:, report.chosen]
    watch = OneLaw(Share(FALSE_ALARM / race.n), keyed_generator(question.seed, "race", "checks"))
    for part in np.array_split(own[~np.isnan(own)], max(1, math.isqrt(len(own)))):
        watch.add(part)
    if watch.is_refuted:
        stop_for(watch.returns_words(low, high - low), FALSE_ALARM)
    below, above = race.interval(report.chosen, max(1, question.max_episodes // len(question.names)))
    lower = max(low, low + (high - low) * below - question.slack)
    upper = min(high, low + (high - low) * above + question.slack)
    report = dataclasses.replace(report, lower=lower, upper=upper, looks=((report.episodes, lower, upper),))
    check_bounds(report, question.delta)
    whole.claim(f"V is within {question.epsilon:g} of the best, and in its interval", (), report.episodes, lower)
    return dataclasses.replace(report, claims=whole.claims())
