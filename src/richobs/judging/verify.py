"""Checking a judgement again: its numbers from the stored draws, and the draws by playing them once more."""

import datetime
import json
import os
from collections.abc import Callable
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import is_there, read_json, reading
from richobs.core.version import __version__
from richobs.judging.compare import asked_of, compare
from richobs.judging.measures import Episode, Measure
from richobs.judging.record import Calls, Question, Record, stored_judgement
from richobs.judging.select import run, select
from richobs.judging.value import PolicyReport, certify_policy, judge
from richobs.learners import Finding
from richobs.runs.certificate import Verification
from richobs.runs.database import sha256
from richobs.runs.store import CERTIFICATE

MADE_BY = ("richobs", "checks")  # parts of a certificate that say who made it, not what was found


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
            found = Measure(measure).digest
            same = f"its SHA-256 is {found}, and {question.measure_digest} in the certificate"
            findings.append(Finding("measure", found == question.measure_digest, same))
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
    asked = asked_of(question) if question.kind == "compare" else PolicyReport.asked(question)
    return judge(asked, question, lambda look, n, before: stored(), lambda report: None)


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
