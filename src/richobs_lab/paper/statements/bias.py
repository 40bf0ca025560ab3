"""Lemma (bias accumulation): functions that survive TD-Elim agree on the node's value, up to what their children allow.

Pairs of functions over- and underrate the best action by the same; both conditions hold with equality. The lemma is
about any sample size n, so survivors are compared with the bound at many n. A search over small nodes looks for more.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.show.palette import BLUE, GREY, ORANGE
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.rigs.node import (
    SETTING,
    NodeBounds,
    as_printed,
    count_broken_lemmas,
    elimination_share,
    printed_for,
    searched,
)

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
CONFIDENCE = 0.99
MOST = 0.3  # largest TD error that the nodes have room for


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns a sweep over n for several K and tau_1, random nodes, and searches."""
    runs, sizes, seeds = (110, 3, 4) if scale == "fast" else (400, 13, 60)
    common = {**SETTING, "runs": runs, "seed": 0}
    sweep: list[Plain] = [
        {"node": "biased", "actions": K, "n": int(n), "tau": tau, "tilt": 1.0, **common}
        | {"steps": _steps({**common, "actions": K}, int(n))}
        for K, tau in ((2, 0.02), (5, 0.02), (5, 0.0))
        for n in np.geomspace(1e4, 1e10, sizes).round()
    ]
    random: list[Plain] = [
        {"node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (3 + seed % 7), "tau": 0.02 * (seed % 3)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]
    effort = {"starts": 100, "steps": 250} if scale == "fast" else {"starts": 500, "steps": 3000}
    search: list[Plain] = [
        {"node": "search", "actions": K, "tau": 0.0, **effort, **common}
        for K in ((2,) if scale == "fast" else (1, 2, 5))
    ]
    return sweep + random + search


def _steps(piece: Plain, n: int) -> list[float]:
    """Returns TD errors, in phi, on every scale, and some just below what survives in the mean."""
    phi, K = printed_for(piece, 1).phi, piece["actions"]
    slack = 2 * phi**2 + 22 * math.log(2 * 127 / elimination_share(piece)) / n
    critical = [min(math.sqrt(K * (part * slack / phi**2 + 1)), MOST / phi) for part in (0.9, 0.95, 0.99)]
    return [*np.geomspace(2, 600, 60).tolist(), *critical]


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which two survivors differed by more than the bound."""
    return searched(piece, "bias", 2) if piece["node"] == "search" else count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks that the bound is exceeded in at most a share delta/2 of the runs, everywhere."""
    allowed = elimination_share(pieces[0]) / 2
    worst = max(binomial_interval(r["over"]["bias"], r["runs"], CONFIDENCE)[1] for r in results)
    runs, over = sum(r["runs"] for r in results), sum(r["over"]["bias"] for r in results)
    both = list(zip(pieces, results, strict=True))
    ratio, alone = (
        max((r["worst"]["bias"] / r["bound"]["bias"] for p, r in both if not (zero and p["tau"])), default=0.0)
        for zero in (False, True)
    )
    found = max((r["found"] for r in results if "found" in r), default=0.0)
    met = max(max(r["estimation_gap"], r["bias_gap"]) for r in results)
    return Conclusion(
        checks=(
            Check("samples and threshold are the printed ones", *as_printed(results)),
            Check(
                "the conditions are met, with equality",
                abs(met - 1) <= 1e-6,
                f"Estimates are off by {max(r['estimation_gap'] for r in results):.6f} phi, children apart by "
                f"{max(r['bias_gap'] for r in results):.6f} tau_1.",
            ),
            Check(
                "survivors differ by at most the bound, with probability at least 1 - delta/2",
                worst <= allowed,
                f"Exceeded in {over} of {runs:,} runs; the largest difference is {alone:.3f} of its bound where tau_1 = 0, "
                f"{ratio:.3f} where it is not. The best node that a search finds reaches {found:.3f} in the mean. As n "
                "grows the square root is at most sqrt(3/7) = 0.655 of the printed: a mean squared TD error of 3 phi^2 "
                "survives, and the lemma allows for 7 phi^2.",
                tightness=max(alone, found),
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
        sample=f"{pieces[0]['runs']:,} runs a point, epsilon = {SETTING['epsilon']:g}, H = 2, delta of one call = "
        f"{2 * allowed:g}; differences of values are exact; seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the largest surviving difference over n, beside the bound."""
    figure.set_size_inches(7.0, 6.4)
    *panels, words = figure.subplots(2, 2, sharey=True).flat
    both = [(p, r) for p, r in zip(pieces, results, strict=True) if p["node"] == "biased"]
    cases = sorted({(p["actions"], p["tau"]) for p, _ in both})
    for axes, (K, tau) in zip(panels, cases, strict=False):
        mine = [
            (r["n"], r["worst"]["bias"], r["bound"]["bias"]) for p, r in both if (p["actions"], p["tau"]) == (K, tau)
        ]
        first = next(p for p, _ in both if (p["actions"], p["tau"]) == (K, tau))
        n, worst, bound = zip(*mine, strict=True)
        axes.plot(n, bound, color=ORANGE, label="the lemma's bound")
        axes.plot(n, worst, color=BLUE, marker="o", markersize=4, label="largest kept")
        phi, delta = printed_for(first, 1).phi, elimination_share(first)
        floor = NodeBounds.of_lemmas(n=10**30, phi=phi, tau=tau, delta=delta, n_actions=K, size=1).bias
        axes.axhline(floor, color=GREY, linestyle=":", linewidth=1.4, label="the bound as n grows")
        axes.set(xscale="log", yscale="log", xlabel="samples n", ylabel="difference of survivors' values")
        axes.tick_params(labelleft=True)  # narrow screens show one panel at a time
        axes.set_title(f"K = {K}, $\\tau_1$ = {tau:g}")
    words.axis("off")
    words.legend(*panels[0].get_legend_handles_labels(), loc="center")
