"""Certificates: the same bytes for the same run, checked again from the file, and every lie found."""

import dataclasses
import json

import numpy as np
import pytest

import richobs
from richobs.classes import Callables
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import InvalidFile
from richobs.core.outcome import LOWER, UPPER, StopReason
from richobs.core.problem import Problem
from richobs.core.settings import Settings
from richobs.learners.certified import Certified
from richobs.runs.certificate import Certificate, certify
from richobs.runs.session import run
from richobs.runs.verify import verify


def certificate_for(id="lock/3", learner="lsvee", **settings):
    problem = richobs.make(id)
    outcome = run(problem, Settings(learner=learner, **settings))
    return certify(outcome, problem), problem, outcome


def test_a_certificate_says_what_was_promised_and_spent():
    certificate, problem, outcome = certificate_for(delta=0.1)
    content = certificate.content
    assert certificate.claim == (
        "With probability at least 0.9 the policy's value is at most 0.1 below V*, provided that the best value of an "
        "action depends on what is seen, not on what was seen before, that Q* is in the class, that the same actions "
        "lead to the same hidden state, and that no level has more than 3 hidden states."
    )
    assert content["environment"] == {
        "id": "lock/3",
        "identity": "lock/3",
        "horizon": 3,
        "n_actions": 4,
        "n_states": 3,
        "reward_range": [0.0, 1.0],
    }
    assert content["result"]["episodes"] == outcome.episodes == sum(row[4] for row in content["ledger"])
    assert content["constants"]["search"]["n_train"] == outcome.constants.search.n_train
    assert content["policy"]["digest"] == outcome.policy.digest
    assert content["functions"]["log_size"] == problem.functions.log_size


def test_the_same_run_gives_the_same_bytes_and_survives_the_disk(tmp_path):
    one, _, _ = certificate_for()
    two, _, _ = certificate_for()
    assert one.to_json() == two.to_json()
    one.save(tmp_path / "c.json")
    again = Certificate.load(tmp_path / "c.json")
    assert again.to_json() == one.to_json()
    assert again.settings == Settings(learner="lsvee")


@pytest.mark.parametrize("id", ["lock/3", "random/4,seed=2", "diabolical/2", "bandit"])
def test_an_honest_certificate_is_verified(id):
    certificate, _, outcome = certificate_for(id)
    checked = verify(Certificate(json.loads(certificate.to_json())), richobs.make(id), policy=outcome.policy)
    assert checked.agrees, checked
    names = [f.what for f in checked.findings]
    assert names == [
        "function class",
        "environment",
        "policy file",
        "hidden states",
        "constants",
        "delta",
        "ledger",
        "run",
        "claim",
    ]


@pytest.mark.parametrize("id", ["lock/3", "random/3,seed=2"])
def test_a_certified_answer_can_be_recomputed_from_its_claims(id):
    certificate, _, outcome = certificate_for(id, learner="certified", epsilon=0.3)
    content = json.loads(certificate.to_json())
    assert sum(row[3] for row in content["claims"]) <= 0.05
    assert content["result"]["lower"] == max(row[4] for row in content["claims"] if row[0] == "V(policy) is at least")
    checked = verify(Certificate(content), richobs.make(id), policy=outcome.policy)
    assert checked.agrees, checked
    assert {"delta", "bounds"} <= {f.what for f in checked.findings}


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (lambda c: c["result"].update(lower=c["result"]["lower"] + 0.01), {"bounds", "run"}),
        (lambda c: c["result"].update(upper=0.0), {"bounds", "run"}),
        (lambda c: c["claims"][0].__setitem__(3, 0.5), {"delta", "run"}),
        (lambda c: c["claims"].pop(), {"bounds", "run"}),
    ],
)
def test_lies_about_certified_bounds_are_found(lie, found):
    certificate, problem, _ = certificate_for("lock/3", learner="certified", epsilon=0.3)
    content = json.loads(certificate.to_json())
    lie(content)
    assert {f.what for f in verify(Certificate(content), problem).findings if not f.agrees} == found


@pytest.mark.parametrize(
    ("upper", "lower", "claimed", "agrees"),
    [
        (0.6, 0.5, 0.5, True),
        (0.55, 0.5, 0.5, True),  # survivors promise less than the claim about the root allows
        (0.65, 0.5, 0.5, False),  # more than any claim says of V*
        (0.6, 0.5, 0.4, False),  # more than any claim says of the policy
        (0.6, 0.35, 0.35, False),  # farther apart than epsilon
        (0.4, 0.5, 0.5, False),  # they contradict each other
    ],
)
def test_certified_bounds_are_taken_from_the_claims(upper, lower, claimed, agrees):
    """Claims that V* is at most 0.6 and the policy's value at least `claimed`, at epsilon 0.2."""
    content = {
        "claims": [[UPPER, [], 100, 0.01, 0.7], [UPPER, [], 200, 0.01, 0.6], [LOWER, [], 200, 0.01, claimed]],
        "result": {"upper": upper, "lower": lower, "reason": StopReason.CERTIFIED.value},
    }
    findings = Certified().recheck(content, richobs.make("bandit"), Settings(epsilon=0.2, delta=0.05))
    assert {f.what: f.agrees for f in findings} == {"delta": True, "bounds": agrees}


def test_claims_of_lsvee_that_spend_too_much_are_found():
    certificate, problem, _ = certificate_for("lock/2")
    content = json.loads(certificate.to_json())
    content["claims"][0][3] = 0.5
    assert {f.what for f in verify(Certificate(content), problem).findings if not f.agrees} == {"delta", "run"}


def lie_about(content, what):
    if what == "constants":
        content["constants"]["search"]["n_train"] -= 1
    elif what == "ledger":
        content["ledger"][0][4] += 1
    elif what == "run":
        content["result"]["v_star_hat"] += 1e-15
    elif what == "function class":
        content["functions"]["digest"] = "0" * 64
    elif what == "settings":
        content["settings"]["seed"] = 1
    elif what == "epsilon":
        content["settings"]["epsilon"] = 0.05


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("constants", {"constants", "run"}),
        ("ledger", {"ledger", "run"}),
        ("run", {"run"}),
        ("function class", {"function class", "run"}),
        ("settings", {"run"}),
        ("epsilon", {"constants", "run"}),
    ],
)
def test_every_lie_is_found(what, found):
    certificate, problem, _ = certificate_for()
    content = json.loads(certificate.to_json())
    lie_about(content, what)
    checked = verify(Certificate(content), problem)
    assert {f.what for f in checked.findings if not f.agrees} == found


def test_the_wrong_policy_is_found():
    certificate, problem, _ = certificate_for()
    other = LearnedPolicy(problem.functions, (0, 0, 0))
    assert {f.what for f in verify(certificate, problem, policy=other).findings if not f.agrees} == {"policy file"}


def test_a_false_claim_is_called_false():
    """A world whose truth is not what was certified: the claim's own check compares with V* and V(policy)."""
    certificate, problem, _ = certificate_for()

    better = dataclasses.replace(problem, truth=dataclasses.replace(problem.truth, optimal_value=0.9))
    assert {f.what for f in verify(certificate, better).findings if not f.agrees} == {"claim"}


def test_a_run_that_stops_is_reported_not_raised():
    certificate, problem, _ = certificate_for()
    content = json.loads(certificate.to_json())
    content["settings"]["max_episodes"] = 1000
    checked = verify(Certificate(content), problem)
    assert not checked.agrees
    assert "running it again stopped" in checked.findings[-1].detail


def test_python_functions_have_no_digest_but_a_certificate():
    problem = richobs.make("mdp/2", n_states=2)
    truth = problem.process.q_tables
    functions = Callables([lambda h, x: truth[h][x]], horizon=2, n_actions=3)
    given = Problem(problem.env, functions, problem.process, 2)
    certificate = certify(run(given, Settings(learner="lsvee")), given)
    assert certificate.environment is None
    assert certificate.content["functions"]["digest"] is None
    assert certificate.content["policy"] == {"member": 0, "digest": None}
    json.loads(certificate.to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"format": "richobs-certificate", "version": 2}',
        '{"format": "richobs-certificate", "version": 3}',
        b"\xff\xfe",
        "[" * 200_000,
        '{"format": "richobs-certificate", "version": ' + "9" * 5000 + "}",
    ],
)
def test_files_that_are_no_certificates(text, tmp_path):
    file = tmp_path / "c.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidFile):
        Certificate.load(file)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("settings.speed", "fast"),
        ("settings.epsilon", "0.1"),
        ("settings.learner", "certified"),
        ("settings.learner", 3),
        ("settings.tuning", "trials=3"),
        ("learner", None),
        ("claims", [["x", [], 1, 0.0, 0.0]]),
        ("settings.n_states", "2"),
        ("settings.seed", None),
        ("functions", 3),
        ("environment", None),
        ("environment.id", 5),
        ("ledger", None),
        ("ledger", [[1]]),
        ("ledger", [["a", "b", [0], 1, "2"]]),
        ("result", {}),
        ("result.episodes", "a"),
    ],
)
def test_damaged_parts_are_refused(part, value, tmp_path):
    certificate, _, _ = certificate_for("lock/2")
    content = json.loads(certificate.to_json())
    target = content
    *before, last = part.split(".")
    for key in before:
        target = target[key]
    target[last] = value
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(InvalidFile, match="is damaged"):
        Certificate.load(tmp_path / "c.json")


def test_certificates_from_before_are_refused_by_their_version(tmp_path):
    """Version 1 was written by richobs 0.1.0, whose settings and claims had another form."""
    (tmp_path / "c.json").write_text(
        json.dumps({"format": "richobs-certificate", "version": 1, "versions": {"richobs": "0.1.0"}})
    )
    with pytest.raises(
        InvalidFile, match=r"of version 1, written by richobs 0\.1\.0; richobs .* checks version 2 alone"
    ):
        Certificate.load(tmp_path / "c.json")


def test_an_environment_and_a_class_are_as_good_as_a_problem():
    problem = richobs.make("lock/3")
    outcome = richobs.learn(problem.env, problem.functions, epsilon=0.3)
    certificate = richobs.certify(outcome, problem.env, problem.functions)
    assert richobs.verify(certificate, problem.env, problem.functions).agrees
    assert richobs.plan(problem.env, problem.functions, n_states=3) == richobs.plan(problem)
    assert richobs.audit(problem.env, sequences=2, episodes=16).holds
    assert richobs.audit(problem, sequences=2, episodes=16).holds


def test_a_key_given_twice_is_refused(tmp_path):
    """A person reads the first of two claims, a parser keeps the last."""
    certificate, _, _ = certificate_for("lock/2")
    forged = certificate.to_json().replace("{", '{"claim": "within 0.0001 of optimal",', 1)
    (tmp_path / "c.json").write_text(forged)
    with pytest.raises(InvalidFile, match="given twice"):
        Certificate.load(tmp_path / "c.json")


def test_a_certificate_of_another_world_or_with_too_few_states_is_found():
    certificate, problem, _ = certificate_for("lock/2")
    content = json.loads(certificate.to_json())
    content["environment"]["id"] = "lower-bound/20"
    found = {f.what for f in verify(Certificate(content), problem).findings if not f.agrees}
    assert found == {"environment", "run"}
    few, problem, _ = certificate_for("lock/2", n_states=1)
    assert {f.what for f in verify(few, problem).findings if not f.agrees} == {"hidden states"}
    assert few.claim.endswith("no level has more than 1 hidden state.")


@pytest.mark.parametrize(("delta", "words"), [(1e-7, "0.9999999 "), (0.05, "0.95 "), (1e-9, "0.999999999 ")])
def test_the_claim_never_rounds_up(delta, words):
    assert (
        f"With probability at least {words}"
        in richobs.learn(richobs.make("bandit"), delta=delta, learner="lsvee").claim
    )


def test_files_are_as_readable_as_the_umask_says(tmp_path):
    certificate, _, _ = certificate_for("lock/2")
    certificate.save(tmp_path / "c.json")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "c.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


class TestPlan:
    def test_from_a_problem_and_from_numbers(self):
        problem = richobs.make("lock")
        a = richobs.plan(problem, epsilon=0.2)
        b = richobs.plan(
            horizon=5, n_actions=4, n_states=3, log_size=problem.functions.log_size, epsilon=0.2, delta=0.05
        )
        assert a == b
        assert richobs.plan(problem, n_states=7).constants.n_states == 7

    def test_rates_by_hand(self):
        """H=2, K=3, M=4, N=e^5, epsilon=0.1, delta=e^-2: the orders in the paper's Section 3.2."""
        plan = richobs.plan(horizon=2, n_actions=3, n_states=4, log_size=5.0, epsilon=0.1, delta=np.exp(-2.0))
        assert plan.theorem_1 == pytest.approx(4 * 64 * 9 / 0.001 * 7 * 2)
        assert plan.bandit_rate == pytest.approx(3 / 0.01 * 7)
        assert plan.tabular_rate == pytest.approx(12 / 0.01 * 2)
        c = plan.constants
        assert c.max_search_episodes == 8 * (c.search.n_train + 3 * c.search.n_test)
        per_call = c.demand.n_train + 3 * c.demand.n_test
        assert c.max_demand_episodes == 8 * c.n_1 + (16 * c.n_2 + 8) * per_call
        assert plan.max_episodes == c.max_search_episodes + c.max_demand_episodes

    def test_every_row_has_a_unit(self):
        for horizon in (1, 2, 5):
            rows = list(richobs.plan(horizon=horizon, n_actions=2, n_states=2, log_size=1.0).rows())
            assert all(row.unit and row.name for row in rows)
            assert len({(row.section, row.name) for row in rows}) == len(rows)

    def test_what_is_missing_is_said(self):
        with pytest.raises(richobs.RichObsError, match="all of horizon, n_actions, n_states and log_size"):
            richobs.plan(horizon=3)
