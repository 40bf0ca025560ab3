"""Certificates: what was promised, what was spent, and how to check it again."""

import dataclasses
import json
import math
import os
import platform
import typing
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Protocol

import numpy as np

from richobs.errors import InvalidFile, InvalidInput, RichObsError
from richobs.files import write_atomically
from richobs.learning import Learnable, Settings, constants_for, run
from richobs.outcome import LOWER, UPPER, Callback, Outcome, StopReason
from richobs.policy import LearnedPolicy, class_digest
from richobs.problem import Policy, ValueReport
from richobs.version import __version__

FORMAT = "richobs-certificate"
VERSION = 1
PARTS = {"claims", "claim", "settings", "constants", "result", "ledger", "environment", "functions", "policy"}


@dataclass(frozen=True)
class Certificate:
    """A claim in words with everything it rests on; plain values, written as JSON."""

    content: dict[str, Any]

    @property
    def claim(self) -> str:
        """The claim in words."""
        return str(self.content["claim"])

    @property
    def settings(self) -> Settings:
        """What the run was asked to do."""
        return Settings(**self.content["settings"])

    @property
    def environment(self) -> str | None:
        """The id of the world, or None where it was an environment of the user's own."""
        return self.content["environment"]["id"]

    def to_json(self) -> str:
        """Returns the text of the file, the same for the same run."""
        return json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the certificate."""
        with write_atomically(FilePath(file)) as stream:
            stream.write(self.to_json().encode())

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Certificate":
        """Returns the certificate in a file.

        Raises:
            InvalidFile: it is damaged, or something else.
        """
        try:
            text = FilePath(file).read_text(encoding="utf-8")
            content = json.loads(text, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:  # also text that is not UTF-8, and numbers too long to read
            raise InvalidFile(f"{file} is not a certificate: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
            raise InvalidFile(f"{file} is not a {FORMAT} of version {VERSION}.")
        if missing := PARTS - content.keys():
            raise InvalidFile(f"{file} lacks {', '.join(sorted(missing))}.")
        try:
            _check_parts(content)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InvalidFile(f"{file} is damaged: {error}") from error
        return cls(content)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses an object that names a key twice: a reader sees the first, a parser keeps the last."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is given twice")
    return result


def _check_parts(content: dict[str, Any]) -> None:
    """Raises where a part of a certificate is not of the kind that `certify` writes."""
    settings = Settings(**content["settings"])
    for f, kind in typing.get_type_hints(Settings).items():
        value = getattr(settings, f)
        allowed = typing.get_args(kind) or (kind,)
        fits = value in allowed if isinstance(allowed[0], str) else type(value) in allowed
        if not fits and not (float in allowed and type(value) is int):
            raise TypeError(f"settings.{f} is {value!r}")
    kinds_of: dict[str, tuple[type, ...]] = {
        "claim": (str,),
        "environment.id": (str, type(None)),
        "functions.digest": (str, type(None)),
        "policy.digest": (str, type(None)),
        "constants": (dict,),
        "result.episodes": (int,),
        "ledger": (list,),
        "claims": (list,),
        "result.upper": (float, type(None)),
        "result.lower": (float, type(None)),
        "result.remarks": (list,),
    }
    for part, kinds in kinds_of.items():
        found: Any = content
        for key in part.split("."):
            found = found[key]
        if not isinstance(found, kinds):
            raise TypeError(f"{part} is {found!r}")
    for kind, path, n, share, value in content["claims"]:
        if (
            not (isinstance(path, list) and isinstance(kind, str) and type(n) is int)
            or not 0 < share + value - value < 1
        ):
            raise TypeError(f"a claim is {kind!r} at {path!r}")
    for row in content["ledger"]:
        _, _, path, requests, episodes = row
        if not (isinstance(path, list) and all(type(v) is int for v in (*path, requests, episodes))):
            raise TypeError(f"a line of the ledger is {row!r}")


def certify(outcome: Outcome, problem: Learnable) -> Certificate:
    """Returns the certificate of an outcome.

    Args:
        outcome: what the run answered, and what it was asked.
        problem: what it ran on. One from `richobs.make` has an id, from which `verify` can build it again.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "claim": outcome.claim,
        "settings": {k: v for k, v in dataclasses.asdict(outcome.settings).items() if k != "workers"},  # no part in it
        "environment": {
            "id": getattr(problem, "id", None),
            "horizon": problem.env.horizon,
            "n_actions": problem.env.n_actions,
            "reward_range": list(problem.env.reward_range),
        },
        "functions": {"log_size": problem.functions.log_size, "digest": class_digest(problem.functions)},
        "constants": dataclasses.asdict(outcome.constants),
        "result": {
            "reason": outcome.reason.value,
            "v_star_hat": outcome.v_star_hat,
            "value_hat": outcome.value_hat,
            "log_size": outcome.log_size,
            "rounds": outcome.rounds,
            "tests": len(outcome.trace),
            "episodes": outcome.episodes,
            "skipped": outcome.ledger.skipped,
            "upper": outcome.upper,
            "lower": outcome.lower,
            "remarks": list(outcome.remarks),
        },
        "policy": {"member": outcome.policy.member, "digest": _policy_digest(outcome)},
        "claims": [[c.kind, list(c.path), c.n, c.share, c.value] for c in outcome.claims],
        "ledger": [[e.phase, e.purpose, list(e.path), e.requests, e.episodes] for e in outcome.ledger],
        "versions": {"richobs": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    return Certificate(json.loads(json.dumps(content)))  # plain values, as a reader of the file would have them


def _policy_digest(outcome: Outcome) -> str | None:
    try:
        return outcome.policy.digest
    except InvalidInput:  # functions that are Python code
        return None


class Checkable(Learnable, Protocol):
    """A problem whose truth is known."""

    @property
    def optimal_value(self) -> float:
        """V*."""
        ...

    def value(self, policy: Policy, /) -> ValueReport:
        """Returns V(policy)."""
        ...


@dataclass(frozen=True)
class Finding:
    """One thing that `verify` looked at."""

    what: str
    agrees: bool
    detail: str


@dataclass(frozen=True)
class Verification:
    """What became of checking a certificate."""

    findings: tuple[Finding, ...]

    @property
    def agrees(self) -> bool:
        """Whether everything did."""
        return all(f.agrees for f in self.findings)


def verify(
    certificate: Certificate,
    problem: Checkable,
    *,
    policy: LearnedPolicy | None = None,
    callback: Callback | None = None,
) -> Verification:
    """Derives the constants again, runs the draws again from the seed, and compares every byte.

    Where V* is known (the problem has `optimal_value` and `value`), it also says whether the claim was true.

    Args:
        certificate: what to check.
        problem: the same problem, built again.
        policy: the policy that was handed over with the certificate, to see that it is the certified one.
        callback: told about every test of the new run.
    """
    if not isinstance(certificate, Certificate):
        raise InvalidInput(f"verify needs a Certificate, such as Certificate.load(file); got {certificate!r}.")
    content, settings = certificate.content, certificate.settings
    digest = class_digest(problem.functions)
    findings = [
        Finding(
            "function class",
            digest == content["functions"]["digest"],
            f"digest {str(digest)[:16]}" if digest else "made of Python code: its identity cannot be checked",
        )
    ]
    name = getattr(problem, "id", None)
    findings.append(Finding("environment", certificate.environment == name, f"{certificate.environment}"))
    if settings.schedule == "paper":
        bound = content["constants"].get("n_states", 0)
        fits = isinstance(bound, int) and problem.n_states is not None and bound >= problem.n_states
        findings.append(
            Finding("hidden states", fits, f"at most {bound} a level assumed; {problem.n_states} there are")
        )
    if policy is not None:
        same = policy.digest == content["policy"]["digest"]
        findings.append(Finding("policy file", same, f"digest {policy.digest[:16]}"))
    findings += (
        _checked_claims(content, settings)
        if settings.schedule == "certified"
        else _checked_constants(content, settings, problem)
    )
    total = sum(row[4] for row in content["ledger"])
    spent = content["result"]["episodes"]
    findings.append(Finding("ledger", total == spent, f"its lines sum to {total:,} of {spent:,} episodes"))
    try:
        outcome = run(problem, settings, callback)
    except RichObsError as error:
        findings.append(Finding("run", False, f"running it again stopped: {error}"))
        return Verification(tuple(findings))
    again = certify(outcome, problem).content
    wrong = _first_difference(again, {**content, "versions": again["versions"]}, "certificate")
    findings.append(
        Finding("run", wrong is None, wrong or f"{len(outcome.trace)} tests drawn again agree to the last byte")
    )
    if hasattr(problem, "optimal_value"):
        report = problem.value(outcome.policy)
        low = problem.optimal_value - report.high  # how far below V* it is at least
        detail = (
            f"V* is {problem.optimal_value:.6g} and the policy's value {report}; {outcome.epsilon:g} below is allowed"
        )
        findings.append(Finding("claim", low <= outcome.epsilon, detail))
    return Verification(tuple(findings))


def _checked_constants(content: dict[str, Any], settings: Settings, problem: Checkable) -> list[Finding]:
    """Derives the paper's sample sizes and thresholds again."""
    constants = json.loads(json.dumps(dataclasses.asdict(constants_for(problem, settings))))
    wrong = _first_difference(constants, content["constants"], "constants")
    return [Finding("constants", wrong is None, wrong or "every sample size and threshold follows from the inputs")]


def _checked_claims(content: dict[str, Any], settings: Settings) -> list[Finding]:
    """Adds up the shares of delta that the claims spent, and takes U and W from the claims themselves."""
    spent = math.fsum(row[3] for row in content["claims"])
    upper, lower = content["result"]["upper"], content["result"]["lower"]
    best = max((row[4] for row in content["claims"] if row[0] == LOWER), default=0.0)
    tops = [row[4] for row in content["claims"] if row[0] == UPPER]
    stated = lower == best and (not tops or upper <= min(tops))
    width = settings.epsilon if content["result"]["reason"] == StopReason.CERTIFIED.value else 1.0
    return [
        Finding("delta", spent <= settings.delta, f"{len(content['claims'])} claims spend {spent:.6g} of it"),
        Finding(
            "bounds", stated and 0 <= upper - lower <= width, f"V* <= {upper:.6g}, the policy's value >= {lower:.6g}"
        ),
    ]


def _first_difference(a: Any, b: Any, where: str) -> str | None:
    """Returns the first place where two plain values differ, in words, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            if key not in a or key not in b:
                return f"{where}.{key} is missing"
            if (found := _first_difference(a[key], b[key], f"{where}.{key}")) is not None:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if (found := _first_difference(x, y, f"{where}[{i}]")) is not None:
                return found
        return None
    return None if a == b and type(a) is type(b) else f"{where} is {b!r} in the file and {a!r} again"
