"""Lemma (bias accumulation): functions that survive TD-Elim agree on the node's value, up to what their children allow.

Pairs of functions over- and underrate the best action by the same; both conditions hold with equality. The lemma is
about any sample size n, so survivors are compared with the bound at many n.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.figures import NOTE
from richobs.paper.rigs.node import count_broken_lemmas
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "bias-accumulation"
TITLE = "Lemma (bias accumulation)"
SAYS = (
    "If child values are estimated up to phi and functions differ on them by at most tau_1, then on the event "
    "of the previous "
    "lemma any two functions that TD-Elim keeps differ on the node's value by at most "
    "2 sqrt(K) sqrt(7 phi^2 + 120 log(2N/delta)/n_train) + 2 phi + tau_1."
)
PHI, DELTA, CONFIDENCE = 1e-3, 0.1, 0.99


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns a sweep over n for several K and tau_1, and random nodes."""
    runs, sizes, seeds = (110, 3, 4) if scale == "fast" else (400, 13, 60)
    common = {"phi": PHI, "delta": DELTA, "runs": runs, "seed": 0}
    steps = np.geomspace(1e-3, 0.3, 60).tolist()
    sweep = [
        {"node": "biased", "actions": K, "n": int(n), "tau": tau, "tilt": 1.0, "steps": steps, **common}
        for K, tau in ((2, 0.02), (5, 0.02), (5, 0.0))
        for n in np.geomspace(1e4, 1e10, sizes).round()
    ]
    random = [
        {"node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (3 + seed % 7), "tau": 0.02 * (seed % 3)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]
    return sweep + random


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which two survivors differed by more than the bound."""
    return count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks that the bound is exceeded in at most a share delta/2 of the runs, everywhere."""
    allowed = pieces[0]["delta"] / 2
    worst = max(binomial_interval(r["over"]["bias"], r["runs"], CONFIDENCE)[1] for r in results)
    runs, over = sum(r["runs"] for r in results), sum(r["over"]["bias"] for r in results)
    ratio = max(r["worst"]["bias"] / r["bound"]["bias"] for r in results)
    met = max(max(r["estimation_gap"], r["bias_gap"]) for r in results)
    return Conclusion(
        checks=(
            Check(
                "the conditions are met, with equality",
                abs(met - 1) <= 1e-6,
                f"Estimates are off by {max(r['estimation_gap'] for r in results):.6f} phi, children apart by "
                f"{max(r['bias_gap'] for r in results):.6f} tau_1.",
            ),
            Check(
                "survivors differ by at most the bound, with probability at least 1 - delta/2",
                worst <= allowed,
                f"Exceeded in {over} of {runs:,} runs; the largest difference is {ratio:.3f} of its bound.",
            ),
        ),
        columns=("node", "K", "n", "N", "tau_1", "exceeded", "runs", "largest difference", "bound"),
        rows=tuple(
            (
                p["node"],
                p["actions"],
                r["n"],
                r["size"],
                p["tau"],
                r["over"]["bias"],
                r["runs"],
                r["worst"]["bias"],
                r["bound"]["bias"],
            )
            for p, r in zip(pieces, results, strict=True)
        ),
        sample=f"{pieces[0]['runs']:,} runs a point, phi = {PHI:g}, delta = {DELTA:g}; differences of values "
        "are exact; seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the largest surviving difference over n, beside the bound."""
    panels = figure.subplots(1, 3, sharey=True)
    both = [(p, r) for p, r in zip(pieces, results, strict=True) if p["node"] == "biased"]
    cases = sorted({(p["actions"], p["tau"]) for p, _ in both})
    for axes, (K, tau), colour in zip(panels, cases, (BLUE, GREEN, GREEN), strict=False):
        mine = [
            (r["n"], r["worst"]["bias"], r["bound"]["bias"]) for p, r in both if (p["actions"], p["tau"]) == (K, tau)
        ]
        n, worst, bound = zip(*mine, strict=True)
        axes.plot(n, bound, color=ORANGE, label="the lemma's bound")
        axes.plot(n, worst, color=colour, marker="o", markersize=4, label="largest kept")
        floor = 2 * math.sqrt(7 * K) * PHI + 2 * PHI + tau
        axes.axhline(floor, color=GREY, linestyle=":", linewidth=1)
        axes.text(n[0], floor * 0.94, "bound as n grows", color=NOTE, fontsize=8, va="top")
        axes.set(xscale="log", yscale="log", xlabel="samples n")
        axes.set_title(f"K = {K}, $\\tau_1$ = {tau:g}")
        axes.legend(loc="upper right")
    panels[0].set_ylabel("difference of survivors' values")
