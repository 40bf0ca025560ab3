"""Does LSVEE keep its promise? Many runs over random processes and classes at the paper's constants.

Run with `python benchmarks/guarantee.py [RUNS]`.
"""

import sys
from typing import Any

import richobs
from measure import publish
from richobs.core.events import Event
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee import Lsvee
from richobs_lab.lsvee.demand import explore_on_demand
from richobs_lab.lsvee.dfs import LsveeSearch, learn_from
from richobs_lab.lsvee.spaces import td_space

DELTA, EPSILON = 0.1, 0.1


def one_run(seed: int) -> dict[str, bool]:
    """Returns which of the paper's promises one run broke."""
    rng = keyed_generator(seed, "guarantee")
    shape: dict[str, Any] = {
        "horizon": int(rng.integers(1, 7)),
        "n_states": int(rng.integers(1, 6)),
        "n_actions": int(rng.integers(1, 5)),
        "overlap": float(rng.choice([0.0, 0.5, 1.0])),
        "class_size": int(rng.integers(1, 60)),
    }
    problem = richobs.make("random", seed=seed, **shape)
    assert problem.process is not None
    constants = Lsvee().constants(problem, Settings(epsilon=EPSILON, delta=DELTA))
    engine = CountedEngine(problem.process, problem.functions, seed=seed, ledger=Ledger())
    trace: list[Event] = []
    space = td_space(problem.functions)
    search = LsveeSearch(engine, space, constants, notify=lambda progress: trace.append(progress.event))
    learn_from(search, (), constants.search)
    tests, eliminations = (sum(e.kind == kind for e in trace) for kind in ("consensus", "elimination"))
    member = search.space.pick()
    assert isinstance(member, tuple)
    v_star_hat = float(search.learned[()][member[0]])
    found = explore_on_demand(search, problem.functions, v_star_hat)
    value = problem.value(richobs.LearnedPolicy(problem.functions, found.member)).value
    assert problem.n_states is not None
    bound = problem.n_states * problem.horizon
    assert problem.optimal_function is not None
    return {
        "Q* eliminated": problem.optimal_function not in search.space,
        "policy worse than epsilon": problem.optimal_value - value > EPSILON,
        "V*-hat off by more than epsilon/8": abs(v_star_hat - problem.optimal_value) > EPSILON / 8,
        "more than MH eliminations in the search": eliminations > bound,
        "more than MKH consensus tests in the search": tests > bound * problem.n_actions,
        "more than MH rounds on demand": found.rounds > bound,
    }


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    broken: dict[str, int] = {}
    for seed in range(runs):
        for promise, broke in one_run(seed).items():
            broken[promise] = broken.get(promise, 0) + broke
    rows = []
    for promise, count in broken.items():
        low, high = binomial_interval(count, runs, 0.99)
        rows.append((promise, count, runs, f"[{low:.5f}, {high:.5f}]"))
    publish(
        "guarantee",
        f"LSVEE over random processes, epsilon = {EPSILON}, delta = {DELTA}",
        ("promise broken", "runs", "of", "99% interval for its probability (exact binomial)"),
        rows,
        f"Each may happen with probability at most delta = {DELTA}.",
    )


if __name__ == "__main__":
    main()
