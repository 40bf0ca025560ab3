"""DFS-Learn ([KAL16] Algorithm 2): learn at a node after making sure that its children are understood."""

from dataclasses import dataclass, field

from richobs import BrokenPromise, Claim
from richobs.core import events
from richobs.core.events import Callback, Event, Progress, Said, event, nobody
from richobs.core.moments import check_rounding
from richobs.core.queries import Engine, Query
from richobs.core.types import Floats, Path
from richobs_lab.lsvee.consensus import consensus
from richobs_lab.lsvee.constants import PaperConstants, SearchConstants
from richobs_lab.lsvee.elimination import risk_rounding, td_risk
from richobs_lab.lsvee.spaces import TdSpace

SEARCH, DEMAND = "search", "demand"  # the two phases of Algorithm 1


@dataclass
class LsveeSearch:
    """The state of a run: what survives, what was learned, what was claimed."""

    engine: Engine
    space: TdSpace
    constants: PaperConstants
    verbatim: bool = False  # as printed: repeats are played, failed policies tried again, no stop within the bounds
    notify: Callback = nobody
    phase: str = SEARCH
    learned: dict[Path, Floats] = field(default_factory=dict)  # path -> [N] values, from its elimination's samples
    claims: list[Claim] = field(default_factory=list)  # events of the paper's union bound that the run used
    rounding: float = 0.0  # largest of the moments so far: children's values are known up to it
    eliminations: int = 0  # in the current call of `learn_from`

    def tell(self, happened: Event) -> None:
        """Notifies an event."""
        self.notify(Progress(happened, self.engine.ledger.total))

    def stop_if_far(self) -> None:
        """Stops a verbatim run that played more than the proof's bound; the printed loop and search may never end.

        Raises:
            BrokenPromise: with all assumptions true that many episodes have probability delta at most.
        """
        # Departs from [KAL16]: nothing printed stops here.
        if self.verbatim and self.engine.ledger.total > self.constants.max_episodes():
            raise BrokenPromise(
                f"the verbatim run played {self.engine.ledger.total:,} episodes, more than the "
                f"{self.constants.max_episodes():,} that the proof of Theorem 1 allows. Either there are more than n_states "
                f"= {self.constants.n_states} latent states at a level, or an assumption is false; {chance(self)}"
            )


def learn_from(search: LsveeSearch, path: Path, numbers: SearchConstants) -> None:
    """Calls DFS-Learn at `path` from outside: a new search with its own share of delta."""
    search.eliminations = 0
    _dfs_learn(search, path, numbers)


def _dfs_learn(search: LsveeSearch, path: Path, numbers: SearchConstants) -> None:
    """DFS-Learn(p, F, epsilon, delta); recursion passes delta on unchanged."""
    n_actions = search.constants.n_actions
    values = [_child_value(search, (*path, a), numbers) for a in range(n_actions)]
    _td_elim(search, path, numbers, values)


def _child_value(search: LsveeSearch, child: Path, numbers: SearchConstants) -> Floats | None:
    """Steps 2 to 4 for one action: tests the child, learns it first if survivors disagree, returns its values `[N]`.

    None for a terminal child: a path of length H is accessed by definition, its value 0 (the proof's base case).
    """
    level = len(child)
    if level == search.constants.horizon:
        return None
    # Departs from [KAL16]: a learned path is not tested again; its estimates are the more precise ones, and they and the
    # agreement they rest on stay valid for survivors of later eliminations. `verbatim` does as printed.
    if child in search.learned and not search.verbatim:
        search.engine.ledger.skip(numbers.n_test)
        return search.learned[child]
    search.stop_if_far()
    eps_test, n = search.constants.eps_test(level), numbers.n_test
    answer = search.engine.ask(Query.observe(child, n, purpose="consensus", phase=search.phase))
    search.rounding = max(search.rounding, answer.moments[0].rounding)
    check_rounding(answer.moments[0].rounding, search.constants.phi)
    verdict = consensus(answer.moments[0], search.space.alive(level), eps_test=eps_test)
    size = search.space.log_size
    what = "every survivor's value is estimated up to phi"
    search.claims.append(Claim(what, child, n, numbers.delta_consensus, search.constants.phi))
    search.tell(
        ConsensusTested(
            phase=search.phase,
            path=child,
            n=n,
            log_size_before=size,
            log_size_after=size,
            agree=verdict.agree,
            spread=verdict.spread,
            eps_test=eps_test,
        )
    )
    if verdict.agree:
        return verdict.v_hat
    _dfs_learn(search, child, numbers)
    return search.learned[child]


def _td_elim(search: LsveeSearch, path: Path, numbers: SearchConstants, values: list[Floats | None]) -> None:
    """TD-Elim(p, F, phi, delta), and the check that it is not called more often than M states a level allow."""
    search.eliminations += 1
    search.stop_if_far()
    # Departs from [KAL16]: printed is no stop. On the good event M H suffice (theorem for DFS-Learn), so that stopping
    # costs no more than the delta already spent. `verbatim` does as printed.
    if not search.verbatim and search.eliminations > search.constants.max_eliminations:
        raise BrokenPromise(
            f"one search needed more than M H = {search.constants.max_eliminations} eliminations, the last at path {path}. "
            f"Either there are more than n_states = {search.constants.n_states} latent states at a level, or an "
            f"assumption is false; {chance(search)}"
        )
    n, n_actions = numbers.n_train, search.constants.n_actions
    answer = search.engine.ask(Query.step(path, n, n_actions, purpose="elimination", phase=search.phase))
    moments = answer.moments[0]
    search.rounding = max(search.rounding, moments.rounding)
    known = [v for v in values if v is not None]
    risk = td_risk(len(path), moments, known or None)
    rounding = risk_rounding(risk.noise, risk.gain, risk.future, moments.rounding, search.rounding)
    check_rounding(rounding, numbers.slack)
    done = search.space.eliminate(risk, numbers.slack + rounding)
    search.learned[path] = moments.v_mean
    what = "Q* survives, and survivors are nearly consistent"
    search.claims.append(Claim(what, path, n, numbers.delta_elimination, done.cutoff))
    search.tell(
        NodeEliminated(
            phase=search.phase,
            path=path,
            n=n,
            log_size_before=done.log_size_before,
            log_size_after=done.log_size_after,
            least=done.least,
            cutoff=done.cutoff,
        )
    )


def chance(search: LsveeSearch) -> str:
    """Returns the sentence that every `BrokenPromise` ends with."""
    return f"with all assumptions true this happens with probability at most {search.constants.delta:g}."


@event(
    "lsvee", "consensus", "do survivors agree on the value here?", "widest disagreement", "still counts as agreement"
)
class ConsensusTested(Event):
    """Consensus ([KAL16] Algorithm 3) ran at a node."""

    agree: bool
    spread: float
    eps_test: float

    def said(self) -> Said:
        """Returns whether survivors agree."""
        verdict, mark = ("agree", events.AGREED) if self.agree else ("disagree", events.OPEN)
        return Said(verdict, "", self.spread, self.eps_test, mark, level=len(self.path))


@event(
    "lsvee",
    "elimination",
    "which functions are inconsistent with what was seen?",
    "smallest risk",
    "largest risk that survives",
)
class NodeEliminated(Event):
    """TD-Elim ([KAL16] Appendix B) ran at a node."""

    least: float
    cutoff: float

    def said(self) -> Said:
        """Returns whether any function was eliminated, in the search or on demand."""
        searching = self.phase != DEMAND
        if self.log_size_after < self.log_size_before:
            verdict, mark = "dropped", events.ELIMINATED if searching else events.ELIMINATED_ON_DEMAND
        else:
            verdict, mark = "none dropped", events.IDLE if searching else events.IDLE_ON_DEMAND
        return Said(verdict, "", self.least, self.cutoff, mark, level=len(self.path))
