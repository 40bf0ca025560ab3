"""Random finite problems with features: linear MDPs, and problems that break what linearity promises.

Shapes: H levels, X contexts, K actions, d features.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from richobs import Linear
from richobs.core.environment import Declared, Episodes
from richobs.core.policies import Policy, action_law, checked_actions
from richobs.core.problem import Problem, Truth
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints

Kind = Literal["linear", "nearly", "one-hot", "q-star", "broken"]


class FiniteEnvironment:
    """A finite process whose observation is its state: rewards are 0 or 1/H, each with a known probability."""

    def __init__(self, start: Floats, rewards: Sequence[Floats], moves: Sequence[Floats]):
        """Takes the process.

        Args:
            start: `[X]` law of the first context.
            rewards: per level `[X, K]` probability of a reward of 1/H.
            moves: per level `[X, K, X]` law of the next context.
        """
        self.start, self.rewards, self.moves = start, rewards, moves
        self.horizon, self.n_actions = len(rewards), rewards[0].shape[1]
        self.reward_range = (0.0, 1.0)
        self.declared = Declared(at_once=4_096, step_range=(0.0, 1 / self.horizon))
        self._first, self._sums = np.cumsum(start), [np.cumsum(law, axis=2) for law in moves]

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        x: Ints = np.searchsorted(self._first, rng.random(n) * self._first[-1], side="right")
        x = np.minimum(x, len(self.start) - 1)
        seen, taken, paid = [], [], []
        for h in range(self.horizon if levels is None else levels):
            a = checked_actions(policy, h, x, self.n_actions, rng)
            seen.append(x)
            taken.append(a)
            paid.append((rng.random(n) < self.rewards[h][x, a]) / self.horizon)
            after = (rng.random(n)[:, None] >= self._sums[h][x, a]).sum(axis=1)
            x = np.minimum(after, len(self.start) - 1)
        return Episodes(tuple(seen), tuple(taken), tuple(paid))

    def value(self, policy: Policy | None) -> float:
        """Returns the value of a policy, exactly; V* where it is None."""
        v = np.zeros(len(self.start))
        for h in reversed(range(self.horizon)):
            q = self.rewards[h] / self.horizon + self.moves[h] @ v
            contexts = np.arange(len(v))
            v = q.max(axis=1) if policy is None else (q * action_law(policy, h, contexts, self.n_actions)).sum(axis=1)
        return float(self.start @ v)


def linear_problem(
    kind: Kind = "linear",
    *,
    horizon: int = 3,
    dim: int = 4,
    n_contexts: int = 20,
    n_actions: int = 3,
    seed: int = 0,
    known: Literal["contexts", "probabilities", "norm"] = "contexts",
    off: float = 0.03,
) -> Problem:
    """Returns a random problem with its features.

    Args:
        kind: "linear": laws of rewards and of what is seen next are linear in the features. "nearly": they are but for a
            share `off`. "one-hot": a feature for each context and action, so that everything is. "q-star": Q* is linear,
            other means are not. "broken": nothing is.
        horizon: H.
        dim: d; not with "one-hot".
        n_contexts: X.
        n_actions: K.
        seed: of everything.
        known: what the learner knows of features: all contexts, or only that they are probabilities, or no longer than 1.
        off: with "nearly"; see `nearly_tolerance`.
    """
    rng = keyed_generator(seed, "linear", kind, horizon, dim)
    X, K, H = n_contexts, n_actions, horizon
    start = rng.dirichlet(np.ones(X))
    phi = [rng.dirichlet(np.full(dim, 0.5), size=(X, K)) for _ in range(H)]
    if kind == "one-hot":
        phi = [np.eye(X * K).reshape(X, K, X * K)] * H
    if kind in ("linear", "nearly"):
        rewards = [p @ rng.uniform(size=dim) for p in phi]
        moves = [p @ rng.dirichlet(np.full(X, 0.5), size=dim) for p in phi]
    if kind == "nearly":
        rewards = [(1 - off) * law + off * rng.integers(2, size=(X, K)) for law in rewards]
        moves = [(1 - off) * law + off * np.eye(X)[rng.integers(X, size=(X, K))] for law in moves]
    elif kind != "linear":
        rewards = [rng.uniform(size=(X, K)) for _ in range(H)]
        moves = [rng.dirichlet(np.full(X, 0.5), size=(X, K)) for _ in range(H)]
    if kind == "q-star":
        v = np.zeros(X)
        for h in reversed(range(H)):
            q = 0.5 * (H - h) + 0.2 * (p_w := phi[h] @ rng.uniform(-1, 1, size=dim)) / max(1e-9, np.abs(p_w).max())
            rewards[h] = q - moves[h] @ v
            v = q.max(axis=1)
    env = FiniteEnvironment(start, rewards, moves)
    functions = Linear(phi)
    if known != "contexts":
        bound: dict[str, Any] = {"probabilities": True} if known == "probabilities" else {"norm": 1.0}
        functions = Linear(_Lookup(phi), horizon=H, dim=phi[0].shape[2], n_actions=K, **bound)
    return Problem(env, functions, truth=Truth(env.value(None), world=None, exact_value=env.value))


def nearly_tolerance(horizon: int, off: float = 0.03) -> tuple[float, ...]:
    """Returns per level how far a mean can be from linear where a share `off` of each law is not.

    Constants are linear in the features, so that a function whose range is w wide has a mean within off w/2 of linear.
    Rewards and values from a level on lie in a range of (H - h)/H.
    """
    return tuple(off * (horizon - h) / horizon / 2 for h in range(horizon))


class _Lookup:
    """Features of contexts, without saying which contexts there are."""

    def __init__(self, phi: Sequence[Floats]):
        self.phi = phi

    def __call__(self, level: int, x: Ints) -> Floats:
        return self.phi[level][x]
