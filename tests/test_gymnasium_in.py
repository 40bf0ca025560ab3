"""Gymnasium environments that people bring: what is played, what is refused, and what is learned."""

import functools
import sys
import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import richobs
from richobs.core.environment import Episodes, checked_episodes, step_range
from richobs.core.errors import BrokenPromise, InvalidInput, Rejected, RewardOutOfRange
from richobs.core.policies import OpenLoop, Uniform
from richobs.core.randomness import keyed_generator
from richobs.engines import Calls
from richobs.runs.store import StoredRun
from richobs.show import write_report
from richobs.worlds import gymnasium_in
from richobs.worlds.gymnasium_in import GymnasiumSpec, environment_from_spec, from_gymnasium, looks_deterministic
from richobs_lab.worlds import frozen_lake

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
CLIFF = "CliffWalking-v1" if "CliffWalking-v1" in gymnasium.registry else "CliffWalking-v0"
DRY = {"horizon": 8, "reward_range": (0, 1), "is_slippery": False}  # FrozenLake without slipping
TO_THE_GOAL = (1, 1, 2, 2, 1, 2)


def generator(seed=0):
    return keyed_generator(seed, "test")


def play(env, policy, n, seed=0, levels=None):
    """Plays n checked episodes."""
    played = env.play(policy, n, generator(seed), levels)
    return checked_episodes(played, env, policy, n, env.horizon if levels is None else levels)


def same(a, b):
    columns = ("observations", "actions", "rewards", "ended")
    return all(np.array_equal(x, y) for c in columns for x, y in zip(getattr(a, c), getattr(b, c), strict=True))


class Line(gymnasium.Env):
    """A walk along a line: the observation is the place, an action 0 or 1 goes on so far; places from 3 on are the end."""

    observation_space = spaces.Discrete(10)
    action_space = spaces.Discrete(2)
    rewards = (0.0, 0.25)
    open = 0  # how many are open
    resets = 0

    def __init__(self):
        type(self).open += 1
        self.place = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        type(self).resets += 1
        self.place = 0
        return self.show(), {}

    def step(self, action):
        assert self.place < 3, "the episode is over"
        self.place += int(action)
        return self.show(), self.rewards[int(action)], self.place >= 3, False, {}

    def show(self):
        return self.place

    def close(self):
        type(self).open -= 1


def fresh(name, **attributes):
    """A subclass of Line with counters of its own."""
    return type(name, (Line,), {"open": 0, "resets": 0, **attributes})


def on_the_line(make, horizon=5, **arguments):
    return from_gymnasium(make, horizon=horizon, **{"reward_range": (0, 1), **arguments})


class TestPlaying:
    @pytest.mark.parametrize(
        ("id", "arguments", "shape", "kind"),
        [
            ("FrozenLake-v1", {"reward_range": (0, 1)}, (), "int64"),
            (CLIFF, {"step_range": (-100, -1)}, (), "int64"),
            (TAXI, {"step_range": (-10, 20)}, (), "int64"),
            ("Blackjack-v1", {"reward_range": (-1, 1)}, (3,), "int64"),
            ("CartPole-v1", {"step_range": (1, 1)}, (4,), "float32"),
            ("MountainCar-v0", {"step_range": (-1, -1)}, (2,), "float32"),
            ("richobs/Lock-v0", {"reward_range": (0, 1), "richobs_id": "lock/20"}, (8,), "int8"),
        ],
    )
    def test_problems_of_others_take_one_line(self, id, arguments, shape, kind):
        with from_gymnasium(id, horizon=20, **arguments) as env:
            played = play(env, Uniform(env.n_actions), 6)
            assert [x.shape for x in played.observations] == [(6, *shape)] * 20
            assert {str(x.dtype) for x in played.observations} == {kind}
            assert same(played, play(env, Uniform(env.n_actions), 6))
            assert not same(played, play(env, Uniform(env.n_actions), 6, seed=1))
            assert env.real_episodes == 18

    def test_an_episode_that_ends_early_earns_and_shows_nothing_after_its_end(self):
        with from_gymnasium("FrozenLake-v1", **DRY) as env:
            played = play(env, OpenLoop(TO_THE_GOAL), 2)
        assert [x.tolist() for x in played.observations] == [[s] * 2 for s in (0, 4, 8, 9, 10, 14, 0, 0)]
        assert [r.tolist() for r in played.rewards] == [[r] * 2 for r in (0, 0, 0, 0, 0, 1, 0, 0)]
        assert [e.tolist() for e in played.ended] == [[e] * 2 for e in (*[False] * 6, True, True)]

    def test_it_does_not_matter_who_holds_the_copies(self):
        """One environment, a copy of it here, and one that processes may share: the same seeds, so the same episodes."""
        arguments = {"horizon": 12, "step_range": (1, 1)}
        policy = OpenLoop((1,) * 12)  # the pole falls after 8 to 11 steps
        one = gymnasium.make("CartPole-v1")
        with (
            from_gymnasium("CartPole-v1", **arguments) as copies,
            from_gymnasium(functools.partial(gymnasium.make, "CartPole-v1"), **arguments, vector=2) as processes,
        ):
            expected = play(copies, policy, 5)
            assert expected.ended[-1].any()
            assert same(expected, play(from_gymnasium(one, **arguments), policy, 5))
            assert same(expected, play(processes, policy, 5))
            assert (copies.declared.processes, processes.declared.processes) == (1, 2)

    def test_native_vector_environments(self):
        """Episodes end as in copies, and what a copy does after its own restart is ignored."""
        with (
            from_gymnasium("CartPole-v1", horizon=40, step_range=(1, 1), vector="native") as native,
            from_gymnasium("CartPole-v1", horizon=40, step_range=(1, 1)) as copies,
        ):
            always_left = OpenLoop((0,) * 40)
            one, other = play(native, always_left, 100).returns, play(copies, always_left, 100).returns
            assert {8.0, 9.0, 10.0} <= set(one) | set(other) <= {8.0, 9.0, 10.0, 11.0}
            assert abs(one.mean() - other.mean()) < 0.3
            assert same(play(native, always_left, 3), play(native, always_left, 3))

    @pytest.mark.parametrize("vector", [None, "native"])
    def test_worlds_of_this_package_come_back_through_gymnasium(self, vector):
        problem = richobs.make("lock/3")
        policy = problem.optimal_policy()
        with from_gymnasium(
            "richobs/Lock-v0", horizon=3, reward_range=(0, 1), vector=vector, richobs_id="lock/3"
        ) as env:
            mean = play(env, policy, 400).returns.mean()
        assert problem.optimal_value == pytest.approx(mean, abs=0.1)  # Hoeffding: farther with probability 0.0007
        assert problem.optimal_value > 0.4

    def test_levels_and_rounds(self):
        env = on_the_line(Line)
        assert play(env, OpenLoop((1, 1)), 33, levels=2).returns.tolist() == [0.5] * 33
        for n, levels in ((0, 2), (1, 0), (1, 6)):
            with pytest.raises(InvalidInput, match="1 to 5 levels"):
                env.play(OpenLoop(()), n, generator(), levels)

    def test_truncation_is_an_end(self):
        with from_gymnasium(CLIFF, horizon=5, step_range=(-100, -1), max_episode_steps=3) as env:
            played = play(env, OpenLoop((0, 0, 0, 0, 0)), 1)
        assert np.ravel(played.rewards).tolist() == [-1, -1, -1, 0, 0]
        assert np.ravel(played.ended).tolist() == [False, False, False, True, True]
        assert env.reward_range == (-500, -1)


class TestSeeds:
    def test_a_seed_does_not_freeze_random_steps_in_silence(self):
        arguments = {"horizon": 20, "reward_range": (0, 1)}
        with pytest.raises(InvalidInput, match=r"With seed=0 the random steps would be the same in every episode"):
            from_gymnasium("FrozenLake-v1", seed=0, **arguments)
        with from_gymnasium("FrozenLake-v1", seed=0, deterministic=True, **arguments) as frozen:
            assert len({tuple(p) for p in np.stack(play(frozen, OpenLoop((2, 1) * 10), 8).observations, 1)}) == 1

    @pytest.mark.parametrize("deterministic", [False, True])
    def test_a_claim_names_the_seed_of_every_episode(self, deterministic, tmp_path):
        """In the claim, the certificate, the page and the report on a policy; a run with fresh seeds names none."""
        words = "every episode is reset with the seed 7, so that its random numbers are the same each time"
        lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
        functions = richobs.Simulators([lake], horizon=8)
        with from_gymnasium("FrozenLake-v1", **DRY, seed=7, deterministic=deterministic) as env:
            outcome = richobs.learn(env, functions, epsilon=0.5, max_episodes=80, out=tmp_path)
            assert outcome.claim.count(words) == 1
            assert words in richobs.learn(env, functions, epsilon=0.5, assume="model").claim
            assert f"provided that {words}, that " in richobs.certify_policy(env, outcome.policy, max_episodes=8).claim
        assert words in richobs.Certificate.load(tmp_path / "certificate.json").claim
        (page, *_) = write_report([StoredRun.read(tmp_path)], tmp_path / "page.html", figures=False)
        assert words in page.read_text()
        with from_gymnasium("FrozenLake-v1", **DRY, deterministic=deterministic) as env:
            assert "seed" not in richobs.certify_policy(env, outcome.policy, max_episodes=8).claim


@pytest.mark.parametrize("raises", ["reset", "step"])
@pytest.mark.parametrize("made", [True, False])
def test_a_stop_iteration_of_an_environment_reaches_its_owner(raises, made):
    """Generators turn it into a RuntimeError, and `map` takes it for the end of the episodes."""

    def raising(self, *args, **options):
        raise StopIteration("the tape is over")

    tape = fresh("Tape", **{raises: raising})
    env = on_the_line(tape() if made else tape)
    with pytest.raises(StopIteration, match="the tape is over"):
        richobs.learn(env, richobs.Tables(np.zeros((2, 10, 2)), 5))
    with pytest.raises(StopIteration, match="the tape is over"):
        richobs.certify_policy(env, Uniform(2), max_episodes=5)


class TestActions:
    @pytest.mark.parametrize(
        ("space", "expected", "vector"),
        [
            (spaces.Discrete(3, start=5), [5, 6, 7], None),
            (spaces.Discrete(3, start=5), [5, 6, 7], 1),
            (spaces.MultiDiscrete([2, 3]), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]], None),
            (spaces.MultiDiscrete([1, 2], start=[4, 7]), [[4, 7], [4, 8]], 1),
            (spaces.MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]], None),
        ],
    )
    def test_actions_are_numbered(self, space, expected, vector):
        def step(self, action):
            assert action in space
            assert np.asarray(action).dtype == space.dtype
            return 0, float(expected.index(np.asarray(action).tolist())), True, False, {}

        numbered = fresh("Numbered", action_space=space, step=step)
        with from_gymnasium(numbered, horizon=1, step_range=(0, 10), vector=vector) as env:
            assert env.n_actions == len(expected)
            assert [play(env, OpenLoop((a,)), 1).returns[0] for a in range(env.n_actions)] == list(range(len(expected)))

    @pytest.mark.parametrize(
        ("space", "sentence"),
        [(spaces.Box(0, 1), "needs finitely many actions"), (spaces.MultiBinary(30), r"has 1\.07e\+09 actions")],
    )
    def test_actions_that_cannot_be_numbered(self, space, sentence):
        continuous = fresh("Continuous", action_space=space)
        with pytest.raises(InvalidInput, match=sentence):
            on_the_line(continuous)
        assert continuous.open == 0


class TestObservations:
    @pytest.mark.parametrize(
        ("space", "show", "expected", "marker"),
        [
            (spaces.Discrete(9, start=4), 5, 5, 4),
            (spaces.MultiDiscrete([3, 3], start=[1, 1]), [2, 1], [2, 1], [1, 1]),
            (spaces.MultiBinary(2), [1, 0], [1, 0], [0, 0]),
            (spaces.Text(5), "abc", "abc", ""),
            (spaces.Box(0, 255, (1, 2), np.uint8), [[7, 8]], [[7, 8]], [[0, 0]]),
            (spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))), (2, [0.5, 1]), [2, 0.5, 1], [0, 0, 0]),
        ],
    )
    def test_spaces_become_rows(self, space, show, expected, marker):
        rewards = (0.0, 0.25)
        shown = {"observation_space": space, "show": lambda self: show}
        ends = fresh("Ends", step=lambda self, a: (show, rewards[int(a)], bool(a), False, {}), **shown)
        with on_the_line(ends) as env:
            played = play(env, OpenLoop((0, 1)), 2, levels=3)
        assert [x[1].tolist() for x in played.observations] == [expected, expected, marker]
        assert len({x.dtype for x in played.observations}) == 1
        assert played.ended[2].all()

    def test_a_function_of_the_observation(self):
        space = spaces.Dict({"place": spaces.Discrete(10), "noise": spaces.Box(0, 1)})
        fake = fresh("Fake", observation_space=space, show=lambda self: {"place": self.place, "noise": [0.5]})
        with pytest.raises(InvalidInput, match=r"an observation of Dict.* is not an array\. Give observation="):
            on_the_line(fake)
        assert fake.open == 0
        for vector in (None, 1):
            with on_the_line(fake, observation=lambda x: [x["place"], 1], vector=vector) as env:
                played = play(env, OpenLoop((1,) * 5), 2)
                assert [x[0].tolist() for x in played.observations] == [[0, 1], [1, 1], [2, 1], [0, 0], [0, 0]]

    def test_the_end_may_have_an_observation_of_its_own(self):
        for arguments in ({"end_observation": 9}, {"observation": lambda x: x, "end_observation": 9}):
            played = play(on_the_line(Line, **arguments), OpenLoop((1,) * 5), 1)
            assert np.ravel(played.observations).tolist() == [0, 1, 2, 9, 9]
        with pytest.raises(Rejected, match="observations here are int64"):
            play(on_the_line(Line, end_observation=[1, 2]), OpenLoop((1,) * 5), 1)

    def test_an_environment_may_use_its_array_again(self):
        def show(self):
            self.__dict__.setdefault("array", np.zeros(2, np.float32))[:] = self.place
            return self.array

        again = fresh("Again", observation_space=spaces.Box(0, 9, (2,)), show=show)
        for arguments in ({}, {"deterministic": True}, {"observation": lambda x: x}):
            env = on_the_line(again, **arguments)
            for _ in range(2):
                played = play(env, OpenLoop((1, 0, 1, 0)), 2)
                assert [x[1, 0] for x in played.observations] == [0, 1, 1, 2, 2]

    @pytest.mark.parametrize(
        ("space", "shown", "function"),
        [
            (spaces.Box(0, 9, (2,)), lambda i: np.zeros(2 + i), None),
            (spaces.Discrete(9), lambda i: i / 2, None),
            (spaces.Box(0, 9, ()), lambda i: 1j * i, None),
            (spaces.MultiBinary(1), lambda i: [300 * i], None),
            (spaces.Text(2), lambda i: "ab" + "c" * i, None),
            (spaces.Discrete(9), lambda i: i, lambda x: [0] * (1 + x)),
            (spaces.Discrete(9), lambda i: i, lambda x: 0 if x == 0 else 0.5),
        ],
    )
    def test_observations_that_change_their_shape_or_type_are_rejected(self, space, shown, function):
        changing = fresh("Changing", observation_space=space, show=lambda self: shown(self.place))
        with pytest.raises(Rejected, match="All observations must have one shape and one type"):
            on_the_line(changing, observation=function).play(OpenLoop((1, 0)), 1, generator(), 2)

    def test_texts_of_any_length_may_come_from_a_function(self):
        env = on_the_line(Line, observation=lambda x: "a" * (1 + 4 * x))
        assert [x[0] for x in play(env, OpenLoop((1, 1, 1)), 1).observations] == ["a", "aaaaa", "a" * 9, "", ""]


class TestRanges:
    def test_a_range_that_was_not_declared_is_an_error_with_a_suggestion(self):
        with pytest.raises(InvalidInput) as refused:
            from_gymnasium(Line, horizon=2)
        for words in ("Line does not say which rewards", "rewards lay in [0, 0.25] and totals in [0, 0.5]"):
            assert words in str(refused.value)
        assert "step_range=(0, 0.25) is right if its documentation names no rewards outside" in str(refused.value)

    @pytest.mark.parametrize(
        ("declared", "total", "step"),
        [
            ({"step_range": (-100, -1)}, (-500, -1), (-100, -1)),
            ({"step_range": (1, 2)}, (1, 10), (1, 2)),
            ({"step_range": (-1, 2)}, (-5, 10), (-1, 2)),
            ({"reward_range": (0, 3)}, (0, 3), (0, 3)),
            ({"reward_range": (-2, 3)}, (-2, 3), (-5, 5)),
            ({"reward_range": (-2, 3), "step_range": (-1, 1)}, (-2, 3), (-1, 1)),
        ],
    )
    def test_one_range_follows_from_the_other(self, declared, total, step):
        env = from_gymnasium(Line, horizon=5, **declared)
        assert (env.reward_range, env.declared.step_range) == (total, step)
        assert step_range(env) == step

    def test_an_environment_is_held_to_the_range_of_one_reward(self):
        env = from_gymnasium(fresh("Liar", rewards=(0.0, 0.3)), horizon=5, reward_range=(0, 1), step_range=(0, 0.25))
        with pytest.raises(RewardOutOfRange, match=r"level 1 paid 0\.3, .* that of one reward \[0, 0\.25\]"):
            play(env, OpenLoop((0, 1)), 1, levels=2)


class TestStepRange:
    """The range of one reward, for every environment."""

    class Env:
        horizon, n_actions = 2, 1

        def __init__(self, rewards, reward_range=(0.0, 1.0), step_range=None):
            self.given, self.reward_range = rewards, reward_range
            self.declared = richobs.Declared(step_range=step_range)

        def play(self, policy, n, rng, levels=None):
            depth = self.horizon if levels is None else levels
            zeros = [np.zeros(n, dtype=int)] * depth
            return Episodes(zeros, zeros, [np.full(n, r) for r in self.given[:depth]])

    def test_rewards_may_be_negative_where_that_is_declared(self):
        with pytest.raises(RewardOutOfRange, match=r"level 0 paid -0\.5"):
            play(self.Env((-0.5, 1.0)), OpenLoop(()), 1)
        for rewards in ((-0.5, 1.0), (1.5, -1.0)):
            env = self.Env(rewards, step_range=(-1, 1.5))
            for held in (env, Calls(env)):
                assert play(held, OpenLoop(()), 1).returns.tolist() == [0.5]

    def test_costs_alone_bound_every_partial_sum(self):
        env = self.Env((-2.0, -1.0), reward_range=(-2.5, 0), step_range=(-2, 0))
        assert play(env, OpenLoop(()), 1, levels=1).returns.tolist() == [-2.0]
        env.horizon = 3
        with pytest.raises(RewardOutOfRange, match="makes -3 in total"):
            play(env, OpenLoop(()), 1, levels=2)


class TestDeterministic:
    def test_each_path_is_played_once_and_some_again(self):
        counted = fresh("Counted")
        env = on_the_line(counted, deterministic=True)
        plain = on_the_line(Line)
        for seed in range(40):
            assert same(play(env, OpenLoop((1, 0, 1)), 32, seed), play(plain, OpenLoop((1, 0, 1)), 32, seed))
        assert env.real_episodes == counted.resets == 1 + 1 + 10  # the path; 1/16 of one path; log2 of 1,279 answers
        play(env, OpenLoop((0, 0, 1)), 1)
        assert env.real_episodes == 13

    def test_random_policies_see_what_they_would_see_without_memory(self):
        env, plain = on_the_line(Line, deterministic=True), on_the_line(Line)
        first = env.play(Uniform(2), 200, generator())
        assert env.real_episodes < 50  # there are 26 paths
        assert same(first, on_the_line(Line, deterministic=True).play(Uniform(2), 200, generator()))
        assert same(first, env.play(Uniform(2), 200, generator()))  # what is known does not change what is drawn
        for actions in {tuple(p) for p in first.paths.tolist()}:
            assert same(play(env, OpenLoop(actions), 1), play(plain, OpenLoop(actions), 1))

    def test_one_environment_is_enough(self):
        one = Line()
        env = on_the_line(one, deterministic=True)
        copies = on_the_line(Line, deterministic=True)
        assert same(env.play(Uniform(2), 60, generator()), copies.play(Uniform(2), 60, generator()))

    @pytest.mark.parametrize(
        ("attributes", "sentence"),
        [
            ({"show": lambda self: self.place + 2 * (type(self).resets > 2)}, r"a reset led to the observation \[0\]"),
            (
                {"rewards": property(lambda self: (0.0, 0.25 if type(self).resets < 3 else 0.125))},
                r"the actions \(1,\) led to the reward 0.25 and .* at first, and to the reward 0.125",
            ),
            (
                {"step": lambda self, a: (0, 0.0, type(self).resets > 2, False, {})},
                "the actions .* at first, and to the reward 0.0 and the end of the episode later",
            ),
        ],
    )
    def test_a_broken_promise_is_noticed(self, attributes, sentence):
        env = on_the_line(fresh("Moody", **attributes), deterministic=True, seed=0)
        with pytest.raises(BrokenPromise, match=sentence):
            play(env, OpenLoop((1, 0, 1)), 8)

    def test_what_looks_deterministic(self):
        dry = from_gymnasium("FrozenLake-v1", **DRY)
        wet = from_gymnasium("FrozenLake-v1", **{**DRY, "is_slippery": True})
        assert looks_deterministic(dry)
        assert not looks_deterministic(wet)
        answers = (lambda odd: (0, 0.0, odd), lambda odd: (0, 0.25 * odd, False), lambda odd: (odd, 0.0, False))
        for answer in answers:  # only the end, only the reward, only the observation differs from episode to episode
            moody = fresh("Moody", step=lambda self, a, f=answer: (*f(type(self).resets % 2 == 1), False, {}))
            assert not looks_deterministic(on_the_line(moody()))
        with pytest.raises(InvalidInput, match="answers from memory"):
            looks_deterministic(on_the_line(Line, deterministic=True))
        with pytest.raises(InvalidInput, match="at least one sequence"):
            looks_deterministic(dry, sequences=0)


class TestOwning:
    def test_copies_are_closed_and_what_was_given_stays_open(self):
        counted = fresh("Counted")
        with on_the_line(counted) as env:
            play(env, OpenLoop(()), 40)
            assert counted.open == 1
        assert counted.open == 0
        env.close()
        assert counted.open == 0
        with pytest.raises(InvalidInput, match="was closed"):
            env.play(OpenLoop(()), 1, generator())
        given = counted()
        with on_the_line(given) as env:
            play(env, OpenLoop(()), 2)
        assert counted.open == 1

    def test_what_is_made_for_nothing_is_closed(self, monkeypatch):
        counted = fresh("Counted")
        vector = types.SimpleNamespace(single_action_space=spaces.Box(0, 1), closed=False)
        vector.close = lambda: setattr(vector, "closed", True)
        monkeypatch.setattr(gymnasium, "make", lambda name: counted())
        monkeypatch.setattr(gymnasium, "make_vec", lambda name, n, mode: vector)
        with pytest.raises(InvalidInput, match="needs finitely many actions"):
            on_the_line("Line-v0", vector="native")
        assert vector.closed
        with pytest.raises(TypeError, match="not JSON serializable"):
            gymnasium_in.problem_from_spec(GymnasiumSpec("Line-v0", 5, (0, 1), functions="json:dumps"))
        assert counted.open == 0

    def test_a_callable_makes_a_new_environment_each_time(self):
        one = Line()
        with pytest.raises(InvalidInput, match="must make a new environment whenever it is called"):
            play(on_the_line(lambda: one, deterministic=True), Uniform(2), 8)


class TestArguments:
    @pytest.mark.parametrize(
        ("env", "arguments", "sentence"),
        [
            ("NoSuchThing-v0", {}, "Gymnasium cannot make 'NoSuchThing-v0'"),
            (3, {}, "takes an id, a gymnasium.Env, or a callable that makes one; got a int"),
            (lambda: 3, {}, "must return a gymnasium.Env; it returned a int"),
            (Line(), {"size": 3}, "size: arguments make an environment, and this one is made already"),
            (Line(), {"vector": 2}, "vector= needs copies"),
            (Line, {"vector": 0}, "vector must be a whole number, at least 1"),
            (Line, {"vector": "native"}, 'vector="native" needs an id'),
            (Line, {"vector": 2, "deterministic": True}, "leave vector= out"),
            ("CartPole-v1", {"vector": "native", "seed": 1}, "leave seed= out"),
            (Line, {"horizon": 0}, "horizon must be a whole number, at least 1"),
            (Line, {"horizon": 10**12}, "horizon must be a whole number, at least 1, at most 1,000,000; got"),
            (Line, {"vector": 10**12}, "vector must be a whole number, at least 1, at most 10,000; got 1000000000000"),
            (gymnasium.make_vec("CartPole-v1", 1), {"seed": 3}, "leave seed= out"),
            *((Line, {"seed": seed}, "seed must be a whole number, at least 0") for seed in (-1, 1.5, True, "3")),
            (Line, {"reward_range": (1, 2), "step_range": (-3, -1)}, "contradict each other"),
            (Line, {"reward_range": (1, 1)}, "nothing to learn"),
            (Line, {"reward_range": (1, 0)}, "reward_range must be a pair"),
            (Line, {"reward_range": None, "step_range": (0, float("inf"))}, "step_range must be a pair"),
            (Line, {"reward_range": None, "step_range": 1}, "step_range must be a pair"),
        ],
    )
    def test_what_cannot_be(self, env, arguments, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            on_the_line(env, **arguments)

    @pytest.mark.parametrize(
        ("answers", "function", "sentence"),
        [
            ({"reset": lambda self, seed=None: 0}, None, r"reset must return \(observation, info\)"),
            ({"step": lambda self, a: (0, 0.0, True, {})}, None, "step must return .* it returned 4 values"),
            ({"step": lambda self, a: (0, "much", True, False, {})}, None, "the reward 'much', which is not a number"),
            ({}, lambda x: {"place": x}, "must return a number, a text or an array"),
        ],
    )
    def test_answers_that_are_not_allowed(self, answers, function, sentence):
        with pytest.raises(Rejected, match=sentence):
            on_the_line(fresh("Odd", **answers), observation=function).play(OpenLoop(()), 1, generator())

    def test_environments_of_bsuite_need_shimmy(self, monkeypatch):
        base = type("Environment", (), {"__module__": "dm_env._environment"})
        catch = type("Catch", (base,), {"__module__": "bsuite.catch"})
        monkeypatch.setitem(sys.modules, "shimmy", None)
        for given in (catch(), catch):
            with pytest.raises(InvalidInput, match=r"pip install 'richobs\[bsuite\]'"):
                on_the_line(given)
        shimmy = types.ModuleType("shimmy")
        shimmy.BSuiteCompatibilityV0 = lambda env: Line()
        monkeypatch.setitem(sys.modules, "shimmy", shimmy)
        for given in (catch(), catch):
            assert play(on_the_line(given), OpenLoop((1,)), 2).returns.tolist() == [0.25] * 2


def half(x):
    return x / 2


RENAMED = types.FunctionType(half.__code__, globals(), "half")


def lakes_for(env):
    """Q functions of some maps, the standard one among them; Gymnasium's lake pays on arrival and ends there."""
    lakes, _ = frozen_lake.candidate_lakes(frozen_lake.Config(horizon=env.horizon, n_maps=20, slip=0.0), generator(5))
    return richobs.Tables(frozen_lake.q_functions(lakes, env.horizon))


class TestIdentity:
    def test_who_it_is(self):
        env = from_gymnasium(
            "FrozenLake-v1", horizon=8, reward_range=(0, 1), seed=3, observation=half, is_slippery=False, vector=None
        )
        assert env.declared.identity == (
            'gym:FrozenLake-v1, kwargs={"is_slippery": false}, horizon=8, reward_range=[0.0, 1.0], step_range=[0.0, 1.0], '
            f'seed=3, observation="{__name__}:half"'
        )
        assert repr(env) == f"from_gymnasium({env.declared.identity})"

    def test_makers_have_names(self):
        assert on_the_line(Line).declared.identity.startswith(f"gym:{__name__}:Line, horizon=5")
        assert on_the_line(Line()).declared.identity.startswith("gym:<Line instance>, horizon=5")
        made = functools.partial(gymnasium.make, "FrozenLake-v1", is_slippery=False)
        assert 'make, "FrozenLake-v1", is_slippery=false)' in on_the_line(made).declared.identity

    def test_an_environment_is_made_again_from_its_id(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
        env = from_gymnasium("FrozenLake-v1", **DRY, observation=half, deterministic=True)
        again = environment_from_spec(GymnasiumSpec.read(env.spec().id))
        assert again.declared.identity == environment_from_spec(env.spec()).declared.identity == env.declared.identity
        assert same(play(env, OpenLoop(TO_THE_GOAL), 2), play(again, OpenLoop(TO_THE_GOAL), 2))
        short = GymnasiumSpec("gym:FrozenLake-v1", 8, [0, 1], functions="mine:lakes_for", kwargs={"is_slippery": False})
        dry = from_gymnasium("FrozenLake-v1", **DRY)
        assert environment_from_spec(short).declared.identity == dry.declared.identity
        problem = gymnasium_in.problem_from_spec(short)
        assert (problem.horizon, problem.functions.level_size(0), problem.id) == (8, 20, None)

    @pytest.mark.parametrize(
        ("spec", "sentence"),
        [
            ({}, "horizon must be a whole number"),
            ({"horizon": 3, "observation": "json"}, "it should read module:name"),
            ({"horizon": 3, "observation": "json:nothing"}, "no attribute 'nothing'"),
        ],
    )
    def test_specs_that_cannot_be(self, spec, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            environment_from_spec(GymnasiumSpec("FrozenLake-v1", **spec))
        with pytest.raises(InvalidInput, match="a problem needs `functions`"):
            gymnasium_in.problem_from_spec(GymnasiumSpec("FrozenLake-v1", **spec))

    @pytest.mark.parametrize(
        ("spec", "sentence"),
        [
            (lambda: on_the_line(Line).spec(), "was not made from an id"),
            (lambda: from_gymnasium("FrozenLake-v1", **DRY, desc=np.array([["S", "G"]])).spec(), "desc is a ndarray"),
            (lambda: from_gymnasium("FrozenLake-v1", **DRY, observation=lambda x: x).spec(), "a module defines"),
            (lambda: from_gymnasium("FrozenLake-v1", **DRY, observation=RENAMED).spec(), "a module defines"),
            (lambda: GymnasiumSpec("A-v0", kwargs={"high": float("inf")}), "high is a float, inf"),
            (lambda: GymnasiumSpec("A-v0", kwargs={"seed": 1}), "has the name of an argument of from_gymnasium"),
        ],
    )
    def test_what_cannot_be_written_down(self, spec, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            _ = spec().id


def test_what_is_padded_after_the_end_is_never_evaluated():
    """The codebook of this class does not hold the end marker, which is another observation than all that are seen."""

    def step(self, action):
        return np.array([2, 2]), float(action == 1), action == 1, False, {}

    space = spaces.Box(0, 9, (2,), dtype=np.int64)
    env = on_the_line(fresh("Short", observation_space=space, show=lambda self: np.array([1, 1]), step=step), horizon=3)
    rows = np.array([[1, 1], [2, 2]])
    q = np.array([[[1.0, 1.0], [1.0, 1.0]], [[0.2, 0.9], [0.2, 0.9]]])
    last = np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.9, 0.2], [0.9, 0.2]]])
    functions = richobs.Tables([q, q, last], codebooks=[richobs.core.process.Codebook(rows)] * 3)
    played = env.play(richobs.OpenLoop((1, 1, 1)), 2, np.random.default_rng(0))
    assert [a.tolist() for a in played.actions] == [[1, 1], [0, 0], [0, 0]]
    outcome = richobs.learn(env, functions, epsilon=0.2, progress=False)
    assert outcome.policy.member == 0
