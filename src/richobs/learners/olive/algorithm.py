"""OLIVE ([JKALS17] Algorithm 1): play the most optimistic survivor, and eliminate where its predictions fail.

A run in words: all functions predict a value at the root, and the survivor that predicts most is played. If its own average
Bellman errors sum to little, it earns nearly what it predicts, and no survivor predicts more. Otherwise some level has a
large error: there, reached by the same policy, every survivor is tested.
"""

from dataclasses import dataclass, field
from functools import partial

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise
from richobs.core.events import Callback, Event, Progress, nobody
from richobs.core.functions import FunctionClass
from richobs.core.moments import check_rounding
from richobs.core.outcome import REALIZABLE, UNIT_TOTALS, Outcome, StopReason, claim_words
from richobs.core.policies import Greedy, Switch, Uniform
from richobs.core.queries import Engine, LevelSteps, Query
from richobs.core.types import Floats, Member
from richobs.learners.olive.bellman import Evaluation, own_errors, pair_error
from richobs.learners.olive.constants import OliveConstants
from richobs.learners.olive.events import SEARCH, CandidateEvaluated, LevelEliminated, ValuesEstimated
from richobs.learners.version_space import VersionSpace, version_space
from richobs.stats.shares import Share


def olive(engine: Engine, functions: FunctionClass, constants: OliveConstants, *, notify: Callback = nobody) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability 1 - delta ([JKALS17] Theorem 1).

    Args:
        engine: plays the episodes.
        functions: the class F, which should hold Q*.
        constants: the paper's numbers.
        notify: told about every estimate, evaluation and elimination.

    Raises:
        BrokenPromise: no function survives, or there were more rounds than the theorem allows.
    """
    search = OliveSearch(engine, functions, constants, notify)
    v_hat = search.estimate()  # lines 2 and 3
    for round_ in range(1, constants.max_rounds + 1):
        member = search.space.optimistic(v_hat)  # line 6
        if member is None:
            raise BrokenPromise(
                f"no function survived {round_ - 1} eliminations. Q* is not in the class, or rewards or values leave "
                f"[0, 1]; {search.chance}"
            )
        predicted = float(v_hat[member if isinstance(member, int) else member[0]])
        evaluation = search.evaluate(member, predicted)  # lines 7 and 8
        if evaluation.errors.sum() <= constants.stop:  # line 9
            return search.outcome(member, predicted, evaluation, round_)
        # Line 12. The errors sum to more than 5 epsilon / 8, so the largest of the H exceeds 5 epsilon / (8 H).
        search.eliminate(member, int(evaluation.errors.argmax()))  # lines 13 to 15
    raise BrokenPromise(
        f"{constants.max_rounds} rounds did not suffice; a Bellman rank of n_states = {constants.n_states} allows no more. "
        f"The rank is larger, or another assumption is false; {search.chance}"
    )


@dataclass
class OliveSearch:
    """The state of a run: what survives, and what was claimed with which share of delta."""

    engine: Engine
    functions: FunctionClass
    constants: OliveConstants
    notify: Callback = nobody
    space: VersionSpace = field(init=False)

    def __post_init__(self) -> None:
        self.space = version_space(self.functions)
        self._delta = Share(self.constants.delta)
        self._estimates, self._evaluations, self._eliminations = self._delta.split(1 / 3, 1 / 3, 1 / 3)

    @property
    def chance(self) -> str:
        """The words that every broken promise ends with."""
        return f"with all assumptions true this happens with probability at most {self.constants.delta:g}."

    def estimate(self) -> Floats:
        """Returns `[N_0]` the mean prediction of every member of level 0 at the root, from n_est observations."""
        c = self.constants
        moments = self.engine.ask(Query.observe((), c.n_est, purpose="estimation", phase=SEARCH)).moments[0]
        check_rounding(moments.rounding, c.epsilon / 8)
        _claim(
            self._estimates.part(c.delta_est),
            "every function's mean prediction at the root is estimated up to epsilon/8",
            c.n_est,
            c.epsilon / 8,
        )
        size, largest = self.space.log_size, float(moments.v_mean.max())
        self._tell(ValuesEstimated(phase=SEARCH, n=c.n_est, log_size_before=size, log_size_after=size, largest=largest))
        return moments.v_mean

    def evaluate(self, member: Member, predicted: float) -> Evaluation:
        """Plays a survivor's policy n_eval times and returns the survivor's own Bellman errors."""
        c = self.constants
        f = self.functions.member(member)
        wanted = tuple(LevelSteps(h, moves=False) for h in range(c.horizon))
        answer = self.engine.ask(Query(Greedy(f), c.n_eval, "evaluation", SEARCH, steps=wanted))
        evaluation = own_errors(answer.steps, f)
        _claim(
            self._evaluations.part(c.delta_round),
            "the candidate's average Bellman error is estimated up to epsilon/(8H) at every level",
            c.n_eval,
            c.epsilon / (8 * c.horizon),
        )
        size = self.space.log_size
        self._tell(
            CandidateEvaluated(
                phase=SEARCH,
                n=c.n_eval,
                log_size_before=size,
                log_size_after=size,
                value=predicted,
                earned=evaluation.earned,
                total=float(evaluation.errors.sum()),
                stop=c.stop,
            )
        )
        return evaluation

    def eliminate(self, member: Member, level: int) -> None:
        """Drops functions whose error at `level` exceeds phi, where a survivor's policy leads to that level."""
        c = self.constants
        last = level == c.horizon - 1
        policy = Switch(Greedy(self.functions.member(member)), level, Uniform(c.n_actions))
        wanted = (LevelSteps(level, moves=not last),)
        # Departs from the paper: episodes end once what follows the level is seen; nothing later is looked at.
        query = Query(policy, c.n, "elimination", SEARCH, levels=level + 2 - last, steps=wanted)
        (steps,) = self.engine.ask(query).steps
        next_alive = None if last else self.space.alive(level + 1)
        error = pair_error(self.functions, level, steps, self.space.alive(level), next_alive)
        done = self.space.keep_within(error, c.phi)
        _claim(
            self._eliminations.part(c.delta_round),
            f"every function's average Bellman error at level {level} is estimated up to phi",
            c.n,
            c.phi,
        )
        self._tell(
            LevelEliminated(
                phase=SEARCH,
                n=c.n,
                log_size_before=done.log_size_before,
                log_size_after=done.log_size_after,
                tested=level,
                least=done.least,
                phi=c.phi,
            )
        )

    def outcome(self, member: Member, predicted: float, evaluation: Evaluation, rounds: int) -> Outcome:
        """Returns the answer: the policy of a survivor whose errors sum to little."""
        c = self.constants
        rank = f"the Bellman rank is at most {c.n_states} (as where no level has more hidden states)"
        wording = partial(
            claim_words, c.delta, assumptions=(REALIZABLE, rank, UNIT_TOTALS), sampling=self.engine.ledger.assumes
        )
        return Outcome(
            policy=LearnedPolicy(self.functions, member),
            claim=wording(epsilon=c.epsilon, lower=None, upper=None),
            wording=wording,
            learner="olive",
            epsilon=c.epsilon,
            delta=c.delta,
            reason=StopReason.NEAR_OPTIMAL,
            value_hat=evaluation.earned,
            v_star_hat=predicted,
            log_size=self.space.log_size,
            rounds=rounds,
            claims=self._delta.claims(),
            constants=c,
        )

    def _tell(self, event: Event) -> None:
        self.notify(Progress(event, self.engine.ledger.total))


def _claim(share: Share, what: str, n: int, value: float) -> None:
    """Spends a share on one event of the union bound and writes down which."""
    share.spend()
    share.claim(what, (), n, value)
