"""A class that holds Q* only nearly: what each inequality of docs/betting.md [T] allows for, exactly where it can be."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.test_betting_exact import ALSO_WRONG, MONEY, WRONG, Q, anything, by_q_star, every_run

import richobs
from own import Arms as Coin
from richobs.classes import Layered, Listed, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.model_arrays import _most_within
from richobs.classes.simulators import Simulators
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.outcome import StopReason
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings, read_record
from richobs.learners.betting.candidate import Accounts, Candidate, followed
from richobs.learners.betting.certify import Roots, agreement_bets, promise_bets, promised
from richobs.learners.betting.learner import Betting
from richobs.learners.betting.survivors_listed import ListedSurvivors
from richobs.learners.betting.survivors_product import ProductSurvivors
from richobs.learners.betting.values import Ranges, samples_of
from richobs.learners.models.living import Living, robust_growth
from richobs.stats import bets
from richobs.stats.shares import Share, Supposed
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.worlds.model_environment import ModelEnvironment
from runs import faults

ETA = 0.15
NEAR = (np.array(Q[0]) - ETA, np.array(Q[1]) + ETA)  # E[y] - f is 2 eta at level 0 and -eta at level 1


class Declares:
    """Two levels of nonnegative rewards with totals of at most 1."""

    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)


def near_class(is_product: bool) -> Layered | Listed:
    tables = [TableLevel(np.clip([NEAR[h], WRONG[h], ALSO_WRONG[h]], 0, 1)) for h in range(2)]
    return (Layered if is_product else Listed)(tables)


def mean_wealth(functions: Layered | Listed, tolerance: float) -> np.ndarray:
    """Returns the mean wealth of bets against the first function, of each level or of the list, over all outcomes."""
    ranges, mean = Ranges.of(Declares(), functions, (tolerance,)), np.zeros(1)
    for chance, batches in every_run(anything):
        kind = ProductSurvivors if functions.is_product else ListedSurvivors
        space = kind(functions, Share(1e-9), ranges)
        for t, played in enumerate(batches, 1):
            space.absorb(samples_of(played), t)
        mean = mean + chance * np.exp(space.log_wealth((0, 0) if functions.is_product else 0))
    return mean


@pytest.mark.parametrize("is_product", [True, False])
def test_bets_win_nothing_from_a_function_within_the_tolerance(is_product: bool) -> None:
    """Told nothing of it, they win on average."""
    functions = near_class(is_product)
    assert (mean_wealth(functions, ETA) <= MONEY).all()
    assert max(mean_wealth(functions, 1e-12)) > 1.01 * MONEY


def test_averages_win_nothing_from_a_function_within_the_tolerance() -> None:
    functions = near_class(is_product=True)
    for tolerance, wins in ((ETA, False), (0.6 * ETA, True)):
        ranges, wealth = Ranges.of(Declares(), functions, (tolerance,)), 0.0
        for chance, batches in every_run(by_q_star):
            accounts = Accounts.opened(1, 0.1, ranges, *Share(0.3).split(0.3, 0.3, 0.3))
            player = Candidate(1, (0, 0), LearnedPolicy(functions, (0, 0)), accounts=accounts)
            for played in batches:
                player.absorb(*followed(played, player.policy, ranges))
            wealth = wealth + chance * np.exp(accounts.average_wealth)  # [H, L] of every level and every bet
        assert (np.max(wealth) > 1) == wins


@pytest.mark.parametrize("values", [3, 40])  # growth is a matrix product per value, or goes sample by sample
@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.3])
def test_growth_is_that_of_stakes_and_factors(values: int, tolerance: float) -> None:
    rng = np.random.default_rng(4)
    f = rng.choice(rng.random(values), size=(30, 20))
    y, forecast, variance = rng.random((3, 4, 20))
    found = bets.growth(f, y, forecast, variance, tolerance)
    for r in range(30):
        stake = bets.stakes(forecast, variance, f[r], tolerance)
        factors = bets.log_factors(stake, y, f[r], tolerance).sum(axis=1)
        np.testing.assert_allclose(found[r], factors, atol=1e-5)
        assert (found[r] <= factors + 1e-9).all()  # never more than is proved


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("tolerance", "stake"), [(0.1, 0.0), (0.2, 0.0), (0.04, 2 * 0.036 / (0.01 + 0.036))])
def test_a_stake_aims_at_what_exceeds_the_tolerance(sign: int, tolerance: float, stake: float) -> None:
    f = np.array([0.5])
    found = bets.stakes(f + sign * 0.1, np.array([0.01]), f, tolerance)
    assert found[0] == pytest.approx(sign * min(stake, 0.9 / 0.5))


@pytest.mark.parametrize("mean", [0.3, 0.7])  # of y in {0, 1}, 0.2 from f
def test_a_factor_has_a_mean_of_at_most_1(mean: float) -> None:
    f, y = np.array([0.5]), np.array([0.0, 1.0])
    for forecast in (0.05, 0.4, 0.6, 0.95):
        for stake in (bets.stakes(np.array([forecast]), np.array([0.1]), f), np.array([1.7]), np.array([-1.7])):
            factors = np.exp(bets.log_factors(stake, y, f, 0.2))
            assert factors @ [1 - mean, mean] <= 1
    assert np.exp(bets.log_factors(np.sign(mean - f) * 1.7, y, f, 0.15)) @ [1 - mean, mean] > 1.03
    constant = bets.average_bets(0.01)
    both = np.stack([np.exp(bets.average_growth(np.array([v - 0.5]), constant, 0.2)) for v in y])
    assert ([1 - mean, mean] @ both <= 1).all()


class TestRanges:
    def test_neighbouring_levels_add_up(self) -> None:
        functions = Layered([TableLevel(np.full((1, 1, 2), 0.5))] * 3)
        env = dataclasses.make_dataclass("Env", [])()
        env.horizon, env.n_actions, env.reward_range = 3, 2, (0.0, 1.0)
        ranges = Ranges.of(env, functions, (0.01, 0.02, 0.04))
        assert (ranges.residual * ranges.width).tolist() == pytest.approx([0.03, 0.06, 0.04])
        assert ranges.above == 0.01
        assert ranges.lost == pytest.approx(0.14)
        assert "within 0.01, 0.02, 0.04 of Q* at levels 0 to 2" in ranges.nearest

    def test_what_totals_allow_is_widened_and_what_the_class_says_is_not(self) -> None:
        functions = Layered([TableLevel(np.full((1, 1, 2), 1.0))] * 2)
        plain, near = (Ranges.of(Declares(), functions, tolerance) for tolerance in ((), (0.1, 0.2)))
        assert (plain.low + plain.width).tolist() == [1.0, 1.0]
        assert (near.low + near.width).tolist() == pytest.approx([1.2, 1.0])  # y of level 0 has V of level 1 in it
        totals = np.array([[1.15], [1.25]])
        assert near.impossible(totals, 0).tolist() == [False, True]
        assert near.impossible(totals, 1).tolist() == [True, True]  # nothing is predicted behind the last level
        assert plain.impossible(totals, 0).tolist() == [True, True]

    def test_u_has_the_tolerance_of_the_root_and_no_more_than_can_be_earned(self) -> None:
        functions = Layered([TableLevel(np.full((1, 1, 2), 0.85))] * 2)
        for eta, most in ((0.1, 0.95), (0.2, 1.0)):
            roots = Roots(functions, Share(0.1), Ranges.of(Declares(), functions, (eta, 0.0)))
            assert roots.largest(np.array([0])) == pytest.approx(most, abs=1e-5)

    @pytest.mark.parametrize(("eta", "left"), [((), 0.3), ((0.05,), 0.1), ((0.0, 0.1), 0.1)])
    def test_agreement_leaves_2_eta_a_level(self, eta: tuple[float, ...], left: float) -> None:
        functions = Layered([TableLevel(np.full((1, 1, 2), 1.0))] * 2)
        bet = agreement_bets(0.3, Ranges.of(Declares(), functions, eta), 2)
        assert bet is not None
        assert bet.epsilon == pytest.approx(left, abs=1e-5)
        assert agreement_bets(0.2, Ranges.of(Declares(), functions, (0.05,)), 2) is None


def nearly(seed: int, eta: float, shift: float | None = None) -> tuple[WorldEnvironment, Listed, TabularProcess]:
    """Returns a random process and 30 functions, one of them within eta of Q* and 29 of other processes.

    Args:
        seed: of everything.
        eta: how far.
        shift: by how much all values of that function are off; by default each has its own error.
    """
    rng = np.random.default_rng(seed)

    def process() -> TabularProcess:
        pays = Rewards.bernoulli(rng.random((3, 1, 2)), 1 / 3)
        moves = rng.dirichlet([0.5] * 3, size=(3, 2))
        return TabularProcess.from_flat(3, rng.dirichlet([1.0] * 3), moves, np.eye(3), pays)

    real = process()
    others = [process().q_tables for _ in range(29)]
    tables = []
    for h, q in enumerate(real.q_tables):
        off = rng.uniform(-eta, eta, size=q.shape) if shift is None else shift
        tables.append(TableLevel(np.clip([q + off, *(o[h] for o in others)], 0, 1), real.codebooks[h]))
    return WorldEnvironment(TabularWorld(real)), Listed(tables), real


def is_false(outcome: richobs.Outcome, process: TabularProcess) -> bool:
    best, value = process.optimum.value, process.value(outcome.policy)
    assert outcome.upper is not None
    assert outcome.lower is not None
    return best - value > outcome.epsilon + 1e-9 or best > outcome.upper + 1e-9 or value < outcome.lower - 1e-9


def test_claims_are_true_with_the_tolerance_and_often_false_without() -> None:
    """At delta 0.1, 12 runs: 5 false claims or broken promises have a probability below 0.01 where they may be 1."""
    wrong = {0.04: 0, 0.0: 0}
    for told in wrong:
        for seed in range(12):
            env, functions, process = nearly(seed, 0.04, shift=-0.04)
            try:
                asked = {"epsilon": 0.3, "delta": 0.1, "tolerance": told, "max_episodes": 2_000}
                found = richobs.learn(env, functions, seed=seed, progress=False, **asked)
                wrong[told] += is_false(found, process)
            except BrokenPromise:
                wrong[told] += 1
    assert wrong[0.04] < 5
    assert wrong[0.0] > 3


def run(seed: int = 3, **asked: Any) -> richobs.Outcome:
    env, functions, _ = nearly(seed, 0.02)
    given = {"epsilon": 0.3, "delta": 0.1, "seed": seed, "tolerance": 0.02, "progress": False, "max_episodes": 3_000}
    return richobs.learn(env, functions, **{**given, **asked})


def test_the_claim_states_the_tolerance_and_zero_is_none() -> None:
    assert "some function of the class is within 0.02 of Q* everywhere" in run().claim
    plain, zero = run(tolerance=()), run(tolerance=[0, 0.0, 0])
    assert plain.claim == zero.claim
    assert "Q* is in the class" in zero.claim
    assert zero.settings == plain.settings
    assert "tolerance" not in zero.settings.as_plain()
    kept = Settings(tolerance=0.5)  # type: ignore[arg-type]  # one number will do
    assert read_record(Settings, kept.as_plain()) == kept


def test_one_survivor_may_lose_what_the_tolerance_hides() -> None:
    """6 eta at three levels: with epsilon below that promises or the interval decide, or the run states what it reached."""
    assert any(run(seed, tolerance=0.01).reason is StopReason.ONE_SURVIVOR for seed in range(8))
    for seed in range(8):
        found = run(seed, epsilon=0.11, max_episodes=20_000)
        assert found.reason in (StopReason.CERTIFIED, StopReason.TOLERANCE, StopReason.NEAR_OPTIMAL)
        assert found.upper is not None
        assert found.lower is not None
        assert found.upper - found.lower <= found.epsilon + 1e-12 or found.reason is StopReason.NEAR_OPTIMAL


def test_before_anything_is_played_a_run_says_what_can_be_hoped_for() -> None:
    for tolerance, said in ((0.04, False), (0.06, True)):
        first = run(tolerance=tolerance).trace[0]
        assert (first.kind == "tolerance") == said
    assert "about 0.36 may be lost and never be noticed: an epsilon above that" in first.sentence
    assert first.said().is_trouble  # a person who watches sees it at once
    assert "no epsilon below 0.36 can be relied on" in run(tolerance=0.06, max_episodes=100).remarks[-1]


def test_a_run_that_the_tolerance_keeps_from_epsilon_ends_and_says_so() -> None:
    found = run(epsilon=0.02, tolerance=0.1, max_episodes=None)
    assert found.reason is StopReason.TOLERANCE
    assert found.epsilon > 0.02
    assert "no epsilon below 0.6" in found.remarks[0]


def test_nothing_takes_over_from_a_search_with_a_tolerance() -> None:
    """OLIVE assumes that Q* is in the class."""
    env, functions, _ = nearly(0, 0.02)
    problem = richobs.Problem(env, functions)
    assert Betting().fallback_settings(problem, Settings()) is not None
    assert Betting().fallback_settings(problem, Settings(tolerance=(0.02,))) is None
    plan = Betting().plan(problem, Settings(tolerance=(0.02,)))
    assert plan.max_episodes is None
    assert plan.as_json()["least_epsilon"] == pytest.approx(0.12)
    assert plan.least is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tolerance": -0.1}, "at least 0"),
        ({"tolerance": math.nan}, "tolerance must be"),
        ({"tolerance": math.inf}, "tolerance must be"),
        ({"tolerance": "much"}, "tolerance must be"),
        ({"tolerance": True}, "tolerance must be a number; got True"),
        ({"tolerance": [[0.1]]}, "tolerance must be"),
        ({"tolerance": [0.1, -0.1, 0.1]}, "at least 0, or one per level; got 0.1, -0.1, 0.1"),
        ({"tolerance": [0.1, 0.1]}, "one for each of 3 levels; got 2. It is the distance of the nearest function"),
        ({"tolerance": 1.0}, "must be below 1, or it says nothing; got 1"),
        ({"tolerance": [0.1, 0.1, 7]}, "must be below 1, or it says nothing; got 7"),
        ({"tolerance": 0.1, "learner": "olive", "n_states": 3}, "knows no tolerance"),
    ],
)
def test_bad_tolerances_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        run(**asked)
    with pytest.raises(InvalidInput, match=words):
        richobs.plan(*nearly(1, 0.02)[:2], **asked)


# Models.


def walks(n: int, seed: int) -> Simulators:
    """Returns n random models of three states and two actions, rewards of 1/3 at most."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet([1.0] * 3, size=(n, 3, 2))
    return Simulators.of_arrays(law, np.broadcast_to(np.array([0.0, 0.2, 1.0]) / 3, (3, 2, 3)), 3)


def bent(family: Simulators, model: int, alpha: float, rng: np.random.Generator) -> Simulators:
    """Returns a system each of whose laws is alpha from that of a model, in random directions."""
    p = family.models.probability[:, model]  # [B, S, K]
    order = np.argsort(family.models.next[:, model], axis=0)
    p = np.moveaxis(np.take_along_axis(p, order, axis=0), 0, 2)
    other = rng.dirichlet([1.0] * 3, size=(3, 2))
    distance = np.abs(other - p).sum(axis=2, keepdims=True) / 2
    law = p + (other - p) * np.minimum(alpha / distance, 1.0)
    start = family.models.start[model]
    return Simulators.of_arrays(law[None], np.broadcast_to(np.array([0.0, 0.2, 1.0]) / 3, (3, 2, 3)), 3, start=start)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.3, 0.95])
def test_the_best_law_of_a_ball_is_found(alpha: float) -> None:
    """Among all laws of three outcomes whose probabilities are multiples of 0.05."""
    grid = np.array([(i, j, 20 - i - j) for i in range(21) for j in range(21 - i)]) / 20
    rng = np.random.default_rng(0)
    for p in grid[:: 7 if alpha else 1]:
        values = rng.normal(size=3)
        near = grid[(np.abs(grid - p).sum(axis=1) / 2 <= alpha + 1e-9) & (grid[:, p == 0] == 0).all(axis=1)]
        assert _most_within(p, values, alpha) == pytest.approx((near @ values).max(), abs=1e-12)


def test_values_of_bent_systems_lie_between_those_of_the_ball() -> None:
    family, rng = walks(1, 0), np.random.default_rng(1)
    policy = LearnedPolicy(family, 0)
    high, low = family.optimal_values_within(0.1)[0], family.policy_values_within(policy, 0.1)[0]
    assert low < family.policy_values(policy)[0] < high
    np.testing.assert_allclose(family.optimal_values_within(0.0), family.optimal_values(), atol=1e-12)
    np.testing.assert_allclose(family.policy_values_within(policy, 0.0), family.policy_values(policy), atol=1e-12)
    for _ in range(200):
        real = bent(family, 0, 0.1, rng)
        assert real.optimal_values()[0] <= high + 1e-12
        assert real.policy_values(policy)[0] >= low - 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_a_robust_factor_has_a_mean_of_at_most_1_under_every_law_of_the_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    law, q = rng.dirichlet([0.3] * 4, size=1), rng.dirichlet([0.3] * 4)
    factors = np.exp([robust_growth(q, law, np.array([b]), 0.1)[0] for b in range(4)])
    worst = _most_within(law[0][:, None], factors[:, None], 0.1)[0]
    assert worst <= 1 + 1e-9
    # It falls with alpha.
    assert (np.exp([robust_growth(q, law, np.array([b]), 0.3)[0] for b in range(4)]) <= factors).all()


def test_step_laws_multiply_to_the_likelihood() -> None:
    family = walks(5, 3)
    env = ModelEnvironment(family, 2, (0.0, 1.0))
    played = env.play(richobs.Uniform(2), 20, np.random.default_rng(0))
    logs = np.zeros(5)
    for step in family.step_laws(played, np.arange(5)):
        np.testing.assert_allclose(step.law.sum(axis=1), 1.0)
        logs += np.log(step.law[:, step.happened]).sum(axis=1)
    np.testing.assert_allclose(logs, family.log_likelihood(played), rtol=1e-12)


def test_the_true_model_lives_within_a_tolerance_and_dies_without() -> None:
    """At d = 0.1 in 20 runs of a bent system: 6 deaths have a probability below 0.02 where they may be 2."""
    dead = {0.2: 0, 1e-9: 0}
    for seed in range(20):
        rng, family = np.random.default_rng(1_000 + seed), walks(6, seed)
        env = ModelEnvironment(bent(family, 0, 0.2, rng), 0, (0.0, 1.0))
        for alpha in dead:
            living = Living(6, Supposed(0.1), alpha, 3)
            for _ in range(12):
                played = env.play(richobs.Uniform(2), 8, rng)
                steps = list(family.step_laws(played, living.models))
                try:
                    living.absorb(family.log_likelihood(played, living.models), 8 * 4, steps)
                except BrokenPromise:
                    living.models = living.models[:0]
                if 0 not in living.models:
                    dead[alpha] += 1
                    break
    assert dead[0.2] < 6
    assert dead[1e-9] > 4


def test_claims_of_models_are_true_with_the_tolerance() -> None:
    wrong, rows = {0.1: 0, 0.0: 0}, [0, 0]  # of claims; of rows of their curves at 2^-3, and how many there are
    for seed in range(14):
        rng, family = np.random.default_rng(1_000 + seed), walks(12, seed)
        real = bent(family, int(rng.integers(12)), 0.1, rng)
        env = ModelEnvironment(real, 0, (0.0, 1.0))
        for told in wrong:
            try:
                found = richobs.learn(
                    *(env, family),
                    **{"assume": "model", "tolerance": told, "epsilon": 0.02, "seed": seed},
                    **{"delta": 0.1, "max_episodes": 500, "progress": False},
                )
            except BrokenPromise:
                wrong[told] += 1
                continue
            assert found.upper is not None
            assert found.lower is not None
            value, best = real.policy_values(found.policy)[0], real.optimal_values()[0]
            wrong[told] += best - value > found.epsilon or best > found.upper or value < found.lower
            if not told:
                row = next(row for row in found.tolerance_curve.rows if row.tolerance == 2.0**-3)
                rows[0] += best - value > row.epsilon or best > row.upper
                rows[1] += 1
            else:
                assert "within 0.1 of those of one of the 12 models in total variation" in found.claim
    assert wrong[0.1] <= 4  # of 14 at delta 0.1: more has a probability below 0.01
    assert wrong[0.0] > 5
    assert rows[0] <= 4
    assert rows[1] > 5


def test_the_curve_of_models_begins_with_the_claim_and_keeps_more_models() -> None:
    problem, asked = modelled(epsilon=0.05)
    found = richobs.learn(problem, **asked)
    rows = found.tolerance_curve.rows
    assert rows[0] == (0.0, found.epsilon, found.upper, found.log_size)
    assert [row.tolerance for row in rows[1:]] == [2.0**-k for k in range(10, 0, -1)]
    for name in ("epsilon", "upper", "log_size"):
        assert (np.diff([getattr(row, name) for row in rows]) >= 0).all()
    assert rows[-1].epsilon > rows[1].epsilon
    assert rows[-1].log_size == np.log(6)
    family, policy = problem.functions, found.policy
    assert isinstance(family, Simulators)
    best, least = family.optimal_values_within(0.5), family.policy_values_within(policy, 0.5)
    assert rows[-1].epsilon == pytest.approx((best - least).max(), abs=1e-5)
    own = richobs.learn(problem, **asked, tolerance=0.3).tolerance_curve.rows
    assert [row.tolerance for row in own] == [0.3, 0.5]


def test_where_no_model_is_left_the_error_names_a_tolerance_that_leaves_one() -> None:
    family = walks(3, 1)
    env = ModelEnvironment(bent(family, 0, 0.4, np.random.default_rng(7)), 0, (0.0, 1.0))
    words = r"A hint, not a claim: with a tolerance of 0\.[0-9]+ these episodes would leave a model\."
    with pytest.raises(BrokenPromise, match=words):
        richobs.learn(env, family, assume="model", epsilon=1e-4, max_episodes=4_000, progress=False)


@pytest.mark.parametrize("tolerance", [1.0, [0.1, 0.1]])
def test_a_tolerance_of_models_is_a_total_variation(tolerance: Any) -> None:
    family = walks(2, 0)
    with pytest.raises(InvalidInput, match="a total variation between laws, one number below 1"):
        richobs.learn(ModelEnvironment(family, 0, (0.0, 1.0)), family, assume="model", tolerance=tolerance)


# Promises [T7].


@pytest.mark.parametrize("largest", [0.15, 0.5, 1.0])
def test_bets_on_shortfalls_win_nothing_where_the_mean_is_epsilon(largest: float) -> None:
    """A shortfall of -0.3 or the largest, 0.1 on average; each factor is positive for the largest one."""
    bet = bets.Shortfall.of(0.1, np.array([largest, 5.0]))
    chance = 0.4 / (largest + 0.3)
    factors = np.stack([np.exp(bet.growth(np.array([0]), np.array([[lack]]))[0]) for lack in (-0.3, largest)])
    np.testing.assert_allclose([1 - chance, chance] @ factors, 1.0)
    assert bet.bets[0].max() == pytest.approx(0.95 / max(largest - 0.1, 0.1))
    assert bet.weights.sum() == 1.0


def coin(chances: tuple[float, float], *tables: tuple[float, float], **asked: Any) -> richobs.Outcome:
    given = {"epsilon": 0.3, "delta": 0.1, "tolerance": 0.2, "progress": False, "max_episodes": 2_000}
    return richobs.learn(Coin(*chances), Listed([TableLevel(np.array(tables)[:, None, :])]), **{**given, **asked})


@pytest.mark.parametrize(
    ("chances", "tables"),
    [
        ((0.5, 0.899), ((0.7, 0.699),)),  # the promise is 0.2 more than what is earned: V* may be 0.2 above it
        ((0.5, 0.84), ((0.65, 0.64), (0.35, 0.3))),  # one survivor's promise is kept, the other's is not
    ],
)
def test_a_policy_that_loses_more_than_epsilon_keeps_no_promise(chances: Any, tables: Any) -> None:
    for seed in range(10):
        found = coin(chances, *tables, seed=seed)
        assert found.reason is not StopReason.NEAR_OPTIMAL
        assert found.epsilon > max(chances) - 0.5


@pytest.mark.parametrize(("epsilon", "eta"), [(0.17, 0.03), (0.22, 0.045)])  # 0.22 + 0.045 - 0.045 is more than 0.22
def test_promises_close_before_the_interval(epsilon: float, eta: float) -> None:
    _, asked = valued(tolerance=eta, epsilon=epsilon)
    for seed in (1, 4, 5):
        env, functions, _ = nearly(seed, 0.02)
        steps: list[richobs.Progress] = []
        found = richobs.learn(env, functions, **{**asked, "seed": seed}, callback=steps.append)
        assert found.reason is StopReason.NEAR_OPTIMAL
        said = steps[-1].event.said().sentence
        assert said == "the policy is certified: it earns what every survivor promises, closely enough"
        assert found.upper is not None
        assert found.lower is not None
        assert found.upper - found.lower > found.epsilon == epsilon
        rows = {row.tolerance: row.epsilon for row in found.tolerance_curve.rows}
        assert rows[eta] == epsilon
        if eta == 0.03:
            assert rows[2.0**-5] == pytest.approx(epsilon + 2.0**-5 - eta)  # the root's part of it alone
        assert str(found.tolerance_curve).startswith(f"the claim holds up to tolerance {eta:g}; ")


def test_promises_take_the_share_of_agreement_and_only_where_that_is_left_out() -> None:
    env, functions, _ = nearly(3, 0.02)
    ranges = Ranges.of(env, functions, (0.06,))
    assert agreement_bets(0.3, ranges, 3) is None
    bet = promise_bets(0.3, ranges, functions)
    assert bet is not None
    assert bet.epsilon == pytest.approx(0.24, abs=1e-5)
    assert promise_bets(0.06, ranges, functions) is None
    assert promise_bets(0.4, ranges, functions) is None  # survivors can agree
    assert promise_bets(0.3, Ranges.of(env, functions), functions) is None


# Stored runs.


def valued(**asked: Any) -> tuple[richobs.Problem, dict[str, Any]]:
    env, functions, _ = nearly(3, 0.02)
    return richobs.Problem(env, functions), {"epsilon": 0.3, "delta": 0.1, "seed": 3, "progress": False, **asked}


def modelled(**asked: Any) -> tuple[richobs.Problem, dict[str, Any]]:
    family = walks(6, 1)
    problem = richobs.Problem(ModelEnvironment(family, 2, (0.0, 1.0)), family)
    return problem, {"assume": "model", "delta": 0.1, "seed": 1, "progress": False, **asked}


STORED = {
    "one survivor": valued(tolerance=0.01),
    "promise": valued(tolerance=0.025, epsilon=0.14),
    "tolerance": valued(tolerance=0.1, epsilon=0.02, max_episodes=2_000),
    "models": modelled(tolerance=0.02, epsilon=0.2),
    "models, doubted or given up": modelled(tolerance=0.2, epsilon=0.01, max_episodes=400),
}


@pytest.mark.parametrize("name", STORED)
def test_a_run_with_a_tolerance_is_verified_and_goes_on_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    problem, asked = STORED[name]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    found = richobs.learn(problem, out=whole, **asked)
    assert found.settings.tolerance
    certificate = richobs.Certificate.load(whole / "certificate.json")
    checked = richobs.verify(certificate, problem)
    assert checked.agrees, checked
    richobs.learn(problem, out=parts, **{**asked, "max_episodes": found.episodes // 2})
    richobs.learn(problem, out=parts, **{"max_episodes": None, **asked})
    assert (parts / "certificate.json").read_bytes() == (whole / "certificate.json").read_bytes()
    less = json.loads(certificate.to_json())
    less["settings"]["tolerance"] = [0.001]
    assert not richobs.verify(richobs.Certificate(less), problem).agrees


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("nothing", lambda record: None),
        ("promise", lambda record: record.update(logs=[log - 9 for log in record["logs"]])),
        ("promise", lambda record: record.update(logs=[log + 99 for log in record["logs"]])),
        ("promise", lambda record: record.update(bets=[2 * bet for bet in record["bets"]])),
        ("promise", lambda record: record.update(root=-1)),
    ],
)
def test_a_claim_by_promises_is_derived_again(part: str, change: Any) -> None:
    problem, asked = STORED["promise"]
    found = richobs.learn(problem, **asked)
    assert found.constants.closed_by == "promise"
    wrong = faults(found, problem, lambda content: change(content["constants"]["agreement"]))
    assert [fault.partition(":")[0] for fault in wrong] == ([] if part == "nothing" else [part])


class Understated(TableLevel):
    """Tables whose `value_bounds` are half of what their values are."""

    def value_bounds(self) -> Any:
        low, high = super().value_bounds()
        return 0.5 * low, 0.5 * high


def test_wrong_value_bounds_are_refused_where_bets_on_promises_rest_on_them() -> None:
    functions = Listed([Understated(np.array([[[0.9, 0.8]]]))])
    with pytest.raises(InvalidInput, match="has a larger value than its `value_bounds` say"):
        richobs.learn(Coin(0.5, 0.4), functions, epsilon=0.3, delta=0.1, tolerance=0.2, progress=False)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("log", [math.nan, -math.inf, 0.0])
def test_a_wealth_that_is_no_number_keeps_no_promise(log: float) -> None:
    env, functions, _ = nearly(3, 0.02)
    bet = promise_bets(0.3, Ranges.of(env, functions, (0.06,)), functions)
    assert bet is not None
    space = SimpleNamespace(living=lambda h: np.arange(len(bet.bets)))
    wealth = np.full_like(bet.bets, 99.0)
    wealth[0] = log
    own: Any = SimpleNamespace(n=9, promises=wealth, agreement=Share(0.01))
    search: Any = SimpleNamespace(promises=bet, survivors=space)
    assert promised(search, own) is None


class Losses:
    """Costs nothing where 0 is seen, and 0.9 where 1 is; the second action costs 0.05 more."""

    horizon, n_actions, reward_range = 1, 2, (-1.0, 0.0)
    declared = richobs.Declared(step_range=(-1.0, 0.0), identity="losses", at_once=1024)

    def play(self, policy: Any, n: int, rng: Any, levels: Any = None) -> richobs.Episodes:
        x = rng.integers(2, size=n)
        actions = policy.actions(0, x, rng)
        return richobs.Episodes([x], [actions], [np.where(x == 0, 0.0, -0.9) - 0.05 * actions])


def test_a_claim_by_promises_is_derived_again_where_values_are_negative() -> None:
    values = np.array([[[-0.03, -0.08], [-0.87, -0.92]]])
    problem = richobs.Problem(Losses(), Listed([TableLevel(values, value_range=(-1.0, 0.0))]))
    found = richobs.learn(problem, epsilon=0.05, delta=0.1, tolerance=0.0301, max_episodes=3_000, progress=False)
    assert found.constants.closed_by == "promise"
    assert faults(found, problem) == []
    large = {"logs": [9_999.0] * 5}  # too large for exp, and for anything that can be earned
    (wrong,) = faults(found, problem, lambda content: content["constants"]["agreement"].update(large))
    assert wrong.startswith("promise: ")
