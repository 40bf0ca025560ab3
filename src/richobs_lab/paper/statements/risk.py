"""Lemma (instantaneous risk bound): functions that survive TD-Elim take good actions at the node.

One function prefers an action that loses a given amount, in the way that costs least squared TD error while both conditions
hold with equality. Several sample sizes show up to which loss it survives. A search over small nodes looks for more.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.show.palette import BLUE, ORANGE, RED
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

NAME = "instantaneous-risk"
TITLE = "Lemma (instantaneous risk bound)"
SAYS = (
    "If child values are estimated up to phi and functions differ on them by at most tau_1, then on the same event every "
    "function that TD-Elim keeps chooses actions at the node that lose at most "
    "sqrt(2K) sqrt(7 phi^2 + 120 log(2N/delta)/n_train) + 2 (phi + tau_1)."
)
CONFIDENCE = 0.99
MOST = 0.4  # loss that the worst node has room for
PARTS = tuple(round(0.1 * i, 1) for i in range(2, 14))  # of the bound
NOTICED = 0.3  # of the bound: a survivor and a search must come that near, so that a loss of the wrong sign is seen
NEAR = (0.8, 0.95, 1.2)  # times the part of the bound that just survives in the mean


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns losses around what survives and around the bound, for several n, K and tau_1, random nodes, and searches."""
    runs, sizes, seeds = (110, 2, 4) if scale == "fast" else (150, 9, 60)
    common = {**SETTING, "runs": runs, "seed": 0}
    result: list[Plain] = []
    for K, tau in ((2, 0.0), (5, 0.0), (5, 0.02)):
        piece = {**common, "actions": K}
        phi, delta = printed_for(piece, 2).phi, elimination_share(piece)
        for n in np.geomspace(1e6, 1e10, sizes).round():
            bound = NodeBounds.of_lemmas(n=int(n), phi=phi, tau=tau, delta=delta, n_actions=K, size=2).risk
            slack = 2 * phi**2 + 22 * math.log(4 / delta) / n
            rest = math.sqrt(2 * K * (slack + phi**2))  # of the loss, where its mean squared TD error is the threshold
            near = [(2 * (phi + tau) + part * rest) / bound for part in NEAR]
            result += [
                {"node": "misled", "actions": K, "n": int(n), "tau": tau, "part": part, "loss": part * bound, **common}
                for part in sorted({*near, *((1.0,) if scale == "fast" else PARTS)})
                if part * bound <= MOST
            ]
    result += [
        {"node": "drawn", "actions": 2 + seed % 4, "size": 50, "n": 10 ** (3 + seed % 7), "tau": 0.02 * (seed % 3)}
        | common
        | {"seed": seed}
        for seed in range(seeds)
    ]
    effort = {"starts": 100, "steps": 250} if scale == "fast" else {"starts": 500, "steps": 3000}
    return result + [
        {"node": "search", "actions": K, "tau": 0.0, **effort, **common}
        for K in ((2,) if scale == "fast" else (2, 3, 5))
    ]


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which a survivor's action lost more than the bound."""
    return searched(piece, "risk", 1) if piece["node"] == "search" else count_broken_lemmas(piece)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks that the bound is exceeded in at most a share delta/2 of the runs, everywhere."""
    allowed = elimination_share(pieces[0]) / 2
    worst = max(binomial_interval(r["over"]["risk"], r["runs"], CONFIDENCE)[1] for r in results)
    runs, over = sum(r["runs"] for r in results), sum(r["over"]["risk"] for r in results)
    both = list(zip(pieces, results, strict=True))
    ratio, alone = (
        max((r["worst"]["risk"] / r["bound"]["risk"] for p, r in both if not (zero and p["tau"])), default=0.0)
        for zero in (False, True)
    )
    sought = [r["found"] for r in results if "found" in r]
    found = max(sought, default=0.0)
    return Conclusion(
        checks=(
            Check("samples and threshold are the printed ones", *as_printed(results)),
            Check(
                "actions of survivors lose at most the bound, with probability at least 1 - delta/2",
                worst <= allowed and (not sought or min(alone, *sought) > NOTICED),
                f"Exceeded in {over} of {runs:,} runs; the largest loss that survived is {alone:.3f} of its bound where "
                f"tau_1 = 0, {ratio:.3f} where it is not. The best node of a search reaches {found:.3f} in the mean. "
                "As n grows the square root is at most sqrt(3/7) = 0.655 of the printed.",
                tightness=max(alone, found),
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
        sample=f"{pieces[0]['runs']:,} runs a point, epsilon = {SETTING['epsilon']:g}, H = 2, delta of one call = "
        f"{2 * allowed:g}; losses are exact; seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws for each n the largest loss that survived and the smallest that never did, beside the bound."""
    figure.set_size_inches(7.0, 6.4)
    *panels, words = figure.subplots(2, 2, sharey=True).flat
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
        axes.set(xscale="log", yscale="log", xlabel="samples n", ylabel="loss of the action")
        axes.tick_params(labelleft=True)  # narrow screens show one panel at a time
        axes.set_title(f"K = {K}, $\\tau_1$ = {tau:g}")
    words.axis("off")
    words.legend(*panels[0].get_legend_handles_labels(), loc="center")
