"""The arena: statistics of many runs, who can play where, what the judge sees, and what is written about it."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from richobs.cli import main
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.events import Progress
from richobs.core.policies import Greedy, OpenLoop
from richobs.core.settings import Settings
from richobs.learners import learner
from richobs.runs import session
from richobs.worlds.registry import make
from richobs_lab.arena import aggregates
from richobs_lab.arena import contest as arenas
from richobs_lab.arena.aggregates import bootstrap, growth_exponent, interquartile_estimate, interquartile_mean
from richobs_lab.arena.contest import Arena, ArenaRun, Judge, contestant, plan_arena, run_contest
from richobs_lab.arena.figures import spread
from richobs_lab.arena.page import ArenaView, Meeting, arena_plain, arena_table, write_arena
from richobs_lab.rivals.rival_events import RoundPlayed
from runs import Here

ROOT = Path(__file__).parents[1]


class TestAggregates:
    def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end(self):
        assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0])) == 2.5
        assert interquartile_mean(np.array([7.0, 1.0, 3.0])) == pytest.approx(
            11 / 3
        )  # a quarter of 3 is 0, rounded down
        assert interquartile_mean(np.array([9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 50.0])) == 3.5  # of 2, 3, 4 and 5
        assert interquartile_mean(np.array([1.0, 2.0, 4.0, math.inf])) == 3.0  # a run that never got there is infinite
        assert interquartile_mean(np.array([1.0, 2.0, math.inf, math.inf])) == math.inf
        with pytest.raises(InvalidInput, match="at least one value"):
            interquartile_mean(np.array([]))

    def test_an_interval_holds_the_middle_of_the_resamples(self):
        # Two values: a resample is (0, 0), (0, 1), (1, 0) or (1, 1), so the mean is 0, 1/2 or 1, each with at least 1/4.
        rng = np.random.default_rng(0)
        estimate = interquartile_estimate(np.array([0.0, 1.0]), rng, confidence=0.4)
        assert estimate == (0.5, 0.5, 0.5)
        assert interquartile_estimate(np.array([0.0, 1.0]), rng, confidence=0.8) == (0.5, 0.0, 1.0)
        assert interquartile_estimate(np.array([5.0] * 4), rng) == (5.0, 5.0, 5.0)
        wide = interquartile_estimate(np.array([1.0, 2.0, 3.0, 4.0, math.inf]), rng)
        assert wide.value == 3.0
        assert wide.high == math.inf

    def test_the_bootstrap_draws_within_strata(self):
        # Across strata a mean of 0 could occur; within them every resample has one 0 and one 10.
        strata = [np.array([0.0]), np.array([10.0])]
        rng = np.random.default_rng(0)
        assert bootstrap(strata, lambda s: float(np.mean([x.mean() for x in s])), rng, resamples=50) == (5.0, 5.0, 5.0)
        with pytest.raises(InvalidInput, match="every task"):
            bootstrap([np.array([])], lambda s: 0.0, np.random.default_rng(0))

    def test_a_profile_weighs_tasks_equally(self):
        strata = [np.array([10.0, 30.0]), np.array([20.0, 20.0, 20.0, math.inf])]
        np.testing.assert_allclose(
            aggregates.profile(strata, np.array([5.0, 10.0, 20.0, 30.0])), [0.0, 0.25, 0.625, 0.875]
        )
        low, high = aggregates.profile_band(strata, np.array([5.0, 20.0]), np.random.default_rng(0), resamples=200)
        assert (low[0], high[0]) == (0.0, 0.0)
        assert low[1] < 0.625 < high[1]

    def test_the_exponent_of_a_power_law(self):
        sizes = [5.0, 10.0, 20.0]
        quadratic = [np.full(4, 3 * h**2) for h in sizes]
        assert growth_exponent(sizes, quadratic) == pytest.approx(2.0)
        assert growth_exponent(sizes, [*quadratic[:2], np.full(4, math.inf)]) == pytest.approx(2.0)
        assert math.isnan(growth_exponent(sizes, [quadratic[0], *[np.full(4, math.inf)] * 2]))


class TestPlan:
    def test_who_cannot_play_is_absent_with_the_reason(self):
        contest = plan_arena(["lock/3"], ["betting", "rmax"], seeds=range(2), budget=500)
        runs = [f"world=lock,horizon=3,learner=betting,seed={seed}" for seed in (0, 1)]
        assert [cell.run for cell in contest.cells] == runs
        assert [cell.world for cell in contest.cells] == ["lock/3", "lock/3,seed=1"]  # another secret
        assert {cell.settings.max_episodes for cell in contest.cells} == {500}
        ((family, horizon, name, why),) = contest.arena.absent
        assert (family, horizon, name) == ("lock", 3, "rmax")
        assert "observations that are the states" in why

    def test_learners_without_a_stopping_rule_play_the_budget(self):
        contest = plan_arena(["mdp/2"], ["ucb-q", "latent-q", "rmax"], seeds=[0], budget=700)
        tuned = {cell.varied[2][1]: (cell.settings.tuning, cell.settings.max_episodes) for cell in contest.cells}
        assert tuned["ucb-q"] == (("episodes=700",), 700)
        assert tuned["latent-q"] == (("episodes=700",), 700)  # 500 H, or the budget where that is less
        assert tuned["rmax"] == ((), None)  # drawn as counts
        assert contest.arena.given["ucb-q"][-1] == "no stopping rule: plays the budget"
        assert contest.arena.silent == {"ucb-q", "latent-q"}

    def test_a_contestant_is_a_learner_with_its_tuning(self):
        tuned = contestant("pcid samples=40 least=2")
        assert (tuned.name, tuned.learner) == ("pcid samples=40 least=2", "pcid")
        assert tuned.tuning(make("lock/2"), 9) == ("samples=40", "least=2")
        assert tuned.given()[-1] == "tuned: samples=40, least=2"
        assert contestant("pcid-small").tuning(make("lock/5"), 9) == ("samples=40",)
        assert {"betting", "pcid", "pcid-small"} <= set(arenas.contestants())
        with pytest.raises(InvalidInput, match="no learner"):
            contestant("nobody")


def told(episodes, policy):
    event = RoundPlayed(phase="search", n=1, episodes=episodes, mean=0.0, what="")
    return Progress(event, episodes, policy=None if policy is None else lambda: policy)


class TestJudge:
    def setup_method(self):
        self.problem = make("lock/3")
        self.clock = lambda: 0.0
        self.good, self.bad = self.problem.optimal_policy(), OpenLoop((3, 3, 3))
        self.outcome = session.run(self.problem, Settings(epsilon=0.3))
        self.begun = ArenaRun("betting", "lock", 3, "lock/3", 0, None, "")

    @pytest.mark.parametrize(
        ("policies", "solved"), [("gbg-g", 30), ("b", None), ("", None)], ids=["good since 30", "bad before", "untold"]
    )
    def test_solved_for_good_is_since_the_last_bad_policy_or_at_the_end(self, policies, solved):
        judge = Judge(self.problem, 0.3, self.clock)
        for i, policy in enumerate(policies):
            judge.look(told(10 * (i + 1), {"g": self.good, "b": self.bad, "-": None}[policy]))
        found = judge.verdict(self.begun, self.outcome, learner("betting"))
        assert found.solved == (solved or self.outcome.episodes)
        assert (found.over_time, found.exact) == (bool(policies), True)
        assert (found.said, found.fate, found.is_false) == (self.outcome.episodes, arenas.SAID, False)
        assert found.gap == pytest.approx(0.0)

    def test_a_claim_wider_than_asked_is_none(self):
        found = Judge(self.problem, 0.1, self.clock).verdict(self.begun, self.outcome, learner("betting"))
        assert self.outcome.epsilon > 0.1
        assert (found.said, found.fate, found.is_false) == (None, arenas.SOLVED, False)

    @pytest.mark.parametrize(
        ("name", "guaranteed", "remarks", "fate"),
        [
            ("betting", True, (), arenas.FALSE),
            ("betting", False, (), arenas.NOTHING),
            ("pcid", False, (), arenas.SILENT),
            ("pcid", False, ("too many paths",), arenas.NOTHING),
            ("median-elimination", True, (), arenas.NOTHING),  # its claim is about the best action sequence
        ],
    )
    def test_what_a_failure_said(self, name, guaranteed, remarks, fate):
        failed = dataclasses.replace(self.outcome, policy=self.bad, guaranteed=guaranteed, remarks=remarks)
        judge = Judge(self.problem, 0.3, self.clock)
        judge.look(told(10, self.good))
        found = judge.verdict(self.begun, failed, learner(name))
        assert (found.fate, found.solved, found.gap) == (fate, None, 0.5)
        assert found.is_false is (True if fate == arenas.FALSE else None)
        assert found.said == (failed.episodes if fate == arenas.FALSE else None)

    def test_the_time_of_the_judge_is_not_the_learners_and_a_run_over_its_time_is_stopped(self):
        judge = Judge(self.problem, 0.1, iter([0.0, 5.0, 8.0, 9.0]).__next__)
        judge.look(told(10, self.good))  # from 5 to 8
        assert judge.cpu_seconds == 6.0
        with pytest.raises(arenas.RunStopped, match="more than 2 CPU seconds"):
            Judge(self.problem, 0.1, iter([0.0, 5.0, 8.0, 9.0]).__next__, seconds=2.0).look(told(10, None))

    @pytest.mark.parametrize(
        ("name", "policies", "fate", "solved"),
        [
            ("latent-q", "bgg", arenas.SOLVED, 20),  # it would have gone on for ever
            ("latent-q", "ggb", arenas.LATE, None),
            ("betting", "ggg", arenas.LATE, None),  # it has no answer
        ],
    )
    def test_where_the_time_is_up_the_last_policy_counts_without_a_stopping_rule(self, name, policies, fate, solved):
        judge = Judge(self.problem, 0.1, self.clock)
        for i, policy in enumerate(policies):
            judge.look(told(10 * (i + 1), self.good if policy == "g" else self.bad))
        found = judge.cut_off(self.begun, learner(name))
        assert (found.fate, found.solved, found.over_time, found.said) == (fate, solved, True, None)


def test_learners_tell_the_policy_they_would_answer_with():
    problem = make("lock/2")
    for name in ("betting", "certified", "latent-q", "eprl"):
        last = []
        settings = Settings(learner=name, epsilon=0.3, tuning=("episodes=100",) if name == "latent-q" else ())
        outcome = session.run(problem, settings, callback=lambda p, last=last: last.append(p.policy))
        assert last[-1] is not None, name
        assert isinstance(last[-1](), Greedy)
        assert problem.value(last[-1]()) == problem.value(outcome.policy)
        assert None in last or name != "betting"  # before the first candidate there is none


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena") / "small"
    contest = plan_arena(["lock/2", "lock/3"], ["betting", "pcid"], seeds=range(3), budget=5_000)
    done = arenas.run_arena(contest, folder, executor=Here())
    return contest, folder, done


class TestRuns:
    def test_every_cell_is_judged_and_kept(self, small):
        contest, folder, done = small
        assert len(done.runs) == len(contest.cells) == 12
        betting = [r for r in done.runs if r.contestant == "betting"]
        assert all(r.fate == arenas.SAID and r.over_time and 0 < r.solved <= r.said == r.episodes for r in betting)
        pcid = [r for r in done.runs if r.contestant == "pcid"]
        assert all(r.fate == arenas.SOLVED and not r.over_time and r.solved == r.episodes for r in pcid)
        assert all(r.memory > 2**20 and r.cpu_seconds > 0 for r in done.runs)
        assert Arena.read(folder / "arena.json") == done

    def test_a_run_that_stops_is_a_result(self, tmp_path):
        contest = plan_arena(["lock/3"], ["olive"], seeds=[0], budget=10)
        (cell,) = contest.cells
        asked = dataclasses.replace(cell.settings, engine="stream", max_episodes=10)
        result = run_contest(dataclasses.replace(cell, settings=asked), str(tmp_path / cell.run))
        kept = json.loads((tmp_path / cell.run / "arena.json").read_text())
        assert (result.state, kept["fate"], kept["solved"]) == ("finished", arenas.STOPPED, None)
        assert "episodes" in kept["message"]

    def test_a_run_between_two_looks_is_stopped_too(self, tmp_path):
        (cell,) = plan_arena(["lock/5,noise_bits=5"], ["eprl"], seeds=[0]).cells
        run_contest(cell, str(tmp_path / "run"), seconds=0.02)
        kept = json.loads((tmp_path / "run/arena.json").read_text())
        assert (kept["fate"], kept["solved"], kept["seconds"]) == (arenas.LATE, None, 0.02)
        assert "more than 0.02 CPU seconds" in kept["message"]

    @pytest.mark.parametrize(
        ("of_a_run", "change"),
        [
            *((True, c) for c in ({"horizon": "x"}, {"fate": "x"}, {"gap": math.nan}, {"seed": None}, {"more": 1})),
            *((False, c) for c in ({"runs": [3]}, {"epsilon": "x"}, {"budget": 1e400})),
            *((False, c) for c in ({"given": []}, {"absent": [[]]})),
        ],
    )
    def test_a_damaged_file_is_said(self, small, tmp_path, of_a_run, change):
        contest, folder, _ = small
        shutil.copytree(folder, tmp_path / "copy")
        file = tmp_path / "copy" / (contest.cells[0].run if of_a_run else ".") / "arena.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        with pytest.raises(InvalidFile, match="is damaged"):
            arenas.read_runs(contest, tmp_path / "copy") if of_a_run else Arena.read(file)

    @pytest.mark.parametrize("seconds", ["nan", "0"])
    def test_seconds_in_which_nothing_can_run_are_refused(self, tmp_path, capsys, seconds):
        asked = ["arena", "--worlds", "lock/2", "--learners", "betting", "--seeds", "1", "--out", str(tmp_path / "x")]
        assert main([*asked, f"--seconds={seconds}"]) == 2
        assert "more than 0 must be allowed" in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "x").exists()

    def test_of_two_runs_the_one_with_more_episodes_counts(self, small):
        *_, done = small
        one = done.runs[0]
        small_budget = dataclasses.replace(done, runs=(dataclasses.replace(one, budget=10, episodes=1),), budget=10)
        assert small_budget.merged(done).runs[0] == one
        assert done.merged(small_budget) == done
        with pytest.raises(InvalidInput, match="same epsilon"):
            done.merged(dataclasses.replace(done, epsilon=0.2))


def run_with(solved, *, fate=arenas.SOLVED, **more):
    return ArenaRun("x", "lock", 5, "lock/5", 0, 100, fate, solved=solved, memory=2**20, **more)


class TestShown:
    def test_a_meeting_in_numbers_and_words(self):
        runs = [run_with(10, said=20, is_false=False, over_time=True), run_with(30), run_with(20)]
        met = Meeting("x", ("lock", 5), (*runs, run_with(None, fate=arenas.SILENT)))
        assert met.solved.value == 25.0
        assert met.share == "3 of 4"
        assert (met.n_said, met.n_false, met.memory, met.failures) == (1, 0, 1.0, "1 silent")
        assert met.said.value == math.inf
        assert met.as_plain()["said_at"][0] is None

    def test_table_and_plain_values(self, small):
        *_, done = small
        view, plain = ArenaView(done), arena_plain(done)
        assert view.worlds == [("lock", 2), ("lock", 3)]
        found = [(r["learner"], r["solved"], r["false"]) for r in plain["results"]]
        assert found == [("betting", 3, 0), ("pcid", 3, 0)] * 2
        assert plain["growth"][1]["learner"] == "pcid"
        assert plain["growth"][1]["exponent"] == pytest.approx([1.0, 1.0, 1.0])  # 420 H episodes
        assert arena_table(done).row_count == 4

    def test_the_page_says_what_each_is_given(self, small, tmp_path):
        *_, done = small
        why = (("lock", 3, "pcid", "because <of> it"),)
        page, *files = write_arena(dataclasses.replace(done, absent=why), tmp_path)
        html = page.read_text()
        assert {file.name for file in files} >= {"arena-episodes.svg", "arena-cpu.png", "arena-profiles.svg"}
        assert "number of states; tuned sample size" in html
        assert "because &lt;of&gt; it" in html
        assert html.count("<svg") == 3

    def test_the_command_lists_who_cannot_play(self, capsys):
        assert main(["arena", "--worlds", "lock/3", "--learners", "rmax,betting", "--seeds", "2", "--list"]) == 0
        printed = capsys.readouterr().out
        assert "2 runs" in printed
        assert "rmax is not on lock, H = 3" in printed
        assert "lock: lock/3\n" in printed
        assert "deep-sea" not in printed  # no other family was asked for

    def test_names_beside_curves_do_not_cover_each_other(self):
        assert spread([0.1, 0.5, 0.9], 0.1, 0.0, 1.0) == [0.1, 0.5, 0.9]
        assert spread([0.5, 0.5, 0.5], 0.25, 0.0, 1.0) == [0.5, 0.75, 1.0]
        assert spread([0.9, 0.95, 1.0], 0.25, 0.0, 1.0) == [0.5, 0.75, 1.0]  # pushed down from the top
        assert spread([0.0, 0.0, 0.0], 0.6, 0.0, 1.0) == [0.0, 0.5, 1.0]  # too little room


def test_the_stored_results_hold_what_the_document_says():
    stored = Arena.read(ROOT / "benchmarks/results/arena.json")
    assert {"betting", "certified", "pcid", "ppe", "homer", "latent-q"} <= {run.contestant for run in stored.runs}
    assert not any(run.is_false for run in stored.runs if run.contestant in ("betting", "certified"))
    view, document = ArenaView(stored), (ROOT / "docs/laboratory.md").read_text()
    short = view.meetings["betting", ("lock-bernoulli", 5)]
    assert f"| `betting` | {round(short.solved.value)}, said at {round(short.said.value)} |" in document
    assert f"{len(stored.runs):,} runs in all." in document


def test_the_document_shows_the_authors_pcid_beside_the_rewrite():
    document = (ROOT / "docs/laboratory.md").read_text()
    rows = json.loads((ROOT / "benchmarks/results/authors_pcid.json").read_text())["rows"]
    for H in (5, 10, 20, 50):
        told = [f"{row['episodes']:,}, {row['CPU seconds']:.2g}" for row in rows if row["H"] == H]
        samples = next(row["sample size"] for row in rows if row["H"] == H)
        assert len(told) == 4
        assert f"| {H} | {samples} | {' | '.join(told)} |" in document


def test_rivals_need_as_many_episodes_as_was_published():
    document = (ROOT / "docs/laboratory.md").read_text()
    rows = json.loads((ROOT / "benchmarks/results/published.json").read_text())["rows"]
    assert {row["learner"] for row in rows} == {"pcid", "latent-q", "ppe"}
    for row in rows:
        assert 1 / 1.5 <= row["episodes"] / row["published"] <= 1.5, row
        assert f"| {row['published']:,} | {row['episodes']:,} | {row['episodes / published']:.2f} |" in document


def test_worlds_that_nobody_can_play_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["arena", "--worlds", "nosuch", "--learners", "betting", "--seeds", "1"]) == 2
    assert main(["arena", "--worlds", "nosuch", "--learners", "betting", "--list"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no learner can play any of these worlds" in said
    assert "separated by spaces" in said
    assert not list(tmp_path.iterdir())
