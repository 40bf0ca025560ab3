"""Theorem (guarantee for Consensus): its three parts, at thresholds that are tight.

Two functions err in opposite directions on every sample, so their estimated difference is off by exactly twice the error of
each: the triangle inequality in parts (ii) and (iii) is an equality. Smaller samples than printed make the event (i)
fail now and then, which shows that (ii) and (iii) rest on it. Functions whose values are independent fair bits are the
hardest to estimate: there the probability of (i) is known exactly. Whole calls of DFS-Learn show what follows from a test.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs import Rewards, Tables, TabularProcess
from richobs.core.ledger import Ledger
from richobs.core.queries import Query
from richobs.show.palette import BLUE, GREEN, GREY, INK, ORANGE, RED
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee.consensus import consensus
from richobs_lab.lsvee.dfs import ConsensusTested, NodeEliminated
from richobs_lab.lsvee.spaces import td_space
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.figures import DARK_GREEN, DARK_RED, NOTE
from richobs_lab.paper.rigs.node import (
    SETTING,
    beyond,
    bury,
    consensus_share,
    consistent,
    is_rounded_up,
    margin,
    printed_for,
    search_run,
    shipped_for,
    where,
)

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
CONFIDENCE, LAW = 0.99, 0.9999  # of one interval; of each of many that are compared with exact probabilities
SIZE = 9  # functions in the class, the last of which is dead
SWING = 0.7  # how much a value depends on which of the two observations was seen
SHARES = (1.0, 1 / 16, 1 / 64, 1 / 256)  # of n_test
EPS = 15  # eps_test in phi: 20 (H - |p| - 5/4) sqrt(K) with H = 2, |p| = 0 and K = 1 (tex line 1120)
BITS = 6  # functions of the class that is hardest to estimate
AROUND = (0.25, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 4.0)  # times the divisor at which the promise breaks
SETTINGS: tuple[Plain, ...] = (  # of whole calls of DFS-Learn
    {"horizon": 2, "states": 3, "epsilon": 0.9, "delta": 0.8, "actions": 3},
    {"horizon": 3, "states": 4, "epsilon": 0.3, "delta": 0.05, "actions": 2},
    {"horizon": 6, "states": 7, "epsilon": 0.05, "delta": 1e-6, "actions": 5},
)


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns differences around tau_2 and around 2 phi + eps_test, fair bits under divided samples, and whole calls."""
    runs = 150 if scale == "fast" else 1000
    steps = (
        (-1.0, 0.0, 2.0, 3.9, 4.0, 4.01, 5.0)
        if scale == "fast"
        else [round(-1 + 0.25 * i, 2) for i in range(25)] + [3.9, 4.01]
    )
    common = {**SETTING, "actions": 1, "seed": 0}
    gaps: list[Plain] = [
        {"kind": "gap", "gap": step, "share": share, "runs": runs, **common}
        for share in SHARES
        for step in steps  # the functions differ by tau_2 + step phi
    ]
    divided: Plain = {"kind": "bits", "bits": BITS, "runs": 500 if scale == "fast" else 4000, **common}
    exact = breaking_point(divided)
    around = AROUND if scale == "full" else (0.6, 0.8, 1.0, 1.25, 1.6)
    bits = [{**divided, "divide": divide} for divide in (1.0, *(exact * part for part in around))]
    calls: list[Plain] = [
        {"kind": "call", "apart": apart, "seed": 0, **setting}
        for setting in SETTINGS
        # of eps_test; near it the child may be learned, which takes a process of H levels, and the node has 2
        for apart in ((0.9, 1.1) if setting["horizon"] == 2 else (0.1,))
    ]
    return gaps + bits + calls


def measure(piece: Plain, /) -> Plain:
    """Runs the test and compares its verdicts with the exact values, run by run."""
    return {"gap": _gap, "bits": _bits, "call": _call}[piece["kind"]](piece)


def _gap(piece: Plain) -> Plain:
    """Two functions a given distance apart."""
    constants, printed = shipped_for(piece, SIZE), printed_for(piece, SIZE)
    phi = printed.phi
    tau = (EPS - 2) * phi  # tau_2, the largest that eps_test allows
    eps_test = constants.eps_test(1) * piece.get("tolerance", 1.0)
    n = math.ceil(constants.search.n_test * piece["share"])
    functions = _class(tau + piece["gap"] * phi)
    process = _process(np.full(2, 0.5))
    space = td_space(functions)
    bury(space, (SIZE, 1, 1), [SIZE - 1])
    alive = space.alive(1)
    truth = functions.values(1, process.observations[1]).max(axis=2) @ process.emissions[1][0]  # [N]
    spread = float(np.ptp(truth[alive]))
    errors, seen, passed = [], [], []
    engine = CountedEngine(process, functions, seed=piece["seed"], ledger=Ledger())
    query = Query.observe((0,), n, purpose="consensus", phase="statement")
    for _ in range(piece["runs"]):
        (moments,) = engine.ask(query).moments
        verdict = consensus(moments, alive, eps_test=eps_test)
        errors.append(float(np.abs(verdict.v_hat - truth)[alive].max()))
        seen.append(verdict.spread)
        passed.append(verdict.agree)
    good = [e <= phi * (1 + 1e-9) for e in errors]
    close, far = spread <= tau * (1 + 1e-9), spread > (2 + EPS) * phi * (1 + 1e-9)
    pairs = list(zip(good, passed, strict=True))
    return {
        "n": n,
        "sized": is_rounded_up(n, printed.root.n_test * piece["share"]),
        "tolerance": eps_test / (EPS * phi),
        "spread": spread,
        "phi": phi,
        "runs": piece["runs"],
        "bad": piece["runs"] - sum(good),
        "passed": sum(passed),
        # (ii): on the event, functions within tau_2 pass; (iii): on the event, who passes is within 2 phi + eps_test.
        "close": close,
        "far": far,
        "ii": sum(g and not p for g, p in pairs) if close else 0,
        "iii": sum(g and p for g, p in pairs) if far else 0,
        "ii_without": sum(not g and not p for g, p in pairs) if close else 0,
        "iii_without": sum(not g and p for g, p in pairs) if far else 0,
        # how much of a promise was used: estimated differences of functions that must pass, true ones of who passed
        "used_ii": max((s for s, g in zip(seen, good, strict=True) if g and close), default=0.0) / (EPS * phi),
        "used_iii": spread / ((2 + EPS) * phi) if any(g and p for g, p in pairs) else 0.0,
        "errors": [e / phi for e in errors[:200]] if piece["gap"] == 0 else [],  # for the figure
        "seen": [(s - spread) / phi for s in seen[:200]] if piece["gap"] == 0 else [],
        "exact_bad": beyond(n, phi / SWING),
    }


def _bits(piece: Plain) -> Plain:
    """Functions whose values are independent fair bits, with n_test samples divided by a number."""
    bits = piece["bits"]
    constants, printed = shipped_for(piece, bits), printed_for(piece, bits)
    n = math.ceil(constants.search.n_test / piece["divide"])
    rows = np.arange(2**bits)
    values = (rows[None, :] >> np.arange(bits)[:, None] & 1).astype(float)  # [N, X]
    functions = Tables([np.zeros((bits, 1, 1)), values[:, :, None]])
    engine = CountedEngine(_process(np.full(len(rows), 1 / len(rows))), functions, seed=piece["seed"], ledger=Ledger())
    query = Query.observe((0,), n, purpose="consensus", phase="statement")
    bad = 0
    for _ in range(piece["runs"]):
        (moments,) = engine.ask(query).moments
        verdict = consensus(moments, np.ones(bits, dtype=bool), eps_test=constants.eps_test(1))
        bad += bool(np.abs(verdict.v_hat - 0.5).max() > printed.phi)
    return {
        "n": n,
        "sized": is_rounded_up(n, printed.root.n_test / piece["divide"]),
        "tolerance": constants.eps_test(1) / printed.eps_test(1),
        "runs": piece["runs"],
        "bad": bad,
        "exact_bad": estimated_badly(piece),
    }


def estimated_badly(piece: Plain, part: float = 1.0) -> float:
    """Returns the exact probability that a "bits" piece estimates some value worse than a part of phi."""
    printed = printed_for(piece, piece["bits"])
    n = math.ceil(printed.root.n_test / piece.get("divide", 1))
    return 1 - (1 - beyond(n, part * printed.phi)) ** int(piece["bits"])


def breaking_point(piece: Plain) -> float:
    """Returns by how much n_test must be divided before (i) fails with probability delta, exactly."""
    return where(lambda part: estimated_badly({**piece, "divide": part}) < consensus_share(piece), 1, 1e4)


def _call(piece: Plain) -> Plain:
    """A whole call of DFS-Learn, on functions that differ on the children by a part of eps_test."""
    size, K = 3, piece["actions"]
    constants, printed = shipped_for(piece, size), printed_for(piece, size)
    eps_test = printed.eps_test(piece["horizon"] - 1)  # actions left at a child of the root
    half = piece["apart"] * eps_test / 2
    run = search_run(consistent(K, [half, -half]), constants, seed=piece["seed"])
    tests = [e for e in run.events if isinstance(e, ConsensusTested)]
    eliminations = [e for e in run.events if isinstance(e, NodeEliminated)]
    expected = len(tests) * printed.root.n_test + len(eliminations) * printed.root.n_train
    return {
        "n": tests[0].n,
        "sized": abs(run.drawn - expected) <= len(run.events),
        "tolerance": tests[0].eps_test / eps_test,
        "tests": len(tests),
        "verdicts": [e.agree for e in tests],
        "eliminated": [list(e.path) for e in eliminations],
        "alive": run.alive.tolist(),
    }


def _process(law: np.ndarray) -> TabularProcess:
    """Returns two levels with one state each and one action; the second level shows an observation of a given law."""
    return TabularProcess(
        start=np.ones(1),
        transitions=(np.zeros((1, 1), dtype=int),),
        emissions=(np.ones((1, 1)), law[None]),
        rewards=(Rewards.deterministic(np.zeros((1, 1, 1))), Rewards.deterministic(np.zeros((1, len(law), 1)))),
    )


def _class(gap: float) -> Tables:
    """Returns two functions `gap` apart, one high where the other is low, constants between, and a far one; one action."""
    up = np.array([(1 - SWING) / 2, (1 + SWING) / 2])
    rows = [up + gap / 2, up[::-1] - gap / 2, *(np.full(2, 0.5 + gap * t) for t in np.linspace(-0.1, 0.1, SIZE - 3))]
    rows.append(np.full(2, 0.9))
    return Tables([np.zeros((SIZE, 1, 1)), np.stack(rows)[:, :, None]])


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks (i) by probability, (ii) and (iii) in every run on the event, and what DFS-Learn makes of a verdict."""
    sized = sum(bool(r["sized"]) for r in results)
    far = max((r["tolerance"] for r in results), key=lambda ratio: abs(ratio - 1))
    checks = [
        Check(
            "samples and tolerance are the printed ones",
            sized == len(results) and abs(far - 1) <= 1e-9,
            f"Samples are as expected in {sized} of {len(results)} pieces; tolerances are {far:.9f} of the printed.",
        )
    ]
    checks += _estimates(list(of_kind("bits", pieces, results))) + _parts(list(of_kind("gap", pieces, results)))
    calls = list(of_kind("call", pieces, results))
    if calls:
        good = sum(_as_told(p, r) for p, r in calls)
        checks.append(
            Check(
                "DFS-Learn goes on where survivors agree, and learns the child first where they do not",
                good == len(calls),
                f"As printed in {good} of {len(calls)} calls, with functions up to 1.1 times eps_test apart on children "
                "and consistent with what they say there.",
            )
        )
    both = list(of_kind("gap", pieces, results))
    return Conclusion(
        checks=tuple(checks),
        columns=("n / n_test", "n", "difference (phi)", "(i) failed", "passed", "runs"),
        rows=tuple((p["share"], r["n"], r["spread"] / r["phi"], r["bad"], r["passed"], r["runs"]) for p, r in both),
        sample=f"{pieces[0].get('runs', 1):,} runs a point, N = {SIZE}, epsilon = {SETTING['epsilon']:g}, H = 2, tau_2 = "
        f"{EPS - 2} phi, eps_test = {EPS} phi, delta of one call = {consensus_share(pieces[0]):g}; seed 0.",
    )


def _estimates(both: list[tuple[Plain, Plain]]) -> list[Check]:
    """Part (i), and by how much n_test can be divided before it breaks."""
    if not both:
        return []
    delta = consensus_share(both[0][0])
    points = sorted((p["divide"], r["bad"], r["runs"], r["exact_bad"]) for p, r in both)
    _, bad, runs, exact = points[0]  # n_test as printed
    small = {**both[0][0], "delta": 1e-12, "divide": 1.0}  # exact probabilities alone
    tight = where(lambda part: estimated_badly(small, part) > consensus_share(small), 0.01, 1.0)
    breaks, found = breaking_point(both[0][0]), margin(points, delta, CONFIDENCE)
    return [
        Check(
            "(i) every value is estimated up to phi, with probability at least 1 - delta",
            binomial_interval(bad, runs, CONFIDENCE)[1] <= delta and exact <= delta,
            f"With n_test samples not in {bad} of {runs:,} runs; the exact probability is {exact:.1e}. At delta = "
            f"{small['delta']:g} the error exceeds {tight:.3f} phi with the probability allowed. No class gets beyond 1/2: "
            "values lie in [0, 1], and the proof uses [-1, 1].",
            tightness=tight,
        ),
        Check(
            "n_test can be divided by a known number before (i) fails too often",
            margin(points, delta, LAW).agrees and breaks / 2 < found.safe < breaks < found.broken < breaks * 2,
            f"(i) fails with probability delta where n_test is divided by {breaks:.2f}, exactly. Counts agree with the "
            f"exact probability at {len(points)} divisors. Measured: it still holds at {found.safe:.1f} and is broken at "
            f"{found.broken:.1f} ({runs:,} runs each, {CONFIDENCE:.0%} intervals).",
        ),
    ]


def _parts(both: list[tuple[Plain, Plain]]) -> list[Check]:
    """Parts (ii) and (iii), and that they need the event."""
    if not both:
        return []
    law = all(
        low <= r["exact_bad"] + 1e-9 and r["exact_bad"] <= high + 1e-9
        for _, r in both
        for low, high in (binomial_interval(r["bad"], r["runs"], LAW),)
    )
    good_ii, good_iii = (sum(r["runs"] - r["bad"] for _, r in both if r[name]) for name in ("close", "far"))
    broke = {name: sum(r[name] for _, r in both) for name in ("ii", "iii", "ii_without", "iii_without")}
    used = {name: max(r[name] for _, r in both) for name in ("used_ii", "used_iii")}
    return [
        Check(
            "(ii) on that event, functions that differ by at most tau_2 pass",
            broke["ii"] == 0 and good_ii > 0,
            f"Of {good_ii:,} runs on the event with functions up to exactly tau_2 apart, {broke['ii']:,} did not pass; the "
            f"estimated difference came up to {used['used_ii']:.3f} of eps_test. A dead function far away changes nothing.",
            tightness=used["used_ii"],
        ),
        Check(
            "(iii) on that event, functions that pass differ by at most 2 phi + eps_test",
            broke["iii"] == 0 and good_iii > 0,
            f"Of {good_iii:,} runs on the event with functions just beyond, {broke['iii']:,} passed; the largest true "
            f"difference that passed is {used['used_iii']:.3f} of 2 phi + eps_test.",
            tightness=used["used_iii"],
        ),
        Check(
            "both parts need the event",
            broke["ii_without"] > 0 and broke["iii_without"] > 0 and law,
            f"Off the event, in samples smaller than n_test, {broke['ii_without']:,} runs failed (ii) and "
            f"{broke['iii_without']:,} failed (iii). How often (i) fails agrees with its exact probability everywhere.",
        ),
    ]


def _as_told(piece: Plain, result: Plain) -> bool:
    """Whether a call of DFS-Learn did what follows from the tests: the root last, children only where survivors disagree."""
    K = piece["actions"]
    if piece["apart"] < 1:
        return result["verdicts"] == [True] * K and result["eliminated"] == [[]] and all(result["alive"])
    first, *rest = result["eliminated"]  # children have no order
    once = result["verdicts"] == [False] + [True] * (K - 1) and len(first) == 1 and rest == [[]]
    return once and result["alive"] == [True, False, False]


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws how often the test passes over the true difference, and each run's estimated difference over its error."""
    figure.set_size_inches(6.4, 7.0)
    left, right = figure.subplots(2, 1)
    both = list(of_kind("gap", pieces, results))
    tau, limit = EPS - 2, EPS + 2
    left.axvspan(tau - 1.4, tau, color=GREEN, alpha=0.10, linewidth=0)
    left.axvspan(limit, limit + 1.4, color=RED, alpha=0.10, linewidth=0)
    left.text(tau - 0.7, 0.5, "must pass", rotation=90, ha="center", va="center", color=DARK_GREEN, fontsize=9)
    left.text(limit + 0.75, 0.5, "must not pass", rotation=90, ha="center", va="center", color=DARK_RED, fontsize=9)
    for share, colour, style in zip(SHARES, (INK, BLUE, ORANGE, RED), ("-", "--", "-.", ":"), strict=True):
        mine = sorted((r["spread"] / r["phi"], r["passed"] / r["runs"]) for p, r in both if p["share"] == share)
        name = "$n_{test}$" if share == 1 else f"$n_{{test}}$ / {round(1 / share)}"
        left.plot(*zip(*mine, strict=True), color=colour, linestyle=style, label=name)
    left.axvline(EPS, color=GREY, linewidth=1, linestyle=":")
    left.text(EPS + 0.05, 1.05, "$\\epsilon_{test}$", fontsize=9, color=NOTE)
    left.set(
        xlabel="true difference of values ($\\varphi$)",
        ylabel="test passed (share of runs)",
        ylim=(-0.04, 1.12),
        xlim=(tau - 1.1, limit + 1.1),
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
