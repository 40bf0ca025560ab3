"""Played paths of a deterministic environment: each is played once, remembered, and now and then played again.

If the same actions always lead to the same observations and rewards, an episode whose actions are known need not be
played. Every real episode is compared with what is known of its path, and some known paths are played again for nothing
but this comparison. Shapes: n episodes.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.policies import Policy, live_actions
from richobs.core.randomness import keyed_generator
from richobs.core.types import Observations, Path
from richobs.worlds.gymnasium_in.arrays import Rows
from richobs.worlds.gymnasium_in.copies import LocalCopies

SHARE = 16  # one of so many played paths is played again
SHOWN = 6  # numbers of an observation that a message shows


class Node:
    """What one path led to."""

    __slots__ = ("after", "observation", "reward")

    def __init__(self, observation: Observations | None, reward: float):
        """Takes what the last action of the path led to.

        Args:
            observation: one row; None where the episode was over.
            reward: of the last action; 0 where there is none.
        """
        self.observation, self.reward = observation, reward
        self.after: dict[int, Node] = {}  # action -> what it led to


class KnownPaths:
    """Plays policies in a deterministic environment, and plays each path only once.

    After a call of `play` the number of paths that were played again is at least one in `SHARE` of the played paths, plus
    the binary logarithm of the number of episodes that were answered without being played.
    """

    def __init__(self, name: str, copies: LocalCopies, rows: Rows, n_actions: int, seed: int | None):
        """Takes the copies that play.

        Args:
            name: of the environment, for messages.
            copies: of the environment.
            rows: turns observations into rows.
            n_actions: number of actions K.
            seed: of every reset; None where a reset is deterministic whatever its seed.
        """
        self.real_episodes = 0  # that were played, those that were played again included
        self._name, self._copies, self._rows, self._n_actions, self._seed = name, copies, rows, n_actions, seed
        self._root: Node | None = None
        self._again = 0  # episodes that were played again
        self._answered = 0  # episodes that were answered without being played
        self._places: dict[Path, int] = {}  # path -> the copy whose episode has come so far
        self._free: list[int] = []

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int) -> Episodes:
        """Plays n episodes as `Environment.play` does; the use of `rng` does not depend on which paths are known."""
        own = keyed_generator(int(rng.integers(2**63)), "gymnasium", "deterministic")
        before = self.real_episodes
        self._places, self._free = {}, list(reversed(range(self._copies.size)))
        nodes = [self._known_root(own)] * n
        paths: list[Path] = [()] * n
        seen, taken, paid, ended = [], [], [], []
        for level in range(levels):
            x = self._rows.stack([node.observation for node in nodes])
            over = np.array([node.observation is None for node in nodes])
            actions = live_actions(policy, level, x, over, self._n_actions, rng)
            rewards = np.zeros(n)
            live = np.flatnonzero(~over)
            for i in live:
                if int(actions[i]) not in nodes[i].after:
                    self._extend(paths[i], int(actions[i]), nodes[i], own)
            for i in live:
                nodes[i], paths[i] = nodes[i].after[int(actions[i])], (*paths[i], int(actions[i]))
                rewards[i] = nodes[i].reward
            seen.append(x)
            taken.append(actions)
            paid.append(rewards)
            ended.append(over)
        self._answered += max(0, n - (self.real_episodes - before))
        self._check(sorted(set(paths)), own)
        return Episodes(tuple(seen), tuple(taken), tuple(paid), tuple(ended))

    def _check(self, paths: Sequence[Path], own: np.random.Generator) -> None:
        """Plays some of the paths again, as many as are due."""
        played = self.real_episodes - self._again
        due = (-(-played // SHARE) + int(math.log2(1 + self._answered))) if self._answered else 0
        while self._again < due:
            self._again += 1
            self._free = list(reversed(range(self._copies.size)))
            self._follow(paths[int(own.integers(len(paths)))], own)

    def _extend(self, path: Path, action: int, node: Node, own: np.random.Generator) -> None:
        """Plays one more action behind a path, in an episode that has come so far or in a new one."""
        copy = self._places.pop(path, None)
        if copy is None:
            if not self._free:  # the episode that has waited longest is given up
                self._free.append(self._places.pop(next(iter(self._places))))
            copy = self._follow(path, own)
        node.after[action] = self._step(copy, action)
        if node.after[action].observation is None:
            self._free.append(copy)
        else:
            self._places[(*path, action)] = copy

    def _known_root(self, own: np.random.Generator) -> Node:
        """Returns what a reset shows, after a first one if need be."""
        if self._root is None:
            copy, self._root = self._start(own)
            self._places[()] = copy
        return self._root

    def _start(self, own: np.random.Generator) -> tuple[int, Node]:
        """Starts a real episode; returns the copy that plays it, and what it shows."""
        copy = self._free.pop()
        self.real_episodes += 1
        seed = int(own.integers(2**31)) if self._seed is None else self._seed
        return copy, Node(self._rows.row(self._copies.reset_one(copy, seed)), 0.0)

    def _follow(self, path: Path, own: np.random.Generator) -> int:
        """Plays a known path from the start, compares all that it shows, and returns the copy."""
        copy, now = self._start(own)
        node = self._known_root(own)
        self._compare((), node, now)
        for level, action in enumerate(path):
            node = node.after[action]
            self._compare(path[: level + 1], node, self._step(copy, action))
        return copy

    def _step(self, copy: int, action: int) -> Node:
        raw, reward, over = self._copies.step_one(copy, action)
        return Node(None if over else self._rows.row(raw), reward)

    def _compare(self, path: Path, known: Node, now: Node) -> None:
        """Refuses an environment that shows something else than before."""
        same = (known.observation is None) == (now.observation is None) and known.reward == now.reward
        if known.observation is not None and now.observation is not None:
            same = same and np.array_equal(known.observation, now.observation)
        if not same:
            seeds = "fresh seeds" if self._seed is None else f"the seed {self._seed}"
            where = f"the actions {path}" if path else "a reset"
            raise BrokenPromise(
                f"{self._name} is not deterministic: {where} led to {_words(path, known)} at first, and to "
                f"{_words(path, now)} later, with {seeds}. Leave deterministic=True out; or, if only the start is random, "
                "give seed=."
            )


def _words(path: Path, node: Node) -> str:
    """Returns what a path led to, in words; of a large observation its digest too, so that a difference shows."""
    x, paid = node.observation, f"the reward {node.reward!r} and " if path else ""
    if x is None:
        return f"{paid}the end of the episode"
    shown = ", ".join(str(v) for v in np.ravel(x)[:SHOWN])
    more = f", ... of {x.size} (SHA-256 {hashlib.sha256(x.tobytes()).hexdigest()[:12]})" if x.size > SHOWN else ""
    return f"{paid}the observation [{shown}{more}]"
