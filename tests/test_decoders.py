"""Learners that decode states: PCID, PPE and HOMER solve what their papers solve, and claim nothing."""

import numpy as np
import pytest

import richobs
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput, Rejected
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason
from richobs.core.policies import Uniform
from richobs.core.queries import Answer
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners import learner
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs_lab.rivals.decoding import fit, gradients, k_means, logistic, play, policy_of, shares, softmax
from richobs_lab.rivals.embeddings import Features, rounded
from richobs_lab.rivals.homer import Abstraction, HomerTuning, action_values, contrast
from richobs_lab.rivals.pcid import DecodedModel, pcid
from richobs_lab.rivals.ppe import Extension, PpeTuning, best_path, decoded, eliminate, ppe

ROLLOUTS = 4_000
PPE = ("decoder=least-squares", "samples=150")  # logistic regression takes ten times as long


def learned(world, name, seed=0, **more):
    problem = richobs.make(world)
    return problem, run(problem, Settings(learner=name, seed=seed, **more))


def value_of(problem, policy):
    return float(problem.value(policy, episodes=ROLLOUTS))


def engine_of(problem, seed=0):
    return StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger())


def seen_at(problem, level, n=600):
    """Observations of one level under random play, and the state that the first three bits of the lock tell."""
    x = problem.env.play(Uniform(problem.n_actions), n, keyed_generator(0, "seen")).observations[level]
    return x, x[:, :3].argmax(axis=1)


def assert_same_partition(found, true):
    """Each learned state is one state, and all three states are there."""
    pairs = {(int(a), int(b)) for a, b in zip(found, true, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 3


class TestTheySolve:
    @pytest.mark.parametrize("world", ["lock/3", "lock/5,seed=2"])
    @pytest.mark.parametrize(("name", "tuning"), [("pcid", ()), ("ppe", PPE), ("homer", ())])
    def test_a_lock_of_bits(self, world, name, tuning):
        problem, outcome = learned(world, name, tuning=tuning)
        assert value_of(problem, outcome.policy) == 0.5  # V*, computed
        assert abs(outcome.value_hat - 0.5) < 0.2
        assert not outcome.guaranteed
        assert outcome.claim.startswith("No guarantee: the theorem on ")
        assert outcome.reason is StopReason.OWN_RULE

    @pytest.mark.parametrize(("name", "tuning"), [("pcid", ()), ("ppe", PPE), ("homer", ("planner=greedy",))])
    def test_a_lock_with_gaussian_noise(self, name, tuning):
        problem, outcome = learned("lock/5,noise=gaussian,seed=2", name, tuning=tuning)
        assert value_of(problem, outcome.policy) > 0.45

    @pytest.mark.parametrize("sigma", [0.0, 0.1])
    @pytest.mark.parametrize(("name", "tuning"), [("pcid", ()), ("ppe", ("samples=100",)), ("homer", ("search=200",))])
    def test_a_small_diabolical_lock(self, name, tuning, sigma):
        problem, outcome = learned(f"diabolical/4,n_actions=4,sigma={sigma}", name, tuning=tuning)
        assert value_of(problem, outcome.policy) == 1.0
        assert outcome.value_hat == pytest.approx(1.0, abs=0.05)

    def test_homer_knows_random_moves_that_pcid_cannot_tell_apart(self):
        """A live action leads to A or B by a coin: what came before does not tell them apart, and rewards do."""
        problem, outcome = learned("lock/4,swap=0.5,fail=0.1", "homer")
        assert value_of(problem, outcome.policy) == pytest.approx(0.5 * 0.9**3)
        problem, outcome = learned("lock/4,swap=0.5,fail=0.1", "pcid")
        assert value_of(problem, outcome.policy) < 0.3

    @pytest.mark.parametrize(("name", "how"), [("ppe", "logistic"), ("pcid", "network")])
    def test_other_regressions(self, name, how):
        problem, outcome = learned("lock/3", name, tuning=(f"decoder={how}", "samples=200"))
        assert value_of(problem, outcome.policy) == 0.5


class TestTheyDecode:
    def test_pcid_recovers_the_states(self):
        problem = richobs.make("lock/4")
        model, finished = pcid(engine_of(problem), 4, 4, 3, 480)
        assert finished
        assert [d.n_states for d in model.decoders] == [1, 3, 3, 3]
        for level in (1, 2, 3):
            x, true = seen_at(problem, level)
            assert_same_partition(model.decoders[level].states(x), true)
        np.testing.assert_allclose(model.transitions[1].sum(axis=2), 1)
        assert set(np.unique(model.transitions[1])) == {0, 1}  # moves are deterministic, and every one is known

    def test_homer_recovers_the_states(self):
        problem = richobs.make("lock/4")
        found = Abstraction(engine_of(problem), 4, 4)
        for _ in range(3):
            found.next_level(1_200, 480, 3, HomerTuning())
        for level in (1, 2, 3):
            x, true = seen_at(problem, level)
            assert_same_partition(found.decoders[level].states(x), true)
        policies = [policy_of(levels, 4, 4) for levels in found.covers[3]]
        plays = [problem.env.play(policy, 50, keyed_generator(0, "reach")) for policy in policies]
        reached = [set(played.observations[3][:, :3].argmax(axis=1).tolist()) for played in plays]
        assert sorted(reached, key=min) == [{0}, {1}, {2}]  # one policy for each state

    def test_ppe_recovers_the_states(self):
        problem = richobs.make("lock/4")
        known, stopped = ppe(engine_of(problem), 4, 4, PpeTuning(samples=150, decoder="least-squares"))
        assert stopped == ""
        assert [len(extension.cover) for extension in known] == [3, 3, 3, 12]
        x, true = seen_at(problem, 2)
        assert_same_partition(decoded(known[1], x, "least-squares"), true)


class TestTheyFailHonestly:
    def test_pcid_with_clusters_that_are_too_large(self):
        """The authors ask for 30 observations of a cluster at any sample size; with 200 episodes a level states are lost."""
        for least, lowest, highest in (("least=30", 0.0, 0.25), ("least=0", 0.5, 0.5)):
            problem, outcome = learned("lock/10,noise_bits=10", "pcid", tuning=("samples=200", least))
            assert lowest <= value_of(problem, outcome.policy) <= highest

    def test_ppe_notices_too_many_sequences(self):
        problem, outcome = learned("lock/5", "ppe", tuning=("samples=4", "paths=40"))
        assert value_of(problem, outcome.policy) < 0.25
        assert "action sequences of length" in outcome.claim
        assert outcome.claim.endswith("are allowed; more samples may help.")
        assert outcome.remarks == (outcome.claim.removeprefix("No guarantee: "),)
        assert outcome.value_hat is None

    @pytest.mark.parametrize("name", ["pcid", "homer"])
    def test_the_number_of_states_can_be_tuned(self, name):
        problem = richobs.make("lock/3")
        unknown = richobs.Problem(problem.env, problem.functions)
        with pytest.raises(InvalidInput, match="needs a bound on the number of states of a level"):
            prepare(unknown, Settings(learner=name))
        prepare(unknown, Settings(learner=name, tuning=("states=3",)))

    def test_an_early_end_is_refused(self):
        class Short:
            ledger = Ledger()

            def ask(self, query):
                zeros = [np.zeros(query.n)] * 2
                ended = [np.zeros(query.n, dtype=bool), np.ones(query.n, dtype=bool)]
                return Answer(query.n, episodes=Episodes(zeros, [z.astype(int) for z in zeros], zeros, ended))

        with pytest.raises(Rejected, match="ended an episode early, and level 0 decodes"):
            play(Short(), Uniform(2), 3, "level 0")


@pytest.mark.parametrize(("name", "episodes"), [("pcid", 5 * 420), ("homer", 4 * 1_200 + 3 * 6 * 480 + 5 * 1_200)])
def test_plans_are_what_is_played(name, episodes):
    problem = richobs.make("lock/5")
    assert learner(name).plan(problem, Settings(learner=name)).max_episodes == episodes
    assert run(problem, Settings(learner=name)).episodes == episodes


class TestParts:
    def test_plans_in_a_learned_model(self):
        """From the one state of level 0, action 1 leads to state 1 of level 1, whose action 0 pays most."""
        model = DecodedModel(2)
        model.transitions = [np.array([[[1.0, 0.0], [0.2, 0.8]]])]
        model.rewards = [np.array([[0.1, 0.0]]), np.array([[0.0, 0.3], [0.5, 0.2]])]
        actions, worth = model.values(model.rewards)
        assert [a.tolist() for a in actions] == [[1], [1, 0]]
        assert worth == pytest.approx(0.2 * 0.3 + 0.8 * 0.5)
        assert [a.tolist() for a in model.reach(0)] == [[0]]
        assert [a.tolist() for a in model.reach(1)] == [[1]]

    def test_eliminates_what_cannot_be_told_apart(self):
        """Sequences 0 and 2 lead to one state, 1 to another; the threshold is 5/24."""
        p = np.array([[0.6, 0.0, 0.4], [0.0, 1.0, 0.0], [0.4, 0.0, 0.6]])
        assert eliminate(p).tolist() == [0, 1, 0]  # the gap of 0 and 2 is 0.4/3, below 0.208
        assert eliminate(p - [[0, 0, 0], [0, 0, 0.3], [0, 0, 0]]).tolist() == [0, 1, 2]  # 0.7/3, above

    def test_the_best_path_follows_equal_sequences(self):
        first = Extension(((0,), (1,)), np.array([0.1, 0.0]), np.array([0, 1]), None)
        paths = ((0, 0), (0, 1), (1, 0), (1, 1))
        second = Extension(paths, np.array([0.0, 0.2, 0.9, 0.3]), np.array([0, 1, 1, 0]), None)
        assert second.cover == ((0, 0), (0, 1))
        assert best_path([first, second], 3, 2) == ((1, 0, 0), 0.9)  # action 0 where nothing is known
        assert best_path([], 2, 2) == ((0, 0), 0.0)

    def test_clusters_have_enough_points(self):
        points = np.repeat([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]], [50, 40, 10], axis=0)
        rng = keyed_generator(0, "points")
        centres = k_means(points, 3, 10, rng)
        assert sorted(map(tuple, centres)) == [(0, 0), (0, 3), (4, 0)]
        assert sorted(map(tuple, k_means(points, 3, 11, rng))) == [(0, 0.5), (4, 0)]  # the smallest joins its neighbour
        assert k_means(points, 3, 60, rng).tolist() == [[1.6, 0.3]]
        assert len(k_means(points[:50], 3, 5, rng)) == 1  # equal points make one cluster

    def test_impostors_tell_next_observations_apart(self):
        """Action 0 leads to "a", action 1 to "b" or "c": g is 2 for what can follow and 0 for what cannot."""
        actions = np.repeat([0, 1, 1], [4, 2, 2])
        next_x = np.repeat(["a", "b", "c"], [4, 2, 2])
        g = contrast(np.zeros(8, dtype=int), actions, next_x, 2, rank=2)
        a, b, c = g(np.array(["a", "b", "c"]))
        np.testing.assert_allclose(b, c, atol=1e-8)
        assert np.linalg.norm(a - b) == pytest.approx(2.0)  # |2 - 0| for both actions
        # Each action leads to its own letter three times of four: g is 1.5 and 0.5.
        g = contrast(np.zeros(8, dtype=int), np.repeat([0, 1], 4), np.array(list("aaababbb")), 2, rank=2)
        a, b = g(np.array(["a", "b"]))
        assert np.linalg.norm(a - b) == pytest.approx(1.0)

    def test_images_that_are_too_large_for_homer_are_refused(self):
        with pytest.raises(InvalidInput, match="4 actions times 1,001 features, and 1,001"):
            contrast(np.zeros((2, 1_000)), np.array([0, 1]), np.zeros((2, 1_000)), 4, 2)

    def test_numbers_keep_nine_digits(self):
        assert rounded([1234.56789012345, 1e-9]).tolist() == [1234.56789, 0.0]
        assert rounded(1.23456789012e-20) == pytest.approx(1.23456789e-20, rel=1e-14)
        assert rounded(0.0) == 0.0

    def test_action_values_are_means(self):
        x, actions = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 1])
        values = action_values(x, actions, np.array([0.0, 1.0, 0.2, 0.4, 0.6, 0.8]), 2)
        np.testing.assert_allclose(values(np.array([0, 1])), [[0.5, 0.2], [0.4, 0.7]], atol=1e-8)

    def test_logistic_regression_gives_frequencies(self):
        """Three of four observations of the first name have label 0; the ridge penalty is small beside 400 of them."""
        x, labels = np.repeat([0, 1], 400), np.concatenate([np.repeat([0, 1], [300, 100]), np.ones(400, dtype=int)])
        features = Features.of(x)
        p = softmax(features(np.array([0, 1])) @ logistic(features(x), np.eye(2)[labels]))
        np.testing.assert_allclose(p, [[0.75, 0.25], [0, 1]], atol=0.02)

    def test_a_network_learns_what_no_line_does(self):
        x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 20)
        labels = x[:, 0] ^ x[:, 1]
        right = {}
        for how in ("least-squares", "network"):
            g = fit(x, labels, 2, how, 8, keyed_generator(0, "xor"))
            right[how] = float((g(x).argmax(axis=1) == labels).mean())
        assert right["network"] == 1
        assert right["least-squares"] <= 0.75

    def test_gradients_are_slopes(self):
        rng = np.random.default_rng(0)
        phi, y, hidden, out = (rng.normal(size=shape) for shape in ((5, 3), (5, 2), (3, 4), (5, 2)))

        def loss(hidden, out):
            active = np.column_stack([np.ones(5), np.tanh(phi @ hidden)])
            return 0.5 * ((active @ out - y) ** 2).sum(axis=1).mean()

        for which, gradient in enumerate(gradients(hidden, out, phi, y)):
            for place in np.ndindex(gradient.shape):
                step = [np.zeros_like(hidden), np.zeros_like(out)]
                step[which][place] = 1e-5
                slope = (loss(hidden + step[0], out + step[1]) - loss(hidden - step[0], out - step[1])) / 2e-5
                assert gradient[place] == pytest.approx(slope, abs=1e-8)

    def test_features(self):
        images = np.arange(24.0).reshape(4, 2, 3)
        features = Features.of(images)
        phi = features(images)
        assert phi.shape == (4, 7)
        assert (phi[:, 0] == 1).all()
        assert (phi[:, 1:] ** 2).sum(axis=1).mean() == pytest.approx(1)
        np.testing.assert_allclose(phi[:, 1:].mean(axis=0), 0, atol=1e-8)
        names = Features.of(np.array([7, 3, 7]))
        assert names(np.array([3, 7, 5])).tolist() == [[1, 1, 0], [1, 0, 1], [1, 0, 0]]  # 5 was never seen
        with pytest.raises(InvalidInput, match="read 6 numbers with 2 axes"):
            features(np.zeros((4, 6)))
        with pytest.raises(InvalidInput, match="read single observations of type int64"):
            names(np.array(["a"]))

    def test_episodes_are_split_evenly(self):
        assert shares(10, 3) == [4, 3, 3]
        assert shares(2, 3) == [1, 1, 1]
