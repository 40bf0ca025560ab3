"""The rivals beside what was published of them: episodes until the same thing happens, on seeds that nobody tuned on.

Run with: python benchmarks/published.py [seeds]

Published numbers are those of the authors' code: PCID and Q-learning on latent states from microsoft/StateDecoding
(Lock-Bernoulli, 4 actions, as many noise bits as levels), episodes until the running mean of returns exceeds V*/2, with
sample size, step and bonus tuned for each horizon; PPE from microsoft/Intrepid (diabolical lock, 10 actions), 5,000 episodes
for each of 5 levels.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools
import math
import statistics
import sys

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


def main() -> None:
    """Measures, prints and writes the table."""
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
