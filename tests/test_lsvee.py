"""LSVEE as printed: constants as literals, a run worked out by hand, a golden tree, the guarantee over many runs."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import richobs
from richobs.classes import Layered, TableLevel, listed_product
from richobs.core.errors import BrokenPromise, EpisodeLimit, InvalidInput, PrecisionError
from richobs.core.ledger import Ledger
from richobs.core.moments import Moments
from richobs.core.outcome import StopReason
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine
from richobs_lab.lsvee import Lsvee, PaperConstants, lsvee
from richobs_lab.lsvee.consensus import consensus
from richobs_lab.lsvee.dfs import LsveeSearch, learn_from
from richobs_lab.lsvee.elimination import td_risk
from richobs_lab.lsvee.spaces import td_space

learn = partial(richobs.learn, learner="lsvee")


class TestConstants:
    def test_against_numbers_worked_out_from_the_main_text(self):
        """H=3, K=2, M=2, N=100, epsilon=delta=0.1, from Algorithms 1 to 3 as printed in the main text (bc, 40 digits)."""
        c = PaperConstants.of(horizon=3, n_actions=2, n_states=2, log_size=math.log(100), epsilon=0.1, delta=0.1)
        phi = 0.1 / (320 * 9 * 2**0.5)
        assert c.phi == pytest.approx(2.455233e-05, rel=1e-6)
        # Algorithm 2: n_train = 24/phi^2 log(8 M H N / (delta/2)), log(96000) = 11.472103470449973
        # and 1/phi^2 = 320^2 * 81 * 2 / 0.01 = 1658880000, so n_train = 39813120000 log(96000)
        assert c.search.n_train == 456740232122
        # Algorithm 3 with delta' = (delta/4)/(M K H): n_test = 2/phi^2 log(2N * 4 M K H / delta), log(96000)
        assert c.search.n_test == 38061686011
        # Algorithm 2: slack = 2 phi^2 + 22 log(4 M H N / (delta/2)) / n_train, log(48000) = 10.778956289890028
        assert c.search.slack == pytest.approx(2 * phi**2 + 22 * 10.778956289890028 / 456740232122, rel=1e-12)
        # Algorithm 1: n_1 = 32 log(12 M H/delta)/eps^2 = 3200 log 720, n_2 = 80 log 360
        assert (c.n_1, c.n_2) == (21054, 471)
        assert c.eps_demand == 0.05
        # Algorithm 2 at |p| = 0 and 1: 20 (H - |p| - 5/4) sqrt(K) phi = 20 * 1.75 * 0.1/2880 and 20 * 0.75 * 0.1/2880
        assert c.eps_test(1) == pytest.approx(0.0012152777777777778)
        assert c.eps_test(2) == pytest.approx(0.0005208333333333333)
        # On demand: delta/(6 M H^2 n_2) = 0.1/(6*2*9*471)
        assert c.demand.delta == pytest.approx(0.1 / 50868)

    def test_main_text_and_appendix_agree(self):
        """The appendix splits delta in halves; substituted into its boxes it gives the main text's formulas."""
        H, K, M, N, eps, delta = 7, 3, 4, 1000, 0.2, 0.01
        c = PaperConstants.of(horizon=H, n_actions=K, n_states=M, log_size=math.log(N), epsilon=eps, delta=delta)
        for s in (c.search, c.demand):
            d = s.delta
            assert s.n_train == math.ceil(24 / c.phi**2 * math.log(8 * M * H * N / d))
            assert s.n_test == math.ceil(2 / c.phi**2 * math.log(4 * N * M * K * H / d))
            assert s.slack == pytest.approx(2 * c.phi**2 + 22 * math.log(4 * M * H * N / d) / s.n_train, rel=1e-12)
        assert c.search.delta == delta / 2
        assert c.demand.delta == pytest.approx(delta / (6 * M * H**2 * c.n_2))
        assert c.n_1 == math.ceil(32 * math.log(12 * M * H / delta) / eps**2)
        assert c.n_2 == math.ceil(8 * math.log(6 * M * H / delta) / eps)

    def test_the_displayed_bounds_hold(self):
        """T(n_train + K n_test) <= 3e6 T H^4 K/eps^2 log(8NMH/d) + 3e5 T H^4 K^2/eps^2 log(4NMKH/d), DFS-Learn."""
        for H, K, M in [(2, 2, 2), (5, 4, 3), (20, 10, 7)]:
            c = PaperConstants.of(horizon=H, n_actions=K, n_states=M, log_size=50.0, epsilon=0.1, delta=0.05)
            d, scale = c.search.delta, M * H * H**4 / 0.1**2
            first = 3e6 * scale * K * (50 + math.log(8 * M * H / d))
            second = 3e5 * scale * K**2 * (50 + math.log(4 * M * K * H / d))
            assert c.max_search_episodes <= first + second

    def test_large_sizes_are_rounded_up_exactly(self):
        """H=5, K=3, M=7, log N = 100: sizes near 2^53, where double precision comes out one short (60 digits by bc)."""
        c = PaperConstants.of(horizon=5, n_actions=3, n_states=7, log_size=100.0, epsilon=0.01, delta=0.001)
        assert (c.search.n_train, c.search.n_test) == (5217900690249739, 436382043535947)
        assert (c.demand.n_train, c.demand.n_test) == (5930018430103341, 495725188523748)

    @pytest.mark.parametrize(
        "wrong", [{"epsilon": 0}, {"epsilon": 1.0}, {"delta": 0}, {"delta": math.nan}, {"n_states": 0}, {"horizon": 0}]
    )
    def test_impossible_requests(self, wrong):
        given = {"horizon": 2, "n_actions": 2, "n_states": 2, "log_size": 1.0, "epsilon": 0.1, "delta": 0.1}
        with pytest.raises(InvalidInput):
            PaperConstants.of(**{**given, **wrong})


def moments(v_mean, u_mean=None, u_var=None, actions=(1, 1)):
    v = np.asarray(v_mean, dtype=float)
    zero = np.zeros((len(v), len(actions)))
    u_mean, u_var = (zero if u is None else u for u in (u_mean, u_var))
    return Moments(sum(actions), actions, v, np.zeros_like(v), u_mean, u_var)


def test_consensus_looks_at_survivors_only():
    m = moments([0.5, 0.9, 0.52])
    assert consensus(m, np.array([True, False, True]), eps_test=0.03) == (True, m.v_mean, pytest.approx(0.02))
    assert not consensus(m, np.array([True, True, True]), eps_test=0.03).agree


def test_consensus_is_as_strict_as_its_tolerance():
    m, alive = moments([0.5, 0.54]), np.ones(2, dtype=bool)
    assert not consensus(m, alive, eps_test=0.03).agree
    assert consensus(m, alive, eps_test=0.05).agree


def test_td_risk_by_hand():
    """Two functions, two actions taken 3 times and once: risk = sum_a share_a (var_a + (gain_a - future_a)^2)."""
    m = moments([0, 0], np.array([[0.5, 0.2], [0.1, 0.1]]), np.array([[0.04, 0.0], [0.0, 0.08]]), actions=(3, 1))
    risk = td_risk(0, m, [np.array([0.4, 0.3]), np.array([0.2, 0.0])])
    np.testing.assert_allclose(risk.noise, [0.03, 0.02])
    totals = risk.noise + ((risk.gain - risk.future) ** 2) @ risk.share
    np.testing.assert_allclose(totals, [0.03 + 0.75 * 0.01, 0.02 + 0.75 * 0.04 + 0.25 * 0.01])


def traced(engine, functions, constants):
    """A run of LSVEE with its trace and ledger."""
    trace = []
    outcome = lsvee(engine, functions, constants, notify=lambda progress: trace.append(progress.event))
    return dataclasses.replace(outcome, trace=tuple(trace), ledger=engine.ledger)


def small_process():
    """One observation at level 0; action 0 leads to state 0, action 1 to state 1, each with an observation of its own.

    Rewards are certain: nothing at level 0; (0.2, 0.6) in state 0 and (0.5, 0.1) in state 1. So V* = 0.6.
    """
    rewards = Rewards.deterministic(0.0), Rewards.deterministic([[[0.2, 0.6]], [[0.5, 0.1]]])
    return TabularProcess(np.ones(1), (np.array([[0, 1]]),), (np.ones((1, 1)), np.eye(2)), rewards)


def small_class():
    """Level 0: Q* and two wrong ones. Level 1: one that is wrong in state 0 but predicts its value, Q*, one wrong in 1."""
    last = TableLevel([[[0.6, 0.2], [0.5, 0.1]], [[0.2, 0.6], [0.5, 0.1]], [[0.2, 0.6], [0.3, 0.6]]])
    return Layered([TableLevel([[[0.6, 0.5]], [[0.5, 0.6]], [[0.6, 0.4]]]), last])


def small_run():
    sizes = {"horizon": 2, "n_actions": 2, "n_states": 2, "log_size": math.log(9)}
    engine = CountedEngine(small_process(), small_class(), seed=0, ledger=Ledger())
    return traced(engine, small_class(), PaperConstants.of(**sizes, epsilon=0.1, delta=0.1))


def small_problem(root, below):
    """The small process with a class of one function: one value at the root, `[2, 2]` values at level 1."""
    process = small_process()
    functions = Layered([TableLevel(np.full((1, 1, 2), root)), TableLevel([below])])
    return richobs.Problem(WorldEnvironment(TabularWorld(process)), functions, process, n_states=2)


def test_a_whole_run_worked_out_by_hand():
    """Every verdict, statistic, threshold and survivor count of the run, by pencil.

    phi = 0.1/(320*4*sqrt 2), eps_test = 20*0.75*sqrt(2)*phi = 0.1*15/1280. Actions are uniform up to 1e-6 at these n.
    Search: at (0,) all predict 0.6: agree. At (1,) predictions are 0.5, 0.5, 0.6: disagree, so learn (1,): risks 0, 0 and
    (0.2^2 + 0.5^2)/2 = 0.145, the third dies. At the root, against futures (0.6, 0.5): risks 0, (0.1^2+0.1^2)/2 = 0.01 and
    0.1^2/2 = 0.005: two of three die; 1 * 2 chains are left, V*-hat = 0.6.
    Demand: the first survivor earns 0.2 at state 0: failed by 0.4. Its path is (0, 0); learning (0,): risks
    (0.4^2 + 0.4^2)/2 = 0.16 and 0. The second survivor earns 0.6.
    """
    outcome = small_run()
    c = outcome.constants
    close = {"rel": 1e-4, "abs": 1e-9}
    expected = [
        ("consensus", "search", (0,), "agree", 0.0, 0.1 * 15 / 1280, c.search.n_test, 9, 9),
        ("consensus", "search", (1,), "disagree", 0.1, 0.1 * 15 / 1280, c.search.n_test, 9, 9),
        ("elimination", "search", (1,), "dropped", 0.0, c.search.slack, c.search.n_train, 9, 6),
        ("elimination", "search", (), "dropped", 0.0, c.search.slack, c.search.n_train, 6, 2),
        ("rollout", "demand", (), "failed", 0.4, 0.05, c.n_1, 2, 2),
        ("elimination", "demand", (0,), "dropped", 0.0, c.demand.slack, c.demand.n_train, 2, 1),
        ("rollout", "demand", (), "near-optimal", 0.0, 0.05, c.n_1, 1, 1),
    ]
    assert len(outcome.trace) == len(expected)
    for event, values in zip(outcome.trace, expected, strict=True):
        kind, phase, path, verdict, statistic, threshold, n, before, after = values
        assert (event.kind, event.phase, event.path, event.said().verdict, event.n) == (kind, phase, path, verdict, n)
        assert event.said().statistic == pytest.approx(statistic, **close)
        assert event.said().threshold == pytest.approx(threshold, **close)
        assert math.exp(event.log_size_before) == pytest.approx(before)
        assert math.exp(event.log_size_after) == pytest.approx(after)
    assert outcome.v_star_hat == pytest.approx(0.6)
    assert outcome.value_hat == pytest.approx(0.6)
    assert outcome.policy.member == (0, 1)
    assert outcome.rounds == 2
    assert outcome.reason is StopReason.NEAR_OPTIMAL
    s, d = c.search, c.demand
    assert outcome.episodes == 2 * s.n_test + 2 * s.n_train + 2 * c.n_1 + d.n_train


def test_what_a_whole_run_claims_by_hand():
    """The same run at delta = 0.1 with M H = 4, K = 2: every event of the union bound that it used, with its share.

    The root's search has 0.05: half of it over M K H = 8 consensus tests and half over M H = 4 eliminations. A round on
    demand claims 0.1 / (6 * 4) that its value is right, and as much where it failed. A search on demand has
    0.1 / (6 * 2 * 2^2 * n_2), of which half goes to 4 eliminations.
    """
    outcome = small_run()
    test, elimination, one_round = 0.025 / 8, 0.025 / 4, 0.1 / 24
    on_demand = 0.1 / (48 * outcome.constants.n_2) / 2 / 4
    expected = [test, test, elimination, elimination, one_round, one_round, on_demand, one_round]
    assert [c.share for c in outcome.claims] == pytest.approx(expected)
    assert [c.path for c in outcome.claims] == [(0,), (1,), (1,), (), (), (), (0,), ()]


def check_run(problem, outcome, epsilon):
    """What the paper promises of every run, on the good event; returns whether the answer is right."""
    c, M, H, K = outcome.constants, problem.n_states, problem.horizon, problem.n_actions
    in_search = [e for e in outcome.trace if e.phase == "search"]
    assert sum(e.kind == "elimination" for e in in_search) <= M * H  # theorem for DFS-Learn: T <= M H
    assert sum(e.kind == "consensus" for e in in_search) <= M * K * H
    assert outcome.rounds <= M * H
    assert outcome.episodes <= c.max_search_episodes + c.max_demand_episodes
    assert abs(outcome.v_star_hat - problem.optimal_value) <= epsilon / 8  # Corollary 1
    return problem.optimal_value - problem.value(outcome.policy).value <= epsilon


@settings(max_examples=50, deadline=None)
@given(
    horizon=st.integers(1, 5),
    n_states=st.integers(1, 4),
    n_actions=st.integers(1, 3),
    overlap=st.sampled_from([0.0, 0.5, 1.0]),
    class_size=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    epsilon=st.sampled_from([0.02, 0.1, 0.5]),
)
def test_the_guarantee_over_random_processes(horizon, n_states, n_actions, overlap, class_size, seed, epsilon):
    """Every run is allowed to fail with probability 0.1; at these constants a single failure would be a bug."""
    size = {"horizon": horizon, "n_states": n_states, "n_actions": n_actions, "class_size": class_size}
    problem = richobs.make("random", overlap=overlap, seed=seed, **size)
    outcome = learn(problem, epsilon=epsilon, delta=0.1, seed=seed)
    assert check_run(problem, outcome, epsilon)
    events = [e for e in outcome.trace if e.kind == "elimination"]
    assert all(a.log_size_after <= a.log_size_before + 1e-9 for a in events)


WORLDS = "lock diabolical/3 disjoint mdp deep-sea/5 bandit lock/4,n_actions=2"


@pytest.mark.parametrize("world", WORLDS.split())
def test_the_guarantee_in_every_world(world):
    problem = richobs.make(world)
    assert check_run(problem, learn(problem, epsilon=0.1, delta=0.1), 0.1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 3), n_states=st.integers(1, 3), class_size=st.integers(1, 5))
def test_layered_and_listed_classes_give_the_same_run(seed, horizon, n_states, class_size):
    """The same draws, verdicts, thresholds, survivors, picks and episodes, whether the product is listed or not."""
    problem = richobs.make("random", horizon=horizon, n_states=n_states, class_size=class_size, seed=seed)
    constants = Lsvee().constants(problem, Settings(delta=0.1))
    both, how = (problem.functions, listed_product(problem.functions)), {"seed": seed}
    one, two = (traced(CountedEngine(problem.process, f, ledger=Ledger(), **how), f, constants) for f in both)
    assert one.episodes == two.episodes
    assert one.rounds == two.rounds
    for a, b in zip(one.trace, two.trace, strict=True):
        assert (a.kind, a.path, a.said().verdict, a.n) == (b.kind, b.path, b.said().verdict, b.n)
        assert a.said().statistic == pytest.approx(b.said().statistic, rel=1e-9, abs=1e-15)
        assert a.said().threshold == pytest.approx(b.said().threshold, rel=1e-9, abs=1e-15)
        assert a.log_size_after == pytest.approx(b.log_size_after, abs=1e-9)
    assert two.policy.member == np.ravel_multi_index(one.policy.member, [class_size] * horizon)


class TestEdges:
    def test_repeats_as_printed_give_the_same_answer_for_more_episodes(self):
        problem = richobs.make("lock/3", noise_bits=1)
        skip = learn(problem, epsilon=0.5, delta=0.1)
        verbatim = learn(problem, epsilon=0.5, delta=0.1, tuning={"repeats": "verbatim"})
        assert skip.rounds > 1
        assert skip.ledger.skipped > 0
        assert verbatim.ledger.skipped == 0
        assert verbatim.episodes > skip.ledger.skipped  # the same rounds, every repeat played
        assert verbatim.episodes > 10 * skip.episodes
        assert check_run(problem, verbatim, 0.5)
        per_round = verbatim.constants.n_2 * (problem.horizon - 1)
        repeated = sum(e.kind == "elimination" and e.phase == "demand" for e in verbatim.trace)
        assert repeated >= (verbatim.rounds - 1) * per_round


class TestVerbatim:
    """What LSVEE does besides what is printed is switched off, and a run still ends."""

    verbatim = partial(learn, tuning={"repeats": "verbatim"})

    def test_a_search_goes_on_beyond_m_h_eliminations(self):
        """Deep sea has four states at a level where one is claimed: the default stops, the printed search does not."""
        outcome = self.verbatim(richobs.make("deep-sea/4"), n_states=1, epsilon=0.3)
        assert sum(e.kind == "elimination" and e.phase == "search" for e in outcome.trace) > 4

    def test_a_policy_that_beats_the_estimate_by_little_passes(self):
        outcome = self.verbatim(small_problem(0.57, [[0.0, 0.57], [0.57, 0.0]]))
        assert outcome.value_hat == pytest.approx(0.6)

    def test_a_policy_that_failed_is_tried_again_until_the_safe_stop(self):
        """One function, which predicts 0.9 where 0.6 or less is earned: it fails in every round."""
        said = r"played [\d,]+ episodes, more than the [\d,]+ that the proof"
        with pytest.raises(BrokenPromise, match=said) as stopped:
            self.verbatim(small_problem(0.9, [[0.9, 0.9], [0.9, 0.9]]), epsilon=0.5, delta=0.5)
        assert sum(e.kind == "rollout" for e in stopped.value.trace) > 1

    def test_rounds_that_learn_nothing_end_too(self):
        """At H = 1 a failed round costs n_1 episodes only, so that the bound on episodes is far: rounds are counted."""
        process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (Rewards.deterministic([[[0.1, 0.2]]]),))
        functions = Layered([TableLevel(np.full((1, 1, 2), 0.9))])
        problem = richobs.Problem(WorldEnvironment(TabularWorld(process)), functions, process, n_states=1)
        with pytest.raises(BrokenPromise, match="within 100 times M H = 1 rounds") as stopped:
            self.verbatim(problem)
        assert sum(e.kind == "rollout" for e in stopped.value.trace) == 100


class TestBrokenPromises:
    def test_too_many_states(self):
        with pytest.raises(BrokenPromise, match=r"more than M H = 4 eliminations.*probability at most 0.05") as stopped:
            learn(richobs.make("deep-sea/4"), n_states=1)
        assert stopped.value.ledger.total == sum(e.n for e in stopped.value.trace) > 0

    @pytest.mark.parametrize(
        ("root", "below", "said"),
        [
            (0.9, [[0.9, 0.9], [0.9, 0.9]], "every surviving policy was tried"),
            (0.1, [[0.0, 0.1], [0.1, 0.0]], "a policy earns 0.6, more than the optimal value estimated at .* 0.1"),
            (0.57, [[0.0, 0.57], [0.57, 0.0]], r"a policy earns 0\.6, .*, 0\.57, by more than epsilon/4 = 0\.025"),
        ],
    )
    def test_a_class_without_the_truth_is_noticed(self, root, below, said):
        """V* is 0.6. All predict 0.9, 0.1, or 0.57, which is too little by more than epsilon/4, though not epsilon/2."""
        with pytest.raises(BrokenPromise, match=said):
            learn(small_problem(root, below), epsilon=0.1)

    def test_every_search_counts_its_own_eliminations(self):
        """At most M H eliminations are allowed in one search; on demand there are many searches."""
        problem = richobs.make("random", seed=0)
        engine = CountedEngine(problem.process, problem.functions, seed=0, ledger=Ledger())
        constants = Lsvee().constants(problem, Settings(delta=0.1))
        search = LsveeSearch(engine, td_space(problem.functions), constants)
        for _ in range(constants.max_eliminations + 2):
            learn_from(search, (), constants.search)
            assert 1 <= search.eliminations <= constants.max_eliminations

    def test_an_epsilon_too_small_for_float64_is_refused(self):
        problem = richobs.make("bandit")
        with pytest.raises(PrecisionError, match="Use a larger epsilon or a shorter horizon"):
            learn(problem, epsilon=1e-6, delta=0.1)

    def test_but_not_where_it_can_be_resolved(self):
        problem = richobs.make("lock/6", noise_bits=1)
        outcome = learn(problem, epsilon=0.001, delta=0.1)
        assert outcome.episodes > 10**19
        assert check_run(problem, outcome, 0.001)


class TestRequests:
    def test_a_problem_with_a_class_or_a_process_of_ones_own(self):
        problem = richobs.make("mdp/2")
        small = Layered([TableLevel(t[None]) for t in problem.process.q_tables])
        assert learn(problem, small).log_size == 0
        with pytest.raises(InvalidInput, match="the process has 5 levels and 3 actions; the environment has 2 and 3"):
            learn(dataclasses.replace(problem, process=richobs.make("mdp/5").process))

    def test_deep_searches_do_not_run_out_of_stack(self):
        problem = richobs.make("mdp/150", n_states=1, n_actions=2, class_size=2)
        assert learn(problem, epsilon=0.5, delta=0.1).episodes > 0

    def test_rewards_without_a_range_are_refused(self):
        problem = richobs.make("mdp")
        problem.env.reward_range = (0.0, float("inf"))
        with pytest.raises(InvalidInput, match=r"totals lie in \[0, 1\], or.*in \[0, inf\].*Declare finite ranges"):
            learn(problem)

    def test_streaming_more_than_anybody_can_wait_for_is_refused_with_the_way_out(self):
        problem = richobs.make("lock/3")
        with pytest.raises(InvalidInput, match=r"at least [\d.e+]+ episodes here.*'betting'.*max_episodes, to start"):
            richobs.learn(problem.env, problem.functions, learner="lsvee", n_states=3)
        with pytest.raises(EpisodeLimit):
            learn(problem.env, problem.functions, n_states=3, max_episodes=100)
