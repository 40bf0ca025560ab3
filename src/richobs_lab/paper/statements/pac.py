"""Theorem 1 of [KAL16]: LSVEE is probably approximately correct, and how many episodes that takes.

Failures are counted over random worlds, where every value is exact, and again with sample sizes divided until failures
appear: that measures the margin. Every size and threshold that runs used is held against the printed one, computed a second
time. Episodes are measured on the staircase, a world that takes as many rounds on demand as it can, while one quantity is
swept at a time; they are known to the episode there. Exponents are those of episodes alone, nothing divided out: where
sizes are small they exceed the theorem's, and local ones approach it. LSVEE runs as printed and with repeats left out; the
certified learner runs beside it.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs import BrokenPromise, Outcome, Problem, Rewards, Settings, Tables, TabularProcess, Truth, make
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.core.words import number
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREY, RED, SKY
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee import SamplePlan, lsvee
from richobs_lab.lsvee.constants import PaperConstants, SearchConstants
from richobs_lab.lsvee.demand import PolicyPlayed
from richobs_lab.lsvee.dfs import ConsensusTested, NodeEliminated
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.rigs.asked import constants_for
from richobs_lab.paper.rigs.corners import NUDGE, gap, staircase
from richobs_lab.paper.rigs.fits import Fit, fit_exponent
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.paper.rigs.watched import off_the_staircase

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
CLOSE = 1e-9  # how far floating-point thresholds may be from the printed ones, relatively
BASE: dict[str, float] = {"M": 3, "H": 4, "K": 4, "1/epsilon": 20, "log 1/delta": -math.log(0.05), "log N": 0}
SWEEPS: dict[str, tuple[float, ...]] = {  # what is swept, all else at BASE (K at 17 where M is swept)
    "M": (2, 3, 4, 6, 8, 12, 16),
    "H": (2, 3, 4, 5, 6, 8, 10, 12),
    "K": (4, 6, 8, 12, 16, 32, 64, 128, 256),
    "1/epsilon": (5, 10, 20, 40, 80, 160),
    "log 1/delta": tuple(-math.log(d) for d in (0.3, 0.1, 0.03, 1e-3, 1e-5, 1e-7, 1e-9)),
    "log N": (2, 4, 10, 40, 150, 600, 2000),  # functions a level of a product class; its fourth power is N
}
FAST: dict[str, tuple[float, ...]] = {  # in the regime of REGIME only
    "M": (4, 5, 6, 8),
    "H": (4, 6, 8, 10),
    "K": (16, 24, 32, 64),
    "1/epsilon": (10, 20, 40, 80),
    "log 1/delta": tuple(-math.log(d) for d in (1e-3, 1e-5, 1e-7, 1e-9)),
    "log N": (10, 40, 150, 600),
}
REGIME = {
    "M": 4,
    "H": 4,
    "K": 16,
    "1/epsilon": 10,
    "log 1/delta": -math.log(1e-3),
    "log N": 4 * math.log(10),
}  # exponents are fitted from here on
THEOREM = {"M": 1.0, "H": 6.0, "K": 2.0, "1/epsilon": 3.0, "log 1/delta": 2.0, "log N": 1.0}
LARGEST = {"M": 0.5, "H": 0.75, "1/epsilon": 0.1}  # how far the last local exponent may be above, where it is attained
WOBBLE = 0.02  # how far local exponents may move the other way
FINITE = (
    "a run makes (M-1)(H-1) + 1 failed rounds of the proof's M H, at H - 1 prefixes of H, with tests at H - 2 of them, "
    "and its logarithms grow"
)
WHY = {
    "M": f"From above: {FINITE}",
    "H": f"From above: {FINITE}",
    "K": "From below: n_train goes with 24 K and K n_test with 2 K^2, so that K^2 wins above 12 actions",
    "1/epsilon": "From above, by logarithms alone: n_2 stands in one",
    "log 1/delta": "From below: 1/delta stands beside M H, N and n_2 in both logarithms",
    "log N": "From below: log N stands beside log(48 M^2 H^3 n_2/delta), about 20 here",
}
TALLEST = {"horizon": 12, "n_states": 16, "n_actions": 17}  # the staircase that comes nearest to the proof's bound
MARGINS: dict[str, tuple[tuple[float, ...], float, float]] = {  # what is divided: by what, and where it must (not) hold
    "n_train and n_test": ((1.0, 2e6, 1e7, 4e7, 2e8), 2e6, 2e8),
    "n_1": ((1.0, 2.0, 8.0, 32.0, 128.0), 2.0, 128.0),
}
MARGIN_DELTA, MARGIN_LOSS = 0.1, 1.05  # the bandit whose first policy loses just more than epsilon
SIZES: tuple[tuple[str, float, float], ...] = (  # worlds whose runs take searches, tests and rounds; epsilon, delta
    ("random/3,n_states=3,n_actions=2,class_size=20,seed=3", 0.2, 0.1),
    ("lock/3,noise_bits=1", 0.1, 0.05),
    ("deep-sea/4", 0.3, 0.01),
    ("bandit", 0.5, 0.3),
)


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns the work: sizes, runs over random worlds, margins, and runs of both learners at each point of a sweep."""
    full = scale == "full"
    work: list[Plain] = [{"kind": "sizes", "world": w, "epsilon": e, "delta": d} for w, e, d in SIZES]
    for learner, most in (("lsvee", 1000), ("certified", 500)):
        for delta in DELTAS if full or learner == "lsvee" else DELTAS[:1]:
            runs = most if full else math.ceil(8 / -math.log1p(-delta))  # no failure of so many: surely below delta
            work += [
                {"kind": "pac", "learner": learner, "delta": delta, "first": first, "runs": min(25, runs - first)}
                for first in range(0, runs, 25)
            ]
    for divided, (by, safe, broken) in MARGINS.items():
        used = by if full else (1.0, safe, broken)
        work += [{"kind": "margin", "divided": divided, "by": d, "runs": 2000 if full else 150} for d in used]
    for swept, values in (SWEEPS if full else FAST).items():
        work += [{"kind": "sweep", "swept": swept, "value": v, "seeds": 5 if full else 1} for v in values]
    work += [{"kind": "tallest", **TALLEST, "epsilon": 0.05, "delta": 0.05}] if full else []
    work += [
        {"kind": "paths", "horizon": H, "epsilon": e}
        for H, epsilons in ([(16, (0.4, 0.2, 0.1))] if full else [(12, (0.4, 0.2))])
        for e in epsilons
    ]
    return [*work, {"kind": "verbatim", "seed": 0}, *({"kind": "near one", "delta": d} for d in (0.5, 0.999999))]


def measure(piece: Plain, /) -> Plain:
    """Returns what one piece measured."""
    given = {k: v for k, v in piece.items() if k != "kind"}
    by_kind: dict[str, Callable[..., Plain]] = {
        "sizes": measure_sizes,
        "pac": measure_pac,
        "margin": measure_margin,
        "sweep": measure_sweep,
        "tallest": measure_tallest,
        "paths": measure_paths,
        "verbatim": measure_verbatim,
        "near one": measure_near_one,
    }
    return by_kind[piece["kind"]](**given)


def measure_sizes(world: str, epsilon: float, delta: float) -> Plain:
    """Holds every sample size and threshold that a run used against the printed one."""
    problem = make(world)
    outcome = run(problem, Settings(epsilon=epsilon, delta=delta, learner="lsvee"))
    return {"compared": len(outcome.trace), "wrong": wrong_sizes(problem, outcome, epsilon, delta)}


def wrong_sizes(problem: Problem, outcome: Outcome, epsilon: float, delta: float) -> list[str]:
    """Returns what a run of LSVEE used, or its plan promises, that is not as printed, in words."""
    printed = Printed.of(problem, epsilon, delta)
    wrong = [] if outcome.learner == "lsvee" else [f"the learner is {outcome.learner}"]
    planned = constants_for(problem, epsilon, delta)
    for name, said, expected_bound in (
        ("on demand", planned.max_demand_episodes, printed.most_on_demand),
        ("in all", SamplePlan(planned).max_episodes, printed.most),
        ("of the order of Theorem 1", round(SamplePlan(planned).theorem_1), round(printed.order)),
    ):
        if abs(said - expected_bound) > CLOSE * expected_bound:
            wrong.append(f"the plan allows {said:.6g} episodes {name}, the paper {expected_bound:.6g}")
    for event in outcome.trace:
        search = printed.root if event.phase == "search" else printed.on_demand
        if isinstance(event, ConsensusTested):
            name, expected = "Consensus", (search.n_test, printed.eps_test(problem.horizon - len(event.path)))
            used = event.eps_test
        elif isinstance(event, NodeEliminated):
            name, expected = "TD-Elim", (search.n_train, search.slack)
            used = event.cutoff - event.least
        elif isinstance(event, PolicyPlayed):
            name, expected, used = "a round", (printed.n_1, printed.eps_demand), event.eps_demand
        else:
            wrong.append(f"{type(event).__name__} is no event of LSVEE")
            continue
        off = abs(used - expected[1]) / expected[1]
        if event.n != expected[0] or off > (1e-3 if name == "TD-Elim" else CLOSE):  # a cutoff is a difference
            wrong.append(f"{name} used {event.n} and {used:.6g}, printed are {expected[0]} and {expected[1]:.6g}")
    return wrong


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
            off += learner == "lsvee"
            continue
        regret = problem.optimal_value - problem.value(outcome.policy)
        worst = max(worst, regret)
        failed += regret > EPSILON
        if learner == "lsvee":
            assert outcome.v_star_hat is not None
            many += outcome.episodes + outcome.ledger.skipped > Printed.of(problem, EPSILON, delta).most
            off += abs(outcome.v_star_hat - problem.optimal_value) > EPSILON / 8
    return {"failed": failed, "many": many, "off": off, "regret": worst}


def measure_margin(divided: str, by: float, runs: int) -> Plain:
    """Counts failures of LSVEE whose sample sizes are divided, on a bandit whose first policy is not good enough."""
    problem = gap(MARGIN_LOSS * EPSILON, optimum=0.6)
    assert problem.process is not None
    numbers = fewer(constants_for(problem, EPSILON, MARGIN_DELTA), divided, by)
    failed = 0
    for seed in range(runs):
        engine = CountedEngine(problem.process, problem.functions, seed=seed, ledger=Ledger())
        try:
            outcome = lsvee(engine, problem.functions, numbers)
        except BrokenPromise:
            failed += 1
        else:
            failed += problem.optimal_value - problem.process.value(outcome.policy) > EPSILON
    return {"failed": failed, "n_train": numbers.search.n_train, "n_1": numbers.n_1}


def fewer(numbers: PaperConstants, divided: str, by: float) -> PaperConstants:
    """Returns the paper's numbers with some sample sizes divided, rounded up, and thresholds as they are."""
    if divided == "n_1":
        n_1 = math.ceil(numbers.n_1 / by)
        return replace(numbers, n_1=n_1, n_2=min(numbers.n_2, n_1))

    def search(used: SearchConstants) -> SearchConstants:
        return replace(used, n_train=math.ceil(used.n_train / by), n_test=math.ceil(used.n_test / by))

    return dataclasses.replace(numbers, search=search(numbers.search), demand=search(numbers.demand))


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
    ran = run(problem, Settings(epsilon=epsilon, delta=delta, learner="lsvee"))
    certified = [
        run(problem, Settings(epsilon=epsilon, delta=delta, learner="certified", seed=seed)) for seed in range(seeds)
    ]
    printed = Printed.of(problem, epsilon, delta)
    regrets = [problem.optimal_value - problem.value(o.policy) for o in (ran, *certified)]
    return {
        "x": problem.functions.log_size if swept == "log N" else value,
        "printed": float(ran.episodes + ran.ledger.skipped),
        "logs": printed.logs,
        "off": 0 if swept == "log N" else off_the_staircase(ran.episodes + ran.ledger.skipped, printed),
        "skipping": float(ran.episodes),
        "rounds": ran.rounds,
        "bound": float(printed.most),
        "order": printed.order,
        "certified": [o.episodes for o in certified],
        "right": all(regret <= epsilon for regret in regrets),
    }


def measure_tallest(epsilon: float, delta: float, **shape: Any) -> Plain:
    """Measures how near a tall and wide staircase comes to the bound of the proof."""
    problem = staircase(**shape)
    outcome = run(problem, Settings(epsilon=epsilon, delta=delta, learner="lsvee"))
    printed, taken = Printed.of(problem, epsilon, delta), outcome.episodes + outcome.ledger.skipped
    right = problem.optimal_value - problem.value(outcome.policy) <= epsilon
    return {
        "printed": float(taken),
        "off": off_the_staircase(taken, printed),
        "bound": float(printed.most),
        "right": right,
    }


def measure_paths(horizon: int, epsilon: float) -> Plain:
    """Measures episodes where one state a level is reached by 2^h paths, learned paths left out and counted."""
    outcome = run(braid(horizon), Settings(epsilon=epsilon, delta=0.05, learner="lsvee"))
    return {"skipping": float(outcome.episodes), "printed": float(outcome.episodes + outcome.ledger.skipped)}


def braid(horizon: int) -> Problem:
    """Returns a world with one state a level, two actions that lead to the same next state, and two functions.

    The first function's policy does what a fair coin says, which is what a state shows; at the last level it so loses half.
    """
    H, pay = horizon, np.broadcast_to([0.75, 0.0], (1, 2, 2))
    process = TabularProcess(
        start=np.ones(1),
        transitions=(np.zeros((1, 2), dtype=np.int64),) * (H - 1),
        emissions=(np.full((1, 2), 0.5),) * H,
        rewards=(*(Rewards.deterministic(0.0),) * (H - 1), Rewards.deterministic(pay)),
    )
    functions = Tables([np.stack([np.full((2, 2), 0.75) + NUDGE * np.eye(2), true]) for true in process.q_tables])
    world = TabularWorld(process)
    return Problem(WorldEnvironment(world), functions, process, 1, Truth(process.optimum.value, 1, world))


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
        "order": Printed.of(problem, 0.2, delta).order,
    }


def fits(pieces: Sequence[Plain], results: Sequence[Plain], key: str) -> dict[str, Fit]:
    """Returns the exponent of every sweep, fitted to the points of its regime."""
    found = {}
    for swept in SWEEPS:
        mine = [
            r for p, r in of_kind("sweep", pieces, results) if p["swept"] == swept and r["x"] >= REGIME[swept] - CLOSE
        ]
        y = [float(np.median(r[key])) for r in mine]
        found[swept] = fit_exponent([r["x"] for r in mine], y)
    return found


def local_exponents(points: Sequence[Plain], key: str) -> list[float]:
    """Returns the exponents of `key` between neighbouring points of a sweep."""
    return [math.log(b[key] / a[key]) / math.log(b["x"] / a["x"]) for a, b in itertools.pairwise(points)]


def approaches(swept: str, local: Sequence[float]) -> bool:
    """Whether local exponents move toward the theorem's: from above where the staircase attains it, else from below."""
    theorem, largest = THEOREM[swept], LARGEST.get(swept)
    up = all(b >= a - WOBBLE for a, b in itertools.pairwise(local))
    if largest is None:
        return up and max(local) <= theorem
    down = all(b <= a + WOBBLE for a, b in itertools.pairwise(local))
    return down and theorem <= min(local) and local[-1] <= theorem + largest


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns failures against delta, margins, and exponents against the theorem's."""
    runs = list(of_kind("pac", pieces, results))
    sweep = list(of_kind("sweep", pieces, results))
    sizes = [r for _, r in of_kind("sizes", pieces, results)]
    wrong = [words for r in sizes for words in r["wrong"]]
    checks: list[Check] = [
        Check(
            "The runs used the printed sizes and thresholds, computed a second time from H, K, M, N, epsilon and delta",
            not wrong,
            "; ".join(wrong[:3])
            or f"{sum(r['compared'] for r in sizes)} tests, eliminations and rounds in {len(sizes)} worlds, and bounds",
        )
    ]
    rows: list[tuple[Any, ...]] = []
    for learner, delta, failed, total in failures(pieces, results):
        low, high = binomial_interval(failed, total, CONFIDENCE)
        checks.append(
            Check(
                f"Learner {learner}, delta {delta}: fails with probability at most delta",
                high <= delta,
                f"{failed} of {total} runs failed: the probability is at most {high:.4f} ({CONFIDENCE:.1%} interval)",
            )
        )
        rows.append(
            (f"{learner}, delta {delta}", f"{failed} of {total} failed", f"[{low:.4f}, {high:.4f}]", "", "", "")
        )
    for divided, (_, safe, broken) in MARGINS.items():
        mine = {
            p["by"]: (r["failed"], p["runs"]) for p, r in of_kind("margin", pieces, results) if p["divided"] == divided
        }
        ends = {by: binomial_interval(failed, n, CONFIDENCE) for by, (failed, n) in mine.items()}
        holds = [by for by, (_, high) in ends.items() if high <= MARGIN_DELTA]
        fails = [by for by, (low, _) in ends.items() if low > MARGIN_DELTA]
        checks.append(
            Check(
                f"The margin of {divided}: {number(safe)} times fewer are enough, and {number(broken)} times fewer are not",
                1.0 in holds and safe in holds and broken in fails,
                f"fails more often than delta = {MARGIN_DELTA} from a divisor between {number(max(holds, default=0.0))} and "
                f"{number(min(fails)) if fails else 'more'} on: "
                + ", ".join(f"{failed} of {n} at {number(by)}" for by, (failed, n) in mine.items()),
            )
        )
        rows += [
            (f"{divided} / {number(by)}", f"{failed} of {n} failed", "[{:.4f}, {:.4f}]".format(*ends[by]), "", "", "")
            for by, (failed, n) in mine.items()
        ]
    stairs = [*sweep, *of_kind("tallest", pieces, results)]
    paper = sum(p["runs"] for p, _ in runs if p["learner"] == "lsvee")
    off = {d: sum(r["off"] for p, r in runs if p["delta"] == d and p["learner"] == "lsvee") for d in DELTAS}
    total_of = {d: sum(p["runs"] for p, _ in runs if p["delta"] == d and p["learner"] == "lsvee") for d in DELTAS}
    checks += [
        Check(
            "Episodes stay within the bound of the proof, with its constants, in every run",
            sum(r["many"] for _, r in runs) == 0 and all(r["printed"] <= r["bound"] for _, r in stairs),
            f"{paper} random worlds and {len(stairs)} staircases; the staircases take up to "
            f"{max(r['printed'] / r['bound'] for _, r in stairs):.0%} of it",
            reading="with probability 1 - delta: off the good event a run may take more, or never end; and children "
            "of length H are terminal",
            tightness=max(r["printed"] / r["bound"] for _, r in stairs),
        ),
        Check(
            "Episodes on the staircase are known to the episode: n_2 paths of H - 1 prefixes in every failed round",
            all(r["off"] == 0 for _, r in stairs),
            f"{sum(p.get('swept') != 'log N' for p, _ in stairs)} runs, largest difference "
            f"{max(abs(r['off']) for _, r in stairs)}",
        ),
        Check(
            "Corollary 1 on the way: V*-hat is within epsilon/8 of V*",
            all(binomial_interval(off[d], total_of[d], CONFIDENCE)[1] <= d for d in DELTAS),
            f"{sum(off.values())} of {paper} runs were off by more",
        ),
        Check(
            "Every policy of every sweep is epsilon-optimal, of both learners",
            all(r["right"] for _, r in stairs),
            f"{sum(1 + p.get('seeds', 0) for p, _ in stairs)} runs",
        ),
        Check(
            "What repeats cost as printed is counted, not played: played once, it is the same number",
            all(r["played"] == r["counted"] for _, r in of_kind("verbatim", pieces, results)),
            ", ".join(f"{r['played']:.6g} and {r['counted']:.6g}" for _, r in of_kind("verbatim", pieces, results)),
        ),
    ]
    (_, half), (_, one) = of_kind("near one", pieces, results)
    braids = list(of_kind("paths", pieces, results))
    per_epsilon = {
        key: fit_exponent([1 / p["epsilon"] for p, _ in braids], [r[key] for _, r in braids]).slope
        for key in ("skipping", "printed")
    }
    plain, skipping, certified = (fits(pieces, results, key) for key in ("printed", "skipping", "certified"))
    checks += [
        Check(
            "The order that Theorem 1 prints, with delta at most 1/2: log(1/delta) vanishes as delta goes to 1, episodes do "
            "not",
            one["order"] < 1e-3 * half["order"] and one["printed"] > 0.1 * half["printed"],
            f"delta 0.5: {half['printed']:.2g} episodes, order {half['order']:.2g}; delta 0.999999: {one['printed']:.2g} "
            f"episodes, order {one['order']:.2g}",
            reading="delta at most 1/2, or log(e/delta) in place of log(1/delta); the guarantee itself is for every delta",
        ),
        Check(
            "The factor 1/epsilon beside 1/epsilon^2: repeats on the staircase, but distinct paths to one state elsewhere",
            abs(skipping["1/epsilon"].slope - 2) < 0.15
            and 2.4 < per_epsilon["skipping"] < per_epsilon["printed"] < 3.1,
            f"exponents of 1/epsilon, learned paths left out: {skipping['1/epsilon'].slope:.2f} on the staircase, "
            f"{per_epsilon['skipping']:.2f} with M = 1, N = 2, H = {braids[0][0]['horizon']}, K = 2, where "
            f"2^{braids[0][0]['horizon'] - 1} paths reach one state; {per_epsilon['printed']:.2f} as printed",
        ),
    ]
    for swept, fit in plain.items():
        points = [r for p, r in sweep if p["swept"] == swept]
        local = local_exponents([r for r in points if r["x"] >= REGIME[swept] - CLOSE], "printed")
        of_bound = local_exponents(points, "bound")
        checks.append(
            Check(
                f"Sweep of {swept}: exponents of episodes alone approach the theorem's {THEOREM[swept]:g}, within the "
                "proof's bound",
                approaches(swept, local) and all(r["printed"] <= r["bound"] for r in points),
                f"{fit} from {REGIME[swept]:.3g} on, nothing divided out; between neighbouring points "
                f"{', '.join(f'{e:.2f}' for e in local)}; the proof's bound itself has {of_bound[-1]:.2f} at the end, its "
                f"logarithms {local_exponents(points, 'logs')[-1]:.2f}. "
                f"{WHY[swept]}",
            )
        )
        rows.append(
            (
                f"exponent of {swept}",
                str(fit),
                f"{of_bound[-1]:.2f}",
                str(skipping[swept]),
                f"{THEOREM[swept]:g}",
                str(certified[swept]),
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
    repeats = max(p["runs"] for p in pieces if p["kind"] == "margin")
    counts = ", ".join(
        f"{total} of {learner} at delta {delta}" for learner, delta, _, total in failures(pieces, results)
    )
    return Conclusion(
        tuple(checks),
        ("what", "as printed", "proof's bound", "learned paths left out", "theorem | its order", "certified"),
        tuple(rows),
        f"Failures: random worlds, epsilon {EPSILON}, runs: {counts}; seeds from 0, exact binomial intervals at "
        f"{CONFIDENCE:.1%}. Margins: a bandit, delta {MARGIN_DELTA}, {repeats} "
        f"runs a divisor. Sweeps: the staircase around {base} (K = 17 where M is swept), one run per point of LSVEE as "
        f"printed, {_seeds(sweep[0][0]['seeds'])} of the certified learner; exponents with 95% intervals",
    )


def _seeds(n: int) -> str:
    return "one run" if n == 1 else f"the median of {n} runs"


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
    fitted = fits(pieces, results, "printed")
    for each, swept in zip([*axes[0, :3], *axes[1, :3]], SWEEPS, strict=True):
        mine = [r for p, r in of_kind("sweep", pieces, results) if p["swept"] == swept]
        _draw_sweep(each, swept, mine, fitted[swept])
    for each in axes[:, 0]:
        each.set_ylabel("episodes, as a multiple of the first point's")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=5, loc="outside upper left")
    _draw_exponents(axes[0, 3], pieces, results)
    _draw_failures(axes[1, 3], pieces, results)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)


def _draw_sweep(axes: "Axes", swept: str, mine: Sequence[Plain], fit: Fit) -> None:
    """Draws episodes as multiples of those at the first point, so that slopes can be compared; titles say how many."""
    x = np.array([r["x"] for r in mine])
    middle = [float(np.median(r["certified"])) for r in mine]
    lines: list[tuple[Sequence[float], str, str, str]] = [
        (list((x / x[0]) ** THEOREM[swept]), "--", GREY, "theorem's exponent"),
        ([r["bound"] for r in mine], "-", "black", "bound: the proof, its constants in"),
        ([r["printed"] for r in mine], "o-", BLUE, "measured: paper, as printed"),
        ([r["skipping"] for r in mine], "o-", SKY, "measured: paper, learned paths left out"),
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
    note = f"{numbers}\n\n{fill(_symbol(WHY[swept]), 38)}"
    axes.text(0.03, 0.98, note, transform=axes.transAxes, va="top", fontsize=8, color="#444444")
    axes.set_title(f"{_symbol(swept)}: exponent {fit.slope:.2f}, theorem {THEOREM[swept]:g}", loc="left", fontsize=10)


def _symbol(swept: str) -> str:
    return swept.replace("epsilon", "ε").replace("delta", "δ")


def _draw_exponents(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    printed, certified = (fits(pieces, results, key) for key in ("printed", "certified"))
    for row, swept in enumerate(reversed(SWEEPS)):
        first = swept == "M"
        axes.plot(THEOREM[swept], row, "|", color="black", markersize=14, label="theorem" if first else None)
        for fit, up, colour, label in (
            (printed[swept], 0.1, BLUE, "measured, as printed"),
            (certified[swept], -0.1, RED, "measured, certified"),
        ):
            axes.plot([fit.low, fit.high], [row + up] * 2, color=colour, linewidth=1)
            axes.plot(fit.slope, row + up, "o", color=colour, markersize=4, label=label if first else None)
    axes.set_yticks(range(len(SWEEPS)), [_symbol(s) for s in reversed(SWEEPS)])
    axes.set_ylim(-0.5, len(SWEEPS) + 1.6)
    axes.set_xlabel("exponent")
    axes.set_title("Exponents of episodes alone, 95%", loc="left", fontsize=10)
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
        axes.text(0.0, row + 0.12, said, fontsize=9, color=colour, va="bottom")
    axes.set_yticks(range(len(counts)), [f"{learner}\nδ = {delta}" for learner, delta, _, _ in reversed(counts)])
    axes.set_ylim(-0.5, len(counts) - 0.3)
    axes.set_xlim(-0.01, max(DELTAS) * 1.1)
    axes.set_xlabel("failures (bar: interval); the mark is δ")
    axes.set_title(f"PAC over random worlds, ε = {EPSILON}", loc="left", fontsize=10)
