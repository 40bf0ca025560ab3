"""Which policy is better: comparisons, races, logs, gates, and vector environments."""

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import sqlite3
import subprocess
import sys
import types

import gymnasium
import numpy as np
import pytest

import richobs
from own import Arms as Coins
from richobs.cli import main
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidFile, InvalidInput, Overspent, RewardOutOfRange, StoreError
from richobs.judging.compare import Comparison, compare, compare_returns, rounds
from richobs.judging.logs import as_log, read_returns
from richobs.judging.players import player
from richobs.judging.record import Question
from richobs.judging.select import BETS, Race, select
from richobs.judging.value import PolicyReport, Verdict, certify_policy
from richobs.sb3 import SelectCallback, checkpoints
from richobs.stats.bets import death, mixed
from richobs.stats.sequences import ConfidenceSequence, WeightedSequence, shifts_for
from richobs.stats.shares import Share, Supposed


def arm(k):
    return richobs.OpenLoop((k,))


class Steps(gymnasium.Env):
    """Pays 1 per step for one to eight steps; the seed decides how many. Action 1 pays 2 in the first step."""

    observation_space = gymnasium.spaces.Box(0, 8, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.length = int(self.np_random.integers(1, 9))
        return np.array([self.left], dtype=np.float32), {}

    def step(self, action):
        reward = 1.0 + float(action == 1 and self.left == self.length)
        self.left -= 1
        return np.array([self.left], dtype=np.float32), reward, self.left == 0, False, {}


class Endless(Steps):
    """Never ends."""

    def step(self, action):
        return np.zeros(1, dtype=np.float32), 0.0, False, False, {}


class Mixed:
    """Takes action 1 with a given probability; knows its law."""

    def __init__(self, chance):
        self.chance = chance

    def probabilities(self, level, x):
        p = np.full(len(x), self.chance)
        return np.stack([1 - p, p], axis=1)

    def actions(self, level, x, rng):
        return (rng.random(len(x)) < self.chance).astype(np.int64)


class Predicts:
    """A model that always takes one action."""

    def __init__(self, action):
        self.action = action

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.full(len(episode_start), self.action), None


class Plain(Coins):
    """Coins that do not say which they are."""

    def __init__(self):
        super().__init__(0.5)
        del self.declared


class Pays(Coins):
    """Declares what one step pays."""

    def __init__(self, least, most):
        super().__init__(0.5, 0.5)
        self.declared = richobs.Declared(step_range=(least, most))


class Returns:
    """A policy, or something like it, whose methods return what was given."""

    def __init__(self, **given):
        for name, value in given.items():
            setattr(self, name, lambda *arguments, value=value: value)


class Wrapped(gymnasium.Wrapper):
    """A wrapper that does not record its arguments."""


LAKE, LAKE_ON_ICE = (gymnasium.make("FrozenLake-v1", is_slippery=slippery) for slippery in (False, True))
IDLE = gymnasium.wrappers.TransformReward(LAKE, lambda r: r)
SHORT = richobs.LearnedPolicy.open_loop((0, 0), 4)


class TestCompare:
    def test_the_better_one_is_found(self):
        report = compare(Coins(0.9, 0.5), arm(0), arm(1), names=("new", "old"))
        assert report.verdict is Verdict.A_BETTER
        assert report.is_certified
        assert 0 < report.lower <= 0.4 <= report.upper
        assert report.paired
        assert report.episodes == 2 * report.pairs < 200
        assert report.claim.startswith("With probability at least 0.95 V(new) - V(old) is between 0.")
        assert report.claim.endswith(
            " per episode in expectation, so new earns more than old. This holds provided that episodes are "
            "independent from round to round and every total lies in [0, 1]."
        )
        assert report.claim.count(". ") == 1
        swapped = compare(Coins(0.9, 0.5), arm(1), arm(0))
        assert (swapped.verdict, swapped.is_certified) == (Verdict.B_BETTER, False)
        assert swapped.upper == pytest.approx(-report.lower)

    def test_pairing_saves_episodes(self):
        """With one uniform number for both, the difference is never negative."""
        both, alone = (compare(Coins(0.95, 0.9), arm(0), arm(1), paired=p) for p in (True, False))
        assert both.verdict is Verdict.A_BETTER
        assert (both.paired, alone.paired) == (True, False)
        assert both.episodes < 0.7 * alone.episodes

    def test_equal_policies_are_equal_within_epsilon_and_nobody_wins(self):
        report = compare(Coins(0.5, 0.5), arm(0), arm(1), epsilon=0.1, paired=False)
        assert report.verdict is Verdict.NO_DIFFERENCE
        assert -0.1 <= report.lower <= 0 <= report.upper <= 0.1
        assert "in expectation, so a and b differ by at most 0.1. This holds" in report.claim
        tied = compare(Coins(0.5, 0.5), arm(0), arm(1), max_episodes=400)
        assert (tied.verdict, tied.episodes, tied.mean) == (Verdict.EPISODES_SPENT, 400, 0.0)
        assert "in expectation, which does not decide whether a or b earns more. This holds" in tied.claim

    @pytest.mark.parametrize(
        ("lower", "upper", "epsilon", "verdict"),
        [
            (0.01, 0.3, 0.1, Verdict.A_BETTER),
            (-0.3, -0.01, 0.1, Verdict.B_BETTER),
            (-0.1, 0.1, 0.1, Verdict.NO_DIFFERENCE),
            (-0.2, 0.05, 0.1, Verdict.OPEN),
            (-0.05, 0.2, 0.1, Verdict.OPEN),
            (0.0, 0.3, 0.1, Verdict.OPEN),
            (-0.3, 0.0, None, Verdict.OPEN),
        ],
    )
    def test_verdicts(self, lower, upper, epsilon, verdict):
        report = Comparison(lower, upper, 0.0, 10, 0.05, Verdict.OPEN, (0.0, 1.0), epsilon=epsilon)
        assert report.decided(20) is verdict
        assert (report.decided(10) is Verdict.EPISODES_SPENT) == (verdict is Verdict.OPEN)

    def test_the_default_limit_with_epsilon_surely_decides(self):
        """Differences of 1 and -1 in turn are the worst case."""
        ones = np.tile([1.0, 0.0], 50_000)
        report = compare_returns(ones, 1 - ones, 0, 1, paired=True, epsilon=0.2)
        limit = compare(Coins(0.5, 0.5), arm(0), arm(1), epsilon=0.2, max_episodes=None, paired=False).episodes
        assert report.verdict is Verdict.NO_DIFFERENCE
        assert limit < 2 * 1178 + 200  # width 0.1 of [-1, 1]

    def test_both_sides_spend_half_of_delta(self):
        report = compare(Coins(0.9, 0.5), arm(0), arm(1), delta=0.1)
        assert [(c.kind, c.share, c.n) for c in report.claims] == [
            ("V(a) - V(b) is at least", 0.05, report.episodes),
            ("V(a) - V(b) is at most", 0.05, report.episodes),
        ]

    def test_the_first_round_by_which_a_win_is_certain_by_hand(self):
        """a always wins: the bets are 1/(1 + 2s), and their average wealth must reach 40."""
        report = compare_returns(np.ones(99), np.zeros(99), 0, 1, paired=True)
        shifts = 2.0 ** np.arange(-5, 9)  # up to sqrt(2^20 / (8 log 40)) = 188.5
        wealth = [np.mean((1 + 1 / (1 + 2 * shifts)) ** n) for n in range(99)]
        expected = next(n for n, w in enumerate(wealth) if w >= death(Supposed(0.025)))
        assert report.pairs == expected == 8
        assert report.verdict is Verdict.A_BETTER

    def test_numbers_that_are_appended_do_not_change_earlier_bets(self):
        """Else whoever runs it again and again as a file grows has another account each time."""
        a, b = np.random.default_rng(0).random((2, 400))
        few, more = (compare_returns(a[:n], b[:n], 0, 1, paired=True) for n in (100, 400))
        k = len(few.looks) - 1  # the last look of the shorter one comes where it ends
        assert few.looks[:k] == more.looks[:k]
        log, longer = (logged(n, np.random.default_rng(0)) for n in (100, 400))
        few, more = (certify_policy(None, ONES, log=one, reward_range=(0, 1)) for one in (log, longer))
        assert few.looks[:3] == more.looks[:3]

    def test_units_are_the_environments_own(self):
        a, b = np.random.default_rng(0).random((2, 60))
        unit = compare_returns(a, b, 0, 1, paired=False)
        other = compare_returns(300 * a - 100, 300 * b - 100, -100, 200, paired=False)
        assert (other.lower, other.upper) == pytest.approx((300 * unit.lower, 300 * unit.upper), abs=1e-6)
        assert "between -" in other.claim

    @pytest.mark.parametrize(
        ("a", "b", "options", "words"),
        [
            ([], [1], {"paired": False}, "empty or no list"),
            ([1, 0], [1], {"paired": True}, "there are 2 and 1"),
            ([1], [2], {"paired": True}, "sum to 2; the declared range"),
            ([1], [math.nan], {"paired": True}, "sum to nan"),
            ([1], [1], {"paired": True, "names": ("x", "x")}, "2 policies need as many different names"),
            ([1], [1], {"paired": True, "epsilon": -1}, "must be above 0"),
            ([1], [1], {"paired": True, "delta": 2}, "delta must lie between"),
            ([[1]], [1], {"paired": False}, "empty or no list"),
        ],
    )
    def test_returns_that_cannot_be_compared_are_refused(self, a, b, options, words):
        with pytest.raises((InvalidInput, RewardOutOfRange), match=words):
            compare_returns(a, b, 0, 1, **options)

    @pytest.mark.parametrize(
        ("env", "b", "options", "words"),
        [
            (richobs.make("lock/3"), SHORT, {}, "for 2 levels and 4 actions; the environment has 3 and 4"),
            (Coins(0.5), 3, {}, "a int arrived"),
            ("lock/3", arm(1), {"reward_range": (0, 1)}, "a str arrived"),
            (Coins(0.5, 0.5), arm(1), {"max_episodes": 1}, "max_episodes is 1, and one round takes 2 episodes"),
            (Endless(), arm(1), {"reward_range": (0, 1)}, r"has not ended after 50 steps.*TimeLimit"),
        ],
    )
    def test_what_cannot_be_played_is_refused(self, env, b, options, words, monkeypatch):
        monkeypatch.setattr("richobs.judging.players.MOST_STEPS", 50)
        with pytest.raises(InvalidInput, match=words):
            compare(env, arm(0), b, **options)

    def test_gymnasium_gives_both_the_same_seeds(self):
        """Action 1 earns exactly 1 more with every seed: one round in eight would be enough to see the difference."""
        report = compare(Steps(), lambda x: 1, lambda x: 0, reward_range=(0, 9), max_episodes=60)
        assert report.mean == pytest.approx(1.0)
        assert report.paired

    def test_rounds_of_a_world_are_played_one_by_one(self):
        """Several episodes of one call may share random numbers across rounds, and rounds would depend on each other."""
        sizes = []

        class Spy(Coins):
            def play(self, policy, n, rng, levels=None):
                sizes.append(n)
                return super().play(policy, n, rng, levels)

        compare(Spy(0.5, 0.5), arm(0), arm(1), max_episodes=64)
        assert sizes == [1] * 64

    def test_every_round_has_a_generator_of_its_own(self):
        question = Question("compare", ("a", "b"), (0.0, 1.0), 0.05, 0, 8, 64, 0.0, paired=True)
        players = [player(Coins(0.5, 0.5), arm(k)) for k in range(2)]
        a, b = rounds(question, players, range(2), 0, 32, 0)
        assert 8 <= a.sum() <= 24
        np.testing.assert_array_equal(a, b)
        (later,) = rounds(question, players, [1], 1, 16, 16)
        np.testing.assert_array_equal(later, a[16:])

    def test_a_law_that_changes_is_noticed(self):
        a = np.repeat([0.5, 0.48], 300)
        with pytest.raises(BrokenPromise, match="Every claim needs independent episodes of one law"):
            compare_returns(a, np.full(600, 0.5), 0, 1, paired=True)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_winner_is_named_once_the_account_of_no_difference_has_reached_40(self, seed):
        """By the wealth of bets on the differences themselves, +-D/(1 + 2s), after every round."""
        rng = np.random.default_rng(seed)
        a, b = (rng.random(200) < 0.75).astype(float), (rng.random(200) < 0.5).astype(float)
        report = compare_returns(a, b, 0, 1, paired=False)
        won = _wins((a - b)[None], 0.025, 2**20)[0]
        expected = [bool(won[episodes // 2 - 1]) for episodes, _, _ in report.looks]
        assert expected == [False] * (len(report.looks) - 1) + [True]
        assert report.verdict is Verdict.A_BETTER


def _wins(d, share, limit=None):
    """Returns after which rounds it is certain that a is better, for each row of differences."""
    shifts = shifts_for(limit or d.shape[1], share, 2.0**-5)
    logs = np.log1p(d[:, :, None] / (1 + 2 * shifts)).cumsum(axis=1)
    return mixed(logs) >= math.log(death(Supposed(share)))


JUDGED = {
    "value": lambda env, **options: certify_policy(env, arm(0), max_episodes=200, **options),
    "comparison": lambda env, **options: compare(env, arm(0), arm(1), max_episodes=64, **options),
    "race": lambda env, **options: select(env, [arm(k) for k in range(4)], epsilon=0.1, **options),
}


class TestFolder:
    @pytest.fixture
    def ask(self, tmp_path):
        def call(**options):
            given = {"out": tmp_path / "j", "max_episodes": 64, **options}
            env = given.pop("env", None) or Coins(0.6, 0.5)
            return compare(env, arm(0), arm(1), **given), env

        return call

    @pytest.mark.parametrize("kind", JUDGED)
    def test_a_stopped_judgement_goes_on_to_the_same_bytes(self, kind, tmp_path):
        class Stop(Exception): ...

        def stop(report):
            if report.episodes >= 32:
                raise Stop

        judge, chances = JUDGED[kind], (0.6, 0.5, 0.9, 0.3)
        whole = judge(Coins(*chances), out=tmp_path / "whole")
        with pytest.raises(Stop):
            judge(Coins(*chances), out=tmp_path / "j", callback=stop)
        for left in (True, False):
            env = Coins(*chances)
            assert judge(env, out=tmp_path / "j") == whole == judge(Coins(*chances))
            assert (0 < env.played < whole.episodes) if left else env.played == 0
        for name in ("certificate.json", "report.html", "judgement.json"):
            assert (tmp_path / "j" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    @pytest.mark.parametrize(
        ("first", "then", "words"),
        [
            ((certify_policy, Coins(0.9, 0.1), arm(0)), (certify_policy, Coins(0.9, 0.1), arm(1)), "its policies is"),
            ((certify_policy, Coins(0.9), arm(0)), (certify_policy, Coins(0.1), arm(0)), "its environment is"),
            ((compare, Coins(0.9, 0.1), arm(0), arm(1)), (compare, Coins(0.9, 0.1), arm(1), arm(0)), "its policies is"),
            (*((certify_policy, Coins(0.9), richobs.Uniform(k)) for k in (1, 2)), "policies"),
            (*((select, Coins(0.9, 0.1), {"x": arm(k), "y": arm(1 - k)}) for k in (0, 1)), "its policies is"),
            ((certify_policy, LAKE, arm(0)), (certify_policy, LAKE_ON_ICE, arm(0)), "its environment_digest is"),
            (*[(certify_policy, Coins(0.9), arm(0))] * 2, r"its delta is 0\.05, and 0\.1 is asked now"),
        ],
    )
    def test_a_folder_of_another_policy_environment_or_question_is_refused(self, first, then, words, tmp_path):
        how = {"epsilon": 0.9, "max_episodes": 64, "reward_range": (0, 1), "out": tmp_path}
        for call, *given in (first, first):
            call(*given, **how)
        call, *given = then
        with pytest.raises(StoreError, match=words):
            call(*given, **how, delta=0.1 if first == then else 0.05)

    @pytest.mark.parametrize(
        ("call", "given", "more", "words"),
        [
            (certify_policy, (Coins(0.5), lambda x: 0), {}, r"the policy \(function\) cannot be told from another"),
            (certify_policy, (Coins(0.5), Mixed(0.0)), {}, r"the policy \(Mixed\)"),
            (certify_policy, (Coins(0.5), Predicts(0)), {}, r"the policy \(Predicts\)"),
            (compare, (Coins(0.5, 0.5), arm(0), Mixed(0.0)), {}, r"the policy \(Mixed\)"),
            *(
                (certify_policy, (env, arm(0)), {"reward_range": (0, 9)}, rf"the environment \({type(env).__name__}\)")
                for env in (Plain(), Steps(), gymnasium.vector.SyncVectorEnv([Steps] * 2), IDLE, Wrapped(LAKE))
            ),
            (select, (Coins(0.5, 0.5), [arm(0), arm(1)]), {"more": lambda report: None}, r"whoever joins"),
        ],
    )
    def test_plain_python_has_a_new_folder_each_time(self, call, given, more, words, tmp_path):
        """Its name is all that is known, and another one of this name must not get its report."""
        how = {"epsilon": 0.9, "max_episodes": 64, **more}
        call(*given, out=tmp_path / "j", **how)
        with pytest.raises(StoreError, match=words):
            call(*given, out=tmp_path / "j", **how)

    def test_a_policy_may_bring_a_digest(self, tmp_path):
        policy = Mixed(0.0)
        policy.digest = "never 1"
        first, again = (certify_policy(Coins(0.5), policy, max_episodes=40, out=tmp_path) for _ in range(2))
        assert first == again
        policy.digest = "always 1"
        with pytest.raises(StoreError, match="its policies is"):
            certify_policy(Coins(0.5), policy, max_episodes=40, out=tmp_path)

    def test_altered_draws_are_refused(self, ask, tmp_path):
        ask()
        with contextlib.closing(sqlite3.connect(tmp_path / "j" / "judgement.sqlite", isolation_level=None)) as db:
            db.execute("UPDATE rows SET text = '[9]' WHERE k = 0")
        with pytest.raises(InvalidFile, match="damaged"):
            ask()

    def test_an_error_of_the_environment_is_its_own(self, tmp_path):
        class Broken(Coins):
            def play(self, policy, n, rng, levels=None):
                raise FileNotFoundError("weights.bin")

        with pytest.raises(FileNotFoundError, match=r"weights\.bin"):
            compare(Broken(0.5, 0.5), arm(0), arm(1), out=tmp_path / "x")

    def test_pages_and_notebooks_show_claim_and_drawing(self, ask, tmp_path):
        report, _ = ask()
        text = (tmp_path / "j" / "report.html").read_text()
        assert report._repr_html_() in text
        assert text.count("<svg") == 1
        assert f"After {report.episodes} episodes the difference lies between" in text


class TestSelect:
    CHANCES = (0.3, 0.9, 0.5, 0.7)

    def race(self, *chances, **options):
        given = {"epsilon": 0.1, **options}
        return select(Coins(*chances), [arm(k) for k in range(len(chances))], **given)

    def test_the_best_is_found_and_the_others_are_dropped(self):
        report = self.race(*self.CHANCES, epsilon=0.001)
        assert report.verdict is Verdict.BEST
        assert (report.chosen, report.name) == (1, "policy 1")
        assert report.lower <= 0.9 <= report.upper
        assert [lane.state for lane in report.lanes] == ["dropped", "chosen", "dropped", "dropped"]
        assert report.lanes[0].rounds <= report.lanes[3].rounds <= report.lanes[1].rounds
        assert report.episodes == sum(lane.rounds for lane in report.lanes)
        assert report.claim.startswith(
            "With probability at least 0.95 policy 1 is within 0.001 of the best of 4 policies, and earns between 0."
        )
        assert "<svg" in report._repr_html_()

    def test_of_equals_one_is_chosen_and_nobody_dropped(self):
        report = self.race(0.5, 0.5, 0.5)
        assert report.verdict is Verdict.BEST
        assert {lane.state for lane in report.lanes} == {"left", "chosen"}
        assert report.lanes[0].rounds == report.episodes / 3

    def test_names_and_undecided(self):
        report = select(Coins(0.5, 0.52), {"x": arm(0), "y": arm(1)}, epsilon=1e-4, max_episodes=100, paired=False)
        assert (report.verdict, report.episodes, report.is_certified) == (Verdict.EPISODES_SPENT, 100, False)
        assert "the best of 2 policies is among the 2 that are left; it is not decided which of them" in report.claim

    def test_a_policy_is_dropped_when_the_average_over_its_opponents_reaches_its_limit(self):
        """Three policies, 8 rounds: 0 always wins. By hand, with money 1/2 on each opponent."""
        race = Race(0.1, 0.0, Share(0.1), is_open=False)
        race.join(3)
        race.add(np.arange(3), np.tile([1.0, 0.0, 0.0], (5, 1)))
        won = np.mean((1 + BETS) ** 5)
        assert np.exp(race.account(np.arange(3))) == pytest.approx([np.mean((1 - BETS) ** 5), *[(won + 1) / 2] * 2])
        assert race.alive.all()
        assert (won + 1) / 2 < 1 / 0.05 < np.mean((1 + BETS) ** 8) / 2
        race.add(np.arange(3), np.tile([1.0, 0.0, 0.0], (3, 1)))
        assert race.alive.tolist() == [True, False, False]

    def test_a_leader_is_chosen_when_all_others_are_known_to_be_close(self):
        """Equal totals: the wealth against a difference of epsilon grows by 1 + bet epsilon / (1 - epsilon) per round."""
        race = Race(0.2, 0.0, Share(0.1), is_open=False)
        race.join(3)
        wealth = [np.mean((1 + BETS * 0.2 / 0.8) ** n) for n in range(40)]
        needed = next(n for n, w in enumerate(wealth) if w >= 2 / 0.04)
        for n in range(1, needed + 1):
            assert race.chosen() is None
            race.add(np.arange(3), np.full((1, 3), 0.5))
            assert np.exp(race.closeness(0, np.array([1, 2]))) == pytest.approx(wealth[n])
        assert race.chosen() == 0

    def test_all_others_have_to_be_close(self):
        """Policy 2 has the same mean, and a variance by which it may be better."""
        race = Race(0.2, 0.0, Share(0.1), is_open=False)
        race.join(3)
        race.add(np.arange(3), np.stack([np.full(32, 0.5), np.full(32, 0.5), np.arange(32) % 2], axis=1))
        known = race.closeness(0, np.array([1, 2])) >= race._needed(0, np.array([1, 2]))
        assert known.tolist() == [True, False]
        assert race.chosen() is None

    def test_those_who_join_share_what_was_kept_for_them(self):
        race = Race(0.1, 0.0, Share(0.1), is_open=True)
        for size in (3, 2, 1):
            race.join(size)
        np.testing.assert_allclose(race.part, [0.5] * 3 + [0.25] * 2 + [1 / 12])
        money = np.exp(race.account(np.arange(6)))  # all wealth is 1: what is put in, nothing against oneself
        np.testing.assert_allclose(money, [0.5 + 0.25 + 1 / 12] * 5 + [0.5 + 0.25])
        needed = np.exp(race._needed(0, np.arange(1, 6)))
        shares = 0.04 * np.array([0.5, 0.5, 0.25, 0.25, 1 / 12]) * 0.5 / np.array([2, 2, 3, 3, 3])
        np.testing.assert_allclose(needed, 1 / shares, rtol=2e-6)

    def test_a_race_that_others_may_join_drops_later(self):
        """Half of the money, and half of the probability: the wealth must be four times as large."""
        for is_open, factor in ((False, 1), (True, 4)):
            race, rounds = Race(0.1, 0.0, Share(0.1), is_open=is_open), 0
            race.join(2)
            while race.alive.all():
                assert np.mean((1 + BETS) ** rounds) < factor / 0.05
                race.add(np.arange(2), np.array([[1.0, 0.0]]))
                rounds += 1
            assert np.mean((1 + BETS) ** rounds) >= factor / 0.05

    def test_each_policy_has_its_part_of_the_interval(self):
        race, x = Race(0.1, 0.0, Share(0.5), is_open=False), np.random.default_rng(0).random((50, 5))
        race.join(5)
        race.add(np.arange(5), x)
        alone = ConfidenceSequence(100, *Share(0.05 / 5).split(0.5, 0.5))
        alone.add(x[:, 2])
        assert race.interval(2, 100) == (alone.lower, alone.upper)

    def test_bounds_that_contradict_each_other_are_no_claim(self, monkeypatch):
        monkeypatch.setattr(Race, "interval", lambda race, i, limit: (0.7, 0.6))
        with pytest.raises(BrokenPromise, match=r"at least 0.7, and certainly at most 0.6. These bounds contradict"):
            select(Coins(0.9, 0.1), [arm(0), arm(1)], epsilon=0.1)

    def test_opponents_that_were_chosen_by_rounds_do_not_bet_on_these(self, monkeypatch):
        monkeypatch.setattr("richobs.judging.select.MOST_OPPONENTS", 2)
        race = Race(0.1, 0.0, Share(0.1), is_open=False)
        race.join(4)
        race.add(np.arange(4), np.tile([0.0, 1.0, 0.2, 0.9], (6, 1)))
        assert race.cohorts[0].opponents == [1, 3]
        np.testing.assert_allclose(np.exp(race.account(np.arange(4))), 1.0)
        race.add(np.arange(4), np.tile([0.0, 1.0, 0.0, 0.0], (1, 1)))
        won = 1 + BETS.mean()
        np.testing.assert_allclose(
            np.exp(race.account(np.arange(4))), [(won + 1) / 2, 1 - BETS.mean(), (won + 1) / 2, won]
        )

    def test_a_policy_that_joins_late_can_win(self):
        joined = []

        def more(report):
            if not joined and report.episodes >= 40:
                joined.append(report.episodes)
                return {"late": arm(2)}
            return None

        report = select(Coins(0.3, 0.5, 0.95), [arm(0), arm(1)], epsilon=0.05, more=more)
        assert report.name == "late"
        assert report.lanes[2].rounds < report.lanes[1].rounds + 100
        assert "best of 3 policies" in report.claim

    def test_many_policies_have_few_opponents(self, monkeypatch):
        monkeypatch.setattr("richobs.judging.select.MOST_OPPONENTS", 4)
        chances = np.linspace(0.2, 0.9, 30)
        report = self.race(*chances, epsilon=0.1)
        assert report.verdict is Verdict.BEST
        assert chances[report.chosen] >= 0.8

    @pytest.mark.parametrize(
        ("policies", "options", "words"),
        [
            ([arm(0)], {}, "at least two policies; got 1"),
            ([arm(0)] * 2, {"epsilon": 0}, "must be above 0"),
            ("runs", {}, "policies are a list"),
            ([arm(0)] * 10_001, {}, "at most 10,000 policies; got 10,001"),
            ([arm(0), 7], {}, "a int arrived"),
        ],
    )
    def test_what_cannot_be_chosen_from_is_refused(self, policies, options, words):
        with pytest.raises(InvalidInput, match=words):
            select(Coins(0.5, 0.6), policies, **{"epsilon": 0.1, **options})


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path):
        """A good policy of lock/3, a bad one, and one that is bad too."""
        problem = richobs.make("lock/3")
        richobs.LearnedPolicy(problem.functions, problem.optimal_function).save(tmp_path / "good.npz")
        for name, path in (("bad", (0, 0, 0)), ("worse", (1, 1, 1))):
            richobs.LearnedPolicy.open_loop(path, 4).save(tmp_path / f"{name}.npz")
        return [str(tmp_path / f"{name}.npz") for name in ("good", "bad", "worse")]

    def test_two_policies(self, files, capsys, tmp_path):
        good, bad, _ = files
        out = str(tmp_path / "j")
        assert main(["compare", "lock/3", good, bad, "--out", out]) == 0
        assert capsys.readouterr().out.startswith("With probability at least 0.95 V(good) - V(bad) is between 0.")
        assert main(["compare", "lock/3", bad, good, "--quiet"]) == 1
        assert main(["compare", "lock/3", good, good, "--max-episodes", "40", "--json"]) == 3
        assert main(["compare", "lock/3", good, good, "--epsilon", "0.2"]) == 0
        capsys.readouterr()
        assert main(["show", out]) == 0
        assert "the first policy earns more than the second" in capsys.readouterr().out
        assert main(["verify", out]) == 0
        said = capsys.readouterr().out
        assert "derived again from the stored totals" in said
        assert "played again in lock/3" in said

    def test_a_certificate_that_says_more_than_was_found_does_not_agree(self, files, capsys, tmp_path):
        out = tmp_path / "j"
        assert main(["compare", "lock/3", *files[:2], "--out", str(out)]) == 0
        text = (out / "certificate.json").read_text()
        lower = json.loads(text)["lower"]
        (out / "certificate.json").write_text(text.replace(f'"lower": {lower}', '"lower": 0.4'))
        assert main(["verify", str(out)]) == 1
        assert "lower is 0.4 in the certificate, and 0." in capsys.readouterr().out

    def test_more_than_two_policies(self, files, capsys, tmp_path):
        assert main(["compare", "lock/3", *files]) == 2
        assert "within --epsilon of the best" in capsys.readouterr().err
        out = str(tmp_path / "race")
        assert main(["compare", "lock/3", *files, "--epsilon", "0.1", "--out", out]) == 0
        assert "good is within 0.1 of the best of 3 policies, and earns between" in capsys.readouterr().out
        assert main(["verify", out, "--quiet"]) == 0
        assert main(["show", out, "--in-toto"]) == 0
        capsys.readouterr()

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("x.csv", "{}\n{}\n{}\n"),
            ("x.csv", '# {{"t_start": 0}}\nr,l,t\n{},9,1\n{},9,2\n{},9,3\n'),
            ("x.json", "[{}, {}, {}]"),
            ("x.json", '{{"returns": [{}, {}, {}]}}'),
            ("x.json", '{{"per_episode": [{{"sum_reward": {}}}, {{"sum_reward": {}}}, {{"sum_reward": {}}}]}}'),
        ],
    )
    def test_files_of_returns(self, name, text, tmp_path):
        (tmp_path / name).write_text(text.format(1, 0.5, 0))
        assert read_returns(tmp_path / name).tolist() == [1.0, 0.5, 0.0]

    def test_a_file_with_a_row_per_step_is_no_file_of_returns(self, tmp_path):
        (tmp_path / "x.csv").write_text("episode,reward\n1,0\n1,1\n2,1\n")
        with pytest.raises(InvalidFile, match="it has a row per step"):
            read_returns(tmp_path / "x.csv")

    def test_files_of_returns_are_compared(self, tmp_path, capsys):
        a, b = tmp_path / "a.csv", tmp_path / "b.json"
        a.write_text("return\n" + "1\n" * 20)
        b.write_text(json.dumps([0] * 20))
        assert main(["compare", str(a), str(b), "--range", "0", "1"]) == 0
        assert "a earns more than b" in capsys.readouterr().out
        assert main(["compare", str(a), str(b)]) == 2
        assert "--range LOW HIGH" in capsys.readouterr().err
        assert main(["compare", str(a)]) == 2
        a.write_text("x,y\n1,2\n")
        assert main(["compare", str(a), str(b), "--range", "0", "1"]) == 2
        assert "none of them is one of return," in capsys.readouterr().err

    def test_the_value_gate_tells_undecided_from_below(self, files, capsys):
        value = ["value", "lock/3", "--policy", files[0], "--quiet"]
        assert main([*value, "--threshold", "0.6"]) == 1
        assert main([*value, "--threshold", "0.5", "--max-episodes", "40"]) == 3
        assert main([*value, "--epsilon", "0.01", "--max-episodes", "40"]) == 3
        assert main([*value, "--max-episodes", "40"]) == 0

    @pytest.mark.parametrize(
        ("verdict", "threshold", "epsilon", "status"),
        [
            (Verdict.AT_LEAST, 0.5, 0.3, 0),
            (Verdict.BELOW, 0.5, 0.3, 1),
            (Verdict.WITHIN_EPSILON, 0.5, 0.3, 3),
            (Verdict.EPISODES_SPENT, 0.5, None, 3),
            (Verdict.WITHIN_EPSILON, None, 0.3, 0),
            (Verdict.EPISODES_SPENT, None, 0.3, 3),
            (Verdict.EPISODES_SPENT, None, None, 0),
        ],
    )
    def test_a_gate_opens_only_where_its_threshold_is_certain(self, verdict, threshold, epsilon, status):
        report = PolicyReport(0.4, 0.6, 0.5, 9, 0.05, verdict, (0.0, 1.0), threshold, epsilon)
        assert report.status == status

    def test_envelopes(self, files, capsys, tmp_path):
        out = tmp_path / "v"
        assert main(["value", "lock/3", "--policy", files[0], "--threshold", "0.4", "--out", str(out)]) == 0
        capsys.readouterr()
        assert main(["show", str(out), "--in-toto"]) == 0
        statement = json.loads(capsys.readouterr().out)
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert statement["predicate"]["result"] == "PASSED"
        (metric,) = statement["predicate"]["metrics"]
        said = {"metric": "mean_reward", "comparator": ">=", "threshold": 0.4, "passed": True}
        assert {k: metric[k] for k in said} == said
        assert metric["sample_size"] == json.loads((out / "certificate.json").read_text())["episodes"]
        digest = hashlib.sha256((out / "policy-0.npz").read_bytes()).hexdigest()
        assert statement["subject"] == [{"name": "policy-0.npz", "digest": {"sha256": digest}}]
        richobs.LearnedPolicy.load(files[1]).save(out / "policy-0.npz")  # not the one that was judged
        (tmp_path / "alone.json").write_bytes((out / "certificate.json").read_bytes())
        richobs.LearnedPolicy.load(files[1]).save(tmp_path / "policy.npz")
        for place, name in ((out, "certificate.json"), (tmp_path / "alone.json", "alone.json")):
            assert main(["show", str(place), "--in-toto"]) == 0
            assert [one["name"] for one in json.loads(capsys.readouterr().out)["subject"]] == [name]
        assert main(["show", str(out), "--model-card"]) == 0
        card = capsys.readouterr().out
        assert "## Evaluation\n\nWith probability at least 0.95 the policy earns between" in card
        assert "    - type: mean_reward\n" in card


def logged(n, rng, *, levels=1, chance=0.5, adaptive=False):
    """Episodes in which action 1 pays 1/levels with probability 0.8 and action 0 with 0.3; V(1, 1, ...) = 0.8.

    An adaptive logger takes action 1 the more often, the more it paid so far.
    """
    x, a, r, p = ([np.zeros((n, 1)) for _ in range(levels)], *([np.zeros(n) for _ in range(levels)] for _ in range(3)))
    paid = np.array([1.0, 1.0])
    for i in range(n):
        chance_now = float(np.clip(paid[1] / paid.sum(), 0.2, 0.8)) if adaptive else chance
        for level in range(levels):
            action = int(rng.random() < chance_now)
            reward = float(rng.random() < (0.8 if action else 0.3)) / levels
            a[level][i], r[level][i], p[level][i] = action, reward, chance_now if action else 1 - chance_now
            paid[action] += reward
    return Episodes(x, [one.astype(np.int64) for one in a], r, (), p)


ONES = richobs.OpenLoop((1,) * 9)


class TestLogs:
    @pytest.mark.parametrize("adaptive", [False, True])
    def test_a_value_from_a_log(self, adaptive):
        log = logged(2_000, np.random.default_rng(1), adaptive=adaptive)
        report = certify_policy(None, ONES, log=log, reward_range=(0, 1), threshold=0.6)
        assert report.verdict is Verdict.AT_LEAST
        assert report.lower <= 0.8 <= report.upper
        assert 0.3 * report.episodes < report.effective < 0.85 * report.episodes
        words = "provided that the log's propensities are the probabilities with which its actions were drawn"
        assert words in report.claim
        assert "above 0 wherever the policy acts" in report.claim

    def test_one_weight_by_hand(self):
        """One episode, propensities 0.5 and 0.25, rewards 0.3 and 0.1: weight 8, per-decision 2 0.3 + 8 0.1."""
        rewards, propensities = [np.array([0.3]), np.array([0.1])], [np.array([0.5]), np.array([0.25])]
        log = Episodes([np.zeros((1, 1))] * 2, [np.array([1])] * 2, rewards, (), propensities)
        found = as_log(log, ONES, Pays(0.0, 0.5), (0.0, 1.0), np.random.default_rng(0))
        np.testing.assert_allclose(found.weights, [[8.0]])
        np.testing.assert_allclose(found.below, [[8 * 0.4], [2 * 0.3 + 8 * 0.1]])
        np.testing.assert_allclose(found.above, [8 * 0.6])
        both = as_log(log, ONES, None, (0.0, 1.0), np.random.default_rng(0), other=Mixed(0.5))
        np.testing.assert_allclose(both.weights, [[8.0], [2.0]])
        np.testing.assert_allclose(both.below, [[(8 * 0.4 + 2 * 0.6) / 2]])
        np.testing.assert_allclose(both.above, [(2 * 0.4 + 8 * 0.6) / 2])

    def test_each_step_has_the_weight_of_its_own_past_where_no_reward_is_negative(self):
        log, one = logged(5, np.random.default_rng(0), levels=2), logged(5, np.random.default_rng(0))
        for given, env, total, expected in (
            (log, Pays(0.0, 0.5), (0.0, 1.0), 2),
            (log, Pays(0.0, 0.5), (-1.0, 1.0), 2),
            (log, Pays(-1.0, 1.0), (0.0, 1.0), 1),
            (log, Pays(0.0, 1.0), (0.0, 1.0), 1),  # what totals in [0, 1] imply
            (log, Coins(0.5, 0.5), (0.0, 1.0), 1),
            (log, None, (0.0, 1.0), 1),
            (one, Pays(0.0, 0.5), (0.0, 1.0), 1),
        ):
            assert len(as_log(given, ONES, env, total, np.random.default_rng(0)).below) == expected

    def test_a_reward_that_the_environment_rules_out_is_refused(self):
        log = dataclasses.replace(logged(3, np.random.default_rng(0)), rewards=[np.array([0.5, -0.5, 0.5])])
        with pytest.raises(RewardOutOfRange, match=r"step 0, paid -0\.5; the environment declares that no reward is"):
            as_log(log, ONES, Pays(0.0, 0.5), (-1.0, 1.0), np.random.default_rng(0))

    def test_each_side_has_its_own_share(self):
        y, shares = np.random.default_rng(0).random((1, 80)), Share(0.1).split(0.02, 0.5)
        sequence, mirrored = WeightedSequence(80, *shares), WeightedSequence(80, Share(0.05), Share(0.002))
        sequence.add(y, 1 - y)
        mirrored.add(1 - y, y)
        assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - sequence.upper, 1 - sequence.lower))
        for share in shares:
            with pytest.raises(Overspent):
                share.spend()

    def test_two_policies_are_compared_by_one_log(self):
        log = logged(3_000, np.random.default_rng(3))
        report = compare(None, ONES, richobs.OpenLoop((0,)), log=log, reward_range=(0, 1))
        assert report.verdict is Verdict.A_BETTER
        assert report.lower <= 0.5 <= report.upper
        assert report.pairs == report.episodes <= 3_000

    def test_policies_with_and_without_probabilities(self):
        """An action that is drawn from the policy agrees with the logged one as often as the policy takes it."""
        log = logged(4_000, np.random.default_rng(4))
        drawn = type("Drawn", (), {"actions": Mixed(0.25).actions})()
        for policy in (Mixed(0.25), drawn):
            found = as_log(log, policy, None, (0.0, 1.0), np.random.default_rng(0))
            assert found.means(4_000) == pytest.approx(0.25 * 0.8 + 0.75 * 0.3, abs=0.04)
            assert found.weights.mean() == pytest.approx(1.0, abs=0.05)

    def test_a_hopeless_log_says_so(self):
        log = logged(400, np.random.default_rng(5), levels=8)
        report = certify_policy(None, ONES, log=log, reward_range=(0, 1))
        assert report.effective < 10
        assert "play the policy instead" in report.remarks[0]
        assert ("worth", f"about {report.effective:,.1f} episodes of its own") in report.rows()

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"propensities": ()}, "need the probability of each action"),
            ({"propensities": [np.array([0.5, 0.5])]}, r"propensities of shape \(2,\), and 3 episodes"),
            ({"propensities": [np.array([0.5, 0.0, 0.5])]}, "episode 1 of the log, step 0, has propensity 0.0"),
            ({"propensities": [np.array([0.5, 0.5, 1.5])]}, "episode 2 of the log, step 0, has propensity 1.5"),
            ({"rewards": [np.array([0.5, 0.5, 1.5])]}, r"episode 2 of the log earned 1.5; the declared range"),
            ({"rewards": [np.array([0.5, -0.5, 0.5])]}, "episode 1 of the log earned -0.5"),
            ({"ended": [np.ones(3, bool)], "rewards": [np.array([0, 0, 1])]}, "episode 2 .* at step 0, after its end"),
            ({"actions": [np.array([0, -1, 1])]}, "episode 1 of the log, step 0, has action -1"),
            ({"actions": [np.array([0, 1, 0.7])]}, "episode 2 of the log, step 0, has action 0.7"),
            ({"actions": [np.array([[0], [1], [0]])]}, r"step 0 of the log has actions of shape \(3, 1\)"),
        ],
    )
    def test_logs_that_cannot_be_used_are_refused(self, change, words):
        log = dataclasses.replace(logged(3, np.random.default_rng(0)), **change)
        with pytest.raises((InvalidInput, RewardOutOfRange), match=words):
            certify_policy(None, ONES, log=log, reward_range=(0, 1))

    @pytest.mark.parametrize(
        ("env", "policy", "actions", "words"),
        [
            (None, Mixed(0.5), [0, 2, 1], "the log has action 2 at step 0; the policy knows 2 actions"),
            (Coins(0.5, 0.5), ONES, [0, 2, 1], "has action 2; actions are whole numbers from 0 to 1"),
            (None, Returns(actions=np.ones((3, 1), int)), [0, 1, 1], r"chose actions of shape \(3, 1\) for 3 obs"),
            (None, Returns(actions=0, probabilities=np.full((3, 2), 0.8)), [0, 1, 1], "are not a law for each obs"),
            (None, Returns(actions=0, probabilities=np.tile([1.5, -0.5], (3, 1))), [0, 1, 1], "are not a law for each"),
        ],
    )
    def test_policies_that_do_not_fit_a_log_are_refused(self, env, policy, actions, words):
        log = dataclasses.replace(logged(3, np.random.default_rng(0)), actions=[np.array(actions)])
        with pytest.raises(InvalidInput, match=words):
            certify_policy(env, policy, log=log, reward_range=(0, 1))

    @pytest.mark.parametrize(
        ("judge", "policies", "changes", "words"),
        [
            (certify_policy, [ONES], {"log": 3}, "a int arrived"),
            (certify_policy, [ONES], {"log": "no such file.csv"}, "damaged or cannot be read"),
            (certify_policy, [ONES], {"reward_range": None}, "a log does not declare"),
            (certify_policy, [ONES], {"out": "x"}, "a log is a record already"),
            (certify_policy, [None], {}, "needs a policy, or a column `target`"),
            # a column `target` answers for a policy, so none may be given; a comparison has two
            (certify_policy, [ONES], {"log": "x.csv"}, r"column `target`.* and a policy is given too"),
            (compare, [ONES, arm(0)], {"log": "x.csv"}, "column `target`"),
            (compare, [ONES, None], {}, "compare needs two policies"),
            (compare, [None, ONES], {}, "compare needs two policies"),
        ],
    )
    def test_logs_and_policies_that_do_not_fit_are_refused(
        self, judge, policies, changes, words, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "x.csv").write_text("episode,x,action,reward,propensity,target\n1,0,1,1,.5,1")
        given = {"log": logged(3, np.random.default_rng(0)), "reward_range": (0, 1), **changes}
        with pytest.raises((InvalidInput, InvalidFile), match=words):
            judge(None, *policies, **given)

    def test_files(self, tmp_path):
        log = logged(50, np.random.default_rng(6), levels=2)
        log.save(tmp_path / "log.npz")
        expected = certify_policy(None, ONES, log=log, reward_range=(0, 1))
        assert certify_policy(None, ONES, log=tmp_path / "log.npz", reward_range=(0, 1)) == expected
        rows = ["episode,step,x,action,reward,propensity"]
        targets = ["episode,reward,propensity,target"]
        for i in range(50):
            for level in range(2):
                a, r, p = log.actions[level][i], log.rewards[level][i], log.propensities[level][i]
                rows.append(f"{i},{level},0,{a},{r!r},{p!r}".replace("np.float64(", "").replace(")", ""))
                targets.append(f"{i},{r!r},{p!r},{int(a == 1)}".replace("np.float64(", "").replace(")", ""))
        (tmp_path / "log.csv").write_text("\n".join(rows))
        (tmp_path / "targets.csv").write_text("\n".join(targets))
        assert certify_policy(None, ONES, log=str(tmp_path / "log.csv"), reward_range=(0, 1)) == expected
        found = certify_policy(None, None, log=tmp_path / "targets.csv", reward_range=(0, 1))
        assert (found.lower, found.upper) == (expected.lower, expected.upper)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("episode,reward\n1,2", "lacks the column 'propensity'"),
            ("episode,reward,propensity,x\n1,1,1,1", "lacks the column 'action'"),
            ("episode,reward,propensity,target\n1,1,0,1", "row 2, has propensity 0"),
            ("episode,reward,propensity,target\n1,1,x,1", "row 2: propensity is 'x'"),
            ("episode,reward,propensity,target\n1,1,.5,1\n2,1,.5,1\n1,1,.5,1", "row 4: episode 1 goes on"),
            ("episode,reward,propensity,target\n1,1,.5", "row 2, has 3 values"),
            ("episode,step,reward,propensity,target\n1,0,1,.5,1\n1,2,1,.5,1", "row 3: step is 2, and 1 is next"),
            ("episode,step,reward,propensity,target\n1,1,1,.5,1\n1,0,1,.5,1", "row 2: step is 1, and 0 is next"),
            ("episode,action,reward,propensity,x\n1,1.7,1,.5,1", r"row 2, has action 1\.7"),
            ("episode,action,reward,propensity,x\n1,-1,1,.5,1", "row 2, has action -1"),
            ("", "has no rows"),
        ],
    )
    def test_csv_files_that_cannot_be_used_are_refused(self, text, words, tmp_path):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InvalidFile, match=words):
            certify_policy(None, None, log=tmp_path / "x.csv", reward_range=(0, 1))

    def test_minari(self):
        """Two episodes of one and two steps; infos begin with that of the reset."""

        def episode(rewards, propensities):
            n = len(rewards)
            said = {"rewards": np.array(rewards), "infos": {"propensity": propensities}}
            return types.SimpleNamespace(observations=np.zeros((n + 1, 3)), actions=np.ones(n, dtype=int), **said)

        first, second = episode([1.0], [1, 0.5]), episode([0.0, 0.5], np.array([1, 0.5, 0.25]))
        dataset = types.SimpleNamespace(iterate_episodes=lambda: iter([first, second]))
        found = as_log(dataset, ONES, None, (0.0, 1.0), np.random.default_rng(0))
        np.testing.assert_allclose(found.weights, [[2.0, 8.0]])
        second.infos = {"propensities": np.full((3, 2), 0.5)}
        with pytest.raises(InvalidInput, match="episode 1 of the Minari dataset has 2 numbers for each step"):
            as_log(dataset, ONES, None, (0.0, 1.0), np.random.default_rng(0))
        second.infos = {}
        with pytest.raises(InvalidInput, match="episode 1 of the Minari dataset has no propensities"):
            as_log(dataset, ONES, None, (0.0, 1.0), np.random.default_rng(0))


class TestVectorEnvironments:
    MODES = tuple(gymnasium.vector.AutoresetMode)

    @pytest.fixture(params=MODES, ids=lambda mode: mode.name)
    def vector(self, request):
        env = gymnasium.vector.SyncVectorEnv([Steps] * 3, autoreset_mode=request.param)
        yield env
        env.close()

    def test_no_mode_biases_a_return(self, vector):
        """Short episodes pay less and end sooner: counting what ends first, or what a reset pays, shifts the mean of 4.5."""
        rngs = [np.random.default_rng(seed) for seed in range(3)]
        totals = np.concatenate([player(vector, lambda x: 0).alone(7, rng, 0)[0] for rng in rngs])
        env, expected = Steps(), []
        for seed in np.concatenate([np.random.default_rng(seed).integers(2**31, size=7) for seed in range(3)]):
            env.reset(seed=int(seed))
            expected.append(env.length)
        assert totals.tolist() == expected
        assert len(set(expected)) > 4

    def test_certify_and_compare_and_from_gymnasium(self, vector):
        report = certify_policy(vector, lambda x: 0, max_episodes=300, reward_range=(0, 9))
        assert report.lower < 4.5 < report.upper
        assert report.mean == pytest.approx(4.5, abs=0.4)
        compared = compare(vector, Predicts(1), Predicts(0), reward_range=(0, 9), max_episodes=60)
        assert compared.paired
        assert compared.mean == pytest.approx(1.0)
        env = richobs.from_gymnasium(vector, horizon=8, step_range=(0, 2))
        played = env.play(richobs.OpenLoop((1,)), 30, np.random.default_rng(0))
        assert played.returns.mean() == pytest.approx(5.5, abs=1.2)
        lengths = (~np.stack(played.ended)).sum(axis=0)
        np.testing.assert_array_equal(played.returns, lengths + 1)

    def test_one_generator_for_all_copies_is_not_shared_by_policies(self):
        """A native vector environment draws for all copies at once: a round may use the numbers of another one."""
        env = gymnasium.make_vec("CartPole-v1", 2, "vector_entry_point")
        report = compare(env, lambda x: int(x[2] > 0), lambda x: 0, reward_range=(0, 500), max_episodes=32)
        assert not report.paired
        env.close()

    def test_policies_of_richobs_number_the_actions(self, vector):
        report = certify_policy(vector, richobs.OpenLoop((1,)), max_episodes=200, reward_range=(0, 9))
        assert report.mean == pytest.approx(5.5, abs=0.5)

    def test_stable_baselines_rounds_keep_the_order_of_copies(self):
        """Copies end at different times; the k-th total is that of the k-th copy, as its Monitor counts it."""
        env = VecEnv()
        players = player(env, Predicts(0)), player(env, Predicts(1))
        shared = [[np.random.default_rng(k) for k in range(6)] for _ in players]
        a, b = (one.rounds(rngs, np.random.default_rng(0)) for one, rngs in zip(players, shared, strict=True))
        np.testing.assert_allclose(b - a, 1.0)
        assert len(set(a)) > 2


class DummyVecEnv:
    """What is used of a vector environment of Stable-Baselines3: it begins anew in the step in which an episode ends."""

    def __init__(self):
        self.envs = [Steps() for _ in range(3)]
        self.num_envs, self.seeds = 3, [None] * 3

    def seed(self, seed=None):
        self.seeds = [seed + i for i in range(3)]

    def reset(self):
        self.sums = np.zeros(3)
        return np.stack([env.reset(seed=s)[0] for env, s in zip(self.envs, self.seeds, strict=True)])

    def step_async(self, actions): ...

    def step_wait(self): ...

    def step(self, actions):
        x, rewards, ends, infos = [], [], [], []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            seen, reward, over, _, info = env.step(action)
            self.sums[i] += reward
            if over:
                info = {"episode": {"r": self.sums[i]}}
                self.sums[i], seen = 0.0, env.reset()[0]
            x.append(seen)
            rewards.append(reward)
            ends.append(over)
            infos.append(info)
        return np.stack(x), np.array(rewards, dtype=np.float32), np.array(ends), infos


VecEnv = DummyVecEnv


def test_the_fixture_certified(tmp_path):
    """A policy's test in a build: it says how many episodes it took, and what failed."""
    (tmp_path / "test_policy.py").write_text(
        """
import richobs

problem = richobs.make("lock/3")
policy = problem.optimal_policy()

def test_good(certified):
    assert certified(problem, policy, at_least=0.4, delta=0.01, max_episodes=2000).is_certified

def test_bad(certified):
    certified(problem, policy, at_least=0.6, max_episodes=2000)

def test_undecided(certified):
    certified(problem, policy, at_least=0.5, max_episodes=40)

def test_narrow(certified):
    certified(problem, policy, at_least=0.5, epsilon=0.4)

def test_median(certified):
    certified(problem, policy, at_least=0.5, quantile=0.6)

def test_no_median(certified):
    certified(problem, policy, at_least=0.5, quantile=0.5, max_episodes=40)
"""
    )
    call = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", str(tmp_path)]
    said = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "4 failed, 2 passed" in said
    assert re.search(
        r"=+ certified policies =+\n.*test_good: the policy earns at least the threshold \([\d,]+ episodes\)", said
    )
    assert "which is less than 0.6, provided that" in said
    assert "not decided within 40 episodes whether the value is at least 0.5" in said
    assert "test_median: the 0.6 quantile is at least the threshold" in said
    assert "not decided within 40 episodes whether the 0.5 quantile is at least 0.5" in said


class Arm:
    """A policy that training changes."""

    k = 0

    def actions(self, level, x, rng):
        return np.full(len(x), self.k)


@pytest.fixture
def sb3(monkeypatch):
    """Stable-Baselines3 with one module below `common`, which has what is given."""

    def install(module, **contents):
        for name in ("stable_baselines3", "stable_baselines3.common", f"stable_baselines3.common.{module}"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[f"stable_baselines3.common.{module}"]).update(contents)

    return install


class TestStableBaselines:
    def test_the_best_checkpoint_of_a_training(self, sb3, capsys):
        class BaseCallback:
            def __init__(self, verbose=0):
                self.num_timesteps = 0

        sb3("callbacks", BaseCallback=BaseCallback)
        callback = SelectCallback(Coins(0.2, 0.9, 0.5), 2, epsilon=0.1, verbose=1, seed=3)
        assert isinstance(callback, BaseCallback)
        assert callback.best is None
        callback.model = types.SimpleNamespace(policy=Arm())
        callback._on_training_start()
        for step, action in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 2)):
            callback.num_timesteps, callback.model.policy.k = step, action
            assert callback._on_step()
        callback._on_training_end()
        assert list(callback.checkpoints) == ["2 steps", "4 steps", "5 steps"]
        assert callback.report.name == "4 steps"
        assert callback.best is callback.checkpoints["4 steps"]
        assert "4 steps is within 0.1 of the best of 3 policies" in capsys.readouterr().out

    def test_totals_in_the_order_in_which_episodes_ended_are_shuffled(self, sb3):
        """Else the k-th short episode of one policy would be compared with the k-th short one of the other."""
        sb3("evaluation", evaluate_policy=lambda model, env, n, **options: (list(range(n)), []))
        (totals,) = player(VecEnv(), Predicts(0)).alone(50, np.random.default_rng(0), 0)
        assert sorted(totals) == list(range(50)) != totals.tolist()

    def test_episodes_that_end_with_a_life_are_refused(self, sb3):
        class EpisodicLifeEnv(gymnasium.Wrapper): ...

        sb3("atari_wrappers", EpisodicLifeEnv=EpisodicLifeEnv)
        env = VecEnv()
        env.env_is_wrapped = lambda wrapper: [False, wrapper is EpisodicLifeEnv]
        for given in (env, Wrapped(EpisodicLifeEnv(Steps()))):
            with pytest.raises(InvalidInput, match="wrapped in EpisodicLifeEnv: its episodes end with a life"):
                player(given, Predicts(0))
        env.env_is_wrapped = lambda wrapper: [False, False]
        player(env, Predicts(0))

    def test_checkpoints_of_a_folder(self, tmp_path):
        for steps in (10_000, 2_000, 300):
            (tmp_path / f"model_{steps}_steps.zip").write_text(str(steps))
        algorithm = types.SimpleNamespace(load=lambda file, device: (int(file.read_text()), device))
        found = checkpoints(tmp_path, algorithm, device="cpu")
        assert next(iter(found.items())) == ("model_300_steps", (300, "cpu"))
        assert [steps for steps, _ in found.values()] == [300, 2_000, 10_000]
        with pytest.raises(InvalidInput, match="holds no checkpoints"):
            checkpoints(tmp_path / "x", algorithm)
