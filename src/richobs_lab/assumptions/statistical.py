"""Tests from outside whether an environment contradicts the paper's assumptions, with a stated rate of false alarms.

Only `play` is needed: random action sequences are played many times and what they show is compared. Where the process is
written down, `richobs_lab.assumptions.check` judges exactly. Shapes: S action sequences, H levels, n episodes of each, F
features of what one level shows and pays.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from richobs.core.arguments import real_number, whole_number
from richobs.core.environment import Environment, Episodes, checked_episodes, declared_by
from richobs.core.errors import InvalidInput, RewardOutOfRange
from richobs.core.policies import OpenLoop
from richobs.core.problem import Problem, checked_environment
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Observations, Path
from richobs.worlds.simulator import WorldEnvironment
from richobs_lab.assumptions.exact import AssumptionCheck, AssumptionReport

Singles = NDArray[np.float32]  # precise enough for a test, and half the work
MAX_FEATURES = 32  # features of an observation; wider observations are hashed into as many signed sums
MAX_OBSERVATIONS = 10_000_000  # that one audit keeps
MAX_LAG = 2  # how many levels apart two observations may be and still be compared
INDEPENDENT, SAME = "independent levels", "same in every replay"  # names of checks
MAX_REWARD = 1e9  # rewards beyond it are out of any range; tests see them cut, so that sums stay finite


def audit(
    given: Environment | Problem,
    *,
    sequences: int = 32,
    episodes: int = 256,
    error_rate: float = 0.01,
    seed: int = 0,
) -> AssumptionReport:
    """Tests from outside whether an environment is consistent with deterministic transitions and fresh noise.

    Random action sequences are played many times. If transitions are deterministic and noise is drawn anew at each
    level ([KAL16] Assumption 3), then along one action sequence what is seen at different levels is independent, and the
    law at each level is the same in every replay. Where that is so, the probability that anything is reported to fail is
    at most `error_rate`: two permutation tests share it equally, and each is exact at any sample size. The checks, by
    name: "independent levels", "same in every replay", "reward range".

    What it cannot see: dependence that only shows more than two levels apart, on sequences that were not played, or in
    ways that no correlation of features shows; a random state that shows at one level only, because the next levels or
    the end forget it (such a mixture is as good as one state); and anything about Q*. An environment that is declared
    deterministic answers known actions from memory, so that of its checks only the range of rewards is judged.

    Args:
        given: an environment, or a problem that has one; `sequences * episodes` episodes are spent.
        sequences: number of action sequences.
        episodes: how often each is played, in two passes; an even number.
        error_rate: largest probability that the report names a failure where there is none.
        seed: of action sequences, plays and permutations.

    Raises:
        Rejected: the environment answered something else than it was asked for. Rewards outside the declared range are
            reported instead.
    """
    env = checked_environment(given.env if isinstance(given, Problem) else given)
    sequences, episodes = whole_number("audit: sequences", sequences), whole_number("audit: episodes", episodes)
    error_rate = real_number("audit: error_rate", error_rate)
    if not 0.001 <= error_rate < 1:
        raise InvalidInput(
            f"error_rate must lie between 0.001 and 1: a test takes 2/error_rate permutations; got {error_rate}."
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
    rng = keyed_generator(whole_number("audit: seed", seed, least=None), "audit")
    paths = [tuple(int(a) for a in rng.integers(env.n_actions, size=env.horizon)) for _ in range(sequences)]
    plays: list[list[Episodes]] = [[] for _ in paths]  # per sequence what its calls returned, in order
    faults: list[str] = []
    for _ in range(2):  # all sequences once, then all again, so that a change in between shows
        for path, mine in zip(paths, plays, strict=True):
            mine += _play(env, path, episodes // 2, rng, faults)
    return AssumptionReport(
        (
            *_replays(env, plays, paths, error_rate / 2, seed, rng),
            AssumptionCheck(
                "reward range",
                not faults,
                faults[0]
                if faults
                else f"The totals of {sequences * episodes:,} episodes lie in {list(env.reward_range)}.",
            ),
        )
    )


def _replays(
    env: Environment,
    plays: Sequence[Sequence[Episodes]],
    paths: Sequence[Path],
    share: float,
    seed: int,
    rng: np.random.Generator,
) -> tuple[AssumptionCheck, AssumptionCheck]:
    """Returns what replays of the same actions show, each test with its share of the error rate."""
    if declared_by(env).deterministic:
        why = (
            "The environment was declared deterministic, so it answers replays from memory. Make it without this "
            "declaration to test it."
        )
        return AssumptionCheck(INDEPENDENT, None, why), AssumptionCheck(SAME, None, why)
    z = _standardised(_features(plays, seed))
    return _independent_levels(z, paths, share, rng), _same_in_every_replay(z, paths, share, rng)


def _play(env: Environment, path: Path, n: int, rng: np.random.Generator, faults: list[str]) -> list[Episodes]:
    """Returns n checked plays of `path`, call by call; faults of their rewards are added to `faults` in words."""
    policy = OpenLoop(path)
    part = n if isinstance(env, WorldEnvironment) else declared_by(env).at_once
    parts: list[Episodes] = []
    for first in range(0, n, part):
        size = min(part, n - first)
        played = env.play(policy, size, rng)
        try:
            checked = checked_episodes(played, env, policy, size, env.horizon)
        except RewardOutOfRange as error:  # rewards are checked last, so everything else is as it should be
            faults.append(str(error))
            checked = Episodes(
                tuple(np.asarray(x) for x in played.observations),
                tuple(np.asarray(a) for a in played.actions),
                tuple(np.asarray(r, dtype=np.float64) for r in played.rewards),
                tuple(np.asarray(ended, dtype=bool) for ended in played.ended),
            )
        parts.append(checked)
    return parts


def _independent_levels(z: Singles, paths: Sequence[Path], share: float, rng: np.random.Generator) -> AssumptionCheck:
    """Tests whether levels at most `MAX_LAG` apart are uncorrelated; `z` is `[S, H, n, F]`.

    Under independence the data are as likely after reordering the episodes of every level on its own.
    """
    name = INDEPENDENT
    n_paths, H, n, _ = z.shape
    if H == 1:
        return AssumptionCheck(name, True, "There is only one level.")
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


def _same_in_every_replay(z: Singles, paths: Sequence[Path], share: float, rng: np.random.Generator) -> AssumptionCheck:
    """Tests whether the first and the second half of the episodes of `z` `[S, H, n, F]` have the same law.

    If they do, the data are as likely after reordering whole episodes.
    """
    n_paths, _, n, _ = z.shape
    signs = np.broadcast_to(np.repeat([1.0, -1.0], n // 2), (n_paths, n)).astype(z.dtype)

    def differences(signs: Singles) -> Singles:
        return np.abs(np.einsum("sn,shnf->shf", signs, z, optimize=True)).max(axis=2)  # [S, H]

    observed = differences(signs)
    p_value = _p_value(float(observed.max()), lambda: float(differences(rng.permuted(signs, axis=1)).max()), share)
    i, h = np.unravel_index(int(observed.argmax()), observed.shape)
    place = f"on the action sequence {paths[int(i)]}, level {h}, the first pass differs from the second"
    return _verdict(SAME, p_value, share, place)


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


def _verdict(name: str, p_value: float, share: float, place: str) -> AssumptionCheck:
    if p_value <= share:
        return AssumptionCheck(
            name, False, f"{place}. So large a value has probability at most {p_value:.2g} by chance."
        )
    return AssumptionCheck(name, True, f"Nothing speaks against it (p-value {p_value:.2g}).")


def _features(plays: Sequence[Sequence[Episodes]], seed: int) -> Floats:
    """Returns `[S, H, n, F]` features of every observation, then the reward, and last whether the episode had ended.

    Args:
        plays: per sequence its episodes, in several parts.
        seed: of the hashes.
    """
    n, levels = sum(part.n for part in plays[0]), plays[0][0].levels
    result = np.zeros((len(plays), levels, n, MAX_FEATURES + 2))
    for h in range(levels):
        seen = [part.observations[h] for parts in plays for part in parts]
        features = _LevelFeatures(seen, keyed_generator(seed, "audit", "features", h))
        for i, parts in enumerate(plays):
            paid = np.concatenate([part.rewards[h] for part in parts])
            result[i, h, :, :MAX_FEATURES] = np.concatenate([features(part.observations[h]) for part in parts])
            result[i, h, :, MAX_FEATURES] = np.clip(np.nan_to_num(paid), -MAX_REWARD, MAX_REWARD)
            over = [part.ended[h] if part.ended else np.zeros(part.n, dtype=bool) for part in parts]
            result[i, h, :, MAX_FEATURES + 1] = np.concatenate(over)
    return result


def _standardised(features: Floats) -> Singles:
    """Returns `[S, H, n, F]` features centred and scaled over n so that products of two are about correlations.

    Features that are nearly constant are scaled less than fully: a single rare event would otherwise dominate every other
    difference. The scaling looks at each feature on its own, so permutation tests stay exact.
    """
    centred = features - features.mean(axis=2, keepdims=True)
    peak = np.abs(centred).max(axis=2, keepdims=True)
    unit = centred / np.where(peak > 1e-12, peak, 1.0)
    n = features.shape[2]
    spread = np.maximum(unit.std(axis=2, keepdims=True), 2 / np.sqrt(n))
    return (unit / (spread * np.sqrt(n))).astype(np.float32)


class _LevelFeatures:
    """Turns the observations of one level into numbers that tell them apart.

    Vectors and real numbers are used as they are, hashed where they are wide. Whole numbers, text, and observations whose
    shape differs from sequence to sequence are names without order: each gets a row of its own.
    """

    def __init__(self, seen: Sequence[Observations], rng: np.random.Generator):
        """Looks at everything that was observed: which values occur does not depend on the order of episodes."""
        self._vocabulary: dict[str, int] | None = None
        shapes = {x.shape[1:] for x in seen}
        kinds = {x.dtype.kind for x in seen}
        if kinds <= set("biuf") and len(shapes) == 1 and (shapes != {()} or "f" in kinds):
            self._width = int(np.prod(shapes.pop()))
            if self._width <= MAX_FEATURES:
                self._map = np.eye(self._width, MAX_FEATURES)
                return
            self._map = np.zeros((self._width, MAX_FEATURES))  # two independent hashes, each into half of the features
            for half in (0, MAX_FEATURES // 2):
                bucket = half + rng.integers(MAX_FEATURES // 2, size=self._width)
                self._map[np.arange(self._width), bucket] = rng.choice([-1.0, 1.0], size=self._width)
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
            return x.reshape(len(x), self._width).astype(np.float64) @ self._map
        return self._map[[self._vocabulary[v] for v in _names(x)]]


def _names(x: Observations) -> list[str]:
    """Returns `[n]` one text per observation, the same whatever batch it came in."""
    return [repr(v) for v in x.tolist()]
