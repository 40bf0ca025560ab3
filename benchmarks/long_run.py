"""Do time, memory and log of a long run stay flat: 10^6 episodes of an environment of one's own.

Run with `nice python benchmarks/long_run.py [--episodes 1000000]`; about two minutes of CPU time. Two arms pay 0 or 1, and
their means are so close that no run is decided before its episodes are spent. `learn` (the learner `betting`) keeps the run
in a folder, calls of 32 episodes each; `certify_policy` keeps nothing. The environment notes CPU time, the largest memory of
the process and the bytes of the folder each time that another tenth of the episodes is played.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import richobs
from measure import publish

MEANS = (0.5, 0.502)
PARTS, MORE = 10, 11  # tenths that are measured, and that are played: a search may stop a little before its limit


class Note(NamedTuple):
    """How far a run is: episodes, CPU seconds, bytes of memory at the peak, bytes of the folder."""

    episodes: int
    seconds: float
    memory: int
    log: int


class Arms:
    """One level and two actions, each of which pays 1 with a probability of its own and else 0."""

    horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)

    def __init__(self, episodes: int, folder: Path):
        self.notes = [noted(0, folder)]
        self._played, self._part, self._folder = 0, episodes // PARTS, folder

    def play(
        self, policy: richobs.Policy, n: int, rng: np.random.Generator, levels: int | None = None
    ) -> richobs.Episodes:
        x = np.zeros((n, 1))
        actions = policy.actions(0, x, rng)
        self._played += n
        if self._played >= len(self.notes) * self._part:
            self.notes.append(noted(self._played, self._folder))
        return richobs.Episodes([x], [actions], [(rng.random(n) < np.array(MEANS)[actions]).astype(float)])


def noted(episodes: int, folder: Path) -> Note:
    """Returns how far a run is now; what SQLite keeps beside the database for a while is not counted."""
    status = Path("/proc/self/status").read_text().splitlines()
    peak = 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    log = sum(f.stat().st_size for f in folder.glob("run/*") if not f.name.endswith(("-wal", "-shm")))
    return Note(episodes, time.process_time(), peak, log)


def learned(env: Arms, episodes: int, folder: Path) -> None:
    """Learns until the episodes are spent: the candidates differ by less than epsilon allows to tell."""
    functions = richobs.Layered([richobs.Constants([MEANS, MEANS[::-1]])])
    out = folder / "run"
    richobs.learn(env, functions, epsilon=1e-4, delta=1e-6, max_episodes=episodes, out=out, progress=False)


def certified(env: Arms, episodes: int, folder: Path) -> None:
    """Plays a policy until the episodes are spent: no interval gets so narrow."""
    richobs.certify_policy(env, richobs.Uniform(2), epsilon=1e-5, max_episodes=episodes, progress=False)


RUNS: dict[str, Callable[[Arms, int, Path], None]] = {"learn, in a folder": learned, "certify_policy": certified}


def main() -> None:
    """Measures and publishes."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--episodes", type=int, default=1_000_000)
    episodes = asked.parse_args().episodes
    rows = []
    for name, run in RUNS.items():
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        with tempfile.TemporaryDirectory() as folder:
            env = Arms(episodes, Path(folder))
            run(env, MORE * episodes // 10, Path(folder))
        notes = env.notes[: PARTS + 1]
        first = (notes[1].seconds - notes[0].seconds) / notes[1].episodes
        for tenth, (a, b) in enumerate(itertools.pairwise(notes), start=1):
            n = b.episodes - a.episodes
            each = (b.seconds - a.seconds) / n
            rows.append([name, tenth, n, 1e6 * each, each / first, b.memory / 2**20, (b.log - a.log) / n])
    publish(
        "long_run",
        f"{episodes:,} episodes of an environment of one's own, by tenths",
        (
            "run",
            "tenth",
            "episodes",
            "CPU microseconds an episode",
            "of the first tenth",
            "peak MiB",
            "log bytes an episode",
        ),
        rows,
        "The log is the run's folder; certify_policy keeps none.",
    )


if __name__ == "__main__":
    main()
