# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""A robot on a grid sees noisy pictures: a network is trained on a first phase, frozen, and certified as linear.

The grid has 4 x 4 cells, and each of them 16 pictures of 8 x 8 pixels. A move fails with probability 0.05; then any cell is
as likely. The far corner pays 1/5 a step. The network predicts from a picture and an action which of 16 kinds of pictures
comes next, and its probabilities, raised to a power, are the features. The claim is about these features; the episodes that
trained them are not part of it. docs/linear.md says how far that carries.

    python examples/pixels.py
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator, default_rng

from richobs import Declared, Episodes, Linear, Policy, Uniform, learn
from richobs.core.types import Floats

HORIZON, FAILS, SHARP, UNITS = 5, 0.05, 4.0, 256
GRID = np.pad(np.arange(16).reshape(4, 4), 1, "edge")
LANDS = np.stack([GRID[:-2, 1:-1], GRID[2:, 1:-1], GRID[1:-1, :-2], GRID[1:-1, 2:]], axis=2).reshape(16, 4)
PICTURES = np.kron(np.eye(16).reshape(16, 1, 4, 4), np.ones((2, 2))) + default_rng(5).normal(0, 0.2, (16, 16, 8, 8))


class Robot:
    """The real grid; an episode starts in any cell."""

    horizon, n_actions, reward_range = HORIZON, 4, (0.0, 1.0)
    declared = Declared(at_once=4_096, step_range=(0.0, 1 / HORIZON), identity="a robot that sees pictures")

    def play(self, policy: Policy, n: int, rng: Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        cell, seen, taken, paid = rng.integers(16, size=n), [], [], []
        for level in range(HORIZON if levels is None else levels):
            seen.append(PICTURES[cell, rng.integers(16, size=n)])
            taken.append(policy.actions(level, seen[-1], rng))
            cell = np.where(rng.random(n) < FAILS, rng.integers(16, size=n), LANDS[cell, taken[-1]])
            paid.append((cell == 15) / HORIZON)
        return Episodes(seen, taken, paid)


def trained(played: Episodes, rng: Generator, sharp: float, steps: int = 12_000) -> Callable[[int, Floats], Floats]:
    """Sorts pictures into kinds, learns to predict the next one by gradients of the log loss, and returns the features."""
    after, a = np.concatenate(played.observations[1:]), np.concatenate(played.actions[:-1])
    kind, near = np.zeros(len(a), dtype=int), np.full(len(a), np.inf)
    for k in range(16):  # each kind begins with the picture that is farthest from all kinds before
        far = ((after - after[near.argmax()]) ** 2).sum(axis=(1, 2))
        kind, near = np.where(far < near, k, kind), np.minimum(far, near)
    w, v = rng.normal(0, 0.1, size=(64, UNITS)), np.zeros((4, UNITS, 16))  # w stays random; a softmax for each action
    h = np.maximum(np.concatenate(played.observations[:-1]).reshape(-1, 64) @ w, 0)
    for step in range(steps):
        b, i = step % 4, rng.choice(np.flatnonzero(a == step % 4), size=64)
        v[b] -= (1 - step / steps) / 64 * h[i].T @ (softmax(h[i] @ v[b]) - np.eye(16)[kind[i]])
    return lambda level, x: np.moveaxis(softmax(sharp * (np.maximum(x.reshape(-1, 64) @ w, 0) @ v)), 0, 1)


def softmax(z: Floats) -> Floats:
    """Returns probabilities along the last axis."""
    return np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)


def candidates(seed: int = 0, sharp: float = SHARP, listed: bool = True) -> Linear:
    """Returns all linear functions of a network's features; it is trained on 4,000 episodes of random actions.

    Where pictures are not listed, bounds are over all probabilities.
    """
    rng, known = default_rng([seed, 1]), PICTURES.reshape(-1, 8, 8) if listed else None  # rng: of the first phase alone
    phi = trained(Robot().play(Uniform(4), 4_000, rng), rng, sharp)
    return Linear(phi, horizon=HORIZON, dim=16, n_actions=4, contexts=known, probabilities=not listed)


if __name__ == "__main__":
    print(learn(Robot(), candidates(), epsilon=0.1, tolerance=0.001))
