"""Explore-on-Demand ([KAL16] Algorithm 1, lines 4 to 9): try a surviving policy, learn where it goes if it fails."""

import itertools
from typing import NamedTuple

from richobs import BrokenPromise, Claim, FunctionClass, Greedy
from richobs.core.events import POLICIES, Event, Said, event
from richobs.core.queries import Query
from richobs.core.types import Member
from richobs_lab.lsvee.dfs import DEMAND, LsveeSearch, chance, learn_from

VERBATIM_ROUNDS = 100  # times M H, after which a verbatim run stops: as printed it would go on for ever


class Found(NamedTuple):
    """The function whose policy passed."""

    member: Member
    value_hat: float
    rounds: int


def explore_on_demand(search: LsveeSearch, functions: FunctionClass, v_star_hat: float) -> Found:
    """Returns a survivor whose policy earns V*-hat up to eps_demand.

    As printed the loop has no end but a policy that passes. Three departures stop it where a promise is broken. A verbatim
    search makes none of them, but stops far beyond what the proof allows.
    """
    numbers = search.constants
    search.phase = DEMAND
    failed: set[Member] = set()
    for round_ in itertools.count(1):
        search.stop_if_far()
        # Departs from [KAL16]: no more than M H rounds, which suffice on the good event; `verbatim` goes on far beyond.
        if round_ > numbers.max_rounds * (VERBATIM_ROUNDS if search.verbatim else 1):
            times = f"{VERBATIM_ROUNDS} times " if search.verbatim else ""
            raise BrokenPromise(
                f"on-demand exploration did not end within {times}M H = {numbers.max_rounds} rounds. Either there are more "
                f"than n_states = {numbers.n_states} latent states at a level, or an assumption is false; {chance(search)}"
            )
        # Departs from [KAL16]: a policy that failed is not tried again, since on the good event its function is not Q*;
        # `verbatim` does as printed.
        member = search.space.pick(() if search.verbatim else failed)
        if member is None:
            raise BrokenPromise(
                f"every surviving policy was tried and earns less than the optimal value estimated at the root, "
                f"{v_star_hat:.6g}. Q* is not in the class, or another assumption is false; {chance(search)}"
            )
        policy = Greedy(functions.member(member))
        rollouts = search.engine.ask(
            Query.rollout(policy, numbers.n_1, purpose="rollout", phase=DEMAND, paths=numbers.n_2)
        )
        earned, size = rollouts.returns.mean, search.space.log_size
        played = PolicyPlayed(
            phase=DEMAND,
            n=numbers.n_1,
            log_size_before=size,
            log_size_after=size,
            gap=abs(earned - v_star_hat),
            eps_demand=numbers.eps_demand,
        )
        _claim(search, played.passed)
        search.tell(played)
        # Departs from [KAL16]: on the good event no policy earns that much; `verbatim` does as printed.
        if not search.verbatim and earned > v_star_hat + numbers.epsilon / 4:
            raise BrokenPromise(
                f"a policy earns {earned:.6g}, more than the optimal value estimated at the root, "
                f"{v_star_hat:.6g}, by more than epsilon/4 = {numbers.epsilon / 4:g}. Q* is not in the class, or another "
                f"assumption is false; {chance(search)}"
            )
        if played.passed:
            return Found(member, earned, round_)
        failed.add(member)
        for path in rollouts.paths.tolist():
            # The H-1 prefixes: lengths 1 to H-1. The root is learned already, length H is terminal.
            for length in range(1, numbers.horizon):
                prefix = tuple(path[:length])
                # Departs from [KAL16]: a path whose elimination ran is learned for good; `verbatim` does as printed.
                if search.verbatim or prefix not in search.learned:
                    learn_from(search, prefix, numbers.demand)
                else:
                    tests = numbers.n_actions * numbers.demand.n_test if length < numbers.horizon - 1 else 0
                    search.engine.ledger.skip(numbers.demand.n_train + tests)
    raise AssertionError("the loop above returns or raises")


def _claim(search: LsveeSearch, passed: bool) -> None:
    """Writes down the events of one round: a third of delta/2 / (M H) for each of the round's three kinds."""
    numbers = search.constants
    share = numbers.delta / (6 * numbers.max_rounds)
    what = "the policy's value is estimated up to epsilon/8"
    search.claims.append(Claim(what, (), numbers.n_1, share, numbers.epsilon / 8))
    if not passed:
        what = "a failed policy's paths lead to something to learn"
        search.claims.append(Claim(what, (), numbers.n_2, share, numbers.epsilon / 8))


@event("lsvee", "rollout", "does the policy earn what was promised?", "distance from the estimate of V*", "allowed")
class PolicyPlayed(Event):
    """A survivor's policy was played (Algorithm 1, lines 5 and 6)."""

    gap: float
    eps_demand: float

    @property
    def passed(self) -> bool:
        """Whether the policy is near-optimal."""
        return self.gap <= self.eps_demand

    def said(self) -> Said:
        """Returns whether the policy passed."""
        return Said("near-optimal" if self.passed else "failed", "", self.gap, self.eps_demand, POLICIES)
