"""Level classes as plain arrays and back, so that policies can be saved and classes identified without pickle."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.codebook import Codebook
from richobs.errors import InvalidFile, InvalidInput
from richobs.functions.decoders import Decoders
from richobs.functions.layered import Chosen, LevelClass, checked_members
from richobs.functions.prototypes import Prototypes
from richobs.functions.tables import TableLevel

Arrays = dict[str, NDArray[Any]]


def to_arrays(level_class: LevelClass) -> tuple[str, Arrays]:
    """Returns the kind of a level class and the arrays it is made of.

    Raises:
        InvalidInput: it is made of Python code.
    """
    if type(level_class) is TableLevel:
        book = level_class.codebook
        return "table", {"tables": level_class.tables, **({} if book.is_plain else {"codebook": book.rows})}
    if type(level_class) is Decoders:
        turn = level_class.rotation
        arrays = {"n_coordinates": np.array(level_class.n_coordinates), "worth": level_class.worth}
        return "decoders", arrays if turn is None else {**arrays, "rotation": turn}
    if type(level_class) is Prototypes:
        return "prototypes", {k: getattr(level_class, k) for k in ("centres", "which", "tables")}
    if isinstance(level_class, Chosen):
        kind, inner = to_arrays(level_class.level_class)
        return f"chosen {kind}", {**inner, "members": np.asarray(level_class.members)}
    raise InvalidInput(
        f"functions of kind {type(level_class).__name__} are Python code and cannot be written as arrays; keep the code, "
        "and pass the class again where it is needed."
    )


def from_arrays(kind: str, arrays: Mapping[str, NDArray[Any]]) -> LevelClass:
    """Returns the level class that `to_arrays` took apart."""
    try:
        if kind.startswith("chosen "):
            inner = from_arrays(kind.removeprefix("chosen "), arrays)
            return Chosen(inner, checked_members(np.atleast_1d(arrays["members"]), inner.size))
        if kind == "table":
            return TableLevel(arrays["tables"], Codebook(arrays["codebook"]) if "codebook" in arrays else None)
        if kind == "decoders":
            return Decoders(int(arrays["n_coordinates"]), arrays["worth"], rotation=arrays.get("rotation"))
        if kind == "prototypes":
            return Prototypes(arrays["centres"], arrays["which"], arrays["tables"])
    except (KeyError, InvalidInput) as error:
        raise InvalidFile(f"the arrays of a {kind} class are damaged: {error}") from error
    raise InvalidFile(f"there is no kind of function class called {kind!r}.")


def only(level_class: LevelClass, member: int) -> LevelClass:
    """Returns the class that holds one function of another, as small as it can be."""
    if type(level_class) is TableLevel:
        return TableLevel(level_class.tables[[member]], level_class.codebook)
    if type(level_class) is Prototypes:
        which = level_class.which[member]
        return Prototypes(level_class.centres[[which]], np.zeros(1, dtype=np.int64), level_class.tables[[member]])
    if isinstance(level_class, Chosen):
        return only(level_class.level_class, int(level_class.members[member]))
    return Chosen(level_class, np.array([member]))


def digest_of(levels: Sequence[tuple[str, Arrays]]) -> str:
    """Returns a SHA-256 over kinds, names, types, shapes and contents of every array, in order."""
    sha = hashlib.sha256()
    for kind, arrays in levels:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            sha.update(json.dumps([kind, name, array.dtype.str, array.shape]).encode())
            sha.update(array.tobytes())
    return sha.hexdigest()
