"""The stored results of the arena: everybody on the worlds of `richobs arena`, in groups of what fits into the time.

Run with: python benchmarks/arena.py FOLDER [group ...]

Every group is an arena in a folder of its own under FOLDER; what is finished there is not run again, and a group that was
stopped goes on. At the end the runs of all groups are written to benchmarks/results/arena.json, the figures to docs/figures,
and the tables of docs/arena.md are made anew. The group "none" runs nothing.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import math
import pathlib
import shutil
import sys
import tempfile
from typing import NamedTuple

from richobs.runs.arena import Arena, plan_arena, read_runs, run_arena
from richobs.show import words
from richobs.show.arena import CPU, EPISODES, PROFILES, ArenaView, Meeting, arena_table, episodes_words, write_arena
from richobs.show.summary import plain_console
from richobs.show.sweep import sweep_watched

ROOT = pathlib.Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "results" / "arena.json"
FIGURES = ROOT / "docs" / "figures"
DOCUMENT = ROOT / "docs" / "arena.md"
BEGIN, END = "<!-- tables: made by benchmarks/arena.py -->\n", "<!-- end of the tables -->\n"

RIVALS = ("pcid", "pcid-small", "ppe", "homer")
CORE = ("betting", "certified", *RIVALS)
LINES = ("latent-q", "eprl")  # told what nobody sees: not rivals, but lines to compare with
LOCKS = ("lock-bernoulli", "lock-gaussian", "lock-stochastic")


class Group(NamedTuple):
    """An arena that is run as a whole."""

    worlds: tuple[str, ...]
    learners: tuple[str, ...] = ()  # all where none is named
    seeds: int = 10
    budget: int = 200_000
    seconds: float = 600.0


def at(horizon: int, *kinds: str) -> tuple[str, ...]:
    """Returns the locks of one horizon."""
    return tuple(f"lock/{horizon},noise_bits={horizon}{kind}" for kind in kinds)


KINDS = ("", ",noise=gaussian", ",swap=0.5")
GROUPS = {
    "short-locks": Group((*at(5, *KINDS), *at(10, *KINDS)), (*CORE, *LINES)),
    "middle-locks": Group(at(20, *KINDS), CORE, seeds=5),
    "long-rivals": Group(at(50, *KINDS), RIVALS, seeds=5),
    "long-certified": Group(at(50, *KINDS), ("certified",), seeds=3),
    "long-betting": Group(at(50, *KINDS), ("betting",), seeds=1, seconds=1_800.0),  # takes more than 10 GiB of memory
    "middle-lines": Group(at(20, *KINDS), LINES, seeds=3),
    "long-lines": Group(at(50, *KINDS), LINES, seeds=3),
    "others": Group(
        ("lock-failing", "diabolical-noisy", "random", "mdp", "mdp-stochastic", "deep-sea", "frozen-lake"),
        seeds=5,
        budget=20_000,
        seconds=60.0,
    ),
    "short-locks-all": Group(at(5, *KINDS), seeds=5, budget=20_000, seconds=60.0),
}


def run_group(name: str, folder: pathlib.Path) -> None:
    """Runs what is missing of a group."""
    group = GROUPS[name]
    contest = plan_arena(group.worlds, group.learners, seeds=range(group.seeds), budget=group.budget)
    with sweep_watched(name) as watch:
        run_arena(contest, folder / name, workers=1, seconds=group.seconds, watch=watch)


def stored(folder: pathlib.Path) -> Arena | None:
    """Returns the runs of all groups that have begun, those of a group that is not finished included."""
    found = []
    for name, group in GROUPS.items():
        if (folder / name).exists():
            contest = plan_arena(group.worlds, group.learners, seeds=range(group.seeds), budget=group.budget)
            found.append(read_runs(contest, folder / name))
    return found[0].merged(*found[1:]) if found else None


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


def cell(met: Meeting | None, cpu: bool) -> str:
    """Returns what one contestant did on one world, in a few words."""
    if met is None:
        return words.NONE
    if cpu:
        return words.value(met.cpu_seconds.value)
    solved = "not solved" if math.isinf(met.solved.value) else episodes_words(met.solved)
    star = "" if met.over_time or math.isinf(met.solved.value) else "*"
    some = f" ({met.share})" if met.n_solved < len(met.runs) else ""
    said = f", said at {episodes_words(met.said)}" if math.isfinite(met.said.value) else ""
    false = f", **{met.n_false} false**" if met.n_false else ""
    return f"{solved}{star}{some}{said}{false}"


def table(view: ArenaView, families: list[str], cpu: bool) -> str:
    """Returns a table in Markdown: contestants by worlds."""
    worlds = [w for w in view.worlds if w[0] in families]
    names = [n for n in view.contestants if any((n, w) in view.meetings for w in worlds)]
    lines = [
        "| learner | " + " | ".join(f"{family}, H = {h}" for family, h in worlds) + " |",
        "|---" * (len(worlds) + 1) + "|",
    ]
    for name in names:
        told = [cell(view.meetings.get((name, world)), cpu) for world in worlds]
        lines.append(f"| `{name}` | " + " | ".join(told) + " |")
    return "\n".join(lines) + "\n"


def tables(arena: Arena) -> str:
    """Returns the tables of the document."""
    view = ArenaView(arena)
    rest = [family for family, _ in view.worlds if family not in LOCKS]
    seeds = ", ".join(
        f"{min(counts)} to {max(counts)} at H = {h}" if min(counts) < max(counts) else f"{min(counts)} at H = {h}"
        for h in sorted({h for family, h in view.worlds if family in LOCKS})
        for counts in [[len(m.runs) for m in view.meetings.values() if m.world[0] in LOCKS and m.world[1] == h]]
    )
    parts = [f"Seeds on the locks: {seeds}. {len(arena.runs):,} runs in all.\n"]
    for family in LOCKS:
        if any(w[0] == family for w in view.worlds):
            parts += [f"### {family}: episodes\n", table(view, [family], False)]
            parts += [f"### {family}: CPU seconds of the run\n", table(view, [family], True)]
    if rest:
        parts += ["### Other worlds: episodes\n", table(view, rest, False)]
        parts += ["### Other worlds: CPU seconds of the run\n", table(view, rest, True)]
    if view.exponents:
        lines = [
            f"| `{n}` | {f} | {e.value:.2f} | {e.low:.2f} to {e.high:.2f} |" for (n, f), e in view.exponents.items()
        ]
        head = "| learner | worlds | p | 95 % interval |\n|---|---|---|---|\n"
        parts += ["### Growth: episodes as H^p\n", head + "\n".join(lines) + "\n"]
    return "\n".join(parts)


def main() -> None:
    """Runs the groups that are named, all where none is, and writes what came of everything so far."""
    folder, *names = sys.argv[1:]
    place = pathlib.Path(folder)
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
