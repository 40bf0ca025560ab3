"""What several tests share: stored runs, real ones and one large enough to be unwieldy, and an executor."""

import dataclasses
import itertools
import json
import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path

from richobs.core.events import Progress
from richobs.core.ledger import Ledger
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.learners import learner
from richobs.runs.certificate import Certificate
from richobs.runs.session import run as learn
from richobs.runs.store import StoredRun, keep_verification
from richobs.runs.verify import verify as verify_certificate
from richobs.worlds.registry import make
from richobs_lab.lsvee.dfs import ConsensusTested, NodeEliminated


def stored(world="lock/5", *, verify=False, **settings) -> StoredRun:
    """Runs a world in a folder and returns what the store tells of it."""
    problem = make(world)
    with tempfile.TemporaryDirectory() as folder:
        outcome = learn(problem, Settings(**settings), out=folder)
        if verify:
            keep_verification(folder, verify_certificate(Certificate.of(outcome, problem), problem))
        run = StoredRun.read(folder)
    return dataclasses.replace(run, folder=Path("runs") / world.replace("/", "-"))


def faults(outcome, problem, change=lambda content: None) -> list[str]:
    """Returns what the learner of a run finds wrong in its certificate, after a change of the certificate's content."""
    content = json.loads(Certificate.of(outcome, problem).to_json())
    change(content)
    findings = learner(outcome.learner).recheck(content, problem, outcome.settings)
    return [f"{finding.what}: {finding.detail}" for finding in findings if not finding.agrees]


def cut_short(run: StoredRun, n: int, state="unfinished", message="") -> StoredRun:
    """Returns a run as it stood after its n-th test."""
    ledger = Ledger()
    for entry in itertools.islice(run.ledger, 3):
        ledger.charge(entry.phase, entry.purpose, entry.path, entry.episodes)
    return dataclasses.replace(
        run, state=state, message=message, steps=run.steps[:n], ledger=ledger, certificate=None, verification=None
    )


def large(nodes=2000, horizon=20, tests=2000, n_actions=4) -> StoredRun:
    """Returns a made-up run of LSVEE as printed that visited as many nodes, to a depth of `horizon` - 1."""
    rng = keyed_generator(0, "a large tree")
    paths = {()}
    while len(paths) < nodes:
        length = int(rng.integers(horizon // 2, horizon))
        base = sorted(paths)[int(rng.integers(len(paths)))]
        path = (*base, *map(int, rng.integers(n_actions, size=length)))[: horizon - 1]
        for end in range(1, len(path) + 1):
            if len(paths) < nodes:
                paths.add(path[:end])
    ledger, steps, size = Ledger(), [], 100.0
    order = sorted(paths)
    inner = {path[:-1] for path in order if path}
    for i in range(tests):
        path = order[i % len(order)]
        n, phase, statistic = 10 ** (3 + len(path) % 5), "search" if i % 7 else "demand", float(rng.random())
        before, size = size, max(size - (0.04 if path in inner and i % 3 else 0.0), 0.0)
        common = {"phase": phase, "path": path, "n": n, "log_size_before": before, "log_size_after": size}
        if path in inner:
            event = NodeEliminated(least=statistic, cutoff=0.5, **common)
        else:
            event = ConsensusTested(agree=True, spread=statistic, eps_test=0.5, **common)
        ledger.charge(phase, event.kind, path, n)
        steps.append(Progress(event, ledger.total))
    asked = {"settings": Settings(learner="lsvee"), "horizon": horizon, "n_actions": n_actions, "log_size": 100.0}
    found = {"steps": tuple(steps), "ledger": ledger, "certificate": None, "verification": None}
    return StoredRun(folder=Path("runs/large"), world="large/20", state="running", message="", **asked, **found)


class Here(Executor):
    """Does what is submitted at once, in this process, and notes which cells."""

    def __init__(self):
        self.cells = []

    def submit(self, fn, /, *args):
        self.cells.append(args[0].run)
        future = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future
