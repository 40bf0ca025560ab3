"""EPRL (Tirinzoni, Al-Marjani and Kaufmann 2022): drop pairs that no good path passes, and cover what is left evenly.

Near instance-optimal PAC reinforcement learning for deterministic MDPs, NeurIPS, Algorithm 1 with the maximum-coverage
sampling rule. It is given the transitions, which are deterministic, and learns the rewards. A pair (level, state, action) is
dropped when the best path through it is surely worse than some path. In period k it plays paths until every pair that is
left has k visits; each path passes as many pairs with fewer as any path can. Shapes: S states of a level, K actions.

Two readings from memory. Intervals for mean rewards are Chernoff's for rewards in [0, 1], kl(mean, bound) at most
log(2 P pi^2 n^2 / (6 delta)) / n for P pairs and n visits; the paper's are mean +- sqrt(beta(n, delta) / n) for sub-Gaussian
rewards, never narrower with the same beta/2. And it stops when the largest sum of upper ends on a path that is left exceeds
the largest sum of lower ends by at most epsilon, or when one path is left; the answer is the path of the largest sum of
lower ends. The best path is never dropped while all intervals hold, so its value is at most the former sum, and the answer's
value is at least the latter. (Sums of widths would not do, because these intervals are not symmetric about the means.)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from richobs import LearnedPolicy, OpenLoop, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, LevelSteps, Query
from richobs.core.types import Floats, Mask, Path
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs.stats.bets import kl_upper
from richobs_lab.rivals.base import BEST_SEQUENCE, Rival, near_optimal
from richobs_lab.rivals.latent_states import KNOWN_MOVES, Moves, moves_of
from richobs_lab.rivals.rival_events import Rounds, tell_nobody

PERIOD_GROWTH = 1 / 8  # visits of a period exceed those of the one before by at least this share


class Found(NamedTuple):
    """What EPRL answers."""

    path: Path
    value_hat: float
    finished: bool  # by its own rule
    remarks: tuple[str, ...] = ()


def forwards(moves: Moves, gains: Sequence[Floats], active: Sequence[Mask]) -> list[Floats]:
    """Returns per level `[S]` the largest sum of gains of a path to each state; minus infinity where none leads."""
    here = np.full(moves.sizes[0], -np.inf)
    here[moves.start] = 0.0
    sums = [here]
    for level, there in enumerate(moves.next):
        through = np.where(active[level], here[:, None] + gains[level], -np.inf)
        here = np.full(moves.sizes[level + 1], -np.inf)
        np.maximum.at(here, there.ravel(), through.ravel())
        sums.append(here)
    return sums


def backwards(moves: Moves, gains: Sequence[Floats], active: Sequence[Mask]) -> list[Floats]:
    """Returns per level `[S, K]` the largest sum of gains from each pair on; minus infinity where it is not active."""
    sums: list[Floats] = []
    for level in reversed(range(len(gains))):
        later = sums[0].max(axis=1)[moves.next[level]] if sums else 0.0
        sums.insert(0, np.where(active[level], gains[level] + later, -np.inf))
    return sums


def best_path(moves: Moves, gains: Sequence[Floats], active: Sequence[Mask]) -> tuple[Path, float]:
    """Returns the path of active pairs with the largest sum of gains, and the sum."""
    sums = backwards(moves, gains, active)
    return moves.path([q.argmax(axis=1) for q in sums]), float(sums[0][moves.start].max())


class Rewards:
    """Visits and rewards of every pair, and which pairs are left."""

    def __init__(self, moves: Moves, n_actions: int, delta: float):
        """Starts with all pairs that some path passes.

        Args:
            moves: the transitions.
            n_actions: K.
            delta: probability that some interval fails.
        """
        self.moves = moves
        shapes = [(size, n_actions) for size in moves.sizes]
        self.visits = [np.zeros(shape) for shape in shapes]
        self.sums = [np.zeros(shape) for shape in shapes]
        everything = [np.ones(shape, dtype=bool) for shape in shapes]
        reach = forwards(moves, self.visits, everything)
        self.active = [np.isfinite(r)[:, None] & e for r, e in zip(reach, everything, strict=True)]
        self.pairs = self.left
        self._delta = delta

    @property
    def left(self) -> int:
        """How many pairs are left."""
        return sum(int(a.sum()) for a in self.active)

    def intervals(self) -> tuple[list[Floats], list[Floats]]:
        """Returns per level `[S, K]` the lower and upper ends for mean rewards; 0 and 1 where nothing was seen."""
        low, high = [], []
        for visits, sums in zip(self.visits, self.sums, strict=True):
            n = np.maximum(visits, 1)
            mean = np.clip(sums / n, 0.0, 1.0)
            rate = np.log(2 * self.pairs * math.pi**2 * n**2 / (6 * self._delta)) / n
            low.append(np.where(visits > 0, 1 - kl_upper(1 - mean, rate), 0.0))
            high.append(np.where(visits > 0, kl_upper(mean, rate), 1.0))
        return low, high

    def means(self) -> list[Floats]:
        """Returns per level `[S, K]` the mean rewards; 0 where nothing was seen."""
        return [s / np.maximum(v, 1) for s, v in zip(self.sums, self.visits, strict=True)]

    def drop(self) -> None:
        """Drops the pairs all of whose paths are surely worse than some path."""
        low, high = self.intervals()
        _, bar = best_path(self.moves, low, self.active)
        before, after = forwards(self.moves, high, self.active), backwards(self.moves, high, self.active)
        self.active = [a & (b[:, None] + q >= bar) for a, b, q in zip(self.active, before, after, strict=True)]

    def gap(self) -> tuple[float, Path]:
        """Returns how much better than the surest path any path may be, and that path: its lower ends sum to the most."""
        low, high = self.intervals()
        path, least = best_path(self.moves, low, self.active)
        return best_path(self.moves, high, self.active)[1] - least, path

    @property
    def one_path(self) -> bool:
        """Whether a single path is left."""
        return all(int(a.sum()) == 1 for a in self.active)


def eprl(
    engine: Engine,
    moves: Moves,
    n_actions: int,
    *,
    epsilon: float,
    delta: float,
    notify: Callback = tell_nobody,
) -> Found:
    """Plays paths until one is surely within epsilon of the best.

    Departs from the paper in that periods ask for k = 1, 2, 3, ... visits at first and then for an eighth more each, so
    that a path is played several times in one query. Intervals hold for all numbers of visits at once.

    Args:
        engine: plays; where its ledger allows no more episodes, the best path so far is the answer.
        moves: the transitions.
        n_actions: K.
        epsilon: largest allowed gap between the path's value and the best path's.
        delta: probability that the gap is larger.
        notify: told about rounds.
    """
    known = Rewards(moves, n_actions, delta)

    def policy() -> LearnedPolicy:
        return LearnedPolicy.open_loop(best_path(moves, known.means(), known.active)[0], n_actions)

    rounds = Rounds(engine, notify, policy)
    H, k = len(moves.sizes), 0

    def words() -> str:
        return f"{known.left:,} of {known.pairs:,} pairs of latent state and action are left"

    while not (known.one_path or known.gap()[0] <= epsilon):
        k = max(k + 1, int(k * (1 + PERIOD_GROWTH)))
        while True:
            short = [(a & (v < k)).astype(np.float64) for a, v in zip(known.active, known.visits, strict=True)]
            path, covered = best_path(moves, short, known.active)
            if covered == 0:
                break
            places = list(zip(range(H), moves.states(path), path, strict=True))
            n = int(min(k - known.visits[h][s, a] for h, s, a in places if known.visits[h][s, a] < k))
            wanted = tuple(LevelSteps(level, moves=False) for level in range(H))
            try:
                answer = engine.ask(Query(OpenLoop(path), n, "coverage", steps=wanted))
            except EpisodeLimit as limit:
                chosen, value = best_path(moves, known.means(), known.active)
                return Found(chosen, value, False, (str(limit),))
            earned = [float(steps.rewards.sum()) for steps in answer.steps]
            for (h, s, a), total in zip(places, earned, strict=True):
                known.visits[h][s, a] += n
                known.sums[h][s, a] += total
            rounds.add(n, math.fsum(earned), words)
        known.drop()
    rounds.close(words())
    path, means = known.gap()[1], known.means()
    value = math.fsum(float(means[h][s, a]) for h, s, a in zip(range(H), moves.states(path), path, strict=True))
    return Found(path, value, True)


class Eprl(Rival):
    """EPRL as a learner."""

    name = "eprl"
    about = "EPRL: drops pairs of state and action that no good path passes, and covers the others evenly."
    cites = "Tirinzoni, Al-Marjani and Kaufmann 2022, Algorithm 1, maximum coverage"
    given = ("TRANSITIONS between latent states, which are deterministic", "number of states", "horizon")
    needs = (unit_rewards, KNOWN_MOVES)
    promises = Promise(
        "When it stops by its own rule: with probability 1 - delta the policy, an action sequence, has a value within "
        "epsilon of V*.",
        (
            "transitions are deterministic and as it was told",
            "the best action depends on the state alone; otherwise the best action sequence takes the place of the best "
            "policy",
        ),
    )
    costs = "About 1/max(gap, epsilon)^2 visits of every pair that a good path passes, of order H^2/epsilon^2 at most."
    traits = Traits(near_best_sequence=True, counts=True)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the pairs; how many episodes they need depends on the gaps."""
        known = Rewards(moves_of(problem), problem.n_actions, settings.delta)
        lines = (PlanRow("EPRL", "pairs", known.pairs, "pairs", "(level, state, action) that some path passes"),)
        return ShortPlan("EPRL", None, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        moves, K = moves_of(problem), problem.n_actions
        found = eprl(engine, moves, K, epsilon=settings.epsilon, delta=settings.delta, notify=notify)
        wording = near_optimal(settings, engine.ledger, BEST_SEQUENCE)
        return self.answer(
            LearnedPolicy.open_loop(found.path, K),
            settings,
            "the episodes allowed were spent before one path was known to be good.",
            finished=found.finished,
            wording=wording,
            remarks=found.remarks,
            value_hat=found.value_hat,
        )
