"""Lemma (squared loss deviation bounds): Q* survives TD-Elim, and every survivor has a small excess loss E Y(f).

The lemma is about any sample size n. At each the class holds functions of every excess loss, estimates are off by
exactly phi, and survivors are compared with the bound. Parts of the printed threshold show how much of it is needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.figures import DARK_ORANGE, NOTE, plot_shares
from richobs.paper.rigs.node import count_broken_lemmas
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE, RED
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "squared-loss-deviation"
TITLE = "Lemma (squared loss deviation bounds)"
SAYS = (
    "If child values are estimated up to phi, then with probability at least 1 - delta/2 TD-Elim keeps Q*, and "
    "every function "
    "that it keeps has E Y(f) at most 6 phi^2 + 120 log(2N/delta) / n_train."
)
PHI, DELTA, CONFIDENCE = 1e-3, 0.1, 0.99
DIVIDED = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)  # of the printed threshold
FEW, MANY = 10**4, 10**9  # samples: sampling noise decides at the one, the estimates' error at the other


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns a sweep over n, random nodes, and a sweep over divided thresholds."""
    runs, sizes, seeds = (110, 3, 4) if scale == "fast" else (300, 17, 60)
    common = {"phi": PHI, "tau": 0.0, "delta": DELTA, "runs": runs, "seed": 0}
    sweep = [
        {
            "kind": "sweep",
            "node": "biased",
            "actions": K,
            "n": int(n),
            "tilt": tilt,
            "steps": _steps(1e-4, 60),
            **common,
        }
        for K in (2, 5)
        for tilt in (0.0, 1.0)
        for n in np.geomspace(1e2, 1e10, sizes).round()
    ]
    random = [
        {"kind": "random", "node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (2 + seed % 8)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]
    divided = [
        {
            "kind": "divided",
            "node": "biased",
            "actions": 2,
            "n": n,
            "tilt": 1.0,
            "slack": part,
            "steps": _steps(0.0, 60),
        }
        | common
        for n in (FEW, MANY)
        for part in (DIVIDED if scale == "full" else (0.0003, 0.1, 1.0))
    ]
    return sweep + random + divided


def _steps(first: float, count: int) -> list[float]:
    """Returns TD errors of every size up to 0.3, and `first`."""
    return [first, *np.geomspace(3e-4, 0.3, count - 1).tolist()]


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which Q* was lost or a function with too much excess loss was kept."""
    return count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks both halves in every piece whose threshold is the printed one."""
    printed = [(p, r) for p, r in zip(pieces, results, strict=True) if p["kind"] != "divided" or p["slack"] == 1.0]
    allowed = printed[0][0]["delta"] / 2
    worst_lost = max(binomial_interval(r["lost"], r["runs"], CONFIDENCE)[1] for _, r in printed)
    worst_over = max(binomial_interval(r["over"]["loss"], r["runs"], CONFIDENCE)[1] for _, r in printed)
    ratio = max(r["worst"]["loss"] / r["bound"]["loss"] for _, r in printed)
    runs = sum(r["runs"] for _, r in printed)
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
        checks=(
            Check(
                "Q* survives with probability at least 1 - delta/2",
                worst_lost <= allowed,
                f"Lost in {sum(r['lost'] for _, r in printed)} of {runs:,} runs; the exact {CONFIDENCE:.0%} "
                "interval ends at "
                f"{worst_lost:.4f} where it is widest, and {allowed:g} is allowed.",
            ),
            Check(
                "every survivor has E Y <= 6 phi^2 + 120 log(2N/delta)/n",
                worst_over <= allowed,
                f"Exceeded in {sum(r['over']['loss'] for _, r in printed)} of {runs:,} runs; the largest E Y of "
                "a survivor is "
                f"{ratio:.3f} of its bound.",
            ),
        ),
        columns=("node", "K", "n", "N", "part of threshold", "Q* lost", "E Y exceeded", "runs", "largest E Y / bound"),
        rows=rows,
        sample=f"{pieces[0]['runs']:,} runs a point, phi = {PHI:g}, delta = {DELTA:g}, estimates off by exactly phi; "
        "E Y is exact, seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the largest surviving excess loss over n, and how often Q* is lost under divided thresholds."""
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    both = list(zip(pieces, results, strict=True))
    for (K, tilt), colour, marker in (((2, 1.0), BLUE, "o"), ((5, 1.0), GREEN, "s")):
        mine = [
            (r["n"], r["worst"]["loss"])
            for p, r in both
            if p["kind"] == "sweep" and p["actions"] == K and p["tilt"] == tilt
        ]
        left.plot(*zip(*mine, strict=True), color=colour, marker=marker, markersize=4, label=f"largest kept, K = {K}")
    bound = [
        (r["n"], r["bound"]["loss"]) for p, r in both if p["kind"] == "sweep" and p["actions"] == 2 and p["tilt"] == 1.0
    ]
    left.plot(*zip(*bound, strict=True), color=ORANGE, label="the lemma's bound")
    left.axhline(6 * PHI**2, color=GREY, linestyle=":", linewidth=1)
    left.text(110, 6 * PHI**2 * 1.25, "$6\\,\\varphi^2$", color=NOTE, fontsize=9)
    left.set(xscale="log", yscale="log", xlabel="samples n", ylabel="excess loss $E\\,Y(f)$ of survivors")
    left.set_title("What survives has a small excess loss")
    left.legend()
    for n, colour, label in ((FEW, BLUE, "$10^4$ samples"), (MANY, RED, "$10^9$ samples")):
        divided = [(p["slack"], r["lost"], r["runs"]) for p, r in both if p["kind"] == "divided" and p["n"] == n]
        plot_shares(right, divided, CONFIDENCE, color=colour, label=label)
    right.axhline(DELTA / 2, color=ORANGE, linewidth=1.4)
    right.text(1.0, DELTA / 2 + 0.02, "$\\delta/2$", color=DARK_ORANGE, ha="right", fontsize=9)
    right.set(
        xscale="log", xlabel="part of the printed threshold", ylabel="Q* eliminated (share of runs)", ylim=(-0.03, 1.03)
    )
    right.set_title("How much of the threshold it takes")
    right.legend()
