"""Rewards in other units for learners that need totals in [0, 1]: the problem is rescaled, and the answer scaled back."""

import dataclasses
import io
import json
from fractions import Fraction
from html import unescape

import numpy as np
import pytest
from rich.console import Console

import richobs
from richobs.classes import Layered, LearnedPolicy, Listed, TableLevel
from richobs.core import units as rescaling
from richobs.core.environment import Episodes, check_rewards
from richobs.core.errors import BrokenPromise, InvalidInput, Rejected, RewardOutOfRange
from richobs.core.moments import Batch
from richobs.core.outcome import LOWER, UPPER, Claim, Outcome, StopReason
from richobs.core.policies import Greedy, OpenLoop, greedy_actions
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings
from richobs.core.units import UnitEnvironment, UnitFunctions, Units, UnitsChosen, unit_values, units_of
from richobs.engines import calls
from richobs.engines.stream import play_checked
from richobs.learners import learner
from richobs.learners.betting import Betting
from richobs.runs.prepare import in_units_of
from richobs.runs.store import StoredRun
from richobs.show.page import page
from richobs.show.summary import summary

H = 4  # levels of the corridor
SCALE = 10.0  # from -4, four steps, to 6, four steps and the prize


class Corridor:
    """Every step costs 1. Action 1 at every level leads to a prize of 10; after a 0 no prize is left."""

    horizon, n_actions, reward_range = H, 2, (-4.0, 6.0)
    declared = richobs.Declared(step_range=(-1.0, 9.0), at_once=10_000)
    shift, scale = 0.0, 1.0  # to write the same corridor in other units by hand
    ends = False  # whether an episode ends after a 0

    def play(self, policy, n, rng, levels=None):
        seen, taken, paid, over = [], [], [], []
        open_ = np.ones(n, dtype=bool)
        done = np.zeros(n, dtype=bool)
        for level in range(self.horizon if levels is None else levels):
            x = open_.astype(np.int64)
            a = policy.actions(level, x, rng)
            over.append(done)
            open_ = open_ & (a == 1)
            r = np.where(open_ & (level == H - 1), 9.0, -1.0)
            seen.append(x)
            taken.append(a)
            paid.append(np.where(done, 0.0, (r - self.shift) / self.scale))
            if self.ends:
                done = ~open_
        return Episodes(seen, taken, paid, over if self.ends else ())


class UnitCorridor(Corridor):
    """The same corridor, rescaled by hand."""

    reward_range, shift, scale = (0.0, 1.0), -1.0, SCALE
    declared = richobs.Declared(step_range=(0.0, 1.0), at_once=10_000)


class EndingCorridor(Corridor):
    ends = True


class NarrowCorridor(Corridor):
    reward_range = (-4.0, 5.0)  # which is not true


def levels(rescaled_by_hand: bool = False) -> list[TableLevel]:
    """Per level: Q*, one that promises the prize for action 0, one that promises nothing, one far outside of the range."""
    found = []
    for level in range(H):
        rest = float(H - level)
        lost, won = -rest, 10.0 - rest
        truth = [[lost, lost], [lost, won]]
        swapped = [[lost, lost], [won, lost]]
        tables = np.array([truth, swapped, [[lost, lost]] * 2, [[lost, lost], [20.0, 30.0]]])
        if rescaled_by_hand:
            tables = np.clip((tables + rest) / SCALE, 0.0, 1.0)
            tables[3] = [[0.0, 0.0], [1.0 - 1.5e-13, 1.0]]  # cut, and still greedy for action 1
            found.append(TableLevel(tables))
        else:
            found.append(TableLevel(tables, value_range=(-4.0, 30.0)))
    return found


WRONG = [TableLevel(c.tables[1:2], value_range=(-4.0, 30.0)) for c in levels()]


def own_problem(env: Corridor | None = None) -> richobs.Problem:
    return richobs.Problem(Corridor() if env is None else env, Layered(levels()))


class TestUnits:
    @pytest.mark.parametrize(
        ("horizon", "totals", "step", "units"),
        [
            (3, (0.0, 20.0), None, (0.0, 20.0)),  # not negative: only divided
            (4, (-4.0, 6.0), (-1.0, 9.0), (-1.0, 10.0)),  # from 4 times -1 to 6, which is less than 4 times 9
            (2, (-100.0, 100.0), (-1.0, 2.0), (-1.0, 6.0)),  # cut to what rewards can add up to
        ],
    )
    def test_rewards_are_divided_and_shifted_only_where_they_can_be_negative(self, horizon, totals, step, units):
        env = Corridor()
        env.horizon, env.reward_range, env.declared = horizon, totals, richobs.Declared(step_range=step)
        assert units_of(env) == Units(horizon, *units)

    @pytest.mark.parametrize(
        ("totals", "step", "why"),
        [
            ((0.0, np.inf), (0.0, 1.0), "Declare finite ranges"),
            ((-3.0, -2.0), (-1.0, -1.0), "every episode earns the same"),
            ((-303.0, -299.0), (-101.0, -100.0), "rounding could decide"),
        ],
    )
    def test_ranges_that_cannot_be_rescaled_say_why(self, totals, step, why):
        env = Corridor()
        env.horizon, env.reward_range, env.declared = 3, totals, richobs.Declared(step_range=step)
        with pytest.raises(InvalidInput, match=why):
            units_of(env)

    def test_bounds_are_rounded_to_the_safe_side(self):
        """0.1 + 0.2 and friends: the exact values are compared as fractions."""
        rng, shifted = np.random.default_rng(0), 0
        for _ in range(200):
            units = Units(3, -float(rng.random()), float(rng.random()) + 0.1)
            v = float(rng.random())
            exact = Fraction(v) * Fraction(units.scale) + 3 * Fraction(units.shift)
            assert units.own_below(v) <= exact <= units.own_above(v)
            assert units.own_width(v) >= Fraction(v) * Fraction(units.scale)
            shifted += units.own_below(v) < units.own_above(v)
            low = float(rng.random()) / 2
            top = low + units.width(0.05)
            assert units.own_above(top) - units.own_below(low) <= 0.05
        assert shifted > 100

    def test_a_class_in_unit_scale(self):
        own, units = Layered(levels()), units_of(Corridor())
        unit = UnitFunctions(own, units)
        x = np.arange(2)
        assert unit.values(1, x, np.array([0, 1])).tolist() == [[[0, 0], [0, 1]], [[0, 0], [1, 0]]]
        assert unit.value_range(1) == (0.0, 1.0)
        assert [b.tolist() for b in unit.value_bounds(1)] == [[0, 0, 0, 0], [1, 1, 0, 1]]
        assert unit.digest != own.digest
        assert unit.digest is not None
        assert unit.digest.startswith(own.digest)
        assert unit.member((0,) * H).values(3, x).tolist() == [[0, 0], [0, 1]]
        batch = Batch.of_steps(np.array([1, 1, 0]), np.array([1, 1, 0]), np.array([1.0, 1.0, 0.0]), 2)
        moments = unit.moments(3, batch, np.array([0, 2]))
        assert moments.v_mean.tolist() == pytest.approx([2 / 3, 0.0])
        assert moments.u_mean.tolist() == [[0.0, 0.0], [0.0, -1.0]]


class TestPolicies:
    def test_greedy_actions_are_the_same_in_both_units(self):
        """Near ties, values that are cut, and K = 3; without care 1e-12 of 100 would be a tie."""
        rng = np.random.default_rng(0)
        units = Units(2, -3.0, 100.0)
        own = rng.choice([-6.0, 1.0, 1.0 + 1e-12, 1.0 + 3e-14, 500.0, 600.0], size=(4000, 3))
        plain = np.clip(units.value(own), 0.0, 1.0)
        assert (greedy_actions(plain) != greedy_actions(own)).mean() > 0.1
        unit = unit_values(own, units, 0)
        np.testing.assert_array_equal(greedy_actions(unit), greedy_actions(own))
        assert np.abs(unit - plain).max() < 1e-12

    def test_what_is_handed_out_is_what_was_played(self):
        """A near tie that only the problem's own units see: action 1 is better by 1e-12 and wins there."""

        class Watching:
            horizon, n_actions, reward_range = 1, 2, (0.0, 100.0)
            taken: list[int]

            def play(self, policy, n, rng, levels=None):
                x = np.zeros(n, dtype=np.int64)
                a = policy.actions(0, x, rng)
                self.taken += a.tolist()
                return Episodes([x], [a], [np.full(n, 50.0)])

        env = Watching()
        env.taken = []
        functions = Listed([TableLevel([[[50.0, 50.0 + 7e-12]]], value_range=(0.0, 100.0))])
        outcome = richobs.learn(env, functions, learner="certified", epsilon=30.0, delta=0.1)
        rollouts = [e.episodes for e in outcome.ledger if e.purpose in ("trial", "verification")]
        assert env.taken[: rollouts[0]] == [1] * rollouts[0]
        assert outcome.policy.actions(0, np.zeros(1, dtype=np.int64)).tolist() == [1]
        assert outcome.policy.functions is functions


class TestCertified:
    @pytest.fixture(scope="class")
    @classmethod
    def own(cls):
        return richobs.learn(own_problem(), learner="certified", epsilon=1.0, delta=0.1)

    @pytest.fixture(scope="class")
    @classmethod
    def by_hand(cls):
        functions = Layered(levels(rescaled_by_hand=True))
        return richobs.learn(UnitCorridor(), functions, learner="certified", epsilon=0.1, delta=0.1)

    def test_it_is_the_run_rescaled_by_hand(self, own, by_hand):
        assert own.episodes == by_hand.episodes
        assert own.policy.member == by_hand.policy.member
        assert own.upper == pytest.approx(10 * by_hand.upper - 4, abs=1e-11)
        assert own.lower == pytest.approx(10 * by_hand.lower - 4, abs=1e-11)
        assert own.value_hat == pytest.approx(10 * by_hand.value_hat - 4, abs=1e-11)
        assert [type(e) for e in own.trace] == [UnitsChosen, *(type(e) for e in by_hand.trace)]
        statistics = [e.said().statistic for e in by_hand.trace]
        assert [e.said().statistic for e in own.trace[1:]] == pytest.approx(statistics, abs=1e-12)

    def test_numbers_and_claim_are_in_own_units_and_true(self, own):
        problem = own_problem()
        assert own.epsilon == 1.0
        assert own.lower <= 6.0 <= own.upper
        assert own.lower >= 5.0
        assert own.upper - own.lower <= 1.0
        assert problem.value(own.policy, episodes=10).value == 6.0
        assert f"the policy earns at least {own.lower:.5f}"[:31] in own.claim
        assert "It loses at most 1 to the best policy" in own.claim
        bounds = [c.value for c in own.claims if c.kind in (LOWER, UPPER)]
        assert own.lower in bounds
        others = [c.kind for c in own.claims if c.kind not in (LOWER, UPPER)]
        assert others
        assert all(kind.endswith("(in units where totals lie in [0, 1])") for kind in others)

    def test_progress_is_in_own_units(self):
        seen = []
        outcome = richobs.learn(own_problem(), learner="certified", epsilon=1.0, delta=0.1, callback=seen.append)
        first, *rest = seen
        assert "r' = (r + 1.0) / 10.0" in first.event.sentence
        assert rest[0].upper == 6.0
        assert rest[0].lower == -4.0
        assert (seen[-1].upper, seen[-1].lower) == (outcome.upper, outcome.lower)

    def test_when_the_episodes_run_out_the_claim_is_wider_and_in_own_units(self):
        outcome = richobs.learn(own_problem(), learner="certified", epsilon=0.5, delta=0.1, max_episodes=400)
        assert outcome.reason is StopReason.EPISODES_SPENT
        assert 0.5 < outcome.epsilon <= 10.0
        assert outcome.epsilon == pytest.approx(outcome.upper - outcome.lower, abs=1e-9)
        assert outcome.lower <= 6.0 <= outcome.upper
        assert all("in units where totals lie in [0, 1]" in remark for remark in outcome.remarks)

    @pytest.mark.parametrize(
        ("env", "functions", "epsilon", "error", "words"),
        [
            (NarrowCorridor(), levels(), 1.0, Rejected, r"makes 6 in total; the declared range .* is \[-4, 5\]"),
            (Corridor(), WRONG, 1.0, BrokenPromise, r"where totals lie in \[0, 1\]: r' = \(r \+ 1.0\) / 10.0"),
            (Corridor(), levels(), 10.0, InvalidInput, "must be below 10, and 10 arrived"),
            (Corridor(), levels(), 2e-9, InvalidInput, "epsilon = 2e-09 is 2e-10, and at least 1e-09 is needed"),
            (EndingCorridor(), levels(), 1.0, Rejected, r"ended an episode early.*Use learner='betting'"),
        ],
    )
    def test_errors_speak_of_own_units_and_early_ends_are_refused(self, env, functions, epsilon, error, words):
        with pytest.raises(error, match=words):
            richobs.learn(env, Layered(functions), learner="certified", epsilon=epsilon, delta=0.1)


class TestKeeping:
    def test_a_stored_run_verifies_resumes_is_shown_and_refuses_forged_numbers(self, tmp_path):
        problem = own_problem()
        outcome = richobs.learn(problem, learner="certified", epsilon=1.0, delta=0.1, out=tmp_path)
        stored = StoredRun.read(tmp_path)
        assert (stored.steps[-1].upper, stored.steps[-1].lower) == (outcome.upper, outcome.lower)
        certificate = richobs.Certificate.load(tmp_path / "certificate.json")
        content = certificate.content
        assert (content["result"]["lower"], content["settings"]["epsilon"]) == (outcome.lower, 1.0)
        assert (content["units"]["shift"], content["units"]["scale"]) == (-1.0, 10.0)
        loaded = LearnedPolicy.load(tmp_path / "policy.npz")
        assert loaded.f.values(0, np.array([1])).tolist() == [[-4.0, 6.0]]
        assert loaded.digest == outcome.policy.digest
        found = richobs.verify(certificate, problem, policy=loaded)
        assert found.agrees, found
        assert "units" in [f.what for f in found.findings]
        again = richobs.learn(problem, learner="certified", epsilon=1.0, delta=0.1, out=tmp_path)
        assert (again.claim, again.episodes) == (outcome.claim, outcome.episodes)
        html = page([stored])  # bounds in own units, and which units tests have
        assert f"{outcome.lower:.3f}"[:4] in html
        assert "(r + 1.0) / 10.0" in unescape(html)
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(summary(stored))
        assert "r' = (r + 1.0) / 10.0" in console.export_text()
        for part, value in (("lower", 5.9), ("upper", 5.9), ("epsilon", 0.5)):
            forged = json.loads(json.dumps(content))
            forged["result"][part] = value
            wrong = richobs.verify(richobs.Certificate(forged), problem)
            assert not next(f for f in wrong.findings if f.what == "units").agrees
        forged = {name: part for name, part in content.items() if name != "units"}
        assert not richobs.verify(richobs.Certificate(forged), problem).agrees


def corridor_process(scale: float = 1.0, shift: float = 0.0) -> TabularProcess:
    """The corridor written down: state 1 while the prize can be won."""
    move = np.array([[0, 0], [0, 1]])
    rewards = [Rewards.deterministic((np.full((2, 1, 2), -1.0) - shift) / scale) for _ in range(H - 1)]
    prize = (np.array([[[-1.0, -1.0]], [[-1.0, 9.0]]]) - shift) / scale
    return TabularProcess(
        start=np.array([0.0, 1.0]),
        transitions=(move,) * (H - 1),
        emissions=(np.eye(2),) * H,
        rewards=(*rewards, Rewards.deterministic(prize)),
        check_rewards=False,
    )


class TestOtherLearners:
    @pytest.mark.parametrize("name", ["lsvee", "olive", "rmax", "uniform-allocation"])
    def test_counted_runs_are_the_ones_rescaled_by_hand(self, name):
        settings = {"learner": name, "delta": 0.1, "n_states": 2}
        settings["max_episodes"] = 320 if name == "uniform-allocation" else None
        problem = richobs.Problem(Corridor(), Layered(levels()), corridor_process())
        own = richobs.learn(problem, epsilon=2.0, engine="counted", **settings)
        unit = Layered(levels(rescaled_by_hand=True))
        problem = richobs.Problem(UnitCorridor(), unit, corridor_process(SCALE, -1.0))
        by_hand = richobs.learn(problem, epsilon=0.2, engine="counted", **settings)
        assert abs(own.episodes - by_hand.episodes) <= 1e-9 * own.episodes  # epsilon is a few ulp smaller
        assert own.epsilon == 2.0
        assert own.guaranteed == by_hand.guaranteed
        if own.guaranteed:
            assert own.claim.replace("most 2 to", "most 0.2 to").replace("within 2.0", "within 0.2") == by_hand.claim
            assert corridor_process().value(own.policy) == 6.0
        if by_hand.value_hat is not None:
            assert own.value_hat == pytest.approx(10 * by_hand.value_hat - 4, abs=1e-9)

    def test_a_learner_that_words_no_claim_gets_one_in_own_units(self):
        chosen = learner("certified")
        settings = Settings(epsilon=1.0, delta=0.1, learner="certified")
        rescaled = in_units_of(chosen, own_problem(), settings)
        policy = LearnedPolicy(rescaled.problem.functions, (0,) * H)
        claims = (Claim("x", (), 1, 0.1, 0.5),)
        epsilon = rescaled.settings.epsilon
        answer = Outcome(policy, "within 0.1", "mine", epsilon, 0.1, StopReason.OWN_RULE, claims=claims)
        own = rescaled.outcome(answer, rescaled.units, ("the dice are fair",))
        words = "With probability at least 0.9 the policy loses at most 1 to the best policy in expectation."
        assert own.claim.startswith(words)
        silent = rescaled.outcome(dataclasses.replace(answer, guaranteed=False), rescaled.units, ())
        assert silent.claim == "within 0.1"

    def test_a_process_that_pays_more_than_is_declared_is_refused(self):
        problem = richobs.Problem(NarrowCorridor(), Layered(levels()), corridor_process())
        with pytest.raises(InvalidInput, match=r"its process pays rewards that the environment does not declare"):
            richobs.learn(problem, learner="lsvee", n_states=2)


class TestServing:
    def test_betting_takes_rewards_as_they_are_and_nothing_takes_over(self):
        problem = own_problem()
        assert in_units_of(learner("betting"), problem, Settings(epsilon=1.0)).units is None
        assert Betting().fallback_settings(problem, Settings(epsilon=1.0)) is None

    def test_a_tolerance_is_not_rescaled(self, monkeypatch):
        chosen, asked = learner("olive"), Settings(epsilon=1.0, tolerance=0.5)
        assert in_units_of(chosen, own_problem(), asked).settings.tolerance == (0.5,)  # which OLIVE itself refuses
        monkeypatch.setattr(chosen, "traits", dataclasses.replace(chosen.traits, takes_tolerance=True))
        with pytest.raises(InvalidInput, match=r"'olive' works in units where .*, and a tolerance is not rescaled"):
            in_units_of(chosen, own_problem(), asked)

    def test_every_answer_of_an_environment_is_checked_once(self, monkeypatch):
        checked, played = [], []
        for name, notes in (("checked_episodes", checked), ("check_obeyed", played)):
            own = getattr(calls, name)
            monkeypatch.setattr(calls, name, lambda *given, own=own, notes=notes: notes.append(0) or own(*given))

        class Counted(Corridor):
            called = 0

            def play(self, *given):
                self.called += 1
                return super().play(*given)

        env = Counted()
        richobs.learn(own_problem(env), learner="certified", epsilon=3.0, max_episodes=2_000, progress=False)
        assert len(checked) == len(played) == env.called > 0

    def test_rewards_are_in_their_range_in_both_units(self):
        """Totals up to 1e-7: an excess within the environment's tolerance of 1e-9 is 0.005 for the learner."""

        class Tiny(Corridor):
            reward_range, declared, shift, scale = (0.0, 1e-7), richobs.Declared(), -1.0, 0.995 * SCALE * 1e7

        env = Tiny()
        played = play_checked(env, OpenLoop((1,) * H), 3, np.random.default_rng(0))
        with pytest.raises(RewardOutOfRange, match=r"declared range of an episode's total is \[0, 1\]"):
            play_checked(UnitEnvironment(env, units_of(env)), OpenLoop((1,) * H), 3, np.random.default_rng(0))
        assert played.n == 3

    def test_the_rescaled_environment_plays_what_it_is_asked(self):
        units = units_of(Corridor())
        env = units.problem(own_problem()).env
        played = env.play(OpenLoop((1, 1, 1, 1)), 3, np.random.default_rng(0))
        assert played.returns.tolist() == pytest.approx([1.0] * 3)
        check_rewards(np.stack(played.rewards), None, env, Greedy(own_problem().functions.member((0,) * H)))
        lost = env.play(OpenLoop((0, 1, 1, 1)), 3, np.random.default_rng(0))
        assert lost.returns.tolist() == [0.0] * 3

    def test_negative_steps_are_no_unit_rewards_even_if_totals_are(self):
        env = Corridor()
        env.reward_range, env.declared = (0.0, 1.0), richobs.Declared(step_range=(-1.0, 1.0))
        problem = richobs.Problem(env, Layered([TableLevel([[[0.5, 0.5]]])] * H))
        assert not rescaling.has_unit_rewards(problem)
        assert rescaling.units_missing(problem) is None
        assert units_of(env) == Units(4, -1.0, 5.0)
