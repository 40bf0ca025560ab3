"""DFS-Learn ([KAL16] Algorithm 2): learn at a node after making sure that its children are understood."""

from dataclasses import dataclass, field

from richobs.engines import Engine
from richobs.errors import BrokenPromise
from richobs.lsvee.consensus import consensus
from richobs.lsvee.constants import PaperConstants, SearchConstants
from richobs.lsvee.elimination import td_risk
from richobs.outcome import Callback, Event, Progress
from richobs.problem import Floats, Path
from richobs.versions import VersionSpace


@dataclass
class Search:
    """The state of a run: what survives, what was learned, what happened."""

    engine: Engine
    space: VersionSpace
    constants: PaperConstants
    verbatim: bool  # repeat DFS-Learn on paths that were learned, as printed
    callback: Callback | None = None
    phase: str = "search"
    learned: dict[Path, Floats] = field(default_factory=dict)  # path -> [N] values, from its elimination's samples
    trace: list[Event] = field(default_factory=list)
    eliminations: int = 0  # in the current call of `dfs_learn` from outside

    def note(self, event: Event) -> None:
        """Writes an event down and tells whoever listens."""
        self.trace.append(event)
        if self.callback is not None:
            self.callback(Progress(event, self.engine.ledger.total))


def learn_from(search: Search, path: Path, numbers: SearchConstants) -> None:
    """Calls DFS-Learn at `path` from outside: a new search with its own share of delta."""
    search.eliminations = 0
    _dfs_learn(search, path, numbers)


def _dfs_learn(search: Search, path: Path, numbers: SearchConstants) -> None:
    """DFS-Learn(p, F, epsilon, delta); recursion passes delta on unchanged."""
    n_actions = search.constants.n_actions
    values = [_child_value(search, (*path, a), numbers) for a in range(n_actions)]
    _td_elim(search, path, numbers, values)


def _child_value(search: Search, child: Path, numbers: SearchConstants) -> Floats | None:
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
    eps_test = search.constants.eps_test(level)
    moments = search.engine.observe(child, numbers.n_test, phase=search.phase, purpose="consensus")
    verdict = consensus(moments, search.space.alive(level), eps_test=eps_test)
    size = search.space.log_size
    search.note(
        Event(
            "consensus",
            search.phase,
            child,
            "agree" if verdict.agree else "disagree",
            verdict.spread,
            eps_test,
            numbers.n_test,
            size,
            size,
        )
    )
    if verdict.agree:
        return verdict.v_hat
    _dfs_learn(search, child, numbers)
    return search.learned[child]


def _td_elim(search: Search, path: Path, numbers: SearchConstants, values: list[Floats | None]) -> None:
    """TD-Elim(p, F, phi, delta), and the check that it is not called more often than M states a level allow."""
    search.eliminations += 1
    if search.eliminations > search.constants.max_eliminations:
        raise BrokenPromise(
            f"one search needed more than M H = {search.constants.max_eliminations} eliminations, the last at path {path}. "
            f"Either there are more than n_states = {search.constants.n_states} latent states at a level, or an "
            f"assumption is false; {chance(search)}"
        )
    moments = search.engine.step(path, numbers.n_train, phase=search.phase, purpose="elimination")
    known = [v for v in values if v is not None]
    risk = td_risk(len(path), moments, known or None)
    done = search.space.eliminate(risk, numbers.slack)
    search.learned[path] = moments.v_mean
    search.note(
        Event(
            "elimination",
            search.phase,
            path,
            "dropped" if done.log_size_after < done.log_size_before else "none dropped",
            done.least,
            done.cutoff,
            numbers.n_train,
            done.log_size_before,
            done.log_size_after,
        )
    )


def chance(search: Search) -> str:
    """Returns the sentence that every broken promise ends with."""
    return f"with all assumptions true this happens with probability at most {search.constants.delta:g}."
