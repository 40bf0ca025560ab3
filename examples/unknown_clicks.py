# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""Which of three offers to show to a visitor who may leave: click rates are unknown, and so is how patience wears off.

python examples/unknown_clicks.py
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import richobs
from richobs_lab.worlds.model_environment import ModelEnvironment

VISITS, PAYS = 6, (1.0, 0.6, 0.3)
SECRET = {"first": 0.15, "second": 0.35, "patience": 0.8}


def site(theta: Mapping[str, Any]) -> list[list[list[tuple[Any, int, float, bool]]]]:
    """Lists what a visitor does who has seen s offers: a click pays and ends the visit; others stay or leave."""
    clicks = (theta["first"], theta["second"], 0.5)
    table = []
    for seen in range(VISITS):
        stays = theta["patience"] ** (seen + 1)
        table.append(
            [
                [
                    (p, 0, pay, True),
                    ((1 - p) * stays, min(seen + 1, VISITS - 1), 0.0, False),
                    ((1 - p) * (1 - stays), 0, 0.0, True),
                ]
                for p, pay in zip(clicks, PAYS, strict=True)
            ]
        )
    return table


def candidates() -> richobs.Family:
    """Returns the site with any rates."""
    return richobs.Family(site, {"first": (0, 0.5), "second": (0, 1), "patience": (0.3, 1)}, horizon=VISITS)


def environment() -> richobs.Environment:
    """Returns the real site."""
    return ModelEnvironment(richobs.Simulators([candidates().at(SECRET)]), 0)


def main() -> None:
    """Learns, and prints what is claimed and which offers are shown."""
    outcome = richobs.learn(environment(), candidates(), epsilon=0.05)
    print(outcome, outcome.theta, sep="\n")
    rng = np.random.default_rng(0)
    print("offers shown:", [int(outcome.policy.actions(h, np.array([h]), rng)[0]) for h in range(VISITS)])


if __name__ == "__main__":
    main()
