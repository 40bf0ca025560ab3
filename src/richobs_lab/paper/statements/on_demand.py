"""The guarantee for Explore-on-Demand ([KAL16], appendix) and its four lemmas: it ends within M H rounds, near-optimal.

What can be computed is computed: the probability q that a policy visits an unlearned state, the set L of learned states, the
value of every policy, and the law of the test. What is a probability over runs is counted, with exact intervals. V*-hat is
put where the theorem still allows it, epsilon/8 away from V* on either side.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs import Greedy, Problem, Tables, make
from richobs.core.problem import as_problem
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Path
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee.dfs import learn_from
from richobs_lab.lsvee.spaces import td_space
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.rigs.asked import constants_for
from richobs_lab.paper.rigs.corners import NUDGE, cliff, gap, learned_tolerance, staircase
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.paper.rigs.watched import (
    SURELY,
    Demand,
    chance_of_visiting,
    learned_states,
    off_the_staircase,
    policy_risk_margin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "on-demand"
TITLE = "Theorem (guarantee for Explore-on-Demand) and its four lemmas"
SAYS = (
    "Given V*-hat within epsilon/8 of V*, on-demand exploration ends within M H rounds with a policy within epsilon of "
    "optimal, with probability 1 - delta: a failed test means unlearned states, and a round that fails learns one."
)

EPSILON, DELTA = 0.4, 0.5  # of the whole run; on-demand exploration gets half of delta
CONFIDENCE = 0.999  # of every interval
LOSSES = (0.0, 0.125, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0, 1.2)  # epsilons
CHANCES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)  # of visiting an unlearned state, in epsilon/8
STAIRS = ((2, 1, 2), (2, 4, 5), (3, 3, 4), (4, 2, 3), (4, 4, 5), (6, 3, 4))  # H, M, K
TALLEST = {"fast": (5, 6, 7), "full": (10, 12, 13)}  # played once: the nearest to the bound on episodes


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns the work: the test, the policy risk, the progress of a round, and whole runs."""
    full = scale == "full"
    losses, chances = (LOSSES, CHANCES) if full else ((0.0, 0.25, 0.5, 0.8, 1.2), CHANCES[::2])
    runs = 1000 if full else 25
    work: list[Plain] = [
        {"kind": "test", "loss": x, "shift": shift, "runs": runs, "seed": 0} for shift in (-1, 0, 1) for x in losses
    ]
    work += [{"kind": "risk", "seed": seed, "draws": 40 if full else 10} for seed in range(300 if full else 8)]
    work += [
        {"kind": "limit", "horizon": H, "chance": q}
        for H in ((1, 2, 3, 4, 6, 10) if full else (1, 3))
        for q in ((0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0) if full else (0.0, 0.2, 1.0))
        if H > 1 or q == 0  # below the root there is nothing to fall off from
    ]
    work += [{"kind": "called", "seed": seed, "chance": 0.0} for seed in range(300 if full else 12)]
    work += [{"kind": "called", "seed": 0, "chance": q} for q in (0.05, 0.2, 0.5, 0.9)]
    work += [{"kind": "miss", "chance": c, "runs": 2 * runs, "seed": 0} for c in chances]
    work += [{"kind": "conditional", "epsilon": e} for e in (0.5, 0.3, 0.1)]
    work += [{"kind": "rootless", "seed": 0}, {"kind": "above", "seed": 0}]
    work += [{"kind": "slack", "n_states": M, "horizon": H} for M, H in ((1, 1), (2, 3), (4, 6))]
    work += [
        {"kind": "cap", "horizon": H, "n_states": M, "said": said, "seed": 0} for H, M, said in ((3, 3, 1), (4, 4, 2))
    ]
    for H, M, K in STAIRS if full else STAIRS[:3]:
        for shift in (-1, 1):
            shape = {"horizon": H, "n_states": M, "n_actions": K}
            work += [
                {"kind": "run", "world": "staircase", **shape, "shift": shift, "seed": s}
                for s in range(40 if full else 3)
            ]
    H, M, K = TALLEST[scale]
    work.append(
        {"kind": "run", "world": "staircase", "horizon": H, "n_states": M, "n_actions": K, "shift": 0, "seed": 0}
    )
    for s in range(300 if full else 10):
        work.append({"kind": "run", "world": "random", "shift": (-1, 1)[s % 2], "seed": s})
    for s in range(40 if full else 2):
        work.append({"kind": "run", "world": "lock/3,noise_bits=1", "shift": (-1, 1)[s % 2], "seed": s})
    return work


def measure(piece: Plain, /) -> Plain:
    """Returns what one piece measured."""
    given = {k: v for k, v in piece.items() if k != "kind"}
    by_kind: dict[str, Callable[..., Plain]] = {
        "test": measure_test,
        "risk": measure_risk,
        "limit": measure_limit,
        "called": measure_called,
        "miss": measure_miss,
        "conditional": measure_conditional,
        "rootless": measure_rootless,
        "above": measure_above,
        "slack": measure_slack,
        "cap": measure_cap,
        "run": measure_run,
    }
    return by_kind[piece["kind"]](**given)


def measure_test(loss: float, shift: int, runs: int, seed: int) -> Plain:
    """Counts how often a policy that loses `loss` epsilon passes, and computes it: returns are coins."""
    problem = gap(loss * EPSILON)
    passed = inaccurate = broke_risk = broke_termination = 0
    as_printed = whole = True
    for run in range(runs):
        demand = Demand(problem, epsilon=EPSILON, delta=DELTA, seed=_seed(seed, run), root=False)
        first = demand.run(shift).rounds[0]
        as_printed = as_printed and demand.as_printed()
        whole = whole and abs(first.earned - round(first.earned)) < 1e-6  # an episode earns 0 or 1
        passed += not first.failed
        inaccurate += not first.accurate
        broke_risk += first.accurate and not first.failed and loss > 0.75 + SURELY  # the proof's 3/4, which is below 1
        broke_termination += first.accurate and first.failed and loss <= 0.25
    return {
        "passed": passed,
        "exact": _chance_of_passing(loss, shift),
        "inaccurate": inaccurate,
        "broke_risk": broke_risk,
        "broke_termination": broke_termination,
        "as_printed": as_printed,
        "whole": whole,
        "share": DELTA / 2 / 3,  # of one round's estimate, M = H = 1
    }


def _chance_of_passing(loss: float, shift: int) -> float:
    """Returns the probability that the policy of `gap(loss EPSILON)` passes, from the law of its n_1 coins."""
    problem = gap(loss * EPSILON)
    n = Printed.of(problem, EPSILON, DELTA).n_1
    off = np.arange(n + 1) / n - (problem.optimal_value + shift * EPSILON / 8)
    return float(_binomial(n, problem.optimal_value - loss * EPSILON)[np.abs(off) <= EPSILON / 2].sum())


def measure_risk(seed: int, draws: int) -> Plain:
    """Computes regret and q in a random world, of functions that are Q* with some observations spoiled."""
    rng = keyed_generator(seed, "on-demand", "risk")
    problem = make(
        "random",
        seed=seed,
        horizon=int(rng.integers(1, 7)),
        n_states=int(rng.integers(1, 7)),
        n_actions=int(rng.integers(2, 5)),
        n_observations=8,
        overlap=float(rng.choice([0.0, 0.5, 1.0])),
    )
    process = problem.process
    assert process is not None
    points: list[tuple[float, float]] = []
    for _ in range(draws):
        share, first = rng.choice([0.02, 0.1, 0.5]), rng.integers(3)  # levels below `first` are left as they are
        tables = []
        for h, truth in enumerate(process.q_tables):
            known = np.clip(truth, 0, 1)
            spoil = (rng.random((len(truth), 1)) < share) & (h >= first)
            tables.append(np.stack([np.where(spoil, rng.random(truth.shape), known), known]))
        functions = Tables(tables, codebooks=process.codebooks)
        printed = Printed.of(as_problem(problem, functions), EPSILON, DELTA)
        policy = Greedy(functions.member(0))
        unlearned = [~mask for mask in learned_states(process, functions, td_space(functions), printed)]
        regret = problem.optimal_value - process.value(policy)
        points.append((regret, chance_of_visiting(process, policy, unlearned)))
    margin = policy_risk_margin(printed)
    worst = max(regret - q - margin for regret, q in points)
    return {"policies": len(points), "excess": worst, "points": points, "margin": margin}


def measure_limit(horizon: int, chance: float) -> Plain:
    """Computes regret and q of a policy that loses in every state just what still counts as learned."""
    printed = Printed(horizon, 3, 2, math.log(2), EPSILON, DELTA)
    losses = [learned_tolerance(printed, h) for h in range(horizon)]
    demand = Demand(
        cliff(chance, losses, worth=1 - math.fsum(losses)), epsilon=EPSILON, delta=DELTA, seed=0, root=False
    )
    policy = Greedy(demand.problem.functions.member(0))
    unlearned = [~mask for mask in demand.states()]
    regret, q = demand.regret(policy), chance_of_visiting(demand.process, policy, unlearned)
    margin = policy_risk_margin(demand.printed)
    return {"regret": regret, "q": q, "excess": regret - q - margin, "margin": margin}


def measure_called(seed: int, chance: float) -> Plain:
    """Computes regret, and the chance of leaving the states on which TD-Elim was called, of all that survive a few searches.

    The world is random, or the cliff where `chance` is not 0; there TD-Elim is called on the state above the abyss.
    """
    problem, paths = (cliff(chance, [0.0, 0.0], worth=1.0), [(0,)]) if chance else liars(seed)
    demand = Demand(problem, epsilon=EPSILON, delta=DELTA, seed=seed)
    for path in paths:
        learn_from(demand.search, path, demand.constants.demand)
    policies = [Greedy(problem.functions.member(int(i))) for i in np.flatnonzero(demand.space.alive(0))]
    visits = [chance_of_visiting(demand.process, policy, demand.uncalled) for policy in policies]
    return {"epsilon": EPSILON, "uncalled": [[demand.regret(p), q] for p, q in zip(policies, visits, strict=True)]}


def liars(seed: int) -> tuple[Problem, list[Path]]:
    """Returns a random world, and paths to search from.

    Each function but the last, Q*, says of some observations that the worst action is as good as the best: right about
    values, so that consensus holds, and wrong about what to do until TD-Elim is called there.
    """
    rng = keyed_generator(seed, "on-demand", "called")
    H, K = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    shape = {"horizon": H, "n_states": int(rng.integers(2, 5)), "n_actions": K, "n_observations": 8}
    problem = make("random", seed=seed, overlap=0.0, **shape)
    process = problem.process
    assert process is not None
    tables = []
    for q in process.q_tables:
        lies = (rng.random((30, len(q), 1)) < 0.1) & (np.arange(K) == q.argmin(axis=1)[:, None])  # [N, X, K]
        tables.append(np.concatenate([np.where(lies, q.max(axis=1)[:, None] + NUDGE, q), q[None]]))
    functions = Tables([np.clip(t, 0, 1) for t in tables], codebooks=process.codebooks)
    paths = [tuple(rng.integers(K, size=rng.integers(1, H)).tolist()) for _ in range(int(rng.integers(4)))]
    return as_problem(problem, functions), paths


def measure_miss(chance: float, runs: int, seed: int) -> Plain:
    """Counts rounds in which none of the first n_2 paths visits an unlearned state, where q is `chance` epsilon/8."""
    problem = cliff(chance * EPSILON / 8, [0.0, 0.0], worth=1.0)
    missed = failed_and_missed = 0
    as_printed = True
    for run in range(runs):
        demand = Demand(problem, epsilon=EPSILON, delta=DELTA, seed=_seed(seed, run))
        first = demand.run(1).rounds[0]
        as_printed = as_printed and demand.as_printed()
        missed += first.missed
        failed_and_missed += first.failed and first.accurate and first.missed
    n_2 = demand.printed.n_2
    return {
        "q": first.chance,
        "as_printed": as_printed,
        "missed": missed,
        "failed_and_missed": failed_and_missed,
        "exact": (1 - first.chance) ** n_2,
        "bound": math.exp(-EPSILON * n_2 / 8),
    }


def measure_conditional(epsilon: float) -> Plain:
    """Computes the progress lemma exactly where hits are the better episodes, given that the test fails.

    The root pays 1 - v where observation 1 shows, which it does with probability q; the policy then earns nothing below,
    instead of v. Where it does not show, it earns v. A low mean then comes from few hits, and the test fails on low means.
    """
    worth = 0.395
    chance = (
        epsilon / 4 / worth + 0.01 * epsilon
    )  # so that regret is just above epsilon/4: the test may fail on the event
    problem = cliff(chance, [0.0, 0.0], worth=worth, paid=1 - worth)
    demand = Demand(problem, epsilon=epsilon, delta=DELTA, seed=0)
    c, policy = demand.printed, Greedy(problem.functions.member(0))
    q = chance_of_visiting(demand.process, policy, [~mask for mask in demand.states()])
    value = demand.process.value(policy)
    hits = np.arange(c.n_1 + 1)
    mean = worth + (1 - 2 * worth) * hits / c.n_1
    v_star_hat = problem.optimal_value + epsilon / 8
    fails = (np.abs(mean - v_star_hat) > c.eps_demand) & (np.abs(mean - value) <= epsilon / 8)
    law = _log_binomial(c.n_1, q)
    misses = np.where(hits <= c.n_1 - c.n_2, _log_choose(c.n_1 - c.n_2, hits) - _log_choose(c.n_1, hits), -np.inf)
    top = law[fails].max()  # the law far out: scaled before it is summed
    fail, both = np.exp(law[fails] - top).sum(), np.exp(law[fails] + misses[fails] - top).sum()
    accurate = float(np.exp(law[np.abs(mean - value) <= epsilon / 8]).sum())
    return {
        "q": q,
        "bound": math.exp(-epsilon * c.n_2 / 8),
        "proof": (1 - q) ** c.n_2 / accurate,
        "given_failure": float(both / fail),
        "given_accurate": float(np.exp(top) * both) / accurate,
        "log10_joint": float((top + math.log(both)) / math.log(10)),
        "regret": demand.regret(policy),
    }


def measure_rootless(seed: int) -> Plain:
    """Explores on demand where the root was not learned: a failed round then learns nothing, since H = 1 has no prefixes."""
    problem = gap(1.2 * EPSILON)
    without = Demand(problem, epsilon=EPSILON, delta=DELTA, seed=seed, root=False).run(0)
    with_root = Demand(problem, epsilon=EPSILON, delta=DELTA, seed=seed).run(0)
    roomy = replace(problem, n_states=2)  # two rounds are allowed, so that Q* is tried after the function that failed
    again = Demand(roomy, epsilon=EPSILON, delta=DELTA, seed=seed, root=False).run(0)
    return {
        "failed": without.rounds[0].failed,
        "survivors": math.exp(without.space.log_size),
        "eliminations": without.eliminations,
        "returned": again.returned_what_passed(),
        "ended_with_root": with_root.found is not None and with_root.rounds[-1].regret <= EPSILON,
    }


def measure_above(seed: int) -> Plain:
    """Explores on demand, verbatim, with V*-hat = V* - epsilon: every policy earns too much for it, and none may pass."""
    demand = Demand(gap(0.0), epsilon=EPSILON, delta=DELTA, seed=seed, root=False, verbatim=True).run(-8)
    return {"as_printed": demand.as_printed(), "ended": demand.found is not None, "rounds": len(demand.rounds)}


def measure_slack(n_states: int, horizon: int) -> Plain:
    """Computes how many times fewer rollouts and paths a round could do with, for its shares of delta; exactly.

    Of n_1: coins of mean 1/2, which are the least certain. Of n_2: an unlearned state that is visited with probability
    epsilon/8.
    """
    problem = staircase(horizon=horizon, n_states=n_states, n_actions=n_states + 1) if horizon > 1 else gap(0.1)
    c, printed = constants_for(problem, EPSILON, DELTA), Printed.of(problem, EPSILON, DELTA)
    share = DELTA / 2 / 3 / (printed.M * printed.H)

    def inaccurate(n: int) -> float:
        return float(_binomial(n, 0.5)[np.abs(np.arange(n + 1) / n - 0.5) > EPSILON / 8].sum())

    enough = c.n_1
    while enough > 1 and inaccurate(enough - 1) <= share:
        enough -= 1
    paths = math.ceil(math.log(share) / math.log1p(-EPSILON / 8))
    return {"share": share, "inaccurate": inaccurate(c.n_1), "n_1": c.n_1 / enough, "n_2": c.n_2 / paths}


def measure_cap(horizon: int, n_states: int, said: int, seed: int) -> Plain:
    """Explores on demand where fewer states are promised than there are: it must stop after M H rounds."""
    problem = replace(staircase(horizon=horizon, n_states=n_states, n_actions=n_states + 1), n_states=said)
    epsilon = 0.5 / (horizon - 1)
    demand = Demand(problem, epsilon=epsilon, delta=DELTA, seed=seed).run(0)
    return {"ended": demand.found is not None, "rounds": len(demand.rounds), "allowed": said * horizon}


def measure_run(world: str, shift: int, seed: int, **shape: Any) -> Plain:
    """Runs search and on-demand exploration once, and says what each round was."""
    if world == "staircase":
        problem = staircase(**shape)
        epsilon = 0.5 / (shape["horizon"] - 1) if shape["horizon"] > 2 else EPSILON
    elif world == "random":
        rng = keyed_generator(seed, "on-demand", "run")
        sizes = {
            "horizon": int(rng.integers(1, 6)),
            "n_states": int(rng.integers(1, 5)),
            "n_actions": int(rng.integers(1, 4)),
        }
        problem, epsilon = make("random", seed=seed, class_size=int(rng.integers(2, 30)), **sizes), EPSILON
    else:
        problem, epsilon = make(f"{world},seed={seed}"), EPSILON
    demand = Demand(problem, epsilon=epsilon, delta=DELTA, seed=seed).run(shift)
    after = int(sum(mask.sum() for mask in demand.states()))
    learned = [r.learned for r in demand.rounds] + [after]
    printed = demand.printed
    off = 0
    if world == "staircase":
        off = off_the_staircase(demand.episodes + printed.per_elimination(printed.root), printed)
    return {
        "epsilon": epsilon,
        "as_printed": demand.as_printed(),
        "off": off,
        "returned": demand.returned_what_passed(),
        "ended": demand.found is not None,
        "regret": demand.rounds[-1].regret,
        "rounds": len(demand.rounds),
        "most": printed.rounds,
        "states": int(sum(r.sum() for r in demand.process.reachable)),
        "episodes": float(demand.episodes),
        "bound": float(printed.most_on_demand),
        "excess": max(r.regret - r.chance - policy_risk_margin(printed) for r in demand.rounds),
        "uncalled": [[r.regret, r.uncalled] for r in demand.rounds],
        "learned": learned,
        "failed": [r.failed for r in demand.rounds],
        "good": all(r.accurate and not (r.failed and r.missed) for r in demand.rounds),
        "low": [r.chance <= epsilon / 8 for r in demand.rounds if r.failed and r.accurate],
    }


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns what follows for the four lemmas and the theorem."""
    tests, risks, limits, called, misses, conditionals, rootless, aboves, slacks, caps, runs = (
        list(of_kind(kind, pieces, results))
        for kind in (
            "test",
            "risk",
            "limit",
            "called",
            "miss",
            "conditional",
            "rootless",
            "above",
            "slack",
            "cap",
            "run",
        )
    )
    accurate = sum(p["runs"] - r["inaccurate"] for p, r in tests)
    must_pass = [(p, r) for p, r in tests if p["loss"] <= 0.25]
    must_fail = [(p, r) for p, r in tests if p["loss"] > 0.75]
    wrong = [(p["runs"] - r["passed"], 1 - r["exact"], p, r) for p, r in must_pass]
    wrong += [(r["passed"], r["exact"], p, r) for p, r in must_fail]
    mistakes, judged = sum(count for count, *_ in wrong), sum(p["runs"] for _, _, p, _ in wrong)
    least_share = min(r["share"] for *_, r in wrong)
    policies = sum(r["policies"] for _, r in risks) + len(limits)
    excess = max(r["excess"] for _, r in [*risks, *limits])
    below = [r for _, r in limits if r["q"] + r["margin"] <= 1]  # a bound above 1 says nothing
    tightest = max((r["regret"] / (r["q"] + r["margin"]) for r in below), default=0.0)
    of_margin = max((r["regret"] - r["q"]) / r["margin"] for _, r in limits)
    covered = [(p, r) for p, r in misses if r["q"] >= EPSILON / 8 - SURELY]
    low, high = zip(*[binomial_interval(r["missed"], p["runs"], CONFIDENCE) for p, r in covered], strict=True)
    share = DELTA / 2 / 3 / (2 * 2)  # of one round's progress, M = H = 2
    given = min((r for _, r in conditionals), key=lambda r: r["given_failure"] / r["bound"])
    growth = [
        after - before
        for _, r in runs
        if r["good"]
        for before, after, failed in zip(r["learned"][:-1], r["learned"][1:], r["failed"], strict=True)
        if failed
    ]
    lost = sum(not r["ended"] or r["regret"] > r["epsilon"] for _, r in runs)
    lost_low, lost_high = binomial_interval(lost, len(runs), CONFIDENCE)
    stairs = [(p, r) for p, r in runs if p["world"] == "staircase"]
    reached = all(r["rounds"] == (p["n_states"] - 1) * (p["horizon"] - 1) + 2 for p, r in stairs if r["good"])
    alone = rootless[0][1]
    leaving = [(regret, r["epsilon"] / 8 + chance) for _, r in [*called, *runs] for regret, chance in r["uncalled"]]
    checks = (
        Check(
            "Rounds are as printed: n_1 rollouts, n_2 paths, and the test at epsilon/2, computed a second time",
            all(r["as_printed"] for _, r in [*tests, *misses, *runs]),
            f"{sum(p['runs'] for p, _ in [*tests, *misses])} single rounds and {len(runs)} whole runs",
        ),
        Check(
            "All n_1 rollouts count: where an episode earns 0 or 1, n_1 times the mean is a whole number",
            all(r["whole"] for _, r in tests),
            f"{sum(p['runs'] for p, _ in tests)} rounds",
        ),
        Check(
            "The test has two sides: a policy that earns more than V*-hat + epsilon/2 fails, as printed",
            all(r["as_printed"] and not r["ended"] for _, r in aboves),
            f"V*-hat = V* - epsilon, verbatim: {aboves[0][1]['rounds']} rounds, none passed",
        ),
        Check(
            "What is returned is the policy that passed, also where one that failed survives",
            all(r["returned"] for _, r in [*runs, *rootless]),
            f"{len(runs)} whole runs, and one in which the first survivor fails and stays",
        ),
        Check(
            "Risk bound upon termination: with an accurate estimate, a policy that passes loses at most 3/4 epsilon",
            not any(r["broke_risk"] for _, r in tests),
            f"{sum(r['broke_risk'] for _, r in tests)} exceptions in {accurate} accurate tests",
        ),
        Check(
            "Termination guarantee: with an accurate estimate, a policy that loses at most epsilon/4 passes",
            not any(r["broke_termination"] for _, r in tests),
            f"{sum(r['broke_termination'] for _, r in tests)} exceptions in {accurate} accurate tests",
        ),
        Check(
            "Both, as probabilities: a wrong verdict costs at most its share of delta, exactly and as counted",
            all(exact <= r["share"] for _, exact, _, r in wrong)
            and binomial_interval(mistakes, judged, CONFIDENCE)[1] <= least_share,
            f"largest exact probability {max(e for _, e, _, _ in wrong):.3g}, share delta/6 = {DELTA / 6:.3g}; "
            f"{mistakes} of {judged} tests were wrong, at most {binomial_interval(mistakes, judged, CONFIDENCE)[1]:.3g}",
            tightness=max(e for _, e, _, _ in wrong) / least_share,
            loose="The share is what Hoeffding's inequality allows for a deviation to both sides and for the largest "
            "variance; a wrong verdict takes a deviation to one side. In samples it is the next check's margin",
        ),
        Check(
            "The margin: n_1 could be 1.4 to 2.1 times smaller for its share of delta, n_2 not by a tenth",
            all(r["inaccurate"] <= r["share"] and 1.4 <= r["n_1"] <= 2.1 and 1 <= r["n_2"] <= 1.1 for _, r in slacks),
            "exact: "
            + "; ".join(
                f"M = {p['n_states']}, H = {p['horizon']}: n_1 / {r['n_1']:.2f}, n_2 / {r['n_2']:.3f}"
                for p, r in slacks
            ),
            tightness=1 / min(r["n_1"] for _, r in slacks),
        ),
        Check(
            "The test is what theory says: each measured frequency lies in its interval around the exact law",
            all(inside(r["exact"], r["passed"], p["runs"]) for p, r in tests),
            f"{len(tests)} frequencies of {tests[0][0]['runs']} runs each",
        ),
        Check(
            "Policy risk: V* - V(pi_f) <= q + 40 sqrt(K) phi H^2, exactly",
            excess <= SURELY and all(r["excess"] <= SURELY for _, r in runs),
            f"{policies} policies, largest left minus right {excess:.3g}; at the limits of L left reaches "
            f"{tightest:.1%} of right where right is at most 1, and beyond q {of_margin:.0%} of the margin epsilon/8",
            tightness=tightest,
        ),
        Check(
            "Section 3.1, where L is the set of states on which TD-Elim was called: V* - V(pi_f) <= epsilon/8 + Pr[pi_f "
            "visits a state outside L]",
            all(left <= right + SURELY for left, right in leaving),
            f"{len(leaving)} policies: survivors of a few searches in {len(called)} worlds, and those tried in {len(runs)} "
            f"runs; {sum(left > EPSILON / 8 for left, _ in leaving)} of them lose more than epsilon/8",
            reading="on the event that the calls of TD-Elim succeeded, which has probability 1 - delta: an elimination that "
            "fails may keep a policy that errs where it was called",
            tightness=max((left / right for left, right in leaving if right <= 1), default=None),
        ),
        Check(
            "Progress: where q >= epsilon/8, n_2 paths all miss the unlearned states with probability at most "
            "exp(-epsilon n_2/8), its share of delta",
            all(r["exact"] <= r["bound"] <= share + SURELY for _, r in covered)
            and all(a <= r["bound"] for a, (_, r) in zip(low, covered, strict=True))
            and all(inside(r["exact"], r["missed"], p["runs"]) for p, r in misses),
            f"bound {covered[0][1]['bound']:.4f}, share of delta {share:.4f}; at q = epsilon/8 measured "
            f"{covered[0][1]['missed']} of {covered[0][0]['runs']}, interval [{low[0]:.4f}, {high[0]:.4f}], "
            f"exact {covered[0][1]['exact']:.4f}",
        ),
        Check(
            "Progress, as the union bound needs it: an accurate test that fails comes with q > epsilon/8, and fails and "
            "misses together at most that often",
            not any(any(r["low"]) for _, r in runs)
            and all(
                binomial_interval(r["failed_and_missed"], p["runs"], CONFIDENCE)[0] <= r["bound"] for p, r in misses
            )
            and all(10 ** r["log10_joint"] <= r["bound"] for _, r in conditionals),
            f"{sum(len(r['low']) for _, r in runs)} accurate failures, none with q <= epsilon/8",
            reading="the joint event: the test fails with an accurate estimate, and all n_2 paths miss",
        ),
        Check(
            "Progress, given an accurate estimate, as the proof uses it: fails and misses at most as often as printed",
            all(
                r["given_failure"] > r["bound"] and r["given_accurate"] <= min(r["proof"], r["bound"])
                for _, r in conditionals
            ),
            f"exact, where hits are the better episodes: given an accurate estimate 10^{given['log10_joint']:.0f}, promised "
            f"{given['bound']:.4f}. Given that the test fails as well it would be {given['given_failure']:.3f}: the n_2 "
            "paths are part of the test",
            reading="the probability given an accurate estimate that the test fails and all n_2 paths miss, at most "
            "(1 - q)^n_2 / P(accurate); not the probability given that the test fails",
        ),
        Check(
            "Every failed round of a good run learns a state",
            bool(growth) and min(growth) >= 1,
            f"{len(growth)} failed rounds, smallest growth of L {min(growth, default=0)}",
        ),
        Check(
            "The theorem: ends within M H rounds, epsilon-optimal, but with probability delta/2",
            lost_high <= DELTA / 2 and all(r["rounds"] <= r["most"] for _, r in runs),
            f"{lost} of {len(runs)} runs failed, interval [{lost_low:.4f}, {lost_high:.4f}], allowed {DELTA / 2}",
        ),
        Check(
            "The theorem: episodes within M H n_1 + (M H^2 n_2 + M H)(n_train + K n_test), repeats as printed included",
            all(r["episodes"] <= r["bound"] for _, r in runs),
            f"largest share of the bound {max(r['episodes'] / r['bound'] for _, r in runs):.2f}",
            reading="with probability 1 - delta: off the good event a run may take more, or never end; and delta at most "
            "1/2 where the order is printed with log(1/delta), as in Theorem 1; and children of length H are terminal",
            tightness=max(r["episodes"] / r["bound"] for _, r in runs),
        ),
        Check(
            "Episodes on the staircase are known to the episode: n_2 paths of H - 1 prefixes in every failed round",
            all(r["off"] == 0 for _, r in stairs if r["good"]),
            f"{len(stairs)} runs, largest difference {max(abs(r['off']) for _, r in stairs)}",
        ),
        Check(
            "Where more states are hidden than M says, exploration stops after M H rounds and promises nothing",
            all(not r["ended"] and r["rounds"] == r["allowed"] for _, r in caps),
            ", ".join(f"{r['rounds']} rounds with M = {p['said']}, H = {p['horizon']}" for p, r in caps),
        ),
        Check(
            "Rounds can be many: the staircase needs (M-1)(H-1) + 2, of the M H allowed",
            bool(stairs) and reached,
            f"{len(stairs)} runs on {len({(p['horizon'], p['n_states']) for p, _ in stairs})} shapes",
        ),
        Check(
            "The theorem needs a learned root: where the H - 1 prefixes leave it out, a failed round learns nothing",
            alone["failed"] and (alone["eliminations"] > 0) == (alone["survivors"] < 1.5) and alone["ended_with_root"],
            f"H = 1: no prefixes, {alone['eliminations']} eliminations, {alone['survivors']:.0f} of 2 functions left; "
            "after a search at the root it ends",
            reading="the root is among the prefixes, as where the proof counts H n_2 calls, or was learned before, as in "
            "Algorithm 1",
        ),
    )
    rows: list[tuple[Any, ...]] = [
        (
            f"test, loss {p['loss']} eps",
            f"V*-hat = V* {p['shift']:+d} eps/8",
            f"{r['passed']} of {p['runs']} pass",
            f"{r['exact']:.4g}",
        )
        for p, r in tests
    ]
    rows += [
        (
            f"miss, q = {p['chance']} eps/8",
            "V*-hat = V* + eps/8",
            f"{r['missed']} of {p['runs']} miss",
            f"{r['exact']:.4g}",
        )
        for p, r in misses
    ]
    rows += [
        (f"limit, H = {p['horizon']}", f"q = {r['q']:.3g}", f"regret {r['regret']:.4g}", f"{r['q'] + r['margin']:.4g}")
        for p, r in limits
    ]
    rows += [
        (
            f"given failure, eps = {p['epsilon']}",
            f"q = {r['q']:.3g}",
            f"all miss {r['given_failure']:.3g}",
            f"{r['bound']:.3g}",
        )
        for p, r in conditionals
    ]
    return Conclusion(
        checks,
        ("what", "where", "measured", "exact, or the bound"),
        tuple(rows),
        f"epsilon {EPSILON}, delta {DELTA} (on-demand exploration gets half); {len(tests)} tests of {tests[0][0]['runs']} "
        f"runs, {len(misses)} values of q with {misses[0][0]['runs']} runs each, {policies} policies computed exactly, "
        f"{len(runs)} whole runs; seeds from 0; exact binomial intervals at {CONFIDENCE:.1%}",
    )


def inside(exact: float, count: int, runs: int) -> bool:
    """Whether a probability lies in the interval that a count gives."""
    low, high = binomial_interval(count, runs, CONFIDENCE)
    return low - SURELY <= exact <= high + SURELY


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the test, the policy risk, the misses and the growth of L."""
    figure.set_size_inches(9.6, 7.2)
    axes = figure.subplots(2, 2)
    _draw_test(axes[0, 0], pieces, results)
    _draw_risk(axes[0, 1], pieces, results)
    _draw_misses(axes[1, 0], pieces, results)
    _draw_growth(axes[1, 1], pieces, results)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)


def _draw_test(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    axes.axvspan(0, 0.25, color=GREEN, alpha=0.12, linewidth=0)
    axes.axvspan(0.75, 1.25, color=RED, alpha=0.12, linewidth=0)
    grid = np.linspace(0, 1.2, 97)
    for shift, colour, word in ((-1, BLUE, "V* - ε/8"), (0, GREY, "V*"), (1, RED, "V* + ε/8")):
        mine = [(p, r) for p, r in of_kind("test", pieces, results) if p["shift"] == shift]
        x = [p["loss"] for p, _ in mine]
        axes.plot(grid, [_chance_of_passing(loss, shift) for loss in grid], color=colour, linewidth=1)
        shares = [r["passed"] / p["runs"] for p, r in mine]
        ends = [binomial_interval(r["passed"], p["runs"], CONFIDENCE) for p, r in mine]
        bars = np.abs(np.array(ends).T - np.array(shares))
        axes.errorbar(x, shares, bars, fmt="o", markersize=3, color=colour, linewidth=1, label=f"V̂* = {word}")
    axes.text(0.125, 0.5, "must\npass", ha="center", va="center", fontsize=8, color=GREEN)
    axes.text(1.0, 0.6, "must fail\n(Lemma: 1, proof: 3/4)", ha="center", va="center", fontsize=8, color=RED)
    axes.set(xlabel="what the policy loses, in ε", ylabel="passes the test", xlim=(0, 1.25))
    axes.set_title("The test: measured (points), exact law (lines)", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _draw_risk(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    points = np.array([point for _, r in of_kind("risk", pieces, results) for point in r["points"]]).reshape(-1, 2)
    axes.scatter(
        points[:, 1], points[:, 0], s=5, color=BLUE, alpha=0.5, linewidth=0, label="functions in random worlds"
    )
    limits = [r for _, r in of_kind("limit", pieces, results)]
    axes.scatter(
        [r["q"] for r in limits], [r["regret"] for r in limits], s=14, color=RED, label="every loss at its limit"
    )
    ends = np.array([0.0, 1.0])
    axes.plot(ends, ends + EPSILON / 8, color="black", linewidth=1, label="bound: q + 40√K φH² = q + ε/8")
    axes.set(
        xlabel="q: probability of visiting an unlearned state",
        ylabel="V* - V(π)",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.1),
    )
    axes.set_title("Policy risk: exact on both axes", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_misses(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    mine = list(of_kind("miss", pieces, results))
    x = [p["chance"] for p, _ in mine]
    n_2 = round(-8 * math.log(mine[0][1]["bound"]) / EPSILON)
    grid = np.linspace(min(x), max(x), 200)
    axes.plot(
        grid, (1 - grid * EPSILON / 8) ** n_2, color=BLUE, linewidth=1, label=f"exact: (1 - q)^{n_2}, measured: points"
    )
    bound = mine[0][1]["bound"]
    for p, r in mine:
        low, high = binomial_interval(r["missed"], p["runs"], CONFIDENCE)
        floor = 0.3 / p["runs"]
        axes.plot([p["chance"]] * 2, [max(low, floor), high], color=BLUE, linewidth=1)
        if r["missed"]:
            axes.plot(p["chance"], r["missed"] / p["runs"], "o", markersize=4, color=BLUE)
    given = [(8 * r["q"] / p["epsilon"], r["given_failure"]) for p, r in of_kind("conditional", pieces, results)]
    axes.plot(*zip(*given, strict=True), "X", color=RED, linestyle="", label="exact, given that the test fails")
    axes.plot([1, given[0][0] + 0.3], [bound, bound], color="black", linewidth=1, label="promised for q ≥ ε/8")
    axes.set_yscale("log")
    axes.set(xlabel="q, in ε/8", ylabel="all n₂ paths miss", ylim=(0.2 / mine[0][0]["runs"], 1.2))
    axes.set_title("Progress: read given accurate estimates", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def _draw_growth(axes: "Axes", pieces: Sequence[Plain], results: Sequence[Plain]) -> None:
    stairs = [
        (p, r)
        for p, r in of_kind("run", pieces, results)
        if p["world"] == "staircase" and p["seed"] == 0 and p["shift"] == 1
    ]
    colours = (GREEN, BLUE, RED, PINK, SKY, ORANGE)
    for (p, r), colour in zip(stairs, colours, strict=False):
        H, M = p["horizon"], p["n_states"]
        shares = [n / r["states"] for n in r["learned"][:-1]]
        rounds = np.arange(1, len(shares) + 1)
        axes.plot(
            rounds,
            shares,
            "o-",
            markersize=3,
            linewidth=1,
            color=colour,
            label=f"H={H}, M={M}: {r['rounds']} rounds, allowed {r['most']}",
        )
    axes.set(xlabel="round", ylabel="share of states learned before it", ylim=(0, 1.05))
    axes.set_title("Every failed round learns a state: the staircase", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _seed(seed: int, run: int) -> int:
    return seed * 1_000_000 + run


def _log_choose(n: int, k: Ints) -> Floats:
    """Returns the logarithms of n over k; k above n counts as n, so callers mask those entries."""
    table = np.cumsum(np.log(np.maximum(np.arange(n + 2), 1)))  # log i!
    k = np.minimum(k, n)
    return table[n] - table[k] - table[n - k]


def _log_binomial(n: int, p: float) -> Floats:
    """Returns `[n+1]` the logarithms of the binomial law."""
    k = np.arange(n + 1)
    return _log_choose(n, k) + k * math.log(p) + (n - k) * math.log1p(-p)


def _binomial(n: int, p: float) -> Floats:
    return np.exp(_log_binomial(n, p))
