"""The catalogue of the paper, the page made of it, the formulas, the kill table, and inequalities that no statement runs."""

import importlib
import itertools
import math
import pathlib
import re
from fractions import Fraction

import numpy as np
import pytest

from richobs import make
from richobs.core.errors import InvalidInput
from richobs_lab.lsvee.constants import PaperConstants
from richobs_lab.paper import STATEMENTS, formulas, kills
from richobs_lab.paper import map as paper_map
from richobs_lab.paper.base import FAR, ROUNDING
from richobs_lab.paper.catalogue import CATALOGUE, LABELS, PARTS, SOURCE, entries_of, numbered
from richobs_lab.paper.page import is_numbered

ROOT = pathlib.Path(__file__).parents[1]


def test_the_page_is_what_the_catalogue_the_verdicts_and_the_kill_table_make():
    assert (ROOT / "docs/paper-map.md").read_text() == paper_map.made(paper_map.verdicts())


def test_every_numbered_statement_has_a_row():
    numbers = [e.number for e in CATALOGUE]
    kinds = {"Theorem": 6, "Lemma": 9, "Corollary": 1, "Proposition": 2, "Assumption": 3, "Condition": 2, "Example": 1}
    for kind, n in kinds.items():
        found = [number for number in numbers if re.fullmatch(rf"{kind} \d+", number)]
        assert sorted(found) == [f"{kind} {i}" for i in range(1, n + 1)]
    assert [n for n in numbers if n.startswith("Eq.")] == [f"Eq. ({i})" for i in range(1, 14)]
    lines = [e.line for e in CATALOGUE]
    assert lines == sorted(lines)
    assert {679, 1542, 1923, 1975} <= set(lines)  # Eqs. (5), (10), (13) and the crude bound


def test_numbers_follow_from_the_order_of_the_labels():
    """The order of labels in the paper's source alone gives the numbers; entries begin on the lines of their labels."""
    found = {number: line for number, _, line in numbered()}
    assert numbered([("Lemma", "a", 1), ("Eq.", "b", 2), ("Lemma", "c", 3), ("Eq.", "d", 4)]) == [
        ("Lemma 1", "a", 1),
        ("Eq. (1)", "b", 2),
        ("Lemma 2", "c", 3),
        ("Eq. (2)", "d", 4),
    ]
    assert [line for _, _, line in SOURCE] == sorted(line for _, _, line in SOURCE)
    labels = [label for _, label, _ in SOURCE if label]
    assert len(set(labels)) == len(labels)
    assert {e.number: e.line for e in CATALOGUE if e.number in found} == {
        number: line for number, line in found.items() if number in {e.number for e in CATALOGUE}
    }
    twice = {"Algorithm 4", "Algorithm 5", "Algorithm 6", "Algorithm 8"}  # the appendix prints them again
    assert set(found) - {e.number for e in CATALOGUE} == twice
    assert LABELS["Theorem 1"] == "thm:det_dfs_big_obs"
    assert LABELS["Lemma 9"] == "lem:on_demand_progress"


def test_a_check_far_from_its_bound_says_why():
    for name, report in paper_map.verdicts().items():
        for c in report["conclusion"]["checks"]:
            if c["tightness"] is not None:
                assert c["tightness"] <= 1 + ROUNDING, (name, c["what"])
                assert c["loose"] or c["tightness"] >= FAR, (name, c["what"])


def test_every_statement_runs_something_and_every_theorem_is_run():
    assert {e.statement for e in CATALOGUE} - {""} == set(STATEMENTS)
    assert all(e.statement for e in CATALOGUE if is_numbered(e))
    assert [e.number for e in entries_of("bias-accumulation")] == ["Lemma 4", "Eq. (10)"]


def test_every_entry_is_in_one_table_of_its_part():
    page = paper_map.made(paper_map.verdicts())
    parts = page.partition("## Where no instance")[0].split("\n## ")[1:]
    assert [part.splitlines()[0] for part in parts] == [name for _, name in PARTS]
    assert sum(part.count("\n| ") - 2 for part in parts) == len(CATALOGUE)
    assert sum(part.count("\n- ") for part in parts) == len(CATALOGUE)


def test_every_check_that_an_entry_names_exists():
    for entry in CATALOGUE:
        for beginning in entry.checks:
            checks = [c["what"] for c in paper_map.verdicts()[entry.statement]["conclusion"]["checks"]]
            assert any(what.startswith(beginning) for what in checks), (entry.number, beginning)


def test_no_verdict_that_was_kept_is_a_failure():
    assert {v["verdict"] for v in paper_map.verdicts().values()} <= {"holds", "holds as read", "false as printed"}


def test_verdicts_are_read_from_a_folder(tmp_path):
    with pytest.raises(InvalidInput, match=r"holds no lower-bounds\.json; `richobs paper --out"):
        paper_map.verdicts_in(tmp_path)


class TestFormulas:
    def test_every_formula_is_made(self):
        for entry in (e for e in CATALOGUE if e.tex):
            assert formulas.mathml(entry.tex).startswith("<math ")
            assert "\\" not in formulas.mathml(entry.tex), entry.tex  # a command that was not understood
        with pytest.raises(InvalidInput, match="Make it with"):
            formulas.mathml("x")

    def test_they_are_what_latex2mathml_makes(self):
        pytest.importorskip("latex2mathml")
        made = formulas.make()
        assert set(made) == {e.tex for e in CATALOGUE if e.tex}
        assert {tex: text for tex, text in made.items() if formulas.mathml(tex) != text} == {}


class TestKills:
    @pytest.fixture
    def paper_mutants(self, monkeypatch):
        monkeypatch.syspath_prepend(str(ROOT))
        return importlib.import_module("tests.paper_mutants")

    def test_statements_run_up_to_the_first_that_fails(self, paper_mutants):
        names = ["td-loss", "no-such-statement", "td-loss"]
        first = paper_mutants.evaluated(ROOT, names, every=False)
        assert [(name, failed.partition(".")[0]) for name, failed, _ in first] == [
            ("td-loss", ""),
            ("no-such-statement", "InvalidInput: there is no statement 'no-such-statement'"),
        ]

    def test_a_mutant_is_run_against_the_statements_that_import_its_file(self, paper_mutants):
        found = {row.mutant.file: row.statements for row in paper_mutants.rows()}
        assert "pac" in found["richobs_lab/lsvee/learner.py"]
        assert "td-loss" not in found["richobs_lab/lsvee/learner.py"]
        assert {"consensus", "dfs-learn", "pac"} <= set(found["richobs_lab/lsvee/consensus.py"])

    def test_a_row_is_kept_while_what_it_rests_on_is_the_same(self, paper_mutants):
        now = {name: paper_mutants.source_digest(STATEMENTS[name]) for name in ("td-loss", "consensus")}
        killed = {"killed_by": {"consensus": "(i)"}, "sources": now}
        assert paper_mutants.still_true(killed)
        assert paper_mutants.still_true(killed | {"sources": now | {"td-loss": "other"}})  # the killer is the same
        assert not paper_mutants.still_true(killed | {"sources": now | {"consensus": "other"}})
        assert not paper_mutants.still_true({"killed_by": {}, "sources": now | {"td-loss": "other"}})
        assert paper_mutants.still_true({"killed_by": {}, "sources": now})

    def test_every_edit_can_be_made_and_all_differ(self, paper_mutants):
        rows = paper_mutants.rows()
        assert {r.mutant.why: p for r in rows if (p := r.mutant.problem())} == {}
        assert len({r.key for r in rows}) == len({r.mutant.why for r in rows}) == len(rows) >= 60

    def test_every_survivor_says_why_and_what_the_paper_allows_survives(self, paper_mutants):
        assert [k.why for k in kills.kills() if not k.killed_by and not k.reason] == []
        allowed = {r.mutant.why for r in paper_mutants.rows() if r.allowed}
        assert len(allowed) == 3
        assert [k.killed_by for k in kills.kills() if k.why in allowed] == [{}, {}, {}]
        assert kills.killed_of_asked("no such statement") == "0 of 0"
        assert len(kills.kills()) >= 60


def test_q_star_predicts_its_own_next_value():
    """Eq. (5): where an observation occurs, f* is the mean reward and f*'s own prediction at the child."""
    problem = make("disjoint")
    process, f_star = problem.process, problem.functions.member(problem.truth.optimal_function)
    predicted = [*process.predicted_values(f_star), np.zeros(1)]
    reached = process.start > 0
    for h, emission in enumerate(process.emissions):
        last = h == process.horizon - 1
        future = np.zeros((len(emission), 1)) if last else process.transitions[h] @ predicted[h + 1]
        target = process.rewards[h].mean + future[:, None, :]  # [S, X, K]
        wrong = np.abs(f_star.values(h, process.observations[h]) - target).max(axis=2)
        seen = (emission > 0) & reached[:, None]
        assert wrong[seen].max() < 1e-12
        assert np.ptp(target[seen]) > 0.01  # not all equal, so that a wrong function would differ
        reached = process.transitions[h][reached].any(axis=(0, 1)) if not last else reached


def test_the_taylor_step():
    """-log(1 - x) <= 2x up to x = 1/2, as a series with rational terms; it fails beyond 0.797."""
    for x in (Fraction(i, 64) for i in range(1, 33)):
        head = sum(x**i / i for i in range(1, 60))
        tail = x**60 / (60 * (1 - x))
        assert head + tail <= 2 * x
    assert -math.log(1 - 0.8) > 1.6


def test_disagreement_needs_the_factor_two_in_the_logarithm():
    """Eq. (10) writes log(N/delta) where Lemma 2 gives log(2N/delta): with the former the proof's step does not follow."""
    phi, size, delta, n = 0.01, 2, 0.5, 10_000
    lemma_2 = 6 * phi**2 + 120 * math.log(2 * size / delta) / n  # what a survivor's E Y may be
    printed = 7 * phi**2 + 120 * math.log(size / delta) / n
    mended = 7 * phi**2 + 120 * math.log(2 * size / delta) / n
    assert lemma_2 + phi**2 > printed
    assert lemma_2 + phi**2 == pytest.approx(mended, rel=1e-12)


def test_the_union_bound_over_events_in_turn():
    """Eq. (13), over all triples of events on four equally likely outcomes; equality is reached."""
    outcomes = range(4)
    events = [set(c) for n in range(5) for c in itertools.combinations(outcomes, n)]
    rooms = []
    for chosen in itertools.product(events, repeat=3):
        union = Fraction(len(set().union(*chosen)), 4)
        bound, left = Fraction(len(chosen[0]), 4), set(outcomes) - chosen[0]
        for event in chosen[1:]:
            bound += Fraction(len(event & left), len(left)) if left else 0
            left = left - event
        rooms.append(bound - union)
    assert min(rooms) == 0
    assert max(rooms) == 1  # two of four, one of the two left, the last: 1/2 + 1/2 + 1 for a union of 1


def test_the_crude_bound_is_above_the_careful_one():
    """M H^2 n_2 searches of M H eliminations each, against M H^2 n_2 + M H eliminations: M H times as many, nearly."""
    for M, H in itertools.product((1, 3), (2, 5)):
        c = PaperConstants.of(horizon=H, n_actions=2, n_states=M, log_size=math.log(10), epsilon=0.1, delta=0.1)
        each = c.demand.n_train + c.n_actions * c.demand.n_test
        careful = c.max_demand_episodes - c.max_rounds * c.n_1
        crude = M * H**2 * c.n_2 * c.max_eliminations * each
        assert careful == (M * H**2 * c.n_2 + M * H) * each
        assert M * H / (1 + 1 / c.n_2) <= crude / careful <= M * H
