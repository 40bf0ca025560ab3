"""Whether a Gymnasium environment plays what it publishes: its outcomes `P[s][a]` against steps that it takes.

An environment may be wrapped, or step by other rules than those in `P`. A model of `P` would then be a model of something
else, and planning in it would give false values. Shapes: S states, K actions, B outcomes, H levels.
"""

import math
import operator
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask

Outcome = tuple[float, int, float, bool]  # probability, next state, reward, whether the episode ends with it
Seen = tuple[int, float, bool]  # next state (0 where the episode ended), reward, whether the episode ended
STEPS = 512  # taken with the best actions of the model, as many with actions that were tried least, and as many resets
FALSE_ALARM = 1e-6  # probability that an environment that plays what it publishes is refused
ADVICE = (
    "Write down what is played instead: Model.of_lists, Model.of_arrays; or Model.by_replay if it is deterministic."
)


def check_wrappers(env: Any, horizon: int) -> None:
    """Refuses wrappers whose effect `P` does not show, and a time limit below the horizon.

    Raises:
        InvalidInput: with the name of the wrapper.
    """
    from gymnasium import wrappers

    harmless = (
        *(wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.RecordEpisodeStatistics),
        *(wrappers.HumanRendering, wrappers.RenderCollection),
    )
    layer, inner = env, env.unwrapped
    while layer is not inner:
        if type(layer) is wrappers.TimeLimit:
            limit = layer._max_episode_steps
            if limit < horizon:
                raise InvalidInput(
                    f"{_name(env)} has a time limit of {limit:,} steps, which its outcomes `P` do not show, and the horizon "
                    f"is {horizon:,}. Use horizon={limit}, here and where the environment is played."
                )
        elif type(layer) not in harmless:
            raise InvalidInput(
                f"{_name(env)} is wrapped in {type(layer).__name__}, and its outcomes `P` do not show what a wrapper does "
                "to actions, observations, rewards and ends. Give the environment without the wrapper, if it is played "
                f"without it too. {ADVICE}"
            )
        layer = layer.env
    if getattr(inner, "fickle_passenger", False):  # of Gymnasium's Taxi
        raise InvalidInput(
            f"{_name(env)} has fickle_passenger=True: the passenger changes his mind at random, which its outcomes `P` do "
            f"not show. {ADVICE}"
        )


def check_played(
    env: Any,
    outcomes: Sequence[Sequence[Sequence[Outcome]]] | Mapping[int, Mapping[int, Sequence[Outcome]]],
    start: Floats | None,
    best: Ints,
    horizon: int,
) -> None:
    """Refuses an environment that plays something else than its published outcomes.

    About `2 * STEPS` steps are taken after `STEPS` resets, wrappers included. Each must have positive probability.
    Frequencies are tested by betting: an account is multiplied by (predicted probability) / (published probability) of what
    happened, where the prediction is the frequency so far. If the environment plays what it publishes, its mean stays 1, so
    it ever reaches 1 / FALSE_ALARM with probability at most FALSE_ALARM (Ville's inequality).

    Args:
        env: what is played.
        outcomes: for each state and action, (probability, next state, reward, done).
        start: `[S]` distribution of the first state; None where it is not compared.
        best: `[levels, S]` the best action in the model at each of its levels; episodes have so many.
        horizon: number of levels H.

    Raises:
        InvalidInput: with what was seen, and what is published.
    """
    rng = keyed_generator(0, "published outcomes")
    n_actions, first_action = len(outcomes[0]), int(getattr(env.action_space, "start", 0))
    if getattr(env.action_space, "n", None) != n_actions:
        raise InvalidInput(f"{_name(env)} publishes {n_actions} actions, and its action space is {env.action_space}.")
    first = None if start is None else {(int(s), 0.0, False): float(start[s]) for s in np.flatnonzero(start)}
    accounts, tried = _Accounts(), np.zeros((len(outcomes), n_actions), dtype=np.int64)

    def reset() -> int:
        s = _state(env, env.reset(seed=int(rng.integers(2**31)))[0], len(outcomes))
        if first is not None:
            _compare(env, accounts, "a reset", "start", first, (s, 0.0, False))
        return s

    for _ in range(STEPS if start is not None else 0):
        reset()
    for by_plan in (True, False):
        steps = 0
        while steps < STEPS:
            s = reset()
            for level, planned in enumerate(best):
                a = int(planned[s]) if by_plan else int(tried[s].argmin())
                tried[s, a] += 1
                steps += 1
                shown, reward, terminated, truncated, _ = env.step(a + first_action)
                ends = bool(terminated)
                law = law_of(outcomes[s][a])
                after = 0 if ends else _state(env, shown, len(outcomes))
                _compare(env, accounts, f"action {a} in state {s}", (s, a), law, (after, float(reward), ends))
                if truncated and not ends and level + 1 < horizon:
                    raise InvalidInput(
                        f"{_name(env)} was truncated after {level + 1:,} steps, before the horizon, and its outcomes `P` do "
                        f"not show that. {ADVICE}"
                    )
                if ends or truncated:
                    break
                s = after


def law_of(outcomes: Iterable[Outcome]) -> dict[Seen, float]:
    """Returns the probability of everything that can be seen; equal outcomes are added up, padding is left out."""
    law: dict[Seen, float] = {}
    for p, to, r, done in outcomes:
        if p:
            key = (0 if done else int(to), float(r), bool(done))
            law[key] = law.get(key, 0.0) + float(p)
    return law


def best_actions(probability: Floats, to: Ints, reward: Floats, done: Mask, horizon: int) -> Ints:
    """Returns `[min(horizon, STEPS), S]` the best action of a model with that many levels; arrays are `[S, K, B]`."""
    value, plan = np.zeros(len(probability)), []
    for _ in range(min(horizon, STEPS)):
        q = (probability * (reward + np.where(done, 0.0, value.take(to, mode="clip")))).sum(axis=2)
        value = q.max(axis=1)
        plan.append(q.argmax(axis=1))
    return np.array(plan[::-1])


class _Accounts:
    """Two accounts that bet against published probabilities: by state and action, and by the list of probabilities.

    The second one notices a small difference that is the same in many states.
    """

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._logs = np.zeros(2)
        self.largest = 0.0  # logarithm of the largest wealth so far, the mean of both accounts

    def see(self, place: Hashable, law: Mapping[Seen, float], seen: Seen) -> bool:
        """Takes what happened at a place; returns whether it is now too unlikely."""
        listed = tuple(law.values())
        for i, (key, outcome) in enumerate(((place, seen), (listed, list(law).index(seen)))):
            known = len(law)  # the published probabilities count like one step per outcome
            predicted = (self._counts[i, key, outcome] + known * law[seen]) / (self._counts[i, key] + known)
            self._logs[i] += math.log(predicted / law[seen])
            self._counts[i, key, outcome] += 1
            self._counts[i, key] += 1
        self.largest = max(self.largest, float(np.logaddexp(*self._logs)) - math.log(2))
        return self.largest >= -math.log(FALSE_ALARM)


def _compare(env: Any, accounts: _Accounts, where: str, place: Hashable, law: Mapping[Seen, float], seen: Seen) -> None:
    """Refuses what has no probability, and frequencies that are too unlikely."""
    if not law.get(seen, 0.0) > 0:
        words = "; ".join(f"{_words(key)} with probability {p:.6g}" for key, p in list(law.items())[:4] if p > 0)
        raise InvalidInput(
            f"{_name(env)} does not play the outcomes that it publishes: {where} led to {_words(seen)}. `P` says: {words}. "
            f"{ADVICE}"
        )
    if accounts.see(place, law, seen):
        raise InvalidInput(
            f"{_name(env)} does not play the outcomes that it publishes: in the steps that were taken, of which {where} was "
            f"the last one, outcomes were so much more or less frequent than `P` says that this happens with probability at "
            f"most {FALSE_ALARM:g}. {ADVICE}"
        )


def _words(seen: Seen) -> str:
    state, reward, ends = seen
    return f"{'the end' if ends else f'state {state}'} and the reward {reward!r}"


def _state(env: Any, shown: Any, n_states: int) -> int:
    """Returns the number of the state that an observation is."""
    try:
        number = operator.index(shown)
    except TypeError:
        number = -1
    if not 0 <= number < n_states:
        raise InvalidInput(
            f"{_name(env)} shows {shown!r:.80}, which is not the number of one of the {n_states:,} states in its outcomes "
            f"`P`. {ADVICE}"
        )
    return number


def _name(env: Any) -> str:
    return type(env.unwrapped).__name__
