"""Two processes at once: `python -m attack.pairs --n 600 --seed 0`.

For every pair of commands, two processes begin in one folder, the second a random time after the first. Who needs the folder
alone has it, and the other gets a sentence; readers read while it is written. Nobody ends in a traceback, and afterwards the
folder is what an undisturbed run leaves, or goes on to that.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import collections
import contextlib
import io
import itertools
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attack.common import arguments, as_records, say_how_far, write_results
from attack.common import show as show_table
from attack.isolation import is_supported
from attack.killed import REFUSED, RUN, Recovery, Target, Undisturbed, attempt, emptied, load_everything, undisturbed
from richobs.cli import main as richobs
from richobs.runs.store import VERIFICATION

WORLD = "lock/3"
TARGET = Target(WORLD, (WORLD,))
LEARN = ["learn", WORLD, "--out", RUN, "--quiet"]
WRITERS = {
    "learn": LEARN,
    "resume": ["resume", RUN, "--quiet"],
    "learn --overwrite": [*LEARN, "--overwrite"],
    "learn for more": ["resume", RUN, "--quiet", "--max-episodes", "100000"],
}
READERS = {
    "show": ["show", RUN],
    "runs": ["show", "."],
    "report": ["report", RUN, "--out", "page.html"],
    "verify": ["verify", RUN, "--quiet"],
}
COMMANDS = WRITERS | READERS
BEFORE = ("nothing", "a finished run", "a killed run")
SENTENCES = (  # that a command may answer with where another process is there, or was first
    "another process is running in",
    "another process has begun to change it since",
    "there is no run in",
    "has no certificate: it is",
    "there is no certificate",
    "there is no folder",
    "no runs in",
)
ANSWERED, SENTENCE, BOTH, TROUBLE = "both answered", "one got a sentence", "both got a sentence", "TROUBLE"
COLUMNS = ("who was first", "cases", ANSWERED, SENTENCE, BOTH, TROUBLE)


class Pair(NamedTuple):
    """Two commands that begin nearly at once."""

    first: str
    second: str
    before: str  # what is in the folder
    after: float  # of an undisturbed run's seconds, until the second begins


def pairs(n: int, seed: int) -> list[Pair]:
    """Returns n pairs: all pairs with one writer at least, again and again, at random moments."""
    rng = np.random.default_rng(seed)
    every = [p for p in itertools.product(COMMANDS, COMMANDS) if set(p) & set(WRITERS)]
    found = []
    for first, second in itertools.islice(itertools.cycle(every), n):
        after = 0.0 if rng.random() < 0.3 else float(rng.uniform(0, 1.2))
        found.append(Pair(first, second, BEFORE[int(rng.integers(len(BEFORE)))], after))
    return found


def both(place: Path, pair: Pair, seconds: float) -> list[tuple[int, str]]:
    """Runs both commands, and returns their exit statuses and what they said."""

    def begun(name: str, wait: float) -> tuple[int, str]:
        def work() -> int:
            time.sleep(wait)
            return richobs(COMMANDS[name])

        ended = attempt(place, work)
        return ended.status, ended.output

    said = place.with_name("second.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of idle threads, which no child needs
        helper = os.fork()
    if helper == 0:
        try:
            said.write_text(json.dumps(begun(pair.second, pair.after * seconds)))
        finally:
            os._exit(0)
    first = begun(pair.first, 0.0)
    os.waitpid(helper, 0)
    status, text = json.loads(said.read_text())
    return [first, (status, text)]


def tried(pair: Pair, scratch: Path, wanted: Undisturbed) -> tuple[str, str]:
    """Tries one pair, and returns what became of it, and what must not have happened."""
    place = emptied(scratch / "pair")
    if pair.before != "nothing":
        shutil.copytree(scratch / pair.before / RUN, place / RUN)
    ended = both(place, pair, wanted.seconds)
    sentences = 0
    for name, (status, text) in zip((pair.first, pair.second), ended, strict=True):
        known = status == REFUSED and any(sentence in text for sentence in SENTENCES)
        sentences += known
        if "Traceback" in text or "Exception ignored" in text or not (known or status == 0):
            return TROUBLE, f"{name} ended with {status}: {text[-1500:]}"
    (place / RUN / VERIFICATION).unlink(missing_ok=True)  # `verify` keeps what it found
    recovery = Recovery(TARGET, place, wanted)
    fate = recovery.finish(False)
    if not fate.is_good:
        return TROUBLE, f"{fate}: {recovery.trouble}"
    return (ANSWERED, SENTENCE, BOTH)[sentences], ""


def attack(n: int, seed: int) -> dict[str, Any]:
    """Tries n pairs, and returns what became of them, in plain values."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    troubles = []
    with tempfile.TemporaryDirectory(prefix="richobs-pairs-") as name:
        scratch = Path(name).resolve()
        with contextlib.redirect_stdout(io.StringIO()):
            load_everything(scratch / "first")
        wanted = undisturbed(TARGET, scratch / BEFORE[1])
        attempt(emptied(scratch / BEFORE[2]), TARGET.learn, kill_after=0.6 * wanted.seconds)
        (scratch / BEFORE[2] / RUN).mkdir(exist_ok=True)
        chosen = pairs(n, seed)
        for i, pair in enumerate(chosen):
            fate, trouble = tried(pair, scratch, wanted)
            for row in (pair.first, "all"):
                counts[row]["cases"] += 1
                counts[row][fate] += 1
            if trouble:
                troubles.append(f"{pair}: {trouble}")
                print(troubles[-1], flush=True)
            if i % 100 == 99:
                say_how_far(i + 1, len(chosen), len(troubles))
    rows = [[name, *(counts[name][column] for column in COLUMNS[1:])] for name in (*COMMANDS, "all")]
    return {
        "command": f"python -m attack.pairs --n {n} --seed {seed}",
        "cases": len(chosen),
        "failures": len(troubles),
        "troubles": troubles[:60],
        "table": as_records(COLUMNS, rows),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Attacks, prints the table, writes the results; the exit status is 1 where anything failed."""
    options = arguments("Let two processes begin in one folder, for every pair of commands.", 600).parse_args(given)
    if not is_supported():
        print("attack.pairs needs forks: Linux.")
        return 2
    found = attack(options.n, options.seed)
    show_table("Two processes at once", COLUMNS, [list(row.values()) for row in found["table"]])
    print(write_results("pairs", found, options.results))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
