# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs[sb3]"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""Certify what Stable-Baselines3 learned: PPO on CartPole, trained until its policy is certified.

`CertifyCallback` plays fresh episodes of the current policy now and then, and ends the training as soon as it is certain
that the policy holds the pole for at least 400 of 500 steps. Nothing is assumed but independent episodes with totals in
[1, 500]. Needs Stable-Baselines3: pip install 'richobs[sb3]'.

    python examples/certify_sb3.py
"""

from typing import Any

import gymnasium

import richobs
from richobs.sb3 import CertifyCallback

TOTALS = (1, 500)  # an episode lasts 1 to 500 steps, and each pays 1


def environment() -> gymnasium.Env[Any, Any]:
    """Returns the problem in which policies are checked."""
    return gymnasium.make("CartPole-v1")


def train(threshold: float = 400, steps: int = 100_000, seed: int = 0) -> tuple[Any, CertifyCallback]:
    """Trains until the policy is certified, or the steps are spent; returns the model, and the callback that checked."""
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, learning_rate=1e-3, seed=seed, device="cpu")
    check = CertifyCallback(environment(), threshold, every=8_000, reward_range=TOTALS, seed=seed)
    model.learn(steps, callback=check)
    return model, check


def main() -> None:
    """Trains, and prints what is certain about the policy."""
    model, check = train()
    print(check.claim)
    report = richobs.certify_policy(environment(), model, epsilon=50, reward_range=TOTALS, seed=1)
    print(report)


if __name__ == "__main__":
    main()
