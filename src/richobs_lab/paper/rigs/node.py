"""One node with everything about it known: what TD-Elim does there, and exactly what its lemmas speak of.

A node is a process of two levels: one state whose action a leads to a state of its own, and N functions of which the
first is Q*. So child values, their estimates and the law of every sample are chosen freely and exactly: the
preconditions of the theorem for TD-Elim can be met with equality. Shapes: N functions, X observations, K actions, R
points of a reward.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from richobs import Layered, Progress, Rewards, Tables, TabularProcess
from richobs.classes import TableLevel
from richobs.core.events import Event
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Mask, Path
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee.constants import PaperConstants, elimination_slack
from richobs_lab.lsvee.dfs import LsveeSearch, NodeEliminated, learn_from
from richobs_lab.lsvee.spaces import NodeRisk, TdSpace, td_space
from richobs_lab.paper.base import Plain
from richobs_lab.paper.rigs.printed import Printed

TOP = 0.75  # what a node pays at most; a child then pays at most a quarter
FAR = 1e-9  # how far a function is moved past a tie
SETTING = {"horizon": 2, "states": 1, "epsilon": 0.9, "delta": 0.8}  # one call of TD-Elim then gets delta = 0.1
SURE = 5.0  # standard deviations from which on a comparison is taken to come out one way


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


def printed_for(piece: Plain, size: int) -> Printed:
    """Returns the paper's numbers for a piece, from (H, K, M, N, epsilon, delta) alone."""
    log_n = math.log(size)
    return Printed(piece["horizon"], piece["actions"], piece["states"], log_n, piece["epsilon"], piece["delta"])


def shipped_for(piece: Plain, size: int) -> PaperConstants:
    """Returns the numbers that the algorithm runs with for a piece."""
    return PaperConstants.of(
        horizon=piece["horizon"],
        n_actions=piece["actions"],
        n_states=piece["states"],
        log_size=math.log(size),
        epsilon=piece["epsilon"],
        delta=piece["delta"],
    )


def elimination_share(piece: Plain) -> float:
    """Returns the delta of one call of TD-Elim: (delta/2)/2/(M H) (tex lines 1109 and 1126)."""
    share: float = piece["delta"] / (4 * piece["states"] * piece["horizon"])
    return share


def consensus_share(piece: Plain) -> float:
    """Returns the delta of one call of Consensus: (delta/2)/2/(M K H) (tex lines 1109 and 1122)."""
    return elimination_share(piece) / float(piece["actions"])


def is_rounded_up(n: int, exact: float) -> bool:
    """Whether a sample size is the printed number, rounded up; double precision may be off by one."""
    return abs(n - exact) <= 1 + 1e-12 * exact


class TdElimRun(NamedTuple):
    """What one call of TD-Elim did, in exact quantities."""

    truth: bool  # Q* survived
    loss: float  # largest E Y(f) among survivors
    bias: float  # largest |V^f(p) - V^g(p)| among them
    risk: float  # largest instantaneous risk among them
    error: float  # largest |V^f-hat(p) - V^f(p)| among them
    alive: Mask  # [N]
    n: int  # samples that were drawn
    slack: float  # by how much the risk of a survivor was allowed to exceed the smallest


def td_elim_runs(
    node: Node,
    constants: PaperConstants,
    *,
    runs: int,
    seed: int,
    n: int | None = None,
    slack: float | None = None,
    dead: Sequence[int] = (),
) -> list[TdElimRun]:
    """Runs TD-Elim at the node, called by DFS-Learn as it is shipped, each time with fresh samples.

    The children count as learned, with the node's estimates: DFS-Learn then asks nothing about them.

    Args:
        node: where it runs.
        constants: the numbers of the algorithm; those of the search at the root are used.
        runs: number of runs, independent of each other.
        seed: of all draws.
        n: samples of each run in place of n_train.
        slack: threshold in place of the algorithm's.
        dead: functions that were eliminated before.
    """
    numbers = constants.search
    numbers = dataclasses.replace(
        numbers,
        n_train=numbers.n_train if n is None else n,
        slack=numbers.slack if slack is None else slack,
    )
    engine = CountedEngine(node.process, node.functions, seed=seed, ledger=Ledger())
    estimates: dict[Path, Floats] = {(a,): node.v_hat[:, a] for a in range(node.shape[2])}
    result = []
    for _ in range(runs):
        space = td_space(node.functions)
        if dead:
            bury(space, node.shape, dead)
        seen: list[Event] = []

        def note(progress: Progress, to: list[Event] = seen) -> None:
            to.append(progress.event)

        before = engine.ledger.total
        search = LsveeSearch(engine, space, constants, learned=dict(estimates), notify=note)
        learn_from(search, (), numbers)
        (done,) = [event for event in seen if isinstance(event, NodeEliminated)]
        alive = space.alive(0)
        result.append(
            TdElimRun(
                truth=bool(alive[0]),
                loss=float(node.loss.mean[alive].max()),
                bias=float(np.ptp(node.values[alive])),
                risk=float(node.risk[alive].max()),
                error=float(np.abs(search.learned[()] - node.values)[alive].max()),
                alive=alive,
                n=engine.ledger.total - before,
                slack=done.cutoff - done.least,
            )
        )
    return result


def pairs(node: Node) -> Node:
    """Returns the node with all N^2 pairs of a function here and one at the children, (0, 0), (0, 1), ..., as functions."""
    N = node.shape[0]
    children, v_hat = (np.tile(values, (N, 1)) for values in (node.v_children, node.v_hat))
    return Node(node.law, node.v_star, np.repeat(node.f, N, axis=0), children, v_hat, node.top)


def surviving_pairs(node: Node, constants: PaperConstants, *, seed: int) -> Mask:
    """Runs TD-Elim at the node with the product of its functions here and at the children; returns `[N, N]` who survives.

    DFS-Learn as it is shipped calls it. The children count as learned, with the node's estimates.
    """
    N, _, K = node.shape
    later = np.broadcast_to(node.v_children[:, :, None], (N, K, K))
    functions = Layered([TableLevel(node.f), TableLevel(later)])
    space = td_space(functions)
    engine = CountedEngine(node.process, functions, seed=seed, ledger=Ledger())
    estimates: dict[Path, Floats] = {(a,): node.v_hat[:, a] for a in range(K)}
    learn_from(LsveeSearch(engine, space, constants, learned=estimates), (), constants.search)
    return np.array([[(i, j) in space for j in range(N)] for i in range(N)])


def bury(space: TdSpace, shape: tuple[int, int, int], dead: Sequence[int]) -> None:
    """Eliminates the functions `dead` from a space of listed functions."""
    N, _, K = shape
    noise = np.zeros(N)
    noise[list(dead)] = 1.0
    space.eliminate(NodeRisk(0, noise, np.zeros((N, K)), None, np.full(K, 1 / K)), 0.5)


class SearchRun(NamedTuple):
    """What one call of DFS-Learn at the node did, its children not known before."""

    events: list[Event]
    drawn: int  # samples in all
    alive: Mask  # [N]


def search_run(node: Node, constants: PaperConstants, *, seed: int) -> SearchRun:
    """Runs DFS-Learn at the node: Consensus at every child, what follows from it, and TD-Elim."""
    engine = CountedEngine(node.process, node.functions, seed=seed, ledger=Ledger())
    space, seen = td_space(node.functions), list[Event]()
    search = LsveeSearch(engine, space, constants, notify=lambda progress: seen.append(progress.event))
    learn_from(search, (), constants.search)
    return SearchRun(seen, engine.ledger.total, space.alive(0))


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


def count_broken(piece: Plain, node: Node, bounds: NodeBounds) -> Plain:
    """Runs TD-Elim `piece["runs"]` times as shipped and counts which bounds were broken.

    Args:
        piece: with `horizon`, `states`, `actions`, `epsilon`, `delta`, `tau`, `seed` and `runs`. Perhaps with `n`, samples
            in place of n_train; with `divide`, by which n_train is divided; with `slack`, by which the threshold is
            multiplied; with `dead`, functions eliminated before; with `of_bound`, parts of the estimation bound.
        node: where it runs.
        bounds: what is promised.

    Returns:
        Counts of runs, the largest value of every bounded quantity, how often each function survived, and whether sample
        size and threshold were the printed ones.
    """
    size = node.shape[0]
    constants, printed = shipped_for(piece, size), printed_for(piece, size)
    n, slack = piece.get("n"), None
    expected, threshold = float(printed.root.n_train), printed.root.slack
    if n is not None:  # the lemmas are about any sample size; the threshold is then that of n samples
        slack = elimination_slack(constants.log_size, constants.search.delta_elimination, constants.phi, n)
        expected, threshold = n, 2 * printed.phi**2 + 22 * math.log(2 * size / elimination_share(piece)) / n
    if "divide" in piece:
        n = math.ceil(constants.search.n_train / piece["divide"])
        expected /= piece["divide"]
    if "slack" in piece:
        slack = (constants.search.slack if slack is None else slack) * piece["slack"]
        threshold *= piece["slack"]
    runs = td_elim_runs(
        node, constants, runs=piece["runs"], seed=piece["seed"], n=n, slack=slack, dead=piece.get("dead", ())
    )
    reached = {name: [float(getattr(r, name)) for r in runs] for name in NodeBounds._fields}
    limit = bounds._asdict()
    over = {name: [x > limit[name] * (1 + FAR) for x in reached[name]] for name in reached}
    lost = [not r.truth for r in runs]
    return {
        "n": runs[0].n,
        "size": size,
        "phi": printed.phi,
        "runs": len(runs),
        "sized": all(is_rounded_up(r.n, expected) for r in runs),
        "threshold": max((r.slack / threshold for r in runs), key=lambda ratio: abs(ratio - 1)),  # 1 is as printed
        "estimation_gap": node.estimation_gap / printed.phi,
        "bias_gap": node.bias_gap / piece["tau"] if piece["tau"] else 0.0,
        "lost": sum(lost),
        "over": {name: sum(over[name]) for name in over},
        "beyond": [sum(x > part * limit["error"] for x in reached["error"]) for part in piece.get("of_bound", ())],
        "any": sum(any(one) for one in zip(lost, over["bias"], over["risk"], over["error"], strict=True)),
        "worst": {name: max(reached[name]) for name in reached},
        "bound": limit,
        "kept": np.sum([r.alive for r in runs], axis=0).tolist(),
    }


def as_printed(results: Sequence[Plain]) -> tuple[bool, str]:
    """Returns whether all results were made with the printed sample size and threshold, and the words for it."""
    sized = sum(bool(r["sized"]) for r in results)
    far = max((r["threshold"] for r in results), key=lambda ratio: abs(ratio - 1))
    good = sized == len(results) and abs(far - 1) <= 1e-4  # cancellation where the threshold is far below the risks
    return (
        good,
        f"Samples drawn are as expected at {sized} of {len(results)} nodes, thresholds {far:.6f} of the printed.",
    )


class Margin(NamedTuple):
    """How far a number can be moved before a promise breaks, measured by counting failures at several settings."""

    agrees: bool  # every count has the exact probability in its interval
    safe: float  # the farthest setting whose failures surely stay below what is allowed; 0 where there is none
    broken: float  # the nearest one whose failures surely exceed it; infinite where there is none


def margin(points: Sequence[tuple[float, int, int, float]], allowed: float, confidence: float) -> Margin:
    """Measures a margin.

    Args:
        points: (how far, failures, runs, exact probability of failure), failures more frequent the farther.
        allowed: probability of failure that is promised.
        confidence: of every exact interval.
    """
    ends = [(far, *binomial_interval(count, runs, confidence), exact) for far, count, runs, exact in points]
    return Margin(
        agrees=all(low - 1e-12 <= exact <= high + 1e-12 for _, low, high, exact in ends),
        safe=max((far for far, _, high, _ in ends if high < allowed), default=0.0),
        broken=min((far for far, low, _, _ in ends if low > allowed), default=math.inf),
    )


def fair_tail(n: int, k: int) -> float:
    """Returns the probability that at least k of n fair bits are 1."""
    if k > n:
        return 0.0
    if k <= n // 2:
        return 1 - fair_tail(n, n - k + 1)
    first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
    terms = min(n - k, int(5 * math.sqrt(n)) + 60)  # what lies beyond is below 1e-20 of the first
    j = np.arange(k, k + terms, dtype=float)
    return float(np.exp(first + np.concatenate([[0.0], np.cumsum(np.log((n - j) / (j + 1)))])).sum())


def beyond(n: int, gap: float) -> float:
    """Returns the probability that the mean of n fair bits is more than `gap` from 1/2; `gap` is at least 0."""
    return min(1.0, 2 * fair_tail(n, math.floor(n * (0.5 + gap) + FAR) + 1))


def even(n_actions: int, phi: float, step: float, error: float = 1.0) -> Node:
    """Returns a node where the chance that Q* is lost is known exactly: see `chance_of_loss`.

    All actions are alike, and rewards are fair bits. The estimates of Q*'s child values are `error` phi too high; the other
    function has a TD error of `step` phi in the same direction, on every action. It looks better than Q* by chance, or
    because of the estimates.
    """
    v, q = np.full(n_actions, 0.2), np.full(n_actions, 0.2 + TOP / 2)
    v_children = np.stack([v, v])
    v_hat = v_children + error * phi * np.array([[1.0], [0.0]])
    f = np.stack([q, q + step * phi])
    return Node(np.ones(1), v, f[:, None, :], v_children, v_hat)


def chance_of_loss(n: int, slack: float, phi: float, step: float, error: float = 1.0) -> float:
    """Returns the probability that TD-Elim loses Q* at the node `even`, with n samples and a threshold.

    There Y = a (b - 2 r) with a = (step + error) phi and b = TOP + (step - error) phi, and r is TOP or 0. So the mean of Y
    is below -slack where more than n (a b + slack)/(2 a TOP) of n fair bits are 1.
    """
    a, b = (step + error) * phi, TOP + (step - error) * phi
    return fair_tail(n, math.floor(n * (a * b + slack) / (2 * a * TOP)) + 1)


def where(below: Callable[[float], bool], low: float, high: float) -> float:
    """Returns where `below` changes from true to false between two numbers above 0, on a logarithmic scale."""
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if below(middle) else (low, middle)
    return math.sqrt(low * high)


def climb(score: Callable[[Floats], float], size: int, *, seed: int, starts: int, steps: int) -> tuple[float, Floats]:
    """Searches the cube [0, 1]^size for a large score: random starts, then moves of some coordinates that shrink.

    Args:
        score: what is made large.
        size: number of coordinates.
        seed: of all draws.
        starts: random starts; the search goes on from each of the best four.
        steps: moves from each of those.

    Returns:
        The largest score found, and where.
    """
    rng = keyed_generator(seed, "climb", size)
    pool = sorted(((score(x), i, x) for i, x in enumerate(rng.random((starts, size)))), key=lambda t: (-t[0], t[1]))
    found = []
    for value, i, begin in pool[:4]:
        best, at = value, begin
        for t in range(steps):
            width = 0.5 * 0.002 ** (t / steps)
            moved = np.clip(at + width * rng.normal(size=size) * (rng.random(size) < 0.4), 0, 1)
            new = score(moved)
            if new > best:
                best, at = new, moved
        found.append((best, i, at))
    best, _, at = max(found, key=lambda t: (t[0], -t[1]))
    return best, at


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


def ladder(n_actions: int, phi: float, tau: float, losses: Sequence[float]) -> Node:
    """Returns a node whose functions have given mean losses, made in every way that TD-Elim must see.

    Q*'s child estimates are phi too high, so E Y(f) is the mean squared TD error of f less phi^2. For each loss there is a
    function with the same TD error everywhere, one whose errors at two observations cancel in the mean, and one per action
    that errs there alone. Functions lie tau/2 above and below Q* on the children by turns, each with its own estimates. Last
    comes a function without TD error: its loss is -phi^2.
    """
    v, q = np.full(n_actions, 0.2), np.full(n_actions, 0.2 + TOP / 2)
    errors = [np.zeros((2, n_actions))]
    for loss in losses:
        size = math.sqrt(loss + phi**2)
        errors += [np.full((2, n_actions), size), size * np.outer([1.0, -1.0], np.ones(n_actions))]
        errors += [size * math.sqrt(n_actions) * np.outer(np.ones(2), row) for row in np.eye(n_actions)]
    errors.append(np.zeros((2, n_actions)))
    side = np.where(np.arange(len(errors)) % 2, 0.5, -0.5)
    side[0] = 0.0
    v_children = v + tau * side[:, None]
    v_hat = v_children.copy()
    v_hat[0] += phi
    f = q - v + v_hat[:, None, :] + np.stack(errors)
    f[0] = q
    return Node(np.full(2, 0.5), v, f, v_children, v_hat)


def consistent(n_actions: int, offsets: Sequence[float]) -> Node:
    """Returns a node whose functions differ on the children by `offsets` and are consistent with what they say there.

    Children show one observation each, so their values are estimated without error. Q* is the function without offset.
    """
    v = np.full(n_actions, 0.2)
    v_children = v + np.array([0.0, *offsets])[:, None]
    return Node(np.ones(1), v, (v_children + TOP / 2)[:, None, :], v_children, v_children)


def stretched(n_actions: int, phi: float, slack: float, rivals: int, at: Floats) -> Node:
    """Returns a node for a search: estimates within phi, tau_1 = 0, functions whose mean loss is the threshold.

    Args:
        n_actions: K.
        phi: tolerance of the estimates.
        slack: the threshold; a rival's mean loss is that, less a twentieth.
        rivals: functions besides Q*.
        at: `[2 (rivals + 1) K]` in [0, 1]: errors of Q*'s estimates, how much worse actions are than the best, and for every
            rival its TD errors up to a common factor and the errors of its estimates.
    """
    K = n_actions
    truth, *others = np.asarray(at).reshape(rivals + 1, 2, K)
    v = np.full(K, 0.2)
    q = v + TOP / 2 - 30 * phi * (truth[1] - truth[1].min())
    off = phi * (2 * truth[0] - 1)
    room = 0.95 * slack + float((off**2).mean())  # what the mean squared TD error of a rival may be
    v_hat, f = [v + off], [q]
    for wrong, estimates in others:
        direction = wrong - 0.5
        error = direction * math.sqrt(room / max(float((direction**2).mean()), 1e-12))
        v_hat.append(v + phi * (2 * estimates - 1))
        f.append(q - v + v_hat[-1] + error)
    children = np.broadcast_to(v, (rivals + 1, K))
    return Node(np.ones(1), v, np.stack(f)[:, None, :], children, np.stack(v_hat))


def searched(piece: Plain, of: str, rivals: int) -> Plain:
    """Searches small nodes for the one that takes the largest share of a lemma's bound, and runs TD-Elim there.

    Args:
        piece: as `count_broken` takes it, with `starts` and `steps` of the search.
        of: "bias" or "risk".
        rivals: functions besides Q*.

    Returns:
        What `count_broken` does, and as `found` the share of the bound in the mean.
    """
    K, size = piece["actions"], rivals + 1
    printed = printed_for(piece, size)
    numbers, phi = printed.root, printed.phi
    bounds = NodeBounds.of_lemmas(
        n=numbers.n_train,
        phi=phi,
        tau=0.0,
        delta=elimination_share(piece),
        n_actions=K,
        size=size,
    )

    def share(at: Floats) -> float:
        node = stretched(K, phi, numbers.slack, rivals, at)
        return (float(np.ptp(node.values)) if of == "bias" else float(node.risk.max())) / float(getattr(bounds, of))

    found, at = climb(share, 2 * size * K, seed=piece["seed"], starts=piece["starts"], steps=piece["steps"])
    node = stretched(K, phi, numbers.slack, rivals, at)
    return {**count_broken(piece, node, bounds), "found": found}


def fair_values(bits: int) -> Node:
    """Returns a node where `bits` functions survive together and their values at an observation are independent fair bits.

    Rewards are 1/2 for sure. Q* says 1/2, and its child estimates are 1/2 too high: every function has a squared TD error
    of 1/4 at every observation. The estimation bound promises something "regardless of whether the preconditions hold".
    """
    rows = np.arange(2**bits)
    values = (rows[None, :] >> np.arange(bits)[:, None] & 1).astype(float)  # [bits, X]
    f = np.concatenate([np.full((1, len(rows)), 0.5), values])[:, :, None]
    v_hat = np.zeros((bits + 1, 1))
    v_hat[0] = 0.5
    return Node(np.full(len(rows), 1 / len(rows)), np.zeros(1), f, np.zeros((bits + 1, 1)), v_hat, top=0.5)


def node_of(piece: Plain) -> Node:
    """Returns the node that a piece describes."""
    K, tau = piece["actions"], piece["tau"]
    phi = printed_for(piece, 1).phi
    wrong = {"error": piece.get("error", 1.0), "bias": piece.get("bias", 1.0)}
    if piece["node"] == "biased":
        return biased(K, phi, tau, phi * np.array(piece["steps"]), tilt=piece.get("tilt", 1.0), **wrong)
    if piece["node"] == "misled":
        return misled(K, phi, tau, piece["loss"], **wrong)
    if piece["node"] == "even":
        return even(K, phi, piece["step"], wrong["error"])
    if piece["node"] == "bits":
        return fair_values(piece["bits"])
    if piece["node"] == "ladder":
        return ladder(K, phi, tau, [part * piece["unit"] for part in piece["parts"]])
    return drawn(K, phi, tau, piece["size"], piece["seed"])


def count_broken_lemmas(piece: Plain) -> Plain:
    """Runs TD-Elim as a piece says, with its own n, and counts which bounds of the lemmas were broken."""
    node = node_of(piece)
    size = len(node.f)
    printed = printed_for(piece, size)
    bounds = NodeBounds.of_lemmas(
        n=piece.get("n", printed.root.n_train),
        phi=printed.phi,
        tau=piece["tau"],
        delta=elimination_share(piece),
        n_actions=piece["actions"],
        size=size,
    )
    return count_broken(piece, node, bounds)
