# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""CliffWalking: each step costs 1, the cliff costs 100, and nobody knows where the cliff is.

Candidates are 500 cliffs. Each has ten cells, at random places between start and goal, such that the goal can be reached
in time; the real cliff is among them. Epsilon, bounds and claim are in the units of the rewards.

    python examples/cliff_walking.py [--picture]
"""

import numpy as np

import pictures
import richobs

HORIZON, START, GOAL = 16, 36, 47  # cells are numbered along the 4 rows of 12
REAL = range(37, 47)  # the cliff of Gymnasium
ROWS = ("." * 12, "." * 12, "." * 12, "SCCCCCCCCCCG")


def environment() -> richobs.Environment:
    """Returns the real problem: an action costs 1, or 100 where it leads into the cliff, and from there to the start."""
    return richobs.from_gymnasium("CliffWalking-v1", horizon=HORIZON, step_range=(-100, -1))


def candidates(n: int = 500, seed: int = 0) -> richobs.Simulators:
    """Returns one model per cliff; shapes: 1 outcome, N models, 48 cells, 4 actions (up, right, down, left)."""
    rng = np.random.default_rng(seed)
    row, column = np.divmod(np.arange(48), 12)
    steps = ((-1, 0), (0, 1), (1, 0), (0, -1))
    to = np.stack([np.clip(row + r, 0, 3) * 12 + np.clip(column + c, 0, 11) for r, c in steps], axis=1)  # [48, 4]
    between = np.setdiff1d(np.arange(48), [START, GOAL])
    cliff = np.zeros((4 * n, 48), dtype=bool)
    cliff[0, REAL] = True
    for other in cliff[1:]:
        other[rng.choice(between, 10, replace=False)] = True
    falls = cliff[:, to][None]  # [1, N, 48, 4]
    there = np.where(falls, START, to)
    made = richobs.Simulators.of_outcomes(
        np.ones(falls.shape), there, np.where(falls, -100, -1), there == GOAL, HORIZON, start=np.eye(48)[START]
    )
    possible = np.flatnonzero(made.optimal_values() > -HORIZON)[:n]  # the goal can be reached in time
    return richobs.Simulators(made.models.take(possible))


def main() -> None:
    """Learns under both assumptions, and prints what is claimed."""
    env, functions = environment(), candidates()
    trusts_values = richobs.learn(env, functions, epsilon=1)  # 1 is a step
    trusts_models = richobs.learn(env, functions, epsilon=1, assume="model")
    print(trusts_values, trusts_models, sep="\n\n")
    if pictures.wanted():
        title = (
            f"CliffWalking, {functions.n_models} candidate cliffs: certified after {trusts_models.episodes} episodes"
        )
        pictures.grid("cliff_walking", title, ROWS, "↑→↓←", env, trusts_models.policy)


if __name__ == "__main__":
    main()
