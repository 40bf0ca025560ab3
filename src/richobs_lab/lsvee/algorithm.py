"""LSVEE ([KAL16] Algorithm 1): search at the root, estimate V*, then explore on demand."""

import sys
from functools import partial

from richobs import FunctionClass, LearnedPolicy, Outcome
from richobs.core.events import Callback, nobody
from richobs.core.outcome import DETERMINISTIC, REACTIVE, REALIZABLE, StopReason, Wording, claim_words
from richobs.core.queries import Engine
from richobs_lab.lsvee.constants import PaperConstants
from richobs_lab.lsvee.demand import explore_on_demand
from richobs_lab.lsvee.dfs import LsveeSearch, learn_from
from richobs_lab.lsvee.spaces import td_space


def lsvee(
    engine: Engine,
    functions: FunctionClass,
    constants: PaperConstants,
    *,
    verbatim: bool = False,
    notify: Callback = nobody,
) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability 1 - delta (Theorem 1).

    Args:
        engine: plays the episodes.
        functions: the class F, which should hold Q*.
        constants: the paper's numbers.
        verbatim: as printed: call DFS-Learn on every collected prefix, also where it ran before, try a policy again that
            failed, and stop only where episodes exceed the proof's bound, or rounds a hundred times theirs.
        notify: called with a `Progress` after every event.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * constants.horizon + 1000))  # DFS-Learn is as deep as H
    search = LsveeSearch(engine, td_space(functions), constants, verbatim, notify)
    learn_from(search, (), constants.search)  # line 1
    v_star_hat = _root_value(search)  # line 2
    found = explore_on_demand(search, functions, v_star_hat)  # lines 3 to 9
    wording = _wording(constants, engine)
    return Outcome(
        policy=LearnedPolicy(functions, found.member),
        claim=wording(epsilon=constants.epsilon, lower=None, upper=None, reward_range=(0.0, 1.0)),
        wording=wording,
        learner="lsvee",
        epsilon=constants.epsilon,
        delta=constants.delta,
        reason=StopReason.NEAR_OPTIMAL,
        value_hat=found.value_hat,
        v_star_hat=v_star_hat,
        log_size=search.space.log_size,
        rounds=found.rounds,
        claims=tuple(search.claims),
        constants=constants,
    )


def _wording(constants: PaperConstants, engine: Engine) -> Wording:
    """Returns what Theorem 1 says about these constants, in words."""
    states = "1 hidden state" if constants.n_states == 1 else f"{constants.n_states} hidden states"
    assumptions = (REACTIVE, REALIZABLE, DETERMINISTIC, f"no level has more than {states}")
    return partial(claim_words, constants.delta, assumptions=assumptions, sampling=engine.ledger.assumes)


def _root_value(search: LsveeSearch) -> float:
    """V*-hat: any survivor's value at the root, from the root's own elimination samples (proof of Corollary 1)."""
    member = search.space.pick()
    assert member is not None, "the minimiser of the risk always survives"
    return float(search.learned[()][member if isinstance(member, int) else member[0]])
