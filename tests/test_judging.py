"""Which policy is better: comparisons, races, logs, gates, and vector environments."""

import contextlib
import hashlib
import json
import math
import sqlite3

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.cli import main
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidFile, InvalidInput, RewardOutOfRange, StoreError
from richobs.judging.compare import compare, compare_returns
from richobs.judging.logs import read_returns
from richobs.judging.select import BETS, Race, select
from richobs.judging.value import Verdict, certify_policy
from richobs.stats.bets import death, mixed
from richobs.stats.sequences import shifts_for
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

    @pytest.mark.parametrize("seed", range(3))
    def test_a_winner_is_named_once_the_account_of_no_difference_has_reached_40(self, seed):
        """By the wealth of bets on the differences themselves, +-D/(1 + 2s), after every round."""
        rng = np.random.default_rng(seed)
        a, b = (rng.random(200) < 0.75).astype(float), (rng.random(200) < 0.5).astype(float)
        report = compare_returns(a, b, 0, 1, paired=False)
        won = _wins((a - b)[None], 0.025)[0]
        expected = [bool(won[episodes // 2 - 1]) for episodes, _, _ in report.looks]
        assert expected == [False] * (len(report.looks) - 1) + [True]
        assert report.verdict is Verdict.A_BETTER

    def test_a_winner_is_named_among_equals_as_seldom_as_promised(self):
        """2,000 comparisons of equal policies, looked at after each of 300 rounds, with delta = 0.3."""
        rng = np.random.default_rng(5)
        d = (rng.random((2_000, 300)) < 0.5).astype(float) - (rng.random((2_000, 300)) < 0.5)
        false = (_wins(d, 0.15) | _wins(-d, 0.15)).any(axis=1).sum()
        assert 150 <= false <= 600


def _wins(d, share):
    """Returns after which rounds it is certain that a is better, for each row of differences."""
    shifts = shifts_for(d.shape[1], share)
    logs = np.log1p(d[:, :, None] / (1 + 2 * shifts)).cumsum(axis=1)
    return mixed(logs) >= math.log(death(Supposed(share)))


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
        ask()
        with contextlib.closing(sqlite3.connect(tmp_path / "j" / "judgement.sqlite", isolation_level=None)) as db:
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
            "With probability at least 0.95 policy 1 is within 0.001 of the best of 4 policies. It earns between 0."
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
        assert report.claim.startswith(
            "It is not decided which of 2 policies is within 0.0001 of the best; 2 of them are left"
        )

    def test_a_policy_is_dropped_when_the_average_over_its_opponents_reaches_its_limit(self):
        """Three policies, 8 rounds: 0 always wins. By hand, with money 1/2 on each opponent."""
        race = Race(0.1, 0.0, Share(0.1), is_open=False)
        race.join(3)
        race.add(np.arange(3), np.tile([1.0, 0.0, 0.0], (5, 1)))
        won = np.mean((1 + BETS) ** 5)
        assert np.exp(race.account(np.arange(3))) == pytest.approx(
            [np.mean((1 - BETS) ** 5), (won + 1) / 2, (won + 1) / 2]
        )
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

    def test_it_goes_on_after_it_was_stopped(self, tmp_path):
        class Stop(Exception): ...

        def stop(report):
            if report.episodes > 60:
                raise Stop

        whole = self.race(*self.CHANCES)
        with pytest.raises(Stop):
            self.race(*self.CHANCES, out=tmp_path, callback=stop)
        assert self.race(*self.CHANCES, out=tmp_path) == whole
        assert json.loads((tmp_path / "certificate.json").read_text())["chosen"] == 1

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

    def test_the_best_is_dropped_as_seldom_as_promised(self):
        """800 races of four equal policies, delta = 0.6: policy 0 is a best one, dropped with probability at most 0.3."""
        rng, false = np.random.default_rng(0), 0
        for _ in range(800):
            race = Race(0.01, 0.0, Share(0.6), is_open=False)
            race.join(4)
            for _ in range(12):
                race.add(race.living, (rng.random((10, len(race.living))) < 0.5).astype(float))
            false += not race.alive[0]
        assert 8 <= false <= 240


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path):
        """A good policy of lock/3, a bad one, and one that is bad too."""
        problem = richobs.make("lock/3")
        richobs.LearnedPolicy(problem.functions, problem.optimal_function).save(tmp_path / "good.npz")
        for name, path in (("bad", (0, 0, 0)), ("worse", (1, 1, 1))):
            richobs.open_loop_policy(path, 4).save(tmp_path / f"{name}.npz")
        return [str(tmp_path / f"{name}.npz") for name in ("good", "bad", "worse")]

    def test_two_policies(self, files, capsys, tmp_path):
        good, bad, _ = files
        out = str(tmp_path / "j")
        assert main(["compare", "lock/3", good, bad, "--out", out]) == 0
        assert capsys.readouterr().out.startswith("With probability at least 0.95 good earns more than bad per episode")
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
        assert "good is within 0.1 of the best of 3 policies. It earns between" in capsys.readouterr().out
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

    def test_envelopes(self, files, capsys, tmp_path):
        out = tmp_path / "v"
        assert main(["value", "lock/3", "--policy", files[0], "--threshold", "0.4", "--out", str(out)]) == 0
        capsys.readouterr()
        assert main(["show", str(out), "--in-toto"]) == 0
        statement = json.loads(capsys.readouterr().out)
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert statement["predicate"]["result"] == "PASSED"
        (metric,) = statement["predicate"]["metrics"]
        assert {k: metric[k] for k in ("metric", "comparator", "threshold", "passed")} == {
            "metric": "mean_reward",
            "comparator": ">=",
            "threshold": 0.4,
            "passed": True,
        }
        assert metric["sample_size"] == json.loads((out / "certificate.json").read_text())["episodes"]
        digest = hashlib.sha256((out / "policy-0.npz").read_bytes()).hexdigest()
        assert statement["subject"] == [{"name": "policy-0.npz", "digest": {"sha256": digest}}]
        assert main(["show", str(out), "--model-card"]) == 0
        card = capsys.readouterr().out
        assert "## Evaluation\n\nWith probability at least 0.95 the policy earns between" in card
        assert "    - type: mean_reward\n" in card
