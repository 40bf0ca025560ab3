"""Arguments of the wrong kind, refused in a sentence.

Constructors check what they are given: shapes, ranges, finite numbers. What fails before such a check, because it is no
array or no number at all, ends in a sentence as well.
"""

import difflib
import functools
import inspect
import numbers
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from richobs.core.errors import InvalidInput, RichObsError
from richobs.core.types import Floats

LEVELS = 1_000_000  # most levels of a class that is given level by level, of a model, and of a Gymnasium environment
MOST_WORKERS = 10_000  # of one run
LARGEST_FACT = 10**9  # most levels or actions that an environment or a policy may declare
P = ParamSpec("P")
R = TypeVar("R")
UNUSABLE = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)  # raised by arguments of other kinds


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Returns " Did you mean ...?" for the known name that is nearest to a word, or nothing where none is near."""
    near = difflib.get_close_matches(str(word), known, 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def file_path(file: Any, what: str = "a file") -> Path:
    """Returns the path of a file or of a folder.

    Args:
        file: its name.
        what: what is meant, in words.

    Raises:
        InvalidInput: it is not the name of one.
    """
    name = os.fspath(file) if isinstance(file, str | os.PathLike) else None
    try:
        is_name = isinstance(name, str) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        is_name = False
    if not is_name or not isinstance(name, str):
        raise InvalidInput(f"{what} is given as text or a path, in characters that a name can hold; got {file!a:.80}.")
    return Path(name)


def absolute_path(path: Path) -> Path:
    """Returns where a path lies, wherever the process goes later.

    Raises:
        InvalidInput: the path begins at the working folder, and that was deleted.
    """
    try:
        return path.absolute()
    except FileNotFoundError:
        raise InvalidInput(
            f"the folder in which this process works was deleted, so {path} lies nowhere. Go to a folder that exists, or "
            "give a whole path."
        ) from None


def whole_number(name: str, value: Any, least: int | None = 0, most: int | None = None) -> int:
    """Returns a whole number as Python's int.

    Raises:
        InvalidInput: it is something else, or less than `least`, or more than `most`, or has more than 4,000 digits.
    """
    at_least = "" if least is None else f", at least {least}"
    at_most = "" if most is None else f", at most {most:,}"
    try:
        if isinstance(value, bool):
            raise TypeError("True is no number")
        number = operator.index(value)
        text = str(number)  # Python writes no more than some 4,300 digits
    except (TypeError, ValueError):
        text = type(value).__name__
    else:
        if (least is None or number >= least) and (most is None or number <= most):
            return number
    raise InvalidInput(f"{name} must be a whole number{at_least}{at_most}; got {text:.80}.")


def checked_workers(n: int) -> int:
    """Returns a number of workers; raises `InvalidInput` where it is none, or more than can be started."""
    return whole_number("workers", n, least=1, most=MOST_WORKERS)


def real_number(name: str, value: Any) -> float:
    """Returns a real number, also one of NumPy or an array without axes, as Python's float; it may be infinite or NaN.

    Raises:
        InvalidInput: it is something else, or too large for a float.
    """
    plain = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        raise InvalidInput(f"{name} must be a number; got {value!r:.80}.")
    try:
        return float(plain)
    except OverflowError:
        raise InvalidInput(f"{name} must be a number that a float holds.") from None


def real_array(given: Any) -> Floats:
    """Returns real numbers as an array of float64; NumPy would drop the imaginary part of complex ones with a warning only.

    Raises:
        InvalidInput: they are complex.
    """
    array = np.asarray(given)
    if array.dtype.kind == "c":
        raise InvalidInput(f"values, rewards and probabilities are real numbers; an array of {array.dtype} arrived.")
    return np.asarray(array, dtype=np.float64)


def refuse_unusable(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that calls no code of others: an argument of the wrong kind raises `InvalidInput`.

    A call that lacks an argument, or has one too many, stays Python's own TypeError.
    """
    signature = inspect.signature(function)
    who = function.__qualname__.removesuffix(".__init__").removesuffix(".__post_init__").removesuffix(".__new__")

    @functools.wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RichObsError:
            raise
        except UNUSABLE as error:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                raise TypeError(f"{error}. See help({who}).") from None
            kinds = ", ".join(
                f"{name} of type {type(value).__name__}" for name, value in given.items() if name not in ("self", "cls")
            )
            arrived = f" It was given {kinds}." if kinds else ""
            raise InvalidInput(f"{who} cannot use an argument: {error}.{arrived} See help({who}).") from error

    return refusing
