"""Corollary (estimating V*): after DFS-Learn at the root, any survivor's estimated value of the root is V* up to epsilon/8.

The searches are those of the theorem for DFS-Learn, started at the root, mostly with classes whose functions disagree by all
that the tests let pass. Every survivor's estimate is looked at, not only the one that is picked.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.core.randomness import keyed_generator
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE, PINK, RED
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.figures import DARK_ORANGE
from richobs_lab.paper.statements import dfs_learn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "v-star"
TITLE = "Corollary (estimating V*)"
SAYS = (
    "After DFS-Learn at the root, with probability at least 1 - delta the estimate of V* is off by at most epsilon/8, and "
    "O(M H^5 K^2/eps^2 log(N M H K/delta)) episodes were played."
)
DELTA, CONFIDENCE = 0.1, 0.99
LABELS = {
    "wide": "functions at the tests' tolerance",
    "beyond": "some just beyond it",
    "mixed": "drifting and far ones too",
}


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns searches from the root."""
    searches = 60 if scale == "fast" else 900
    rng = keyed_generator(0, "shapes for V*")
    return [
        {
            "seed": seed,
            "class": ("wide", "beyond", "mixed")[seed % 3],
            "horizon": 1 + seed % 8 if seed % 3 == 0 else int(rng.integers(1, 7)),
            "states": int(rng.integers(1, 5)),
            "actions": int(rng.integers(1, 5)),
            "overlap": float(rng.integers(2)) / 2,
            "verbatim": False,
            "below": False,
            "epsilon": float(rng.choice([0.1, 0.9])),
            "delta": DELTA,
        }
        for seed in range(searches)
    ]


def measure(piece: Plain, /) -> Plain:
    """Runs one search under a witness."""
    return dfs_learn.measure(piece)


def proof(H: int, K: int) -> float:
    """Returns phi/sqrt(12) + 8 phi sqrt(K) + 2 phi + 20 (H-1) sqrt(K) phi as a part of epsilon, as the proof adds it up."""
    phi = 1 / (320 * H**2 * math.sqrt(K))
    return phi / math.sqrt(12) + 8 * phi * math.sqrt(K) + 2 * phi + 20 * (H - 1) * math.sqrt(K) * phi


def rate(piece: Plain, result: Plain) -> float:
    """Returns M H^5 K^2/eps^2 log(N M H K/delta), the logarithm of N taken from the class."""
    H, K, M = result["H"], result["K"], result["M"]
    return M * H**5 * K**2 / piece["epsilon"] ** 2 * (result["log_size"] + math.log(M * H * K / piece["delta"]))


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the estimate, the proof's arithmetic and the episodes."""
    errors = [r["v_star_error"] / p["epsilon"] for p, r in zip(pieces, results, strict=True)]
    failed = sum(e > 1 / 8 or bool(r["stopped"]) for e, r in zip(errors, results, strict=True))
    end = binomial_interval(failed, len(results), CONFIDENCE)[1]
    sums = [proof(H, K) for H in range(1, 101) for K in range(1, 51)]
    sharper = max(proof(H, K) * 16 * H for H in range(1, 101) for K in range(1, 51))
    closest = max(e / proof(r["H"], r["K"]) for e, r in zip(errors, results, strict=True))
    constants = [r["with_bound"] / rate(p, r) for p, r in zip(pieces, results, strict=True)]
    return Conclusion(
        checks=(
            Check(
                "every survivor's estimate is within epsilon/8 of V*, with probability at least 1 - delta",
                end <= pieces[0]["delta"],
                f"Not in {failed} of {len(results)} searches (exact {CONFIDENCE:.0%} interval up to {end:.4f}); "
                "the largest error "
                f"is {max(errors):.4f} epsilon.",
                tightness=8 * max(errors),
                loose=f"The proof's own sum is at most {8 * max(sums):.2f} of epsilon/8 at any H and K: its last step, "
                "20 (H-1) sqrt(K) phi and less for epsilon/8, gives that much away",
            ),
            Check(
                "phi/sqrt(12) + 8 phi sqrt(K) + 2 phi + 20 (H-1) sqrt(K) phi <= epsilon/8",
                max(sums) <= 1 / 8,
                f"For H up to 100 and K up to 50 at most {max(sums):.4f} epsilon, and below epsilon/(16 H) "
                f"({sharper:.3f} of it).",
            ),
            Check(
                "errors stay below what the proof adds up",
                closest <= 1,
                f"At most {closest:.2f} of that sum, which is itself at most {8 * max(sums):.2f} of epsilon/8.",
            ),
            Check(
                "episodes are at most the displayed bound with T = M H, a constant times the rate",
                all(r["episodes"] <= r["with_bound"] and r["off"] == 0 for r in results),
                f"At most {max(r['episodes'] / r['with_bound'] for r in results):.3f} of the bound, which is between "
                f"{min(constants):.2g} and {max(constants):.2g} times M H^5 K^2/eps^2 log(NMHK/delta).",
                reading="with probability 1 - delta, as T <= M H in Theorem 5: off the good event a search may take more; "
                "children of length H are terminal; and delta at most 1/2 at N = M = K = H = 1, where the "
                "logarithm vanishes as delta goes to 1",
            ),
        ),
        columns=("class", "H", "searches", "largest error / epsilon", "sum in the proof, K = 1", "episodes / bound"),
        rows=tuple(
            (kind, H, len(mine), max(e for e, _ in mine), proof(H, 1), max(part for _, part in mine))
            for (kind, H), mine in sorted(_by_class(pieces, results).items())
        ),
        sample=f"{len(results)} searches over random processes, seeds 0 to {len(results) - 1}, epsilon = 0.1 or "
        "0.9, delta = "
        f"{DELTA:g}; the worst survivor of each.",
    )


def _by_class(pieces: Sequence[Plain], results: Sequence[Plain]) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Returns for each class and horizon the error over epsilon and the episodes over their bound, of every search."""
    table: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for p, r in zip(pieces, results, strict=True):
        row = (r["v_star_error"] / p["epsilon"], r["episodes"] / r["with_bound"])
        table.setdefault((p["class"], r["H"]), []).append(row)
    return table


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the worst survivor's error over H, and the episodes over the rate."""
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    rng = keyed_generator(0, "jitter")
    for kind, colour, marker in (("wide", BLUE, "o"), ("beyond", PINK, "^"), ("mixed", GREEN, "s")):
        mine = [
            (r["H"], max(r["v_star_error"] / p["epsilon"], 1e-6))
            for p, r in zip(pieces, results, strict=True)
            if p["class"] == kind
        ]
        x, y = (np.array(c, dtype=float) for c in zip(*mine, strict=True))
        left.scatter(
            x + rng.uniform(-0.2, 0.2, len(x)),
            y,
            s=8,
            marker=marker,
            color=colour,
            alpha=0.6,
            linewidths=0,
            rasterized=True,
            label=LABELS[kind],
        )
    H = np.arange(1, 9)
    left.plot(H, [proof(int(h), 1) for h in H], color=RED, linestyle="--", label="sum in the proof, K = 1")
    left.axhline(1 / 8, color=ORANGE)
    left.text(8.4, 0.135, "$\\epsilon/8$", color=DARK_ORANGE, ha="right")
    left.set(
        yscale="log", ylim=(3e-9, 1), xlabel="horizon H", ylabel="largest error of the estimate of V* / $\\epsilon$"
    )
    left.set_title("Every survivor's estimate of V*")
    left.legend(loc="lower left")
    points = [(rate(p, r), r["episodes"], r["with_bound"]) for p, r in zip(pieces, results, strict=True)]
    rates, played, bound = zip(*points, strict=True)
    right.scatter(rates, bound, s=6, color=ORANGE, alpha=0.6, linewidths=0, rasterized=True, label="bound with T = M H")
    right.scatter(rates, played, s=6, color=BLUE, alpha=0.6, linewidths=0, rasterized=True, label="episodes played")
    ends = np.array([min(rates), max(rates)])
    right.plot(ends, ends * 3e6, color=GREY, linewidth=1, linestyle=":", label="$3\\cdot 10^6$ times the rate")
    right.set(xscale="log", yscale="log", xlabel="$M H^5 K^2/\\epsilon^2\\,\\log(NMHK/\\delta)$", ylabel="episodes")
    right.set_title("Episodes")
    right.legend(loc="upper left", markerscale=2)
