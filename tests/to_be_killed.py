"""A process that learns in a folder, for tests that kill it: WORLD FOLDER PAUSE SETTINGS (as JSON) [ask].

The world "own" is an environment that richobs does not simulate. With "ask", every event prints a line and waits for one.
"""

import dataclasses
import json
import sys
import time

import numpy as np

import richobs
from richobs.classes import Layered, TableLevel
from richobs.core.settings import Settings, read_record
from richobs.learners.lsvee import PaperConstants
from richobs.runs.session import run


def shrunk(of=PaperConstants.of):
    """Returns `PaperConstants.of` with samples that a stream can play; the thresholds stay."""

    def fewer(sizes):
        return dataclasses.replace(sizes, n_test=min(sizes.n_test, 2_000), n_train=min(sizes.n_train, 2_000))

    def constants(**given):
        whole = of(**given)
        return dataclasses.replace(whole, search=fewer(whole.search), demand=fewer(whole.demand))

    return constants


class Own:
    """Somebody's environment: the action that equals the first observation mostly leads to where action 1 mostly pays."""

    declared = richobs.Declared(at_once=3)
    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        """Plays n episodes."""
        x = rng.integers(0, 2, n)
        first = policy.actions(0, x, rng)
        then = (rng.random(n) < np.where(first == x, 0.8, 0.2)).astype(np.int64)
        last = policy.actions(1, then, rng)
        paid = (then == 1) & (last == 1) & (rng.random(n) < 0.9)
        return richobs.Episodes([x, then], [first, last], [np.zeros(n), paid.astype(float)])


def own_problem():
    """Returns that environment with a class that holds its Q*."""
    roots = [[[0.72, 0.18], [0.18, 0.72]], [[0.82, 0.1], [0.2, 0.8]], [[0.18, 0.8], [0.6, 0.7]]]
    ends = [[[0.0, 0.0], [0.0, 0.9]], [[0.1, 0.2], [0.9, 0.0]], [[0.15, 0.1], [0.1, 0.98]]]
    return richobs.Problem(Own(), Layered([TableLevel(roots), TableLevel(ends)]))


def problem_of(world):
    """Returns the problem of that name."""
    return own_problem() if world == "own" else richobs.make(world)


if __name__ == "__main__":
    world, folder, pause, asked, *asks = sys.argv[1:]
    settings = read_record(Settings, json.loads(asked))
    if settings.engine == "stream":
        PaperConstants.of = shrunk()

    def callback(progress):
        """Tells about an event, and waits."""
        if asks:
            print(progress.event.kind, flush=True)
            sys.stdin.readline()
        time.sleep(float(pause))

    run(problem_of(world), settings, callback=callback, out=folder)
