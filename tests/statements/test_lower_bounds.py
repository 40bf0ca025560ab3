"""Propositions 1 and 2 and the theorem on best arms: the fast version holds, and each check can go red."""

import dataclasses
import math

import numpy as np
import pytest
from work import broken, panels

from richobs.core.policies import OpenLoop
from richobs.core.process import TabularProcess
from richobs_lab.paper.statements import lower_bounds as statement
from richobs_lab.worlds import lower_bound as family


def test_every_check_holds(work):
    assert broken(statement, *work) == []
    assert panels(statement, *work) == 5  # one of them is the line of the legend


def test_a_learner_that_is_told_the_secret_breaks_the_bound(work, monkeypatch):
    given, results = work
    monkeypatch.setattr(statement, "_answer", lambda *_: "right")
    told = [
        statement.measure(p) if p.get("learner") == "uniform allocation" else r
        for p, r in zip(given, results, strict=True)
    ]
    found = broken(statement, given, told)
    assert len(found) == 1
    assert found[0].startswith("every learner fails")


def test_observations_that_tell_the_state_break_the_reduction():
    config = family.Config(2, 2, 0.1)
    honest = family.member(config, (0, 1))
    seeing = TabularProcess(honest.start, honest.transitions, (np.eye(2),) * 2, honest.rewards)
    policies = family.policies(config)
    one, other = (statement.law(honest, p) for p in (policies[0], policies[2]))  # (0, 0) and (1, 0)
    assert statement.kl(one, other) == 0.0
    one, other = (statement.law(seeing, p) for p in (policies[0], policies[2]))
    assert statement.kl(one, other) == math.inf


def test_a_larger_gap_breaks_the_bound_for_a_smaller_one(work):
    given, results = work
    cheat = [
        {"success": statement.best_success(p["n_arms"], 0.45, p["budget"])} if p["kind"] == "optimum" else r
        for p, r in zip(given, results, strict=True)
    ]
    assert [w.split(",")[0].split(":")[0] for w in broken(statement, given, cheat)] == [
        "no algorithm at all exceeds the proof's bound",
        "the wall",
        "one constant for all algorithms",
    ]


def test_a_wall_twice_as_far_is_seen(work, monkeypatch):
    """36 for 72 is beyond what the proof gives, and halves how far the exact optimum is from it."""
    monkeypatch.setattr(statement, "episode_bound", lambda n, epsilon: n / (36 * epsilon**2))
    assert [w.split(":")[0] for w in broken(statement, *work)] == ["the wall, by the proof", "the wall, exactly"]


def test_a_taylor_step_too_far_is_seen(work):
    given, results = work
    far = [{**r, "closest": 1.01} if p["kind"] == "taylor" else r for p, r in zip(given, results, strict=True)]
    assert [w.split(":")[0] for w in broken(statement, given, far)] == ["the Taylor step"]


@pytest.mark.parametrize(
    ("kind", "change", "beginning"),
    [
        ("uniform", {"least": 0.5}, "a remark, random outputs"),
        ("construction", {"good": [1, 2]}, "Propositions 1 and 2"),
        ("guess", {"found": 3}, "one constant for all algorithms"),
    ],
)
def test_what_the_propositions_rest_on(work, kind, change, beginning):
    """A wrong action sequence earns 1/2, no more than the optimum less epsilon; a second good policy; a guess too few."""
    given, results = work
    other = [{**r, **change} if p["kind"] == kind else r for p, r in zip(given, results, strict=True)]
    assert [w.startswith(beginning) for w in broken(statement, given, other)] == [True]
    assert statement.uniform_play(family.Config(4, 2, 0.2))["least"] == pytest.approx(0.5125)


def test_a_family_without_the_secret_is_noticed(monkeypatch):
    member = family.member

    def without(config, secret):
        process = member(config, secret)
        return dataclasses.replace(process, rewards=(*process.rewards[:-1], process.rewards[0]))

    monkeypatch.setattr(family, "member", without)
    assert statement.construction(family.Config(2, 2, 0.1))["value_error"] > 0.1


class TestByHand:
    def test_guessing_by_the_number_of_episodes(self):
        assert [statement.guessed(4, T) for T in (0, 2, 3, 9)] == [1, 3, 4, 4]

    def test_the_number_of_episodes(self):
        assert statement.episode_bound(1024, 0.25) == pytest.approx(1024 / 4.5)

    def test_the_best_algorithm_with_two_arms(self):
        # One pull: stay after a win (1/2 + epsilon if it is the best arm), switch after a loss.
        assert statement.best_success(2, 0.1, 2)[:2] == pytest.approx([0.5, 0.55])

    def test_divergence_of_coins(self):
        assert statement.kl_coin(0.5, 0.6) == pytest.approx(-0.5 * math.log(1 - 4 * 0.01))
        assert statement.kl_coin(0.6, 0.5) == pytest.approx(0.6 * math.log(1.2) + 0.4 * math.log(0.8))

    def test_a_law_counts_every_way_to_see_the_same(self):
        process = family.member(family.Config(2, 2, 0.1), (0, 1))
        assert statement.law(process, OpenLoop((0, 1))) == pytest.approx({(0, 0.0, 0, 0.0): 0.4, (0, 0.0, 0, 1.0): 0.6})
