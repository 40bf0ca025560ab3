"""Allies: episodes of a candidate that chooses the same actions serve the claims about an earlier one [B3]."""

from typing import Any

import numpy as np
import pytest

import richobs
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.events import Callback, Event, Progress, nobody
from richobs.core.ledger import Ledger
from richobs.core.process import Rewards, TabularProcess
from richobs.engines import StreamEngine
from richobs.learners.betting import Tuning
from richobs.learners.betting import search as betting_search
from richobs.learners.betting.candidate import Candidate, Followed, same_actions
from richobs.learners.betting.certify import Closed, doubted
from richobs.learners.betting.events import AverageRefuted, BatchPlayed, ClaimClosed
from richobs.learners.betting.search import BettingSearch, _ally, _play, _replayed, _tested, run
from richobs.learners.betting.values import Ranges
from richobs.learners.stopping import ClaimDoubted
from richobs.worlds.simulator import table_problem

TABLES = [[0.6, 0.2], [0.7, 0.3], [0.2, 0.6], [0.65, 0.1]]  # of one observation; the first is true


def coin_search(notify: Callback = nobody) -> BettingSearch:
    rewards = (Rewards.bernoulli(np.array(TABLES[0])[None, None]),)
    process = TabularProcess(start=np.ones(1), transitions=(), emissions=(np.ones((1, 1)),), rewards=rewards)
    problem = table_problem(process, [np.array(TABLES)[:, None]], (0,))
    engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(None))
    return BettingSearch(engine, problem.functions, 0.2, 0.05, 0, notify, Tuning())


def followed_by(search: BettingSearch, member: int, n: int, mean: float = 0.6) -> Candidate:
    """Returns a candidate whose accounts hold n episodes with a mean return."""
    candidate = search.candidate((member,))
    search.open_accounts(candidate)
    assert candidate.accounts is not None
    action = int(np.argmax(TABLES[member]))
    trail = [Followed(np.zeros(n, dtype=np.int64), np.full(n, action), np.zeros(n))]
    candidate.accounts.add(trail, (np.arange(n) < round(mean * n)).astype(float))
    return candidate


def near_search(told: list[Event]) -> BettingSearch:
    problem = richobs.make("random/3,rewards=bernoulli,near=0.2,class_size=100,seed=2")
    engine = StreamEngine(problem.env, problem.functions, seed=2, ledger=Ledger(None))
    asked: tuple[Any, ...] = (engine, problem.functions, 0.15, 0.05, 2, lambda p: told.append(p.event), Tuning())
    return BettingSearch(*asked, with_tolerance=lambda eta: Ranges.of(problem.env, problem.functions, eta))


def test_actions_are_compared_where_the_other_policy_was_followed() -> None:
    search = coin_search()
    policies = [search.candidate((k,)).policy for k in range(3)]
    x = np.zeros(2, dtype=np.int64)
    assert same_actions(policies[1], [])
    for actions, same in (([0, 0], [True, True, False]), ([-1, 1], [False, False, True]), ([-1, -1], [True] * 3)):
        trail = [[Followed(x, np.array(actions), np.zeros(0))]]
        assert [same_actions(policy, trail) for policy in policies] == same


def test_the_ally_has_most_episodes_of_those_that_choose_alike_and_earn_enough() -> None:
    search = coin_search()
    drawn, other = search.candidate((1,)), search.candidate((2,))
    assert _ally(search, drawn) is None  # nobody has accounts
    few = followed_by(search, 0, 20)
    assert _ally(search, drawn) is few
    assert _ally(search, other) is None  # it takes the other action
    assert _ally(search, few) is None  # nobody is an ally of its own
    many = followed_by(search, 3, 40)
    assert _ally(search, drawn) is many
    assert _ally(search, few) is many
    assert _ally(search, many) is None  # the others hold fewer episodes
    poor = followed_by(search, 1, 80, mean=0.4)
    assert search.upper == pytest.approx(0.7, abs=1e-5)
    assert _ally(search, few) is many  # 0.4 is more than epsilon = 0.2 below U
    assert _ally(search, poor) is None


def test_a_run_with_allies_says_which_batches_entered_which_accounts() -> None:
    told: list[Event] = []
    search = near_search(told)
    found = run(search)
    served = {c.accounts.number: c.tested for c in search.opened if c.accounts is not None}
    assert any(ally for *_, ally in search.played)
    for number, tested in served.items():
        assert tested == sum(n for _, n, own, _, ally in search.played if number in (own, ally))
    again = _replayed(search, tuple(search.ranges.eta.tolist()))
    assert again is not None
    assert [c.tested for c in again.opened] == list(served.values())  # the curve rests on the same accounts
    (closing,) = (event for event in told if isinstance(event, ClaimClosed))
    assert closing.drawn == search.candidate(found.member).number == 2
    assert f"it is the policy of candidate {closing.drawn}" in closing.said().sentence


@pytest.mark.parametrize(("spent", "goes_on"), [(40, True), (20, False)])
def test_where_the_function_that_was_played_errs_the_search_goes_on_with_others(spent: int, goes_on: bool) -> None:
    """The claim is about an ally that does not err. It waits until as many episodes again are spent, then it is wider."""
    told: list[Event] = []
    search = coin_search(lambda progress: told.append(progress.event))
    ally, played = followed_by(search, 1, 40), followed_by(search, 0, 20)
    assert played.accounts is not None
    played.accounts.errors[0] = 8.0, 20, 4.0  # f is 0.4 too small on average
    claim = Closed(ally.member, "interval", 0.2, ally.accounts)
    search.current, search.ally, search.claimed = played, ally, ally.member
    search.engine.ledger.charge("betting", "play", (), 40)
    ally.claimable = spent
    assert doubted(search, ally, claim) is None
    found = doubted(search, ally, claim, played)
    assert found is not None
    assert found.is_of_judge
    tested = _tested(search, claim)
    if goes_on:
        assert (tested, search.claimed, search.waits_for) == (None, None, found)
        assert isinstance(told[-1], ClaimDoubted)
    else:
        assert tested is not None
        assert (tested.by, tested.doubt) == ("doubted", found.words)
    assert search.current is played  # nothing was played for it
    assert search.batches == 0


def test_once_the_ally_is_played_it_is_its_own_judge() -> None:
    """The ally has too few episodes, and the function that was played errs."""
    told: list[Event] = []
    search = coin_search(lambda progress: told.append(progress.event))
    ally, played = followed_by(search, 1, 12), followed_by(search, 0, 20)
    assert played.accounts is not None
    played.accounts.errors[0] = 8.0, 20, 4.0
    search.current, search.ally = played, ally
    claim = Closed(ally.member, "interval", 0.2, ally.accounts)
    assert _tested(search, claim) == claim._replace(accounts=ally.accounts)
    assert (search.current, ally.tested) == (ally, 16)
    kinds = [type(event) for event in told]
    assert kinds.index(ClaimDoubted) < kinds.index(BatchPlayed) < kinds.index(ClaimClosed)  # told once it is made


def test_a_claim_that_no_longer_closes_has_all_its_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    search = coin_search()
    asked: list[int] = []

    def closes(search: BettingSearch, candidate: Candidate) -> Closed | None:
        search.claimed = candidate.member
        return Closed(candidate.member, "interval", 0.2, candidate.accounts) if search.batches in (1, 3) else None

    def waits(search: BettingSearch, claim: Closed) -> Closed | None:
        candidate = search.candidate(claim.member)
        asked.append(candidate.claimable)
        candidate.claimable = 40
        return claim if len(asked) == 2 else None

    other = search.candidate((2,))  # its claim waited before, as an ally's, and it is played no more
    other.claimable = 40
    monkeypatch.setattr(betting_search, "_choose", lambda search, _: search.candidate((0,)))
    monkeypatch.setattr(betting_search, "closed", closes)
    monkeypatch.setattr(betting_search, "_tested", waits)
    assert run(search).member == (0,)
    assert asked == [0, 0]
    assert other.claimable == 0


def test_whoever_listens_hears_what_the_policy_earns_that_is_shown() -> None:
    """Not what the best one does, where another policy is claimed."""
    told: list[Progress] = []
    search = coin_search(told.append)
    best, claimed = followed_by(search, 0, 40), followed_by(search, 2, 40)
    assert best.accounts is not None
    best.accounts.lower = 0.4
    event = BatchPlayed(phase="betting", refuted=0, earned=0.0, promised=0.0)
    for member, W, shown in ((None, 0.4, best), (claimed.member, 0.0, claimed), ((3,), 0.0, search.candidate((3,)))):
        search.claimed = member
        search.tell(event)
        assert told[-1].policy is not None
        policy = told[-1].policy()
        assert isinstance(policy, LearnedPolicy)
        assert (policy.member, told[-1].lower) == (shown.member, W)


def test_averages_refute_an_ally_too() -> None:
    told: list[Event] = []
    search = coin_search(lambda progress: told.append(progress.event))
    ally, played = followed_by(search, 3, 40), search.candidate((0,))
    assert ally.accounts is not None
    ally.accounts.average_wealth[0] = 50.0
    search.current, search.ally = played, ally
    _play(search, played)
    assert played.member in search.survivors
    assert ally.member not in search.survivors
    (refuted,) = (event for event in told if isinstance(event, AverageRefuted))
    assert refuted.drawn == ally.number


def test_a_function_that_is_refuted_is_not_asked() -> None:
    search = coin_search()
    ally, played = followed_by(search, 1, 40), followed_by(search, 0, 20)
    assert played.accounts is not None
    played.accounts.errors[0] = 8.0, 20, 4.0
    _play(search, played)  # tells functions apart
    search.current, search.ally = played, ally
    search.survivors.kill(played.member, 0)
    claim = Closed(ally.member, "interval", 0.2, ally.accounts)
    assert _tested(search, claim) == claim._replace(accounts=ally.accounts)
