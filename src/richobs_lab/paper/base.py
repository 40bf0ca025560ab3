"""What a statement of [KAL16] is here: work in independent pieces, a conclusion drawn from them, and a figure.

Each statement is a module of this package that has the names of `Statement`. Pieces and what was measured of them are plain
values, so that a runner can share them among processes, store each as it ends, and go on after an interruption.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from richobs import InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["fast", "full"]  # what the tests run in seconds, and what `richobs paper` runs in minutes
Plain = dict[str, Any]  # names and plain values, as JSON has them


Verdict = Literal["holds", "holds as read", "false as printed"]  # what a check that came out as expected says
Judgement = Literal["holds", "holds as read", "false as printed", "check failed"]  # the last: not as expected
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)  # from best to worst
ROUNDING = 1e-9  # above a bound, for sums of floating-point numbers
FAR = 1 / 3  # of the bound: where the tightest instance is below that, a check says why


@dataclass(frozen=True)
class Check:
    """One thing that was checked of a statement, and what came of it.

    `holds` says whether the check came out as expected. A check that shows that the paper is wrong as printed has
    `verdict="false as printed"`, and holds where the counterexample is confirmed.
    """

    what: str
    holds: bool
    detail: str  # the numbers behind it
    _: KW_ONLY
    verdict: Verdict | None = None  # None means "holds", or "holds as read" where there is a reading
    reading: str = ""  # how the statement is read where it holds only as read
    tightness: float | None = None  # the largest share of the bound that was found: 0.86 of the bound
    loose: str = ""  # where that share is far below 1: which step of the proof keeps instances away from the bound

    def __post_init__(self) -> None:
        """Refuses a verdict without what it needs."""
        if self.verdict == "holds as read" and not self.reading:
            raise InvalidInput(f"check {self.what!r} holds as read, so it must say the reading.")
        if self.verdict == "holds" and self.reading:
            raise InvalidInput(f"check {self.what!r} has a reading, so its verdict must be 'holds as read'.")
        if self.tightness is not None and not math.isfinite(self.tightness):
            raise InvalidInput(f"the tightness of check {self.what!r} must be finite; got {self.tightness}.")
        if self.tightness is not None and self.tightness > 1 + ROUNDING and self.holds and self.verdict is None:
            raise InvalidInput(f"check {self.what!r} holds, and an instance takes {self.tightness} of its bound.")

    @property
    def judgement(self) -> Judgement:
        """The verdict, or "check failed"."""
        if not self.holds:
            return "check failed"
        return self.verdict or ("holds as read" if self.reading else "holds")


@dataclass(frozen=True)
class Conclusion:
    """What came of a statement."""

    checks: tuple[Check, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # the table of what was measured
    sample: str  # seeds and sample sizes, in words; printed under the figure

    @property
    def holds(self) -> bool:
        """Whether every check came out as expected."""
        return all(c.holds for c in self.checks)

    @property
    def verdict(self) -> Judgement:
        """The worst judgement of a check."""
        return max((c.judgement for c in self.checks), key=JUDGEMENTS.index, default="holds")

    @property
    def tightness(self) -> float | None:
        """The largest share of a bound that any check found, or None where no check states one."""
        return max((c.tightness for c in self.checks if c.tightness is not None), default=None)


class Statement(Protocol):
    """A module that makes one statement executable."""

    NAME: str  # of the command and of the figure's file
    TITLE: str  # as the paper calls it
    SAYS: str  # the statement in a sentence

    def pieces(self, scale: Scale, /) -> list[Plain]:
        """Returns the work: what each piece measures is a pure function of its plain values, seeds included."""
        ...

    def measure(self, piece: Plain, /) -> Plain:
        """Returns what one piece measured."""
        ...

    def conclude(self, pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
        """Returns what follows from all pieces, given in the same order."""
        ...

    def draw(self, figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
        """Draws the statement's figure; the runner adds what `Conclusion.sample` says."""
        ...


def of_kind(kind: str, pieces: Sequence[Plain], results: Sequence[Plain]) -> Iterator[tuple[Plain, Plain]]:
    """Yields the pieces of one kind, each with what was measured of it, where a statement's pieces have a `kind`."""
    return ((p, r) for p, r in zip(pieces, results, strict=True) if p["kind"] == kind)
