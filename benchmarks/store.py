"""What keeping a run on disk costs: CPU time with a folder against without one, and the folder's size.

Run with `python benchmarks/store.py [RUNS]` (default 5 pairs of runs, half a minute).
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

WORLDS = ("lock/20,noise_bits=20", "lock/10,noise_bits=10", "random/4")


def cpu_of(problem: richobs.Problem, seed: int, out: Path | None) -> float:
    begin = time.process_time()
    richobs.learn(problem, seed=seed, out=out)
    return time.process_time() - begin


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows = []
    for world in WORLDS:
        problem = richobs.make(world)
        cpu_of(problem, 0, None)
        ratios, resumed, sizes = [], [], []
        for seed in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                plain = cpu_of(problem, seed, None)
                stored = cpu_of(problem, seed, Path(folder))
                ratios.append(stored / plain)
                resumed.append(cpu_of(problem, seed, Path(folder)) / plain)
                sizes.append(sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6)
        rows.append((world, statistics.median(ratios), statistics.median(resumed), max(sizes)))
    publish(
        "store",
        "What keeping a certified run costs",
        ("world", "CPU time stored / not stored", "CPU time of a replay / of the run", "largest folder in MB"),
        rows,
        f"Medians over {runs} seeds, both runs of a pair in one process. A replay answers every draw from the folder.",
    )


if __name__ == "__main__":
    main()
