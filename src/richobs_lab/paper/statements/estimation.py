"""Lemma (estimation error): n samples estimate the value of every function up to sqrt(2 log(2N/delta)/n).

The worst class for Hoeffding's inequality and the union bound: functions whose values at an observation are fair,
independent bits, all of which TD-Elim keeps. The probability of a larger error is then known exactly, and runs of TD-Elim
as shipped are compared with it, at n_train and at parts of it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.figures import DARK_ORANGE, plot_shares
from richobs_lab.paper.rigs.node import (
    SETTING,
    as_printed,
    beyond,
    count_broken_lemmas,
    elimination_share,
    margin,
    printed_for,
    where,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "estimation-error"
TITLE = "Lemma (estimation error)"
SAYS = (
    "With probability at least 1 - delta the samples of TD-Elim estimate the node's value under every function "
    "that it keeps "
    "up to sqrt(2 log(2N/delta)/n_train)."
)
CONFIDENCE, LAW = 0.99, 0.9999  # of one interval; of each of many that are looked at together
PARTS = tuple(round(0.1 * i, 1) for i in range(1, 13))  # of the printed bound
AROUND = (0.25, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 4.0)  # times the divisor at which the promise breaks
DRAWN = 5000  # the sample size of the figure
SMALL = {"delta": 1e-12}  # another delta, for exact probabilities alone
BITS = 6  # functions besides Q* where samples are divided


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns classes of 1, 3 and 6 functions besides Q* at three sample sizes, in shares, and parts of n_train."""
    runs, shares = (150, 1) if scale == "fast" else (1000, 4)
    common = {**SETTING, "node": "bits", "actions": 1, "tau": 0.0, "of_bound": list(PARTS)}
    result: list[Plain] = [
        {"kind": "law", "bits": bits, **size, "runs": runs, "seed": seed, **common}
        for bits in (1, 3, BITS)
        for size in ({"n": 200}, {"n": DRAWN}, {})  # the last is n_train
        for seed in range(shares)
    ]
    divided: Plain = {"kind": "divided", "bits": BITS, "runs": 400 if scale == "fast" else 4000, "seed": 1, **common}
    exact = breaking_point(divided)
    around = AROUND if scale == "full" else (0.6, 0.8, 1.0, 1.25, 1.6)
    return result + [{**divided, "divide": exact * part} for part in around]


def bound_of(piece: Plain) -> tuple[int, float]:
    """Returns the number of samples and the bound that the lemma prints, for all of n_train where samples are divided."""
    size = piece["bits"] + 1
    n = piece.get("n", printed_for(piece, size).root.n_train)
    return math.ceil(n / piece.get("divide", 1)), math.sqrt(2 * math.log(2 * size / elimination_share(piece)) / n)


def exceeded(piece: Plain, part: float) -> float:
    """Returns the exact probability of an error above a part of the bound."""
    n, bound = bound_of(piece)
    return 1 - (1 - beyond(n, part * bound)) ** int(piece["bits"])


def breaking_point(piece: Plain) -> float:
    """Returns by how much n_train must be divided before the bound is exceeded with probability delta, exactly."""
    return where(lambda part: exceeded({**piece, "divide": part}, 1.0) < elimination_share(piece), 1, 1e4)


def tightest(piece: Plain) -> float:
    """Returns the part of the bound that is exceeded with probability delta, exactly."""
    return where(lambda part: exceeded(piece, part) > elimination_share(piece), 0.01, 1.0)


def measure(piece: Plain, /) -> Plain:
    """Counts runs with an error above parts of the bound, and computes the same probabilities exactly."""
    result = count_broken_lemmas(piece)
    return {
        **{name: result[name] for name in ("n", "runs", "sized", "threshold", "kept")},
        "bound": bound_of(piece)[1],
        "over": result["beyond"],
        "exact": [exceeded(piece, part) for part in piece["of_bound"]],
    }


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the lemma by exact probabilities, the sampling against them, and the margin."""
    rows, agree = [], True
    both = list(of_kind("law", pieces, results))
    for bits, n in sorted({(p["bits"], r["n"]) for p, r in both}):
        mine = [(p, r) for p, r in both if (p["bits"], r["n"]) == (bits, n)]
        runs, exact = sum(r["runs"] for _, r in mine), mine[0][1]["exact"]
        for i, part in enumerate(PARTS):
            over = sum(r["over"][i] for _, r in mine)
            low, high = binomial_interval(over, runs, LAW)
            agree &= low - 1e-9 <= exact[i] <= high + 1e-9
            rows.append((bits + 1, n, part, over, runs, over / runs, exact[i]))
    delta = elimination_share(pieces[0])
    printed = max(row[-1] for row in rows if row[2] == 1.0)
    half = max(row[-1] for row in rows if row[2] == 0.5)
    tight = max(tightest({**both[0][0], **SMALL, "bits": bits, "n": DRAWN}) for bits in {p["bits"] for p, _ in both})
    kept = all(k == r["runs"] for r in results for k in r["kept"])
    checks = [
        Check("samples and threshold are the printed ones", *as_printed(results)),
        Check(
            "the error exceeds the bound with probability at most delta",
            printed <= delta and kept,
            f"Exactly {printed:.1e} at most, {delta:g} allowed, and every function is kept. Half the bound would do "
            f"({half:.3f}): values lie in [0, 1], and the proof uses [-1, 1]. So no class gets beyond 1/2 of the bound with "
            f"probability delta; the tightest here reaches {tight:.3f} (delta of a search = {SMALL['delta']:g}).",
            tightness=tight,
        ),
        Check(
            "the engine's samples have that law",
            agree,
            f"Every exact probability lies in the {LAW:.2%} interval of its count, {len(rows)} of them.",
        ),
    ]
    divided = sorted(of_kind("divided", pieces, results), key=lambda both: float(both[0]["divide"]))
    if divided:
        points = [(p["divide"], r["over"][PARTS.index(1.0)], r["runs"], exceeded(p, 1.0)) for p, r in divided]
        found, exact = margin(points, delta, CONFIDENCE), breaking_point(divided[0][0])
        checks.append(
            Check(
                "n_train can be divided by a known number before the bound is exceeded too often",
                margin(points, delta, LAW).agrees and exact / 2 < found.safe < exact < found.broken < exact * 2,
                f"The bound for n_train is exceeded with probability delta where n_train is divided by {exact:.2f}, "
                f"exactly. Counts agree with the exact probability at {len(points)} divisors. Measured: it still holds at "
                f"{found.safe:.1f} and is broken at {found.broken:.1f} ({points[0][2]:,} runs each, "
                f"{CONFIDENCE:.0%} intervals).",
            )
        )
    return Conclusion(
        checks=tuple(checks),
        columns=("N", "n", "part of the bound", "exceeded", "runs", "share", "exact probability"),
        rows=tuple(rows),
        sample=f"Lines: exact. Dots: {rows[0][4]:,} runs each, with {LAW:.2%} intervals; n = {DRAWN:,}, delta = {delta:g}.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the probability of an error above parts of the bound."""
    figure.set_size_inches(6.4, 4.4)
    axes = figure.subplots()
    rows = [row for row in conclude(pieces, results).rows if row[1] == DRAWN]
    for size, colour in ((2, GREEN), (4, GREY), (BITS + 1, BLUE)):
        mine = [row for row in rows if row[0] == size]
        parts = [row[2] for row in mine]
        axes.plot(parts, [max(row[-1], 1e-12) for row in mine], color=colour, label=f"N = {size}", zorder=1)
        points = [(row[2], row[3], row[4]) for row in mine if row[3]]
        plot_shares(axes, points, LAW, color=colour, linestyle="none", markersize=5, capsize=3)
    delta = elimination_share(pieces[0])
    axes.axhline(delta, color=ORANGE)
    axes.text(1.21, delta * 1.3, "$\\delta$", color=DARK_ORANGE, ha="right")
    axes.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axes.text(1.005, 1e-5, "the lemma's bound", rotation=90, ha="left", va="bottom", fontsize=9)
    axes.axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes.text(0.49, 3e-9, "Hoeffding for values in [0, 1]", rotation=90, ha="right", va="bottom", fontsize=9)
    axes.set(
        yscale="log", ylim=(1e-9, 2), xlim=(0.05, 1.23), xlabel="error / bound", ylabel="probability of a larger error"
    )
    axes.set_title("Estimating the values of N functions at once")
    axes.legend(loc="lower left")
