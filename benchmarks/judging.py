"""Which policy is better: how many episodes comparisons and races take, and how often they are false.

Run with `python benchmarks/judging.py [--repeats 400] [--null 2000] [--races 2000] [--logs 2000]`; about ten minutes of
CPU time. Totals are successes: 1 with a probability that belongs to the policy. "Shared" means that in four of five rounds
one random number decides for all policies. Comparisons are followed by the wealth that names a winner
(`tests/test_judging.py` compares it with `richobs.compare`), null runs after every single round; races are those of
`richobs.select`, with draws of NumPy.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator

import numpy as np

import richobs
from measure import publish
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask
from richobs.judging.compare import Comparison
from richobs.judging.record import Question
from richobs.judging.select import Selection, run
from richobs.judging.value import ROUNDING, default_limit, judge
from richobs.stats.bets import death, mixed
from richobs.stats.sequences import DIFFERENCE_SHIFT, LARGER, ConfidenceSequence, WeightedSequence, shifts_for
from richobs.stats.shares import Share, Supposed
from richobs_lab.intervals import binomial_interval

DELTA, EPSILON = 0.05, 0.05
PAIRS = 100_000  # of a comparison without epsilon
BARS = (  # success rates, whether shared, and the bar for the median of pairs
    (0.7, 0.5, False, 120),
    (0.7, 0.5, True, 65),
    (0.9, 0.7, False, 95),
    (0.9, 0.7, True, 52),
    (0.95, 0.9, False, 600),
    (0.95, 0.9, True, 210),
    (0.6, 0.55, True, 560),
)
RACES = ((20, 0.5, False, 6_000), (20, 0.5, True, 3_500), (50, 0.8, True, 5_200))  # policies, spread, shared, bar


def successes(rates: Floats, shared: bool, n: int, rng: np.random.Generator) -> Floats:
    """Returns `[n, policies]` totals of n rounds."""
    one, own = rng.random((n, 1)), rng.random((n, len(rates)))
    together = rng.random((n, 1)) < (0.8 if shared else 0.0)
    return (np.where(together, one, own) < rates).astype(float)


def asked(kind: str, names: int, seed: int, epsilon: float | None, most: int, batch: int) -> Question:
    slack = 1e-9 + ROUNDING
    return Question(kind, tuple(map(str, range(names))), (0.0, 1.0), DELTA, seed, batch, most, slack, epsilon=epsilon)


def compared(a: float, b: float, shared: bool, seed: int, epsilon: float | None = None) -> Comparison:
    """Returns the report that `richobs.compare` makes of the same draws."""
    rng, rates = keyed_generator(seed, "compare", int(1e3 * a), int(1e3 * b), int(shared)), np.array([a, b])
    question = asked("compare", 2, seed, epsilon, 2 * default_limit(epsilon, 4e-9, 2.0, DELTA), 1)
    return judge(
        Comparison,
        question,
        lambda look, n, before: list(successes(rates, shared, n, rng).T),
        lambda report: None,
    )


def wins(d: Floats, limit: int) -> Mask:
    """Returns `[n]` after which rounds the differences 1, 0 and -1 make certain that the first policy is better."""
    bets = 1 / (1 + 2 * shifts_for(limit, DELTA / 2, DIFFERENCE_SHIFT))
    up, down = (d == 1).cumsum()[:, None], (d == -1).cumsum()[:, None]
    return mixed(up * np.log1p(bets) + down * np.log1p(-bets)) >= math.log(death(Supposed(DELTA / 2)))


def looks(length: int) -> Ints:
    """Returns after which rounds `compare` looks, with `batch=1`."""
    at = [1]
    while at[-1] < length:
        at.append(at[-1] + max(1, at[-1] // 16))
    return np.array(at[:-1])


def comparisons(repeats: int, length: int = 10_000) -> Iterator[tuple[object, ...]]:
    at = looks(length)
    for a, b, shared, bar in BARS:
        pairs = []
        for seed in range(repeats):
            both = successes(
                np.array([a, b]), shared, length, keyed_generator(seed, "compare", int(1e3 * a), int(shared))
            )
            won = wins(both[:, 0] - both[:, 1], PAIRS)[at - 1]
            pairs.append(int(at[won.argmax()]) if won.any() else length)
        median, late = statistics.median(pairs), sum(n == length for n in pairs)
        yield f"{a} against {b}", "shared" if shared else "no", repeats, median, bar, late, bool(median <= bar)


def null_runs(runs: int, length: int = 4_000) -> Iterator[tuple[object, ...]]:
    for rate in (0.5, 0.9):
        for shared in (False, True):
            false = 0
            for seed in range(runs):
                rng = keyed_generator(seed, "null", int(100 * rate), int(shared))
                both = successes(np.full(2, rate), shared, length, rng)
                d = both[:, 0] - both[:, 1]
                false += bool(wins(d, PAIRS).any() or wins(-d, PAIRS).any())
            low, high = binomial_interval(false, runs, 0.99)
            where = "shared" if shared else "no"
            yield f"both {rate}", where, runs, length, false, f"[{low:.4f}, {high:.4f}]", bool(low <= DELTA)


def equivalences(repeats: int) -> Iterator[tuple[object, ...]]:
    for rate, shared in ((0.5, False), (0.9, False), (0.9, True)):
        found = [compared(rate, rate, shared, seed, epsilon=0.1) for seed in range(repeats)]
        equal = sum(report.verdict is richobs.Verdict.NO_DIFFERENCE for report in found)
        median = statistics.median(report.pairs for report in found)
        yield f"both {rate}", "shared" if shared else "no", repeats, median, equal


def race(rates: Floats, shared: bool, seed: int) -> Selection:
    n = len(rates)
    question = asked("select", n, seed, EPSILON, 10_000_000, 8)
    rng = keyed_generator(seed, "race", n, int(shared))

    def draw(look: int, living: Ints, rounds: int, before: int) -> list[Floats]:
        return list(successes(rates[living], shared, rounds, rng).T)

    return run(question, draw, lambda report: None, None)


def races(runs: int) -> Iterator[tuple[object, ...]]:
    for n, spread, shared, bar in RACES:
        rates = np.linspace(0.9 - spread, 0.9, n)
        found = [race(rates, shared, seed) for seed in range(runs)]
        false = sum(
            not (report.is_certified and rates[report.chosen] >= 0.9 - EPSILON)
            or not report.lower <= rates[report.chosen] <= report.upper
            for report in found
        )
        median = statistics.median(report.episodes for report in found)
        low, high = binomial_interval(false, runs, 0.99)
        each = sum(certified_alone(rate, n) for rate in rates)
        shares = "shared" if shared else "no"
        interval = f"[{low:.4f}, {high:.4f}]"
        yield n, spread, shares, runs, median, bar, each, false, interval, bool(median <= bar and low <= DELTA)


def certified_alone(rate: float, n: int) -> int:
    """Returns after how many episodes a policy's value is known to within epsilon/2, with delta/n."""
    rng = keyed_generator(n, "alone", int(1e6 * rate))
    sequence = ConfidenceSequence(20_000, *Share(DELTA / n).split(0.5, 0.5))
    while sequence.upper - sequence.lower > EPSILON:
        sequence.add((rng.random(max(32, sequence.n // 16)) < rate).astype(float))
    return sequence.n


def logged(n: int, levels: int, adaptive: bool, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Returns weights, totals and per-decision totals of n logged episodes; the policy always takes action 1, V = 0.8.

    Action 1 pays 1/levels with probability 0.8, action 0 with 0.3. The log takes action 1 with probability 1/2; an adaptive
    one with a probability between 0.2 and 0.8 that follows what both actions paid before.
    """
    weights, totals, steps = np.ones(n), np.zeros(n), np.zeros(n)
    paid = np.ones(2)
    for i in range(n):
        chance = float(np.clip(paid[1] / paid.sum(), 0.2, 0.8)) if adaptive else 0.5
        for _ in range(levels):
            action = int(rng.random() < chance)
            reward = float(rng.random() < (0.8 if action else 0.3)) / levels
            weights[i] *= action / chance
            totals[i] += reward
            steps[i] += weights[i] * reward
            paid[action] += reward
    return weights, totals, steps


def log_coverage(runs: int, length: int = 100) -> Iterator[tuple[object, ...]]:
    for levels, adaptive in ((1, False), (1, True), (3, False), (3, True)):
        samples = [
            logged(length, levels, adaptive, keyed_generator(s, "log", levels, int(adaptive))) for s in range(runs)
        ]
        for delta in (0.5, 0.1, 0.05):
            shifts, needed = shifts_for(length * LARGER, delta / 2), math.log(death(Supposed(delta / 2)))
            counts, false = np.arange(1, length + 1)[:, None], 0
            for weights, totals, steps in samples:
                below = [weights * totals, steps] if levels > 1 else [weights * totals]
                sides = ((below, 0.8), ([weights * (1 - totals)], 0.2))
                wealth = (
                    mixed(
                        np.concatenate(
                            [np.log(y[:, None] + shifts).cumsum(axis=0) - counts * np.log(mean + shifts) for y in side],
                            axis=1,
                        )
                    )
                    for side, mean in sides
                )
                false += any((w >= needed).any() for w in wealth)
            low, high = binomial_interval(false, runs, 0.99)
            kind = "adaptive" if adaptive else "fixed"
            yield levels, kind, delta, runs, length, false, f"[{low:.4f}, {high:.4f}]", bool(low <= delta)


def log_tightness(repeats: int) -> Iterator[tuple[object, ...]]:
    for levels in (1, 3, 6):
        for n in (300, 3_000):
            ours, clipped = [], []
            for seed in range(repeats):
                weights, totals, steps = logged(n, levels, False, keyed_generator(seed, "tight", levels, n))
                sequence = WeightedSequence(n, *Share(DELTA).split(0.5, 0.5))
                below = np.stack([weights * totals, steps] if levels > 1 else [weights * totals])
                sequence.add(below, (weights * (1 - totals))[None])
                ours.append(sequence.lower)
                clipped.append(
                    max(bernstein(np.minimum(weights * totals, c), c, DELTA / 10) for c in (2, 4, 8, 16, 64))
                )
            yield levels, n, repeats, statistics.median(ours), statistics.median(clipped), 0.8


def bernstein(y: Floats, most: float, share: float) -> float:
    """Returns the empirical Bernstein lower bound for one sample size (Maurer and Pontil 2009), for values in [0, most]."""
    n, logarithm = len(y), math.log(2 / share)
    return max(
        0.0, float(y.mean() - math.sqrt(2 * y.var(ddof=1) * logarithm / n) - 7 * most * logarithm / (3 * (n - 1)))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Which policy is better: episodes, and how often claims are false.")
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--null", type=int, default=2_000)
    parser.add_argument("--races", type=int, default=2_000)
    parser.add_argument("--logs", type=int, default=2_000)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    parts: dict[str, tuple[str, tuple[str, ...], Callable[[], Iterator[tuple[object, ...]]], str]] = {
        "judging_compare": (
            "Pairs of episodes until it is certain which policy is better, delta = 0.05, medians",
            ("success rates", "noise", "runs", "median pairs", "bar", "not named", "met"),
            lambda: comparisons(given.repeats),
            "By the wealth that names a winner, at the looks of `compare`: after every pair, then after a sixteenth of all.",
        ),
        "judging_null": (
            "Equal policies: how often a winner is named, delta = 0.05, looked at after every pair",
            ("policies", "noise", "runs", "pairs", "winner named", "99% interval (exact binomial)", "at most delta"),
            lambda: null_runs(given.null),
            "The share may be at most 0.05.",
        ),
        "judging_equal": (
            "Equal policies with epsilon = 0.1: pairs until they are known to differ by at most that",
            ("policies", "noise", "runs", "median pairs", "found equal"),
            lambda: equivalences(given.repeats // 10),
            "delta = 0.05.",
        ),
        "judging_select": (
            "One policy within 0.05 of the best, delta = 0.05: episodes in all, medians",
            ("policies", "spread", "noise", "races", "median", "bar", "each alone", "false", "99% interval", "met"),
            lambda: races(given.races),
            "Success rates evenly spaced below 0.9. False: the chosen one is not within 0.05, or its interval is false. "
            "'Each alone': every value known to within 0.025 by an interval of its own, one run.",
        ),
        "judging_logs": (
            "Intervals from logged episodes: how often they are false, looked at after every episode",
            ("steps", "log", "delta", "logs", "episodes", "false", "99% interval (exact binomial)", "at most delta"),
            lambda: log_coverage(given.logs),
            "An adaptive log changes its probabilities with what was paid before.",
        ),
        "judging_logs_tight": (
            "Lower bounds from logged episodes, delta = 0.05, medians; the value is 0.8",
            ("steps", "episodes", "logs", "here", "empirical Bernstein, clipped", "value"),
            lambda: log_tightness(max(1, given.repeats // 10)),
            "Clipped at the best of 2, 4, 8, 16 and 64, with a union over these, for one sample size; here at all sizes.",
        ),
    }
    for name, (title, columns, rows, note) in parts.items():
        if given.only in name:
            publish(name, title, columns, list(rows()), note)


if __name__ == "__main__":
    main()
