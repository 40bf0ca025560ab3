"""Which of the paper's assumptions hold in a process that is written down, exactly.

`check_assumptions` reads a `TabularProcess` and finds counterexamples. For an environment that can only be played there
is `richobs_lab.assumptions.statistical`.
"""

from dataclasses import dataclass

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.functions import FunctionClass
from richobs.core.problem import Problem, check_class
from richobs.core.process import EQUALITY_TOLERANCE, PROBABILITY_TOLERANCE, TabularProcess
from richobs.core.types import Floats

ANY_TRANSITIONS = ("betting", "olive")  # learners whose guarantees hold for random transitions too
DETERMINISTIC_ONLY = ("certified", "lsvee")  # learners that also need Assumption 3


@dataclass(frozen=True)
class AssumptionCheck:
    """One assumption and what was found."""

    name: str
    holds: bool | None  # None: could not be judged
    finding: str  # the counterexample, or why it holds or could not be judged

    def __str__(self) -> str:
        verdict = {True: "holds", False: "FAILS", None: "not judged"}[self.holds]
        return f"{self.name}: {verdict}. {self.finding}"


@dataclass(frozen=True)
class AssumptionReport:
    """What was found for each assumption."""

    checks: tuple[AssumptionCheck, ...]
    conclusion: str = ""  # which learners' assumptions are met, in words; empty where the checks cannot tell

    @property
    def holds(self) -> bool:
        """Whether nothing was found to fail."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The names of what fails."""
        return tuple(c.name for c in self.checks if c.holds is False)

    def __getitem__(self, name: str) -> AssumptionCheck:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"{name!r} is not one of {', '.join(repr(c.name) for c in self.checks)}.")

    def __str__(self) -> str:
        lines = [str(check) for check in self.checks]
        return "\n".join([*lines, self.conclusion] if self.conclusion else lines)


def check_assumptions(process: TabularProcess | Problem, functions: FunctionClass | None = None) -> AssumptionReport:
    """Judges every assumption of [KAL16] exactly, with a counterexample for each that fails.

    States that no action sequence reaches are left out. The checks, by name: "layered" (Section 2.1), "reactive" (Assumption
    1), "realizable" (Assumption 2), "deterministic" (Assumption 3), "reward range" (Section 2.1). "reactive" may hold where
    "deterministic" fails; the report's `conclusion` says which learners can be used then.

    Args:
        process: the process, latent part and all; or a problem that has it.
        functions: the class for Assumption 2; without it that one is not judged.
    """
    if isinstance(process, Problem):
        functions = process.functions if functions is None else functions
        if process.process is None:
            raise InvalidInput(
                f"{process.name}: assumptions are judged exactly where the process is written down, and it is not here. "
                "`audit` tests what can be tested from outside."
            )
        process = process.process
    if not isinstance(process, TabularProcess):
        raise InvalidInput(
            f"check_assumptions needs a richobs.TabularProcess, or a problem that has one; got {process!r:.80}. `audit` "
            "tests what can be tested of an environment from outside."
        )
    if functions is not None:
        check_class(functions)
    conflict = process.reactivity_conflict()
    fault = process.reward_fault()
    reactive = AssumptionCheck(
        "reactive", conflict is None, conflict or "States that show the same observation have the same Q* there."
    )
    realizable = _realizable(process, functions, reactive)
    deterministic = _deterministic(process)
    rewards = AssumptionCheck("reward range", fault is None, fault or "Every reward and every total lies in [0, 1].")
    return AssumptionReport(
        (_layered(process), reactive, realizable, deterministic, rewards),
        _conclusion(reactive, realizable, deterministic, rewards),
    )


def _conclusion(
    reactive: AssumptionCheck, realizable: AssumptionCheck, deterministic: AssumptionCheck, rewards: AssumptionCheck
) -> str:
    """Returns which learners' assumptions are met, in words. A state at two levels does no harm: learners see the level."""
    if not reactive.holds:
        return "Not reactive: Q* is not a function of the observation, so the assumptions of no learner are met."
    if realizable.holds is False:
        return "Reactive, but Q* is not in the class, so the assumptions of no learner are met."
    if not rewards.holds:
        return "Reactive, but rewards leave their range, so the assumptions of no learner are met."
    proviso = "" if realizable.holds else " if Q* is in the class"
    if deterministic.holds:
        *names, last = (*ANY_TRANSITIONS, *DETERMINISTIC_ONLY)
        return f"Reactive and deterministic: the assumptions of {', '.join(names)} and {last} are met{proviso}."
    return (
        f"Reactive but stochastic: the assumptions of {' and '.join(ANY_TRANSITIONS)} are met{proviso}; those of "
        f"{' and '.join(DETERMINISTIC_ONLY)} are not."
    )


def _layered(process: TabularProcess) -> AssumptionCheck:
    first: dict[str, int] = {}
    for h, (names, reached) in enumerate(zip(process.labels, process.reachable, strict=True)):
        for name, here in zip(names, reached, strict=True):
            if here and first.setdefault(name, h) != h:
                return AssumptionCheck(
                    "layered",
                    False,
                    f"state {name!r} is reached at level {first[name]} and at level {h}. Functions and policies see the "
                    "level here, so treating it as a new state at each level restores the assumption.",
                )
    return AssumptionCheck("layered", True, "No state stands at two levels.")


_NOT_NEEDED = f"The learners {' and '.join(ANY_TRANSITIONS)} do not need this assumption."


def _deterministic(process: TabularProcess) -> AssumptionCheck:
    name = "deterministic"
    if process.start.max() < 1 - PROBABILITY_TOLERANCE:
        one, other = np.argsort(-process.start, kind="stable")[:2]
        return AssumptionCheck(
            name,
            False,
            f"an episode starts in state {one} with probability {process.start[one]:.6g} and in state {other} with "
            f"probability {process.start[other]:.6g}. {_NOT_NEEDED}",
        )
    for h, (t, reached) in enumerate(zip(process.transitions, process.reachable, strict=False)):
        loose = (t.max(axis=2) < 1 - PROBABILITY_TOLERANCE) & reached[:, None]
        if loose.any():
            s, a = np.argwhere(loose)[0]
            one, other = np.argsort(-t[s, a], kind="stable")[:2]
            return AssumptionCheck(
                name,
                False,
                f"action {a} in state {s} at level {h} leads to state {one} with probability {t[s, a, one]:.6g} and to "
                f"state {other} with probability {t[s, a, other]:.6g}. {_NOT_NEEDED}",
            )
    return AssumptionCheck(name, True, "Start and transitions are point masses.")


def _realizable(process: TabularProcess, functions: FunctionClass | None, reactive: AssumptionCheck) -> AssumptionCheck:
    name = "realizable"
    if functions is None:
        return AssumptionCheck(name, None, "No function class was given.")
    if not reactive.holds:
        return AssumptionCheck(
            name, None, "Q* is not a function of the observation (see reactive), so no class can hold it."
        )
    if (functions.horizon, functions.n_actions) != (process.horizon, process.n_actions):
        raise InvalidInput(
            f"the class has {functions.horizon} levels and {functions.n_actions} actions; the process has "
            f"{process.horizon} and {process.n_actions}."
        )
    errors = [_distances(process, functions, h) for h in range(process.horizon)]  # per level [N]
    if functions.is_product:
        best = [int(e.argmin()) for e in errors]
    else:
        best = [int(np.max(errors, axis=0).argmin())] * process.horizon
    misses = [e[b] for e, b in zip(errors, best, strict=True)]
    h = int(np.argmax(misses))
    if misses[h] <= EQUALITY_TOLERANCE:
        return AssumptionCheck(name, True, "Q* is in the class.")
    x, a, value, truth = _worst_place(process, functions, h, best[h])
    return AssumptionCheck(
        name,
        False,
        f"no function equals Q*. The nearest at level {h}, number {best[h]}, has {value:.6g} at observation {x}, action "
        f"{a}, where Q* is {truth:.6g}.",
    )


def _distances(process: TabularProcess, functions: FunctionClass, level: int) -> Floats:
    """Returns `[N]` how far each member of `level` is from Q* at its worst, over what can be seen."""
    visible = np.flatnonzero(process.seen[level].any(axis=0))
    x, truth = process.observations[level][visible], process.q_tables[level][visible]
    size = functions.level_size(level)
    members_at_once = max(1, 4_000_000 // truth.size)
    parts = [
        np.nan_to_num(
            np.abs(functions.values(level, x, np.arange(i, min(i + members_at_once, size))) - truth), nan=np.inf
        ).max(axis=(1, 2))
        for i in range(0, size, members_at_once)
    ]
    return np.concatenate(parts)


def _worst_place(
    process: TabularProcess, functions: FunctionClass, level: int, member: int
) -> tuple[int, int, float, float]:
    """Returns observation, action, value and Q* where one member misses Q* most."""
    visible = np.flatnonzero(process.seen[level].any(axis=0))
    values = functions.values(level, process.observations[level][visible], np.array([member]))[0]
    truth = process.q_tables[level][visible]
    i, a = np.unravel_index(int(np.abs(values - truth).argmax()), truth.shape)
    return int(visible[i]), int(a), float(values[i, a]), float(truth[i, a])
