"""What a statement of [KAL16] is here: work in independent pieces, a conclusion drawn from them, and a figure.

Each statement is a module of this package that has the names of `Statement`. Pieces and what was measured of them are plain
values, so that a runner can share them among processes, store each as it ends, and go on after an interruption.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["fast", "full"]  # what the tests run in seconds, and what `richobs paper` runs in minutes
Plain = dict[str, Any]  # names and plain values, as JSON has them


@dataclass(frozen=True)
class Check:
    """One thing that a statement says, and whether it held."""

    what: str
    holds: bool
    detail: str  # the numbers behind it


@dataclass(frozen=True)
class Conclusion:
    """What came of a statement."""

    checks: tuple[Check, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # the table of what was measured
    sample: str  # seeds and sample sizes, in words; printed under the figure

    @property
    def holds(self) -> bool:
        """Whether everything did."""
        return all(c.holds for c in self.checks)


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
