"""The search tree: which paths were visited, what happened there, and where to draw them; and the candidates of a run.

Levels run from left to right and every leaf has a row of its own, so that a long chain costs no height. The layout is one
pass over the nodes in order of their paths. Candidates are what events tell of them; no learner is known here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from richobs.core import words
from richobs.core.events import PASSED, CandidateNews, Event, Mark, Progress, path_words
from richobs.core.ledger import Entry
from richobs.core.types import Path
from richobs.show.palette import Look, look

MOST_ACTIONS = 30_000_000  # in the paths of all nodes together, which take 240 MB; a deeper tree is cut
MOST_UNVISITED = 1_000  # actions that are listed as never played at a node
COLUMN, ROW = 100, 20  # distance between levels and between leaves, in the drawing's own units
REFUTED, CERTIFIED, OPEN = "refuted", "certified", "in play"
ORDER = (REFUTED, "replaced", CERTIFIED, OPEN)  # in which fates are listed


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

    @property
    def look(self) -> Look:
        """How it is drawn."""
        return look(self.mark)

    @property
    def label(self) -> str:
        """What a screen reader says."""
        tests = f", {len(self.tests)} test{'s' if len(self.tests) > 1 else ''}" if self.tests else ""
        path = path_words(self.path) if self.path else words.path(())
        return f"path {path}: {self.mark.words}{tests}, {words.count(self.through)} episodes"


@dataclass(frozen=True)
class SearchTree:
    """The nodes in order of their paths, the root first."""

    nodes: tuple[Node, ...]
    horizon: int
    n_actions: int
    rows: int  # leaves
    depth: int  # of the deepest node that could be drawn
    is_cut: bool = False  # whether deeper ones are drawn at `depth`

    @property
    def width(self) -> int:
        """Width of the drawing, one level at the least."""
        return COLUMN * max(1, *(len(node.path) for node in self.nodes))

    @property
    def height(self) -> int:
        """Height of the drawing."""
        return ROW * max(self.rows - 1, 1)

    @property
    def edges(self) -> str:
        """All edges as one SVG path, so that drawing them costs one element."""
        parts = []
        for node in self.nodes[1:]:
            above = self.nodes[node.parent]
            bend = above.x + COLUMN / 2
            parts.append(f"M{above.x:g} {above.y:g}C{bend:g} {above.y:g} {bend:g} {node.y:g} {node.x:g} {node.y:g}")
        return "".join(parts)

    @property
    def legend(self) -> list[tuple[Mark, Look, int]]:
        """The marks that occur, the most telling first: how each is drawn, and how often it occurs."""
        counts = Counter(node.mark for node in self.nodes)
        return [(mark, look(mark), counts[mark]) for mark in sorted(counts, key=lambda m: (-m.rank, m.name))]

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing to draw but a root at which nothing was tested."""
        return len(self.nodes) == 1 and not self.nodes[0].tests

    def visited(self) -> list[int]:
        """Returns the number of nodes at each level."""
        counts = Counter(len(node.path) for node in self.nodes)
        return [counts[level] for level in range(max(counts) + 1)]


def search_tree(events: Sequence[Event], ledger: Iterable[Entry], horizon: int, n_actions: int) -> SearchTree:
    """Builds and lays out the tree of all paths that a run tested or played.

    Args:
        events: what happened, in order; events without a mark are about no node.
        ledger: where the episodes went.
        horizon: H.
        n_actions: K.
    """
    kept = list(ledger)
    marked = [(i, event.path, mark) for i, event in enumerate(events) if (mark := event.said().mark) is not None]
    paths_played = {path for _, path, _ in marked} | {entry.path for entry in kept}
    deepest = max(map(len, paths_played), default=0)
    depth = _drawn_depth(paths_played, deepest)
    tests: dict[Path, list[int]] = {(): []}
    marks: dict[Path, Mark] = {}
    for i, whole, mark in marked:
        path = whole[:depth]
        tests.setdefault(path, []).append(i)
        if mark.rank >= marks.get(path, PASSED).rank:  # of equal ranks the latest is shown
            marks[path] = mark
    through: dict[Path, int] = dict.fromkeys(tests, 0)
    for entry in kept:
        for length in range(min(len(entry.path), depth) + 1):
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
        parent = place[path[:-1]] if path else -1
        taken = {paths[child][-1] for child in children[i]}
        # Where survivors agree a run need not look further; elsewhere the actions that were left out are listed.
        listed = range(min(n_actions, MOST_UNVISITED))
        unvisited = [a for a in listed if a not in taken] if children[i] and len(path) < horizon else []
        nodes.append(
            Node(
                path=path,
                mark=marks.get(path, PASSED),
                parent=parent,
                x=COLUMN * len(path),
                y=y[i],
                through=through[path],
                size=round(0.75 + 0.55 * (logs[i] - low) / span, 2),
                tests=tuple(tests.get(path, ())),
                unvisited=tuple(unvisited),
            )
        )
    return SearchTree(tuple(nodes), horizon, n_actions, rows, depth, depth < deepest)


def _drawn_depth(paths: Iterable[Path], deepest: int) -> int:
    """Returns the depth to which a tree of some paths can be drawn; its nodes hold at most `MOST_ACTIONS` actions."""
    depth = deepest
    while depth > 1:
        before: Path = ()
        actions = 0
        for path in sorted({path[:depth] for path in paths}):
            shared = next((i for i, (a, b) in enumerate(zip(before, path, strict=False)) if a != b), len(before))
            actions += (len(path) ** 2 - shared**2) // 2  # the nodes beyond what it shares with the path before it
            before = path
        if actions <= MOST_ACTIONS:
            break
        depth = depth * 2 // 3
    return depth


@dataclass
class Candidate:
    """One candidate, as far as events tell."""

    number: int
    episodes: int = 0
    batches: int = 0
    returns: float = 0.0  # sum over its episodes
    promised: float = math.nan  # the last time it was played
    fate: str = OPEN
    why: str = ""

    @property
    def earned(self) -> float:
        """Mean over its episodes."""
        return self.returns / self.episodes if self.episodes else math.nan


class Tenure(NamedTuple):
    """A time during which one candidate was played."""

    number: int  # of the candidate
    begin: int  # episodes of the run
    end: int


@dataclass
class Candidates:
    """All candidates so far, in the order of their numbers."""

    known: dict[int, Candidate] = field(default_factory=dict)
    tenures: list[Tenure] = field(default_factory=list)
    current: Candidate | None = None
    outlook: str = ""  # how far the end is, from the last event about the current candidate that says so
    other: str = ""  # why a function was certified that is not the candidate played last; empty where none was

    @classmethod
    def of(cls, steps: Iterable[Progress]) -> "Candidates":
        """Returns the candidates that the events of a run tell of."""
        made = cls()
        for step in steps:
            made.absorb(step)
        return made

    def absorb(self, step: Progress) -> None:
        """Takes note of what an event says of a candidate."""
        said = step.event.said()
        self.outlook, news = said.outlook or self.outlook, said.candidate
        if news is None:
            return
        if news.fate and news.fate != CERTIFIED:
            self.outlook = ""
        if news.number is not None and news.episodes:
            self._play(news, news.number, step.episodes)
        candidate = self.current if news.number is None else self.known.get(news.number)
        if candidate is None or not news.fate:
            return
        if candidate.fate != REFUTED:
            candidate.fate, candidate.why = news.fate, news.why
        elif news.fate == CERTIFIED:
            self.other = news.why

    def _play(self, news: CandidateNews, number: int, episodes: int) -> None:
        """Counts episodes of a candidate; one that was replaced before is open again."""
        candidate = self.known.setdefault(number, Candidate(number))
        goes_on = self.current is candidate and candidate.fate == OPEN
        begin = self.tenures.pop().begin if goes_on and self.tenures else max(episodes - news.episodes, 0)
        self.tenures.append(Tenure(number, begin, episodes))
        if candidate.fate != REFUTED:
            candidate.fate, candidate.why = OPEN, ""
        candidate.batches += 1
        candidate.episodes += news.episodes
        candidate.returns += news.episodes * news.earned
        candidate.promised = news.promised
        self.current = candidate

    @property
    def fates(self) -> str:
        """How many were played, and what became of them, in words: `8 played: 7 replaced, 1 certified`."""
        if not self.known:
            return ""
        counts = Counter(candidate.fate for candidate in self.known.values())
        order = [*ORDER, *sorted(counts.keys() - ORDER)]
        said = f"{len(self.known):,} played: " + ", ".join(f"{counts[f]:,} {f}" for f in order if counts[f])
        return f"{said}; then another was certified: {self.other}" if self.other else said
