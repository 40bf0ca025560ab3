"""Stored runs for tests of the report: real ones, and one large enough to be unwieldy."""

import dataclasses
import itertools
import math
import tempfile
from pathlib import Path

import richobs
from richobs.engines import Ledger
from richobs.learning import Settings
from richobs.outcome import Event, Progress
from richobs.randomness import keyed_generator
from richobs.store import StoredRun, keep_verification


def stored(world="lock/5", *, verify=False, **settings) -> StoredRun:
    """Runs a world in a folder and returns what the store tells of it."""
    problem = richobs.make(world)
    with tempfile.TemporaryDirectory() as folder:
        outcome = richobs.learn(problem, out=folder, **settings)
        if verify:
            keep_verification(folder, richobs.verify(richobs.certify(outcome, problem), problem))
        run = StoredRun.read(folder)
    return dataclasses.replace(run, folder=Path("runs") / world.replace("/", "-"))


def cut_short(run: StoredRun, n: int, state="unfinished", message="") -> StoredRun:
    """Returns a run as it stood after its n-th test."""
    ledger = Ledger()
    for entry in itertools.islice(run.ledger, 3):
        ledger.charge(entry.phase, entry.purpose, entry.path, entry.episodes)
    return dataclasses.replace(
        run, state=state, message=message, steps=run.steps[:n], ledger=ledger, certificate=None, verification=None
    )


def large(nodes=2000, horizon=20, tests=2000, n_actions=4) -> StoredRun:
    """Returns a made-up run of the paper's schedule that visited as many nodes, to a depth of `horizon` - 1."""
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
        kind = "elimination" if path in inner else "consensus"
        n = 10 ** (3 + len(path) % 5)
        ledger.charge("search" if i % 7 else "demand", kind, path, n)
        before, size = size, size - (0.04 if kind == "elimination" and i % 3 else 0.0)
        verdict = "dropped" if kind == "elimination" else "agree"
        phase = "search" if i % 7 else "demand"
        event = Event(kind, phase, path, verdict, float(rng.random()), 0.5, n, before, max(size, 0.0))
        steps.append(Progress(event, ledger.total))
    return StoredRun(
        folder=Path("runs/large"),
        world="large/20",
        settings=Settings(schedule="paper"),
        horizon=horizon,
        n_actions=n_actions,
        log_size=100.0,
        state="running",
        message="",
        steps=tuple(steps),
        ledger=ledger,
        certificate=None,
        verification=None,
        plan=richobs.plan(horizon=horizon, n_actions=n_actions, n_states=3, log_size=100 * math.log(10) / 2.3),
    )
