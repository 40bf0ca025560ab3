"""A certificate in others' envelopes: an in-toto statement, and the evaluation of a Hugging Face model card."""

import json
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import InvalidFile
from richobs.core.files import is_there, read_json, reading
from richobs.judging.record import QUESTION, read_question
from richobs.runs.certificate import Certificate
from richobs.runs.database import sha256
from richobs.runs.store import CERTIFICATE, POLICY

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://in-toto.io/attestation/test-result/v0.1"
RESULTS = {True: "PASSED", False: "FAILED", None: "WARNED"}
PASSED = {"AT_LEAST": True, "BELOW": False, "A_BETTER": True, "B_BETTER": False, "NO_DIFFERENCE": True, "BEST": True}
REPORTS = ("richobs-policy-value", "richobs-comparison", "richobs-selection")


@dataclass(frozen=True)
class Facts:
    """What both envelopes say of a certificate."""

    claim: str
    metric: str
    comparator: str
    threshold: float | None
    passed: bool | None  # None: not decided
    lower: float | None
    upper: float | None
    mean: float | None
    episodes: int
    delta: float
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
                str(content["claim"]),
                metric,
                comparator,
                threshold,
                PASSED.get(content["verdict"]),
                float(content["lower"]),
                float(content["upper"]),
                float(content["mean"]),
                int(content["episodes"]),
                float(content["delta"]),
                str(content["environment"]),
            )
    made = Certificate.load(file)
    result = made.content["result"]
    return Facts(
        made.claim,
        "gap_to_optimal_value",
        "<=",
        float(result["epsilon"]),
        True if result["guaranteed"] else None,
        result["lower"],
        result["upper"],
        result["value_hat"],
        int(result["episodes"]),
        made.settings.delta,
        str(made.content["environment"]["identity"]),
    )


def in_toto(place: FilePath) -> str:
    """Returns an in-toto statement about the policies beside a certificate, or about the certificate where there are none.

    Args:
        place: the certificate, or its folder.
    """
    file = place / CERTIFICATE if place.is_dir() else place
    found = facts(file)
    policies = _policies(file)
    metric = {
        "metric": found.metric,
        "comparator": found.comparator,
        "threshold": found.threshold,
        "passed": found.passed,
        "sample_size": found.episodes,
        "lower": found.lower,
        "upper": found.upper,
        "delta": found.delta,
        "claim": found.claim,
    }
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
    if found.lower is None or found.upper is None:
        raise InvalidFile(f"{place} states no interval for a value, and the evaluation of a model card needs one.")
    interval = f"[{found.lower:.6g}, {found.upper:.6g}]"
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
        f"| {found.metric} | {interval} | {1 - found.delta:g} | {found.episodes:,} |",
    ]
    return "\n".join(lines)


def _metric(content: dict[str, Any]) -> str:
    """Returns the name of what a report on one policy is about."""
    quantile, measure = content.get("quantile"), content.get("measure")
    return f"{'mean' if quantile is None else f'quantile_{quantile:g}'}_{measure or 'reward'}"
