"""The special cases of Section 3.2: contextual bandits (M = H = 1) and small-state MDPs, beside methods made for them.

LSVEE does not know that it is in a special case. RegressorElimination knows the law of the contexts, and the tabular
methods know that what they see is the state; each is asked for the same epsilon and delta.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs import LearnedPolicy, Problem, Settings, TabularProcess, make
from richobs.core.ledger import Ledger
from richobs.core.queries import Engine
from richobs.core.randomness import keyed_generator
from richobs.core.types import Ints
from richobs.core.words import several
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.rigs.asked import CERTIFIED, LEARNER, PAPER, printed_episodes
from richobs_lab.paper.rigs.censored import median, median_words
from richobs_lab.paper.rigs.corners import staircase
from richobs_lab.paper.rigs.fits import Fit, fit_exponent
from richobs_lab.paper.rigs.lanes import Lanes, train
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.rivals.delayed_q import delayed_q, delayed_q_visits
from richobs_lab.rivals.regressor_elimination import regressor_elimination
from richobs_lab.rivals.rmax import enough_visits, printed_visits, rmax
from richobs_lab.rivals.tabular import Learned, n_pairs
from richobs_lab.rivals.ucb_q import PROVEN, UcbQTables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "special-cases"
TITLE = "Section 3.2, contextual bandits and tabular MDPs"
SAYS = (
    "In contextual bandits Theorem 1 reads K^2/eps^3 log(N/delta) log(1/delta) where K/eps^2 log(N/delta) is known; in "
    "layered MDPs with deterministic transitions M K poly(H)/eps^2 log(1/delta) is."
)

DELTA = 0.05
CONFIDENCE = 0.999
REGRESSOR = "RegressorElimination"
RMAX, RMAX_PRINTED, DELAYED = "R-max (Hoeffding visits)", "R-max (printed visits)", "delayed Q-learning"
UCB, UCB_TUNED = "UCB-Q (as proven)", "UCB-Q (bonus / 100)"
COLOURS = {
    PAPER: PINK,
    CERTIFIED: GREEN,
    REGRESSOR: ORANGE,
    RMAX: BLUE,
    RMAX_PRINTED: SKY,
    DELAYED: RED,
    UCB: GREY,
    UCB_TUNED: "black",
}
PROMISING = (PAPER, CERTIFIED, REGRESSOR, RMAX, RMAX_PRINTED, DELAYED)  # they stop by themselves, with a guarantee
BANDIT, MDP, SEA = "bandit", "mdp/3,n_states=3,n_actions=2", "deep-sea"
PROMISE = "promise"  # pieces that count failures only, at a delta that the runs can tell
STAIRS = "staircase"  # a piece that comes near to the proof's bound: the staircase as an MDP
SWEEPS = {  # -> what varies, and its name
    "bandit, by epsilon": ("epsilon", "1/ε"),
    "bandit, by K": ("n_actions", "actions K"),
    "MDP, by epsilon": ("epsilon", "1/ε"),
    "deep sea, by H": ("horizon", "levels H"),
}


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns one piece per sweep, point, learner and seed."""
    full = scale == "full"
    work: list[Plain] = []

    def add(sweep: str, world: str, learners: Sequence[str], epsilon: float, at: float) -> None:
        for learner in learners:
            lanes = learner in (UCB, UCB_TUNED)  # their runs are played side by side
            work.extend(
                {
                    "sweep": sweep,
                    "world": world,
                    "learner": learner,
                    "epsilon": epsilon,
                    "at": at,
                    "seed": seed,
                    "runs": (10 if full else 3) if lanes else 1,
                    "cap": (5_000 if full else 300) if lanes else None,
                }
                for seed in range(1 if lanes or not full else 4)
            )

    bandit, tabular = (PAPER, CERTIFIED, REGRESSOR), (PAPER, CERTIFIED, RMAX, RMAX_PRINTED, DELAYED, UCB, UCB_TUNED)
    for e in (0.3, 0.2, 0.1, 0.05, 0.025) if full else (0.3, 0.2, 0.1):
        add("bandit, by epsilon", BANDIT, bandit if full else bandit[:2], e, 1 / e)
    for K in (2, 4, 8, 16) if full else (2, 4, 8):
        add("bandit, by K", f"{BANDIT},n_actions={K}", bandit if full else bandit[:2], 0.1, K)
    for e in (0.3, 0.2, 0.1, 0.05, 0.025) if full else (0.3, 0.2, 0.1):
        add("MDP, by epsilon", MDP, tabular, e, 1 / e)
    for H in (4, 6, 8, 10) if full else (2, 3, 4):
        add("deep sea, by H", f"{SEA}/{H}", tabular, 0.1, H)
    delta, seeds = (DELTA, 200) if full else (0.2, 36)  # no failure of so many: surely below delta
    for learner in PROMISING:
        world = f"{BANDIT},n_contexts=2,class_size=3" if learner == REGRESSOR else MDP
        work += [
            {"sweep": PROMISE, "world": world, "learner": learner, "epsilon": 0.4, "at": 0, "seed": first, "runs": 1}
            | {"cap": None, "delta": delta, "seeds": min(20, seeds - first)}
            for first in range(0, seeds, 20)
        ]
    tall = {"horizon": 12, "n_states": 16, "n_actions": 17} if full else {"horizon": 5, "n_states": 6, "n_actions": 7}
    stairs = {"sweep": STAIRS, "world": STAIRS, "learner": PAPER, "epsilon": 0.05, "at": 0, "seed": 0, "runs": 1}
    return [*work, {**stairs, "cap": None, "shape": tall}]


def measure(piece: Plain, /) -> Plain:
    """Returns the episodes of every run (None where the cap came first) and how far from optimal its policy was."""
    if piece.get("seeds"):
        ones = [measure({**piece, "seed": piece["seed"] + i, "seeds": 0}) for i in range(piece["seeds"])]
        return {"episodes": [e for r in ones for e in r["episodes"]], "gaps": [g for r in ones for g in r["gaps"]]}
    delta = piece.get("delta", DELTA)
    if piece["world"] == STAIRS:
        problem = staircase(**piece["shape"], shown=True)
    else:
        problem = make(f"{piece['world']},seed={piece['seed']}")
    learner, epsilon = piece["learner"], piece["epsilon"]
    rng = keyed_generator(piece["seed"], NAME, piece["world"], learner, repr(epsilon))
    if learner in (UCB, UCB_TUNED):
        scale = PROVEN / 100 if learner == UCB_TUNED else PROVEN
        return _ucb(problem, epsilon, piece["runs"], piece["cap"], scale, rng)
    if learner in LEARNER:
        outcome = run(problem, Settings(epsilon=epsilon, delta=delta, learner=LEARNER[learner], seed=piece["seed"]))
        printed = Printed.of(problem, epsilon, delta)
        gap = problem.optimal_value - problem.value(outcome.policy)
        found = {"episodes": [printed_episodes(outcome)], "gaps": [gap]}
        return {**found, "n_train + n_1": printed.root.n_train + printed.n_1, "most": float(printed.most)}
    process = problem.process
    assert process is not None
    engine = CountedEngine(process, problem.functions, seed=int(rng.integers(2**62)), ledger=Ledger())
    policy: tuple[Ints, ...]
    if learner == REGRESSOR:
        tables = problem.functions.values(0, process.observations[0])
        end = regressor_elimination(engine, process, tables, epsilon=epsilon, delta=delta, max_rounds=2_000_000)
        policy, episodes, done = (end.policy,), end.episodes, end.finished
    else:
        learned = _tabular(learner, engine, process, epsilon, delta)
        policy, episodes, done = learned.policy, learned.episodes, learned.finished
    played = LearnedPolicy.from_table(process.codebooks, policy, n_actions=process.n_actions)
    return {"episodes": [episodes if done else None], "gaps": [problem.optimal_value - process.value(played)]}


def _tabular(learner: str, engine: Engine, process: TabularProcess, epsilon: float, delta: float) -> Learned:
    """Runs a tabular method with the sample sizes that its guarantee asks for."""
    H, K, pairs = process.horizon, process.n_actions, n_pairs(process)
    if learner == RMAX:
        return rmax(engine, process, enough_visits(pairs, H, epsilon, delta))
    if learner == RMAX_PRINTED:
        return rmax(engine, process, printed_visits(pairs // K, K, H, epsilon, delta))
    return delayed_q(engine, process, *delayed_q_visits(pairs, H, epsilon, delta))


def _ucb(problem: Problem, epsilon: float, runs: int, cap: int, scale: float, rng: np.random.Generator) -> Plain:
    """Returns when each run's greedy policy became epsilon-optimal and stayed so, for half of the cap at least."""
    assert problem.process is not None
    lanes = Lanes(problem.process, runs)
    tables = UcbQTables(problem.process, cap, DELTA, scale, runs=runs)
    since: list[int | None] = [None] * runs
    gaps = np.ones(runs)
    look = 1
    while lanes.episodes < cap:
        look = min(cap, max(look + 1, math.floor(look * 1.2)))
        train(lanes, tables, look - lanes.episodes, rng)
        gaps = problem.optimal_value - lanes.values(tables)
        since = [(first or look) if gap <= epsilon else None for first, gap in zip(since, gaps, strict=True)]
    return {"episodes": [e if e is not None and e <= cap / 2 else None for e in since], "gaps": gaps.tolist()}


def _table(given: Sequence[Plain], results: Sequence[Plain]) -> dict[tuple[str, str], dict[float, list[int | None]]]:
    """Returns (sweep, learner) -> point -> the episodes of all runs."""
    found: dict[tuple[str, str], dict[float, list[int | None]]] = {}
    for p, r in zip(given, results, strict=True):
        if p["sweep"] in (PROMISE, STAIRS):
            continue
        found.setdefault((p["sweep"], p["learner"]), {}).setdefault(p["at"], []).extend(r["episodes"])
    return found


def slope(points: dict[float, list[int | None]]) -> Fit:
    """Returns the exponent of a power law through the medians with its interval; NaN where they are not all known."""
    y = [median(e) for _, e in sorted(points.items())]
    return fit_exponent(sorted(points), y) if all(map(math.isfinite, y)) else Fit(math.nan, math.nan, math.nan)


def conclude(given: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns what follows."""
    found = _table(given, results)
    both = list(zip(given, results, strict=True))
    kept = []
    for name in PROMISING:
        gaps = [
            (gap, p["epsilon"]) for p, r in both if (p["learner"], p["sweep"]) == (name, PROMISE) for gap in r["gaps"]
        ]
        missed = sum(gap > epsilon + 1e-12 for gap, epsilon in gaps)
        kept.append((name, missed, len(gaps), binomial_interval(missed, len(gaps), CONFIDENCE)[1]))
    delta = next(p["delta"] for p in given if p["sweep"] == PROMISE)
    swept = [(gap, p["epsilon"]) for p, r in both if p["learner"] in PROMISING for gap in r["gaps"]]
    missed = sum(gap > epsilon + 1e-12 for gap, epsilon in swept)
    within = [(p["world"], r["episodes"][0] / r["most"]) for p, r in both if p["learner"] == PAPER and "most" in r]
    nearest = max(share for _, share in within)
    bandits = max(share for world, share in within if world.startswith(BANDIT))
    spent = [
        (r["episodes"][0], r["n_train + n_1"]) for p, r in both if p["learner"] == PAPER and p["sweep"].startswith("b")
    ]
    by_epsilon, by_k = (slope(found[s, PAPER]) for s in ("bandit, by epsilon", "bandit, by K"))
    in_mdp = {name: slope(found["MDP, by epsilon", name]) for name in (PAPER, RMAX, RMAX_PRINTED, DELAYED)}
    checks = (
        Check(
            f"every method that promises an epsilon-optimal policy keeps its promise (delta = {delta})",
            all(high <= delta for *_, high in kept) and missed <= DELTA * len(swept),
            "; ".join(f"{name}: {failed} of {n} missed, at most {high:.3f}" for name, failed, n, high in kept)
            + f"; in all, sweeps included, {missed} of {len(swept)}",
        ),
        Check(
            "LSVEE as printed, repeats counted, stays within the proof's bound",
            nearest <= 1,
            f"{len(within)} runs: up to {bandits:.2%} of it in bandits, which have no prefixes to learn again, and "
            f"{nearest:.0%} on the staircase, an MDP that takes as many rounds as an MDP can. The tightness is that of the "
            "staircase, which Theorem 1's own check has too, and of no bandit",
            reading="with probability 1 - delta, and delta at most 1/2 where the rate is printed with log(1/delta), as in "
            "Theorem 1; and children of length H are terminal",
            tightness=nearest,
        ),
        Check(
            "in bandits LSVEE as printed stays within K^2/eps^3: slopes at most 2 in K and 3 in 1/eps",
            by_k.high <= 2.05 and by_epsilon.high <= 3.05,
            f"measured, with 95% intervals: in K {by_k}, in 1/eps {by_epsilon}",
        ),
        Check(
            "in bandits it even meets the known rate K/eps^2 log(N/delta), terminal children untested and nothing else "
            "changed: n_train + n_1 episodes exactly",
            all(a == b for a, b in spent) and abs(by_epsilon.slope - 2) < 0.05 and abs(by_k.slope - 1) < 0.1,
            f"{sum(a == b for a, b in spent)} of {len(spent)} runs; H = 1 has no child to test and no prefix to learn again",
        ),
        Check(
            "in MDPs LSVEE as printed stays within 1/eps^3; R-max with Hoeffding's visits has the quoted 1/eps^2",
            in_mdp[PAPER].high <= 3.05 and abs(in_mdp[RMAX].slope - 2) < 0.1,
            "exponents of 1/eps with 95% intervals: " + "; ".join(f"{name} {s}" for name, s in in_mdp.items()),
        ),
    )
    rows = []
    for (sweep, name), points in found.items():
        for at, episodes in sorted(points.items()):
            rows.append(
                (sweep, name, round(at, 4), len(episodes), sum(e is not None for e in episodes), median_words(episodes))
            )
    return Conclusion(
        checks,
        ("sweep", "learner", "at", "runs", "done", "median episodes"),
        tuple(rows),
        f"delta = {DELTA}; epsilon = 0.1 where it does not vary; "
        f"{_points(len({p['seed'] for p in given if p['sweep'] in SWEEPS}))}; "
        f"promises: {kept[0][2]} runs; "
        f"UCB-Q: {max(p['runs'] for p in given)} runs of one world, until its policy is epsilon-optimal and stays so, cap "
        f"{max(p['cap'] or 0 for p in given):,}. LSVEE (paper): as printed, repeats counted.",
    )


def _points(seeds: int) -> str:
    return "one run a point" if seeds == 1 else f"medians of {several(seeds, 'seed')} a point"


def draw(figure: "Figure", given: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the four sweeps."""
    found = _table(given, results)
    cap = max(p["cap"] or 0 for p in given)
    figure.set_size_inches(12.5, 8)
    figure.suptitle("Special cases: LSVEE beside methods made for them", fontsize=15)
    titles = (
        "Contextual bandit (H = 1)",
        "Contextual bandit (H = 1)",
        "Small MDP (H = 3, 3 states, 2 actions)",
        "Deep sea",
    )
    grid = figure.add_gridspec(2, 2)
    for index, (sweep, (_, name)) in enumerate(SWEEPS.items()):
        axes = figure.add_subplot(grid[index // 2, index % 2])
        _sweep(axes, {n: found[s, n] for s, n in found if s == sweep}, cap)
        axes.set(xlabel=name, title=titles[index])
        if index % 2 == 0:
            axes.set_ylabel("episodes")
        start = found[sweep, PAPER]
        x = np.array(sorted(start))
        origin = median(start[x[0]])
        for power, label in {
            0: ((2, "1/ε²"), (3, "1/ε³")),
            1: ((1, "K"), (2, "K²")),
            2: ((2, "1/ε²"), (3, "1/ε³")),
            3: (),
        }[index]:
            axes.plot(x, 4 * origin * (x / x[0]) ** power, color="black", lw=1, ls=":")
            axes.annotate(
                label,
                (x[-1], 4 * origin * (x[-1] / x[0]) ** power),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.margins(x=0.12)
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        lines, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside right upper",
        frameon=False,
        fontsize=10,
    )


def _sweep(axes: "Axes", learners: dict[str, dict[float, list[int | None]]], cap: int) -> None:
    for name, points in learners.items():
        x = sorted(points)
        known = [(at, median(points[at])) for at in x if math.isfinite(median(points[at]))]
        if known:
            axes.plot(*zip(*known, strict=True), "o-", color=COLOURS[name], lw=1.8, ms=5, label=name)
        missing = [at for at in x if not math.isfinite(median(points[at]))]
        if missing:
            label = None if known else f"{name}: over {cap:,}"
            axes.plot(missing, [cap] * len(missing), "^", color=COLOURS[name], mfc="white", ms=7, label=label)
    axes.set(xscale="log", yscale="log")
    ticks = sorted({at for points in learners.values() for at in points})
    axes.set_xticks(ticks, [f"{t:.3g}" for t in ticks])
    axes.minorticks_off()
