"""Inputs that nobody should give: `python -m attack.inputs --n 5000 --seed 0`.

Hypothesis makes command lines, arguments of everything public, broken environments and broken classes. Each is tried in a
process of its own under a memory limit and a time limit. The answer must be a value, or an error that says what was wrong
(a `RichObsError`, or what the parser of the command line says). An error that an environment or a class itself raises is
passed on unchanged. Anything else is a failure.
"""

import collections
import dataclasses
import functools
import inspect
import os
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given
from hypothesis import seed as seeded
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import richobs
import richobs_lab.assumptions
import richobs_lab.prototypes
from attack import strategies
from attack.calls import Call, in_short
from attack.common import arguments, as_records, write_results
from attack.common import show as show_table
from attack.isolation import MEMORY, SECONDS, Attempt, Kind, attempted, command, is_supported, refused
from attack.spoiled_sweeps import FAST, Here, sweep_calls
from attack.strategies import (
    CLASS_FAULTS,
    FAULTS,
    LEARNER_NAMES,
    LINES,
    ODD_VALUES,
    RAISING,
    SMALL,
    WORLD_IDS,
    DeclaredLevel,
    Faulty,
    FaultyClass,
    is_meant,
)
from richobs.classes.learned_policy import LearnedPolicy
from richobs.learners import LEARNERS, learner
from richobs.runs.certificate import Certificate
from richobs.runs.store import StoredRun
from richobs.worlds import WORLDS
from richobs.worlds.registry import config_class
from richobs_lab.arena.contest import Arena, plan_arena, run_arena
from richobs_lab.lsvee import PaperConstants
from richobs_lab.sweep import sweep

COLUMNS = (
    "what was given",
    "inputs",
    "answered",
    "refused",
    *(k.value for k in Kind if not k.is_good),
    "most MiB",
    "most s",
)
KEPT = 60  # failures that a results file describes
FEW = 200  # episodes that an attempt may play
MIB = 2**20


@functools.cache
def _problem() -> richobs.Problem:
    return richobs.make(SMALL)


@functools.cache
def _outcome() -> richobs.Outcome:
    return richobs.learn(_problem(), epsilon=0.3, progress=False)


@functools.cache
def _certificate() -> Certificate:
    return Certificate.of(_outcome(), _problem())


def _own_class(fault: str = "none") -> richobs.FunctionClass:
    return richobs.Callables([FaultyClass(fault), FaultyClass("none")], 2, 2)


def _functions() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Returns what is public and takes arguments, with good ones; any of them is replaced."""
    problem, table = _problem(), np.full((2, 2, 2), 0.5)
    level = richobs.classes.TableLevel(table)
    good_model: dict[str, Any] = {
        "horizon": 2,
        "start": np.array([1.0, 0.0]),
        "probability": np.ones((2, 2, 1)),
        "next": np.zeros((2, 2, 1), np.int64),
        "reward": np.full((2, 2, 1), 0.25),
        "done": np.zeros((2, 2, 1), bool),
    }
    process = {
        "start": np.array([1.0]),
        "transitions": (np.zeros((1, 2), np.int64),),
        "emissions": (np.array([[0.5, 0.5]]),) * 2,
        "rewards": (richobs.Rewards(np.array([0.0, 0.5]), np.full((1, 2, 2), 0.5)),) * 2,
    }
    played = richobs.Episodes([np.zeros(2)], [np.zeros(2, int)], [np.zeros(2)])
    return {
        "learn": (richobs.learn, {"env": problem, "max_episodes": FEW, "epsilon": 0.3, "progress": False}),
        "certify_policy": (
            richobs.certify_policy,
            {
                "env": problem,
                "policy": richobs.OpenLoop((0, 0)),
                "max_episodes": FEW,
                "threshold": 0.2,
                "progress": False,
            },
        ),
        "plan": (richobs.plan, {"env": problem}),
        "plan sizes": (
            PaperConstants.of,
            {"horizon": 2, "n_actions": 2, "n_states": 2, "log_size": 3.0, "epsilon": 0.1, "delta": 0.05},
        ),
        "audit": (richobs_lab.assumptions.audit, {"given": problem, "sequences": 2, "episodes": 8}),
        "check_assumptions": (richobs_lab.assumptions.check_assumptions, {"process": problem}),
        "verify": (richobs.verify, {"certificate": _certificate(), "problem": problem}),
        "Certificate.of": (richobs.Certificate.of, {"outcome": _outcome(), "problem": problem}),
        "Problem": (richobs.Problem, {"env": problem.env, "functions": problem.functions}),
        "Settings": (_checked_settings, {}),
        "StoredRun.discard": (richobs.StoredRun.discard, {"folder": "x"}),
        "StoredRun.read": (StoredRun.read, {"folder": "x"}),
        "Certificate.load": (Certificate.load, {"file": "x"}),
        "Certificate.save": (_certificate().save, {"file": "x"}),
        "Episodes.load": (richobs.Episodes.load, {"file": "x"}),
        "Episodes.save": (played.save, {"file": "x"}),
        "LearnedPolicy.load": (_loaded, {"file": "x"}),
        "LearnedPolicy.save": (_saved, {"file": "x"}),
        "LearnedPolicy": (richobs.LearnedPolicy, {"functions": problem.functions, "member": 0}),
        "LearnedPolicy.actions": (_acted, {"level": 0, "x": np.zeros((2, 5))}),
        "LearnedPolicy.predict": (LearnedPolicy.open_loop((0, 1), 2).predict, {"observation": np.zeros(2)}),
        "Problem.value": (problem.value, {"policy": richobs.OpenLoop((0, 0)), "episodes": 8}),
        "LearnedPolicy.open_loop": (richobs.LearnedPolicy.open_loop, {"path": (0, 1), "n_actions": 2}),
        "LearnedPolicy.from_table": (richobs.LearnedPolicy.from_table, {"codebooks": [None], "actions": [[0, 1]]}),
        "Tables": (richobs.Tables, {"tables": [table, table]}),
        "TableLevel": (richobs.classes.TableLevel, {"tables": table}),
        "Constants": (richobs.Constants, {"table": [[0.1, 0.9]]}),
        "Linear": (
            richobs.Linear,
            {"features": "identity", "parameters": np.zeros((2, 4)), "horizon": 2, "n_actions": 2},
        ),
        "LinearLevel": (
            richobs.classes.LinearLevel,
            {"features": "identity", "parameters": np.zeros((2, 4)), "n_actions": 2},
        ),
        "Callables": (richobs.Callables, {"functions": [FaultyClass("none")], "horizon": 2, "n_actions": 2}),
        "CallableLevel": (
            richobs.classes.CallableLevel,
            {"functions": [FaultyClass("none")], "level": 0, "n_actions": 2},
        ),
        "Decoders": (richobs.classes.Decoders, {"n_coordinates": 3, "worth": np.full((2, 2), 0.5)}),
        "Prototypes": (
            richobs_lab.prototypes.Prototypes,
            {"centres": np.zeros((2, 3)), "which": np.zeros((1, 2), int), "tables": np.full((1, 2, 2), 0.5)},
        ),
        "Layered": (richobs.Layered, {"levels": [level, level]}),
        "Listed": (richobs.Listed, {"levels": [level, level]}),
        "Model": (richobs.Model, good_model),
        "Simulators": (richobs.Simulators, {"models": [richobs.Model(**good_model)]}),
        "TabularProcess": (richobs.TabularProcess, process),
        "Rewards": (richobs.Rewards, {"values": np.array([0.0, 0.5]), "probs": np.full((1, 2, 2), 0.5)}),
        "OpenLoop": (_played(richobs.OpenLoop), {"path": (0, 1)}),
        "Uniform": (_played(richobs.Uniform), {"n_actions": 4}),
        "Explore": (
            _played(richobs.core.policies.Explore),
            {"policy": richobs.Uniform(4), "share": 0.5, "n_actions": 4},
        ),
        "Switch": (
            _played(richobs.Switch),
            {"first": richobs.Uniform(4), "level": 1, "then": richobs.OpenLoop((0, 1))},
        ),
        "Episodes": (
            _recorded,
            {"observations": [np.zeros(2)] * 2, "actions": [np.zeros(2, int)] * 2, "rewards": [np.zeros(2)] * 2},
        ),
        "from_gymnasium": (richobs.from_gymnasium, {"env": "CartPole-v1", "horizon": 3, "reward_range": (0.0, 3.0)}),
        "TensorBoard": (richobs.TensorBoard, {"folder": "x"}),
        "sweep": (sweep, {"world": SMALL, "out": "x", "seeds": "0:1", **FAST, "executor": Here()}),
        "plan_arena": (plan_arena, {"worlds": [SMALL], "learners": ["betting"], "seeds": [0]}),
        "run_arena": (_arena_run, {"folder": "x", "executor": Here()}),
        "Arena.read": (_arena_read, {"file": "x"}),
    }


def _arena_run(folder: Any, executor: Any, workers: Any = None, seconds: Any = None) -> object:
    contest = plan_arena([SMALL], ["betting"], seeds=[0], budget=20)
    return run_arena(contest, folder, executor=executor, workers=workers, seconds=seconds)


def _arena_read(file: Any) -> object:
    return Arena.read(file)


def _checked_settings(**given: Any) -> None:
    richobs.Settings(**given).check()


def _loaded(file: Any) -> object:
    return richobs.LearnedPolicy.load(file)


def _saved(file: Any) -> None:
    LearnedPolicy.open_loop((0, 1), 2).save(file)


def _acted(level: Any, x: Any) -> object:
    return LearnedPolicy.open_loop((0, 1), 2).actions(level, x)


def _recorded(**columns: Any) -> object:
    return richobs.learn(
        _problem(), episodes=richobs.Episodes(**columns), max_episodes=FEW, epsilon=0.3, progress=False
    )


def _played(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what makes a policy and certifies its value, with the parameters of that policy."""

    @functools.wraps(kind)
    def play(*given: Any, **named: Any) -> object:
        return richobs.certify_policy(_problem(), kind(*given, **named), threshold=0.2, max_episodes=8, progress=False)

    vars(play)["__signature__"] = inspect.signature(kind)  # where `inspect` looks for it
    return play


def _replaced(name: str, changes: dict[str, Any]) -> Call:
    function, good = _functions()[name]
    words = ", ".join(f"{k}={in_short(v)}" for k, v in changes.items())
    return Call("arguments", f"{name}({words})", lambda: function(**{**good, **changes}))


def _argument_calls() -> SearchStrategy[Call]:
    """Returns calls of everything public with one or two arguments replaced."""
    names = []
    for name, (function, good) in _functions().items():
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        found = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]
        if function is _checked_settings:
            found = list(inspect.signature(richobs.Settings).parameters)
        if function is _recorded:
            found = list(inspect.signature(richobs.Episodes).parameters)
        found = found or list(good)
        if function is sweep:
            found += [f.name for f in dataclasses.fields(richobs.Settings)] + ["horizon"]
        names += [(name, parameter) for parameter in found]
    one = st.builds(lambda at, value: _replaced(at[0], {at[1]: value}), st.sampled_from(names), ODD_VALUES)
    of_one: dict[str, list[str]] = collections.defaultdict(list)
    for name, parameter in names:
        of_one[name].append(parameter)

    @st.composite
    def two(draw: st.DrawFn) -> Call:
        name = draw(st.sampled_from([n for n, found in of_one.items() if len(found) > 1]))
        first, second = draw(st.permutations(of_one[name]))[:2]
        return _replaced(name, {first: draw(ODD_VALUES), second: draw(ODD_VALUES)})

    return st.one_of(one, one, two())


def _world_calls() -> SearchStrategy[Call]:
    """Returns worlds with odd parameters."""
    places = [(w, p) for w in WORLDS for p in inspect.signature(config_class(w)).parameters]

    def build(at: tuple[str, str], value: Any) -> Call:
        return Call(
            "worlds", f"make({at[0]!r}, {at[1]}={in_short(value)})", lambda: richobs.make(at[0], **{at[1]: value})
        )

    def by_id(id: str) -> Call:
        return Call("worlds", f"make({in_short(id)})", lambda: richobs.make(id))

    numbers = st.one_of(ODD_VALUES, st.integers(-3, 40), st.floats(-1, 2))
    return st.one_of(st.builds(build, st.sampled_from(places), numbers), st.builds(by_id, WORLD_IDS))


def _environment_calls() -> SearchStrategy[Call]:
    """Returns learning, certifying and auditing with a broken environment or a broken class."""

    def learn(fault: str, learner: str, out: bool) -> Call:
        def act() -> object:
            folder = "x" if out else None
            given: dict[str, Any] = {
                "epsilon": 0.4,
                "max_episodes": FEW,
                "progress": False,
                "n_states": 2,
                "out": folder,
            }
            return richobs.learn(Faulty(fault), _own_class(), learner=learner, **given)

        return Call("environments", f"learn({learner}) where {fault}", act)

    def certified(fault: str) -> Call:
        def act() -> object:
            policy = richobs.Uniform(2)
            return richobs.certify_policy(Faulty(fault), policy, threshold=0.2, max_episodes=FEW, progress=False)

        return Call("environments", f"certify_policy where {fault}", act)

    def audited(fault: str) -> Call:
        return Call(
            "environments",
            f"audit where {fault}",
            lambda: richobs_lab.assumptions.audit(Faulty(fault), sequences=3, episodes=16),
        )

    def by_class(fault: str, learner: str, out: bool) -> Call:
        def act() -> object:
            folder = "x" if out else None
            given: dict[str, Any] = {
                "epsilon": 0.4,
                "max_episodes": FEW,
                "progress": False,
                "n_states": 2,
                "out": folder,
            }
            return richobs.learn(Faulty("none"), _own_class(fault), learner=learner, **given)

        return Call("classes", f"learn({learner}) with values that are {fault}", act)

    def declared(facts: dict[str, Any], out: bool) -> Call:
        def act() -> object:
            functions = richobs.Layered([DeclaredLevel(**facts), DeclaredLevel(**facts)])
            given: dict[str, Any] = {"epsilon": 0.4, "max_episodes": FEW, "out": "x" if out else None}
            return richobs.learn(Faulty("none"), functions, progress=False, **given)

        return Call("classes", f"learn() with a class that declares {in_short(facts)}", act)

    faults, values = st.sampled_from(FAULTS), st.sampled_from(list(CLASS_FAULTS))
    small = ODD_VALUES.filter(lambda v: not is_meant(v))
    facts = st.dictionaries(st.sampled_from(["size", "n_actions", "value_range"]), small, min_size=1)
    return st.one_of(
        st.builds(declared, facts, st.booleans()),
        st.builds(learn, faults, LEARNER_NAMES, st.booleans()),
        st.builds(certified, faults),
        st.builds(audited, faults),
        st.builds(by_class, values, LEARNER_NAMES, st.booleans()),
    )


def _line_calls() -> SearchStrategy[Call]:
    """Returns command lines."""

    def build(line: list[str]) -> Call:
        def act() -> object:
            said = command(line)
            if said.status not in (0, 1, 2) or not said.text.strip() or "Traceback" in said.text:
                raise AssertionError(f"exit status {said.status}, said {said.text[-200:]!r}")
            if said.status == 2:
                raise refused(said)
            return said.text

        return Call("command lines", f"richobs {' '.join(map(in_short, line))}", act)

    return st.builds(build, LINES)


def calls() -> SearchStrategy[Call]:
    """Returns all inputs."""
    return st.one_of(
        *(_argument_calls(), _argument_calls(), _world_calls(), _environment_calls(), _line_calls(), sweep_calls())
    )


def tried(call: Call) -> Attempt:
    """Returns what became of an input, in a process and in a folder of its own."""

    def act() -> str:
        os.chdir(folder)
        warnings.simplefilter("ignore")
        try:
            call.act()
        except Exception as error:
            first = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error  # a StopIteration
            last = traceback.extract_tb(first.__traceback__)[-1]
            if last.name in RAISING and last.filename == strategies.__file__:
                return "the error that the environment or the class raised was passed on"
            raise
        return "answered"

    with tempfile.TemporaryDirectory() as folder:
        return attempted(act)


def attack(n: int, seed: int) -> dict[str, Any]:
    """Tries n inputs, and returns what became of them, in plain values."""
    found: list[tuple[Call, Attempt]] = []
    for name in LEARNERS:
        learner(name)  # imported once, here

    @seeded(seed)
    @hypothesis_settings(
        max_examples=n,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls())
    def each(call: Call) -> None:
        found.append((call, tried(call)))

    round_of = 0
    while len(found) < n:  # hypothesis may stop before, where it has made all that it can tell apart
        before = len(found)
        seeded(seed + round_of)(each)()
        round_of += 1
        if len(found) == before:
            break
    del found[n:]
    groups: dict[str, list[Attempt]] = collections.defaultdict(list)
    for call, attempt in found:
        groups[call.group].append(attempt)
    rows = [_row(group, of_group) for group, of_group in sorted(groups.items())]
    rows.append(_row("all", [attempt for _, attempt in found]))
    bad = [(call, attempt) for call, attempt in found if not attempt.kind.is_good]
    causes = collections.Counter(attempt.said.rpartition("[")[2] for _, attempt in bad)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "command": f"python -m attack.inputs --n {n} --seed {seed}",
        "cases": len(found),
        "failures": len(bad),
        "limits": {"CPU seconds": SECONDS, "bytes above the parent's": MEMORY},
        "cpu_minutes": round(sum(u.ru_utime + u.ru_stime for u in used) / 60, 1),
        "table": as_records(COLUMNS, rows),
        "causes": dict(causes.most_common()),
        "failed": [{"given": c.about, "kind": a.kind.value, "said": a.said[-300:]} for c, a in bad[:KEPT]],
    }


def _row(group: str, attempts: Sequence[Attempt]) -> list[Any]:
    kinds = collections.Counter(attempt.kind for attempt in attempts)
    bad = [kinds[kind] for kind in Kind if not kind.is_good]
    most = max((attempt.memory for attempt in attempts), default=0) / MIB
    longest = max((attempt.seconds for attempt in attempts), default=0.0)
    return [group, len(attempts), kinds[Kind.UNCHANGED], kinds[Kind.REFUSED], *bad, round(most), round(longest, 1)]


def main(given: Sequence[str] | None = None) -> int:
    """Attacks, prints the table, writes the results; the exit status is 1 where anything failed."""
    asked = arguments("Give odd inputs to the command line and to everything public.", 5_000)
    options = asked.parse_args(given)
    if not is_supported():
        print("attack.inputs needs forks, RLIMIT_AS and /proc: Linux.")
        return 2
    found = attack(options.n, options.seed)
    for failure in found["failed"]:
        print(ascii(failure))
    rows = [list(row.values()) for row in found["table"]]
    note = f"{found['failures']:,} of {found['cases']:,} inputs were answered by something else than a value or a sentence."
    show_table("Odd inputs", COLUMNS, rows, note)
    print(write_results("inputs", found, options.results))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
