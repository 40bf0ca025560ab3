"""Small processes whose rewards have any sign and unit, and whose episodes may end early, with exact values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.core.environment import Declared, Episodes
from richobs.core.policies import Policy


@dataclass(frozen=True)
class SignedProcess:
    """States are seen. Shapes: H levels, S states, K actions."""

    start: NDArray[Any]  # [S]
    moves: NDArray[Any]  # [S, K, S]
    pays: NDArray[Any]  # [S, K, 2] two possible rewards
    chance: NDArray[Any]  # [S, K] of the second
    ends: NDArray[Any]  # [S, K] chance that the episode is over after the action
    horizon: int

    @classmethod
    def random(cls, rng: np.random.Generator) -> "SignedProcess":
        """Returns a random one; rewards are of a random size, mostly negative."""
        S, K = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        size = float(10 ** rng.uniform(-2, 3))
        low, high = -size, float(rng.choice([0.0, 0.3, 1.0])) * size
        pays = rng.uniform(low, high, size=(S, K, 2))
        pays[rng.random((S, K)) < 0.3] = np.array([low, high])  # the extremes, by chance
        return cls(
            rng.dirichlet(np.ones(S)),
            rng.dirichlet(np.full(S, 0.5), size=(S, K)),
            pays,
            rng.choice([0.02, 0.3, 0.5, 1.0], size=(S, K)),
            rng.choice([0.0, 0.0, 0.2, 1.0], size=(S, K)),
            int(rng.integers(1, 5)),
        )

    @property
    def n_actions(self) -> int:
        return self.ends.shape[1]

    @property
    def declared(self) -> Declared:
        return Declared(step_range=(self.pays.min(), self.pays.max()))

    @property
    def reward_range(self) -> tuple[float, float]:
        low, high = float(self.pays.min()), float(self.pays.max())
        H = self.horizon
        least, most = min(low, H * low), max(high, H * high)
        return least, most if most > least else least + 1.0

    @property
    def q(self) -> list[NDArray[Any]]:
        """Per level `[S, K]` Q*."""
        paid = self.pays[:, :, 0] * (1 - self.chance) + self.pays[:, :, 1] * self.chance
        result: list[NDArray[Any]] = []
        following = np.zeros(len(self.start))
        for _ in range(self.horizon):
            result.insert(0, paid + (1 - self.ends) * (self.moves @ following))
            following = result[0].max(axis=1)
        return result

    @property
    def optimum(self) -> float:
        return float(self.start @ self.q[0].max(axis=1))

    def value(self, policy: Policy) -> float:
        """Returns the value of a policy that is not random."""
        paid = self.pays[:, :, 0] * (1 - self.chance) + self.pays[:, :, 1] * self.chance
        states, rng = np.arange(len(self.start)), np.random.default_rng(0)
        following = np.zeros(len(self.start))
        for h in reversed(range(self.horizon)):
            a = policy.actions(h, states, rng)
            following = (paid + (1 - self.ends) * (self.moves @ following))[states, a]
        return float(self.start @ following)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        s = rng.choice(len(self.start), size=n, p=self.start)
        over = np.zeros(n, dtype=bool)
        seen, acted, paid, ended = [], [], [], []
        for h in range(self.horizon if levels is None else levels):
            a = policy.actions(h, s, rng)
            r = np.where(rng.random(n) < self.chance[s, a], self.pays[s, a, 1], self.pays[s, a, 0])
            seen.append(s)
            acted.append(a)
            paid.append(np.where(over, 0.0, r))
            ended.append(over)
            over = over | (rng.random(n) < self.ends[s, a])
            s = (self.moves[s, a].cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=len(self.start) - 1)
        return Episodes(seen, acted, paid, ended)
