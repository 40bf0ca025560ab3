"""Arms to pull: what best-arm methods see, and the bandit that an environment is when only action sequences matter."""

import math
from abc import abstractmethod
from typing import NamedTuple, Protocol

import numpy as np

from richobs import LearnedPolicy, OpenLoop, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Path
from richobs.learners.base import Need, Promise, Traits, unit_rewards
from richobs_lab.rivals.base import BEST_SEQUENCE, Rival, near_optimal
from richobs_lab.rivals.rival_events import Rounds

MOST_ARMS = 10**6
GROWTH = 4  # pulls of an arm so far grow by this factor from one round to the next


class Pulled(NamedTuple):
    """What came of pulling some arms."""

    pulls: Ints  # [n] how often each was pulled: less than asked for where the arms ran out
    sums: Floats  # [n] the sum of its rewards


class Arms(Protocol):
    """Arms with rewards in [0, 1]."""

    @property
    def n_arms(self) -> int:
        """How many there are."""
        ...

    def pull(self, which: Ints, times: int, rng: np.random.Generator, /) -> Pulled:
        """Pulls each of the arms `which` `[n]`, all different, so many times."""
        ...


class Choice(NamedTuple):
    """What a best-arm method answers."""

    arm: int
    pulls: int
    finished: bool  # by its own rule, rather than because the pulls were spent
    mean: float  # reward of the arm; minus infinity where it was never pulled


class PathArms:
    """The K^H action sequences of an environment as arms: the bandit of [KAL16] Appendix A, "The construction"."""

    def __init__(self, engine: Engine, horizon: int, n_actions: int, rounds: Rounds):
        """Takes what plays them.

        Args:
            engine: plays the episodes; where its ledger allows no more, the arms have run out.
            horizon: H.
            n_actions: K.
            rounds: told about all pulls.
        """
        self.n_arms = n_actions**horizon
        self._shape = (n_actions,) * horizon
        self._engine, self._rounds = engine, rounds

    def pull(self, which: Ints, times: int, rng: np.random.Generator, /) -> Pulled:
        """Plays the action sequence of each arm so many times; all randomness is the engine's."""
        pulled = Pulled(np.zeros(len(which), dtype=np.int64), np.zeros(len(which)))
        for i, arm in enumerate(which.tolist()):
            try:
                answer = self._engine.ask(Query.rollout(OpenLoop(self.path(arm)), times, purpose="pull"))
            except EpisodeLimit:
                break
            pulled.pulls[i] = times
            pulled.sums[i] = answer.returns.mean * times
            self._rounds.add(times, float(pulled.sums[i]), lambda: f"{len(which):,} action sequences are candidates")
        return pulled

    def path(self, arm: int) -> Path:
        """Returns the action sequence of an arm; arms are numbered in lexicographic order."""
        return tuple(int(a) for a in np.unravel_index(arm, self._shape))


class Scores:
    """Pulls and rewards of every arm so far, within a budget."""

    def __init__(self, arms: Arms, budget: int | None, rng: np.random.Generator):
        """Starts with no pulls.

        Args:
            arms: what is pulled.
            budget: most pulls; None where there is no limit.
            rng: of pulls and ties.
        """
        self.arms, self.rng = arms, rng
        self.left = budget
        self.pulls = np.zeros(arms.n_arms, dtype=np.int64)
        self.sums = np.zeros(arms.n_arms)

    def pull(self, which: Ints, times: int = 1) -> bool:
        """Pulls each arm of `which` so often; returns False if budget or arms only lasted for a part of that."""
        if self.left is None or len(which) * times <= self.left:
            return self._pull(which, times)
        rounds, rest = divmod(self.left, len(which))  # whole rounds first, then a random part of one
        self._pull(which, rounds)
        self._pull(self.rng.permutation(which)[:rest], 1)
        return False

    def pull_in_rounds(self, which: Ints, times: int) -> bool:
        """Pulls as `pull` does, in rounds that grow: all arms have had about the same pulls wherever budget or arms end."""
        so_far = 0
        while so_far < times:
            n = min(times - so_far, max(1, (GROWTH - 1) * so_far))
            if not self.pull(which, n):
                return False
            so_far += n
        return True

    def _pull(self, which: Ints, times: int) -> bool:
        if times == 0 or len(which) == 0:
            return True
        pulled = self.arms.pull(which, times, self.rng)
        self.pulls[which] += pulled.pulls
        self.sums[which] += pulled.sums
        if self.left is not None:
            self.left -= int(pulled.pulls.sum())
        return bool((pulled.pulls == times).all())

    def means(self, which: Ints) -> Floats:
        """Returns `[n]` the mean reward of each arm of `which`; minus infinity where it was never pulled."""
        pulls = self.pulls[which]
        return np.where(pulls > 0, self.sums[which] / np.maximum(pulls, 1), -np.inf)

    def best(self, which: Ints, *, finished: bool) -> Choice:
        """Returns the arm of `which` with the highest mean; ties are broken at random."""
        means = self.means(which)
        best = int(self.rng.choice(which[means == means.max()]))
        return Choice(best, int(self.pulls.sum()), finished, float(means.max()))


def _too_many(problem: Problem, settings: Settings) -> str | None:
    sequences = problem.n_actions**problem.horizon
    if sequences <= MOST_ARMS:
        return None
    return f"{problem.name} has {problem.n_actions}^{problem.horizon} of them."


class BestArmLearner(Rival):
    """A best-arm method as a learner: the arms are the action sequences of the problem."""

    given = ("horizon",)
    needs = (
        unit_rewards,
        Need(f"at most {MOST_ARMS:,} action sequences", _too_many),
    )
    promises = Promise(
        "When it stops by its own rule: with probability 1 - delta the policy, an action sequence, has a value within "
        "epsilon of V*.",
        (
            "some action sequence is optimal, as where the same actions lead to the same state and the best action "
            "depends on the state alone; otherwise the best action sequence takes the place of the best policy",
        ),
    )
    traits = Traits(near_best_sequence=True, counts=True)

    @abstractmethod
    def choose(self, arms: Arms, settings: Settings, rng: np.random.Generator) -> Choice:
        """Returns the answer of the method."""

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        rounds = Rounds(engine, notify)
        arms = PathArms(engine, problem.horizon, problem.n_actions, rounds)
        choice = self.choose(arms, settings, keyed_generator(settings.seed, self.name, "ties"))
        path = arms.path(choice.arm)
        if choice.finished:
            rounds.tell(f"the sequence {' '.join(map(str, path))} is the answer")
        wording = near_optimal(settings, engine.ledger, BEST_SEQUENCE)
        return self.answer(
            LearnedPolicy.open_loop(path, problem.n_actions),
            settings,
            "the episodes allowed were spent before one action sequence was known to be good.",
            finished=choice.finished,
            wording=wording,
            value_hat=choice.mean if math.isfinite(choice.mean) else None,
        )
