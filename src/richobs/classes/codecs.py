"""Level classes as plain arrays and back, so that policies can be saved and classes identified without pickle."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from richobs.classes.base import Arrays, Chosen, LevelClass, checked_members
from richobs.core.arguments import file_path
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import open_arrays, write_atomically
from richobs.core.registry import Registry

CODECS: dict[str, type[LevelClass]] = {}  # code -> class; filled by `@codec` where the class is written
ADDED = Registry("richobs.classes", {})  # code -> where another package writes its class; importing it fills the table
CHOSEN = "chosen "  # a kind that begins with this word is some members of the class that the rest names

Written = TypeVar("Written", bound=type[LevelClass])


def codec(level_class: Written) -> Written:
    """Registers a class that can be written, under its `code`. Use it as a decorator.

    Raises:
        InvalidInput: the class lacks a `code`, `to_arrays` or `from_arrays`, or another class has the same code.
    """
    name, code = level_class.__name__, level_class.code
    if not code or any(mark.isspace() for mark in code):
        raise InvalidInput(f"{name} needs a `code`, one word that names it in files; it has {code!r}.")
    for method in ("to_arrays", "from_arrays"):
        if vars(level_class)[method] is vars(LevelClass)[method]:
            raise InvalidInput(f"{name} has the code {code!r} but no `{method}` of its own.")
    other = CODECS.get(code, level_class)
    if (other.__module__, other.__qualname__) != (level_class.__module__, level_class.__qualname__):
        raise InvalidInput(f"{name} has the code {code!r}, which belongs to {other.__name__}; choose another.")
    CODECS[code] = level_class
    return level_class


def to_arrays(level_class: LevelClass) -> tuple[str, Arrays]:
    """Returns the kind of a level class and the arrays it is made of.

    Raises:
        InvalidInput: it is made of Python code.
    """
    if isinstance(level_class, Chosen):
        kind, arrays = to_arrays(level_class.level_class)
        return CHOSEN + kind, {**arrays, "members": level_class.members}
    arrays = level_class.to_arrays()
    code = level_class.code
    if code is None or code not in CODECS:
        raise InvalidInput(
            f"{type(level_class).__name__} is not registered: give it a `code` and put @codec before it."
        )
    return code, arrays


def from_arrays(kind: str, arrays: Arrays) -> LevelClass:
    """Returns the level class that `to_arrays` took apart.

    Raises:
        InvalidFile: the kind is not known, or the arrays do not make such a class.
    """
    code = kind.removeprefix(CHOSEN)
    if code not in CODECS and code in ADDED:
        ADDED.load(code)
    if code not in CODECS:
        raise InvalidFile(
            f"there is no kind of function class called {code[:40]!r}; there are {', '.join(CODECS)}. Import the module "
            "that registers it."
        )
    try:
        whole = CODECS[code].from_arrays(arrays)
        if kind == code:
            return whole
        return Chosen(whole, checked_members(np.atleast_1d(arrays["members"]), whole.size))
    except (KeyError, InvalidInput) as error:
        raise InvalidFile(f"the arrays of a {kind} class are damaged: {error}") from error


def write_parts(
    file: str | os.PathLike[str],
    format: str,
    parts: Sequence[tuple[str, Arrays]],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Writes kinds and arrays to a `.npz` file: plain arrays and a JSON header, no pickle.

    Args:
        file: where to.
        format: what the file holds, in a word.
        parts: kind and arrays of each part, as `to_arrays` returns them.
        more: further plain values for the header.
    """
    header = {"format": format, "version": 1, "kinds": [kind for kind, _ in parts], **(more or {})}
    arrays: dict[str, Any] = {f"{h}/{name}": a for h, (_, part) in enumerate(parts) for name, a in part.items()}
    with write_atomically(file_path(file)) as stream:
        np.savez(stream, header=np.array(json.dumps(header)), **arrays)


def read_parts(file: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], list[tuple[str, Arrays]]]:
    """Returns the header, and kind and arrays of each part, that `write_parts` wrote.

    Raises:
        InvalidFile: the file is damaged or holds something else.
    """
    try:
        with open_arrays(file_path(file)) as stored:
            header = json.loads(str(stored.read("header")))
            if header["format"] != format or header["version"] != 1:
                raise InvalidFile(f"its header says {str(header)[:200]}; version 1 is read alone")
            kinds = [str(kind) for kind in list(header["kinds"])]
            parts: list[tuple[str, Arrays]] = [(kind, {}) for kind in kinds]
            places = {str(h): part for h, (_, part) in enumerate(parts)}
            for full_name in (each for each in stored.sizes if each != "header"):
                level, _, name = full_name.partition("/")
                if level not in places or not name:
                    raise InvalidFile(f"it holds an array {full_name[:40]!r}, which belongs to none of its parts")
                places[level][name] = stored.read(full_name)
        return header, parts
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever else a damaged or hostile file leads to
        raise InvalidFile(f"{file} is not a {format} file that richobs wrote: {error}") from error


def digest_of(levels: Sequence[tuple[str, Arrays]]) -> str:
    """Returns a SHA-256 over kinds, names, types, shapes and contents of every array, in order."""
    sha = hashlib.sha256()
    for kind, arrays in levels:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            sha.update(json.dumps([kind, name, array.dtype.str, array.shape]).encode())
            sha.update(array.reshape(-1).view(np.uint8).data)  # the bytes themselves, not a copy of them
    return sha.hexdigest()
