"""Every world as a Gymnasium environment: one copy, or many copies in one vector environment.

Observations do not contain the level unless the world itself shows it. `info["level"]` and `info["latent_state"]` are for
looking at a run; a learner should not use them. After the last action the observation is all zeros, and `terminated` is
true.
"""

import typing
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.worlds.picture import Scene, as_pixels, as_text
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


class _Streams:
    """The generators of one environment, one each for emissions, rewards and transitions.

    None of them is the generator that Gymnasium seeds: a space seeded with the number given to `reset` would otherwise
    produce the same sequence as the noise.
    """

    def __init__(self, seed: int):
        self.emission = keyed_generator(seed, "gym", "emission")
        self.reward = keyed_generator(seed, "gym", "reward")
        self.transition = keyed_generator(seed, "gym", "transition")


class _Copies:
    """n copies of a world that are always at the same level, because every episode has H levels."""

    def __init__(self, world: World, n: int):
        self.world = world
        self.n = n
        self.level = -1  # no episode yet
        self.states: Ints = np.zeros(n, dtype=np.int64)
        self.x: Observations = np.zeros(n)

    def reset(self, streams: _Streams) -> Observations:
        self.level = 0
        self.states = self.world.start(self.n, streams.transition)
        self.x = self.world.observe(0, self.states, streams.emission)
        return self.x.copy()  # what the caller does to it must not reach the rewards

    def step(self, actions: Ints, streams: _Streams) -> tuple[Observations, Floats]:
        """Returns the next observations, zeros after the last level, and the rewards."""
        rewards = self.world.reward(self.level, self.states, self.x, actions, streams.reward)
        self.level += 1
        if self.has_ended():
            self.x = np.zeros_like(self.x)
        else:
            self.states = self.world.move(self.level - 1, self.states, actions, streams.transition)
            self.x = self.world.observe(self.level, self.states, streams.emission)
        return self.x.copy(), rewards

    def has_ended(self) -> bool:
        return self.level >= self.world.horizon


def _simulator(config: Any) -> World:
    """Returns the simulator of a world, shared by all environments with the same config."""
    truth = shared_problem(config).truth
    if truth is None or truth.world is None:
        raise InvalidInput(
            f"{full_id(config)}: its build(config) returned no truth.world, so there is nothing to step."
        )
    return typing.cast("World", truth.world)


class WorldEnv(gymnasium.Env[Any, np.int64]):
    """One copy of a world; `gymnasium.make("richobs/Lock-v0", horizon=10)` takes the world's parameters by name."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, richobs_id: str, render_mode: str | None = None, **params: Any):
        """Builds the world.

        Args:
            richobs_id: a world, with or without parameters, as for `richobs.make`.
            render_mode: "ansi", "rgb_array" or None.
            **params: the world's parameters by name.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InvalidInput(
                f"render_mode must be one of {self.metadata['render_modes']} or None; got {render_mode!r}."
            )
        config = configure(richobs_id, **params)
        self._title = full_id(config)
        self._copies = _Copies(_simulator(config), 1)
        self._streams: _Streams | None = None
        self._scene = Scene(self._title, (), (), (), 0.0)
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(self._copies.world.n_actions)
        self.observation_space = self._copies.world.space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; a seed makes this and all later ones reproducible."""
        super().reset(seed=seed)
        if seed is not None or self._streams is None:
            self._streams = _Streams(int(self.np_random.integers(2**63)))
        world = self._copies.world
        x = self._copies.reset(self._streams)
        labels = tuple(world.labels(level) for level in range(world.horizon)) if self.render_mode else ()
        self._scene = Scene(self._title, labels, (int(self._copies.states[0]),), (), 0.0)
        return x[0], self._info()

    def step(self, action: np.int64) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one action; the episode terminates with the H-th."""
        if self._streams is None or self._copies.has_ended():
            raise gymnasium.error.ResetNeeded("the episode has ended or has not begun: call reset() before step().")
        taken = np.asarray(action)
        if taken.dtype.kind not in "iu" or taken.size != 1 or not 0 <= taken.item() < self._copies.world.n_actions:
            raise InvalidInput(f"action {action!r}: this world has actions 0 to {self._copies.world.n_actions - 1}.")
        x, rewards = self._copies.step(taken.reshape(1).astype(np.int64), self._streams)
        ended = self._copies.has_ended()
        if self.render_mode:
            here = () if ended else (int(self._copies.states[0]),)
            s = self._scene
            self._scene = s._replace(
                visited=s.visited + here, actions=(*s.actions, int(taken.item())), earned=s.earned + float(rewards[0])
            )
        return x[0], float(rewards[0]), ended, False, self._info()

    def render(self) -> Any:
        """Returns the picture of the episode so far, as text or as an RGB array."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() was called without a render_mode; pass one to gymnasium.make.")
            return None
        if not self._scene.visited:
            raise gymnasium.error.ResetNeeded("there is nothing to draw yet: call reset() before render().")
        return as_text(self._scene) if self.render_mode == "ansi" else as_pixels(self._scene)

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
        if render_mode not in (None, "ansi", "rgb_array"):
            raise InvalidInput(f"render_mode must be 'ansi', 'rgb_array' or None; got {render_mode!r}.")
        config = configure(richobs_id, **params)
        self._title = full_id(config)
        self._copies = _Copies(_simulator(config), num_envs)
        self._streams: _Streams | None = None
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**WorldEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = gymnasium.spaces.Discrete(self._copies.world.n_actions)
        self.single_observation_space = self._copies.world.space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._history: list[tuple[Ints, Ints, Floats]] = []  # states, actions, rewards; kept only to be drawn
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
        if seed is not None or self._streams is None:
            self._streams = _Streams(int(self.np_random.integers(2**63)))
        self._history = []
        return self._copies.reset(self._streams), self._info()

    def step(self, actions: Any) -> tuple[Any, Floats, Mask, Mask, dict[str, Any]]:
        """Takes one action in every copy."""
        if self._streams is None:
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset() before step().")
        never = np.zeros(self.num_envs, dtype=bool)
        if self._copies.has_ended():
            if self.autoreset_mode is AutoresetMode.DISABLED:
                raise gymnasium.error.ResetNeeded("the episodes have ended: call reset() before step().")
            self._history = []
            x = self._copies.reset(self._streams)
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
        before = self._copies.states
        taken = taken.astype(np.int64)
        x, rewards = self._copies.step(taken, self._streams)
        if self.render_mode:
            self._history.append((before, taken, rewards))
        ended = np.full(self.num_envs, self._copies.has_ended())
        info = self._info()
        if self._copies.has_ended() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            final = np.empty(self.num_envs, dtype=object)
            final[:] = list(x)
            self._history = []
            x = self._copies.reset(self._streams)
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
        if self._copies.level < 0:
            raise gymnasium.error.ResetNeeded("there is nothing to draw yet: call reset() before render().")
        draw = as_text if self.render_mode == "ansi" else as_pixels
        return tuple(draw(self._scene(i)) for i in range(self.num_envs))

    def _scene(self, copy: int) -> Scene:
        world = self._copies.world
        visited = [int(states[copy]) for states, _, _ in self._history]
        if not self._copies.has_ended():
            visited.append(int(self._copies.states[copy]))
        return Scene(
            self._title,
            tuple(world.labels(level) for level in range(world.horizon)),
            tuple(visited),
            tuple(int(actions[copy]) for _, actions, _ in self._history),
            float(sum(rewards[copy] for _, _, rewards in self._history)),
        )

    def _info(self) -> dict[str, Any]:
        level: NDArray[np.int64] = np.full(self.num_envs, self._copies.level)
        return {
            "level": level,
            "_level": self._all.copy(),
            "latent_state": self._copies.states.copy(),
            "_latent_state": self._all.copy(),
        }
