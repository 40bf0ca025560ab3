"""Theorem 1 of [KAL16]: LSVEE is probably approximately correct, and how many episodes that takes.

Failures are counted over random worlds, where every value is exact. Episodes are measured on the staircase, a world that
takes as many rounds on demand as it can, while one quantity is swept at a time. LSVEE runs as printed and with repeats left
out; the certified learner runs beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs.core.errors import BrokenPromise
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.learners.lsvee.constants import PaperConstants
from richobs.learners.lsvee.plan import SamplePlan
from richobs.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs.paper.rigs.corners import staircase
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREEN, GREY, RED, SKY
from richobs.stats.intervals import binomial_interval
from richobs.worlds import make

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "pac"
TITLE = "Theorem 1 (PAC bound)"
SAYS = (
    "With probability 1 - delta LSVEE returns a policy within epsilon of optimal, after at most "
    "O~(M H^6 K^2 / epsilon^3 log(N/delta) log(1/delta)) episodes."
)

EPSILON, DELTAS = 0.2, (0.5, 0.1)  # of the runs over random worlds
CONFIDENCE = 0.999
BASE: dict[str, float] = {"M": 3, "H": 4, "K": 4, "1/epsilon": 20, "log 1/delta": -math.log(0.05), "log N": 0}
SWEEPS: dict[str, tuple[float, ...]] = {  # what is swept, all else at BASE (K at 17 where M is swept)
    "M": (2, 3, 4, 6, 8, 12, 16),
    "H": (2, 3, 4, 5, 6, 8, 10, 12),
    "K": (4, 6, 8, 12, 16, 32, 64, 128, 256),
    "1/epsilon": (5, 10, 20, 40, 80, 160),
    "log 1/delta": tuple(-math.log(d) for d in (0.3, 0.1, 0.03, 1e-3, 1e-5, 1e-7, 1e-9)),
    "log N": (2, 4, 10, 40, 150, 600, 2000),  # functions a level of a product class; its fourth power is N
}
FAR = {"M": 1e12, "H": 1e12, "K": 1e12, "1/epsilon": 1e8, "log N": 1e12}  # where logarithms hardly bend an exponent
THEOREM = {"M": 1.0, "H": 6.0, "K": 2.0, "1/epsilon": 3.0, "log 1/delta": 2.0, "log N": 1.0}
WHY = {
    "M": "above 1: logarithms of M, and failed rounds are (M-1)(H-1) + 1, not M H",
    "H": "above 6: logarithms of H, and rounds times prefixes go with (H-1)^2, not H^2",
    "K": "below 2: n_train goes with 24 K and K n_test with 2 K^2, so that K^2 wins above 12 actions",
    "1/epsilon": "above 3: a logarithm of n_2. Without repeats it is 2: n_2 paths, but each learned once",
    "log 1/delta": "below 2: 1/delta stands beside M H, N and n_2 in both logarithms, which weigh more here",
    "log N": "below 1: log N stands beside log(48 M^2 H^3 n_2/delta), about 20 here",
}


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns the work: runs over random worlds, and runs of both learners at each point of a sweep."""
    full = scale == "full"
    work: list[Plain] = []
    for learner, runs in (("lsvee", 1000 if full else 15), ("certified", 500 if full else 8)):
        for delta in DELTAS:
            work += [
                {"kind": "pac", "learner": learner, "delta": delta, "first": first, "runs": min(25, runs)}
                for first in range(0, runs, 25)
            ]
    for swept, values in SWEEPS.items():
        chosen = values if full else (values[0], values[len(values) // 2])
        work += [{"kind": "sweep", "swept": swept, "value": v, "seeds": 5 if full else 1} for v in chosen]
    return [*work, {"kind": "verbatim", "seed": 0}, *({"kind": "near one", "delta": d} for d in (0.5, 0.999999))]


def measure(piece: Plain, /) -> Plain:
    """Returns what one piece measured."""
    given = {k: v for k, v in piece.items() if k != "kind"}
    by_kind: dict[str, Callable[..., Plain]] = {
        "pac": measure_pac,
        "sweep": measure_sweep,
        "verbatim": measure_verbatim,
        "near one": measure_near_one,
    }
    return by_kind[piece["kind"]](**given)


def measure_pac(learner: str, delta: float, first: int, runs: int) -> Plain:
    """Counts the runs over random worlds that failed, and those whose episodes or V*-hat broke their bounds."""
    failed = many = off = 0
    worst = 0.0
    for seed in range(first, first + runs):
        rng = keyed_generator(seed, "pac")
        problem = make(
            "random",
            seed=seed,
            horizon=int(rng.integers(1, 6)),
            n_states=int(rng.integers(1, 6)),
            n_actions=int(rng.integers(1, 5)),
            overlap=float(rng.choice([0.0, 0.5, 1.0])),
            class_size=int(rng.integers(1, 40)),
        )
        try:
            outcome = run(problem, Settings(epsilon=EPSILON, delta=delta, learner=learner, seed=seed))
        except BrokenPromise:
            failed += 1
            continue
        regret = problem.optimal_value - problem.value(outcome.policy)
        worst = max(worst, regret)
        failed += regret > EPSILON
        if learner == "lsvee":
            assert outcome.v_star_hat is not None
            many += outcome.episodes + outcome.ledger.skipped > SamplePlan(outcome.constants).max_episodes
            off += abs(outcome.v_star_hat - problem.optimal_value) > EPSILON / 8
    return {"failed": failed, "many": many, "off": off, "regret": worst}


def measure_sweep(swept: str, value: float, seeds: int) -> Plain:
    """Measures episodes on the staircase at one point of a sweep, and what the paper's proof allows there."""
    at = {**BASE, swept: value}
    if swept == "M":
        at["K"] = 1 + max(SWEEPS["M"])  # enough actions for the largest M at every M
    problem = staircase(
        horizon=int(at["H"]),
        n_states=int(at["M"]),
        n_actions=int(at["K"]),
        members=int(at["log N"]),
        product=swept == "log N",
    )
    epsilon, delta = 1 / at["1/epsilon"], math.exp(-at["log 1/delta"])
    printed = run(problem, Settings(epsilon=epsilon, delta=delta, learner="lsvee"))
    certified = [
        run(problem, Settings(epsilon=epsilon, delta=delta, learner="certified", seed=seed)) for seed in range(seeds)
    ]
    there = SamplePlan(printed.constants)
    regrets = [problem.optimal_value - problem.value(o.policy) for o in (printed, *certified)]
    return {
        "x": problem.functions.log_size if swept == "log N" else value,
        "printed": float(printed.episodes + printed.ledger.skipped),
        "skipping": float(printed.episodes),
        "rounds": printed.rounds,
        "bound": float(there.max_episodes),
        "order": there.theorem_1,
        "certified": [o.episodes for o in certified],
        "right": all(regret <= epsilon for regret in regrets),
    }


def measure_verbatim(seed: int) -> Plain:
    """Plays every repeat as printed, once: the ledger's count of what was left out has to agree to the episode."""
    problem = staircase(horizon=3, n_states=1, n_actions=2)
    asked = Settings(epsilon=0.5, delta=0.5, learner="lsvee", seed=seed)
    skipping, printed = run(problem, asked), run(problem, replace(asked, tuning=("repeats=verbatim",)))
    return {"played": float(printed.episodes), "counted": float(skipping.episodes + skipping.ledger.skipped)}


def measure_near_one(delta: float) -> Plain:
    """Measures episodes where delta is large, against the order that the theorem prints: its log(1/delta) vanishes at 1."""
    problem = staircase(horizon=3, n_states=2, n_actions=3)
    outcome = run(problem, Settings(epsilon=0.2, delta=delta, learner="lsvee"))
    return {
        "printed": float(outcome.episodes + outcome.ledger.skipped),
        "order": SamplePlan(outcome.constants).theorem_1,
    }


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the slope of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def proof_bound(at: dict[str, float]) -> float:
    """Returns the episodes that the proof allows at a point, its constants included."""
    numbers = PaperConstants.of(
        horizon=int(at["H"]),
        n_actions=int(at["K"]),
        n_states=int(at["M"]),
        log_size=at["log N"],
        epsilon=1 / at["1/epsilon"],
        delta=math.exp(-at["log 1/delta"]),
    )
    return float(numbers.max_episodes())


def far_exponent(swept: str) -> float | None:
    """Returns the local exponent of the proof's bound far out, or None where numbers do not reach that far."""
    if swept not in FAR:
        return None
    ends = [FAR[swept] / 10, FAR[swept]]
    return exponent(ends, [proof_bound({**BASE, swept: value}) for value in ends])


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns failures against delta, and exponents against the theorem's."""
    runs = list(of_kind("pac", pieces, results))
    sweep = list(of_kind("sweep", pieces, results))
    checks: list[Check] = []
    rows: list[tuple[Any, ...]] = []
    for learner, delta, failed, total in failures(pieces, results):
        low, high = binomial_interval(failed, total, CONFIDENCE)
        checks.append(
            Check(
                f"Learner {learner}, delta {delta}: fails with probability at most delta",
                low <= delta,
                f"{failed} of {total} runs failed, interval [{low:.4f}, {high:.4f}]",
            )
        )
        rows.append(
            (f"{learner}, delta {delta}", f"{failed} of {total} failed", f"[{low:.4f}, {high:.4f}]", "", "", "")
        )
    paper = sum(p["runs"] for p, _ in runs if p["learner"] == "lsvee")
    checks += [
        Check(
            "Episodes stay within the bound of the proof, with its constants, in every run",
            sum(r["many"] for _, r in runs) == 0 and all(r["printed"] <= r["bound"] for _, r in sweep),
            f"{paper} random worlds and {len(sweep)} staircases; the staircases take up to "
            f"{max(r['printed'] / r['bound'] for _, r in sweep):.0%} of it",
        ),
        Check(
            "Corollary 1 on the way: V*-hat is within epsilon/8 of V*",
            sum(r["off"] for _, r in runs) <= paper * max(DELTAS),
            f"{sum(r['off'] for _, r in runs)} of {paper} runs were off by more",
        ),
        Check(
            "Every policy of every sweep is epsilon-optimal, of both learners",
            all(r["right"] for _, r in sweep),
            f"{sum(1 + p['seeds'] for p, _ in sweep)} runs",
        ),
        Check(
            "What repeats cost as printed is counted, not played: played once, it is the same number",
            all(r["played"] == r["counted"] for _, r in of_kind("verbatim", pieces, results)),
            ", ".join(f"{r['played']:.6g} and {r['counted']:.6g}" for _, r in of_kind("verbatim", pieces, results)),
        ),
    ]
    (_, half), (_, one) = of_kind("near one", pieces, results)
    checks.append(
        Check(
            "Theorem 1 as printed cannot hold for delta near 1: log(1/delta) vanishes, episodes do not. Read log(e/delta)",
            one["order"] < 1e-3 * half["order"] and one["printed"] > 0.1 * half["printed"],
            f"delta 0.5: {half['printed']:.2g} episodes, order {half['order']:.2g}; delta 0.999999: {one['printed']:.2g} "
            f"episodes, order {one['order']:.2g}",
        )
    )
    for swept in SWEEPS:
        mine = [r for p, r in sweep if p["swept"] == swept]
        x = [r["x"] for r in mine]
        measured, bound = (exponent(x, [r[key] for r in mine]) for key in ("printed", "bound"))
        certified = exponent(x, [float(np.median(r["certified"])) for r in mine])
        far = far_exponent(swept)
        checks.append(
            Check(
                f"Sweep of {swept}: within the bound at each point, which has the theorem's exponent up to logarithms",
                all(r["printed"] <= r["bound"] for r in mine) and (far is None or abs(far - THEOREM[swept]) < 0.1),
                f"exponents: measured {measured:.2f}, bound on the same points {bound:.2f}, "
                + ("" if far is None else f"bound far out {far:.2f}, ")
                + f"theorem {THEOREM[swept]:g}. Why they differ: {WHY[swept]}",
            )
        )
        rows.append(
            (
                f"exponent of {swept}",
                f"{measured:.2f}",
                f"{bound:.2f}",
                "" if far is None else f"{far:.2f}",
                f"{THEOREM[swept]:g}",
                f"{round(certified, 2) + 0.0:.2f}",
            )
        )
    for p, r in sweep:
        rows.append(
            (
                f"{p['swept']} = {r['x']:.3g}",
                f"{r['printed']:.3g}",
                f"{r['bound']:.3g}",
                f"{r['skipping']:.3g}",
                f"{r['order']:.3g}",
                f"{np.median(r['certified']):.0f}",
            )
        )
    base = f"H {BASE['H']}, K {BASE['K']}, M {BASE['M']}, epsilon {1 / BASE['1/epsilon']:g}, delta 0.05"
    return Conclusion(
        tuple(checks),
        ("what", "as printed", "proof's bound", "far out | repeats left out", "theorem | its order", "certified"),
        tuple(rows),
        f"Failures: random worlds, epsilon {EPSILON}, {paper // len(DELTAS)} runs of LSVEE as printed and "
        f"{(sum(p['runs'] for p, _ in runs) - paper) // len(DELTAS)} of the certified learner per delta, seeds from 0, "
        f"exact binomial intervals at {CONFIDENCE:.1%}. Sweeps: the staircase around {base} (K = 17 where M is swept), one "
        f"run per point of LSVEE as printed, median of {sweep[0][0]['seeds']} of the certified learner",
    )


def failures(pieces: Sequence[Plain], results: Sequence[Plain]) -> list[tuple[str, float, int, int]]:
    """Returns (learner, delta, failures, runs)."""
    sums: dict[tuple[str, float], list[int]] = {}
    for p, r in of_kind("pac", pieces, results):
        entry = sums.setdefault((p["learner"], p["delta"]), [0, 0])
        entry[0] += r["failed"]
        entry[1] += p["runs"]
    return [(learner, delta, failed, total) for (learner, delta), (failed, total) in sums.items()]


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws one panel per sweep, the exponents side by side, and the failures."""
    figure.set_size_inches(15, 8.4)
    axes = figure.subplots(2, 4)
    for each, swept in zip([*axes[0, :3], *axes[1, :3]], SWEEPS, strict=True):
        _draw_sweep(each, swept, [r for p, r in of_kind("sweep", pieces, results) if p["swept"] == swept])
    for each in axes[:, 0]:
        each.set_ylabel("episodes, as a multiple of the first point's")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=5, loc="outside upper left")
    _draw_exponents(axes[0, 3], pieces, results)
    _draw_failures(axes[1, 3], pieces, results)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)


def _draw_sweep(axes: "Axes", swept: str, mine: Sequence[Plain]) -> None:
    """Draws episodes as multiples of those at the first point, so that slopes can be compared; titles say how many."""
    x = np.array([r["x"] for r in mine])
    middle = [float(np.median(r["certified"])) for r in mine]
    lines: list[tuple[Sequence[float], str, str, str]] = [
        (list((x / x[0]) ** THEOREM[swept]), "--", GREY, "theorem's exponent"),
        ([r["bound"] for r in mine], "-", "black", "bound: the proof, its constants in"),
        ([r["printed"] for r in mine], "o-", BLUE, "measured: paper, as printed"),
        ([r["skipping"] for r in mine], "o-", SKY, "measured: paper, repeats left out"),
        (middle, "s-", RED, "measured: certified"),
    ]
    for y, style, colour, label in lines:
        axes.plot(x, np.array(y) / y[0], style, color=colour, markersize=3, linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(_symbol(swept))
    top = axes.get_ylim()[1]
    if top < 300:
        marks = [v for v in (1, 2, 5, 10, 20, 50, 100, 200) if v <= top]
        axes.set_yticks(marks, [str(v) for v in marks])
    ticks = [x[0], x[len(x) // 2], x[-1]] if len(x) > 2 else list(x)
    axes.set_xticks(ticks, [f"{v:.3g}" for v in ticks])
    axes.minorticks_off()
    first, last = mine[0], mine[-1]
    numbers = f"paper {first['printed']:.0e} to {last['printed']:.0e} episodes,"
    numbers += f"\ncertified {middle[0]:,.0f} to {middle[-1]:,.0f}"
    note = f"{numbers}\n\n{fill(_symbol(WHY[swept]), 34)}"
    axes.text(0.03, 0.98, note, transform=axes.transAxes, va="top", fontsize=8, color="#444444")
    slope = exponent(list(x), [r["printed"] for r in mine])
    axes.set_title(f"{_symbol(swept)}: exponent {slope:.2f}, theorem {THEOREM[swept]:g}", loc="left", fontsize=10)


def _symbol(swept: str) -> str:
    return swept.replace("epsilon", "ε").replace("delta", "δ")


def _draw_exponents(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    for row, swept in enumerate(reversed(SWEEPS)):
        mine = [r for p, r in of_kind("sweep", pieces, results) if p["swept"] == swept]
        x = [r["x"] for r in mine]
        middle = [float(np.median(r["certified"])) for r in mine]
        marks: list[tuple[float | None, str, str, str]] = [
            (THEOREM[swept], "|", "black", "theorem"),
            (far_exponent(swept), "d", GREEN, "proof's bound, far out"),
            (exponent(x, [r["printed"] for r in mine]), "o", BLUE, "measured, as printed"),
            (exponent(x, middle), "s", RED, "measured, certified"),
        ]
        for value, marker, colour, label in marks:
            if value is not None:
                axes.plot(
                    value,
                    row,
                    marker,
                    color=colour,
                    markersize=14 if marker == "|" else 5,
                    label=label if swept == "M" else None,
                )
    axes.set_yticks(range(len(SWEEPS)), [_symbol(s) for s in reversed(SWEEPS)])
    axes.set_ylim(-0.5, len(SWEEPS) + 1.6)
    axes.set_xlabel("exponent")
    axes.set_title("Exponents fitted over each sweep", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _draw_failures(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    counts = failures(pieces, results)
    for row, (learner, delta, failed, total) in enumerate(reversed(counts)):
        low, high = binomial_interval(failed, total, CONFIDENCE)
        colour = BLUE if learner == "lsvee" else RED
        axes.plot([low, high], [row, row], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot(failed / total, row, "o", color=colour, markersize=4)
        axes.plot(delta, row, "|", color="black", markersize=18)
        said = f"{failed} of {total} failed: at most {high:.4f}"
        axes.text(0.12, row, said, fontsize=9, color=colour, va="center")
    axes.set_yticks(range(len(counts)), [f"{learner}\nδ = {delta}" for learner, delta, _, _ in reversed(counts)])
    axes.set_ylim(-0.5, len(counts) - 0.3)
    axes.set_xlim(-0.01, max(DELTAS) * 1.1)
    axes.set_xlabel("failures (bar: interval); the mark is δ")
    axes.set_title(f"PAC over random worlds, ε = {EPSILON}", loc="left", fontsize=10)
