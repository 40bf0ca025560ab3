"""The search tree: which paths were visited, what happened there, and where to draw them.

Levels run from left to right and every leaf has a row of its own, so that a long chain costs no height. The layout is one
pass over the nodes in order of their paths.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from richobs.engines import Entry
from richobs.outcome import Event
from richobs.problem import Path
from richobs.report import words

COLUMN, ROW = 100, 20  # distance between levels and between leaves, in the drawing's own units


@dataclass(frozen=True)
class Mark:
    """How a kind of node is drawn; never by colour alone."""

    name: str
    shape: str  # an SVG path around (0, 0), six units across
    words: str


_CIRCLE = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z"
MARKS = (
    Mark("demand", "M0-7L7 0 0 7-7 0Z", "functions eliminated, on demand"),
    Mark("idle-demand", "M0-7L7 0 0 7-7 0Z", "tested on demand, none eliminated"),
    Mark("eliminated", "M-5-5H5V5H-5Z", "functions eliminated"),
    Mark("tested", "M-6 4.5L0-6.5 6 4.5Z", "tested, none eliminated"),
    Mark("open", "M-6-4.5L0 6.5 6-4.5Z", "survivors disagree, not yet learned"),
    Mark("agreed", _CIRCLE, "survivors agree, nothing to learn"),
    Mark("other", "M-6 0L-3-5.2H3L6 0 3 5.2H-3Z", "another test"),
    Mark(
        "policies",
        "M0-7.5L2.2-2.4 7.6-2.2 3.4 1.3 4.8 6.6 0 3.6-4.8 6.6-3.4 1.3-7.6-2.2-2.2-2.4Z",
        "whole policies tried",
    ),
    Mark("passed", "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z", "passed through, no test of its own"),
)
MARK = {mark.name: mark for mark in MARKS}
OF_POLICIES = ("trial", "verification", "rollout")  # tests of a policy, noted at the root but not about it
REMARKS = ("stage", "handover")  # what the search noticed about itself; no tests


@dataclass(frozen=True)
class Node:
    """One node of the tree."""

    path: Path
    mark: Mark
    parent: int  # its place in the list of nodes; -1 for the root
    x: float
    y: float
    through: int  # episodes that were played through or to it
    size: float  # of its mark, grows with the logarithm of these episodes
    tests: tuple[int, ...]  # places in the list of events
    unvisited: tuple[int, ...]  # actions that were never played here
    place: int  # among its siblings, from 1
    siblings: int  # with itself

    @property
    def label(self) -> str:
        """Returns what a screen reader says."""
        tests = f", {len(self.tests)} test{'s' if len(self.tests) > 1 else ''}" if self.tests else ""
        return f"path {words.path(self.path)}: {self.mark.words}{tests}, {words.count(self.through)} episodes"


@dataclass(frozen=True)
class SearchTree:
    """The nodes in order of their paths, the root first."""

    nodes: tuple[Node, ...]
    horizon: int
    n_actions: int
    rows: int  # leaves

    @property
    def width(self) -> int:
        """Of the drawing."""
        return COLUMN * max((len(node.path) for node in self.nodes), default=1)

    @property
    def height(self) -> int:
        """Of the drawing."""
        return ROW * max(self.rows - 1, 1)

    @property
    def edges(self) -> str:
        """Returns all edges as one SVG path, so that drawing them costs one element."""
        parts = []
        for node in self.nodes[1:]:
            above = self.nodes[node.parent]
            bend = above.x + COLUMN / 2
            parts.append(f"M{above.x:g} {above.y:g}C{bend:g} {above.y:g} {bend:g} {node.y:g} {node.x:g} {node.y:g}")
        return "".join(parts)

    @property
    def marks(self) -> list[tuple[Mark, int]]:
        """The marks that occur, and how often."""
        counts = {mark.name: 0 for mark in MARKS}
        for node in self.nodes:
            counts[node.mark.name] += 1
        return [(MARK[name], n) for name, n in counts.items() if n]

    def visited(self) -> list[int]:
        """Returns the number of nodes at each level."""
        levels = [0] * (max(len(node.path) for node in self.nodes) + 1)
        for node in self.nodes:
            levels[len(node.path)] += 1
        return levels


def search_tree(events: Sequence[Event], ledger: Iterable[Entry], horizon: int, n_actions: int) -> SearchTree:
    """Builds and lays out the tree of all paths that a run tested or played.

    Args:
        events: the tests, in order.
        ledger: where the episodes went.
        horizon: H.
        n_actions: K.
    """
    tests: dict[Path, list[int]] = {(): []}
    for i, event in enumerate(events):
        tests.setdefault(tuple(event.path), []).append(i)
    through: dict[Path, int] = dict.fromkeys(tests, 0)
    for entry in ledger:
        for length in range(len(entry.path) + 1):
            prefix = tuple(entry.path[:length])
            through[prefix] = through.get(prefix, 0) + entry.episodes
    for path in list(through):
        for length in range(len(path)):
            through.setdefault(path[:length], 0)
    paths = sorted(through)
    place = {path: i for i, path in enumerate(paths)}
    children: list[list[int]] = [[] for _ in paths]
    for path in paths[1:]:
        children[place[path[:-1]]].append(place[path])
    y, rows = [0.0] * len(paths), 0
    for i in range(len(paths)):  # leaves from top to bottom: a path sorts before those that it begins
        if not children[i]:
            y[i], rows = rows * ROW, rows + 1
    for i in reversed(range(len(paths))):  # parents after their children, half way between the first and the last
        if children[i]:
            y[i] = (y[children[i][0]] + y[children[i][-1]]) / 2
    logs = [math.log10(through[path] + 1) for path in paths]
    low, span = min(logs), max(max(logs) - min(logs), 1e-9)
    nodes = []
    for i, path in enumerate(paths):
        here = tuple(tests.get(path, ()))
        parent = place[path[:-1]] if path else -1
        family = children[parent] if path else [i]
        taken = {paths[child][-1] for child in children[i]}
        # A run need not look behind a node where survivors agree; elsewhere what was left out is worth telling.
        unvisited = [a for a in range(n_actions) if a not in taken] if children[i] and len(path) < horizon else []
        nodes.append(
            Node(
                path=path,
                mark=_mark([events[t] for t in here]),
                parent=parent,
                x=COLUMN * len(path),
                y=y[i],
                through=through[path],
                size=round(0.75 + 0.55 * (logs[i] - low) / span, 2),
                tests=here,
                unvisited=tuple(unvisited),
                place=family.index(i) + 1,
                siblings=len(family),
            )
        )
    return SearchTree(tuple(nodes), horizon, n_actions, rows)


def _mark(events: Sequence[Event]) -> Mark:
    """Returns what happened at a node, by the tests that are about it."""
    about = [e for e in events if e.kind not in OF_POLICIES + REMARKS]
    eliminations = [e for e in about if e.kind == "elimination"]
    if eliminations:
        dropped = [e for e in eliminations if e.log_size_after < e.log_size_before]
        on_demand = all(e.phase == "demand" for e in dropped or eliminations)
        if on_demand:
            return MARK["demand" if dropped else "idle-demand"]
        return MARK["eliminated" if dropped else "tested"]
    opinions = [e.verdict for e in about if e.kind == "consensus"]
    if opinions:
        return MARK["agreed" if opinions[-1] == "agree" else "open"]
    policies = any(e.kind in OF_POLICIES for e in events)
    return MARK["other" if about else "policies" if policies else "passed"]
