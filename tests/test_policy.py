"""Learned policies: played, predicted with as Stable-Baselines3 does, saved and loaded."""

import json

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.classes import Decoders, Layered, LearnedPolicy, Listed, TableLevel, listed_product
from richobs.classes.base import read_parts, write_parts
from richobs.classes.learned_policy import FORMAT
from richobs.cli import main
from richobs.core.errors import InvalidFile, InvalidInput, InvalidPath
from richobs.core.policies import OpenLoop
from richobs.core.process import Codebook
from richobs.core.randomness import keyed_generator
from richobs_lab.prototypes import Prototypes


def policy_for(id):
    problem = richobs.make(id)
    return problem, LearnedPolicy(problem.functions, problem.optimal_function)


def seen_at(problem, path, n):
    """`[n, ...]` observations behind an action sequence."""
    rng = keyed_generator(len(path), "test")
    return problem.env.play(OpenLoop(path), n, rng, levels=len(path) + 1).observations[-1]


FIRST = np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]])
CENTRES = np.array([[[0.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.5]]])
DECODERS = Decoders(3, [[0.5, 0.25], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("functions", "member", "digest"),
    [
        (Layered([TableLevel(FIRST)] * 2), (1, 0), "0f6a32aa08c88d7e1053f7d9"),
        (Listed([TableLevel(FIRST)] * 2), 1, "36e8365d7d1c7cc5a5e6c243"),
        (Layered([DECODERS] * 2), (17, 3), "247c7d1cb598c7a651eb0bc7"),
        (Layered([Prototypes(CENTRES, np.array([0, 1]), FIRST)]), (1,), "d407dca9fa411e5ff7b05bcb"),
        (listed_product(Layered([DECODERS, TableLevel(FIRST)])), 7, "a2cec67e88755bedb86ab5db"),
    ],
)
def test_digests_stay_what_they_were(functions, member, digest):
    """Certificates that were written name policies by these."""
    assert LearnedPolicy(functions, member).digest.startswith(digest)
    if isinstance(member, int):
        assert LearnedPolicy(functions, np.int64(member)).digest.startswith(digest)


def test_a_class_that_is_not_given_by_level_plays_and_says_that_it_is_not_written(tmp_path):
    """Somebody's own FunctionClass: `member` returns any object with `values`."""

    class Alternating:
        def values(self, level, x, /):
            return np.eye(2)[np.full(len(x), level % 2)]

    class Own:
        horizon, n_actions = 2, 2

        def member(self, member, /):
            return Alternating()

    policy = LearnedPolicy(Own(), 0)
    actions, state = policy.predict(np.zeros((3, 4)), episode_start=True)
    assert actions.tolist() == [0, 0, 0]
    assert policy.predict(np.zeros((3, 4)), state)[0].tolist() == [1, 1, 1]
    assert policy.predict(np.array(5), (np.array([1]),))[0].shape == ()
    with pytest.raises(InvalidInput, match="Own does not give its functions level by level"):
        policy.save(tmp_path / "p.npz")


def header(**more):
    """Writes a file whose header alone is that of a policy."""
    text = json.dumps({"format": "richobs-policy", "version": 1, **more})
    return lambda file: np.savez(file, header=np.array(text))


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:200]),
        lambda file: np.savez(file, a=np.zeros(3)),
        lambda file: np.savez(file, header=np.array("[]")),
        lambda file: file.write_text("not a policy"),
        header(),
        header(kinds=5),
        header(kinds=[5]),
        header(kinds=["wavelets"]),
        header(kinds=["chosen " * 2000 + "table"]),
    ],
)
def test_a_damaged_or_hostile_file_is_refused(damage, tmp_path):
    _, policy = policy_for("random/3")
    file = tmp_path / "p.npz"
    policy.save(file)
    damage(file)
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


@pytest.mark.parametrize(
    ("name", "array", "why"),
    [
        ("members", np.zeros((1, 1), dtype=np.int64), "listed as .N."),
        ("members", np.zeros((1,) * 30, dtype=np.int64), "listed as .N."),
        ("members", np.zeros(2, dtype=np.int64), "of other types or shapes"),
        ("members", np.zeros(1, dtype=np.int32), "of other types or shapes"),
        ("rotation", np.eye(8).reshape(8, 8, 1), "square matrix"),
        ("rotation", np.array(1.0), "square matrix"),
        ("rotation", np.eye(8).astype(str), "square matrix"),
        ("n_coordinates", np.array(2**62), "at least 4611686018427387904 rows"),
    ],
)
def test_arrays_of_other_shapes_or_types_are_no_policy(name, array, why, tmp_path, capsys):
    """What loads can be used: its digest exists, and is that of the file's arrays."""
    problem = richobs.make("diabolical/2,sigma=0.1")
    LearnedPolicy(problem.functions, (0, 0)).save(tmp_path / "p.npz")
    _, [(kind, arrays), *others] = read_parts(tmp_path / "p.npz", FORMAT)
    write_parts(tmp_path / "p.npz", FORMAT, [(kind, {**arrays, name: array}), *others])
    with pytest.raises(InvalidFile, match=why):
        LearnedPolicy.load(tmp_path / "p.npz")
    assert main(["value", "diabolical/2,sigma=0.1", "--policy", str(tmp_path / "p.npz"), "--quiet"]) == 2
    assert "p.npz is not a richobs-policy file that richobs wrote: " in capsys.readouterr().err


def test_observations_of_another_width_are_refused_by_rotated_decoders():
    level = richobs.make("diabolical/2,sigma=0.1").functions.levels[0]
    with pytest.raises(InvalidInput, match="read vectors of 8 coordinates; got shape"):
        level.values(np.zeros((3, 5)))
    with pytest.raises(InvalidInput, match="more decoders than an index can name"):
        Decoders(2**40, np.eye(2))


def test_predict_carries_the_level():
    """The lock's observations do not show the level: only with it does the policy open the lock."""
    _, policy = policy_for("lock/6")
    how = {"num_envs": 50, "vectorization_mode": "vector_entry_point", "autoreset_mode": "SameStep"}
    env = gymnasium.make_vec("richobs/Lock-v0", horizon=6, **how)
    returns = evaluate(policy, env, 2000)
    assert abs(returns.mean() - 0.5) < 5 * 0.5 / 2000**0.5


# Level 0 plays x, level 1 plays 1 - x.
NUMBERS = Layered([TableLevel(np.eye(2)[None]), TableLevel(np.eye(2)[None, ::-1])])


def coded(rows):
    """A class of one function, which plays the place of an observation in its codebook."""
    return Layered([TableLevel(np.eye(2)[None], Codebook(np.array(rows)))])


@pytest.mark.parametrize(
    ("functions", "member", "single", "action"),
    [
        (NUMBERS, (0, 0), 1, 1),
        (NUMBERS, (0, 0), np.array(0), 0),
        (coded(["a", "b"]), (0,), "b", 1),
        (coded([[0, 1], [1, 0]]), (0,), [1, 0], 1),
        (coded([np.zeros((3, 3)), np.ones((3, 3))]), (0,), np.ones((3, 3)), 1),
        (Layered([Decoders(2, np.eye(2))]), (1,), np.array([0, 1]), 1),
        (Layered([Decoders(2, np.eye(2))]), (1,), np.array([1, 0]), 0),
        (Layered([Prototypes(CENTRES, np.array([0, 0]), np.stack([np.eye(2)] * 2))]), (0,), np.array([0.9, 0.9]), 1),
        (listed_product(Layered([Decoders(2, np.eye(2))])), 1, np.array([0, 1]), 1),
        (Layered([richobs.classes.Constants([[0.1, 0.9]])]), (0,), 5, 1),
    ],
)
def test_predict_takes_a_single_observation(functions, member, single, action):
    policy = LearnedPolicy(functions, member)
    alone, state = policy.predict(single, episode_start=True)
    assert (alone.shape, alone.dtype, alone.tolist()) == ((), np.int64, action)
    assert state[0].tolist() == [1]
    batch, states = policy.predict(np.array([single, single]), episode_start=True)
    assert batch.tolist() == [action, action]
    assert states[0].tolist() == [1, 1]
    one, _ = policy.predict(np.array([single]), episode_start=True)
    assert one.tolist() == [action]


def test_a_single_observation_carries_the_level():
    policy = LearnedPolicy(NUMBERS, (0, 0))
    first, state = policy.predict(1, episode_start=True)
    second, state = policy.predict(1, state)
    assert (first, second, state[0].tolist()) == (1, 0, [2])
    after_the_end, _ = policy.predict(1, state)
    assert after_the_end == 0
    assert policy.predict(1, state, np.array([True]))[0] == policy.predict(1, state, True)[0] == 1
    space = gymnasium.spaces.Discrete(2)
    assert space.contains(first)
    with pytest.raises(InvalidInput, match="3 observations arrived, with the levels of 1"):
        policy.predict(np.array([0, 1, 1]), state)
    with pytest.raises(InvalidInput, match="with the levels of 3 and the episode starts of 2"):
        policy.predict(np.array([0, 1, 1]), None, np.array([True, True]))


@pytest.mark.parametrize("starts", [None, False, np.array([True, False])])
def test_predict_does_not_guess_the_level(starts):
    """The same observation asks for another action at level 1. With one level there is nothing to guess."""
    policy = LearnedPolicy(NUMBERS, (0, 0))
    with pytest.raises(InvalidInput, match="not told at which of 2 levels the observation was made"):
        policy.predict(np.array([0, 1]), None, starts)
    alone = LearnedPolicy(Layered(NUMBERS.levels[:1]), (0,))
    assert alone.predict(np.array([0, 1]), None, starts)[0].tolist() == [0, 1]


def test_a_table_policy_plays_what_is_listed(tmp_path):
    policy = LearnedPolicy.from_table([None, Codebook(np.array([[0, 1], [1, 0]]))], [[2, 0, 1], [0, 2]])
    assert policy.actions(0, np.array([0, 1, 2, 0])).tolist() == [2, 0, 1, 2]
    assert policy.actions(1, np.array([[1, 0], [0, 1]])).tolist() == [2, 0]
    assert (policy.functions.n_actions, policy.member) == (3, (0, 0))
    policy.save(tmp_path / "p.npz")
    assert LearnedPolicy.load(tmp_path / "p.npz").actions(0, np.arange(3)).tolist() == [2, 0, 1]
    assert LearnedPolicy.from_table([None], [[0, 0]], n_actions=4).functions.n_actions == 4
    for codebooks, actions, words in (
        ([None], [[0], [1]], "codebooks of 1 levels and actions of 2"),
        ([None], [[0.5]], "level 0: actions must be .* got float64"),
        ([None], [[0, -1]], "between 0 and 0"),
        ([None, Codebook(np.array(["a"]))], [[0], [0, 1]], "2 observations and the codebook 1"),
        ([], [], "the list is empty"),
    ):
        with pytest.raises(InvalidInput, match=words):
            LearnedPolicy.from_table(codebooks, actions)
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        LearnedPolicy.from_table([None], [[0, 2]], n_actions=2)


def test_an_open_loop_policy_plays_its_path(tmp_path):
    problem = richobs.make("lock/3")
    policy = LearnedPolicy.open_loop((3, 0, 2), 4)
    played = problem.env.play(policy, 50, keyed_generator(0))
    assert (played.paths == [3, 0, 2]).all()
    assert problem.value(policy) == problem.value(OpenLoop((3, 0, 2)))
    policy.save(tmp_path / "p.npz")
    again = LearnedPolicy.load(tmp_path / "p.npz")
    assert again.digest == policy.digest != LearnedPolicy.open_loop((3, 0, 1), 4).digest
    assert [again.actions(h, np.zeros(2)).tolist() for h in range(3)] == [[3, 3], [0, 0], [2, 2]]
    with pytest.raises(InvalidPath, match="action 4 at level 1"):
        LearnedPolicy.open_loop((0, 4), 4)
    with pytest.raises(InvalidInput, match="the list is empty"):
        LearnedPolicy.open_loop((), 4)


def test_predict_with_copies_at_different_levels():
    problem, policy = policy_for("lock/3")
    x = seen_at(problem, (), 4)
    actions, state = policy.predict(x, episode_start=np.ones(4, dtype=bool))
    np.testing.assert_array_equal(actions, policy.actions(0, x))
    np.testing.assert_array_equal(state[0], [1, 1, 1, 1])
    actions, state = policy.predict(x, state, np.array([False, True, False, True]))
    np.testing.assert_array_equal(state[0], [2, 1, 2, 1])
    np.testing.assert_array_equal(actions[[0, 2]], policy.actions(1, x[[0, 2]]))
    np.testing.assert_array_equal(actions[[1, 3]], policy.actions(0, x[[1, 3]]))
    after_the_end, _ = policy.predict(x, (np.full(4, 3),), np.zeros(4, dtype=bool))
    assert (after_the_end == 0).all()
