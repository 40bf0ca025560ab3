"""Lemma (estimation error): n samples estimate the value of every function up to sqrt(2 log(2N/delta)/n).

The worst class for Hoeffding's inequality and the union bound: N functions whose values at an observation are N fair,
independent bits. The probability of a larger error is then known exactly, and runs of the elimination's own sampling are
compared with it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.figures import DARK_ORANGE, plot_shares
from richobs.paper.rigs.node import Node, td_elim_runs
from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "estimation-error"
TITLE = "Lemma (estimation error)"
SAYS = (
    "With probability at least 1 - delta the samples of TD-Elim estimate the node's value under every function "
    "that it keeps "
    "up to sqrt(2 log(2N/delta)/n_train)."
)
DELTA, CONFIDENCE = 0.1, 0.9999  # many intervals are looked at together
PARTS = tuple(round(0.1 * i, 1) for i in range(1, 13))  # of the printed bound


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns classes of 1, 3 and 8 functions at two sample sizes, in shares of the runs."""
    runs, shares = (150, 1) if scale == "fast" else (1000, 4)
    return [
        {"bits": bits, "n": n, "delta": DELTA, "runs": runs, "seed": seed}
        for bits in (1, 3, 8)
        for n in (200, 5000)
        for seed in range(shares)
    ]


def measure(piece: Plain, /) -> Plain:
    """Counts runs with an error above parts of the bound, and computes the same probabilities exactly."""
    bits, n = piece["bits"], piece["n"]
    rows = np.arange(2**bits)
    f = (rows[None, :, None] >> np.arange(bits)[:, None, None] & 1).astype(float)  # [N, X, 1]
    nothing = np.zeros((bits, 1))
    node = Node(np.full(len(rows), 1 / len(rows)), np.zeros(1), f, nothing, nothing, top=1.0)
    bound = math.sqrt(piece.get("constant", 2) * math.log(2 * bits / piece["delta"]) / n)
    runs = td_elim_runs(node, n, 10.0, runs=piece["runs"], seed=piece["seed"])  # a threshold that eliminates none
    errors = np.array([run.error for run in runs])
    return {
        "bound": bound,
        "over": [int((errors > part * bound).sum()) for part in PARTS],
        "exact": [1 - (1 - beyond(n, part * bound)) ** bits for part in PARTS],
    }


def beyond(n: int, gap: float) -> float:
    """Returns the probability that the mean of n fair bits is more than `gap` from 1/2."""
    k = np.arange(1, n + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) / k))]) - n * math.log(2)
    return float(np.exp(logs)[np.abs(np.arange(n + 1) / n - 0.5) > gap].sum())


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the lemma by exact probabilities, and the sampling against them."""
    rows, agree = [], True
    for bits, n in sorted({(p["bits"], p["n"]) for p in pieces}):
        mine = [(p, r) for p, r in zip(pieces, results, strict=True) if (p["bits"], p["n"]) == (bits, n)]
        runs, exact = sum(p["runs"] for p, _ in mine), mine[0][1]["exact"]
        for i, part in enumerate(PARTS):
            over = sum(r["over"][i] for _, r in mine)
            low, high = binomial_interval(over, runs, CONFIDENCE)
            agree &= low - 1e-9 <= exact[i] <= high + 1e-9
            rows.append((bits, n, part, over, runs, over / runs, exact[i]))
    delta = pieces[0]["delta"]
    printed = max(row[-1] for row in rows if row[2] == 1.0)
    half = max(row[-1] for row in rows if row[2] == 0.5)
    return Conclusion(
        checks=(
            Check(
                "the error exceeds the bound with probability at most delta",
                printed <= delta,
                f"Exactly {printed:.1e} at most, {delta:g} allowed. Half the bound would do ({half:.3f}): "
                "values lie in [0, 1], "
                "and the proof uses [-1, 1].",
            ),
            Check(
                "the engine's samples have that law",
                agree,
                f"Every exact probability lies in the {CONFIDENCE:.2%} interval of its count, {len(rows)} of them.",
            ),
        ),
        columns=("N", "n", "part of the bound", "exceeded", "runs", "share", "exact probability"),
        rows=tuple(rows),
        sample=f"Lines: exact. Dots: {rows[0][4]:,} runs each, with {CONFIDENCE:.2%} intervals; n = 5,000, "
        f"delta = {delta:g}.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the probability of an error above parts of the bound."""
    axes = figure.subplots()
    rows = [row for row in conclude(pieces, results).rows if row[1] == 5000]
    for bits, colour in ((1, GREEN), (3, GREY), (8, BLUE)):
        mine = [row for row in rows if row[0] == bits]
        parts = [row[2] for row in mine]
        axes.plot(parts, [max(row[-1], 1e-12) for row in mine], color=colour, label=f"N = {bits}", zorder=1)
        some = [row for row in mine if row[3]]
        points = [(row[2], row[3], row[4]) for row in some]
        plot_shares(axes, points, CONFIDENCE, color=colour, linestyle="none", markersize=5, capsize=3)
    axes.axhline(DELTA, color=ORANGE)
    axes.text(1.21, DELTA * 1.3, "$\\delta$", color=DARK_ORANGE, ha="right")
    axes.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axes.text(1.005, 1e-5, "the lemma's bound", rotation=90, ha="left", va="bottom", fontsize=9)
    axes.axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes.text(0.49, 3e-9, "Hoeffding for values in [0, 1]", rotation=90, ha="right", va="bottom", fontsize=9)
    axes.set(
        yscale="log", ylim=(1e-9, 2), xlim=(0.05, 1.23), xlabel="error / bound", ylabel="probability of a larger error"
    )
    axes.set_title("Estimating the values of N functions at once")
    axes.legend(loc="upper right", bbox_to_anchor=(0.97, 0.85))
