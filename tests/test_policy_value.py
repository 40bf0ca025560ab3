"""What any policy earns: confidence sequences, `certify_policy`, the callback for Stable-Baselines3, and `richobs value`."""

import abc
import dataclasses
import json
import math
import sys
import types

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.cli import main
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput, Overspent, RewardOutOfRange
from richobs.judging.value import PolicyReport, Verdict, certify_policy
from richobs.sb3 import CertifyCallback, parameter_digest
from richobs.stats.bets import death, mixed
from richobs.stats.sequences import ConfidenceSequence, LogSums, enough_for, least_mean, shifts_for
from richobs.stats.shares import Share, Supposed

ALWAYS = richobs.OpenLoop((0,))


class Payer:
    """One level, two actions: an episode pays what a function of (action, rng) says."""

    horizon, n_actions = 1, 2

    def __init__(self, pay, reward_range=(0.0, 1.0)):
        self.pay, self.reward_range, self.played = pay, reward_range, 0

    def play(self, policy, n, rng, levels=None):
        x = rng.integers(2, size=n)
        actions = policy.actions(0, x, rng)
        rewards = np.array([self.pay(a, rng, self.played + i) for i, a in enumerate(actions)], dtype=float)
        self.played += n
        return Episodes([x], [actions], [rewards])


def coin(chance):
    return lambda a, rng, i: float(rng.random() < chance)


class Game(gymnasium.Env):
    """Shows a dictionary, takes a number in [0, 1], pays it, and is truncated after two steps."""

    observation_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})
    action_space = gymnasium.spaces.Box(0, 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return {"a": int(self.np_random.integers(2))}, {}

    def step(self, action):
        assert not isinstance(action, np.ndarray)
        self.steps += 1
        return {"a": int(self.np_random.integers(2))}, float(action), False, self.steps == 2, {}


class TestAccounts:
    def test_one_shift_by_hand(self):
        """Ten ones and shift 1: (2 / (m + 1))^10 = 20 at m = 2 / 20^0.1 - 1."""
        shifts = np.array([1.0])
        sums = LogSums.of(np.ones(10), shifts)
        assert least_mean(sums.logs[0], 10, shifts, 20.0) == pytest.approx(2 / 20**0.1 - 1, abs=1e-12)
        assert least_mean(sums.logs[1], 10, shifts, 20.0) == 0.0

    def test_shifts_share_the_money(self):
        """One observation 1 and m = 0: the average of 2/1 and 3/2 is 7/4, of which no threshold above is reached."""
        shifts = np.array([1.0, 2.0])
        logs = LogSums.of(np.ones(1), shifts).logs[0]
        assert least_mean(logs, 1, shifts, 1.7501) == 0.0
        assert least_mean(logs, 1, shifts, 1.7499) == pytest.approx(0.0, abs=1e-3)
        assert least_mean(logs, 1, shifts, 1.7499) > 0

    def test_sums_add_up(self):
        shifts = np.array([1.0, 3.0])
        whole = LogSums.of(np.array([0.0, 0.25, 1.0]), shifts)
        parts = LogSums.of(np.array([0.25]), shifts) + LogSums.of(np.array([1.0, 0.0]), shifts)
        np.testing.assert_allclose(whole.logs[0], [math.log(2.5), math.log(3 * 3.25 * 4)])
        np.testing.assert_allclose(whole.logs[1], [math.log(2 * 1.75), math.log(4 * 3.75 * 3)])
        np.testing.assert_allclose(parts.logs, whole.logs)
        assert (parts.n, parts.total) == (3, 1.25)

    @pytest.mark.parametrize("wrong", [-1e-12, 1 + 1e-12, math.nan])
    def test_only_numbers_between_0_and_1(self, wrong):
        with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]"):
            LogSums.of(np.array([0.5, wrong]), np.array([1.0]))


class TestSequence:
    def test_bounds_stand_once_they_were_stated(self):
        sequence = ConfidenceSequence(1_000, Share(0.025), Share(0.025))
        sequence.add(np.ones(50))
        before = sequence.lower
        assert 0.85 < before < 0.95
        sequence.add(np.zeros(5))
        assert sequence.lower == before
        fresh = ConfidenceSequence(1_000, Share(0.025), Share(0.025))
        fresh.add(np.repeat([1.0, 0.0], [50, 5]))
        assert fresh.lower < before - 0.05
        assert fresh.upper == sequence.upper < 1
        assert sequence.mean == pytest.approx(50 / 55)

    def test_both_shares_are_spent(self):
        lower, upper = Share(0.05).split(0.5, 0.5)
        ConfidenceSequence(100, lower, upper)
        for share in (lower, upper):
            with pytest.raises(Overspent):
                share.spend()

    def test_each_side_has_its_own_share(self):
        x = np.tile([0.2, 0.9], 100)
        careful, plain = (ConfidenceSequence(200, Share(s), Share(0.02)) for s in (0.001, 0.02))
        careful.add(x)
        plain.add(x)
        assert careful.lower < plain.lower < 0.55 < plain.upper
        mirrored = ConfidenceSequence(200, Share(0.02), Share(0.001))
        mirrored.add(1 - x)
        assert mirrored.upper == pytest.approx(1 - careful.lower, abs=1e-9)
        assert mirrored.lower == pytest.approx(1 - careful.upper, abs=1e-9)

    @pytest.mark.parametrize(
        ("seed", "expected"), [(0, [True, False]), (1, [False, False]), (2, [False, True]), (4, [True, False])]
    )
    def test_the_true_mean_is_excluded_when_its_account_has_reached_the_threshold(self, seed, expected):
        """Looking after every observation; the benchmark counts failures by the accounts of the true mean alone."""
        x = np.random.default_rng(seed).choice([0.3, 0.9], size=60)
        share, shifts, steps = 0.4, shifts_for(60, 0.4), np.arange(1, 61)[:, None]
        sides = (x, 0.6), (1 - x, 0.4)
        wealth = [mixed(np.log(s[:, None] + shifts).cumsum(axis=0) - steps * np.log(m + shifts)) for s, m in sides]
        reached = [bool((w >= math.log(death(Supposed(share)))).any()) for w in wealth]
        sequence = ConfidenceSequence(60, Share(share), Share(share))
        for value in x:
            sequence.add(np.array([value]))
        assert [sequence.lower > 0.6, sequence.upper < 0.6] == reached == expected


class TestCertifyPolicy:
    @pytest.mark.parametrize(
        ("chance", "asked", "verdict", "least", "most"),
        [
            (0.5, {"threshold": 0.4}, Verdict.AT_LEAST, 0.4, 1.0),
            (0.5, {"threshold": 0.6}, Verdict.BELOW, 0.0, 0.6),
            (0.9, {"epsilon": 0.2}, Verdict.WITHIN_EPSILON, 0.7, 1.0),
            (0.5, {"threshold": 0.5, "max_episodes": 70}, Verdict.EPISODES_SPENT, 0.0, 1.0),
        ],
    )
    def test_verdicts(self, chance, asked, verdict, least, most):
        report = certify_policy(Payer(coin(chance)), ALWAYS, **asked)
        assert (report.verdict, report.is_certified) == (verdict, verdict is Verdict.AT_LEAST)
        assert least <= report.lower <= chance <= report.upper <= most
        assert report.width <= asked.get("epsilon", 1.0)
        assert report.episodes <= asked.get("max_episodes", enough_for(0.1, 0.025))

    def test_a_value_equal_to_the_threshold_is_not_below_it(self):
        """A policy that always earns 0.5: the interval shrinks to it, and neither side is ever certain."""
        report = certify_policy(Payer(lambda a, rng, i: 0.5), ALWAYS, threshold=0.5, max_episodes=3_000)
        assert report.verdict is Verdict.EPISODES_SPENT
        assert report.lower < 0.5 < report.upper
        assert report.width < 0.01

    def test_units_are_the_environments_own(self):
        unit = certify_policy(Payer(coin(0.7)), ALWAYS, max_episodes=200)
        scaled = Payer(lambda a, rng, i: -200 + 300 * coin(0.7)(a, rng, i), (-200, 100))
        report = certify_policy(scaled, ALWAYS, max_episodes=200)
        assert report.lower == pytest.approx(-200 + 300 * unit.lower, abs=1e-6)
        assert report.upper == pytest.approx(-200 + 300 * unit.upper, abs=1e-6)
        assert report.mean == pytest.approx(-200 + 300 * unit.mean)
        assert report.units == "total reward of an episode, declared to lie in [-200, 100]"

    def test_a_declared_range_goes_before_the_environments(self):
        wide = certify_policy(Payer(coin(0.7), (-5.0, 5.0)), ALWAYS, max_episodes=200)
        narrow = certify_policy(Payer(coin(0.7), (-5.0, 5.0)), ALWAYS, max_episodes=200, reward_range=(0, 1))
        assert wide.lower < narrow.lower < 0.7 < narrow.upper < wide.upper
        with pytest.raises(RewardOutOfRange, match=r"sum to 1; the declared range of the total is \[0, 0.9\]"):
            certify_policy(Payer(coin(0.7)), ALWAYS, max_episodes=200, reward_range=(0, 0.9))

    def test_the_same_seed_gives_the_same_report(self):
        one, again, other = (certify_policy(Payer(coin(0.5)), ALWAYS, max_episodes=99, seed=k) for k in (1, 1, 2))
        assert one == again
        assert one.mean != other.mean

    def test_looks_come_after_a_batch_then_after_a_sixteenth(self):
        looks = []
        report = certify_policy(Payer(coin(0.5)), ALWAYS, max_episodes=40, batch=2, callback=looks.append)
        assert [look.episodes for look in looks] == [2, *range(4, 41, 2)]
        assert {look.verdict for look in looks[:-1]} == {Verdict.OPEN}
        assert looks[-1].verdict is report.verdict is Verdict.EPISODES_SPENT

    def test_a_law_that_changes_is_noticed(self):
        drifting = Payer(lambda a, rng, i: float(i < 300))
        with pytest.raises(BrokenPromise, match="not independent draws of one law") as stopped:
            certify_policy(drifting, ALWAYS, max_episodes=5_000)
        assert stopped.value.ledger.total == drifting.played > 300

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"policy": 3, "max_episodes": 9}, "an? int arrived"),
            ({"policy": Payer, "max_episodes": 9}, "is a class"),
            ({}, "nothing says when to stop"),
            ({"threshold": 0.0}, r"decides nothing, because totals \(with measure=, its values\) lie in \[0, 1\]"),
            ({"threshold": 1.5}, "decides nothing"),
            ({"threshold": math.nan}, "threshold must be a finite number"),
            ({"epsilon": 0}, "must be above 0"),
            ({"max_episodes": 0}, "max_episodes must be a whole number"),
            ({"max_episodes": 9, "batch": 0.5}, "batch must be a whole number"),
            ({"max_episodes": 9, "delta": 0}, "delta must lie between"),
            ({"max_episodes": 9, "reward_range": (1, 1)}, "every policy earns 1"),
            ({"max_episodes": 9, "reward_range": (0, math.inf)}, "pair .* of finite numbers"),
        ],
    )
    def test_what_cannot_be_done_is_refused(self, given, words):
        with pytest.raises(InvalidInput, match=words):
            certify_policy(Payer(coin(0.5)), given.pop("policy", ALWAYS), **given)


class Model:
    """Takes the action that equals the observation, as Stable-Baselines3 models do."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return np.asarray(observation).astype(np.int64), None


class Counting:
    """A recurrent model: its state counts the steps of each episode, which are its actions."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        levels = np.zeros(len(episode_start), dtype=np.int64) if state is None else state + 1
        assert episode_start.all() == (state is None)
        return (levels if np.ndim(observation) > 1 else levels[0]), levels


class TestIndependence:
    class PerCall:
        """What an episode pays is drawn by a coin that is thrown once per call of `play`; V is 0.5."""

        horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)

        def play(self, policy, n, rng, levels=None):
            x = rng.random((n, 1))
            chance = rng.choice([0.1, 0.9])
            return Episodes((x,), (policy.actions(0, x, rng),), ((rng.random(n) < chance).astype(float),))

    @pytest.mark.parametrize("seed", range(4))
    def test_an_environment_that_draws_something_once_per_call_is_noticed(self, seed):
        with pytest.raises(BrokenPromise, match="draws something once per call") as stopped:
            certify_policy(self.PerCall(), richobs.OpenLoop((0,)), epsilon=0.1, seed=seed)
        assert "probability at most 0.0001" in str(stopped.value)

    def test_the_first_verdicts_rest_on_calls_of_one_episode(self):
        """Where episodes of one call depend on each other, calls of one episode are independent all the same."""
        sizes = []

        class Spy(self.PerCall):
            def play(self, policy, n, rng, levels=None):
                sizes.append(n)
                return super().play(policy, n, rng, levels)

        certify_policy(Spy(), richobs.OpenLoop((0,)), max_episodes=64)
        assert sizes == [1] * 32 + [2] * 8 + [3] * 5 + [1]


class TestPolicies:
    @pytest.mark.parametrize("policy", [Model(), lambda x: int(x), lambda x: np.int64(x)])
    def test_models_and_functions_act_as_policies_do(self, policy):
        class Echo:
            def actions(self, level, x, rng):
                return x

        pay = Payer(lambda a, rng, i: float(a))
        report = certify_policy(pay, policy, max_episodes=80)
        same = certify_policy(pay, Echo(), max_episodes=80)
        assert dataclasses.replace(report, deterministic=False) == same
        assert report.deterministic == isinstance(policy, Model)
        assert ("0.95 the policy, acting deterministically, earns between" in report.claim) == report.deterministic
        assert "0.95 the policy earns between" in same.claim

    def test_a_model_with_a_memory_begins_anew_in_every_episode(self):
        env = richobs.make("lock/3").env
        seen = []

        class Spy(Counting):
            def predict(self, observation, **options):
                actions, state = super().predict(observation, **options)
                seen.append(actions.tolist())
                return actions, state

        certify_policy(env, Spy(), max_episodes=4, batch=2)
        assert seen == [[0, 0], [1, 1], [2, 2]] * 2

    @pytest.mark.parametrize(
        ("space", "last"),
        [
            (gymnasium.spaces.Discrete(2, start=1), 2),
            (gymnasium.spaces.MultiDiscrete([1, 2], start=[4, 7]), [4, 8]),
            (gymnasium.spaces.MultiBinary(1), [1]),
        ],
    )
    def test_a_policy_of_richobs_numbers_the_actions_of_gymnasium_from_0(self, space, last):
        """With the environment itself as with `from_gymnasium`: action 1 is the second one of the space."""

        class Second(Game):
            action_space = space

            def step(self, action):
                assert action in space
                return {"a": 0}, float(np.array_equal(action, last)), True, False, {}

        env = richobs.from_gymnasium(Second(), horizon=1, reward_range=(0, 1), observation=lambda x: x["a"])
        for number in (0, 1):
            for played in (Second(), env):
                policy = richobs.OpenLoop((number,))
                assert certify_policy(played, policy, max_episodes=3, reward_range=(0, 1)).mean == number
        own = type("Own", (), {"actions": lambda self, level, x, rng: np.array([last])})()
        if np.ndim(last):  # an action of the space itself
            assert certify_policy(Second(), own, max_episodes=3, reward_range=(0, 1)).mean == 1
        with pytest.raises(InvalidInput, match="policy chose must be a whole number, at least 0, at most 1; got 2"):
            certify_policy(Second(), richobs.OpenLoop((2,)), max_episodes=3, reward_range=(0, 1))

    def test_gymnasium_with_any_spaces_and_a_model_with_a_memory(self):
        report = certify_policy(Game(), lambda x: np.array(x["a"] / 2), max_episodes=300, reward_range=(0, 2))
        assert report.lower < 0.5 < report.upper
        assert report.width < 0.3
        report = certify_policy(Game(), Counting(), max_episodes=5, reward_range=(0, 2))
        assert report.mean == 1.0  # 0 at the first step of every episode, 1 at the second


class TestReport:
    REPORT = PolicyReport(0.40008, 0.59992, 0.5, 384, 0.0246612, Verdict.AT_LEAST, (0.0, 1.0), 0.4)

    def test_the_claim_rounds_outwards(self):
        assert self.REPORT.claim == (
            "With probability at least 0.9753 the policy earns between 0.4 and 0.6 per episode in expectation, which "
            "is at least 0.4, provided that episodes are independent and every total lies in [0, 1]."
        )
        wide = PolicyReport(-123.4567, 45.6712, 0.0, 9, 1e-9, Verdict.OPEN, (-200, 100))
        assert "at least 0.999999999 the policy earns between -123.5 and 45.68 per episode" in wide.claim

    @pytest.mark.parametrize(
        ("low", "high", "lower", "upper", "words"),
        [
            (-0.00004, 1.00004, -0.00004, 0.5, "earns at most 0.5 per"),  # the end of the range is no finding
            (-1.0, 1.0, -0.3, -0.00003, "between -0.3 and -3·10^-5 per"),
            (0.0, 1.0, 0.0, 1.0, "between 0 and 1, all of the declared range, per"),
            (1000.0, 1001.0, 1000.2537, 1001.0, "earns at least 1000.253 per"),
            (0.0, 1.0, 0.29999999999999, 0.30000000000001, "between 0.2999 and 0.3001 per"),
            (0.0, 3e9, 123456.0, 1e9 + 1, "between 123400 and 1.01·10^9 per"),
        ],
    )
    def test_bounds_in_words_hold(self, low, high, lower, upper, words):
        assert words in PolicyReport(lower, upper, 0.0, 9, 0.05, Verdict.OPEN, (low, high)).claim


@pytest.fixture
def sb3(monkeypatch):
    """What is used of Stable-Baselines3, in a few lines."""

    class BaseCallback(abc.ABC):
        def __init__(self, verbose=0):
            self.verbose, self.num_timesteps = verbose, 0

        @abc.abstractmethod
        def _on_step(self): ...

    def evaluate_policy(model, env, n, *, deterministic, return_episode_rewards, warn):
        assert deterministic
        assert return_episode_rewards
        return [model.skill] * n, [1] * n

    for name in ("stable_baselines3", "stable_baselines3.common"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name, thing in (("callbacks", BaseCallback), ("evaluation", evaluate_policy)):
        module = types.ModuleType(f"stable_baselines3.common.{name}")
        setattr(module, thing.__name__, thing)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return BaseCallback


class Trained:
    """A model that earns its skill, which grows by 0.1 with every step of training."""

    skill = 0.0

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), dtype=np.int64), None

    def get_parameters(self):
        return {"policy": {"skill": np.array(self.skill), "name": "linear"}}

    def learn(self, steps, callback):
        callback.model, callback.num_timesteps = self, 0
        callback._on_training_start()
        for step in range(1, steps + 1):
            callback.num_timesteps = step
            self.skill = round(self.skill + 0.1, 1)
            if not callback._on_step():
                return


class TestCallback:
    def test_training_stops_when_the_policy_is_certified(self, sb3, capsys):
        model = Trained()
        env = Payer(lambda a, rng, i: model.skill)
        callback = CertifyCallback(env, threshold=0.55, every=2, verbose=1, max_episodes=500)
        assert isinstance(callback, sb3)
        model.learn(10, callback)
        assert model.skill == 0.6  # checked at 0.2, 0.4 and 0.6
        assert callback.certified
        assert [r.verdict for r in callback.reports] == [Verdict.BELOW, Verdict.BELOW, Verdict.AT_LEAST]
        assert callback.claim.startswith(
            "With probability at least 0.95, over all 3 checks, the policy, acting deterministically, earns at least 0.55"
        )
        assert capsys.readouterr().out.startswith("2 steps: With probability at least 0.97")

    def test_a_claim_is_of_the_parameters_that_were_checked(self, sb3):
        model = Trained()
        callback = CertifyCallback(Payer(lambda a, rng, i: model.skill), 0.55, every=6, max_episodes=500)
        assert (callback.certified, callback.claim[:19]) == (False, "None of the 0 polic")
        model.learn(8, callback)
        assert callback.certified
        model.skill = 0.1
        assert not callback.certified
        assert callback.claim == (
            "The policy as it is now is not known to earn at least 0.55, acting deterministically: it was trained further "
            "after a check had certified that."
        )
        model.skill = 0.6
        assert callback.certified

    def test_parameters_are_told_apart(self):
        class Policy:
            def __init__(self, **parameters):
                self.state_dict = lambda: parameters

        class Model:
            def __init__(self, **parameters):
                self.policy = Policy(**parameters)

        one = np.zeros(3, dtype=np.float32)
        digest = parameter_digest(Model(a=one, b=one + 1))
        assert digest == parameter_digest(Model(b=one + 1, a=one.copy()))
        others = [Model(a=one + 1, b=one), Model(a=one, b=one + 2), Model(a=one, c=one + 1), Model(a=one), object()]
        assert len({digest, *map(parameter_digest, others)}) == 6

    def test_every_check_has_its_part_of_delta_and_its_seed(self, sb3):
        model = Trained()
        callback = CertifyCallback(Payer(coin(0.5)), threshold=0.9, every=1, delta=0.1)
        model.learn(3, callback)
        terms = [0.1 / (2.1098 * (j + 1) * math.log(j + 1) ** 2) for j in (1, 2, 3)]
        assert [r.delta for r in callback.reports] == pytest.approx(terms)
        assert len({r.seed for r in callback.reports}) == 3
        assert not callback.certified
        words = "None of the 3 policies checked is known to earn at least 0.9, acting deterministically."
        assert callback.claim == words

    def test_vector_environments_are_played_by_evaluate_policy(self, sb3):
        class Vector:
            num_envs, seeds = 4, ()

            def step_async(self, actions): ...

            def step_wait(self): ...

            def seed(self, seed=None):
                self.seeds += (seed,)

        model, env = Trained(), Vector()
        callback = CertifyCallback(env, 30.0, 5, reward_range=(0, 100), max_episodes=100)
        model.learn(5, callback)
        assert callback.reports[0].mean == pytest.approx(0.5)
        assert len(set(env.seeds)) == len(env.seeds) > 0
        model.skill = 1e-6  # as Monitor writes 6e-7
        tiny = certify_policy(env, model, threshold=8e-7, reward_range=(0, 1e-6), max_episodes=300)
        assert (tiny.verdict, tiny.mean) == (Verdict.EPISODES_SPENT, pytest.approx(1e-6))
        assert tiny.lower == pytest.approx(0.97e-6 - 5e-7 - 1e-9, abs=2e-8)
        model.skill = 0.666667  # as Monitor writes 2/3: not out of range
        assert certify_policy(env, model, reward_range=(0, 2 / 3), max_episodes=9).upper == 2 / 3
        with pytest.raises(InvalidInput, match="played by a policy with predict"):
            certify_policy(env, lambda x: 0, max_episodes=9, reward_range=(0, 1))

    def test_without_stable_baselines3_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", None)
        with pytest.raises(InvalidInput, match=r"pip install 'richobs\[sb3\]'"):
            CertifyCallback(Payer(coin(0.5)), 0.5, 10)

    def test_what_cannot_be_asked_is_refused_before_training(self, sb3):
        payer = Payer(coin(0.5))
        asked = ((payer, 0.5, 0), "at least 1; got 0"), ((payer, 7, 10), "7 decides"), ((Game(), 1, 10), "not declare")
        for given, words in asked:
            with pytest.raises(InvalidInput, match=words):
                CertifyCallback(*given)

    def test_the_next_training_is_checked_anew(self, sb3):
        """Steps are counted from the beginning of each training, and what was certified before it is forgotten."""
        model = Trained()
        callback = CertifyCallback(Payer(lambda a, rng, i: min(model.skill, 1.0)), 0.25, every=4, max_episodes=500)
        model.learn(9, callback)
        assert (model.skill, len(callback.reports), callback.certified) == (0.4, 1, True)
        callback._on_training_start()
        assert not callback.certified
        model.skill = -0.5  # the next check comes after four more steps
        model.learn(3, callback)
        assert (len(callback.reports), callback.certified) == (1, False)
        model.skill = 0.0
        model.learn(9, callback)
        assert (model.skill, len(callback.reports), callback.certified) == (0.4, 2, True)
        assert callback.reports[0].delta > callback.reports[1].delta  # of one delta for both trainings


class TestCommand:
    @pytest.fixture
    def policy(self, tmp_path):
        problem = richobs.make("lock/3")
        richobs.LearnedPolicy(problem.functions, problem.optimal_function).save(tmp_path / "policy.npz")
        return str(tmp_path / "policy.npz")

    def test_a_threshold_that_is_reached(self, capsys, policy, tmp_path):
        out = tmp_path / "value.json"
        assert main(["value", "--policy", policy, "lock/3", "--threshold", "0.4", "--out", str(out)]) == 0
        said = capsys.readouterr().out
        assert said.startswith("With probability at least 0.95 the policy earns between 0.4")
        assert "the policy earns at least the threshold" in said
        stored = json.loads(out.read_text())
        assert (stored["verdict"], stored["claim"]) == ("AT_LEAST", said.splitlines()[0])

    def test_what_was_certain_when_it_was_stopped_is_printed(self, capsys, policy, monkeypatch):
        plays = iter(range(3))

        def stop(report):
            if next(plays) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(PolicyReport, "decided", lambda report, limit: stop(report) or Verdict.OPEN)
        assert main(["value", "lock/3", "--policy", policy, "--threshold", "0.5"]) == 130
        assert "stopped. With probability at least 0.95 the policy earns between" in capsys.readouterr().err


def test_a_notebook_that_cannot_draw_is_shown_nothing(monkeypatch, capsys):
    """Rich would print a warning with the path of its own file there."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("richobs.show.terminal.importlib.util.find_spec", lambda name: None)
    certify_policy(richobs.make("lock/2"), richobs.Uniform(4), max_episodes=100, progress=True)
    assert capsys.readouterr() == ("", "")
