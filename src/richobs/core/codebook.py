"""Codebooks: finitely many observations, each with a number."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput
from richobs.core.types import Mask

NUMBERS = frozenset("biuf")  # NumPy's letters for truth values, integers and floats


class Codebook:
    """Observations 0 to X-1 and what they look like; in a plain one an observation is its own number."""

    def __init__(self, rows: NDArray[Any]):
        """Takes `[X, ...]` what each observation looks like, all different."""
        self.rows = rows
        self.is_plain = rows.ndim == 1 and rows.dtype.kind in "iu" and bool((rows == np.arange(len(rows))).all())
        self._order, self._keys = np.arange(len(rows)), np.arange(len(rows))
        if not self.is_plain:
            keys = _row_keys(rows)
            self._order = np.argsort(keys)
            self._keys = keys[self._order]
            if (self._keys[1:] == self._keys[:-1]).any():
                raise InvalidInput("two rows of a codebook are equal; each observation is listed once.")

    def __len__(self) -> int:
        return len(self.rows)

    def encode(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Returns `[n]` the number of each observation `[n, ...]`."""
        given = np.asarray(x)
        if given.ndim < 1 or given.shape[1:] != self.rows.shape[1:]:
            raise InvalidInput(
                f"observations here are [n, ...] with n of shape {self.rows.shape[1:]}; got shape {given.shape}."
            )
        if len(given) == 0:
            return np.zeros(0, dtype=np.int64)
        if given.dtype == self.rows.dtype and given.dtype.kind in "biu":  # a cast would change nothing
            return self._find(given, given.astype(np.int64) if self.is_plain else given, None)
        kinds = {given.dtype.kind, self.rows.dtype.kind}
        if len(kinds) > 1 and not kinds <= NUMBERS:
            raise InvalidInput(f"observations here are of type {self.rows.dtype}; got {given.dtype}.")
        with np.errstate(invalid="ignore"):  # NaN becomes some number, which then differs from what was given
            cast = given.astype(np.int64 if self.is_plain else self.rows.dtype)
        return self._find(given, cast, cast != given)

    def _find(self, given: NDArray[Any], cast: NDArray[Any], changed: Mask | None) -> NDArray[np.int64]:
        """Returns `[n]` the number of each observation.

        Args:
            given: `[n, ...]` the observations.
            cast: `[n, ...]` as the type of the rows, or as numbers in a plain codebook.
            changed: `[n, ...]` where that is something else; None where it is nowhere.
        """
        if self.is_plain:
            unknown = (cast < 0) | (cast >= len(self))
            if changed is not None:
                unknown |= changed
            if unknown.any():
                raise InvalidInput(f"observation {given[unknown][0]} is not known: there are 0 to {len(self) - 1}.")
            return cast
        wanted = _row_keys(cast)
        place = np.minimum(self._keys.searchsorted(wanted), len(self) - 1)
        unknown = self._keys[place] != wanted
        if changed is not None:
            unknown |= changed.reshape(len(given), -1).any(axis=1)
        if unknown.any():
            raise InvalidInput(
                f"observation {given[unknown][0]} is not among the {len(self):,} that are known. Models and tables list "
                "every observation that the environment can show: add it, make fewer ones of them (`observation=` of "
                "from_gymnasium rounds or bins), or use functions of the observation (richobs.Callables, richobs.Linear)."
            )
        return self._order[place]


def _row_keys(rows: NDArray[Any]) -> NDArray[Any]:
    """Returns `[n]` one sortable, comparable key per row: its bytes."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    if flat.dtype.kind == "f":
        flat = flat + 0.0  # -0.0 and 0.0 are one observation
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
