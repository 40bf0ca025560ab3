# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs[minigrid]"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""MiniGrid DoorKey-5x5 from RGB images: fetch the key, open the door, walk to the goal.

The real grid is one of four layouts. An observation is the whole grid as an image of 40 x 40 pixels. Copies of a
simulator explore each layout once, and the model that they find is planned exactly. MiniGrid pays 1 - 0.9 (t / 250) for
arriving with step t. Needs MiniGrid: pip install 'richobs[minigrid]'.

    python examples/door_key.py [--picture]
"""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

import pictures
import richobs

H, LAYOUTS, REAL = 14, (0, 1, 2, 3), 2  # levels; layouts, each the seed of a reset
ACTIONS = {"left": 0, "right": 1, "forward": 2, "pick up": 3, "toggle": 5}  # of MiniGrid, without "drop" and "done"


def grid(**options: Any) -> gymnasium.Env[Any, Any]:
    """Returns the grid, whose observations are images."""
    from minigrid.wrappers import ImgObsWrapper, RGBImgObsWrapper

    made = ImgObsWrapper(RGBImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0", **options)))
    return gymnasium.wrappers.TransformAction(made, list(ACTIONS.values()).__getitem__, gymnasium.spaces.Discrete(5))


def environment() -> richobs.Environment:
    """Returns the real grid: one layout, in which the same actions always lead to the same image."""
    end = grid().reset(seed=REAL)[0]  # shown after the end, because the tables know only images of the grid
    return richobs.from_gymnasium(
        grid, horizon=H, reward_range=(0, 1), seed=REAL, deterministic=True, end_observation=end
    )


def layout(seed: int) -> richobs.Model:
    """Returns the model of a layout, whose S images tell the state; shapes: H levels, S images, 5 actions."""
    first, moves = grid(), []
    known = [(first, first.reset(seed=seed)[0])]
    number = {known[0][1].tobytes(): 0}
    for here, _ in known:  # the list grows while it is searched
        for action in range(len(ACTIONS)):
            image, _, arrived, _, _ = (there := deepcopy(here)).step(action)
            moves.append((number.setdefault(image.tobytes(), len(known)), arrived))
            if len(number) > len(known):
                known.append((there, image))
    size, level = len(known), np.arange(H)[:, None, None]
    to, arrives = np.array(moves).reshape(size, len(ACTIONS), 2).transpose(2, 0, 1)
    pay = (arrives * (1 - 0.9 * ((level + 1) / 250))).reshape(-1, len(ACTIONS), 1)  # [H S, 5, 1]
    # Every level has states of its own, because pay depends on the level.
    to = (to + size * np.minimum(level + 1, H - 1)).reshape(pay.shape)
    shown = np.stack([image for _, image in known] * H)
    levels = np.repeat(np.arange(H), size)
    return richobs.Model(H, np.eye(1, len(pay))[0], np.ones(pay.shape), to, pay, pay > 0, shown, levels)


def candidates() -> richobs.Simulators:
    """Returns one model per layout."""
    return richobs.Simulators([layout(seed) for seed in LAYOUTS])


def main() -> None:
    """Learns, and prints what is claimed."""
    outcome = richobs.learn(environment(), candidates(), epsilon=0.01)  # assumes that Q* is that of one of the layouts
    print(outcome)
    if pictures.wanted():
        title = f"DoorKey-5x5 from images, 4 layouts: the policy certified after {outcome.episodes} episodes"
        pictures.episode("door_key", title, grid(render_mode="rgb_array"), outcome.policy, H, list(ACTIONS), seed=REAL)


if __name__ == "__main__":
    main()
