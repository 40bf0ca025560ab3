# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""FrozenLake that is not slippery: the map is unknown, and 16,384 maps are possible.

Any of the 14 cells between start and goal may be a hole. A candidate is a model of the lake, and every candidate is
planned exactly. Many maps agree about everything that can happen within the horizon; these become one model.

    python examples/frozen_lake.py [--picture]
"""

import numpy as np

import pictures
import richobs
from richobs_lab.worlds.frozen_lake import MAPS, neighbours

HORIZON = 10


def environment() -> richobs.Environment:
    """Returns the real lake, as Gymnasium plays it. Nothing but its observations, rewards and ends is used."""
    return richobs.from_gymnasium("FrozenLake-v1", horizon=HORIZON, reward_range=(0, 1), is_slippery=False)


def candidates() -> richobs.Simulators:
    """Returns one model per map; shapes: 1 outcome, N maps, 16 cells, 4 actions."""
    holes = np.zeros((2**14, 16), dtype=bool)
    holes[:, 1:15] = np.arange(2**14)[:, None] >> np.arange(14) & 1
    to = neighbours(16)[None, None]  # the cell that each action leads to
    at_goal, in_hole = np.broadcast_to(to == 15, (1, 2**14, 16, 4)), holes[:, to[0, 0]][None]
    start = np.eye(16)[0]
    return richobs.Simulators.of_outcomes(np.ones(at_goal.shape), to, at_goal, at_goal | in_hole, HORIZON, start=start)


def main() -> None:
    """Learns under both assumptions, and prints what is claimed."""
    env, functions = environment(), candidates()
    print(f"{len(functions.place):,} maps, {functions.n_models:,} of which differ within {HORIZON} moves")
    trusts_values = richobs.learn(env, functions, epsilon=0.1)  # assumes that Q* is that of one of the maps
    trusts_models = richobs.learn(
        env, functions, epsilon=0.1, assume="model"
    )  # assumes that the lake is one of the maps
    print(trusts_values, trusts_models, sep="\n\n")
    if pictures.wanted():
        title = f"FrozenLake, 16,384 maps:\ncertified after {trusts_models.episodes} episodes"
        pictures.grid("frozen_lake", title, MAPS["4x4"], "←↓→↑", env, trusts_models.policy)


if __name__ == "__main__":
    main()
