"""Families with a tolerance: bets that pay for it, bounds over cells against systems that are bent, and whole runs."""

import math
from functools import cache

import numpy as np
import pytest
from tests.test_families_search import coin, coin_episode, points_of, random_family

import richobs
from richobs import Certificate, Family, InvalidInput, Problem, Simulators
from richobs.classes.dynamics import Model
from richobs.classes.taylor import Taylor
from richobs.learners.families import cells, steps
from richobs.learners.families.cells import Tables
from richobs.learners.families.evidence import Nodes, Seen
from richobs.learners.families.steps import LAST, MOVED, Batch, StepBets, Within
from richobs.learners.models.living import robust_growth
from richobs.stats.shares import Share
from richobs_lab.worlds.model_environment import model_problem
from runs import faults

ALPHA = 0.03


def bent(p, goal, real, alpha):
    """A law within alpha of p on its outcomes that makes the mean of `goal` as large as it can be."""
    p = p.copy()
    top = int(np.where(real, goal, -np.inf).argmax())
    left = alpha
    for b in np.argsort(np.where(real, goal, np.inf)):
        moved = min(left, p[b]) if b != top else 0.0
        p[b] -= moved
        p[top] += moved
        left -= moved
    return p


def play_out(tables, law, policy, alpha, aim, rng):
    """Returns V* and the policy's value in a system within alpha: bent for the best, the policy's worst, or at random."""
    S, K, H = tables.n_states, tables.n_actions, tables.horizon
    best, own = np.zeros(S + 1), np.zeros(S + 1)
    for h in reversed(range(H)):
        q_best, q_own = np.zeros((S, K)), np.zeros((S, K))
        for row in range(S * K):
            u_best, u_own = (tables.reward[:, row] + v[tables.next[:, row]] for v in (best, own))
            goal = {"best": u_best, "worst": -u_own, "other": u_best - 2 * u_own, "random": rng.normal(size=len(u_own))}
            is_own = row % K == policy[h, row // K]
            if aim == "apart":  # the policy's own rows are bent against it, the others for themselves
                goal["apart"] = -u_own if is_own else u_best
            p = bent(law[tables.events[:, row]], goal[aim], tables.real[:, row], alpha)
            q_best[divmod(row, K)], q_own[divmod(row, K)] = p @ u_best, p @ u_own
        best[:S], own[:S] = q_best.max(axis=1), q_own[np.arange(S), policy[h]]
    return float(tables.start @ best[:S]), float(tables.start @ own[:S])


@pytest.mark.parametrize(("curved", "ball"), [(False, False), (True, False), (True, True)])
def test_no_system_within_the_tolerance_leaves_the_bounds_of_a_cell(curved, ball):
    ratios = []
    for seed in range(8):
        family, rng = random_family(seed, curved), np.random.default_rng(seed)
        tables = Tables(family, 0)
        for width in (0.1, 0.0):
            centre = rng.uniform(0.2, 0.8, size=2)
            axes = width * np.diag(rng.uniform(0.5, 1, size=2))
            parameters = (
                Taylor.ellipsoid(centre, axes) if ball else Taylor.cells(centre[:, None], np.diag(axes)[:, None])
            )
            points = points_of(rng, centre, axes, 6, ball)
            law = family.program.at(points)
            policy = tables.plan(law[:, :1])[1][:, :, 0]
            bounds = cells.regret_over(tables, family.program.over(parameters), policy, ALPHA)
            losses = []
            for i in range(6):
                for aim in ("best", "worst", "other", "random", "apart"):
                    best, value = play_out(tables, law[:, i], policy, ALPHA, aim, rng)
                    losses.append(best - value)
                    assert best - value <= bounds.regret[0] + 1e-9
                    assert bounds.low[0] - 1e-9 <= value <= bounds.high[0] + 1e-9
                    assert best <= bounds.high[0] + bounds.regret[0] + 1e-9
            if width == 0:
                ratios.append(bounds.regret[0] / max(losses) if max(losses) > 1e-3 else 1.0)
    assert np.median(ratios) < 4


def test_the_loss_at_a_point_is_worked_out_by_hand():
    """Action 0 pays 1 with x = 0.7, action 1 with 1/2; within 0.05 nothing is lost, within 0.15 up to 0.3 - 0.2 = 0.1.

    The first state is one of two, half each: a state that only pays 1 is nothing to lose in, and 0.05 may begin elsewhere.
    """
    family = coin()
    tables = Tables(family, 0)
    zero = np.zeros((1, 1), dtype=np.int64)
    at = family.program.over(Taylor.cells(np.array([[0.7]]), np.zeros((1, 1))))
    found = [cells.regret_over(tables, at, zero, alpha) for alpha in (0.05, 0.15)]
    assert [one.regret[0] for one in found] == pytest.approx([0.0, 0.1], abs=1e-9)
    assert [one.low[0] for one in found] == pytest.approx([0.65, 0.55], abs=1e-9)
    assert [one.high[0] for one in found] == pytest.approx([0.75, 0.85], abs=1e-9)
    pays = [[(1.0, 0, 1.0, True)]] * 2
    two = Family(
        lambda t: [[[(t["x"], 0, 1.0, True), (1 - t["x"], 0, 0.0, True)], [(1.0, 0, 0.5, True)]], pays],
        {"x": (0, 1)},
        horizon=1,
        start=[0.5, 0.5],
    )
    at = two.program.over(Taylor.cells(np.array([[0.4]]), np.zeros((1, 1))))
    found = cells.regret_over(Tables(two, 0), at, np.zeros((1, 2), dtype=np.int64), 0.05)
    assert found.regret[0] == pytest.approx((0.5 + 0.05) * (0.1 + 0.05), abs=1e-9)
    assert found.low[0] == pytest.approx(0.5 * 0.35 + 0.5 - 0.05 * (0.6 + 0.05), abs=1e-9)


def test_a_bet_has_a_mean_of_at_most_one_under_every_law_within_the_tolerance():
    """The mean is 1 where the law is bent as far as it can be towards the forecast, and ratios are small."""
    rng, largest = np.random.default_rng(0), []
    for _ in range(200):
        p, q = rng.dirichlet(np.ones(3), size=2)
        own = Within(ALPHA, np.array([[0, 1, 2]]), q[None], np.ones(1), np.zeros(3))
        paid = float(own.allowed(p[:, None], p[:, None])[0])
        f = np.minimum(q / p, steps.LARGEST_RATIO)
        mean = bent(p, f, np.ones(3, dtype=bool), ALPHA) @ f / math.exp(paid)
        assert mean <= 1 + 1e-9
        largest.append(mean)
        happened = np.array([0, 2, 2])
        again = robust_growth(q, p[None], happened, ALPHA)[0]
        assert np.log(f[happened]).sum() - 3 * paid == pytest.approx(again, abs=1e-9)
    assert np.median(largest) > 0.99


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("alpha", [0.001, 0.1])
def test_likelihood_and_what_is_allowed_stay_below_the_bound_of_their_cell(curved, alpha):
    """By enumeration of all terms at the points: the cap of ratios, and the span of each forecast."""
    close = []
    for seed in range(8):
        family, rng = random_family(seed, curved), np.random.default_rng(seed)
        bets = StepBets(family)
        rows = [(MOVED, s, a) for s in range(3) for a in range(2)] + [(LAST, 0.0, 1.0)]
        for _ in range(3):
            q = family.program.at(rng.random((2, 1)))[:, 0]
            for row in rows:
                outcomes = bets.outcomes(row)
                law = np.bincount(outcomes.key[:, 0], q[outcomes.events[:, 0]], len(outcomes.names) + 1)[:-1]
                law = np.where(np.arange(len(law)) == 0, 0.98, 0.0) + 0.02 * law  # ratios beyond the cap
                bets.keep(steps.Term(row, law / law.sum(), rng.poisson(3, size=len(law)).astype(float)))
        evidence = cells.Evidence(bets.counts(0), 0.0, bets.within(0, alpha))
        for width in (0.3, 0.05, 0.005):
            centre, half = rng.uniform(width, 1 - width, size=2), np.array([width, width / 2])
            points = points_of(rng, centre, np.diag(half), 60, False)
            law = family.program.at(points)
            true = np.zeros(60)
            for row, q, n in bets.terms:
                outcomes = bets.outcomes(row)
                real = outcomes.key[:, 0] < len(q)
                p = np.zeros((len(q), 60))
                p[outcomes.key[real, 0]] = law[outcomes.events[real, 0]]
                true += n @ np.log(q)[:, None].repeat(60, 1)
                for i in np.flatnonzero(n):
                    true -= robust_growth(q, p.T, np.full(int(n[i]), i), alpha)
            bound = evidence.over(family.program.over(Taylor.cells(centre[:, None], half[:, None])))
            assert true.max() <= bound[0] + 1e-6
            assert (true <= evidence.log_likelihood(law) + 1e-6).all()
            close.append(bound[0] - true.max() if width == 0.005 else 0.0)
    assert max(close) < 5


def test_forecasts_of_single_steps_are_fixed_before_their_batch():
    """Nodes at 0.2 and 0.6 with weights 3/4 and 1/4 forecast 0.3; after a head the alarms know it, with little weight."""
    seen = Seen(coin(), Share(0.05), ALPHA)
    theta = np.array([[0.2, 0.6]])
    nodes = Nodes(np.zeros(2, dtype=int), theta, seen.family.program.at(theta), np.array([0.75, 0.25]))
    seen.absorb(seen.read(coin_episode(0, 1)), nodes)
    assert seen.log_numerator == pytest.approx(math.log(0.3))
    for _ in range(2):
        seen.absorb(seen.read(coin_episode(0, 1)), nodes)
    laws = np.array([[0.3] * 4, [0.3, 4 / 11, 31 / 101, 301 / 1001]])
    weights = np.array([0.9, *[0.1 / 3] * 3]) * laws[0]
    second = weights / weights.sum() @ laws[1]
    weights = weights * laws[1]
    third = weights / weights.sum() @ [0.3, 5 / 12, 32 / 102, 302 / 1002]
    assert seen.log_numerator == pytest.approx(math.log(0.3) + math.log(second) + math.log(third))
    for term in seen.stepwise.terms:
        assert term.q.sum() == pytest.approx(1.0)
    own = Seen(coin(), Share(0.05))  # without a tolerance the same bets are made when the curve asks for them
    for _ in range(3):
        own.absorb(own.read(coin_episode(0, 1)), nodes)
    again = own.nearly(ALPHA)[0]
    assert again.threshold == pytest.approx(seen.threshold)
    np.testing.assert_allclose(again.within.q, seen.evidence(0).within.q)


def test_alarms_of_single_steps_are_heard_once_they_did_better():
    bets = StepBets(coin())
    mean = bets.family.program.at(np.array([[0.05]])).T
    for _ in range(40):
        bets.add(Batch([(LAST, 0.0, 0.0, 0.0, 1.0)], np.array([4.0])), mean)
    assert bets.weights[0] < 1e-3
    assert bets.terms[-1].q[1] > 0.9
    assert bets.terms[0].q[1] == pytest.approx(0.05)


def test_outcomes_of_all_structures_are_matched():
    """Where a structure does not list an outcome, the money on it is lost to it; a reward of the last level is one event."""
    family = Family(
        lambda t: [
            [[(t["x"], t["to"], 1.0, False), (0.5 - t["x"], 0, 1.0, False), (0.5, 0, 0.0, True)]],
            [[(1.0, 0, 0.0, True)]],
        ],
        {"x": (0.0, 0.4), "to": [1, 0]},
        horizon=2,
    )
    bets = StepBets(family)
    assert bets.outcomes((MOVED, 0.0, 0.0)).names == [(-1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    assert bets.outcomes((LAST, 0.0, 0.0)).names == [(0.0, 0.0), (0.0, 1.0)]
    mean = np.stack(
        [0.75 * family.program.at(np.array([[0.2]]))[:, 0], 0.25 * family.program.at(np.array([[0.4]]))[:, 0]]
    )
    bets.add(Batch([(MOVED, 0.0, 0.0, 1.0, 1.0), (LAST, 0.0, 0.0, 0.0, 1.0)], np.array([1.0, 2.0])), mean)
    np.testing.assert_allclose(bets.terms[0].q, [0.5, 0.75 * 0.3 + 0.25 * 0.5, 0.75 * 0.2])
    np.testing.assert_allclose(bets.terms[1].q, [0.5, 0.5])
    assert np.isnan(bets.counts(1)).all()  # it holds a move to state 1 impossible
    assert bets.counts(0).sum() == 3
    assert (bets.within(1, 0.1).q[bets.within(1, 0.1).events >= 0].sum()) == pytest.approx(1.0 + 0.5 + 0.35)


def lake_like(theta):
    """Three states in a row: swimming up works with probability x; the end pays."""
    x = theta["x"]
    table = []
    for s in range(3):
        up = [(x, min(s + 1, 2), float(s == 2), False), (1 - x, max(s - 1, 0), 0.0, False)]
        table.append([[(1.0, max(s - 1, 0), 0.15 * (s == 0), False)], up])
    return table


def near_problem(x, by):
    """The real system: at the last state swimming up works less often, which no x explains."""
    family = Family(lake_like, {"x": (0.2, 0.95)}, horizon=6)
    model = family.at({"x": x})
    probability = model.probability.copy()
    probability[2, 1] = np.where(model.reward[2, 1] > 0, probability[2, 1] - by, probability[2, 1] + by)
    real = Model(6, model.start, probability, model.next, model.reward, model.done)
    truth = model_problem(Simulators([real]), 0, family.reward_range)
    return Problem(truth.env, family, truth=truth.truth)


@cache
def within_a_tolerance():
    problem = near_problem(0.6, 0.02)
    return problem, richobs.learn(problem, epsilon=0.6, tolerance=0.02, seed=1, max_episodes=3000)


def test_a_run_within_a_tolerance_claims_what_is_true_and_says_what_it_assumes():
    problem, outcome = within_a_tolerance()
    words = "are within 0.02 of the given simulator's in total variation, on the same outcomes, for some x"
    assert words in outcome.claim
    assert outcome.guaranteed
    assert problem.optimal_value - problem.value(outcome.policy) <= outcome.epsilon
    assert problem.optimal_value <= outcome.upper
    assert outcome.constants.alpha == 0.02
    assert outcome.constants.terms


def test_a_tolerance_that_leaves_too_much_ends_the_run_with_the_wider_claim():
    outcome = richobs.learn(near_problem(0.6, 0.0), epsilon=0.05, tolerance=0.05, seed=1, max_episodes=4000)
    assert outcome.reason.name == "TOLERANCE"
    assert outcome.episodes < 4000
    assert 0.05 < outcome.epsilon < 3
    assert outcome.lower > 0


def test_a_run_too_short_for_a_wider_claim_says_how_many_episodes_one_needs():
    problem = near_problem(0.6, 0.0)
    outcome = richobs.learn(problem, epsilon=0.05, tolerance=0.05, seed=1, max_episodes=40)
    assert not outcome.guaranteed
    words = "wider than epsilon is made after 64 episodes at the earliest, and 16 of its policy: allow 80"
    assert words in outcome.claim
    plan = richobs.plan(problem, epsilon=0.05, tolerance=0.05)
    assert [row.value for row in plan.rows() if row.name == "before a wider claim"] == [80]


@pytest.mark.parametrize("seed", [21, 22])
def test_what_another_policy_earned_is_not_stated(seed):
    """A first policy is confirmed, another one is chosen, and the episodes run out before it is confirmed as well."""
    family = Family(
        lambda t: [[[(t["x"], 0, 1.0, False), (1 - t["x"], 0, 0.0, False)], [(1.0, 0, 0.5, False)]]],
        {"x": (0.05, 0.95)},
        horizon=1,
    )
    law, pay, to = np.array([[[0.56, 0.44], [1.0, 0.0]]]), np.array([[[1.0, 0.0], [0.5, 0.0]]]), np.zeros((1, 2, 2))
    real = Model(1, np.ones(1), law, to.astype(int), pay, to.astype(bool))
    problem = Problem(model_problem(Simulators([real]), 0, family.reward_range).env, family)
    outcome = richobs.learn(problem, epsilon=0.13, delta=0.5, tolerance=0.05, seed=seed, max_episodes=70)
    assert (outcome.guaranteed, outcome.reason.name, outcome.constants.looked) == (True, "TOLERANCE", 1)
    assert outcome.constants.earns == [0.0, 1.0]
    assert faults(outcome, problem) == []


def test_a_run_says_before_it_plays_what_a_tolerance_leaves():
    """At most 0.55 - 0.45 is lost where nothing is bent; within 0.2 a policy may lose 0.4 - 0.05 or more."""
    family = coin((0.45, 0.55))
    truth = model_problem(Simulators([family.at({"x": 0.5})]), 0, family.reward_range)
    outcome = richobs.learn(Problem(truth.env, family), epsilon=0.1, tolerance=0.2, max_episodes=400)
    first = outcome.trace[0]
    assert type(first).__name__ == "ToleranceIsLarge"
    assert first.least == pytest.approx(0.35, abs=0.01)
    assert outcome.reason.name == "TOLERANCE"
    assert outcome.epsilon >= 0.35


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(alpha=0.0), "loses at most"),
        (lambda c: c["terms"][-1].__setitem__(1, [0.9 * q for q in c["terms"][-1][1]]), "loses at most"),
        (lambda c: c["terms"][0].__setitem__(1, [2 * q for q in c["terms"][0][1]]), "of single steps are not"),
        (lambda c: c["terms"][0][2].__setitem__(0, 7.0), "of single steps are not"),
        (lambda c: c.update(terms=[]), "of single steps are not"),
    ],
)
def test_a_changed_certificate_of_a_run_within_a_tolerance_is_noticed(change, words):
    problem, outcome = within_a_tolerance()
    assert faults(outcome, problem) == []
    wrong = faults(outcome, problem, lambda content: change(content["constants"]))[0]
    assert wrong.startswith("cells: ")
    assert words in wrong


def test_a_run_within_a_tolerance_is_verified():
    problem, outcome = within_a_tolerance()
    assert richobs.verify(Certificate.of(outcome, problem), problem).agrees


def test_the_curve_rises_with_the_tolerance_and_begins_with_the_claim():
    outcome = richobs.learn(near_problem(0.6, 0.0), epsilon=0.3, seed=1)
    rows = outcome.tolerance_curve.rows
    assert rows[0][:3] == (0.0, outcome.epsilon, outcome.upper)
    gaps = [row.epsilon for row in rows]
    assert gaps == sorted(gaps)
    assert [row.upper for row in rows] == sorted(row.upper for row in rows)
    wide = next(row for row in rows if row.tolerance == 2**-5)
    own = richobs.learn(near_problem(0.6, 0.0), epsilon=wide.epsilon, tolerance=2**-5, seed=1)
    assert own.epsilon <= wide.epsilon * 1.3  # a run with this tolerance claims about the same
    assert 0.3 < wide.epsilon < 3


@pytest.mark.parametrize(("given", "words"), [(1.0, "one number below 1"), ((0.1, 0.2), "got 0.1, 0.2")])
def test_a_tolerance_that_is_no_total_variation_is_refused(given, words):
    with pytest.raises(InvalidInput, match=words):
        richobs.learn(near_problem(0.6, 0.0), epsilon=0.3, tolerance=given)


def test_rewards_of_structures_that_are_nearly_equal_are_one_outcome():
    """A chain of rewards, each too close to the next to be told apart: the last one is not the first one's."""
    family = Family(
        lambda t: [[[(t["x"], 0, t["pay"], False), (1 - t["x"], 0, 0.0, False)]]],
        {"x": (0.1, 0.9), "pay": [0.5, 0.5 + 3e-7, 0.5 + 6e-7]},
        horizon=2,
    )
    bets = StepBets(family)
    assert bets.outcomes((MOVED, 0.0, 0.0)).names == [(0.0, 0.0), (0.0, 0.5)]
    mean = np.tile(family.program.at(np.array([[0.4]])).T / 3, (3, 1))
    bets.add(Batch([(MOVED, 0.0, 0.0, 0.0, 0.5 + 6e-7)], np.ones(1)), mean)
    np.testing.assert_allclose(bets.terms[0].q, [0.6, 0.4])
    np.testing.assert_array_equal(bets.terms[0].n, [0.0, 1.0])
