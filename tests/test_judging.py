"""Which policy is better: comparisons, races, logs, gates, and vector environments."""

import json
import math

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidFile, InvalidInput, RewardOutOfRange, StoreError
from richobs.judging.compare import compare, compare_returns
from richobs.judging.value import Verdict, certify_policy
from richobs.stats.bets import death
from richobs.stats.sequences import ConfidenceSequence
from richobs.stats.shares import Share, Supposed


class Coins:
    """One level: action k earns 1 with probability chances[k], decided by one uniform number that `rng` gives."""

    horizon, reward_range = 1, (0.0, 1.0)

    def __init__(self, *chances):
        self.chances, self.n_actions, self.played = np.array(chances), len(chances), 0

    def play(self, policy, n, rng, levels=None):
        self.played += n
        u, x = rng.random(n), np.zeros((n, 1))
        actions = policy.actions(0, x, rng)
        return Episodes([x], [actions], [(u < self.chances[actions]).astype(float)])


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


class TestCompare:
    def test_the_better_one_is_found(self):
        report = compare(Coins(0.9, 0.5), arm(0), arm(1), names=("new", "old"))
        assert report.verdict is Verdict.A_BETTER
        assert report.is_certified
        assert 0 < report.lower <= 0.4 <= report.upper
        assert report.paired
        assert report.episodes == 2 * report.pairs < 200
        assert report.claim.startswith(
            "With probability at least 0.95 new earns more than old per episode in expectation. "
            "V(new) - V(old) lies between 0."
        )
        assert report.claim.endswith("provided that rounds are independent and every total lies in [0, 1].")
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
        assert "a and b differ by at most 0.1 per episode in expectation. V(a) - V(b) lies" in report.claim
        tied = compare(Coins(0.5, 0.5), arm(0), arm(1), max_episodes=400)
        assert (tied.verdict, tied.episodes, tied.mean) == (Verdict.EPISODES_SPENT, 400, 0.0)
        assert tied.claim.startswith(
            "It is not decided whether a or b earns more. With probability at least 0.95 V(a) - V(b)"
        )

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
        shifts = 2.0 ** np.arange(-8, 2)  # up to sqrt(99 / (8 log 40)) = 1.8
        wealth = [np.mean((1 + 1 / (1 + 2 * shifts)) ** n) for n in range(99)]
        expected = next(n for n, w in enumerate(wealth) if w >= death(Supposed(0.025)))
        assert report.pairs == expected == 7
        assert report.verdict is Verdict.A_BETTER

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
        ],
    )
    def test_returns_that_cannot_be_compared_are_refused(self, a, b, options, words):
        with pytest.raises((InvalidInput, RewardOutOfRange), match=words):
            compare_returns(a, b, 0, 1, **options)

    def test_what_cannot_be_played_is_refused(self):
        with pytest.raises(InvalidInput, match="for 2 levels and 4 actions; the environment has 3 and 4"):
            compare(richobs.make("lock/3"), arm(0), richobs.open_loop_policy((0, 0), 4))
        with pytest.raises(InvalidInput, match="a int arrived"):
            compare(Coins(0.5), arm(0), 3)
        with pytest.raises(InvalidInput, match="a str arrived"):
            compare("lock/3", arm(0), arm(1), reward_range=(0, 1))

    def test_gymnasium_gives_both_the_same_seeds(self):
        """Action 1 earns exactly 1 more with every seed: one round in eight would be enough to see the difference."""
        report = compare(Steps(), lambda x: 1, lambda x: 0, reward_range=(0, 9), max_episodes=60)
        assert report.mean == pytest.approx(1.0)
        assert report.paired

    def test_an_episode_without_an_end_is_refused(self, monkeypatch):
        monkeypatch.setattr("richobs.judging.players.MOST_STEPS", 50)

        class Endless(Steps):
            def step(self, action):
                return np.zeros(1, dtype=np.float32), 0.0, False, False, {}

        with pytest.raises(InvalidInput, match=r"has not ended after 50 steps.*TimeLimit"):
            compare(Endless(), lambda x: 0, lambda x: 1, reward_range=(0, 1))

    def test_rounds_of_a_world_are_played_one_by_one(self):
        """Several episodes of one call may share random numbers across rounds, and rounds would depend on each other."""
        sizes = []

        class Spy(Coins):
            def play(self, policy, n, rng, levels=None):
                sizes.append(n)
                return super().play(policy, n, rng, levels)

        compare(Spy(0.5, 0.5), arm(0), arm(1), max_episodes=64)
        assert sizes == [1] * 64

    def test_a_law_that_changes_is_noticed(self):
        a = np.repeat([0.5, 0.48], 300)
        with pytest.raises(BrokenPromise, match="Every claim needs independent episodes of one law"):
            compare_returns(a, np.full(600, 0.5), 0, 1, paired=True)

    def test_a_winner_is_named_among_equals_as_seldom_as_promised(self):
        """400 comparisons of equal policies, looked at after each of 300 rounds, with delta = 0.3."""
        rng, false = np.random.default_rng(5), 0
        for _ in range(400):
            sequence = ConfidenceSequence(300, *Share(0.3).split(0.5, 0.5))
            d = (rng.random(300) < 0.5).astype(float) - (rng.random(300) < 0.5)
            for part in np.split((d + 1) / 2, 60):
                sequence.add(part)
            false += not sequence.lower <= 0.5 <= sequence.upper
        assert 5 <= false <= 0.3 * 400


class TestFolder:
    @pytest.fixture
    def ask(self, tmp_path):
        def call(**options):
            given = {"out": tmp_path / "j", "max_episodes": 64, **options}
            env = given.pop("env", None) or Coins(0.6, 0.5)
            return compare(env, arm(0), arm(1), **given), env

        return call

    def test_a_stopped_comparison_goes_on_to_the_same_bytes(self, ask, tmp_path):
        class Stop(Exception): ...

        def stop(report):
            if report.episodes >= 32:
                raise Stop

        whole, _ = ask(out=tmp_path / "whole")
        with pytest.raises(Stop):
            ask(callback=stop)
        again, env = ask()
        assert again == whole
        assert env.played == 64 - 32
        for name in ("certificate.json", "report.html", "judgement.json"):
            assert (tmp_path / "j" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        twice, env = ask()
        assert (twice, env.played) == (whole, 0)

    def test_another_question_is_refused(self, ask):
        ask()
        with pytest.raises(StoreError, match=r"its delta is 0\.05, and 0\.1 is asked now"):
            ask(delta=0.1)

    def test_altered_draws_are_refused(self, ask, tmp_path):
        import sqlite3

        ask()
        with sqlite3.connect(tmp_path / "j" / "judgement.sqlite") as db:
            db.execute("UPDATE rows SET text = '[9]' WHERE k = 0")
        with pytest.raises(InvalidFile, match="damaged"):
            ask()

    def test_the_value_of_one_policy_has_a_folder_too(self, tmp_path):
        whole = certify_policy(Coins(0.6), arm(0), max_episodes=200)
        first = certify_policy(Coins(0.6), arm(0), max_episodes=200, out=tmp_path)
        env = Coins(0.6)
        assert certify_policy(env, arm(0), max_episodes=200, out=tmp_path) == first == whole
        assert env.played == 0
        assert json.loads((tmp_path / "certificate.json").read_text())["claim"] == whole.claim

    def test_pages_and_notebooks_show_claim_and_drawing(self, ask, tmp_path):
        report, _ = ask()
        text = (tmp_path / "j" / "report.html").read_text()
        assert report._repr_html_() in text
        assert text.count("<svg") == 1
        assert f"After {report.episodes} episodes the difference lies between" in text
