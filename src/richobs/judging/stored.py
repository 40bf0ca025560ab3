"""Certificates of judgements and runs afterwards: derived and played again, or put into the envelopes of others.

A judgement is checked from its stored draws, and by playing them once more. The envelopes are an in-toto statement, and the
evaluation of a Hugging Face model card.
"""

import datetime
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path as FilePath
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import is_there, read_json, reading
from richobs.core.version import __version__
from richobs.judging.compare import Comparison, compare
from richobs.judging.measures import Episode, Measure
from richobs.judging.record import QUESTION, Calls, Question, Record, read_question, stored_judgement
from richobs.judging.select import run, select
from richobs.judging.value import PolicyReport, certify_policy, judge
from richobs.learners import Finding
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.database import sha256
from richobs.runs.store import CERTIFICATE, POLICY

MADE_BY = ("richobs", "checks")  # parts of a certificate that say who made it, not what was found
STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://in-toto.io/attestation/test-result/v0.1"
RESULTS = {True: "PASSED", False: "FAILED", None: "WARNED"}
PASSED = {"AT_LEAST": True, "BELOW": False, "A_BETTER": True, "B_BETTER": False, "NO_DIFFERENCE": True, "BEST": True}
REPORTS = ("richobs-policy-value", "richobs-comparison", "richobs-selection")


def verify_judgement(
    folder: str | os.PathLike[str], make: Callable[[str], Any], measure: Callable[[Episode], Any] | None = None
) -> Verification:
    """Derives a stored judgement again, and plays its episodes again where its world and policies are stored.

    Args:
        folder: that `certify_policy`, `compare` or `select` wrote (`out`).
        make: returns the problem that an id names.
        measure: the one that was used, where one was; without it, episodes are not played again.

    Raises:
        InvalidFile: there is none, or it is damaged.
        InvalidInput: policies joined while it ran.
    """
    with stored_judgement(folder) as (question, record):
        place = record.place
        if place is None or not is_there(place / CERTIFICATE):
            raise InvalidFile(f"{folder} has no certificate: the judgement has not ended. Make the same call again.")
        with reading(place / CERTIFICATE):
            stated = read_json(place / CERTIFICATE)
        findings = [_compared("numbers", stated, _derived(question, record), "derived again from the stored totals")]
        files = [place / f"policy-{k}.npz" for k in range(len(question.names))]
        if measure is not None:
            given = Measure(measure)
            same = f"its SHA-256 is {given.digest}, and {question.measure_digest} in the certificate"
            same += f"; it does not tell {', '.join(given.unknown)}" if given.unknown else ""
            findings.append(Finding("measure", given.digest == question.measure_digest, same))
        known = question.measure is None or (measure is not None and findings[-1].agrees)
        if question.world is not None and all(map(is_there, files)) and known:
            policies = [LearnedPolicy.load(file) for file in files]
            again = _played(question, make(question.world), policies, measure)
            findings.append(_compared("episodes", stated, again, f"played again in {question.world}"))
        digest = sha256((place / CERTIFICATE).read_bytes())
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Verification(tuple(findings), digest, day, __version__)


def _compared(what: str, stated: dict[str, Any], found: PolicyReport, how: str) -> Finding:
    """Returns whether a report is the one that a certificate states."""
    plain = json.loads(json.dumps(found.as_json()))
    names = [name for name in plain if name not in MADE_BY and plain[name] != stated.get(name)]
    if names:
        shown = f"{names[0]} is {stated.get(names[0])!r:.80} in the certificate, and {plain[names[0]]!r:.80} {how}"
        return Finding(what, False, shown)
    return Finding(what, True, f"{found.episodes:,} episodes, {how}")


def _derived(question: Question, record: Record) -> PolicyReport:
    """Returns the report that the stored draws lead to."""

    def stored() -> Calls:
        def missing() -> Calls:
            raise InvalidFile(f"{record.place} holds fewer draws than its verdict needs.")

        return record.draw(missing)

    if question.kind == "select":
        if question.is_open:
            raise InvalidInput(
                f"policies could join the race in {record.place}, and it does not say which, so it cannot be "
                "derived again."
            )
        return run(question, lambda look, living, n, before: stored(), lambda report: None, None)
    kind = Comparison if question.kind == "compare" else PolicyReport
    return judge(kind, question, lambda look, n, before: stored(), lambda report: None)


def _played(question: Question, problem: Any, policies: list[LearnedPolicy], measure: Any) -> PolicyReport:
    """Returns the report of the same call, made now."""
    common: dict[str, Any] = {
        name: getattr(question, name) for name in ("delta", "max_episodes", "seed", "reward_range", "batch", "epsilon")
    }
    if question.kind == "value":
        common |= {"measure": measure, "quantile": question.quantile, "threshold": question.threshold}
        common |= {} if question.quantile is None else {"reward_range": None}
        return certify_policy(problem, policies[0], progress=False, **common)
    common |= {"paired": question.paired, "progress": False}
    if question.kind == "compare":
        return compare(problem, *policies, names=question.names, **common)
    return select(problem, dict(zip(question.names, policies, strict=True)), **common)


@dataclass(frozen=True)
class Facts:
    """What both envelopes say of a certificate, named as in-toto does."""

    metric: str
    comparator: str
    threshold: float | None
    passed: bool | None  # None: not decided
    sample_size: int
    lower: float | None
    upper: float | None
    delta: float
    claim: str
    mean: float | None
    environment: str


def facts(file: FilePath) -> Facts:
    """Returns what a certificate says: that of a judgement, or that of a run.

    Raises:
        InvalidFile: it is something else.
    """
    with reading(file):
        content: dict[str, Any] = read_json(file)
        form = content.get("format")
    if form in REPORTS:
        with reading(file):
            metric, comparator, threshold = {
                "richobs-policy-value": (_metric(content), ">=", content["threshold"]),
                "richobs-comparison": ("mean_reward_difference", ">", 0.0),
                "richobs-selection": ("mean_reward_gap_to_best", "<=", content["epsilon"]),
            }[form]
            if content["verdict"] == "NO_DIFFERENCE":
                comparator, threshold = "within +-", content["epsilon"]
            return Facts(
                metric,
                comparator,
                threshold,
                PASSED.get(content["verdict"]),
                int(content["episodes"]),
                _number(content["lower"]),
                _number(content["upper"]),
                float(content["delta"]),
                str(content["claim"]),
                float(content["mean"]),
                str(content["environment"]),
            )
    made = Certificate.load(file)
    result = made.content["result"]
    return Facts(
        "gap_to_optimal_value",
        "<=",
        float(result["epsilon"]),
        True if result["guaranteed"] else None,
        int(result["episodes"]),
        result["lower"],
        result["upper"],
        made.settings.delta,
        made.claim,
        result["value_hat"],
        str(made.content["environment"]["identity"]),
    )


def _number(bound: Any) -> float | None:
    """Returns a bound of a file: None where the interval is open."""
    return None if bound is None else float(bound)


def in_toto(place: FilePath) -> str:
    """Returns an in-toto statement about the policies beside a certificate, or about the certificate where there are none.

    Args:
        place: the certificate, or its folder.
    """
    file = place / CERTIFICATE if place.is_dir() else place
    found = facts(file)
    policies = _policies(file)
    metric = {name: value for name, value in asdict(found).items() if name not in ("mean", "environment")}
    statement = {
        "_type": STATEMENT,
        "subject": [_named(one) for one in policies or [file]],
        "predicateType": PREDICATE,
        "predicate": {"result": RESULTS[found.passed], "configuration": [_named(file)], "metrics": [metric]},
    }
    return json.dumps(statement, indent=2)


def _policies(file: FilePath) -> list[FilePath]:
    """Returns the files of policies beside a certificate that it is about, by their digests; no others."""
    with reading(file):
        form = read_json(file).get("format")
    if form not in REPORTS:
        found, digests = [file.with_name(POLICY)], [Certificate.load(file).content["policy"]["digest"]]
    elif file.name == CERTIFICATE and is_there(file.with_name(QUESTION)):
        digests = list(read_question(file.parent).policies)
        found = [file.with_name(f"policy-{k}.npz") for k in range(len(digests))]
    else:
        return []  # a report of `save` names no policies
    pairs = zip(found, digests, strict=True)
    return [one for one, digest in pairs if is_there(one) and LearnedPolicy.load(one).digest == digest]


def _named(file: FilePath) -> dict[str, Any]:
    return {"name": file.name, "digest": {"sha256": sha256(file.read_bytes())}}


def model_card(place: FilePath) -> str:
    """Returns the evaluation of a Hugging Face model card: its metadata, and the section with interval and claim.

    Args:
        place: the certificate, or its folder.
    """
    found = facts(place / CERTIFICATE if place.is_dir() else place)
    if found.lower is None and found.upper is None:
        raise InvalidFile(f"{place} states no interval for a value, and the evaluation of a model card needs one.")
    low, high = (f"{free if end is None else end:.6g}" for end, free in ((found.lower, -inf), (found.upper, inf)))
    interval = f"[{low}, {high}]"
    lines = [
        "---",
        "model-index:",
        "- name: policy",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "      name: reinforcement-learning",
        "    dataset:",
        f"      name: {json.dumps(found.environment)}",
        f"      type: {json.dumps(found.environment)}",
        "    metrics:",
        f"    - type: {found.metric}",
        f"      value: {json.dumps(interval if found.mean is None else f'{found.mean:.6g} {interval}')}",
        f"      name: {json.dumps(f'{found.metric}, interval with probability {1 - found.delta:g}')}",
        "---",
        "",
        "## Evaluation",
        "",
        found.claim,
        "",
        "| metric | interval | probability | episodes |",
        "|---|---|---|---|",
        f"| {found.metric} | {interval} | {1 - found.delta:g} | {found.sample_size:,} |",
    ]
    return "\n".join(lines)


def _metric(content: dict[str, Any]) -> str:
    """Returns the name of what a report on one policy is about."""
    quantile, measure = content.get("quantile"), content.get("measure")
    return f"{'mean' if quantile is None else f'quantile_{quantile:g}'}_{measure or 'reward'}"
