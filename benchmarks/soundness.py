"""Are certified claims true as often as they say? Many runs with tiny batches over random processes and classes.

Run with `python benchmarks/soundness.py [RUNS]` (default 20,000; about a quarter of an hour on two cores).
"""

import multiprocessing
import sys
from typing import Any

import richobs
from measure import publish
from richobs.core.errors import BrokenPromise, EpisodeLimit
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.engines import StreamEngine
from richobs_lab.certified import Bounds, Tuning
from richobs_lab.certified.search import play_round
from richobs_lab.certified.state import CertifiedSearch
from richobs_lab.intervals import binomial_interval

DELTAS = (0.3, 0.1, 0.05, 0.01)
LIMIT = 1_500  # episodes; a run that spends them still makes claims


def one_run(seed: int) -> tuple[float, str]:
    """Returns delta and what went wrong, or "" where nothing did."""
    rng = keyed_generator(seed, "soundness")
    shape: dict[str, Any] = {
        "horizon": int(rng.integers(1, 4)),
        "n_states": int(rng.integers(1, 5)),
        "n_actions": int(rng.integers(1, 4)),
        "n_observations": int(rng.integers(0, 5)),
        "overlap": float(rng.choice([0.0, 0.5, 1.0])),
        "class_size": int(rng.integers(2, 25)),
    }
    delta, epsilon = float(rng.choice(DELTAS)), float(rng.choice([0.2, 0.35, 0.5]))
    tiny = Tuning(
        trials=int(rng.integers(2, 9)),
        pilot=int(rng.integers(2, 17)),
        smallest=int(rng.integers(4, 33)),
        largest=int(rng.integers(33, 129)),
        margin=1.0,
        verification=int(rng.integers(8, 65)),
    )
    problem = richobs.make("random", seed=seed, **shape)
    engine = StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(LIMIT))
    search = CertifiedSearch(engine, problem.functions, epsilon, delta, seed, nobody, tiny, Bounds())
    try:
        while not play_round(search):
            pass
    except EpisodeLimit:
        pass
    except BrokenPromise:
        return delta, "a promise was reported broken"
    assert problem.optimal_function is not None
    if problem.optimal_function not in search.space:
        return delta, "Q* was eliminated"
    if problem.optimal_value > search.upper + 1e-12:
        return delta, "V* exceeds its upper bound"
    if search.best is not None:
        value = problem.value(richobs.LearnedPolicy(problem.functions, search.best.member)).value
        if value < search.best.lower - 1e-12:
            return delta, "the policy is worse than its lower bound"
    return delta, ""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    wrong: dict[float, dict[str, int]] = {d: {} for d in DELTAS}
    counts = dict.fromkeys(DELTAS, 0)
    with multiprocessing.Pool(2) as pool:
        for delta, what in pool.imap_unordered(one_run, range(runs), chunksize=50):
            counts[delta] += 1
            if what:
                wrong[delta][what] = wrong[delta].get(what, 0) + 1
    rows = []
    for delta in DELTAS:
        failures = sum(wrong[delta].values())
        low, high = binomial_interval(failures, counts[delta], 0.99)
        detail = ", ".join(f"{what}: {n}" for what, n in wrong[delta].items()) or "nothing"
        rows.append((delta, counts[delta], failures, f"[{low:.5f}, {high:.5f}]", detail))
    publish(
        "soundness",
        "Certified runs with tiny batches over random worlds: how often anything claimed was false",
        ("delta", "runs", "false", "99% interval (exact binomial)", "what"),
        rows,
        "The share of runs with a false claim may be at most delta.",
    )


if __name__ == "__main__":
    main()
