"""How fast worlds are played: native vectorisation against Gymnasium's own, observations against the coins they need.

Run with `python benchmarks/worlds.py`.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import richobs
from measure import cpu_seconds, publish
from richobs.core.policies import OpenLoop
from richobs.core.randomness import keyed_generator
from richobs.worlds.gymnasium_out import WorldEnv

HORIZON, NOISE_BITS, BATCH = 20, 20, 4096


def one_episode(env: Any, actions: np.ndarray[Any, Any]) -> Callable[[], None]:
    """Returns a call that steps every copy through one episode and the reset that follows."""
    env.reset(seed=0)

    def work() -> None:
        for level in range(HORIZON + 1):
            env.step(actions[level])

    return work


def import_seconds() -> float:
    """Returns the CPU seconds of a fresh interpreter that imports richobs: the best of five."""
    code = "import richobs, resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    lock: dict[str, Any] = {"horizon": HORIZON, "noise_bits": NOISE_BITS}
    actions = keyed_generator(0, "benchmark").integers(4, size=(HORIZON + 1, BATCH))
    native = gymnasium.make_vec("richobs/Lock-v0", num_envs=BATCH, vectorization_mode="vector_entry_point", **lock)
    copies = 256  # Gymnasium steps its copies one by one, so a copy's cost does not depend on how many there are
    one_by_one = gymnasium.vector.SyncVectorEnv([lambda: WorldEnv("lock", **lock)] * copies)
    fast = BATCH * (HORIZON + 1) / cpu_seconds(one_episode(native, actions))
    slow = copies * (HORIZON + 1) / cpu_seconds(one_episode(one_by_one, actions[:, :copies]), repeats=3)

    problem = richobs.make("lock", **lock)
    rng = keyed_generator(0, "benchmark", "draw")
    width = 3 + NOISE_BITS
    first = cpu_seconds(lambda: problem.env.play(OpenLoop(()), BATCH, rng, 1))
    whole = cpu_seconds(lambda: problem.env.play(OpenLoop((0,) * HORIZON), BATCH, rng))
    coins = cpu_seconds(lambda: rng.integers(0, 2, (BATCH, NOISE_BITS), dtype=np.bool_))
    packed = cpu_seconds(lambda: rng.bytes(BATCH * ((width + 7) // 8)))
    importing = import_seconds()
    publish(
        "worlds",
        f"lock/{HORIZON} with {NOISE_BITS} noise bits, {BATCH} copies at once, one core",
        ("what", "value", "unit"),
        [
            ("native vector environment", fast, "environment steps per CPU-second"),
            ("Gymnasium's SyncVectorEnv, same world", slow, "environment steps per CPU-second"),
            ("native / SyncVectorEnv", fast / slow, "ratio (goal: at least 100)"),
            ("import richobs, Gymnasium and NumPy included", importing, "CPU-seconds (goal: under 0.5)"),
            (f"play of one level, {BATCH} episodes", 1e6 * first, "CPU microseconds"),
            ("play of one level / its coins from Generator.integers", first / coins, "ratio (goal: at most 2)"),
            ("play of one level / its coins as packed bits from Generator.bytes", first / packed, "ratio"),
            (f"play of {HORIZON} levels, per level / play of one level", whole / HORIZON / first, "ratio"),
        ],
        "Best of several runs each, all in one process; steps include the reset after each episode.",
    )


if __name__ == "__main__":
    main()
