"""Lemma (properties of TD squared loss): the mean of Y(f) is an identity, its variance at most 32 E Y + 64 phi^2.

Both sides are computed exactly, for random processes and classes, for nodes whose estimates are off by exactly phi, for a
family on which the variance comes closest to its bound, and along a search over small nodes for more. TD-Elim's own risks
are drawn at random nodes: their differences must have that mean and variance.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from richobs import Layered, Rewards, make
from richobs.classes import TableLevel
from richobs.core.ledger import Ledger
from richobs.core.queries import Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE, RED
from richobs_lab.counted import CountedEngine
from richobs_lab.lsvee.elimination import td_risk
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.figures import NOTE
from richobs_lab.paper.rigs.node import SURE, LossLaw, Node, biased, climb, drawn, loss_law

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "td-loss"
TITLE = "Lemma (properties of TD squared loss)"
SAYS = (
    "If child values are estimated up to phi, then E Y(f) is the mean squared difference of f's and Q*'s TD "
    "targets less the "
    "mean squared error of Q*'s child values, and Var Y(f) is at most 32 E Y(f) + 64 phi^2."
)
EXACT = ("random", "edge", "rare", "search")  # kinds of pieces where nothing is sampled
CEILING = 8  # nothing gets beyond an eighth of the bound
ROUNDING = 1e-12  # of sums of numbers up to 4


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns random processes, edges of the condition, and the rare family."""
    many = 40 if scale == "fast" else 600
    shapes = [(1 + seed % 5, 1 + seed % 4, 1 + seed // 4 % 4) for seed in range(many)]
    random = [
        {"kind": "random", "seed": seed, "horizon": h, "states": m, "actions": k, "phi": 10.0 ** -(1 + seed % 3)}
        for seed, (h, m, k) in enumerate(shapes)
    ]
    edge = [
        {"kind": "edge", "actions": k, "phi": phi, "error": 1.0} for k in (1, 2, 5) for phi in (0.03, 0.003, 0.0003)
    ]
    rare = [{"kind": "rare", "chance": 2.0**-i, "phi": 1e-4} for i in range(1, 15)]
    effort = {"starts": 200, "steps": 600} if scale == "fast" else {"starts": 2000, "steps": 6000}
    search = [{"kind": "search", "actions": k, "phi": 1e-3, "seed": 0, **effort} for k in (1, 2)]
    runs, seeds = (150, 4) if scale == "fast" else (1000, 20)
    box = [
        {"kind": "box", "actions": 2 + i % 3, "phi": 0.01, "size": 20, "n": 500 * 4**i, "runs": runs, "seed": i % 7}
        for i in range(min(seeds, 8))
    ]
    return [*random, *edge, *rare, *search, *box, {"kind": "ceiling", "parts": 8 if scale == "fast" else 24}]


def measure(piece: Plain, /) -> Plain:
    """Returns E Y, Var Y and the identity's largest error, over all states and functions of one piece."""
    if piece["kind"] == "box":
        return _box(piece)
    if piece["kind"] == "ceiling":
        return _ceiling(piece["parts"])
    laws = {"random": _random, "edge": _edge, "rare": _rare, "search": _search}[piece["kind"]](piece)
    mean, variance, identity = (np.concatenate([law[i][1:] for law in laws]) for i in range(3))  # Y(f*) is 0
    bound = 32 * mean + 64 * piece["phi"] ** 2
    return {
        "cases": len(mean),
        "identity_error": float(np.abs(mean - identity).max()),
        "ratio": float((variance / np.maximum(bound, 1e-300)).max()),
        "mean": mean[:12].tolist(),
        "variance": variance[:12].tolist(),
    }


def _random(piece: Plain) -> list[LossLaw]:
    """Every state of a random process, with random members of its class and estimates that are off by phi."""
    problem = make(
        "random",
        seed=piece["seed"],
        horizon=piece["horizon"],
        n_states=piece["states"],
        n_actions=piece["actions"],
    )
    process, functions = problem.process, problem.functions
    assert process is not None
    assert isinstance(functions, Layered)
    tables = [level.tables for level in functions.levels if isinstance(level, TableLevel)]
    rng = keyed_generator(piece["seed"], "td-loss")
    laws = []
    for h in range(process.horizon):
        members = rng.integers(len(tables[h]), size=8)
        f = np.concatenate([process.q_tables[h][None], tables[h][members]])
        for s in np.flatnonzero(process.reachable[h]):
            v_star, v_children = np.zeros(process.n_actions), np.zeros((len(f), process.n_actions))
            if h < process.horizon - 1:
                child = process.transitions[h][s].argmax(axis=1)  # [K]; transitions are deterministic
                v_star = process.optimum.state_values[h + 1][child]
                heads = tables[h + 1][rng.integers(len(tables[h + 1]), size=8)].max(axis=2)  # [8, X']
                v_children = np.concatenate([v_star[None], heads @ process.emissions[h + 1][child].T])
            off = piece["phi"] * rng.choice([-1.0, 1.0], v_children.shape) if h < process.horizon - 1 else 0.0
            v_hat = np.clip(v_children + off, 0, 1)  # a mean of values in [0, 1] lies there
            rewards = Rewards(process.rewards[h].values[s], process.rewards[h].probs[s])
            laws.append(loss_law(process.emissions[h][s], rewards, f, v_hat, v_star))
    return laws


def _edge(piece: Plain) -> list[LossLaw]:
    """Estimates off by exactly phi, TD errors from none to many phi."""
    phi = piece["phi"]
    steps = phi * np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0])
    return [biased(piece["actions"], phi, 0.0, steps, error=piece["error"], tilt=t).loss for t in (1.0, -1.0, 0.0)]


def _rare(piece: Plain) -> list[LossLaw]:
    """A rare observation at which f is wrong by 2, all that is possible: the closest the variance comes to its bound.

    There r = 1 and f - V^f = -1; elsewhere r = 0 and f - V^f = 0. So Y is 4 or 0: E Y = 4p and Var Y = 16 p (1 - p).
    """
    law = np.array([piece["chance"], 1 - piece["chance"]])
    f = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    children = np.array([[0.0], [1.0]])
    return [Node(law, np.zeros(1), f, children, children, top=1.0).loss]


def _search(piece: Plain) -> list[LossLaw]:
    """The node with two observations and rewards 0 or 1 on which a search finds the largest share of the bound."""

    def share(at: Floats) -> float:
        law = _small(at, piece["actions"], piece["phi"])
        return float(law.variance[1] / (32 * law.mean[1] + 64 * piece["phi"] ** 2))

    K = piece["actions"]
    _, at = climb(share, 1 + 7 * K, seed=piece["seed"], starts=piece["starts"], steps=piece["steps"])
    return [_small(at, K, piece["phi"])]


def _small(at: Floats, n_actions: int, phi: float) -> LossLaw:
    """Returns the law of Y(f) at the small node that `[1 + 7 K]` numbers in [0, 1] describe."""
    K = n_actions
    chance = 10 ** (-5 * at[0])
    v_star, off, v_hat, mean, f = np.split(at[1:], [K, 2 * K, 3 * K, 5 * K])
    mean = mean.reshape(2, K) * (1 - v_star)  # of the reward, so that Q* is at most 1
    estimates = np.stack([np.clip(v_star + phi * (2 * off - 1), 0, 1), v_hat])
    functions = np.stack([mean + v_star, f.reshape(2, K)])
    return loss_law(np.array([chance, 1 - chance]), Rewards.bernoulli(mean), functions, estimates, v_star)


def _ceiling(parts: int) -> Plain:
    """Computes 4 E Y + 8 phi^2 - E Y^2 at an observation and action, over a grid of all that may happen there, exactly.

    Let m be the mean reward, e how much Q*'s child value exceeds its estimate, and w = f - V^f-hat - m. Then E Y is
    w^2 - e^2. Rewards that are 0 or 1 have the largest E Y^2, which is (w^2 - e^2)^2 + 4 m (1 - m) (w - e)^2. Values and
    estimates in [0, 1] leave -1 - m <= w <= 1 - m and -1 <= e <= 1 - m. The least phi is |e|. Both sides are linear in the
    law of (x, a), so what holds at every one holds in the mean.
    """
    grid = [Fraction(i, parts) for i in range(-2 * parts, parts + 1)]
    room = [
        4 * w**2 + 4 * e**2 - (w**2 - e**2) ** 2 - 4 * m * (1 - m) * (w - e) ** 2
        for m in grid
        if m >= 0
        for w in grid
        if -1 - m <= w <= 1 - m
        for e in grid
        if -1 <= e <= 1 - m
    ]
    return {"points": len(room), "least": float(min(room))}


def _box(piece: Plain) -> Plain:
    """Differences of TD-Elim's own risks at a random node, in standard deviations of what the law of Y(f) says."""
    node = drawn(piece["actions"], piece["phi"], 0.02, piece["size"], piece["seed"])
    engine = CountedEngine(node.process, node.functions, seed=piece["seed"], ledger=Ledger())
    n, runs = piece["n"], piece["runs"]
    query = Query.step((), n, piece["actions"], purpose="elimination", phase="statement")
    found = []
    for _ in range(runs):
        (moments,) = engine.ask(query).moments
        risk = td_risk(0, moments, list(node.v_hat.T))
        assert risk.future is not None
        risks = risk.noise + (risk.gain - risk.future) ** 2 @ risk.share
        found.append(risks[1:] - risks[0])
    y = np.stack(found)  # [runs, N - 1] means of n draws of Y
    deviation = np.sqrt(node.loss.variance[1:] / n)
    off = np.abs(y.mean(axis=0) - node.loss.mean[1:]) / (deviation / np.sqrt(runs))
    spread = y.std(axis=0) / deviation
    return {"functions": len(off), "off": float(off.max()), "spread": [float(spread.min()), float(spread.max())]}


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the identity and the inequality over all cases."""
    exact = [(p, r) for p, r in zip(pieces, results, strict=True) if p["kind"] in EXACT]
    checks, rows = [], []
    cases = sum(r["cases"] for _, r in exact)
    if exact:
        error = max(r["identity_error"] for _, r in exact)
        ratio = max(r["ratio"] for _, r in exact)
        found = max((r["ratio"] for p, r in exact if p["kind"] == "search"), default=0.0)
        checks += [
            Check(
                "E Y is the mean squared difference of targets less that of Q*'s estimates",
                error <= ROUNDING,
                f"Both sides agree to {error:.1e} in {cases:,} cases.",
            ),
            Check(
                "Var Y <= 32 E Y + 64 phi^2",
                ratio <= 1,
                f"The variance is at most {ratio:.4f} of its bound, and {found:.4f} on the best node that a search finds.",
                tightness=ratio,
                loose="The proof bounds the square of Y's second factor by 16, where its mean is at most 4 if estimates are "
                "exact, and (a + b)^2 by 2 a^2 + 2 b^2. The next check is the ceiling: 4 E Y + 8 phi^2 would do",
            ),
        ]
    for _, r in of_kind("ceiling", pieces, results):
        checks.append(
            Check(
                f"nothing gets beyond 1/{CEILING} of that bound: E Y^2 <= 4 E Y + 8 phi^2 at every observation and action",
                r["least"] == 0,
                f"On a grid of {r['points']:,} means, errors and targets the right side exceeds the left by "
                f"{r['least']:g} at least, in exact fractions.",
            )
        )
    for kind in EXACT:
        mine = [r for p, r in exact if p["kind"] == kind]
        if mine:
            worst = [max(r[name] for r in mine) for name in ("identity_error", "ratio")]
            rows.append((kind, sum(r["cases"] for r in mine), *worst))
    boxes = [r for _, r in of_kind("box", pieces, results)]
    if boxes:
        off = max(r["off"] for r in boxes)
        low, high = min(r["spread"][0] for r in boxes), max(r["spread"][1] for r in boxes)
        checks.append(
            Check(
                "differences of TD-Elim's risks have this mean and variance",
                off <= SURE and low >= 0.6 and high <= 1.5,
                f"At {sum(r['functions'] for r in boxes)} functions their means are at most {off:.1f} standard errors from "
                f"E Y(f), and their standard deviations {low:.2f} to {high:.2f} of what Var Y(f) says.",
            )
        )
    return Conclusion(
        checks=tuple(checks),
        columns=("processes", "cases", "largest error of the identity", "largest Var Y / bound"),
        rows=tuple(rows),
        sample=f"Exact expectations: {cases:,} pairs of a state and a function, in {len(exact)} processes. TD-Elim's "
        f"risks: {len(boxes)} random nodes.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws Var Y against the bound, and the ratio along the rare family."""
    figure.set_size_inches(6.4, 7.4)
    left, right = figure.subplots(2, 1, height_ratios=[1.5, 1])
    looks = {
        "random": (BLUE, "o", 5, "random processes"),
        "edge": (GREEN, "s", 12, "estimates off by exactly phi"),
        "rare": (RED, "D", 16, "rare observation, worst case"),
        "search": (INK, "x", 20, "found by a search"),
    }
    for kind, (colour, marker, size, label) in looks.items():
        x, y = [], []
        for p, r in zip(pieces, results, strict=True):
            if p["kind"] == kind:
                x += [32 * m + 64 * p["phi"] ** 2 for m in r["mean"]]
                y += r["variance"]
        some = [(a, b) for a, b in zip(x, y, strict=True) if b > 1e-14]
        if not some:
            continue
        left.scatter(
            *zip(*some, strict=True),
            s=size,
            color=colour,
            marker=marker,
            alpha=0.6,
            linewidths=1.2 if marker == "x" else 0,
            rasterized=True,
            label=label,
        )
    ends = np.array([1e-6, 100.0])
    left.plot(ends, ends, color=ORANGE, label="the lemma's bound")
    left.plot(ends, ends / 8, color=GREY, linestyle="--", linewidth=1, label="an eighth of it")
    left.set(xscale="log", yscale="log", xlabel="$32\\,E\\,Y + 64\\,\\varphi^2$", ylabel="Var $Y$", ylim=(1e-9, 1e4))
    left.set_title("Every case lies below its bound")
    left.legend(loc="upper left", markerscale=1.6)
    rare = [(p["chance"], r["ratio"]) for p, r in zip(pieces, results, strict=True) if p["kind"] == "rare"]
    right.plot(*zip(*rare, strict=True), color=RED, marker="D", markersize=4)
    right.axhline(1 / 8, color=GREY, linestyle="--", linewidth=1)
    right.text(0.5, 1 / 8 + 0.002, "1/8", color=NOTE, ha="right", fontsize=9)
    right.set(xscale="log", xlabel="chance of the rare observation", ylabel="Var $Y$ / bound", ylim=(0, 0.15))
    right.set_title("How close it gets")
