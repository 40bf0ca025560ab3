"""Numbers as every reader meets them: in claims, on the page, in figures and on a terminal; powers are written 10^3."""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import partial

NONE = "\u2013"  # a dash, where there is no number
OWN = "an environment of your own"  # a problem without an id


def count(n: int) -> str:
    """Returns a whole number: `3,149`, or `1.23·10^16` where it has many digits."""
    return f"{n:,}" if abs(n) < 10**9 else scientific(n)


def scientific(value: float) -> str:
    """Returns a number as `1.23·10^16`; it may be too large for a float."""
    digits, _, power = f"{value:.2e}".partition("e") if not isinstance(value, int) else _digits_of(value)
    shown = digits.rstrip("0").rstrip(".")
    times = f"10^{int(power)}"
    return times if shown == "1" else f"{shown}·{times}"


def _digits_of(n: int) -> tuple[str, str, str]:
    """Splits a whole number of any size: `float(n)` overflows beyond 10^308."""
    text, sign = str(abs(n)), "-" if n < 0 else ""
    power = len(text) - 1
    digits = f"{int(text[:17]) / 10 ** (len(text[:17]) - 1):.2f}"
    return (f"{sign}1.00", "e", str(power + 1)) if digits == "10.00" else (sign + digits, "e", str(power))


def value(x: float) -> str:
    """Returns a value or a threshold with four digits."""
    if not math.isfinite(x):
        return NONE if math.isnan(x) else ("-∞" if x < 0 else "∞")
    if x and not 1e-4 <= abs(x) < 1e6:
        return scientific(float(x))
    return f"{float(f'{x:.4g}'):g}"  # rounded first: 14,790 must not read 1.479e+04


def rounded(x: float, digits: int, *, up: bool) -> Decimal:
    """Returns a number with so many digits, rounded up or down: a bound in words must not promise more than was shown."""
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return context.create_decimal(repr(float(x) + 0.0))  # -0.0 reads 0, and repr of a NumPy number is no number


def number_words(x: float, within: tuple[float, float] | None = None, *, up: bool) -> str:
    """Returns a bound with four digits as `value` does, rounded up or down.

    Args:
        x: the bound.
        within: the range that it may have; where that is narrow beside its ends, there are more digits.
        up: to which side it is rounded.
    """
    if not math.isfinite(x):
        return value(x)
    low, high = within or (0.0, 0.0)
    ends = max(abs(low), abs(high)) / (high - low) if 0 < high - low < math.inf else 1.0
    digits = 4 + max(0, math.floor(math.log10(ends))) if 1e-4 <= abs(x) < 1e6 else 3
    short = rounded(x, digits, up=up)
    return f"{short.normalize():f}" if x == 0 or 1e-4 <= abs(short) < 10**6 else scientific(float(short))


at_least = partial(number_words, up=False)  # of a lower bound
at_most = partial(number_words, up=True)  # of an upper bound


def probability_words(delta: float) -> str:
    """Returns 1 - delta exactly: 1 - 1e-9 must not read as 1."""
    return str(Decimal(1) - Decimal(repr(float(delta))))


def exact_words(value: float) -> str:
    """Returns a number with all of its digits: what was asked or declared must not read as something else."""
    exact = Decimal(repr(float(value) + 0.0)).normalize()
    return f"{exact:f}" if -7 < exact.adjusted() < 16 else f"{exact}"


def number(x: float) -> str:
    """Returns a whole number as `count` does, any other as `value` does."""
    return count(x) if isinstance(x, int) else value(x)


def functions(log_size: float) -> str:
    """Returns how many functions a natural logarithm stands for: a number where it is small, else a power of ten."""
    if log_size == -math.inf:
        return "0"
    if not math.isfinite(log_size):
        return value(log_size)
    if log_size < math.log(99_999.5):
        return f"{round(math.exp(log_size)):,}"
    return f"10^{power_of_ten(log_size):.1f}"


def several(n: int, noun: str) -> str:
    """Returns a number of things: `1 level`, `5 levels`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def problem_size(horizon: int, n_actions: int, n_states: int | None, log_size: float) -> str:
    """Returns the size of a problem in words."""
    states = "" if n_states is None else f"at most {several(n_states, 'hidden state')} a level, "
    return f"{several(horizon, 'level')}, {several(n_actions, 'action')}, {states}a class of {functions(log_size)} functions"


def power_of_ten(log_size: float) -> float:
    """Returns log10 of a number that is given by its natural logarithm."""
    return log_size / math.log(10)


def path(actions: Sequence[int]) -> str:
    """Returns a path as its actions, `0 3 1`; the empty one is the root."""
    return " ".join(map(str, actions)) or "root"
