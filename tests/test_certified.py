"""Certified LSVEE: the wiring of its proof, and whole runs against the truth."""

import contextlib
import dataclasses
import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import richobs
from richobs.classes import Layered, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise, PrecisionError
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.outcome import LOWER, UPPER, StopReason
from richobs.core.process import Rewards, TabularProcess
from richobs.core.queries import Answer, Returns
from richobs.core.words import number_words
from richobs.engines import StreamEngine
from richobs.learners.stopping import Fallback
from richobs.stats.shares import SERIES, Supposed
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.certified import Bounds, Certified, Tuning, bounds, certified, probing
from richobs_lab.certified.state import Candidate, CertifiedSearch
from richobs_lab.certified.survivors import ActionRisk, LayeredSurvivors
from richobs_lab.certified.verification import is_settled, verify_candidate
from richobs_lab.counted import CountedEngine
from richobs_lab.lsvee import Lsvee, SamplePlan, lsvee

learn = functools.partial(richobs.learn, learner="certified")


def with_process(process, functions):
    return richobs.Problem(WorldEnvironment(TabularWorld(process)), functions, process)


def bandit(rewards, *tables):
    """A problem of one level and one observation, with one row of values for each function of its class."""
    process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (rewards,))
    return with_process(process, Layered([TableLevel([[row] for row in tables])]))


COIN = Rewards.bernoulli([[[0.6, 0.1]]])


def searching(problem, epsilon=0.1, delta=0.1, engine=StreamEngine, **tuning):
    """A search that has asked for nothing yet."""
    source = problem.env if engine is StreamEngine else problem.process
    engine = engine(source, problem.functions, seed=0, ledger=Ledger())
    return CertifiedSearch(engine, problem.functions, epsilon, delta, 0, nobody, Tuning(**tuning), Bounds())


WORLDS = ["lock/3", "lock/5,noise_bits=20", "diabolical/2", "bandit", "mdp/3", "random/3", "deep-sea/4"]
WORLDS += ["disjoint/2,vectors=True"]


@pytest.mark.parametrize("id", WORLDS)
def test_certified_runs_are_right(id):
    problem = richobs.make(id)
    outcome = learn(problem, epsilon=0.2, delta=0.05)
    assert outcome.reason is StopReason.CERTIFIED
    assert outcome.upper - outcome.lower <= 0.2
    assert problem.optimal_value <= outcome.upper + 1e-12
    assert problem.value(outcome.policy, episodes=20_000).high >= outcome.lower
    assert problem.optimal_value - problem.value(outcome.policy, episodes=20_000).high <= 0.2
    assert outcome.episodes < 200_000


@pytest.mark.parametrize("seed", range(15))
def test_claims_hold_over_random_worlds_with_tiny_batches(seed):
    """Soundness at delta 0.05 with batches far too small to be reasonable (20,000 such runs: benchmarks/soundness.py)."""
    problem = richobs.make("random", horizon=1 + seed % 3, n_states=3, n_actions=2, class_size=12, seed=seed)
    tiny = Tuning(trials=4, pilot=4, smallest=8, largest=32, margin=1.0, verification=16)
    engine = StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(3000))
    outcome = certified(engine, problem.functions, epsilon=0.3, delta=0.05, seed=seed, tuning=tiny)
    assert problem.optimal_value <= outcome.upper + 1e-12
    assert problem.value(outcome.policy).value >= outcome.lower - 1e-12


def test_the_episodes_may_run_out_and_the_answer_is_still_honest():
    outcome = learn(richobs.make("lock/5"), max_episodes=1000)
    assert outcome.reason is StopReason.EPISODES_SPENT
    assert outcome.episodes <= 1000
    assert outcome.epsilon == outcome.upper - outcome.lower > 0.1
    assert f"loses at most {number_words(outcome.epsilon, up=True)} to the best policy" in outcome.claim


def test_values_that_vary_at_the_root_do_not_keep_the_search_from_ending():
    """U starts at the largest value of a function; what a policy earns must be compared with its mean instead."""
    rewards = Rewards.deterministic([[[1.0, 0.0], [0.0, 0.0]]])
    process = TabularProcess(np.ones(1), (), (np.full((1, 2), 0.5),), (rewards,))
    functions = Layered([TableLevel([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])])
    for epsilon, most in ((0.1, 20_000), (0.05, 80_000)):
        outcome = learn(with_process(process, functions), epsilon=epsilon, max_episodes=most)
        assert outcome.reason is StopReason.CERTIFIED
        assert outcome.lower <= 0.5 <= outcome.upper


class RecordingEngine:
    """An engine that writes down what was asked, in order."""

    def __init__(self, engine):
        self.engine, self.ledger, self.name, self.log = engine, engine.ledger, engine.name, []

    def ask(self, query):
        answer = self.engine.ask(query)
        self.log.append((query, answer))
        return answer


class TestWiring:
    """The proof speaks of shares, sizes, references and levels; here is what the search hands to each bound."""

    @staticmethod
    @functools.cache  # tests share a run; those that watch more of it call `run.__wrapped__`
    def run(world_id="random/3", epsilon=0.2, delta=0.05, **tuning):
        """A whole run whose bounds write down their arguments, by name of the bound."""
        calls = {}

        def recorded(name):
            real = getattr(bounds, name)

            def bound(*args, **rounding):
                share = args[-1]
                amount = share.amount
                result = real(*args, **rounding)
                calls.setdefault(name, []).append((type(share).__name__, amount, args[:-1], result))
                return result

            return bound

        problem = richobs.make(world_id)
        engine = RecordingEngine(StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger()))
        watched = Bounds(*(recorded(f.name) for f in dataclasses.fields(Bounds)))
        trace = []
        asked = {"epsilon": epsilon, "delta": delta, "tuning": Tuning(**tuning), "bounds": watched}
        outcome = certified(engine, problem.functions, **asked, notify=lambda p: trace.append(p.event))
        return dataclasses.replace(outcome, trace=tuple(trace)), calls, engine.log

    def spent(self, calls, name):
        return [(amount, args, result) for kind, amount, args, result in calls[name] if kind == "Share"]

    def test_eliminations_spend_the_series_four_fifths_on_the_relative_test(self):
        """Each test gets its own term of the series: delta' / (2.1098 (j+1) log(j+1)^2), delta' = 0.99 delta / 2."""
        outcome, calls, _ = self.run()
        names = "value_radius", "elimination_slack", "residual_radius"
        radii, slacks, reaches = (self.spent(calls, name) for name in names)
        terms = [0.99 * 0.05 / 2 / (SERIES * (j + 1) * math.log(j + 1) ** 2) for j in range(1, 10_000)]
        used = sorted([a for a, _, _ in radii] + [a / 0.8 for a, _, _ in slacks], reverse=True)
        np.testing.assert_allclose(used, terms[: len(used)], rtol=1e-9)
        np.testing.assert_allclose([a for a, _, _ in reaches], [a / 4 for a, _, _ in slacks], rtol=1e-9)
        claimed = [c.share for c in outcome.claims if c.kind not in (LOWER, UPPER)]
        np.testing.assert_allclose(sorted(claimed, reverse=True), used, rtol=1e-9)

    def test_looks_spend_half_for_each_bound(self):
        """Candidate c, look k: the c-th term of the verification series over 2^k, half for W and half for U."""
        outcome, calls, _ = self.run()
        lowers, uppers = self.spent(calls, "return_lower_bound"), self.spent(calls, "mean_upper_bound")
        candidate, look, n, shares, sizes = 1, 0, 0, [], []
        for event in (e for e in outcome.trace if e.kind == "verification"):
            if look:
                assert event.n + n == math.ceil(4 / 3 * n)  # sizes follow from the first look's
            look, n = look + 1, n + event.n
            term = 0.99 * 0.05 / 2 / (SERIES * (candidate + 1) * math.log(candidate + 1) ** 2)
            shares.append(term / 2**look / 2)
            sizes.append(n)
            if event.said().verdict != "open":
                candidate, look, n = candidate + 1, 0, 0
        assert [args[1] for _, args, _ in lowers] == sizes
        np.testing.assert_allclose([a for a, _, _ in lowers], shares, rtol=1e-9)
        assert uppers
        assert {(a, args[1]) for a, args, _ in uppers} <= {(a, args[1]) for a, args, _ in lowers}  # the other half

    def test_a_look_uses_all_rollouts_so_far(self):
        """The mean that W rests on is that of every rollout of the candidate, in all its looks, and of no other's."""
        _, calls, log = self.run()
        played = [(q.n, answer.returns.mean) for q, answer in log if q.purpose == "verification"]
        total, means = 0.0, []
        for (more, mean), (_, (_, n), _) in zip(played, self.spent(calls, "return_lower_bound"), strict=True):
            total = more * mean + (total if n > more else 0.0)
            means.append(total / n)
        assert [args[0] for _, args, _ in self.spent(calls, "return_lower_bound")] == pytest.approx(means)
        assert any(args[1] > 256 for _, args, _ in self.spent(calls, "return_lower_bound"))

    def test_the_root_is_seen_as_often_as_the_policy_was_played(self):
        """U of a look rests on as many root values as W on rollouts, those of the candidate's earlier looks included."""
        _, calls, log = self.run()
        seen, sums = 0, []
        for q, _ in log:
            if q.purpose == "root value":
                seen += q.n
                sums.append(seen)
            elif q.purpose != "verification":
                seen = 0  # something else was asked: the next look is at another candidate
        sizes = [args[1] for _, args, _ in self.spent(calls, "mean_upper_bound")]
        assert sizes == sums
        assert set(sizes) <= {args[1] for _, args, _ in self.spent(calls, "return_lower_bound")}  # as for W

    def test_guesses_suppose_the_share_that_the_claim_will_spend(self):
        """A batch is sized with the share of the claim after next, of which the relative test gets four fifths."""
        _, calls, _ = self.run()
        radii = {amount for kind, amount, _, _ in calls["value_radius"] if kind == "Supposed"}
        slacks = {amount for kind, amount, _, _ in calls["elimination_slack"] if kind == "Supposed"}
        assert radii
        assert sorted(slacks) == pytest.approx([0.8 * amount for amount in sorted(radii)])

    def test_the_first_look_comes_where_the_bounds_should_meet(self):
        """A promise of 1/2 in a class with values 0 and 1/2: W(1/2, n) at a share of d/4 is 0.4 or more, and not before."""
        outcome, calls, _ = self.run("lock/3", epsilon=0.1)
        (amount, (_, n), _), *_ = self.spent(calls, "return_lower_bound")
        assert 0.5 - bounds.return_lower_bound(0.5, n, Supposed(amount)) <= 0.1
        assert 0.5 - bounds.return_lower_bound(0.5, math.floor(n / (4 / 3)) - 1, Supposed(amount)) > 0.1
        assert next(e.n for e in outcome.trace if e.kind == "verification") == n

    def test_the_absolute_test_allows_for_the_child_radius(self, monkeypatch):
        """What may be dropped is bounded by bar + slack(e) and by e + residual radius, with the same e for both."""
        seen = []
        restrict = LayeredSurvivors.restrict

        def logged(self, risk, cutoff, reach):
            seen.append((risk, cutoff, reach))
            return restrict(self, risk, cutoff, reach)

        monkeypatch.setattr("richobs_lab.certified.survivors.LayeredSurvivors.restrict", logged)
        _, calls, _ = self.run.__wrapped__()
        slacks, reaches = self.spent(calls, "elimination_slack"), self.spent(calls, "residual_radius")
        assert len(seen) == len(slacks) == len(reaches) > 5
        for (_, cutoff, reach), (_, (e, n), slack), (_, (m, _), radius) in zip(seen, slacks, reaches, strict=True):
            assert n == m
            np.testing.assert_allclose(reach, e + radius, rtol=1e-12)
            bars = cutoff - slack
            np.testing.assert_allclose(bars, bars[0], rtol=1e-9)
        assert any((e > 0).any() for _, (e, _), _ in slacks)

    def test_references_are_older_than_the_batch_they_serve(self, monkeypatch):
        """The bar of a test is the batch's risk of the pair that the pilot preferred, not of the batch's own minimiser."""
        fixed, guesses, judged = [], [], []
        guess, eliminate = probing._guess, probing._eliminate

        def logged_guess(*args):
            guesses.append(guess(*args))
            return guesses[-1]

        def logged_eliminate(search, living, batch, h):
            path = batch.fixed.path
            risk = probing._risk(search, path, living, batch.answer.moments, h)
            i, j = batch.fixed.references[h]
            judged.append((h, risk.noise[i] + (risk.gain[i] - risk.future[j]) ** 2, search.space.least(risk)[0]))
            fixed.append(batch.fixed)
            return eliminate(search, living, batch, h)

        monkeypatch.setattr(probing, "_guess", logged_guess)
        monkeypatch.setattr(probing, "_eliminate", logged_eliminate)
        outcome, _, log = self.run.__wrapped__()
        tests = [e for e in outcome.trace if e.kind == "elimination"]
        assert [e.said().level for e in tests] == [h for h, _, _ in judged]
        np.testing.assert_allclose([e.bar for e in tests], [bar for _, bar, _ in judged], rtol=1e-12)
        assert any(bar > least + 1e-6 for _, bar, least in judged)  # the two do differ
        references = [g.reference for g in guesses]
        per_batch = [references[i : i + 3] for i in range(0, len(references), 3)]
        assert all(list(f.references) in per_batch for f in fixed)
        purposes = [q.purpose for q, _ in log if q.purpose in ("pilot", "batch")]
        assert purposes == ["pilot", "batch"] * (len(purposes) // 2)  # every batch has a pilot of its own, before it

    def test_every_level_of_a_batch_is_judged_once_under_its_own_action(self):
        outcome, _, log = self.run()
        batches = [(q.path, q.n, answer) for q, answer in log if q.purpose == "batch"]
        tests = [e for e in outcome.trace if e.kind == "elimination"]
        at = 0
        for path, n, answer in batches:
            judged = []
            for test in tests[at:]:
                if test.path != path[: len(test.path)] or len(test.path) in judged:
                    break
                judged.append(len(test.path))
                at += 1
            assert judged == sorted(judged, reverse=True)  # the last level first
            assert [m.actions[a] for m, a in zip(answer.moments, path, strict=True)] == [n] * len(path)
        assert at == len(tests)

    def test_a_fallback_hands_over_what_its_own_epsilon_allows(self):
        """V*-hat = 0.5 off by an eighth of 0.79 epsilon, the policy worse by 0.79 epsilon: U and W by hand."""
        problem = richobs.make("lock/4,noise_bits=2")
        engine = CountedEngine(problem.process, problem.functions, seed=0, ledger=Ledger())
        constants = Certified().fallback_constants(problem, richobs.Settings(epsilon=0.08, delta=0.05))

        def learned():
            return dataclasses.replace(lsvee(engine, problem.functions, constants), v_star_hat=0.45)

        handing_over = {"fallback": Fallback("LSVEE", lambda: 0, learned), "tuning": Tuning(trials=1)}
        outcome = certified(engine, problem.functions, epsilon=0.08, delta=0.05, **handing_over)
        assert outcome.upper == pytest.approx(0.45 + 0.79 * 0.08 / 8)
        assert outcome.lower == pytest.approx(0.45 - 0.79 * 0.08 / 8 - 0.79 * 0.08)
        shares = [c.share for c in outcome.claims if c.kind in (LOWER, UPPER)][-2:]
        assert shares == pytest.approx([0.05 * 0.01 / 2] * 2)


def test_nothing_verified_nothing_claimed():
    """The episodes end after the first trial: no more is known of a policy than that rewards are not negative."""
    outcome = learn(richobs.make("lock/5"), max_episodes=20)
    assert outcome.reason is StopReason.EPISODES_SPENT
    assert outcome.lower == 0.0
    assert outcome.epsilon == outcome.upper
    assert outcome.claims == ()


def test_tests_use_the_largest_value_and_the_range_of_every_level():
    """Level 0 promises at most 0.85 and level 1 between 0.1 and 0.9: b is 0.9, and radii use the ranges of level 1."""
    process = TabularProcess(
        start=np.ones(1),
        transitions=(np.zeros((1, 2), dtype=int),),
        emissions=(np.ones((1, 1)), np.full((1, 2), 0.5)),
        rewards=(Rewards.deterministic(0.0), Rewards.deterministic([[[0.25, 0.0], [0.25, 0.0]]])),
    )
    last = TableLevel([[[0.25, 0.0], [0.25, 0.0]], [[0.9, 0.9], [0.1, 0.1]]])
    functions = Layered([TableLevel([[[0.25, 0.25]], [[0.85, 0.85]]]), last])
    largest, ranges = set(), set()

    def radius(mean, variance, n, low, high, share, rounding):
        assert rounding == 0.0  # NumPy computes
        ranges.update(zip(low.tolist(), high.tolist(), strict=True))
        return bounds.value_radius(mean, variance, n, low, high, share)

    def residual(n, b, share):
        largest.add(b)
        return bounds.residual_radius(n, b, share)

    problem = with_process(process, functions)
    engine = StreamEngine(problem.env, functions, seed=0, ledger=Ledger(20_000))
    watched = Bounds(value_radius=radius, residual_radius=residual)
    certified(engine, functions, epsilon=0.02, delta=0.05, bounds=watched)
    assert largest == {0.9}
    assert ranges == {(0.25, 0.25), (0.1, 0.9)}


def test_the_upper_bound_is_that_of_the_most_promising_survivor():
    """Functions that promise 0.6 and 0.2: V* may be 0.6 as long as the first survives, and no more than 0.2 after it."""
    search = searching(bandit(COIN, [0.6, 0.1], [0.2, 0.1]))
    assert (search.upper, search.guess) == (0.6, 0.6)
    gone = ActionRisk(0, np.array([1.0, 0.0]), np.zeros(2), np.zeros(1), np.arange(2), np.zeros(0, dtype=int))
    search.space.restrict(gone, np.array([0.5]), np.array([1.0]))
    assert (search.upper, search.guess) == (0.2, 0.2)


def test_a_search_is_over_when_the_bounds_are_within_epsilon():
    search = searching(bandit(COIN, [0.6, 0.1], [0.2, 0.1]))
    assert not is_settled(search)
    for lower, settled in ((0.51, True), (0.49, False), (0.35, False)):
        search.best = Candidate((0,), lower, lower, 10)
        assert is_settled(search) == settled


def test_the_best_candidate_is_kept():
    """The first policy earns 0.6, the second 0.2; whichever was verified last, the first is handed over."""
    problem = bandit(Rewards.bernoulli([[[0.6, 0.2]]]), [0.6, 0.2], [0.2, 0.6])
    for order in ((0, 1), (1, 0)):
        search = searching(problem, epsilon=0.01)
        for member in order:
            verify_candidate(search, (member,), LearnedPolicy(problem.functions, (member,)))
        assert search.best.member == (0,)
        assert 0.5 < search.best.lower < 0.6


def test_the_path_with_most_untested_pairs_is_played():
    search = SimpleNamespace(tested={}, stage=512)
    paths = np.array([[0, 0], [0, 0], [0, 1]])
    assert probing.freshest(search, paths) == (0, 0)  # nothing is tested yet: the commonest
    search.tested = {((), 0): 512, ((0,), 0): 512}
    assert probing.freshest(search, paths) == (0, 1)
    search.stage = 1024  # batches of 512 count no more
    assert probing.freshest(search, paths) == (0, 0)


def test_the_fallback_gets_its_part_of_epsilon_and_delta():
    """The paper's numbers at 0.79 epsilon and delta/100, with as many states as paths, 4^2; it waits for what one costs."""
    problem = richobs.make("lock/3")
    constants = Certified().fallback_constants(problem, richobs.Settings(epsilon=0.1, delta=0.05))
    smaller = richobs.Settings(n_states=16, epsilon=0.79 * 0.1, delta=0.01 * 0.05)
    assert constants == Lsvee().plan(problem, smaller).constants
    assert constants.one_path == 3 * (constants.search.n_train + 4 * constants.search.n_test)
    assert constants.max_episodes(3) < constants.max_episodes() == SamplePlan(constants).max_episodes
    ahead = Certified().plan(problem, richobs.Settings())
    assert ahead.max_episodes == 4 * constants.one_path + constants.max_episodes(3)
    assert Certified().fallback_constants(richobs.make("lock/500"), richobs.Settings()) is None
    for levels in (190, 300):  # at and beyond what float64 can hold
        assert learn(richobs.make(f"lock/{levels},noise_bits=0"), max_episodes=60).reason is StopReason.EPISODES_SPENT
    assert Certified().fallback_constants(problem, richobs.Settings(delta=1e-8)) is None


def test_a_search_that_struggles_says_so():
    """Two functions 0.03 apart: small batches cannot tell them apart, so batches grow, and the outcome says why."""
    problem = bandit(Rewards.bernoulli([[[0.4, 0.38]]]), [0.4, 0.38], [0.37, 0.41])
    outcome = learn(problem, epsilon=0.02, max_episodes=200_000)
    assert any(e.kind == "stage" and e.said().threshold == 2 * e.said().statistic for e in outcome.trace)
    assert any("told no survivors apart, so batches grew from 512" in remark for remark in outcome.remarks)
    assert learn(richobs.make("lock/3")).remarks == ()


@pytest.mark.parametrize("limit", [120, 900])
def test_wider_certificates_are_verified_too(limit):
    problem = richobs.make("random", seed=1)
    outcome = learn(problem, epsilon=0.05, max_episodes=limit)
    assert 0 <= outcome.epsilon == outcome.upper - outcome.lower
    checked = richobs.verify(richobs.Certificate.of(outcome, problem), problem)
    assert checked.agrees, checked


class TestEasyProblems:
    """Three problems on which an earlier search never ended, or took a thousand times too long."""

    def test_a_path_that_is_rarely_taken_is_played_too(self):
        """Two functions that differ in one action at an observation of probability 0.2, the only time it is taken."""
        rewards = Rewards.deterministic([[[0.5, 0.0], [0.5, 0.0]]])
        process = TabularProcess(np.ones(1), (), (np.array([[0.8, 0.2]]),), (rewards,))
        functions = Layered([TableLevel([[[0.5, 0.0], [0.5, 0.0]], [[0.5, 0.0], [0.5, 1.0]]])])
        for seed in range(8):
            outcome = learn(with_process(process, functions), seed=seed, max_episodes=20_000)
            assert outcome.reason is StopReason.CERTIFIED
            assert outcome.policy.member == (0,)

    def test_a_candidate_a_little_below_its_promise_gets_more_rollouts(self):
        """It earns 0.47 of 0.5 promised at every look; with epsilon 0.1 the fourth look or so certifies it."""
        problem, looks = bandit(COIN, [0.5, 0.2]), []

        class Earns:
            name, ledger = "scripted", Ledger()

            def ask(self, query):
                looks.append(query.n)
                return Answer(query.n, Returns(0.47, 0.25))

        search = CertifiedSearch(Earns(), problem.functions, 0.1, 0.05, 0, nobody, Tuning(), Bounds())
        assert verify_candidate(search, (0,), LearnedPolicy(problem.functions, (0,)))
        assert len(looks) > 3

    def test_a_right_candidate_is_not_given_up_for_noise(self):
        problem = bandit(Rewards.bernoulli([[[0.5, 0.2]]]), [0.5, 0.2])
        outcome = learn(problem, epsilon=1e-6, engine="counted")
        assert outcome.reason is StopReason.CERTIFIED
        assert outcome.episodes < 2e13
        assert outcome.lower <= 0.5 <= outcome.upper

    def test_levels_that_were_not_judged_are_not_marked_as_tested(self, monkeypatch):
        search = searching(richobs.make("random/3"), epsilon=0.2, delta=0.05)
        member = search.space.draw(search.space.alive(0), np.random.default_rng(0))
        guess = probing._guess

        def only_level_1(search, path, living, pilot, h, chain):
            real = guess(search, path, living, pilot, h, chain)
            return real._replace(needed=100 if h == 1 else None, drops=False)

        monkeypatch.setattr(probing, "_guess", only_level_1)
        probing.probe(search, member, (0, 1, 0))
        assert search.tested == {((0,), 1): 100}

    def test_a_stage_ends_when_nothing_on_the_path_is_left_to_test(self):
        search = searching(richobs.make("random/3"), epsilon=0.2, delta=0.05)
        search.tested = {((), 0): 512, ((0,), 1): 512, ((0, 1), 0): 511}
        assert probing.untested_pairs(search, (0, 1, 0)) == 1
        assert probing.untested_pairs(search, (1, 1, 1)) == 3
        search.tested[(0, 1), 0] = 512
        assert probing.untested_pairs(search, (0, 1, 0)) == 0
        probing.next_stage(search, (0, 1, 0))
        assert search.stage == 1024
        assert probing.untested_pairs(search, (0, 1, 0)) == 3

    def test_rounding_decides_about_nobody(self):
        """Batches of 10^18: the slack is below the rounding of the risk."""
        problem = bandit(Rewards.bernoulli([[[0.5, 0.2]]]), [0.5, 0.2], [0.2, 0.5])
        search = searching(problem, epsilon=0.2, delta=0.05, engine=CountedEngine, largest=2**60)
        search.fruitless = 1
        with pytest.raises(PrecisionError, match="Rounding would decide"):
            probing.probe(search, (0,), (0,))


class TestMisuse:
    @pytest.mark.parametrize("limit", [600, 5000])
    def test_bounds_that_contradict_each_other_are_never_handed_out(self, limit):
        problem = bandit(Rewards.bernoulli([[[0.6, 0.0]]]), [0.9, 0.0], [0.5, 0.0])
        with contextlib.suppress(BrokenPromise):
            outcome = learn(problem, epsilon=0.2, delta=0.3, max_episodes=limit)
            assert outcome.upper >= outcome.lower

    @pytest.mark.parametrize(
        ("pays", "rows", "said"),
        [
            (0.9, [[0.3, 0.3]], r"no surviving function promises more than 0\.3"),  # the policy beats the upper bound
            (0.0, [[0.9, 0.9], [0.8, 0.9]], "no function is consistent with what action"),  # the class is emptied
        ],
    )
    def test_a_class_without_the_truth(self, pays, rows, said):
        with pytest.raises(BrokenPromise, match=said):
            learn(bandit(Rewards.bernoulli(np.full((1, 1, 2), pays)), *rows))
