"""The rivals beside what was published of them: episodes until the same thing happens, on seeds that nobody tuned on.

Run with: python benchmarks/published.py [seeds]

Published numbers are those of the authors' code: PCID and Q-learning on latent states from microsoft/StateDecoding
(Lock-Bernoulli, 4 actions, as many noise bits as levels), episodes until the running mean of returns exceeds V*/2, with
sample size, step and bonus tuned for each horizon; PPE from microsoft/Intrepid (diabolical lock, 10 actions), 5,000 episodes
for each of 5 levels.

`python benchmarks/published.py --authors FOLDER` times the authors' own PCID instead, beside the `pcid` of this repository:
FOLDER is a checkout of microsoft/StateDecoding, whose learner and lock are run as they are (it needs scikit-learn and
PyTorch). Both play their own simulator, with the sample size of the table, until every level is decoded; ours also plans.
Seconds are those of the process, with one thread. The result is `benchmarks/results/published_seconds.json`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import importlib
import itertools
import math
import statistics
import sys
import time
import types
from typing import Any

import numpy as np

import richobs
from decoders import AUTHORS, LEAST, PUBLISHED, trial
from measure import publish
from richobs_lab.rivals.rival_events import RoundPlayed

FIRST_SEED = 100  # sizes, steps and bonuses were chosen on seeds below
LATENT_Q = {5: 600, 10: 1_400, 20: 2_800, 50: 7_300}
BEGINNING = 30  # episodes at the beginning, whose mean is chance


def latent_q_episodes(horizon: int, seed: int) -> float:
    """Returns the episodes until the running mean of latent-q exceeds V*/2, to within a sixteenth.

    Infinite where that takes more than twice what was published.
    """
    problem = richobs.make(f"lock/{horizon},noise_bits={horizon},seed={seed}")
    tuning = (f"episodes={2 * LATENT_Q[horizon]}",)
    outcome = richobs.learn(problem, learner="latent-q", tuning=tuning, seed=seed, progress=False)
    rounds = [event for event in outcome.trace if isinstance(event, RoundPlayed)]
    earned = itertools.accumulate(event.n * event.mean for event in rounds)
    half = problem.optimal_value / 2
    found = (
        e.episodes
        for e, sum_ in zip(rounds, earned, strict=True)
        if e.episodes >= BEGINNING and sum_ > half * e.episodes
    )
    return next(found, math.inf)


def row(world: str, learner: str, tuning: str, counts: list[float], known: int, source: str) -> tuple[object, ...]:
    """Returns one line of the table."""
    middle = statistics.median(counts)
    ours = round(middle) if math.isfinite(middle) else None
    return world, learner, tuning, len(counts), ours, known, None if ours is None else round(ours / known, 2), source


def gym_of_2018(rng: np.random.RandomState) -> types.ModuleType:
    """Returns what the authors' lock needs of the package `gym` as it was then: spaces, and one generator for all."""
    gym, spaces = types.ModuleType("gym"), types.ModuleType("gym.spaces")
    space: Any = lambda *args, **_: types.SimpleNamespace(n=args[0] if args else 0)  # noqa: E731  # only n is read
    spaces.__dict__.update(MultiBinary=space, Discrete=space, Box=space, np_random=rng, prng=None)
    gym.__dict__.update(Env=object, spaces=spaces)
    sys.modules.update({"gym": gym, "gym.spaces": spaces})
    return gym


def authors_seconds(horizon: int, seed: int) -> float:
    """Returns the CPU seconds that the authors' PCID takes until every level of their lock is decoded."""
    np.random.seed(seed)  # noqa: NPY002  # the authors' learner draws from it
    gym = sys.modules["gym"]
    gym.spaces.np_random = np.random.RandomState(seed)
    with contextlib.redirect_stdout(None):
        env = importlib.import_module("LockBernoulli").LockBernoulli()
        env.init({"horizon": horizon, "dimension": horizon})
        asked = {"horizon": horizon, "model_type": "linear", "n": AUTHORS[horizon], "num_cluster": 3}
        learner = importlib.import_module("Decoding").Decoding(3 + horizon, 4, params=asked)
        learner.find_exploitation_policy = lambda: None  # a NumPy of today refuses one of its assignments
        begin = time.process_time()
        while not learner.is_exploit:
            x, done = env.reset(), False
            while not done:
                action = learner.select_action(x)
                next_x, reward, done, _ = env.step(action)
                learner.save_transition(x, action, reward, next_x)
                x = next_x
            learner.finish_episode()
    return time.process_time() - begin


def compare_seconds(folder: str, seeds: range) -> None:
    """Times the authors' PCID and ours in turns, and writes the table."""
    sys.path.insert(0, folder)
    np.float = float  # type: ignore[attr-defined]  # noqa: NPY001  # the name that NumPy had for it then
    gym_of_2018(np.random.RandomState(0))
    rows = []
    for H in (5, 10, 20, 50):
        world, tuning = f"lock/{H},noise_bits={H}", (f"samples={AUTHORS[H]}", LEAST)
        theirs, ours = [], []
        for s in seeds if H < 50 else seeds[:2]:
            theirs.append(authors_seconds(H, s))
            ours.append(trial(richobs.make(world, seed=s), "pcid", tuning, s).cpu)
        rows.append((world, AUTHORS[H], len(theirs), statistics.median(theirs), statistics.median(ours)))
    publish(
        "published_seconds",
        "PCID: the authors' code beside this repository's",
        ("world", "samples a level", "seeds", "CPU s of microsoft/StateDecoding", "CPU s of pcid here"),
        rows,
        "Medians, in turns, one thread, simulator included, until every level is decoded; ours also plans.",
    )


def main() -> None:
    """Measures, prints and writes the table."""
    if "--authors" in sys.argv:
        compare_seconds(sys.argv[sys.argv.index("--authors") + 1], range(FIRST_SEED, FIRST_SEED + 3))
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seeds = range(FIRST_SEED, FIRST_SEED + n)
    rows: list[tuple[object, ...]] = []
    for H in (5, 10, 20, 50):
        world, tuning = f"lock/{H},noise_bits={H}", (f"samples={AUTHORS[H]}", LEAST)
        counts = [trial(richobs.make(world, seed=s), "pcid", tuning, s).until_half for s in seeds]
        rows.append(
            row(world, "pcid", " ".join(tuning), counts, PUBLISHED["lock", "pcid", H], "microsoft/StateDecoding")
        )
    for H in (5, 10, 20, 50):
        counts = [latent_q_episodes(H, s) for s in (seeds if H < 50 else seeds[:3])]
        rows.append(
            row(f"lock/{H},noise_bits={H}", "latent-q", "as by default", counts, LATENT_Q[H], "microsoft/StateDecoding")
        )
    for world in ("diabolical/5", "diabolical/5,sigma=0.1"):
        runs = [trial(richobs.make(world, seed=s), "ppe", (), s) for s in seeds]
        counts = [t.episodes if t.solved else math.inf for t in runs]
        rows.append(row(world, "ppe", "as by default", counts, PUBLISHED["diabolical", "ppe", 5], "microsoft/Intrepid"))
    columns = ("world", "learner", "tuning", "seeds", "episodes", "published", "episodes / published", "published code")
    publish(
        "published",
        "Rivals beside what was published of them",
        columns,
        rows,
        f"Medians over seeds from {FIRST_SEED} on, which nobody tuned on; no number where most runs did not get there.",
    )


if __name__ == "__main__":
    main()
