"""Delta as a type: a share is spent once, and parts never add up to more than the whole.

A bound takes a share, not a number, so each event of a proof has its own piece of delta. Claims are written on the shares
that were really spent, and the certificate is made from them.
"""

import math

from richobs.core.errors import Overspent
from richobs.core.outcome import Claim
from richobs.core.types import Path

ROUNDING = 1e-12  # relative excess that adding up parts may show in float64
SERIES = 2.1098  # sum over j >= 1 of 1 / ((j + 1) log(j + 1)^2), rounded up
SQUARES = 0.93481  # sum over j >= 1 of 1 / (j + 1/2)^2, which is pi^2 / 2 - 4, rounded up


class Supposed:
    """A share that is only imagined, for guesses on which no claim rests; it can be asked any number of times."""

    def __init__(self, amount: float):
        self.amount = amount

    def spend(self) -> float:
        """Returns the amount."""
        return self.amount


class Share:
    """A piece of delta. It is either spent by one statement, or split into parts; never both, and never twice."""

    def __init__(self, amount: float):
        """Takes the whole of delta."""
        if not 0 < amount < 1:
            raise Overspent(f"a probability to spend lies strictly between 0 and 1; got {amount}.")
        self._start(amount, None)

    def _start(self, amount: float, parent: "Share | None") -> None:
        self.amount = amount
        self._parent = parent
        self._book: list[Claim] = [] if parent is None else parent._book
        self._parts: list[Share] = []
        self._handed_out = 0.0
        self._spent = False
        self._claimed = False

    def __repr__(self) -> str:
        state = "spent" if self._spent else f"{len(self._parts)} parts" if self._parts else "not spent"
        return f"Share({self.amount:g}, {state})"

    def spend(self) -> float:
        """Returns the amount, once.

        Raises:
            Overspent: it was spent or split before.
        """
        if self._spent or self._parts:
            raise Overspent(f"{self!r} cannot be spent again: every statement needs a share of its own.")
        self._spent = True
        return self.amount

    def part(self, amount: float) -> "Share":
        """Returns a part of this share.

        Raises:
            Overspent: it was spent before, or its parts would add up to more than it holds.
        """
        if self._spent:
            raise Overspent(f"{self!r} was spent, so it has no parts to hand out.")
        if not amount > 0 or self._handed_out + amount > self.amount * (1 + ROUNDING):
            left = self.amount - self._handed_out
            raise Overspent(f"a part of {amount:g} was asked of {self!r}, of which {left:g} is left.")
        part = Share.__new__(Share)
        part._start(amount, self)
        self._parts.append(part)
        self._handed_out += amount
        return part

    def split(self, *fractions: float) -> tuple["Share", ...]:
        """Returns parts that are the given fractions of this share; they add up to at most 1."""
        return tuple(self.part(self.amount * fraction) for fraction in fractions)

    def claim(self, kind: str, path: Path, n: int, value: float) -> None:
        """Writes down the statement that this share, or all that was spent of its parts, was spent on.

        Args:
            kind: what is claimed, in words.
            path: where.
            n: episodes that it rests on.
            value: the number in it.

        Raises:
            Overspent: nothing was spent, or a claim was written on this share before.
        """
        if not any(share._spent for share in (self, *self._below())):
            raise Overspent(f"a claim was written on {self!r}, of which nothing was spent.")
        if any(share._claimed for share in (*self._ancestors(), *self._below())):  # a claim there counts the same share
            raise Overspent(f"two claims were written on {self!r}: {kind!r} needs a share of its own.")
        self._claimed = True
        self._book.append(Claim(kind, path, n, self.amount, value))

    def claims(self) -> tuple[Claim, ...]:
        """Returns every claim written on this share's whole family, in order.

        Raises:
            Overspent: a share was spent and no claim says on what.
        """
        spent = [share for share in (self, *self._below()) if share._spent]
        silent = [share for share in spent if not any(s._claimed for s in share._ancestors())]
        if silent:
            raise Overspent(f"{silent[0]!r} was spent, and no claim says on what.")
        return tuple(self._book)

    def _ancestors(self) -> list["Share"]:
        """Returns this share and all that it is a part of."""
        line = [self]
        while (parent := line[-1]._parent) is not None:
            line.append(parent)
        return line

    def _below(self) -> list["Share"]:
        """Returns every share that is a part of this one, or of a part of it."""
        return [share for part in self._parts for share in (part, *part._below())]


Spendable = Share | Supposed  # what a bound takes: `spend` returns the probability with which the bound may fail


class Series:
    """Parts of one share for claims without end: the j-th is its amount / (SERIES (j + 1) log(j + 1)^2) [D].

    They sum to at most the share over any number of claims, so no bound on their number is needed.
    """

    def __init__(self, share: Share):
        self._share = share
        self._taken = 0

    def next(self) -> Share:
        """Returns the share of the next claim."""
        self._taken += 1
        return self._share.part(self._amount(self._taken))

    def suppose(self, ahead: int) -> Supposed:
        """Returns what the claim after `ahead` more ones would get; nothing is spent."""
        return Supposed(self._amount(self._taken + ahead + 1))

    def _amount(self, j: int) -> float:
        return part_of_series(self._share.amount, j)


class Squares(Series):
    """As `Series`, but the j-th part is its amount / (SQUARES (j + 1/2)^2): more of it for the second to the twentieth."""

    def _amount(self, j: int) -> float:
        return self._share.amount / (SQUARES * (j + 0.5) ** 2)


def part_of_series(amount: float, j: int) -> float:
    """Returns the j-th part of a share without end, j = 1, 2, ..."""
    return amount / (SERIES * (j + 1) * math.log(j + 1) ** 2)
