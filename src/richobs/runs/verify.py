"""`verify`: derives everything in a certificate again, draws everything again, and compares."""

import dataclasses
import datetime

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput, RichObsError
from richobs.core.events import Callback
from richobs.core.functions import FunctionClass
from richobs.core.policies import SavablePolicy
from richobs.core.problem import Problem, as_problem
from richobs.core.version import __version__
from richobs.learners import Finding, learner
from richobs.learners.base import first_difference
from richobs.runs.certificate import Certificate, Verification, certify, recorded_words
from richobs.runs.rescaling import rescaling
from richobs.runs.session import run


def verify(
    certificate: Certificate,
    problem: Problem | Environment,
    functions: FunctionClass | None = None,
    *,
    policy: SavablePolicy | None = None,
    callback: Callback | None = None,
) -> Verification:
    """Derives the constants again, runs the draws again from the seed, and compares every byte.

    Where V* is known it also says whether the claim was true.

    Args:
        certificate: what to check.
        problem: the same problem, built again; or its environment.
        functions: the class, where an environment is given.
        policy: the policy that was handed over with the certificate, to see that it is the certified one.
        callback: called with a `Progress` after every event of the new run.
    """
    if not isinstance(certificate, Certificate):
        raise InvalidInput(f"verify needs a Certificate, such as Certificate.load(file); got {certificate!r}.")
    found = _verified(certificate, as_problem(problem, functions), policy, callback)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return dataclasses.replace(found, certificate=certificate.digest, at=today, version=__version__)


def _verified(
    certificate: Certificate, given: Problem, policy: SavablePolicy | None, callback: Callback | None
) -> Verification:
    """Returns what `verify` finds."""
    content, settings = certificate.content, certificate.settings
    digest = given.functions.digest
    findings = [
        Finding(
            "function class",
            digest == content["functions"]["digest"],
            f"digest {str(digest)[:16]}" if digest else "made of Python code: compared by its values, below",
        ),
        Finding("environment", certificate.environment == given.id, f"{certificate.environment}"),
    ]
    known_identity, identity = content["environment"]["identity"], given.identity
    if identity != known_identity:  # episodes of another environment would be spent for nothing
        detail = (
            f"the certificate is about another environment, so nothing was played: {known_identity!r}, not {identity!r}"
        )
        return Verification((*findings, Finding("identity", False, detail)))
    if content["recorded"] is not None or given.recorded is not None:
        known = recorded_words(given)
        detail = (
            "they are needed again: Problem(..., recorded=episodes)"
            if known is None
            else f"{known['episodes']:,} episodes"
        )
        findings.append(Finding("recorded episodes", known == content["recorded"], detail))
    if policy is not None:
        same = policy.digest == content["policy"]["digest"]
        findings.append(Finding("policy file", same, f"digest {policy.digest[:16]}"))
    chosen = learner(settings.learner)
    rescaled = rescaling(chosen, given, settings)
    try:
        findings += chosen.recheck(content, given, settings) if rescaled is None else rescaled.recheck(content)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:  # parts that a learner reads
        detail = f"parts that {chosen.name} writes are missing, or of another kind ({type(error).__name__}: {error})"
        return Verification((*findings, Finding("constants", False, detail)))
    total = sum(row[4] for row in content["ledger"])
    spent = content["result"]["episodes"]
    real = content["result"]["real_episodes"]
    played = "" if real is None else f"; {real:,} were really played"
    findings.append(Finding("ledger", total == spent, f"its lines sum to {total:,} of {spent:,} episodes{played}"))
    try:
        outcome = run(given, settings, callback=callback)
    except RichObsError as error:
        findings.append(Finding("run", False, f"running it again stopped: {error}"))
        return Verification(tuple(findings))
    again = certify(outcome, given).content
    values = content["functions"].get("fingerprint")
    if values is not None or outcome.fingerprint is not None:
        same = values == outcome.fingerprint
        agreed = "the same at the probes" if same else "other values at the observations that the run saw first"
        findings.append(Finding("values of the class", same, agreed))
    if real is not None and again["result"]["real_episodes"] is not None:
        again["result"]["real_episodes"] = real  # depends on what the environment had in its memory before
    wrong = first_difference(again, {**content, "versions": again["versions"]}, "certificate")
    agreed = f"{len(outcome.trace)} tests drawn again agree to the last byte"
    findings.append(Finding("run", wrong is None, wrong or agreed))
    if given.knows_optimum and outcome.guaranteed:
        report = given.value(outcome.policy)
        low = given.optimal_value - report.high  # the smallest possible gap to V*
        detail = (
            f"V* is {given.optimal_value:.6g} and the policy's value {report}; {outcome.epsilon:g} below is allowed"
        )
        findings.append(Finding("claim", low <= outcome.epsilon, detail))
    return Verification(tuple(findings))
