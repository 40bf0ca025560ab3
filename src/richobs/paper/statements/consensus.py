"""Theorem (guarantee for Consensus): its three parts, at thresholds that are tight.

Two functions err in opposite directions on every sample, so their estimated difference is off by exactly twice the error of
each: the triangle inequality in parts (ii) and (iii) is an equality. Smaller samples than printed make the event (i)
fail now and then, which shows that (ii) and (iii) rest on it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs.classes import Tables
from richobs.core.ledger import Ledger
from richobs.core.process import Rewards, TabularProcess
from richobs.core.queries import Query
from richobs.engines import CountedEngine
from richobs.learners.lsvee.consensus import consensus
from richobs.learners.lsvee.constants import n_test
from richobs.paper.base import Check, Conclusion, Plain, Scale
from richobs.paper.figures import DARK_GREEN, DARK_RED, NOTE
from richobs.paper.statements.estimation import beyond
from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE, RED
from richobs.stats.intervals import binomial_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "consensus"
TITLE = "Theorem (guarantee for Consensus)"
SAYS = (
    "With n_test = 2 log(2N/delta)/phi^2 samples and a tolerance eps_test of at least 2 phi + tau_2: (i) with "
    "probability at "
    "least 1 - delta all values are estimated up to phi; on that event (ii) functions that differ by at most "
    "tau_2 pass, and "
    "(iii) functions that pass differ by at most 2 phi + eps_test."
)
PHI, DELTA, CONFIDENCE = 0.02, 0.1, 0.99
TAU = 5 * PHI
SIZE = 8  # functions in the class
SWING = 0.7  # how much a value depends on which of the two observations was seen
SHARES = (1.0, 1 / 4, 1 / 16, 1 / 64)  # of n_test


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns population differences around tau_2 and around 2 phi + eps_test, for n_test and parts of it."""
    runs = 150 if scale == "fast" else 1000
    steps = (
        (-1.0, 0.0, 2.0, 4.0, 4.01, 5.0) if scale == "fast" else [round(-1 + 0.25 * i, 2) for i in range(25)] + [4.01]
    )
    return [
        {"gap": step, "share": share, "phi": PHI, "tau": TAU, "delta": DELTA, "runs": runs, "seed": 0}
        for share in SHARES
        for step in steps  # the functions differ by tau_2 + step phi
    ]


def measure(piece: Plain, /) -> Plain:
    """Runs the test and compares its verdicts with the exact values, run by run."""
    phi, tau = piece["phi"], piece["tau"]
    eps_test = (2 * phi + tau) * piece.get("tolerance", 1.0)
    n = math.ceil(n_test(math.log(SIZE), piece["delta"], phi) * piece["share"])
    gap = tau + piece["gap"] * phi
    functions = _class(gap)
    process = TabularProcess(
        start=np.ones(1),
        transitions=(),
        emissions=(np.full((1, 2), 0.5),),
        rewards=(Rewards.deterministic(np.zeros((1, 2, 1))),),
    )
    truth = functions.values(0, process.observations[0]).max(axis=2) @ process.emissions[0][0]  # [N]
    spread = float(np.ptp(truth))
    errors, seen, passed = [], [], []
    engine = CountedEngine(process, functions, seed=piece["seed"], ledger=Ledger())
    query = Query.observe((), n, purpose="consensus", phase="statement")
    for _ in range(piece["runs"]):
        (moments,) = engine.ask(query).moments
        verdict = consensus(moments, np.ones(SIZE, dtype=bool), eps_test=eps_test)
        errors.append(float(np.abs(verdict.v_hat - truth).max()))
        seen.append(verdict.spread)
        passed.append(verdict.agree)
    good = [e <= phi * (1 + 1e-12) for e in errors]
    close, far = spread <= tau + 1e-12, spread > 2 * phi + eps_test + 1e-12
    pairs = list(zip(good, passed, strict=True))
    return {
        "n": n,
        "spread": spread,
        "runs": piece["runs"],
        "bad": piece["runs"] - sum(good),
        "passed": sum(passed),
        # (ii): on the event, functions within tau_2 pass; (iii): on the event, who passes is within 2 phi + eps_test.
        "ii": sum(g and not p for g, p in pairs) if close else 0,
        "iii": sum(g and p for g, p in pairs) if far else 0,
        "ii_without": sum(not g and not p for g, p in pairs) if close else 0,
        "iii_without": sum(not g and p for g, p in pairs) if far else 0,
        "errors": [e / phi for e in errors[:200]] if piece["gap"] == 0 else [],  # for the figure
        "seen": [(s - spread) / phi for s in seen[:200]] if piece["gap"] == 0 else [],
        "exact_bad": beyond(n, phi / SWING),
    }


def _class(gap: float) -> Tables:
    """Returns two functions `gap` apart, one high where the other is low, and constants between them; one action."""
    up = np.array([(1 - SWING) / 2, (1 + SWING) / 2])
    rows = [up + gap / 2, up[::-1] - gap / 2, *(np.full(2, 0.5 + gap * t) for t in np.linspace(-0.1, 0.1, SIZE - 2))]
    return Tables([np.stack(rows)[:, :, None]])


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks (i) by probability, (ii) and (iii) in every run on the event."""
    both = list(zip(pieces, results, strict=True))
    printed = [r for p, r in both if p["share"] == 1.0]
    bad, runs = sum(r["bad"] for r in printed), sum(r["runs"] for r in printed)
    end = max(binomial_interval(r["bad"], r["runs"], CONFIDENCE)[1] for r in printed)
    delta = pieces[0]["delta"]
    law = all(
        low <= r["exact_bad"] + 1e-9 and r["exact_bad"] <= high
        for r, (low, high) in ((r, binomial_interval(r["bad"], r["runs"], 0.9999)) for r in results)
    )
    within = [(p, r) for p, r in both if r["spread"] <= p["tau"] + 1e-12]
    good_ii = sum(r["runs"] - r["bad"] for _, r in within)
    beyond_ = [(p, r) for p, r in both if p["gap"] > 4]
    good_iii = sum(r["runs"] - r["bad"] for _, r in beyond_)
    broke = {name: sum(r[name] for r in results) for name in ("ii", "iii", "ii_without", "iii_without")}
    return Conclusion(
        checks=(
            Check(
                "(i) every value is estimated up to phi, with probability at least 1 - delta",
                end <= delta and law,
                f"Not in {bad} of {runs:,} runs with n_test = {printed[0]['n']:,} samples; the exact probability is "
                f"{printed[0]['exact_bad']:.1e}, and counts agree with it at every sample size.",
            ),
            Check(
                "(ii) on that event, functions that differ by at most tau_2 pass",
                broke["ii"] == 0 and good_ii > 0,
                f"Of {good_ii:,} runs on the event with functions up to exactly tau_2 apart, {broke['ii']:,} did not pass.",
            ),
            Check(
                "(iii) on that event, functions that pass differ by at most 2 phi + eps_test",
                broke["iii"] == 0 and good_iii > 0,
                f"Of {good_iii:,} runs on the event with functions just beyond, {broke['iii']:,} passed.",
            ),
            Check(
                "both parts need the event",
                broke["ii_without"] > 0 and broke["iii_without"] > 0,
                f"Off the event, in samples smaller than n_test, {broke['ii_without']:,} runs failed (ii) and "
                f"{broke['iii_without']:,} failed (iii).",
            ),
        ),
        columns=("n / n_test", "n", "difference (phi)", "(i) failed", "passed", "runs"),
        rows=tuple((p["share"], r["n"], r["spread"] / p["phi"], r["bad"], r["passed"], r["runs"]) for p, r in both),
        sample=f"{pieces[0]['runs']:,} runs a point, N = {SIZE}, phi = {PHI:g}, tau_2 = 5 phi, eps_test = 7 "
        f"phi, delta = {DELTA:g}; "
        "seed 0.",
    )


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws how often the test passes over the true difference, and each run's estimated difference over its error."""
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    both = list(zip(pieces, results, strict=True))
    left.axvspan(3.6, 5, color=GREEN, alpha=0.10, linewidth=0)
    left.axvspan(9, 10.4, color=RED, alpha=0.10, linewidth=0)
    left.text(4.3, 0.5, "must pass", rotation=90, ha="center", va="center", color=DARK_GREEN, fontsize=9)
    left.text(9.75, 0.5, "must not pass", rotation=90, ha="center", va="center", color=DARK_RED, fontsize=9)
    for share, colour, style in zip(SHARES, (INK, BLUE, ORANGE, RED), ("-", "--", "-.", ":"), strict=True):
        mine = sorted((r["spread"] / PHI, r["passed"] / r["runs"]) for p, r in both if p["share"] == share)
        name = "$n_{test}$" if share == 1 else f"$n_{{test}}$ / {round(1 / share)}"
        left.plot(*zip(*mine, strict=True), color=colour, linestyle=style, label=name)
    left.axvline(7, color=GREY, linewidth=1, linestyle=":")
    left.text(7.05, 1.05, "$\\epsilon_{test}$", fontsize=9, color=NOTE)
    left.set(
        xlabel="true difference of values ($\\varphi$)",
        ylabel="test passed (share of runs)",
        ylim=(-0.04, 1.12),
        xlim=(3.9, 10.1),
    )
    left.set_title("A sharp test between two promises")
    left.legend(loc="lower left", bbox_to_anchor=(0.2, 0.02))
    for share, colour in zip(SHARES, (INK, BLUE, ORANGE, RED), strict=True):
        for r in (r for p, r in both if p["share"] == share and p["gap"] == 0):
            right.scatter(r["errors"], r["seen"], s=8, color=colour, alpha=0.7, linewidths=0)
    right.plot([0, 4], [0, 8], color=GREY, linewidth=1)
    right.text(2.9, 6.4, "twice the error", rotation=0, color=NOTE, fontsize=9, ha="right")
    right.axvline(1, color=GREEN, linewidth=1)
    right.text(1.05, -4.6, "event (i)\nto the left", color=DARK_GREEN, fontsize=9)
    right.axhline(2, color=RED, linewidth=1, linestyle="--")
    right.text(3.95, 2.2, "fails above", color=DARK_RED, fontsize=9, ha="right")
    right.set(
        xlabel="largest error of an estimate ($\\varphi$)",
        ylabel="estimated less true difference ($\\varphi$)",
        xlim=(0, 4),
        ylim=(-5, 8),
    )
    right.set_title("Functions exactly $\\tau_2$ apart")
