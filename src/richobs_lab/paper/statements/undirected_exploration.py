"""Exponential versus polynomial: undirected exploration against LSVEE on combination locks ([KAL16] Sections 1 and 3).

A lock of H levels has 2^H of 4^H action sequences that pay, so random play meets a reward once in 2^(H+1) episodes.
Epsilon-greedy Q-learning plays at random until then. Both are shown the hidden state here; LSVEE sees it among noise bits.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs import Settings, make
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.core.words import several
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREEN, ORANGE, PINK
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.rigs.asked import CERTIFIED, LEARNER, PAPER, printed_episodes
from richobs_lab.paper.rigs.censored import median, median_words
from richobs_lab.paper.rigs.fits import fit_exponent, fit_slope
from richobs_lab.paper.rigs.lanes import Lanes, greedy_values, train
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.rivals.epsilon_greedy import EpsilonGreedyTables
from richobs_lab.rivals.uniform_exploration import uniform_exploration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "undirected-exploration"
TITLE = "Theorem 1 against undirected exploration"
SAYS = "On locks of H levels undirected exploration needs exponentially many episodes; LSVEE needs polynomially many."

EPSILON, DELTA = 0.1, 0.05
N_ACTIONS, PRIZE = 4, 0.5  # of the lock
NOISE_BITS = 2  # what LSVEE has to see through
CONFIDENCE = 0.999
REGIME = 4  # levels from which the growth of LSVEE is fitted: below, H - 1 prefixes are far from H
RANDOM, GREEDY = "random play", "epsilon-greedy Q-learning"
COLOURS = {RANDOM: BLUE, GREEDY: ORANGE, CERTIFIED: GREEN, PAPER: PINK}
MARKERS = {RANDOM: "o", GREEDY: "^", CERTIFIED: "s", PAPER: "D"}


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns one piece per learner and horizon, and one per run of LSVEE."""
    full = scale == "full"
    runs = 40 if full else 30
    caps = {RANDOM: 2**18, GREEDY: 2**14} if full else {RANDOM: 2**10, GREEDY: 2**7}
    horizons = {RANDOM: (2, 4, 6, 8, 10, 12, 14, 16), GREEDY: (2, 4, 6, 8, 10, 12, 14)} if full else {}
    work: list[Plain] = [
        {"learner": learner, "horizon": H, "runs": runs, "cap": cap, "seed": 0}
        for learner, cap in caps.items()
        for H in horizons.get(learner, (2, 3, 4, 5, 6))
    ]
    work += [
        {"learner": learner, "horizon": H, "runs": 1, "cap": None, "seed": seed}
        for learner in (CERTIFIED, PAPER)
        for H in ((2, 4, 6, 8, 12, 16, 24, 32) if full else (2, 4, 8, 16))
        for seed in range(3 if full and H <= 16 else 1)
    ]
    return work


def measure(piece: Plain, /) -> Plain:
    """Returns the episodes each run took until its policy was epsilon-optimal; None where it was not within the cap."""
    learner, H, seed, cap = piece["learner"], piece["horizon"], piece["seed"], piece["cap"]
    if cap is None:
        problem = make(f"lock/{H}", n_actions=N_ACTIONS, noise_bits=NOISE_BITS, seed=seed)
        outcome = run(problem, Settings(epsilon=EPSILON, delta=DELTA, learner=LEARNER[learner], seed=seed))
        right = problem.optimal_value - problem.value(outcome.policy) <= EPSILON
        printed = Printed.of(problem, EPSILON, DELTA)
        return {
            "episodes": [printed_episodes(outcome) if right else None],
            "played": float(outcome.episodes),
            "failed": outcome.rounds - 1,
            "allowed": printed.rounds,
            "least": float(H * printed.root.n_train if learner == PAPER else 0),  # the root, and what one path needs
            "most": float(printed.most),
        }
    problem = make(f"lock/{H}", n_actions=N_ACTIONS, noise_bits=0, seed=seed)
    process = problem.process
    assert process is not None
    rng = keyed_generator(seed, NAME, learner, H)
    good = problem.optimal_value - EPSILON
    looks = looks_until(cap)
    if learner == RANDOM:

        def is_good(q: Sequence[Floats]) -> bool:
            return bool(greedy_values(process, [table[None] for table in q])[0] >= good)

        engines = [
            CountedEngine(process, problem.functions, seed=draw, ledger=Ledger())
            for draw in rng.integers(2**62, size=(piece["runs"],)).tolist()
        ]
        return {"episodes": [uniform_exploration(engine, process, looks, is_good) for engine in engines]}
    lanes = Lanes(process, piece["runs"])
    tables = EpsilonGreedyTables(process, runs=piece["runs"])
    first: list[int | None] = [None] * piece["runs"]
    for look in looks:
        train(lanes, tables, look - lanes.episodes, rng)
        for lane in np.flatnonzero(lanes.values(tables) >= good).tolist():
            first[lane] = first[lane] or look
        if None not in first:
            break
    return {"episodes": first}


def looks_until(cap: int) -> list[int]:
    """Returns the numbers of episodes after which policies are looked at: a tenth more each time, up to `cap`."""
    looks = [1]
    while looks[-1] < cap:
        looks.append(min(cap, max(looks[-1] + 1, math.floor(looks[-1] * 1.1))))
    return looks


def first_reward(horizon: int) -> float:
    """Returns the probability that an episode of random play is paid: all H actions live, and the prize."""
    return PRIZE * (2 / N_ACTIONS) ** horizon


def _medians(given: Sequence[Plain], results: Sequence[Plain]) -> dict[str, dict[int, list[int | None]]]:
    """Returns learner -> horizon -> the episodes of all runs."""
    found: dict[str, dict[int, list[int | None]]] = {name: {} for name in COLOURS}
    for p, r in zip(given, results, strict=True):
        found[p["learner"]].setdefault(p["horizon"], []).extend(r["episodes"])
    return found


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Returns slope and intercept of the least squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept)


def _growth(by_horizon: dict[int, list[int | None]]) -> tuple[list[float], list[float]]:
    """Returns horizons and medians where the median is known."""
    known = [(float(h), median(e)) for h, e in sorted(by_horizon.items()) if math.isfinite(median(e))]
    return [h for h, _ in known], [e for _, e in known]


def conclude(given: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns what follows."""
    found = _medians(given, results)
    checks = []
    for name in (RANDOM, GREEDY):
        done, off = 0, []
        for p, r in zip(given, results, strict=True):
            if p["learner"] == name:
                look = min(looks_until(p["cap"]), key=lambda n: abs(n * first_reward(p["horizon"]) - math.log(2)))
                predicted = 1 - (1 - first_reward(p["horizon"])) ** look
                hits = sum(e is not None and e <= look for e in r["episodes"])
                low, high = binomial_interval(hits, len(r["episodes"]), CONFIDENCE)
                done += 1
                if not low <= predicted <= high:
                    off.append(
                        f"H = {p['horizon']}: {hits} of {len(r['episodes'])} by {look}, predicted {predicted:.3f}"
                    )
        checks.append(
            Check(
                f"{name} is done when random play first meets a reward: geometric, 2^(H+1) episodes on average",
                not off,
                "; ".join(off)
                or f"share done at the predicted median within {CONFIDENCE:.1%} intervals, {done} horizons",
            )
        )
        h, e = _growth(found[name])
        slope = fit_slope(h, np.log2(e).tolist())
        checks.append(
            Check(
                f"{name} grows exponentially: doubling with each level",
                0.8 <= slope.slope <= 1.2 and slope.low > 0,
                f"medians multiply by {2**slope.slope:.2f} a level, 95% interval [{2**slope.low:.2f}, {2**slope.high:.2f}], "
                f"H = {h[0]:g} to {h[-1]:g}",
            )
        )
    for name in (CERTIFIED, PAPER):
        # Theorem 1 is about the worst case, and locks differ in how many rounds they need: the most of the seeds counts.
        known = {h: [e for e in found[name][h] if e is not None] for h in sorted(found[name]) if h >= REGIME}
        by = {float(h): float(max(episodes)) for h, episodes in known.items() if episodes}
        slope = fit_exponent(list(by), list(by.values()))
        doublings = {x: by[2 * x] / by[x] for x in by if 2 * x in by}
        checks.append(
            Check(
                f"{name} grows polynomially: twice the levels multiply its episodes, the most of the locks, by at most 2^8 "
                "(H^6, log N ~ H, and other logarithms)",
                max(doublings.values(), default=math.inf) <= 2**8 and slope.slope <= 8,
                f"fitted exponent of H {slope}; "
                + ", ".join(f"{x:g} to {2 * x:g}: {times:.3g}" for x, times in doublings.items()),
            )
        )
    missed = [p for p, r in zip(given, results, strict=True) if p["cap"] is None and None in r["episodes"]]
    counted = [
        (p, r) for p, r in zip(given, results, strict=True) if p["learner"] == PAPER and None not in r["episodes"]
    ]
    over = [p for p, r in counted if not r["least"] <= r["episodes"][0] <= r["most"]]
    repeats = max((r["episodes"][0] / r["played"] for _, r in counted), default=1.0)
    checks.append(
        Check(
            "every policy of LSVEE is epsilon-optimal, within the episodes that Theorem 1's proof allows",
            not missed and not over,
            f"{sum(p['cap'] is None for p in given)} runs, {len(missed)} missed, {len(over)} over; repeats are counted, "
            f"which are up to {repeats:.0f} times what a run needs without them",
            reading="with probability 1 - delta, and children of length H are terminal, as in Theorem 1",
            tightness=max((r["episodes"][0] / r["most"] for _, r in counted), default=None),
            loose="The proof allows M H failed rounds on demand. On these locks "
            + ", ".join(f"{failed} of {allowed}" for failed, allowed in _rounds(counted))
            + " fail: a round learns states of all levels of a path. Theorem 1's own check has worlds that need nearly "
            "all of them",
        )
    )
    rows = []
    for name, by_horizon in found.items():
        for H, episodes in sorted(by_horizon.items()):
            rows.append((name, H, len(episodes), sum(x is not None for x in episodes), median_words(episodes)))
    return Conclusion(
        tuple(checks),
        ("learner", "H", "runs", "done", "median episodes"),
        tuple(rows),
        f"Locks with K = {N_ACTIONS}, epsilon = {EPSILON}, delta = {DELTA}. Random play and epsilon-greedy: "
        f"{max(p['runs'] for p in given)} runs a point, the state shown, caps {_cap(given, RANDOM):,} and "
        f"{_cap(given, GREEDY):,}. LSVEE: {_seeds(len({p['seed'] for p in given}))} a point, {NOISE_BITS} noise bits; "
        "as printed, repeats counted.",
    )


def _rounds(counted: Sequence[tuple[Plain, Plain]]) -> list[tuple[int, int]]:
    """Returns the most failed rounds of each horizon, and how many the proof allows."""
    most: dict[int, tuple[int, int]] = {}
    for p, r in counted:
        H = p["horizon"]
        most[H] = max(most.get(H, (0, 0)), (r["failed"], r["allowed"]))
    return [most[H] for H in sorted(most)]


def _seeds(n: int) -> str:
    return several(n, "seed") if n == 1 else f"at most {several(n, 'seed')}"


def _cap(given: Sequence[Plain], learner: str) -> int:
    return max(int(p["cap"]) for p in given if p["learner"] == learner)


def draw(figure: "Figure", given: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws episodes against the horizon, fits and censored runs included."""
    found = _medians(given, results)
    figure.set_size_inches(7.0, 5.4)
    axes = figure.add_subplot()
    far = 2.9 * max(h for by_horizon in found.values() for h in by_horizon)
    line = np.linspace(2, far, 400)
    random = 1 / np.array([first_reward(h) for h in line])
    axes.plot(line, random, color=BLUE, lw=1.4, ls="--")
    curves = {}
    for name in (CERTIFIED, PAPER):
        h, e = _growth(found[name])
        slope, start = fit(np.log(h).tolist(), np.log(e).tolist())
        curves[name] = np.exp(start) * line**slope
        axes.plot(line, curves[name], color=COLOURS[name], lw=1.4, ls="--")
        at = int(np.searchsorted(line, {CERTIFIED: 0.86, PAPER: 0.5}[name] * far))
        axes.text(
            line[at],
            curves[name][at] / 5,
            f"{name}: $H^{{{slope:.1f}}}$",
            color=COLOURS[name],
            ha="center",
            va="top",
            fontsize=9.5,
        )
    for name, by_horizon in found.items():
        for H, episodes in sorted(by_horizon.items()):
            done = sorted(x for x in episodes if x is not None)
            shift = {RANDOM: -0.12, GREEDY: 0.12}.get(name, 0.0)
            if math.isfinite(median(episodes)):
                low, high = done[int(0.1 * len(done))], done[min(len(done) - 1, int(0.9 * len(done)))]
                whole = len(done) == len(episodes)
                axes.plot([H + shift] * 2, [low, high], color=COLOURS[name], lw=2, alpha=0.5)
                axes.plot(
                    H + shift,
                    median(episodes),
                    MARKERS[name],
                    color=COLOURS[name],
                    ms=5,
                    mfc=COLOURS[name] if whole else "white",
                )
            else:
                cap = next(p["cap"] for p in given if p["learner"] == name and p["horizon"] == H)
                axes.plot(H + shift, cap, MARKERS[name], color=COLOURS[name], ms=5, mfc="white")
                axes.annotate(
                    "",
                    (H + shift, cap * 12),
                    (H + shift, cap * 1.3),
                    arrowprops={"arrowstyle": "->", "color": COLOURS[name]},
                )
    for name in (CERTIFIED, PAPER):
        crossing = np.flatnonzero(random > curves[name])
        if len(crossing):
            at = int(crossing[0])
            beside = (14, -14) if line[at] < 0.85 * far else (-4, -28)  # points; inside the panel
            axes.plot(line[at], random[at], "o", ms=11, mfc="none", mec="black", mew=1.3)
            axes.annotate(
                f"H = {line[at]:.0f}",
                (line[at], random[at]),
                beside,
                textcoords="offset points",
                fontsize=9,
            )
    top = 30 * max(float(curves[PAPER].max()), 1.0)
    at = int(0.42 * len(line))
    axes.text(
        line[at] - 0.02 * far, random[at] * 3, "undirected exploration: $2^{H+1}$", color=BLUE, ha="right", fontsize=9.5
    )
    handles = [
        axes.plot(
            [],
            [],
            MARKERS[n],
            color=c,
            ms=5,
            label={RANDOM: "random play (shown the state)", GREEDY: "ε-greedy Q-learning (shown the state)"}.get(n, n),
        )[0]
        for n, c in COLOURS.items()
    ]
    handles += axes.plot(
        [], [], "o", color="black", mfc="white", ms=5, label="some or most runs not done within the cap"
    )
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=8.5)
    axes.set(
        yscale="log",
        ylim=(1, top),
        xlim=(1, far),
        xlabel="levels of the lock, H",
        ylabel=f"episodes until ε-optimal (ε = {EPSILON})",
    )
    axes.set_title("Undirected exploration doubles with every level; LSVEE does not", fontsize=10.5)
