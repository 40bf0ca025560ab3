"""Generators keyed by what they are for."""

import numpy as np

from richobs.core.randomness import keyed_generator


def test_keyed_generators_depend_on_every_part_of_the_key_and_on_nothing_else():
    def draw(*key):
        return keyed_generator(*key).integers(2**63, size=4).tolist()

    assert draw(1, "a", (0, 1)) == draw(np.int64(1), "a", (np.int8(0), 1))
    keys = [(2, "a", (0, 1)), (1, "b", (0, 1)), (1, "a", (1, 0)), (1, "a", 0, 1), (1, "a", "(0, 1)")]
    others = [draw(*key) for key in keys]
    assert draw(1, "a", (0, 1)) not in others
    assert len({tuple(o) for o in others}) == 5
    assert draw(1, "a")[0] == 3149476200321087670  # the stream of a key never changes
