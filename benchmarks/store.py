"""What keeping a run on disk costs: CPU time with a folder against without one, and the folder's size.

Run with `python benchmarks/store.py [RUNS]` (default 3 seeds, two minutes).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import sys
import tempfile
import time
from pathlib import Path

import richobs
from measure import publish

TIMES = 6  # that each run is timed
WORLDS = ("lock/20,noise_bits=20", "lock/10,noise_bits=10", "random/4")


def cpu_of(problem: richobs.Problem, seed: int, results: Path, out: Path | None) -> float:
    """Returns the CPU seconds of a run whose certificate and policy are written, by the store or at the end."""
    begin = time.process_time()
    outcome = richobs.learn(problem, learner="certified", seed=seed, out=out, progress=False)
    if out is None:
        richobs.Certificate.of(outcome, problem).save(results / "certificate.json")
        outcome.policy.save(results / "policy.npz")
    return time.process_time() - begin


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows = []
    for world in WORLDS:
        problem = richobs.make(world)
        ratios, resumed, sizes = [], [], []
        for seed in range(runs):
            with tempfile.TemporaryDirectory() as name:
                results, folders = Path(name), [Path(name) / f"run-{i}" for i in range(TIMES)]
                pairs = [(cpu_of(problem, seed, results, None), cpu_of(problem, seed, results, f)) for f in folders]
                plain, stored = (min(times) for times in zip(*pairs, strict=True))  # taken in turns, the best counts
                ratios.append(stored / plain)
                resumed.append(min(cpu_of(problem, seed, results, folder) for folder in folders) / plain)
                sizes.append(sum(file.stat().st_size for file in folders[0].iterdir()) / 1e6)
        rows.append((world, statistics.median(ratios), statistics.median(resumed), max(sizes)))
    publish(
        "store",
        "What keeping a certified run costs",
        ("world", "CPU time stored / not stored", "CPU time of a replay / of the run", "largest folder in MB"),
        rows,
        f"Medians over {runs} seeds of the best of {TIMES}, in one process; both write certificate and policy. A "
        "replay answers every draw from the folder.",
    )


if __name__ == "__main__":
    main()
