"""Stable-Baselines3: training that stops when the current policy is certified to earn a threshold.

Needs the extra `sb3` (`pip install 'richobs[sb3]'`), which is imported only when a callback is made.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.certifying import PolicyReport, certify_policy, check_question, totals_range
from richobs.classes.callables import as_array
from richobs.core.arguments import whole_number
from richobs.core.errors import InvalidInput
from richobs.core.outcome import LOWER
from richobs.core.randomness import keyed_generator
from richobs.core.words import exact_words, probability_words
from richobs.stats.shares import Series, Share

CHECK = 1_000  # episodes of one check at most, unless told otherwise


class CertifyCallback:
    """A callback for `model.learn`: checks the current policy now and then, and stops once it is certified.

    Every check plays fresh episodes of the policy, acting deterministically, in an environment of its own. It gets a part
    of delta, so with probability at least 1 - delta the intervals of all checks hold together, however many there are.
    After training, if `certified` is True, the model's policy is the one that was certified: its parameters are compared
    with those at the check. `reports` holds one report per check. Training may go on with the same callback: the next check
    comes `every` steps later, and delta holds for all checks together.

    It is a `stable_baselines3.common.callbacks.BaseCallback`.
    """

    model: Any  # set by Stable-Baselines3
    num_timesteps: int  # likewise

    def __new__(cls, *args: Any, **options: Any) -> "CertifyCallback":
        """Returns an object that is also a `BaseCallback` of Stable-Baselines3."""
        return object.__new__(_joined(_base_callback()) if cls is CertifyCallback else cls)

    def __init__(
        self,
        env: Any,
        threshold: float,
        every: int,
        *,
        delta: float = 0.05,
        max_episodes: int = CHECK,
        reward_range: tuple[float, float] | None = None,
        seed: int = 0,
        verbose: int = 0,
    ):
        """Takes what is to be certified.

        Args:
            env: where the policy is checked, not the environment in which it is trained: a Gymnasium environment, a vector
                environment of Stable-Baselines3, or a richobs environment. Wrap it as the one for training is wrapped.
            threshold: the value to be certified, as total reward of an episode.
            every: steps of training between two checks.
            delta: probability that any of the intervals of all checks is false.
            max_episodes: of one check.
            reward_range: smallest and largest possible total of an episode; needed unless `env` declares it.
            seed: of the checks.
            verbose: 1 prints a line after each check.

        Raises:
            InvalidInput: Stable-Baselines3 is not installed, or an argument cannot be used.
        """
        every = whole_number("every, the steps of training between two checks,", every, least=1)
        # What cannot be asked is refused before the training, not at the first check.
        check_question(totals_range(env, reward_range), threshold, None, delta, max_episodes)
        base: Any = super()
        base.__init__(verbose)
        self.reports: list[PolicyReport] = []
        self._env = env
        self._threshold = float(threshold)
        self._every = every
        self._due = every
        self._max_episodes = max_episodes
        self._reward_range = reward_range
        self._seed = whole_number("seed", seed, least=None)
        self._verbose = verbose
        self._share = Share(float(delta))
        self._series = Series(self._share)
        self._certified: str | None = None  # digest of the parameters that were certified

    @property
    def certified(self) -> bool:
        """Whether the model's policy, as it is now, is known to earn at least the threshold."""
        return self._certified is not None and self._certified == parameter_digest(self.model)

    @property
    def claim(self) -> str:
        """What is guaranteed, in a sentence."""
        chance, threshold = probability_words(self._share.amount), exact_words(self._threshold)
        if not any(report.is_certified for report in self.reports):
            return (
                f"None of the {len(self.reports)} policies checked is known to earn at least {threshold}, acting "
                "deterministically."
            )
        if not self.certified:
            return (
                f"The policy as it is now is not known to earn at least {threshold}, acting deterministically: it was "
                "trained further after a check had certified that."
            )
        return (
            f"With probability at least {chance}, over all {len(self.reports)} checks, the policy, acting "
            f"deterministically, earns at least {threshold} per episode in expectation, provided that episodes are "
            "independent and every total lies in the declared range."
        )

    def _on_training_start(self) -> None:
        """Begins to count steps anew, and forgets what was certified before this training."""
        self._due = self.num_timesteps + self._every
        self._certified = None

    def _on_step(self) -> bool:
        """Checks where a check is due; returns False, which ends the training, once the policy is certified."""
        if self.num_timesteps < self._due:
            return True
        self._due = self.num_timesteps + self._every
        report = self._check(len(self.reports))
        self.reports.append(report)
        self._certified = parameter_digest(self.model) if report.is_certified else None
        if self._verbose:
            print(f"{self.num_timesteps:,} steps: {report}")
        return not report.is_certified

    def _check(self, k: int) -> PolicyReport:
        """Returns the report of the k-th check, which spends the k-th part of delta."""
        share = self._series.next()
        # A policy depends on how earlier checks ended, so every check has a seed of its own.
        report = certify_policy(
            self._env,
            self.model,
            threshold=self._threshold,
            delta=share.spend(),
            max_episodes=self._max_episodes,
            seed=int(keyed_generator(self._seed, "check of training", k).integers(2**62)),
            reward_range=self._reward_range,
            progress=False,
        )
        share.claim(LOWER, (), report.episodes, report.lower)
        return report


def parameter_digest(model: Any) -> str:
    """Returns SHA-256 of the parameters of a model's policy.

    They are `policy.state_dict()`, or else what `get_parameters()` returns. A model that has neither has the digest of no
    parameters: of such a model it cannot be seen whether it has changed.
    """
    if hasattr(model, "policy") and hasattr(model.policy, "state_dict"):
        parameters = model.policy.state_dict()
    else:
        parameters = model.get_parameters() if hasattr(model, "get_parameters") else {}
    digest = hashlib.sha256()
    _absorb(digest, "", parameters)
    return digest.hexdigest()


def _absorb(digest: Any, name: str, part: Any) -> None:
    """Adds a part of a model's parameters to a digest: a tensor, an array, or a dictionary of parts."""
    if isinstance(part, Mapping):
        for key in sorted(part, key=str):
            _absorb(digest, f"{name}/{key}", part[key])
        return
    array = np.asarray(as_array(part))
    content = repr(part).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    digest.update(f"{name} {array.dtype} {array.shape} {len(content)} ".encode() + content)


def _base_callback() -> type[Any]:
    """Returns the class that callbacks of Stable-Baselines3 have in common."""
    try:
        from stable_baselines3.common.callbacks import BaseCallback
    except ImportError as error:
        raise InvalidInput(
            "CertifyCallback needs Stable-Baselines3, which is not installed: pip install 'richobs[sb3]'."
        ) from error
    kind: type[Any] = BaseCallback
    return kind


def _joined(base: type[Any]) -> type[Any]:
    """Returns `CertifyCallback` as a subclass of what Stable-Baselines3 asks for."""
    return type("CertifyCallback", (CertifyCallback, base), {"__doc__": CertifyCallback.__doc__})
