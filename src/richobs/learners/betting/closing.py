"""Two ways to certify a candidate from its own episodes [B3], and what the run answers."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise
from richobs.core.outcome import Outcome, StopReason, probability_words
from richobs.core.types import Floats, Member
from richobs.learners.betting.candidates import Accounts, Candidate, lost_sums
from richobs.learners.betting.events import AgreementTested, ClaimClosed
from richobs.learners.betting.state import PHASE, BettingSearch
from richobs.stats import bets
from richobs.stats.shares import Supposed

SMALLEST_BET = 1 / 16  # of epsilon, on returns
LOOK_AGAIN = 1.03  # an interval is looked at again after so many times the episodes
REFUTED = "bets never refute Q*"
Means = Literal["agreement", "interval", "one survivor", "nothing"]  # what a claim rests on
REASONS: dict[Means, StopReason] = {
    "agreement": StopReason.AGREEMENT,
    "interval": StopReason.CERTIFIED,
    "one survivor": StopReason.ONE_SURVIVOR,
    "nothing": StopReason.EPISODES_SPENT,
}


@dataclass(frozen=True)
class AgreementRecord:
    """The numbers from which a reader recomputes a claim by agreement [B3.2]."""

    account: int  # number of the candidate's accounts
    n: int  # its episodes
    threshold: float  # wealth that was needed
    epsilon: float  # mean loss that is refuted: epsilon less what rounding may hide
    jump: float  # largest value at a stop
    theta: list[float]  # [A] largest gap that does not stop an episode
    bets: list[float]  # [A]
    weights: list[float]  # [A]
    taken: list[float]  # [A] what the worst survivor takes away from the logarithm of each bet's wealth
    log_wealth: float


@dataclass(frozen=True)
class BettingConstants:
    """What a betting search began with, and what its claim rests on."""

    tuning: dict[str, Any]
    zeta: float  # declared rounding error of the class's values
    floor: float
    cap: float
    refutation_limit: float  # wealth at which a pair dies, or a listed function
    closed_by: str  # "agreement", "interval", "one survivor" or "nothing"
    agreement: AgreementRecord | None = None


class Closed(NamedTuple):
    """A policy, and what is certified of it."""

    member: Member
    by: Means
    gap: float  # V* - V(policy) is at most this
    accounts: Accounts | None
    agreement: AgreementRecord | None = None


def closed(search: BettingSearch, candidate: Candidate) -> Closed | None:
    """Returns what certifies the candidate, or the only survivor; None where nothing does yet."""
    space, epsilon, own = search.survivors, search.epsilon, candidate.accounts
    if own is not None and search.upper - own.mean <= epsilon and own.n >= LOOK_AGAIN * own.looked_at:
        own.look(SMALLEST_BET * epsilon)
    _check_bounds(search)
    found, only = None, space.only
    if only is not None:  # it is Q*, and its greedy policy earns V*
        known = search.candidates.get(only)
        found = Closed(only, "one survivor", 0.0, known.accounts if known is not None else None)
    elif own is not None:
        gap = search.upper - own.lower
        if gap <= epsilon:
            found = Closed(candidate.member, "interval", gap, own)
        else:
            record = _agreement(search, own)
            if record is not None:
                found = Closed(candidate.member, "agreement", epsilon, own, record)
    if found is not None:
        size = space.log_bound
        search.tell(
            ClaimClosed(
                phase=PHASE, log_size_before=size, log_size_after=size, by=found.by, gap=found.gap, epsilon=epsilon
            )
        )
    return found


def _check_bounds(search: BettingSearch) -> None:
    """Raises `BrokenPromise` where W of a candidate exceeds U: that contradicts the assumptions and certifies nothing."""
    if search.upper < search.lower:
        raise BrokenPromise(
            f"a policy's value is at least {search.lower:.6g}, but no surviving function promises more than "
            f"{search.upper:.6g}: Q* is not in the class, or the value of an observation depends on what was seen before "
            f"it. {search.chance}"
        )


def _agreement(search: BettingSearch, own: Accounts) -> AgreementRecord | None:
    """Bets, for every survivor f at once, against E[D_f] >= epsilon; returns the numbers where all of them win [B3.2]."""
    account, bet, space = own.agreement, search.agreement, search.survivors
    needed = math.log(bets.death(Supposed(account.amount)))
    if bet.log_wealth(own.n, np.zeros(len(bet.bets))) < needed:
        return None  # even survivors that agree everywhere would not win yet
    if own.agreement_threshold is None:
        own.agreement_threshold = bets.death(account)
    thetas, which = np.unique(bet.theta, return_inverse=True)
    taken: list[Floats] = []  # per level [A, m]
    levels = list(range(search.functions.horizon))
    levels.insert(0, levels.pop(own.hardest))
    for h in levels:
        gaps, jumps = lost_sums(search.functions, h, space.living(h), own.trail, thetas)
        taken.append(bet.per_gap[:, None] * gaps[which] + bet.per_jump[:, None] * jumps[which])
        most = space.largest_sums(taken)
        log_wealth = bet.log_wealth(own.n, most)
        if log_wealth < needed:
            own.hardest = h
            break
    agreed = log_wealth >= needed
    size = space.log_bound
    search.tell(
        AgreementTested(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            at=h,
            rests_on=own.n,
            log_wealth=log_wealth,
            needed=needed,
            agreed=agreed,
        )
    )
    if not agreed:
        return None
    return AgreementRecord(
        account=own.number,
        n=own.n,
        threshold=own.agreement_threshold,
        epsilon=bet.epsilon,
        jump=bet.jump,
        theta=bet.theta.tolist(),
        bets=bet.bets.tolist(),
        weights=bet.weights.tolist(),
        taken=most.tolist(),
        log_wealth=log_wealth,
    )


def best_interval(search: BettingSearch, candidate: Candidate) -> Closed:
    """Returns the candidate with the largest W once the episodes are spent; W is 0 where none has accounts yet."""
    best, most = Closed(candidate.member, "nothing", search.upper, candidate.accounts), -1.0
    for other in search.opened:
        own = other.accounts
        assert own is not None, "they were opened"
        if own.look(SMALLEST_BET * search.epsilon) > most:
            most, gap = own.lower, search.upper - own.lower
            best = Closed(other.member, "interval" if gap <= search.epsilon else "nothing", gap, own)
    _check_bounds(search)
    return best


def outcome(search: BettingSearch, found: Closed) -> Outcome:
    """Returns the answer: the policy, the claim in words, and every share of delta that was spent."""
    own, episodes = found.accounts, search.engine.ledger.total
    certified = found.by != "nothing"
    claimed = search.epsilon if certified else found.gap
    if own is not None:
        own.look(SMALLEST_BET * search.epsilon)
    _check_bounds(search)
    search.refutations.claim(REFUTED, (), episodes, search.survivors.limit)
    for other in search.opened:
        if other.accounts is not None:
            agreed = found.by == "agreement" and other.accounts is own
            other.accounts.write_claims(search.epsilon if agreed else None)
    promise = search.roots.promise(search.survivors.living(0))
    return Outcome(
        policy=LearnedPolicy(search.functions, found.member),
        claim=(
            f"With probability at least {probability_words(search.delta)} the policy's value is at most {claimed:.6g} "
            "below V*, provided that rewards are nonnegative with totals of at most 1, that the best value of an action "
            "depends on what is seen and not on what was seen before, and that Q* is in the class. Transitions may be "
            "random."
        ),
        learner="betting",
        epsilon=claimed,
        delta=search.delta,
        reason=REASONS[found.by],
        value_hat=own.mean if own is not None and own.n else None,
        v_star_hat=float(promise.max()),
        upper=search.upper,
        lower=own.lower if own is not None else 0.0,
        log_size=search.survivors.log_size,
        rounds=search.rounds,
        claims=search.share.claims(),
        remarks=_remarks(search, found),
        constants=BettingConstants(
            tuning=asdict(search.tuning),
            zeta=bets.ZETA,
            floor=bets.FLOOR,
            cap=bets.CAP,
            refutation_limit=search.survivors.limit,
            closed_by=found.by,
            agreement=found.agreement,
        ),
    )


def _remarks(search: BettingSearch, found: Closed) -> tuple[str, ...]:
    """Returns, in words, what is missing where nothing was certified."""
    if found.by != "nothing":
        return ()
    promise = float(search.roots.promise(search.survivors.living(0)).max())
    if found.accounts is None or found.accounts.n == 0:
        return ("no candidate was played long enough to bound its value",)
    return (
        f"survivors promise {promise:.3g}, and the best policy earned {found.accounts.mean:.3g} in {found.accounts.n:,} "
        "episodes",
    )
