"""Families by law: balls and the loss within them against random laws, evidence that is told apart, and whole runs."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

import richobs
from richobs import BrokenPromise, Certificate, Family, InvalidInput, Problem, Simulators
from richobs.core.environment import Episodes
from richobs.core.events import nobody
from richobs.core.settings import Settings
from richobs.learners.families import laws
from richobs.learners.families.laws import LawSearch, Rows
from richobs.learners.families.search import Tuning
from richobs.learners.families.steps import LAST, MOVED, Batch
from richobs.runs.session import run
from richobs.stats.shares import Supposed
from richobs_lab.worlds.model_environment import model_problem
from runs import faults

STAY = [(0, 0.0, False)]


def table(seed, S=3, K=2, B=3):
    rng = np.random.default_rng(seed)
    return [
        [
            [
                (int(x), float(r), b == 0 and s == 1)
                for b, (x, r) in enumerate(zip(rng.permutation(S)[:B], rng.random(B), strict=True))
            ]
            for _ in range(K)
        ]
        for s in range(S)
    ]


def values(rows, law, policy):
    """Returns V* and the policy's value under laws [L, B], exactly."""
    S = len(rows.start)
    p = law.T[:, rows.law] * rows.real
    best, own = np.zeros(S + 1), np.zeros(S + 1)
    for h in reversed(range(rows.horizon)):
        q = [(p * (rows.reward + v[rows.next])).sum(axis=0).reshape(S, -1) for v in (best, own)]
        best[:S], own[:S] = q[0].max(axis=1), q[1][np.arange(S), policy[h]]
    return rows.start @ best[:S], rows.start @ own[:S]


def kl(p, q):
    return float(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0) / q), 0.0).sum())


def test_no_law_in_the_ball_exceeds_the_bound_and_the_best_one_reaches_it():
    rng = np.random.default_rng(0)
    for _ in range(60):
        counts = rng.integers(0, 6, size=3).astype(float)
        law = (counts + (counts.sum() == 0)) / (counts + (counts.sum() == 0)).sum()
        v, radius = rng.normal(size=3), float(rng.choice([0.01, 0.3, 2.0]))
        bound = laws.most_in_ball(law[:, None], np.array([radius]), v[:, None], np.ones((3, 1), bool))[0]
        drawn = rng.dirichlet(np.ones(3) * rng.choice([0.3, 3]), size=4000) * 0.9 + 0.1 * law
        inside = np.array([kl(law, p) <= radius for p in drawn])
        assert (drawn[inside] @ v).max(initial=-np.inf) <= bound + 1e-9
        top = v.max() + np.geomspace(1e-8, 1e4, 4000)[:, None]
        dual = top[:, 0] - math.exp(-radius) * np.exp((law * np.log(top - v)).sum(axis=1))
        assert bound <= min(dual.min(), v.max()) + 1e-4
    free = laws.most_in_ball(np.zeros((2, 1)), np.array([np.inf]), np.array([[1.0], [2.0]]), np.ones((2, 1), bool))
    assert free[0] == 2.0


def test_the_radius_is_that_of_a_mixture_that_sums_to_one():
    """By enumeration: what the mixture gives to all sequences of four outcomes of three is 1, and exp(n KL) follows."""
    total, sizes = 0.0, np.array([3])
    for sequence in itertools.product(range(3), repeat=4):
        counts = np.bincount(sequence, minlength=3).astype(float)[None]
        n = counts.sum()
        most = float(np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / n), 0.0).sum())
        total += math.exp(
            most - n * float(laws.radii(counts, np.zeros(1, int), sizes, 0.0)[0])
        )  # log mixture = most - n radius
    assert total == pytest.approx(1.0, abs=1e-6)
    known = laws.radii(np.array([[3.0, 0.0], [0.0, 0.0]]), np.arange(2), np.array([1, 2]), 5.0)
    assert known.tolist() == [0.0, np.inf]
    one = np.array([[1.0, 0.0]])
    assert laws.radii(one, np.zeros(1, int), np.array([2]), math.log(20))[0] == pytest.approx(
        math.log(40), abs=1e-6
    )  # the mixture says 1/2


def test_forecasts_of_members_that_differ_have_a_tenth_of_the_money():
    """By enumeration: both forecasts together give 1 to all sequences of two members' outcomes."""
    total, law, sizes = 0.0, np.zeros(2, int), np.array([2])
    for first, second in itertools.product(
        itertools.product(range(2), repeat=3), itertools.product(range(2), repeat=2)
    ):
        members = np.array([np.bincount(x, minlength=2) for x in (first, second)], dtype=float)
        counts = members.sum(axis=0)
        most = float(np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / 5), 0.0).sum())
        total += math.exp(most - 5 * float(laws.radii(members, law, sizes, 0.0)[0]))
    assert total == pytest.approx(1.0, abs=1e-6)
    # 1 of 1 and 0 of 1: the common mixture says 1/2 * 1/4, members of their own 1/2 * 1/2; the best common law 1/4
    own = float(laws.radii(np.eye(2), law, sizes, 0.0)[0])
    assert 2 * own == pytest.approx(math.log(1 / 4) - math.log(0.9 / 8 + 0.1 / 4), abs=1e-6)


@pytest.mark.parametrize(("second", "broken"), [((5.0, 45.0), True), ((25.0, 25.0), False)])
def test_a_group_whose_members_differ_ends_the_run(second, broken):
    listed = [(0, 1.0, False), (0, 0.0, False)]
    family = Family.by_law({"both": {(0, 0): listed, (0, 1): listed}, "own": {(0, 2): listed}}, horizon=1)
    search = LawSearch(None, family, (0.0, 1.0), (0.0, 1.0), 0.1, 0.1, 0, nobody, Tuning())
    search.members[:] = [(30.0, 20.0), second, (50.0, 0.0)]
    if broken:
        with pytest.raises(
            BrokenPromise, match=r"of 'both' do not have one law\. State 0, action 1 .* 5 times where 17\.5"
        ):
            search.plan()
    else:
        assert search.plan().upper <= 1.0


def test_laws_share_delta():
    family = Family.by_law([[[(0, 1.0, False), (0, 0.0, False)]] * 3 + [STAY]], horizon=1)
    assert laws.log_deaths(family, Supposed(0.03)) == pytest.approx(
        math.log(100), abs=1e-5
    )  # three laws have 0.01 each


@pytest.mark.parametrize("grouped", [False, True])
def test_losses_under_laws_in_the_balls_stay_below_the_bound(grouped):
    ratios = []
    for seed in range(10):
        listed, rng = table(seed), np.random.default_rng(seed)
        if grouped:
            listed = {"one": {(s, 0): listed[s][0] for s in range(3)}, "two": {(s, 1): listed[s][1] for s in range(3)}}
        family = Family.by_law(listed, horizon=4)
        rows, L = Rows.of(family), len(family.names)
        counts = rng.multinomial(rng.choice([5, 60]), rng.dirichlet(np.ones(3)), size=L).astype(float)
        radius = laws.radii(counts, np.arange(L), family.sizes, 1.0)
        for policy in (None, rng.integers(2, size=(4, 3))):
            found = rows.plan(counts, radius, policy)
            counted = counts / counts.sum(axis=1, keepdims=True)
            worst = 0.0
            for _ in range(300):
                drawn = rng.dirichlet(np.ones(3) * rng.choice([0.3, 3]), size=L)
                drawn = np.stack(
                    [
                        next(m for x in (1.0, 0.5, 0.2, 0.05, 0.0) if kl(c, m := x * p + (1 - x) * c) <= r)
                        for c, p, r in zip(counted, drawn, radius, strict=True)
                    ]
                )
                best, value = values(rows, drawn, found.actions)
                worst = max(worst, best - value)
                assert best - value <= found.regret + 1e-9
                assert found.low - 1e-9 <= value
                assert best <= found.upper + 1e-9
            assert found.regret <= found.upper - found.low + 1e-9
            ratios.append(found.regret < found.upper - found.low - 1e-6)
    assert any(ratios)  # the loss is below U less L where the policy's own laws are unknown


@cache
def ran():
    family = Family.by_law(table(1), horizon=4)
    rng = np.random.default_rng(5)
    truth = {name: rng.dirichlet(np.ones(3)).tolist() for name in family.names}
    known = model_problem(Simulators([family.at(truth)]), 0, family.reward_range)
    problem = Problem(known.env, family, truth=known.truth)
    return family, truth, problem, run(problem, Settings(learner="families", epsilon=0.4, seed=2))


def test_a_run_claims_what_is_true_with_intervals_of_every_probability():
    _, truth, problem, outcome = ran()
    assert outcome.guaranteed
    words = "the real system has the outcomes that are listed, and each of 6 groups of states and actions has one law"
    assert words in outcome.claim
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.4
    assert outcome.lower <= problem.value(outcome.policy)
    assert problem.optimal_value <= outcome.upper
    assert len(outcome.theta) == 18
    for name, law in truth.items():
        for b, p in enumerate(law):
            low, high, _ = outcome.theta[f"{name}[{b}]"]
            assert low <= p <= high
    widths = [high - low for low, high, _ in outcome.theta.values()]
    assert min(widths) < 0.5


@pytest.mark.parametrize(
    ("part", "change", "what"),
    [
        ("constants", lambda c: c["counts"][0].__setitem__(0, 5000.0), "laws"),
        ("constants", lambda c: c["counts"].pop(), "laws"),
        ("constants", lambda c: c["actions"][0].__setitem__(0, 1 - c["actions"][0][0]), "laws"),
        ("constants", lambda c: c.update(gap=c["gap"] / 2), "laws"),
        ("constants", lambda c: c["theta"].pop(next(iter(c["theta"]))), "theta"),
        ("constants", lambda c: c.update(returns=[1.0] * 16), "W"),
        ("result", lambda c: c.update(upper=c["upper"] - 0.01), "laws"),
        ("result", lambda c: c.update(epsilon=0.01), "laws"),
    ],
)
def test_a_changed_certificate_is_noticed(part, change, what):
    _, _, problem, outcome = ran()
    assert faults(outcome, problem) == []
    assert faults(outcome, problem, lambda content: change(content[part]))[0].startswith(f"{what}: ")


def test_verify_repeats_the_run_and_the_family_is_saved(tmp_path):
    family, _, problem, outcome = ran()
    family.save(tmp_path / "family.npz")
    again = Family.load(tmp_path / "family.npz")
    assert again.digest == family.digest
    assert again.reward_range == family.reward_range
    assert richobs.verify(Certificate.of(outcome, problem), Problem(problem.env, again, truth=problem.truth)).agrees
    other = Family.by_law(table(2), horizon=4)
    assert other.digest != family.digest


def test_episodes_that_run_out_give_a_wider_claim_or_none():
    _, _, problem, _ = ran()
    none = run(problem, Settings(learner="families", epsilon=0.05, max_episodes=12))
    assert (none.guaranteed, none.claim[:13]) == (False, "No guarantee:")
    wide = run(problem, Settings(learner="families", epsilon=0.01, max_episodes=300))
    assert wide.guaranteed
    assert wide.epsilon > 0.01
    assert problem.optimal_value - problem.value(wide.policy) <= wide.epsilon
    assert faults(wide, problem) == []


def shared():
    """One law of three outcomes; at state 1 two of them lead to the same, at the last level rewards tell nothing apart."""
    first, second = [(0, 0.0, False), (1, 0.0, False), (0, 1.0, True)], [*STAY * 2, (0, 1.0, True)]
    return Family.by_law({"ice": {(0, 0): first, (1, 0): second}}, horizon=2)


def test_only_what_is_told_apart_is_counted():
    family = shared()
    assert family.tells.tolist() == [[[True], [False]], [[False], [False]]]
    search = LawSearch(None, family, (0.0, 1.0), (0.0, 1.0), 0.1, 0.1, 0, nobody, Tuning())
    steps = [(MOVED, 0.0, 0.0, 1.0, 0.0), (MOVED, 1.0, 0.0, 0.0, 0.0), (LAST, 0.0, 0.0, 0.0, 1.0)]
    steps.append((MOVED, 0.0, 0.0, -1.0, 1.0))
    search.count(Batch(steps, np.array([3.0, 5.0, 7.0, 2.0])))
    assert search.counts.tolist() == [[0.0, 3.0, 2.0]]
    assert np.allclose(family.at({"ice": [0.2, 0.3, 0.5]}).probability[1, 0], [0.2, 0.3, 0.5])
    with pytest.raises(BrokenPromise, match="state 0, action 0, then state 1 and reward 1 is not listed"):
        search.count(Batch([(MOVED, 0.0, 0.0, 1.0, 1.0)], np.ones(1)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": {(0, 0): STAY, (1, 1): STAY}}, "no law is given for state 0, action 1"),
        ({"a": {(0, 0): STAY}, "b": {(0, 0): STAY}}, "state 0, action 0 has two laws"),
        ({"a": {(0, 0): STAY, (1, 0): STAY * 2}}, "has 1 outcomes elsewhere and 2 at state 1, action 0"),
        ([[STAY * 2]], "outcomes 0 and 1 of law 'state 0, action 0' lead to the same everywhere"),
        ([[[(3, 0.0, False)]]], "leads to state 3; states are 0 to 0"),
        ([[[(0, 0.0)]]], r"an outcome is \(next, reward, done\)"),
        ([[[(0, float("nan"), False)]]], "reward"),
        ([[[(0, 0.0, False), (0, 1e-9, False)]]], "Rewards that close cannot be told apart"),
        ([[[]]], "needs a list of"),
        ({}, "at least one state and action"),
        (7, "by_law takes"),
        ({"a": {0: STAY}}, r"is at work at \(state, action\)"),
        (
            {
                "a": {
                    (0, 0): [(0, 0.0, False), (1, 0.0, False), (0, 0.0, False)],
                    (1, 0): [(0, 0.0, False)] * 2 + [(1, 0.0, False)],
                }
            },
            "tells all outcomes of law 'a' apart|lead to the same everywhere",
        ),
    ],
)
def test_bad_laws_are_refused_with_a_sentence(given, words):
    with pytest.raises(InvalidInput, match=words):
        Family.by_law(given, horizon=2)


def test_a_tolerance_and_other_learners_are_refused():
    _, truth, problem, _ = ran()
    with pytest.raises(InvalidInput, match="a family by laws takes no tolerance"):
        richobs.learn(problem, epsilon=0.4, tolerance=0.1)
    with pytest.raises(InvalidInput, match="needs 3 probabilities that sum to 1"):
        problem.functions.at({**truth, "state 0, action 0": [0.5, 0.5]})
    with pytest.raises(InvalidInput, match="no law 'x'"):
        problem.functions.at({**truth, "x": [1.0]})


def test_a_system_with_other_outcomes_ends_the_run():
    family = shared()
    zero, over = np.zeros(1, int), np.zeros(1, bool)
    other = Episodes([zero] * 2, [zero] * 2, [np.array([0.5]), np.zeros(1)], [over] * 2)
    search = LawSearch(None, family, (0.0, 1.0), (0.0, 1.0), 0.1, 0.1, 0, nobody, Tuning())
    with pytest.raises(BrokenPromise, match=r"reward 0\.5 is not listed"):
        search.count(laws.read_steps(family.arrays, search._rewards, other))


def test_claims_are_rarely_false_where_they_are_hard():
    """16 runs at delta 1/2, of which at most 14 may be false with probability 0.999 (binomial); far fewer are."""
    family, false = Family.by_law([[[(0, 1.0, False), (0, 0.0, False)]] * 2], horizon=3), 0
    for seed in range(16):
        p = 0.5 + 0.05 * (-1) ** seed
        truth = {"state 0, action 0": [p, 1 - p], "state 0, action 1": [1 - p, p]}
        known = model_problem(Simulators([family.at(truth)]), 0, family.reward_range)
        problem = Problem(known.env, family, truth=known.truth)
        outcome = run(problem, Settings(learner="families", epsilon=0.1, delta=0.5, seed=seed, max_episodes=200))
        false += outcome.guaranteed and problem.optimal_value - problem.value(outcome.policy) > outcome.epsilon
    assert false <= 8
