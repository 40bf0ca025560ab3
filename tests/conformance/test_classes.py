"""What every class of functions keeps, whoever wrote it: one suite over all that can be written, and over Python code.

A new class gets one line in EXAMPLES; a class registered without one fails here.
"""

import itertools
import math
from importlib import util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from richobs.classes import (
    CODECS,
    CallableLevel,
    Chosen,
    Constants,
    Decoders,
    Layered,
    LearnedPolicy,
    LevelClass,
    LinearLevel,
    Listed,
    Model,
    NetworkLevel,
    Simulators,
    TableLevel,
    base,
)
from richobs.classes.base import digest_of, from_arrays, to_arrays
from richobs.core.errors import InvalidInput
from richobs.core.moments import Batch, Moments
from richobs.core.process import Codebook
from richobs.core.types import Floats, Observations
from richobs_lab.prototypes import Prototypes
from richobs_lab.rivals.embeddings import Embedding, Embeddings, Features

ROOT = Path(__file__).parents[2]
VALUES = np.array([0.0, 0.25, 0.25, 0.5, 0.9, 1.0])  # few, so that functions agree here and there
TABLES = np.random.default_rng(0).choice(VALUES, (7, 8, 3))
BITS = np.array(list(itertools.product([0, 1], repeat=3)))
POINTS = np.random.default_rng(1).normal(0, 1, (25, 3))
TURN = np.eye(3)[[2, 0, 1]]
WORTH = np.array([[0.5, 0.25, 0.0], [0.0, 0.75, 0.5], [0.25, 0.0, 1.0]])
SLOPES = np.random.default_rng(2).normal(0.1, 0.2, (4, 3, 4))
WORDS = np.array(["up", "down", "left", "right", "in", "out", "back", "forth"])


class Example(NamedTuple):
    """A class, and observations that show all that its functions can do."""

    functions: LevelClass
    x: Observations
    rotation: Floats | None = None  # that `reads` is asked about
    rounding: float = 0.0  # by how much values may differ between two batches


MODELS = Simulators.grid(lambda p: Model.of_arrays([[[p, 1 - p]] * 3] * 2, -WORTH[:2], 3), [0.25, 0.5, 1.0])
EXAMPLES = {
    "table": Example(TableLevel(TABLES), np.arange(8)),
    "table of bits": Example(TableLevel(TABLES, Codebook(BITS)), BITS),
    "table of words": Example(TableLevel(TABLES, Codebook(WORDS)), WORDS),
    "decoders": Example(Decoders(3, WORTH), BITS),
    "decoders of many coordinates": Example(
        Decoders(12, WORTH), np.random.default_rng(0).integers(0, 2, (20, 12)).astype(float)
    ),
    "decoders of few values": Example(Decoders(3, [[0.25, 0.5], [0.25, 0.0], [0.0, 0.25]]), BITS),
    "rotated decoders": Example(Decoders(3, WORTH, rotation=TURN), BITS @ TURN.T, TURN),
    "prototypes": Example(
        Prototypes(POINTS[:4].reshape(2, 2, 3), np.array([0, 1, 1, 0, 1]), TABLES[:5, :2]), np.sign(POINTS)
    ),
    "embeddings": Example(
        Embeddings(Embedding(Features.of(POINTS), SLOPES[0].T), SLOPES[1:3, 0, :3], TABLES[:4, :2]), POINTS
    ),
    "embeddings of words": Example(
        Embeddings(Embedding(Features.of(WORDS[:6]), POINTS[:4, :2], POINTS[5:12]), np.eye(2), TABLES[:3, :2]),
        WORDS,
    ),
    "constants": Example(Constants(TABLES[:, 0]), BITS),
    "callables": Example(
        CallableLevel([lambda h, x: WORTH[x[:, 0]] * 0.5, lambda h, x: WORTH[x[:, 1]] / (h + 1)], 2, 3), BITS
    ),
    "chosen table": Example(Chosen(TableLevel(TABLES), np.array([5, 0, 5, 2])), np.arange(8)),
    "chosen decoders": Example(Chosen(Decoders(3, WORTH), np.array([50, 3, 3])), BITS),
    "table in other units": Example(TableLevel(9 * TABLES - 7, value_range=(-7.0, 2.0)), np.arange(8)),
    "table in single precision": Example(TableLevel(TABLES.astype(np.float32)), np.arange(8)),
    "table of simulators": Example(MODELS.levels[0], np.arange(2)),
    "linear": Example(LinearLevel("affine", SLOPES), POINTS, rounding=1e-14),
    "linear, both cut": Example(
        LinearLevel("identity", SLOPES[:, :, 1:], value_range=(-0.5, 0.25)), POINTS, None, 1e-14
    ),
    "linear with features": Example(
        LinearLevel(lambda h, x: WORTH[x][:, :, None] * [1.0, 0.5], [[0.5, 0.5], [0.0, 1.0]], n_actions=3), np.arange(3)
    ),
    "chosen linear": Example(Chosen(LinearLevel("affine", SLOPES), np.array([2, 2, 0])), POINTS, rounding=1e-14),
    "chosen callables": Example(Chosen(CallableLevel([lambda h, x: WORTH[x]], 0, 3), np.array([0, 0])), np.arange(3)),
}


if util.find_spec("torch") is not None:
    from torch import manual_seed, nn

    manual_seed(0)
    NETS = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(3)]
    EXAMPLES["networks"] = Example(NetworkLevel(NETS, 3), POINTS, rounding=1e-13)
NEED_TORCH = {"networks"}


def some_members(functions: LevelClass, seed: int = 0):
    """Members in no order, one of them twice."""
    return np.random.default_rng(seed).choice(functions.size, 2 * functions.size)


def check_values(example: Example):
    functions, x, _, rounding = example
    values = functions.values(x)
    low, high = functions.value_range
    assert values.shape == (functions.size, len(x), functions.n_actions)
    assert values.dtype == np.float64
    assert values.min() >= low
    assert values.max() <= high
    members = some_members(functions)
    np.testing.assert_allclose(functions.values(x, members), values[members], rtol=0, atol=rounding)
    assert functions.values(x, members[:0]).shape == (0, len(x), functions.n_actions)
    for wrong in (-1, functions.size):
        with pytest.raises(InvalidInput, match=f"functions 0 to {functions.size - 1}"):
            functions.values(x, np.array([wrong]))


def check_kinds(example: Example):
    """Members of a group have the same values of the action, and the same largest values."""
    functions, x, _, rounding = example
    members = some_members(functions)
    for action in range(functions.n_actions):
        some, group = functions.kinds(members, action)
        assert set(some.tolist()) <= set(members.tolist())
        assert group.shape == members.shape
        assert set(group.tolist()) == set(range(len(some)))
        mine, theirs = functions.values(x, members), functions.values(x, some[group])
        np.testing.assert_allclose(mine[:, :, action], theirs[:, :, action], rtol=0, atol=rounding)
        np.testing.assert_allclose(mine.max(axis=2), theirs.max(axis=2), rtol=0, atol=rounding)


def check_rows(example: Example):
    """Where a class tells rows apart itself, they are different and those of `values`; for few members and for many."""
    functions, x, _, rounding = example
    every = np.arange(functions.size)
    for members in (some_members(functions), every, np.tile(every, 1 + (1 << 15) // functions.size)):
        actions = np.arange(len(x)) % functions.n_actions
        for taken in (actions, None):
            found = functions.rows(x, members, taken)
            if found is not None:
                values = functions.values(x, members)
                expected = values.max(axis=2) if taken is None else values[:, np.arange(len(x)), taken]
                np.testing.assert_allclose(found[0][found[1]], expected, rtol=0, atol=rounding)
                assert len(np.unique(found[0], axis=0)) == len(found[0])


def check_value_bounds(example: Example):
    functions, x, _, _ = example
    low, high = functions.value_bounds()
    best = functions.values(x).max(axis=2)
    assert low.shape == high.shape == (functions.size,)
    assert (low[:, None] <= best).all()
    assert (best <= high[:, None]).all()
    assert (low >= functions.value_range[0]).all()
    assert (high <= functions.value_range[1]).all()


def check_moments(example: Example):
    """A way of its own gives what the values give, also for actions that nobody took, and also where they come in parts."""
    functions, x, _, _ = example
    rng = np.random.default_rng(2)
    shown = x[rng.integers(len(x), size=60)]
    K = functions.n_actions
    for batch in (
        Batch.of_observations(shown, K),
        Batch.of_steps(shown, rng.integers(0, K, 60), rng.random(60), K),
        Batch.of_steps(shown, np.full(60, K - 1), rng.random(60), K),
    ):
        for members, at_once in itertools.product((None, some_members(functions)), (base.AT_ONCE_VALUES, 40)):
            plain = Moments.of(functions.values(batch.x, members), batch)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(base, "AT_ONCE_VALUES", at_once)
                own = functions.moments(batch, members)
            assert (own.n, own.actions) == (plain.n, plain.actions) == (60, batch.actions)
            for name in ("v_mean", "v_var", "u_mean", "u_var"):
                np.testing.assert_allclose(getattr(own, name), getattr(plain, name), rtol=0, atol=1e-12)


def check_arrays(example: Example):
    """What was written comes back with the same values, the same bytes, and greedy policies that act the same."""
    functions, x, _, rounding = example
    kind, arrays = to_arrays(functions)
    again = from_arrays(kind, arrays)
    assert to_arrays(again)[0] == kind
    assert digest_of([to_arrays(again)]) == digest_of([(kind, arrays)])
    np.testing.assert_allclose(again.values(x), functions.values(x), rtol=0, atol=rounding)
    assert again.value_range == functions.value_range
    assert Layered([again]).digest == Layered([functions]).digest
    assert Layered([again]).digest != Listed([again]).digest


def check_policies(example: Example, folder: Path):
    functions, x, _, rounding = example
    digests = set()
    for member in range(functions.size):
        policy = LearnedPolicy(Layered([functions]), (member,))
        policy.save(folder / "policy.npz")
        again = LearnedPolicy.load(folder / "policy.npz")
        assert again.digest == policy.digest
        expected = functions.values(x, np.array([member]))[0]
        np.testing.assert_allclose(again.f.values(0, x), expected, rtol=0, atol=rounding)
        digests.add(policy.digest)
    assert len(digests) >= len(np.unique(functions.values(x), axis=0))


def check_only(example: Example):
    functions, x, _, rounding = example
    for member in range(functions.size):
        one = functions.singleton(member)
        assert (one.size, one.n_actions) == (1, functions.n_actions)
        assert one.value_range == functions.value_range
        np.testing.assert_allclose(one.values(x)[0], functions.values(x)[member], rtol=0, atol=rounding)
    for wrong in (-1, functions.size):
        with pytest.raises(InvalidInput, match=f"functions 0 to {functions.size - 1}"):
            functions.singleton(wrong)


def check_size(example: Example):
    functions, x, _, rounding = example
    assert Layered([functions] * 3).log_size == pytest.approx(3 * math.log(functions.size))
    assert Listed([functions] * 3).log_size == pytest.approx(math.log(functions.size))
    last = Layered([functions] * 2).member((0, functions.size - 1))
    np.testing.assert_allclose(last.values(1, x), functions.values(x)[-1], rtol=0, atol=rounding)
    assert Layered([functions]).value_range(0) == functions.value_range


def check_observation_ndim(example: Example):
    functions, x, _, _ = example
    assert functions.observation_ndim in (None, x.ndim - 1)


def check_reads(example: Example):
    """Coordinates that a function does not read do not change its values."""
    functions, x, rotation, _ = example
    for member in range(functions.size):
        read = functions.reads(member, rotation)
        if read is None:
            continue
        plain = x if rotation is None else x @ rotation
        others = [i for i in range(plain.shape[1]) if i not in read]
        changed = plain.copy()
        changed[:, others] = 1 - changed[:, others]
        shown = changed if rotation is None else changed @ rotation.T
        one = np.array([member])
        np.testing.assert_array_equal(functions.values(shown, one), functions.values(x, one))


CHECKS = [check_values, check_kinds, check_rows, check_value_bounds, check_moments]
CHECKS += [check_only, check_size, check_observation_ndim, check_reads]


def is_written(functions: LevelClass) -> bool:
    return Layered([functions]).digest is not None


WRITTEN = [name for name, example in EXAMPLES.items() if is_written(example.functions)]
NOT_WRITTEN = [name for name in EXAMPLES if name not in WRITTEN]


def test_everything_registered_has_an_example():
    assert {e.functions.code for e in EXAMPLES.values()} - {None} | NEED_TORCH == set(CODECS)
    assert NOT_WRITTEN == ["callables", "linear with features", "chosen callables"]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_class_keeps(name, check):
    check(EXAMPLES[name])


@pytest.mark.parametrize("name", WRITTEN)
def test_every_written_class_comes_back(name, tmp_path):
    check_arrays(EXAMPLES[name])
    check_policies(EXAMPLES[name], tmp_path)


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_python_code_is_refused_before_it_is_written(name, tmp_path):
    functions = EXAMPLES[name].functions
    assert Layered([functions]).digest is None
    with pytest.raises(InvalidInput, match=r"(CallableLevel|LinearLevel) are Python code"):
        to_arrays(functions)


@pytest.fixture
def stumps():
    """The skeleton, loaded as somebody's own module; its code is forgotten afterwards."""
    spec = util.spec_from_file_location("stumps_skeleton", ROOT / "docs/skeletons/level_class.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield Example(module.Stumps(3, np.array([[0.1, 0.2], [0.8, 0.4]])), BITS)
    del CODECS["stumps"]


def test_the_skeleton_keeps_it_all(stumps, tmp_path):
    for check in (*CHECKS, check_arrays):
        check(stumps)
    check_policies(stumps, tmp_path)
    np.testing.assert_array_equal(stumps.functions.values(BITS)[2, :2], [[0.1, 0.2], [0.8, 0.4]])
    policy = LearnedPolicy(Layered([stumps.functions]), (2,))
    assert [int(policy.predict(x)[0]) for x in BITS[:2]] == [1, 0]
