"""Every world as a Gymnasium environment: one copy, or many copies in one vector environment; and pictures of it.

Observations do not contain the level unless the world itself shows it. `info["level"]` and `info["latent_state"]` are for
looking at a run; a learner should not use them. After the last action the observation is all zeros, and `terminated` is
true.
"""

import typing
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.worlds.registry import WORLDS, configure, full_id, shared_problem
from richobs.worlds.simulator import World


def register_all() -> None:
    """Registers every world with Gymnasium, `lock` as `richobs/Lock-v0`; those that are registered stay as they are."""
    for world in WORLDS:
        name = gymnasium_id(world)
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point="richobs.worlds.gymnasium_out:WorldEnv",
                vector_entry_point="richobs.worlds.gymnasium_out:WorldVectorEnv",
                # Callers may replace it by name, so it has a name of its own: `world="mdp"` is refused as unknown.
                kwargs={"richobs_id": world},
            )


def gymnasium_id(world: str) -> str:
    """Returns what a world is called in Gymnasium, for instance `richobs/DeepSea-v0` for `deep-sea`."""
    return f"richobs/{''.join(part.capitalize() for part in world.split('-'))}-v0"


class Scene(NamedTuple):
    """What a picture shows."""

    title: str
    labels: tuple[tuple[str, ...], ...]  # names of the states per level
    visited: tuple[int, ...]  # states so far, one per level; the agent is in the last
    actions: tuple[int, ...]  # actions so far
    earned: float  # rewards so far

    @property
    def caption(self) -> str:
        """One line: how far the episode is and what it earned."""
        ended = len(self.actions) == len(self.labels)
        where = "ended" if ended else f"level {len(self.visited) - 1} of {len(self.labels) - 1}"
        taken = " ".join(map(str, self.actions[-12:])) or "none yet"
        taken = f"... {taken}" if len(self.actions) > 12 else taken
        return f"{self.title}   {where}   actions: {taken}   earned: {self.earned:g}"


def as_text(scene: Scene) -> str:
    """Draws the scene with characters: `@` the agent, `o` where it has been, `.` other states."""
    rows = max(len(names) for names in scene.labels)
    lines = [scene.caption]
    for row in range(rows):
        cells = []
        for level, names in enumerate(scene.labels):
            cell = "." if row < len(names) else " "
            if level < len(scene.visited) and scene.visited[level] == row:
                cell = "@" if level == len(scene.visited) - 1 else "o"
            cells.append(cell)
        lines.append("  " + " ".join(cells))
    return "\n".join(lines)


def as_pixels(scene: Scene) -> NDArray[np.uint8]:
    """Draws the scene as an RGB array `[height, width, 3]`."""
    figure, axes = _canvas(scene.labels)
    axes.set_title(scene.caption, fontsize=9, loc="left")
    artists = _trail(axes, scene.visited)
    figure.canvas.draw()
    pixels = np.array(figure.canvas.buffer_rgba())[..., :3]
    for artist in artists:
        artist.remove()
    return pixels


@lru_cache(maxsize=16)
def _canvas(labels: tuple[tuple[str, ...], ...]) -> tuple[Any, Any]:
    """Returns the figure with every state drawn in, kept for the next frame of the same world."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    levels, rows = len(labels), max(len(names) for names in labels)
    figure = Figure(figsize=(min(16, max(5.5, 0.75 * levels + 1)), min(12, max(2.2, 0.55 * rows + 1))), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.06, 0.16, 0.92, 0.70))
    axes.set_xlim(-0.6, levels - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlabel("level", fontsize=8)
    axes.set_yticks([])
    axes.set_xticks(range(0, levels, max(1, levels // 20)))
    axes.tick_params(labelsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    x, y = np.array([(level, s) for level, names in enumerate(labels) for s in range(len(names))]).T
    size = 420 / max(1.0, rows / 6, levels / 14) ** 2
    axes.scatter(x, y, s=size, facecolor="#eef1f4", edgecolor="#8a94a0", linewidth=0.8, zorder=2)
    if rows <= 6 and levels <= 14:
        for level, names in enumerate(labels):
            for s, name in enumerate(names):
                axes.text(level, s, name, fontsize=6.5, ha="center", va="center", color="#39424e", zorder=4)
    return figure, axes


def _trail(axes: Any, visited: Sequence[int]) -> list[Any]:
    """Draws where the agent has been and where it is; returns what to erase afterwards."""
    levels = np.arange(len(visited))
    size = axes.collections[0].get_sizes()[0]
    line = axes.plot(levels, visited, color="#0072b2", linewidth=2.5, zorder=1)
    past = axes.scatter(levels[:-1], visited[:-1], s=size, facecolor="#a6d0ea", edgecolor="#0072b2", zorder=3)
    here = axes.scatter(levels[-1:], visited[-1:], s=1.3 * size, facecolor="#e69f00", edgecolor="#5c4000", zorder=3)
    return [*line, past, here]


DRAW: dict[str, Callable[[Scene], Any]] = {"ansi": as_text, "rgb_array": as_pixels}  # by render_mode


class _Copies:
    """n copies of a world that are always at the same level, because every episode has H levels.

    Emissions, rewards and transitions have a generator each. None of them is the one that Gymnasium seeds: a space seeded
    with the number given to `reset` would otherwise produce the same sequence as the noise.
    """

    def __init__(self, id: str, params: dict[str, Any], n: int, render_mode: str | None):
        if render_mode is not None and render_mode not in DRAW:
            raise InvalidInput(f"render_mode must be one of {list(DRAW)} or None; got {render_mode!r}.")
        config = configure(id, **params)
        truth = shared_problem(config).truth
        if truth is None or truth.world is None:
            raise InvalidInput(
                f"{full_id(config)}: its build(config) returned no truth.world, so there is nothing to step."
            )
        self.world = typing.cast("World", truth.world)  # shared by all environments with the same config
        self.n = n
        self.level = -1  # no episode yet
        self.states: Ints = np.zeros(n, dtype=np.int64)
        self._x: Observations = np.zeros(n)
        self._generators: list[np.random.Generator] = []
        self._title = full_id(config)
        self._draw = None if render_mode is None else DRAW[render_mode]
        self._history: list[tuple[Ints, Ints, Floats]] = []  # states, actions, rewards; kept only to be drawn

    def seed(self, env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], seed: int | None) -> None:
        """Draws new generators from that of an environment, where a seed is given or there are none yet."""
        if seed is not None or not self._generators:
            own = int(env.np_random.integers(2**63))
            self._generators = [keyed_generator(own, "gym", what) for what in ("emission", "reward", "transition")]

    def reset(self) -> Observations:
        """Starts an episode in every copy."""
        emission, _, transition = self._generators
        self.level, self._history = 0, []
        self.states = self.world.start(self.n, transition)
        self._x = self.world.observe(0, self.states, emission)
        return self._x.copy()  # what the caller does to it must not reach the rewards

    def step(self, actions: Ints) -> tuple[Observations, Floats]:
        """Returns the next observations, zeros after the last level, and the rewards."""
        emission, reward, transition = self._generators
        rewards = self.world.reward(self.level, self.states, self._x, actions, reward)
        if self._draw is not None:
            self._history.append((self.states, actions, rewards))
        self.level += 1
        if self.has_ended():
            self._x = np.zeros_like(self._x)
        else:
            self.states = self.world.move(self.level - 1, self.states, actions, transition)
            self._x = self.world.observe(self.level, self.states, emission)
        return self._x.copy(), rewards

    def has_ended(self) -> bool:
        return self.level >= self.world.horizon

    def picture(self, copy: int) -> Any:
        """Returns the picture of one copy's episode so far; None where none is drawn."""
        if self._draw is None:
            return None
        if self.level < 0:
            raise gymnasium.error.ResetNeeded("there is nothing to draw yet: call reset() before render().")
        visited = [int(states[copy]) for states, _, _ in self._history]
        if not self.has_ended():
            visited.append(int(self.states[copy]))
        scene = Scene(
            self._title,
            tuple(self.world.labels(level) for level in range(self.world.horizon)),
            tuple(visited),
            tuple(int(actions[copy]) for _, actions, _ in self._history),
            float(sum(rewards[copy] for _, _, rewards in self._history)),
        )
        return self._draw(scene)


class WorldEnv(gymnasium.Env[Any, np.int64]):
    """One copy of a world; `gymnasium.make("richobs/Lock-v0", horizon=10)` takes the world's parameters by name."""

    metadata = {"render_modes": list(DRAW), "render_fps": 4}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, richobs_id: str, render_mode: str | None = None, **params: Any):
        """Builds the world.

        Args:
            richobs_id: a world, with or without parameters, as for `richobs.make`.
            render_mode: "ansi", "rgb_array" or None.
            **params: the world's parameters by name.
        """
        self._copies = _Copies(richobs_id, params, 1, render_mode)
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(self._copies.world.n_actions)
        self.observation_space = self._copies.world.space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; a seed makes this and all later ones reproducible."""
        super().reset(seed=seed)
        self._copies.seed(self, seed)
        return self._copies.reset()[0], self._info()

    def step(self, action: np.int64) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one action; the episode terminates with the H-th."""
        if self._copies.level < 0 or self._copies.has_ended():
            raise gymnasium.error.ResetNeeded("the episode has ended or has not begun: call reset() before step().")
        taken = np.asarray(action)
        if taken.dtype.kind not in "iu" or taken.size != 1 or not 0 <= taken.item() < self._copies.world.n_actions:
            raise InvalidInput(f"action {action!r}: this world has actions 0 to {self._copies.world.n_actions - 1}.")
        x, rewards = self._copies.step(taken.reshape(1).astype(np.int64))
        return x[0], float(rewards[0]), self._copies.has_ended(), False, self._info()

    def render(self) -> Any:
        """Returns the picture of the episode so far, as text or as an RGB array."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() was called without a render_mode; pass one to gymnasium.make.")
        return self._copies.picture(0)

    def _info(self) -> dict[str, Any]:
        return {"level": self._copies.level, "latent_state": int(self._copies.states[0])}


class WorldVectorEnv(VectorEnv[Any, Any, Any]):
    """Many copies of a world stepped together in a few array operations.

    Every episode takes H steps, so all copies end together. With `AutoresetMode.NEXT_STEP` (Gymnasium's default) the step
    after that starts new episodes and ignores its actions; with `SAME_STEP` new episodes start in the last step itself and
    the final observations are in `info`; with `DISABLED` the caller resets all copies at once.
    """

    def __init__(
        self,
        richobs_id: str,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **params: Any,
    ):
        """Builds the world.

        Args:
            richobs_id: a world, with or without parameters, as for `richobs.make`.
            num_envs: number of copies.
            render_mode: "ansi", "rgb_array" or None.
            autoreset_mode: what happens after the last step of an episode.
            **params: the world's parameters by name.
        """
        if num_envs < 1:
            raise InvalidInput(f"num_envs must be at least 1; got {num_envs}.")
        self._copies = _Copies(richobs_id, params, num_envs, render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**WorldEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = gymnasium.spaces.Discrete(self._copies.world.n_actions)
        self.single_observation_space = self._copies.world.space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._all = np.ones(num_envs, dtype=bool)

    def reset(
        self,
        *,
        seed: int | list[int | None] | tuple[int | None, ...] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every copy; a seed (or a list, one per copy) makes all that follows reproducible."""
        mask = (options or {}).get("reset_mask")
        if mask is not None and not np.all(mask):
            raise InvalidInput("copies of a world run in step, so reset_mask must be true everywhere or be left out.")
        if isinstance(seed, list | tuple):
            if len(seed) != self.num_envs or any(s is not None and s < 0 for s in seed):
                raise InvalidInput(f"seeds must be one per copy, {self.num_envs} in all, none below 0; got {seed}.")
            known = tuple("none" if s is None else int(s) for s in seed)
            seed = int(keyed_generator(0, "gym", known).integers(2**31)) if any(s is not None for s in seed) else None
        super().reset(seed=seed)
        self._copies.seed(self, seed)
        return self._copies.reset(), self._info()

    def step(self, actions: Any) -> tuple[Any, Floats, Mask, Mask, dict[str, Any]]:
        """Takes one action in every copy."""
        if self._copies.level < 0:
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset() before step().")
        never = np.zeros(self.num_envs, dtype=bool)
        if self._copies.has_ended():
            if self.autoreset_mode is AutoresetMode.DISABLED:
                raise gymnasium.error.ResetNeeded("the episodes have ended: call reset() before step().")
            x = self._copies.reset()
            return x, np.zeros(self.num_envs), never, never.copy(), self._info()
        taken = np.asarray(actions)
        if (
            taken.dtype.kind not in "iu"
            or taken.shape != (self.num_envs,)
            or not (taken.min() >= 0 and taken.max() < self._copies.world.n_actions)
        ):
            raise InvalidInput(
                f"step needs {self.num_envs} actions from 0 to {self._copies.world.n_actions - 1}; got shape "
                f"{taken.shape}{f' with values {taken.min()} to {taken.max()}' if taken.size else ''}."
            )
        x, rewards = self._copies.step(taken.astype(np.int64))
        ended = np.full(self.num_envs, self._copies.has_ended())
        info = self._info()
        if self._copies.has_ended() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            final = np.empty(self.num_envs, dtype=object)
            final[:] = list(x)
            x = self._copies.reset()
            last = {
                "final_obs": final,
                "_final_obs": self._all.copy(),
                "final_info": info,
                "_final_info": self._all.copy(),
            }
            info = {**self._info(), **last}
        return x, rewards, ended, never, info

    def render(self) -> tuple[Any, ...] | None:
        """Returns one picture per copy, or None without a render_mode."""
        if self.render_mode is None:
            return None
        return tuple(self._copies.picture(copy) for copy in range(self.num_envs))

    def _info(self) -> dict[str, Any]:
        level: NDArray[np.int64] = np.full(self.num_envs, self._copies.level)
        return {
            "level": level,
            "_level": self._all.copy(),
            "latent_state": self._copies.states.copy(),
            "_latent_state": self._all.copy(),
        }
