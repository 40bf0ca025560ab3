"""The bets of a batch settled in one pass over all pairs [B1], as a Triton kernel for a GPU.

A program of the kernel takes one row and 256 columns. It computes every bet, every factor and the squared errors in
registers, and reads and writes wealth, losses and who lives once. All arithmetic is in float64. `DevicePairs` does the
same with PyTorch's own operations where there is no Triton. Shapes: R rows, C columns, n samples, G distinct rows of values.
"""

import functools
from importlib.util import find_spec
from typing import Any, NamedTuple

from richobs.device.levels import pytorch
from richobs.stats import bets

COLUMNS = 256  # of one program; four warps
FACTORS = 8  # samples whose factors are multiplied before a logarithm is taken; no product leaves float64's range


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


def supports(device: Any) -> bool:
    """Whether the kernel can be used: on a GPU, with Triton."""
    return device.type == "cuda" and find_spec("triton") is not None


@functools.cache
def _kernel() -> Any:
    """Returns the kernel; Triton compiles it when it is first launched."""
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
        numbers,  # [4] money, wealth at death, ZETA, MOST_GROWTH; Triton takes plain numbers as float32
        died,  # [1]
        C,
        G,
        n,
        WIDTH: tl.constexpr,
        MULTIPLIED: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)  # the axis that may have more than 65,535 programs; places may pass 2^31
        column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        inside = column < C
        mine = tl.load(rows + row)
        money = tl.load(numbers)
        needed = tl.load(numbers + 1)
        zeta = tl.load(numbers + 2)
        most = tl.load(numbers + 3)
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
                d = tl.load(expected + i * C + column, mask=inside & is_sample, other=0.0) - value
                s = tl.load(spread + i * C + column, mask=inside & is_sample, other=1.0)
                bet = tl.minimum(tl.maximum(d / (s + d * d), least), largest)
                product = product * (1.0 + bet * (came - value))
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


def settle(state: PairState, batch: BatchOnDevice, money: float, needed: float) -> int:
    """Lets wealth grow by the bets of a batch, adds up losses, drops pairs at `needed`, and returns how many died.

    Args:
        state: of all pairs, changed in place.
        batch: what was played.
        money: what is put in before the batch.
        needed: computed wealth at which a pair dies.
    """
    torch = pytorch("a GPU")
    (n, G), (R, C) = batch.f.shape, state.wealth.shape
    device = state.wealth.device
    numbers = torch.tensor([money, needed, bets.ZETA, bets.MOST_GROWTH], dtype=torch.float64, device=device)
    died = torch.zeros(1, dtype=torch.int64, device=device)
    tensors = (state.wealth, state.loss, state.alive.view(torch.int8), *batch, numbers, died)
    with torch.cuda.device(device):
        _kernel()[(R, -(-C // COLUMNS))](*tensors, C, G, n, WIDTH=COLUMNS, MULTIPLIED=FACTORS, num_warps=4)
    return int(died)
