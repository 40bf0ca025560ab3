"""The search among models: the truth survives as often as promised, claims are true, and broken assumptions are named."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest

import richobs
from richobs.classes.dynamics import Model
from richobs.classes.simulators import Simulators
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason
from richobs.core.policies import Uniform
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners.models import living as living_module
from richobs.learners.models import search as search_module
from richobs.learners.models.living import ZETA, Living, Regrets
from richobs.learners.models.search import ModelSearch, Tuning, planning_error
from richobs.learners.models.search import run as search_models
from richobs.runs.certificate import Certificate
from richobs.runs.session import run
from richobs.runs.verify import verify
from richobs.stats.shares import Supposed
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.worlds.model_environment import ModelEnvironment, model_problem
from runs import faults

LOG2 = math.log(2)


def coins(*chances, horizon=1, pay=1.0, cost=0.0):
    """Returns models in which action a of the only state pays `pay` with chance [a], and costs something."""
    lists = [[[[(c, 0, pay - cost, False), (1 - c, 0, -cost, False)] for c in chance]] for chance in chances]
    return [Model.of_lists(outcomes, horizon, [1.0]) for outcomes in lists]


def walks(n, seed, horizon=3):
    """Returns n random models of three states and two actions that differ a little, rewards of 1 / H."""
    rng = keyed_generator(seed, "walks")
    base = rng.dirichlet([1.0] * 3, size=(3, 2))
    law = 0.7 * base + 0.3 * rng.dirichlet([0.5] * 3, size=(n, 3, 2))
    pay = np.array([0.0, 0.2, 1.0]) / horizon
    return Simulators.of_arrays(law, np.broadcast_to(pay, (3, 2, 3)), horizon)


def asked(**more):
    return Settings(**{"learner": "models", "epsilon": 0.05, "delta": 0.1, **more})


def ran(*chances, truth=0, **more):
    """A problem of coins, and what a run on it answers."""
    problem = model_problem(Simulators(coins(*chances)), truth)
    return problem, run(problem, asked(**more))


# [B4]


def test_wealth_is_forecast_over_own_probability():
    living = Living(2, Supposed(0.01))
    kept = living.absorb(np.log([0.5, 0.25]), 1)  # the forecast is 0.375
    np.testing.assert_allclose(np.exp(living.log_wealth), [0.75, 1.5], rtol=1e-14)
    np.testing.assert_allclose(living.weights, [2 / 3, 1 / 3], rtol=1e-14)
    living.absorb(np.log([0.5, 0.25]), 1)  # the forecast is 5/12: weights by likelihood so far
    np.testing.assert_allclose(np.exp(living.log_wealth), [0.625, 2.5], rtol=1e-14)
    assert (kept.impossible, kept.outweighed, living.leader) == (0, 0, 0)


def test_a_model_dies_at_one_over_d_and_is_no_part_of_later_forecasts():
    living = Living(2, Supposed(0.4))
    living.absorb(np.log([0.5, 0.25]), 1)
    assert living.models.tolist() == [0, 1]  # 1.5 < 2.5
    gone = living.absorb(np.log([0.5, 0.25]), 1)  # 2.5 exactly: rounding is allowed for
    assert living.models.tolist() == [0, 1]
    gone = living.absorb(np.log([0.5, 0.25]), 1)
    assert (gone.kept.tolist(), gone.outweighed, gone.impossible) == ([True, False], 1, 0)
    before = living.log_wealth.copy()
    living.absorb(np.log([0.01]), 1)  # it is the whole forecast
    np.testing.assert_allclose(living.log_wealth, before, atol=1e-14)


def test_errors_of_probabilities_raise_the_limit():
    living = Living(2, Supposed(0.5))
    first = living.log_limit
    assert first == pytest.approx(LOG2 + 1e-6, abs=1e-9)
    living.absorb(np.zeros(2), 10**6)
    assert living.log_limit - first == pytest.approx(2e6 * ZETA, rel=1e-9)
    assert ZETA == 1e-9


CHANCES = np.array([[0.5, 0.5], [0.6, 0.3], [0.35, 0.75], [0.9, 0.5]])  # of two arms in four models


def chance_of_death(truth, living, k):
    """Returns how likely the true model dies within k more episodes; which arm is played depends on what was seen."""
    if truth not in living.models:
        return 1.0
    if k == 0:
        return 0.0
    total, arm = 0.0, int(CHANCES[living.models[living.leader], 1] > 0.5) if k % 3 else k % 2
    for won in (True, False):
        after = copy.copy(living)
        chance = CHANCES[:, arm] if won else 1 - CHANCES[:, arm]
        after.absorb(np.log(chance[living.models]), 1)
        total += chance[truth] * chance_of_death(truth, after, k - 1)
    return total


@pytest.mark.parametrize(("delta", "largest"), [(0.5, 0.23632), (0.2, 0.06970)])
def test_the_truth_dies_with_probability_at_most_delta_exactly(delta, largest):
    """Every outcome of 9 episodes is enumerated."""
    died = [chance_of_death(truth, Living(4, Supposed(delta)), 9) for truth in range(4)]
    assert max(died) <= delta
    assert max(died) == pytest.approx(largest, abs=1e-5)  # it can happen: a limit that is too low would be seen


def test_forecasts_never_refute_all():
    """The sum of 1 / wealth over the living models is conserved by a batch."""
    rng = keyed_generator(3, "conserved")
    living = Living(30, Supposed(0.5))
    for _ in range(200):
        before = np.exp(-living.log_wealth).sum()
        weighed = np.log(rng.random(len(living.models)))
        spare = Living(len(living.models), Supposed(1e-9))
        spare.log_wealth = living.log_wealth.copy()
        spare.absorb(weighed, 1)
        assert np.exp(-spare.log_wealth).sum() == pytest.approx(before, rel=1e-9)
        living.absorb(weighed, 1)
        assert len(living.models)


def test_what_is_impossible_kills_at_once():
    living = Living(3, Supposed(1e-9))
    gone = living.absorb(np.array([-1.0, -np.inf, -3.0]), 1)
    assert (living.models.tolist(), gone.impossible, gone.outweighed) == ([0, 2], 1, 0)
    with pytest.raises(BrokenPromise, match="each of the 2 models that are left holds something impossible"):
        living.absorb(np.array([-np.inf, -np.inf]), 1)
    living.absorb(np.array([-np.inf, 0.0]), 1)
    with pytest.raises(BrokenPromise, match="the only model that is left holds something impossible"):
        living.absorb(np.array([-np.inf]), 1)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_likelihood_is_refused(wrong):
    with pytest.raises(InvalidInput, match=f"log_likelihood of model 1 is {wrong}"):
        Living(2, Supposed(0.1)).absorb(np.array([0.0, wrong]), 1)
    with pytest.raises(InvalidInput, match=r"must return \[m\] numbers, one for each of 2 models"):
        Living(2, Supposed(0.1)).absorb(np.zeros(3), 1)


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_the_alarm_wins_nothing_from_a_true_model_whose_episodes_end(alpha):
    """Every outcome of 2 episodes of 3 levels is enumerated: forecasts must not see how far their own batch came."""
    chance = np.array([0.3, 0.3, 0.2, 0.2]).reshape(4, 1, 1, 1)  # paid or not, and goes on or ends
    to, ends = np.zeros((4, 1, 1, 1), dtype=int), np.array([0, 0, 1, 1], dtype=bool).reshape(4, 1, 1, 1)
    pays = np.array([1, 0, 1, 0]).reshape(4, 1, 1, 1) / 3
    family = Simulators.of_outcomes(chance, to, pays, ends, 3, start=np.ones(1))
    episodes = []  # probability, episode
    for last in range(3):
        for paid in itertools.product((0, 1), repeat=last + 1):
            rewards = [np.array([r / 3]) for r in (*paid, 0, 0)[:3]]
            over = [np.array([h > last]) for h in range(3)]
            law = 0.5 ** (last + 1) * 0.6**last * (0.4 if last < 2 else 1.0)
            episodes.append((law, Episodes([np.zeros(1, int)] * 3, [np.zeros(1, int)] * 3, rewards, over)))
    assert sum(p for p, _ in episodes) == pytest.approx(1.0)
    mean = np.zeros(3)
    for first, second in itertools.product(episodes, repeat=2):
        living = Living(1, Supposed(1e-9), alpha, 3)
        for _, played in (first, second):
            steps = list(family.step_laws(played, living.models))
            living.absorb(family.log_likelihood(played, living.models), 4, steps)
        mean += first[0] * second[0] * np.exp(living._bets[1:, 0] if alpha else living._against)
    assert (mean <= 1 + 1e-12).all()
    assert mean.max() > (0.2 if alpha else 1 - 1e-9)


# [B5]


def test_the_policy_with_the_smallest_largest_loss_is_found():
    functions = Simulators(coins([0.5, 0.4], [0.5, 0.9], [0.6, 0.55]))  # best actions 0, 1, 0
    living = Living(3, Supposed(0.1))
    regrets = Regrets(functions, functions, living, 4)
    best = regrets.best(0.0)
    assert (best.member, best.worst) == (1, 0)  # action 1 loses 0.1, 0, 0.05; action 0 loses 0, 0.4, 0
    assert best.regret == pytest.approx(0.1)
    assert best.lowest == pytest.approx(0.4)
    assert regrets.upper == pytest.approx(0.9)
    regrets.keep(living.absorb(np.array([0.0, -np.inf, 0.0]), 1).kept)
    best = regrets.best(0.0)
    assert (best.member, best.regret, best.lowest) == (0, 0.0, 0.5)
    assert regrets.upper == pytest.approx(0.6)


def test_a_policy_planned_in_some_models_certifies_nothing(monkeypatch):
    monkeypatch.setattr(living_module, "PLAN_ALL", 1)
    functions = Simulators(coins([0.6, 0.5], [0.62, 0.5], [0.2, 0.7]))
    living = Living(3, Supposed(1e-9))
    living.absorb(np.log([0.3, 0.2, 0.1]), 1)
    full = Regrets(functions, functions, living, 1).best(0.1)
    assert (full.worst, full.regret) == (2, pytest.approx(0.5))
    monkeypatch.setattr(living_module, "SCREEN", 2)
    screened = Regrets(functions, functions, living, 1)
    winner = screened.best(0.1)  # it loses nothing in the two most likely models, so it is planned in all
    assert (winner.worst, winner.regret, winner.lowest) == (2, pytest.approx(0.5), pytest.approx(0.2))
    few = Regrets(functions, functions, living, 1).best(-1.0)
    assert (few.regret, few.lowest) == (0.0, None)


# Whole runs


def test_claims_are_true_as_often_as_they_say():
    """80 runs at delta 0.5: the truth is dropped at most in half of them, and a claim is false only where it is."""
    dropped = wrong = 0
    for seed in range(80):
        functions = walks(4, seed, horizon=2)
        truth = seed % 4
        problem = model_problem(functions, int(functions.place[truth]))
        engine = StreamEngine(problem.env, functions, seed=seed, ledger=Ledger(40))
        search = ModelSearch(engine, functions, (0.0, 1.0), (0.0, 1.0), 0.004, 0.5, seed, nobody, Tuning())
        found = search_models(search)
        gone = problem.optimal_function not in search.living.models
        gap = problem.optimal_value - problem.value(richobs.LearnedPolicy(functions, found.member))
        false = gap > search.gap(found) or problem.optimal_value > search.upper
        assert gone or not false
        dropped += gone
        wrong += false
    assert 6 <= dropped <= 24  # far below half, because the forecast must first find out which model to trust
    assert 4 <= wrong <= dropped  # epsilon is so small that losing the truth shows


def test_the_run_ends_with_the_right_words():
    problem, outcome = ran([0.5, 0.4], [0.5, 0.9], [0.9, 0.55], truth=1)
    assert outcome.reason is StopReason.EVERY_MODEL
    assert outcome.guaranteed
    assert outcome.epsilon == 0.05
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.05
    assert outcome.lower == pytest.approx(0.9 - 2e-9 - 1e-7, abs=1e-11)  # errors of two probabilities and of a reward
    assert outcome.upper == pytest.approx(0.9 + 2e-9 + 1e-7, abs=1e-11)
    assert outcome.claim == (
        "With probability at least 0.9 the policy earns at least 0.8999 in expectation, loses at most 0.05 to the best "
        "policy, and no policy earns more than 0.9001. This needs: episodes are independent; rewards and their totals lie "
        "in the declared ranges; the real system is one of the 3 models."
    )
    assert [(c.kind, c.share) for c in outcome.claims] == [("likelihood never refutes the true model", 0.1)]
    assert outcome.constants.living == [1]
    limit = math.log(10 * (1 + 1e-6)) + 2e-9 * 2 * outcome.episodes  # two probabilities an episode
    assert outcome.constants.refutation_limit == pytest.approx(limit, abs=1e-15)


def test_one_model_needs_no_episodes_but_those_of_its_policy_and_no_total_is_above_the_largest():
    _, outcome = ran([1.0, 0.0])
    assert outcome.episodes == 16
    assert "ranges; the real system is the given model." in outcome.claim
    assert outcome.upper == 1.0
    assert outcome.lower == pytest.approx(1 - 1.02e-7, abs=1e-11)


def test_of_a_policy_that_was_hardly_played_nothing_is_claimed():
    """16 episodes of the policy itself come before any claim, also where the episodes run out."""
    problem, outcome = ran([0.5, 0.6], [0.5, 0.4], [0.55, 0.5], max_episodes=5)
    assert outcome.reason is StopReason.EPISODES_SPENT
    assert (outcome.upper, outcome.lower, outcome.epsilon) == (1.0, 0.0, 1.0)
    assert "tested in" in outcome.remarks[0]
    assert "16 are needed" in outcome.remarks[0]
    assert verify(Certificate.of(outcome, problem), problem).agrees
    assert faults(outcome, problem, lambda content: content["result"].update(upper=0.9)) != []


def test_when_the_episodes_run_out_the_largest_loss_is_claimed(monkeypatch):
    monkeypatch.setattr(search_module, "LEAST", 1)
    _, outcome = ran([0.5, 0.6], [0.5, 0.4], [0.55, 0.5], max_episodes=5)
    assert outcome.reason is StopReason.EPISODES_SPENT
    assert outcome.episodes == 4  # batches of 2
    assert outcome.constants.living == [0, 1, 2]
    assert outcome.policy.member in (1, 2)
    assert outcome.epsilon == outcome.constants.gap
    assert outcome.epsilon == pytest.approx(0.1 + 2 * outcome.constants.planning_error, rel=1e-12)
    assert outcome.upper == pytest.approx(0.6, abs=3e-7)  # the largest V* of all three, not that of the likeliest
    assert "loses at most 0.1001 to the best" in outcome.claim  # rounded to the safe side
    assert "3 models are left" in outcome.remarks[0]


def test_what_is_claimed_at_the_end_was_planned_in_all_models(monkeypatch):
    """While policies are compared in the two most likely models, the claim still counts the third."""
    monkeypatch.setattr(living_module, "PLAN_ALL", 1)
    monkeypatch.setattr(living_module, "SCREEN", 2)
    monkeypatch.setattr(search_module, "LEAST", 1)
    functions = Simulators(coins([0.5, 0.6], [0.5, 0.4], [0.55, 0.45]))
    told = []
    problem = model_problem(functions, 0)
    outcome = run(problem, asked(epsilon=0.01, max_episodes=3, tuning=("look=1",)), callback=told.append)
    assert outcome.constants.n_living == 3
    best = functions.optimal_values()
    regret = best - functions.policy_values(outcome.policy)
    assert outcome.epsilon == pytest.approx(regret.max(), abs=3e-7)
    assert outcome.constants.worst == int(regret.argmax())
    assert outcome.lower == pytest.approx(functions.policy_values(outcome.policy).min(), abs=2e-7)
    assert [p.lower for p in told] == [0.0] * len(told)  # nothing is known of the policy until it is planned in all


def test_rewards_of_any_range_need_no_rescaling():
    """A step costs 10 and pays 3 with some chance: epsilon, U and W are in these units."""
    functions = Simulators(coins([0.5, 0.4], [0.5, 0.9], pay=3.0, cost=10.0, horizon=2))
    problem = model_problem(functions, 1, (-20.0, -14.0))
    outcome = run(problem, asked(epsilon=0.5))
    assert outcome.lower == pytest.approx(2 * (0.9 * 3 - 10), abs=1e-5)
    assert outcome.upper == pytest.approx(2 * (0.9 * 3 - 10), abs=1e-5)
    # Rewards of one step lie in [-20, 6], as the range of totals implies.
    assert outcome.constants.planning_error == pytest.approx(3 * ZETA * 6.0 + 2 * 1e-7 * 20.0, rel=1e-4)


def test_the_error_of_planning_grows_with_the_size_of_rewards():
    """Rewards count as equal up to single precision, and far from 0 float64 rounds sums."""
    assert planning_error(1, (0.0, 1.0)) == pytest.approx(2e-9 + 1e-7, rel=1e-4)
    assert planning_error(3, (0.0, 1.0), (0.0, 0.25)) == pytest.approx(4e-9 + 3e-7, rel=1e-4)
    assert planning_error(2, (-1.0, 1.0), (-50.0, 50.0)) == pytest.approx(6e-9 + 2 * 50e-7, rel=1e-4)
    tolerated = 10**6 * 1e-7  # of a million rewards of 1 at the most
    many = planning_error(10**6, (0.0, 1e6), (0.0, 1.0)) - tolerated - 1e6 * 1e6 * ZETA
    assert many == pytest.approx(1e6 * 1e6 * 1024 * 2.0**-52, rel=0.01)


def test_rewards_that_differ_in_single_precision_are_counted_for():
    """The real system pays 1000.00005 where the model pays 1000: the likelihood cannot tell, and the bounds hold."""
    paid = 1000.00005
    functions = Simulators(coins([1.0, 0.0], [0.0, 1.0], pay=1000.0))
    real = ModelEnvironment(Simulators(coins([1.0, 0.0], pay=paid)), 0, (0.0, 1001.0))
    outcome = run(richobs.Problem(real, functions), asked(epsilon=1.0))
    assert outcome.lower <= paid <= outcome.upper
    assert outcome.upper < paid + 1e-3
    far = ModelEnvironment(Simulators(coins([1.0, 1.0], pay=1.0, cost=-1e9)), 0, (1e9, 1e9 + 1))
    with pytest.raises(InvalidInput, match=r"totals in \[1000000000, 1000000001\] a loss may be wrong by 2e\+02"):
        run(richobs.Problem(far, functions), asked(epsilon=0.01))


def test_a_system_that_is_none_of_the_models_is_named():
    functions = Simulators(coins([0.5, 0.4], [0.5, 0.9], horizon=2))
    real = ModelEnvironment(Simulators(coins([1.0, 1.0], pay=0.7, horizon=2)), 0, (0.0, 2.0))  # no model pays that
    with pytest.raises(BrokenPromise) as stopped:
        run(richobs.Problem(real, functions), asked())
    assert str(stopped.value) == (
        "each of the 2 models that are left holds something impossible that was seen: the real system is none of the 2 "
        "models. What no model that was left explains is in episode 1: level 0 showed 0, and action 1 paid 0.7. If it were "
        "one of them, this would happen with probability at most 0.1."
    )
    assert stopped.value.ledger.total == 2


def test_an_end_that_no_model_expects_is_named():
    functions = Simulators(coins([1.0, 0.4], [1.0, 0.9], horizon=3))
    zeros, paid = [np.zeros(1, dtype=np.int64)] * 3, [np.ones(1)] * 3
    fine = Episodes(zeros, zeros, paid)
    early = Episodes(zeros, zeros, [*paid[:2], np.zeros(1)], [np.array([h == 2]) for h in range(3)])
    log = Episodes.concatenate([fine, fine, early, fine])
    problem = richobs.Problem(ModelEnvironment(functions, 0, (0.0, 3.0)), functions, recorded=log)
    with pytest.raises(BrokenPromise, match="in episode 3: it ended after level 1"):
        run(problem, asked())


def test_an_observation_that_no_model_shows_is_named():
    class Elsewhere(ModelEnvironment):
        def play(self, policy, n, rng, levels=None):
            played = super().play(policy, n, rng, levels)
            x = played.observations[0] + 7
            actions = policy.actions(0, x, rng)
            return dataclasses.replace(played, observations=(x,), actions=(actions,))

    functions = Simulators(coins([0.5, 0.4], [0.5, 0.9]))
    with pytest.raises(BrokenPromise, match=r"level 0 showed 7, .* The class says: observation 7 is not"):
        run(richobs.Problem(Elsewhere(functions, 0), functions), asked())


def test_recorded_episodes_are_evidence():
    functions = walks(8, 1)
    problem = model_problem(functions, 2)
    log = problem.env.play(Uniform(2), 3000, keyed_generator(0, "log"))
    given = dataclasses.replace(problem, recorded=log)
    outcome = run(given, asked(epsilon=0.01))
    assert 16 <= outcome.episodes <= 20  # of the policy itself
    assert outcome.constants.recorded == 3000
    assert outcome.claims[0].n == 3000 + outcome.episodes
    assert "the 3,000 recorded episodes are whole, of this system and not selected" in outcome.claim
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.01
    assert run(problem, asked(epsilon=0.01)).episodes > 0


def small_world(seed=5):
    """A process that is written down, among four that differ from it, and played by the simulator of worlds."""
    rng = keyed_generator(seed, "small world")

    def process():
        move = rng.dirichlet([1.0, 1.0], size=(2, 2))
        pay = Rewards.bernoulli(rng.random((2, 1, 2)), 0.5)
        return TabularProcess.from_flat(2, [0.5, 0.5], move, np.eye(2), pay)

    candidates = [process() for _ in range(5)]
    functions = Simulators(candidates)
    return richobs.Problem(WorldEnvironment(TabularWorld(candidates[3])), functions, candidates[3])


def test_a_certificate_is_verified_and_a_changed_one_is_not():
    problem = small_world()
    outcome = run(problem, asked(epsilon=0.02))
    certificate = Certificate.of(outcome, problem)
    found = verify(certificate, problem)
    assert found.agrees, found.findings
    assert {"delta", "planning", "run", "claim U", "claim W", "claim gap"} <= {f.what for f in found.findings}
    n_models = problem.functions.n_models
    for change, wrong in (
        (lambda c: None, set()),
        (lambda c: c["constants"].update(living=list(range(n_models))), {"planning"}),
        (lambda c: c["constants"].update(living=[n_models]), {"planning"}),
        (lambda c: c["result"].update(upper=c["result"]["upper"] - 1e-6), {"planning"}),
        (lambda c: c["result"].update(lower=c["result"]["lower"] + 1e-6), {"planning"}),
        (lambda c: c["result"].update(reason=StopReason.EPISODES_SPENT.value), {"planning"}),
        (lambda c: c["claims"][0].__setitem__(3, 0.2), {"delta"}),
    ):
        assert {fault.partition(":")[0] for fault in faults(outcome, problem, change)} == wrong
    assert not verify(Certificate({**certificate.content, "claim": "It is optimal."}), problem).agrees


@pytest.mark.parametrize(
    ("problem", "more", "said"),
    [
        (lambda: richobs.make("lock/3"), {}, "needs a class of candidate models: a Layered says what actions are"),
        (small_world, {"epsilon": 3e-9}, "epsilon 3e-09 is too small for the learner 'models'"),
        (small_world, {"engine": "counted"}, "reads episodes one by one"),
        (small_world, {"tuning": ("batch=0",)}, "batch must be a whole number, at least 1"),
    ],
)
def test_what_it_cannot_serve_is_refused(problem, more, said):
    with pytest.raises(InvalidInput, match=said):
        run(problem(), asked(**more))
