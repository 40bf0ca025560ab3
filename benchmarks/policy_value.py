"""Are intervals for the value of a policy true as often as they say, and how many episodes do they take?

Run with `python benchmarks/policy_value.py [--sequences 3000] [--runs 200] [--workers 2]`; about five minutes of CPU time.
Every sequence is looked at after every single observation, and counts as false if any look excludes the true mean: no rule
for stopping can do worse. Runs of `richobs.certify_policy` compare a policy with a threshold just beside its true value.
"""

import argparse
import math
import multiprocessing
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import richobs
from measure import publish
from richobs.core.environment import Episodes
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.stats.bets import death, kl_upper, lower_bound_of_mean, mixed
from richobs.stats.sequences import ConfidenceSequence, shifts_for
from richobs.stats.shares import Share, Supposed
from richobs_lab.intervals import binomial_interval

DELTAS = (0.3, 0.1, 0.05, 0.01)
LENGTH = 2_000  # observations of a sequence
BESIDE = 1e-6  # distance of a threshold from the true value that makes one verdict false
MOST = 100_000  # episodes of a comparison


class Law(NamedTuple):
    """A law of totals in [0, 1], with its mean known exactly."""

    values: tuple[float, ...]
    chances: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.dot(self.values, self.chances))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.choice(self.values, size=n, p=self.chances)


def clipped_gaussian(mean: float, deviation: float) -> Law:
    """Returns N(mean, deviation^2), rounded to 0.001 and clipped to [0, 1]."""
    grid = np.arange(1001) / 1000
    upto = np.array([0.5 * (1 + math.erf((v + 0.0005 - mean) / deviation / math.sqrt(2))) for v in grid[:-1]] + [1.0])
    return Law(tuple(grid), tuple(np.diff(upto, prepend=0.0)))


LAWS = {
    "Bernoulli(0.5)": Law((0.0, 1.0), (0.5, 0.5)),
    "Bernoulli(0.9)": Law((0.0, 1.0), (0.1, 0.9)),
    "rare large returns": Law((0.0, 1.0), (0.995, 0.005)),
    "rare large losses": Law((0.0, 1.0), (0.005, 0.995)),
    "clipped Gaussian": clipped_gaussian(0.5, 0.15),
    "Gaussian at the edge": clipped_gaussian(0.95, 0.1),
    "two points": Law((0.3, 0.4), (0.2, 0.8)),
    "small, rarely large": Law((0.01, 0.02, 1.0), (0.6, 0.397, 0.003)),
}


class Payer:
    """One level, one action: an episode pays a number drawn from a law."""

    horizon, n_actions, reward_range = 1, 1, (0.0, 1.0)
    declared = richobs.Declared(at_once=10**6)

    def __init__(self, law: Law):
        self.law = law

    def play(
        self, policy: richobs.Policy, n: int, rng: np.random.Generator, levels: int | None = None
    ) -> richobs.Episodes:
        x = np.zeros(n)
        return Episodes([x], [policy.actions(0, x, rng)], [self.law.draw(n, rng)])


def false_sequences(job: tuple[str, float, int, int]) -> tuple[str, float, int]:
    """Returns how many of some sequences ever exclude the true mean.

    By the definition of the bounds that is so when the account of the true mean, or that of the mirrored one, reaches its
    threshold; `tests/test_policy_value.py` checks this against `ConfidenceSequence`.
    """
    name, delta, first, last = job
    law, needed = LAWS[name], math.log(death(Supposed(delta / 2)))
    shifts, steps = shifts_for(LENGTH, delta / 2), np.arange(1.0, LENGTH + 1)[:, None]
    table = [np.log(np.array(law.values)[:, None] + shifts), np.log(1 - np.array(law.values)[:, None] + shifts)]
    false = 0
    for seed in range(first, last):
        rng = keyed_generator(seed, "coverage", name, round(1000 * delta))
        drawn = rng.choice(len(law.values), size=LENGTH, p=law.chances)
        for logs, mean in zip(table, (law.mean, 1 - law.mean), strict=True):
            wealth: Floats = logs[drawn].cumsum(axis=0) - steps * np.log(mean + shifts)
            # An average reaches only what its largest part reaches, so most sequences need no average.
            if wealth.max() >= needed and (mixed(wealth) >= needed).any():
                false += 1
                break
    return name, delta, false


def false_verdict(job: tuple[str, float, int]) -> tuple[str, float, bool]:
    """Returns whether a run of `certify_policy` claimed anything false; its threshold lies just beside the true value."""
    name, delta, seed = job
    law = LAWS[name]
    above = bool(seed % 2)
    report = richobs.certify_policy(
        Payer(law),
        richobs.OpenLoop((0,)),
        threshold=law.mean + BESIDE if above else law.mean,
        delta=delta,
        max_episodes=LENGTH,
        batch=4 + seed % 61,
        seed=seed,
    )
    wrong = richobs.Verdict.AT_LEAST if above else richobs.Verdict.BELOW
    return name, delta, report.verdict is wrong or not report.lower <= law.mean <= report.upper


def betting(limit: int, share: float) -> Callable[[Floats, int], tuple[float, float]]:
    """Returns the bounds of this package; looks come in order."""
    sequence = ConfidenceSequence(limit, Share(share), Share(share))
    seen = 0

    def look(x: Floats, k: int) -> tuple[float, float]:
        nonlocal seen
        sequence.add(x[seen:])
        seen = len(x)
        return sequence.lower, sequence.upper

    return look


def constant_bets(x: Floats, share: float) -> tuple[float, float]:
    """Returns the bounds of `lower_bound_of_mean`, made for accuracies of 0.05."""
    threshold = death(Supposed(share))
    return lower_bound_of_mean(x, 0.05 / 16, threshold), 1 - lower_bound_of_mean(1 - x, 0.05 / 16, threshold)


def hoeffding(x: Floats, share: float) -> tuple[float, float]:
    radius = math.sqrt(-math.log(share) / (2 * len(x)))
    return float(x.mean()) - radius, float(x.mean()) + radius


def bernstein(x: Floats, share: float) -> tuple[float, float]:
    """Returns the bounds of Maurer and Pontil (2009), Theorem 4."""
    n, logarithm = len(x), math.log(2 / share)
    radius = math.sqrt(2 * float(x.var(ddof=1)) * logarithm / n) + 7 * logarithm / (3 * (n - 1))
    return float(x.mean()) - radius, float(x.mean()) + radius


def chernoff(x: Floats, share: float) -> tuple[float, float]:
    sides = kl_upper(np.array([1 - x.mean(), x.mean()]), -math.log(share) / len(x))
    return 1 - float(sides[0]), float(sides[1])


def union(bound: Callable[[Floats, float], tuple[float, float]]) -> Callable[[Floats, int], tuple[float, float]]:
    """Returns a bound for one sample size as one for all looks: look k gets 1/(k (k + 1)) of the share."""
    return lambda x, k: bound(x, 0.025 / (k * (k + 1)))


def episodes_needed(job: tuple[str, float, int]) -> tuple[str, float, dict[str, int]]:
    """Returns after how many episodes each method knows on which side of a threshold the value lies."""
    name, distance, seed = job
    law = LAWS[name]
    x = law.draw(MOST, keyed_generator(seed, "episodes", name))
    threshold = law.mean + distance
    methods = {
        "betting": betting(MOST, 0.025),
        "constant bets": lambda x, k: constant_bets(x, 0.025),
        "Chernoff": union(chernoff),
        "Bernstein": union(bernstein),
        "Hoeffding": union(hoeffding),
    }
    found: dict[str, int] = {}
    n, k = 0, 0
    while len(found) < len(methods) and n < MOST:
        n, k = min(n + max(32, n // 16), MOST), k + 1
        for method, bounds in methods.items():
            if method not in found:
                low, high = bounds(x[:n], k)
                if low >= threshold or high < threshold:
                    found[method] = n
    return name, distance, {method: found.get(method, MOST) for method in methods}


def main() -> None:
    parser = argparse.ArgumentParser(description="Intervals for the value of a policy: coverage, and episodes needed.")
    parser.add_argument("--sequences", type=int, default=3_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    part = max(1, given.sequences // 10)
    with multiprocessing.Pool(given.workers) as pool:
        sequences = [
            (name, delta, first, min(first + part, given.sequences))
            for name in LAWS
            for delta in DELTAS
            for first in range(0, given.sequences, part)
        ]
        counted: dict[tuple[str, float], int] = {}
        for name, delta, false in pool.imap_unordered(false_sequences, sequences):
            counted[name, delta] = counted.get((name, delta), 0) + false
        runs = [(name, delta, seed) for name in LAWS for delta in (0.3, 0.05) for seed in range(given.runs)]
        verdicts: dict[tuple[str, float], int] = {}
        for name, delta, wrong in pool.imap_unordered(false_verdict, runs, chunksize=50):
            verdicts[name, delta] = verdicts.get((name, delta), 0) + wrong
        compared = [(n, d, seed) for n in LAWS for d in distances(LAWS[n]) for seed in range(given.repeats)]
        needed: dict[tuple[str, float], list[dict[str, int]]] = {}
        for name, distance, found in pool.imap(episodes_needed, compared, chunksize=5):
            needed.setdefault((name, distance), []).append(found)
    rows = []
    for what, counts, total in (("every look", counted, given.sequences), ("certify_policy", verdicts, given.runs)):
        for name in LAWS:
            for delta in DELTAS:
                if (name, delta) in counts:
                    false = counts[name, delta]
                    low, high = binomial_interval(false, total, 0.99)
                    rows.append((what, name, delta, total, false, f"[{low:.5f}, {high:.5f}]"))
    publish(
        "policy_value",
        "Intervals for the value of a policy: how often anything claimed was false",
        ("what", "law of totals", "delta", "sequences", "false", "99% interval (exact binomial)"),
        rows,
        f"False: any of {LENGTH:,} looks at a sequence excludes the true mean, or a verdict or an interval of "
        "certify_policy is false. The share may be at most delta.",
    )
    methods = ("betting", "constant bets", "Chernoff", "Bernstein", "Hoeffding")
    table = []
    for (name, distance), counts_found in needed.items():
        medians = [int(statistics.median(one[method] for one in counts_found)) for method in methods]
        rival = min(medians[2:])
        table.append((name, distance, *medians, f"{1 - medians[0] / rival:.0%}", f"{1 - medians[0] / medians[4]:.0%}"))
    publish(
        "policy_value_episodes",
        "Episodes until it is certain on which side of a threshold the value lies, delta = 0.05, medians",
        ("law of totals", "threshold minus value", *methods, "saved of best with union", "saved of Hoeffding"),
        table,
        f"All look at the same times; the last three spend delta/(k (k + 1)) on look k. {MOST:,} where it was not decided.",
    )


def distances(law: Law) -> tuple[float, ...]:
    """Returns thresholds on both sides of a mean, far and near, as distances from it."""
    room = min(law.mean, 1 - law.mean)
    return tuple(round(sign * share * room, 6) for share in (0.5, 0.2) for sign in (-1, 1))


if __name__ == "__main__":
    main()
