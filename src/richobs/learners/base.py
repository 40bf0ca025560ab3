"""What a learner is: it asks an engine for episodes, narrows down which functions may be true, and returns a policy.

Run, certificate, page, terminal and command line ask the learner about itself; none of them knows one by name. A plan also
shows what the learner needed on worlds that were measured, those most like the problem first.
"""

import json
import math
import pathlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from richobs.core.arguments import whole_number
from richobs.core.environment import Episodes, step_range
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.functions import FunctionClass
from richobs.core.outcome import Outcome
from richobs.core.policies import Policy
from richobs.core.problem import Problem
from richobs.core.queries import Engine, Query
from richobs.core.registry import InNotebook
from richobs.core.settings import Settings, field_docs, read_tuning
from richobs.core.units import units_missing
from richobs.stats.shares import Share

WITHIN_EPSILON = (
    "With probability 1 - delta the policy's value is within epsilon of V*; if the episodes run out first, within the wider "
    "epsilon that the run states."
)
MEASURED = "measured.json"  # beside the learner's code, written by its benchmark


class Need(NamedTuple):
    """Something that a learner needs of a problem."""

    words: str  # "a process that is written down"
    missing: Callable[
        [Problem, Settings], str | None
    ]  # why this problem does not offer it, in a sentence; None: it does


class Promise(NamedTuple):
    """What a learner promises, and what that rests on."""

    words: str
    assumptions: tuple[str, ...] = ()  # each in words


class PlanRow(NamedTuple):
    """One line of a plan."""

    section: str
    name: str
    value: float  # an int where it counts something
    unit: str
    where: str  # the formula, and where it stands


class Plan(Protocol):
    """What a run will ask for, before anything is played."""

    @property
    def title(self) -> str:
        """Whose plan it is, in words."""

    @property
    def max_episodes(self) -> int | None:
        """The most episodes that a run can need with probability 1 - delta; None where nothing is known."""

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""


@dataclass(frozen=True)
class ShortPlan(InNotebook):
    """The plan of a learner with few numbers."""

    view = "plan"
    title: str
    max_episodes: int | None
    lines: tuple[PlanRow, ...] = ()

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        yield from self.lines

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {"max_episodes": self.max_episodes, **{row.name: row.value for row in self.lines}}


@dataclass(frozen=True)
class Finding:
    """One thing that `verify` looked at."""

    what: str
    agrees: bool
    detail: str


@dataclass(frozen=True)
class NoTuning:
    """The tuning of a learner that has nothing to tune."""


def at_least_one(tuning: Any, *names: str) -> None:
    """Raises InvalidInput if one of the named numbers of a tuning is below 1."""
    for name in names:
        whole_number(name, getattr(tuning, name), least=1)


@dataclass(frozen=True)
class Traits:
    """How a learner behaves, for those who run it and show what it did; the defaults are those of most learners."""

    claims: bool = True  # whether a run can end with a guarantee; False: it claims nothing, however well it did
    near_best_sequence: bool = False  # whether a guarantee compares with the best action sequence, not with V*
    counts: bool = False  # whether the engine `auto` counts where the process is written down
    level_work: int = 1_000  # microseconds that a request takes at each level, about; `verify` counts them
    keeps_bounds: bool = False  # whether progress carries U and W
    tests_pairs: bool = False  # whether a path in its events ends with the action that was tested
    knows_threshold: bool = False  # whether it can stop once a policy is worth a threshold, or none can be
    takes_tolerance: bool = False  # whether its claims can allow for a class that holds the truth only nearly
    reads_episodes: bool = False  # whether it reads episodes one by one, which counts do not give
    reads_recorded: bool = False  # whether episodes that were played before are evidence for it
    looks_at_episodes: bool = False  # whether it has a `Watch` of its own; else an environment's calls are watched
    levels_share_episodes: bool = False  # whether an episode along a path counts at every level it passes
    hands_over_to: str = ""  # the learner that takes over from it where it does not end; empty where none does
    without_list: bool = False  # whether it takes a class whose functions are not listed
    purposes: Mapping[str, str] = field(default_factory=dict)  # of episodes that no event of the name explains


class Learner(ABC):
    """The base of all learners: facts about itself, and three things it can do.

    A subclass sets the facts and writes `plan` and `run`; one line in `richobs.learners.LEARNERS` makes it known.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # what it is, in a sentence that begins with a capital letter
    cites: ClassVar[str] = ""  # the paper it follows
    given: ClassVar[tuple[str, ...]] = ()  # what it is told and need not learn, each in words: "number of states"
    needs: ClassVar[tuple[Need, ...]] = ()
    promises: ClassVar[Promise]
    costs: ClassVar[str]  # how its episodes grow, in words
    Tuning: ClassVar[type] = NoTuning  # a frozen dataclass, a sentence under each field
    traits: ClassVar[Traits] = Traits()

    def tuning(self, settings: Settings) -> Any:
        """Returns the numbers that this learner is tuned with, an instance of `Tuning`."""
        return read_tuning(settings.tuning, self.Tuning, self.name)

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses a problem or settings that this learner cannot serve; nothing is played.

        Args:
            problem: what to learn.
            settings: what is asked for.
            engine: name of the engine that will play, such as "counted" or "stream".

        Raises:
            InvalidInput: with the sentence why.
        """
        self.tuning(settings)
        self.check_needs(problem, settings)
        if not getattr(problem.functions, "has_list", True) and not self.traits.without_list:
            raise InvalidInput(
                f"the learner {self.name!r} needs a class whose functions are listed; a {type(problem.functions).__name__} "
                "without parameters arrived. Leave `learner` out, or list parameters."
            )
        if engine == "counted" and self.traits.reads_episodes:
            raise InvalidInput(
                f"the learner {self.name!r} reads episodes one by one, and the counted engine only draws how often each "
                "occurs. Use engine='stream'."
            )
        if settings.threshold is not None and not self.traits.knows_threshold:
            raise InvalidInput(
                f"the learner {self.name!r} cannot stop at a threshold. Use learner='betting', or leave `threshold` out."
            )
        if settings.tolerance and not self.traits.takes_tolerance:
            raise InvalidInput(
                f"the learner {self.name!r} knows no tolerance: its claim would be about a class that holds Q* exactly. Use "
                "learner='betting', or leave `tolerance` out."
            )
        if problem.recorded is not None and not self.traits.reads_recorded:
            raise InvalidInput(
                f"the learner {self.name!r} cannot use recorded episodes: its tests need episodes that it asked for itself. "
                "Use learner='betting', or leave `episodes` out."
            )

    def check_needs(self, problem: Problem, settings: Settings) -> None:
        """Refuses a problem that lacks something that this learner needs.

        Raises:
            InvalidInput: with the sentence why.
        """
        for need in self.needs:
            why = need.missing(problem, settings)
            if why is not None:
                raise InvalidInput(f"the learner {self.name!r} needs {need.words}: {why}")

    @abstractmethod
    def plan(self, problem: Problem, settings: Settings) -> Plan:
        """Returns what is known in advance of a run; nothing is played."""

    @abstractmethod
    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns.

        Args:
            problem: what to learn.
            engine: plays the episodes; its ledger may limit them.
            settings: what is asked for.
            notify: called with a `Progress` after every event.
        """

    def on_device(self, functions: FunctionClass, device: str) -> FunctionClass:
        """Returns the class with which answers are computed where a device is named; by default the class itself."""
        return functions

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Derives the numbers of a certificate again that do not depend on draws; `verify` repeats the run itself.

        The base adds up the shares of delta. A learner adds findings; parts that it cannot read may raise.

        Args:
            content: of the certificate.
            problem: the same problem, built again.
            settings: as the certificate has them.
        """
        claims = content["claims"]
        spent = math.fsum(row[3] for row in claims)
        return [Finding("delta", spent <= settings.delta, f"{len(claims)} claims spend {spent:.6g} of it")]


@dataclass
class Search:
    """What searches share that plan with all they have seen: what is asked for, who plays and listens, and delta."""

    engine: Engine
    functions: Any  # the class of the problem
    reward_range: tuple[float, float]  # smallest and largest possible total of an episode
    step_range: tuple[float, float]  # likewise of one reward
    epsilon: float
    delta: float
    seed: int  # of all choices
    notify: Callback
    tuning: Any  # how eager the search is
    share: Share = field(init=False)  # the whole of delta

    def __post_init__(self) -> None:
        self.share = Share(self.delta)

    @classmethod
    def of(
        cls, who: Learner, problem: Problem, engine: Engine, settings: Settings, notify: Callback, **own: Any
    ) -> Self:
        """Returns the search with which a learner begins a run; `own` are fields that only this kind of search has."""
        return cls(
            engine,
            problem.functions,
            problem.env.reward_range,
            step_range(problem.env),
            settings.epsilon,
            settings.delta,
            settings.seed,
            notify,
            who.tuning(settings),
            **own,
        )

    def episodes(self, policy: Policy, n: int, purpose: str, phase: str) -> Episodes:
        """Returns n episodes of a policy, whole."""
        played = self.engine.ask(Query(policy, n, purpose, phase, episodes=True)).episodes
        assert played is not None, "the query wants episodes"
        return played


def tuning_fields(learner: Learner) -> list[tuple[str, Any, str]]:
    """Returns name, default and meaning of everything that a learner can be tuned with."""
    plain = learner.Tuning()
    return [(name, getattr(plain, name), words) for name, words in field_docs(learner.Tuning).items()]


def _deterministic_missing(problem: Problem, settings: Settings) -> str | None:
    world = None if problem.truth is None else problem.truth.world
    known = problem.process if problem.process is not None else world
    if known is None or known.is_deterministic:
        return None
    return "those of this problem are random, so its claim could be false. The learner 'betting' does not need them."


deterministic_transitions = Need("deterministic transitions", _deterministic_missing)
# A run rescales other rewards for a learner that has this need, and scales its answer back (`runs.prepare`).
unit_rewards = Need(
    "nonnegative rewards whose totals lie in [0, 1], or a range to rescale", lambda p, _: units_missing(p)
)


def first_difference(a: Any, b: Any, where: str, tolerance: float = 0.0) -> str | None:
    """Returns the first place where two plain values differ, in words, or None; 0.0 and -0.0 differ, and NaN equals NaN.

    Args:
        a: derived again.
        b: as a file has it.
        where: what they are called.
        tolerance: how far apart two floating-point numbers may be, times the larger of them where that exceeds 1.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            if key not in a or key not in b:
                return f"{where}.{key} is missing"
            if (found := first_difference(a[key], b[key], f"{where}.{key}", tolerance)) is not None:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if (found := first_difference(x, y, f"{where}[{i}]", tolerance)) is not None:
                return found
        return None
    if type(a) is type(b) is float:
        near = tolerance > 0 and abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) < math.inf
        same = near or repr(a) == repr(b)
    else:
        same = a == b and type(a) is type(b)
    return None if same else f"{where} is {b!r} in the file and {a!r} again"


class Measured(NamedTuple):
    """What runs of one learner on one world needed."""

    world: str
    horizon: int
    n_actions: int
    log_size: float
    epsilon: float
    delta: float
    runs: int
    episodes: tuple[int, int, int]  # least, median, most

    def distance(self, problem: Problem, epsilon: float) -> float:
        """Returns how far this world is from a problem: in levels, actions, log of the class and epsilon, each by ratio."""
        size = max(1.0, problem.functions.log_size)
        ratios = (
            self.horizon / problem.env.horizon,
            self.n_actions / problem.env.n_actions,
            max(1.0, self.log_size) / size,
            self.epsilon / epsilon,
        )
        return math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios))


def measured(problem: Problem, world: str, epsilon: float, delta: float, episodes: Iterable[int]) -> Measured:
    """Returns what runs on a world needed, as a row for `write_measured`.

    Args:
        problem: the world, built.
        world: its name, without the seed of its secret.
        epsilon: that was asked for.
        delta: that was asked for.
        episodes: of every run.
    """
    ordered = sorted(episodes)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) // 2
    size = round(problem.functions.log_size, 2)
    spread = (ordered[0], median, ordered[-1])
    return Measured(world, problem.horizon, problem.n_actions, size, epsilon, delta, n, spread)


def write_measured(rows: Iterable[Measured], path: pathlib.Path) -> None:
    """Writes what was measured, a line for each world; a row that occurs twice is written once."""
    lines = dict.fromkeys(f"  {json.dumps(row._asdict())}" for row in rows)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def read_measured(package: str) -> list[Measured]:
    """Returns what was measured of the learner in a package such as "richobs.learners.betting"."""
    text = resources.files(package).joinpath(MEASURED).read_text(encoding="utf-8")
    return [Measured(**{**row, "episodes": tuple(row["episodes"])}) for row in json.loads(text)]


def similar_worlds(package: str, problem: Problem, epsilon: float, at_most: int = 3) -> tuple[Measured, ...]:
    """Returns what was measured on the worlds that are most like a problem, the nearest first.

    Args:
        package: of the learner.
        problem: what to compare with.
        epsilon: that is asked for.
        at_most: how many worlds.
    """
    return tuple(sorted(read_measured(package), key=lambda m: m.distance(problem, epsilon))[:at_most])


def similar_rows(similar: Iterable[Measured]) -> Iterator[PlanRow]:
    """Yields a line of a plan for each of some worlds."""
    for m in similar:
        least, median, most = m.episodes
        about = f"epsilon {m.epsilon:g}, 10^{m.log_size / math.log(10):.0f} functions, median of {m.runs} runs"
        yield PlanRow("similar worlds needed", m.world, median, f"episodes ({least:,} to {most:,})", about)
