"""`verify`: derives everything in a certificate again, draws everything again, and compares."""

import copy
import dataclasses
import datetime
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from richobs.core.arguments import whole_number
from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput, RichObsError
from richobs.core.events import Callback
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Spent
from richobs.core.moments import PRECISION, ROUNDINGS, UNIT_ROUNDOFF
from richobs.core.outcome import LOWER, UPPER, Outcome
from richobs.core.policies import SavablePolicy
from richobs.core.problem import ROLLOUTS, Problem, as_problem
from richobs.core.registry import waiting
from richobs.core.version import __version__
from richobs.core.words import number_words
from richobs.device import has_device
from richobs.learners import Finding, learner
from richobs.learners.base import first_difference
from richobs.runs.certificate import Certificate, Verification, recorded_words
from richobs.runs.prepare import NUMBERS, Prepared, in_units_of
from richobs.runs.session import run

BUDGET = 120_000_000  # microseconds of work by the estimate in `Work`: two minutes, and mostly less than half of that
EPISODES_AT_ONCE = 500  # values of the class at one observation that take about a microsecond where episodes are many
CELLS = 20  # probabilities of a process that a draw of counts reads in about a microsecond


class Work(NamedTuple):
    """What `verify` has to repeat, as a certificate lists it; a repeat that needs more is stopped.

    Times are estimates from measurements of every learner, mostly too long: a request takes 75 to 4,000 microseconds at
    each level, and longer where the class is large.
    """

    spent: Spent  # requests and episodes
    horizon: int
    counted: bool  # whether episodes are drawn as counts, so that a request takes as long for few as for many
    values: int  # of the class at one observation of each level
    request: int  # microseconds for each request
    episode: int  # microseconds for each episode
    once: int  # microseconds for what is done once: reading the class, and playing the policy where V* is known

    @property
    def cost(self) -> int:
        """What it counts in a budget: microseconds, about."""
        return self.once + self.spent.requests * self.request + self.spent.episodes * self.episode

    @property
    def words(self) -> str:
        """The work in words."""
        how = "draws counts of" if self.counted else "plays"
        return (
            f"it {how} {self.spent.episodes:,} episodes of {self.horizon:,} levels in {self.spent.requests:,} requests, and "
            f"the class has {self.values:,} values at one observation of each level; that takes {self.time} at most, by a "
            "rough estimate"
        )

    @property
    def time(self) -> str:
        """The cost in words: `2 minutes`."""
        seconds = self.cost / 10**6
        for unit, size in (("year", 365 * 86_400), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
            if seconds >= 2 * size:
                return f"{round(seconds / size):,} {unit}s"
        return f"{max(math.ceil(seconds), 2)} seconds"


def work_of(certificate: Certificate, problem: Problem | Environment, functions: FunctionClass | None = None) -> Work:
    """Returns the work that verifying a certificate takes; nothing is played.

    Args:
        certificate: what would be verified.
        problem: the same problem, built again; or its environment.
        functions: the class, where an environment is given.
    """
    given, settings = as_problem(problem, functions), certificate.settings
    rows = certificate.content["ledger"]
    spent = Spent(sum(row[3] for row in rows), sum(row[4] for row in rows))
    H, process = given.horizon, given.process
    values = sum(given.functions.level_size(h) for h in range(H)) * given.n_actions
    chosen = learner(settings.learner)
    counted = Prepared(chosen, given, settings, None, given, settings).engine == "counted"
    read = values
    if counted and process is not None:  # each draw is about one level
        read = values // H + sum(part.size for part in (*process.transitions, *process.emissions)) // CELLS
    return Work(
        spent,
        H,
        counted,
        values,
        request=H * chosen.traits.level_work + read,
        episode=0 if counted else H + values // EPISODES_AT_ONCE,
        once=values + (ROLLOUTS * H if process is None and given.knows_optimum else 0),
    )


LONGEST_DETAIL = 2_000  # characters of a finding
CLAIM_TOLERANCE = 1e-9  # share of the rewards' range by which what is true and what is claimed may differ by rounding
DEVICE_TOLERANCE = 1e-9  # share of the rewards' range by which numbers of a run on a device may differ in a repeat
SIMILAR = 8  # times the rounding that a file states, a repeat may have at most: devices add up in blocks of other sizes
STRONGER = {"lower": 1, LOWER: 1, "upper": -1, UPPER: -1, "epsilon": -1}  # 1: a larger number claims more


class Precision(NamedTuple):
    """How far numbers of a run on a device may lie from those of its repeat."""

    either: float  # estimates, and bounds that claim less than those of the repeat
    stronger: float  # bounds that claim more

    @classmethod
    def of(cls, rounding: float, width: float, epsilon: float) -> "Precision":
        """Returns it for a repeat with this rounding, for numbers whose range has this width; a share of epsilon at most."""
        most = epsilon / PRECISION
        either = min(max(DEVICE_TOLERANCE, ROUNDINGS * rounding) * width, most)
        return cls(either, min(DEVICE_TOLERANCE * width, most))

    def allows(self, again: Any, file: Any, name: str) -> bool:
        """Whether a number of a file may be that of the repeat, rounded otherwise.

        Args:
            again: of the repeat.
            file: in the file.
            name: of the number, or the kind of the claim that it belongs to.
        """
        if not type(again) is type(file) is float:
            return False
        claims_more = STRONGER.get(name, 0) * (file - again) > 0
        allowed = (self.stronger if claims_more else self.either) + 8 * UNIT_ROUNDOFF * abs(again)
        return abs(file - again) <= allowed < math.inf


def verify(
    certificate: Certificate,
    problem: Problem | Environment,
    functions: FunctionClass | None = None,
    *,
    policy: SavablePolicy | None = None,
    callback: Callback | None = None,
    budget: int | None = BUDGET,
) -> Verification:
    """Derives the constants again, runs the draws again from the seed, and compares the certificate to the last byte.

    Compared is the text that `Certificate.to_json` writes: every value, the sign of a zero, the order of parts. Not compared
    are the white space of a file, the versions that it names (a finding says which are others), and how many episodes a
    deterministic environment really played, which depends on what it had in its memory (only that the number is possible).
    Numbers of a run on a device may differ by rounding (docs/scale.md). docs/reliability.md has the whole list.

    Where V* is known it also compares U, W and the gap with the truth. A claim may be false with probability delta; a false
    one does not agree all the same.

    Args:
        certificate: what to check.
        problem: the same problem, built again; or its environment.
        functions: the class, where an environment is given.
        policy: the policy that was handed over with the certificate, to see that it is the certified one.
        callback: called with a `Progress` after every event of the new run.
        budget: microseconds of work that may be done, by an estimate from the requests, episodes and levels that the
            certificate lists and from the size of the class (`work_of`). A certificate may come from anybody and ask for
            any number. An environment of your own may take longer than the estimate. None: as much as the certificate lists.

    Raises:
        InvalidInput: it would take more than the budget; nothing was played.
    """
    if not isinstance(certificate, Certificate):
        raise InvalidInput(f"verify needs a Certificate, such as Certificate.load(file); got {certificate!r}.")
    if policy is not None and not hasattr(type(policy), "digest"):
        raise InvalidInput(f"verify compares a policy such as LearnedPolicy.load(file) returns; got {policy!r:.80}.")
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function of a Progress; got {callback!r:.80}.")
    if budget is not None:
        budget = whole_number("budget", budget)
    given = as_problem(problem, functions)
    work = work_of(certificate, given)
    if budget is not None and work.cost > budget:
        raise InvalidInput(
            f"to verify this certificate is more work than the budget of {budget:,} allows: {work.words}. Allow it with "
            f"budget={work.cost} (`richobs verify --budget {work.cost}`)."
        )
    with waiting("verifying, episodes") as told:
        heard = callback or (lambda progress: told(progress.episodes, work.spent.episodes))
        found = _findings(certificate, given, policy, heard, work.spent)
        findings = tuple(dataclasses.replace(f, detail=_cut(f.detail)) for f in found)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Verification(findings, certificate=certificate.digest, at=today, version=__version__)


def _cut(text: str) -> str:
    """Returns the beginning of a long text: a certificate may put anything into a detail."""
    return text if len(text) <= LONGEST_DETAIL else f"{text[:LONGEST_DETAIL]}..."


def _findings(
    certificate: Certificate, given: Problem, policy: SavablePolicy | None, callback: Callback | None, spent: Spent
) -> Iterator[Finding]:
    """Yields what `verify` finds, as far as it can be looked at."""
    content, settings = certificate.content, certificate.settings
    device = settings.device
    if device is not None and not has_device(device):  # the same code on PyTorch's CPU device, with other rounding
        settings = dataclasses.replace(settings, device="cpu")
    digest = given.functions.digest
    words = f"digest {str(digest)[:16]}" if digest else "made of Python code: compared by its values, below"
    same_class, same_world = digest == content["functions"]["digest"], certificate.environment == given.id
    yield Finding("function class", same_class, words)
    yield Finding("environment", same_world, f"{certificate.environment}")
    if not (same_class and same_world):
        yield Finding("run", False, "not made again: the certificate is about another problem")
        return
    known_identity, identity = content["environment"]["identity"], given.identity
    if identity != known_identity:  # episodes of another environment would be spent for nothing
        words = (
            f"the certificate is about another environment, so nothing was played: {known_identity!r}, not {identity!r}"
        )
        yield Finding("identity", False, words)
        return
    recorded = recorded_words(given)
    if content["recorded"] is not None or recorded is not None:
        words = "they are needed again: Problem(..., recorded=episodes)"
        words = words if recorded is None else f"{recorded['episodes']:,} episodes"
        yield Finding("recorded episodes", recorded == content["recorded"], words)
    if policy is not None:
        yield Finding("policy file", policy.digest == content["policy"]["digest"], f"digest {policy.digest[:16]}")
    chosen = learner(settings.learner)
    prepared = in_units_of(chosen, given, settings)
    try:
        yield from prepared.recheck(content)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:  # parts that a learner reads
        words = f"parts that {chosen.name} writes are missing, or of another kind ({type(error).__name__}: {error})"
        yield Finding("constants", False, words)
        return
    total, claimed = spent.episodes, content["result"]["episodes"]
    real = content["result"]["real_episodes"]
    possible = real is None or 0 <= real <= total
    played = "" if real is None else f"; {real:,} were really played{'' if possible else ', which is impossible'}"
    words = f"its lines sum to {total:,} of {claimed:,} episodes{played}"
    yield Finding("ledger", total == claimed and possible, words)
    try:
        outcome = run(given, settings, callback=callback, repeats=spent)
    except RichObsError as error:
        yield Finding("run", False, f"running it again stopped: {error}")
        return
    again = Certificate.of(outcome, given).content
    values = content["functions"].get("fingerprint")
    if values is not None or outcome.fingerprint is not None:
        same = values == outcome.fingerprint
        words = "the same at the probes" if same else "other values at the observations that the run saw first"
        yield Finding("values of the class", same, words)
    if real is not None and again["result"]["real_episodes"] is not None:
        again["result"]["real_episodes"] = real  # depends on what the environment had in its memory before
    yield versions_finding(again["versions"], content["versions"])
    again["versions"] = content["versions"]
    agreed = "to the last byte"
    if device is not None:  # where it is computed may differ, decisions may not
        again["settings"]["device"] = again["device"]["name"] = device
        yield device_finding(again["device"], content.get("device"))
        content = without_rounding(again, content, outcome)
        agreed = f"in every decision, and in every number but for rounding, on device {settings.device!r}"
    wrong = first_difference(again, content, "certificate")
    if wrong is None and Certificate(again).to_json() != Certificate(content).to_json():
        wrong = "the parts of the certificate are in another order than a run writes them"
    yield Finding("run", wrong is None, wrong or f"{len(outcome.trace)} tests drawn again agree {agreed}")
    if given.knows_optimum:
        result = certificate.content["result"]
        yield from claim_findings(result, given, outcome.policy, settings.delta, chosen.traits.near_best_sequence)


def claim_findings(
    result: dict[str, Any], problem: Problem, policy: SavablePolicy, delta: float, best_sequence: bool
) -> list[Finding]:
    """Compares U, W and the gap of a certificate with what is known to be true; nothing is found of what it does not claim.

    A number is called false where it cannot be true, by more than rounding. V* is known exactly where the process is
    written down or Q* is in the class; elsewhere it is known to be at least the policy's value. So is the best action
    sequence's value, which stands for V* in the claims of some learners.

    Args:
        result: that part of the certificate.
        problem: whose optimum is known.
        policy: the certified one.
        delta: probability with which a claim may be false.
        best_sequence: whether the claim compares with the best action sequence.
    """
    value = problem.value(policy)
    exact = not best_sequence and (problem.process is not None or problem.optimal_function is not None)
    best = problem.optimal_value if exact else value.low
    truth = f"V* is {'' if exact else 'at most '}{problem.optimal_value:.6g} and the policy's value {value}"
    low, high = problem.env.reward_range
    slack = CLAIM_TOLERANCE * (high - low)
    upper, lower, gap = result["upper"], result["lower"], result["epsilon"] if result["guaranteed"] else None
    stated = [] if upper is None else [("U", f"V* is at most {number_words(upper, up=True)}", best - upper)]
    if lower is not None:
        stated.append(("W", f"the policy's value is at least {number_words(lower, up=False)}", lower - value.high))
    if gap is not None:
        words = f"the policy's value is at most {number_words(gap, up=True)} below V*"
        stated.append(("gap", words, best - value.high - gap))
    false = f" This is false. It may be with probability {delta:g}, and where an assumption of the claim does not hold."
    return [
        Finding(f"claim {name}", over <= slack, f"{words} is claimed. {truth}.{'' if over <= slack else false}")
        for name, words, over in stated
    ]


def versions_finding(again: dict[str, str], file: dict[str, Any]) -> Finding:
    """Returns whether a certificate names versions of the same software; that they are others is said, and is no fault.

    Args:
        again: that part of the repeat's certificate.
        file: that part of the certificate.
    """
    plain = {*again} == {*file} and all(isinstance(version, str) for version in file.values())
    if not plain:
        return Finding("versions", False, f"the certificate names {file!r:.80}, and a run names {', '.join(again)}")
    others = [
        f"{name} {file[name]:.40}, and this is {version}" for name, version in again.items() if file[name] != version
    ]
    return Finding("versions", True, f"made with {'; '.join(others)}: not compared" if others else "the same")


def device_finding(again: dict[str, Any], file: Any) -> Finding:
    """Compares what a certificate says of its device with a repeat; it must not state much less rounding than that.

    Args:
        again: that part of the repeat's certificate.
        file: that part of the certificate, which may be missing.
    """
    stated = file.get("rounding") if isinstance(file, dict) else None
    if type(stated) is not float or not 0.0 <= stated < math.inf:
        return Finding("device", False, f"the certificate states no rounding of its device: {file!r:.80}")
    if wrong := first_difference({**again, "rounding": stated}, file, "certificate.device"):
        return Finding("device", False, wrong)
    words = f"rounding of {stated:.2g} is stated, and {again['rounding']:.2g} found again"
    return Finding("device", again["rounding"] <= SIMILAR * stated, words)


def without_rounding(again: dict[str, Any], file: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Returns the content of a certificate of a run on a device, with the repeat's numbers where rounding explains theirs.

    Bounds that claim more than those of the repeat may differ by less than bounds that claim less. The claim in words is
    taken from the repeat where it is that of the numbers beside it. What a device is said to be has a finding of its own.

    Args:
        again: content of the repeat's certificate.
        file: content of the certificate.
        outcome: of the repeat.
    """
    low, high = again["environment"]["reward_range"]
    epsilon, rounding = again["settings"]["epsilon"], outcome.rounding
    own = Precision.of(rounding, high - low, epsilon)
    unit = Precision.of(rounding, 1.0, epsilon if outcome.in_units is None else outcome.in_units.units.width(epsilon))
    result = copy.deepcopy(file)
    for name in {*again} & {*file} & {"constants", "device"}:
        if name == "device" or first_difference(again[name], file[name], name, DEVICE_TOLERANCE) is None:
            result[name] = again[name]
    if file["claim"] == _claim_of(outcome, file["result"], (low, high)):
        result["claim"] = again["claim"]
    for mine, theirs, precision in ((again, result, own), (again.get("units"), result.get("units"), unit)):
        if mine is None or theirs is None:
            continue
        for name, number in mine["result"].items():
            found = theirs["result"].get(name)
            near = first_difference(number, found, name, DEVICE_TOLERANCE) is None and name not in NUMBERS
            if near or (name in NUMBERS and precision.allows(number, found, name)):
                theirs["result"][name] = number
        for row, found in zip(mine["claims"], theirs["claims"], strict=False):
            if (precision if row[0] in STRONGER else unit).allows(row[4], found[4], row[0]):
                found[4] = row[4]
    return result


def _claim_of(outcome: Outcome, result: dict[str, Any], totals: tuple[float, float]) -> str:
    """Returns the claim of an outcome in words, for the numbers of another result; its own where it holds none."""
    if outcome.wording is None or not outcome.guaranteed:
        return outcome.claim
    numbers = {name: result[name] for name in ("epsilon", "lower", "upper")}
    return outcome.wording(**numbers, reward_range=totals)
