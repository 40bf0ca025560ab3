"""CPU seconds of the code that the authors of PCID published, beside `pcid` here and `betting`, on the same locks.

Run with: python benchmarks/authors_pcid.py CHECKOUT PYTHON ...

CHECKOUT is a clone of github.com/microsoft/StateDecoding, none of which is in this repository. Each PYTHON is an interpreter
that has what it needs. Two environments that work: the versions of its readme, torch apart, which is imported and not used
here, and versions of today, for which `authors_pcid_driver.py` puts back what gym and NumPy no longer have:

    python3.6 -m venv then && then/bin/pip install numpy==1.14.3 scipy==1.1.0 scikit-learn==0.19.1 torch==1.0.0 gym==0.10.9
    python3.11 -m venv now && now/bin/pip install numpy==2.3.5 scipy==1.17.1 scikit-learn==1.9.1 torch==2.15.0

Their code is run as it is, by its own main: Lock-v0 without switches, as many noise bits as levels, a linear decoder, and 3
clusters of at least 30 observations, a number that is fixed there. Its sample size is the one that the published figure
implies. `pcid` has the same two numbers. All are run in turn, seed by seed, with one thread each.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import richobs
from decoders import AUTHORS, LEAST, SOLVED, trial
from measure import publish

DRIVER = pathlib.Path(__file__).with_name("authors_pcid_driver.py")
FIRST_SEED = 100  # of our runs; theirs are iterations 1, 2, ...
SEEDS = {5: 5, 10: 5, 20: 5, 50: 3}  # by horizon
PLAYED = 2.2  # episodes that their code plays, in multiples of those of exploration
COLUMNS = (
    *("H", "sample size", "code", "seeds", "solved", "episodes", "CPU seconds", "range"),
    *("of them simulator", "until mean > V*/2", "CPU seconds until then"),
)
NOTE = (
    "Medians over seeds, each with a secret of its own. Learner and simulator, without imports. Episodes and CPU seconds "
    "end with exploration for PCID, whose policy is planned then, and with the claim for betting (epsilon 0.1, delta "
    "0.05). Solved: the policy earns 90 % of V*; for the authors' code this is the mean return after exploration. Until "
    "mean > V*/2: the authors' criterion, the running mean of returns at every hundredth episode; our code does not play "
    "those episodes. Of them simulator: as many episodes without a learner."
)


class Run(NamedTuple):
    """One run of one code."""

    solved: bool
    episodes: int
    cpu: float
    simulator: float = math.nan  # CPU seconds of as many episodes without a learner
    half: float = math.nan  # episodes until the running mean of returns exceeds V*/2
    half_cpu: float = math.nan


def theirs(checkout: str, python: str, horizon: int, iteration: int) -> tuple[Run, dict[str, Any]]:
    """Runs the authors' code, and returns what came of it with everything that was noted."""
    samples = AUTHORS[horizon]
    options = {
        "iteration": iteration,
        "env": "Lock-v0",
        "horizon": horizon,
        "dimension": horizon,
        "episodes": round(PLAYED * horizon * samples),
        "env_param_1": 0.0,
        "alg": "decoding",
        "model_type": "linear",
        "n": samples,
        "num_cluster": 3,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as scratch:
        command = [python, "-W", "ignore", str(DRIVER), str(pathlib.Path(checkout).resolve()), *words]
        done = subprocess.run(command, cwd=scratch, env=alone | threads, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    n, cpu = told["explored"]
    returns, best = told["returns"], told["optimal_value"]
    after = (returns[-1] - returns[n // 100 - 1]) / (100 * len(returns) - n)  # n is a multiple of 100
    half = next((i for i, sum_ in enumerate(returns) if sum_ > best / 2 * 100 * (i + 1)), None)
    reached = (math.inf, math.inf) if half is None else (100 * (half + 1), told["hundreds"][half])
    return Run(after >= SOLVED * best, n, cpu, told["simulator"], *reached), told


def ours(horizon: int, learner: str, tuning: tuple[str, ...], seed: int) -> Run:
    """Runs a learner of this repository."""
    made = trial(richobs.make(f"lock/{horizon},noise_bits={horizon}", seed=seed), learner, tuning, seed)
    return Run(made.solved, made.episodes, made.cpu)


def row(horizon: int, code: str, runs: Sequence[Run]) -> tuple[object, ...]:
    """Returns one line of the table: medians over the runs."""

    def middle(values: Sequence[float]) -> float | None:
        found = statistics.median(values)
        return round(found, 3) if math.isfinite(found) else None

    cpu = [r.cpu for r in runs]
    return (
        horizon,
        None if code == "betting" else AUTHORS[horizon],
        code,
        len(runs),
        f"{sum(r.solved for r in runs)} of {len(runs)}",
        round(statistics.median(r.episodes for r in runs)),
        middle(cpu),
        f"{min(cpu):.3g} to {max(cpu):.3g}",
        middle([r.simulator for r in runs]),
        middle([r.half for r in runs]),
        middle([r.half_cpu for r in runs]),
    )


def main() -> None:
    """Measures, prints and writes the table."""
    checkout, *pythons = sys.argv[1:]
    ours(5, "pcid", (), 0)  # imports everything once, at no run's expense
    ours(5, "betting", (), 0)
    rows: list[tuple[object, ...]] = []
    used: dict[str, str] = {}
    for H, n in SEEDS.items():
        runs: dict[str, list[Run]] = {}
        for i in range(n):
            for python in pythons:
                run, told = theirs(checkout, python, H, i + 1)
                code = f"authors' PCID, Python {told['versions']['python']}"
                runs.setdefault(code, []).append(run)
                used[code] = ", ".join(f"{name} {v}" for name, v in told["versions"].items() if name != "python")
                used[code] += f"; imports {told['imports']:.2g} s more"
            runs.setdefault("pcid", []).append(ours(H, "pcid", (f"samples={AUTHORS[H]}", LEAST), FIRST_SEED + i))
            runs.setdefault("betting", []).append(ours(H, "betting", (), FIRST_SEED + i))
            print(H, i, *(made[-1] for made in runs.values()), sep="\n", file=sys.stderr, flush=True)
        rows += [row(H, code, made) for code, made in runs.items()]
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=True)
    about = f"Authors' code: microsoft/StateDecoding at {commit.stdout.strip()[:7]}; "
    about += ". ".join(f"{code}: {words}" for code, words in used.items())
    publish(
        "authors_pcid",
        "PCID as its authors published it, pcid here, and betting: CPU seconds on the lock with H noise bits",
        COLUMNS,
        rows,
        f"{NOTE} {about}.",
    )


if __name__ == "__main__":
    main()
