"""Regret by planning in every living model [B5]. Shapes: N models, m of them living.

The regret of a policy in a model is the model's V* less the policy's value there. If it is at most epsilon in every living
model, it is at most epsilon in the true one, which lives. No episode of the policy is needed.
"""

from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.functions import FunctionClass, ModelFamily
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.models.living import Living

SCREEN = 2048  # models in which a policy is planned at first, where more live
PLAN_ALL = 20  # so many living models or fewer: the policies of all of them are looked at


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
