"""The stored results of the arena: everybody on the worlds of `richobs arena`, in groups of what fits into the time.

Run with: python benchmarks/arena.py FOLDER [group ...]
or:       python benchmarks/arena.py FOLDER --renew LEARNER ...

Every group is an arena in a folder of its own under FOLDER; what is finished there is not run again, and a group that was
stopped goes on, also with other limits of time. The groups networks and door-key need the extras sb3 and minigrid: without
them they are neither run nor read. At the end the runs of all groups are written to benchmarks/results/arena.json, the
figures to docs/figures, and the tables of docs/laboratory.md are made anew. The group "none" runs nothing.

With --renew the stored runs of these learners, and no others, are made again in FOLDER, with the seeds and the limit
of CPU seconds that they, or most of a group, had; the other rows of arena.json stay as they are. With no learner behind it,
only tables and figures are made anew.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dataclasses
import json
import math
import pathlib
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from richobs.core import words
from richobs.show.summary import plain_console
from richobs.worlds.registry import WORLDS
from richobs_lab.arena.contest import LATE, Arena, ArenaRun, Contest, contestants, plan_arena, read_runs, run_arena
from richobs_lab.arena.page import (
    CPU,
    EPISODES,
    PROFILES,
    ArenaView,
    Meeting,
    World,
    arena_table,
    episodes_words,
    write_arena,
)
from richobs_lab.sweep.page import sweep_watched

ROOT = pathlib.Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "results" / "arena.json"
AUTHORS = STORED.with_name("authors_pcid.json")  # of benchmarks/authors_pcid.py: no contestant, but in a table
FIGURES = ROOT / "docs" / "figures"
DOCUMENT = ROOT / "docs" / "laboratory.md"
BEGIN, END = "<!-- tables: made by benchmarks/arena.py -->\n", "<!-- end of the tables -->\n"

RIVALS = ("pcid", "pcid-small", "ppe", "homer")
LINES = ("latent-q", "eprl")  # told what nobody sees: not rivals, but lines to compare with
NETWORKS = ("sb3-ppo", "sb3-dqn")  # need the extra sb3
ENDLESS = ("epsilon-greedy", "ucb-q")  # play the budget, an episode at a time
LOCKS = ("lock-bernoulli", "lock-gaussian", "lock-stochastic")
OTHERS = (
    *("lock-failing", "diabolical-noisy", "random", "mdp", "mdp-stochastic", "deep-sea", "frozen-lake", "bandit"),
)
DOOR_KEY = "door-key"  # a world of the arena alone, which needs the extra minigrid
WORLDS[DOOR_KEY] = "arena_door_key"  # processes that run groups import this file too
FIRST_SEED = 100  # sizes, steps and bonuses were chosen on seeds below


class Group(NamedTuple):
    """An arena that is run as a whole."""

    worlds: tuple[str, ...]
    learners: tuple[str, ...]
    seeds: int = 10
    budget: int = 200_000
    seconds: float = 600.0

    def contest(self) -> Contest:
        """Returns who meets whom."""
        seeds = range(FIRST_SEED, FIRST_SEED + self.seeds)
        return plan_arena(self.worlds, self.learners, seeds=seeds, budget=self.budget)


def at(horizon: int, *kinds: str) -> tuple[str, ...]:
    """Returns the locks of one horizon."""
    return tuple(f"lock/{horizon},noise_bits={horizon}{kind}" for kind in kinds)


KINDS = ("", ",noise=gaussian", ",swap=0.5")
SHORT, MIDDLE, LONG = (*at(5, *KINDS), *at(10, *KINDS)), at(20, *KINDS), at(50, *KINDS)
REST = tuple(n for n in contestants() if n not in (*NETWORKS, *ENDLESS, "betting"))
BY_COUNTS = ("lsvee", "olive", "uniform-exploration")  # episodes drawn as counts on the short locks with bits
ARMS = ("median-elimination", "successive-elimination", "uniform-allocation", "sparse-sampling")
GROUPS = {
    "short-rivals": Group(SHORT, RIVALS),
    "middle-rivals": Group(MIDDLE, RIVALS, seeds=5),
    "long-rivals": Group(LONG, RIVALS, seeds=3),
    "short-certified": Group(SHORT, ("certified",)),
    "middle-certified": Group(MIDDLE, ("certified",), seeds=5),
    "long-certified": Group(LONG, ("certified",), seeds=3),
    "short-betting": Group(SHORT, ("betting",)),
    "middle-betting": Group(MIDDLE, ("betting",), seeds=5),
    "long-betting": Group(LONG, ("betting",), seeds=3, seconds=1_800.0),
    "short-lines": Group(SHORT, LINES, seeds=5),
    "middle-lines": Group(MIDDLE, LINES, seeds=3, seconds=30.0),
    "long-lines": Group(LONG, LINES, seeds=3, seconds=60.0),
    "short-locks-counts": Group((*at(5, "", ",swap=0.5"), *at(10, "", ",swap=0.5")), BY_COUNTS, seeds=5, seconds=30.0),
    "short-locks-arms": Group(at(5, ""), ARMS, seeds=3, seconds=20.0),
    "short-locks-endless": Group(SHORT, ENDLESS, seeds=3, budget=10_000, seconds=10.0),
    "others": Group(OTHERS, REST, seeds=3, seconds=10.0),
    "others-betting": Group(OTHERS, ("betting",), seeds=3, seconds=60.0),
    "door-key": Group((DOOR_KEY,), ("betting", *REST, *NETWORKS), seeds=4, seconds=30.0),
    "others-endless": Group(OTHERS, ENDLESS, seeds=3, budget=10_000, seconds=10.0),
    "networks": Group(("lock/5,noise_bits=5", "mdp", "frozen-lake"), NETWORKS, seeds=3, budget=10_000, seconds=10.0),
}


def run_group(name: str, folder: pathlib.Path) -> None:
    """Runs what is missing of a group."""
    group = GROUPS[name]
    with sweep_watched(name) as watch:
        run_arena(group.contest(), folder / name, workers=1, seconds=group.seconds, watch=watch)


def stored(folder: pathlib.Path) -> Arena | None:
    """Returns the runs of all groups that have begun, those of a group that is not finished included."""
    found = []
    for name, group in GROUPS.items():
        if (folder / name).exists():
            found.append(read_runs(group.contest(), folder / name))
    if not found:
        return None
    arena = found[0].merged(*found[1:])
    return dataclasses.replace(arena, given={n: arena.given[n] for n in contestants() if n in arena.given})


def renewed(learners: Sequence[str], folder: pathlib.Path) -> Arena:
    """Returns the stored arena with the runs of some learners made again; those that cannot be made stay, and are named."""
    old = Arena.read(STORED)
    rows = {(r.contestant, r.world, r.seed): r for r in old.runs}
    made = dict[tuple[str, str, int], ArenaRun]()
    for name, group in GROUPS.items():
        asked = tuple(n for n in group.learners if n in learners)
        if not asked:  # a contest of nobody would be one of everybody
            continue
        contest = group._replace(learners=asked).contest()
        known = {c: rows.get((dict(c.varied)["learner"], c.world, c.settings.seed)) for c in contest.cells}
        cells = tuple(c for c, row in known.items() if row is not None)
        if cells:
            with sweep_watched(name) as watch:
                allowed = statistics.mode(row.seconds for row in known.values() if row is not None)
                todo = dataclasses.replace(contest, cells=cells)
                done = run_arena(todo, folder / name, workers=1, seconds=allowed, watch=watch)
            made |= {(r.contestant, r.world, r.seed): r for r in done.runs}
    for key in rows:
        if key[0] in learners and key not in made:
            print("not made again:", *key, file=sys.stderr)
    return dataclasses.replace(old, runs=tuple((rows | made).values()))


def write(arena: Arena) -> None:
    """Writes the stored results, a run in a line, and the figures of the documentation."""
    plain = arena.as_plain()
    rows = ",\n".join(json.dumps(row) for row in plain.pop("runs"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    STORED.write_text(f'{head},\n "runs": [\n{rows}\n]\n}}\n')
    with tempfile.TemporaryDirectory() as scratch:
        for file in write_arena(arena, pathlib.Path(scratch)):
            if file.stem in (EPISODES, CPU, PROFILES) and file.suffix == ".png":
                shutil.copyfile(file, FIGURES / file.name)
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{tables(arena)}\n{END}{rest.partition(END)[2]}")


def cell(met: Meeting | None, what: str) -> str:
    """Returns what one contestant did on one world, in a few words: "episodes", or "CPU" for CPU seconds and MiB."""
    if met is None:
        return words.NONE
    if what == "CPU":
        return f"{words.value(met.cpu_seconds.value)}, {met.memory:.0f}"
    solved = "not solved" if math.isinf(met.solved.value) else episodes_words(met.solved)
    star = "" if met.over_time or math.isinf(met.solved.value) else "*"
    some = f" ({met.share})" if met.n_solved < len(met.runs) else ""
    said = ""
    if math.isfinite(met.said.value):
        same = episodes_words(met.said) == solved  # it had no policy before
        said = ", said then" if same else f", said at {episodes_words(met.said)}"
    elif met.n_said:
        said = f", said in {met.n_said} of {len(met.runs)}"
    false = f", **{met.n_false} false**" if met.n_false else ""
    return f"{solved}{star}{some}{said}{false}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def by_horizon(view: ArenaView, family: str, what: str) -> str:
    """Returns the table of a family: contestants by horizons."""
    worlds = [w for w in view.worlds if w[0] == family]
    names = [n for n in view.contestants if any((n, w) in view.meetings for w in worlds)]
    head = ["learner", *(f"H = {h}" for _, h in worlds)]
    return markdown(head, ([f"`{n}`", *(cell(view.meetings.get((n, w)), what) for w in worlds)] for n in names))


def authors() -> str:
    """Returns the lines of PCID as its authors published it, below the CPU seconds of the lock with the same horizons."""
    told: dict[str, list[str]] = {}
    for row in json.loads(AUTHORS.read_text())["rows"]:
        if row["code"].startswith("authors"):
            told.setdefault(row["code"], []).append(f"{row['CPU seconds']:.3g}")
    return "".join(f"| {code} (not in the arena) | {' | '.join(seconds)} |\n" for code, seconds in told.items())


def of_world(view: ArenaView, world: World) -> str:
    """Returns the table of one world, the contestant with the fewest episodes first; those without time are in a line."""
    head = ["learner", "seeds", "episodes", "CPU seconds, peak MiB", "how it ended"]
    late = [m for m in view.of_world(world) if all(run.fate == LATE for run in m.runs)]
    rows = (
        [f"`{m.contestant}`", f"{len(m.runs)}", *(cell(m, what) for what in ("episodes", "CPU")), m.ending]
        for m in view.of_world(world)
        if m not in late
    )
    told = ", ".join(f"`{m.contestant}` ({m.seconds})" for m in late)
    return markdown(head, rows) + (f"\nOut of time in every run: {told}.\n" if told else "")


def break_even(view: ArenaView) -> str:
    """Returns from which cost of an episode on `betting`, up to its claim, is cheaper than a rival, up to its end."""
    rows = []
    for world in view.worlds:
        ours = view.meetings.get(("betting", world))
        if world[0] not in LOCKS or ours is None:
            continue
        told = [f"{world[0]}, H = {world[1]}"]
        if math.isinf(ours.said.value):
            rows.append([*told, *["not always said"] * len(RIVALS)])
            continue
        for name in RIVALS:
            met = view.meetings.get((name, world))
            if met is None or math.isinf(met.solved.value):
                told.append(words.NONE if met is None else "not solved")
                continue
            seconds = (ours.cpu_seconds.value - met.cpu_seconds.value) / (met.solved.value - ours.said.value)
            told.append("any" if seconds <= 0 else f"{1000 * seconds:.2g} ms")
        rows.append(told)
    return markdown(["world", *(f"`{name}`" for name in RIVALS)], rows)


def growth(view: ArenaView, name: str, family: str) -> str:
    """Returns the exponent of one contestant on one family, with its interval."""
    found = view.exponents.get((name, family))
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else words.NONE


def tables(arena: Arena) -> str:
    """Returns the tables of the document."""
    view = ArenaView(arena)
    seeds = ", ".join(
        f"{min(counts)} to {max(counts)} at H = {h}" if min(counts) < max(counts) else f"{min(counts)} at H = {h}"
        for h in sorted({h for family, h in view.worlds if family in LOCKS})
        for counts in [[len(m.runs) for m in view.meetings.values() if m.world[0] in LOCKS and m.world[1] == h]]
    )
    parts = [f"Seeds on the locks: {seeds}. {len(arena.runs):,} runs in all.\n"]
    for family in LOCKS:
        if any(w[0] == family for w in view.worlds):
            parts += [f"### {family}: episodes\n", by_horizon(view, family, "episodes")]
            more = authors() if family == "lock-bernoulli" else ""
            parts += [f"### {family}: CPU seconds of the run, and peak MiB\n", by_horizon(view, family, "CPU") + more]
    parts += ["### Break-even cost of an episode\n", break_even(view)]
    if view.exponents:
        names = dict.fromkeys(n for n, family in view.exponents if family in LOCKS)
        rows = ([f"`{n}`", *(growth(view, n, family) for family in LOCKS)] for n in names)
        parts += ["### Growth: episodes as H^p, with 95 % intervals\n", markdown(["learner", *LOCKS], rows)]
    for world in view.worlds:
        if world[0] not in LOCKS:
            parts += [f"### {world[0]}, H = {world[1]}\n", of_world(view, world)]
    return "\n".join(parts)


def main() -> None:
    """Runs the groups that are named, all where none is, and writes what came of everything so far."""
    folder, *names = sys.argv[1:]
    place = pathlib.Path(folder)
    if names[:1] == ["--renew"]:
        arena: Arena | None = renewed(names[1:], place)
    else:
        for name in GROUPS if not names else [n for n in names if n != "none"]:
            run_group(name, place)
        arena = stored(place)
    if arena is not None:
        write(arena)
        console = plain_console()
        console.width = 200
        console.print(arena_table(arena))


if __name__ == "__main__":
    main()
