"""Undirected exploration on locks: the fast version holds, and each check can go red."""

import math

import pytest
from work import broken, panels

from richobs_lab.paper.statements import undirected_exploration as statement


def test_every_check_holds(work):
    assert broken(statement, *work) == []
    assert panels(statement, *work) == 1


def test_a_lock_without_dead_actions_is_not_exponential(work, monkeypatch):
    given, results = work
    with monkeypatch.context() as patch:
        patch.setattr(statement, "N_ACTIONS", 2)
        easy = [
            statement.measure(p) if p["learner"] == statement.GREEDY else r for p, r in zip(given, results, strict=True)
        ]
    found = broken(statement, given, easy)
    assert len(found) == 2
    assert all(what.startswith(statement.GREEDY) for what in found)


def test_exponential_growth_and_missed_promises_of_lsvee_are_seen(work):
    given, results = work
    worse = [
        {**r, "episodes": [4 ** p["horizon"]]} if p["learner"] == statement.CERTIFIED else r
        for p, r in zip(given, results, strict=True)
    ]
    assert [what.split(" grows")[0] for what in broken(statement, given, worse)] == [statement.CERTIFIED]
    missed = [
        {**r, "episodes": [None]} if (p["learner"], p["horizon"]) == (statement.CERTIFIED, 8) else r
        for p, r in zip(given, results, strict=True)
    ]
    assert any(what.startswith("every policy of LSVEE") for what in broken(statement, given, missed))


def test_runs_that_were_not_done_are_not_forgotten():
    assert statement.median([1, 2, None]) == 2
    assert statement.median([1, None, None]) == math.inf
    assert isinstance(statement.median([10**20]), float)  # more than an int64 holds


def test_the_chance_of_a_reward_by_hand():
    assert statement.first_reward(3) == pytest.approx(1 / 16)
    assert statement.looks_until(30) == [*range(1, 20), 20, 22, 24, 26, 28, 30]
