"""What else can be certified of a policy: the mean of a measure [V9], and quantiles that need no range [V10]."""

import functools
import itertools
import json
import math
import os
import sys
import types
import typing

import gymnasium
import numpy as np
import pytest

import richobs
from richobs import certify_policy
from richobs.core.errors import InvalidInput, RewardOutOfRange, StoreError
from richobs.judging import stored
from richobs.judging.measures import Measure
from richobs.judging.stored import verify_judgement
from richobs.stats import sequences
from richobs.stats.sequences import QuantileSequence
from richobs.stats.shares import Share

LIMIT, NUMBERS, TWO = 3, itertools.count(), lambda e: 2.0


def made(p, delta=0.2, limit=256):
    return QuantileSequence(limit, p, *Share(delta).split(0.5, 0.5))


LAWS = {  # draws, and the quantile for p
    "cauchy": (lambda rng, n: rng.standard_cauchy(n), lambda p: math.tan(math.pi * (p - 0.5))),
    "coin": (lambda rng, n: (rng.random(n) < 0.5).astype(float), lambda p: float(p > 0.5)),
    "exponential": (lambda rng, n: rng.exponential(size=n) - 5.0, lambda p: -math.log(1 - p) - 5.0),
}


def failures(law, p, runs=100):
    """How often the quantile ever lies below the lower bound, and above the upper one."""
    draw, quantile = LAWS[law]
    rng, found = np.random.default_rng([len(law), round(100 * p)]), np.zeros(2, int)
    for _ in range(runs):
        sequence = made(p)
        for n in (4, 4, 8, 16, 32, 64, 128):
            sequence.add(draw(rng, n))
        found += [sequence.lower > quantile(p), sequence.upper < quantile(p)]
    return found


class TestQuantileSequence:
    @pytest.mark.parametrize("law", LAWS)
    @pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
    def test_each_side_fails_as_seldom_as_it_may_at_all_times_at_once(self, law, p):
        """A side may fail with probability 0.1. More than 22 of 100 happen with probability 0.0001 then."""
        assert failures(law, p).max() <= 22

    @pytest.mark.parametrize("law", ["cauchy", "exponential"])
    def test_without_its_limit_it_would_fail_often(self, law, monkeypatch):
        monkeypatch.setattr(sequences, "death", lambda share: 1.0 + 0 * share.spend())
        assert failures(law, 0.5, 60).min() > 12

    def test_counts_are_those_of_the_products_written_out(self):
        sequence = made(0.3)
        for n in range(1, 13):
            sequence.add(np.array([float(n)]))
            for m in (0.3, 0.7):
                for needed in (math.log(10.0), math.log(2.0)):

                    def account(k, m=m, n=n):
                        s = sequence._shifts
                        return float(np.mean(((1 + s) / (m + s)) ** k * (s / (m + s)) ** (n - k)))

                    allowed = max(k for k in range(n + 1) if account(k) < math.exp(needed))
                    assert sequence._most(m, needed) == allowed

    def test_bounds_are_order_statistics_of_what_was_seen(self):
        sequence = made(0.5, 0.05, 1000)
        sequence.add(np.random.default_rng(0).permutation(1000).astype(float))
        assert 420 < sequence.lower < sequence.mean == 499.0 < sequence.upper < 580
        assert sequence.lower + sequence.upper == 999  # both sides alike

    def test_few_observations_bound_nothing_and_a_bound_is_never_taken_back(self):
        sequence = made(0.5, 0.05)
        sequence.add(np.zeros(4))
        assert (sequence.lower, sequence.upper) == (-math.inf, math.inf)
        sequence.add(np.zeros(60))
        assert sequence.upper == 0.0
        sequence.add(np.full(128, 9.0))
        assert sequence.upper == 0.0
        with pytest.raises(InvalidInput, match="must be finite numbers; got nan"):
            sequence.add(np.array([math.nan]))


class Walk(gymnasium.Env):
    """Goes right with action 1; pays the step's number, and ends after 2 to 5 steps or, by time, after 4."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.end, self.x = 0, int(self.np_random.integers(2, 6)), np.zeros(1, np.float32)
        return self.x, {}

    def step(self, action):
        self.steps += 1
        self.x += 2 * action - 1  # the same array every time
        return self.x, float(self.steps), self.steps == self.end, self.steps == 4, {}


def right(x):
    return 1


LEVELS = richobs.from_gymnasium(Walk, horizon=4, reward_range=(0, 10))


class TestEpisodes:
    def test_a_measure_gets_the_whole_episode(self):
        seen = []
        report = certify_policy(Walk(), right, measure=lambda e: seen.append(e) or 1.0, max_episodes=32)
        assert report.episodes == 32
        assert {e.length for e in seen} == {2, 3, 4}
        for e in seen:
            assert [float(x[0]) for x in e.observations] == [*range(e.length)]  # copies, not the environment's array
            assert (e.rewards.tolist(), e.total) == (list(range(1, e.length + 1)), e.length * (e.length + 1) / 2)
            assert float(e.last[0]) == e.length
            assert e.actions == (1,) * e.length
            assert e.terminated or e.length == 4
            with pytest.raises(ValueError, match="read-only"):
                e.rewards[0] = 9

    def test_environments_of_richobs_and_vector_environments_measure_the_same(self):
        several = gymnasium.vector.SyncVectorEnv([Walk] * 3)
        for env, policy in ((LEVELS, richobs.OpenLoop((1, 1, 1, 1))), (several, right)):
            seen = []
            certify_policy(env, policy, measure=lambda e, seen=seen: seen.append(e) or 1, max_episodes=40)
            assert {e.length for e in seen} == {2, 3, 4}
            for e in seen:
                assert [float(np.ravel(x)[0]) for x in e.observations] == list(range(e.length))
                assert e.rewards.tolist() == list(range(1, e.length + 1))
                for untold in ("terminated", "last"):  # an end before time is up may be Gymnasium's `truncated`
                    with pytest.raises(InvalidInput, match=f"reads `{untold}`, which only a single Gymnasium"):
                        getattr(e, untold)

    def test_the_mean_of_totals_is_the_value(self):
        plain = certify_policy(Walk(), right, reward_range=(0, 10), max_episodes=64)
        measured = certify_policy(Walk(), right, measure=lambda e: e.total, reward_range=(0, 10), max_episodes=64)
        assert (plain.lower, plain.upper, plain.looks) == (measured.lower, measured.upper, measured.looks)


def success(episode):
    return episode.total > 5


class TestClaims:
    def test_a_claim_names_the_measure_and_its_digest(self):
        report = certify_policy(Walk(), right, measure=success, threshold=0.2)
        digest = Measure(success).digest
        assert report.claim == (
            f"With probability at least 0.95 the mean of the measure 'success' (SHA-256 {digest[:16]}) over episodes of the "
            f"policy is {report.interval_words}, which is at least 0.2, provided that episodes are independent and every "
            "value of the measure lies in [0, 1]."
        )
        assert (report.as_json()["measure"], report.as_json()["measure_digest"]) == ("success", digest)
        assert report.reason == "the mean is at least the threshold"
        assert [c.kind.startswith("the mean of the measure 'success'") for c in report.claims] == [True, True]
        assert sum(c.share for c in report.claims) == 0.05

    def test_a_quantile_needs_no_range(self):
        report = certify_policy(Walk(), right, quantile=0.25, threshold=3)
        assert report.claim == (
            "With probability at least 0.95 the 0.25 quantile of the total reward of an episode of the policy is "
            f"{report.interval_words}, which is at least 3, provided that episodes are independent."
        )
        assert report.is_certified
        assert "<svg" in report._repr_html_()
        exact = certify_policy(Walk(), right, quantile=0.375, max_episodes=600)  # totals are 3, 6 and 10: 1/4, 1/4, 1/2
        assert (exact.lower, exact.upper) == (6.0, 6.0)
        few = certify_policy(Walk(), right, quantile=0.5, max_episodes=4)
        assert "is not bounded yet, provided that" in few.claim
        assert (few.as_json()["lower"], few.as_json()["reward_range"]) == (None, None)
        assert "no episodes yet" in few._repr_html_()
        both = certify_policy(Walk(), right, quantile=0.5, measure=lambda e: e.length, epsilon=2, max_episodes=500)
        assert (both.lower, both.upper) == (3.0, 4.0)
        assert both.verdict is richobs.Verdict.WITHIN_EPSILON

    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ({"measure": TWO, "reward_range": (0, 1)}, RewardOutOfRange, r"episode 2; the .* measure is \[0, 1\]"),
            ({"measure": lambda e: 0.5}, InvalidInput, "returns 0.5, .* give reward_range=.smallest, largest"),
            ({"measure": lambda e: not e.terminated, "env": LEVELS}, InvalidInput, "reads `terminated`"),
            ({"measure": lambda e: math.nan}, InvalidInput, "returns nan; a finite number is needed"),
            ({"measure": lambda e: "won"}, InvalidInput, "what the measure 'lambda' returns"),
            ({"measure": 3}, InvalidInput, "measure is a function of an episode that returns a number; got 3"),
            ({"measure": lambda e: next(NUMBERS)}, InvalidInput, "says 0 and then 1 of the same episode"),
            ({"quantile": 1.0}, InvalidInput, "quantile must lie between 0 and 1"),
            ({"quantile": 0.5, "reward_range": (0, 1)}, InvalidInput, "a quantile needs no range"),
            ({"quantile": 0.5, "log": "a.csv"}, InvalidInput, "a log has totals alone"),
        ],
    )
    def test_bad_input_gets_a_sentence(self, given, error, words):
        with pytest.raises(error, match=words):
            certify_policy(given.pop("env", Walk()), right, max_episodes=8, **given)

    @pytest.mark.parametrize("one", [True, np.bool_(True), np.array(True), 1, 1.0])
    def test_an_event_needs_no_range(self, one):
        assert certify_policy(Walk(), right, measure=lambda e: one, max_episodes=8).mean == 1.0

    def test_totals_of_any_size_have_quantiles(self):
        rewards = gymnasium.wrappers.TransformReward(Walk(), lambda reward: 1e304 * reward)
        report = certify_policy(rewards, right, quantile=0.375, max_episodes=600)
        assert (report.lower, report.upper) == pytest.approx((6e304, 6e304))


@pytest.mark.parametrize("asked", ["measure", "quantile"])
def test_comparisons_say_that_they_judge_by_totals(asked):
    for judge, *policies in ((richobs.compare, right, right), (richobs.select, [right, right])):
        with pytest.raises(InvalidInput, match=f"{judge.__name__} has neither measure= nor quantile="):
            judge(Walk(), *policies, epsilon=0.1, reward_range=(0, 10), **{asked: 0.5})


def over(limit):
    return lambda e: e.total > limit


class Called:
    def __call__(self, episode):
        return 1.0


def sized(limit):
    def measure(episode):
        return episode.total > measure.limit

    measure.limit = limit
    return measure


def tried(episode):
    try:
        x = float(episode.total)
        return math.sqrt(x)
    except ValueError:
        return True


def tried_else(episode):
    try:
        x = float(episode.total)
    except ValueError:
        return True
    else:
        return math.sqrt(x)


def importing(episode):
    import LIMITS

    return episode.total > LIMITS.low


def as_of_statistics(limit):
    measure = over(limit)
    measure.__module__, measure.__qualname__ = "statistics", "mean"
    return measure


def constant(given):
    def measure(e):
        return 99

    measure.__code__ = measure.__code__.replace(co_consts=(None, given))
    return measure


class Rule(typing.NamedTuple):
    limit: float = 1.0

    def over(self, episode):
        return episode.total > self.limit


class Missing(dict):
    def __missing__(self, key):
        return 1.0


class Half(np.float64):
    def __gt__(self, other):
        return False


class TestDigests:
    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (over(1), over(2)),  # what a closure holds
            (lambda e: e.total > 1, lambda e: e.total > 2),
            (lambda e: e.total > 1, lambda e: e.total >= 1),
            (lambda e: e.total, lambda e: e.length),
            (lambda e, c=1: e.total > c, lambda e, c=2: e.total > c),
            (functools.partial(lambda e, c: e.total > c, c=1), functools.partial(lambda e, c: e.total > c, c=2)),
            (over(np.array([1.0])), over(np.array([2.0]))),
            (over({"a": 1}), over({"a": 2})),
            (over({1, 2}), over({1, 3})),
            (over(slice(1)), over(slice(2))),
            (over(1), over(True)),
            (sized(1), sized(2)),
            (tried, tried_else),  # the table of exceptions alone differs
            (as_of_statistics(1), as_of_statistics(2)),
            (constant(frozenset((1,))), constant(frozenset((2,)))),
        ],
    )
    def test_different_measures_have_different_digests(self, a, b):
        assert Measure(a).digest != Measure(b).digest
        assert Measure(a).digest == Measure(a).digest

    def test_globals_count_also_where_an_inner_function_reads_them(self, monkeypatch):
        measures = (lambda e: e.total > LIMIT, lambda e: any(r > LIMIT for r in e.rewards), lambda e: success(e))
        before = [Measure(one).digest for one in measures]
        monkeypatch.setitem(globals(), "LIMIT", 4)
        monkeypatch.setitem(globals(), "success", lambda e: e.total > 6)
        assert all(a != Measure(one).digest for a, one in zip(before, measures, strict=True))

    def test_what_the_digest_does_not_tell_is_named(self):
        assert Measure(over(1)).unknown == []
        assert Measure(Called()).unknown == ["Called"]
        assert Measure(over(Called())).name == "lambda, which reads Called"

    @pytest.mark.parametrize(
        ("measure", "names"),
        [
            (importing, ["LIMITS"]),
            (over(np.vectorize(success)), ["success"]),
            (over(Rule()), ["Rule"]),
            (over(Missing()), ["Missing"]),
            (over(Half(1)), ["Half"]),
            (over(np.zeros(1, [("low", float)])), ["ndarray"]),
            (over(np.ma.array([1.0, 2.0], mask=[0, 1])), ["MaskedArray"]),
            (lambda e: e.total > float(os.environ["LIMIT"]), ["os"]),
            (lambda e: eval("e.total"), ["eval", "eval"]),
            (lambda e: e.total > np.load("limit.npy"), ["load"]),
            (lambda e: math.fsum(e.rewards) > functools.reduce(max, np.abs(e.rewards[1:])), []),
            (over([len, np.mean, np.add, math.sqrt, functools.reduce, ValueError, np.float64, np.float64(1)]), []),
        ],
    )
    def test_what_is_not_surely_told_is_named(self, measure, names):
        assert Measure(measure).unknown == names

    def test_a_module_counts_by_name_only_where_it_is_the_real_one(self, monkeypatch, tmp_path):
        impostor = types.ModuleType("statistics")
        impostor.__file__ = str(tmp_path / "statistics.py")
        impostor.mean = over(1)
        impostor.mean.__module__, impostor.mean.__qualname__ = "statistics", "mean"
        monkeypatch.setitem(sys.modules, "statistics", impostor)
        assert Measure(over(impostor)).unknown == ["statistics"]
        assert Measure(impostor.mean).digest != Measure(as_of_statistics(2)).digest

    def test_the_order_of_a_set_does_not_count(self):
        assert list(frozenset((0, 8))) != list(frozenset((8, 0)))
        for made_with in (over, constant):
            assert Measure(made_with(frozenset((0, 8)))).digest == Measure(made_with(frozenset((8, 0)))).digest


def importless(episode):
    return episode.total > len(os.sep)


class TestKept:
    def test_a_measured_judgement_is_derived_and_played_again(self, tmp_path):
        problem = richobs.make("lock/3")
        policy = richobs.LearnedPolicy.open_loop((0, 0, 0), 4)
        certify_policy(problem, policy, measure=success, max_episodes=64, out=tmp_path)
        for measure, agrees in (
            ((), {"numbers": True}),
            ((success,), {"numbers": True, "measure": True, "episodes": True}),
            ((over(5),), {"numbers": True, "measure": False}),
        ):
            findings = verify_judgement(tmp_path, richobs.make, *measure).findings
            assert {f.what: f.agrees for f in findings} == agrees
        assert stored.facts(tmp_path / "certificate.json").metric == "mean_success"
        again = certify_policy(problem, policy, measure=success, max_episodes=64, out=tmp_path)
        assert again.episodes == 64
        certify_policy(problem, policy, measure=importless, max_episodes=64, out=tmp_path / "os")
        with pytest.raises(StoreError, match=r"the measure \(it reads os\) cannot be told from another one"):
            certify_policy(problem, policy, measure=importless, max_episodes=64, out=tmp_path / "os")
        found = verify_judgement(tmp_path / "os", richobs.make, importless)
        assert found.findings[1].detail.endswith("it does not tell os")
        with pytest.raises(StoreError, match="its measure is 'success', and 'lambda' is asked now"):
            certify_policy(problem, policy, measure=over(5), max_episodes=64, out=tmp_path)
        changed = json.loads((tmp_path / "certificate.json").read_text())
        (tmp_path / "certificate.json").write_text(json.dumps({**changed, "measure": "never_below"}))
        assert not verify_judgement(tmp_path, richobs.make).agrees

    def test_a_quantile_is_derived_and_played_again(self, tmp_path):
        policy = richobs.LearnedPolicy.open_loop((0, 0, 0), 4)
        report = certify_policy(richobs.make("lock/3"), policy, quantile=0.5, max_episodes=64, out=tmp_path)
        assert (report.lower, report.upper) == (0.0, 0.0)
        found = verify_judgement(tmp_path, richobs.make)
        assert [(f.what, f.agrees) for f in found.findings] == [("numbers", True), ("episodes", True)]
        assert stored.facts(tmp_path / "certificate.json").metric == "quantile_0.5_reward"
        certify_policy(Walk(), right, quantile=0.01, max_episodes=64, out=tmp_path / "open")
        facts = stored.facts(tmp_path / "open" / "certificate.json")
        assert (facts.lower, facts.upper) == (None, 3.0)
        assert '"lower": null' in stored.in_toto(tmp_path / "open")
        assert "| quantile_0.01_reward | [-inf, 3] |" in stored.model_card(tmp_path / "open")
        changed = json.loads((tmp_path / "certificate.json").read_text())
        (tmp_path / "certificate.json").write_text(json.dumps({**changed, "quantile": 0.4}))
        assert not verify_judgement(tmp_path, richobs.make).agrees
