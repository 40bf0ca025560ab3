"""OLIVE takes over from a betting search that has not ended."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import richobs
from richobs.core.errors import Rejected
from richobs.core.ledger import Ledger
from richobs.core.moments import Steps
from richobs.core.outcome import StopReason
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners import learner
from richobs.learners.betting import Betting, betting
from richobs.learners.betting.certify import SHARES
from richobs.learners.olive import OliveConstants, olive
from richobs.learners.stopping import Fallback, HandedOver


def small_olive(problem, epsilon, delta):
    """OLIVE's numbers with samples small enough to play."""
    plain = OliveConstants.of(
        horizon=problem.horizon, n_actions=problem.n_actions, n_states=2, log_size=1.0, epsilon=epsilon, delta=delta
    )
    return dataclasses.replace(plain, n_est=2_000, n_eval=2_000, n=8_000, phi=0.05)


class TestTakingOver:
    def run(self, after):
        """The problem, the outcome, and what the search told of handing over."""
        problem, told = richobs.make("lock/2,seed=1"), []
        engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger())
        constants = small_olive(problem, 0.1, SHARES["reserve"] * 0.05)
        fallback = Fallback("OLIVE", lambda: after, lambda: olive(engine, problem.functions, constants))
        outcome = betting(
            engine, problem.functions, epsilon=0.1, delta=0.05, fallback=fallback, notify=lambda p: told.append(p.event)
        )
        return problem, outcome, [e for e in told if isinstance(e, HandedOver)]

    def test_it_takes_over_after_its_allowance_and_claims_with_the_reserve(self):
        problem, outcome, (event,) = self.run(after=8)
        assert event.sentence == "OLIVE takes over after 8 episodes without an end"
        assert event.said().is_trouble
        assert outcome.reason is StopReason.NEAR_OPTIMAL
        assert outcome.constants.closed_by == "fallback"
        assert outcome.epsilon == 0.1
        (claim,) = [c for c in outcome.claims if "took over" in c.kind]
        assert claim.share == pytest.approx(0.01 * 0.05)
        assert sum(c.share for c in outcome.claims) <= 0.05
        assert claim.n == 4_000  # OLIVE's own: n_est and one evaluation
        assert problem.value(outcome.policy) >= problem.optimal_value - 0.1

    def test_what_takes_over_is_planned_no_sooner_than_it_can_be_due(self):
        problem, asked = richobs.make("lock/2"), richobs.Settings(learner="olive", epsilon=0.999, delta=0.9, n_states=1)
        needed = learner("olive").plan(problem, asked).max_episodes
        engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger())
        fallback = Fallback.to("OLIVE", problem, engine, lambda: asked, lambda progress: None, 0.999)
        assert fallback.least <= learner("olive").constants(problem, asked).n_est < needed
        assert not fallback.is_due(int(fallback.least) - 1)
        assert "after" not in vars(fallback)
        assert [fallback.is_due(needed - 1), fallback.is_due(needed)] == [False, True]
        assert not Fallback("nobody", lambda: None, lambda: None).is_due(10**18)

    def test_a_search_that_ends_before_never_hands_over(self):
        _, outcome, events = self.run(after=10**9)
        assert events == []
        assert outcome.constants.closed_by in ("agreement", "one survivor", "interval")
        assert not any("took over" in c.kind for c in outcome.claims)


def test_events_of_the_learner_that_takes_over_can_be_read_in_another_process():
    told = "import sys; from richobs.learners import learner; assert 'richobs.learners.olive' not in sys.modules; "
    told += "from richobs.core.events import EVENTS; learner('betting'); assert 'olive evaluation' in EVENTS"
    subprocess.run([sys.executable, "-c", told], check=True)


class TestConstants:
    def test_no_bound_on_states_is_needed(self):
        problem = richobs.make("lock/3,seed=1")
        settings = Settings(learner="betting")
        known = Betting().fallback_settings(problem, settings)
        assert known.n_states == problem.n_states == 3
        assert known.delta == 0.01 * 0.05
        unknown = Betting().fallback_settings(dataclasses.replace(problem, n_states=None), settings)
        sizes = [problem.functions.level_size(h) for h in range(3)] + [1]
        assert unknown.n_states == max(sizes[h] * sizes[h + 1] for h in range(3))
        listed = richobs.make("frozen-lake/4,n_maps=7")
        assert Betting().fallback_settings(dataclasses.replace(listed, n_states=None), settings).n_states == 7

    def test_there_is_none_where_float64_cannot_hold_its_share(self):
        assert Betting().fallback_settings(richobs.make("lock/3"), Settings(learner="betting", delta=1e-8)) is None


class TestEarlyEnds:
    """Episodes that are over count in n, and nowhere else: their value is 0."""

    def test_steps_leave_out_what_is_over(self):
        x, next_x = np.array([0, 1, 1, 0]), np.array([5, 6, 6, 9])
        over = (np.array([False, False, False, True]), np.array([False, True, False, True]))
        steps = Steps.of(x, np.array([0, 1, 1, 0]), np.array([0.0, 0.5, 0.25, 9.0]), next_x, 2, over)
        assert steps.n == 4
        np.testing.assert_array_equal(steps.x, [0, 1])
        np.testing.assert_array_equal(steps.visits, [[1, 0], [0, 2]])
        np.testing.assert_array_equal(steps.rewards, [[0, 0], [0, 0.75]])
        np.testing.assert_array_equal(steps.next_x, [5, 6])
        np.testing.assert_array_equal(steps.moves, [1, 1])

    def test_averages_over_full_lengths_are_refused(self):
        class Ending:
            horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

            def play(self, policy, n, rng, levels=None):
                x = [np.zeros(n, dtype=np.int64)] * (levels or 2)
                actions = [policy.actions(h, x[h], rng) for h in range(len(x))]
                ended = [np.full(n, h == 1) for h in range(len(x))]
                return richobs.Episodes(x, actions, [np.zeros(n)] * len(x), ended)

        functions = richobs.Layered([richobs.classes.TableLevel(np.full((2, 1, 2), 0.5))] * 2)
        with pytest.raises(Rejected, match=r"ended an episode early.*learner='betting'"):
            richobs.learn(Ending(), functions, learner="certified")
