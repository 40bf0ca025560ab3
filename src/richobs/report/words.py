"""Numbers and short sentences as a reader of the page meets them; powers are written 10^3, and raised when shown."""

import math
from collections.abc import Sequence
from typing import NamedTuple


def count(n: int) -> str:
    """Returns a number of things: `3,149`, or `1.23·10^16` where nobody would count the digits."""
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
        return "none" if math.isnan(x) else ("-∞" if x < 0 else "∞")
    if x and not 1e-4 <= abs(x) < 1e6:
        return scientific(float(x))
    return f"{x:.4g}"


def functions(log_size: float) -> str:
    """Returns how many functions a natural logarithm stands for: a number where it is small, else a power of ten."""
    if log_size == -math.inf:
        return "0"
    if not math.isfinite(log_size):
        return value(log_size)
    if log_size < math.log(99_999.5):
        return f"{round(math.exp(log_size)):,}"
    return f"10^{log_size / math.log(10):.1f}"


def path(actions: Sequence[int]) -> str:
    """Returns a path as its actions, `0 3 1`; the empty one is the root."""
    return " ".join(map(str, actions)) or "root"


class Meaning(NamedTuple):
    """What the two numbers of a test are."""

    test: str
    statistic: str
    threshold: str


MEANINGS = {
    "consensus": Meaning("do survivors agree on the value here?", "widest disagreement", "still counts as agreement"),
    "elimination": Meaning("who is inconsistent with what was seen?", "risk of the reference", "largest that survives"),
    "rollout": Meaning("does the policy earn what was promised?", "distance from V*'s estimate", "allowed"),
    "trial": Meaning("does the candidate seem to keep its promise?", "promised minus earned", "allowed"),
    "verification": Meaning("are the bounds close enough?", "U - W", "epsilon asked for"),
    "stage": Meaning("a batch told no survivors apart", "its size", "largest batch from here on"),
    "handover": Meaning("the paper's algorithm takes over", "episodes until then", "allowed"),
}

PURPOSES = {
    "consensus": "do survivors agree?",
    "elimination": "who survives?",
    "rollout": "a survivor's policy, played",
    "trial": "a candidate's policy, tried",
    "pilot": "choosing what to test",
    "batch": "the tests themselves",
    "verification": "the policy's value",
    "root value": "the best value",
}
