"""Propositions 1 and 2, and the theorem on best arms behind them ([KAL16] Section 2 and Appendix A).

Either promise alone, reactive policies or Q* in the class, leaves K^H action sequences of which one is better by epsilon,
and no observation tells which. Checked exactly: the construction, the reduction to a bandit with K^H arms, the divergence
in the proof, and the best that *any* algorithm can do with few arms, by dynamic programming. Measured: what learners do.

Policies are deterministic functions of observations in the paper, so exactly one of the family earns more than the optimum
less epsilon, and both propositions hold. Printed is a constant c that may follow the algorithm. With one c for all
algorithms, 1/72 by the proof, the problem is chosen for each T: an algorithm that guesses sequence number T mod K^H is right
at some T in every problem. A remark: uniform play earns 1/2 + epsilon/K^H, so random outputs are right without an episode;
within epsilon/2 of the optimum they are not. Here an answer counts as right within epsilon/2, and learners are asked for
that: a promise of "at most epsilon worse" is kept by every policy of the family.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs import BrokenPromise, OpenLoop, Policy, Problem, Settings, TabularProcess, Uniform
from richobs.core.outcome import StopReason
from richobs.core.randomness import keyed_generator
from richobs.core.types import Path
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from richobs_lab.assumptions import check_assumptions
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.rigs.asked import CERTIFIED, LEARNER, PAPER
from richobs_lab.paper.rigs.lanes import Lanes, SideBySideArms, train
from richobs_lab.rivals.epsilon_greedy import EpsilonGreedyTables
from richobs_lab.rivals.median_elimination import median_elimination
from richobs_lab.rivals.successive_elimination import successive_elimination
from richobs_lab.rivals.uniform_allocation import uniform_allocation
from richobs_lab.worlds import lower_bound as family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "lower-bounds"
TITLE = "Propositions 1 and 2, Theorem 2 (Appendix A)"
SAYS = (
    "Without both promises at once, for any algorithm there is a problem in which it misses the best of K^H policies by "
    "epsilon with probability at least 1/3 unless it plays K^H / (72 epsilon^2) episodes."
)

EPSILON = 0.2  # of the measured family
DELTA = 0.05  # asked of learners that take one
CONFIDENCE = 0.999
COLOURS = {
    "uniform allocation": BLUE,
    "successive elimination": SKY,
    "median elimination": PINK,
    "epsilon-greedy Q-learning": ORANGE,
    CERTIFIED: GREEN,
}
OUTCOMES = {  # what became of a run -> words, colour
    "right": ("right answer", GREEN),
    "wrong": ("wrong answer", ORANGE),
    "unfinished": ("episodes spent, no claim", SKY),
    "noticed": ("stops: an assumption is false", GREY),
}
MARKERS = dict(zip(COLOURS, "osD^v", strict=True))


def episode_bound(n_arms: int, epsilon: float) -> float:
    """Returns K^H / (72 epsilon^2), the episodes below which every algorithm fails with probability 1/3."""
    return n_arms / (72 * epsilon**2)


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns the exact pieces, and one per learner, horizon and budget."""
    full = scale == "full"
    work: list[Plain] = [
        {"kind": "construction", "horizon": H, "n_actions": K, "epsilon": e}
        for H, K, e in [(1, 2, 0.35), (2, 3, 0.2), (3, 2, 0.1), *([(4, 2, 0.3), (3, 3, 0.05)] if full else [])]
    ]
    work += [{"kind": "divergence", "n_arms": n, "budget": T, "epsilon": e} for n, T, e in [(2, 6, 0.35), (4, 9, 0.1)]]
    near = [(2, 0.35, 4), (2, 0.2, 8), (2, 0.1, 20), (4, 0.35, 10)]  # deep enough to pass 2/3
    more = [(2, 0.07, 40), (3, 0.35, 8), (4, 0.3, 13), (8, 0.35, 18), (4, 0.1, 18)]
    work += [{"kind": "optimum", "n_arms": n, "epsilon": e, "budget": T} for n, e, T in near + more * full]
    work += [{"kind": "uniform", "horizon": H, "n_actions": K, "epsilon": e} for H, K, e in [(4, 2, 0.2), (2, 3, 0.05)]]
    work += [{"kind": "guess", "n_arms": n, "epsilon": e} for n, e in ((4, 0.1), (64, 0.1), (64, 0.35))]
    work += [{"kind": "taylor", "points": 1001}]
    runs = 200 if full else 40
    for H in (4, 6, 8, 10) if full else (4, 6):
        for times in (0.25, 1, 4, 16, 64, 256) if full else (1, 256)[: 1 + (H == 4)]:
            budget = math.floor(times * episode_bound(2**H, EPSILON))
            for learner in COLOURS:
                slow = learner.startswith(("eps", "LSVEE"))
                if budget > ((12_000 if full else 1_500) if slow else 30_000):
                    continue
                work.append(
                    {
                        "kind": "learner",
                        "learner": learner,
                        "horizon": H,
                        "budget": max(1, budget),
                        "times": times,
                        "runs": runs // 2 if slow else runs,
                        "seed": 0,
                    }
                )
    work += [  # the sample sizes of LSVEE as printed are fixed, so it has no budget
        {"kind": "learner", "learner": PAPER, "horizon": H, "budget": None, "times": None, "runs": runs // 2, "seed": 0}
        for H in ((2, 4, 6, 8) if full else (2, 4))
    ]
    return work


def measure(piece: Plain, /) -> Plain:
    """Returns what one piece measured."""
    kind = piece["kind"]
    if kind == "construction":
        return construction(family.Config(piece["horizon"], piece["n_actions"], piece["epsilon"]))
    if kind == "divergence":
        return divergence(piece["n_arms"], piece["budget"], piece["epsilon"], win_stay)
    if kind == "uniform":
        return uniform_play(family.Config(piece["horizon"], piece["n_actions"], piece["epsilon"]))
    if kind == "guess":
        return {"found": guessed(piece["n_arms"], math.floor(episode_bound(piece["n_arms"], piece["epsilon"])))}
    if kind == "taylor":
        return taylor(piece["points"])
    if kind == "optimum":
        return {"success": best_success(piece["n_arms"], piece["epsilon"], piece["budget"])}
    return answers(piece)


def construction(config: family.Config) -> Plain:
    """Returns what the whole family of a small size comes to, by enumeration."""
    policies, predictors = family.policies(config), family.predictors(config)
    paths = [p.path for p in policies]
    epsilon = config.epsilon
    value_error = q_error = kl_error = 0.0
    good = set()  # how many policies earn more than the optimum less epsilon
    failures: set[str] = set()
    for secret in paths:
        process = family.member(config, secret)
        report = check_assumptions(process)
        failures |= set(report.failures)
        values = [process.value(policy) for policy in policies]
        good.add(sum(v > max(values) - epsilon + 1e-12 for v in values))
        laws = {p: law(process, policy) for p, policy in zip(paths, policies, strict=True)}
        for p, earned in zip(paths, values, strict=True):
            expected = 0.5 + epsilon * (p == secret)
            value_error = max(value_error, abs(earned - expected))
            for q in paths:
                final = kl_coin(expected, 0.5 + epsilon * (q == secret))  # of the last rewards alone
                kl_error = max(kl_error, abs(kl(laws[p], laws[q]) - final))
        truth = next(f for f in predictors if f.path == secret)
        for length in range(1, config.horizon + 1):
            for history in itertools.product(range(config.n_actions), repeat=length):
                q_error = max(q_error, abs(truth(history) - q_star(process, history)))
    return {
        "policies": len(set(paths)),
        "predictors": len(predictors),
        "states": sum(len(e) for e in process.emissions),
        "deterministic": process.is_deterministic,
        "good": sorted(good),
        "value_error": value_error,
        "q_error": q_error,
        "kl_error": kl_error,
        "failures": sorted(failures),
    }


def law(process: TabularProcess, policy: Policy) -> dict[tuple[Any, ...], float]:
    """Returns the law of everything an episode shows, (x_1, r_1, ..., x_H, r_H), by enumeration."""
    paths: dict[tuple[tuple[Any, ...], int], float] = {((), s): float(p) for s, p in enumerate(process.start) if p > 0}
    for level in range(process.horizon):
        taken = process.action_law(policy, level)  # [X, K]
        rewards = process.rewards[level]
        after: dict[tuple[tuple[Any, ...], int], float] = {}
        for (seen, s), p in paths.items():
            shows = process.emissions[level][s][:, None] * taken  # [X, K]
            for x, a in np.argwhere(shows > 0).tolist():
                for value, q in zip(rewards.values[s, x, a].tolist(), rewards.probs[s, x, a].tolist(), strict=True):
                    nexts = process.transitions[level][s, a] if level < process.horizon - 1 else np.ones(1)
                    for t in np.flatnonzero(nexts > 0).tolist():
                        chance = p * float(shows[x, a]) * q * float(nexts[t])
                        if chance > 0:
                            key = ((*seen, x, value), t)
                            after[key] = after.get(key, 0.0) + chance
        paths = after
    shown: dict[tuple[Any, ...], float] = {}
    for (seen, _), p in paths.items():
        shown[seen] = shown.get(seen, 0.0) + p
    return shown


def kl(p: dict[tuple[Any, ...], float], q: dict[tuple[Any, ...], float]) -> float:
    """Returns the Kullback-Leibler divergence of two laws; infinite where q lacks what p has."""
    return math.fsum(a * math.log(a / q[k]) if q.get(k, 0.0) > 0 else math.inf for k, a in p.items())


def kl_coin(p: float, q: float) -> float:
    """Returns the divergence of two coins, in closed form."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def q_star(process: TabularProcess, history: Path) -> float:
    """Returns Q* after a history, its last action proposed: transitions are deterministic, so actions tell the state."""
    state = int(process.start.argmax())
    for level, a in enumerate(history[:-1]):
        state = int(process.transitions[level][state, a].argmax())
    return float(process.optimum.q[len(history) - 1][state, 0, history[-1]])


def win_stay(rewards: Sequence[int], n_arms: int) -> int:
    """Returns the arm an adaptive algorithm plays after these rewards: the same after a 1, the next after a 0."""
    return sum(1 - r for r in rewards) % n_arms


def divergence(n_arms: int, budget: int, epsilon: float, psi: Callable[[Sequence[int], int], int]) -> Plain:
    """Checks the proof's two displays for an adaptive algorithm, by enumerating all 2^T reward sequences.

    Returns the largest error of KL(P_0 || P_i) = -1/2 log(1 - 4 epsilon^2) E_0[N_i], and the least room that is left in
    P_i[psi_T = i] - P_0[psi_T = i] <= 1/2 sqrt(E_0[N_i] log(1 / (1 - 4 epsilon^2))).
    """
    each = -math.log(1 - 4 * epsilon**2)
    sequences = list(itertools.product((0, 1), repeat=budget))
    fair = 2.0**-budget
    kl_error, room = 0.0, math.inf
    for i in range(n_arms):
        divergent = pulls = right = right_fair = 0.0
        for rewards in sequences:
            played = [psi(rewards[:t], n_arms) for t in range(budget)]
            chance = math.prod(
                (0.5 + epsilon if r else 0.5 - epsilon) if a == i else 0.5 for a, r in zip(played, rewards, strict=True)
            )
            divergent += fair * math.log(fair / chance)
            pulls += fair * played.count(i)
            if psi(rewards, n_arms) == i:
                right, right_fair = right + chance, right_fair + fair
        kl_error = max(kl_error, abs(divergent - each / 2 * pulls))
        room = min(room, math.sqrt(pulls * each) / 2 - (right - right_fair))
    return {"kl_error": kl_error, "room": room}


def best_success(n_arms: int, epsilon: float, budget: int) -> list[float]:
    """Returns, for T = 0 to `budget`, the largest average success probability of any algorithm on the family.

    Under P_0 every reward is a fair coin, and dP_i/dP_0 = (1 + 2 epsilon)^wins (1 - 2 epsilon)^losses of arm i. The average
    over i of P_i[psi_T = i] is E_0 of that ratio for the arm answered, over n: so an optimal algorithm answers the largest
    and plays what maximises the expectation, a dynamic program over the multiset of (wins, losses).
    """
    up, down = 1 + 2 * epsilon, 1 - 2 * epsilon

    @cache
    def worth(arms: tuple[tuple[int, int], ...], left: int) -> float:
        if left == 0:
            return max(up**w * down**lost for w, lost in arms) / n_arms
        best = 0.0
        for i, (w, lost) in enumerate(arms):
            if i and arms[i - 1] == arms[i]:
                continue
            rest = arms[:i] + arms[i + 1 :]
            won = worth(tuple(sorted((*rest, (w + 1, lost)))), left - 1)
            best = max(best, (won + worth(tuple(sorted((*rest, (w, lost + 1)))), left - 1)) / 2)
        return best

    return [worth(((0, 0),) * n_arms, T) for T in range(budget + 1)]


def success_bound(n_arms: int, epsilon: float, budget: int) -> float:
    """Returns the proof's bound on the average success probability, 1/K + 1/2 sqrt(-log(1 - 4 epsilon^2) T / K)."""
    return 1 / n_arms + math.sqrt(-math.log(1 - 4 * epsilon**2) * budget / n_arms) / 2


def uniform_play(config: family.Config) -> Plain:
    """Returns what uniform play earns at least over the family, and the optimum, both exact."""
    values = [
        (process.value(Uniform(config.n_actions)), process.optimum.value)
        for process in (family.member(config, p.path) for p in family.policies(config))
    ]
    return {"least": min(v for v, _ in values), "optimum": max(o for _, o in values)}


def guessed(n_arms: int, budget: int) -> int:
    """Returns in how many of n problems an algorithm that answers arm T mod n is right for some T up to the budget."""
    return len({T % n_arms for T in range(budget + 1)})


def taylor(points: int) -> Plain:
    """Returns how near -log(1 - x) comes to 2x for x up to 1/2, and where the inequality breaks beyond."""
    x = np.linspace(0, 0.5, points)[1:]
    beyond = np.linspace(0.5, 0.99, points)
    return {
        "closest": float((-np.log1p(-x) / (2 * x)).max()),
        "breaks": float(beyond[-np.log1p(-beyond) > 2 * beyond].min()),
    }


def answers(piece: Plain) -> Plain:
    """Runs a learner on members of the family drawn at random, and counts what became of it."""
    learner, budget, H = piece["learner"], piece["budget"], piece["horizon"]
    counts = dict.fromkeys(OUTCOMES, 0)
    if learner == "epsilon-greedy Q-learning":  # ties at random: all members are alike to it, so one will do
        problem = family.build(family.Config(H, 2, EPSILON, piece["seed"]))
        rng = keyed_generator(piece["seed"], NAME, learner, H, budget)
        assert problem.process is not None
        lanes = Lanes(problem.process, piece["runs"])
        tables = EpsilonGreedyTables(problem.process, runs=piece["runs"])
        train(lanes, tables, budget, rng)
        chance = (lanes.values(tables) - 0.5) / EPSILON  # that ties, broken at random, give the secret policy
        counts["right"] = int((rng.random(piece["runs"]) < chance).sum())
        counts["wrong"] = piece["runs"] - counts["right"]
        return counts
    for i in range(piece["runs"]):
        seed = piece["seed"] * 1_000_000 + i
        problem = family.build(family.Config(H, 2, EPSILON, seed))
        counts[_answer(learner, problem, budget, seed)] += 1
    return counts


def _answer(learner: str, problem: Problem, budget: int | None, seed: int) -> str:
    """Returns what became of one run, a key of `OUTCOMES`."""
    policy: Policy
    claimed = True
    if learner in LEARNER:
        # Its assumptions are false here, which it is not told. Asked for epsilon/2, it must find the secret policy: every
        # policy of the family is within epsilon, so that a promise of epsilon says nothing.
        asked = Settings(epsilon=EPSILON / 2, delta=DELTA, learner=LEARNER[learner], seed=seed, max_episodes=budget)
        try:
            outcome = run(problem, asked)
        except BrokenPromise:
            return "noticed"
        assert budget is None or outcome.episodes <= budget
        policy, claimed = outcome.policy, outcome.reason is not StopReason.EPISODES_SPENT
    else:
        arms, rng = SideBySideArms(problem.env), keyed_generator(seed, NAME, learner)
        assert budget is not None
        if learner == "uniform allocation":
            choice = uniform_allocation(arms, budget, rng)
        elif learner == "successive elimination":
            choice = successive_elimination(arms, DELTA, rng, budget=budget)
        else:
            choice = median_elimination(arms, EPSILON / 2, DELTA, rng, budget=budget)
        assert choice.pulls <= budget
        policy = OpenLoop(arms.path(choice.arm))
    assert problem.process is not None
    if problem.process.value(policy) > problem.optimal_value - EPSILON / 2:
        return "right"
    return "wrong" if claimed else "unfinished"


def failure(result: Plain) -> tuple[float, float, float]:
    """Returns the share of runs without the right answer, and its exact interval."""
    runs = sum(result[k] for k in OUTCOMES)
    missed = runs - result["right"]
    return missed / runs, *binomial_interval(missed, runs, CONFIDENCE)


def conclude(given: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns what follows."""
    both = list(zip(given, results, strict=True))
    built = [(p, r) for p, r in both if p["kind"] == "construction"]
    divergent = [r for p, r in both if p["kind"] == "divergence"]
    optimal = [(p, r["success"]) for p, r in both if p["kind"] == "optimum"]
    budgeted = [(p, r) for p, r in both if p["kind"] == "learner" and p["budget"] is not None]
    below = [(p, failure(r)) for p, r in budgeted if p["budget"] <= episode_bound(2 ** p["horizon"], EPSILON)]
    above = [failure(r) for p, r in budgeted if p["times"] == max(p["times"] for p, _ in budgeted)]
    fixed = [(p, r) for p, r in both if p["kind"] == "learner" and p["budget"] is None]
    size = [(p["n_actions"] ** p["horizon"], 2 * p["horizon"]) for p, _ in built]
    worst = max((max(r[e] for e in ("value_error", "q_error")) for _, r in built), default=0.0)
    kl_error = max([r["kl_error"] for _, r in built] + [r["kl_error"] for r in divergent])
    over = [s[T] - success_bound(p["n_arms"], p["epsilon"], T) for p, s in optimal for T in range(len(s))]
    at_bound = [
        (p["n_arms"], T, success)
        for p, s in optimal
        for T, success in enumerate(s)
        if episode_bound(p["n_arms"], p["epsilon"]) >= T
    ]
    least = min(below, key=lambda b: b[1][1])
    guesses = [(p, r) for p, r in both if p["kind"] == "guess"]
    uniform = [(p, r) for p, r in both if p["kind"] == "uniform"]
    (expansion,) = (r for p, r in both if p["kind"] == "taylor")
    crossings = [
        (p["n_arms"], p["epsilon"], next((T for T, success in enumerate(s) if success > 2 / 3), None))
        for p, s in optimal
    ]
    times = {(n, e): T / episode_bound(n, e) for n, e, T in crossings if T is not None}
    two = [t for (n, _), t in times.items() if n == 2]
    at_wall = [
        1 / n + math.sqrt(8 * e**2 * episode_bound(n, e) / n) / 2
        for n in (*range(2, 65), 2**10, 2**20)
        for e in (0.01, 0.1, 0.35)
    ]
    checks = (
        Check(
            "the construction: 2H states, K^H policies and predictors, deterministic transitions",
            all(
                (r["policies"], r["predictors"], r["states"]) == (n, n, s) and r["deterministic"]
                for (n, s), (_, r) in zip(size, built, strict=True)
            ),
            "; ".join(f"H = {p['horizon']}, K = {p['n_actions']}: {r['policies']} policies" for p, r in built),
        ),
        Check(
            "one policy earns 1/2 + epsilon, all others 1/2, and f_p is Q* on every history",
            worst < 1e-12,
            f"every member of the family enumerated, largest error {worst:.1e}",
        ),
        Check(
            "the reduction: two policies' observations and rewards diverge exactly as their final rewards do",
            kl_error < 1e-12,
            f"enumerated against the closed form, adaptive play over T episodes included; largest error {kl_error:.1e}",
        ),
        Check(
            "the proof's bound on the gain from E[N_i] pulls",
            min(r["room"] for r in divergent) >= -1e-12,
            f"least room {min(r['room'] for r in divergent):.4f}",
        ),
        Check(
            "no algorithm at all exceeds the proof's bound, and none succeeds with probability above 2/3 in "
            "K^H / (72 epsilon^2) episodes",
            max(over) <= 1e-12 and max(s for _, _, s in at_bound) <= 2 / 3,
            "optimal success by dynamic programming: "
            + "; ".join(f"{s:.4f} with {n} arms, T = {T}" for n, T, s in _last_of_each(at_bound)),
            tightness=max(s for _, _, s in at_bound) * 3 / 2,
        ),
        Check(
            "the wall, by the proof: 1/K + 1/2 sqrt(8 epsilon^2 T/K) is 2/3 at T = K/(72 epsilon^2) for K = 2, and less for "
            "more arms",
            abs(max(at_wall) - 2 / 3) <= 1e-12,
            f"{len(at_wall)} numbers of arms and values of epsilon, largest {max(at_wall):.6f}: an identity at K = 2",
        ),
        Check(
            "the wall, exactly: with two arms the best algorithm passes 2/3 at 4 to 7 times as many episodes",
            bool(two) and min(two) >= 4 and max(two) <= 7,
            "; ".join(f"{n} arms, epsilon {e:g}: {t:.2f} times" for (n, e), t in times.items())
            + ". As epsilon goes to 0 it is 6.68 times with two arms",
        ),
        Check(
            "the Taylor step: -log(1 - x) <= 2 x for x up to 1/2, so -log(1 - 4 epsilon^2) <= 8 epsilon^2",
            expansion["closest"] <= 1,
            f"left reaches {expansion['closest']:.4f} of right, log 2 at x = 1/2; false from x = {expansion['breaks']:.3f}",
            tightness=expansion["closest"],
        ),
        Check(
            "Propositions 1 and 2: of the policies, deterministic functions of observations or of histories, those of "
            "exactly one action sequence earn more than the optimum less epsilon",
            all(r["good"] == [1] for _, r in built),
            f"{sum(r['policies'] for _, r in built)} members of {len(built)} families, all policies of each",
        ),
        Check(
            "one constant for all algorithms: K^H / (72 epsilon^2), where the problem is chosen for each T",
            guesses[0][1]["found"] == guesses[0][0]["n_arms"] and max(s for _, _, s in at_bound) <= 2 / 3,
            "guessing sequence number T mod K^H is right at some T within it in "
            + "; ".join(f"{r['found']} of {p['n_arms']} problems, epsilon {p['epsilon']:g}" for p, r in guesses)
            + ". Printed is a constant that may follow the algorithm, which holds",
            reading="for every T there is a problem; one problem for all T and all algorithms would need c below epsilon^2",
        ),
        Check(
            "a remark, random outputs: uniform play is within epsilon without samples, and not within epsilon/2",
            all(
                r["optimum"] - p["epsilon"] + 1e-9 < r["least"] <= r["optimum"] - p["epsilon"] / 2 + 1e-9
                for p, r in uniform
            ),
            "; ".join(
                f"H = {p['horizon']}, K = {p['n_actions']}, epsilon {p['epsilon']:g}: earns {r['least']:.6g} > "
                f"{r['optimum'] - p['epsilon']:.6g}"
                for p, r in uniform
            ),
        ),
        Check(
            "every learner fails with probability at least 1/3 up to K^H / (72 epsilon^2) episodes "
            f"({CONFIDENCE:.1%} intervals)",
            all(low >= 1 / 3 for _, (_, low, _) in below),
            f"{len(below)} cells; lowest: {least[0]['learner']}, H = {least[0]['horizon']}, T = {least[0]['budget']}: "
            f"fails {least[1][0]:.3f}, at least {least[1][1]:.3f}",
        ),
        Check(
            "with far more episodes some learner does succeed, so the rate is not an artefact",
            min(high for _, _, high in above) < 1 / 3,
            f"smallest failure rate at the largest budget: {min(above)[0]:.3f}, at most {min(above)[2]:.3f}",
        ),
        Check(
            "Assumption 1 is what is false, and check_assumptions names it",
            all("reactive" in r["failures"] for p, r in built if p["horizon"] > 1)
            and all("deterministic" not in r["failures"] for _, r in built),
            "found to fail: " + ", ".join(sorted({f for _, r in built for f in r["failures"]})),
        ),
        Check(
            f"LSVEE's promise rests on Assumption 1: here it is right less often than {1 - DELTA:.0%}",
            all(failure(r)[1] > DELTA for _, r in fixed),
            "; ".join(
                f"H = {p['horizon']}: right {r['right']}, wrong {r['wrong']}, noticed {r['noticed']}" for p, r in fixed
            ),
        ),
    )
    rows = []
    for p, r in budgeted + fixed:
        rate, low, high = failure(r)
        rates = (round(rate, 4), round(low, 4), round(high, 4))
        rows.append((*(p[k] for k in ("learner", "horizon", "budget", "times")), *(r[k] for k in OUTCOMES), *rates))
    return Conclusion(
        checks,
        ("learner", "H", "T", "T / bound", *OUTCOMES, "failure", "low", "high"),
        tuple(rows),
        f"K = 2, epsilon = {EPSILON}; members drawn at random, {min(p['runs'] for p, _ in budgeted)} to "
        f"{max(p['runs'] for p, _ in budgeted)} runs a point, exact {CONFIDENCE:.1%} intervals; right is within epsilon/2, "
        f"which learners are asked for; the optimum is exact, epsilon from {min(p['epsilon'] for p, _ in optimal)} to "
        f"{max(p['epsilon'] for p, _ in optimal)}.",
    )


def _last_of_each(found: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Returns the largest T for each number of arms."""
    return list({n: (n, T, s) for n, T, s in found}.values())


def draw(figure: "Figure", given: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws failures over budgets for every horizon, the best that any algorithm can do, and what LSVEE does."""
    both = list(zip(given, results, strict=True))
    budgeted = [(p, r) for p, r in both if p["kind"] == "learner" and p["budget"] is not None]
    horizons = sorted({p["horizon"] for p, _ in budgeted})
    figure.set_size_inches(11, 7.4)
    grid = figure.add_gridspec(3, 1, height_ratios=(0.06, 1.2, 1))  # a line for the legend, which would cover marks
    top = grid[1].subgridspec(1, len(horizons))
    bottom = grid[2].subgridspec(1, 2, width_ratios=(1.1, 1))
    figure.suptitle("One of $K^H$ action sequences is better: no learner finds it below the bound", fontsize=15)
    first: Axes | None = None
    ends = (0.6, 2.2 * max(p["budget"] for p, _ in budgeted))
    for column, H in enumerate(horizons):
        axes = figure.add_subplot(top[column], sharey=first)
        first = first or axes
        _budget_panel(axes, H, [(p, r) for p, r in budgeted if p["horizon"] == H], ends)
        axes.tick_params(labelleft=True)  # narrow screens show one panel at a time
    assert first is not None
    first.set_ylabel("probability of a wrong answer")
    handles, labels = first.get_legend_handles_labels()
    line = figure.add_subplot(grid[0])
    line.set_axis_off()
    line.legend(handles, labels, loc="center left", ncols=len(labels), borderpad=0, columnspacing=1.2)
    _optimum_panel(figure.add_subplot(bottom[0]), [(p, r["success"]) for p, r in both if p["kind"] == "optimum"])
    _lsvee_panel(figure.add_subplot(bottom[1]), [(p, r) for p, r in both if str(p.get("learner")).startswith("LSVEE")])


def _budget_panel(axes: "Axes", H: int, cells: list[tuple[Plain, Plain]], ends: tuple[float, float]) -> None:
    limit = episode_bound(2**H, EPSILON)
    axes.axvspan(ends[0], limit, color=GREY, alpha=0.22, lw=0)
    axes.axvline(limit, color="black", lw=1.5)
    axes.axhline(1 / 3, color=RED, lw=1.2, ls="--")
    for learner, colour in COLOURS.items():
        mine = sorted(((p["budget"], *failure(r)) for p, r in cells if p["learner"] == learner))
        if mine:
            x, y, low, high = np.array(mine).T
            axes.errorbar(
                x, y, np.stack([y - low, high - y]), color=colour, marker=MARKERS[learner], ms=5, lw=1.6, label=learner
            )
    axes.set(xscale="log", xlim=ends, ylim=(-0.03, 1.06), title=f"H = {H}:  $K^H$ = {2**H:,}", xlabel="episodes T")
    axes.text(limit, 0.03, " bound", ha="left", fontsize=9)
    axes.text(ends[1] * 0.8, 1 / 3 + 0.02, "1/3", color=RED, ha="right", fontsize=9)


def _optimum_panel(axes: "Axes", found: list[tuple[Plain, list[float]]]) -> None:
    for (p, success), colour in zip(found, (BLUE, ORANGE, GREEN, PINK), strict=False):
        T = np.arange(len(success))
        axes.plot(T, success, "o-", color=colour, ms=4, label=f"{p['n_arms']} arms, ε = {p['epsilon']:g}")
        axes.plot(
            T, [success_bound(p["n_arms"], p["epsilon"], t) for t in range(len(success))], color=colour, ls=":", lw=1.5
        )
        limit = episode_bound(p["n_arms"], p["epsilon"])
        axes.plot([limit, limit], [0, 2 / 3], color=colour, lw=1.2)
    axes.axhline(2 / 3, color=RED, lw=1.2, ls="--")
    axes.text(0.99, 2 / 3 - 0.015, "2/3", color=RED, fontsize=9, ha="right", va="top", transform=axes.transAxes)
    axes.set(ylim=(0, 1), xlabel="episodes T", ylabel="probability of the right answer")
    axes.set_title("Any algorithm at all, exactly", fontsize=11)
    axes.plot([], [], color=GREY, ls=":", lw=1.5, label="the proof's bound")
    axes.plot([], [], color=GREY, lw=1.2, label="$K^H / 72\\epsilon^2$ episodes")
    axes.legend(frameon=False, fontsize=9, loc="lower right", ncols=2)


def _lsvee_panel(axes: "Axes", found: list[tuple[Plain, Plain]]) -> None:
    """Draws shares of what LSVEE answered: as printed, and the certified learner at its largest budget."""
    bars = []
    for name in (PAPER, CERTIFIED):
        for H in sorted({p["horizon"] for p, _ in found if p["learner"] == name}):
            mine = [(p, r) for p, r in found if p["learner"] == name and p["horizon"] == H]
            p, r = max(mine, key=lambda pr: pr[0]["budget"] or 0)
            budget = "" if p["budget"] is None else f", T = {p['budget']:,}"
            bars.append((f"{name.removeprefix('LSVEE ')[1:-1]}, H = {H}{budget}", r))
    left = np.zeros(len(bars))
    for key, (label, colour) in OUTCOMES.items():
        share = np.array([r[key] / sum(r[k] for k in OUTCOMES) for _, r in bars])
        axes.barh(range(len(bars)), share, left=left, color=colour, label=label, height=0.72)
        left += share
    axes.set_yticks(range(len(bars)), [b for b, _ in bars], fontsize=9)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of runs")
    axes.set_title("What LSVEE does when Assumption 1 is false", fontsize=11)
    axes.legend(
        ncols=2,
        frameon=False,
        fontsize=8,
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.21),
        columnspacing=1,
        handlelength=1.2,
    )
