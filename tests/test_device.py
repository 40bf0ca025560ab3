"""Classes on a device: moments within the rounding that they state, bounds that allow for it, and whole runs.

The same code runs on PyTorch's CPU device; tests marked `gpu` need a GPU. Those that need PyTorch are skipped without it.
"""

import contextlib
import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import richobs
from richobs.classes import Decoders, Layered, Linear, Listed, Networks, Tables
from richobs.classes.base import Chosen
from richobs.classes.linear import LinearLevel
from richobs.core.errors import EpisodeLimit, InvalidFile, InvalidInput, PrecisionError
from richobs.core.events import Progress, to_plain
from richobs.core.executors import Workers
from richobs.core.ledger import Ledger
from richobs.core.moments import Batch, Moments, check_answers, check_rounding
from richobs.core.queries import Answer, Query
from richobs.core.settings import Settings, read_record
from richobs.core.units import UnitFunctions, Units
from richobs.device import torch_device
from richobs.engines import StreamEngine
from richobs.engines.answers import pack_answer, unpack_answer
from richobs.learners import learner
from richobs.runs import store
from richobs.runs.store import RunFolder, StoredRun, describe
from richobs.stats.shares import Share
from richobs_lab.certified.bounds import value_radius
from richobs_lab.certified.events import CandidateVerified, PairTested
from richobs_lab.certified.search import certified
from richobs_lab.counted import CountedEngine
from richobs_lab.device.classes import OnDevice, on_device
from richobs_lab.device.levels import DeviceBatch, DeviceMemory, accumulated, accumulated_means
from richobs_lab.lsvee.consensus import consensus
from richobs_lab.lsvee.dfs import ConsensusTested
from richobs_lab.lsvee.elimination import risk_rounding
from richobs_lab.prototypes import Prototypes

FIELDS = ("v_mean", "v_var", "u_mean", "u_var")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(params=DEVICES)
def device(request, torch):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU here")
    return request.param


def random_levels():
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    bits = rng.integers(2, size=(700, 6))
    vectors = rng.normal(size=(700, 6))
    by_action = Linear(lambda h, x: np.stack([x, x**2, 1 - x], axis=1), rng.normal(0, 0.2, (40, 6)), 1, n_actions=3)
    prototypes = Prototypes(rng.normal(size=(5, 4, 6)), rng.integers(5, size=40), rng.random((40, 4, 3)))
    wide = Linear("identity", rng.normal(size=(40, 3, 6)), 1, value_range=(-5.0, 3.0))
    single = Tables(rng.random((40, 9, 3)).astype(np.float32), 1)
    return {
        "linear": (Linear("affine", rng.normal(0, 0.2, (40, 3, 7)).astype(np.float32), 1), vectors),
        "linear, wide": (wide, vectors),
        "linear, features of actions": (by_action, vectors),
        "tables": (Tables(rng.random((40, 9, 3)), 1), rng.integers(9, size=900)),
        "tables, single precision": (single, rng.integers(9, size=900)),
        "prototypes": (Listed([prototypes]), vectors),
        "decoders": (Layered([Decoders(6, rng.random((3, 3)))]), bits.astype(np.int8)),
        "rotated": (Layered([Decoders(5, rng.random((3, 3)), rotation=rotation)]), bits @ rotation.T),
        "chosen": (Listed([Chosen(prototypes, np.array([3, 3, 39, 0]))]), vectors),
        "units": (UnitFunctions(wide, Units(1, -5.0, 8.0)), vectors),
    }


LEVELS = random_levels()


def networks(torch, *layers):
    modules = []
    for seed in range(6):
        torch.manual_seed(seed)
        between = [make() for make in layers]
        modules.append(torch.nn.Sequential(torch.nn.Linear(6, 16), *between, torch.nn.Linear(16, 3)))
    return Networks(modules, 1, 3)


def batches(x, n_actions, seed=1):
    rng = np.random.default_rng(seed)
    actions, rewards = rng.integers(n_actions, size=len(x)), rng.random(len(x))
    yield Batch.of_steps(x, actions, rewards, n_actions)
    yield Batch.of_steps(x, np.full(len(x), 1), rewards, n_actions)
    yield Batch.of_observations(x, n_actions)


def check_agrees(functions, x, device, members=None):
    there = OnDevice(functions, device)
    assert there.level(0) is not None
    for batch in batches(x, functions.n_actions):
        found, known = there.moments(0, batch, members), functions.moments(0, batch, members)
        assert (found.n, found.actions) == (known.n, known.actions)
        assert 0 < found.rounding < 1e-9
        for field in FIELDS:
            assert np.abs(getattr(found, field) - getattr(known, field)).max() <= found.rounding, field


class TestMoments:
    @pytest.mark.parametrize("name", LEVELS)
    def test_moments_are_those_of_numpy_up_to_the_rounding_they_state(self, name, device):
        functions, x = LEVELS[name]
        check_agrees(functions, x, device)
        check_agrees(functions, x, device, np.array([3, 0, 0]))
        none = OnDevice(functions, device).moments(0, next(batches(x, 3)), np.array([], dtype=np.int64))
        assert (none.v_mean.shape, none.u_var.shape) == ((0,), (0, 3))

    def test_networks(self, device, torch):
        nn, x = torch.nn, np.random.default_rng(3).normal(size=(300, 6))
        for layers in ([nn.ReLU], [nn.Tanh, nn.SiLU], [nn.GELU, nn.ELU, nn.LeakyReLU], [nn.Sigmoid, nn.Identity]):
            check_agrees(networks(torch, *layers), x, device, np.array([4, 1]))

    def test_networks_whose_rounding_is_not_bounded_stay_with_numpy(self, torch):
        functions, x = networks(torch, lambda: torch.nn.LayerNorm(16)), np.ones((4, 6))
        there, batch = OnDevice(functions, "cpu"), Batch.of_observations(x, 3)
        assert there.level(0) is None
        np.testing.assert_array_equal(there.moments(0, batch).v_mean, functions.moments(0, batch).v_mean)

    def test_many_parts_give_what_one_gives(self, device, torch, monkeypatch):
        functions, x = LEVELS["linear"]
        batch = next(batches(x, 3))
        whole = OnDevice(functions, device).moments(0, batch)
        monkeypatch.setattr("richobs_lab.device.levels.VALUES_AT_ONCE", {"cpu": 10_000, "cuda": 10_000})
        parts = OnDevice(functions, device).moments(0, batch)
        for field in FIELDS:
            np.testing.assert_allclose(getattr(parts, field), getattr(whole, field), atol=whole.rounding, rtol=0)

    def test_the_rounding_is_true_of_exact_arithmetic(self, device):
        rng = np.random.default_rng(5)
        theta, x = rng.normal(0, 300, (3, 2, 5)), rng.normal(0, 300, (40, 5))
        functions = Linear("identity", theta, 1, value_range=(-1e7, 1e7))
        found = OnDevice(functions, device).moments(0, Batch.of_observations(x, 2))
        for i in range(3):
            values = [
                max(sum(Fraction(t) * Fraction(v) for t, v in zip(theta[i, a], row, strict=True)) for a in range(2))
                for row in x
            ]
            mean = sum(values) / 40
            assert abs(Fraction(found.v_mean[i]) - mean) <= Fraction(found.rounding)
            variance = sum((v - mean) ** 2 for v in values) / 40
            assert abs(Fraction(found.v_var[i]) - variance) <= Fraction(found.rounding)

    def test_how_often_values_were_cut_is_counted(self, device):
        functions, x = LEVELS["linear, wide"]
        fresh = Linear("identity", functions.levels[0].parameters, 1, value_range=(-5.0, 3.0))
        batch = next(batches(x, 3))
        fresh.moments(0, batch)
        known = fresh.clipped
        OnDevice(fresh, device).moments(0, batch)
        assert known[0] > 0
        assert fresh.clipped == (2 * known[0], 2 * known[1])

    def test_a_tie_between_centres_is_decided_as_numpy_decides_it(self, device):
        rng = np.random.default_rng(7)
        centre, away = rng.normal(size=6), rng.normal(size=(2000, 6))
        away -= np.outer(away @ centre, centre) / (centre @ centre)  # as far from one centre as from the other
        level = Prototypes(np.stack([centre, -centre])[None], [0], [[[1.0, 0.0], [0.0, 0.0]]])
        memory = DeviceMemory(device)
        decoded = on_device(level, memory).prepared(DeviceBatch.of(Batch.of_observations(away, 2), memory))
        assert 0 < level.nearest(away, 0).sum() < 2000
        np.testing.assert_array_equal(decoded[:, 0].cpu().numpy(), level.nearest(away, 0))

    def test_a_coordinate_at_one_half_is_read_as_numpy_reads_it(self, device):
        rotation = np.linalg.qr(np.random.default_rng(8).normal(size=(6, 6)))[0]
        x = np.tile(np.full(6, 0.5) @ rotation.T, (500, 1)) * np.linspace(1 - 1e-15, 1 + 1e-15, 500)[:, None]
        level = Decoders(6, [[1.0, 0.0]], rotation=rotation)
        memory = DeviceMemory(device)
        on = on_device(level, memory).prepared(DeviceBatch.of(Batch.of_observations(x, 2), memory))
        assert 0 < level.coordinates(x).sum() < 3000
        np.testing.assert_array_equal(on.cpu().numpy() > 0, level.coordinates(x))

    def test_values_that_are_too_large_are_refused(self, device):
        functions = Linear("identity", np.full((2, 2, 1), 1e200), 1)
        with pytest.raises(InvalidInput, match="too large for float64"):
            OnDevice(functions, device).moments(0, Batch.of_observations(np.full((3, 1), 1e200), 2))

    def test_a_subclass_with_values_of_its_own_is_not_taken_for_its_parent(self, torch):
        class Doubled(LinearLevel):
            def values(self, x, members=None, /):
                return 2 * super().values(x, members)

        assert on_device(Doubled("identity", np.ones((2, 2, 3))), DeviceMemory("cpu")) is None

    @pytest.mark.gpu
    def test_the_kernel_gives_what_plain_pytorch_gives(self, torch):
        if not torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU here")
        rng = np.random.default_rng(9)
        for size, width, n_actions, n in ((1, 3, 2, 1), (70, 17, 3, 333), (200, 32, 4, 2000), (64, 128, 2, 64)):
            functions = Linear("identity", rng.normal(0, 0.3, (size, n_actions, width)), 1)
            x = rng.normal(size=(n, width))
            check_agrees(functions, x, "cuda")
            memory = DeviceMemory("cuda")
            level = on_device(functions.levels[0], memory)
            batch = DeviceBatch.of(Batch.of_observations(x, n_actions), memory)
            fused, plain = level.fused_moments(batch, None), super(type(level), level).moments(batch)
            assert np.abs(fused.v_var - plain.v_var).max() <= fused.rounding + plain.rounding


class TestRounding:
    def moments(self, mean, rounding, n=10):
        one, two = np.full(2, mean), np.full((2, 2), mean)
        return Moments(n, (n, 0), one, one, two, two, rounding)

    def test_a_sum_is_known_as_its_parts_are_on_average_and_as_the_gap_between_them(self):
        a, b = self.moments(0.25, 1e-6), self.moments(0.75, 1e-8)
        # one half of the samples each: 1.01e-6 / 2 + 1/4 * 1.01e-6 * (2 * 0.5 + 1.01e-6)
        assert (a + b).rounding == pytest.approx(5.05e-7 + 2.525e-7 + 2.55e-13, rel=1e-6)
        assert (a + b).rounding_of_means == pytest.approx(5.05e-7, rel=1e-6)
        # where means are known better than variances, the gap is too: 1.01e-6 / 2 + 1/4 * 3e-9 * 1
        a, b = dataclasses.replace(a, mean_rounding=1e-9), dataclasses.replace(b, mean_rounding=2e-9)
        assert (a + b).rounding == pytest.approx(5.05e-7 + 7.5e-10, rel=1e-6)
        assert (a + b).rounding_of_means == pytest.approx(1.5e-9, rel=1e-6)
        assert (a + Moments.empty(2, 2)).rounding == pytest.approx(1e-6, rel=1e-6)

    def test_an_action_of_one_part_alone_is_known_as_there(self):
        a, b = self.moments(0.5, 1e-6), self.moments(0.5, 1e-9)
        other = dataclasses.replace(b, actions=(0, 10))
        assert (a + other).rounding == pytest.approx(1e-6, rel=1e-6)

    @pytest.mark.parametrize(("value", "most"), [(1.0, 2e-11), (1000.0, 1e-5)])
    def test_a_thousand_parts_are_within_their_rounding_of_exact_fractions(self, value, most):
        """Values +-V about an offset, residuals of two actions; the first part is much larger than the others."""
        rng, K = np.random.default_rng(3), 2
        exact = [[], [], []]  # values, and residuals of each action
        total = Moments.empty(1, K)
        for size in (200, *rng.integers(1, 4, 999).tolist()):
            values = rng.choice([-value, value], (1, size, K)) + rng.random((1, size, K)) + value / 3
            actions, rewards = rng.integers(K, size=size), rng.random(size)
            part = Moments.of(values, Batch.of_steps(np.arange(size), actions, rewards, K))
            bounds = (0.0, 2.5 * value + 1, 2 * size)
            stated = {"rounding": accumulated(*bounds), "mean_rounding": accumulated_means(*bounds)}
            total = total + dataclasses.replace(part, **stated)
            exact[0] += [int(v * 2**60) for v in values[0].max(axis=1)]  # all numbers are multiples of 2^-60
            for i, a in enumerate(actions):
                exact[1 + a].append(int(values[0, i, a] * 2**60) - int(rewards[i] * 2**60))
        found = [(total.v_mean[0], total.v_var[0]), *zip(total.u_mean[0], total.u_var[0], strict=True)]
        for samples, (mean, variance) in zip(exact, found, strict=True):
            centre = Fraction(sum(samples), len(samples) * 2**60)
            assert abs(Fraction(mean) - centre) <= Fraction(total.rounding_of_means)
            spread = Fraction(sum(s * s for s in samples), len(samples) * 2**120) - centre**2
            assert abs(Fraction(variance) - spread) <= Fraction(total.rounding)
        assert total.rounding_of_means < total.rounding < most

    def test_the_spread_of_parts_counts_where_their_means_are_0(self):
        none, wide = np.zeros(2), np.full(2, 1e6)
        part = Moments(10, (0, 0), none, wide, np.zeros((2, 2)), np.zeros((2, 2)), 1e-300)
        assert (part + part).rounding >= 20 * 2.0**-53 * 1e6

    @pytest.mark.parametrize(
        ("check", "fine", "rough", "words"),
        [
            (check_answers, [(0.0, 1e-9), (1e-5, 0.065)], (1e-5, 0.063), "narrower `value_range`"),
            (check_rounding, [(0.0, 0.0), (1e-6, 1e-4)], (1.1e-6, 1e-4), "learner='betting'"),
        ],
    )
    def test_what_is_too_rough_for_epsilon_or_a_learner_is_refused(self, check, fine, rough, words):
        for given in fine:
            check(*given)
        with pytest.raises(PrecisionError, match=words):
            check(*rough)

    def test_a_run_refuses_them_when_they_come(self):
        query = Query.along((0,), 10, [np.arange(3)], purpose="p")
        play = Rounded(1e-6).engine
        play.draw = lambda query, visit: Rounded(1e-6).ask(query)
        play.epsilon = 0.01
        assert play.ask(query).n == 10
        assert play.rounding == 1e-6
        play.epsilon = 0.005
        with pytest.raises(PrecisionError, match=r"more than a hundredth of epsilon = 0\.005"):
            play.ask(query)

    def test_groups_are_known_as_the_worst_of_them(self):
        joined = Moments.concatenate([self.moments(0.1, 1e-9), self.moments(0.2, 1e-7), self.moments(0.3, 0.0)])
        assert joined.rounding == joined.rounding_of_means == 1e-7

    def test_accumulation(self):
        assert accumulated(1e-3, 2.0, 0) == pytest.approx(5e-3 + 1e-6, rel=1e-9)
        assert accumulated(0.0, 2.0, 92) == pytest.approx(2 * 100 * 2.0**-53 * 4, rel=1e-9)
        assert accumulated(0.0, 0.5, 92) == pytest.approx(2 * 100 * 2.0**-53 * 0.5, rel=1e-9)

    def test_risks(self):
        # Each noise may be off by 0.01 and each difference by 0.03, at most 0.5 + 0.25: 2 (0.01 + 0.03 (1.5 + 0.03))
        found = risk_rounding(np.array([0.1]), np.array([-0.5, 0.2]), np.array([0.25]), 0.01, 0.02)
        assert found == pytest.approx(2 * (0.01 + 0.03 * 1.53))
        assert risk_rounding(np.array([0.1]), np.array([0.5]), None, 0.0, 0.0) == 0.0

    def test_two_risks_never_differ_by_more_than_that_from_the_exact_ones(self):
        rng = np.random.default_rng(0)
        noise, gain, future = rng.random(500), rng.uniform(-1, 1, 500), rng.random(500)
        off = [v + rng.choice([-1, 1], 500) * e for v, e in ((noise, 0.01), (gain, 0.01), (future, 0.02))]
        exact, computed = (a + (b - c) ** 2 for a, b, c in ((noise, gain, future), off))
        allowed = risk_rounding(*off, 0.01, 0.02)
        wrong = np.ptp(computed - exact)
        assert 0.5 * allowed < wrong <= allowed

    def test_a_radius_allows_for_it(self):
        mean, variance, low, high = np.array([0.0]), np.array([0.0]), np.array([0.0]), np.array([1.0])
        plain = value_radius(mean, variance, 1000, low, high, Share(0.05))
        wide = value_radius(mean, variance, 1000, low, high, Share(0.05), rounding=1e-3)
        # The sample mean may be 1e-3: the bound from there, which is farther than 1e-3 away from the bound from 0.
        worst = value_radius(mean + 1e-3, variance, 1000, low, high, Share(0.05))
        assert wide[0] == pytest.approx(worst[0] + 1e-3)
        assert wide[0] > plain[0] + 2e-3
        same = value_radius(mean, variance, 1000, low, high, Share(0.05), rounding=0.0)
        assert same[0] == plain[0]
        half = mean + 0.5  # the variance may be off too, and a value that cannot vary still rounds
        plain = value_radius(half, np.array([1e-4]), 10_000, low, high, Share(0.05))
        wide = value_radius(half, variance, 10_000, low, high, Share(0.05), rounding=1e-4)
        assert wide[0] == pytest.approx(plain[0] + 1e-4)
        assert value_radius(half, variance, 100, half, half, Share(0.05), rounding=1e-6)[0] == 1e-6

    def test_consensus_allows_for_it(self):
        agree = self.moments(0.0, 0.0)
        values = dataclasses.replace(agree, v_mean=np.array([0.1, 0.25]))
        alive = np.ones(2, dtype=bool)
        assert not consensus(values, alive, eps_test=0.1).agree
        assert not consensus(dataclasses.replace(values, rounding=0.02), alive, eps_test=0.1).agree
        assert consensus(dataclasses.replace(values, rounding=0.03), alive, eps_test=0.1).agree

    def test_a_record_keeps_it(self):
        answer = Answer(10, moments=(self.moments(0.5, 1.25e-13), self.moments(0.5, 0.0)))
        assert [m.rounding for m in unpack_answer(pack_answer(answer)).moments] == [1.25e-13, 0.0]


EVENT = ConsensusTested(phase="search", path=(0, 1), n=5, agree=True, spread=0.1, eps_test=0.2)


class TestGoingOn:
    """Decisions of a stored run that are written, and made again, perhaps on another device."""

    @pytest.mark.parametrize(
        ("field", "value"),
        [("n", 5.0), ("n", np.int64(5)), ("spread", None), ("path", (0.5,)), ("phase", 3), ("agree", 1)],
    )
    def test_what_could_not_be_read_is_not_written(self, field, value):
        with pytest.raises(InvalidInput, match=f"declares {field}: "):
            to_plain(dataclasses.replace(EVENT, **{field: value}))

    def listen(self, folder, device, **changes):
        problem = richobs.make("lock/3")
        config = describe(problem, Settings(device=device, learner="lsvee"), None)
        with RunFolder.opened(folder, config) as opened:
            opened.listener(None)(Progress(dataclasses.replace(EVENT, **changes), 5, 0.75))
            opened.end("unfinished", "")

    def test_numbers_of_a_device_may_differ_by_rounding(self, tmp_path):
        self.listen(tmp_path, "cuda")
        self.listen(tmp_path, "cuda", spread=0.1 + 1e-12)
        assert len(StoredRun.read(tmp_path).steps) == 1

    OTHERS = (*(("cuda", c) for c in ({"agree": False}, {"n": 6}, {"path": (0,)}, {"spread": 0.1001})),)

    @pytest.mark.parametrize(("device", "change"), [*OTHERS, (None, {"spread": 0.1 + 1e-15})])
    def test_decisions_may_not_and_without_a_device_every_bit_counts(self, tmp_path, device, change):
        self.listen(tmp_path, device)
        with pytest.raises(InvalidFile, match="decision 0 of the run"):
            self.listen(tmp_path, device, **change)

    def test_a_search_goes_on_where_sums_have_another_order(self, torch, tmp_path, monkeypatch):
        """The blocks of rows are smaller there, so the numbers of its decisions differ in their last digits."""
        monkeypatch.setattr("richobs.device.pairs.FEWEST_PAIRS", 0)
        asked = {"engine": "stream", "device": "cpu", "seed": 1, "progress": False}
        known = richobs.learn(richobs.make("random/4"), **asked)
        with contextlib.suppress(EpisodeLimit):
            richobs.learn(richobs.make("random/4"), **asked, out=tmp_path, max_episodes=known.episodes // 2)
        compared, same = [], store._nearly_equal
        monkeypatch.setattr("richobs.runs.store._nearly_equal", lambda *texts: compared.append(texts) or same(*texts))
        monkeypatch.setattr("richobs.device.pairs.AT_ONCE_PAIRS", 1)
        again = richobs.learn(richobs.make("random/4"), **asked, out=tmp_path)
        assert compared
        assert decisions(again) == decisions(known)


class Rounded:
    """An engine whose moments say that they are rounded."""

    name = "stream"

    def __init__(self, rounding, kind=StreamEngine, functions=None):
        problem = richobs.make("lock/3")
        if functions is not None:
            problem = richobs.Problem(problem.env, functions)
        self.functions, self.rounding, self.ledger = problem.functions, rounding, Ledger()
        self.engine = kind.build(problem, problem.env, Settings(), self.ledger, Workers())

    def ask(self, query):
        answer = self.engine.ask(query)
        moments = tuple(dataclasses.replace(m, rounding=self.rounding) for m in answer.moments)
        return dataclasses.replace(answer, moments=moments)

    def trace(self):
        events = []
        certified(self, self.functions, epsilon=0.2, delta=0.05, notify=lambda p: events.append(p.event))
        return events


class TestBounds:
    def test_the_threshold_of_an_elimination_allows_for_rounding(self):
        plain, rounded = (next(e for e in Rounded(r).trace() if isinstance(e, PairTested)) for r in (0.0, 1e-4))
        assert (plain.path, plain.n, plain.bar) == (rounded.path, rounded.n, rounded.bar)
        assert rounded.cutoff - plain.cutoff > 2 * (1e-4 + 1e-4 * 2 * 0.5)

    def test_the_upper_bound_allows_for_rounding(self):
        live = richobs.make("lock/3").truth.world._live  # [H, 3, K]
        levels = []
        for h in range(3):  # Q* is linear in the bits of the state; nothing is said about the range of its values
            theta = np.zeros((1, 4, 8))
            theta[0, :, :2] = 0.5 * live[h, :2].T
            levels.append(LinearLevel("identity", theta, level=h))
        events = [Rounded(r, functions=Listed(levels)).trace() for r in (0.0, 0.02)]
        looks = [[e for e in trace if isinstance(e, CandidateVerified)][1] for trace in events]  # the first with a U
        assert looks[0].n == looks[1].n
        assert looks[0].width + 0.015 < looks[1].width < looks[0].width + 0.03

    @pytest.mark.parametrize("name", ["lsvee", "olive"])
    def test_learners_with_fixed_sizes_refuse_moments_that_are_too_rough(self, name):
        problem, settings = richobs.make("lock/3"), Settings(learner=name, epsilon=0.2)
        known = learner(name).run(problem, Rounded(0.0, CountedEngine), settings, lambda progress: None)
        fine = learner(name).run(problem, Rounded(1e-16, CountedEngine), settings, lambda progress: None)
        assert fine.policy.member == known.policy.member
        with pytest.raises(PrecisionError, match="Leave `device` out"):
            learner(name).run(problem, Rounded(1e-3, CountedEngine), settings, lambda progress: None)


def decisions(outcome):
    """What a run decided, without the numbers that rounding may change."""
    decided = [(type(e).__name__, e.path, e.n, e.said().verdict) for e in outcome.trace]
    return decided, outcome.policy.member, outcome.episodes


class TestRuns:
    def test_a_certified_run_and_its_certificate(self, device, tmp_path):
        problem = richobs.make("lock/3")
        outcome = richobs.learn(problem, learner="certified", device=device, out=tmp_path / "run", progress=False)
        certificate = richobs.Certificate.load(tmp_path / "run" / "certificate.json")
        stated = certificate.content["device"]
        assert (stated["name"], stated["dtype"]) == (device, "float64")
        assert 0 < stated["rounding"] == outcome.rounding < 1e-9
        assert certificate.settings.device == device
        assert outcome.lower <= 0.5 <= outcome.upper
        assert problem.value(outcome.policy).low >= 0.5 - outcome.epsilon
        assert richobs.verify(certificate, richobs.make("lock/3")).agrees

    def test_without_the_device_verify_uses_the_cpu_device(self, torch, monkeypatch):
        problem = richobs.make("lock/3")
        outcome = richobs.learn(problem, learner="certified", device="cpu", progress=False)
        settings = dataclasses.replace(outcome.settings, device="cuda:99")
        certificate = richobs.Certificate.of(dataclasses.replace(outcome, settings=settings), problem)
        found = richobs.verify(certificate, richobs.make("lock/3"))
        assert found.agrees
        assert any("on device 'cpu'" in f.detail for f in found.findings)

        def with_upper(change):
            content = {**certificate.content, "result": {**certificate.content["result"]}}
            content["result"]["v_star_hat"] += change
            findings = richobs.verify(richobs.Certificate(content), richobs.make("lock/3")).findings
            return next(f for f in findings if f.what == "run").agrees

        assert with_upper(1e-11)
        assert not with_upper(1e-6)

    def test_cpu_and_gpu_make_the_same_decisions(self, device):
        here = richobs.learn(richobs.make("lock/4"), learner="certified", device="cpu", progress=False)
        there = richobs.learn(richobs.make("lock/4"), learner="certified", device=device, progress=False)
        assert decisions(here) == decisions(there)
        assert abs(here.upper - there.upper) <= here.rounding + there.rounding


class TestNames:
    def test_names_that_are_none(self):
        for name in ("gpu", "cuda:x", "", "CUDA", 3, "mps"):
            with pytest.raises(InvalidInput, match="device must be 'cuda'"):
                Settings(device=name).check()
        for name in (None, "cpu", "cuda", "cuda:1"):
            Settings(device=name).check()

    def test_without_a_device_nothing_is_written_about_one(self):
        assert "device" not in Settings().as_plain()
        assert read_record(Settings, Settings(device="cuda").as_plain()) == Settings(device="cuda")

    def test_without_pytorch_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "torch", None)
        with pytest.raises(InvalidInput, match=r"device 'cpu' needs PyTorch.*pip install 'richobs\[gpu\]'"):
            richobs.learn(richobs.make("lock/3"), device="cpu", progress=False)

    def test_a_device_that_is_not_there(self, torch):
        with pytest.raises(InvalidInput, match=r"device 'cuda:99' is not there.*device='cpu'"):
            torch_device("cuda:99")
