"""A model of a Gymnasium environment is a model of what is played: noise, wrappers and other rules are noticed."""

import functools
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from gymnasium.envs.toy_text.taxi import TaxiEnv

import richobs
from richobs import Model
from richobs.classes.published import FALSE_ALARM, _Accounts
from richobs.core.errors import InvalidInput

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
CLIFF = "CliffWalking-v1" if "CliffWalking-v1" in gymnasium.registry else "CliffWalking-v0"
RANDOM = r"is random behind its start: with two seeds the actions \("


class Walk(gymnasium.Env):
    """Shows how many of the actions so far were 1, and pays nothing; subclasses add noise."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(40)
    first, slip, pay, stop = (lambda self: 0,) * 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.first()
        return np.int64(self.place), {}

    def step(self, action):
        self.place += int(action) + self.slip()
        return np.int64(self.place), float(self.pay()), bool(self.stop()), False, {}


def own_noise(n):
    """A method that ignores the seed: it draws from a generator of its own."""
    rng = np.random.default_rng(0)
    return lambda self: int(rng.integers(n))


def walk(**methods):
    """A subclass of Walk with other methods."""
    return type("Noisy", (Walk,), methods)


class TestReplay:
    """`Model.by_replay` refuses what several plays show to be random."""

    @pytest.mark.parametrize("arguments", [{}, {"seed": 0}, {"seed": 3, "markov": True}])
    @pytest.mark.parametrize("given", ["env", "id", "function"])
    def test_a_slippery_lake_is_not_taken_for_a_deterministic_one(self, given, arguments):
        make = functools.partial(gymnasium.make, "FrozenLake-v1")
        lake = {"env": make(), "id": "FrozenLake-v1", "function": make}[given]
        with pytest.raises(InvalidInput, match=f"FrozenLakeEnv {RANDOM}"):
            Model.by_replay(lake, 7, **arguments)

    @pytest.mark.parametrize("markov", [False, True])
    @pytest.mark.parametrize(
        "noise",
        [
            {"slip": lambda self: self.np_random.integers(2)},
            {"slip": lambda self: self.place == 3 and self.np_random.integers(2)},  # in one state only
            {"pay": lambda self: self.np_random.integers(2)},
            {"pay": lambda self: self.np_random.normal()},
            {"stop": lambda self: self.np_random.random() < 0.3},
            {"slip": own_noise(2)},
        ],
    )
    def test_noise_in_steps_rewards_or_ends(self, noise, markov):
        for arguments in ({}, {"seed": 1}):
            with pytest.raises(InvalidInput, match=RANDOM):
                Model.by_replay(walk(**noise), 6, markov=markov, **arguments)

    def test_copies_that_differ(self):
        numbers = itertools.count()
        make = walk(__init__=lambda self: setattr(self, "number", next(numbers)), slip=lambda self: self.number % 2)
        with pytest.raises(InvalidInput, match=RANDOM):
            Model.by_replay(make, 3)
        assert Model.by_replay(make(), 3).n_states == 7

    @pytest.mark.parametrize("markov", [False, True])
    def test_a_random_start_needs_a_seed(self, markov):
        make = walk(first=lambda self: int(self.np_random.integers(9)))
        with pytest.raises(InvalidInput, match=r"starts at random: with two seeds .* give seed= here and in from_gym"):
            Model.by_replay(make, 3, markov=markov)
        found = Model.by_replay(make, 3, seed=5, markov=markov)
        assert found.shown[0] == make().reset(seed=5)[0]

    def test_a_start_that_does_not_follow_from_the_seed(self):
        make = walk(first=own_noise(9))
        with pytest.raises(InvalidInput, match=r"starts at random: with the seed 5 twice .* reset has to use the seed"):
            Model.by_replay(make, 3, seed=5)

    def test_noise_behind_a_random_start_is_noticed_by_seeds_that_start_alike(self):
        make = walk(first=lambda self: int(self.np_random.integers(9)), slip=lambda self: self.np_random.integers(2))
        with pytest.raises(InvalidInput, match=RANDOM):
            Model.by_replay(make, 3, seed=5)

    def test_a_budget_covers_all_plays(self):
        with pytest.raises(InvalidInput, match="budget of 23 steps"):
            Model.by_replay(Walk, 2, markov=True, budget=23)


class Lake(FrozenLakeEnv):
    """A lake whose subclasses play other rules than they publish."""


class Restless(Lake):
    """One action in twenty is another one."""

    def step(self, a):
        return super().step(int(self.np_random.integers(4)) if self.np_random.random() < 0.05 else a)


class Generous(Lake):
    """Every reward is doubled."""

    def step(self, a):
        seen, reward, *rest = super().step(a)
        return seen, 2 * reward, *rest


class Impatient(Lake):
    """Truncated after nine steps, without a wrapper."""

    def reset(self, **options):
        self.steps = 0
        return super().reset(**options)

    def step(self, a):
        self.steps += 1
        seen, reward, terminated, _, info = super().step(a)
        return seen, reward, terminated, self.steps >= 9, info


class ElsewhereAtFirst(Lake):
    """One episode in ten starts in another cell."""

    def reset(self, **options):
        super().reset(**options)
        self.s = 4 if self.np_random.random() < 0.1 else 0
        return self.s, {}


class Weighted(Lake):
    """Goes where it should in one of two cases, and publishes one of three."""

    def step(self, a):
        listed = self.P[self.s][a]
        if len(listed) == 3:
            self.P[self.s][a] = [(p, *rest) for p, (_, *rest) in zip((0.25, 0.5, 0.25), listed, strict=True)]
        before = self.s
        try:
            return super().step(a)
        finally:
            self.P[before][a] = listed


class SecretlyFickle(TaxiEnv):
    """A taxi whose passenger changes his mind, and whose attribute denies it."""

    def _fickle(self, call, *args, **options):
        self.fickle_passenger = True
        try:
            return call(*args, **options)
        finally:
            self.fickle_passenger = False

    def reset(self, **options):
        return self._fickle(super().reset, **options)

    def step(self, a):
        return self._fickle(super().step, a)


class OneCorner(TaxiEnv):
    """Half of the episodes start in 30 of the 300 states that are published as equally likely."""

    def reset(self, **options):
        super().reset(**options)
        if self.np_random.random() < 0.5:
            self.s = int(np.flatnonzero(self.initial_state_distrib)[self.np_random.integers(30)])
        return self.s, {}


class TestPublishedOutcomes:
    """`Model.of_gymnasium` and `Simulators` believe `P` only where the environment plays it."""

    @pytest.mark.parametrize("call", [Model.of_gymnasium, lambda env, horizon: richobs.Simulators([env], horizon)])
    @pytest.mark.parametrize(
        ("wrapper", "name"),
        [
            (lambda env: wrappers.TransformAction(env, lambda a: (a + 1) % 4, env.action_space), "TransformAction"),
            (lambda env: wrappers.TransformReward(env, lambda r: 2 * r), "TransformReward"),
            (lambda env: wrappers.StickyAction(env, 0.5), "StickyAction"),
            (lambda env: wrappers.Autoreset(env), "Autoreset"),
            (lambda env: type("MyLimit", (wrappers.TimeLimit,), {})(env, 50), "MyLimit"),
        ],
    )
    def test_a_wrapper_is_refused_by_its_name(self, wrapper, name, call):
        env = wrappers.OrderEnforcing(wrapper(gymnasium.make("FrozenLake-v1", is_slippery=False)))
        with pytest.raises(InvalidInput, match=f"FrozenLakeEnv is wrapped in {name}.*`P` do not show"):
            call(env, 20)

    def test_wrappers_that_change_nothing_pass(self):
        bare = FrozenLakeEnv()
        wrapped = wrappers.RecordEpisodeStatistics(gymnasium.make("FrozenLake-v1"))
        for name in ("probability", "next", "reward", "done", "start"):
            same = (getattr(Model.of_gymnasium(env, 5), name) for env in (bare, wrapped))
            np.testing.assert_array_equal(*same)

    def test_a_time_limit_below_the_horizon_is_refused(self):
        cliff = gymnasium.make(CLIFF, max_episode_steps=100)
        with pytest.raises(InvalidInput, match=r"time limit of 100 steps.* horizon is 101\. Use horizon=100"):
            Model.of_gymnasium(cliff, 101)
        assert Model.of_gymnasium(cliff, 100).horizon == 100
        with pytest.raises(InvalidInput, match="time limit of 7 steps"):
            Model.of_gymnasium(wrappers.TimeLimit(cliff, 7), 8)

    def test_a_passenger_who_changes_his_mind_is_not_in_the_outcomes(self):
        pytest.importorskip("gymnasium", minversion="1.3")
        with pytest.raises(InvalidInput, match="fickle_passenger=True"):
            Model.of_gymnasium(gymnasium.make(TAXI, fickle_passenger=True), 6)
        with pytest.raises(InvalidInput, match=r"does not play the outcomes that it publishes: action \d in state"):
            Model.of_gymnasium(SecretlyFickle(), 25)

    @pytest.mark.parametrize("slippery", [False, True])
    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            (Restless, r"action \d in state \d+ led to (state|the end)"),
            (Generous, r"led to the end and the reward 2\.0\. `P` says: .*the end and the reward 1\.0"),
            (Impatient, "was truncated after 9 steps, before the horizon"),
            (ElsewhereAtFirst, "a reset led to state 4 .* `P` says: state 0"),
        ],
    )
    def test_other_rules_than_published_are_noticed(self, kind, words, slippery):
        with pytest.raises(InvalidInput, match=words):
            Model.of_gymnasium(kind(is_slippery=slippery), 20)

    @pytest.mark.parametrize(("env", "last"), [(Weighted(), "action"), (OneCorner(), "a reset")])
    def test_other_frequencies_than_published_are_noticed(self, env, last):
        with pytest.raises(InvalidInput, match=rf"of which {last}.*more or less frequent than `P` says"):
            Model.of_gymnasium(env, 20)

    def test_honest_environments_pass(self):
        for seed in range(8):
            lake = FrozenLakeEnv(desc=generate_random_map(4 + seed % 3, seed=seed))
            assert Model.of_gymnasium(lake, 15).n_states == lake.observation_space.n
        rain = gymnasium.make(TAXI, **({"is_rainy": True} if TAXI == "Taxi-v4" else {}))
        assert Model.of_gymnasium(rain, 25).n_actions == 6
        changed = gymnasium.make("FrozenLake-v1")  # steps follow `P`, so it may be changed
        changed.unwrapped.P[0][0] = [(1.0, 5, 0.0, True)]
        assert Model.of_gymnasium(changed, 4).done[0, 0, 0]

    def test_an_honest_coin_is_refused_rarely_and_a_bent_one_soon(self):
        """The account of a fair coin ever reaches 1/a with probability at most a (here 1/20, of 400 coins)."""
        law = {(0, 0.0, False): 0.5, (1, 0.0, False): 0.5}
        rng, alarms = np.random.default_rng(0), []
        for heads in (0.5, 0.8):
            logs = []
            for _ in range(400):
                account = _Accounts()
                tosses = rng.random(100) < heads
                refused = [account.see("coin", law, (int(toss), 0.0, False)) for toss in tosses]
                logs.append(account.largest)
                assert not (heads == 0.5 and any(refused))
            alarms.append(np.mean(np.array(logs) >= np.log(20)))
        assert alarms[0] <= 0.08  # a binomial with 400 and 0.05 exceeds 32 with probability 0.004
        assert alarms[1] >= 0.9
        assert FALSE_ALARM == 1e-6
