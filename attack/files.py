"""Files that were damaged or forged: `python -m attack.files --n 10000 --seed 0`.

Small runs are made, their files changed one at a time, and everything that reads them is tried: verify, show, runs, report,
resume and the functions that load. Each attempt is a process of its own under a memory limit and a time limit. It must end
in a refusal that says why, or in an acceptance of what the run really claims.

Who may write a run's folder can write another run. So where a file was forged (whatever needs no secret was computed again),
only `verify` has to notice that it claims something else, because it draws everything again. The others must still take
little memory and time, run no code of the file, and answer in a sentence.
"""

import collections
import json
import os
import pathlib
import resource
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from attack import hostile
from attack.common import arguments, as_records, say_how_far, write_results
from attack.common import show as show_table
from attack.damage import Case, altered_fields, altered_rows, damaged_bytes, sampled
from attack.isolation import MEMORY, SECONDS, Attempt, Kind, address_space, attempted, is_supported
from attack.victims import ACTIONS, REDERIVES, Victim, build

SHARES = {"fields": 0.24, "rows": 0.12}  # of all cases; what hostile files leave over are single bytes
COLUMNS = ("what was changed", "files", "attempts", *(kind.value for kind in Kind), "most MiB", "most CPU s")
KEPT = 60  # failures that a results file describes
MIB = 2**20


def chosen(victims: Sequence[Victim], n: int, seed: int) -> list[Case]:
    """Returns n cases: hostile files, altered fields and rows, and damaged bytes."""
    rng = np.random.default_rng(seed)
    made = hostile.cases(victims)
    found = sampled(rng, made, min(len(made), n // 3))
    found += altered_fields(victims, rng, int(SHARES["fields"] * n))
    found += altered_rows(victims, rng, int(SHARES["rows"] * n))
    return [*found, *damaged_bytes(victims, rng, n - len(found))]


def attempts(case: Case, victim: Victim, place: pathlib.Path) -> list[tuple[str, Attempt]]:
    """Changes the files of a run, does what can notice it, each on a folder of its own, and returns what became of it."""
    files = case.alter(victim.files)
    found = []
    for name in case.actions:
        judged = victim.unchecked() if case.is_forged and name not in REDERIVES else victim
        with tempfile.TemporaryDirectory(dir=place) as around:
            folder = victim.lay_out(pathlib.Path(around), files)
            if case.arrange is not None:
                case.arrange(folder)
            found.append((name, _attempted(name, judged, folder)))
    return found


def _attempted(name: str, victim: Victim, folder: pathlib.Path) -> Attempt:
    def act() -> str:
        os.chdir(folder.parent)  # where hostile code leaves its mark
        return ACTIONS[name](victim, folder)

    return attempted(act, marker=folder.parent / hostile.MARKER)


def attack(n: int, seed: int) -> dict[str, Any]:
    """Makes the runs and n cases, tries all of them, and returns what became of them, in plain values."""
    groups: dict[str, list[tuple[Case, str, Attempt]]] = collections.defaultdict(list)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        victims = {victim.name: victim for victim in build(place)}
        cases = chosen(list(victims.values()), n, seed)
        for i, case in enumerate(cases):
            tried = attempts(case, victims[case.victim], place)
            groups[case.group] += [(case, *attempt) for attempt in tried]
            failed = [_failure(case, *attempt) for attempt in tried if not attempt[1].kind.is_good]
            failures += bool(failed)
            for failure in failed:
                print(json.dumps(failure), flush=True)
            if i % 100 == 99:
                say_how_far(i + 1, len(cases), failures)
        own = address_space()
    counts = collections.Counter(case.group for case in cases)
    rows = [_row(group, counts[group], [a for *_, a in tried]) for group, tried in groups.items()]
    everything = [entry for tried in groups.values() for entry in tried]
    rows.append(_row("all", len(cases), [a for *_, a in everything]))
    bad = [(case, name, a) for case, name, a in everything if not a.kind.is_good]
    return {
        "command": f"python -m attack.files --n {n} --seed {seed}",
        "cases": len(cases),
        "attempts": len(everything),
        "failures": len({id(case) for case, *_ in bad}),
        "limits": {"CPU seconds": SECONDS, "bytes above the parent's": MEMORY, "parent's bytes": own},
        "cpu_minutes": round(_cpu_seconds() / 60, 1),
        "table": as_records(COLUMNS, rows),
        "by_action": _by_action(everything),
        "failed": [_failure(*entry) for entry in bad[:KEPT]],
    }


def _failure(case: Case, name: str, attempt: Attempt) -> dict[str, str]:
    """Returns what must not happen, in plain values."""
    said = attempt.said[-300:]
    return {"victim": case.victim, "changed": case.about, "action": name, "kind": attempt.kind.value, "said": said}


def _row(group: str, files: int, tried: Sequence[Attempt]) -> list[Any]:
    kinds = collections.Counter(attempt.kind for attempt in tried)
    most = max((attempt.memory for attempt in tried), default=0) / MIB
    longest = max((attempt.seconds for attempt in tried), default=0.0)
    return [group, files, len(tried), *(kinds[kind] for kind in Kind), round(most), round(longest, 1)]


def _by_action(tried: Sequence[tuple[Case, str, Attempt]]) -> dict[str, dict[str, int]]:
    """Returns how often each action ended how."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for _, name, attempt in tried:
        counts[name][attempt.kind.value] += 1
    return {name: dict(sorted(kinds.items())) for name, kinds in sorted(counts.items())}


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main(given: Sequence[str] | None = None) -> int:
    """Attacks, prints the table, writes the results; the exit status is 1 where anything failed."""
    asked = arguments("Damage and forge the files of small runs, and try everything that reads them.", 10_000)
    options = asked.parse_args(given)
    if not is_supported():
        print("attack.files needs forks, RLIMIT_AS and /proc: Linux.")
        return 2
    found = attack(options.n, options.seed)
    rows = [list(row.values()) for row in found["table"]]
    note = f"{found['failures']:,} of {found['cases']:,} files led to something that must not happen."
    show_table("Damaged and forged files", COLUMNS, rows, note)
    print(write_results("files", found, options.results))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
