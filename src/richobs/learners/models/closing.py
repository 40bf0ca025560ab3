"""What a search among models answers."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.outcome import Outcome, StopReason, number_words, probability_words
from richobs.learners.models.living import ZETA
from richobs.learners.models.regrets import Judged
from richobs.learners.models.state import ModelSearch

REFUTED = "likelihood never refutes the true model"
LISTED = 10_000  # living models that a certificate lists at most


@dataclass(frozen=True)
class ModelsConstants:
    """What a search among models began with, and what its claim rests on."""

    tuning: dict[str, Any]
    n_models: int  # N
    zeta: float  # declared relative error of one probability
    planning_error: float  # of a value: what follows from it, from the tolerance of rewards, and from rounding
    refutation_limit: float  # logarithm of the wealth at which a model is refuted
    recorded: int  # episodes that were played before the run
    n_living: int
    living: list[int] | None  # the models that are left; None where they are too many to list
    worst: int  # the model in which the policy loses most
    gap: float  # what it loses there, errors of planning included


def outcome(search: ModelSearch, found: Judged) -> Outcome:
    """Returns the answer: the policy, the claim in words, and the share of delta that was spent."""
    living, gap = search.living, search.gap(found)
    certified = gap <= search.epsilon
    claimed = search.epsilon if certified else gap
    weighed = search.engine.ledger.total + search.recorded
    search.share.claim(REFUTED, (), weighed, math.exp(living.log_limit))
    likely = int(living.models[living.leader])
    return Outcome(
        policy=LearnedPolicy(search.functions, found.member),
        claim=claim_words(search, claimed),
        learner="models",
        epsilon=claimed,
        delta=search.delta,
        reason=StopReason.EVERY_MODEL if certified else StopReason.EPISODES_SPENT,
        value_hat=float(search.regrets.values(found.member)[living.leader]),
        v_star_hat=search.regrets.optimal(likely),
        upper=search.upper,
        lower=search.lower,
        log_size=search.log_size,
        rounds=search.rounds,
        claims=search.share.claims(),
        remarks=_remarks(search, found),
        constants=ModelsConstants(
            tuning=asdict(search.tuning),
            n_models=search.family.n_models,
            zeta=ZETA,
            planning_error=search.error,
            refutation_limit=living.log_limit,
            recorded=search.recorded,
            n_living=len(living.models),
            living=living.models.tolist() if len(living.models) <= LISTED else None,
            worst=found.worst,
            gap=gap,
        ),
    )


def claim_words(search: ModelSearch, claimed: float) -> str:
    """Returns the claim: what the policy earns, and what no policy exceeds, both under one assumption."""
    n = search.family.n_models
    one = "the real system is the given model" if n == 1 else f"the real system is one of the {n:,} models"
    one = " and that ".join([*search.engine.ledger.assumes, one])
    if search.recorded:
        log = f"the {search.recorded:,} recorded episodes"
        one += f" and {log} are whole, of this system and not selected by what came of them"
    sure, least = probability_words(search.delta), number_words(search.lower, up=False)
    return (
        f"With probability at least {sure} the policy's value is at least {least} and at most "
        f"{number_words(claimed, up=True)} below V*, provided that {one}. No policy's value exceeds "
        f"{number_words(search.upper, up=True)}, under the same condition."
    )


def _remarks(search: ModelSearch, found: Judged) -> tuple[str, ...]:
    """Returns, in words, what is missing where the policy was not certified."""
    gap, left = search.gap(found), len(search.living.models)
    if gap <= search.epsilon:
        return ()
    lost = number_words(gap, up=True)
    return (f"{left:,} models are left, and in model {found.worst} the best policy found loses up to {lost}",)
