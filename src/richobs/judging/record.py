"""The folder of a judgement: what was asked, every draw as it is made, and the certificate.

judgement.json     what was asked
judgement.sqlite   the totals of every draw, committed before they are looked at
policy-K.npz       the policies, where they can be saved
certificate.json   what was found, once it was
report.html        a page about it
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.arguments import absolute_path
from richobs.core.errors import InvalidFile, InvalidInput, StoreError
from richobs.core.files import held, is_there, make_folder, parse_json, read_json, reading, write_atomically
from richobs.core.types import Floats
from richobs.runs.database import ROWS, LinkedRows, make_database, opened, remove_unfinished, sha256
from richobs.runs.store import folder_path

FORMAT, VERSION = "richobs-judgement", 1
QUESTION, DATABASE, LOCK = "judgement.json", "judgement.sqlite", "judgement.lock"
MOST = {"draw": 10_000_000}
LONGEST = 10_000_000  # characters of a row: the sizes of its calls
NEWER = ("measure", "measure_digest", "quantile")  # parts of a question that files of earlier versions lack
Calls = list[Floats]  # totals of one draw, call by call


@dataclass(frozen=True)
class Question:
    """What is asked of a judgement, in plain values: with the draws it gives the report."""

    kind: str  # "value", "compare" or "select"
    names: tuple[str, ...]  # of the policies
    reward_range: tuple[float, float]
    delta: float
    seed: int
    batch: int
    max_episodes: int
    slack: float  # by how much clipping to the range and rounding may move a mean
    threshold: float | None = None
    epsilon: float | None = None
    paired: bool = False
    deterministic: bool = False
    assumes: tuple[str, ...] = ()
    environment: str = ""  # which one, in a line
    is_open: bool = False  # whether policies may join
    world: str | None = None  # an id from which it can be built again
    policies: tuple[str, ...] = ()  # digests or names
    environment_digest: str | None = None  # what tells it from every other one
    measure: str | None = None  # name of what is measured of an episode; None: its total
    measure_digest: str | None = None
    quantile: float | None = None  # which one is asked for; None: the mean

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Question":
        """Returns the question that `dataclasses.asdict` wrote to JSON."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
        return cls(**values)


class Record:
    """What was played so far; without a folder nothing is kept."""

    def __init__(self, place: FilePath | None = None, rows: LinkedRows | None = None):
        self.place = place
        self._rows = rows
        self._next = 0

    def draw(self, make: Callable[[], Calls]) -> Calls:
        """Returns the next draw: the stored one, or one that is made now and stored before anybody looks at it."""
        rows = self._rows
        if rows is None:
            return make()
        self._next += 1
        if self._next <= rows.count("draw"):
            row = rows.get("draw", "k", self._next - 1)
            if row is not None:
                return _unpacked(row.text, rows.body("draw", row))
        calls = make()
        with rows.transaction():
            rows.append(
                "draw", json.dumps([len(call) for call in calls]), np.concatenate(calls).astype("<f8").tobytes()
            )
        return calls


def _unpacked(text: str, body: bytes) -> Calls:
    """Returns the calls of a stored draw."""
    totals, sizes = np.frombuffer(body, dtype="<f8"), parse_json(text)
    if sum(sizes) != len(totals):
        raise InvalidFile(f"a draw has {len(totals):,} totals, and its calls have {sum(sizes):,}.")
    return list(np.split(totals.astype(np.float64), np.cumsum(sizes[:-1])))


@contextlib.contextmanager
def opened_record(
    out: str | os.PathLike[str] | None, question: Question, policies: Sequence[Any], strangers: Sequence[str] = ()
) -> Iterator[Record]:
    """Holds the folder of a judgement, made where it is not there; without a folder, a record that keeps nothing.

    Args:
        out: the folder.
        question: what is asked.
        policies: saved there, where they can be.
        strangers: what of the judgement has no digest, in words: then a folder that is there may be of something else.

    Raises:
        StoreError: the folder is held by another process, or cannot be written, or is (or may be) of another question.
        InvalidFile: it is damaged.
    """
    if out is None:
        yield Record()
        return
    place = absolute_path(folder_path(out))
    with contextlib.ExitStack() as stack:
        try:
            rows = _opened(stack, place, _plain(question), policies, strangers)
        except OSError as error:
            raise StoreError(f"the judgement in {place} cannot be written ({error}). What was stored stays.") from error
        yield Record(place, rows)


def _opened(
    stack: contextlib.ExitStack,
    place: FilePath,
    asked: dict[str, Any],
    policies: Sequence[Any],
    strangers: Sequence[str],
) -> LinkedRows:
    """Makes or opens the folder of a judgement, and returns its draws."""
    make_folder(place)
    stack.enter_context(held(place / LOCK))
    remove_unfinished(place)
    if not is_there(place / QUESTION):
        if is_there(place / DATABASE):
            raise InvalidFile(f"{place} holds a {DATABASE} and no {QUESTION}: it cannot be identified.")
        for k, policy in enumerate(policies):
            with contextlib.suppress(InvalidInput):  # made of Python code: only its name is kept
                if isinstance(policy, LearnedPolicy):
                    policy.save(place / f"policy-{k}.npz")
        _write(place / QUESTION, {"format": FORMAT, "version": VERSION, "question": asked})
    elif (known := _read_question(place)) != asked:
        raise StoreError(f"{place} holds another judgement: {_difference(known, asked)}. Choose another folder.")
    elif strangers:
        raise StoreError(
            f"{place} holds a judgement already, and {' and '.join(strangers)[:200]} cannot be told from another one of the "
            "same name, so it may be about something else. Choose another folder; or give a policy an attribute `digest`, "
            "an environment of richobs an identity (richobs.Declared), make a Gymnasium environment by gymnasium.make, and "
            "let a measure read numbers, text, arrays and functions alone (docs/policy-value.md)."
        )
    if not is_there(place / DATABASE):
        make_database(place / DATABASE, ROWS)
    return _rows(stack, place, asked, write=True)


def _difference(known: dict[str, Any], asked: dict[str, Any]) -> str:
    """Returns where two questions differ, in words."""
    name = next(name for name in {**asked, **known} if known.get(name) != asked.get(name))
    return f"its {name} is {known.get(name)!r:.80}, and {asked.get(name)!r:.80} is asked now"


def _plain(question: Question) -> dict[str, Any]:
    """Returns a question as a reader of the file would have it."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(question)))
    return {name: value for name, value in plain.items() if value is not None or name not in NEWER}


def _read_question(place: FilePath) -> dict[str, Any]:
    """Returns the question of a folder in plain values."""
    with reading(place / QUESTION):
        content = read_json(place / QUESTION)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise InvalidFile(f"{place / QUESTION} is not a {FORMAT} of version {VERSION}.")
        plain: dict[str, Any] = content["question"]
        Question.from_plain(plain)
    return plain


def read_question(place: FilePath) -> Question:
    """Returns the question of a folder."""
    return Question.from_plain(_read_question(place))


def _rows(stack: contextlib.ExitStack, place: FilePath, question: dict[str, Any], *, write: bool) -> LinkedRows:
    """Opens the draws of a folder; their links begin with the question."""
    with reading(place / DATABASE):
        db = stack.enter_context(opened(place / DATABASE, ROWS, write=write))
        rows = LinkedRows(db, place / DATABASE, sha256(json.dumps(question, sort_keys=True).encode()), MOST, LONGEST)
        rows.check()
    return rows


@contextlib.contextmanager
def stored_judgement(folder: str | os.PathLike[str]) -> Iterator[tuple[Question, Record]]:
    """Opens the folder of a judgement to derive it again; nothing in it is written.

    Raises:
        InvalidFile: there is none, or it is damaged.
    """
    place = absolute_path(folder_path(folder))
    if not is_there(place / QUESTION) or not is_there(place / DATABASE):
        raise InvalidFile(f"{place} holds no judgement: {QUESTION} or {DATABASE} is missing.")
    plain = _read_question(place)
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(place / LOCK))
        yield Question.from_plain(plain), Record(place, _rows(stack, place, plain, write=False))


def _write(file: FilePath, content: dict[str, Any]) -> None:
    with write_atomically(file) as stream:
        stream.write((json.dumps(content, indent=2) + "\n").encode())
