# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs[torch,sb3]"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""CartPole with networks as candidates: which Q networks of a training hold the pole for 400 of 500 steps?

Stable-Baselines3 trains a Q network, and eight states of it are kept. None of them is Q*, so a claim about V* that
assumes Q* among them would be worth nothing, and `learn` is not asked. What needs no assumption about the networks is an
interval for what the policy of each of them earns. And no episode earns more than 500, so the best one's interval also
bounds its distance from the optimum. Needs PyTorch and Stable-Baselines3: pip install 'richobs[torch,sb3]'.

    python examples/cart_pole.py [--picture]
"""

from copy import deepcopy
from typing import Any

import pictures
import richobs

HORIZON, THRESHOLD, DELTA = 500, 400.0, 0.05
VALUES = (-1000.0, 1000.0)  # range of the networks' values


def environment() -> richobs.Environment:
    """Returns CartPole: a step pays 1 until the pole falls. Gymnasium plays many copies at once."""
    return richobs.from_gymnasium("CartPole-v1", horizon=HORIZON, reward_range=(1, HORIZON), vector="native")


def networks(n: int = 8, every: int = 6_000) -> list[Any]:
    """Returns n states of a network, one after each `every` steps of training: maps from `[n, 4]` to values `[n, 2]`."""
    from stable_baselines3 import DQN

    settings = {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "train_freq": 256,
        "gradient_steps": 128,
        "learning_starts": 1000,
    }
    more = {"target_update_interval": 10, "exploration_fraction": 0.16, "exploration_final_eps": 0.04}
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings, **more)
    found = []

    def keep(_: Any, __: Any) -> bool:
        if model.num_timesteps % every == 0:
            found.append(deepcopy(model.q_net.q_net))
        return True

    model.learn(n * every, callback=keep)
    return found


def certified(functions: richobs.Networks, env: richobs.Environment) -> list[richobs.PolicyReport]:
    """Returns a report for each network's policy; all hold together with probability at least 1 - DELTA."""
    share = DELTA / functions.levels[0].size
    policies = [richobs.LearnedPolicy(functions, i) for i in range(functions.levels[0].size)]
    return [richobs.certify_policy(env, p, threshold=THRESHOLD, epsilon=25, delta=share) for p in policies]


def main() -> None:
    """Trains, and prints what is certain about each network."""
    functions = richobs.Networks(networks(), HORIZON, 2, value_range=VALUES)
    reports = certified(functions, environment())
    for i, report in enumerate(reports):
        words = f"{report.lower:.0f} to {report.upper:.0f} steps, {report.episodes} episodes: {report.verdict.value}"
        print(f"network {i}: {words}")
    if pictures.wanted():
        title = f"CartPole: what eight networks earn, certified together; {THRESHOLD:.0f} was asked"
        pictures.intervals("cart_pole", title, [(r.lower, r.upper) for r in reports], THRESHOLD, "network")


if __name__ == "__main__":
    main()
