"""The errors that richobs raises. Every message says what is needed, what arrived, and where to look."""

from typing import Any


class RichObsError(Exception):
    """Anything richobs raises on purpose."""


class InvalidInput(RichObsError, ValueError):
    """An argument or a configuration that cannot be used."""


class UnknownWorld(InvalidInput):
    """A world id that the registry does not hold."""


class InvalidPath(InvalidInput):
    """An action sequence that does not fit the environment: too long, or with an action it does not have."""


class InvalidProcess(InvalidInput):
    """A tabular process that is not a contextual decision process; the subclasses say why."""


class ShapeError(InvalidProcess):
    """Arrays whose shapes do not fit each other."""


class NotFiniteError(InvalidProcess):
    """A NaN or an infinity where a number is needed."""


class ProbabilityError(InvalidProcess):
    """Probabilities that are negative or do not sum to one."""


class UnreachableLevelError(InvalidProcess):
    """A level that no action sequence reaches."""


class RewardRangeError(InvalidProcess):
    """A reward outside [0, 1], or an action sequence whose rewards can sum to more than 1."""


class AssumptionViolated(RichObsError):
    """What was asked for exists only where one of the paper's assumptions holds, and it does not hold here."""


class RunStopped(RichObsError):
    """A run that cannot go on; `ledger` and `trace` hold what it did until then."""

    ledger: Any = None
    trace: tuple[Any, ...] = ()


class PrecisionError(RunStopped):
    """A threshold too small for float64 to decide reliably."""


class BrokenPromise(RunStopped):
    """The data contradict an assumption (or the run hit the small probability with which it may fail)."""


class Rejected(RunStopped):
    """An environment's answer that is not what was asked for: other rows, shapes, types or actions."""


class RewardOutOfRange(Rejected):
    """An environment paid what it declared it would not."""


class EpisodeLimit(RunStopped):
    """The next request would exceed the episodes that were allowed."""


class WorkerFailed(RunStopped):
    """A worker that was lost, or that cannot read its task; a stored run goes on from what it has."""


class CallTooLong(RunStopped):
    """A call of an environment that took longer than was allowed; a stored run goes on from what it has."""

    @classmethod
    def after(cls, seconds: float | None) -> "CallTooLong":
        """Returns the error for a limit of so many seconds."""
        return cls(
            f"one call of the environment took longer than {seconds:g} seconds, which is what `timeout` allows, so it was "
            "ended. Nothing of it counts. If the run has a folder, the same call, or `richobs resume`, goes on from what "
            "was recorded; a longer timeout, or smaller calls (`at_once` of the environment), allow for slow episodes."
        )


class Overspent(RichObsError):
    """A share of delta that was spent twice, or split into more than it holds: a fault of a learner."""


class InvalidFile(RichObsError):
    """A file that is damaged, or not what it should be."""


class StoreError(RichObsError):
    """A run's folder that cannot be written or is in use; what was stored stays readable."""
