# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""FrozenLake whose map is known and whose ice is not: a move succeeds with a probability between 0.1 and 0.9.

python examples/unknown_ice.py
"""

import richobs

HORIZON = 30


def environment() -> richobs.Environment:
    """Returns the real lake, as Gymnasium plays it: moves succeed with probability 1/3."""
    return richobs.from_gymnasium("FrozenLake-v1", horizon=HORIZON, reward_range=(0, 1))


def candidates() -> richobs.Family:
    """Returns the lake with any ice, from the tables that Gymnasium publishes."""
    return richobs.Family.of_gymnasium("FrozenLake-v1", horizon=HORIZON, success_rate=(0.1, 0.9))


def main() -> None:
    """Learns, and prints what is claimed and what the ice may be like."""
    outcome = richobs.learn(environment(), candidates(), epsilon=0.05)
    print(outcome)
    assert outcome.theta is not None
    for name, (low, high, likely) in outcome.theta.items():
        print(f"{name} lies in [{low:.3f}, {high:.3f}], most likely {likely:.3f}")


if __name__ == "__main__":
    main()
