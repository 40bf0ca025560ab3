"""The wealth of every pair of neighbouring members at one level [B1], held on a device of PyTorch.

What has a number for every pair stays on the device from batch to batch: wealth, losses, and who lives. A batch brings
values of rows and columns there, and forecasts of columns and the number of deaths come back. Everything is float64. Deaths
take the rounding of the device into account: docs/betting.md, Rounding. Few pairs are left to NumPy, which is faster then.
Shapes: R rows, C columns, n samples, P priors.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from richobs.core.types import Floats, Ints, Mask
from richobs.device.levels import pytorch, torch_device
from richobs.learners.betting import fused
from richobs.learners.betting.forecasts import CONSTANTS, FARTHEST
from richobs.learners.betting.fused import FACTORS, BatchOnDevice, PairState
from richobs.learners.betting.pairs import HostPairs, HostWeights, Weights
from richobs.stats import bets

Tensor = Any  # torch.Tensor; PyTorch need not be installed
FEWEST_PAIRS = 1 << 15  # from which on pairs are held on the device; they come back below a quarter of it
AT_ONCE_PAIRS = 1 << 25  # pairs whose numbers are computed at once: 256 MB for each of a few temporary arrays


class DevicePairs(HostPairs):
    """Pairs on a device of PyTorch, where there are many of them; `alive`, `wealth` and `loss` are tensors then."""

    def __init__(self, rows: int, columns: int, limit: float, device: str):
        """Takes what `HostPairs` takes, and the name of the device.

        Raises:
            InvalidInput: PyTorch is not installed, or there is no such device.
        """
        super().__init__(rows, columns, limit)
        self._torch, self._device = pytorch(f"device {device!r}"), torch_device(device)
        self.alive: Any
        self.wealth: Any
        self.loss: Any
        self.is_away = False  # whether the pairs are on the device
        self._move(1)

    def _there(self, numbers: Floats | Ints | Mask) -> Tensor:
        """Returns a NumPy array on the device."""
        return self._torch.as_tensor(np.ascontiguousarray(numbers), device=self._device)

    def blocks(self) -> Iterator[slice]:
        """Yields slices of rows with at most `AT_ONCE_PAIRS` pairs, at least one row each."""
        step = max(1, AT_ONCE_PAIRS // max(1, self.n_columns))
        for first in range(0, self.n_rows, step):
            yield slice(first, min(first + step, self.n_rows))

    def _move(self, size: int) -> None:
        """Moves the pairs to where so many of them are to be held."""
        goes, comes = not self.is_away and size >= FEWEST_PAIRS, self.is_away and 4 * size < FEWEST_PAIRS
        if goes:
            self.alive, self.wealth, self.loss = (self._there(a) for a in (self.alive, self.wealth, self.loss))
        elif comes:
            self.alive, self.wealth, self.loss = (a.cpu().numpy() for a in (self.alive, self.wealth, self.loss))
        self.is_away = (self.is_away or goes) and not comes

    def _take_rows(self, rows: Ints) -> None:
        self._move(len(rows) * self.n_columns)
        if not self.is_away:
            super()._take_rows(rows)
            return
        index = self._there(rows)
        self.alive, self.wealth, self.loss = (a.index_select(0, index) for a in (self.alive, self.wealth, self.loss))

    def _take_columns(self, columns: Ints) -> None:
        self._move(self.n_rows * len(columns))
        if not self.is_away:
            super()._take_columns(columns)
            return
        index = self._there(columns)
        self.alive, self.wealth, self.loss = (a.index_select(1, index) for a in (self.alive, self.wealth, self.loss))

    def _forecast(self, variance: Floats, sums: Floats) -> Floats:
        if not self.is_away:
            return super()._forecast(variance, sums)
        torch = self._torch
        constant_loss, all_sums = self._there(self.constant_loss), self._there(sums)
        counts, constants = self._there(self.counts), self._there(CONSTANTS)
        least = torch.minimum(self.loss.amin(dim=0), constant_loss.amin(dim=0))  # [C]
        result = np.empty((*variance.shape, sums.shape[1]))
        for k, s in enumerate(variance):
            per = self._there(-1 / (2 * s))
            constant = ((constant_loss - least) * per).clamp_(min=-FARTHEST).exp_()
            total = constant.sum(dim=0)
            mean = (constants @ constant)[:, None].repeat(1, sums.shape[1])
            for b in self.blocks():
                weight = torch.sub(self.loss[b], least).mul_(per).clamp_(min=-FARTHEST).exp_()
                total += counts[b] @ weight
                mean += weight.T @ all_sums[b]
            result[k] = (mean / total[:, None]).cpu().numpy()
        return result

    def _settle_bets(self, f: Floats, f_row: Ints, earned: Floats, expected: Floats, spread: Floats, t: int) -> int:
        if not self.is_away:
            return super()._settle_bets(f, f_row, earned, expected, spread, t)
        self.rounding += bets.growth_rounding(f.shape[1])
        needed = bets.surely(self.limit, self.rounding)
        low, high = -bets.CAP / np.maximum(1 - f, bets.FLOOR), bets.CAP / np.maximum(f, bets.FLOOR)
        samples = (f, low, high, earned, expected, np.maximum(spread, bets.LEAST_VARIANCE))
        batch = BatchOnDevice(self._there(f_row), *(self._there(part.T) for part in samples))
        if fused.supports(self._device):
            return fused.settle(PairState(self.wealth, self.loss, self.alive), batch, bets.money(t), needed)
        died = 0
        for b in self.blocks():
            state = PairState(self.wealth[b], self.loss[b], self.alive[b])
            died += settle(state, batch._replace(rows=batch.rows[b]), bets.money(t), needed)
        return died

    def weights(self) -> Weights:
        """Returns how well pairs fit; on the device nothing of the size of all pairs is held for it."""
        return DeviceWeights(self) if self.is_away else super().weights()

    def even_weights(self) -> Weights:
        """Returns the same weight, 1, for every living pair; few pairs are held in NumPy."""
        if not self.is_away:
            return super().even_weights()
        return HostWeights(np.where(self.alive.cpu().numpy(), 0.0, -np.inf))

    def living_rows(self) -> Mask:
        """Returns `[R]` which rows have a living pair."""
        if not self.is_away:
            return super().living_rows()
        return np.asarray(self.alive.any(dim=1).cpu().numpy())

    def living_columns(self) -> Mask:
        """Returns `[C]` which columns have a living pair."""
        if not self.is_away:
            return super().living_columns()
        return np.asarray(self.alive.any(dim=0).cpu().numpy())

    def sums_over_living(self, by_row: Floats) -> Floats:
        """Returns `[C]` the sum of `by_row` `[R]` over the rows that each column has a living pair with."""
        if not self.is_away:
            return super().sums_over_living(by_row)
        given = self._there(by_row)
        total = self._torch.zeros(self.n_columns, dtype=self._torch.float64, device=self._device)
        for b in self.blocks():
            total += given[b] @ self.alive[b].double()
        return np.asarray(total.cpu().numpy())


class DeviceWeights:
    """The logarithms of how well pairs fit, computed from the pairs when they are asked for, a block of rows at a time."""

    def __init__(self, pairs: DevicePairs):
        """Takes the pairs; these must not change while the weights are in use."""
        self._pairs, self._torch = pairs, pairs._torch
        self._least = pairs.loss.amin(dim=0)
        self._per = pairs._there(-1 / (2 * pairs.spread))
        counts = pairs._there(pairs.counts)
        total = self._torch.zeros_like(self._least)
        for b in pairs.blocks():
            total += counts[b] @ self._logs(b).clamp_(min=-700.0).exp_()
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
        there = self._pairs._there(by_row)
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


def settle(state: PairState, batch: BatchOnDevice, money: float, needed: float) -> int:
    """Does what `fused.settle` does, with PyTorch's own operations."""
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
        d = batch.expected[i] - f
        bet = (d / (batch.spread[i] + d * d)).clamp_(low[i][:, None], high[i][:, None])
        error = batch.y[i] - f
        product *= 1.0 + bet * error
        staked += bet.abs_()
        state.loss.add_(error.square_())
        if i % FACTORS == FACTORS - 1 or i == n - 1:
            change += product.log() - bets.ZETA * staked
            product.fill_(1.0)
            staked.zero_()
    state.wealth.add_(money).mul_(change.clamp_(max=bets.MOST_GROWTH).exp_()).masked_fill_(~state.alive, 0.0)
    dying = state.alive & (state.wealth >= needed)
    state.alive.logical_and_(~dying)
    state.wealth.masked_fill_(dying, 0.0)
    return int(dying.sum())
