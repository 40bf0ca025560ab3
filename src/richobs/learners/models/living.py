"""The models that no likelihood has refuted [B4], and regret by planning in every one of them [B5].

The wealth of a model is the product of q / p over everything seen, p its own probability and q the forecast: the mixture of
the living models, weighted by their likelihood so far. For the true model this product is a nonnegative martingale.

The regret of a policy in a model is the model's V* less the policy's value there. If it is at most epsilon in every living
model, it is at most epsilon in the true one, which lives. No episode of the policy is needed. Shapes: N models, m of them
living.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.functions import FunctionClass, ModelFamily, StepLaw, StepwiseFamily
from richobs.core.types import Floats, Ints, Mask
from richobs.stats import bets
from richobs.stats.shares import Spendable

ALARM = 0.1  # money on forecasts that believe in no model
KAPPAS = (10.0, 100.0, 1000.0)  # samples that the best fit counts as in each of them
LARGEST_RATIO = 100.0  # of a forecast and a model's probability, where a tolerance is paid for the ratios' span
ZETA = 1e-9  # declared relative error of a probability that a model states for one step
SCREEN = 2048  # models in which a policy is planned at first, where more live
PLAN_ALL = 20  # so many living models or fewer: the policies of all of them are looked at


class Refuted(NamedTuple):
    """What one batch did."""

    kept: Mask  # [m] of the models that lived before it
    impossible: int  # models that hold something in it impossible
    outweighed: int  # models whose wealth reached the limit


class Cell(NamedTuple):
    """What came at one place, an observation with an action, in earlier batches."""

    counts: dict[tuple[int, float], int]  # per outcome
    fitted: dict[tuple[int, float], float]  # what the models that lived said, weighted by their likelihood
    where: tuple[int, int, int]  # level, observation and action when it was seen last


class Alarm:
    """Forecasts that believe in no model: Dirichlet(counts + kappa p_fit) for every observation and action [C3]."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int, bool], Cell] = {}

    def forecasts(self, step: StepLaw, fit: Floats, last: bool) -> Floats:
        """Returns `[3, O]` what each forecast says, from earlier batches; each sums to at most 1."""
        known = self.cells.get((*step.where[1:], last))
        counts = np.array([0 if known is None else known.counts.get(name, 0) for name in step.names], dtype=np.float64)
        total = 0 if known is None else sum(known.counts.values())
        return np.stack([(counts + kappa * fit) / (total + kappa) for kappa in KAPPAS])

    def learn(self, step: StepLaw, fit: Floats, last: bool) -> None:
        """Counts what happened; forecasts of the same batch must not see it."""
        key = (*step.where[1:], last)
        cell = Cell({} if key not in self.cells else self.cells[key].counts, {}, step.where)
        cell.fitted.update(zip(step.names, fit.tolist(), strict=True))
        for place in step.happened[step.happened >= 0].tolist():
            cell.counts[step.names[place]] = cell.counts.get(step.names[place], 0) + 1
        self.cells[key] = cell

    def strangest(self) -> tuple[Cell, tuple[int, float]] | None:
        """Returns the place at which counts and best fit differ most, by likelihood, and the outcome that differs most."""

        def excess(cell: Cell, name: tuple[int, float]) -> float:
            n = sum(cell.counts.values())
            return cell.counts[name] * math.log(cell.counts[name] / max(n * cell.fitted.get(name, 0.0), 1e-300))

        some = [cell for cell in self.cells.values() if cell.counts]
        if not some:
            return None
        worst = max(some, key=lambda cell: sum(excess(cell, name) for name in cell.counts))
        return worst, max(worst.counts, key=lambda name: excess(worst, name))


class Living:
    """Which models live, and the logarithm of each one's wealth."""

    def __init__(self, n_models: int, share: Spendable, alpha: float = 0.0, horizon: int = 0):
        """Takes the whole family, with equal weights.

        Args:
            n_models: N.
            share: probability with which the true model may be refuted.
            alpha: how far the real laws may be from those of a model, in total variation.
            horizon: number of levels: outcomes of the last one have cells of their own. It must not depend on what is seen.
        """
        self._last = horizon - 1
        self.models: Ints = np.arange(n_models)  # [m] in order
        self.log_wealth: Floats = np.zeros(n_models)  # [m] of the mixture's bets; with a tolerance of all bets
        self.alpha, self.alarm = alpha, Alarm()
        self._fit = np.zeros(n_models)  # [m] log-likelihood, where there is a tolerance
        self._against: Floats = np.zeros(len(KAPPAS))  # log of each alarm's forecast over the mixture's, so far
        self._bets = np.zeros((1 + len(KAPPAS), n_models))  # logarithms of wealth within the tolerance
        self.factors = 0  # probabilities multiplied so far: the first observation and the steps of every episode
        self._log_death = math.log(bets.death(share))

    @property
    def log_limit(self) -> float:
        """Logarithm of the wealth at which a model is refuted: 1/d, and what errors of probabilities may have added."""
        return self._log_death + 2 * ZETA * self.factors

    @property
    def weights(self) -> Floats:
        """`[m]` the living models' shares of the forecast, in proportion to their likelihood so far; they sum to 1."""
        logs = self._fit if self.alpha else -self.log_wealth
        odds = np.exp(logs - logs.max())
        return odds / odds.sum()

    @property
    def leader(self) -> int:
        """Place of the most likely living model."""
        return int(self._fit.argmax() if self.alpha else self.log_wealth.argmin())

    def absorb(self, log_likelihood: Floats, factors: int, steps: Sequence[StepLaw] = ()) -> Refuted:
        """Settles a batch and drops the models that it refutes.

        The mixture conserves the sum of 1 / wealth over the living models, so it never refutes all of them: that happens
        only where every living model holds something impossible, or by the alarm [C3].

        Args:
            log_likelihood: `[m]` of the batch under each living model; -inf where it is impossible.
            factors: probabilities that were multiplied, for each model.
            steps: what the living models say about every step of the batch; () where they do not say: then there is neither
                alarm nor tolerance.

        Raises:
            BrokenPromise: every living model holds something in the batch impossible, or the alarm refutes all.
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
            raise BrokenPromise(f"{self._all_left()} holds something impossible that was seen")
        self.factors += factors
        if self.alpha:
            self._bet_within(steps)
            self.log_wealth = _log_sums(self._bets + np.log(_money())[:, None])
            kept = possible & (self.log_wealth < self.log_limit)
            self._fit = self._fit + given
        else:
            forecast = _log_sum(given - self.log_wealth) - _log_sum(-self.log_wealth)
            self._listen(steps, forecast)
            self.log_wealth = self.log_wealth + (forecast - given)
            kept = self.log_wealth + self.alarmed < self.log_limit
        if not kept.any():
            raise BrokenPromise(f"forecasts that know no model beat {self._all_left()}")
        self.models, self.log_wealth, self._fit = self.models[kept], self.log_wealth[kept], self._fit[kept]
        self._bets = self._bets[:, kept]
        impossible = int((~possible).sum())
        return Refuted(kept, impossible, int((~kept).sum()) - impossible)

    def _all_left(self) -> str:
        n = len(self.models)
        return "the only model that is left" if n == 1 else f"each of the {n:,} models that are left"

    @property
    def alarmed(self) -> float:
        """Logarithm of the factor by which the alarm's money changes every wealth: 1 - ALARM where it has lost all [C3]."""
        if not self.alarm.cells:
            return 0.0
        return math.log1p(ALARM * (float(np.exp(np.minimum(self._against, 600.0)).mean()) - 1))

    def _listen(self, steps: Sequence[StepLaw], forecast: float) -> None:
        """Lets the alarm's forecasts bet on a batch beside the mixture's, and learn from it."""
        if not steps:
            return
        weights, against, last = self.weights, self._against - forecast, self._last
        for step in steps:
            fit = weights @ step.law
            with np.errstate(divide="ignore"):
                against = against + np.log(
                    self.alarm.forecasts(step, fit, step.where[0] == last)[:, step.happened]
                ).sum(axis=1)
        self._against = against
        for step in steps:
            self.alarm.learn(step, weights @ step.law, step.where[0] == last)

    def _bet_within(self, steps: Sequence[StepLaw]) -> None:
        """Lets mixture and alarm bet, and pays alpha for the span of the ratios at every step [M1]."""
        weights, last = self.weights, self._last
        for step in steps:
            fit = weights @ step.law
            for k, q in enumerate([fit, *self.alarm.forecasts(step, fit, step.where[0] == last)]):
                self._bets[k] += robust_growth(q, step.law, step.happened, self.alpha)
        for step in steps:
            self.alarm.learn(step, weights @ step.law, step.where[0] == last)


def robust_growth(q: Floats, law: Floats, happened: Ints, alpha: float) -> Floats:
    """Returns `[m]` the logarithm of the product of f / (1 + alpha span(f)) over steps, f = min(q / p, LARGEST_RATIO) [M1].

    The mean of f under p is at most the sum of q, and a law within alpha of p on its outcomes adds alpha span(f) at most.

    Args:
        q: `[O]` a forecast, fixed before the steps; it sums to at most 1.
        law: `[m, O]` p of every model.
        happened: `[n]` outcomes, each possible in some model.
        alpha: total variation that is allowed.
    """
    possible = law > 0
    ratio = np.minimum(q / np.where(possible, law, 1.0), LARGEST_RATIO)
    span = np.where(possible, ratio, -np.inf).max(axis=1) - np.where(possible, ratio, np.inf).min(axis=1)
    paid = np.log1p(alpha * np.where(possible.any(axis=1), span, 0.0))
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(possible, ratio, 1.0)[:, happened])
    return np.asarray((logs - paid[:, None]).sum(axis=1))


def _money() -> Floats:
    """Returns `[1 + 3]` what the mixture and each of the alarm's forecasts begin with."""
    return np.array([1 - ALARM, *[ALARM / len(KAPPAS)] * len(KAPPAS)])


def _log_sums(logs: Floats) -> Floats:
    """Returns `[m]` the logarithms of the sums of exp over the first axis; -inf where all are."""
    top = logs.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.exp(logs - safe).sum(axis=0)))


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

    def __init__(self, functions: FunctionClass, family: ModelFamily, living: Living, look: int, alpha: float = 0.0):
        """Takes the family.

        Args:
            functions: the class whose member i is Q* of model i.
            family: the same, as models.
            living: which models live.
            look: how many of the most likely models' policies are looked at.
            alpha: how far the real laws may be from those of a model: values are then the worst, and V* the best, of all
                systems within it [M2].
        """
        self._functions, self._family, self._living, self._look = functions, family, living, look
        self._within = family if alpha and isinstance(family, StepwiseFamily) else None
        self._alpha = alpha
        best = family.optimal_values() if self._within is None else self._within.optimal_values_within(alpha)
        self._optimal = np.asarray(best, dtype=np.float64)  # [N]
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
        policy = LearnedPolicy(self._functions, member)
        if self._within is not None:
            return np.asarray(self._within.policy_values_within(policy, self._alpha, models), dtype=np.float64)
        values = self._family.policy_values(policy, models)
        return np.asarray(values, dtype=np.float64)

    def _judged(self, member: int, models: Ints, values: Floats) -> Judged:
        regret = self._optimal[models] - values
        worst = int(regret.argmax())
        return Judged(member, float(regret[worst]), int(models[worst]), float(values.min()))
