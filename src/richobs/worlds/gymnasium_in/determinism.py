"""Whether an environment looks deterministic from outside."""

import numpy as np

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.policies import OpenLoop
from richobs.core.randomness import keyed_generator
from richobs.worlds.gymnasium_in.environment import GymnasiumEnvironment


def looks_deterministic(env: Environment, *, sequences: int = 16, seed: int = 0) -> bool:
    """Whether random action sequences, each played twice, showed and paid the same both times.

    "True" is no proof: what is random may be rare, or lie behind other actions.

    Args:
        env: any environment; not one that was made with `deterministic=True`, which answers from memory.
        sequences: number of action sequences; twice as many episodes are played.
        seed: of the sequences and the plays.
    """
    if sequences < 1:
        raise InvalidInput(f"looks_deterministic needs at least one sequence; got {sequences}.")
    if isinstance(env, GymnasiumEnvironment) and env.declared.deterministic:
        raise InvalidInput(
            "looks_deterministic was given an environment made with deterministic=True, which answers from memory. Make it "
            "without that."
        )
    rng = keyed_generator(seed, "looks deterministic")
    for _ in range(sequences):
        path = tuple(int(a) for a in rng.integers(env.n_actions, size=env.horizon))
        played = env.play(OpenLoop(path), 2, rng)
        over = played.ended or [np.zeros(2, dtype=bool)] * played.levels
        for x, reward, ended in zip(played.observations, played.rewards, over, strict=True):
            if reward[0] != reward[1] or ended[0] != ended[1] or not np.array_equal(x[0], x[1]):
                return False
    return True
