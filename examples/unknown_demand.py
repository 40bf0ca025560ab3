# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""A store with unknown demand: on weekdays and at weekends customers come at two rates that nobody knows.

python examples/unknown_demand.py
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

import richobs

SHELVES, DAYS, ORDERS = 6, 14, (0, 3, 6)
SECRET = {"weekday": 2.2, "weekend": 4.1}


def outcomes(theta: Mapping[str, Any], state: int, order: int) -> list[tuple[Any, int, float, bool]]:
    """Lists a day: (probability, next state, reward, done). A state is the stock and whether tomorrow is a weekend."""
    weekend, stock = divmod(state, SHELVES + 1)
    held = min(stock + order, SHELVES)
    law = richobs.Family.poisson(theta["weekend" if weekend else "weekday"], held)
    pay = [3.0 * sold - 1.0 * (held - stock) - 0.2 * (held - sold) for sold in range(held + 1)]
    after = [(2 / 7, SHELVES + 1), (5 / 7, 0)]
    return [(p * q, first + held - sold, pay[sold], False) for sold, p in enumerate(law) for q, first in after]


class Store(gymnasium.Env[Any, Any]):
    """The real store."""

    observation_space = gymnasium.spaces.Discrete(2 * (SHELVES + 1))
    action_space = gymnasium.spaces.Discrete(len(ORDERS))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Starts with three parts on a weekday."""
        super().reset(seed=seed)
        self.state = 3
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draws a day."""
        listed = outcomes(SECRET, self.state, ORDERS[action])
        _, self.state, reward, done = listed[self.np_random.choice(len(listed), p=[p for p, *_ in listed])]
        return self.state, reward, done, False, {}


def environment() -> richobs.Environment:
    """Returns the real store."""
    return richobs.from_gymnasium(Store, horizon=DAYS, step_range=(-8.0, 18.0))


def candidates() -> richobs.Family:
    """Returns the store with any two rates from 1 to 6."""
    states = range(2 * (SHELVES + 1))
    box = {"weekday": (1, 6), "weekend": (1, 6)}
    return richobs.Family(lambda t: [[outcomes(t, s, a) for a in ORDERS] for s in states], box, horizon=DAYS, start=3)


def main() -> None:
    """Learns, and prints what is claimed and which rates are left."""
    outcome = richobs.learn(environment(), candidates(), epsilon=2.0)
    print(outcome, outcome.theta, sep="\n")


if __name__ == "__main__":
    main()
