"""What every world must do: one suite over the registry, its variants, and the skeleton that new worlds are copied from."""

import pickle
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from richobs.core.environment import checked_episodes
from richobs.core.errors import InvalidInput
from richobs.core.policies import Greedy, OpenLoop, Switch, Uniform
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.core.settings import field_docs
from richobs.worlds import WORLDS, World, WorldEnvironment, make
from richobs.worlds.registry import config_class
from richobs_lab.assumptions.exact import check_assumptions

SKELETON = "corridor_skeleton"
REGISTERED = [*WORLDS, "corridor"]
VARIANTS = [
    *REGISTERED,
    *("disjoint,vectors=True", "mdp,stochastic=True", "frozen-lake/8,map=8x8,candidates=near,slip_unknown=True"),
    *("lock/3,noise_bits=30", "lock/3,noise=gaussian", "lock/3,swap=0.25", "lock/3,swap=0.5,fail=0.1"),
    *("lock/3,noise_bits=30,fail=0.1", "lock/3,functions=tables,class_size=12"),
    *("diabolical/3,sigma=0.1", "diabolical/3,swap=0.5", "random,violate=deterministic", "random,stochastic=True"),
    *("random,near=0.1,rewards=bernoulli", "random,n_actions=4,twin_gap=0.05"),
    *("lock/1", "diabolical/1", "deep-sea/1", "frozen-lake/1", "corridor/1"),
]
UNREALIZABLE = {"lower-bound", "lock/3,noise=gaussian", "diabolical/3,sigma=0.1"}  # on purpose


def _skeleton():
    spec = util.spec_from_file_location(SKELETON, Path(__file__).parents[2] / "docs/skeletons/world.py")
    return spec, util.module_from_spec(spec)


@pytest.fixture(autouse=True)
def corridor(monkeypatch):
    """The skeleton, registered as docs/your-own-problem.md says."""
    spec, module = _skeleton()
    monkeypatch.setitem(sys.modules, SKELETON, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(WORLDS, "corridor", SKELETON)


def member(problem, i):
    """The function that uses member i of every level."""
    return problem.functions.member((i,) * problem.horizon if problem.functions.is_product else i)


def first_member(problem):
    return Greedy(member(problem, 0))


def random_path(problem, rng):
    return tuple(rng.integers(problem.n_actions, size=problem.horizon).tolist())


def assert_same(one, other, levels):
    for name in ("observations", "actions", "rewards"):
        for level in range(levels):
            np.testing.assert_array_equal(getattr(one, name)[level], getattr(other, name)[level], err_msg=name)


@pytest.mark.parametrize("id", VARIANTS)
class TestEveryWorld:
    def test_it_is_a_problem_with_a_truth(self, id):
        problem = make(id)
        assert isinstance(problem, Problem)
        assert isinstance(problem.env, WorldEnvironment)
        assert problem.n_states >= 1
        assert 0 <= problem.truth.optimal_value <= 1
        world: World = problem.truth.world
        assert (world.horizon, world.n_actions) == (problem.horizon, problem.n_actions)
        assert [len(world.labels(level)) > 0 for level in range(world.horizon)] == [True] * world.horizon

    def test_the_id_builds_the_same_problem_again(self, id):
        first = make(id)
        second = make(first.id)
        assert first.id == second.id
        assert first.optimal_value == second.optimal_value
        policy = Switch(OpenLoop((0,) * (first.horizon - 1)), first.horizon - 1, Uniform(first.n_actions))
        assert_same(*(p.env.play(policy, 20, keyed_generator(5)) for p in (first, second)), first.horizon)

    @pytest.mark.parametrize("policy", ["greedy", "uniform", "open loop"])
    def test_episodes_are_what_was_asked_for(self, id, policy):
        """Rows, levels, types, actions and the reward range, as an engine checks them."""
        problem = make(id)
        env, H, rng = problem.env, problem.horizon, keyed_generator(1)
        policies = {"greedy": first_member(problem), "uniform": Uniform(problem.n_actions)}
        played_policy = {**policies, "open loop": OpenLoop(random_path(problem, rng))}[policy]
        played = env.play(played_policy, 50, rng)
        checked_episodes(played, env, played_policy, 50, H)
        assert (played.n, played.levels) == (50, H)
        assert played.paths.shape == (50, H)
        assert {a.dtype for a in played.actions} == {np.dtype(np.int64)}
        assert {r.dtype for r in played.rewards} == {np.dtype(np.float64)}
        if policy == "greedy":
            for level, x in enumerate(played.observations):
                np.testing.assert_array_equal(played.actions[level], played_policy.actions(level, x))

    def test_stopping_early_changes_nothing_before(self, id):
        problem = make(id)
        whole = problem.env.play(Uniform(problem.n_actions), 13, keyed_generator(8))
        for levels in range(1, problem.horizon + 1):
            part = problem.env.play(Uniform(problem.n_actions), 13, keyed_generator(8), levels)
            assert part.levels == len(part.observations) == len(part.actions) == levels
            assert_same(part, whole, levels)

    def test_what_cannot_be_played_is_refused(self, id):
        env = make(id).env
        with pytest.raises(InvalidInput, match="at least one episode"):
            env.play(Uniform(env.n_actions), 0, keyed_generator(0))
        for levels in (0, env.horizon + 1):
            with pytest.raises(InvalidInput, match=f"plays 1 to {env.horizon} levels; asked for {levels}"):
                env.play(Uniform(env.n_actions), 1, keyed_generator(0), levels)
        with pytest.raises(InvalidInput, match=f"action {env.n_actions} at level 0"):
            env.play(OpenLoop((env.n_actions,)), 1, keyed_generator(0))

    def test_functions_predict_values_in_the_unit_interval(self, id):
        problem = make(id)
        seen = problem.env.play(OpenLoop((0,) * problem.horizon), 9, keyed_generator(3)).observations
        for level, x in enumerate(seen):
            some = np.arange(0, problem.functions.level_size(level), 7)
            values = problem.functions.values(level, x, some)
            assert values.shape == (len(some), 9, problem.n_actions)
            assert values.min() >= 0
            assert values.max() <= 1
            if all(problem.functions.level_size(h) > 7 for h in range(problem.horizon)):
                seventh = member(problem, 7)
                np.testing.assert_array_equal(seventh.values(level, x), values[1])

    def test_nothing_printed_tells_the_secret(self, id):
        problem, other = make(id), make(id + ",seed=77")
        shown = [repr(p).replace(p.id, "").partition(", n_states=")[0] for p in (problem, other)]
        assert shown[0] == shown[1]
        facts = f"horizon={problem.horizon}, n_actions={problem.n_actions}, reward_range=(0.0, 1.0)"
        assert repr(problem.env) == f"WorldEnvironment({facts})"
        public = [name for name in vars(problem.env) if not name.startswith("_")]
        assert public == ["horizon", "n_actions", "reward_range"]

    def test_it_survives_pickling(self, id):
        env = make(id).env
        again = pickle.loads(pickle.dumps(env))
        policy = Uniform(env.n_actions)
        assert_same(*(e.play(policy, 9, keyed_generator(4)) for e in (env, again)), env.horizon)


@pytest.mark.parametrize("id", [v for v in VARIANTS if v not in UNREALIZABLE])
def test_the_optimum_is_in_the_class_and_earns_the_optimal_value(id):
    problem = make(id)
    report = problem.value(problem.optimal_policy())
    assert report.low - 1e-12 <= problem.optimal_value <= report.high + 1e-12
    if problem.process is not None:
        assert check_assumptions(problem.process, problem.functions)["realizable"].holds


@pytest.mark.parametrize("world", REGISTERED)
def test_another_seed_is_another_secret(world):
    truths = set()
    for seed in range(8):
        problem = make(f"{world},seed={seed}")
        rng = keyed_generator(9)
        paths = [random_path(problem, rng) for _ in range(30)]
        paid = tuple(float(problem.env.play(OpenLoop(p), 40, keyed_generator(0)).returns.sum()) for p in paths)
        truths.add((problem.optimal_function, paid))
    assert len(truths) > 1


@pytest.mark.parametrize("world", REGISTERED)
def test_every_parameter_has_a_sentence(world):
    config = config_class(world)
    docs = field_docs(config)
    assert list(docs) == list(config.__dataclass_fields__)
    assert all(text.rstrip(")").endswith(".") for text in docs.values())
    assert config.__doc__.splitlines()[0].endswith(".")
