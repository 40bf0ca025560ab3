"""LSVEE ([KAL16] Algorithm 1): search at the root, estimate V*, then explore on demand."""

import sys

from richobs.engines import Engine
from richobs.lsvee.constants import PaperConstants
from richobs.lsvee.demand import explore_on_demand
from richobs.lsvee.dfs import Search, learn_from
from richobs.outcome import Callback, Outcome, StopReason
from richobs.policy import LearnedPolicy
from richobs.problem import FunctionClass
from richobs.versions import version_space


def lsvee(
    engine: Engine,
    functions: FunctionClass,
    constants: PaperConstants,
    *,
    verbatim: bool = False,
    callback: Callback | None = None,
) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability 1 - delta (Theorem 1).

    Args:
        engine: plays the episodes.
        functions: the class F, which should hold Q*.
        constants: the paper's numbers.
        verbatim: call DFS-Learn on every collected prefix, also where it ran before.
        callback: told about every test.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * constants.horizon + 1000))  # DFS-Learn is as deep as H
    search = Search(engine, version_space(functions), constants, verbatim, callback)
    learn_from(search, (), constants.search)  # line 1
    v_star_hat = _root_value(search)  # line 2
    found = explore_on_demand(search, functions, v_star_hat)  # lines 3 to 9
    return Outcome(
        policy=LearnedPolicy(functions, found.member),
        epsilon=constants.epsilon,
        delta=constants.delta,
        schedule="paper",
        v_star_hat=v_star_hat,
        value_hat=found.value_hat,
        log_size=search.space.log_size,
        reason=StopReason.NEAR_OPTIMAL,
        ledger=engine.ledger,
        trace=tuple(search.trace),
        constants=constants,
        rounds=found.rounds,
        premise=f" and at most {constants.n_states} hidden states a level",
    )


def _root_value(search: Search) -> float:
    """V*-hat: any survivor's value at the root, from the root's own elimination samples (proof of Corollary 1)."""
    member = search.space.pick()
    assert member is not None, "the minimiser of the risk always survives"
    return float(search.learned[()][member if isinstance(member, int) else member[0]])
