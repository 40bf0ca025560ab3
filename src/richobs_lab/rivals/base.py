"""What all rivals share as learners: they refuse counts, check their tuning and word their answers alike."""

from functools import partial
from typing import ClassVar

from richobs import InvalidInput, LearnedPolicy, Learner, Outcome, Problem, Settings
from richobs.core.ledger import Ledger
from richobs.core.outcome import ALWAYS, StopReason, Wording
from richobs.core.words import probability_words
from richobs.learners.base import PlanRow, ShortPlan

BEST_SEQUENCE = "the best action sequence's"  # what the value of an action sequence is compared with


class Rival(Learner):
    """A learner to compare with; a subclass sets the facts and writes `plan` and `run`."""

    reads_episodes: ClassVar[str] = ""  # what it does with single episodes, in words; empty where counts are enough

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses a problem or settings that it cannot serve, also the counted engine where it reads single episodes."""
        super().check(problem, settings, engine)
        if self.reads_episodes and engine == "counted":
            raise InvalidInput(
                f"the learner {self.name!r} {self.reads_episodes}, and the counted engine only draws how often each occurs. "
                "Use engine='stream'."
            )

    def answer(
        self,
        policy: LearnedPolicy,
        settings: Settings,
        why: str,
        *,
        finished: bool = False,
        wording: Wording | None = None,
        value_hat: float | None = None,
        log_size: float | None = None,
        remarks: tuple[str, ...] = (),
    ) -> Outcome:
        """Returns the outcome of a run: a claim where the method finished and has one, and else that there is none.

        Args:
            policy: what was learned.
            settings: with epsilon and delta.
            why: why nothing is claimed, where nothing is, in a sentence.
            finished: whether it stopped by its own rule, rather than because the episodes were spent.
            wording: makes the claim; None where the method claims nothing.
            value_hat: estimate of the policy's value.
            log_size: logarithm of the number of surviving functions.
            remarks: what it noticed, in sentences.
        """
        sure = finished and wording is not None
        return Outcome(
            policy=policy,
            claim=wording(epsilon=settings.epsilon, lower=None, upper=None, reward_range=(0.0, 1.0))
            if wording is not None and sure
            else f"No guarantee: {why}",
            wording=wording,
            learner=self.name,
            epsilon=settings.epsilon,
            delta=settings.delta,
            reason=StopReason.OWN_RULE if finished else StopReason.BUDGET_SPENT,
            guaranteed=sure,
            value_hat=value_hat,
            log_size=log_size,
            remarks=remarks,
        )


def near_optimal(settings: Settings, ledger: Ledger, best: str, provided: str = "") -> Wording:
    """Returns the claim of a method that proves its policy near-optimal, without epsilon.

    Args:
        settings: with delta.
        ledger: of the run, which knows what its episodes rest on.
        best: what the policy's value is compared with.
        provided: what the claim rests on, beside independent episodes and rewards whose totals lie in the declared range.
    """
    needed = "; ".join([*ALWAYS, *ledger.assumes, *([provided] if provided else [])])
    return partial(_near_optimal_words, settings.delta, best, needed)


def _near_optimal_words(
    delta: float,
    best: str,
    needed: str,
    *,
    epsilon: float,
    lower: float | None,
    upper: float | None,
    reward_range: tuple[float, float],
) -> str:
    sure = f"With probability at least {probability_words(delta)}"
    return f"{sure} the policy's value is within {epsilon!r} of {best}. This needs: {needed}."


def plan_of_episodes(title: str, episodes: int, *more: PlanRow) -> ShortPlan:
    """Returns the plan of a method that plays as many episodes as its tuning says."""
    return ShortPlan(title, episodes, (PlanRow(title, "episodes", episodes, "episodes", "tuning"), *more))


def require_at_least(least: int, /, **numbers: float) -> None:
    """Raises `InvalidInput` where a number of a learner's tuning is below `least`, or is infinite or NaN."""
    for name, number in numbers.items():
        if not least <= number < float("inf"):
            raise InvalidInput(f"tuning: {name} must be at least {least}; got {number}.")
