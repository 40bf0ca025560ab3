"""An environment that plays one model of a family: the real system, where a family of models is tried out.

Shapes: n episodes, S states, K actions, B outcomes of a state and action at most.
"""

import numpy as np

from richobs.classes.simulators import Simulators
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.policies import Policy, checked_actions
from richobs.core.problem import Problem, Truth
from richobs.core.types import Floats, Ints, Mask, Observations


class ModelEnvironment:
    """One model, played: its states stay hidden, its observations are shown, and episodes may end early."""

    def __init__(self, functions: Simulators, model: int, reward_range: tuple[float, float] = (0.0, 1.0)):
        """Takes the family.

        Args:
            functions: the family.
            model: which of its models is played.
            reward_range: smallest and largest possible sum of an episode's rewards.
        """
        if not 0 <= model < functions.n_models:
            raise InvalidInput(f"the family has models 0 to {functions.n_models - 1}; got {model}.")
        self._family = functions.models.take(np.array([model]))
        self.horizon = functions.horizon
        self.n_actions = functions.n_actions
        self.reward_range = reward_range

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes from the start; after its end an episode keeps showing its last observation.

        Args:
            policy: what to do.
            n: number of episodes.
            rng: where all randomness comes from, the policy's included.
            levels: stop after so many levels; by default after all.
        """
        family = self._family
        shows, states = family.shows[0], _sample(np.repeat(family.start.T, n, axis=1), rng)
        over: Mask = np.zeros(n, dtype=bool)
        seen: list[Observations] = []
        taken: list[Ints] = []
        paid: list[Floats] = []
        ended: list[Mask] = []
        for level in range(self.horizon if levels is None else levels):
            x = family.codebook.rows[shows[states]]
            actions = checked_actions(policy, level, x, self.n_actions, rng)
            b = _sample(family.probability[:, 0, states, actions], rng)
            seen.append(x)
            taken.append(actions)
            paid.append(np.where(over, 0.0, family.reward[b, 0, states, actions]))
            ended.append(over)
            over = over | family.done[b, 0, states, actions]
            states = np.where(over, states, family.next[b, 0, states, actions])
        return Episodes(tuple(seen), tuple(taken), tuple(paid), tuple(ended))


def _sample(probs: Floats, rng: np.random.Generator) -> Ints:
    """Returns `[n]` one row of `[B, n]` per column, drawn by its probabilities."""
    last = len(probs) - 1 - (probs[::-1] > 0).argmax(axis=0)
    return np.minimum((rng.random(probs.shape[1]) >= probs.cumsum(axis=0)).sum(axis=0), last)


def model_problem(functions: Simulators, model: int, reward_range: tuple[float, float] = (0.0, 1.0)) -> Problem:
    """Returns the problem whose real system is one model of a family, with that as its truth.

    Args:
        functions: the family, which is the class.
        model: the true one.
        reward_range: smallest and largest possible sum of an episode's rewards.
    """

    def value(policy: Policy) -> float:
        return float(functions.policy_values(policy, np.array([model]))[0])

    best = float(functions.optimal_values()[model])
    env = ModelEnvironment(functions, model, reward_range)
    return Problem(env, functions, truth=Truth(best, model, exact_value=value))
