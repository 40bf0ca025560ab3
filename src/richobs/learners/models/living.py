"""The models that no likelihood has refuted [B4], and regret by planning in every one of them [B5].

The wealth of a model is the product of q / p over everything seen, p its own probability and q the forecast: the mixture of
the living models, weighted by their likelihood so far. For the true model this product is a nonnegative martingale.

The regret of a policy in a model is the model's V* less the policy's value there. If it is at most epsilon in every living
model, it is at most epsilon in the true one, which lives. No episode of the policy is needed. Shapes: N models, m of them
living.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.functions import FunctionClass, ModelFamily
from richobs.core.types import Floats, Ints, Mask
from richobs.stats import bets
from richobs.stats.shares import Spendable

ZETA = 1e-9  # declared relative error of a probability that a model states for one step
SCREEN = 2048  # models in which a policy is planned at first, where more live
PLAN_ALL = 20  # so many living models or fewer: the policies of all of them are looked at


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


class Judged(NamedTuple):
    """A policy, and how much it loses in the models looked at."""

    member: int  # the model whose optimal policy it is
    regret: float  # the largest
    worst: int  # the model in which it is the largest
    lowest: float | None  # smallest value of the policy in a living model; None where not all were looked at


class Regrets:
    """Values of the likely models' optimal policies in every living model, kept while their models live."""

    def __init__(self, functions: FunctionClass, family: ModelFamily, living: Living, look: int):
        """Takes the family.

        Args:
            functions: the class whose member i is Q* of model i.
            family: the same, as models.
            living: which models live.
            look: how many of the most likely models' policies are looked at.
        """
        self._functions, self._family, self._living, self._look = functions, family, living, look
        self._optimal = np.asarray(family.optimal_values(), dtype=np.float64)  # [N]
        self._rows: dict[int, Floats] = {}  # member -> [m] its policy's value in every living model

    @property
    def upper(self) -> float:
        """The largest V* of a living model."""
        return float(self._optimal[self._living.models].max())

    def optimal(self, member: int) -> float:
        """Returns V* of a model."""
        return float(self._optimal[member])

    def keep(self, kept: Mask) -> None:
        """Forgets what is known of models that died; call it after every batch.

        Args:
            kept: `[m]` of the models that lived before the batch.
        """
        alive = set(self._living.models.tolist())
        self._rows = {member: row[kept] for member, row in self._rows.items() if member in alive}

    def best(self, enough: float) -> Judged:
        """Returns the policy whose largest regret is the smallest, among those of the most likely models.

        Where many models live, policies are compared in the most likely ones. The winner is then planned in all of them only
        if it loses no more than `enough` there: otherwise one of these already shows that it loses more.
        """
        living = self._living
        models = living.models
        order = np.argsort(living.log_wealth, kind="stable")
        looked_at = models[order[: len(models) if len(models) <= PLAN_ALL else self._look]].tolist()
        if len(models) <= SCREEN:
            found = [self._judged(member, models, self.values(member)) for member in looked_at]
            return min(found, key=lambda judged: judged.regret)
        few = models[np.sort(order[:SCREEN])]
        found = []
        for member in looked_at:
            full = self._rows.get(member)
            if full is not None:
                found.append(self._judged(member, models, full))
            else:
                found.append(self._judged(member, few, self._planned(member, few))._replace(lowest=None))
        winner = min(found, key=lambda judged: judged.regret)
        if winner.lowest is None and winner.regret <= enough:
            winner = self.judged(winner.member)
        return winner

    def judged(self, member: int) -> Judged:
        """Returns what the optimal policy of a model loses in all living models."""
        return self._judged(member, self._living.models, self.values(member))

    def values(self, member: int) -> Floats:
        """Returns `[m]` the value of a model's optimal policy in every living model."""
        row = self._rows.get(member)
        if row is None:
            row = self._rows[member] = self._planned(member, self._living.models)
        return row

    def _planned(self, member: int, models: Ints) -> Floats:
        values = self._family.policy_values(LearnedPolicy(self._functions, member), models)
        return np.asarray(values, dtype=np.float64)

    def _judged(self, member: int, models: Ints, values: Floats) -> Judged:
        regret = self._optimal[models] - values
        worst = int(regret.argmax())
        return Judged(member, float(regret[worst]), int(models[worst]), float(values.min()))
