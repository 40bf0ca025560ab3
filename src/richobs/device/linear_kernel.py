"""Linear functions and their moments in one pass over the observations, as a Triton kernel for a GPU.

A program of the kernel multiplies a block of observations with a block of functions, takes the greedy maximum over actions
and the residual of the action taken, and reduces both over its rows to a mean and a centred sum of squares, all in
registers. Values never reach the memory. Blocks are merged afterwards, also centred. All arithmetic is in float64.
Shapes: N functions, m observations, K actions, d features.
"""

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from richobs.device.levels import DeviceMemory, Taken

MEMBERS_AT_ONCE = 2**21  # functions of one launch
ROWS = 32  # observations of a block; those of one block took the same action
MEMBERS = 64  # functions of a block
WARPS = 4
MOST_FEATURES = 128  # blocks of more do not fit beside each other into a multiprocessor's memory
LEAST_FEATURES = 16  # a product of blocks needs so many; others are filled up with zeros


class Blocks(NamedTuple):
    """What the kernel says about every block of observations; tensors on the device."""

    v_mean: Any  # [B, N] mean of max_a f
    v_square: Any  # [B, N] sum of squares of max_a f about that mean
    u_mean: Any  # [B, N] mean of f(x, a) - r under the block's action
    u_square: Any  # [B, N] sum of squares about that mean
    clipped: Any  # [B, N] how many values lay outside the range


@functools.cache
def _kernel() -> Any:
    """Returns the kernel; Triton compiles it when it is first launched."""
    import triton
    import triton.language as tl

    def linear_blocks(  # type: ignore[no-untyped-def] # Triton reads annotations, and takes none of Python's
        theta,  # [K, d, N]
        phi,  # [B ROWS, d]
        rewards,  # [B ROWS]
        actions,  # [B] action of each block; K where none was taken
        counts,  # [B] rows of each block that count
        bounds,  # [2] smallest and largest value; Triton takes plain numbers as float32
        out,  # [B, 4, N]
        clipped,  # [B, N]
        N,
        K: tl.constexpr,
        D: tl.constexpr,
        ROWS: tl.constexpr,
        MEMBERS: tl.constexpr,
    ):
        block = tl.program_id(0)  # the axis that may have more than 65,535 programs
        members = tl.program_id(1) * MEMBERS + tl.arange(0, MEMBERS)
        inside = members < N
        row = tl.arange(0, ROWS)
        feature = tl.arange(0, D).to(tl.int64)  # places may pass 2^31
        n = tl.load(counts + block)
        action = tl.load(actions + block)
        low = tl.load(bounds)
        high = tl.load(bounds + 1)
        live = (row < n)[:, None]
        x = tl.load(phi + (block * ROWS + row)[:, None] * D + feature[None, :])
        r = tl.load(rewards + block * ROWS + row)
        best = tl.full((ROWS, MEMBERS), 0.0, tl.float64) + low
        u = tl.zeros((ROWS, MEMBERS), tl.float64)
        outside = tl.zeros((MEMBERS,), tl.int32)
        for a in tl.static_range(K):
            t = tl.load(theta + (a * D + feature)[:, None] * N + members[None, :], mask=inside[None, :], other=0.0)
            value = tl.dot(x, t, out_dtype=tl.float64)
            cut = tl.minimum(tl.maximum(value, low), high)
            outside += tl.sum(((cut != value) & live).to(tl.int32), axis=0)
            best = tl.maximum(best, cut)
            u = tl.where(action == a, cut, u)
        u = u - r[:, None]
        size = n.to(tl.float64)
        v_mean = tl.sum(tl.where(live, best, 0.0), axis=0) / size
        gap = tl.where(live, best - v_mean[None, :], 0.0)
        v_square = tl.sum(gap * gap, axis=0)
        u_mean = tl.sum(tl.where(live, u, 0.0), axis=0) / size
        gap = tl.where(live, u - u_mean[None, :], 0.0)
        u_square = tl.sum(gap * gap, axis=0)
        first = block.to(tl.int64) * N
        tl.store(out + first * 4 + members, v_mean, mask=inside)
        tl.store(out + first * 4 + N + members, v_square, mask=inside)
        tl.store(out + first * 4 + 2 * N + members, u_mean, mask=inside)
        tl.store(out + first * 4 + 3 * N + members, u_square, mask=inside)
        tl.store(clipped + first + members, outside, mask=inside)

    return triton.jit(linear_blocks)


class Rows(NamedTuple):
    """Observations in blocks of ROWS, as the kernel reads them; tensors on the device."""

    phi: Any  # [B ROWS, D] features; D is a power of two, rows and features that are filled up hold zeros
    rewards: Any  # [B ROWS]
    actions: Any  # [B] action of each block; K where none was taken
    counts: Any  # [B] rows of each block that count
    of_action: tuple[slice, ...]  # which blocks belong to each action that was taken, in order


def supports(memory: DeviceMemory, width: int) -> bool:
    """Whether the kernel can be used: on a GPU, with Triton, for so many features."""
    return memory.device.type == "cuda" and width <= MOST_FEATURES and find_spec("triton") is not None


def blocked(phi: Any, taken: Sequence[Taken], n_actions: int, torch: Any) -> Rows:
    """Returns observations in blocks, those of one block with the same action.

    Args:
        phi: `[m, d]` features.
        taken: the rows of each action; none where no action was taken.
        n_actions: number of actions K.
        torch: the module.
    """
    groups = [(t.action, t.rows, t.r_mean) for t in taken]
    if not groups:
        every = torch.arange(len(phi), device=phi.device)
        groups = [(n_actions, every, torch.zeros(len(phi), dtype=torch.float64, device=phi.device))]
    sizes = [-(-len(rows) // ROWS) for _, rows, _ in groups]
    B, width = sum(sizes), max(LEAST_FEATURES, 1 << (phi.shape[1] - 1).bit_length())
    filled = torch.zeros((B * ROWS, width), dtype=torch.float64, device=phi.device)
    rewards = torch.zeros(B * ROWS, dtype=torch.float64, device=phi.device)
    actions = torch.full((B,), n_actions, dtype=torch.int32, device=phi.device)
    counts = torch.full((B,), ROWS, dtype=torch.int32, device=phi.device)
    of_action, first = [], 0
    for (action, rows, r), size in zip(groups, sizes, strict=True):
        place = slice(first * ROWS, first * ROWS + len(rows))
        filled[place, : phi.shape[1]] = phi[rows]
        rewards[place] = r
        actions[first : first + size] = action
        counts[first + size - 1] = len(rows) - (size - 1) * ROWS
        if action < n_actions:
            of_action.append(slice(first, first + size))
        first += size
    return Rows(filled, rewards, actions, counts, tuple(of_action))


def linear_blocks(theta: Any, rows: Rows, value_range: tuple[float, float], torch: Any) -> Blocks:
    """Evaluates linear functions on blocks of observations and reduces each block.

    Args:
        theta: `[K, D, N]` parameters, contiguous float64.
        rows: the observations.
        value_range: range to which values are cut.
        torch: the module.
    """
    K, D, N = theta.shape
    B = len(rows.counts)
    out = torch.empty((B, 4, N), dtype=torch.float64, device=theta.device)
    clipped = torch.empty((B, N), dtype=torch.int32, device=theta.device)
    bounds = torch.tensor(value_range, dtype=torch.float64, device=theta.device)
    given = (theta, rows.phi, rows.rewards, rows.actions, rows.counts, bounds, out, clipped, N)
    sizes = {"K": K, "D": D, "ROWS": ROWS, "MEMBERS": MEMBERS}
    with torch.cuda.device(theta.device):
        _kernel()[B, -(-N // MEMBERS)](*given, **sizes, num_warps=WARPS)
    return Blocks(out[:, 0], out[:, 1], out[:, 2], out[:, 3], clipped)
