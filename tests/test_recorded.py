"""Episodes that were played before the run: free evidence for elimination, named in claim and certificate."""

import dataclasses
import json

import numpy as np
import pytest

import richobs
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidFile, InvalidInput
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.policies import Explore, Greedy, Uniform
from richobs.core.problem import episodes_digest
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners.betting import Tuning
from richobs.learners.betting.events import RecordedRead
from richobs.learners.betting.search import BettingSearch, _read_recorded
from richobs.learners.betting.survivors_product import ProductSurvivors
from richobs.learners.betting.values import Ranges, samples_of
from richobs.runs.session import run
from richobs.stats.shares import Share


@pytest.fixture(scope="module")
def problem():
    return richobs.make("lock/4,seed=3")


@pytest.fixture(scope="module")
def log(problem):
    """600 episodes that mostly follow the best policy."""
    best = Greedy(problem.functions.member(problem.optimal_function))
    return problem.env.play(Explore(best, 0.3, problem.n_actions), 600, np.random.default_rng(7))


class TestLearning:
    def test_recorded_episodes_refute_functions_before_anything_is_played(self, problem, log):
        outcome = richobs.learn(problem, learner="betting", episodes=log, seed=1)
        (read,) = [e for e in outcome.trace if isinstance(e, RecordedRead)]
        assert outcome.trace[0] is read
        assert (read.episodes, read.n) == (600, 0)
        assert read.log_size_after < read.log_size_before - 5
        assert outcome.episodes < richobs.learn(problem, learner="betting", seed=1).episodes
        assert problem.value(outcome.policy) == pytest.approx(problem.optimal_value)
        rests = {c.kind: c.n for c in outcome.claims}  # only elimination rests on them
        assert rests.pop("bets never refute Q*") == outcome.episodes + 600
        assert all(n <= outcome.episodes for n in rests.values())

    def test_wealth_is_that_of_the_same_batches_played(self, problem, log):
        engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger())
        tuning = Tuning(largest=4)
        search = BettingSearch(engine, problem.functions, 0.1, 1e-200, 0, nobody, tuning, log.part(0, 12))
        _read_recorded(search)
        space = ProductSurvivors(problem.functions, Share(0.395e-200), Ranges.plain(problem.functions))
        for t, first in enumerate((0, 4, 8), start=1):
            space.absorb(samples_of(log.part(first, first + 4)), t)
        member = problem.optimal_function
        assert search.survivors.log_wealth(member) == pytest.approx(space.log_wealth(member))
        assert search.batches == 3

    def test_the_claim_and_the_certificate_name_them(self, problem, log):
        given = dataclasses.replace(problem, recorded=log)
        outcome = richobs.learn(problem, learner="betting", episodes=[log.part(0, 200), log.part(200, 600)], seed=1)
        assert "600 recorded episodes are whole, independent, of this environment and not selected" in outcome.claim
        content = richobs.Certificate.of(outcome, given).content
        assert content["recorded"] == {"episodes": 600, "digest": episodes_digest(log), "used_for": "elimination"}
        assert richobs.Certificate.of(richobs.learn(problem, seed=1), problem).content["recorded"] is None

    def test_verify_needs_the_same_episodes(self, problem, log):
        given = dataclasses.replace(problem, recorded=log)
        certificate = richobs.Certificate.of(richobs.learn(given, learner="betting", seed=1), given)
        assert richobs.verify(certificate, given).agrees
        mirrored = Episodes(*([c[::-1] for c in column] for column in (log.observations, log.actions, log.rewards)))
        for recorded in (None, log.part(0, 599), mirrored):
            other = dataclasses.replace(problem, recorded=recorded)
            findings = {f.what: f.agrees for f in richobs.verify(certificate, other).findings}
            assert findings["recorded episodes"] is False

    def test_episodes_that_contradict_every_function_are_said(self, problem, log):
        paid = dataclasses.replace(log, rewards=[np.zeros(600), np.zeros(600), np.full(600, 0.9), np.zeros(600)])
        with pytest.raises(BrokenPromise, match="recorded episodes alone"):
            richobs.learn(problem, learner="betting", episodes=paid)

    def test_a_log_of_a_run_with_the_same_seed_is_not_drawn_again(self, problem):
        """Otherwise every recorded episode would count twice, the second time as a fresh one."""

        class Watched:
            horizon, n_actions, reward_range = problem.horizon, problem.n_actions, (0.0, 1.0)

            def __init__(self):
                self.log = []

            def play(self, policy, n, rng, levels=None):
                self.log.append(problem.env.play(policy, n, rng, levels))
                return self.log[-1]

        def draws(env):
            return {bits.tobytes() for part in env.log for bits in np.hstack(part.observations)}

        first, second, third = Watched(), Watched(), Watched()
        asked = {"seed": 3, "max_episodes": 60, "progress": False}
        richobs.learn(first, problem.functions, **asked)
        outcome = richobs.learn(second, problem.functions, episodes=first.log, **asked)
        assert len(draws(first)) > 20
        assert not draws(first) & draws(second)
        richobs.learn(third, problem.functions, episodes=first.log, **asked)
        assert draws(second) == draws(third)
        assert outcome.settings.seed == 3

    @pytest.mark.parametrize("learner", ["certified", "lsvee", "ucb-q"])
    def test_other_learners_refuse_them(self, log, learner):
        with pytest.raises(InvalidInput, match="cannot use recorded episodes"):
            richobs.learn(richobs.make("lock/4,seed=3"), learner=learner, episodes=log)

    def test_q_star_survives_a_log_chosen_by_its_own_past(self, problem):
        """The log's policy reacts to what was paid before: B1 holds for it too."""
        dropped = 0
        for seed in range(30):
            rng, parts = np.random.default_rng(seed), []
            share = 1.0
            for _ in range(12):
                best = Greedy(problem.functions.member(problem.optimal_function))
                parts.append(problem.env.play(Explore(best, share, problem.n_actions), 8, rng))
                share = 0.2 if parts[-1].returns.sum() == 0 else 1.0
            outcome = richobs.learn(problem, learner="betting", delta=0.5, episodes=parts, seed=seed, max_episodes=12)
            dropped += problem.optimal_value > outcome.upper + 1e-9
        assert dropped <= 12  # each with probability 0.5 * 0.345 at most: more in all has probability below 0.001


class TestChecks:
    def test_wrong_episodes_are_refused(self, problem, log):
        wrong = {
            "levels": dataclasses.replace(log, rewards=log.rewards[:2]),
            "action": dataclasses.replace(log, actions=[a + 9 for a in log.actions]),
            "reward": dataclasses.replace(log, rewards=[r + 1.0 for r in log.rewards]),
            "over at once": dataclasses.replace(
                log, rewards=[0 * r for r in log.rewards], ended=[np.ones(600, dtype=bool)] * 4
            ),
        }
        for episodes in wrong.values():
            with pytest.raises(InvalidInput, match="not of this environment, or not whole"):
                richobs.learn(problem, episodes=episodes)
        for nothing in ([], "log.npz", [1, 2]):
            with pytest.raises(InvalidInput, match="or a list of them"):
                richobs.learn(problem, episodes=nothing)
        wide = dataclasses.replace(log, observations=[np.hstack([x, x[:, :1]]) for x in log.observations])
        with pytest.raises(InvalidInput, match=r"at level 0 an observation there is \w+ of shape \(\d+,\), and"):
            richobs.learn(problem, episodes=wide)
        with pytest.raises(InvalidInput, match="a part of 300 of them is twice in the list"):
            richobs.learn(problem, episodes=[log.part(0, 300), log.part(300, 600), log.part(0, 300)])
        richobs.learn(problem, episodes=[log.part(0, 1)] * 9, max_episodes=12)  # equal episodes can come by chance
        with pytest.raises(InvalidInput, match="no episode"):
            richobs.learn(problem, episodes=log.part(0, 0))
        with pytest.raises(InvalidInput, match="do not fit each other"):
            richobs.learn(problem, episodes=[log, dataclasses.replace(log, rewards=log.rewards[:2])])


class TestFiles:
    def test_what_is_written_is_read(self, tmp_path, problem, log):
        ended = dataclasses.replace(log, ended=[np.zeros(600, dtype=bool)] * 4)
        for episodes in (log, ended):
            episodes.save(tmp_path / "log.npz")
            assert episodes_digest(richobs.Episodes.load(tmp_path / "log.npz")) == episodes_digest(episodes)
        assert episodes_digest(log) != episodes_digest(ended)

    def test_a_file_that_lost_a_byte_and_any_other_file_is_refused(self, tmp_path, log):
        log.save(tmp_path / "log.npz")
        whole = (tmp_path / "log.npz").read_bytes()
        np.savez(tmp_path / "other.npz", a=np.zeros(3))
        damaged = [whole[:lost] + whole[lost + 1 :] for lost in (0, 1, 449, len(whole) // 2, len(whole) - 1)]
        for body in (*damaged, b"nothing", (tmp_path / "other.npz").read_bytes()):
            (tmp_path / "log.npz").write_bytes(body)
            with pytest.raises(InvalidFile, match=r"does not hold episodes|episodes"):
                richobs.Episodes.load(tmp_path / "log.npz")

    def test_a_stored_run_keeps_them_and_refuses_others(self, tmp_path, problem, log):
        given = dataclasses.replace(problem, recorded=log)
        settings = Settings(learner="betting", seed=1)
        outcome = run(given, settings, out=tmp_path / "run")
        assert episodes_digest(richobs.Episodes.load(tmp_path / "run" / "recorded.npz")) == episodes_digest(log)
        again = run(given, settings, out=tmp_path / "run")
        assert again.episodes == outcome.episodes
        with pytest.raises(InvalidInput, match="recorded"):
            run(problem, settings, out=tmp_path / "run")

    def test_the_command_line_takes_them_resumes_and_verifies(self, tmp_path, monkeypatch, capsys, problem):
        from richobs.cli import main

        log = problem.env.play(Uniform(problem.n_actions), 100, np.random.default_rng(0))
        log.save(tmp_path / "log.npz")
        monkeypatch.chdir(tmp_path)
        common = ["--episodes", "log.npz", "--learner", "betting", "--out", "run", "--quiet"]
        assert main(["learn", "lock/4,seed=3", *common, "--max-episodes", "40"]) == 0
        assert main(["resume", "run", "--max-episodes", "4000", "--quiet"]) == 0
        assert "100 recorded episodes" in capsys.readouterr().out
        assert main(["verify", "run", "--json", "--quiet"]) == 0
        found = {f["what"] for f in json.loads(capsys.readouterr().out)["findings"]}
        assert "recorded episodes" in found
