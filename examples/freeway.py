# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs[atari]"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""Freeway of the Atari 2600 from RAM, sticky actions off: neither the game's mode nor the wiring of the joystick is known.

An observation is the machine's memory, 128 bytes. An episode is the first 180 frames of the game, four decisions of 45
frames each; a crossing pays 1. There are four modes with different traffic, and 6 ways in which three buttons may mean
"stay", "up" and "down": 24 candidates. Each mode is played through once in a simulator, where memory and level determine
what follows. Needs ale-py, whose licence is the GPL: pip install 'richobs[atari]'.

    python examples/freeway.py [--picture]
"""

import functools
from dataclasses import replace
from itertools import permutations
from typing import Any

import gymnasium

import pictures
import richobs

HORIZON, MODES = 4, (0, 1, 2, 3)
REAL, WIRING = 0, (2, 0, 1)  # the real mode; button i does what action WIRING[i] of the game does
NAMES = ("stay", "up", "down")


def game(mode: int, wiring: tuple[int, ...] = (0, 1, 2), **options: Any) -> gymnasium.Env[Any, Any]:
    """Returns the game in a mode, with three buttons."""
    import ale_py

    gymnasium.register_envs(ale_py)
    settings = {"obs_type": "ram", "frameskip": 45, "repeat_action_probability": 0.0, "mode": mode, **options}
    made = gymnasium.make("ALE/Freeway-v5", **settings)
    return gymnasium.wrappers.TransformAction(made, wiring.__getitem__, gymnasium.spaces.Discrete(3))


def environment() -> richobs.Environment:
    """Returns the real machine: without sticky actions the same actions always lead to the same memory."""
    make = functools.partial(game, REAL, WIRING)
    return richobs.from_gymnasium(make, horizon=HORIZON, reward_range=(0, 1), seed=0, deterministic=True)


def candidates(modes: tuple[int, ...] = MODES) -> richobs.Simulators:
    """Returns one model per mode and wiring; a mode is found by resetting and replaying."""
    known = [richobs.Model.by_replay(functools.partial(game, mode), HORIZON, markov=True) for mode in modes]
    return richobs.Simulators([wired(model, list(order)) for model in known for order in permutations(range(3))])


def wired(model: richobs.Model, order: list[int]) -> richobs.Model:
    """Returns the model in which button i does what action `order[i]` did."""
    parts = {name: getattr(model, name)[:, order] for name in ("probability", "next", "reward", "done")}
    return replace(model, **parts)


def main() -> None:
    """Learns under both assumptions, and prints what is claimed."""
    env, functions = environment(), candidates()
    trusts_values = richobs.learn(env, functions, epsilon=0.1)
    trusts_models = richobs.learn(env, functions, epsilon=0.1, assume="model")
    print(trusts_values, trusts_models, sep="\n\n")
    if pictures.wanted():
        title = f"Freeway from RAM, {functions.n_models} candidates: certified after {trusts_values.episodes} episodes"
        shown, names = game(REAL, WIRING, render_mode="rgb_array"), [NAMES[action] for action in WIRING]
        pictures.episode("freeway", title, shown, trusts_values.policy, HORIZON, names)


if __name__ == "__main__":
    main()
