# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""FrozenLake on slippery ice: neither the map nor the probability of slipping is known.

The real lake is Gymnasium's: an action leads to either side of its direction with probability 1/3 each. Candidates are
10,000 pairs of a random map and a random slip, the real pair among them.

    python examples/slippery_lake.py [--picture]
"""

import numpy as np

import pictures
import richobs
from richobs_lab.worlds.frozen_lake import MAPS, Config, candidate_lakes, neighbours

HORIZON = 30
TURNS = (-1, 0, 1)  # a move goes to the left of its direction, in it, or to the right of it


def environment() -> richobs.Environment:
    """Returns the real lake, as Gymnasium plays it."""
    return richobs.from_gymnasium("FrozenLake-v1", horizon=HORIZON, reward_range=(0, 1))


def candidates(n_maps: int = 10_000, seed: int = 0) -> richobs.Simulators:
    """Returns one model per map and slip; shapes: 3 outcomes, N models, 16 cells, 4 actions."""
    lakes, _ = candidate_lakes(Config(n_maps=n_maps, slip_unknown=True), np.random.default_rng(seed))
    chance = np.stack([lakes.slips, 1 - 2 * lakes.slips, lakes.slips])[:, :, None, None]
    to = np.stack([np.roll(neighbours(16), -turn, axis=1) for turn in TURNS])
    shape = (3, n_maps, 16, 4)
    at_goal = np.broadcast_to(to[:, None] == 15, shape)
    ends = at_goal | np.moveaxis(lakes.holes[:, to], 0, 1)
    chance = np.broadcast_to(chance, shape)
    return richobs.Simulators.of_outcomes(chance, to[:, None], at_goal, ends, HORIZON, start=np.eye(16)[0])


def main() -> None:
    """Learns under both assumptions, and prints what is claimed."""
    env, functions = environment(), candidates()
    trusts_values = richobs.learn(env, functions, epsilon=0.1)  # assumes that Q* is that of one of the models
    trusts_models = richobs.learn(
        env, functions, epsilon=0.02, assume="model"
    )  # assumes that one of the models is right
    print(trusts_values, trusts_models, sep="\n\n")
    if pictures.wanted():
        title = f"slippery FrozenLake, 10,000 candidates:\ncertified after {trusts_models.episodes} episodes"
        pictures.grid("slippery_lake", title, MAPS["4x4"], "←↓→↑", env, trusts_models.policy)


if __name__ == "__main__":
    main()
