"""Lemma (squared loss deviation bounds): Q* survives TD-Elim, and every survivor has a small excess loss E Y(f).

The lemma is about any sample size n. At each the class holds functions of every excess loss, estimates are off by
exactly phi, and survivors are compared with the bound. At n_train, parts of the printed threshold show how much of it is
needed, where the probability of losing Q* is known exactly.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.figures import DARK_ORANGE, NOTE, plot_shares
from richobs_lab.paper.rigs.node import (
    SETTING,
    as_printed,
    chance_of_loss,
    count_broken_lemmas,
    elimination_share,
    margin,
    printed_for,
    where,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "squared-loss-deviation"
TITLE = "Lemma (squared loss deviation bounds)"
SAYS = (
    "If child values are estimated up to phi, then with probability at least 1 - delta/2 TD-Elim keeps Q*, and "
    "every function "
    "that it keeps has E Y(f) at most 6 phi^2 + 120 log(2N/delta) / n_train."
)
CONFIDENCE, LAW = 0.99, 0.9999  # of one interval; of each of many that are compared with exact probabilities
MOST = 0.3  # largest TD error that the nodes have room for
STEP = 0.05  # TD error, in phi, of the function that rivals Q* where the threshold is divided
AROUND = (0.2, 0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3, 2.0)  # times the part of the threshold at which the promise breaks


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns a sweep over n, random nodes, and a sweep over parts of the threshold."""
    runs, sizes, seeds = (110, 3, 4) if scale == "fast" else (300, 17, 60)
    common = {**SETTING, "tau": 0.0, "runs": runs, "seed": 0}
    sweep: list[Plain] = [
        {
            "kind": "sweep",
            "node": "biased",
            "actions": K,
            "n": int(n),
            "tilt": tilt,
            "steps": _steps(0.2, 60) + _critical(common, K, tilt, int(n)),
            **common,
        }
        for K in (2, 5)
        for tilt in (0.0, 1.0)
        for n in np.geomspace(1e2, 1e10, sizes).round()
    ]
    random: list[Plain] = [
        {"kind": "random", "node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (2 + seed % 8)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]
    divided: Plain = {"kind": "divided", "node": "even", "actions": 2, "step": STEP} | common
    divided["runs"] = 500 if scale == "fast" else 5000
    exact = breaking_part(divided)
    around = AROUND if scale == "full" else (0.9, 0.95, 1.0, 1.05, 1.1)
    return sweep + random + [{**divided, "slack": exact * part} for part in around]


def _steps(first: float, count: int) -> list[float]:
    """Returns TD errors of every size up to 600 phi, and `first`."""
    return [first, *np.geomspace(0.6, 600, count - 1).tolist()]


def _critical(setting: Plain, n_actions: int, tilt: float, n: int) -> list[float]:
    """Returns TD errors, in phi, of functions whose mean loss is just below the threshold."""
    piece = {**setting, "actions": n_actions}
    phi, size = printed_for(piece, 1).phi, 2 * 63 + 1
    slack = 2 * phi**2 + 22 * math.log(2 * size / elimination_share(piece)) / n
    return [min(math.sqrt(n_actions * (part * slack / phi**2 + tilt**2)), MOST / phi) for part in (0.9, 0.95, 0.99)]


def lost_exactly(piece: Plain) -> float:
    """Returns the exact probability that a "divided" piece loses Q*, from the printed numbers."""
    printed = printed_for(piece, 2)
    return chance_of_loss(printed.root.n_train, printed.root.slack * piece["slack"], printed.phi, piece["step"])


def breaking_part(piece: Plain) -> float:
    """Returns the part of the threshold with which Q* is lost with probability delta/2, exactly."""
    return where(lambda part: lost_exactly({**piece, "slack": part}) > elimination_share(piece) / 2, 0.01, 1.0)


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which Q* was lost or a function with too much excess loss was kept."""
    return count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks both halves in every piece whose threshold is the printed one, and the margin of the threshold."""
    printed = [(p, r) for p, r in zip(pieces, results, strict=True) if p["kind"] != "divided"]
    allowed = elimination_share(pieces[0]) / 2
    checks = [Check("samples and threshold are the printed ones", *as_printed(results))]
    if printed:
        worst_lost = max(binomial_interval(r["lost"], r["runs"], CONFIDENCE)[1] for _, r in printed)
        worst_over = max(binomial_interval(r["over"]["loss"], r["runs"], CONFIDENCE)[1] for _, r in printed)
        ratio = max(r["worst"]["loss"] / r["bound"]["loss"] for _, r in printed)
        runs = sum(r["runs"] for _, r in printed)
        checks += [
            Check(
                "Q* survives with probability at least 1 - delta/2",
                worst_lost <= allowed,
                f"Lost in {sum(r['lost'] for _, r in printed)} of {runs:,} runs; the exact {CONFIDENCE:.0%} "
                f"interval ends at {worst_lost:.4f} where it is widest, and {allowed:g} is allowed.",
            ),
            Check(
                "every survivor has E Y <= 6 phi^2 + 120 log(2N/delta)/n",
                worst_over <= allowed,
                f"Exceeded in {sum(r['over']['loss'] for _, r in printed)} of {runs:,} runs; the largest E Y of a "
                f"survivor is {ratio:.3f} of its bound.",
                tightness=ratio,
                loose="The proof's last step bounds (a + b)^2 by 2 a^2 + 2 b^2, which doubles 4 phi^2 although b vanishes "
                "as n grows. A survivor's E Y is then within the threshold, 2 phi^2 of the 6 phi^2 allowed: at most 1/3",
            ),
        ]
    mine = sorted(of_kind("divided", pieces, results), key=lambda both: -float(both[0]["slack"]))
    if mine:
        points = [(1 / p["slack"], r["lost"], r["runs"], lost_exactly(p)) for p, r in mine]
        found, exact = margin(points, allowed, CONFIDENCE), breaking_part(mine[0][0])
        enough, little = 1 / found.safe if found.safe else math.inf, 1 / found.broken
        checks.append(
            Check(
                "a known part of the threshold suffices",
                margin(points, allowed, LAW).agrees and exact / 1.2 < little < exact < enough < exact * 1.2,
                f"Q* is lost with probability delta/2 where the threshold is {exact:.4f} of the printed, exactly. Counts "
                f"agree with the exact probability at {len(points)} thresholds. Measured: {enough:.3f} suffices "
                f"and {little:.3f} does not ({points[0][2]:,} runs each, {CONFIDENCE:.0%} intervals).",
            )
        )
    rows = tuple(
        (
            p["kind"],
            p["actions"],
            r["n"],
            r["size"],
            p.get("slack", 1.0),
            r["lost"],
            r["over"]["loss"],
            r["runs"],
            r["worst"]["loss"] / r["bound"]["loss"],
        )
        for p, r in zip(pieces, results, strict=True)
    )
    return Conclusion(
        checks=tuple(checks),
        columns=("node", "K", "n", "N", "part of threshold", "Q* lost", "E Y exceeded", "runs", "largest E Y / bound"),
        rows=rows,
        sample=f"{pieces[0]['runs']:,} runs a point, epsilon = {SETTING['epsilon']:g}, H = 2, delta of one call = "
        f"{2 * allowed:g}, estimates off by exactly phi; E Y is exact, seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the largest surviving excess loss over n, and how often Q* is lost under parts of the threshold."""
    figure.set_size_inches(6.4, 7.0)
    left, right = figure.subplots(2, 1)
    both = list(zip(pieces, results, strict=True))
    for (K, tilt), colour, marker in (((2, 1.0), BLUE, "o"), ((5, 1.0), GREEN, "s")):
        mine = [
            (r["n"], r["worst"]["loss"], r["bound"]["loss"], r["phi"])
            for p, r in both
            if p["kind"] == "sweep" and p["actions"] == K and p["tilt"] == tilt
        ]
        n, worst, bound, phis = zip(*mine, strict=True)
        left.plot(n, worst, color=colour, marker=marker, markersize=4, label=f"largest kept, K = {K}")
        if K == 2:
            left.plot(n, bound, color=ORANGE, label="the bound, K = 2")
            left.axhline(6 * phis[0] ** 2, color=GREY, linestyle=":", linewidth=1)
            left.text(110, 6 * phis[0] ** 2 * 1.25, "$6\\,\\varphi^2$", color=NOTE, fontsize=9)
    left.set(xscale="log", yscale="log", xlabel="samples n", ylabel="excess loss $E\\,Y(f)$ of survivors")
    left.set_title("What survives has a small excess loss")
    left.legend()
    divided = sorted((p["slack"], r["lost"], r["runs"]) for p, r in both if p["kind"] == "divided")
    first = next(p for p in pieces if p["kind"] == "divided")
    allowed = elimination_share(first) / 2
    plot_shares(right, divided, CONFIDENCE, color=BLUE, linestyle="none", label="measured")
    grid = np.linspace(divided[0][0], divided[-1][0], 25)
    exact = [lost_exactly({**first, "slack": part}) for part in grid]
    right.plot(grid, exact, color=INK, linewidth=1, label="exact", zorder=1)
    right.axhline(allowed, color=ORANGE, linewidth=1.4)
    right.text(
        0.98,
        allowed + 0.02,
        "$\\delta/2$",
        color=DARK_ORANGE,
        ha="right",
        fontsize=9,
        transform=right.get_yaxis_transform(),
    )
    right.set(xlabel="part of the printed threshold", ylabel="Q* eliminated (share of runs)", ylim=(-0.03, 1.03))
    right.set_title("How much of it is needed")
    right.legend(loc="upper right")
