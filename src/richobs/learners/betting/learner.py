"""The betting search as a learner: what it needs, promises and costs, and what it may need of episodes."""

import bisect
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.outcome import LOWER, UPPER, Outcome
from richobs.core.problem import SMALLEST, Problem
from richobs.core.queries import Engine
from richobs.core.registry import InNotebook
from richobs.core.settings import Settings
from richobs.core.units import has_unit_rewards
from richobs.learners import learner
from richobs.learners.base import (
    WITHIN_EPSILON,
    Finding,
    Learner,
    Measured,
    PlanRow,
    Promise,
    Traits,
    similar_rows,
    similar_worlds,
)
from richobs.learners.betting.candidate import AGREED
from richobs.learners.betting.certify import ASSUMPTIONS, REASONS, RULE, SHARES, agreement_bets, promise_bets
from richobs.learners.betting.search import Tuning, betting
from richobs.learners.betting.values import Ranges
from richobs.learners.stopping import Fallback, check_tolerance
from richobs.stats import bets
from richobs.stats.shares import Share, Squares


@dataclass(frozen=True)
class BettingPlan(InNotebook):
    """What similar worlds needed, the least that agreement can take, and what surely suffices where that is known."""

    view = "plan"
    max_episodes: int | None  # with probability 1 - delta; None where nothing is guaranteed
    least: int | None  # episodes of one candidate with which all survivors can agree; None: too few for the tolerance
    similar: tuple[Measured, ...]  # the nearest first
    lost: float = 0.0  # what the tolerance may hide of a policy's loss
    title = "betting: a search that fixes no size in advance"

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        yield from similar_rows(self.similar)
        where = "docs/betting.md, B3.2: all survivors agree with the first candidate at once"
        if self.least is not None:
            yield PlanRow("at the least", "by agreement", self.least, "episodes", where)
        if self.lost:
            yield PlanRow("tolerance", "least epsilon to rely on", self.lost, "of reward", "docs/betting.md, T5")
        if self.max_episodes is not None:
            yield PlanRow("worst case", "surely enough", self.max_episodes, "episodes", "docs/betting.md, Theorem 5")

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {
            "max_episodes": self.max_episodes,
            "least_by_agreement": self.least,
            **({"least_epsilon": self.lost} if self.lost else {}),
            "similar": [m._asdict() for m in self.similar],
        }


def least_by_agreement(problem: Problem, settings: Settings, lost: float = 0.0) -> int | None:
    """Returns the fewest episodes with which all survivors can agree with the first candidate that has accounts [B3.2]."""
    H = problem.horizon
    largest = max(float(problem.functions.value_bounds(h)[1].max()) for h in range(H))
    left = settings.epsilon - 2 * H * bets.ZETA - lost
    if left <= 0:
        return None
    bet = bets.Agreement.of(left, float(np.clip(largest, settings.epsilon, 1.0)), H)
    needed = -math.log(Squares(Share(SHARES["agreement"] * settings.delta)).suppose(0).amount)

    def is_enough(n: int) -> bool:
        return bet.log_wealth(n, np.zeros(len(bet.bets))) >= needed

    most = 1
    while not is_enough(most):  # wealth that loses nothing grows with every episode
        most *= 2
    return bisect.bisect_left(range(most + 1), True, lo=most // 2, key=is_enough)


class Betting(Learner):
    """The betting search."""

    name = "betting"
    about = "Betting search: optimistic, with bets that nobody can expect to win against Q*; transitions may be random."
    cites = "docs/betting.md; average Bellman errors after Jiang et al. 2017, bets after Waudby-Smith and Ramdas 2024"
    given = ("class of value functions", "horizon")
    promises = Promise(WITHIN_EPSILON, ASSUMPTIONS)
    costs = (
        "A few hundred episodes on locks and random worlds; it needs neither n_states nor deterministic transitions."
    )
    Tuning = Tuning
    traits = Traits(
        level_work=2_000,
        keeps_bounds=True,
        purposes={"play": "the candidates' policies"},
        reads_recorded=True,
        reads_episodes=True,
        knows_threshold=True,
        looks_at_episodes=True,
        takes_tolerance=True,
        hands_over_to="olive",
    )

    def fallback_settings(self, problem: Problem, settings: Settings) -> Settings | None:
        """Returns what OLIVE is asked for where it takes over from the search; None where it cannot: it knows no tolerance.

        The Bellman rank is at most the number of pairs of neighbouring members (of functions, where they are listed), so no
        bound on the hidden states is needed; a smaller one only ends the run sooner.
        """
        delta = SHARES["reserve"] * settings.delta
        if settings.tolerance or min(settings.epsilon, delta) < SMALLEST or not has_unit_rewards(problem):
            return None
        functions, H = problem.functions, problem.horizon
        sizes = [functions.level_size(h) for h in range(H)] + [1]
        rank = max(sizes[h] * sizes[h + 1] if functions.is_product else sizes[h] for h in range(H))
        known = problem.n_states if settings.n_states is None else settings.n_states
        n_states = rank if known is None else min(rank, known)
        return dataclasses.replace(
            settings, learner=self.traits.hands_over_to, n_states=n_states, delta=delta, tuning=()
        )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, a tolerance that does not fit, and an epsilon that rounding could hide."""
        super().check(problem, settings, engine)
        check_tolerance(problem, settings, "the distance of the nearest function from Q*")
        self._check_epsilon(problem, settings)

    @staticmethod
    def _check_epsilon(problem: Problem, settings: Settings) -> None:
        """Raises InvalidInput if rounding may hide as much as epsilon."""
        hidden = Ranges.of(problem.env, problem.functions).hidden
        if settings.epsilon < 2 * hidden:
            raise InvalidInput(
                f"epsilon must be at least {2 * hidden:.3g} here: rounding of rewards and values in single precision, and "
                f"actions so near that they count as equal, may hide a loss of {hidden:.3g} over {problem.horizon} levels. "
                f"{settings.epsilon:g} arrived."
            )

    def plan(self, problem: Problem, settings: Settings) -> BettingPlan:
        """Returns what similar worlds needed, the least by agreement, and what surely suffices.

        A search that has spent what OLIVE would cost hands over to it, at most one batch later (docs/betting.md, Theorem 5).
        """
        self._check_epsilon(problem, settings)
        asked, suffices = self.fallback_settings(problem, settings), None
        if asked is not None and (olives := learner(asked.learner).plan(problem, asked).max_episodes) is not None:
            suffices = 2 * olives + self.tuning(settings).most(olives)
        similar = similar_worlds(__package__, problem, settings.epsilon)
        lost = _ranges(problem, settings).lost
        return BettingPlan(suffices, least_by_agreement(problem, settings, lost), similar, lost)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a candidate is certified or the episodes are spent; OLIVE takes over once that surely pays."""
        asked = partial(self.fallback_settings, problem, settings)
        return betting(
            engine,
            problem.functions,
            epsilon=settings.epsilon,
            delta=settings.delta,
            seed=settings.seed,
            notify=notify,
            tuning=self.tuning(settings),
            threshold=settings.threshold,
            recorded=problem.recorded,
            ranges=_ranges(problem, settings),
            with_tolerance=partial(Ranges.of, problem.env, problem.functions),
            fallback=Fallback.to("OLIVE", problem, engine, asked, notify, settings.epsilon),
            device=settings.device,
        )

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, takes the bounds from the claims, and computes the wealth of an agreement again."""
        claims, result, constants = content["claims"], content["result"], content["constants"]
        upper, lower, by = result["upper"], result["lower"], constants.get("closed_by")
        best = {row[4] for row in claims if row[0] == LOWER} | {float(problem.env.reward_range[0])}
        tops = [row[4] for row in claims if row[0] == UPPER]
        known = isinstance(upper, float) and isinstance(lower, float)
        shown = not tops or upper == float(problem.env.reward_range[1])  # which always holds
        stated = known and lower in best and (shown or upper <= min(tops)) and upper >= lower
        if by == "doubted":
            stated = (
                known and lower in best and upper >= lower and result["epsilon"] >= min(upper - lower, settings.epsilon)
            )
        if by == "interval":
            stated = stated and upper - lower <= settings.epsilon
        if by in ("worth it", "not worth it"):
            aim = settings.threshold
            stated = stated and aim is not None and (lower >= aim if by == "worth it" else upper < aim)
        stated = stated and by in REASONS and result["reason"] == REASONS[by].value
        findings = [
            *_rule(constants.get("rule")),
            *super().recheck(content, problem, settings),
            Finding("bounds", stated, f"V* <= {upper}, the policy's value >= {lower}"),
        ]
        if by == "agreement":
            findings.append(_agreement(constants["agreement"], claims, problem, settings))
        if by == "promise":
            findings.append(_promise(constants["agreement"], claims, problem, settings))
        return findings


def _rule(made_by: object) -> list[Finding]:
    """Returns that a certificate was made by other rules than these, where it was: the same seed then decides otherwise."""
    if made_by == RULE:
        return []
    which = "an earlier rule" if made_by is None or (isinstance(made_by, int) and made_by < RULE) else "another rule"
    words = f"made by {which} of the betting search than rule {RULE}: only the richobs that made it can run it again"
    return [Finding("rule", False, words)]


def _ranges(problem: Problem, settings: Settings) -> Ranges:
    """Returns the ranges of rewards and values, with the tolerance that is asked for."""
    return Ranges.of(problem.env, problem.functions, settings.tolerance)


def _agreement(record: Any, claims: Any, problem: Problem, settings: Settings) -> Finding:
    """Computes the wealth that agreement rests on again, from what the worst survivor takes away."""
    bet = agreement_bets(settings.epsilon, _ranges(problem, settings), problem.horizon)
    if bet is None:
        return Finding("agreement", False, "the tolerance leaves nothing of epsilon that survivors could agree on")
    again = bet.log_wealth(int(record["n"]), np.array(record["taken"], dtype=np.float64))
    claimed = [row for row in claims if row[0] == AGREED]
    enough = len(claimed) == 1 and again >= math.log(1 / claimed[0][3])
    same = enough and record["bets"] == bet.bets.tolist() and record["weights"] == bet.weights.tolist()
    return Finding("agreement", same, f"{record['n']} episodes make a wealth of exp({again:.4g})")


def _promise(record: Any, claims: Any, problem: Problem, settings: Settings) -> Finding:
    """Adds up the wealth that a claim by promises rests on again, from that of each bet."""
    bet = promise_bets(settings.epsilon, _ranges(problem, settings), problem.functions)
    claimed = [row for row in claims if row[0] == AGREED]
    root = record["root"]
    if bet is None or len(claimed) != 1 or not 0 <= root < len(bet.bets):
        return Finding("promise", False, "promises are tested where a tolerance keeps survivors from agreement")
    again = float(np.logaddexp.reduce(np.array(record["logs"]) + np.log(bet.weights)))
    same = record["bets"] == bet.bets[root].tolist() and record["weights"] == bet.weights.tolist()
    lack = problem.functions.value_bounds(0)[0][root] - problem.env.reward_range[1]  # if all were earned
    most = record["n"] * np.log1p(bet.bets[root] * (bet.epsilon - lack))
    possible = bool((np.array(record["logs"]) <= most + 1e-9).all())
    enough = again >= math.log(1 / claimed[0][3])
    return Finding("promise", same and possible and enough, f"{record['n']} episodes make a wealth of exp({again:.4g})")
