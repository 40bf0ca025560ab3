"""Lemma (instantaneous risk bound): functions that survive TD-Elim take good actions at the node.

One function prefers an action that loses a given amount, in the way that costs least squared TD error while both conditions
hold with equality. Several sample sizes show up to which loss it survives.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.rigs.node import NodeBounds, count_broken_lemmas
from richobs.show.palette import BLUE, ORANGE, RED
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "instantaneous-risk"
TITLE = "Lemma (instantaneous risk bound)"
SAYS = (
    "If child values are estimated up to phi and functions differ on them by at most tau_1, then on the same event every "
    "function that TD-Elim keeps chooses actions at the node that lose at most "
    "sqrt(2K) sqrt(7 phi^2 + 120 log(2N/delta)/n_train) + 2 (phi + tau_1)."
)
PHI, DELTA, CONFIDENCE = 1e-3, 0.1, 0.99
MOST = 0.4  # loss that the worst node has room for
PARTS = tuple(round(0.1 * i, 1) for i in range(2, 14))  # of the bound


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns losses around the bound, for several n, K and tau_1, and random nodes."""
    runs, sizes, seeds = (110, 2, 4) if scale == "fast" else (150, 9, 60)
    parts = (0.5, 1.0, 1.1) if scale == "fast" else PARTS
    common = {"phi": PHI, "delta": DELTA, "runs": runs, "seed": 0}
    result = []
    for K, tau in ((2, 0.0), (5, 0.0), (5, 0.02)):
        for n in np.geomspace(1e6, 1e10, sizes).round():
            bound = NodeBounds.of_lemmas(n=int(n), phi=PHI, tau=tau, delta=DELTA, n_actions=K, size=2).risk
            result += [
                {"node": "misled", "actions": K, "n": int(n), "tau": tau, "part": part, "loss": part * bound, **common}
                for part in parts
                if part * bound <= MOST
            ]
    return result + [
        {"node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (3 + seed % 7), "tau": 0.02 * (seed % 3)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which a survivor's action lost more than the bound."""
    return count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks that the bound is exceeded in at most a share delta/2 of the runs, everywhere."""
    allowed = pieces[0]["delta"] / 2
    worst = max(binomial_interval(r["over"]["risk"], r["runs"], CONFIDENCE)[1] for r in results)
    runs, over = sum(r["runs"] for r in results), sum(r["over"]["risk"] for r in results)
    ratio = max(r["worst"]["risk"] / r["bound"]["risk"] for r in results)
    return Conclusion(
        checks=(
            Check(
                "actions of survivors lose at most the bound, with probability at least 1 - delta/2",
                worst <= allowed,
                f"Exceeded in {over} of {runs:,} runs; the largest loss that survived is {ratio:.2f} of its bound.",
            ),
        ),
        columns=("node", "K", "n", "tau_1", "loss / bound", "misled function kept", "bound exceeded", "runs"),
        rows=tuple(
            (
                p["node"],
                p["actions"],
                r["n"],
                p["tau"],
                p.get("part"),
                r["kept"][1] if "part" in p else None,
                r["over"]["risk"],
                r["runs"],
            )
            for p, r in zip(pieces, results, strict=True)
        ),
        sample=f"{pieces[0]['runs']:,} runs a point, phi = {PHI:g}, delta = {DELTA:g}; losses are exact; seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws for each n the largest loss that survived and the smallest that never did, beside the bound."""
    panels = figure.subplots(1, 3, sharey=True)
    both = [(p, r) for p, r in zip(pieces, results, strict=True) if p["node"] == "misled"]
    cases = sorted({(p["actions"], p["tau"]) for p, _ in both})
    for axes, (K, tau) in zip(panels, cases, strict=True):
        mine = [(p, r) for p, r in both if (p["actions"], p["tau"]) == (K, tau)]
        sizes = sorted({r["n"] for _, r in mine})
        axes.plot(sizes, [next(r["bound"]["risk"] for _, r in mine if r["n"] == n) for n in sizes], color=ORANGE)
        for kept, look, label in (
            (True, {"color": BLUE, "marker": "o"}, "kept"),
            (False, {"color": RED, "marker": "x"}, "dropped"),
        ):
            some = [(r["n"], p["loss"]) for p, r in mine if (r["kept"][1] > 0) == kept]
            axes.scatter(*zip(*some, strict=True), s=18, linewidths=1.2 if not kept else 0, label=label, **look)
        axes.plot([], [], color=ORANGE, label="the lemma's bound")
        axes.set(xscale="log", yscale="log", xlabel="samples n")
        axes.set_title(f"K = {K}, $\\tau_1$ = {tau:g}")
    panels[0].legend(loc="upper right")
    panels[0].set_ylabel("loss of the misled function's action")
