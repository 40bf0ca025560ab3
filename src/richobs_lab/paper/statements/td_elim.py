"""Theorem (guarantee for TD-Elim): its four conclusions, with both preconditions met with equality.

Nodes are made to be as bad as the preconditions allow: child estimates off by exactly phi, functions exactly tau_1 apart on
every child. DFS-Learn as shipped runs there with the numbers of `PaperConstants`; bounds and expected numbers come from
(H, K, M, N, epsilon, delta) alone. Divided samples show how far the promise is from breaking, where that is known exactly.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.show.palette import BLUE, GREEN, INK, ORANGE, RED
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.figures import DARK_ORANGE, plot_shares
from richobs_lab.paper.rigs.node import (
    SETTING,
    SURE,
    NodeBounds,
    as_printed,
    beyond,
    chance_of_loss,
    count_broken,
    elimination_share,
    ladder,
    margin,
    node_of,
    pairs,
    printed_for,
    shipped_for,
    surviving_pairs,
    where,
)

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
CONFIDENCE, LAW = 0.99, 0.9999  # of one interval; of each of many that are compared with exact probabilities
ERRORS = (0.0, 0.5, 1.0, 1.2, 1.4, 1.5, 1.6, 1.65, 1.7, 1.75, 1.8, 1.9, 2.0)  # of Q*'s child estimates, in phi
STEP = 0.7  # TD error, in phi, with which samples must be divided the least before Q* is lost
AROUND = (0.25, 0.5, 2**-0.5, 2**-0.25, 1.0, 2**0.25, 2**0.5, 2.0, 4.0)  # times the divisor at which the promise breaks
PARTS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0, 8.0)  # of the threshold: mean losses of functions
BITS = 6  # functions of the class that is hardest to estimate
OF_BOUND = (0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8, 1.0)  # of the estimation bound
OTHERS: tuple[Plain, ...] = (  # other settings, for the numbers and the threshold
    {"horizon": 3, "states": 4, "epsilon": 0.3, "delta": 0.05},
    {"horizon": 6, "states": 7, "epsilon": 0.05, "delta": 1e-9},
)
WITHIN = ("bias", "risk", "random")  # kinds of pieces that meet the preconditions


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns nodes at the limit of the preconditions, random nodes, divided samples, and nodes beyond the precondition."""
    runs, seeds = (80, 6) if scale == "fast" else (300, 120)
    common = {**SETTING, "runs": runs, "seed": 0}
    result: list[Plain] = []
    for K, levels in ((2, 0), (5, 0), (5, 1), (5, 2)) if scale == "full" else ((2, 0), (5, 1)):
        phi = printed_for({**common, "actions": K}, 1).phi
        root = phi * math.sqrt(K)
        tau = 20 * levels * root  # tau_1 of a node with `levels` levels below its children
        parts = np.linspace(0.26, 1.3, 40)  # of what the bound leaves to two functions beyond the preconditions
        steps = (parts * 4 * math.sqrt(K)).tolist()
        result.append({"kind": "bias", "node": "biased", "actions": K, "tau": tau, "steps": steps, **common})
        result += [
            {
                "kind": "risk",
                "node": "misled",
                "actions": K,
                "tau": tau,
                "loss": float(2 * (phi + tau) + part * 4 * math.sqrt(2) * root),
                **common,
            }
            for part in (np.linspace(0.3, 1.3, 21).round(3) if scale == "full" else (0.3, 0.48, 1.0, 1.1))
        ]
    result += [
        {"kind": "random", "node": "drawn", "actions": 2 + seed % 4, "size": 40, "tau": 0.04 * (seed % 3), **common}
        | {"seed": seed}
        for seed in range(seeds)
    ]
    steps = [0.0, *np.geomspace(0.02, 20, 30).tolist()]
    result += [
        {"kind": "beyond", "node": "biased", "actions": 2, "tau": 0.0, "tilt": error, "steps": steps, **common}
        for error in (ERRORS if scale == "full" else (1.0, 2.0))
    ]
    for setting in ({}, *OTHERS):  # the threshold itself, at 5 standard deviations: no probability is claimed
        piece: Plain = {**common, **setting, "actions": 3, "delta": min(1e-6, setting.get("delta", 1.0)), "runs": 10}
        size = 2 + len(PARTS) * 5
        unit = printed_for(piece, size).root.slack
        own = {"parts": list(PARTS), "unit": unit, "dead": [size - 1]}
        result.append({"kind": "threshold", "node": "ladder", "tau": 0.01, **piece, **own})
    product: Plain = {**common, "kind": "product", "actions": 2, "tau": 0.0, "delta": 1e-6, "runs": 1}
    result += [{**product, "parts": [0.2, 0.5, 0.8, 1.25, 2.0, 5.0], "seed": seed} for seed in range(1, 1 + seeds // 6)]
    result.append({"kind": "estimation", "node": "bits", "actions": 1, "tau": 0.0, "bits": BITS, **common})
    result[-1] |= {"of_bound": list(OF_BOUND), "runs": 400 if scale == "fast" else 4000}
    divided: Plain = {"kind": "divided", "node": "even", "actions": 2, "tau": 0.0, "step": STEP, **common}
    divided["runs"] = 1000 if scale == "fast" else 10_000
    around = AROUND if scale == "full" else (0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
    exact = breaking_point(divided)
    return result + [{**divided, "divide": exact * part} for part in around]


def lost_exactly(piece: Plain) -> float:
    """Returns the exact probability that a "divided" piece loses Q*, from the printed numbers."""
    printed = printed_for(piece, 2)
    n = math.ceil(printed.root.n_train / piece["divide"])
    return chance_of_loss(n, printed.root.slack, printed.phi, piece["step"])


def breaking_point(piece: Plain) -> float:
    """Returns by how much n_train must be divided before Q* is lost with probability delta/2, exactly."""
    return where(lambda part: lost_exactly({**piece, "divide": part}) < elimination_share(piece) / 2, 1, 1e6)


def measure(piece: Plain, /) -> Plain:
    """Counts runs in which a conclusion failed."""
    if piece["kind"] == "product":
        return measure_product(piece)
    node = node_of(piece)
    size = len(node.f)
    printed = printed_for(piece, size)
    bounds = NodeBounds.of_theorem(
        n=printed.root.n_train,
        phi=printed.phi,
        tau=piece["tau"],
        delta=elimination_share(piece),
        n_actions=piece["actions"],
        size=size,
    )
    result = count_broken(piece, node, bounds)
    if piece["kind"] == "threshold":
        distance = node.loss.mean - printed.root.slack
        sure = np.abs(distance) > SURE * np.sqrt(node.loss.variance / printed.root.n_train)
        right = np.where(distance < 0, result["runs"], 0)
        living = np.arange(size) < size - 1  # the last is dead
        kept = np.array(result["kept"])
        result["sure"] = int((sure & living).sum())
        result["wrong"] = int((kept != right)[sure & living].sum())
        parts = node.loss.mean / printed.root.slack
        result["steps"] = [
            float(parts[sure & living & (distance < 0)].max()),
            float(parts[sure & living & (distance > 0)].min()),
        ]
    if piece["kind"] == "estimation":
        result["exact"] = [estimated_badly(piece, part) for part in piece["of_bound"]]
    return result


def measure_product(piece: Plain) -> Plain:
    """Runs TD-Elim on a product class, and counts the pairs that came out wrong where it is sure.

    Functions of a ladder go with children that other functions predict, up to 1.5 times the threshold's root apart.
    """
    K, parts = piece["actions"], piece["parts"]
    size = 2 + len(parts) * (2 + K)
    printed = printed_for(piece, size**2)
    slack = printed.root.slack
    node = ladder(K, printed.phi, 0.0, [part * slack for part in parts])
    apart = math.sqrt(slack) * (np.arange(size) % 4 / 2)[:, None]  # [N, 1]
    node = dataclasses.replace(
        node, f=node.f + apart[:, None], v_children=node.v_children + apart, v_hat=node.v_hat + apart
    )
    kept = surviving_pairs(node, shipped_for(piece, size**2), seed=piece["seed"]).ravel()
    mean, spread = pairs(node).loss.mean, np.sqrt(pairs(node).loss.variance / printed.root.n_train)
    best = mean.argmin()
    distance = mean - mean[best] - slack
    sure = np.abs(distance) > SURE * (spread + spread[best])
    return {
        "pairs": len(mean),
        "sure": int(sure.sum()),
        "kept": int(kept[sure].sum()),
        "wrong": int((kept != (distance < 0))[sure].sum()),
    }


def estimated_badly(piece: Plain, part: float) -> float:
    """Returns the exact probability that some value of the hardest class is off by more than a part of phi/sqrt(12)."""
    printed = printed_for(piece, piece["bits"] + 1)
    return 1 - (1 - beyond(printed.root.n_train, part * printed.phi / math.sqrt(12))) ** int(piece["bits"])


def within(piece: Plain, result: Plain) -> bool:
    """Whether a piece claims to meet the preconditions."""
    return piece["kind"] in WITHIN or (piece["kind"] == "beyond" and result["estimation_gap"] <= 1 + 1e-6)


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the four conclusions and that they hold together, wherever the preconditions are met."""
    products = [r for _, r in of_kind("product", pieces, results)]
    listed = [(p, r) for p, r in zip(pieces, results, strict=True) if p["kind"] != "product"]
    pieces, results = [p for p, _ in listed], [r for _, r in listed]
    met = [(p, r) for p, r in listed if within(p, r)]
    runs = sum(r["runs"] for _, r in met)
    delta = elimination_share(pieces[0])

    def end(count: str, *keys: str) -> tuple[int, float]:
        """Returns how often it failed, and where the widest interval ends."""
        counts = [(r[count][keys[0]] if keys else r[count], r["runs"]) for _, r in met]
        return sum(c for c, _ in counts), max(binomial_interval(c, n, CONFIDENCE)[1] for c, n in counts)

    def check(what: str, name: str, found: tuple[int, float]) -> Check:
        failures, high = found
        detail = f"Failed in {failures} of {runs:,} runs (exact {CONFIDENCE:.0%} interval up to {high:.4f} a node)."
        tightness = None
        if name:
            largest, tightness = (
                max((r["worst"][name] / r["bound"][name] for p, r in met if not (alone and p["tau"])), default=0.0)
                for alone in (False, True)
            )
            detail += f" The largest is {tightness:.3f} of its bound where tau_1 = 0, {largest:.3f} where it is not."
        return Check(what, high <= delta, detail, tightness=tightness)

    gaps = [max(r[name] for _, r in met) for name in ("estimation_gap", "bias_gap")] if met else [1.0, 1.0]
    checks = [Check("samples and threshold are the printed ones", *as_printed(results))]
    if met:
        checks += [
            Check(
                "both preconditions are met with equality",
                all(abs(g - 1) < 1e-6 for g in gaps),
                f"Estimates are off by {gaps[0]:.6f} phi, functions apart by {gaps[1]:.6f} tau_1.",
            ),
            check("Q* is retained", "", end("lost")),
            check("bias bound", "bias", end("over", "bias")),
            check("instantaneous risk bound", "risk", end("over", "risk")),
            check("all four at once, with probability at least 1 - delta", "", end("any")),
        ]
    checks += [_estimation(p, r) for p, r in of_kind("estimation", pieces, results)]
    checks += _threshold(pieces, results) + _product(products) + _divided(pieces, results)
    return Conclusion(
        checks=tuple(checks),
        columns=(
            "node",
            "K",
            "tau_1",
            "N",
            "n",
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
        sample=f"{pieces[0]['runs']:,} runs a point at n_train; H = 2, M = 1, epsilon = {SETTING['epsilon']:g}, delta = "
        f"{SETTING['delta']:g}, so one call has delta = {delta:g}; values and losses are exact; intervals 99%; seed 0.",
    )


def _estimation(piece: Plain, result: Plain) -> Check:
    """The estimation bound, on the class that is hardest to estimate."""
    delta, runs = elimination_share(piece), result["runs"]
    exact, high = result["exact"][-1], binomial_interval(result["over"]["error"], runs, CONFIDENCE)[1]
    law = [
        (*binomial_interval(count, runs, LAW), chance)
        for count, chance in zip(result["beyond"], result["exact"], strict=True)
    ]
    small = {**piece, "delta": 1e-12}  # exact probabilities alone
    tight = where(lambda part: estimated_badly(small, part) > elimination_share(small), 0.01, 1.0)
    return Check(
        "estimation bound",
        exact <= delta / 2 and high <= delta and all(a - 1e-9 <= chance <= b + 1e-9 for a, b, chance in law),
        f"With {piece['bits']} independent fair bits for values, the bound is exceeded with probability {exact:.1e}; it was "
        f"in {result['over']['error']} of {runs:,} runs. At delta = {small['delta']:g} the error exceeds {tight:.3f} of the "
        "bound with the probability allowed. No class gets beyond 1/2: values lie in [0, 1], and the proof uses [-1, 1].",
        tightness=tight,
    )


def _threshold(pieces: Sequence[Plain], results: Sequence[Plain]) -> list[Check]:
    """Who survives, where it is sure."""
    mine = [r for _, r in of_kind("threshold", pieces, results)]
    if not mine:
        return []
    low, high = max(r["steps"][0] for r in mine), min(r["steps"][1] for r in mine)
    wrong = sum(r["wrong"] for r in mine)
    return [
        Check(
            "a function survives where its mean loss is within the threshold, and only there",
            wrong == 0,
            f"Of {sum(r['sure'] for r in mine)} functions more than {SURE:g} standard deviations from the threshold {wrong} "
            f"came out wrong. Losses of {low:.2f} of the threshold are kept and of {high:.2f} dropped, whether the error is "
            "the same everywhere, cancels in the mean or concerns one action, and whatever dead functions say.",
        )
    ]


def _product(products: Sequence[Plain]) -> list[Check]:
    """Who survives of a product class, where it is sure."""
    if not products:
        return []
    wrong, kept, sure = (sum(r[name] for r in products) for name in ("wrong", "kept", "sure"))
    return [
        Check(
            "in a product class a pair of functions survives where its mean loss is within the threshold, and only there",
            wrong == 0 and 0 < kept < sure,
            f"Of {sum(r['pairs'] for r in products):,} pairs {sure:,} are more than {SURE:g} standard deviations from the "
            f"threshold, {kept:,} of them within it; {wrong} came out wrong.",
        )
    ]


def _divided(pieces: Sequence[Plain], results: Sequence[Plain]) -> list[Check]:
    """By how much n_train can be divided."""
    mine = sorted(of_kind("divided", pieces, results), key=lambda both: float(both[0]["divide"]))
    if not mine:
        return []
    allowed = elimination_share(mine[0][0]) / 2
    points = [(p["divide"], r["lost"], r["runs"], lost_exactly(p)) for p, r in mine]
    found, exact = margin(points, allowed, CONFIDENCE), breaking_point(mine[0][0])
    counts_agree = margin(points, allowed, LAW).agrees
    return [
        Check(
            "n_train can be divided by a known number before Q* is lost too often",
            counts_agree and exact / 2 < found.safe < exact < found.broken < exact * 2,
            f"Q* is lost with probability delta/2 where n_train is divided by {exact:.1f}, exactly. Counts agree with the "
            f"exact probability at {len(points)} divisors. Measured: the promise still holds at {found.safe:.0f} and is "
            f"broken at {found.broken:.0f} ({points[0][2]:,} runs each, {CONFIDENCE:.0%} intervals).",
        )
    ]


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws how much of each bound is used, what divided samples do, and what happens beyond the first precondition."""
    figure.set_size_inches(7.0, 6.4)
    (left, middle), (below, right) = figure.subplots(2, 2)
    both = list(zip(pieces, results, strict=True))
    looks = {(2, 0.0): (BLUE, "o"), (5, 0.0): (GREEN, "s")}
    for (K, tau), (colour, marker) in looks.items():
        for p, r in both:
            if (p["kind"], p["actions"], p["tau"]) == ("bias", K, tau):
                half = len(p["steps"])
                kept = np.minimum(r["kept"][1 : 1 + half], r["kept"][1 + half :]) / r["runs"]
                x = (2 * np.array(p["steps"]) + 2) * r["phi"] / r["bound"]["bias"]
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
        axes.text(0.985, 0.5, "the bound", color=DARK_ORANGE, rotation=90, ha="right", va="center", fontsize=9)
        axes.set(xlabel=label, ylabel="kept (share of runs)", ylim=(-0.04, 1.04), xlim=(0.3, 1.2))
        axes.set_title(title)
        axes.legend(loc="upper center")
    divided = sorted((p["divide"], r["lost"], r["runs"]) for p, r in both if p["kind"] == "divided")
    first = next(p for p in pieces if p["kind"] == "divided")
    delta = elimination_share(first)
    plot_shares(below, divided, CONFIDENCE, color=BLUE, linestyle="none", label="measured")
    grid = np.geomspace(divided[0][0], divided[-1][0], 25)
    exact = [lost_exactly({**first, "divide": part}) for part in grid]
    below.plot(grid, exact, color=INK, linewidth=1, label="exact", zorder=1)
    below.axhline(delta / 2, color=ORANGE)
    below.text(
        0.02, delta / 2 + 0.004, "$\\delta/2$", color=DARK_ORANGE, fontsize=9, transform=below.get_yaxis_transform()
    )
    below.set(xscale="log", xlabel="$n_{train}$ divided by", ylabel="Q* eliminated (share of runs)")
    below.set_title("With fewer samples than printed")
    below.legend(loc="upper left", bbox_to_anchor=(0.0, 0.92))
    beyond_ = [(p["tilt"], r["lost"], r["runs"]) for p, r in both if p["kind"] == "beyond"]
    plot_shares(right, beyond_, CONFIDENCE, color=RED)
    right.axvline(1.0, color=ORANGE)
    right.text(0.97, 0.5, "the precondition", color=DARK_ORANGE, rotation=90, ha="right", va="center", fontsize=9)
    right.axhline(delta, color=INK, linestyle=":", linewidth=1)
    right.text(0.02, delta + 0.02, "$\\delta$", fontsize=9, transform=right.get_yaxis_transform())
    right.set(
        xlabel="error of Q*'s child estimates ($\\varphi$)",
        ylabel="Q* eliminated (share of runs)",
        ylim=(-0.04, 1.04),
        xlim=(-0.1, 2.1),
    )
    right.set_title("Beyond the precondition")
