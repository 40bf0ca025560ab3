"""OLIVE: its constants by hand, runs by hand, the guarantee measured, and what happens where an assumption is false."""

import dataclasses
import json
import math

import numpy as np
import pytest

import richobs
from richobs.classes import Layered, TableLevel, Tables
from richobs.core.errors import BrokenPromise, InvalidInput, PrecisionError
from richobs.core.ledger import Ledger
from richobs.core.moments import Steps
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings
from richobs.learners.olive import Olive, OliveConstants, olive, own_errors, pair_error
from richobs.runs.certificate import Certificate
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs.runs.verify import verify
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine


def constants_for(functions, *, epsilon=0.4, delta=0.05, n_states=1):
    sizes = {"horizon": functions.horizon, "n_actions": functions.n_actions, "log_size": functions.log_size}
    return OliveConstants.of(**sizes, n_states=n_states, epsilon=epsilon, delta=delta)


class TestConstants:
    def test_by_hand(self):
        """H = 2, K = 3, M = 4, N = 100, epsilon = 0.2, delta = 0.06, so L = log(6*2*2*4/0.2) = log 480 = 6.173786."""
        c = OliveConstants.of(horizon=2, n_actions=3, n_states=4, log_size=math.log(100), epsilon=0.2, delta=0.06)
        assert c.zeta == 4
        assert c.phi == pytest.approx(0.2 / 48)
        assert c.stop == pytest.approx(0.125)
        assert c.n_est == 7369  # 800 log(10^4) = 7368.27
        assert c.n_eval == 284_868  # 28,800 log(192 * 6.173786 / 0.06) = 284,867.09
        assert c.n == 76_326_404  # 5,529,600 log(12 * 100 * 8 * 6.173786 / 0.06) = 76,326,403.51
        assert c.max_rounds == 96  # 8 * 6.173786 / 0.5108256 = 96.69
        assert c.delta_est == pytest.approx(0.02)
        assert c.delta_round == pytest.approx(0.06 / (6 * 8 * 6.173786))
        assert c.one_round == 7369 + 284_868 + 76_326_404
        assert c.max_episodes == 7369 + 96 * 284_868 + 95 * 76_326_404

    @pytest.mark.parametrize("horizon", [1, 2, 7])
    @pytest.mark.parametrize("n_states", [1, 2, 3, 10, 200])
    @pytest.mark.parametrize("epsilon", [0.99, 0.5, 0.1, 1e-4])
    @pytest.mark.parametrize(("n_actions", "log_size"), [(1, 0.0), (2, 5.0), (30, 300.0)])
    def test_the_sizes_are_what_the_proof_needs(self, horizon, n_states, epsilon, n_actions, log_size):
        """The proof in docs/olive.md, number by number: Hoeffding, Hoeffding, Bernstein, volumes, and the union bound."""
        H, K, M, delta = horizon, n_actions, n_states, 0.05
        c = OliveConstants.of(horizon=H, n_actions=K, n_states=M, log_size=log_size, epsilon=epsilon, delta=delta)
        tiny = 1 + 1e-9  # rounding
        assert math.log(2) + log_size - 2 * c.n_est * (epsilon / 8) ** 2 <= math.log(c.delta_est * tiny)
        radius = epsilon / (8 * H)
        assert math.log(2 * H) - 2 * c.n_eval * radius**2 / 3**2 <= math.log(c.delta_round * tiny)
        exponent = c.n * c.phi**2 / (2 * (4 * K + K * c.phi))  # variance at most 4K, deviation at most 3K
        assert math.log(2) + log_size - exponent <= math.log(c.delta_round)
        # The smallest ellipsoid around what a cut leaves has at most this share of the volume (Todd 1982).
        beta = 2 * c.phi / (epsilon / (2 * H))
        share = beta * math.sqrt(M) * (M * (1 - beta**2) / max(M - 1, 1)) ** ((M - 1) / 2)
        assert share < 3 / 5
        L = math.log(c.zeta / (2 * c.phi))
        assert H * math.floor(M * L / -math.log(share)) + 1 <= c.max_rounds
        assert c.delta_est + 2 * c.max_rounds * c.delta_round <= delta
        # Optimism loses 2 epsilon/8, the last round 5 epsilon/8 and H radii.
        assert 2 * epsilon / 8 + c.stop + H * radius == pytest.approx(epsilon)
        # A level that is picked has an error of at least epsilon/(2H): more than survivors can have.
        assert c.stop / H - radius == pytest.approx(6 * math.sqrt(M) * c.phi)


class TestErrors:
    def test_own_errors_by_hand(self):
        """Four episodes over two levels. Level 0: f = 0.8 at both of its visits' pairs, then 0.4.

        Mean prediction (3 * 0.8 + 0.4) / 4 = 0.7 at level 0 and (0.5 + 3 * 0.1) / 4 = 0.2 at level 1; mean rewards 0.1 and
        0.25; so the errors are 0.7 - 0.1 - 0.2 = 0.4 and 0.2 - 0.25 = -0.05.
        """
        functions = Tables([np.array([[[0.8, 0.1], [0.2, 0.4]]]), np.array([[[0.5, 0.3], [0.0, 0.1]]])])
        none = [np.zeros(0, dtype=int)] * 4
        level_0 = Steps(4, np.arange(2), np.array([[3.0, 0], [0, 1]]), np.array([[0.4, 0], [0, 0]]), *none)
        level_1 = Steps(4, np.arange(2), np.array([[1.0, 0], [0, 3]]), np.array([[0.5, 0], [0, 0.5]]), *none)
        found = own_errors((level_0, level_1), functions.member(0))
        np.testing.assert_allclose(found.errors, [0.4, -0.05])
        assert found.earned == pytest.approx(0.35)

    def test_pair_errors_by_hand(self):
        """Ten samples at one observation, actions 0 and 1; action 0 led to next observations 5, 6 (3 and 1 times), 1 to 6.

        Member 0 plays action 0 (value 0.5): K/n (4 * 0.5 - 0.8) = 0.24, and K/n = 0.2 times (3, 1) = (0.6, 0.2) ahead.
        Member 1 plays action 1 (value 0.9): 0.2 (6 * 0.9 - 0.6) = 0.96, and 0.2 (0, 6) = (0, 1.2) ahead.
        """
        functions = Layered([TableLevel([[[0.5, 0.3]], [[0.5, 0.9]]]), TableLevel(np.tile([0.25, 0.0], (1, 7, 1)))])
        a, r, y = np.array([0] * 4 + [1] * 6), np.array([0.2] * 4 + [0.1] * 6), np.array([5, 5, 6, 5] + [6] * 6)
        steps = Steps.of(np.zeros(10, dtype=int), a, r, y, 2)
        error = pair_error(functions, 0, steps, np.ones(2, dtype=bool), np.ones(1, dtype=bool))
        np.testing.assert_allclose(error.gain, [0.24, 0.96])
        np.testing.assert_allclose(error.reach[error.row], [[0.6, 0.2], [0.0, 1.2]])
        np.testing.assert_allclose(error.future, [[0.25, 0.25]])

    def test_parts_of_a_class_are_as_good_as_the_whole(self, monkeypatch):
        problem = richobs.make("random/3,seed=3")
        rng = np.random.default_rng(0)
        x, a, r, y = (rng.integers(3, size=500), rng.integers(2, size=500), rng.random(500), rng.integers(4, size=500))
        steps = Steps.of(x, a, r, y, 2)
        alive, next_alive = rng.random(20) < 0.7, rng.random(20) < 0.7
        whole = pair_error(problem.functions, 1, steps, alive, next_alive)
        monkeypatch.setattr("richobs.learners.olive.AT_ONCE_VALUES", 20)
        parts = pair_error(problem.functions, 1, steps, alive, next_alive)
        for one, other in zip(whole, parts, strict=True):
            np.testing.assert_array_equal(one, other)


def bandit(values, rewards=(0.4, 0.2)):
    """One level, one observation, deterministic rewards; functions are listed by their values `[N, K]`."""
    process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (Rewards.deterministic([[list(rewards)]]),))
    return process, Tables([np.asarray(values, dtype=float)[:, None, :]])


def ask(process, functions, constants, *, seed=0, notify=None):
    engine = CountedEngine(process, functions, seed=seed, ledger=Ledger())
    told = []
    outcome = olive(engine, functions, constants, notify=lambda p: told.append(p.event))
    return outcome, told, engine.ledger


class TestRunsByHand:
    def test_one_level(self):
        """Rewards 0.4 and 0.2; epsilon 0.4, so phi = 1/30 and the sum of errors must not exceed 0.25.

        Function 1 promises 0.9 and gets 0.4: error 0.5. The test then drops it, function 2 (0.8 - 0.2 = 0.6) and function 3
        (0.35 - 0.4 = -0.05, below -1/30), and keeps function 4 (-0.03) and Q* = function 0. Q* predicts more.
        """
        process, functions = bandit([[0.4, 0.2], [0.9, 0.1], [0.1, 0.8], [0.35, 0.2], [0.37, 0.1]])
        c = constants_for(functions)
        outcome, told, ledger = ask(process, functions, c)
        assert [e.kind for e in told] == ["estimation", "evaluation", "elimination", "evaluation"]
        assert told[0].largest == pytest.approx(0.9)
        assert (told[1].value, told[1].earned, told[1].total) == pytest.approx((0.9, 0.4, 0.5))
        assert (told[2].tested, told[2].log_size_before, told[2].log_size_after) == (0, math.log(5), math.log(2))
        assert told[3].total == pytest.approx(0)
        assert outcome.policy.member == 0
        assert (outcome.rounds, outcome.value_hat, outcome.v_star_hat) == (2, pytest.approx(0.4), pytest.approx(0.4))
        assert [(e.purpose, e.episodes) for e in ledger] == [
            ("estimation", c.n_est),
            ("evaluation", 2 * c.n_eval),
            ("elimination", c.n),
        ]

    def test_every_event_of_the_union_bound_is_claimed(self):
        process, functions = bandit([[0.4, 0.2], [0.9, 0.1]])
        c = constants_for(functions)
        outcome, _, _ = ask(process, functions, c)
        assert [(claim.n, claim.share, claim.value) for claim in outcome.claims] == [
            (c.n_est, pytest.approx(0.05 / 3), pytest.approx(0.05)),
            (c.n_eval, c.delta_round, pytest.approx(0.05)),
            (c.n, c.delta_round, pytest.approx(1 / 30)),
            (c.n_eval, c.delta_round, pytest.approx(0.05)),
        ]
        assert outcome.claims[2].kind == "every function's average Bellman error at level 0 is estimated up to phi"

    @pytest.mark.parametrize(
        ("rival", "epsilon", "totals", "rounds", "member"),
        [
            ((0.6, 0.3), 0.4, [0.4, 0.0], 2, 0),  # 0.6 - 0.1 - 0.3 and 0.3 - 0.1
            ((0.3, 0.0), 0.2, [0.1], 1, 1),  # 0.2 and -0.1; 0.125 is allowed, so the run ends
        ],
    )
    def test_errors_of_levels_add_up(self, rival, epsilon, totals, rounds, member):
        """Both levels pay 0.1; the rival of Q* predicts two other values."""
        process = TabularProcess(
            np.ones(1), (np.ones((1, 1, 1)),), (np.ones((1, 1)),) * 2, (Rewards.deterministic([[[0.1]]]),) * 2
        )
        functions = Tables([[[[0.2]], [[rival[0]]]], [[[0.1]], [[rival[1]]]]])
        outcome, told, _ = ask(process, functions, constants_for(functions, epsilon=epsilon))
        assert [e.total for e in told[1::2]] == pytest.approx(totals)
        assert (outcome.rounds, outcome.policy.member) == (rounds, member)

    @pytest.mark.parametrize(("promise", "rounds"), [(0.64, 1), (0.66, 2)])
    def test_it_stops_at_five_eighths_of_epsilon(self, promise, rounds):
        """The optimist promises 0.24 or 0.26 too much, and 0.25 is allowed."""
        process, functions = bandit([[0.4, 0.2], [promise, 0.1]])
        outcome, told, _ = ask(process, functions, constants_for(functions))
        assert outcome.rounds == rounds
        assert outcome.policy.member == (1 if rounds == 1 else 0)
        assert told[1].stop == pytest.approx(0.25)

    @pytest.mark.parametrize(("low", "kept"), [(0.37, True), (0.36, False)])
    def test_it_keeps_errors_up_to_phi(self, low, kept):
        """phi = 1/30: an error of -0.03 survives, one of -0.04 does not; function 0 starts the elimination."""
        process, functions = bandit([[0.9, 0.1], [0.4, 0.2], [low, 0.2]])
        _, told, _ = ask(process, functions, constants_for(functions))
        assert told[2].log_size_after == (math.log(2) if kept else 0.0)

    def test_two_levels_and_a_coin(self):
        """Action 0 leads to state A or B with probability 1/2 each, action 1 to B; A pays 1 and B nothing.

        Q* = (0.5, 0) at level 0, and 1 at A, 0 at B. Its rivals promise 0.75 for action 1 at level 0, and 0.75 at B. Errors
        of pairs at level 0: (Q*, Q*): 0.5 - 0.5 = 0; (Q*, rival): 0.5 - (1 + 0.75)/2 = -0.375; (rival, Q*): 0.75; (rival,
        rival): 0.75 - 0.75 = 0. Round 1 plays (rival, Q*), which predicts 0.75 and earns 0: level 0 is tested and two pairs
        stay. Round 2 plays (rival, rival), whose only error is 0.75 at level 1: the rival there goes, and with it the pair.
        """
        coin = coin_process()
        functions = Layered([TableLevel([[[0.5, 0.0]], [[0.0, 0.75]]]), TableLevel([level_1(0.0), level_1(0.75)])])
        outcome, told, _ = ask(coin, functions, constants_for(functions, n_states=2))
        assert [e.kind for e in told] == ["estimation", *["evaluation", "elimination"] * 2, "evaluation"]
        assert [e.value for e in told[1::2]] == pytest.approx([0.75, 0.75, 0.5])
        assert [e.total for e in told[1::2]] == pytest.approx([0.75, 0.75, 0.0], abs=0.01)  # 5 deviations of the last
        assert [e.tested for e in told[2::2]] == [0, 1]
        assert [e.log_size_after for e in told[2::2]] == pytest.approx([math.log(2), 0.0])
        assert outcome.policy.member == (0, 0)
        assert coin.value(outcome.policy) == 0.5

    def test_the_roll_in_is_the_candidates(self):
        """Function 1 goes to B and promises 0.75 too much there; function 2 promises 0.3 too little at A, 0.1 too much at B.

        Function 1 is tested where its policy leads, at B, and so is function 2, whose error there is 0.1. Uniform actions
        would lead to A with probability 1/4, where the errors of function 2 cancel.
        """
        coin = coin_process()
        root = np.array([[[0.5, 0.0]], [[0.0, 0.75]], [[0.5, 0.0]]])
        then = np.array([level_1(0.0), level_1(0.75), [[0.7, 0.7], [0.1, 0.1]]])
        functions = Tables([root, then])
        search, told, _ = ask(coin, functions, constants_for(functions, n_states=2))
        first = next(e for e in told if e.kind == "elimination")
        assert first.tested == 1
        assert first.log_size_after == 0.0
        assert search.policy.member == 0


def level_1(at_b):
    return [[1.0, 1.0], [at_b, at_b]]


def coin_process():
    moves = np.array([[[0.5, 0.5], [0.0, 1.0]]])
    rewards = Rewards.deterministic(np.zeros((1, 1, 2))), Rewards.deterministic([[[1.0]], [[0.0]]])
    return TabularProcess(np.ones(1), (moves,), (np.ones((1, 1)), np.eye(2)), rewards)


def asked(**more):
    return Settings(**{"learner": "olive", "epsilon": 0.1, **more})


WORLDS = ("lock/3,noise_bits=1", "mdp/3,stochastic=True", "random/3", "random/3,violate=deterministic,seed=2")


class TestWorlds:
    @pytest.mark.parametrize("world", WORLDS)
    def test_it_is_right_and_can_be_checked(self, world):
        problem = richobs.make(world)
        outcome = run(problem, asked())
        assert outcome.guaranteed
        assert problem.optimal_value - problem.value(outcome.policy) <= 0.1
        assert 10**8 < outcome.episodes <= Olive().plan(problem, asked()).max_episodes
        assert math.fsum(c.share for c in outcome.claims) <= 0.05
        assert len(outcome.claims) == len(outcome.trace)
        certificate = Certificate.of(outcome, problem)
        assert verify(certificate, problem).agrees

    def test_a_constant_that_was_changed_is_found(self):
        problem = richobs.make(WORLDS[2])
        content = json.loads(Certificate.of(run(problem, asked()), problem).to_json())
        content["constants"]["n_eval"] += 1
        content["claims"][0][3] = 0.05
        findings = {f.what: f for f in verify(Certificate(content), problem).findings}
        assert not findings["constants"].agrees
        assert "n_eval" in findings["constants"].detail
        assert not findings["delta"].agrees
        assert findings["Bellman rank"].agrees

    def test_a_rank_below_the_number_of_states_is_found(self):
        problem = richobs.make(WORLDS[1])
        certificate = Certificate.of(run(problem, asked(n_states=2)), problem)
        findings = {f.what: f.agrees for f in verify(certificate, problem).findings}
        assert not findings["Bellman rank"]


def test_it_fails_no_more_often_than_delta():
    """On 200 random processes with random transitions.

    Were the failure probability at most delta = 0.2, so many failures or more would be seen with probability at least 1e-6.
    """
    failed = 0
    for seed in range(200):
        problem = richobs.make(f"mdp/2,n_states=3,n_actions=2,class_size=12,stochastic=True,seed={seed}")
        c = constants_for(problem.functions, epsilon=0.2, delta=0.2, n_states=3)
        engine = CountedEngine(problem.process, problem.functions, seed=seed, ledger=Ledger())
        try:
            failed += problem.optimal_value - problem.value(olive(engine, problem.functions, c).policy) > 0.2
        except BrokenPromise:
            failed += 1
    tail = math.fsum(math.comb(200, i) * 0.2**i * 0.8 ** (200 - i) for i in range(failed, 201))
    assert tail >= 1e-6


class TestBrokenAssumptions:
    def test_a_class_without_q_star_may_be_noticed(self):
        process, functions = bandit([[0.9, 0.1], [0.1, 0.8]])
        with pytest.raises(BrokenPromise, match=r"no function survived 1 eliminations\. Q\* is not in the class"):
            ask(process, functions, constants_for(functions))

    def test_a_class_without_q_star_may_go_unnoticed(self):
        """A function that is right about the action it plays and too low about the better one contradicts no data."""
        process, functions = bandit([[0.4, 0.2]], rewards=(0.4, 0.9))
        outcome, _, _ = ask(process, functions, constants_for(functions))
        assert process.value(outcome.policy) == 0.4
        assert process.optimum.value == 0.9

    def test_too_many_rounds_are_noticed(self):
        process, functions = bandit([[0.4, 0.2], [0.9, 0.1]])
        c = dataclasses.replace(constants_for(functions), max_rounds=1)
        said = "1 rounds did not suffice; a Bellman rank of n_states = 1 allows no more"
        with pytest.raises(BrokenPromise, match=said):
            ask(process, functions, c)

    def test_rounding_does_not_decide(self):
        process, functions = bandit([[0.4, 0.2], [0.9, 0.1]])
        with pytest.raises(PrecisionError, match="Rounding would decide which functions survive"):
            ask(process, functions, dataclasses.replace(constants_for(functions), phi=1e-15))


class TestStreaming:
    def test_so_many_episodes_are_not_streamed(self):
        problem = richobs.make("lock/10")
        with pytest.raises(InvalidInput, match=r"OLIVE as printed asks for .* until its first elimination is done"):
            prepare(problem, asked(engine="stream", epsilon=0.01))
        prepare(problem, asked(engine="stream", epsilon=0.01, max_episodes=10))
        prepare(problem, asked(engine="counted", epsilon=0.01))

    def test_an_environment_of_ones_own_is_played(self):
        """Sizes are small at epsilon 0.9; no process is given, and workers do not change a byte."""
        process, functions = bandit([[0.02, 0.01], [0.9, 0.95]], rewards=(0.02, 0.01))
        problem = richobs.Problem(WorldEnvironment(TabularWorld(process)), functions, n_states=1)
        settings = asked(epsilon=0.9, delta=0.5)
        outcome = run(problem, settings)
        assert outcome.policy.member == 0
        assert outcome.rounds == 2
        again = run(problem, dataclasses.replace(settings, workers=2))
        assert again.claims == outcome.claims
        assert again.trace == outcome.trace
