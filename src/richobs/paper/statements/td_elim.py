"""Theorem (guarantee for TD-Elim): its four conclusions, with both preconditions met with equality.

Nodes are made to be as bad as the preconditions allow: child estimates off by exactly phi, functions exactly tau_1 apart on
every child. Beyond the preconditions (estimates off by more than phi) the figure shows Q* being eliminated.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.learners.lsvee.constants import n_train
from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.figures import DARK_ORANGE, plot_shares
from richobs.paper.rigs.node import NodeBounds, count_broken, node_of
from richobs.show.palette import BLUE, GREEN, INK, ORANGE, RED
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "td-elim"
TITLE = "Theorem (guarantee for TD-Elim)"
SAYS = (
    "With estimates of child values up to phi, functions at most tau_1 apart on them and n_train = 24 log(4N/delta)/phi^2 "
    "samples, with probability at least 1 - delta: Q* is kept; kept functions differ on the node's value by at most "
    "8 phi sqrt(K) + 2 phi + tau_1; their actions lose at most 4 phi sqrt(2K) + 2 phi + 2 tau_1; their values "
    "are estimated up "
    "to phi/sqrt(12)."
)
PHI, DELTA, CONFIDENCE = 1e-3, 0.1, 0.99
ERRORS = (0.0, 0.5, 1.0, 1.2, 1.4, 1.5, 1.6, 1.65, 1.7, 1.75, 1.8, 1.9, 2.0)  # of Q*'s child estimates, in phi


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns nodes at the limit of the preconditions, random nodes, and nodes beyond the first precondition."""
    runs, seeds = (80, 6) if scale == "fast" else (300, 120)
    common = {"phi": PHI, "delta": DELTA, "runs": runs, "seed": 0}
    result = []
    for K, levels in ((2, 0), (5, 0), (5, 1), (5, 2)) if scale == "full" else ((2, 0), (5, 1)):
        root = PHI * math.sqrt(K)
        tau = 20 * levels * root  # tau_1 of a node with `levels` levels below its children
        room = 8 * root  # of two functions, beyond what the preconditions alone allow
        parts = np.linspace(0.26, 1.3, 40)
        result.append(
            {"kind": "bias", "node": "biased", "actions": K, "tau": tau, "steps": (parts * room / 2).tolist(), **common}
        )
        bound = 4 * math.sqrt(2) * root + 2 * PHI + 2 * tau
        for part in np.linspace(0.3, 1.3, 21).round(3) if scale == "full" else (0.5, 1.0, 1.1):
            loss = float(2 * (PHI + tau) + part * (bound - 2 * (PHI + tau)))
            result.append(
                {
                    "kind": "risk",
                    "node": "misled",
                    "actions": K,
                    "tau": tau,
                    "part": float(part),
                    "loss": loss,
                    **common,
                }
            )
    result += [
        {"kind": "random", "node": "drawn", "actions": 2 + seed % 4, "size": 40, "tau": 0.04 * (seed % 3), **common}
        | {"seed": seed}
        for seed in range(seeds)
    ]
    steps = [0.0, *np.geomspace(1e-5, 1e-2, 30).tolist()]
    return result + [
        {"kind": "beyond", "node": "biased", "actions": 2, "tau": 0.0, "tilt": error, "steps": steps, **common}
        for error in (ERRORS if scale == "full" else (1.0, 2.0))
    ]


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which a conclusion failed."""
    node = node_of(piece)
    phi, delta, size = piece["phi"], piece["delta"], len(node.f)
    n = n_train(math.log(size), delta, phi)
    bounds = NodeBounds.of_theorem(n=n, phi=phi, tau=piece["tau"], delta=delta, n_actions=piece["actions"], size=size)
    return count_broken(piece, node, n, bounds)


def within(piece: Plain, result: Plain) -> bool:
    """Whether a piece claims to meet the preconditions."""
    return piece["kind"] != "beyond" or result["estimation_gap"] <= 1 + 1e-6


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the four conclusions and that they hold together, wherever the preconditions are met."""
    met = [(p, r) for p, r in zip(pieces, results, strict=True) if within(p, r)]
    runs = sum(r["runs"] for _, r in met)
    delta = pieces[0]["delta"]

    def end(count: str, *keys: str) -> tuple[int, float]:
        """Returns how often it failed, and where the widest interval ends."""
        counts = [(r[count][keys[0]] if keys else r[count], r["runs"]) for _, r in met]
        return sum(c for c, _ in counts), max(binomial_interval(c, n, CONFIDENCE)[1] for c, n in counts)

    def check(what: str, name: str, found: tuple[int, float]) -> Check:
        failures, high = found
        detail = f"Failed in {failures} of {runs:,} runs (exact {CONFIDENCE:.0%} interval up to {high:.4f} a node)."
        if name:
            detail += f" The largest is {max(r['worst'][name] / r['bound'][name] for _, r in met):.3f} of its bound."
        return Check(what, high <= delta, detail)

    gaps = [max(r[name] for _, r in met) for name in ("estimation_gap", "bias_gap")]
    return Conclusion(
        checks=(
            Check(
                "both preconditions are met with equality",
                all(abs(g - 1) < 1e-6 for g in gaps),
                f"Estimates are off by {gaps[0]:.6f} phi, functions apart by {gaps[1]:.6f} tau_1.",
            ),
            check("Q* is retained", "", end("lost")),
            check("bias bound", "bias", end("over", "bias")),
            check("instantaneous risk bound", "risk", end("over", "risk")),
            check("estimation bound", "error", end("over", "error")),
            check("all four at once, with probability at least 1 - delta", "", end("any")),
        ),
        columns=(
            "node",
            "K",
            "tau_1",
            "N",
            "n_train",
            "Q* lost",
            "bias",
            "risk",
            "estimation",
            "runs",
            "estimates off by (phi)",
        ),
        rows=tuple(
            (
                p["kind"],
                p["actions"],
                p["tau"],
                r["size"],
                r["n"],
                r["lost"],
                *(r["over"][name] for name in ("bias", "risk", "error")),
                r["runs"],
                r["estimation_gap"],
            )
            for p, r in zip(pieces, results, strict=True)
        ),
        sample=f"{pieces[0]['runs']:,} runs a point at n_train, phi = {PHI:g}, delta = {DELTA:g}; values and "
        "losses are exact; "
        "intervals 99%; seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws how much of the room that each bound leaves is used, and what happens beyond the first precondition."""
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 1])
    both = list(zip(pieces, results, strict=True))
    looks = {(2, 0.0): (BLUE, "o"), (5, 0.0): (GREEN, "s")}
    for (K, tau), (colour, marker) in looks.items():
        for p, r in both:
            if (p["kind"], p["actions"], p["tau"]) == ("bias", K, tau):
                half = len(p["steps"])
                kept = np.minimum(r["kept"][1 : 1 + half], r["kept"][1 + half :]) / r["runs"]
                x = (2 * np.array(p["steps"]) + 2 * PHI + tau) / r["bound"]["bias"]
                left.plot(x, kept, color=colour, marker=marker, markersize=3, label=f"K = {K}")
        risk = [
            (p["loss"] / r["bound"]["risk"], r["kept"][1] / r["runs"])
            for p, r in both
            if (p["kind"], p["actions"], p["tau"]) == ("risk", K, tau)
        ]
        if risk:
            middle.plot(*zip(*risk, strict=True), color=colour, marker=marker, markersize=3, label=f"K = {K}")
    for axes, title, label in (
        (left, "Survival by disagreement", "disagreement / bias bound"),
        (middle, "Survival by loss", "loss of the action / risk bound"),
    ):
        axes.axvline(1.0, color=ORANGE)
        axes.text(
            0.985, 0.5, "the theorem's bound", color=DARK_ORANGE, rotation=90, ha="right", va="center", fontsize=9
        )
        axes.set(xlabel=label, ylabel="kept (share of runs)", ylim=(-0.04, 1.04), xlim=(0.3, 1.2))
        axes.set_title(title)
        axes.legend(loc="upper left", bbox_to_anchor=(0.36, 1.0))
    beyond = [(p["tilt"], r["lost"], r["runs"]) for p, r in both if p["kind"] == "beyond"]
    plot_shares(right, beyond, CONFIDENCE, color=RED)
    right.axvline(1.0, color=ORANGE)
    right.text(0.97, 0.5, "the precondition", color=DARK_ORANGE, rotation=90, ha="right", va="center", fontsize=9)
    right.axhline(DELTA, color=INK, linestyle=":", linewidth=1)
    right.text(0.02, DELTA + 0.02, "$\\delta$", fontsize=9, transform=right.get_yaxis_transform())
    right.set(
        xlabel="error of Q*'s child estimates ($\\varphi$)", ylabel="Q* eliminated (share of runs)", ylim=(-0.04, 1.04)
    )
    right.set_title("Beyond the precondition")
