"""A betting run as it is shown: its candidates, what its events draw, the terminal, and what similar worlds needed."""

import dataclasses
import io
import json
import math
import re

import pytest
from rich.console import Console

import richobs
from richobs.core.events import ChartKind, Progress
from richobs.core.settings import Settings
from richobs.learners import learner
from richobs.learners.base import Measured, measured, read_measured, write_measured
from richobs.learners.betting.events import AgreementTested, AverageRefuted, BatchPlayed, CandidateDrawn, ClaimClosed
from richobs.show import page, write_report
from richobs.show.chart import log_chart, log_ticks, series
from richobs.show.page import RunView
from richobs.show.summary import summary
from richobs.show.terminal import Watch
from richobs.show.tree import Candidates
from runs import cut_short, stored

PHASE = {"phase": "betting", "log_size_before": 9.0, "log_size_after": 9.0}


def became(candidate):
    return f"{candidate.fate}: {candidate.why}" if candidate.why else candidate.fate


def drawn(behind=None):
    return CandidateDrawn(**PHASE, played_before=False, behind=behind, allowed=2.0)


def batch(number, wealth, n=4, earned=0.25, living=(8, 4)):
    told = {"drawn": number, "living": living, "wealth": wealth, "limit": math.log(100)}
    return BatchPlayed(**PHASE, n=n, refuted=1, earned=earned, promised=0.5, **told)


def agreement(log_wealth):
    return AgreementTested(**PHASE, at=1, log_wealth=log_wealth, needed=5.0, agreed=log_wealth >= 5, rests_on=8)


def closed(by="agreement", drawn=0):
    return ClaimClosed(**PHASE, by=by, gap=0.1, epsilon=0.1, drawn=drawn)


def told(*events):
    """The events one after the other, with the episodes that they take."""
    steps, episodes = [], 0
    for event in events:
        episodes += event.n
        steps.append(Progress(event, episodes, 0.5, 0.25))
    return steps


HISTORY = told(
    drawn(),
    batch(1, (0.0, -1.0), earned=0.0),
    drawn(behind=12.5),
    batch(2, (3.0, 1.0)),
    batch(2, (), n=8),
    drawn(),
    batch(3, (1.0, 2.0)),
    AverageRefuted(**PHASE, at=1, error=0.2),
    drawn(),
    batch(1, (0.5, -2.0), earned=0.5, living=(2, 1)),
    agreement(1.0),
    batch(1, (0.25, -3.0), n=8, earned=0.5, living=(2, 1)),
    agreement(5.5),
    closed(),
)


@pytest.fixture(scope="module")
def run():
    return stored("lock/3,noise_bits=2", learner="betting")


class TestCandidates:
    def test_what_became_of_each(self):
        found = Candidates.of(HISTORY)
        assert [(c.number, c.episodes, c.batches, c.earned, became(c)) for c in found.known.values()] == [
            (1, 16, 3, 0.375, "certified: all survivors agree with the policy closely enough"),
            (2, 12, 2, 0.25, "refuted: bets on its errors won"),
            (3, 4, 1, 0.25, "refuted: it errs at level 1 by 0.2 on average"),
        ]
        assert found.fates == "3 played: 2 refuted, 1 certified"

    def test_one_that_is_replaced_says_why_until_it_is_played_again(self):
        found = Candidates.of(HISTORY[:4])
        assert became(found.known[1]) == "replaced: another survivor fits better by 12.5 nats"
        assert became(found.known[2]) == "in play"
        assert found.fates == "2 played: 1 replaced, 1 in play"
        assert became(Candidates.of(HISTORY[:10]).known[1]) == "in play"

    def test_a_refuted_candidate_is_not_certified_by_the_last_survivor(self):
        found = Candidates.of(told(drawn(), batch(1, ()), closed("one survivor")))
        assert found.known[1].fate == "refuted"
        assert found.fates == "1 played: 1 refuted; then another was certified: its function is the only survivor"

    @pytest.mark.parametrize(
        ("first", "fates"),
        [
            ((), "2 played: 1 refuted, 1 in play; then another was certified: "),
            ((1.0,), "2 played: 1 certified, 1 in play"),
        ],
    )
    def test_an_ally_is_certified_and_not_the_candidate_played_last(self, first, fates):
        found = Candidates.of(told(drawn(), batch(1, first), drawn(3.0), batch(2, (1.0,)), closed(drawn=1)))
        assert found.known[1].fate == ("certified" if first else "refuted")
        assert (found.known[2].fate, found.known[2].batches, found.current.number) == ("in play", 1, 2)
        assert found.fates.startswith(fates)


class TestSeries:
    def test_curves_are_cut_where_candidates_change(self):
        living, wealth, agreed = series(HISTORY)
        assert wealth.curves[0] == [[(4, 0.0)], [(8, 3.0)], [(20, 1.0)], [(24, 0.5), (32, 0.25)]]
        assert wealth.largest == [[(4, 0.0)], [(8, 3.0)], [(20, 2.0)], [(24, 0.5), (32, 0.25)]]
        assert wealth.ended == [(16, math.log(100))]
        assert agreed.curves == [[[(24, 1.0), (32, 5.5)]]]
        assert agreed.limit == [(24, 5.0), (32, 5.0)]
        assert living.curves[1] == [[(x, math.log(n)) for x, n in ((4, 4), (8, 4), (16, 4), (20, 4), (24, 1), (32, 1))]]
        assert [one.title for one in (living, agreed)] == ["Living functions by level", "Agreement of all survivors"]

    def test_a_listed_class_has_one_curve_and_no_second_chart_of_survivors(self):
        (wealth,) = series(told(drawn(), batch(1, (0.5,), living=(7,))))
        assert wealth.title == "Wealth of bets on the candidate's errors"
        assert wealth.name(0) == ""


class TestCharts:
    @pytest.mark.parametrize(
        ("low", "high", "said"),
        [
            *((-1.9, 2.9, [-1, 0, 1, 2]), (-40.0, 3.0, [-40, -30, -20, -10, 0])),
            (0.0, 1.1, [0, math.log10(2), math.log10(5), 1]),
        ],
    )
    def test_ticks_are_round_numbers(self, low, high, said):
        assert log_ticks(low, high) == pytest.approx(said)

    def test_the_wealth_of_candidates(self):
        chart = log_chart(series(HISTORY)[1], 32.0)
        bands = [(0, 12.5, "1"), (12.5, 37.5, "2"), (50, 12.5, "3"), (62.5, 37.5, "1")]
        assert [(b.left, b.width, b.label) for b in chart.bands] == bands
        assert [(x.x, round(x.y)) for x in chart.crosses] == [(50, 95)]
        styles = ["level", "level", "largest", "dots level", "dots level", "dots largest", "limit at-right below"]
        assert [line.style for line in chart.lines] == styles
        assert chart.lines[-1].name == "refuted at 100"
        assert [line.mix for line in chart.lines[:3]] == [0, 100, None]
        assert chart.lines[0].path.count("M") == 1  # three candidates have one number each: dots, no line
        assert chart.lines[3].path.count("h0") == 5
        assert chart.head == ("level", "at first", "largest", "at the end")
        assert chart.rows == (("0", "1", "20.09", "1.284"), ("1", "0.3679", "7.389", "0.04979"))
        assert chart.summary == "At first 0.3679 to 1, at the end 0.04979 to 1.284 over 2 levels; refuted at 100."

    def test_levels_hold_their_value_until_it_changes(self):
        chart = log_chart(series(HISTORY)[0], 32.0)
        assert [line.path.count("L") for line in chart.lines] == [3, 3]  # one change each
        assert chart.bands == ()

    def test_numbers_beyond_floating_point_are_written(self):
        kind = ChartKind("odd", "Odd", "", limit="needed")
        one = series(told(agreement(-2000.0)))[0]
        chart = log_chart(dataclasses.replace(one, kind=kind), 0.0)
        assert chart.summary == "At the end 10^-869; needed 148.4."
        assert chart.y_ticks[0].label == "10^-800"


class TestPage:
    def test_candidates_stand_where_others_have_a_tree(self, run):
        html = page.page([run])
        view = RunView(run, 1)
        assert "The search tree" not in html
        assert '<h2 id="run-1-candidates-h">The candidates</h2>' in html
        assert view.levels == []
        assert [c.title for c in view.drawn(by_candidate=True)][:1] == [
            "Wealth of bets on the candidate's errors by level"
        ]
        titles = ["Surviving functions (log10)", "Living functions by level", "The two bounds"]
        assert [c.title for c in view.charts] == titles
        data = json.loads(re.search(r'id="run-1-data">(.*?)</script>', html, re.DOTALL).group(1))
        assert sum(row[2] for row in data["candidates"]) == run.ledger.total
        assert [row[1] for row in data["candidates"]].count("certified") == 1
        assert {row[3] for row in data["tests"]} <= {"\u2013", "level 0", "level 1", "level 2"}

    def test_a_claim_that_is_narrower_than_the_bounds_says_so(self, run):
        assert run.certificate.content["result"]["reason"].startswith("all surviving functions agree")
        assert (
            "(2) is sharper than (1) because all surviving functions agree about this policy." in RunView(run, 1).claim
        )

    def test_figures_draw_the_charts_and_no_empty_tree(self, run, tmp_path):
        names = [file.name for file in write_report([run], tmp_path / "r.html")]
        assert names == ["r.html", "r-run-1.png", "r-run-1.svg", "r-charts-1.png", "r-charts-1.svg"]
        assert "wealth of bets on" in (tmp_path / "r-charts-1.svg").read_text()


class TestTerminal:
    def printed(self, shown):
        console = Console(file=io.StringIO(), width=200)
        console.print(shown)
        return " ".join(console.file.getvalue().split())

    def test_the_live_picture_tells_of_the_candidate_and_how_far_the_end_is(self):
        watch = Watch("lock/3", 20.0, None, Console(file=io.StringIO()), plain=False)
        for step in HISTORY[:11]:
            watch(step)
        said = self.printed(watch)
        assert "candidate 1, 8 episodes of its own, earned 0.25 of 0.5 promised" in said
        assert "candidates 3 played: 2 refuted, 1 in play" in said
        assert "outlook survivors disagree with the policy at level 1: a wealth of exp(1), and exp(5) is needed" in said
        assert "path" not in said
        for step in HISTORY[11:]:
            watch(step)
        assert "outlook all survivors agree" in self.printed(watch)
        watch(Progress(drawn(), 40))
        assert "outlook" not in self.printed(watch)

    def test_the_summary_counts_candidates_and_says_what_certified(self, run):
        said = self.printed(summary(run))
        assert re.search(r"candidates \d+ played: .*1 certified", said)
        assert "tried" not in said
        assert "stopped because all surviving functions agree" in said
        unfinished = self.printed(summary(cut_short(run, len(run.steps) - 1)))
        assert "1 in play" in unfinished
        assert "outlook all survivors agree" in unfinished


class TestPlan:
    def test_similar_worlds_come_first_and_the_nearest_of_them(self):
        problem = richobs.make("lock/5")
        plan = learner("betting").plan(problem, Settings(learner="betting"))
        rows = list(plan.rows())
        assert [row.section for row in rows] == [*["similar worlds needed"] * 3, "at the least", "worst case"]
        assert rows[0].name.startswith("lock/5")
        assert rows[3].value == 26
        assert plan.as_json()["similar"][0]["world"] == rows[0].name
        assert plan.max_episodes == rows[4].value > 10**9

    def test_every_world_that_was_measured_can_be_built(self):
        for package in ("richobs.learners.betting", "richobs_lab.certified"):
            for row in read_measured(package):
                least, median, most = row.episodes
                assert 0 < least <= median <= most
                if row.horizon <= 10:
                    problem = richobs.make(row.world)
                    assert (row.horizon, row.n_actions) == (problem.horizon, problem.n_actions)
                    assert row.log_size == pytest.approx(problem.functions.log_size, abs=0.01)

    def test_what_is_written_is_read(self, tmp_path, monkeypatch):
        problem = richobs.make("lock/3")
        row = measured(problem, "lock/3", 0.1, 0.05, [40, 10, 30, 21])
        size = round(problem.functions.log_size, 2)
        assert row == Measured("lock/3", 3, 4, size, 0.1, 0.05, 4, (10, 25, 40))
        (tmp_path / "some").mkdir()
        (tmp_path / "some" / "__init__.py").touch()
        write_measured([row, row, row._replace(world="other")], tmp_path / "some" / "measured.json")
        monkeypatch.syspath_prepend(tmp_path)
        assert read_measured("some") == [row, row._replace(world="other")]
