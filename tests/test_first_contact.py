"""The commonest first mistakes get the hint that they need."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
import subprocess
import sys
import types

import gymnasium
import numpy as np
import pytest
from rich.console import Console

import richobs
from richobs.classes.model_arrays import merged_rewards
from richobs.cli import doctor
from richobs.cli.main import main
from richobs.core.process import Codebook
from richobs.show import terminal

LAKE, CART, LOCK = gymnasium.make("FrozenLake-v1"), gymnasium.make("CartPole-v1"), richobs.make("lock/3")
CLASS = richobs.Tables([np.zeros((2, 16, 4))] * 3)


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        (lambda: richobs.learn(LAKE, CLASS), r"from_gymnasium\(env, horizon=3, reward_range=\(smallest"),
        (lambda: richobs.learn("FrozenLake-v1"), "without a function class: give learn"),
        (lambda: richobs.learn("FrozenLake", CLASS), r"richobs.from_gymnasium\(id, ...\) a Gymnasium one"),
        (lambda: richobs.learn(LAKE, 3), "a function class is needed; a int arrived"),
        (lambda: richobs.learn(LOCK.env, [LAKE]), r"a list arrived. richobs.Simulators makes one .*docs/classes.md"),
        (lambda: richobs.Simulators([CART], 5), r"Model.of_lists, .*Model.by_replay"),
        (
            lambda: richobs.Family(lambda theta: theta["slip"], theta={"wind": (0, 1)}, horizon=3),
            r"make asks for theta\['slip'\], and theta names wind. Give its ends, theta=\{'slip': \(low",
        ),
        (
            lambda: richobs.Family.of_gymnasium("FrozenLake-v1", horizon=3, desc=["SG"], success_rate=(0, 1)),
            r"Unknown: desc=\(low, high\). Known: fixed=\{'desc': ...\}",
        ),
        (lambda: richobs.certify_policy("CartPole-v1", max, threshold=9), r"gymnasium.make\(id\) or richobs.make\(id"),
        (lambda: richobs.certify_policy(CART, max, threshold=9), "v1 does not declare what an .*give reward_range"),
        (lambda: richobs.certify_policy(CART, max, measure=len, threshold=9), r"lie in \[0, 1\].* as reward_range="),
        (lambda: richobs.Problem(LAKE, CLASS), r"from_gymnasium\(env, horizon=100, reward_r"),
        (lambda: Codebook(np.array([[0.5], [1.5]])).encode(np.array([[1.0]])), "2 that are known. Models .*: add it"),
        (lambda: richobs.make("CartPole-v1"), "write gym:CartPole-v1, or use richobs.from_gymnasium"),
        (lambda: richobs.make("lokc"), "Did you mean 'lock'?"),
        (lambda: richobs.make("lock/5", noise_bit=3), "Did you mean 'noise_bits'?"),
        (lambda: richobs.learn(LOCK, learner="beting"), "Did you mean 'betting'?"),
        (lambda: richobs.learn(LOCK, treshold=0.2), "Did you mean 'threshold'?"),
    ],
)
def test_a_mistake_gets_the_hint_that_it_needs(mistake, hint):
    with pytest.raises(richobs.InvalidInput, match=hint):
        mistake()


def test_what_is_known_is_given_as_it_is():
    ends = {"success_rate": (0.1, 0.9), "horizon": 6}
    plain = richobs.Family.of_gymnasium("FrozenLake-v1", map_name="8x8", **ends)
    assert plain.digest == richobs.Family.of_gymnasium("FrozenLake-v1", fixed={"map_name": "8x8"}, **ends).digest
    two = [[[(1.0, 1, 0.0, False)]], [[(1.0, 1, 0.5, True)]]]
    for start in (1, [0.0, 1.0]):
        assert richobs.Simulators([richobs.Model.of_lists(two, 2, start)]).optimal_values().tolist() == [0.5]
    np.testing.assert_array_equal(richobs.Model.of_lists(two, 2).start, [1, 0])
    np.testing.assert_array_equal(
        richobs.Model.of_arrays(np.eye(2)[:, None], np.zeros((2, 1)), 2, start=1).start, [0, 1]
    )
    with pytest.raises(TypeError, match=r"of_lists\(\) missing 2 .*outcomes.*See help\(Model.of_lists\)"):
        richobs.Model.of_lists()


def test_learn_takes_a_gymnasium_environment_where_the_class_knows_its_range():
    family = richobs.Family.of_gymnasium("FrozenLake-v1", success_rate=(0.1, 0.9), horizon=6)
    declared = richobs.from_gymnasium("FrozenLake-v1", horizon=6, reward_range=family.reward_range)
    few = {"epsilon": 0.5, "max_episodes": 16}
    assert richobs.learn("FrozenLake-v1", family, **few).claim == richobs.learn(declared, family, **few).claim
    assert "the given simulator" in richobs.learn(gymnasium.make("FrozenLake-v1"), family, **few).claim
    assert richobs.plan("FrozenLake-v1", family).title


def test_the_command_line_trusts_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = "import gymnasium, richobs\n"
    made += (
        "def two(env): return richobs.Simulators([gymnasium.make('FrozenLake-v1', is_slippery=s) for s in (0, 1)], 8)\n"
    )
    (tmp_path / "two_lakes.py").write_text(made)
    lake = ["learn", "gym:FrozenLake-v1?horizon=8&reward_range=0,1&functions=two_lakes:two&is_slippery=False"]
    assert main([*lake, "--assume", "model", "--quiet"]) == 0
    assert "the real system is one of the 2 models" in " ".join(capsys.readouterr().out.split())
    assert main(["learn", "lock/3", "--assume", "model", "--learner", "lsvee"]) != 0


def test_rewards_that_differ_by_rounding_are_one():
    model = richobs.Model.of_lists(
        [[[(0.5, 0, 0.3, False), (0.5, 1, 0.1 + 0.2, False)]], [[(1.0, 1, 0.0, True)]]], 2, [1, 0]
    )
    merged = richobs.Simulators([model]).models.reward
    assert sorted({float(r) for r in merged.ravel()}) == [0.0, 0.3]
    ladder = np.arange(300) * 9e-13  # each within rounding of the next, the ends not of each other
    np.testing.assert_array_equal(merged_rewards(ladder), ladder)


def test_replays_may_round_a_reward_in_two_ways():
    class Rounding(gymnasium.Env):
        action_space, observation_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(1)
        played = 0

        def reset(self, *, seed=None, options=None):
            self.played += 1
            return 0, {}

        def step(self, action):
            return 0, 0.3 if self.played % 2 else 0.1 + 0.2, True, False, {}

    assert richobs.Model.by_replay(Rounding(), 1).reward.ravel()[0] == pytest.approx(0.3)


def test_answers_show_themselves_in_a_notebook():
    problem = richobs.make("lock/3")
    outcome = richobs.learn(problem)
    assert repr(outcome) == outcome.claim
    for shown in (outcome, richobs.Certificate.of(outcome, problem)):
        html = shown._repr_html_()
        assert html.count("<br>(1) the policy earns at least 0.") == 1
        assert html.count("<svg") == 1
        assert f'<td style="text-align:left">{outcome.episodes}</td>' in html
    assert "worst case" in richobs.plan(problem)._repr_html_()
    nothing = richobs.learn(problem, learner="pcid")  # claims nothing
    assert "<svg" not in nothing._repr_html_()


def test_signatures_fit_on_a_screen():
    for name in richobs.__all__:
        thing = getattr(richobs, name)
        methods = [m for m in vars(thing).values() if inspect.isfunction(m)] if isinstance(thing, type) else []
        for called in [thing, *methods]:
            if inspect.isfunction(called) or dataclasses.is_dataclass(called):
                assert len(str(inspect.signature(called))) < 1000, called


def test_workers_say_at_once_that_they_cannot_import_from_a_notebook():
    script = """
import numpy as np, richobs
class Env:
    horizon, n_actions, reward_range, declared = 1, 2, (0.0, 1.0), richobs.Declared(replayable=True)
    def play(self, policy, n, rng, levels=None):
        x = np.zeros(n, int)
        a = np.asarray(policy.actions(0, x, rng))
        return richobs.Episodes((x,), (a,), ((rng.random(n) < np.array([0.3, 0.6])[a]).astype(float),))
print(richobs.learn(Env(), richobs.Tables([np.array([[[0.3, 0.6]], [[0.6, 0.3]]])]), workers=2).episodes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "workers cannot import Env from a notebook or a console (write it to a file" in done.stderr
    assert int(done.stdout) > 0


def test_who_waits_is_told_how_far_it_is(monkeypatch):
    """Replaying, planning and verifying, on a terminal; only what is outermost is shown."""
    said = []

    @contextlib.contextmanager
    def status(self, what):
        yield types.SimpleNamespace(update=said.append)

    monkeypatch.setattr(terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(terminal, "can_draw", lambda console: True)
    monkeypatch.setattr(terminal, "PATIENCE", -1.0)
    monkeypatch.setattr(Console, "status", status)
    lake = gymnasium.make("FrozenLake-v1", desc=["SF", "FG"], is_slippery=False)
    functions = richobs.Simulators.grid(lambda theta: richobs.Model.by_replay(lake, 2), [0, 1])
    assert said == ["making models: 1 of 2", "making models: 2 of 2", "planning in models: 1 of 1"]
    richobs.Model.by_replay(lake, 1)
    assert said[3] == "replaying the environment, states: 1 of 1"
    problem = richobs.make("lock/3")
    certificate = richobs.Certificate.of(richobs.learn(problem, progress=False), problem)
    assert richobs.verify(certificate, problem).agrees
    n = certificate.content["result"]["episodes"]
    assert said[-1] == f"verifying, episodes: {n} of {n}"
    assert functions.n_models == 1
    assert terminal.WAITING == []


def test_verify_and_show_offer_the_last_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["verify"]) == 2
    assert "there is no certificate below runs" in capsys.readouterr().err
    for world in ("lock/2", "lock/3"):
        assert main(["learn", world, "--quiet"]) == 0
    os.utime("runs/lock-2/certificate.json", (1, 1))
    assert main(["verify", "--quiet"]) == 0
    assert "the last certificate here: runs/lock-3/certificate.json" in capsys.readouterr().err
    assert main(["show"]) == 0
    assert "the last one: richobs show runs/lock-3" in capsys.readouterr().out


def test_doctor_names_every_missing_package_of_an_extra(monkeypatch):
    monkeypatch.setattr(doctor, "problem_of", lambda each: f"{each.name} is not installed")
    problem = doctor.examined(pathlib.Path("runs"))["extras"]["bsuite"]["problem"]
    assert problem == "bsuite is not installed; shimmy is not installed"
