"""What learners that decode states share: regressions on observations, clusters, covers of policies, and their claims.

Shapes: n episodes or observations, D coordinates of an observation, M labels or coordinates of an embedding, S learned
states of a level, K actions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from richobs import (
    Constants,
    Episodes,
    Layered,
    LearnedPolicy,
    LevelClass,
    Outcome,
    Policy,
    Problem,
    Progress,
    Settings,
)
from richobs.core.errors import Rejected
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.base import Need, Traits
from richobs_lab.rivals.base import Rival
from richobs_lab.rivals.embeddings import Embedding, Embeddings, Features, nearest, rounded, with_one
from richobs_lab.rivals.rival_events import SEARCH, RoundPlayed

Regression = Literal["least-squares", "logistic", "network"]

RIDGE = 0.1  # times half the squared weights is added to the loss of logistic regression
STEPS = 300  # of logistic regression and of a network's training, at most
FLAT = 1e-5  # logistic regression ends when a step lowers the loss per observation by less
RATE = 0.03  # of Adam, for networks
RESTARTS = 8  # of k-means
LLOYD = 60  # steps of k-means, at most


def least_squares(phi: Floats, y: Floats) -> Floats:
    """Returns `[1 + D, M]` the weights of the smallest norm among those with the least squared error.

    Args:
        phi: `[n, 1 + D]` features.
        y: `[n, M]` what is predicted.
    """
    return rounded(np.linalg.lstsq(phi, y, rcond=1e-10)[0])


def logistic(phi: Floats, y: Floats) -> Floats:
    """Returns `[1 + D, M]` the weights of multinomial logistic regression with a small ridge penalty.

    Every step minimises a quadratic bound of the loss (Boehning 1992), so the loss never grows.

    Args:
        phi: `[n, 1 + D]` features.
        y: `[n, M]` indicators of the labels.
    """
    bound = np.linalg.inv(0.5 * phi.T @ phi + RIDGE * np.eye(phi.shape[1]))
    weights, last = np.zeros((phi.shape[1], y.shape[1])), math.inf
    for _ in range(STEPS):
        p = softmax(phi @ weights)
        loss = -float(np.log(np.maximum((p * y).sum(axis=1), 1e-300)).mean())
        if last - loss < FLAT:
            break
        last = loss
        weights = weights - bound @ (phi.T @ (p - y) + RIDGE * weights)
    return rounded(weights)


def softmax(z: Floats) -> Floats:
    """Returns `[n, M]` the probabilities of logits `[n, M]`."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def gradients(hidden: Floats, out: Floats, phi: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Returns the gradients, for both layers of a network, of half its mean squared error.

    Args:
        hidden: `[1 + D, U]` weights of the tanh units.
        out: `[1 + U, M]` weights behind them.
        phi: `[n, 1 + D]` features.
        y: `[n, M]` what is predicted.
    """
    active = with_one(np.tanh(phi @ hidden))
    error = (active @ out - y) / len(y)
    back = (error @ out.T)[:, 1:] * (1 - active[:, 1:] ** 2)
    return phi.T @ back, active.T @ error


def network(phi: Floats, y: Floats, units: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Trains a network with one hidden layer of tanh units on squared errors, by Adam (Kingma and Ba 2015).

    Args:
        phi: `[n, 1 + D]` features.
        y: `[n, M]` what is predicted.
        units: U.
        rng: draws the first weights.

    Returns:
        `[1 + D, U]` and `[1 + U, M]` weights.
    """
    hidden = rng.normal(0, 2.0, (phi.shape[1], units))  # features have a mean squared norm of 2, the 1 included
    out = rng.normal(0, 1 / math.sqrt(1 + units), (1 + units, y.shape[1]))
    weights = [hidden, out]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, STEPS + 1):
        for i, gradient in enumerate(gradients(weights[0], weights[1], phi, y)):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            size = np.sqrt(second[i] / (1 - 0.999**step)) + 1e-12
            weights[i] = weights[i] - RATE * first[i] / (1 - 0.9**step) / size
    return rounded(weights[0]), rounded(weights[1])


def fit(
    x: Observations, labels: Ints, n_labels: int, how: Regression, units: int, rng: np.random.Generator
) -> Embedding:
    """Returns an embedding that predicts labels: their probabilities, or with "logistic" the logits of these.

    Args:
        x: `[n, ...]` observations.
        labels: `[n]` of them, from 0 to M - 1.
        n_labels: M.
        how: least squares of indicators, multinomial logistic regression, or squared errors of a network.
        units: of the network's hidden layer.
        rng: draws the first weights of a network.
    """
    features = Features.of(x)
    phi, y = features(x), np.eye(n_labels)[labels]
    if how == "network":
        hidden, out = network(phi, y, units, rng)
        return Embedding(features, out, hidden)
    return Embedding(features, least_squares(phi, y) if how == "least-squares" else logistic(phi, y))


def k_means(points: Floats, k: int, least: int, rng: np.random.Generator) -> Floats:
    """Returns `[S, M]` at most k centres such that every one is nearest to `least` points or more.

    Lloyd's steps from k-means++ starts (Arthur and Vassilvitskii 2007), the best of several. Fewer centres are tried where
    one has too few points; one centre is always possible.

    Args:
        points: `[n, M]`.
        k: number of centres at most.
        least: number of points of a centre.
        rng: chooses the starts.
    """
    for size in range(min(k, len(points)), 1, -1):
        best, lowest = points[:1], math.inf
        for _ in range(RESTARTS):
            centres = _lloyd(points, _spread_start(points, size, rng))
            cost = float(((points - centres[nearest(points, centres)]) ** 2).sum())
            if cost < lowest * (1 - 1e-9):  # a start that is better by rounding alone must not be chosen
                best, lowest = centres, cost
        counts = np.bincount(nearest(points, best), minlength=size)
        if counts.min() >= least:
            return rounded(best)
    return rounded(points.mean(axis=0, keepdims=True))


def _spread_start(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Returns `[k, M]` points, each drawn with a probability proportional to its squared distance to those before it."""
    chosen = [points[rng.integers(len(points))]]
    far = ((points - chosen[0]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        total = far.cumsum()
        place = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        chosen.append(points[min(place, len(points) - 1)])
        far = np.minimum(far, ((points - chosen[-1]) ** 2).sum(axis=1))
    return np.array(chosen)


def _lloyd(points: Floats, centres: Floats) -> Floats:
    """Returns centres `[k, M]` after steps of k-means; one without points stays where it is."""
    own = np.full(len(points), -1)
    for _ in range(LLOYD):
        now = nearest(points, centres)
        if np.array_equal(now, own):
            break
        own = now
        counts = np.bincount(own, minlength=len(centres))
        sums = np.eye(len(centres))[own].T @ points
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return centres


@dataclass(frozen=True, eq=False)
class Decoder:
    """What tells the learned state of one level from an observation: the nearest centre, in an embedding."""

    embedding: Embedding | None = None  # None where the level has one state
    centres: Floats | None = None  # [S, M]

    @property
    def n_states(self) -> int:
        """Number of learned states S."""
        return 1 if self.centres is None else len(self.centres)

    def states(self, x: Observations) -> Ints:
        """Returns `[n]` the learned state of each observation."""
        if self.embedding is None or self.centres is None:
            return np.zeros(len(x), dtype=np.int64)
        return nearest(self.embedding(x), self.centres)

    def acting(self, actions: Ints, n_actions: int) -> LevelClass:
        """Returns the one function that prefers action `actions[s]` `[S]` where the state is s."""
        if self.embedding is None or self.centres is None:
            return Constants(np.eye(n_actions)[actions])
        return Embeddings(self.embedding, self.centres, np.eye(n_actions)[actions][None])


def greedy_level(embedding: Embedding) -> LevelClass:
    """Returns the one function whose greedy action is the largest coordinate of an embedding with K coordinates."""
    K = embedding.weights.shape[1]
    return Embeddings(embedding, np.eye(K), np.eye(K)[None])  # the nearest unit vector is the largest coordinate


def policy_of(levels: Sequence[LevelClass], horizon: int, n_actions: int, first: int = 0) -> LearnedPolicy:
    """Returns the policy of one function per level, from level `first` on; action 0 at all other levels."""
    other = Constants(np.eye(n_actions)[[0]])
    rest = horizon - first - len(levels)
    return LearnedPolicy(Layered([*[other] * first, *levels, *[other] * rest]), (0,) * horizon)


def shares(n: int, parts: int) -> list[int]:
    """Returns n episodes split over the parts as evenly as possible, at least one each."""
    return [max(1, n // parts + (i < n % parts)) for i in range(parts)]


def play(engine: Engine, policy: Policy, n: int, purpose: str, levels: int | None = None) -> Episodes:
    """Plays n episodes of a policy.

    Raises:
        EpisodeLimit: the episodes allowed do not suffice; nothing was played.
        Rejected: an episode ended early, so that there is no observation to decode.
    """
    played = engine.ask(Query(policy, n, purpose, levels=levels, episodes=True)).episodes
    assert played is not None
    if played.ended and played.ended[-1].any():
        raise Rejected(
            f"the environment ended an episode early, and {purpose} decodes the state of every level. Use learner='betting' "
            "or learner='olive', which know ends; or let the environment go on, without rewards, at an observation of its "
            "own for the end."
        )
    return played


class Batch(NamedTuple):
    """Steps of one level: what was seen, done, earned and seen next."""

    x: Observations  # [n, ...]
    actions: Ints  # [n]
    rewards: Floats  # [n]
    next_x: Observations | None  # [n, ...] None at the last level
    earned: float  # sum of the returns of the episodes


def steps_at(level: int, played: Episodes) -> Batch:
    """Returns the steps of one level of some episodes."""
    next_x = played.observations[level + 1] if level + 1 < played.levels else None
    earned = float(played.returns.sum())
    return Batch(played.observations[level], played.actions[level], played.rewards[level], next_x, earned)


def tell(notify: Callback, engine: Engine, n: int, earned: float, what: str) -> None:
    """Notifies that n episodes were played, which earned `earned` together, and what was learned from them, in words."""
    total = engine.ledger.total
    notify(Progress(RoundPlayed(phase=SEARCH, n=n, episodes=total, mean=earned / n, what=what), total))


class DecodingRival(Rival):
    """A learner that decodes states: it answers with a policy, of which nothing is claimed."""

    traits = Traits(claims=False)
    reads_episodes = "reads the observations of single episodes"
    theorem: ClassVar[str]  # why nothing is claimed of a run that played all that it wanted, without a full stop

    def decoded(
        self,
        policy: LearnedPolicy,
        settings: Settings,
        *,
        finished: bool,
        value_hat: float | None,
        stopped: str = "",
    ) -> Outcome:
        """Returns the outcome of a run.

        Args:
            policy: what it learned.
            settings: of the run.
            finished: whether the episodes allowed were enough.
            value_hat: what its model says that the policy earns.
            stopped: what else kept it from learning all levels, without a full stop.
        """
        spent = "the episodes allowed were spent before the last level was learned"
        why = f"{(stopped or self.theorem) if finished else spent}."
        remarks = (f"{stopped}.",) if stopped and finished else ()
        return self.answer(policy, settings, why, finished=finished, value_hat=value_hat, remarks=remarks)


def _n_states_missing(problem: Problem, settings: Settings) -> str | None:
    named = any(pair.startswith("states=") and pair != "states=0" for pair in settings.tuning)
    if problem.n_states is not None or named:
        return None
    return f"{problem.name} does not say. Give `n_states`, or tuning `states`."


STATES_KNOWN = Need("a bound on the number of states of a level", _n_states_missing)


def n_states_of(problem: Problem, tuned: int) -> int:
    """Returns the number of states of a level at most: what is tuned, or else what the problem says."""
    return tuned or problem.n_states or 1
