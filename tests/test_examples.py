"""The examples run, claim what is true, and are as short as the gallery says."""

import functools
import importlib
import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import richobs

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py") if file.stem != "pictures")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_what_it_needs_in_its_header_and_in_words(name):
    """The header is that of PEP 723, so `uv run examples/NAME.py` works without installing anything."""
    text = (EXAMPLES / f"{name}.py").read_text()
    header = re.match(r"# /// script\n((?:#.*\n)+?)# ///\n", text)
    assert header is not None
    said = tomllib.loads(header[1].replace("# ", ""))
    words = re.search(r"pip install '(richobs\[.*\])'", text)
    assert said["dependencies"] == [words[1] if words else "richobs"]
    assert said["tool"]["uv"]["sources"]["richobs"] == {"path": ".."}


@pytest.fixture
def example(monkeypatch):
    """Imports an example by its name; what it prints and draws is left to the test."""
    import matplotlib

    backend = matplotlib.get_backend()
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "argv", ["example"])
    yield importlib.import_module
    for name in (*NAMES, "pictures", "real", "measure", "linear"):
        sys.modules.pop(name, None)
    matplotlib.use(backend)


def assert_right(outcome, truth):
    """Every statement of a claim is true."""
    value = truth.value(outcome.policy)
    assert outcome.guaranteed
    assert outcome.lower <= value + 1e-9
    assert truth.optimum <= outcome.upper + 1e-9
    assert truth.optimum - value <= outcome.epsilon + 1e-9


@functools.cache
def candidates_of(name, **options):
    """The class of an example that was imported; it takes seconds to plan, so tests share it."""
    return sys.modules[name].candidates(**options)


def learned(example, name, epsilon, assume, env=None, **options):
    """Learns with an example, checks the claim, and returns the outcome."""
    made = example(name)
    env = made.environment() if env is None else env
    outcome = richobs.learn(env, candidates_of(name, **options), epsilon=epsilon, assume=assume)
    assert_right(outcome, example("real").truth_of(made, env))
    return outcome


def test_a_lake_with_16384_maps_prints_two_claims(example, capsys, monkeypatch):
    made = example("frozen_lake")
    known = candidates_of("frozen_lake")
    monkeypatch.setattr(made, "candidates", lambda: known)
    made.main()
    printed = capsys.readouterr().out
    assert "16,384 maps, 2,870 of which differ within 10 moves" in printed
    assert "ranges; the real system is one of the 2,870 models." in printed
    assert "; Q* is in the class" in printed


@pytest.mark.parametrize(
    ("name", "epsilon", "theta"),
    [
        ("unknown_ice", 0.05, {"success_rate": 1 / 3}),
        ("unknown_demand", 2.0, {"weekday": 2.2, "weekend": 4.1}),
        ("unknown_clicks", 0.1, {"first": 0.15, "second": 0.35, "patience": 0.8}),
    ],
)
def test_families_with_unknown_numbers(example, name, epsilon, theta):
    made = example(name)
    family = made.candidates()
    outcome = richobs.learn(made.environment(), family, epsilon=epsilon, progress=False)
    truth = richobs.Simulators([family.at(theta)])
    (best,), (value,) = truth.optimal_values(), truth.policy_values(outcome.policy)
    assert outcome.guaranteed
    assert best - value <= epsilon
    assert best <= outcome.upper + 1e-9
    assert outcome.lower <= value + 1e-9
    assert all(low <= theta[name] <= high for name, (low, high, _) in outcome.theta.items())


@pytest.mark.parametrize(
    ("name", "assume", "epsilon", "options", "episodes", "low", "high"),
    [
        ("frozen_lake", "values", 0.1, {}, 200, 0.0, 1.01),
        ("frozen_lake", "model", 0.1, {}, 30, 0.0, 1.01),
        ("slippery_lake", "model", 0.02, {"n_maps": 50}, 60, 0.0, 0.7),  # neither map nor slip is known
        ("slippery_lake", "values", 0.1, {"n_maps": 50}, 10**6, 0.0, 0.7),  # the optimum is 0.348
        ("cliff_walking", "values", 20.0, {"n": 20}, 10**6, -60.0, -5.0),  # in its own units: the optimum is -13
        ("cliff_walking", "model", 1.0, {"n": 20}, 10**6, -60.0, -5.0),
        ("taxi", "model", 1.0, {"chances": (0.8, 1.0)}, 60, -7.0, 20.0),
    ],
)
def test_claims_of_gymnasium_examples_are_true(example, name, assume, epsilon, options, episodes, low, high):
    pytest.importorskip("gymnasium", minversion="1.3")
    outcome = learned(example, name, epsilon, assume, **options)
    assert outcome.episodes <= episodes
    assert low <= outcome.lower <= outcome.upper <= high


@pytest.mark.parametrize(
    ("name", "gym", "options", "small"),
    [
        ("frozen_lake", "FrozenLake-v1", {"is_slippery": False}, {}),
        ("slippery_lake", "FrozenLake-v1", {}, {"n_maps": 50}),
        ("cliff_walking", "CliffWalking-v1", {}, {"n": 20}),
        ("taxi", "Taxi-v4", {"is_rainy": True}, {"chances": (0.8, 1.0)}),
    ],
)
def test_the_real_system_is_one_of_the_candidates(example, name, gym, options, small):
    """Some candidate holds what random actions show exactly as likely as the rules that Gymnasium publishes."""
    pytest.importorskip("gymnasium", minversion="1.3")
    made = example(name)
    env = made.environment()
    real = richobs.Simulators([richobs.Model.of_gymnasium(gymnasium.make(gym, **options), made.HORIZON)])
    played = env.play(richobs.Uniform(env.n_actions), 200, np.random.default_rng(0))
    likelihoods = candidates_of(name, **small).log_likelihood(played)
    exact = real.log_likelihood(played)[0]
    assert np.isfinite(exact)
    assert np.abs(likelihoods - exact).min() < 1e-9 * abs(exact) + 1e-9


def test_a_machine_whose_wear_is_unknown(example, monkeypatch):
    made = example("slow_simulator")
    monkeypatch.setattr(made, "SECONDS", 0)
    env = made.environment(vector=None)
    outcome = learned(example, "slow_simulator", 0.5, "model", env=env)
    assert outcome.episodes <= 200


def test_the_rows_of_a_sea_have_every_assignment_of_actions(example):
    row = example("deep_sea").row_class(2)
    tables = row.tables
    assert tables.shape == (8, 3, 2)
    assert len(np.unique(tables, axis=0)) == 8
    np.testing.assert_allclose(tables.max(axis=2), [[0, 0, 0.992]] * 8)  # 1 - 0.01 * 8 / 10 on the diagonal


def test_a_deep_sea(example):
    pytest.importorskip("bsuite")
    pytest.importorskip("shimmy")
    assert learned(example, "deep_sea", 0.1, "values").episodes <= 1000


def test_a_door_and_a_key_from_images(example):
    pytest.importorskip("minigrid")
    assert learned(example, "door_key", 0.01, "model").episodes <= 10


def test_freeway_from_ram(example):
    pytest.importorskip("ale_py")
    assert learned(example, "freeway", 0.1, "values", modes=(0,)).lower > 0.5


@pytest.mark.parametrize("listed", [True, False])
def test_features_of_a_network_are_certified_from_pixels(example, listed):
    """The tolerance covers what the network gets wrong, and claimed epsilon and bounds hold for the exact values."""
    made, linear = example("pixels"), example("linear")
    functions = made.candidates(listed=listed)
    truth, off = linear.pixels_truth(made, functions)
    outcome = richobs.learn(made.Robot(), functions, epsilon=0.4, tolerance=0.001, max_episodes=100_000)
    assert off <= 0.001
    assert outcome.epsilon == 0.4
    assert max(high - low for low, high in outcome.constants.f_range) <= 1  # F is no wider than the tolerance is for
    assert_right(outcome, SimpleNamespace(optimum=truth.optimal_value, value=truth.exact_value))
    if listed:
        assert linear.pixels_truth(made, made.candidates(sharp=1.0))[1] > 0.1  # as it was trained


def test_networks_of_a_training_are_certified(example):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("torch")
    made = example("cart_pole")
    functions = richobs.Networks(made.networks(2, every=500), made.HORIZON, 2, value_range=made.VALUES)
    reports = made.certified(functions, made.environment())
    assert len(reports) == 2
    assert all(report.delta == pytest.approx(0.025) and report.upper < 400 for report in reports)


def test_a_policy_of_stable_baselines3_is_certified(example):
    pytest.importorskip("stable_baselines3")
    _, check = example("certify_sb3").train(threshold=8.0, steps=9_000)
    assert check.certified
    assert "at least 8 per episode" in check.claim


def test_examples_are_short(example):
    lines = {name: example("real").code_lines(EXAMPLES / f"{name}.py") for name in NAMES}
    assert {name: n for name, n in lines.items() if not 10 <= n <= 40} == {}


def test_the_gallery_shows_every_example_and_the_measured_table(example):
    gallery = (ROOT / "docs/gallery.md").read_text()
    assert {name for name in NAMES if f"(../examples/{name}.py)" not in gallery} == set()
    rows = json.loads((ROOT / "benchmarks/results/real.json").read_text())["rows"]
    assert len(rows) >= 10
    assert all(row["wrong"] == 0 for row in rows)
    assert example("real").markdown([list(row.values()) for row in rows]) in gallery
