"""LSVEE's pseudocode written down plainly: a list of functions, samples kept in memory, one loop per line.

What a careful reader would write on a first evening. It serves as the yardstick for the engines and version spaces, at the
few sizes where it can run at all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from richobs.core.environment import Environment
from richobs.core.policies import OpenLoop, Switch, Uniform
from richobs_lab.lsvee import PaperConstants, SearchConstants

F = Callable[[int, np.ndarray[Any, Any]], np.ndarray[Any, Any]]  # (level, x) to values [n, K]


class Transcription:
    """Algorithms 1 to 3, line by line."""

    def __init__(self, env: Environment, functions: Sequence[F], constants: PaperConstants, rng: np.random.Generator):
        self.env, self.c, self.rng = env, constants, rng
        self.functions = list(enumerate(functions))
        self.v_hat: dict[tuple[tuple[int, ...], int], float] = {}

    def run(self) -> int:
        """Returns the number of the function whose policy is near-optimal."""
        self.dfs_learn((), self.c.search)
        v_star = self.v_hat[(), self.functions[0][0]]
        while True:
            name, f = self.functions[0]
            returns, paths = self.trajectories(f)
            if abs(returns.mean() - v_star) <= self.c.eps_demand:
                return name
            self.functions = self.functions[1:]
            for path in paths[: self.c.n_2]:
                for length in range(1, self.c.horizon):
                    self.dfs_learn(tuple(path[:length]), self.c.demand)

    def dfs_learn(self, path: tuple[int, ...], numbers: SearchConstants) -> None:
        for a in range(self.c.n_actions):
            child = (*path, a)
            if len(child) < self.c.horizon and not self.consensus(child, numbers):
                self.dfs_learn(child, numbers)
        self.td_elim(path, numbers)

    def consensus(self, path: tuple[int, ...], numbers: SearchConstants) -> bool:
        x = self.env.play(OpenLoop(path), numbers.n_test, self.rng, len(path) + 1).observations[-1]
        for name, f in self.functions:
            self.v_hat[path, name] = float(f(len(path), x).max(axis=1).mean())
        values = [self.v_hat[path, name] for name, _ in self.functions]
        return max(values) - min(values) <= self.c.eps_test(len(path))

    def td_elim(self, path: tuple[int, ...], numbers: SearchConstants) -> None:
        policy = Switch(OpenLoop(path), len(path), Uniform(self.c.n_actions))
        played = self.env.play(policy, numbers.n_train, self.rng, len(path) + 1)
        x, actions, rewards = played.observations[-1], played.actions[-1], played.rewards[-1]
        risks = []
        for name, f in self.functions:
            values = f(len(path), x)
            future = np.zeros(self.c.n_actions)
            if len(path) < self.c.horizon - 1:
                future = np.array([self.v_hat[(*path, a), name] for a in range(self.c.n_actions)])
            residual = values[np.arange(len(x)), actions] - rewards - future[actions]
            risks.append(float((residual**2).mean()))
            self.v_hat[path, name] = float(values.max(axis=1).mean())
        bar = min(risks) + numbers.slack
        self.functions = [f for f, risk in zip(self.functions, risks, strict=True) if risk <= bar]

    def trajectories(self, f: F) -> tuple[np.ndarray[Any, Any], list[list[int]]]:
        class Policy:
            def actions(self, level: int, x: np.ndarray[Any, Any], rng: np.random.Generator, /) -> np.ndarray[Any, Any]:
                return f(level, x).argmax(axis=1)

        played = self.env.play(Policy(), self.c.n_1, self.rng)
        return played.returns, played.paths.tolist()
