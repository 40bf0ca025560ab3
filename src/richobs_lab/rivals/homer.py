"""After HOMER (Misra, Henaff, Krishnamurthy and Langford 2020): kinematic state abstraction, fitted by an SVD.

Kinematic state abstraction and provably efficient rich-observation reinforcement learning, ICML. Level by level it learns to
tell real transitions (x, a, x') from impostors, whose x' comes from another episode. Next observations that no (x, a) tells
apart are one abstract state. The paper trains a network with a bottleneck for that; here a singular value decomposition is
fitted, so this is HOMER-like and not HOMER. For each state it learns a policy by PSDP that reaches it, and with these
policies the policy that earns most. Shapes: n transitions, D coordinates of an observation, K actions, N abstract states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from richobs import (
    Episodes,
    InvalidInput,
    LearnedPolicy,
    LevelClass,
    Outcome,
    Problem,
    Settings,
    Switch,
    Uniform,
)
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.base import PlanRow, Promise, ShortPlan
from richobs_lab.rivals.base import require_at_least
from richobs_lab.rivals.decoding import (
    STATES_KNOWN,
    Decoder,
    DecodingRival,
    greedy_level,
    k_means,
    least_squares,
    n_states_of,
    play,
    policy_of,
    shares,
    steps_at,
    tell,
)
from richobs_lab.rivals.embeddings import DIGITS, Embedding, Features, rounded
from richobs_lab.rivals.rival_events import tell_nobody

SAMPLES_EACH, SEARCH_EACH, PLANNING_EACH = (
    100,
    40,
    100,
)  # episodes for each pair of state and action, where nothing else is said
MOST_FEATURES = 4_000  # of (x, a) or of x': their squares must fit into memory
SMALL = 1e-8  # eigenvalues below this part of the largest are 0

Levels = tuple[LevelClass, ...]  # a policy of the first levels: one function each


def contrast(x: Observations, actions: Ints, next_x: Observations, n_actions: int, rank: int) -> Embedding:
    """Returns an embedding of next observations in which distance is how well transitions tell them apart.

    The paper's classifier f(x, a, x') of real against impostor has the best value g/(1 + g), where g is the ratio of the
    probabilities of (x, a, x') among real transitions and among impostors. Here g is bilinear in the features of (x, a) and
    of x', of rank N at most, and fitted by least squares with every x' as the impostor of every (x, a): the loss then needs
    no pairs but three matrices of moments, and its minimum is a singular value decomposition. The embedding of x' is such
    that the distance of two is the mean squared difference of g(., ., x') over all (x, a), under a root.

    Args:
        x: `[n, ...]` what was seen.
        actions: `[n]` what was done, at random.
        next_x: `[n, ...]` what was seen next.
        n_actions: K.
        rank: N.
    """
    features, here = Features.of(next_x), Features.of(x)(x)
    if max(n_actions * here.shape[1], features.size) > MOST_FEATURES:
        raise InvalidInput(
            f"this HOMER-like method compares all pairs of a feature before and one after, at most {MOST_FEATURES:,} on "
            f"each side; got {n_actions} actions times {here.shape[1]:,} features, and "
            f"{features.size:,}. Give it smaller observations."
        )
    before = (here[:, None, :] * np.eye(n_actions)[actions][:, :, None]).reshape(len(x), -1)  # [n, K (1 + D)]
    after = features(next_x)
    left, right = _inverse_root(before.T @ before / len(x)), _inverse_root(after.T @ after / len(x))
    _, sizes, axes = np.linalg.svd(left @ (before.T @ after / len(x)) @ right, full_matrices=False)
    kept = min(rank, len(sizes))
    return Embedding(features, rounded(right @ (axes[:kept] * sizes[:kept, None]).T))


def _inverse_root(matrix: Floats) -> Floats:
    """Returns the inverse of the root of a symmetric matrix, 0 where its eigenvalues are."""
    values, vectors = np.linalg.eigh(matrix)
    inverse = np.where(values > SMALL * values[-1], 1 / np.sqrt(np.maximum(values, SMALL * values[-1])), 0.0)
    return np.asarray((vectors * inverse) @ vectors.T)


def action_values(x: Observations, actions: Ints, y: Floats, n_actions: int) -> Embedding:
    """Returns K linear functions of an observation: what each action leads to, by least squares for each action.

    Args:
        x: `[n, ...]` what was seen.
        actions: `[n]` what was done, at random.
        y: `[n]` what came of it.
        n_actions: K.
    """
    features = Features.of(x)
    phi = features(x)
    weights = np.zeros((phi.shape[1], n_actions))
    for action in range(n_actions):
        mine = actions == action
        if mine.any():
            weights[:, action] = least_squares(phi[mine], y[mine, None])[:, 0]
    return Embedding(features, weights)


@dataclass(frozen=True)
class HomerTuning:
    """The numbers of the HOMER-like method that can be chosen."""

    samples: int = 0
    """Transitions of each level for its abstract states; 0 means 100 for every pair of state and action."""
    search: int = 0
    """Episodes of each step of PSDP that looks for a policy to reach a state; 0 means 40 for every such pair."""
    planning: int = 0
    """Episodes of each step of PSDP for the rewards; 0 means 100 for every such pair."""
    states: int = 0
    """Number of abstract states of a level at most; 0 means the number that the problem states."""
    planner: Literal["psdp", "greedy"] = "psdp"
    """How a state is reached: PSDP, or one more step behind the best policy of the level before, without episodes."""
    least: int = 30
    """Observations that an abstract state must have; with fewer, fewer states are made."""

    def __post_init__(self) -> None:
        require_at_least(0, samples=self.samples, search=self.search, planning=self.planning, states=self.states)
        require_at_least(1, least=self.least)


class Homer(DecodingRival):
    """A HOMER-like method as a learner."""

    name = "homer"
    about = (
        "HOMER-like, an SVD in place of its network: tells real transitions from impostors, learns to reach each state."
    )
    cites = "after Misra, Henaff, Krishnamurthy and Langford 2020, Algorithms 1 to 3"
    given = ("horizon", "number of states", "tuned sample size")
    needs = (STATES_KNOWN,)
    promises = Promise(
        "With the paper's sample sizes, policies that reach every state and a near-optimal policy with probability "
        "1 - delta; with tuned sample sizes nothing.",
        (
            "each observation tells its state",
            "rewards depend on state and action alone",
            "every state can be reached with some least probability, and the regressions can express what they should",
        ),
    )
    costs = (
        "H times `samples` and `planning`, and N H^2/2 times `search` episodes for N states of a level; the planner "
        "'greedy' needs none of the last."
    )
    Tuning = HomerTuning
    theorem = "the theorem on HOMER is about a network and other sample sizes, not this SVD and the tuned ones played"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play at most."""
        tuning: HomerTuning = self.tuning(settings)
        H, N = problem.horizon, n_states_of(problem, tuning.states)
        pairs = N * problem.n_actions
        samples, search = tuning.samples or SAMPLES_EACH * pairs, tuning.search or SEARCH_EACH * pairs
        planning = tuning.planning or PLANNING_EACH * pairs
        steps = N * (H - 1) * (H - 2) // 2 if tuning.planner == "psdp" else 0
        lines = (
            PlanRow("HOMER-like", "samples", samples, "episodes", f"of each level: tuned, or {SAMPLES_EACH} N K"),
            PlanRow(
                "HOMER-like", "search", search, "episodes", f"of each PSDP step to a state: tuned, or {SEARCH_EACH} N K"
            ),
            PlanRow(
                "HOMER-like", "planning", planning, "episodes", f"of each PSDP step for rewards: or {PLANNING_EACH} N K"
            ),
            PlanRow("HOMER-like", "states", N, "", "of a level at most"),
        )
        return ShortPlan("HOMER-like", (H - 1) * samples + steps * search + H * planning, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        samples, search, planning, N = (int(row.value) for row in self.plan(problem, settings).lines)
        tuning: HomerTuning = self.tuning(settings)
        learned = Abstraction(engine, problem.horizon, problem.n_actions, seed=settings.seed, notify=notify)
        value_hat, finished = None, True
        try:
            for _ in range(problem.horizon - 1):
                learned.next_level(samples, search, N, tuning)
            value_hat = learned.plan(planning)
        except EpisodeLimit:
            finished = False
        return self.decoded(learned.policy(), settings, finished=finished, value_hat=value_hat)


class Abstraction:
    """What the HOMER-like method has learned so far: abstract states of every level, and policies that reach them."""

    def __init__(self, engine: Engine, horizon: int, n_actions: int, *, seed: int = 0, notify: Callback = tell_nobody):
        """Begins at level 0, where nothing has to be reached.

        Args:
            engine: plays; `EpisodeLimit` is raised where its ledger allows no more episodes.
            horizon: number of levels H.
            n_actions: K.
            seed: of starts of clusters.
            notify: told about every level.
        """
        self.engine, self.horizon, self.n_actions, self.seed, self.notify = engine, horizon, n_actions, seed, notify
        self.decoders: list[Decoder] = [Decoder()]
        self.covers: list[list[Levels]] = [[()]]  # per level, policies that reach its abstract states
        self.planned: Levels = ()  # functions of the last levels, greedy for the rewards

    def policy(self) -> LearnedPolicy:
        """Returns the policy for the rewards, as far as it is known; action 0 at the levels before."""
        return policy_of(self.planned, self.horizon, self.n_actions, first=self.horizon - len(self.planned))

    def roll(self, level: int, n: int, then: Levels, purpose: str, levels: int) -> list[Episodes]:
        """Plays n episodes: every policy of a level's cover equally often, one random action, then `then`.

        Args:
            level: of the random action.
            n: number of episodes.
            then: functions of the levels behind it.
            purpose: what the episodes are for.
            levels: number of levels to play.

        Returns:
            The episodes of each policy of the cover.
        """
        H, K = self.horizon, self.n_actions
        act = Switch(Uniform(K), level + 1, policy_of(then, H, K, first=level + 1))
        cover = self.covers[level]
        return [
            play(self.engine, Switch(policy_of(rolled, H, K), level, act), size, purpose, levels)
            for rolled, size in zip(cover, shares(n, len(cover)), strict=True)
        ]

    def next_level(self, samples: int, search: int, n_states: int, tuning: HomerTuning) -> None:
        """Learns the abstract states of the next level and a policy for each (Algorithm 1).

        Args:
            samples: transitions that tell states apart.
            search: episodes of each step of PSDP.
            n_states: abstract states at most.
            tuning: planner and clusters.
        """
        level = len(self.decoders)  # whose states are learned
        parts = self.roll(level - 1, samples, (), f"states of level {level}", level + 1)
        batch = steps_at(level - 1, Episodes.concatenate(parts))
        assert batch.next_x is not None
        g = contrast(batch.x, batch.actions, batch.next_x, self.n_actions, n_states)
        rng = keyed_generator(self.seed, "homer", level)
        decoder = Decoder(g, k_means(g(batch.next_x), n_states, tuning.least, rng))
        states = decoder.states(batch.next_x)
        earned, n = batch.earned, len(batch.actions)
        cover: list[Levels] = []
        for state in range(decoder.n_states):
            # The episodes that made the states also serve as the first step of PSDP, at the level before.
            last = action_values(batch.x, batch.actions, (states == state).astype(np.float64), self.n_actions)
            if tuning.planner == "greedy":
                cover.append((*self._most_likely(parts, level - 1, last), greedy_level(last)))
                continue
            levels: Levels = (greedy_level(last),)
            for t in reversed(range(level - 1)):
                played = Episodes.concatenate(
                    self.roll(t, search, levels, f"state {state} of level {level}", level + 1)
                )
                reached = (decoder.states(played.observations[level]) == state).astype(np.float64)
                values = action_values(played.observations[t], played.actions[t], reached, self.n_actions)
                levels = (greedy_level(values), *levels)
                earned, n = earned + float(played.returns.sum()), n + played.n
            cover.append(levels)
        self.decoders.append(decoder)
        self.covers.append(cover)
        S = decoder.n_states
        tell(self.notify, self.engine, n, earned, f"found {S} state{'' if S == 1 else 's'} of level {level}")

    def _most_likely(self, parts: Sequence[Episodes], level: int, values: Embedding) -> Levels:
        """Returns the policy of a level's cover behind which the best action leads most probably to a state.

        Args:
            parts: episodes of each policy of the cover.
            level: of the cover.
            values: the probability with which each action leads there.
        """
        means = [float(values(part.observations[level]).max(axis=1).mean()) for part in parts]
        return self.covers[level][int(np.argmax(np.round(means, DIGITS)))]

    def plan(self, planning: int) -> float:
        """Learns by PSDP, from the last level back, the policy that earns most.

        Args:
            planning: episodes of each level.

        Returns:
            What the regression of level 0 says that the policy earns.
        """
        worth = 0.0
        for t in reversed(range(self.horizon)):
            purpose = f"rewards from level {t} on"
            played = Episodes.concatenate(self.roll(t, planning, self.planned, purpose, self.horizon))
            later = np.stack(played.rewards[t:]).sum(axis=0)
            values = action_values(played.observations[t], played.actions[t], later, self.n_actions)
            self.planned = (greedy_level(values), *self.planned)
            worth = float(values(played.observations[t]).max(axis=1).mean())
            earned = float(played.returns.sum())
            tell(self.notify, self.engine, played.n, earned, f"actions of level {t} for the rewards")
        return worth
