"""One node with everything about it known: what TD-Elim does there, and exactly what its lemmas speak of.

A node is a process of two levels: one state whose action a leads to a state of its own, and N functions of which the
first is Q*. So child values, their estimates and the law of every sample are chosen freely and exactly: the
preconditions of the theorem for TD-Elim can be met with equality. Shapes: N functions, X observations, K actions, R
points of a reward.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from richobs.classes import Tables
from richobs.core.ledger import Ledger
from richobs.core.process import Rewards, TabularProcess
from richobs.core.queries import Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Mask
from richobs.engines import CountedEngine
from richobs.learners.lsvee.constants import elimination_slack
from richobs.learners.lsvee.elimination import td_risk
from richobs.paper.base import Plain
from richobs.spaces import version_space

TOP = 0.75  # what a node pays at most; a child then pays at most a quarter
FAR = 1e-9  # how far a function is moved past a tie


class LossLaw(NamedTuple):
    """Exact moments of Y(f), the squared TD error of f less that of Q* (Appendix, proof of the theorem for TD-Elim)."""

    mean: Floats  # [N]
    variance: Floats  # [N]
    identity: Floats  # [N] the right-hand side of the lemma's identity for the mean


def loss_law(law: Floats, rewards: Rewards, f: Floats, v_hat: Floats, v_star: Floats) -> LossLaw:
    """Computes mean and variance of Y(f) = (f(x,a) - r - V^f-hat_a)^2 - (f*(x,a) - r - V^f*-hat_a)^2 for uniform a.

    Args:
        law: `[X]` of the observation.
        rewards: `[X, K, R]` points and probabilities.
        f: `[N, X, K]` the functions, Q* first.
        v_hat: `[N, K]` estimated values of the children.
        v_star: `[K]` true values of the children under Q*.
    """
    K = f.shape[2]
    weight = law[:, None, None] * rewards.probs / K  # [X, K, R]
    ours = f - v_hat[:, None, :]  # [N, X, K]
    true = ours[0]
    y = (ours[..., None] - rewards.values) ** 2 - (true[..., None] - rewards.values) ** 2  # [N, X, K, R]
    mean = np.einsum("nxkr,xkr->n", y, weight)
    variance = np.einsum("nxkr,xkr->n", (y - mean[:, None, None, None]) ** 2, weight)
    cells = law[:, None] / K  # [X, 1]
    off = ((ours - f[0] + v_star) ** 2 * cells).sum(axis=(1, 2))
    return LossLaw(mean, variance, off - float((((v_hat[0] - v_star) ** 2) * cells).sum()))


@dataclass(frozen=True, eq=False)
class Node:
    """A node, a class whose first function is Q*, and estimates of the children's values."""

    law: Floats  # [X] of the observation
    v_star: Floats  # [K] true values of the children
    f: Floats  # [N, X, K] f[0] is Q*
    v_children: Floats  # [N, K] what each function predicts of the children: V^f(p∘a, pi_f)
    v_hat: Floats  # [N, K] estimates of that
    top: float = TOP  # rewards are 0 or this

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, X, K)."""
        n, x, k = self.f.shape
        return n, x, k

    @cached_property
    def process(self) -> TabularProcess:
        """The node as a process: level 0 pays 0 or `top`, the child behind action a pays `v_star[a]` for sure."""
        _, X, K = self.shape
        later = np.broadcast_to(self.v_star[:, None, None], (K, K, K))
        return TabularProcess(
            start=np.ones(1),
            transitions=(np.arange(K)[None],),
            emissions=(self.law[None], np.eye(K)),
            rewards=(
                Rewards.bernoulli((self.f[0] - self.v_star)[None] / self.top, np.full((1, X, K), self.top)),
                Rewards.deterministic(later),
            ),
        )

    @cached_property
    def functions(self) -> Tables:
        """The class, its values at the children being what it predicts there."""
        N, _, K = self.shape
        return Tables([self.f, np.broadcast_to(self.v_children[:, :, None], (N, K, K))])

    @cached_property
    def loss(self) -> LossLaw:
        """Exact moments of Y(f)."""
        rewards = self.process.rewards[0]
        return loss_law(self.law, Rewards(rewards.values[0], rewards.probs[0]), self.f, self.v_hat, self.v_star)

    @cached_property
    def values(self) -> Floats:
        """`[N]` V^f(p, pi_f)."""
        return self.f.max(axis=2) @ self.law

    @cached_property
    def risk(self) -> Floats:
        """`[N]` V*(p) - V^f*(p, pi_f): what one action of pi_f loses (ties go to the smallest action)."""
        chosen = self.f.argmax(axis=2)  # [N, X]
        return (
            self.f[0].max(axis=1) - np.take_along_axis(self.f[0][None], chosen[..., None], axis=2)[..., 0]
        ) @ self.law

    @property
    def estimation_gap(self) -> float:
        """How far an estimate of a child's value is off at most: the estimation precondition asks for at most phi."""
        return float(np.abs(self.v_hat - self.v_children).max())

    @property
    def bias_gap(self) -> float:
        """How far two functions are apart on a child's value: the bias precondition asks for at most tau_1."""
        return float(np.ptp(self.v_children, axis=0).max())


class TdElimRun(NamedTuple):
    """What one call of TD-Elim did, in exact quantities."""

    truth: bool  # Q* survived
    loss: float  # largest E Y(f) among survivors
    bias: float  # largest |V^f(p) - V^g(p)| among them
    risk: float  # largest instantaneous risk among them
    error: float  # largest |V^f-hat(p) - V^f(p)| among them
    alive: Mask  # [N]


def td_elim_runs(node: Node, n: int, slack: float, *, runs: int, seed: int) -> list[TdElimRun]:
    """Runs TD-Elim at the node, each time with n fresh samples.

    Args:
        node: where it runs.
        n: samples of each run.
        slack: by how much the risk of a survivor may exceed the smallest.
        runs: number of runs, independent of each other.
        seed: of all draws.
    """
    engine = CountedEngine(node.process, node.functions, seed=seed, ledger=Ledger())
    query = Query.step((), n, node.shape[2], purpose="elimination", phase="statement")
    result = []
    for _ in range(runs):
        (moments,) = engine.ask(query).moments
        space = version_space(node.functions)
        space.eliminate(td_risk(0, moments, list(node.v_hat.T)), slack)
        alive = space.alive(0)
        result.append(
            TdElimRun(
                truth=bool(alive[0]),
                loss=float(node.loss.mean[alive].max()),
                bias=float(np.ptp(node.values[alive])),
                risk=float(node.risk[alive].max()),
                error=float(np.abs(moments.v_mean - node.values)[alive].max()),
                alive=alive,
            )
        )
    return result


class NodeBounds(NamedTuple):
    """What TD-Elim and its lemmas promise for given n, phi, tau_1, delta, K and N, as the statements print it."""

    loss: float  # 6 phi^2 + 120 log(2N/delta)/n                             (Lemma, squared loss deviation bounds)
    error: float  # sqrt(2 log(2N/delta)/n)                                  (Lemma, estimation error)
    bias: float  # 2 sqrt(K) sqrt(7 phi^2 + 120 log(2N/delta)/n) + 2 phi + tau_1 (Lemma, bias accumulation)
    risk: float  # sqrt(2K) sqrt(7 phi^2 + 120 log(2N/delta)/n) + 2 (phi + tau_1) (Lemma, instantaneous risk bound)

    @classmethod
    def of_lemmas(cls, *, n: int, phi: float, tau: float, delta: float, n_actions: int, size: int) -> "NodeBounds":
        """Computes the bounds that the lemmas print, for n samples."""
        log = math.log(2 * size / delta)
        root = math.sqrt(7 * phi**2 + 120 * log / n)
        return cls(
            loss=6 * phi**2 + 120 * log / n,
            error=math.sqrt(2 * log / n),
            bias=2 * math.sqrt(n_actions) * root + 2 * phi + tau,
            risk=math.sqrt(2 * n_actions) * root + 2 * (phi + tau),
        )

    @classmethod
    def of_theorem(cls, *, n: int, phi: float, tau: float, delta: float, n_actions: int, size: int) -> "NodeBounds":
        """Computes the bounds that the theorem prints, which hold where n is its n_train; `loss` is the lemma's."""
        lemmas = cls.of_lemmas(n=n, phi=phi, tau=tau, delta=delta, n_actions=n_actions, size=size)
        root = phi * math.sqrt(n_actions)
        return lemmas._replace(
            error=phi / math.sqrt(12),
            bias=8 * root + 2 * phi + tau,
            risk=4 * math.sqrt(2) * root + 2 * phi + 2 * tau,
        )


def count_broken(piece: Plain, node: Node, n: int, bounds: NodeBounds) -> Plain:
    """Runs TD-Elim `piece["runs"]` times, with the algorithm's own threshold, and counts which bounds were broken.

    Args:
        piece: with `phi`, `tau`, `delta`, `seed`, `runs`, and perhaps `slack`, by which the threshold is multiplied.
        node: where it runs.
        n: samples of each run.
        bounds: what is promised.

    Returns:
        Counts of runs, the largest value of every bounded quantity, and how often each function survived.
    """
    slack = elimination_slack(math.log(node.shape[0]), piece["delta"], piece["phi"], n) * piece.get("slack", 1.0)
    runs = td_elim_runs(node, n, slack, runs=piece["runs"], seed=piece["seed"])
    reached = {name: [float(getattr(r, name)) for r in runs] for name in NodeBounds._fields}
    limit = bounds._asdict()
    over = {name: [x > limit[name] * (1 + FAR) for x in reached[name]] for name in reached}
    lost = [not r.truth for r in runs]
    return {
        "n": n,
        "size": node.shape[0],
        "runs": len(runs),
        "estimation_gap": node.estimation_gap / piece["phi"],
        "bias_gap": node.bias_gap / piece["tau"] if piece["tau"] else 0.0,
        "lost": sum(lost),
        "over": {name: sum(over[name]) for name in over},
        "any": sum(any(one) for one in zip(lost, over["bias"], over["risk"], over["error"], strict=True)),
        "worst": {name: max(reached[name]) for name in reached},
        "bound": limit,
        "kept": np.sum([r.alive for r in runs], axis=0).tolist(),
    }


def biased(
    n_actions: int, phi: float, tau: float, steps: Floats, error: float = 1.0, bias: float = 1.0, tilt: float = 1.0
) -> Node:
    """Returns the worst node for the bias bound: pairs of functions that over- and underrate the best action by the same.

    Both preconditions hold with equality: estimates are off by phi, and two functions differ by tau on every child, Q* in
    the middle. TD errors lie on the best action alone, where they move the value most for their squared mean.

    Args:
        n_actions: K.
        phi: tolerance of the estimates.
        tau: tau_1, allowed disagreement on the children.
        steps: `[m]` TD errors; the class has 2m + 1 functions.
        error: how many phi the estimates are off; the precondition allows 1.
        bias: how many tau two functions differ; the precondition allows 1.
        tilt: how many phi the estimates of Q*'s child values are off.
    """
    q, v = np.full(n_actions, 0.15), np.full(n_actions, 0.12)
    q[0], v[0] = 0.5, 0.2
    signs, moves = np.repeat([1.0, -1.0], len(steps)), np.tile(steps, 2)
    v_children = np.vstack([v, v + bias * tau / 2 * signs[:, None]])
    v_hat = v_children + error * phi * np.concatenate([[0.0], signs])[:, None]
    v_hat[0] += tilt * error * phi
    f = q - v + v_hat
    f[0] = q
    f[1:, 0] += signs * moves
    return Node(np.ones(1), v, f[:, None, :], v_children, v_hat)


def misled(n_actions: int, phi: float, tau: float, loss: float, error: float = 1.0, bias: float = 1.0) -> Node:
    """Returns the worst node for the risk bound: one function that prefers an action which loses `loss`.

    It overrates the second action and underrates the best by all that the preconditions allow, and errs on both by the
    same for the rest: the cheapest way, in squared TD error, to be misled by that much.
    """
    q, v = np.full(n_actions, 0.02), np.full(n_actions, 0.0)
    q[0], q[1] = 0.5, 0.5 - loss
    v[0], v[1] = 0.2, min(0.1, (0.5 - loss) / 2)
    away = np.zeros(n_actions)
    away[:2] = -1.0, 1.0
    v_children = np.stack([v, v + bias * tau * away])
    v_hat = v_children + error * phi * np.stack([np.ones(n_actions), away])
    rest = max(0.0, (loss - 2 * (error * phi + bias * tau)) / 2 + FAR)
    f = np.stack([q, q - v + v_hat[1] + rest * away])
    return Node(np.ones(1), v, f[:, None, :], v_children, v_hat)


def drawn(n_actions: int, phi: float, tau: float, size: int, seed: int) -> Node:
    """Returns a random node: TD errors on every scale around phi, estimates off by phi, children apart by tau."""
    rng = keyed_generator(seed, "node", n_actions, size)
    X = int(rng.integers(1, 7))
    v = rng.uniform(tau + phi, 0.25 - tau - phi, n_actions)
    q = v + rng.uniform(0.02, 0.5, (X, n_actions))
    law = rng.dirichlet(np.ones(X))
    side = rng.choice([-0.5, 0.5], (size, n_actions))  # children apart by tau or by nothing
    side[0] = 0.0
    v_children = v + tau * side
    v_hat = v_children + phi * rng.choice([-1.0, 1.0], (size, n_actions))
    scale = phi * 10 ** rng.uniform(-0.5, 1.5, (size, 1, 1))
    f = np.clip(q - v + v_hat[:, None] + scale * rng.normal(size=(size, X, n_actions)), 0, 1)
    f[0] = q
    return Node(law, v, f, v_children, v_hat)


def node_of(piece: Plain) -> Node:
    """Returns the node that a piece describes."""
    K, phi, tau = piece["actions"], piece["phi"], piece["tau"]
    wrong = {"error": piece.get("error", 1.0), "bias": piece.get("bias", 1.0)}
    if piece["node"] == "biased":
        return biased(K, phi, tau, np.array(piece["steps"]), tilt=piece.get("tilt", 1.0), **wrong)
    if piece["node"] == "misled":
        return misled(K, phi, tau, piece["loss"], **wrong)
    return drawn(K, phi, tau, piece["size"], piece["seed"])


def count_broken_lemmas(piece: Plain) -> Plain:
    """Runs TD-Elim as a piece says, with its own n, and counts which bounds of the lemmas were broken."""
    node = node_of(piece)
    bounds = NodeBounds.of_lemmas(
        n=piece["n"],
        phi=piece["phi"],
        tau=piece["tau"],
        delta=piece["delta"],
        n_actions=piece["actions"],
        size=len(node.f),
    )
    return count_broken(piece, node, piece["n"], bounds)
