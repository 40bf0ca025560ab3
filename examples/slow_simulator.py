# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""A slow simulator of one's own: when is a machine to be repaired, if nobody knows how fast it wears?

A machine with wear w earns 5 - 2 w a day. It then wears by one with an unknown probability. A day of repair costs 3 and
succeeds with another unknown probability. Every day of the simulator takes 10 ms, so four processes play at the same
time, and a run that is given a folder (`out=`) goes on after an interruption. Candidates are 400 pairs of probabilities.

    python examples/slow_simulator.py
"""

import time
from typing import Any

import gymnasium
import numpy as np

import richobs
from richobs.worlds.gymnasium_in import GymnasiumEnvironment

HORIZON, WORN = 8, 4  # days, largest wear; action 0 runs the machine and action 1 repairs it
SECONDS = 0.01  # that a day takes
REAL = (0.4, 0.8)  # probabilities of wearing and of a successful repair
THETAS = [(wears, mends) for wears in np.linspace(0.05, 1, 20).round(2) for mends in np.linspace(0.05, 1, 20).round(2)]


class Machine(gymnasium.Env[Any, Any]):
    """The real machine, as a Gymnasium environment."""

    observation_space, action_space, wear = gymnasium.spaces.Discrete(WORN + 1), gymnasium.spaces.Discrete(2), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Starts with a new machine."""
        super().reset(seed=seed)
        self.wear = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Runs or repairs the machine for a day."""
        time.sleep(SECONDS)
        outcomes = day(REAL, self.wear)[action]
        chosen = self.np_random.choice(len(outcomes), p=[chance for chance, *_ in outcomes])
        _, self.wear, pay, over = outcomes[chosen]
        return self.wear, pay, over, False, {}


def day(theta: tuple[float, float], wear: int) -> list[list[tuple[float, int, float, bool]]]:
    """Returns for both actions what may come of a day: (probability, next wear, reward, whether the episode ends)."""
    (wears, mends), earned = theta, 5.0 - 2 * wear
    runs = [(wears, min(WORN, wear + 1), earned, False), (1 - wears, wear, earned, False)]
    return [runs, [(mends, 0, -3.0, False), (1 - mends, wear, -3.0, False)]]


def model(theta: tuple[float, float]) -> richobs.Model:
    """Returns the candidate with these probabilities."""
    return richobs.Model.of_lists([day(theta, wear) for wear in range(WORN + 1)], HORIZON, start=np.eye(WORN + 1)[0])


def environment(vector: int | None = 4) -> GymnasiumEnvironment:
    """Returns the real machine, played in several processes."""
    return richobs.from_gymnasium(Machine, horizon=HORIZON, step_range=(-3, 5), vector=vector)


def candidates() -> richobs.Simulators:
    """Returns one model per pair of probabilities."""
    return richobs.Simulators.grid(model, THETAS)


def main() -> None:
    """Learns in four processes, and prints what is claimed and how long it took."""
    with environment() as env:  # the processes end with the block
        begin = time.perf_counter()
        outcome = richobs.learn(env, candidates(), epsilon=0.1, assume="model")
        print(f"{outcome}\n{time.perf_counter() - begin:.1f} s for {outcome.episodes * HORIZON} steps of {SECONDS} s")


if __name__ == "__main__":
    main()
