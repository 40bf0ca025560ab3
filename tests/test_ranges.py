"""Rewards in their own units: ranges of y, early ends, losses, and claims that scale with the rewards."""

import dataclasses

import numpy as np
import pytest

import richobs
from richobs.classes import Constants, Layered, Listed, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.policies import greedy_actions
from richobs.learners.betting.candidate import followed
from richobs.learners.betting.values import Ranges
from signed import SignedProcess


def class_around(process: SignedProcess, rng: np.random.Generator, size: int, is_product: bool):
    """Q* at place 0 among perturbed and permuted copies, in the units of the process."""
    width = process.reward_range[1] - process.reward_range[0]
    levels = []
    for q in process.q:
        tables = np.repeat(q[None], size, axis=0)
        for i in range(1, size):
            if rng.random() < 0.5:
                tables[i] += rng.normal(0, 0.1 * width / process.horizon, q.shape)
            else:
                tables[i] = q[rng.permutation(len(q))][:, rng.permutation(q.shape[1])]
        levels.append(TableLevel(tables, value_range=(float(tables.min()), float(tables.max()))))
    return (Layered if is_product else Listed)(levels)


class TestRangesOf:
    def test_plain_rewards_have_the_unit_range(self):
        problem = richobs.make("lock/5")
        ranges = Ranges.of(problem.env, problem.functions)
        plain = Ranges.plain(problem.functions)
        for field in dataclasses.fields(Ranges):
            np.testing.assert_array_equal(getattr(ranges, field.name), getattr(plain, field.name))
        assert (ranges.low.tolist(), ranges.width.tolist(), ranges.rest.tolist()) == ([0] * 5, [1] * 5, [0] * 5)
        assert ranges.span == ranges.scale == 1.0

    def test_a_rare_large_loss_does_not_widen_the_values(self):
        """Steps pay -1, the cliff -100; values lie in [-13, 0], so y lies in [-113, 0], not in [-3000, 0]."""

        class Cliff:
            horizon, n_actions, reward_range = 30, 1, (-3000.0, 0.0)
            declared = richobs.Declared(step_range=(-100.0, -1.0))

        levels = [TableLevel(np.full((1, 1, 1), -float(min(13, 30 - h))), value_range=(-13.0, 0.0)) for h in range(30)]
        ranges = Ranges.of(Cliff(), Layered(levels))
        assert ranges.low[0] == -113.0
        assert ranges.low[29] == -100.0
        assert ranges.width[0] == 113.0  # up to 0: an episode may end
        assert ranges.rest.tolist() == [-100.0 * (30 - h) for h in range(30)]
        assert ranges.jump == 3000.0 - 13.0
        assert ranges.slack == pytest.approx(1e-6 * 3000 + 30 * 2e-7 * 3000)

    def test_an_end_pays_nothing_more_where_all_values_are_positive(self):
        class Ending:
            horizon, n_actions, reward_range = 2, 1, (-2.0, 2.0)
            declared = richobs.Declared(step_range=(-1.0, 1.0))

        ranges = Ranges.of(Ending(), Layered([TableLevel(np.full((1, 1, 1), 0.5))] * 2))
        assert ranges.low.tolist() == [-1.0, -1.0]  # not -0.5: the episode may end with a loss

    def test_totals_bound_y_where_they_are_narrower_than_steps(self):
        class Narrow:
            horizon, n_actions, reward_range = 2, 1, (0.0, 1.0)
            declared = richobs.Declared(step_range=(0.0, 1.0))

        ranges = Ranges.of(Narrow(), Layered([TableLevel(np.ones((1, 1, 1)))] * 2))
        assert (ranges.low + ranges.width).tolist() == [1.0, 1.0]

    def test_values_on_the_scale_of_bets(self):
        ranges = Ranges(-3.0, 1.0, np.array([-2.0]), np.array([4.0]), np.array([-3.0]), 5.0, 1e-6)
        np.testing.assert_array_equal(ranges.unit(0, np.array([-2.0, 0.0, 2.0, 9.0, -9.0])), [0, 0.5, 1, 1, 0])
        np.testing.assert_array_equal(ranges.unit_totals(np.array([-3.0, -1.0, 1.0])), [0, 0.5, 1])
        totals = np.array([[1.0, -3.0], [1.1, 0.0], [0.0, -3.1], [1.0 + 1e-7, -3.0 - 1e-7]])
        assert ranges.impossible(totals).tolist() == [False, True, True, False]
        assert [ranges.impossible(row[None]).tolist() for row in totals] == [[False], [True], [True], [False]]

    def test_ties_between_actions_count_in_what_may_be_hidden(self):
        """The last of 200,000 actions is better by 1e-8, which is less than TIE times their distance: 0 is played."""
        K = 200_000
        best = np.zeros((1, K))
        best[0, -1] = 1e-8
        functions = Layered([Constants(best)])

        class Arms:
            horizon, n_actions, reward_range = 1, K, (0.0, 1e-8)

            def play(self, policy, n, rng, levels=None):
                x = np.zeros((n, 1))
                a = policy.actions(0, x, rng)
                return Episodes((x,), (a,), (np.where(a == K - 1, 1e-8, 0.0),))

        ranges = Ranges.of(Arms(), functions)
        assert ranges.ties == pytest.approx(1e-13 * (K - 1))
        assert ranges.hidden == ranges.rounded + ranges.ties
        with pytest.raises(InvalidInput, match="actions so near that they count as equal, may hide a loss of 2e-08"):
            richobs.learn(Arms(), functions, epsilon=2e-9)
        signed = Layered([TableLevel(np.zeros((1, 1, 3)), value_range=(-8.0, 1.0))] * 2)
        assert Ranges.plain(signed).ties == pytest.approx(2 * 8 * 2e-13)


class TestPlaying:
    def test_what_follows_another_action_counts_as_the_least_that_can_be_earned(self):
        levels = [TableLevel(np.array([[[0.0, -1.0]]]), value_range=(-2.0, 0.0))] * 2
        functions = Layered(levels)
        policy = richobs.LearnedPolicy(functions, (0, 0))
        ranges = Ranges(-4.0, 0.0, np.full(2, -2.0), np.full(2, 2.0), np.array([-4.0, -2.0]), 4.0, 1e-6)
        zero = np.zeros(3, dtype=np.int64)
        played = Episodes(
            [zero, zero], [np.array([0, 0, 1]), np.array([0, 1, 0])], [np.array([-1.0, -1.0, -0.5]), np.full(3, -0.25)]
        )
        (first, _), earned = followed(played, policy, ranges)
        np.testing.assert_array_equal(earned, [-1.25, -1.0 - 2.0, -4.0])
        np.testing.assert_array_equal(first.errors, [-0.5, -0.5])  # y = -1 + 0, f = 0, in a range of width 2


class TestEnds:
    def test_parts_without_ends_do_not_make_those_of_others_disappear(self):
        one = [np.zeros(1, dtype=np.int64)] * 2
        with_ends = Episodes(one, one, [np.zeros(1)] * 2, [np.array([False]), np.array([True])])
        without = Episodes(one, one, [np.zeros(1)] * 2)
        for parts in ([with_ends, without], [without, with_ends]):
            joined = Episodes.concatenate(parts)
            assert [e.tolist() for e in joined.ended] == [[p is with_ends and h == 1 for p in parts] for h in range(2)]
        assert Episodes.concatenate([without, without]).ended == ()

    def test_an_environment_that_tells_of_ends_only_where_there_are_some_is_learned_rightly(self):
        """Observation 0 after the end is padding; as a real one it would refute Q*."""

        class Sometimes:
            horizon, n_actions, reward_range, declared = 2, 2, (0.0, 1.0), richobs.Declared(at_once=4)

            def play(self, policy, n, rng, levels=None):
                zero = np.zeros(n, dtype=np.int64)
                first, second = policy.actions(0, zero, rng), policy.actions(1, zero, rng)
                over = first == 1  # action 1 ends the episode and pays 0.5; action 0 goes on to 0.25
                rewards = [np.where(over, 0.5, 0.0), np.where(over, 0.0, 0.25)]
                ended = [np.zeros(n, dtype=bool), over] if over.any() else ()
                return Episodes([zero, zero], [first, second], rewards, ended)

        first = np.array([[[0.25, 0.5]], [[0.9, 0.4]], [[0.1, 0.2]]])
        q = [first, np.array([[[0.25, 0.25]], [[0.9, 0.9]], [[0.1, 0.1]]])]
        for seed in range(4):
            outcome = richobs.learn(Sometimes(), Layered([TableLevel(t) for t in q]), delta=0.01, seed=seed)
            assert outcome.policy.actions(0, np.zeros(1, dtype=np.int64)).tolist() == [1]

    def test_ties_of_large_values_are_as_coarse_as_the_values(self):
        large = np.array([[1e6, 1e6 + 1e-8], [1e6, 1e6 + 1e-3], [0.5, 0.5 + 1e-10]])
        assert greedy_actions(large).tolist() == [0, 1, 1]


class TestScale:
    """A power of two scales every float exactly, so a scaled problem must give the same run."""

    @pytest.mark.parametrize("is_product", [True, False])
    def test_a_run_does_not_depend_on_the_unit(self, is_product):
        rng = np.random.default_rng(5)
        process = SignedProcess.random(rng)
        state = np.random.default_rng(8).bit_generator.state
        outcomes = []
        for factor in (1.0, 1024.0, 1 / 64):
            rng.bit_generator.state = state
            scaled = dataclasses.replace(process, pays=process.pays * factor)
            functions = class_around(process, rng, 6, is_product)
            ranges = [tuple(v * factor for v in level.value_range) for level in functions.levels]
            levels = [
                TableLevel(c.tables * factor, value_range=r) for c, r in zip(functions.levels, ranges, strict=True)
            ]
            epsilon = 0.1 * factor * (process.reward_range[1] - process.reward_range[0])
            asked = {"learner": "betting", "epsilon": epsilon, "max_episodes": 3000}
            outcomes.append((factor, richobs.learn(scaled, type(functions)(levels), **asked)))
        (_, first), *others = outcomes
        for factor, other in others:
            assert other.episodes == first.episodes
            assert other.policy.member == first.policy.member
            assert other.upper == pytest.approx(first.upper * factor, rel=1e-12)
            assert other.lower == pytest.approx(first.lower * factor, rel=1e-12)


class TestSoundness:
    @pytest.mark.parametrize("is_product", [True, False])
    def test_claims_are_true_where_rewards_have_any_sign_and_episodes_end_early(self, is_product):
        wrong, closed, runs = 0, 0, 30
        for seed in range(runs):
            rng = np.random.default_rng(1000 + seed)
            process = SignedProcess.random(rng)
            width = process.reward_range[1] - process.reward_range[0]
            functions = class_around(process, rng, 6, is_product)
            try:
                outcome = richobs.learn(
                    process, functions, learner="betting", epsilon=0.2 * width, delta=0.5, seed=seed, max_episodes=300
                )
            except BrokenPromise:
                wrong += 1
                continue
            value, best, tiny = process.value(outcome.policy), process.optimum, 1e-9 * width
            true = (
                best <= outcome.upper + tiny
                and value >= outcome.lower - tiny
                and best - value <= outcome.epsilon + tiny
            )
            wrong += not true
            closed += outcome.epsilon <= 0.2 * width
        assert wrong <= 5  # delta is 0.5; a search that is right loses far less, and most mistakes in ranges lose more
        assert closed >= runs // 2


class TestChecks:
    def test_epsilon_is_in_the_units_of_the_rewards(self):
        process = SignedProcess.random(np.random.default_rng(0))
        functions = class_around(process, np.random.default_rng(1), 2, True)
        width = process.reward_range[1] - process.reward_range[0]
        with pytest.raises(InvalidInput, match="units of the rewards"):
            richobs.learn(process, functions, epsilon=2 * width)
