"""Certificates: the same bytes for the same run, checked again from the file, and every lie found."""

import dataclasses
import functools
import json
import tracemalloc

import numpy as np
import pytest

import richobs
import richobs_lab.assumptions
from own import Arms
from richobs.classes import Callables, Layered, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli import main
from richobs.core.errors import InvalidFile, InvalidInput, StoreError
from richobs.core.files import read_json
from richobs.core.ledger import Spent
from richobs.core.outcome import LOWER, UPPER, StopReason
from richobs.core.policies import Greedy
from richobs.core.problem import Problem, Truth
from richobs.core.settings import Settings
from richobs.learners import LEARNERS
from richobs.learners.base import first_difference
from richobs.runs.certificate import Certificate, _without_paths
from richobs.runs.prepare import NUMBERS
from richobs.runs.session import run
from richobs.runs.verify import Work, claim_findings, device_finding, verify, without_rounding, work_of
from richobs_lab.certified import Certified
from richobs_lab.lsvee import PaperConstants, SamplePlan

world = functools.cache(richobs.make)
NONE = dict.fromkeys(NUMBERS)


@functools.cache
def ended(id, learner, **settings):
    problem = richobs.make(id)
    return run(problem, Settings(learner=learner, **settings)), problem


def certificate_for(id="lock/3", learner="lsvee", **settings):
    outcome, problem = ended(id, learner, **settings)
    return Certificate.of(outcome, problem), problem, outcome


def content_for(*args, **settings):
    """A copy of a certificate's content, as it is read from its file."""
    certificate, problem, _ = certificate_for(*args, **settings)
    return json.loads(certificate.to_json()), problem


def disagrees(checked):
    return {f.what for f in checked.findings if not f.agrees}


def test_a_certificate_says_what_was_promised_and_spent():
    certificate, problem, outcome = certificate_for(delta=0.1)
    content = certificate.content
    assert certificate.claim == (
        "With probability at least 0.9 the policy loses at most 0.1 to the best policy in expectation. This needs: episodes "
        "are independent; rewards and their totals lie in the declared ranges; Q*, the best value of each action, depends "
        "only on the observation and the step; Q* is in the class; the same actions lead to the same hidden state; no level "
        "has more than 3 hidden states."
    )
    facts = {"horizon": 3, "n_actions": 4, "n_states": 3, "reward_range": [0.0, 1.0]}
    assert content["environment"] == {"id": "lock/3", "identity": "lock/3", **facts}
    assert content["result"]["episodes"] == outcome.episodes == sum(row[4] for row in content["ledger"])
    assert content["constants"]["search"]["n_train"] == outcome.constants.search.n_train
    assert content["policy"]["digest"] == outcome.policy.digest
    assert content["functions"]["log_size"] == problem.functions.log_size


def test_a_certificate_survives_the_disk_as_readable_as_the_umask_says(tmp_path):
    certificate, _, _ = certificate_for()
    certificate.save(tmp_path / "c.json")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "c.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    again = Certificate.load(tmp_path / "c.json")
    assert again.to_json() == certificate.to_json()
    assert again.settings == Settings(learner="lsvee")


@pytest.mark.parametrize("id", ["lock/3", "random/4,seed=2", "diabolical/2", "bandit"])
def test_an_honest_certificate_is_verified(id):
    certificate, _, outcome = certificate_for(id)
    checked = verify(Certificate(json.loads(certificate.to_json())), richobs.make(id), policy=outcome.policy)
    assert checked.agrees, checked
    names = [f.what for f in checked.findings]
    assert ", ".join(names) == (
        "function class, environment, policy file, hidden states, constants, delta, ledger, versions, run, claim gap"
    )


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


def put(*path, by=None, value=None):
    """Returns a lie: another value at a place of a certificate's content, or one that is larger by a number."""
    *before, last = path

    def lie(content):
        part = functools.reduce(lambda part, key: part[key], before, content)
        part[last] = value if by is None else part[last] + by

    return lie


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (put("constants", "search", "n_train", by=-1), {"constants", "run"}),
        (put("ledger", 0, 4, by=1), {"ledger", "run"}),
        (put("result", "v_star_hat", by=1e-15), {"run"}),
        (put("functions", "digest", value="0" * 64), {"function class", "run"}),
        (put("settings", "seed", value=1), {"run"}),
        (put("settings", "n_states", value=7), {"constants", "run"}),
        (put("settings", "epsilon", value=0.05), {"constants", "run"}),
        (put("claims", 0, 3, value=0.5), {"delta", "run"}),
        (put("environment", "id", value="lower-bound/20"), {"environment", "run"}),
        (put("result", "real_episodes", value=-5), {"ledger", "run"}),
        (put("result", "real_episodes", value=10**15), {"ledger", "run"}),
        (put("settings", "max_episodes", value=1000), {"run"}),
    ],
)
def test_every_lie_is_found(lie, found):
    content, problem = content_for()
    lie(content)
    checked = verify(Certificate(content), problem)
    assert disagrees(checked) == found
    details = {f.what: f.detail for f in checked.findings}
    if content["result"]["real_episodes"] is not None:
        assert details["ledger"].endswith("which is impossible")
    if content["settings"]["max_episodes"] is not None:  # reported, not raised
        assert "running it again stopped" in details["run"]


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (put("result", "lower", by=0.01), {"bounds", "run"}),
        (put("result", "upper", value=0.0), {"bounds", "run", "claim U"}),
        (put("claims", 0, 3, value=0.5), {"delta", "run"}),
        (lambda content: content["claims"].pop(), {"bounds", "run"}),
    ],
)
def test_lies_about_certified_bounds_are_found(lie, found):
    content, problem = content_for("lock/3", learner="certified", epsilon=0.3)
    lie(content)
    assert disagrees(verify(Certificate(content), problem)) == found


def test_the_sign_of_a_zero_and_the_order_of_parts_are_compared():
    content, problem = content_for("lock/2", learner="certified", max_episodes=200)
    assert content["result"]["lower"] == 0.0
    other = {**content, "result": {**content["result"], "lower": -0.0}}
    (wrong,) = [f for f in verify(Certificate(other), problem).findings if not f.agrees]
    assert wrong.detail == "certificate.result.lower is -0.0 in the file and 0.0 again"
    (wrong,) = [f for f in verify(Certificate(dict(reversed(content.items()))), problem).findings if not f.agrees]
    assert "in another order" in wrong.detail


@pytest.mark.parametrize(
    ("versions", "agrees", "detail"),
    [
        ({}, True, "the same"),
        ({"numpy": "1.0"}, True, "made with numpy 1.0, and this is "),
        ({"numpy": 3}, False, "the certificate names "),
        ({"torch": "3"}, False, "and a run names richobs, numpy, python"),
    ],
)
def test_other_versions_are_said_and_are_no_fault(versions, agrees, detail):
    certificate, problem, _ = certificate_for("lock/2")
    content = {**certificate.content, "versions": {**certificate.content["versions"], **versions}}
    checked = verify(Certificate(content), problem)
    found = {f.what: f for f in checked.findings}
    assert (found["versions"].agrees, checked.agrees) == (agrees, agrees)
    assert detail in found["versions"].detail


def test_the_wrong_policy_is_found():
    certificate, problem, _ = certificate_for()
    other = LearnedPolicy(problem.functions, (0, 0, 0))
    assert disagrees(verify(certificate, problem, policy=other)) == {"policy file"}


def test_a_false_claim_is_called_false():
    """A world whose truth is not what was certified: the claim's own check compares with V* and V(policy)."""
    certificate, problem, _ = certificate_for()
    better = dataclasses.replace(problem, truth=dataclasses.replace(problem.truth, optimal_value=0.9))
    assert disagrees(verify(certificate, better)) == {"claim gap"}


def test_a_certified_u_below_the_known_optimum_is_called_false():
    """The only function of the class has the right policy and values that are too low: the gap is 0, and U is false."""
    bandit = richobs.make("bandit")
    q = bandit.process.q_tables[0]
    low = np.where(q == q.max(axis=1, keepdims=True), 0.75, 0.1)
    problem = Problem(bandit.env, Layered([TableLevel(low[None], bandit.process.codebooks[0])]), bandit.process)
    checked = verify(Certificate.of(run(problem, Settings()), problem), problem)
    assert not checked.agrees
    (wrong,) = [f for f in checked.findings if not f.agrees]
    assert wrong.what == "claim U"
    assert wrong.detail == (
        "V* is at most 0.7501 is claimed. V* is 0.822278 and the policy's value 0.822278 (exact). This is false. It may "
        "be with probability 0.05, and where an assumption of the claim does not hold."
    )


@pytest.mark.parametrize(
    ("best", "value", "wrong"),
    [
        (0.5, 0.5, set()),
        (0.6 + 1e-12, 0.6, set()),  # rounding
        (0.6 + 1e-6, 0.6, {"claim U"}),
        (0.6, 0.3, {"claim W", "claim gap"}),
        (0.45, 0.4 - 1e-6, {"claim W"}),
        (0.59, 0.45, {"claim gap"}),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_each_number_of_a_claim_is_compared_with_the_truth(best, value, wrong, known):
    """U = 0.6, W = 0.4 and a gap of 0.1 are claimed. Where V* itself is not known, the policy's value refutes all it can."""
    truth = Truth(best, 0 if known else None, exact_value=lambda policy: value)
    problem = dataclasses.replace(richobs.make("bandit"), process=None, truth=truth)
    result = {"upper": 0.6, "lower": 0.4, "epsilon": 0.1, "guaranteed": True}
    policy = problem.functions.member((0,))
    findings = claim_findings(result, problem, Greedy(policy), 0.05, best_sequence=False)
    assert [f.what for f in findings] == ["claim U", "claim W", "claim gap"]
    found = {f.what for f in findings if not f.agrees}
    assert found == (wrong if known else wrong & {"claim W"})


def test_a_policy_worth_more_than_u_refutes_it_where_the_optimum_is_not_known():
    truth = Truth(0.9, None, exact_value=lambda policy: 0.7)
    problem = dataclasses.replace(richobs.make("bandit"), process=None, truth=truth)
    result = {"upper": 0.6, "lower": None, "epsilon": 0.1, "guaranteed": False}
    (found,) = claim_findings(result, problem, Greedy(problem.functions.member((0,))), 0.05, best_sequence=False)
    assert (found.what, found.agrees) == ("claim U", False)
    assert "V* is at most 0.9 and" in found.detail


def test_a_claim_about_the_best_action_sequence_is_not_refuted_by_the_best_policy():
    certificate, problem, outcome = certificate_for("bandit", learner="median-elimination", epsilon=0.05)
    assert problem.optimal_value - problem.value(outcome.policy) > 0.05
    assert verify(certificate, problem).agrees


def test_python_functions_have_no_digest_but_a_certificate():
    problem = richobs.make("mdp/2", n_states=2)
    truth = problem.process.q_tables
    functions = Callables([lambda h, x: truth[h][x]], horizon=2, n_actions=3)
    given = Problem(problem.env, functions, problem.process, 2)
    certificate = Certificate.of(run(given, Settings(learner="lsvee")), given)
    assert certificate.environment is None
    assert certificate.content["functions"]["digest"] is None
    assert certificate.content["policy"] == {"member": 0, "digest": None}
    json.loads(certificate.to_json())


OLD = '{"format": "richobs-certificate", "version": 1, "versions": {"richobs": "0.1.0"}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, None) for text in ("", "not json", "[]", "[" * 200_000, b"\xff\xfe")),
        *(('{"format": "richobs-certificate", "version": ' + v + "}", None) for v in ("3", "4", "9" * 5000)),
        (OLD, r"version 1, written by richobs 0\.1\.0; richobs .* checks version 3 alone"),
        # a person reads the first of two claims, a parser keeps the last
        ('{"claim": "within 0.0001 of optimal", "claim": "within 0.1 of optimal"}', "given twice"),
    ],
)
def test_files_that_are_no_certificates(text, words, tmp_path):
    file = tmp_path / "c.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidFile, match=words):
        Certificate.load(file)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(
            (("settings", name), value)
            for name, value in (("speed", "fast"), ("epsilon", "0.1"), ("tuning", "trials=3"))
        ),
        *((("settings", name), value) for name, value in (("learner", "lsvee"), ("learner", 3), ("seed", None))),
        *((("settings", "n_states"), value) for value in ("2", 0, -1, 2.5, 10**40)),
        *(((name,), None) for name in ("learner", "environment", "ledger")),
        (("claims",), [["x", [], 1, 0.0, 0.0]]),
        *((("claims", 0, 4), value) for value in (None, float("nan"), True)),
        (("functions",), 3),
        *((("environment", name), value) for name, value in (("id", 5), ("reward_range", [0.5, 0.5]))),
        *((("ledger",), rows) for rows in ([[1]], [["a", "b", [0], 1, "2"]])),
        (("result",), {}),
        *((("result", name), value) for name, value in (("episodes", "a"), ("remarks", [1]))),
        *(
            (("units",), {"shift": 0.0, "scale": 1.0, "result": NONE, "claims": [], **words})
            for words in ({}, {"words": 7})
        ),
    ],
)
def test_damaged_parts_are_refused(part, value, tmp_path):
    content, _ = content_for("lock/2", learner="certified")
    put(*part, value=value)(content)
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(InvalidFile, match=r"is damaged|a claim is"):
        Certificate.load(tmp_path / "c.json")


def test_an_environment_and_a_class_are_as_good_as_a_problem():
    problem = richobs.make("lock/3")
    outcome = richobs.learn(problem.env, problem.functions, epsilon=0.3)
    certificate = richobs.Certificate.of(outcome, problem.env, problem.functions)
    assert richobs.verify(certificate, problem.env, problem.functions).agrees
    assert richobs.plan(problem.env, problem.functions).least == richobs.plan(problem).least
    assert richobs_lab.assumptions.audit(problem.env, sequences=2, episodes=16).holds
    assert richobs_lab.assumptions.audit(problem, sequences=2, episodes=16).holds


def test_a_certificate_with_too_few_states_is_found():
    few, problem, _ = certificate_for("lock/2", n_states=1)
    assert disagrees(verify(few, problem)) == {"hidden states"}
    assert few.claim.endswith("no level has more than 1 hidden state.")


@pytest.mark.parametrize(("delta", "words"), [(1e-7, "0.9999999 "), (0.05, "0.95 "), (1e-9, "0.999999999 ")])
def test_the_claim_never_rounds_up(delta, words):
    assert f"With probability at least {words}" in certificate_for("bandit", delta=delta)[0].claim


def test_paths_that_would_make_a_certificate_unreadable_are_left_out(tmp_path, monkeypatch):
    """Long paths fill the certificates of problems with hundreds of levels; here the limit is lowered instead."""
    problem = world("lock/4")
    outcome = run(problem, Settings(learner="certified", epsilon=0.3))
    whole = Certificate.of(outcome, problem)
    monkeypatch.setattr("richobs.core.files.MOST_VALUES", whole.to_json().count(","))
    with pytest.raises(StoreError, match="could not be read again: its JSON has more than"):
        whole.save(tmp_path / "c.json")
    Certificate.of(outcome, problem).save(tmp_path / "c.json")
    short = Certificate.load(tmp_path / "c.json")
    assert all(row[2] == [] for row in short.content["ledger"])
    assert len(short.content["ledger"]) < len(whole.content["ledger"])
    for column in (3, 4):
        of_short, of_whole = (sum(row[column] for row in c.content["ledger"]) for c in (short, whole))
        assert of_short == of_whole
    assert [[k, *rest] for k, _, *rest in whole.content["claims"]] == [[k, *r] for k, _, *r in short.content["claims"]]
    assert "left out" in short.content["paths"]
    checked = verify(short, problem)
    assert checked.agrees, checked
    monkeypatch.undo()
    assert Certificate.of(outcome, problem).to_json() == whole.to_json()


def test_claims_in_other_units_have_no_paths_either():
    claims = [["V* is at most", [1, 0], 5, 0.01, 0.5]]
    rows = [["a", "b", [1], 2, 3], ["a", "c", [1], 1, 1], ["a", "b", [0, 1], 4, 5]]
    found = _without_paths({"ledger": rows, "claims": claims, "units": {"claims": claims}})
    assert found["units"]["claims"] == found["claims"] == [["V* is at most", [], 5, 0.01, 0.5]]
    assert found["ledger"] == [["a", "b", [], 6, 8], ["a", "c", [], 1, 1]]


def test_a_small_json_file_takes_little_memory(tmp_path):
    (tmp_path / "small.json").write_text('{"a": 1}')
    tracemalloc.start()
    try:
        assert read_json(tmp_path / "small.json") == {"a": 1}
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match="more than 7 bytes"):
        read_json(tmp_path / "small.json", 7)


class TestBudget:
    """A certificate may come from anybody: how much work it is to verify is said, and allowed, before it begins."""

    def test_the_work_is_what_the_ledger_lists(self):
        certificate, problem, outcome = certificate_for("lock/3", learner="certified")
        work = work_of(certificate, problem)
        values = 3 * problem.functions.level_size(0) * 4
        requests = sum(row[3] for row in certificate.content["ledger"])
        assert (work.spent.requests, work.spent.episodes) == (requests, outcome.episodes)
        assert work.cost == values + requests * (3 * 1000 + values) + outcome.episodes * (3 + values // 500)
        assert f"it plays {outcome.episodes:,} episodes of 3 levels in {requests} requests" in work.words

    def test_more_work_is_refused_before_anything_is_played(self):
        certificate, problem, _ = certificate_for("lock/3", learner="certified")
        heard, cost = [], work_of(certificate, problem).cost
        with pytest.raises(InvalidInput, match=rf"more work than the budget of 10 allows: .* --budget {cost}"):
            verify(certificate, problem, budget=10, callback=heard.append)
        assert heard == []
        for budget in (cost, None):
            assert verify(certificate, problem, budget=budget).agrees

    @pytest.mark.parametrize("name", LEARNERS)
    def test_levels_count_for_every_learner(self, name):
        """A request, and where episodes are played each of them, costs something at every level."""
        settings = Settings(learner=name).as_plain()
        rows = [["search", "rollout", [], 1_000, 1_000_000]]
        certificate = Certificate({"settings": settings, "ledger": rows})
        short, long = (work_of(certificate, world(f"mdp/{H}")) for H in (2, 100))
        assert long.cost >= 25 * short.cost
        assert long.request >= 100 * 200
        assert (long.episode >= 100) != long.counted

    def test_where_the_value_can_only_be_estimated_its_episodes_count(self):
        certificate, problem, _ = certificate_for("lock/3", learner="certified")
        noisy = dataclasses.replace(problem, process=None)
        assert work_of(certificate, noisy).once == work_of(certificate, problem).once + 200_000 * 3

    @pytest.mark.parametrize(
        ("cost", "words"), [(1, "2 seconds"), (119_000_000, "119 seconds"), (1.8e12, "21 days"), (7.3e15, "231 years")]
    )
    def test_the_time_is_told_in_words(self, cost, words):
        assert Work(Spent(0, 0), 1, False, 1, 0, 0, once=cost).time == words

    def test_a_certificate_about_another_problem_is_not_run_again(self):
        certificate, _, _ = certificate_for("lock/3")
        heard = []
        verdict = verify(certificate, richobs.make("lock/4"), callback=heard.append)
        assert (verdict.agrees, heard) == (False, [])
        assert verdict.findings[-1].detail == "not made again: the certificate is about another problem"

    @pytest.mark.parametrize(("column", "value"), [(4, 20), (3, 1)])
    def test_a_repeat_that_needs_more_than_is_listed_is_stopped(self, column, value):
        """Somebody lists less work than there is, so that it seems to fit the budget."""
        content, problem = content_for("lock/3", learner="certified")
        content["ledger"] = content["ledger"][:1]
        content["ledger"][0][column] = value
        content["ledger"][0][7 - column] = 10**6
        heard = []
        found = {f.what: f for f in verify(Certificate(content), problem, callback=heard.append, budget=None).findings}
        assert not found["run"].agrees
        assert "the run that is repeated spent" in found["run"].detail
        assert not heard or heard[-1].episodes <= sum(row[4] for row in content["ledger"])

    def test_on_the_command_line(self, tmp_path, monkeypatch, capsys):
        assert main(["learn", "lock/2", "--out", str(tmp_path), "--quiet"]) == 0
        capsys.readouterr()
        assert main(["verify", str(tmp_path), "--budget", "5"]) == 2
        assert "more work than the budget of 5 allows: it plays" in " ".join(capsys.readouterr().err.split())
        assert main(["verify", str(tmp_path), "--budget", "0"]) == 2
        assert main(["verify", str(tmp_path), "--quiet"]) == 0
        monkeypatch.setattr("richobs.cli.stored.is_interactive", lambda: True)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        for reply, status in ((True, 0), (False, 2)):
            monkeypatch.setattr("richobs.cli.stored.Confirm.ask", lambda *_, reply=reply, **__: reply)
            assert main(["verify", str(tmp_path), "--budget", "5", "--quiet"]) == status


def paper_plan(epsilon=0.1, delta=0.05, **sizes):
    return SamplePlan(PaperConstants.of(epsilon=epsilon, delta=delta, **sizes))


class TestPlan:
    def test_from_a_problem_and_from_numbers(self):
        problem = richobs.make("lock")
        a = richobs.plan(problem, epsilon=0.2, learner="lsvee")
        b = paper_plan(n_states=3, horizon=5, n_actions=4, log_size=problem.functions.log_size, epsilon=0.2)
        assert a == b
        assert richobs.plan(problem, learner="lsvee", n_states=7).constants.n_states == 7

    def test_by_default_of_the_learner_that_would_learn(self):
        problem = richobs.make("lock/3")
        assert richobs.plan(problem).title.startswith("betting")
        for wrong in ({"epsilon": -1.0}, {"tuning": ["colour=3"]}, {"colour": 3}, {"learner": "models"}):
            with pytest.raises(richobs.InvalidInput) as planned:
                richobs.plan(problem, **wrong)
            with pytest.raises(richobs.InvalidInput) as learned:
                richobs.learn(problem, **wrong)
            assert str(planned.value) == str(learned.value)

    def test_rates_by_hand(self):
        """H=2, K=3, M=4, N=e^5, epsilon=0.1, delta=e^-2: the orders in the paper's Section 3.2."""
        plan = paper_plan(horizon=2, n_actions=3, n_states=4, log_size=5.0, epsilon=0.1, delta=np.exp(-2.0))
        assert plan.theorem_1 == pytest.approx(4 * 64 * 9 / 0.001 * 7 * 2)
        assert plan.bandit_rate == pytest.approx(3 / 0.01 * 7)
        assert plan.tabular_rate == pytest.approx(12 / 0.01 * 2)
        c = plan.constants
        assert c.max_search_episodes == 8 * (c.search.n_train + 3 * c.search.n_test)
        per_call = c.demand.n_train + 3 * c.demand.n_test
        assert c.max_demand_episodes == 8 * c.n_1 + (16 * c.n_2 + 8) * per_call
        assert plan.max_episodes == c.max_search_episodes + c.max_demand_episodes


# Runs on a device, whose numbers may differ from those of a repeat; nothing here needs one.


def on_device(problem, epsilon):
    """Returns the content of a certificate of a run that is said to have been on a device, and its outcome."""
    outcome = run(problem, Settings(learner="certified", epsilon=epsilon))
    settings = dataclasses.replace(outcome.settings, device="cuda")
    outcome = dataclasses.replace(outcome, settings=settings, rounding=1e-12)
    return Certificate.of(outcome, problem).content, outcome


@pytest.fixture(scope="module")
def lock_on_device():
    return on_device(richobs.make("lock/3"), 0.3)


def changed(content, part, name, by):
    """Returns a copy of a content with one number changed."""
    copy = json.loads(json.dumps(content))
    copy[part][name] += by
    return copy


def device_difference(again, file, outcome):
    """Returns what differs between a certificate and its repeat, besides what rounding explains."""
    return first_difference(again, without_rounding(again, file, outcome), "certificate")


def difference_after(given, part, name, by):
    content, outcome = given
    return device_difference(content, changed(content, part, name, by), outcome)


@pytest.mark.parametrize(("name", "stronger"), [("lower", 1), ("upper", -1), ("epsilon", -1)])
def test_a_bound_may_exceed_its_repeat_by_a_billionth_and_fall_below_by_what_rounding_allows(
    lock_on_device, name, stronger
):
    given = lock_on_device[0], dataclasses.replace(lock_on_device[1], rounding=1e-8)
    assert difference_after(given, "result", name, 0.9e-9 * stronger) is None
    assert f"certificate.result.{name} is" in difference_after(given, "result", name, 1.1e-9 * stronger)
    assert difference_after(given, "result", name, -60e-8 * stronger) is None
    assert f"certificate.result.{name} is" in difference_after(given, "result", name, -70e-8 * stronger)


@pytest.mark.parametrize("rounding", [0.003, 1e9])
def test_however_rough_the_repeat_was_nothing_may_differ_by_more_than_a_hundredth_of_epsilon(lock_on_device, rounding):
    given = lock_on_device[0], dataclasses.replace(lock_on_device[1], rounding=rounding)
    assert difference_after(given, "result", "value_hat", 0.0029) is None
    assert "certificate.result.value_hat is" in difference_after(given, "result", "value_hat", 0.0031)
    assert "certificate.result.lower is" in difference_after(given, "result", "lower", 1e-8)


def test_what_no_device_computes_must_be_equal(lock_on_device):
    for part, name, by in (("settings", "delta", 1e-15), ("result", "rounds", 1), ("result", "log_size", 1e-6)):
        assert f"certificate.{part}.{name} is" in difference_after(lock_on_device, part, name, by)
    assert "certificate.environment.horizon is" in difference_after(lock_on_device, "environment", "horizon", 1)


def test_claims_of_a_certificate_are_compared_like_its_result(lock_on_device):
    content, outcome = lock_on_device
    place = next(i for i, row in enumerate(content["claims"]) if row[0] == LOWER)
    for field, by, agrees in ((4, 0.9e-9, True), (4, 1.1e-9, False), (3, 1e-15, False), (2, 1, False)):
        copy = json.loads(json.dumps(content))
        copy["claims"][place][field] += by
        assert (device_difference(content, copy, outcome) is None) == agrees, (field, by)
    for claims in (content["claims"][1:], [[*row, 0] for row in content["claims"]]):
        assert device_difference(content, {**content, "claims": claims}, outcome) is not None


def test_the_claim_in_words_is_that_of_the_numbers_beside_it(lock_on_device):
    content, outcome = lock_on_device
    result = {**content["result"], "lower": content["result"]["lower"] + 0.5e-9}
    words = outcome.wording(**{name: result[name] for name in ("epsilon", "lower", "upper")})
    assert device_difference(content, {**content, "result": result, "claim": words}, outcome) is None
    better = outcome.wording(epsilon=0.3, lower=0.49, upper=0.5)
    assert "certificate.claim is" in device_difference(content, {**content, "claim": better}, outcome)


def test_numbers_in_other_units_may_differ_by_shares_of_their_range():
    functions = richobs.Tables([[[[21.0, 16.0]], [[24.0, 16.0]], [[18.0, 28.0]]]], value_range=(10.0, 30.0))
    given = on_device(Problem(Arms(0.55, 0.3, pays=(10.0, 30.0)), functions), 6.0)
    assert given[1].in_units is not None
    assert difference_after(given, "result", "lower", 0.9e-9 * 20) is None
    assert difference_after(given, "result", "lower", 1.1e-9 * 20) is not None
    content, outcome = given
    for part, by, agrees in (("lower", 0.9e-9, True), ("lower", 1.1e-9, False)):
        units = changed(content["units"], "result", part, by)
        assert (device_difference(content, {**content, "units": units}, outcome) is None) == agrees
    assert device_difference(content, {**content, "units": {**content["units"], "scale": 20.5}}, outcome) is not None
    without = {name: part for name, part in content.items() if name != "units"}
    assert device_difference(content, without, outcome) == "certificate.units is missing"


def test_the_rounding_that_is_stated_is_not_much_below_that_of_the_repeat():
    again = {"name": "cuda", "dtype": "float64", "rounding": 8e-12}
    for stated, agrees in ((1e-12, True), (8e-12, True), (1e-9, True), (0.9e-12, False), (0.0, False)):
        assert device_finding(again, {**again, "rounding": stated}).agrees == agrees
    for file in (None, {}, {**again, "rounding": float("nan")}, {**again, "rounding": True}, {**again, "dtype": "x"}):
        assert not device_finding(again, file).agrees


def test_a_file_without_what_it_says_of_its_device_is_damaged(lock_on_device, tmp_path):
    content, file = lock_on_device[0], tmp_path / "certificate.json"
    Certificate(content).save(file)
    assert Certificate.load(file).content == content
    stated = content["device"]
    wrong = ({**stated, "rounding": -1.0}, {**stated, "rounding": 0}, {**stated, "name": "cpu"}, {"name": "cuda"})
    for device in (None, *wrong):
        Certificate({**content, "device": device}).save(file)
        with pytest.raises(InvalidFile, match="is damaged: device"):
            Certificate.load(file)


def test_numbers_that_are_none_are_equal_where_a_tolerance_is_allowed():
    nan, inf = float("nan"), float("inf")
    assert first_difference([nan], [nan], "a") is None
    assert first_difference([nan, 1.0], [nan, 1.0 + 1e-12], "a", 1e-9) is None
    assert first_difference([nan], [0.0], "a", 1e-9) is not None
    assert first_difference([inf], [1.0], "a", 1e-9) is not None
    assert first_difference([inf], [inf], "a", 1e-9) is None
    assert first_difference(["x", 1], ["x", 1.0], "a", 1e-9) is not None
