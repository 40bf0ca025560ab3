# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""Taxi in the rain: the driver does not know which landmark is where, nor how slippery the streets are.

The landmarks stand at four known places. Any of the 24 ways to name them is possible, and a move succeeds with a
probability of 0.7, 0.8, 0.9 or 1: 96 candidates. What is seen is what Gymnasium shows: row, column, where the passenger
is, and where to. Needs Gymnasium 1.3 or later.

    python examples/taxi.py [--picture]
"""

from itertools import permutations

import gymnasium
import numpy as np

import pictures
import richobs

ID, HORIZON = "Taxi-v4", 25


def environment() -> richobs.Environment:
    """Returns the real problem: a step costs 1, a wrong pick-up or drop-off 10, and the end of the ride pays 20."""
    return richobs.from_gymnasium(
        ID, horizon=HORIZON, step_range=(-10, 20), reward_range=(-10 * HORIZON, 20), is_rainy=True
    )


def candidates(chances: tuple[float, ...] = (0.7, 0.8, 0.9, 1.0)) -> richobs.Simulators:
    """Returns one model per way to name the landmarks and per probability that a move succeeds."""
    taxis = [gymnasium.make(ID, is_rainy=True, rainy_probability=chance) for chance in chances]
    known = [richobs.Model.of_gymnasium(taxi, HORIZON) for taxi in taxis]
    return richobs.Simulators([renamed(model, names) for model in known for names in permutations(range(4))])


def renamed(model: richobs.Model, names: tuple[int, ...]) -> richobs.Model:
    """Returns the model in which landmark i stands where the one with the number `names[i]` stood."""
    cell, passenger, target = np.unravel_index(np.arange(500), (25, 5, 4))  # passenger 4 sits in the taxi
    was = np.ravel_multi_index((cell, np.array([*names, 4])[passenger], np.array(names)[target]), (25, 5, 4))
    now = np.argsort(was)  # the new number of each old state
    parts = model.probability[was], now[model.next[was]], model.reward[was], model.done[was]
    return richobs.Model(HORIZON, model.start[was], *parts)


def main() -> None:
    """Learns, and prints what is claimed; then checks the policy with nothing but its own episodes."""
    env, functions = environment(), candidates()
    outcome = richobs.learn(env, functions, epsilon=1, assume="model")
    print(outcome)
    print(richobs.certify_policy(env, outcome.policy, epsilon=4, seed=1))
    if pictures.wanted():
        title = f"Taxi in the rain, {functions.n_models} candidates: certified after {outcome.episodes} episodes"
        shown = gymnasium.make(ID, is_rainy=True, render_mode="rgb_array")
        names = ("south", "north", "east", "west", "pick up", "drop off")
        pictures.episode("taxi", title, shown, outcome.policy, HORIZON, names, seed=2)


if __name__ == "__main__":
    main()
