"""OLIVE ([JKALS17] Algorithm 1): play the most optimistic survivor, and eliminate where its predictions fail.

A run in words: all functions predict a value at the root, and the survivor that predicts most is played. If its own average
Bellman errors sum to little, it earns nearly what it predicts, and no survivor predicts more. Otherwise some level has a
large error: there, reached by the same policy, every survivor is tested. Average Bellman errors are those of [JKALS17]
Definition 2. Shapes: N_h members of level h, X observations of the level, X' of the next, K actions.

[JKALS17] is Jiang, Krishnamurthy, Agarwal, Langford and Schapire 2017, "Contextual Decision Processes with Low Bellman Rank
are PAC-Learnable". Its lines are cited from memory: the text was not at hand. Each number is derived again in docs/olive.md,
so the guarantee does not rest on the citation. Sizes are rounded up. N enters as its logarithm, because N itself overflows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise
from richobs.core.events import Callback, Event, Progress, Said, event, nobody
from richobs.core.functions import FunctionClass, ValueFunction, reduced
from richobs.core.moments import Steps, check_rounding
from richobs.core.outcome import REALIZABLE, Outcome, StopReason, claim_words
from richobs.core.policies import Greedy, Switch, Uniform, greedy_actions
from richobs.core.problem import Problem
from richobs.core.queries import Engine, LevelSteps, Query
from richobs.core.settings import LARGEST_COUNT, Settings
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs.learners.printed import N_STATES, PrintedLearner, checked_inputs
from richobs.learners.version_space import PairError, VersionSpace, version_space
from richobs.stats.shares import Share

SEARCH = "search"  # the only phase
AT_ONCE_VALUES = 8_000_000  # values of functions that are held in memory at once


@dataclass(frozen=True)
class OliveConstants:
    """The inputs, and what Algorithm 1 uses. L = log(6 H sqrt(M) zeta / epsilon)."""

    horizon: int  # H
    n_actions: int  # K
    n_states: int  # M, a bound on the Bellman rank: the hidden states of a level, or fewer
    log_size: float  # log N
    epsilon: float
    delta: float
    zeta: float  # 2 sqrt(M), a bound on the norms of the factors (from memory: Proposition on reactive POMDPs)
    phi: float  # epsilon / (12 H sqrt(M)), largest |error| that survives (from memory: Theorem 1; Algorithm 1, line 15)
    stop: float  # 5 epsilon / 8, largest sum of errors that ends the run (from memory: Algorithm 1, line 9)
    n_est: int  # 32 log(6 N / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 2)
    n_eval: int  # 288 H^2 log(12 H^2 M L / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 7)
    n: int  # 4608 H^2 M K log(12 N H M L / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 13)
    max_rounds: int  # H M L / log(5/3), rounded down (from memory: proof of Theorem 1)
    delta_est: float  # delta / 3, of the estimates at the root
    delta_round: float  # delta / (6 H M L), of one evaluation, and of one elimination

    @classmethod
    def of(
        cls, *, horizon: int, n_actions: int, n_states: int, log_size: float, epsilon: float, delta: float
    ) -> "OliveConstants":
        """Computes the constants.

        Args:
            horizon: H.
            n_actions: K.
            n_states: M.
            log_size: natural logarithm of N.
            epsilon: largest allowed gap between the policy's value and V*.
            delta: probability that the claim is false.
        """
        given = checked_inputs(horizon, n_actions, n_states, log_size, epsilon, delta, LARGEST_COUNT)
        H, K, M, log_size, epsilon, delta = given.values()
        zeta = 2 * math.sqrt(M)
        rounds = H * M * math.log(6 * H * math.sqrt(M) * zeta / epsilon)  # H M L
        return cls(
            **given,
            zeta=zeta,
            phi=epsilon / (12 * H * math.sqrt(M)),
            stop=5 * epsilon / 8,
            n_est=math.ceil(32 * (math.log(6 / delta) + log_size) / epsilon**2),
            n_eval=math.ceil(288 * H**2 * math.log(12 * H * rounds / delta) / epsilon**2),
            n=math.ceil(4608 * H**2 * M * K * (math.log(12 * rounds / delta) + log_size) / epsilon**2),
            max_rounds=math.floor(rounds / math.log(5 / 3)),
            delta_est=delta / 3,
            delta_round=delta / (6 * rounds),
        )

    @property
    def one_round(self) -> int:
        """n_est + n_eval + n: what a run with one elimination plays at the least."""
        return self.n_est + self.n_eval + self.n

    @property
    def max_episodes(self) -> int:
        """n_est + max_rounds (n_eval + n): the most that a run plays; the last round needs no elimination."""
        return self.n_est + self.max_rounds * (self.n_eval + self.n) - self.n


def olive(engine: Engine, functions: FunctionClass, constants: OliveConstants, *, notify: Callback = nobody) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability 1 - delta ([JKALS17] Theorem 1).

    Args:
        engine: plays the episodes.
        functions: the class F, which should hold Q*.
        constants: the paper's numbers.
        notify: told about every estimate, evaluation and elimination.

    Raises:
        BrokenPromise: no function survives, or there were more rounds than the theorem allows.
    """
    search = OliveSearch(engine, functions, constants, notify)
    v_hat = search.estimate()  # lines 2 and 3
    for round_ in range(1, constants.max_rounds + 1):
        member = search.space.optimistic(v_hat)  # line 6
        if member is None:
            raise BrokenPromise(
                f"no function survived {round_ - 1} eliminations. Q* is not in the class, or rewards or values leave "
                f"[0, 1]; {search.chance}"
            )
        predicted = float(v_hat[member if isinstance(member, int) else member[0]])
        evaluation = search.evaluate(member, predicted)  # lines 7 and 8
        if evaluation.errors.sum() <= constants.stop:  # line 9
            return search.outcome(member, predicted, evaluation, round_)
        # Line 12. The errors sum to more than 5 epsilon / 8, so the largest of the H exceeds 5 epsilon / (8 H).
        search.eliminate(member, int(evaluation.errors.argmax()))  # lines 13 to 15
    raise BrokenPromise(
        f"{constants.max_rounds} rounds did not suffice; a Bellman rank of n_states = {constants.n_states} allows no more. "
        f"The rank is larger, or another assumption is false; {search.chance}"
    )


class Evaluation(NamedTuple):
    """What n_eval episodes of pi_f say about f."""

    errors: Floats  # [H] the average Bellman error of f at each level, along its own policy
    earned: float  # mean return of pi_f


def own_errors(steps: Sequence[Steps], f: ValueFunction) -> Evaluation:
    """Estimates f's average Bellman errors along pi_f: at level h the mean of f(x_h, a_h) - r_h - f(x_{h+1}, a_{h+1}).

    Args:
        steps: of every level, all of the same episodes of pi_f.
        f: the function.
    """
    predicted = np.array([(s.visits * f.values(h, s.x)).sum() / s.n for h, s in enumerate(steps)])
    earned = np.array([s.rewards.sum() / s.n for s in steps])
    return Evaluation(predicted - earned - np.append(predicted[1:], 0.0), float(earned.sum()))


def pair_error(functions: FunctionClass, level: int, steps: Steps, alive: Mask, next_alive: Mask | None) -> PairError:
    """Estimates the average Bellman error of every function at one level, for a roll-in policy of somebody else.

    The error of f is the mean of K 1[a = pi_f(x)] (f(x, a) - r - max_a' f(x', a')). Actions of the level were drawn
    uniformly, so a share of 1/K took the action of pi_f; the others count 0, and the factor K makes up for them.

    Args:
        functions: the class.
        level: h.
        steps: of the level, actions drawn uniformly.
        alive: `[N_h]` the members that are wanted; others get gain 0.
        next_alive: `[N_{h+1}]` the same for the next level; None at the last one.
    """
    K, n = steps.visits.shape[1], steps.n
    members = np.flatnonzero(alive)
    greedy = np.empty((len(members), len(steps.x)), dtype=np.min_scalar_type(K - 1))
    gain = np.zeros(len(alive))
    place = np.arange(len(steps.x))
    for part in _parts(len(members), len(steps.x) * K):
        values = functions.values(level, steps.x, members[part])  # [part, X, K]
        chosen = greedy_actions(values)
        greedy[part] = chosen
        weighted = steps.visits[place, chosen] * reduced(np.maximum, values) - steps.rewards[place, chosen]
        gain[members[part]] = K * (weighted.sum(axis=1) / n)
    row = np.zeros(len(alive), dtype=np.int64)
    if next_alive is None:
        return PairError(level, gain, row, np.zeros((1, 0)), None)
    policies, kind = np.unique(greedy, axis=0, return_inverse=True)
    row[members] = kind.ravel()
    return PairError(level, gain, row, _reach(policies, steps), _future(functions, level + 1, steps, next_alive))


def _reach(policies: Ints, steps: Steps) -> Floats:
    """Returns `[I, X']` K/n times how often each next observation followed where the action was that of the policy."""
    K = steps.visits.shape[1]
    where, action = steps.pair // K, steps.pair % K
    counts = [
        np.bincount(steps.next, weights=steps.moves * (policy[where] == action), minlength=len(steps.next_x))
        for policy in policies
    ]
    return K * (np.array(counts, dtype=np.float64) / steps.n)


def _future(functions: FunctionClass, level: int, steps: Steps, alive: Mask) -> Floats:
    """Returns `[N, X']` max_a f(x', a) of the living members of `level`, and 0 for the others."""
    future = np.zeros((len(alive), len(steps.next_x)))
    members = np.flatnonzero(alive)
    for part in _parts(len(members), len(steps.next_x) * functions.n_actions):
        future[members[part]] = reduced(np.maximum, functions.values(level, steps.next_x, members[part]))
    return future


def _parts(members: int, each: int) -> list[slice]:
    """Returns slices of members that take `AT_ONCE_VALUES` values at most, where each takes `each` of them."""
    step = max(1, AT_ONCE_VALUES // max(1, each))
    return [slice(first, first + step) for first in range(0, members, step)]


@dataclass
class OliveSearch:
    """The state of a run: what survives, and what was claimed with which share of delta."""

    engine: Engine
    functions: FunctionClass
    constants: OliveConstants
    notify: Callback = nobody
    space: VersionSpace = field(init=False)

    def __post_init__(self) -> None:
        self.space = version_space(self.functions)
        self._delta = Share(self.constants.delta)
        self._estimates, self._evaluations, self._eliminations = self._delta.split(1 / 3, 1 / 3, 1 / 3)

    @property
    def chance(self) -> str:
        """The words that every broken promise ends with."""
        return f"with all assumptions true this happens with probability at most {self.constants.delta:g}."

    def estimate(self) -> Floats:
        """Returns `[N_0]` the mean prediction of every member of level 0 at the root, from n_est observations."""
        c = self.constants
        moments = self.engine.ask(Query.observe((), c.n_est, purpose="estimation", phase=SEARCH)).moments[0]
        check_rounding(moments.rounding, c.epsilon / 8)
        _claim(
            self._estimates.part(c.delta_est),
            "every function's mean prediction at the root is estimated up to epsilon/8",
            c.n_est,
            c.epsilon / 8,
        )
        size, largest = self.space.log_size, float(moments.v_mean.max())
        self._tell(ValuesEstimated(phase=SEARCH, n=c.n_est, log_size_before=size, log_size_after=size, largest=largest))
        return moments.v_mean

    def evaluate(self, member: Member, predicted: float) -> Evaluation:
        """Plays a survivor's policy n_eval times and returns the survivor's own Bellman errors."""
        c = self.constants
        f = self.functions.member(member)
        wanted = tuple(LevelSteps(h, moves=False) for h in range(c.horizon))
        answer = self.engine.ask(Query(Greedy(f), c.n_eval, "evaluation", SEARCH, steps=wanted))
        evaluation = own_errors(answer.steps, f)
        _claim(
            self._evaluations.part(c.delta_round),
            "the candidate's average Bellman error is estimated up to epsilon/(8H) at every level",
            c.n_eval,
            c.epsilon / (8 * c.horizon),
        )
        size = self.space.log_size
        self._tell(
            CandidateEvaluated(
                phase=SEARCH,
                n=c.n_eval,
                log_size_before=size,
                log_size_after=size,
                value=predicted,
                earned=evaluation.earned,
                total=float(evaluation.errors.sum()),
                stop=c.stop,
            )
        )
        return evaluation

    def eliminate(self, member: Member, level: int) -> None:
        """Drops functions whose error at `level` exceeds phi, where a survivor's policy leads to that level."""
        c = self.constants
        last = level == c.horizon - 1
        policy = Switch(Greedy(self.functions.member(member)), level, Uniform(c.n_actions))
        wanted = (LevelSteps(level, moves=not last),)
        # Departs from the paper: episodes end once what follows the level is seen; nothing later is looked at.
        query = Query(policy, c.n, "elimination", SEARCH, levels=level + 2 - last, steps=wanted)
        (steps,) = self.engine.ask(query).steps
        next_alive = None if last else self.space.alive(level + 1)
        error = pair_error(self.functions, level, steps, self.space.alive(level), next_alive)
        done = self.space.keep_within(error, c.phi)
        _claim(
            self._eliminations.part(c.delta_round),
            f"every function's average Bellman error at level {level} is estimated up to phi",
            c.n,
            c.phi,
        )
        self._tell(
            LevelEliminated(
                phase=SEARCH,
                n=c.n,
                log_size_before=done.log_size_before,
                log_size_after=done.log_size_after,
                tested=level,
                least=done.least,
                phi=c.phi,
            )
        )

    def outcome(self, member: Member, predicted: float, evaluation: Evaluation, rounds: int) -> Outcome:
        """Returns the answer: the policy of a survivor whose errors sum to little."""
        c = self.constants
        rank = f"the Bellman rank is at most {c.n_states} (as where no level has more hidden states)"
        wording = partial(claim_words, c.delta, assumptions=(REALIZABLE, rank), sampling=self.engine.ledger.assumes)
        return Outcome(
            policy=LearnedPolicy(self.functions, member),
            claim=wording(epsilon=c.epsilon),
            wording=wording,
            learner="olive",
            epsilon=c.epsilon,
            delta=c.delta,
            reason=StopReason.NEAR_OPTIMAL,
            value_hat=evaluation.earned,
            v_star_hat=predicted,
            log_size=self.space.log_size,
            rounds=rounds,
            claims=self._delta.claims(),
            constants=c,
        )

    def _tell(self, event: Event) -> None:
        self.notify(Progress(event, self.engine.ledger.total))


def _claim(share: Share, what: str, n: int, value: float) -> None:
    """Spends a share on one event of the union bound and writes down which."""
    share.spend()
    share.claim(what, (), n, value)


@event("olive", "estimation", "what does every function predict at the root?", "largest prediction")
class ValuesEstimated(Event):
    """The value that every function predicts at the root was estimated (Algorithm 1, lines 2 and 3)."""

    largest: float

    def said(self) -> Said:
        """Returns the largest prediction."""
        sentence = f"predictions at the root were estimated: the largest is {self.largest:.4g}"
        return Said("estimated", sentence, self.largest)


@event(
    "olive",
    "evaluation",
    "does the most optimistic survivor predict what its own policy earns?",
    "sum of its Bellman errors",
    "largest sum that ends the run",
)
class CandidateEvaluated(Event):
    """The policy of the most optimistic survivor was played (Algorithm 1, lines 6 to 9)."""

    value: float  # that the survivor predicts at the root
    earned: float  # by its policy
    total: float
    stop: float

    def said(self) -> Said:
        """Returns whether the run ends with this policy."""
        verdict = "near-optimal" if self.total <= self.stop else "failed"
        sentence = f"a policy predicted to earn {self.value:.4g} earned {self.earned:.4g}: {verdict}"
        return Said(verdict, sentence, self.total, self.stop)


@event(
    "olive",
    "elimination",
    "which functions have a Bellman error of about 0 at this level?",
    "smallest error",
    "largest error that survives",
)
class LevelEliminated(Event):
    """Functions were tested at one level, under the candidate's policy (Algorithm 1, lines 12 to 15)."""

    tested: int  # the level
    least: float
    phi: float

    def said(self) -> Said:
        """Returns whether any function was eliminated."""
        verdict = "dropped" if self.log_size_after < self.log_size_before else "none dropped"
        sentence = f"functions were tested at level {self.tested}: {verdict}"
        return Said(verdict, sentence, self.least, self.phi, level=self.tested)


class Olive(PrintedLearner):
    """OLIVE as printed, at its own constants."""

    name = "olive"
    about = "OLIVE as printed, at its own constants: transitions may be random, every sample size is fixed in advance."
    cites = "Jiang, Krishnamurthy, Agarwal, Langford and Schapire 2017, Algorithm 1"
    given = ("class of value functions", "horizon", "number of states")
    needs = (unit_rewards, N_STATES)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.",
        (
            "Q* is in the class, so the best value of an action depends on what is seen, not on what was seen before",
            "the Bellman rank is at most n_states, which holds where there are at most n_states hidden states a level",
            "rewards are nonnegative with totals at most 1, and every function's values lie in [0, 1]",
        ),
    )
    costs = "10^8 to 10^15 episodes, drawn as counts where the process is written down: M^2 H^3 K / epsilon^2 log N."
    bounded = "Bellman rank"
    Constants = OliveConstants
    traits = Traits(counts=True, level_work=4_000)

    def least(self, problem: Problem, settings: Settings) -> tuple[int, str]:
        """Returns what a run with one elimination plays."""
        least = self.constants(problem, settings).one_round
        return least, f"OLIVE as printed asks for {least:.3g} episodes here until its first elimination is done"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns every sample size, and the worst case they add up to."""
        return olive_plan(self.constants(problem, settings))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        return olive(engine, problem.functions, self.constants(problem, settings), notify=notify)


def olive_plan(c: OliveConstants) -> ShortPlan:
    """Returns the plan that follows from the constants."""
    H, K, M = c.horizon, c.n_actions, c.n_states
    given, sizes, episodes, worst = "asked for", "thresholds", "sample sizes", "worst case"
    order = M**2 * H**3 * K / c.epsilon**2 * (c.log_size + math.log(c.zeta / c.delta))
    return ShortPlan(
        "olive: the paper as printed, every size fixed in advance",
        c.max_episodes,
        (
            PlanRow(given, "H, K, M", H, f"levels, {K} actions, a Bellman rank of at most {M}", ""),
            PlanRow(given, "log10 N", c.log_size / math.log(10), "functions, as a power of ten", ""),
            PlanRow(sizes, "phi", c.phi, "value", "epsilon / (12 H sqrt M), largest error that survives"),
            PlanRow(sizes, "stop", c.stop, "value", "5 epsilon / 8, largest sum of errors that ends the run"),
            PlanRow(episodes, "n_est", c.n_est, "episodes, once", "32 log(6N/delta) / epsilon^2"),
            PlanRow(episodes, "n_eval", c.n_eval, "episodes a round", "288 H^2 log(12 H^2 M L/delta) / epsilon^2"),
            PlanRow(episodes, "n", c.n, "episodes per elimination", "4608 H^2 M K log(12 N H M L/delta) / epsilon^2"),
            PlanRow(worst, "rounds", c.max_rounds, "rounds", "H M L / log(5/3), L = log(6 H sqrt(M) zeta/epsilon)"),
            PlanRow(worst, "in all", c.max_episodes, "episodes", "n_est + rounds (n_eval + n) - n"),
            PlanRow(
                "orders, constants left out", "Theorem 1", order, "episodes", "M^2 H^3 K / eps^2 log(N zeta/delta)"
            ),
        ),
    )
