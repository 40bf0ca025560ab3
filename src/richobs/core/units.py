"""Units: a problem whose rewards have any declared range, as one with nonnegative rewards and totals in [0, 1].

Some learners need the latter. Rewards become r' = (r - shift) / scale, so values of level h become
f' = (f - (H - h) shift) / scale. The shift is 0 where no reward is negative. Otherwise it is the smallest reward of one
level, and every episode must have all H levels: one that ends early would not pay the shift of the levels that it lacks.

Q* of the rescaled problem lies in [0, 1] at every level, so values of the class outside are cut to [0, 1]; Q* never is.
Greedy actions are the same in both units. Shapes: H levels, N members of a level, n observations, K actions.
"""

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from richobs.core.environment import Environment, Episodes, checked_episodes, step_range
from richobs.core.errors import InvalidInput, Rejected, RewardRangeError
from richobs.core.events import Event, Said, event
from richobs.core.functions import FunctionClass, FunctionsAround, ValueFunction
from richobs.core.moments import Batch, Moments
from richobs.core.policies import TIE, Policy, greedy_actions
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.types import Floats, Ints, Member, Observations

MOST_VALUES = 8_000_000  # values of functions that moments hold in memory at once
FARTHEST = 16.0  # how far from 0, in scales, values may lie: farther away rounding could decide which functions survive
LABEL = "in units where totals lie in [0, 1]"  # stands beside every number that is not in the problem's own units


@dataclass(frozen=True)
class Units:
    """How numbers of a problem become numbers of the same problem with rewards in [0, 1]."""

    horizon: int
    shift: float  # subtracted from every reward
    scale: float  # then divided by this

    @property
    def is_plain(self) -> bool:
        """Whether rewards stay as they are."""
        return self.shift == 0.0 and self.scale == 1.0

    @property
    def words(self) -> str:
        """The rescaling as a formula."""
        start = "r" if self.shift == 0.0 else f"(r {'+' if self.shift < 0 else '-'} {abs(self.shift)!r})"
        return f"r' = {start} / {self.scale!r}"

    def reward(self, r: Any) -> Any:
        """Returns rewards, numbers or arrays, in unit scale."""
        return (r - self.shift) / self.scale

    def value(self, v: Any, level: int = 0) -> Any:
        """Returns values of a level, numbers or arrays, in unit scale; nothing is cut."""
        return (v - (self.horizon - level) * self.shift) / self.scale

    def own(self, value: float) -> float:
        """Returns a value of the root in the problem's own units, rounded to the nearest float."""
        return float(self._exact(value))

    def own_above(self, value: float) -> float:
        """Returns a value of the root in the problem's own units, rounded up: for upper bounds."""
        return _rounded(self._exact(value), math.inf)

    def own_below(self, value: float) -> float:
        """Returns a value of the root in the problem's own units, rounded down: for lower bounds."""
        return _rounded(self._exact(value), -math.inf)

    def own_width(self, width: float) -> float:
        """Returns a difference of two values in the problem's own units, rounded up."""
        return _rounded(Fraction(width) * Fraction(self.scale), math.inf)

    def width(self, width: float) -> float:
        """Returns a difference of two values in unit scale, a little smaller than it is.

        Bounds whose distance is at most this in unit scale are at most `width` apart once they are rounded outwards in the
        problem's own units.
        """
        size = max(abs(self.horizon * self.shift), abs(self.horizon * self.shift + self.scale))
        return (width - 4 * float(np.spacing(size))) / self.scale

    def _exact(self, value: float) -> Fraction:
        return Fraction(value) * Fraction(self.scale) + self.horizon * Fraction(self.shift)

    def episodes(self, played: Episodes) -> Episodes:
        """Returns episodes with their rewards in unit scale.

        Raises:
            Rejected: an episode ended early, and rewards are shifted.
        """
        if self.shift != 0.0 and any(over.any() for over in played.ended):
            raise Rejected(
                f"the environment ended an episode early, and its rewards can be as small as {self.shift:g}. This learner "
                "needs nonnegative rewards, so that amount is subtracted from the reward of every level, which is wrong for "
                "levels that an episode lacks. Use learner='betting', which takes rewards as they are; or let the "
                "environment go on, without rewards, at an observation of its own for the end."
            )
        return dataclasses.replace(played, rewards=tuple(self.reward(np.asarray(r)) for r in played.rewards))

    def process(self, process: TabularProcess) -> TabularProcess:
        """Returns a process with its rewards in unit scale.

        Raises:
            RewardRangeError: it can pay more or less than the environment declares.
        """
        rewards = tuple(Rewards(self.reward(r.values), r.probs) for r in process.rewards)
        return dataclasses.replace(process, rewards=rewards, check_rewards=True)

    def problem(self, problem: Problem) -> Problem:
        """Returns the problem in unit scale.

        Raises:
            RewardRangeError: its process can pay more or less than its environment declares.
            Rejected: a recorded episode ended early, and rewards are shifted.
        """
        truth = problem.truth
        if truth is not None:
            truth = Truth(self.value(truth.optimal_value), truth.optimal_function, truth.world)
        return dataclasses.replace(
            problem,
            env=UnitEnvironment(problem.env, self),
            functions=UnitFunctions(problem.functions, self),
            process=None if problem.process is None else self.process(problem.process),
            truth=truth,
            recorded=None if problem.recorded is None else self.episodes(problem.recorded),
        )


def _rounded(exact: Fraction, towards: float) -> float:
    """Returns the float next to an exact number, on the side of `towards`."""
    near = float(exact)
    wrong = near < exact if towards > 0 else near > exact
    return math.nextafter(near, towards) if wrong else near


def units_of(env: Environment) -> Units:
    """Returns the units in which an environment's rewards are nonnegative and its totals lie in [0, 1].

    No shift is needed where rewards are not negative. Otherwise the smallest reward r_lo of a level is subtracted, and
    totals lie between H r_lo and the smaller one of the largest total and H times the largest reward.

    Raises:
        InvalidInput: there are none; the message says why, as a sentence that can follow a colon.
    """
    low, high = (float(v) for v in env.reward_range)
    least, most = step_range(env)
    declared = (
        f"this environment declares totals in [{low:g}, {high:g}] and rewards of one level in [{least:g}, {most:g}]"
    )
    if not all(math.isfinite(v) for v in (low, high, least, most)):
        raise InvalidInput(f"{declared}. Declare finite ranges.")
    H, shift = int(env.horizon), min(least, 0.0)
    scale = (high if shift == 0.0 else min(high, H * most)) - H * shift
    if not scale > 0:
        raise InvalidInput(f"{declared}, so every episode earns the same. Declare the ranges that rewards really have.")
    if abs(H * shift) > FARTHEST * scale:
        raise InvalidInput(
            f"{declared}. Values differ by {scale:g} at most and may be as small as {H * shift:g}, so that rounding could "
            "decide which functions survive. Subtract a constant from the rewards."
        )
    return Units(H, shift, scale)


def has_unit_rewards(problem: Problem) -> bool:
    """Whether a problem's rewards are nonnegative with totals in [0, 1], and the values of its class lie in [0, 1]."""
    low, high = (float(v) for v in problem.env.reward_range)
    if (low, high) != (0.0, 1.0) or step_range(problem.env)[0] < 0:
        return False
    ranges = [problem.functions.value_range(h) for h in range(problem.functions.horizon)]
    return all(least >= 0 and most <= 1 for least, most in ranges)


def units_missing(problem: Problem) -> str | None:
    """Returns in a sentence why a problem cannot be rescaled to rewards in [0, 1]; None where it can or need not be."""
    if has_unit_rewards(problem):
        return None
    try:
        units = units_of(problem.env)
        if problem.process is not None:
            units.process(problem.process)
    except RewardRangeError as error:
        low, high = problem.env.reward_range
        return (
            f"its process pays rewards that the environment does not declare (totals in [{low:g}, {high:g}]). With "
            f"{units.words}: {error}"
        )
    except InvalidInput as error:
        return str(error)
    return None


class UnitEnvironment:
    """An environment with its rewards in unit scale."""

    reward_range = (0.0, 1.0)

    def __init__(self, env: Environment, units: Units):
        """Takes the environment, whose answers are checked against what it declares, and the units."""
        self.env, self.units = env, units
        self.horizon, self.n_actions = env.horizon, env.n_actions

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes.

        Raises:
            Rejected: an episode ended early, and rewards are shifted; or the environment answered something else than it
                was asked.
        """
        depth = self.horizon if levels is None else levels
        played = checked_episodes(self.env.play(policy, n, rng, depth), self.env, policy, n, depth)
        return self.units.episodes(played)


def unit_values(own: Floats, units: Units, level: int) -> Floats:
    """Returns values `[..., n, K]` of a level in unit scale, cut to [0, 1], with the same greedy actions as before.

    Cutting and rounding keep the order of two values or make them equal, and ties are judged by an absolute tolerance. So
    the greedy action of the rescaled values may be another one among actions that are nearly equal there. The others are
    then lowered by a few TIE, which is rounding for everything but the choice between them.
    """
    unit = np.clip(units.value(np.asarray(own, dtype=np.float64), level), 0.0, 1.0)
    best = greedy_actions(own)
    wrong = greedy_actions(unit) != best
    if wrong.any():
        rows, action = unit[wrong], best[wrong][:, None]
        top = np.take_along_axis(rows, action, axis=1)
        away = np.arange(rows.shape[1]) - action
        unit[wrong] = np.where(away == 0, rows, np.minimum(rows, top + TIE * (away - 0.5)))
    return unit


class UnitFunction:
    """One function in unit scale."""

    def __init__(self, own: ValueFunction, units: Units):
        self.own, self.units = own, units

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f'(x, a)."""
        return unit_values(self.own.values(level, x), self.units, level)


class UnitFunctions(FunctionsAround):
    """A class of functions in unit scale; member i is member i of the class in its own units."""

    def __init__(self, own: FunctionClass, units: Units):
        """Takes the class, and the units of the problem."""
        super().__init__(own)
        self.units = units

    @property
    def digest(self) -> str | None:
        """The digest of the class in its own units, with shift and scale; None where it is made of Python code."""
        known = self.own.digest
        return None if known is None else f"{known} shift={self.units.shift!r} scale={self.units.scale!r}"

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members at `level`, or of those listed in `members`."""
        return unit_values(self.own.values(level, x, members), self.units, level)

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch with rewards in unit scale, of all members at `level` or of those listed."""
        chosen = np.arange(self.level_size(level)) if members is None else members
        step = max(1, MOST_VALUES // max(1, len(batch.x) * self.n_actions))
        parts = [chosen[i : i + step] for i in range(0, max(1, len(chosen)), step)]
        return Moments.concatenate([Moments.of(self.values(level, batch.x, part), batch) for part in parts])

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` a lower and `[N]` an upper bound on max_a f'(x, a) over all x, for the members of `level`."""
        low, high = (np.clip(self.units.value(bound, level), 0.0, 1.0) for bound in self.own.value_bounds(level))
        return low, high

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the range of f'(x, a) for all members of `level`: what the class declares, cut to [0, 1]."""
        low, high = (min(max(float(self.units.value(v, level)), 0.0), 1.0) for v in self.own.value_range(level))
        return low, high

    def member(self, member: Member, /) -> UnitFunction:
        """Returns one function of the class."""
        return UnitFunction(self.own.member(member), self.units)


@event("run", "units", "in which units are the numbers of the tests?")
class UnitsChosen(Event):
    """Rewards are rescaled for a learner that needs totals in [0, 1]; the numbers of its tests are in that scale."""

    shift: float
    scale: float

    def said(self) -> Said:
        """Returns the scale; whoever reads numbers of tests has to know it."""
        seen = f"this learner sees rewards {Units(1, self.shift, self.scale).words}"
        sentence = f"{seen}; numbers of its tests are {LABEL}, all bounds in those of the rewards"
        return Said("rescaled", sentence, is_trouble=True)
