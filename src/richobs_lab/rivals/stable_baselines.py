"""PPO and DQN of Stable-Baselines3 (Raffin et al. 2021), default settings, every episode asked of the engine.

Needs the extra `sb3` (`pip install 'richobs[sb3]'`), which is imported when a run begins. Networks, losses, buffers and
schedules are those of Stable-Baselines3; only the collection of episodes is replaced, so that the ledger counts them.

Three readings. A network sees the observation and the level, one-hot, which is more than the Gymnasium form of a world
shows. PPO plays the whole episodes that come closest to its 2,048 steps between updates, as one query. DQN updates once for
every four steps, as by default, but after the end of an episode. RND is not here: Stable-Baselines3 does not have it.
Shapes: n episodes, H levels, D numbers of an observation, K actions.
"""

import contextlib
import importlib
import math
import random
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from richobs import (
    Episodes,
    InvalidInput,
    Layered,
    LearnedPolicy,
    Outcome,
    Problem,
    Settings,
    Uniform,
)
from richobs.classes import NetworkLevel
from richobs.classes.networks import pytorch
from richobs.core.errors import EpisodeLimit, Rejected
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, require_at_least
from richobs_lab.rivals.rival_events import Rounds

PPO_STEPS = 2048  # between two updates of PPO, the default of Stable-Baselines3
DQN_EVERY = 4  # steps for one update of DQN, the default of Stable-Baselines3
DQN_BUFFER = 1_000_000  # steps that DQN remembers, the default of Stable-Baselines3
WIDE = (-1e9, 1e9)  # values of a network are not cut


def stable_baselines() -> Any:
    """Returns the module `stable_baselines3`.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        return importlib.import_module("stable_baselines3")
    except ImportError as error:
        raise InvalidInput(
            "PPO and DQN need Stable-Baselines3, which is not installed: pip install 'richobs[sb3]'."
        ) from error


class Reading:
    """Turns observations into what a network sees: D numbers, and the level one-hot."""

    def __init__(self, problem: Problem, first: Episodes):
        """Takes one episode, which shows what observations are.

        Raises:
            Rejected: observations are not numbers of one shape at all levels.
        """
        shapes = {x.shape[1:] for x in first.observations}
        if len(shapes) != 1 or any(x.dtype.kind not in "biuf" for x in first.observations):
            raise Rejected(
                "a network of Stable-Baselines3 needs observations that are numbers, as many at every level; got shapes "
                f"{sorted(shapes)} and types {sorted({str(x.dtype) for x in first.observations})}."
            )
        self.horizon, self.process = problem.horizon, problem.process
        (shape,) = shapes
        self.is_number = not shape and first.observations[0].dtype.kind in "iu" and problem.process is not None
        if self.is_number and problem.process is not None:  # Stable-Baselines3 shows whole numbers one-hot
            self.width = max(len(rows) for rows in problem.process.observations)
        else:
            self.width = math.prod(shape)

    def __call__(self, level: int, x: Observations) -> Observations:
        """Returns `[n, D + H]` what a network sees."""
        seen = np.zeros((len(x), self.width + self.horizon), dtype=np.float32)
        if self.is_number and self.process is not None:
            seen[np.arange(len(x)), self.process.encode(level, x)] = 1.0
        else:
            seen[:, : self.width] = np.asarray(x, dtype=np.float32).reshape(len(x), self.width)
        seen[:, self.width + level] = 1.0
        return seen

    def steps(self, played: Episodes) -> Observations:
        """Returns `[n H, D + H]` what a network saw at every step, episode by episode."""
        levels = [self(level, x) for level, x in enumerate(played.observations)]
        return np.stack(levels, axis=1).reshape(played.n * self.horizon, -1)

    def saved(self, layers: Sequence[Any], n_actions: int) -> LearnedPolicy:
        """Returns the policy that takes the action of the largest output, as one that can be saved.

        Args:
            layers: of a network of `Linear` layers and activations, the first of them linear.
            n_actions: K.
        """
        torch = pytorch()
        if self.process is not None:
            network = torch.nn.Sequential(*layers)
            tables = []
            for level, rows in enumerate(self.process.observations):
                with torch.no_grad():
                    tables.append(network(torch.as_tensor(self(level, rows))).argmax(dim=1).numpy())
            return LearnedPolicy.from_table(self.process.codebooks, tables, n_actions=n_actions)
        levels = []
        for level in range(self.horizon):  # a level's one-hot number becomes a part of the first layer's bias
            first = torch.nn.Linear(self.width, layers[0].out_features)
            with torch.no_grad():
                first.weight.copy_(layers[0].weight[:, : self.width])
                first.bias.copy_(layers[0].bias + layers[0].weight[:, self.width + level])
            module = torch.nn.Sequential(torch.nn.Flatten(), first, *layers[1:])
            levels.append(NetworkLevel([module], n_actions, value_range=WIDE))
        return LearnedPolicy(Layered(levels), (0,) * self.horizon)


class NetworkLaw:
    """Draws actions from what a network says, with randomness of the engine."""

    def __init__(self, law: Any, reading: Reading):
        """Takes the network.

        Args:
            law: maps `[n, D + H]` to `[n, K]` probabilities.
            reading: what it sees.
        """
        self._law, self._reading = law, reading

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the probability of each action."""
        law = np.asarray(self._law(self._reading(level, x)), dtype=np.float64)
        return law / law.sum(axis=1, keepdims=True)

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` random actions."""
        steps = self.probabilities(level, x).cumsum(axis=1)
        return (steps[:, :-1] <= rng.random(len(steps))[:, None]).sum(axis=1)


class Collecting:
    """Asks the engine for the episodes of one run."""

    def __init__(self, engine: Engine, problem: Problem, notify: Callback):
        """Plays one random episode, which shows what observations are."""
        self.engine, self.problem, self.rounds = engine, problem, Rounds(engine, notify, self.policy)
        self.updates = 0
        self.layers: Callable[[], list[Any]] | None = None  # of the network that acts, once there is one
        self.reading = Reading(problem, self._ask(Uniform(problem.n_actions), 1))

    def words(self) -> str:
        """Returns what happened, in words."""
        return f"{self.updates:,} updates of the networks"

    def policy(self) -> LearnedPolicy:
        """Returns the policy of the network that acts; action 0 before there is one."""
        H, K = self.problem.horizon, self.problem.n_actions
        return LearnedPolicy.open_loop((0,) * H, K) if self.layers is None else self.reading.saved(self.layers(), K)

    def play(self, law: Any, n: int) -> Episodes:
        """Plays n episodes of a network's law."""
        return self._ask(NetworkLaw(law, self.reading), n)

    def _ask(self, policy: Any, n: int) -> Episodes:
        played = self.engine.ask(Query(policy, n, "episode", episodes=True)).episodes
        assert played is not None
        if played.ended and played.ended[-1].any():
            raise Rejected("episodes that end early are not served by this learner; use learner='betting'.")
        self.rounds.add(n, float(played.returns.sum()), self.words)
        return played


def _frame(reading: Reading, n_actions: int) -> Any:
    """Returns a Gymnasium environment that only has spaces: nobody steps it."""
    gymnasium = importlib.import_module("gymnasium")
    shape = (reading.width + reading.horizon,)

    def reset(frame: Any, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(shape, dtype=np.float32), {}

    spaces = {
        "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32),
        "action_space": gymnasium.spaces.Discrete(n_actions),
    }
    return type("Frame", (gymnasium.Env,), {**spaces, "reset": reset})()


@contextlib.contextmanager
def own_randomness() -> Iterator[None]:
    """Puts the global generators back as they were: Stable-Baselines3 seeds them and draws from them."""
    torch = pytorch()
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (kept, not drawn from)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002 (put back)
        torch.set_rng_state(kept[2])


@dataclass(frozen=True)
class Sb3Tuning:
    """The numbers of a run of Stable-Baselines3 that can be chosen."""

    episodes: int = 10_000
    """Episodes to play at least: the method has no stopping rule. PPO plays whole rounds."""

    def __post_init__(self) -> None:
        require_at_least(1, episodes=self.episodes)


class StableBaselines(Rival):
    """An algorithm of Stable-Baselines3 as a learner."""

    given = ("level of every step", "horizon", "number of episodes")
    needs = (unit_rewards,)
    promises = Promise("Nothing.")
    costs = "As many episodes as it is told to play (tuning `episodes`)."
    Tuning = Sb3Tuning
    traits = Traits(claims=False)
    reads_episodes = "learns after every episode"

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what it cannot serve, also where Stable-Baselines3 is not installed."""
        super().check(problem, settings, engine)
        stable_baselines()

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play: one that shows what observations are, then whole rounds."""
        episodes, each = self.tuning(settings).episodes, self.together(problem.horizon)
        lines = (
            PlanRow(self.name, "episodes", episodes, "episodes", "tuning"),
            PlanRow(self.name, "together", each, "episodes", "between updates"),
        )
        return ShortPlan(self.name, 1 + -(-(episodes - 1) // each) * each, lines)

    @abstractmethod
    def together(self, horizon: int) -> int:
        """Returns how many episodes are played between updates."""

    @abstractmethod
    def model(self, collecting: Collecting, episodes: int, seed: int) -> Any:
        """Returns the model, which collects episodes from the engine."""

    @abstractmethod
    def layers(self, model: Any) -> list[Any]:
        """Returns the layers of the network whose largest output is the action."""

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        episodes = self.tuning(settings).episodes
        collecting = Collecting(engine, problem, notify)
        with own_randomness():
            model = self.model(collecting, episodes, settings.seed % 2**32)
            collecting.layers = partial(self.layers, model)
            try:
                if episodes > 1:  # the first one showed what observations are
                    model.learn((episodes - 1) * problem.horizon, log_interval=None)
                collecting.rounds.close(collecting.words())
            except EpisodeLimit:
                pass
            policy = collecting.policy()
        why = f"{self.name} promises nothing."
        return self.answer(policy, settings, why)


class Sb3Ppo(StableBaselines):
    """PPO as a learner."""

    name = "sb3-ppo"
    about = "PPO of Stable-Baselines3 with default settings: policy gradients with clipped steps."
    cites = "Schulman, Wolski, Dhariwal, Radford and Klimov 2017; Raffin et al. 2021"

    def together(self, horizon: int) -> int:
        """Returns the episodes whose steps come closest to 2,048, two steps at least."""
        return max(1, round(PPO_STEPS / horizon), -(-2 // horizon))

    def model(self, collecting: Collecting, episodes: int, seed: int) -> Any:
        """Returns PPO, whose rollouts are whole episodes."""
        torch, reading, H = pytorch(), collecting.reading, collecting.problem.horizon
        n = self.together(H)

        def collect_rollouts(model: Any, env: Any, callback: Any, buffer: Any, n_rollout_steps: int) -> bool:
            model.policy.set_training_mode(False)
            buffer.reset()

            def law(seen: Observations) -> Floats:
                with torch.no_grad():
                    return model.policy.get_distribution(torch.as_tensor(seen)).distribution.probs.numpy()

            played = collecting.play(law, n)
            seen, actions = reading.steps(played), played.paths.reshape(-1)
            rewards = np.stack(played.rewards, axis=1).reshape(-1)
            with torch.no_grad():
                values, log_probs, _ = model.policy.evaluate_actions(torch.as_tensor(seen), torch.as_tensor(actions))
            for t in range(n * H):
                at = slice(t, t + 1)
                buffer.add(seen[at], actions[at, None], rewards[at], [t % H == 0], values[at, 0], log_probs[at])
            buffer.compute_returns_and_advantage(last_values=torch.zeros(1), dones=np.array([True]))
            model.num_timesteps += n * H
            collecting.updates += 1
            return True

        kind = type("EnginePPO", (stable_baselines().PPO,), {"collect_rollouts": collect_rollouts})
        frame = _frame(reading, collecting.problem.n_actions)
        return kind("MlpPolicy", frame, n_steps=n * H, seed=seed, device="cpu")

    def layers(self, model: Any) -> list[Any]:
        """Returns the layers of the actor."""
        return [*model.policy.mlp_extractor.policy_net, model.policy.action_net]


class Sb3Dqn(StableBaselines):
    """DQN as a learner."""

    name = "sb3-dqn"
    about = "DQN of Stable-Baselines3 with default settings: a network of action values, replay, epsilon-greedy play."
    cites = "Mnih et al. 2015; Raffin et al. 2021"

    def together(self, horizon: int) -> int:
        """Returns 1."""
        return 1

    def model(self, collecting: Collecting, episodes: int, seed: int) -> Any:
        """Returns DQN, which collects one episode at a time."""
        torch, reading, H, K = (
            pytorch(),
            collecting.reading,
            collecting.problem.horizon,
            collecting.problem.n_actions,
        )
        returned = importlib.import_module("stable_baselines3.common.type_aliases").RolloutReturn

        def collect_rollouts(model: Any, env: Any, **options: Any) -> Any:
            model.policy.set_training_mode(False)
            explore = 1.0 if model.num_timesteps < model.learning_starts else float(model.exploration_rate)

            def law(seen: Observations) -> Floats:
                with torch.no_grad():
                    best = model.q_net(torch.as_tensor(seen)).argmax(dim=1).numpy()
                return (1 - explore) * np.eye(K)[best] + explore / K

            played = collecting.play(law, 1)
            seen, actions = reading.steps(played), played.paths[0]
            after = np.concatenate([seen[1:], np.zeros_like(seen[:1])])
            for t in range(H):
                reward, done = np.array([played.rewards[t][0]]), np.array([t == H - 1])
                model.replay_buffer.add(seen[t : t + 1], after[t : t + 1], actions[t : t + 1], reward, done, [{}])
                model.num_timesteps += 1
                model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
                model._on_step()
            before = (model.num_timesteps - H) // DQN_EVERY
            model.gradient_steps = model.num_timesteps // DQN_EVERY - before
            collecting.updates += model.gradient_steps if model.num_timesteps > model.learning_starts else 0
            return returned(H, 1, True)

        kind = type("EngineDQN", (stable_baselines().DQN,), {"collect_rollouts": collect_rollouts})
        size = min(DQN_BUFFER, max(2, episodes * H))  # a buffer that is never full forgets nothing
        return kind("MlpPolicy", _frame(reading, K), seed=seed, device="cpu", buffer_size=size)

    def layers(self, model: Any) -> list[Any]:
        """Returns the layers of the network of action values."""
        return list(model.q_net.q_net)
