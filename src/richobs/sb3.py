"""Stable-Baselines3: training that stops when the policy is certified, and the best checkpoint of a training.

Needs the extra `sb3` (`pip install 'richobs[sb3]'`), which is imported only when a callback is made.
"""

import copy
import io
import os
import re
from typing import Any, Self

from richobs.core.arguments import file_path, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.outcome import LOWER
from richobs.core.randomness import keyed_generator
from richobs.core.words import exact_words, probability_words
from richobs.judging.players import parameter_digest
from richobs.judging.select import Selection, select
from richobs.judging.value import PolicyReport, certify_policy, check_question, totals_range
from richobs.stats.shares import Series, Share

CHECK = 1_000  # episodes of one check at most, unless told otherwise


class _Callback:
    """What callbacks of richobs have in common: they become subclasses of `BaseCallback` when they are made."""

    model: Any  # set by Stable-Baselines3
    num_timesteps: int  # likewise

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Returns an object that is also a `BaseCallback` of Stable-Baselines3."""
        if cls.__bases__ != (_Callback,):  # joined already
            return object.__new__(cls)
        return object.__new__(type(cls.__name__, (cls, _base_callback()), {"__doc__": cls.__doc__}))


class CertifyCallback(_Callback):
    """A callback for `model.learn`: checks the current policy now and then, and stops once it is certified.

    Every check plays fresh episodes of the policy, acting deterministically, in an environment of its own. It gets a part
    of delta, so with probability at least 1 - delta the intervals of all checks hold together, however many there are.
    After training, if `certified` is True, the model's policy is the one that was certified: its parameters are compared
    with those at the check. `reports` holds one report per check. Training may go on with the same callback: the next check
    comes `every` steps later, and delta holds for all checks together.

    It is a `stable_baselines3.common.callbacks.BaseCallback`.
    """

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


class SelectCallback(_Callback):
    """A callback for `model.learn`: keeps a checkpoint now and then, and finds one within epsilon of the best at the end.

    The checkpoints race with fresh episodes in an environment of their own (`richobs.select`), so the one that is chosen was
    not just lucky during training. After training `report` says which one it is, and `best` is that policy, acting
    deterministically.

    It is a `stable_baselines3.common.callbacks.BaseCallback`.
    """

    def __init__(self, env: Any, every: int, *, epsilon: float, verbose: int = 0, **options: Any):
        """Takes what the race needs.

        Args:
            env: where checkpoints are played, not the environment in which the model is trained.
            every: steps of training between two checkpoints.
            epsilon: by how much the chosen checkpoint may be worse than the best.
            verbose: 1 prints the claim.
            **options: further arguments of `richobs.select`.

        Raises:
            InvalidInput: Stable-Baselines3 is not installed, or an argument cannot be used.
        """
        self._every = whole_number("every, the steps of training between two checkpoints,", every, least=1)
        check_question(
            totals_range(env, options.get("reward_range")),
            None,
            epsilon,
            options.get("delta", 0.05),
            None,
            may_end=True,
        )
        base: Any = super()
        base.__init__(verbose)
        self.checkpoints: dict[str, Any] = {}  # policies by the number of steps
        self.report: Selection | None = None
        self._env, self._epsilon, self._options, self._verbose = env, epsilon, options, verbose
        self._due = self._every

    @property
    def best(self) -> Any:
        """The chosen policy; None before the end of training."""
        return None if self.report is None else self.checkpoints[self.report.name]

    def _on_training_start(self) -> None:
        """Begins to count steps anew."""
        self._due = self.num_timesteps + self._every

    def _on_step(self) -> bool:
        """Keeps a copy of the policy where one is due."""
        if self.num_timesteps >= self._due:
            self._due = self.num_timesteps + self._every
            self._keep()
        return True

    def _keep(self) -> None:
        self.checkpoints[f"{self.num_timesteps} steps"] = _copied(self.model.policy)

    def _on_training_end(self) -> None:
        """Lets the checkpoints race, the last policy among them."""
        self._keep()
        self.report = select(self._env, self.checkpoints, epsilon=self._epsilon, progress=False, **self._options)
        if self._verbose:
            print(self.report)


def _copied(policy: Any) -> Any:
    """Returns a copy of a policy; one of Stable-Baselines3 keeps tensors that only its own `save` leaves out."""
    if not (callable(getattr(policy, "save", None)) and hasattr(type(policy), "load")):
        return copy.deepcopy(policy)
    written = io.BytesIO()
    policy.save(written)
    written.seek(0)
    return type(policy).load(written, device=policy.device)


def checkpoints(folder: str | os.PathLike[str], algorithm: Any, **options: Any) -> dict[str, Any]:
    """Returns the models that Stable-Baselines3 saved in a folder, by the names of their files, for `richobs.select`.

    Args:
        folder: holds files `*.zip`, such as those of `CheckpointCallback`.
        algorithm: the class that saved them, such as `stable_baselines3.PPO`.
        **options: of its method `load`.

    Raises:
        InvalidInput: there are none.
    """
    place = file_path(folder, "a folder of checkpoints")
    files = sorted(
        place.glob("*.zip"), key=lambda file: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", file.stem)]
    )
    if not files:
        raise InvalidInput(f"{place} holds no checkpoints (*.zip) of Stable-Baselines3.")
    return {file.stem: algorithm.load(file, **options) for file in files}


def _base_callback() -> type[Any]:
    """Returns the class that callbacks of Stable-Baselines3 have in common."""
    try:
        from stable_baselines3.common.callbacks import BaseCallback
    except ImportError as error:
        raise InvalidInput(
            "callbacks need Stable-Baselines3, which is not installed: pip install 'richobs[sb3]'."
        ) from error
    kind: type[Any] = BaseCallback
    return kind
