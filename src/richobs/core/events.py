"""What happened in a run, one small frozen type per kind.

Whoever shows events (terminal, page, TensorBoard) asks them: what was tested, with which outcome, where it stands in the
search tree and with which mark. Every learner registers its own kinds with `@event`, and a stored run reads them back.
"""

import dataclasses
import functools
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.policies import Policy
from richobs.core.types import Path


class Mark(NamedTuple):
    """How the tree shows what happened at a node; of several marks at one node the one with the highest rank is shown."""

    name: str  # the page and the figures have a shape and a colour for each
    words: str
    rank: int


PASSED = Mark("passed", "passed through, no test of its own", 0)
POLICIES = Mark("policies", "whole policies tried", 1)
AGREED = Mark("agreed", "survivors agree, nothing to learn", 3)
OPEN = Mark("open", "survivors disagree, not yet learned", 3)
IDLE_ON_DEMAND = Mark("idle-demand", "tested on demand, none eliminated", 4)
IDLE = Mark("tested", "tested, none eliminated", 5)
ELIMINATED_ON_DEMAND = Mark("demand", "functions eliminated, on demand", 6)
ELIMINATED = Mark("eliminated", "functions eliminated", 7)
MARKS = (ELIMINATED_ON_DEMAND, IDLE_ON_DEMAND, ELIMINATED, IDLE, OPEN, AGREED, POLICIES, PASSED)


class ChartKind(NamedTuple):
    """A chart against episodes to which events of a learner add numbers, all on a logarithmic scale."""

    name: str  # in one word
    title: str
    about: str  # how to read it, in a sentence
    curves: str = ""  # what its curves are numbered by, such as "level"; empty where there is one curve
    limit: str = ""  # what the line is called with which curves are compared; empty where there is none
    by_candidate: bool = False  # whether its curves begin anew with every candidate


class Reading(NamedTuple):
    """The numbers that one event adds to a chart."""

    chart: ChartKind
    logs: tuple[float, ...]  # natural logarithms, one for each curve; () where the curves end
    limit: float = math.nan  # natural logarithm of what they are compared with


class CandidateNews(NamedTuple):
    """What an event says of a candidate, a policy that the learner plays because it may be the answer."""

    number: int | None  # None: the candidate that was played last
    episodes: int = 0  # of it, that this event is about; 0 where none were played
    earned: float = math.nan  # mean over these episodes
    promised: float = math.nan
    fate: str = ""  # in a word: "refuted" (which is final), "replaced", "certified"; empty where nothing changed
    why: str = ""


class Said(NamedTuple):
    """What an event says of itself to whoever shows it."""

    verdict: str  # the outcome in one or two words
    sentence: str = ""  # what happened, without a full stop; empty: its kind, where, and the verdict
    statistic: float = math.nan  # the number that was compared; NaN where nothing was
    threshold: float = math.nan  # what it was compared with; NaN where there was nothing
    mark: Mark | None = None  # how the node at the event's path is marked; None where this is not about a node
    level: int | None = None  # the level whose functions were tested; None where none were
    candidate: CandidateNews | None = None  # what it says of a candidate; None where it is about none
    readings: tuple[Reading, ...] = ()  # the numbers that it adds to charts of the run
    outlook: str = ""  # how far the end of the run is, in words; empty where it does not say
    episodes: str = ""  # how many episodes it took, in words where a number would mislead
    is_trouble: bool = False  # whether a person who watches the run should see it at once


@dataclass(frozen=True, kw_only=True)
class Event(ABC):
    """One thing that a learner did or noticed; subclasses, decorated with `event`, say what."""

    kind: ClassVar[str]  # short name, the same in every table
    question: ClassVar[str]  # what is asked, in words
    statistic_name: ClassVar[str]  # what was compared
    threshold_name: ClassVar[str]  # with what

    phase: str  # what the learner was doing
    path: Path = ()  # where; () also for what is about a whole policy
    n: int = 0  # episodes that it took
    log_size_before: float = math.nan  # survivors, as natural logarithms; NaN where the learner keeps none
    log_size_after: float = math.nan

    @abstractmethod
    def said(self) -> Said:
        """Returns verdict, numbers, mark and whatever else is shown of it."""

    @property
    def sentence(self) -> str:
        """What happened, in a sentence without its full stop."""
        said = self.said()
        return said.sentence or f"{self.kind} at {path_words(self.path)}: {said.verdict}"


E = TypeVar("E", bound=Event)
EVENTS: dict[str, type[Event]] = {}  # every kind by its full name
LARGEST = 2**1023  # of a whole number in a stored event: a float holds it


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def event(
    learner: str, kind: str, question: str = "", statistic: str = "statistic", threshold: str = "threshold"
) -> Callable[[type[E]], type[E]]:
    """Makes a class a kind of event: a frozen dataclass that stored runs can read.

    Args:
        learner: whose it is.
        kind: its short name.
        question: what is asked, in words.
        statistic: what is compared, in words.
        threshold: with what.
    """

    def register(made: type[E]) -> type[E]:
        name = f"{learner} {kind}"
        if name in EVENTS:
            raise ValueError(f"there are two kinds of event called {name!r}")
        made.kind, made.question, made.statistic_name, made.threshold_name = kind, question, statistic, threshold
        EVENTS[name] = dataclass(frozen=True, kw_only=True)(made)
        return made

    return register


def to_plain(happened: Event) -> list[Any]:
    """Returns an event in plain values: the full name of its kind, then its fields in order.

    Raises:
        InvalidInput: a field is not of the type that its kind declares, so `from_plain` could not read it.
    """
    name = next(name for name, kind in EVENTS.items() if type(happened) is kind)
    fields = [(field, getattr(happened, field), hint) for field, hint in _hints(type(happened))]
    for field, value, hint in fields:
        if not fits(_as_read(value), hint):
            raise InvalidInput(
                f"an event of kind {name!r} declares {field}: {hint}, and {value!r:.40} arrived, which a stored run could "
                "not read back. Whoever notifies it must give a value of that type."
            )
    return [name, *(value for _, value, _ in fields)]


def from_plain(values: list[Any]) -> Event:
    """Returns the event that `to_plain` took apart.

    An earlier version may not have had the last fields; where these have defaults, they are taken.

    Raises:
        InvalidFile: there is no such kind, or it has other fields, or fields of other types.
    """
    name, *fields = values
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidFile(f"there is no kind of event called {name!r} in this version of richobs.")
    declared = dataclasses.fields(kind)
    names = [f.name for f in declared]
    needed = max((k for k, f in enumerate(declared, 1) if f.default is dataclasses.MISSING), default=0)
    if not needed <= len(fields) <= len(names):
        raise InvalidFile(f"an event of kind {name!r} has {len(names)} fields; {len(fields)} are stored.")
    given: dict[str, Any] = dict(zip(names, fields, strict=False))
    given.update((n, tuple(value)) for n, value in given.items() if isinstance(value, list))
    for field, hint in _hints(kind)[: len(fields)]:
        if not fits(given[field], hint):
            raise InvalidFile(f"an event of kind {name!r} has {field} = {given[field]!r:.40}, which is not {hint}.")
    return kind(**given)


@functools.cache
def _hints(kind: type[Event]) -> tuple[tuple[str, Any], ...]:
    """Returns the type of each field of a kind of event."""
    hints = typing.get_type_hints(kind)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(kind))


def _as_read(value: Any, inner: type = tuple) -> Any:
    """Returns a value as `from_plain` reads it from JSON: only the outer list is a tuple, and subclasses are forgotten."""
    if isinstance(value, list | tuple):
        return inner(_as_read(part, list) for part in value)
    plain = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return value if plain is None else plain(value)


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of the type that a field declares; types that are not known here take anything."""
    if hint is float:
        return type(value) is float or (type(value) is int and abs(value) < LARGEST)
    if hint is int:
        return type(value) is int and abs(value) < LARGEST
    if hint in (str, bool, type(None)):
        return type(value) is hint
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return isinstance(value, str | int) and value in inner
    if typing.get_origin(hint) is tuple and inner[1:] == (...,):
        return isinstance(value, tuple) and all(fits(part, inner[0]) for part in value)
    if isinstance(hint, types.UnionType):
        return any(fits(value, option) for option in inner)
    return True


def path_words(path: Path, at_most: int = 24) -> str:
    """Returns a path as a person would write it, its middle left out where it is long."""
    if not path:
        return "the root"
    steps = [str(a) for a in path]
    if len(steps) > at_most:
        steps = [*steps[: at_most // 2], f"... ({len(path)} actions) ...", *steps[-at_most // 2 :]]
    return " ".join(steps)


@dataclass(frozen=True)
class Progress:
    """Where a run stands; a callback gets one after every event."""

    event: Event
    episodes: int  # so far
    upper: float | None = None  # U so far, where the learner certifies one
    lower: float | None = None  # W of the policy below: it surely earns as much
    # Makes the policy with which the learner would answer now; None where it only has one at the end. It is not stored.
    policy: Callable[[], Policy] | None = dataclasses.field(default=None, compare=False, repr=False)


Callback = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """Listens to a run and does nothing."""
