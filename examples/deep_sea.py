# /// script
# requires-python = ">=3.11"
# dependencies = ["richobs[bsuite]"]
# [tool.uv.sources]
# richobs = { path = ".." }
# ///
"""Deep sea of bsuite, ten deep: in each of 55 cells it is unknown which of the two actions goes right.

Only ten moves to the right in a row reach the treasure, so undirected exploration needs about 2^10 episodes. The class
is a product: every row of the sea may have any of its 2^(row + 1) assignments of actions, 2^55 functions in all, which
are never listed. What is seen is bsuite's image. Needs bsuite and shimmy: pip install 'richobs[bsuite]'.

    python examples/deep_sea.py
"""

import numpy as np

import richobs
from richobs.core.process import Codebook

SIZE, COST = 10, 0.01  # a move to the right costs COST / SIZE, and the treasure pays 1


def environment(mapping_seed: int = 0) -> richobs.Environment:
    """Returns the sea of bsuite. Its moves are deterministic."""
    from bsuite.environments.deep_sea import DeepSea

    return richobs.from_gymnasium(
        lambda: DeepSea(SIZE, mapping_seed=mapping_seed), horizon=SIZE, reward_range=(-COST, 1), deterministic=True
    )


def row_class(row: int) -> richobs.classes.TableLevel:
    """Returns one function per assignment of the row's cells; shapes: N assignments, row + 1 columns, 2 actions."""
    columns = np.arange(row + 1)
    images = np.zeros((row + 1, SIZE, SIZE), dtype=np.float32)
    images[columns, row, columns] = 1
    goes_right = (np.arange(2 ** (row + 1))[:, None] >> columns & 1)[:, :, None] == np.arange(2)
    treasure = np.where(
        columns == row, 1 - COST * (SIZE - row) / SIZE, -COST / SIZE
    )  # what a move to the right is worth
    return richobs.classes.TableLevel(
        np.where(goes_right, treasure[:, None], 0), Codebook(images), value_range=(-COST, 1)
    )


def candidates() -> richobs.Layered:
    """Returns the product of all rows."""
    return richobs.Layered([row_class(row) for row in range(SIZE)])


def main() -> None:
    """Learns, and prints what is claimed."""
    env, functions = environment(), candidates()
    print(functions)
    print(richobs.learn(env, functions, epsilon=0.1))


if __name__ == "__main__":
    main()
