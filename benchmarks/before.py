"""CPU seconds and episodes of this checkout against those of an earlier commit, in one run.

Run with `python benchmarks/before.py REVISION` (default: the last commit of version 0.1). Both versions run the same cases
in turns, each in processes of its own, and the best of several counts.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import publish

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


def timed(source: Path, case: tuple[str, str, float, int]) -> tuple[float, list[int]]:
    """Returns CPU seconds and episodes of one case with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(case)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, episodes = json.loads(done.stdout)
    return seconds, episodes


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else VERSION_0_1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        for case in CASES:
            pairs = [(timed(Path(folder) / "src", case), timed(ROOT / "src", case)) for _ in range(TIMES)]
            before, now = (min(seconds for seconds, _ in side) for side in zip(*pairs, strict=True))
            same = pairs[0][0][1] == pairs[0][1][1]
            world, learner, epsilon, seeds = case
            rows.append((world, learner, epsilon, seeds, before, now, now / before, "yes" if same else "no"))
    publish(
        "before",
        f"This version against {revision}: CPU seconds of the same work",
        ("world", "learner", "epsilon", "seeds", "before", "now", "now / before", "same episodes"),
        rows,
        f"Best of {TIMES}, the two versions in turns; `play` is the world alone. Same episodes: seed by seed.",
    )


if __name__ == "__main__":
    main()
