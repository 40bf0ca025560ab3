"""Simulators: a family of candidate models as a class of functions; member i is Q* of model i, by exact planning.

The real system is assumed to be one of the models, or at least to have the Q* of one of them. The learner decides which of
the two is assumed. One that trusts values alone uses the class like any other listed class. One that trusts the models asks
the class as a `richobs.core.functions.ModelFamily`:

- `n_models`: N; model i belongs with member i.
- `log_likelihood(episodes, models)` `[m]`: how likely each model answers whole episodes, first observation included.
  By episode: `models.episode_log_likelihoods(episodes, models)` `[m, n]`. Something that a model holds impossible has the
  logarithm -inf.
- `optimal_values()` `[N]`: V* of each model.
- `policy_values(policy, models)` `[m]`: the exact value of any reactive policy in each model.

Values are in the units of the rewards. After the end of an episode nothing more is earned: its value is 0.
Shapes: N models, X observations, K actions, H levels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import UNIT, Arrays, digest_of, read_whole, write_parts
from richobs.classes.dynamics import Model, as_model, sparse_outcomes
from richobs.classes.layered import Listed
from richobs.classes.model_arrays import ModelArrays
from richobs.classes.tables import TableLevel
from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.functions import StepLaw
from richobs.core.moments import distinct
from richobs.core.policies import Policy
from richobs.core.process import EQUALITY_TOLERANCE, Codebook
from richobs.core.registry import Told, waiting
from richobs.core.types import Floats, Ints
from richobs.stats.bets import ZETA

FORMAT = "richobs-models"

Theta = TypeVar("Theta")


def _models(given: Iterable[Any], horizon: int | None, make: Callable[[Any], Any] | None = None) -> list[Model]:
    """Returns the models of candidates, or of what `make` makes of them."""
    found, given = [], list(given)
    with waiting("making models") as told:
        for one in given:
            found.append(as_model(one if make is None else make(one), horizon))
            told(len(found), len(given))
    return found


class Simulators(Listed):
    """The class whose member i is Q* of candidate model i."""

    models: ModelArrays
    """The models, equal ones merged."""
    place: Ints
    """`[given]` the member that each candidate became, in the order in which they were given."""

    @refuse_unusable
    def __init__(
        self,
        models: Iterable[Any] | ModelArrays,
        horizon: int | None = None,
        *,
        single_precision: bool = False,
        progress: Told | None = None,
    ):
        """Plans in every model.

        Args:
            models: candidates: `Model`, `TabularProcess`, Gymnasium toy-text environments or their ids; or all of them as a
                `ModelArrays`. Candidates that say the same about everything that can happen become one member.
            horizon: number of levels H, where candidates do not say.
            single_precision: keep Q* as float32, half of the memory; refused where that changes a value by more than the
                betting search accounts for.
            progress: called with how many models are planned, and how many there are.
        """
        given = models if isinstance(models, ModelArrays) else ModelArrays.stack(_models(models, horizon))
        if horizon not in (None, given.horizon):
            raise InvalidInput(f"the models have {given.horizon} levels; {horizon} were asked for.")
        self.models, self.place = given.merged()
        self._single_precision = single_precision
        with waiting("planning in models") as told:
            tables, self._optimal = self.models.plan(np.float32 if single_precision else np.float64, progress or told)
        # In single precision both Q* and the value after it round, each by at most half a unit in the last place.
        most = max(float(np.abs(t).max()) for t in tables)
        if single_precision and most * 2.0**-24 > ZETA / 2:
            raise InvalidInput(
                f"values of these models reach {most:.6g}; single precision may change them by {most * 2.0**-24:.2g}, more "
                f"than {ZETA / 2:g}. Leave `single_precision` out."
            )
        super().__init__([_level(tables.pop(0), self.models.codebook) for _ in range(len(tables))])

    @classmethod
    def grid(
        cls,
        make: Callable[[Theta], Any],
        thetas: Sequence[Theta],
        horizon: int | None = None,
        *,
        single_precision: bool = False,
        progress: Told | None = None,
    ) -> Simulators:
        """Returns the class of the models `make(theta)` for all thetas; `place[i]` is the member of `thetas[i]`.

        Args:
            make: returns a candidate, as the constructor takes it.
            thetas: the parameters.
            horizon: number of levels H, where candidates do not say.
            single_precision: as for the constructor.
            progress: as for the constructor.
        """
        made = ModelArrays.stack(_models(thetas, horizon, make))
        return cls(made, horizon, single_precision=single_precision, progress=progress)

    @classmethod
    def of_arrays(
        cls,
        transitions: ArrayLike,
        rewards: ArrayLike,
        horizon: int,
        *,
        start: ArrayLike | None = None,
        done: ArrayLike | None = None,
        observations: NDArray[Any] | None = None,
        single_precision: bool = False,
        progress: Told | None = None,
    ) -> Simulators:
        """Returns the class of many models given as dense arrays.

        Args:
            transitions: `[N, S, K, S]` P(s' | s, a).
            rewards: `[N, S, K, S]` what the move to s' pays, or `[N, S, K]`; without N where all models pay the same.
            horizon: number of levels H.
            start: `[S]` or `[N, S]` distribution of the first state; by default state 0.
            done: `[S]` states whose arrival ends the episode, or `[N, S, K, S]`; by default none.
            observations: `[S, ...]` what each state shows, in all models; by default its number.
            single_precision: as for the constructor.
            progress: as for the constructor.
        """
        p = real_array(transitions)
        if p.ndim != 4:
            raise InvalidInput(
                f"transitions must be [N, S, K, S]; got shape {p.shape}. One model is richobs.Model.of_arrays."
            )
        r = real_array(rewards)
        if r.shape in (p.shape[1:3], p.shape[1:]):
            r = r[None]
        probability, to, reward, ends = sparse_outcomes(p, r, done)
        first = np.eye(p.shape[1])[0] if start is None else real_array(start)
        shown = np.arange(p.shape[1]) if observations is None else np.asarray(observations)
        return cls.of_outcomes(
            probability,
            to,
            reward,
            ends,
            horizon,
            start=first,
            observations=shown,
            single_precision=single_precision,
            progress=progress,
        )

    @classmethod
    def of_outcomes(
        cls,
        probability: ArrayLike,
        next: ArrayLike,
        reward: ArrayLike,
        done: ArrayLike,
        horizon: int,
        *,
        start: ArrayLike,
        observations: NDArray[Any] | None = None,
        single_precision: bool = False,
        progress: Told | None = None,
    ) -> Simulators:
        """Returns the class of many models given by their outcomes, B for each state and action at most.

        Args:
            probability: `[B, N, S, K]` of each outcome; 0 for padding.
            next: the state that it leads to; this and the rest broadcast against `[B, N, S, K]`.
            reward: what it pays.
            done: whether the episode ends with it.
            horizon: number of levels H.
            start: `[S]` or `[N, S]` distribution of the first state.
            observations: `[S, ...]` what each state shows, in all models; by default its number.
            single_precision: as for the constructor.
            progress: as for the constructor.
        """
        p = real_array(probability)
        if p.ndim != 4 or 0 in p.shape:
            raise InvalidInput(f"probabilities must be [B, N, S, K] with every size at least 1; got shape {p.shape}.")
        shown = np.arange(p.shape[2]) if observations is None else np.asarray(observations)
        if len(shown) != p.shape[2]:
            raise InvalidInput(f"models of {p.shape[2]} states need as many observations; got {len(shown)}.")
        rows, row = distinct(shown)
        family = ModelArrays(
            horizon,
            np.ascontiguousarray(np.broadcast_to(real_array(start), p.shape[1:3])),
            p,
            np.ascontiguousarray(np.broadcast_to(np.asarray(next), p.shape), dtype=np.int32),
            np.ascontiguousarray(np.broadcast_to(real_array(reward), p.shape), dtype=np.float64),
            np.ascontiguousarray(np.broadcast_to(np.asarray(done), p.shape), dtype=bool),
            row[None, :].astype(np.int64),
            Codebook(rows),
        )
        return cls(family, single_precision=single_precision, progress=progress)

    @property
    def n_models(self) -> int:
        """Number of models N, after equal ones were merged."""
        return self.models.n_models

    @property
    def n_merged(self) -> int:
        """How many candidates were left out because another one says the same."""
        return len(self.place) - self.n_models

    def optimal_values(self) -> Floats:
        """Returns `[N]` V* of each model."""
        return self._optimal.copy()

    def policy_values(self, policy: Policy, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the exact value of a reactive policy in each model.

        The policy is asked at every level about every observation that some model shows.
        """
        return self.models.policy_values(policy, models)

    def optimal_values_within(self, alpha: float, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the largest V* of a system whose laws are within alpha of the model's, on the same outcomes."""
        return self.models.optimal_values_within(alpha, models)

    def policy_values_within(self, policy: Policy, alpha: float, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the smallest value of a reactive policy in such a system."""
        return self.models.policy_values_within(policy, alpha, models)

    def step_laws(self, episodes: Episodes, models: Ints, /) -> Iterator[StepLaw] | None:
        """Returns the laws of all that episodes show, as `ModelArrays.step_laws`; None where observations hide the state."""
        return self.models.step_laws(episodes, models) if self.models.is_identified else None

    def log_likelihood(self, episodes: Episodes, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the logarithm of how likely each model answers the episodes, given their actions."""
        return self.models.episode_log_likelihoods(episodes, models).sum(axis=1)

    @cached_property
    def _digest(self) -> str:
        parts = [(FORMAT, {**self.models.to_arrays(), "single": np.array(self._single_precision)})]
        return digest_of([*parts, *((FORMAT, c.to_arrays()) for c in self.levels)])

    @property
    def digest(self) -> str | None:
        """SHA-256 of the models and of the Q functions that were planned in them."""
        return self._digest

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the models to a `.npz` file: plain arrays and a JSON header, no pickle."""
        more = {"place": self.place, "single": np.array(self._single_precision)}
        write_parts(file, FORMAT, [("models", {**self.models.to_arrays(), **more})])

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> Simulators:
        """Returns the class that `save` wrote; it plans again.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """

        def build(parts: list[tuple[str, Arrays]]) -> Simulators:
            ((_, arrays),) = parts
            place = np.asarray(arrays["place"]).astype(np.int64)
            single = bool(np.asarray(arrays["single"]).ravel()[0])
            loaded = cls(ModelArrays.from_arrays(arrays), single_precision=single)
            if place.ndim != 1 or not place.size or place.min() < 0 or place.max() >= loaded.n_models:
                raise InvalidFile("its map of candidates is damaged.")
            loaded.place = place
            return loaded

        return read_whole(file, FORMAT, build)


def _level(table: NDArray[Any], codebook: Codebook) -> TableLevel:
    """Returns the functions of one level with their range; rounding outside [0, 1] is cut off."""
    low, high = float(table.min()), float(table.max())
    if low >= -EQUALITY_TOLERANCE and high <= 1 + EQUALITY_TOLERANCE:
        return TableLevel(np.clip(table, 0, 1, out=table), codebook)
    return TableLevel(table, codebook, value_range=(min(UNIT[0], low), max(0.0, high)))
