"""The models that no likelihood has refuted [B4]. Shapes: N models, m of them living.

The wealth of a model is the product of q / p over everything seen, p its own probability and q the forecast: the mixture of
the living models, weighted by their likelihood so far. For the true model this product is a nonnegative martingale.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.types import Floats, Ints, Mask
from richobs.stats import bets
from richobs.stats.shares import Spendable

ZETA = 1e-9  # declared relative error of a probability that a model states for one step


class Refuted(NamedTuple):
    """What one batch did."""

    kept: Mask  # [m] of the models that lived before it
    impossible: int  # models that hold something in it impossible
    outweighed: int  # models whose wealth reached the limit


class Living:
    """Which models live, and the logarithm of each one's wealth."""

    def __init__(self, n_models: int, share: Spendable):
        """Takes the whole family, with equal weights.

        Args:
            n_models: N.
            share: probability with which the true model may be refuted.
        """
        self.models: Ints = np.arange(n_models)  # [m] in order
        self.log_wealth: Floats = np.zeros(n_models)  # [m]
        self.factors = 0  # probabilities multiplied so far: the first observation and the steps of every episode
        self._log_death = math.log(bets.death(share))

    @property
    def log_limit(self) -> float:
        """Logarithm of the wealth at which a model is refuted: 1/d, and what errors of probabilities may have added."""
        return self._log_death + 2 * ZETA * self.factors

    @property
    def weights(self) -> Floats:
        """`[m]` the living models' shares of the forecast, in proportion to their likelihood so far; they sum to 1."""
        odds = np.exp(self.log_wealth.min() - self.log_wealth)
        return odds / odds.sum()

    @property
    def leader(self) -> int:
        """Place of the most likely living model."""
        return int(self.log_wealth.argmin())

    def absorb(self, log_likelihood: Floats, factors: int) -> Refuted:
        """Settles a batch and drops the models that it refutes.

        The mixture conserves the sum of 1 / wealth over the living models, so it never refutes all of them: that happens
        only where every living model holds something impossible.

        Args:
            log_likelihood: `[m]` of the batch under each living model; -inf where it is impossible.
            factors: probabilities that were multiplied, for each model.

        Raises:
            BrokenPromise: every living model holds something in the batch impossible.
            InvalidInput: a number that is no logarithm of a likelihood.
        """
        given = np.asarray(log_likelihood, dtype=np.float64)
        if given.shape != self.models.shape:
            raise InvalidInput(
                f"log_likelihood must return [m] numbers, one for each of {len(self.models)} models; got shape "
                f"{given.shape}."
            )
        wrong = np.isnan(given) | (given == np.inf)
        if wrong.any():
            place = int(wrong.argmax())
            raise InvalidInput(
                f"log_likelihood of model {self.models[place]} is {given[place]}; it must be a number, or -inf for what the "
                "model holds impossible."
            )
        possible = given > -np.inf
        if not possible.any():
            n = len(self.models)
            left = "the only model that is left holds" if n == 1 else f"each of the {n:,} models that are left holds"
            raise BrokenPromise(f"{left} something impossible that was seen")
        self.factors += factors
        forecast = _log_sum(given - self.log_wealth) - _log_sum(-self.log_wealth)
        wealth = self.log_wealth + (forecast - given)
        kept = wealth < self.log_limit
        self.models, self.log_wealth = self.models[kept], wealth[kept]
        impossible = int((~possible).sum())
        return Refuted(kept, impossible, int((~kept).sum()) - impossible)


def _log_sum(values: Floats) -> float:
    """Returns the logarithm of the sum of exp(values), of which at least one is finite."""
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))
