"""Worlds at the edge of what the statements about on-demand exploration promise.

In each of them every function claims the optimal value everywhere, so that consensus holds and the search at the root learns
nothing below it; only an elimination reveals which actions are good. A function steers by preferring one of several optimal
actions by `NUDGE`, far less than any threshold. Each state shows two observations of its own.
"""

import math
from collections.abc import Sequence

import numpy as np

from richobs import FunctionClass, Layered, Problem, Rewards, Tables, TabularProcess, Truth
from richobs.classes import TableLevel
from richobs.core.types import Floats, Member
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.paper.rigs.printed import Printed

NUDGE = 1e-9


def learned_tolerance(printed: Printed, level: int) -> float:
    """Returns the loss of one action up to which a state counts as learned (tex line 1801, the set L): h is level + 1."""
    K, phi = printed.K, printed.phi
    ahead = printed.H - (level + 1)
    return 4 * phi * math.sqrt(2 * K) + 2 * phi + 40 * ahead * math.sqrt(K) * phi


def staircase(
    *, horizon: int, n_states: int, n_actions: int, members: int = 0, product: bool = False, shown: bool = False
) -> Problem:
    """Returns a world in which on-demand exploration takes as many rounds as it can, (M-1)(H-1) + 2.

    From every state action a leads to state a mod M of the next level; the last action leads to state 0. Below the root all
    actions pay a coin that is worth 3/4 of 1/(H-1), the last pays nothing. Function (h, j) goes to state j of level h, where
    it values the last action as much as the others. The first round learns one state a level, each further round one state.

    Args:
        horizon: H, at least 2.
        n_states: M.
        n_actions: K, at least M + 1.
        members: makes the class larger: as many functions (a level, for a product class), told apart by an observation that
            never occurs.
        product: the class of a single liar and the truth as a product over levels, which may be huge.
        shown: states show themselves, one observation each: an MDP.
    """
    H, M, K = horizon, n_states, n_actions
    sizes = [1] + [M] * (H - 1)
    prize = 1 / (H - 1)
    target = np.append(np.arange(K - 1) % M, 0)
    mean = np.append(np.full(K - 1, 0.75), 0.0)
    process = TabularProcess(
        start=np.ones(1),
        transitions=tuple(np.tile(target, (size, 1)) for size in sizes[:-1]),
        emissions=tuple(np.eye(size) if shown else _two_each(size) for size in sizes),
        rewards=(Rewards.deterministic(0.0), *(Rewards.bernoulli(mean, prize) for _ in sizes[1:])),
    )
    truth = process.q_tables
    liars = [(1, 0)] if product else [(1, 0), *((h, j) for h in range(1, H) for j in range(1, M))]
    tables = [np.repeat(t[None], len(liars) + 1, axis=0) for t in truth]  # per level [N, X, K]; the truth comes last
    for i, (h, j) in enumerate(liars):
        tables[h - 1][i, :, j] += NUDGE
        own = slice(j, j + 1) if shown else slice(2 * j, 2 * j + 2)  # what state j shows
        tables[h][i, own, K - 1] = truth[h].max() + NUDGE
    if product:
        tables = [t[-1:] if h != 1 else t for h, t in enumerate(tables)]
    size = max(members, len(liars) + 1)
    tables = [_told_apart(t, size) for t in tables]
    functions: FunctionClass = Layered([TableLevel(t) for t in tables]) if product else Tables(tables)
    return _problem(_with_unseen(process), functions, (size - 1,) * H if product else size - 1)


def cliff(chance: float, losses: Sequence[float], *, worth: float, paid: float = 0.0) -> Problem:
    """Returns a world in which a policy steps off a cliff with a given probability, and what it loses elsewhere is given.

    The root shows observation 1 with probability `chance`; there the policy goes to a state in which it earns nothing
    instead of what is optimal. Otherwise it walks along a chain. In every state on its way it loses `losses[level]`. The
    class holds the policy's function first, then Q*.

    Args:
        chance: of stepping off.
        losses: one per level, H of them.
        worth: what chain and cliff earn besides, if played well; with the losses at most 1.
        paid: what the root pays besides where observation 1 shows.
    """
    H, K = len(losses), 3
    first = np.zeros((1, 2, K))
    first[:, 1] = paid
    first[:, :, 0] += losses[0]
    if H == 1:
        first += worth
    rewards, emissions = [Rewards.deterministic(first)], [np.array([[1 - chance, chance]])]
    for h in range(1, H):
        pay = np.zeros((2, 1, K))  # state 0 is the chain, state 1 what lies below the cliff
        pay[0] = worth if h == H - 1 else 0.0
        pay[0, :, 0] += losses[h]
        pay[1, :, 0] = worth + math.fsum(losses[1:]) if h == 1 else 0.0
        rewards.append(Rewards.deterministic(pay))
        emissions.append(_two_each(2))
    moves = [np.array([[0, 0, 1]])] + [np.array([[0] * K, [1] * K])] * (H - 2)
    process = TabularProcess(np.ones(1), tuple(moves[: H - 1]), tuple(emissions), tuple(rewards))
    tables = []
    for h, truth in enumerate(process.q_tables):
        claim = np.minimum(truth, 1 - NUDGE)  # where the optimum is 1 there is no room above
        liked = np.where(np.arange(len(truth)) == 1, 2, 1) if h == 0 else np.ones(len(truth), dtype=np.int64)
        claim[np.arange(len(truth)), liked] = claim.max(axis=1) + NUDGE
        tables.append(np.stack([claim, truth]))
    return _problem(process, Tables(tables), 1)


def gap(loss: float, *, optimum: float = 0.75) -> Problem:
    """Returns a bandit with coins for rewards: the first function's policy earns `loss` less than the optimum."""
    process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (Rewards.bernoulli([optimum, optimum - loss]),))
    truth = process.q_tables[0]
    return _problem(process, Tables([np.stack([truth[:, ::-1], truth])]), 1)


def _two_each(n_states: int) -> Floats:
    """Returns emissions `[S, 2S]`: each state shows two observations of its own, one three times as often as the other."""
    return np.kron(np.eye(n_states), np.array([[0.75, 0.25]]))


def _with_unseen(process: TabularProcess) -> TabularProcess:
    """Returns the process with one more observation at every level, which never occurs."""
    emissions = tuple(np.column_stack([e, np.zeros(len(e))]) for e in process.emissions)
    rewards = tuple(Rewards(r.values[:, :1], r.probs[:, :1]) for r in process.rewards)
    return TabularProcess(process.start, process.transitions, emissions, rewards)


def _told_apart(tables: Floats, size: int) -> Floats:
    """Returns `[size, X+1, K]`: the tables, the last repeated, each with values of its own at an observation more."""
    full = np.concatenate([tables, np.repeat(tables[-1:], size - len(tables), axis=0)])
    top = full.max(axis=(1, 2))
    own = top * (1 - 1e-3 * np.arange(size) / size)
    return np.concatenate([full, np.repeat(own[:, None, None], full.shape[2], axis=2)], axis=1)


def _problem(process: TabularProcess, functions: FunctionClass, optimal_function: Member) -> Problem:
    """Returns the problem of a process and a class that holds its Q*."""
    world = TabularWorld(process)
    truth = Truth(process.optimum.value, optimal_function, world)
    return Problem(WorldEnvironment(world), functions, process, process.n_states, truth)
