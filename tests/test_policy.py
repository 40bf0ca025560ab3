"""Learned policies: played, predicted with as Stable-Baselines3 does, saved and loaded."""

import json

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.errors import InvalidFile, InvalidInput
from richobs.functions import Callables, Layered, Prototypes, TableLevel, Tables
from richobs.policy import LearnedPolicy, class_digest
from richobs.randomness import keyed_generator

WORLDS = ["lock/3", "diabolical/3", "disjoint/3", "disjoint/3,vectors=True", "random/3", "lock/3,noise_bits=30"]


def policy_for(id):
    problem = richobs.make(id)
    return problem, LearnedPolicy(problem.functions, problem.optimal_function)


@pytest.mark.parametrize("id", WORLDS)
def test_a_saved_policy_comes_back(id, tmp_path):
    problem, policy = policy_for(id)
    policy.save(tmp_path / "policy.npz")
    again = LearnedPolicy.load(tmp_path / "policy.npz")
    assert again.digest == policy.digest
    for level in range(problem.horizon):
        for path in [(0,) * level, (1,) * level]:
            x = problem.env.draw(path, 200, keyed_generator(level))
            np.testing.assert_array_equal(again.actions(level, x), policy.actions(level, x))
    assert problem.value(again).value == problem.value(policy).value
    again.save(tmp_path / "again.npz")
    assert LearnedPolicy.load(tmp_path / "again.npz").digest == policy.digest
    assert (tmp_path / "policy.npz").stat().st_size < 50_000


def test_another_policy_has_another_digest():
    problem, policy = policy_for("lock/3")
    other = LearnedPolicy(problem.functions, tuple(i + 1 for i in problem.optimal_function))
    assert other.digest != policy.digest
    assert class_digest(problem.functions) == class_digest(richobs.make("lock/3,seed=8").functions)
    assert class_digest(problem.functions) != class_digest(richobs.make("lock/3,noise_bits=4").functions)
    assert class_digest(richobs.make("mdp").functions) != class_digest(richobs.make("mdp,seed=1").functions)


def test_saving_uses_no_pickle(tmp_path):
    _, policy = policy_for("random/3")
    policy.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as stored:
        assert json.loads(str(stored["header"]))["format"] == "richobs-policy"


def test_python_functions_cannot_be_saved_and_say_so(tmp_path):
    functions = Callables([lambda h, x: np.zeros((len(x), 2))], horizon=2, n_actions=2)
    policy = LearnedPolicy(functions, 0)
    with pytest.raises(InvalidInput, match="are Python code"):
        policy.save(tmp_path / "p.npz")
    assert list(tmp_path.iterdir()) == []
    assert class_digest(functions) is None


def test_a_class_that_changes_what_it_inherits_is_not_written_as_its_parent(tmp_path):
    class Flipped(TableLevel):
        def values(self, x, members=None, /):
            return super().values(x, members)[..., ::-1]

    policy = LearnedPolicy(Layered([Flipped([[[0.1, 0.9]]])]), (0,))
    with pytest.raises(InvalidInput, match="Flipped are Python code"):
        policy.save(tmp_path / "p.npz")
    tables = TableLevel([[[0.1, 0.9]]])
    assert class_digest(Layered([tables])) != class_digest(Tables([[[[0.1, 0.9]]]]))


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"format": "richobs-policy", "version": 1},
        {"format": "richobs-policy", "version": 1, "kinds": 5},
        {"format": "richobs-policy", "version": 1, "kinds": [5]},
        {"format": "richobs-policy", "version": 1, "kinds": ["chosen " * 2000 + "table"]},
    ],
)
def test_hostile_headers_are_refused(header, tmp_path):
    np.savez(tmp_path / "p.npz", header=np.array(json.dumps(header)))
    with pytest.raises(InvalidFile):
        LearnedPolicy.load(tmp_path / "p.npz")


@pytest.mark.parametrize("damage", ["truncate", "other", "text", "kind"])
def test_a_damaged_file_is_refused(damage, tmp_path):
    _, policy = policy_for("random/3")
    file = tmp_path / "p.npz"
    policy.save(file)
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:200])
    elif damage == "other":
        np.savez(file, a=np.zeros(3))
    elif damage == "text":
        file.write_text("not a policy")
    else:
        header = json.dumps({"format": "richobs-policy", "version": 1, "kinds": ["wavelets"]})
        np.savez(file, header=np.array(header))
    with pytest.raises(InvalidFile):
        LearnedPolicy.load(file)
    with pytest.raises(FileNotFoundError):
        LearnedPolicy.load(tmp_path / "nothing.npz")


def evaluate(policy, env, episodes):
    """The loop of Stable-Baselines3's `evaluate_policy`: states and episode starts travel beside the observations."""
    n = env.num_envs
    returns, running = [], np.zeros(n)
    x, _ = env.reset(seed=0)
    states, starts = None, np.ones(n, dtype=bool)
    while len(returns) < episodes:
        actions, states = policy.predict(x, state=states, episode_start=starts, deterministic=True)
        x, rewards, terminated, _, _ = env.step(actions)
        running += rewards
        starts = terminated
        for i in np.flatnonzero(terminated):
            returns.append(running[i])
            running[i] = 0.0
    return np.array(returns)


def test_predict_carries_the_level():
    """The lock's observations do not show the level: only with it does the policy open the lock."""
    _, policy = policy_for("lock/6")
    env = gymnasium.make_vec(
        "richobs/Lock-v0",
        num_envs=50,
        vectorization_mode="vector_entry_point",
        horizon=6,
        autoreset_mode="SameStep",
    )
    returns = evaluate(policy, env, 2000)
    assert abs(returns.mean() - 0.5) < 5 * 0.5 / 2000**0.5


def test_predict_with_copies_at_different_levels():
    problem, policy = policy_for("lock/3")
    x = problem.env.draw((), 4, keyed_generator(0))
    actions, state = policy.predict(x)
    np.testing.assert_array_equal(actions, policy.actions(0, x))
    np.testing.assert_array_equal(state[0], [1, 1, 1, 1])
    actions, state = policy.predict(x, state, np.array([False, True, False, True]))
    np.testing.assert_array_equal(state[0], [2, 1, 2, 1])
    np.testing.assert_array_equal(actions[[0, 2]], policy.actions(1, x[[0, 2]]))
    np.testing.assert_array_equal(actions[[1, 3]], policy.actions(0, x[[1, 3]]))
    after_the_end, _ = policy.predict(x, (np.full(4, 3),), np.zeros(4, dtype=bool))
    assert (after_the_end == 0).all()


def test_prototypes_shrink_to_the_one_they_use():
    from richobs.functions.portable import only, to_arrays

    functions = richobs.make("disjoint/2,vectors=True").functions
    kind, arrays = to_arrays(only(functions.levels[1], 7))
    assert kind == "prototypes"
    assert isinstance(functions.levels[1], Prototypes)
    assert arrays["tables"].shape[0] == arrays["centres"].shape[0] == 1
