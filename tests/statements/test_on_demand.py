"""The guarantee for Explore-on-Demand and its lemmas: the fast version holds, and each check can go red."""

import dataclasses
import math

import numpy as np
import pytest
from work import panels

from richobs.core.policies import Greedy
from richobs_lab.lsvee import demand as printed
from richobs_lab.paper.rigs import watched
from richobs_lab.paper.rigs.corners import cliff, gap, staircase
from richobs_lab.paper.statements import on_demand as statement


def verdict(fast, beginning, *again):
    """Whether the check that begins so holds, with pieces of the kinds in `again` measured again."""
    work, results = fast
    results = [statement.measure(p) if p["kind"] in again else r for p, r in zip(work, results, strict=True)]
    (check,) = (c for c in statement.conclude(work, results).checks if c.what.startswith(beginning))
    return check.holds


def test_every_check_holds(fast):
    conclusion = statement.conclude(*fast)
    assert [c for c in conclusion.checks if not c.holds] == []
    assert len({c.what for c in conclusion.checks}) == len(conclusion.checks) == 21
    assert conclusion.verdict == "holds as read"  # the progress lemma, given an accurate estimate
    (risk,) = (c for c in conclusion.checks if c.what.startswith("Policy risk"))
    assert 0.5 < risk.tightness < 0.952  # not 1/1.05, which is where the bound exceeds 1
    assert all(len(row) == len(conclusion.columns) for row in conclusion.rows)
    assert panels(statement, *fast) == 4


class TestByHand:
    def test_the_chance_of_visiting_a_state(self):
        """Off the cliff with probability 0.2; the chain is left aside."""
        problem = cliff(0.2, [0.0, 0.0, 0.0], worth=1.0)
        policy = Greedy(problem.functions.member(0))
        below = [np.array([False]), np.array([False, True]), np.array([False, True])]
        assert watched.chance_of_visiting(problem.process, policy, below) == pytest.approx(0.2)
        root = [np.array([True]), *below[1:]]
        assert watched.chance_of_visiting(problem.process, policy, root) == 1

    def test_paths_through_a_state(self):
        """Action 2 leads off the cliff."""
        process = cliff(0.2, [0.0, 0.0], worth=1.0).process
        below = [np.array([False]), np.array([False, True])]
        assert watched.some_path_visits(process, np.array([[0, 1], [2, 0]]), below)
        assert not watched.some_path_visits(process, np.array([[0, 2], [1, 2]]), below)

    def test_what_the_cliff_costs(self):
        """0.01 at each of three levels, or 0.01 at the root and all the rest below the cliff."""
        problem = cliff(0.2, [0.01] * 3, worth=0.97)
        assert problem.optimal_value == pytest.approx(1)
        policy = Greedy(problem.functions.member(0))
        assert problem.process.value(policy) == pytest.approx(0.8 * 0.97)

    def test_the_staircase(self):
        problem = staircase(horizon=3, n_states=2, n_actions=3)
        assert problem.optimal_value == pytest.approx(0.75)
        values = [problem.process.value(Greedy(problem.functions.member(i))) for i in range(4)]
        assert values == pytest.approx([0.375, 0.375, 0.375, 0.75])
        assert problem.process.reactivity_conflict() is None

    def test_draws_without_hits(self):
        """Of 6 episodes 3 hit; the first 2 all miss in C(4, 3) of C(6, 3) orders."""
        ratio = statement._log_choose(4, np.array([3])) - statement._log_choose(6, np.array([3]))
        assert math.exp(ratio[0]) == pytest.approx(0.2)
        assert statement._binomial(3, 0.25) == pytest.approx([27 / 64, 27 / 64, 9 / 64, 1 / 64])

    def test_the_bandit_of_the_test(self):
        problem = gap(0.3)
        assert problem.process.value(Greedy(problem.functions.member(0))) == pytest.approx(0.45)


def changed(monkeypatch, **changes):
    """Makes runs use other constants than the paper's."""
    true = watched.constants_for
    for module in (watched, statement):
        monkeypatch.setattr(module, "constants_for", lambda *given: dataclasses.replace(true(*given), **changes))


class TestEveryCheckCanFail:
    """Checks that no mutant of the code turns red (src/richobs_lab/paper/kills.json names those that one does)."""

    def test_too_few_rollouts(self, fast, monkeypatch):
        changed(monkeypatch, n_1=8, n_2=8)
        assert not verdict(fast, "Both, as probabilities", "test")
        assert not verdict(fast, "Rounds are as printed", "test")
        assert not verdict(fast, "The margin", "slack")

    def test_a_test_that_is_too_strict(self, fast, monkeypatch):
        changed(monkeypatch, eps_demand=0.05 * statement.EPSILON)
        assert not verdict(fast, "Rounds are as printed", "run")
        assert not verdict(fast, "The theorem: ends", "run")

    def test_calling_bad_states_learned(self, fast, monkeypatch):
        monkeypatch.setattr(watched, "learned_tolerance", lambda constants, level: 1.0)
        assert not verdict(fast, "Policy risk", "risk")
        assert not verdict(fast, "Progress, as the union bound needs it", "run")

    def test_calling_every_state_one_where_td_elim_ran(self, fast, monkeypatch):
        """Deliberate violation: no policy leaves L, so that those which lose more than epsilon/8 break the bound."""
        assert verdict(fast, "Section 3.1", "called")
        for module in (watched, statement):
            monkeypatch.setattr(module, "chance_of_visiting", lambda *given: 0.0)
        assert not verdict(fast, "Section 3.1", "called")
        assert not verdict(fast, "Section 3.1", "run")

    def test_rounds_that_learn_nothing(self, fast, monkeypatch):
        monkeypatch.setattr(printed, "learn_from", lambda search, path, numbers: None)
        assert not verdict(fast, "Every failed round", "run")

    @pytest.mark.parametrize("change", [{"given_accurate": 0.03}, {"given_failure": 0.01}, {"proof": 0.0}])
    def test_the_progress_lemma_is_read_as_the_proof_uses_it(self, fast, change):
        """Given accurate estimates it must hold, within the proof's bound; given failure as well it must not."""
        work, results = fast
        other = [{**r, **change} if p["kind"] == "conditional" else r for p, r in zip(work, results, strict=True)]
        assert verdict((work, results), "Progress, given an accurate")
        assert not verdict((work, other), "Progress, given an accurate")

    def test_the_root_is_what_was_missing(self, fast, monkeypatch):
        true = statement.Demand
        monkeypatch.setattr(statement, "Demand", lambda *given, root=True, **named: true(*given, **named))
        assert not verdict(fast, "The theorem needs a learned root", "rootless")

    @pytest.mark.parametrize(("episodes", "off"), [(0, 0), ("root", 0), (1, 1)])
    def test_the_root_may_be_among_the_prefixes(self, episodes, off):
        """H = 3, M = 2, three failed rounds: n_2 eliminations more in each, with their tests, or nothing more."""
        c = watched.Printed(3, 3, 2, 1.0, 0.2, 0.1)
        more = 3 * c.n_2 * (c.on_demand.n_train + 3 * c.on_demand.n_test) if episodes == "root" else episodes
        assert watched.off_the_staircase(c.staircase() + more, c) == off
