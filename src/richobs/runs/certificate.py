"""Certificates: what was promised, what was spent, and everything needed to check it again."""

import dataclasses
import hashlib
import json
import math
import os
import platform
import sys
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from richobs.core.arguments import file_path
from richobs.core.environment import Environment
from richobs.core.errors import InvalidFile, InvalidInput, StoreError
from richobs.core.files import json_fault, read_json, write_atomically
from richobs.core.functions import FunctionClass
from richobs.core.outcome import Outcome
from richobs.core.policies import SavablePolicy
from richobs.core.problem import Problem, as_problem, episodes_digest
from richobs.core.registry import InNotebook
from richobs.core.settings import Settings, read_record
from richobs.core.version import __version__
from richobs.device import DTYPE
from richobs.learners.base import Finding
from richobs.runs.prepare import NUMBERS, claim_row, units_part

FORMAT = "richobs-certificate"
VERSION = 3
PATHS_LEFT_OUT = "left out, because the certificate would be too large to be read again; the run's record has them"
NUMBER = (float, int, type(None))
PARTS: dict[str, tuple[type, ...]] = {  # what a certificate must hold, and of which type
    "claim": (str,),
    "learner": (str,),
    "settings": (dict,),
    "environment.id": (str, type(None)),
    "environment.identity": (str,),
    "environment.horizon": (int,),
    "environment.n_actions": (int,),
    "environment.n_states": (int, type(None)),
    "environment.reward_range": (list,),
    "functions.digest": (str, type(None)),
    "recorded": (dict, type(None)),
    "policy.digest": (str, type(None)),
    "constants": (dict,),
    "result.reason": (str,),
    "result.guaranteed": (bool,),
    "result.epsilon": (float, int),
    "result.episodes": (int,),
    "result.skipped": (int,),
    "result.real_episodes": (int, type(None)),
    "result.upper": NUMBER,
    "result.lower": NUMBER,
    "result.value_hat": NUMBER,
    "result.v_star_hat": NUMBER,
    "result.log_size": NUMBER,
    "result.rounds": (int,),
    "result.remarks": (list,),
    "ledger": (list,),
    "claims": (list,),
    "versions": (dict,),
}
UNITS: dict[str, tuple[type, ...]] = {  # likewise, where the learner's rewards are in other units
    "units.words": (str,),
    "units.shift": (float, int),
    "units.scale": (float, int),
    "units.claims": (list,),
    **{f"units.result.{name}": NUMBER for name in NUMBERS},
}


@dataclass(frozen=True)
class Certificate(InNotebook):
    """A claim in words with everything it rests on; plain values, written as JSON."""

    view = "certificate"
    content: dict[str, Any]

    @property
    def claim(self) -> str:
        """The claim in words."""
        return str(self.content["claim"])

    @property
    def settings(self) -> Settings:
        """What the run was asked to do."""
        return read_record(Settings, self.content["settings"])

    @property
    def environment(self) -> str | None:
        """The id of the world, or None where it was an environment of the user's own."""
        return self.content["environment"]["id"]

    @classmethod
    def of(
        cls, outcome: Outcome, problem: Problem | Environment, functions: FunctionClass | None = None
    ) -> "Certificate":
        """Returns the certificate of an outcome.

        Args:
            outcome: what the run answered, and what it was asked.
            problem: what it ran on, or its environment. A problem from `richobs.make` has an id, from which `verify` can
                build it again.
            functions: the class, where an environment is given.
        """
        if not isinstance(outcome, Outcome):
            raise InvalidInput(f"a certificate needs an Outcome, such as learn returns; got {outcome!r:.80}.")
        given, device = as_problem(problem, functions), outcome.settings.device
        content = {
            "format": FORMAT,
            "version": VERSION,
            "claim": outcome.claim,
            "learner": outcome.learner,
            "settings": {
                k: v for k, v in outcome.settings.as_plain().items() if k != "workers"
            },  # no part in the result
            "environment": {
                "id": given.id,
                "identity": given.identity,
                "horizon": given.horizon,
                "n_actions": given.n_actions,
                "n_states": given.n_states if outcome.settings.n_states is None else outcome.settings.n_states,
                "reward_range": list(given.env.reward_range),
            },
            "functions": {
                "log_size": given.functions.log_size,
                "digest": given.functions.digest,
                **({} if outcome.fingerprint is None else {"fingerprint": outcome.fingerprint}),
            },
            "recorded": recorded_words(given),
            "constants": {} if outcome.constants is None else dataclasses.asdict(outcome.constants),
            "result": {
                "reason": outcome.reason.value,
                "guaranteed": outcome.guaranteed,
                "epsilon": outcome.epsilon,
                "v_star_hat": outcome.v_star_hat,
                "value_hat": outcome.value_hat,
                "log_size": outcome.log_size,
                "rounds": outcome.rounds,
                "tests": len(outcome.trace),
                "episodes": outcome.episodes,
                "real_episodes": outcome.ledger.real_episodes,
                "skipped": outcome.ledger.skipped,
                "upper": outcome.upper,
                "lower": outcome.lower,
                "remarks": list(outcome.remarks),
            },
            "policy": {"member": outcome.policy.member, "digest": policy_digest(outcome.policy)},
            "claims": [claim_row(c) for c in outcome.claims],
            **({} if outcome.in_units is None else {"units": units_part(*outcome.in_units)}),
            **({} if device is None else {"device": {"name": device, "dtype": DTYPE, "rounding": outcome.rounding}}),
            "ledger": [[e.phase, e.purpose, list(e.path), e.requests, e.episodes] for e in outcome.ledger],
            "versions": {"richobs": __version__, "numpy": np.__version__, "python": platform.python_version()},
        }
        made = cls(json.loads(json.dumps(content)))  # plain values, as a reader of the file would have them
        return made if json_fault(made.to_json()) is None else cls(_without_paths(made.content))

    def to_json(self) -> str:
        """Returns the text of the file, the same for the same run."""
        return json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the text of the file."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the certificate.

        Raises:
            StoreError: it is so large that nobody could read it.
        """
        text = self.to_json()
        if fault := json_fault(text):
            raise StoreError(
                f"the certificate cannot be written to {file}, because it could not be read again: {fault}."
            )
        with write_atomically(file_path(file)) as stream:
            stream.write(text.encode())

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Certificate":
        """Returns the certificate in a file.

        Raises:
            InvalidFile: it is damaged, or something else, or of a version that this one cannot check.
        """
        try:
            content = read_json(file_path(file))
        except ValueError as error:  # also text that is not UTF-8, and numbers too long to read
            raise InvalidFile(f"{file} is not a certificate: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InvalidFile(f"{file} is not a {FORMAT}.")
        if content.get("version") != VERSION:
            made = content.get("versions")
            by = made.get("richobs") if isinstance(made, dict) else None
            raise InvalidFile(
                f"{file} is a certificate of version {content.get('version')!r}, written by richobs {by}; richobs "
                f"{__version__} checks version {VERSION} alone. Verify it with the richobs that wrote it, or run again."
            )
        try:
            _check_parts(content)
            cls(content).to_json().encode()  # a text may hold half a character, which no file can hold
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InvalidFile(f"{file} is damaged: {error}") from error
        return cls(content)


def _check_parts(content: dict[str, Any]) -> None:
    """Raises where a part of a certificate is missing, or not of the type that `Certificate.of` writes."""
    units = content.get("units")
    for part, types in (PARTS if units is None else {**PARTS, **UNITS}).items():
        found: Any = content
        for key in part.split("."):
            if not isinstance(found, dict) or key not in found:
                raise TypeError(f"it lacks {part}")
            found = found[key]
        if not isinstance(found, types) or (isinstance(found, bool) and bool not in types):
            raise TypeError(f"{part} is {found!r}")
    settings = read_record(Settings, content["settings"])
    settings.check()
    if settings.learner != content["learner"]:
        raise TypeError(f"its learner is {content['learner']!r} and its settings name {settings.learner!r}")
    _check_device(content, settings)
    ends = content["environment"]["reward_range"]
    if len(ends) != 2 or not all(_is_finite(v) for v in ends) or not ends[0] < ends[1]:
        raise TypeError(f"environment.reward_range is {ends!r:.80}")
    if not all(isinstance(remark, str) for remark in content["result"]["remarks"]):
        raise TypeError("result.remarks holds something that is no text")
    for kind, path, n, share, value in [*content["claims"], *([] if units is None else units["claims"])]:
        plain = isinstance(path, list) and isinstance(kind, str) and type(n) is int
        if not plain or not (_is_finite(value) and _is_finite(share) and 0 < share < 1):
            raise TypeError(f"a claim is {kind!r} at {path!r}")
    for row in content["ledger"]:
        _, _, path, requests, episodes = row
        if not (isinstance(path, list) and all(type(v) is int for v in (*path, requests, episodes))):
            raise TypeError(f"a line of the ledger is {row!r}")


def _is_finite(value: object) -> bool:
    """Whether something is a number that a float can hold; JSON has whole numbers of any length."""
    return type(value) in (int, float) and abs(cast(float, value)) <= sys.float_info.max


def _check_device(content: dict[str, Any], settings: Settings) -> None:
    """Raises where what a certificate says of a device is not what `Certificate.of` writes."""
    stated = content.get("device")
    if settings.device is None and stated is None:
        return
    rounding = stated.get("rounding") if isinstance(stated, dict) else None
    if stated != {"name": settings.device, "dtype": DTYPE, "rounding": rounding}:
        raise TypeError(f"device is {stated!r:.80}, and the settings have {settings.device!r}")
    if type(rounding) is not float or not 0.0 <= rounding < math.inf:
        raise TypeError(f"device.rounding is {rounding!r:.80}")


@dataclass(frozen=True)
class Verification:
    """What `verify` found."""

    findings: tuple[Finding, ...]
    certificate: str = ""  # digest of the certificate that was verified
    at: str = ""  # the day, such as "2026-01-31", in UTC
    version: str = ""  # of the richobs that verified it

    @property
    def made(self) -> str:
        """When and by whom it was verified, in words: "on 2026-01-31 by richobs 0.2.0"."""
        return f"on {self.at or 'an unknown day'} by richobs {self.version or 'of an unknown version'}"

    @property
    def agrees(self) -> bool:
        """Whether something was looked at, and every finding agrees."""
        return bool(self.findings) and all(f.agrees for f in self.findings)

    @property
    def said(self) -> str:
        """The verdict in a few words, with the names of findings that do not agree."""
        wrong = [f.what for f in self.findings if not f.agrees]
        return f"{', '.join(wrong)} did not agree" if wrong else "everything agreed"

    def __str__(self) -> str:
        """The verdict, and below it one line per finding."""
        wrong = sum(not f.agrees for f in self.findings)
        verdict = f"{wrong} of {len(self.findings)} differ: do not rely on the claim" if wrong else "everything agrees"
        rows = [f"  {'agrees ' if f.agrees else 'DIFFERS'}  {f.what}: {f.detail}" for f in self.findings]
        return "\n".join([verdict, *rows])


def _without_paths(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a certificate's content without paths, where these make it too large to be read again.

    Long paths take most of it in problems with hundreds of levels. The ledger is summed by phase and purpose; claims keep
    everything else.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for phase, purpose, _, requests, episodes in content["ledger"]:
        entry = sums.setdefault((phase, purpose), [0, 0])
        entry[0] += requests
        entry[1] += episodes
    for part in (content, content.get("units", {"claims": []})):
        part["claims"] = [[kind, [], *rest] for kind, _, *rest in part["claims"]]
    return {**content, "ledger": [[*names, [], *spent] for names, spent in sums.items()], "paths": PATHS_LEFT_OUT}


def recorded_words(problem: Problem) -> dict[str, Any] | None:
    """Returns number and digest of the episodes that were played before the run; None where there are none."""
    if problem.recorded is None:
        return None
    return {"episodes": problem.recorded.n, "digest": episodes_digest(problem.recorded), "used_for": "elimination"}


def policy_digest(policy: SavablePolicy) -> str | None:
    """Returns the digest of a policy; None where it is made of Python code."""
    try:
        return policy.digest
    except InvalidInput:
        return None
