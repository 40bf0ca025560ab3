"""On-demand exploration, watched by someone who knows the world: what the lemmas speak of, exactly."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from richobs import BrokenPromise, FunctionClass, Greedy, Policy, Problem, Progress, TabularProcess
from richobs.core.ledger import Ledger
from richobs.core.queries import Answer, Engine, Query
from richobs.core.types import Ints, Mask, Path
from richobs_lab.counted import CountedEngine
from richobs_lab.lsvee.demand import Found, explore_on_demand
from richobs_lab.lsvee.dfs import LsveeSearch, NodeEliminated, learn_from
from richobs_lab.lsvee.spaces import TdSpace, td_space
from richobs_lab.paper.rigs.asked import constants_for
from richobs_lab.paper.rigs.corners import learned_tolerance
from richobs_lab.paper.rigs.printed import Printed

SURELY = 1e-12  # what exact quantities may be off by rounding


def learned_states(
    process: TabularProcess, functions: FunctionClass, space: TdSpace, printed: Printed
) -> tuple[Mask, ...]:
    """Returns per level `[S]` the set L(F): states where every survivor's action loses at most the tolerance."""
    masks = []
    for h, q in enumerate(process.q_tables):
        chosen = functions.values(h, process.observations[h]).argmax(axis=2)[space.alive(h)]  # [N, X]
        loss = q.max(axis=1) - np.take_along_axis(q[None], chosen[:, :, None], axis=2)[..., 0]  # [N, X]
        worst = (process.emissions[h] @ loss.T).max(axis=1)
        masks.append(worst <= learned_tolerance(printed, h) + SURELY)
    return tuple(masks)


def chance_of_visiting(process: TabularProcess, policy: Policy, states: Sequence[Mask]) -> float:
    """Returns the probability that `policy` visits one of the `states` (per level `[S]`) in an episode."""
    reach = np.zeros(len(process.emissions[-1]))
    for h in reversed(range(process.horizon)):
        if h < process.horizon - 1:
            taken = process.emissions[h] @ process.action_law(policy, h)  # [S, K]
            reach = np.einsum("sk,skt,t->s", taken, process.transitions[h], reach)
        reach = np.where(states[h], 1.0, reach)
    return float(process.start @ reach)


def some_path_visits(process: TabularProcess, paths: Ints, states: Sequence[Mask]) -> bool:
    """Whether one of the action sequences `[n, H]` leads through one of the `states`; transitions are deterministic."""
    unique = np.unique(paths, axis=0)
    at = np.full(len(unique), process.start.argmax())
    for h in range(process.horizon):
        if states[h][at].any():
            return True
        if h < process.horizon - 1:
            at = process.transitions[h][at, unique[:, h]].argmax(axis=1)
    return False


def state_at(process: TabularProcess, path: Path) -> int:
    """Returns the state that a path leads to; transitions are deterministic."""
    state = int(process.start.argmax())
    for h, a in enumerate(path):
        state = int(process.transitions[h][state, a].argmax())
    return state


def policy_risk_margin(printed: Printed) -> float:
    """Returns 40 sqrt(K) phi H^2, what the policy risk lemma adds to q; it equals epsilon/8."""
    return 40 * math.sqrt(printed.K) * printed.phi * printed.H**2


def off_the_staircase(episodes: int, printed: Printed) -> int:
    """Returns by how much a run on the staircase differs from what is printed: H - 1 prefixes of a path, or H with the root.

    The box has H - 1 prefixes and the proof counts H. A search at the root on demand is one elimination with its tests.
    """
    root = ((printed.M - 1) * (printed.H - 1) + 1) * printed.n_2 * printed.per_elimination(printed.on_demand)
    return min((episodes - printed.staircase() - more for more in (0, root)), key=abs)


class Round(NamedTuple):
    """What one round of on-demand exploration was, seen by someone who knows the world."""

    regret: float  # V* - V(pi_f)
    chance: float  # q: that pi_f visits an unlearned state
    uncalled: float  # that pi_f visits a state on which TD-Elim was not called
    learned: int  # states in L before the round
    accurate: bool  # the estimate of V(pi_f) is within epsilon/8
    failed: bool  # by the printed test, whatever the algorithm made of it
    rollouts: int  # that the estimate rests on
    paths: int  # that were collected
    earned: float  # mean return times n_1
    missed: bool  # none of the first n_2 paths visits an unlearned state


class Watched:
    """An engine that shows every rollout to an onlooker before the algorithm sees it."""

    def __init__(self, engine: Engine, onlooker: Callable[[Query, Answer], None]):
        self._engine, self._onlooker = engine, onlooker

    @property
    def name(self) -> str:
        """The name of the engine that is watched."""
        return self._engine.name

    @property
    def ledger(self) -> Ledger:
        """The ledger of the engine that is watched."""
        return self._engine.ledger

    def ask(self, query: Query, /) -> Answer:
        """Passes the query on; the onlooker is shown the answer where returns were asked for."""
        answer = self._engine.ask(query)
        if query.returns:
            self._onlooker(query, answer)
        return answer


class Demand:
    """On-demand exploration on one problem, watched."""

    def __init__(
        self, problem: Problem, *, epsilon: float, delta: float, seed: int, root: bool = True, verbatim: bool = False
    ):
        """Prepares a run; `root` searches at the root first, as Algorithm 1 does and as the theorem silently assumes."""
        assert problem.process is not None
        self.problem, self.process = problem, problem.process
        self.constants = constants_for(problem, epsilon, delta)
        self.printed = Printed.of(problem, epsilon, delta)
        engine = CountedEngine(self.process, problem.functions, seed=seed, ledger=Ledger())
        self.space = td_space(problem.functions)
        watched = Watched(engine, self._watch)
        self.search = LsveeSearch(watched, self.space, self.constants, verbatim, self._count)
        self.rounds: list[Round] = []
        self.eliminations = 0  # calls of TD-Elim
        self.uncalled = [np.ones(len(e), dtype=bool) for e in self.process.emissions]  # per level [S]: on which not
        self.found: Found | None = None
        self._v_star_hat = math.nan
        if root:
            learn_from(self.search, (), self.constants.search)
        ledger = self.search.engine.ledger
        self._before = ledger.total + ledger.skipped

    def run(self, shift: float) -> "Demand":
        """Explores on demand with V*-hat = V* + shift epsilon/8."""
        self._v_star_hat = self.problem.optimal_value + shift * self.constants.epsilon / 8
        try:
            self.found = explore_on_demand(self.search, self.problem.functions, self._v_star_hat)
        except BrokenPromise:
            self.found = None  # it did not end within M H rounds, or a policy seemed to beat V*
        return self

    def states(self) -> tuple[Mask, ...]:
        """Returns the set L of learned states as things stand."""
        return learned_states(self.process, self.problem.functions, self.space, self.printed)

    def as_printed(self) -> bool:
        """Whether every round had n_1 rollouts and n_2 paths, and the algorithm ended where the printed test says so."""
        sizes = all((r.rollouts, r.paths) == (self.printed.n_1, self.printed.n_2) for r in self.rounds)
        ended = [not r.failed for r in self.rounds]
        return sizes and not any(ended[:-1]) and (self.found is None or ended[-1])

    def returned_what_passed(self) -> bool:
        """Whether the function that was returned has the value of the policy that passed, where one did."""
        if self.found is None:
            return True
        policy = Greedy(self.problem.functions.member(self.found.member))
        return abs(self.regret(policy) - self.rounds[-1].regret) <= SURELY

    def regret(self, policy: Policy) -> float:
        """Returns V* - V(pi), exactly."""
        return self.problem.optimal_value - self.process.value(policy)

    @property
    def episodes(self) -> int:
        """What on-demand exploration took so far, as printed: repeats that were left out are counted."""
        return self.search.engine.ledger.total + self.search.engine.ledger.skipped - self._before

    def _count(self, progress: Progress) -> None:
        if isinstance(progress.event, NodeEliminated):
            path = progress.event.path
            self.eliminations += 1
            self.uncalled[len(path)][state_at(self.process, path)] = False

    def _watch(self, query: Query, answer: Answer) -> None:
        """Notes what a round was, from its rollouts."""
        policy, mean = query.policy, answer.returns.mean
        learned = self.states()
        unlearned = [~mask for mask in learned]
        regret = self.regret(policy)
        value = self.problem.optimal_value - regret
        self.rounds.append(
            Round(
                regret=regret,
                chance=chance_of_visiting(self.process, policy, unlearned),
                uncalled=chance_of_visiting(self.process, policy, self.uncalled),
                learned=int(sum(mask.sum() for mask in learned)),
                accurate=abs(mean - value) <= self.printed.epsilon / 8,
                failed=abs(mean - self._v_star_hat) > self.printed.eps_demand,
                rollouts=query.n,
                paths=len(answer.paths),
                earned=mean * self.printed.n_1,
                missed=not some_path_visits(self.process, answer.paths, unlearned),
            )
        )
