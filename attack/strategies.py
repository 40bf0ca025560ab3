"""Inputs that nobody should give, as strategies of hypothesis: command lines, ids, values, environments, classes."""

import operator
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import richobs
from richobs.classes.base import LevelClass
from richobs.core.policies import Policy
from richobs.learners import LEARNERS

SMALL = "lock/2,noise_bits=1"
ESCAPE = "\x1b[31mred"  # a terminal would obey it

ODD = st.sampled_from(
    [
        *("0", "-1", "2", "3", "1e5", "9" * 30, "9" * 5000, "nan", "inf", "-inf", "1e-400", "0.3", "1000000"),
        *(
            "1e-7",
            "1e-9",
            "1e300",
            "-0.0",
            "99999999999",
            "9223372036854775808",
            "0:2",
            "0:99999999999",
            "5:1",
            "0:3,,",
        ),
        *("", " ", "[/]", "[red]", ESCAPE, "a\0b", "\udc80", "\ud800", "\u202e", "None", "True", "true", "()"),
        *("-", "--", "=", ",", "/", "?", "&", "gym:"),
    ]
)
TEXT = st.one_of(ODD, st.text(max_size=6))
WORLD_NAMES = st.sampled_from(["lock", "mdp", "random", "deep-sea", "lower-bound", "bandit", "x"])
PARAMETERS = st.sampled_from(
    ["noise_bits", "n_actions", "swap", "noise", "functions", "class_size", "seed", "sigma", "x"]
)
ENTRIES = st.sampled_from(["horizon", "functions", "reward_range", "x"])
WORLD_IDS = st.one_of(
    st.just(SMALL),
    TEXT,
    st.builds("{}/{}".format, WORLD_NAMES, TEXT),
    st.builds("lock/2,{}={}".format, PARAMETERS, TEXT),
    st.builds("gym:{}?{}={}".format, TEXT, ENTRIES, TEXT),
)
OPTION_NAMES = (
    *("epsilon", "delta", "learner", "n-states", "max-episodes", "tuning", "seed", "horizon", "x", "json", "engine"),
    *("workers", "threshold", "out", "policy", "episodes", "seeds", "budget", "seconds", "max-runs"),
    *("sequences", "error-rate", "confidence", "device", "worlds", "learners"),
)
OPTIONS = st.lists(st.builds("--{}={}".format, st.sampled_from(OPTION_NAMES), TEXT), max_size=2)
ON_WORLDS = st.sampled_from(
    [
        *(["plan"], ["value"], ["check"], ["audit", "--sequences=1", "--episodes=8"]),
        ["learn", "--max-episodes=40", "--quiet"],
    ]
)
SWEEPS = st.sampled_from(
    [
        ["sweep", SMALL, "--max-episodes=20", "--seeds=0:1", "--workers=1", "--json"],
        ["arena", "--worlds", SMALL, "--learners=betting", "--budget=20", "--seeds=1", "--workers=1", "--json"],
    ]
)
ON_FILES = st.sampled_from(["show", "resume", "verify", "report", "worlds", "learners", "nothing"])
LINES = st.one_of(
    st.builds(lambda command, world, options: [*command, world, *options], ON_WORLDS, WORLD_IDS, OPTIONS),
    st.builds(lambda command, text, options: [command, text, *options], ON_FILES, TEXT, OPTIONS),
    st.builds(lambda command, options: [*command, *options], SWEEPS, OPTIONS),
    st.lists(TEXT, max_size=3),
)

NUMBER_KINDS: tuple[Callable[[Any], Any], ...] = (
    *(np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.longdouble, np.bool_),
    *(np.complex128, np.array, lambda v: np.array(v, np.float32), lambda v: np.array([v])),
)


def as_kind(kind: Callable[[Any], Any], number: Any) -> Any:
    """Returns a number as one of NumPy's kinds, where that kind holds it; else as it is."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return kind(number)
        except (OverflowError, ValueError, TypeError):
            return number


PLAIN_NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 3, -1, 100, 0.3, 0.5, 1.0, 1e-7, 1e-9, 1e-300, 1e300, 2**31, 2**63 - 1, 10**18]),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0]),
)
SCALARS: SearchStrategy[Any] = st.builds(as_kind, st.sampled_from(NUMBER_KINDS), PLAIN_NUMBERS)
PATHS: tuple[Any, ...] = (
    *(
        "a\ud800",
        "a\udcff",
        "\0",
        "",
        ".",
        "/",
        "~",
        "a/../b",
        "x" * 300,
        "x/" * 3000,
        "a\nb",
        "\u202e",
        b"\xff",
        "nul\0/x",
    ),
    *("/dev/null", "/dev/full", "/proc/self/mem", "/proc/1/x", Path("a\ud800"), Path("x" * 300), Path("/")),
)

VALUES: tuple[Any, ...] = (  # for any parameter of any function; what has a state is made anew in each process
    *(None, True, False, 0, 1, 2, 3, -1, 7, 2**63, -(2**63), 10**400, 0.0, 0.3, 0.5, 1.0, -0.5, 1e-320, 1e308),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        1j,
        Decimal("0.3"),
        Decimal("NaN"),
        Fraction(1, 3),
        "",
        "x",
        "0.3",
        "betting",
    ),
    *(
        "a\0b",
        "\ud800",
        ESCAPE,
        "..",
        "/dev/null/x",
        SMALL,
        b"x",
        bytearray(b"x"),
        [],
        [1],
        [0.5],
        ["x"],
        [None],
        [[]],
        [[1], [1, 2]],
    ),
    *(
        (),
        (0,),
        (0, 1),
        (1, 0),
        (0, 1, 2),
        (0.0, float("nan")),
        {},
        {"x": 1},
        {1},
        range(3),
        range(10**9),
        ...,
        NotImplemented,
    ),
    *(int, object, object(), len, lambda *a, **k: None, lambda *a, **k: np.zeros(2), Path(), Path("x"), np, Ellipsis),
    *(
        np.float64(0.3),
        np.float32(0.5),
        np.int64(2),
        np.uint64(2**63),
        np.bool_(True),
        np.str_("x"),
        np.array(3),
        np.array(0.5),
    ),
    *(
        np.array([]),
        np.array([0, 1]),
        np.array([0.5, 0.5]),
        np.array([np.nan]),
        np.array(["a"]),
        np.array([None]),
        np.zeros((2, 2)),
    ),
    *(np.zeros((2, 2, 2)), np.full((2, 2, 2), 0.5), np.zeros((0, 2, 2)), np.zeros((2, 0)), np.full((2, 3, 4), np.inf)),
    *(np.zeros((2, 2), complex), np.zeros(3, "M8[s]"), np.zeros((2, 2), bool), np.ma.masked_array([1.0], mask=True)),
    *(
        np.zeros(2, [("a", float)]),
        np.datetime64("NaT"),
        richobs.OpenLoop((0, 1)),
        richobs.Uniform(2),
        richobs.Settings(),
    ),
    *(richobs.Episodes([np.zeros(2)], [np.zeros(2, int)], [np.zeros(2)]), richobs.Episodes([], [], [])),
)
LEVELS: tuple[Any, ...] = (
    richobs.classes.TableLevel(np.full((2, 2, 2), 0.5)),
    richobs.classes.TableLevel(np.full((3, 2, 3), 0.5)),
    richobs.Constants([[0.1, 0.9]]),
)
MORE_VALUES = (*VALUES, *PATHS, *LEVELS, [LEVELS[0]] * 2, [LEVELS[0], LEVELS[1]], [LEVELS[2], None])
ODD_VALUES: SearchStrategy[Any] = st.one_of(
    st.sampled_from(MORE_VALUES),
    SCALARS,
    st.floats(),
    st.integers(-5, 20),
    st.integers(2**40, 2**70),
    st.text(max_size=4),
)  # no numbers in between: they may ask for work that takes long, and is meant


def is_meant(value: Any) -> bool:
    """Whether a value is a number of functions that takes much memory, and is allowed to."""
    try:
        return 10**6 < operator.index(value) <= 10**9
    except TypeError:
        return False


def episodes(*columns: Any) -> richobs.Episodes:
    """Returns episodes of columns of any kind."""
    return richobs.Episodes(*columns)


class Faulty:
    """An environment of two levels with one fault."""

    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def __init__(self, fault: str):
        """Takes the name of the fault, from `FAULTS`."""
        self.fault = fault
        self._buffers = [np.zeros(64, np.int64), np.zeros(64, np.int64)]
        self._more: dict[str, Any] = {"at_once": 4}
        for name, value in DECLARED.get(fault, {}).items():
            if name in richobs.Declared.__dataclass_fields__:
                self._more[name] = value
            else:
                setattr(self, name, value)

    @property
    def declared(self) -> richobs.Declared:
        """What it declares; refused when it is read, as that of a class would be when it is written."""
        return richobs.Declared(**self._more)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Any:
        """Plays n episodes, and answers with the fault."""
        seen: list[Any] = []
        taken: list[Any] = []
        paid: list[Any] = []
        for level in range(2 if levels is None else levels):
            x = rng.integers(0, 2, n)
            if self.fault == "one buffer for all":
                self._buffers[0][:n] = x
                x = self._buffers[0][:n]
            a = policy.actions(level, x, rng)
            seen.append(x)
            taken.append(a)
            paid.append(np.where(a == x, 0.5, 0.0))
        if self.fault in ANSWERS:
            return ANSWERS[self.fault](seen, taken, paid)
        return richobs.Episodes(seen, taken, paid)


def _raises(error: BaseException) -> Callable[[list[Any], list[Any], list[Any]], Any]:
    def answer(x: list[Any], a: list[Any], r: list[Any]) -> Any:
        raise error

    return answer


NUMBERS: tuple[Any, ...] = (None, 0, -1, 1.5, "x", 10**400, (1.0, 0.0), (0.0, float("nan")), (0.0, 1e308), True, [])
OTHERS: tuple[Any, ...] = (True, -1, "x", (0.5, 0.1), float("nan"))
DECLARED: dict[str, dict[str, Any]] = {  # other facts than those that hold
    **{
        f"{name} is {str(value)[:12]}": {name: value}
        for name in ("horizon", "n_actions", "reward_range", "at_once", "identity")
        for value in NUMBERS
    },
    **{
        f"{name} is {str(value)[:12]}": {name: value}
        for name in ("deterministic", "real_episodes", "step_range")
        for value in OTHERS
    },
    **{
        f"{name} is {kind.__name__} of {value}": {name: kind(value)}
        for name, value in (("horizon", 2), ("n_actions", 2), ("at_once", 4), ("deterministic", 0), ("replayable", 0))
        for kind in (np.int8, np.uint8, np.int64, np.uint64, np.float32, np.bool_, np.array)
    },
    **{
        f"{name} is {kind.__name__}": {name: (kind(0), kind(1))}
        for name in ("reward_range", "step_range")
        for kind in (np.int8, np.uint64, np.float16, np.float32, np.longdouble, np.bool_, np.array)
    },
    "reward_range is an array": {"reward_range": np.array([0.0, 1.0])},
    "more levels than it plays": {"horizon": 3},
    "more actions than it has": {"n_actions": 5},
    "rewards above the range": {"reward_range": (0.0, 0.25)},
}
Answered = Callable[[list[Any], list[Any], list[Any]], Any]
ANSWERS: dict[str, Answered] = {
    "None": lambda x, a, r: None,
    "a tuple": lambda x, a, r: (x, a, r),
    "a generator": lambda x, a, r: (column for column in (x, a, r)),
    "twice the rows": lambda x, a, r: episodes(*([np.tile(c, 2) for c in column] for column in (x, a, r))),
    "a row too few": lambda x, a, r: episodes(*([c[:-1] for c in column] for column in (x, a, r))),
    "no rows": lambda x, a, r: episodes(*([c[:0] for c in column] for column in (x, a, r))),
    "a level too few": lambda x, a, r: episodes(x[:-1], a[:-1], r[:-1]),
    "a level too many": lambda x, a, r: episodes([*x, x[0]], [*a, a[0]], [*r, r[0]]),
    "no levels": lambda x, a, r: episodes([], [], []),
    "short rewards": lambda x, a, r: episodes(x, a, [c[:-1] for c in r]),
    "rewards that are not numbers": lambda x, a, r: episodes(x, a, [c * np.nan for c in r]),
    "infinite rewards": lambda x, a, r: episodes(x, a, [c + np.inf for c in r]),
    "rewards of text": lambda x, a, r: episodes(x, a, [c.astype(str) for c in r]),
    "complex rewards": lambda x, a, r: episodes(x, a, [c + 1j for c in r]),
    "rewards of objects": lambda x, a, r: episodes(x, a, [c.astype(object) for c in r]),
    "rewards in rows": lambda x, a, r: episodes(x, a, [c[:, None] for c in r]),
    "one reward": lambda x, a, r: episodes(x, a, [0.5 for _ in r]),
    "lists": lambda x, a, r: episodes(*([c.tolist() for c in column] for column in (x, a, r))),
    "actions as floats": lambda x, a, r: episodes(x, [c.astype(float) for c in a], r),
    "other actions": lambda x, a, r: episodes(x, [1 - c for c in a], r),
    "actions that do not exist": lambda x, a, r: episodes(x, [c + 7 for c in a], r),
    "negative actions": lambda x, a, r: episodes(x, [c - 9 for c in a], r),
    "observations that are not numbers": lambda x, a, r: episodes([c * np.nan for c in x], a, r),
    "observations outside the class": lambda x, a, r: episodes([c + 99 for c in x], a, r),
    "negative observations": lambda x, a, r: episodes([c - 99 for c in x], a, r),
    "observations in rows": lambda x, a, r: episodes([np.stack([c, c], 1) for c in x], a, r),
    "observations of text": lambda x, a, r: episodes([c.astype(str) for c in x], a, r),
    "observations of objects": lambda x, a, r: episodes([c.astype(object) for c in x], a, r),
    "ragged observations": lambda x, a, r: episodes([[[1]] + [[1, 2]] * (len(c) - 1) for c in x], a, r),
    "observations that are None": lambda x, a, r: episodes([None for _ in x], a, r),
    "ended as numbers": lambda x, a, r: episodes(x, a, r, list(a)),
    "ended and alive again": lambda x, a, r: episodes(x, a, r, [c >= 0 if i == 0 else c < 0 for i, c in enumerate(a)]),
    "an OSError": _raises(OSError("the robot does not answer")),
    "a ValueError": _raises(ValueError("the robot does not answer")),
    "a StopIteration": _raises(StopIteration()),
    "a MemoryError within": _raises(RuntimeError("the robot has no memory")),
    "a KeyboardInterrupt": _raises(KeyboardInterrupt()),
}
FAULTS = (*ANSWERS, *DECLARED, "one buffer for all", "none")


class FaultyClass:
    """Python functions of two levels with one fault."""

    def __init__(self, fault: str):
        """Takes the name of the fault, from `CLASS_FAULTS`."""
        self.fault = fault
        self._calls = 0

    def __call__(self, level: int, x: Any) -> Any:
        """Returns values of the actions, `[n, 2]`, with the fault."""
        self._calls += 1
        values = np.full((len(x), 2), 0.5)
        values[np.arange(len(x)), np.asarray(x, dtype=int).reshape(len(x), -1)[:, 0] % 2] = 0.9
        return CLASS_FAULTS[self.fault](values, self._calls)


def _fails(values: Any, calls: int) -> Any:
    raise LookupError("no such state")


CLASS_FAULTS: dict[str, Callable[[Any, int], Any]] = {
    "none": lambda v, calls: v,
    "None": lambda v, calls: None,
    "not a number": lambda v, calls: v * np.nan,
    "infinite": lambda v, calls: v + np.inf,
    "beyond the range": lambda v, calls: v + 7,
    "below the range": lambda v, calls: v - 7,
    "a row too few": lambda v, calls: v[:-1],
    "a column too many": lambda v, calls: np.hstack([v, v]),
    "one column": lambda v, calls: v[:, 0],
    "text": lambda v, calls: v.astype(str),
    "complex": lambda v, calls: v + 1j,
    "objects": lambda v, calls: v.astype(object),
    "a list": lambda v, calls: v.tolist(),
    "a generator": lambda v, calls: (row for row in v),
    "other values each time": lambda v, calls: v * (0.5 + 0.4 * (calls % 2)),
    "an error": _fails,
    "an array of its own": lambda v, calls: np.asfortranarray(v),
    "read only": lambda v, calls: np.broadcast_to(v[:1], v.shape),
}


class DeclaredLevel(LevelClass):
    """Two functions of one level that declares numbers of any kind."""

    size, n_actions = 2, 2

    def __init__(self, **declared: Any):
        """Takes what is declared: size, n_actions, value_range."""
        vars(self).update(declared)

    def values(self, x: Any, members: Any = None, /) -> Any:
        """Returns `[N, n, 2]` values: the first function is right of `Faulty`, the second knows nothing."""
        right = np.full((len(x), 2), 0.5)
        right[np.arange(len(x)), np.asarray(x, dtype=int).reshape(len(x), -1)[:, 0] % 2] = 1.0
        return np.stack([right, np.full((len(x), 2), 0.5)])[[0, 1] if members is None else members]


RAISING = ("answer", "_fails", "values")  # functions here that raise errors of their own, as a user's code may
# Not those of Stable-Baselines3: each attempt is a process of its own, and would import PyTorch, which may take a minute.
LEARNER_NAMES = st.sampled_from([*(name for name in LEARNERS if not name.startswith("sb3-")), "x"])
