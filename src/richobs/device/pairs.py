"""Pairs of neighbouring members on a device of PyTorch: wealth, losses and who lives, and the bets of a batch.

What has a number for every pair stays on the device from batch to batch. A batch brings values of rows and columns there,
and forecasts of columns and the number of deaths come back. Everything is float64. On a GPU with Triton the bets of a batch
are one kernel, elsewhere PyTorch's own operations. `richobs.learners.betting.survivors_product` holds few pairs in NumPy,
which is faster then, with the same methods. Shapes: R rows, C columns, n samples, P priors, G distinct rows of values.
"""

import functools
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from richobs.core.types import Floats, Ints, Mask
from richobs.device import pytorch, torch_device
from richobs.stats import bets

Tensor = Any  # torch.Tensor; PyTorch need not be installed
FEWEST_PAIRS = 1 << 15  # from which on pairs are held on the device; they come back below a quarter of it
AT_ONCE_PAIRS = 1 << 25  # pairs whose numbers are computed at once: 256 MB for each of a few temporary arrays
COLUMNS = 256  # of one program of the kernel; four warps
FACTORS = 8  # samples whose factors are multiplied before a logarithm is taken; no product leaves float64's range


class PairsOnDevice:
    """Wealth, losses and who lives, for every pair of a level, as tensors `[R, C]` on a device."""

    def __init__(self, alive: Mask, wealth: Floats, loss: Floats, device: str):
        """Takes what was held in NumPy, and the name of the device.

        Raises:
            InvalidInput: PyTorch is not installed, or there is no such device.
        """
        self.torch, self._device = pytorch(f"device {device!r}"), torch_device(device)
        self.alive, self.wealth, self.loss = (self.there(a) for a in (alive, wealth, loss))

    def there(self, numbers: Floats | Ints | Mask) -> Tensor:
        """Returns a NumPy array on the device."""
        return self.torch.as_tensor(np.ascontiguousarray(numbers), device=self._device)

    def arrays(self) -> tuple[Mask, Floats, Floats]:
        """Returns `[R, C]` who lives, wealth and losses in NumPy."""
        alive, wealth, loss = (tensor.cpu().numpy() for tensor in (self.alive, self.wealth, self.loss))
        return alive, wealth, loss

    @staticmethod
    def rounding(n: int) -> float:
        """Returns how far the bets of n samples may move the logarithm of a wealth from its exact value."""
        return bets.growth_rounding(n)

    def blocks(self) -> Iterator[slice]:
        """Yields slices of rows with at most `AT_ONCE_PAIRS` pairs, at least one row each."""
        rows, columns = self.alive.shape
        step = max(1, AT_ONCE_PAIRS // max(1, columns))
        for first in range(0, rows, step):
            yield slice(first, min(first + step, rows))

    def take_rows(self, rows: Ints) -> None:
        """Makes the pairs of some rows, in the order given, all pairs; a row may be taken twice."""
        self._take(0, rows)

    def take_columns(self, columns: Ints) -> None:
        """Makes the pairs of some columns, in the order given, all pairs; a column may be taken twice."""
        self._take(1, columns)

    def _take(self, axis: int, places: Ints) -> None:
        index = self.there(places)
        self.alive, self.wealth, self.loss = (a.index_select(axis, index) for a in (self.alive, self.wealth, self.loss))

    def forecast(
        self, constants: tuple[Floats, Floats], variance: Floats, counts: Floats, sums: Floats, farthest: float
    ) -> Floats:
        """Returns `[P, C, n]` what every column's y is expected to be.

        Args:
            constants: `[k]` forecasters beside the members, and `[k, C]` their squared errors so far.
            variance: `[P, C]` s^2.
            counts: `[R]` how many members each row has.
            sums: `[R, n]` the sum of the values of each row's members.
            farthest: nats behind the best at which a forecaster's weight is as good as 0.
        """
        torch = self.torch
        values, constant_loss = map(self.there, constants)
        members, all_sums = self.there(counts), self.there(sums)
        least = torch.minimum(self.loss.amin(dim=0), constant_loss.amin(dim=0))  # [C]
        result = np.empty((*variance.shape, sums.shape[1]))
        for k, s in enumerate(variance):
            per = self.there(-1 / (2 * s))
            constant = ((constant_loss - least) * per).clamp_(min=-farthest).exp_()
            total = constant.sum(dim=0)
            mean = (values @ constant)[:, None].repeat(1, sums.shape[1])
            for b in self.blocks():
                weight = torch.sub(self.loss[b], least).mul_(per).clamp_(min=-farthest).exp_()
                total += members[b] @ weight
                mean += weight.T @ all_sums[b]
            result[k] = (mean / total[:, None]).cpu().numpy()
        return result

    def settle(
        self,
        f: Floats,
        f_row: Ints,
        earned: Floats,
        expected: Floats,
        spread: Floats,
        t: int,
        needed: float,
        tolerance: float = 0.0,
    ) -> int:
        """Lets the wealth of every pair grow by the batch's bets, adds up losses, and returns how many pairs died.

        Args:
            f: `[G, n]` distinct rows of values.
            f_row: `[R]` which of them each row has.
            earned: `[C, n]` y.
            expected: `[C, n]` the forecasts of y.
            spread: `[C, n]` their variances.
            t: number of the batch, from 1.
            needed: computed wealth at which a pair dies.
            tolerance: how far E[y] may be from f without the pair being refuted.
        """
        samples = (f, *bets.limits(f), earned, expected, np.maximum(spread, bets.LEAST_VARIANCE))
        batch = BatchOnDevice(self.there(f_row), *(self.there(part.T) for part in samples))
        numbers = (bets.money(t), needed, bets.ZETA, bets.MOST_GROWTH, bets.CAP, tolerance)
        if _has_triton(self._device):
            return _settled_by_triton(PairState(self.wealth, self.loss, self.alive), batch, numbers)
        died = 0
        for b in self.blocks():
            state = PairState(self.wealth[b], self.loss[b], self.alive[b])
            died += _settled_by_pytorch(state, batch._replace(rows=batch.rows[b]), numbers)
        return died

    def weights(self, counts: Floats, spread: Floats) -> "WeightsOnDevice":
        """Returns how well pairs fit; nothing of the size of all pairs is held for it."""
        return WeightsOnDevice(self, counts, spread)

    def living_rows(self) -> Mask:
        """Returns `[R]` which rows have a living pair."""
        return np.asarray(self.alive.any(dim=1).cpu().numpy())

    def living_columns(self) -> Mask:
        """Returns `[C]` which columns have a living pair."""
        return np.asarray(self.alive.any(dim=0).cpu().numpy())

    def sums_over_living(self, by_row: Floats) -> Floats:
        """Returns `[C]` the sum of `by_row` `[R]` over the rows that each column has a living pair with."""
        given = self.there(by_row)
        total = self.torch.zeros(self.alive.shape[1], dtype=self.torch.float64, device=self._device)
        for b in self.blocks():
            total += given[b] @ self.alive[b].double()
        return np.asarray(total.cpu().numpy())


class WeightsOnDevice:
    """The logarithms of how well pairs fit, computed from the pairs when they are asked for, a block of rows at a time."""

    def __init__(self, pairs: PairsOnDevice, counts: Floats, spread: Floats):
        """Takes the pairs, which must not change while the weights are in use.

        Args:
            pairs: wealth, losses and who lives.
            counts: `[R]` how many members each row has.
            spread: `[C]` s^2 of each column.
        """
        self._pairs, self._torch = pairs, pairs.torch
        self._least = pairs.loss.amin(dim=0)
        self._per = pairs.there(-1 / (2 * spread))
        members = pairs.there(counts)
        total = self._torch.zeros_like(self._least)
        for b in pairs.blocks():
            total += members[b] @ self._logs(b).clamp_(min=-700.0).exp_()
        self._normal = total.log_()

    def _logs(self, rows: slice | Tensor) -> Tensor:
        """Returns `[rows, C]` -loss / 2 s^2, 0 for the best of a column."""
        return self._torch.sub(self._pairs.loss[rows], self._least).mul_(self._per)

    def _of(self, rows: slice | Tensor) -> Tensor:
        """Returns `[rows, C]` the weights of some rows."""
        logs = self._logs(rows).sub_(self._normal).sub_(self._pairs.wealth[rows].clamp(min=1.0).log_())
        return logs.masked_fill_(~self._pairs.alive[rows], -np.inf)

    def _terms(self, by_row: Floats) -> Iterator[Tensor]:
        """Yields `[r, C]` sums of `by_row` `[R]` and the weights, for rows where it is above -inf."""
        there = self._pairs.there(by_row)
        for b in self._pairs.blocks():
            if (by_row[b] > -np.inf).any():
                yield self._of(b).add_(there[b][:, None])

    def largest(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the largest sum of `by_row` `[R]` and a weight of the column."""
        best = self._torch.full_like(self._least, -np.inf)
        for terms in self._terms(by_row):
            best = self._torch.maximum(best, terms.amax(dim=0))
        return np.asarray(best.cpu().numpy())

    def log_sums(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the logarithm of the sum over rows of exp(`by_row` + weight)."""
        total = self._torch.full_like(self._least, -np.inf)
        for terms in self._terms(by_row):
            total = self._torch.logaddexp(total, terms.logsumexp(dim=0))
        return np.asarray(total.cpu().numpy())

    def column(self, j: int, /) -> Floats:
        """Returns `[R]` the weights of a column."""
        pairs = self._pairs
        logs = (pairs.loss[:, j] - self._least[j]) * self._per[j] - self._normal[j]
        logs -= pairs.wealth[:, j].clamp(min=1.0).log()
        return np.asarray(logs.masked_fill_(~pairs.alive[:, j], -np.inf).cpu().numpy())

    def at(self, i: int, j: int, /) -> float:
        """Returns the weight of one pair."""
        return float(self.column(j)[i])


class PairState(NamedTuple):
    """What has a number for every pair; tensors `[R, C]` on the device, changed in place."""

    wealth: Any  # float64
    loss: Any  # float64
    alive: Any  # bool


class BatchOnDevice(NamedTuple):
    """A batch as the kernel reads it; tensors on the device."""

    rows: Any  # [R] int64, which of the G rows of values each row has
    f: Any  # [n, G] values of rows
    low: Any  # [n, G] the smallest bet that each allows
    high: Any  # [n, G] the largest
    y: Any  # [n, C] what came of columns
    expected: Any  # [n, C] what was expected
    spread: Any  # [n, C] its variance, above 0


def _has_triton(device: Any) -> bool:
    """Whether the kernel can be used: on a GPU, with Triton."""
    return device.type == "cuda" and find_spec("triton") is not None


@functools.cache
def _kernel() -> Any:
    """Returns a Triton kernel that settles the bets of a batch in one pass; it is compiled when it is first launched.

    A program of the kernel takes one row and 256 columns. It computes every bet, every factor and the squared errors in
    registers, and reads and writes wealth, losses and who lives once.
    """
    import triton
    import triton.language as tl

    def settle_bets(  # type: ignore[no-untyped-def] # Triton reads annotations, and takes none of Python's
        wealth,
        loss,
        alive,
        rows,
        f,
        low,
        high,
        y,
        expected,
        spread,
        numbers,  # [6] as `Numbers`; Triton takes plain numbers as float32
        died,  # [1]
        C,
        G,
        n,
        WIDTH: tl.constexpr,
        MULTIPLIED: tl.constexpr,
        TOLERANT: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)  # the axis that may have more than 65,535 programs; places may pass 2^31
        column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        inside = column < C
        mine = tl.load(rows + row)
        money = tl.load(numbers)
        needed = tl.load(numbers + 1)
        zeta = tl.load(numbers + 2)
        most = tl.load(numbers + 3)
        cap = tl.load(numbers + 4)
        tolerance = tl.load(numbers + 5)
        change = tl.zeros((WIDTH,), tl.float64)
        squares = tl.zeros((WIDTH,), tl.float64)
        for first in range(0, n, MULTIPLIED):
            product = tl.full((WIDTH,), 1.0, tl.float64)
            staked = tl.zeros((WIDTH,), tl.float64)
            for k in tl.static_range(MULTIPLIED):
                i = (first + k).to(tl.int64)
                is_sample = i < n  # behind the last sample limits of 0 make bets of 0
                value = tl.load(f + i * G + mine, mask=is_sample, other=0.0)
                least = tl.load(low + i * G + mine, mask=is_sample, other=0.0)
                largest = tl.load(high + i * G + mine, mask=is_sample, other=0.0)
                came = tl.load(y + i * C + column, mask=inside & is_sample, other=0.0)
                g = tl.load(expected + i * C + column, mask=inside & is_sample, other=0.0)
                d = g - value
                up = d > 0
                if TOLERANT:
                    d = tl.maximum(d - tolerance, 0.0) + tl.minimum(d + tolerance, 0.0)
                s = tl.load(spread + i * C + column, mask=inside & is_sample, other=1.0)
                edge = d * tl.where(up, g, g - 1.0)
                bet = tl.minimum(edge / (cap * (s + edge)), 1.0) * tl.where(up, largest, least)
                product = product * (1.0 + bet * (came - value))
                if TOLERANT:
                    product = product / (1.0 + tolerance * tl.abs(bet))
                staked += tl.abs(bet)
                squares += (came - value) * (came - value)
            change += tl.log(product) - zeta * staked
        place = row * C + column
        lives = tl.load(alive + place, mask=inside, other=0) != 0
        grown = (tl.load(wealth + place, mask=inside, other=0.0) + money) * tl.exp(tl.minimum(change, most))
        dies = lives & (grown >= needed)
        stays = lives ^ dies  # also where the wealth is not a number: that refutes nothing
        tl.store(wealth + place, tl.where(stays, grown, 0.0), mask=inside)
        tl.store(alive + place, stays.to(tl.int8), mask=inside)
        tl.store(loss + place, tl.load(loss + place, mask=inside, other=0.0) + squares, mask=inside)
        deaths = tl.sum(dies.to(tl.int32), axis=0)
        if deaths > 0:
            tl.atomic_add(died, deaths.to(tl.int64))

    return triton.jit(settle_bets, do_not_specialize=["C", "G", "n"])


# Money that is put in before a batch, computed wealth at which a pair dies, ZETA, MOST_GROWTH, CAP, tolerance.
Numbers = tuple[float, float, float, float, float, float]


def _settled_by_triton(state: PairState, batch: BatchOnDevice, numbers: Numbers) -> int:
    """Lets wealth grow by the bets of a batch, adds up losses, drops pairs that die, and returns how many did.

    Args:
        state: of all pairs, changed in place.
        batch: what was played.
        numbers: of the bets.
    """
    torch = pytorch("a GPU")
    (n, G), (R, C) = batch.f.shape, state.wealth.shape
    device = state.wealth.device
    there = torch.tensor(numbers, dtype=torch.float64, device=device)
    died = torch.zeros(1, dtype=torch.int64, device=device)
    tensors = (state.wealth, state.loss, state.alive.view(torch.int8), *batch, there, died)
    sizes = {"WIDTH": COLUMNS, "MULTIPLIED": FACTORS, "TOLERANT": numbers[-1] > 0}
    with torch.cuda.device(device):
        _kernel()[(R, -(-C // COLUMNS))](*tensors, C, G, n, **sizes, num_warps=4)
    return int(died)


def _settled_by_pytorch(state: PairState, batch: BatchOnDevice, numbers: Numbers) -> int:
    """Does what `_settled_by_triton` does, with PyTorch's own operations."""
    money, needed, zeta, most, cap, tolerance = numbers
    torch = pytorch("a device")
    values = batch.f.index_select(1, batch.rows)
    low, high = batch.low.index_select(1, batch.rows), batch.high.index_select(1, batch.rows)
    change, product, staked = (
        torch.zeros_like(state.wealth),
        torch.ones_like(state.wealth),
        torch.zeros_like(state.wealth),
    )
    n = len(values)
    for i in range(n):
        f = values[i][:, None]
        g = batch.expected[i]
        d = g - f
        up = d > 0
        if tolerance:
            d = (d - tolerance).clamp_(min=0.0) + (d + tolerance).clamp_(max=0.0)
        edge = d.mul_(torch.where(up, g, g - 1.0))
        bet = edge.div(cap * (batch.spread[i] + edge)).clamp_(max=1.0)
        bet *= torch.where(up, high[i][:, None], low[i][:, None])
        error = batch.y[i] - f
        product *= 1.0 + bet * error
        staked += bet.abs_()
        if tolerance:
            product /= 1.0 + tolerance * bet
        state.loss.add_(error.square_())
        if i % FACTORS == FACTORS - 1 or i == n - 1:
            change += product.log() - zeta * staked
            product.fill_(1.0)
            staked.zero_()
    state.wealth.add_(money).mul_(change.clamp_(max=most).exp_()).masked_fill_(~state.alive, 0.0)
    dying = state.alive & (state.wealth >= needed)
    state.alive.logical_and_(~dying)
    state.wealth.masked_fill_(dying, 0.0)
    return int(dying.sum())
