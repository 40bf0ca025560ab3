"""CPU seconds, episodes and memory of this checkout against those of an earlier commit, in one run.

Run with `python benchmarks/before.py [REVISION]` (default: the last commit of version 0.1). Both versions run the same cases
in turns, each in processes of its own, and the best of several counts. With `--betting` the cases are those of the betting
search, with seeds that nothing was tuned on, from 701001 on; the world's secret changes with the seed. `listed=N` after a
world gives it N listed tables, Q* and others around it. `--only TEXT` runs the cases whose world contains a text; the other
rows of the stored table stay. `--repeats` says how often each is timed. Memory is that of one process with all seeds, which
adds up; the row with one seed is a run alone.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import RESULTS, publish

ROOT = Path(__file__).parents[1]
VERSION_0_1 = "5127a14"
TIMES = 5  # that each case is timed in each version
CASES = [  # world, learner, epsilon, seeds
    ("lock/10,noise_bits=10", "certified", 0.1, 4),
    ("lock/20,noise_bits=20", "certified", 0.1, 2),
    ("lock/40,noise_bits=10", "certified", 0.1, 1),
    ("diabolical/10", "certified", 0.1, 1),
    ("random/4", "certified", 0.1, 4),
    ("mdp", "certified", 0.1, 4),
    ("lock/10,noise_bits=2,functions=tables,class_size=200", "lsvee", 0.1, 2),
    ("lock/20,noise_bits=2,functions=tables,class_size=200", "lsvee", 0.1, 2),
    ("bandit,n_contexts=5,n_actions=2,class_size=16", "lsvee stream", 0.99, 1),
    ("lock/20,noise_bits=20", "play", 0.1, 1),
]
FIRST_SEED = 701_001
LAKE, NEAR = "frozen-lake/30,n_maps=", "random/5,rewards=bernoulli,class_size=1000,near="
BETTING = [  # world, epsilon, seeds
    ("lock/5,noise_bits=5", 0.1, 40),
    ("lock/10,noise_bits=10", 0.1, 20),
    ("lock/20,noise_bits=20", 0.1, 12),
    ("lock/50,noise_bits=50", 0.1, 12),
    ("lock/5,noise_bits=5,swap=0.5,fail=0.1", 0.1, 20),
    ("diabolical/10", 0.1, 60),
    ("diabolical/20", 0.1, 16),
    ("random/4", 0.1, 40),
    ("mdp", 0.1, 40),
    ("disjoint", 0.1, 40),
    ("deep-sea/8", 0.1, 20),
    ("bandit", 0.1, 20),
    (f"{LAKE}1000", 0.1, 8),
    (f"{LAKE}10000,slip_unknown=True", 0.1, 3),
    (f"{LAKE}10000,slip_unknown=True", 0.1, 1),
    ("random/5 listed=100000", 0.1, 4),
    ("random/5 listed=1000000", 0.1, 1),
    (f"{NEAR}0.2", 0.1, 12),
]
LEARN = """
import dataclasses, json, resource, sys, time
import numpy as np
import richobs
world, epsilon, seeds, first = json.loads(sys.argv[1])
world, _, listed = world.partition(" listed=")

def with_tables(problem, size, rng):
    levels = []
    for q in problem.process.q_tables:
        levels.append(rng.standard_normal((size, *q.shape), dtype=np.float32))
        levels[-1] *= 0.2
        levels[-1] += q
        np.clip(levels[-1], 0, 1, out=levels[-1])
        levels[-1][0] = q
    functions = richobs.Tables(levels, codebooks=problem.process.codebooks)
    return dataclasses.replace(problem, functions=functions, truth=None)

richobs.learn(richobs.make("lock/2"), seed=0, epsilon=0.5, progress=False)  # what is imported late is imported now
seconds, episodes = 0.0, []
for seed in range(first, first + seeds):
    problem = richobs.make(world, seed=seed)
    if listed:
        problem = with_tables(problem, int(listed), np.random.default_rng(seed))
    begin = time.process_time()
    outcome = richobs.learn(problem, seed=seed, epsilon=epsilon, progress=False)
    seconds += time.process_time() - begin
    episodes.append(outcome.episodes)
print(json.dumps([seconds, episodes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
SCRIPT = """
import json, sys, time
import numpy as np
import richobs
world, learner, epsilon, seeds = json.loads(sys.argv[1])
episodes = []
problem = richobs.make(world)
if learner == "play":  # 200 times 512 episodes of one policy
    policy, rng = problem.optimal_policy(), np.random.default_rng(0)
    play = problem.env.rollout if hasattr(problem.env, "rollout") else problem.env.play
    begin = time.process_time()
    for _ in range(200):
        play(policy, 512, rng)
else:
    new = "learner" in richobs.Settings.__dataclass_fields__
    name, _, engine = learner.partition(" ")
    asked = {"learner": name, "progress": False} if new else {"schedule": {"lsvee": "paper"}.get(name, name)}
    asked |= {"engine": engine} if engine else {}
    asked |= {"epsilon": epsilon, "delta": 0.5 if engine else 0.05}
    begin = time.process_time()
    for seed in range(seeds):
        episodes.append(richobs.learn(problem, seed=seed, **asked).episodes)
print(json.dumps([time.process_time() - begin, episodes]))
"""


def answered(source: Path, script: str, case: object) -> list[Any]:
    """Returns what a script prints about one case with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, json.dumps(case)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def compare_betting(sources: tuple[Path, Path], revision: str, only: str, repeats: int) -> None:
    """Writes CPU seconds, episodes and memory of the betting search in two versions; keeps rows of other worlds."""
    target = RESULTS / "before_betting.json"
    columns = (
        *("world", "epsilon", "seeds", "CPU before", "now", "now / before", "median episodes before", "now "),
        *("episodes: now / before", "peak MiB before", "now  ", "standard error of episodes: now / before"),
    )
    stored = json.loads(target.read_text())["rows"] if target.exists() else []
    kept = {(row["world"], row["seeds"]): tuple(row.get(column, "") for column in columns) for row in stored}
    for world, epsilon, seeds in BETTING:
        if only not in world:
            continue
        pairs = [[answered(s, LEARN, (world, epsilon, seeds, FIRST_SEED)) for s in sources] for _ in range(repeats)]
        before, now = (min(side[k][0] for side in pairs) for k in (0, 1))
        episodes = [side[1] for side in pairs[0]]
        logs = [math.log(b / a) for a, b in zip(*episodes, strict=True)]
        ratio = math.exp(statistics.fmean(logs))
        error = ratio * statistics.stdev(logs) / math.sqrt(seeds) if seeds > 1 else ""
        each = (before / seeds, now / seeds, now / before)
        medians = [statistics.median(e) for e in episodes]
        kept[world, seeds] = (world, epsilon, seeds, *each, *medians, ratio, *(side[2] for side in pairs[0]), error)
        publish(
            "before_betting",
            f"The betting search of this version against {revision}",
            columns,
            [kept[w, n] for w, _, n in BETTING if (w, n) in kept],
            f"CPU seconds a run, the versions in turns; episodes: geometric mean of the ratios, seeds from {FIRST_SEED} on.",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", nargs="?", default=VERSION_0_1)
    parser.add_argument("--betting", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=TIMES)
    given = parser.parse_args()
    revision, rows = given.revision, []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        sources = (Path(folder) / "src", ROOT / "src")
        if given.betting:
            compare_betting(sources, revision, given.only, given.repeats)
            return
        for case in CASES:
            pairs = [[answered(source, SCRIPT, case) for source in sources] for _ in range(given.repeats)]
            before, now = (min(seconds for seconds, _ in side) for side in zip(*pairs, strict=True))
            same = pairs[0][0][1] == pairs[0][1][1]
            world, learner, epsilon, seeds = case
            rows.append((world, learner, epsilon, seeds, before, now, now / before, "yes" if same else "no"))
    publish(
        "before",
        f"This version against {revision}: CPU seconds of the same work",
        ("world", "learner", "epsilon", "seeds", "before", "now", "now / before", "same episodes"),
        rows,
        f"Best of {given.repeats}, the two versions in turns; `play` is the world alone. Same episodes: seed by seed.",
    )


if __name__ == "__main__":
    main()
