"""The worlds as Gymnasium environments, one by one and vectorised."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from richobs.core.errors import InvalidInput
from richobs.worlds import WORLDS, make
from richobs.worlds.gymnasium_out import WorldEnv, gymnasium_id, register_all

register_all()

IDS = {world: gymnasium_id(world) for world in WORLDS}
VARIANTS = [
    *((name, {}) for name in IDS.values()),
    ("richobs/Lock-v0", {"noise": "gaussian"}),
    ("richobs/Disjoint-v0", {"vectors": True}),
    ("richobs/Diabolical-v0", {"sigma": 0.1}),
]


def make_vec(id, n, **kwargs):
    return gymnasium.make_vec(id, num_envs=n, vectorization_mode="vector_entry_point", **kwargs)


@pytest.mark.parametrize(("id", "params"), VARIANTS)
def test_gymnasiums_own_checks_pass(id, params):
    check_env(gymnasium.make(id, render_mode="rgb_array", **params).unwrapped)


@pytest.mark.parametrize(("id", "params"), VARIANTS)
def test_the_same_seed_gives_the_same_episodes_and_another_does_not(id, params):
    def episodes(seed):
        env = make_vec(id, 50, **params)
        seen = [env.reset(seed=seed)[0]]
        rewards = []
        for step in range(12):
            actions = np.arange(50) % env.single_action_space.n
            x, r, *_ = env.step((actions + step) % env.single_action_space.n)
            seen.append(x)
            rewards.append(r)
        return np.concatenate([np.asarray(s, dtype=float).ravel() for s in seen]), np.array(rewards)

    one, same, other = episodes(5), episodes(5), episodes(6)
    np.testing.assert_array_equal(one[0], same[0])
    np.testing.assert_array_equal(one[1], same[1])
    if id != "richobs/DeepSea-v0":  # where nothing is random
        assert (one[0] != other[0]).any() or (one[1] != other[1]).any()


def test_a_seed_at_reset_leaves_the_secret_alone():
    codes = set()
    for seed in range(5):
        env = gymnasium.make("richobs/Lock-v0")
        env.reset(seed=seed)
        codes.add(env.unwrapped._copies.world._code.tobytes())
    assert len(codes) == 1


def test_no_draw_comes_from_the_generator_that_gymnasium_seeds():
    """It runs in step with a space seeded alike; after `reset(seed=...)` it is not touched again."""
    env = gymnasium.make("richobs/Lock-v0", swap=0.5).unwrapped
    env.reset(seed=3)
    before = env.np_random.bit_generator.state
    for _ in range(5):
        env.step(0)
    env.reset()
    assert env.np_random.bit_generator.state == before
    generators = env._copies._generators  # of emissions, rewards and transitions
    assert len({g.bit_generator.state["state"]["key"].tobytes() for g in generators}) == 3


class TestAutoreset:
    def test_the_resetting_step_ignores_its_actions_and_pays_nothing(self):
        env = make_vec("richobs/Lock-v0", 3, horizon=1)
        assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        env.reset(seed=0)
        assert env.step(np.zeros(3, dtype=int))[2].all()
        x, r, terminated, _, info = env.step(np.full(3, 99))
        assert (r == 0).all()
        assert not terminated.any()
        assert (info["level"] == 0).all()
        assert (x[:, 0] == 1).all()

    def test_same_step_carries_the_final_observation(self):
        env = make_vec("richobs/Lock-v0", 3, horizon=2, autoreset_mode="SameStep")
        env.reset(seed=0)
        act = np.zeros(3, dtype=int)
        env.step(act)
        x, _, terminated, _, info = env.step(act)
        assert terminated.all()
        assert (x[:, 0] == 1).all()  # state A again
        assert (info["level"] == 0).all()
        assert (info["final_info"]["level"] == 2).all()
        assert all((final == 0).all() for final in info["final_obs"])

    def test_disabled_leaves_the_reset_to_the_caller(self):
        env = make_vec("richobs/Lock-v0", 3, horizon=1, autoreset_mode=AutoresetMode.DISABLED)
        env.reset(seed=0)
        env.step(np.zeros(3, dtype=int))
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.zeros(3, dtype=int))
        with pytest.raises(InvalidInput, match="run in step"):
            env.reset(options={"reset_mask": np.array([True, False, True])})
        env.reset(options={"reset_mask": np.ones(3, dtype=bool)})
        env.step(np.zeros(3, dtype=int))


@pytest.mark.parametrize("id", IDS.values())
def test_pictures_mark_where_the_agent_is(id):
    env = gymnasium.make(id, render_mode="ansi")
    env.reset(seed=0)
    assert env.render().count("@") == 1
    env.step(0)
    drawn = env.render()
    assert "actions: 0" in drawn
    assert drawn.count("@") == 1

    pixels = gymnasium.make(id, render_mode="rgb_array")
    pixels.reset(seed=0)
    first = pixels.render()
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    pixels.step(0)
    assert (pixels.render() != first).any()


def test_the_picture_of_a_lock_worked_out_by_hand():
    env = gymnasium.make("richobs/Lock-v0", horizon=3, render_mode="ansi")
    env.reset(seed=0)
    dead = next(a for a in range(4) if make("lock/3").process.transitions[0][0, a, 2] == 1)
    env.step(dead)
    lines = env.render().splitlines()
    assert lines[1:] == ["  o . .", "  . . .", "  . @ ."]


def test_vector_pictures():
    env = make_vec("richobs/DeepSea-v0", 2, render_mode="ansi")
    env.reset(seed=0)
    env.step(np.array([0, 1]))
    one, other = env.render()
    assert one != other
    assert make_vec("richobs/DeepSea-v0", 2).render() is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: WorldEnv("lock", render_mode="human"),
        lambda: gymnasium.make("richobs/Lock-v0", horizons=3),
        lambda: make_vec("richobs/Lock-v0", 0),
        lambda: make_vec("richobs/Lock-v0", 2, render_mode="human"),
        lambda: make_vec("richobs/Lock-v0", 2).reset(seed=[1, 2, 3]),
    ],
)
def test_wrong_requests_are_refused(call):
    with pytest.raises((InvalidInput, gymnasium.error.Error)):
        call()


def test_registering_again_changes_nothing():
    before = gymnasium.spec("richobs/Lock-v0")
    register_all()
    assert gymnasium.spec("richobs/Lock-v0") is before


@pytest.mark.parametrize("create", [gymnasium.make, lambda name, **params: make_vec(name, 2, **params)])
def test_an_id_cannot_be_made_as_another_world(create):
    with pytest.raises(InvalidInput, match="world 'lock' has no parameter 'world'; it has horizon, n_actions"):
        create("richobs/Lock-v0", world="mdp")


@pytest.mark.parametrize("actions", [[0, 4], [0], [-1, 0]])
def test_wrong_actions_are_refused(actions):
    env = make_vec("richobs/Lock-v0", 2)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="step needs 2 actions from 0 to 3"):
        env.step(np.array(actions))
    single = gymnasium.make("richobs/Lock-v0", disable_env_checker=True).unwrapped
    single.reset(seed=0)
    for action in (9, 1.7, "x", None, np.array([0, 1])):
        with pytest.raises(InvalidInput, match="action"):
            single.step(action)


def test_steps_after_the_end_are_refused():
    env = gymnasium.make("richobs/Bandit-v0").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_a_list_of_seeds_is_as_good_as_a_seed():
    env = make_vec("richobs/Lock-v0", 3)
    a, b, c = (env.reset(seed=s)[0].copy() for s in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    d, e = (env.reset(seed=s)[0].copy() for s in ((None, 3, 1), (3, None, 1)))
    assert (d != e).any()
    with pytest.raises(InvalidInput, match="none below 0"):
        env.reset(seed=[-1, 2, 3])


def test_what_a_caller_does_to_an_observation_does_not_reach_the_rewards():
    def play(spoil):
        env = make_vec("richobs/Disjoint-v0", 50)
        x, _ = env.reset(seed=1)
        total = 0.0
        for _ in range(4):
            if spoil:
                x[:] = 0
            x, r, *_ = env.step(np.zeros(50, dtype=int))
            total += r.sum()
        return total

    assert play(spoil=True) == play(spoil=False)
