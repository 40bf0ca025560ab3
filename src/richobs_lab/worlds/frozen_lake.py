"""FrozenLake on a slippery lake (Gymnasium's toy-text maps), with the Q functions of many maps as the class.

Given state and action, a `TabularProcess` draws reward and next state independently, so a reward cannot depend on where a
move ends. This is why the goal pays at the level after the arrival. Shapes: N candidate maps, C cells, X = C + 1
observations (the cells, then "over"), K = 4 actions, H levels.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from richobs.classes import Tables
from richobs.core.errors import InvalidInput
from richobs.core.functions import reduced
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask
from richobs.worlds.simulator import TabularWorld, WorldEnvironment, require_range, require_size

MAPS = {  # S start, F frozen, H hole, G goal
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": (
        "SFFFFFFF",
        "FFFFFFFF",
        "FFFHFFFF",
        "FFFFFHFF",
        "FFFHFFFF",
        "FHHFFFHF",
        "FHFFHFHF",
        "FFFHFFFG",
    ),
}
N_ACTIONS = 4
STEPS = (
    (0, -1),
    (1, 0),
    (0, 1),
    (-1, 0),
)  # left, down, right, up, as (rows, columns); neighbours in this list are sides
FROZEN = 0.8  # probability that a cell of a random map is frozen, as in Gymnasium's generate_random_map
DRAWS = 64  # candidates drawn for each one that is wanted, at most, before giving up


@dataclass(frozen=True)
class Config:
    """Slippery FrozenLake: reach the goal before the time is up; candidates are the Q functions of other maps.

    An action moves one cell in its direction with probability 1 - 2 slip, and one cell to either side of that
    direction with probability slip each; a move off the map leaves the agent where it is. The observation is the
    cell. A fall into a hole is seen, and from then on the observation is "over", because an episode of Gymnasium's
    lake ends there. The goal pays 1, once: the first action after the arrival earns it, whichever action it is, and
    then it is "over" too. An arrival with the last move pays at once. V*, and Q* of every cell but the goal, are the
    same as if every arrival paid at once.
    """

    horizon: int = 30
    """Number of moves."""
    map: Literal["4x4", "8x8"] = "4x4"
    """Which of the two standard maps is the lake."""
    slip: float = 1 / 3
    """Probability of moving to the left of the direction, and also to the right of it (above 0: breaks Assumption 3)."""
    n_maps: int = 100
    """Number of candidate maps, the lake among them."""
    candidates: Literal["random", "near"] = "random"
    """Other candidates: random maps whose goal can be reached, or the lake with one hole moved."""
    slip_unknown: bool = False
    """Draw a slip probability for each other candidate; otherwise all have that of the lake."""
    slip_range: float = 0.15
    """Largest difference between the slip of a candidate and that of the lake, where `slip_unknown`."""
    seed: int = 0
    """Chooses the candidates and the place of the lake among them."""

    def __post_init__(self) -> None:
        require_range(self, "horizon", low=1)
        for name in ("slip", "slip_range"):
            require_range(self, name, low=0.0, high=0.5)
        require_range(self, "n_maps", low=1)
        seen = len(MAPS[self.map]) ** 2 + 1
        require_size(self, self.horizon, seen * N_ACTIONS * (seen + self.n_maps))


class Lakes(NamedTuple):
    """Candidate maps, all of one size, with the start in the first cell and the goal in the last."""

    holes: Mask  # [N, C] which cells are holes
    slips: Floats  # [N] probability of moving to one side


def holes_of(rows: tuple[str, ...]) -> Mask:
    """Returns `[C]` which cells of a map are holes."""
    return np.array([cell == "H" for row in rows for cell in row])


def neighbours(n_cells: int) -> Ints:
    """Returns `[C, 4]` the cell that lies in each direction on a square map; at the edge the cell itself."""
    side = round(n_cells**0.5)
    row, column = np.divmod(np.arange(n_cells), side)
    there = [np.clip(row + r, 0, side - 1) * side + np.clip(column + c, 0, side - 1) for r, c in STEPS]
    return np.stack(there, axis=1)


def has_way(holes: Mask) -> Mask:
    """Returns `[N]` whether frozen cells lead from the first cell to the last, for the maps `holes` `[N, C]`."""
    beside = neighbours(holes.shape[1])
    reached = np.zeros_like(holes)
    reached[:, 0] = True
    while True:
        wider = (reached | reached[:, beside].any(axis=2)) & ~holes
        if (wider == reached).all():
            return np.asarray(reached[:, -1])
        reached = wider


def q_functions(lakes: Lakes, horizon: int) -> list[Floats]:
    """Returns per level `[N, X, K]` Q* of every map, by value iteration backwards over all maps at once."""
    n, n_cells = lakes.holes.shape
    beside = neighbours(n_cells)
    slip = lakes.slips[:, None, None]
    value = np.zeros((n, n_cells))
    value[:, -1] = 1  # after the last move, standing on the goal is worth the reward for arriving
    tables: list[Floats] = []
    for _ in range(horizon):
        ahead = value[:, beside]  # [N, C, 4]
        q = np.zeros((n, n_cells + 1, N_ACTIONS))
        q[:, :-1] = (1 - 2 * slip) * ahead + slip * (np.roll(ahead, 1, axis=2) + np.roll(ahead, -1, axis=2))
        q[:, :-1][lakes.holes] = 0
        q[:, n_cells - 1] = 1
        np.minimum(q, 1, out=q)  # rounding
        tables.append(q)
        value = reduced(np.maximum, q[:, :-1])
    return tables[::-1]


def process_of(holes: Mask, slip: float, horizon: int) -> TabularProcess:
    """Returns the process of one map `[C]`."""
    n_cells = len(holes)
    goal, over = n_cells - 1, n_cells
    move = np.zeros((n_cells + 1, N_ACTIONS, n_cells + 1))
    beside = neighbours(n_cells)
    for cell in range(n_cells):
        for action in range(N_ACTIONS):
            for turn, chance in ((-1, slip), (0, 1 - 2 * slip), (1, slip)):
                move[cell, action, beside[cell, (action + turn) % N_ACTIONS]] += chance
    move[[*np.flatnonzero(holes), goal, over]] = np.eye(n_cells + 1)[over]
    at_goal = np.zeros((n_cells + 1, 1, N_ACTIONS))
    at_goal[goal] = 1
    arrives = move[:, None, :, goal] + at_goal  # at the last level arriving pays too
    side = round(n_cells**0.5)
    names = [f"({row}, {column})" for row in range(side) for column in range(side)] + ["over"]
    return TabularProcess(
        start=np.eye(n_cells + 1)[0],
        transitions=(move,) * (horizon - 1),
        emissions=(np.eye(n_cells + 1),) * horizon,
        rewards=(Rewards.deterministic(at_goal),) * (horizon - 1) + (Rewards.bernoulli(np.minimum(arrives, 1)),),
        observations=(np.arange(n_cells + 1),) * horizon,
        labels=tuple(tuple(f"{level}:{name}" for name in names) for level in range(horizon)),
    )


def candidate_lakes(config: Config, rng: np.random.Generator) -> tuple[Lakes, int]:
    """Returns the candidates in random order, and the place of the true lake among them."""
    truth = holes_of(MAPS[config.map])
    holes = _other_maps(truth, config, rng)
    slips = np.full(config.n_maps, config.slip)
    if config.slip_unknown:
        low, high = max(0.0, config.slip - config.slip_range), min(0.5, config.slip + config.slip_range)
        slips[1:] = rng.uniform(low, high, config.n_maps - 1)
    order = rng.permutation(config.n_maps)
    lakes = Lakes(np.concatenate([truth[None], holes])[order], slips[order])
    return lakes, int(np.flatnonzero(order == 0)[0])


def _other_maps(truth: Mask, config: Config, rng: np.random.Generator) -> Mask:
    """Returns `[N - 1, C]` maps with a way to the goal; where slips are equal, all differ from each other and the truth."""
    wanted = config.n_maps - 1
    slips_differ = config.slip_unknown and config.slip_range > 0
    found = np.zeros((0, len(truth)), dtype=bool)
    draw = _random_maps if config.candidates == "random" else _near_maps
    for _ in range(DRAWS):
        drawn = draw(truth, config.n_maps, rng)
        found = np.concatenate([found, drawn[has_way(drawn)]])
        if not slips_differ:
            found = found[(found != truth).any(axis=1)]
            _, first = np.unique(found, axis=0, return_index=True)
            found = found[np.sort(first)]
        if len(found) >= wanted:
            return found[:wanted]
    raise InvalidInput(
        f"frozen-lake: {DRAWS * config.n_maps:,} draws gave {len(found):,} different {config.candidates} maps of size "
        f"{config.map} besides the lake; n_maps asks for {wanted:,}. Ask for fewer, or give slip_unknown=True, so that "
        "candidates with the same map differ in their slip."
    )


def _random_maps(truth: Mask, n: int, rng: np.random.Generator) -> Mask:
    """Returns `[n, C]` maps whose cells are frozen with probability FROZEN each; start and goal always are."""
    holes = rng.random((n, len(truth))) >= FROZEN
    holes[:, [0, -1]] = False
    return holes


def _near_maps(truth: Mask, n: int, rng: np.random.Generator) -> Mask:
    """Returns `[n, C]` copies of the true map with one hole moved to a frozen cell."""
    frozen = np.flatnonzero(~truth)[1:-1]  # without start and goal
    holes = np.tile(truth, (n, 1))
    rows = np.arange(n)
    holes[rows, rng.choice(np.flatnonzero(truth), n)] = False
    holes[rows, rng.choice(frozen, n)] = True
    return holes


def build(config: Config) -> Problem:
    """Returns the lake with the listed class of the Q functions of all candidate maps."""
    lakes, place = candidate_lakes(config, keyed_generator(config.seed, "frozen-lake", "secret"))
    process = process_of(lakes.holes[place], config.slip, config.horizon)
    world = TabularWorld(process)
    return Problem(
        env=WorldEnvironment(world),
        functions=Tables(q_functions(lakes, config.horizon), codebooks=process.codebooks),
        process=process,
        n_states=process.n_states,
        truth=Truth(process.optimum.value, place, world),
    )
