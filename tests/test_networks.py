"""Networks as a class of functions; skipped where PyTorch is not installed."""

import numpy as np
import pytest

from richobs.classes import Callables, LearnedPolicy, NetworkLevel, Networks
from richobs.core.errors import InvalidFile, InvalidInput


class FakeTensor:
    """What a PyTorch tensor with a gradient does: NumPy may read it only after `detach` and `cpu`."""

    def __init__(self, numbers, free=False):
        self.numbers, self.free = numbers, free

    def detach(self):
        return FakeTensor(self.numbers, True)

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        if not self.free:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return np.asarray(self.numbers, dtype=dtype)


def test_functions_may_return_tensors_with_gradients():
    functions = Callables([lambda h, x: FakeTensor(np.stack([x, -3 * x], axis=1))], 1, 2, value_range=(-3.0, 1.0))
    np.testing.assert_array_equal(functions.values(0, np.array([0.5, 1.0])), [[[0.5, -1.5], [1.0, -3.0]]])
    assert functions.value_bounds(0)[0].tolist() == [-3.0]
    with pytest.raises(InvalidInput, match=r"returned 2.0 .*values must lie in \[-3, 1\]"):
        functions.values(0, np.array([2.0]))


def test_without_pytorch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InvalidInput, match=r"pip install 'richobs\[torch\]'"):
        Networks([object()], 1, 2)


class TestNetworks:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def modules(self, torch):
        torch.manual_seed(0)
        nn = torch.nn
        return [nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(5)]

    x = np.random.default_rng(0).normal(size=(40, 3))

    def test_all_at_once_is_one_by_one(self, torch, modules):
        functions = Networks(modules, 2, 2, value_range=(-9.0, 9.0))
        every = functions.values(1, self.x)
        assert every.shape == (5, 40, 2)
        for i, module in enumerate(modules):
            alone = module.double()(torch.tensor(self.x)).detach().numpy()
            np.testing.assert_allclose(every[i], alone, atol=1e-14)
        np.testing.assert_allclose(functions.values(0, self.x, np.array([3, 3, 0])), every[[3, 3, 0]], atol=1e-14)
        assert functions.values(0, self.x, np.array([], dtype=np.int64)).shape == (0, 40, 2)

    def test_parts_give_the_same(self, modules, monkeypatch):
        functions = Networks(modules, 1, 2, value_range=(-9.0, 9.0))
        whole = functions.values(0, self.x)
        monkeypatch.setattr("richobs.classes.networks.MEMBERS_AT_ONCE", 2)
        monkeypatch.setattr("richobs.classes.networks.ROWS_AT_ONCE", 7)
        np.testing.assert_allclose(functions.values(0, self.x), whole, atol=1e-14)

    def test_values_outside_the_range_are_cut_and_counted(self, torch):
        module = torch.nn.Linear(1, 2)
        with torch.no_grad():
            module.weight[:] = torch.tensor([[1.0], [-1.0]])
            module.bias[:] = torch.tensor([0.0, 0.5])
        functions = Networks([module], 1, 2)
        values = functions.values(0, np.array([[0.25], [2.0], [-3.0]]))
        np.testing.assert_array_equal(values, [[[0.25, 0.25], [1.0, 0.0], [0.0, 1.0]]])
        assert functions.clipped == (4, 6)

    def test_a_function_with_stacked_parameters(self, torch):
        weights = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], requires_grad=True)  # [N, 1, 2]
        functions = Networks.of_function(lambda p, x: torch.sigmoid(x @ p["w"]), {"w": weights}, 3, 2)
        values = functions.values(2, np.array([[0.0], [100.0]]))
        np.testing.assert_allclose(values, [[[0.5, 0.5], [1, 0.5]], [[0.5, 0.5], [0.5, 1]]], atol=1e-12)
        assert functions.digest is None
        with pytest.raises(InvalidInput, match="NetworkLevel are Python code"):
            functions.levels[0].to_arrays()

    def test_networks_that_read_whole_numbers(self, torch):
        module = torch.nn.Embedding(4, 2)
        functions = Networks([module], 1, 2, value_range=(-9.0, 9.0), as_floats=False)
        expected = module.weight.detach().numpy()[[3, 0]]
        np.testing.assert_allclose(functions.values(0, np.array([3, 0]))[0], expected)
        assert functions.digest is None  # an embedding is not among the layers that files describe

    def test_random_layers_are_switched_off(self, torch):
        module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
        functions = Networks([module], 1, 2, value_range=(-9.0, 9.0))
        np.testing.assert_array_equal(functions.values(0, self.x), functions.values(0, self.x))
        assert module.training

    def test_they_come_back(self, modules, tmp_path):
        pytest.importorskip("safetensors")
        functions = Networks(modules, 2, 2, value_range=(-9.0, 9.0))
        functions.save(tmp_path / "n.safetensors")
        again = Networks.load(tmp_path / "n.safetensors")
        assert again.digest == functions.digest
        assert again.digest is not None
        np.testing.assert_array_equal(again.values(0, self.x), functions.values(0, self.x))
        other = Networks(modules[::-1], 2, 2, value_range=(-9.0, 9.0))
        assert other.digest != functions.digest
        assert Networks(modules, 2, 2, value_range=(-8.0, 9.0)).digest != functions.digest
        (tmp_path / "n.safetensors").write_bytes(b"no")
        with pytest.raises(InvalidFile, match="does not hold networks"):
            Networks.load(tmp_path / "n.safetensors")

    def test_layers_are_described(self, torch):
        nn = torch.nn
        module = nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2, bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2)),
        )
        level = NetworkLevel([module], 2, value_range=(-9.0, 9.0))
        again = NetworkLevel.from_arrays(level.to_arrays())
        pictures = np.random.default_rng(1).normal(size=(3, 1, 5, 5))
        np.testing.assert_array_equal(again.values(pictures), level.values(pictures))

    def test_half_precision_is_read_and_written(self, torch, modules, tmp_path):
        halves = [m.to(torch.bfloat16) for m in modules]
        functions = Networks(halves, 1, 2, value_range=(-9.0, 9.0))
        policy = LearnedPolicy(functions, 1)
        policy.save(tmp_path / "policy.npz")
        again = LearnedPolicy.load(tmp_path / "policy.npz")
        np.testing.assert_allclose(again.f.values(0, self.x), functions.values(0, self.x)[1], atol=1e-14)

    def test_on_a_gpu(self, torch, modules):
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
        on_cpu, on_gpu = (Networks(modules, 1, 2, value_range=(-9.0, 9.0), device=d) for d in ("cpu", "cuda"))
        np.testing.assert_allclose(on_gpu.values(0, self.x), on_cpu.values(0, self.x), atol=1e-12)
        assert on_gpu.digest == on_cpu.digest

    def test_what_is_refused(self, torch, modules):
        linear = torch.nn.Linear(3, 2)
        for call, words in (
            (lambda: Networks([], 1, 2), "at least one network"),
            (lambda: Networks([3], 1, 2), "network 0 is a int"),
            (lambda: Networks([modules[0], linear], 1, 2), "network 1 is built differently"),
            (lambda: Networks([torch.nn.ReLU()], 1, 2), "no parameters"),
            (lambda: Networks([linear], 0, 2), "horizon must be at least 1"),
            (lambda: Networks([linear], 1, 3).values(0, self.x), r"\[n, K\] = \(40, 3\)"),
            (lambda: Networks([linear], 1, 2).values(0, self.x * np.nan), "not a number"),
            (lambda: Networks.of_function(lambda p, x: x, {}, 1, 2), "tensors"),
        ):
            with pytest.raises(InvalidInput, match=words):
                call()
