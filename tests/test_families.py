"""Families: expressions, Taylor models against random points, and what a family refuses."""

import json
import math

import numpy as np
import pytest

import richobs
from richobs import Family, InvalidInput
from richobs.classes.expressions import Graph, Program
from richobs.classes.taylor import Taylor
from richobs.learners.families.search import assumption

TWO = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def bernoulli(p_of):
    """A family with one state and action, which pays 1 with a probability that is a function of theta."""
    return lambda theta: [[[(p_of(theta), 0, 1.0, True), (1 - p_of(theta), 0, 0.0, True)]]]


GROW = (
    lambda a, b, n: a + b * (n - 7.5),
    lambda a, b, n: a - b,
    lambda a, b, n: a * b,
    lambda a, b, n: a / (b * b + 0.5),
    lambda a, b, n: 1 / (-0.7 - abs(b)),
    lambda a, b, n: np.exp(-(a**2)),
    lambda a, b, n: np.log(a * a + 0.3),
    lambda a, b, n: np.sqrt(abs(a) + 0.1 * (n % 2)),
    lambda a, b, n: abs(a),
    lambda a, b, n: np.maximum(a, b),
    lambda a, b, n: np.minimum(a, b),
    lambda a, b, n: Family.phi(a),
    lambda a, b, n: a ** (2 + n % 3),
    lambda a, b, n: (a * a + 0.2) ** (n / 5 - 1.3),
    lambda a, b, n: Family.poisson(a * a, 4)[n % 5],
    lambda a, b, n: Family.binomial(5, np.minimum(abs(a), 1.0))[n % 6],
)


def grown(rng, graph, size):
    """Random expressions of three parameters, each from the ones before."""
    known = [graph.parameter(i) for i in range(3)]
    for _ in range(size):
        a, b = (known[int(i)] for i in rng.integers(len(known), size=2))
        known.append(GROW[int(rng.integers(len(GROW)))](a, b, int(rng.integers(16))))
    return known


@pytest.mark.parametrize("ball", [False, True])
def test_taylor_models_hold_every_point_of_their_cell(ball):
    """25 random programs of 40 expressions, 4 cells each of random sizes, 200 points of each cell."""
    rng = np.random.default_rng(1 + ball)
    useful = total = 0
    for _ in range(25):
        graph = Graph(3)
        program = Program(graph, [e.place for e in grown(rng, graph, 40)])
        for scale in (1.0, 0.1, 1e-2, 1e-4):
            centre = rng.normal(size=3)
            z = rng.uniform(-1, 1, size=(3, 200))
            z[:, :8] = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, 8)
            axes = scale * rng.normal(size=(3, 3)) if ball else np.diag(scale * rng.random(3))
            if ball:
                z /= np.maximum(np.linalg.norm(z, axis=0), 1e-9) / rng.choice([1.0, 0.5], size=200)
                model = program.over(Taylor.ellipsoid(centre, axes))
            else:
                model = program.over(Taylor.cells(centre[:, None], np.diag(axes)[:, None]))
            true = program.at(centre[:, None] + axes @ z)
            square = np.stack([z[i] * z[j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))])
            guess = model.c[:, 0, None] + model.g[:, :, 0].T @ z + model.m[:, :, 0].T @ square
            finite = np.isfinite(model.r[:, 0])
            slack = 1e-12 * np.abs(true[finite])
            assert (np.abs(true - guess)[finite] <= model.r[finite] + slack).all()
            assert (true[finite] <= model.high[finite] + slack).all()
            assert (true[finite] >= model.low[finite] - slack).all()
            total += scale < 0.1 and not ball
            useful += scale < 0.1 and not ball and bool((model.r[finite] < 1e-2).mean() > 0.5)
    assert useful >= 0.8 * total  # and they are not just wide


def test_the_remainder_is_of_third_order():
    graph = Graph(2)
    x, y = graph.parameter(0), graph.parameter(1)
    program = Program(graph, [e.place for e in (np.exp(x * y), Family.phi(x - y / 4), Family.poisson(x, 3)[3], x / y)])
    r = [program.over(Taylor.cells(np.array([[1.0], [2.0]]), np.full((2, 1), w))).r[:, 0] for w in (0.02, 0.01)]
    np.testing.assert_allclose(r[0] / r[1], 8, rtol=0.1)


def test_rounding_is_in_the_remainder():
    """A sum that cancels keeps the rounding of its terms."""
    graph = Graph(1)
    x = graph.parameter(0)
    one = np.exp(x) * np.exp(-x)
    program = Program(graph, [(one * 1e8 - 1e8).place])
    model = program.over(Taylor.cells(np.array([[0.0]]), np.array([[0.0]])))
    assert 4e-6 <= model.r[0, 0] < 1e-4  # 2.9e-6 of which are those of the two numbers 1e8
    assert abs(model.c[0, 0]) <= model.r[0, 0]


def test_equal_expressions_are_one_event_and_affine_ones_are_known():
    family = Family(
        lambda t: [
            [[(t["x"] / 2, 0, 1.0, False), (0.5 * t["x"], 1, 0.0, False), (1 - t["x"], 1, 1.0, True)]] * 2,
            [[(np.exp(-t["y"]), 0, 0.0, True), (1 - np.exp(-t["y"]), 0, 1.0, True)]] * 2,
        ],
        TWO,
        horizon=3,
        start=[0.25, 0.75],
    )
    # x/2, 1 - x, exp(-y), its complement, padding, and at the last level "pays 1", which is 1 - x/2.
    assert len(family.program.wanted) == 6
    assert family.program.is_affine.sum() == 4
    assert family.reward_range == (0.0, 3.0)
    model = family.at({"x": 0.4, "y": 0.5})
    np.testing.assert_allclose(model.probability[0, 0], [0.2, 0.6, 0.2])
    assert model.start.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_tables_sum_to_one(p):
    assert sum(Family.binomial(4, p)) == pytest.approx(1)
    assert Family.binomial(2, 0.5) == [0.25, 0.5, 0.25]
    law = Family.poisson(9 * p, 5)
    assert (len(law), sum(law)) == (6, pytest.approx(1))
    assert law[0] == pytest.approx(math.exp(-9 * p))
    assert Family.phi(0.0) == 0.5


REFUSED = {
    "empty box": (bernoulli(lambda t: t["x"]), {"x": (1, 0)}, "low < high"),
    "NaN": (bernoulli(lambda t: t["x"]), {"x": (0, math.nan)}, "finite numbers"),
    "no box": (bernoulli(lambda t: 0.5), {}, "theta names the unknown numbers"),
    "only lists": (bernoulli(lambda t: 0.5), {"x": [1, 2]}, "at least one"),
    "empty list": (bernoulli(lambda t: 0.5), {"x": []}, "empty list"),
    "leaves [0, 1]": (bernoulli(lambda t: 2 * t["x"]), {"x": (0, 1)}, r"at \{'x': 1.0\} the probabilities are -1, 2"),
    "infinite": (bernoulli(lambda t: 1 / t["x"]), {"x": (0, 1)}, r"at \{'x': 0.0\} the probabilities are -inf, inf"),
    "negative inside": (  # a dip of width 2e-6, which no random point hits
        bernoulli(lambda t: 10 * abs(t["x"] - 0.70471) - 1e-5),
        {"x": (0.69, 0.71)},
        r"probabilities are 1\S*, -\d",
    ),
    "no sum": (lambda t: [[[(t["x"], 0, 0.0, True)]]], {"x": (0, 1)}, "sum to"),
    "branch": (bernoulli(lambda t: t["x"] if t["x"] < 0.5 else 0.5), {"x": (0, 1)}, "cannot branch on it"),
    "math.exp": (bernoulli(lambda t: math.exp(-t["x"])), {"x": (0, 1)}, "asked for the value of"),
    "min": (bernoulli(lambda t: min(t["x"], 0.5)), {"x": (0, 1)}, "cannot branch on it"),
    "ufunc": (bernoulli(lambda t: np.tanh(t["x"])), {"x": (0, 1)}, "no numpy.tanh"),
    "reward": (lambda t: [[[(1.0, 0, t["x"], True)]]], {"x": (0, 1)}, "must not depend on parameters"),
    "infinite reward": (
        lambda t: [[[(t["x"], 0, math.inf, True), (1 - t["x"], 0, 0.0, True)]]],
        {"x": (0, 1)},
        "state 0, action 0: a reward must be finite",
    ),
    "close rewards": (  # the first is impossible at the centre of the box
        lambda t: [
            [[(np.maximum(t["x"] - 0.5, 0.0), 0, 0.0, True), (1 - np.maximum(t["x"] - 0.5, 0.0), 0, 1e-7, True)]]
        ],
        {"x": (0, 1)},
        "cannot be told apart",
    ),
    "next": (lambda t: [[[(1.0, 5, 0.0, False)]]], {"x": (0, 1)}, "next state"),
    "not lists": (lambda t: 3, {"x": (0, 1)}, r"outcomes \[s\]\[a\]"),
    "not the same": (
        bernoulli(lambda t: 0.5 if isinstance(t["x"], float) else t["x"]),
        {"x": (0, 1)},
        "other outcomes of state 0",
    ),
    "an array": (bernoulli(lambda t: (t["x"] * np.ones(2))[0]), {"x": (0, 1)}, "one at a time"),
    "not computed with": (  # a number of its own, in the place of the parameter
        bernoulli(lambda t: t["x"] * 0.4),
        {"x": (0, 1), "slip": (0, 1)},
        r"no probability depends on theta\['slip'\]",
    ),
    "no box but words": (bernoulli(lambda t: 0.5), {"x": "wide"}, r"must be \(low, high\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_families_are_refused_with_a_sentence(case):
    make, theta, words = REFUSED[case]
    with pytest.raises(InvalidInput, match=words) as refused:
        Family(make, theta, horizon=2)
    assert str(refused.value).endswith(".")


def test_what_is_kept_between_calls_is_refused():
    kept = []

    def make(t):
        kept.append(t["x"])
        return bernoulli(lambda _: kept[0] * t["x"])(t)

    for _ in range(2):
        with pytest.raises(InvalidInput, match="keep nothing between its calls"):
            Family(make, {"x": (0, 1)}, horizon=1)


def numbers_only(p):
    """Returns tables that cannot be computed with expressions: the odds of two actions, an item of a list the reward."""
    return lambda t: [[[(float(p(t)), 0, 1.0 + t["kind"], True), (1 - float(p(t)), 0, 0.0, True)]]]


def test_code_that_cannot_be_traced_may_be_declared_affine(tmp_path):
    theta = {"x": (0.1, 0.9), "y": (-1, 1), "kind": [0, 1]}
    family = Family(numbers_only(lambda t: 0.5 * t["x"] + 0.1 * t["y"] + 0.2), theta, horizon=2, affine=True)
    assert family.program.is_affine.all()
    np.testing.assert_allclose(family.at({"x": 0.6, "y": -0.5, "kind": 1}).probability, [[[0.55, 0.45]]])
    family.save(tmp_path / "f.npz")
    for told in (family, Family.load(tmp_path / "f.npz")):  # compared at some points alone, so every claim names it
        assert assumption(told).endswith("; its probabilities are affine in x and y")
    assert "affine" not in assumption(Family(bernoulli(lambda t: t["x"]), {"x": (0, 1)}, horizon=1))
    for p in (
        lambda t: t["x"] ** 2,
        lambda t: 0.5 + 0.1 * t["x"] * t["y"],
        lambda t: max(t["x"], 0.5),
        lambda t: max(0.3, 0.75 - 0.5 * t["x"] - 0.2 * t["y"]),  # one corner alone tells
    ):
        with pytest.raises(InvalidInput, match="state 0, action 0: probabilities are not affine in x, y"):
            Family(numbers_only(p), theta, horizon=2, affine=True)
    with pytest.raises(InvalidInput, match=r"asked for the value of.*Family\(affine=True\)"):
        Family(numbers_only(lambda t: t["x"]), theta, horizon=2)
    with pytest.raises(InvalidInput, match="number of states or actions changes with x"):
        Family(lambda t: [[[(1.0, 0, 0.0, True)]]] * (1 + (t["x"] > 0.5)), {"x": (0, 1)}, horizon=1, affine=True)


def test_a_family_is_no_list_of_functions():
    family = Family(bernoulli(lambda t: t["x"]), {"x": (0, 1)}, horizon=1)
    with pytest.raises(InvalidInput, match=r"Simulators\.grid\(family\.at"):
        family.values(0, np.zeros(1))
    with pytest.raises(InvalidInput, match="outside the box"):
        family.at({"x": 2.0})
    with pytest.raises(InvalidInput, match="has the parameters x"):
        family.at({"z": 0.5})
    with pytest.raises(InvalidInput, match="outcomes allow totals from 0 to 1"):
        Family(bernoulli(lambda t: t["x"]), {"x": (0, 1)}, horizon=1, reward_range=(0.0, 0.5))


def test_a_family_can_be_saved(tmp_path):
    family = Family(
        lambda t: [
            [
                [(p * t["x"], 0, float(k == t["kind"]), False) for k, p in enumerate(Family.poisson(t["y"], 2))]
                + [(1 - t["x"], 0, 0.0, True)]
            ]
        ],
        {**TWO, "kind": [0, 2]},
        horizon=4,
    )
    family.save(tmp_path / "f.npz")
    again = Family.load(tmp_path / "f.npz")
    assert again.digest == family.digest
    assert (again.names, again.horizon, again.n_structures) == (["x", "y"], 4, 2)
    point = np.array([0.3, 0.6])
    np.testing.assert_array_equal(again.model(1, point).probability, family.model(1, point).probability)
    other = Family(bernoulli(lambda t: t["x"]), {"x": (0, 1)}, horizon=4)
    assert other.digest != family.digest
    (tmp_path / "f.npz").write_bytes(b"no")
    with pytest.raises(richobs.errors.InvalidFile):
        Family.load(tmp_path / "f.npz")
    assert json.loads(json.dumps(family.log_size)) == family.log_size


def test_gymnasium_environments_make_families():
    family = Family.of_gymnasium("FrozenLake-v1", horizon=30, success_rate=(0.1, 0.9))
    assert (family.n_states, family.n_actions, family.program.is_affine.all()) == (16, 4, True)
    model = family.at({"success_rate": 1 / 3})
    import gymnasium

    theirs = richobs.Simulators([gymnasium.make("FrozenLake-v1")], 30).optimal_values()
    np.testing.assert_allclose(richobs.Simulators([model]).optimal_values(), theirs)
    with pytest.raises(InvalidInput, match="cannot be made with"):
        Family.of_gymnasium("FrozenLake-v1", horizon=30, no_such_thing=(0.1, 0.9))


def test_a_first_state_that_depends_on_an_argument_is_refused():
    gymnasium = pytest.importorskip("gymnasium")

    class Env(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(1)

        def __init__(self, x, moves):
            self.P = {s: {0: [(x, 0, 1.0, True), (1 - x, 1, 0.0, True)]} for s in range(2)}
            first = 0.5 + moves * (x - 0.5)
            self.initial_state_distrib = np.array([first, 1 - first])

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.s = int(self.np_random.choice(2, p=self.initial_state_distrib))
            return self.s, {}

        def step(self, action):
            p = self.P[self.s][0]
            _, self.s, reward, over = p[int(self.np_random.choice(2, p=[q for q, *_ in p]))]
            return self.s, reward, over, False, {}

    assert Family.of_gymnasium(Env, horizon=1, fixed={"moves": 0.0}, x=(0.2, 0.8)).names == ["x"]
    for moves in (1.0, 1e-5):
        with pytest.raises(InvalidInput, match="the law of the first state depends on x"):
            Family.of_gymnasium(Env, horizon=1, fixed={"moves": moves}, x=(0.2, 0.8))
