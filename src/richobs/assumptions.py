"""Which of the paper's assumptions hold: exactly where the process is written down, by testing where it is a black box.

`check_assumptions` reads a `TabularProcess` and finds counterexamples. `audit` plays an `Environment` it knows nothing
about and says what the plays contradict, with a stated rate of false alarms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.errors import InvalidInput
from richobs.problem import Environment, Floats, FunctionClass, Observations, Path
from richobs.randomness import keyed_generator
from richobs.tabular import EQUALITY_TOLERANCE, PROBABILITY_TOLERANCE, TabularProcess


@dataclass(frozen=True)
class Check:
    """One assumption and what was found."""

    name: str
    holds: bool | None  # None: could not be judged
    finding: str  # the counterexample, or why it holds or could not be judged

    def __str__(self) -> str:
        verdict = {True: "holds", False: "FAILS", None: "not judged"}[self.holds]
        return f"{self.name}: {verdict}. {self.finding}"


@dataclass(frozen=True)
class Report:
    """What was found for each assumption."""

    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found to fail."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The names of what fails."""
        return tuple(c.name for c in self.checks if c.holds is False)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"{name!r} is not one of {', '.join(repr(c.name) for c in self.checks)}.")

    def __str__(self) -> str:
        return "\n".join(map(str, self.checks))


def check_assumptions(process: TabularProcess, functions: FunctionClass | None = None) -> Report:
    """Judges every assumption of [KAL16] exactly, with a counterexample for each that fails.

    What no action sequence reaches is left aside. The checks, by name: "layered" (Section 2.1), "reactive" (Assumption
    1), "realizable" (Assumption 2), "deterministic" (Assumption 3), "reward range" (Section 2.1).

    Args:
        process: the process, latent part and all.
        functions: the class for Assumption 2; without it that one is not judged.
    """
    conflict = process.reactivity_conflict()
    fault = process.reward_fault()
    reactive = Check(
        "reactive", conflict is None, conflict or "States that show the same observation have the same Q* there."
    )
    return Report(
        (
            _layered(process),
            reactive,
            _realizable(process, functions, reactive),
            _deterministic(process),
            Check("reward range", fault is None, fault or "Every reward and every total lies in [0, 1]."),
        )
    )


def _layered(process: TabularProcess) -> Check:
    first: dict[str, int] = {}
    for h, (names, reached) in enumerate(zip(process.labels, process.reachable, strict=True)):
        for name, here in zip(names, reached, strict=True):
            if here and first.setdefault(name, h) != h:
                return Check(
                    "layered",
                    False,
                    f"state {name!r} is reached at level {first[name]} and at level {h}. Functions and policies see the "
                    "level here, so treating it as a new state at each level restores the assumption.",
                )
    return Check("layered", True, "No state stands at two levels.")


def _deterministic(process: TabularProcess) -> Check:
    name = "deterministic"
    if process.start.max() < 1 - PROBABILITY_TOLERANCE:
        one, other = np.argsort(-process.start, kind="stable")[:2]
        return Check(
            name,
            False,
            f"an episode starts in state {one} with probability {process.start[one]:.6g} and in state {other} with "
            f"probability {process.start[other]:.6g}.",
        )
    for h, (t, reached) in enumerate(zip(process.transitions, process.reachable, strict=False)):
        loose = (t.max(axis=2) < 1 - PROBABILITY_TOLERANCE) & reached[:, None]
        if loose.any():
            s, a = np.argwhere(loose)[0]
            one, other = np.argsort(-t[s, a], kind="stable")[:2]
            return Check(
                name,
                False,
                f"action {a} in state {s} at level {h} leads to state {one} with probability {t[s, a, one]:.6g} and to "
                f"state {other} with probability {t[s, a, other]:.6g}.",
            )
    return Check(name, True, "Start and transitions are point masses.")


def _realizable(process: TabularProcess, functions: FunctionClass | None, reactive: Check) -> Check:
    name = "realizable"
    if functions is None:
        return Check(name, None, "No function class was given.")
    if not reactive.holds:
        return Check(name, None, "Q* is not a function of the observation (see reactive), so no class can hold it.")
    if (functions.horizon, functions.n_actions) != (process.horizon, process.n_actions):
        raise InvalidInput(
            f"the class has {functions.horizon} levels and {functions.n_actions} actions; the process has "
            f"{process.horizon} and {process.n_actions}."
        )
    errors = [_distances(process, functions, h) for h in range(process.horizon)]  # per level [N]
    if functions.is_product:
        best = [int(e.argmin()) for e in errors]
    else:
        best = [int(np.max(errors, axis=0).argmin())] * process.horizon
    misses = [e[b] for e, b in zip(errors, best, strict=True)]
    h = int(np.argmax(misses))
    if misses[h] <= EQUALITY_TOLERANCE:
        return Check(name, True, "Q* is in the class.")
    x, a, value, truth = _worst_place(process, functions, h, best[h])
    return Check(
        name,
        False,
        f"no function equals Q*. The nearest at level {h}, number {best[h]}, has {value:.6g} at observation {x}, action "
        f"{a}, where Q* is {truth:.6g}.",
    )


def _distances(process: TabularProcess, functions: FunctionClass, level: int) -> Floats:
    """Returns `[N]` how far each member of `level` is from Q* at its worst, over what can be seen."""
    visible = np.flatnonzero(process.seen[level].any(axis=0))
    x, truth = process.observations[level][visible], process.q_tables[level][visible]
    size = functions.level_size(level)
    at_once = max(1, 4_000_000 // truth.size)
    parts = [
        np.nan_to_num(np.abs(functions.values(level, x, np.arange(i, min(i + at_once, size))) - truth), nan=np.inf).max(
            axis=(1, 2)
        )
        for i in range(0, size, at_once)
    ]
    return np.concatenate(parts)


def _worst_place(
    process: TabularProcess, functions: FunctionClass, level: int, member: int
) -> tuple[int, int, float, float]:
    """Returns observation, action, value and Q* where one member misses Q* most."""
    visible = np.flatnonzero(process.seen[level].any(axis=0))
    values = functions.values(level, process.observations[level][visible], np.array([member]))[0]
    truth = process.q_tables[level][visible]
    i, a = np.unravel_index(int(np.abs(values - truth).argmax()), truth.shape)
    return int(visible[i]), int(a), float(values[i, a]), float(truth[i, a])


Singles = NDArray[np.float32]  # precise enough for a test, and half the work
MAX_FEATURES = 32  # features per level; wider observations are hashed into as many signed sums
MAX_OBSERVATIONS = 10_000_000  # that one audit keeps
MAX_LAG = 2  # how many levels apart two observations may be and still be compared


def audit(
    env: Environment,
    *,
    sequences: int = 32,
    episodes: int = 256,
    error_rate: float = 0.01,
    seed: int = 0,
) -> Report:
    """Tests from outside whether an environment is consistent with deterministic transitions and fresh noise.

    Random action sequences are replayed many times. If transitions are deterministic and noise is drawn anew at each
    level ([KAL16] Assumption 3), then along one action sequence what is seen at different levels is independent, and the
    law at each level is the same in every replay. Where that is so, the probability that anything is reported to fail is
    at most `error_rate`: three permutation tests share it, each exact at any sample size.

    What it cannot see: dependence that only shows more than two levels apart, on sequences that were not played, or in
    ways that no correlation of features shows; a random state that shows at one level only, because the next levels or
    the end forget it (such a mixture is as good as one state); and anything about Q*.

    Args:
        env: what to play, or a problem that has it; `2 * sequences * episodes` episodes are spent.
        sequences: how many action sequences are replayed.
        episodes: how often each is played, in two passes, and drawn from besides.
        error_rate: of the whole report.
        seed: of action sequences, plays and permutations.
    """
    env = getattr(env, "env", env)
    if not 0.001 <= error_rate < 1:
        raise InvalidInput(
            f"error_rate must lie between 0.001 and 1, for it takes 3/error_rate permutations to see less; got {error_rate}."
        )
    if sequences * episodes * env.horizon > MAX_OBSERVATIONS:
        raise InvalidInput(
            f"{sequences} sequences of {episodes} episodes with {env.horizon} levels are more than the {MAX_OBSERVATIONS:,} "
            "observations that an audit can compare."
        )
    if sequences < 1 or episodes < 8 or episodes % 2:
        raise InvalidInput(
            f"audit needs at least 1 sequence, and 8 or more episodes of each, an even number; got {sequences} and "
            f"{episodes}."
        )
    rng = keyed_generator(seed, "audit")
    H, half = env.horizon, episodes // 2
    paths = [tuple(int(a) for a in rng.integers(env.n_actions, size=H)) for _ in range(sequences)]
    shown: list[list[list[Observations]]] = [[[] for _ in range(H)] for _ in paths]  # per sequence, level and pass
    rewards = np.zeros((sequences, H, episodes))
    range_fault: str | None = None
    for rows in (slice(0, half), slice(half, episodes)):
        for i, path in enumerate(paths):
            plays = env.play(path, half, rng)
            range_fault = range_fault or _range_fault(plays.rewards, env.reward_range, path)
            for h, x in enumerate(plays.observations):
                shown[i][h].append(_checked(x, path[:h]))
            rewards[i, :, rows] = np.nan_to_num(plays.rewards.T)
    levels = rng.integers(H, size=sequences)
    fresh = [_checked(env.draw(p[:h], episodes, rng), p[:h]) for p, h in zip(paths, levels, strict=True)]
    features = _Features([x for sequence in shown for level in sequence for x in level] + fresh, seed)
    seen = np.zeros((sequences, H, episodes, MAX_FEATURES + 1))  # features of the observation, then the reward
    seen[..., MAX_FEATURES] = rewards
    for i, h in np.ndindex(sequences, H):
        seen[i, h, :, :MAX_FEATURES] = np.concatenate([features(x) for x in shown[i][h]])
    drawn = np.stack([features(x) for x in fresh])
    played = seen[np.arange(sequences), levels, :, :MAX_FEATURES]
    share = error_rate / 3
    return Report(
        (
            _independent_levels(_standardised(seen), paths, share, rng),
            _same_law(
                "same in every replay",
                _standardised(seen),
                share,
                rng,
                lambda i, h: f"on the action sequence {paths[i]}, level {h}, the first pass differs from the second",
            ),
            _same_law(
                "draw agrees with play",
                _standardised(np.concatenate([played, drawn], axis=1)[:, None]),
                share,
                rng,
                lambda i, _: f"`draw` at {paths[i][: levels[i]]} differs from what `play` passes through there",
            ),
            Check(
                "reward range",
                range_fault is None,
                range_fault or f"The totals of {sequences * episodes:,} episodes lie in {list(env.reward_range)}.",
            ),
        )
    )


def _independent_levels(z: Singles, paths: Sequence[Path], share: float, rng: np.random.Generator) -> Check:
    """Tests whether levels at most `MAX_LAG` apart are uncorrelated; `z` is `[S, H, n, F]`.

    Under independence the data are as likely after reordering the episodes of every level on its own.
    """
    name = "independent levels"
    n_paths, H, n, _ = z.shape
    if H == 1:
        return Check(name, True, "There is only one level.")
    value, (i, h, lag) = _largest_correlation(z)

    def permuted() -> float:
        order = rng.permuted(np.broadcast_to(np.arange(n), (n_paths, H, n)), axis=2)
        return _largest_correlation(np.take_along_axis(z, order[..., None], axis=2))[0]

    return _verdict(
        name,
        _p_value(value, permuted, share),
        share,
        f"on the action sequence {paths[i]}, level {h} and level {h + lag} are correlated (strength {value:.2g}): the "
        "state there is random, or noise persists within an episode",
    )


def _largest_correlation(z: Singles) -> tuple[float, tuple[int, int, int]]:
    """Returns the largest |correlation| in `z` `[S, H, n, F]` and its (sequence, level, lag)."""
    best, place = -1.0, (0, 0, 1)
    for lag in range(1, min(MAX_LAG, z.shape[1] - 1) + 1):
        products = np.abs(z[:, :-lag].swapaxes(2, 3) @ z[:, lag:]).max(axis=(2, 3))  # [S, H - lag]
        i, h = np.unravel_index(int(products.argmax()), products.shape)
        if products[i, h] > best:
            best, place = float(products[i, h]), (int(i), int(h), lag)
    return best, place


def _same_law(name: str, z: Singles, share: float, rng: np.random.Generator, where: Callable[[int, int], str]) -> Check:
    """Tests whether the first and the second half of the rows of `z` `[S, H, n, F]` have the same law.

    If they do, the data are as likely after reordering whole episodes.
    """
    n_paths, _, n, _ = z.shape
    signs = np.broadcast_to(np.repeat([1.0, -1.0], n // 2), (n_paths, n)).astype(z.dtype)

    def differences(signs: Singles) -> Singles:
        return np.abs(np.einsum("sn,shnf->shf", signs, z, optimize=True)).max(axis=2)  # [S, H]

    observed = differences(signs)
    p_value = _p_value(float(observed.max()), lambda: float(differences(rng.permuted(signs, axis=1)).max()), share)
    i, h = np.unravel_index(int(observed.argmax()), observed.shape)
    return _verdict(name, p_value, share, where(int(i), int(h)))


NEARLY = 1e-5  # relative difference that single precision may put between equal sums
ENOUGH_LARGER = 10  # permutations that beat the data before a test stops early


def _p_value(observed: float, permuted: Callable[[], float], share: float) -> float:
    """Returns the Monte Carlo p-value of `observed`, valid also when it stops early (Besag and Clifford 1991)."""
    permutations = 1
    while 1 / (1 + permutations) > share:  # as many as it takes for a p-value of `share` to be possible
        permutations = max(permutations + 1, int(1 / share) - 1)
    # Discrete data tie often, and sums of ties differ by rounding: what is nearly equal counts as equal.
    bar = observed - NEARLY * max(1.0, abs(observed))
    larger = 0
    for count in range(1, permutations + 1):
        larger += permuted() >= bar
        if larger == ENOUGH_LARGER:
            return larger / count
    return (1 + larger) / (1 + permutations)


def _verdict(name: str, p_value: float, share: float, place: str) -> Check:
    if p_value <= share:
        return Check(name, False, f"{place}. So large a value has probability at most {p_value:.2g} by chance.")
    return Check(name, True, f"Nothing speaks against it (p-value {p_value:.2g}).")


def _standardised(features: Floats) -> Singles:
    """Returns `[S, H, n, F]` features centred and scaled over n so that products of two are about correlations.

    Features that are nearly constant are scaled less than fully, or one rare coincidence would drown everything else. The
    scaling looks at each feature on its own, so permutation tests stay exact.
    """
    centred = features - features.mean(axis=2, keepdims=True)
    peak = np.abs(centred).max(axis=2, keepdims=True)
    unit = centred / np.where(peak > 1e-12, peak, 1.0)
    n = features.shape[2]
    spread = np.maximum(unit.std(axis=2, keepdims=True), 2 / np.sqrt(n))
    return (unit / (spread * np.sqrt(n))).astype(np.float32)


class _Features:
    """Turns observations into numbers that tell them apart; the same for all that an audit sees."""

    def __init__(self, seen: list[Observations], seed: int):
        """Looks at everything that was observed: which values occur does not depend on the order of episodes."""
        rng = keyed_generator(seed, "audit", "features")
        self._vocabulary: dict[Any, int] | None = None
        if seen[0].dtype.kind in "biuf" and (seen[0].ndim > 1 or seen[0].dtype.kind == "f"):
            width = int(np.prod(seen[0].shape[1:]))
            if width <= MAX_FEATURES:
                self._map = np.eye(width, MAX_FEATURES)
                return
            self._map = np.zeros((width, MAX_FEATURES))  # two independent hashes, each into half of the features
            for half in (0, MAX_FEATURES // 2):
                bucket = half + rng.integers(MAX_FEATURES // 2, size=width)
                self._map[np.arange(width), bucket] = rng.choice([-1.0, 1.0], size=width)
            return
        values = sorted({v for x in seen for v in _names(x)})
        self._vocabulary = {v: i for i, v in enumerate(values)}
        if len(values) <= MAX_FEATURES:
            self._map = np.eye(len(values), MAX_FEATURES)
        else:
            self._map = rng.choice([-1.0, 1.0], size=(len(values), MAX_FEATURES))

    def __call__(self, x: Observations) -> Floats:
        """Returns `[n, MAX_FEATURES]`."""
        if self._vocabulary is None:
            return x.reshape(len(x), -1).astype(np.float64) @ self._map
        return self._map[[self._vocabulary[v] for v in _names(x)]]


def _names(x: Observations) -> list[Any]:
    """Returns one hashable value per observation, the same whatever batch it came in."""
    if x.dtype.kind in "biu" and x.ndim == 1:
        return list(x.tolist())
    return [repr(v) for v in x.tolist()]


def _checked(x: Observations, path: Path) -> Observations:
    """Returns observations made after `path`, once they are known to be numbers where they should be."""
    x = np.asarray(x)
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise InvalidInput(
            f"an observation after path {path} is not finite; an audit needs numbers, or text, to compare."
        )
    return x


def _range_fault(rewards: Floats, reward_range: tuple[float, float], path: Path) -> str | None:
    """Returns the first reward `[n, H]` or total outside the declared range in words, or None."""
    low, high = reward_range
    least, most = min(low, 0.0) - PROBABILITY_TOLERANCE, high + PROBABILITY_TOLERANCE
    wrong = np.argwhere(~((rewards >= least) & (rewards <= most)))  # NaN included
    if len(wrong):
        episode, level = wrong[0]
        return (
            f"on the action sequence {path}, episode {episode}, level {level} paid {rewards[episode, level]:.6g}; the "
            f"declared range is {list(reward_range)}."
        )
    totals = rewards.sum(axis=1)
    beyond = np.flatnonzero((totals < low - PROBABILITY_TOLERANCE) | (totals > most))
    if len(beyond):
        return (
            f"on the action sequence {path}, episode {beyond[0]} paid {totals[beyond[0]]:.6g} in total; the declared "
            f"range is {list(reward_range)}."
        )
    return None
