"""Explore-on-Demand ([KAL16] Algorithm 1, lines 4 to 9): try a surviving policy, learn where it goes if it fails."""

from typing import NamedTuple

from richobs.errors import BrokenPromise
from richobs.lsvee.dfs import Search, chance, learn_from
from richobs.outcome import Event
from richobs.problem import FunctionClass, GreedyPolicy, Member


class Found(NamedTuple):
    """The function whose policy passed."""

    member: Member
    value_hat: float
    rounds: int


def explore_on_demand(search: Search, functions: FunctionClass, v_star_hat: float) -> Found:
    """Returns a survivor whose policy earns V*-hat up to eps_demand.

    A policy that fails is excluded: on the good event its function is not Q*, so the loop cannot pick it again.
    """
    numbers = search.constants
    search.phase = "demand"
    failed: set[Member] = set()
    for round_ in range(1, numbers.max_rounds + 1):
        member = search.space.pick(failed)
        if member is None:
            raise BrokenPromise(
                f"every surviving policy was tried and earns less than the optimal value estimated at the root, "
                f"{v_star_hat:.6g}. Q* is not in the class, or another assumption is false; {chance(search)}"
            )
        policy = GreedyPolicy(functions.member(member))
        rollouts = search.engine.rollout(policy, numbers.n_1, numbers.n_2, phase="demand", purpose="rollout")
        gap = abs(rollouts.mean - v_star_hat)
        passed = gap <= numbers.eps_demand
        size = search.space.log_size
        search.note(
            Event(
                "rollout",
                "demand",
                (),
                "near-optimal" if passed else "failed",
                gap,
                numbers.eps_demand,
                numbers.n_1,
                size,
                size,
            )
        )
        if rollouts.mean > v_star_hat + numbers.epsilon / 4:
            raise BrokenPromise(
                f"a policy earns {rollouts.mean:.6g}, more than the optimal value estimated at the root, "
                f"{v_star_hat:.6g}, by more than epsilon/4 = {numbers.epsilon / 4:g}. Q* is not in the class, or another "
                f"assumption is false; {chance(search)}"
            )
        if passed:
            return Found(member, rollouts.mean, round_)
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
    raise BrokenPromise(
        f"on-demand exploration did not end within M H = {numbers.max_rounds} rounds. Either there are more than n_states "
        f"= {numbers.n_states} latent states at a level, or an assumption is false; {chance(search)}"
    )
