"""Certified LSVEE: an optimistic search. Its claims hold whatever choices the search made.

What is claimed rests on three kinds of events, numbered as in `docs/certified.md`: f* is never dropped [E1], an upper bound
U on V* [E2] and a lower bound W on the policy's value [E3]. The search itself is free to guess, and does so with data
that no claim ever uses: pilots and trial rollouts.

One round: take a survivor with the largest predicted value at the root, try its policy, and certify it if it earns that
much. If it does not, its prediction is wrong at some step of a path that it takes. Play that path open-loop: every level of
it yields a batch for one (node, action) pair and the values of the next node, so functions are tested at all levels at once.
"""

import math
from functools import partial

import numpy as np

from richobs import FunctionClass, LearnedPolicy, Outcome
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback, nobody
from richobs.core.outcome import DETERMINISTIC, LOWER, REACTIVE, REALIZABLE, UPPER, StopReason, claim_words
from richobs.core.queries import Engine, Query
from richobs.core.randomness import keyed_generator
from richobs.learners.stopping import Fallback
from richobs_lab.certified.events import CandidateTried
from richobs_lab.certified.probing import freshest, next_stage, probe, untested_pairs
from richobs_lab.certified.state import PHASE, Bounds, Candidate, CertifiedSearch, Tuning
from richobs_lab.certified.verification import is_settled, verify_candidate

ASSUMPTIONS = (REACTIVE, REALIZABLE, DETERMINISTIC)
NARROWER = 0.79  # epsilon of LSVEE where it takes over, as a share of ours


def certified(
    engine: Engine,
    functions: FunctionClass,
    *,
    epsilon: float,
    delta: float,
    seed: int = 0,
    notify: Callback = nobody,
    tuning: Tuning | None = None,
    bounds: Bounds | None = None,
    fallback: Fallback | None = None,
) -> Outcome:
    """Learns a policy with V* <= U and V(policy) >= W, U - W <= epsilon, with probability at least 1 - delta.

    If the episodes run out first, the best certificate so far is returned: an honest, wider epsilon.

    Args:
        engine: plays the episodes; its ledger may limit them.
        functions: the class F, which should hold Q*.
        epsilon: largest allowed distance between the bounds.
        delta: probability that any claim is false.
        seed: of the choice among equally promising survivors.
        notify: called with a `Progress` after every event.
        tuning: sizes of trials, pilots and batches.
        bounds: the statistics that claims rest on.
        fallback: what takes over if the search has not ended by then [Theorem 2].
    """
    search = CertifiedSearch(engine, functions, epsilon, delta, seed, notify, tuning or Tuning(), bounds or Bounds())
    reason = StopReason.CERTIFIED
    try:
        while not play_round(search):
            if fallback is not None and fallback.is_due(engine.ledger.total):
                _take_over(search, fallback)
                break
    except EpisodeLimit:
        if search.best is None:
            if search.tried is None:
                raise
            search.best = Candidate(search.tried, 0.0, 0.0, 0)  # all that is known: rewards are not negative
        if not is_settled(search):
            reason = StopReason.EPISODES_SPENT
    found = search.best
    assert found is not None, "a round that ends the search has found a candidate"
    claimed = epsilon if reason is StopReason.CERTIFIED else search.upper - found.lower
    wording = partial(claim_words, delta, assumptions=ASSUMPTIONS, sampling=engine.ledger.assumes)
    return Outcome(
        policy=LearnedPolicy(functions, found.member),
        claim=wording(epsilon=claimed, lower=found.lower, upper=search.upper, reward_range=(0.0, 1.0)),
        wording=wording,
        learner="certified",
        epsilon=claimed,
        delta=delta,
        reason=reason,
        value_hat=found.mean,
        v_star_hat=search.upper,
        upper=search.upper,
        lower=found.lower,
        log_size=search.space.log_size,
        rounds=search.rounds,
        claims=search.share.claims(),
        remarks=_remarks(search, found, reason),
        constants=search.tuning,
    )


def play_round(search: CertifiedSearch) -> bool:
    """Tries one optimistic candidate; returns whether the search is over."""
    search.rounds += 1
    alive = search.space.alive(0)
    promise = np.minimum(search.root_guess, search.root_upper)
    first = alive & (promise >= promise[alive].max() - search.epsilon / 8)
    member = search.space.draw(first, keyed_generator(search.seed, "candidate", search.rounds))
    search.tried = member
    policy = LearnedPolicy(search.functions, member)
    size, n = search.space.log_bound, search.tuning.trials
    tried = search.engine.ask(Query.rollout(policy, n, purpose="trial", phase=PHASE, paths=n))
    earned, variance = tried.returns
    doubt = min(0.05, 0.005 / search.epsilon)  # small where epsilon is large: a policy that earned nothing must fail
    promising = earned + 2 * math.sqrt(max(variance, doubt) / n) >= search.guess - search.epsilon
    search.tell(
        CandidateTried(
            phase=PHASE,
            n=n,
            log_size_before=size,
            log_size_after=size,
            promising=promising,
            shortfall=search.guess - earned,
            epsilon=search.epsilon,
        )
    )
    if promising and verify_candidate(search, member, policy):
        return True
    path = freshest(search, tried.paths)
    if not untested_pairs(search, path):
        next_stage(search, path)
    probe(search, member, path)
    return is_settled(search)


def _take_over(search: CertifiedSearch, fallback: Fallback) -> None:
    """Lets the fallback learn with what is left of delta, at NARROWER epsilon.

    V* lies within an eighth of its epsilon of its estimate, and the policy earns at most its epsilon less than V*: an
    interval of 10/8 of its epsilon, which is below ours.
    """
    narrow = NARROWER * search.epsilon
    search.tell(fallback.takes_over(PHASE, search.space.log_bound, search.engine.ledger.total))
    found = fallback.learn()
    assert found.v_star_hat is not None, "LSVEE estimates V*"
    assert found.value_hat is not None, "LSVEE estimates the policy's value"
    upper, lower = found.v_star_hat + narrow / 8, found.v_star_hat - narrow / 8 - narrow
    for_upper, for_lower = search.reserve.split(0.5, 0.5)
    for_upper.spend()
    for_lower.spend()
    episodes = search.engine.ledger.total
    search.root_upper = np.minimum(search.root_upper, upper)
    for_upper.claim(UPPER, (), episodes, search.upper)
    if search.best is None or lower > search.best.lower:
        search.best = Candidate(found.policy.member, lower, found.value_hat, episodes)
    for_lower.claim(LOWER, (), episodes, lower)
    if not is_settled(search):  # it raises where the two algorithms contradict each other
        raise AssertionError("the fallback's bounds are within epsilon by construction")


def _remarks(search: CertifiedSearch, found: Candidate, reason: StopReason) -> tuple[str, ...]:
    """Returns, in words, what the search struggled with."""
    remarks = []
    if search.stage >= 4 * search.tuning.largest:
        remarks.append(
            f"{search.stuck} of {search.probes} batches told no survivors apart, so batches grew from "
            f"{search.tuning.largest:,} to {search.stage:,} episodes: wrong functions are off by little there"
        )
    if search.disappointed > max(2, search.rounds // 4):
        remarks.append(
            f"{search.disappointed} of {search.rounds} candidates looked right in trials and failed on more rollouts"
        )
    if reason is StopReason.EPISODES_SPENT:
        short = search.guess - found.mean
        if found.n == 0:
            remarks.append("no candidate was verified yet: all that were tried earned less than they promised")
        elif short > search.epsilon / 2:
            remarks.append(
                f"survivors still promise {search.guess:.3g}, and the best policy so far earned {found.mean:.3g}: wrong "
                "functions remain"
            )
        else:
            remarks.append(
                f"the best policy earned {found.mean:.3g} of {search.guess:.3g} promised in {found.n:,} rollouts: more "
                "rollouts are missing, not more eliminations"
            )
    return tuple(remarks)
