"""What happens when an assumption is false? Hundreds of violations, with the learner of before and with the default.

Run with `nice python benchmarks/violations.py` (about five minutes on one core). Every problem is handed over as an
environment of one's own: no learner sees a process that is written down. `certified`, the default of before, needs
deterministic transitions; `betting`, the default now, does not. What a run claims, V* <= U, V(policy) >= W and
V* - V(policy) <= epsilon, is checked exactly. Of a false claim it says whether episodes of its policy
could have told, never, later or by then. Results go to `benchmarks/results/violations.json`; docs/honesty.md has them.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np

import richobs
from measure import RESULTS, publish
from richobs.classes import Layered, Listed, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Environment, Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit, Rejected
from richobs.core.functions import FunctionClass, ValueFunction
from richobs.core.outcome import Outcome
from richobs.core.policies import Policy, greedy_actions
from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.betting.certify import doubted
from richobs.worlds.simulator import TabularWorld, WorldEnvironment, hidden_tables
from richobs_lab.intervals import binomial_interval

LEARNERS = ("certified", "betting")  # before, now
EPSILON, DELTA = 0.1, 0.05
LIMIT = 100_000  # episodes; a run that spends them states what it knows then
TOLERANCE = 1e-9
TINY = 1e-12
WHEN_TOLD = ("never", "later", "by then")  # that a false claim could be told by its policy, see `episodes_to_tell`
VERDICTS = ("noticed", "handled", "silent and true", "silent and false", "no claim")
BY_CHECKS = "by engines/independence.py"
COLUMNS = (
    *("violation", "learner", "runs", "noticed", "of these by checks", *VERDICTS[1:]),
    *("noticed or handled, 95% (exact binomial)", "false claims, 95% (exact binomial)", "detail", "CPU s"),
)
FILE = RESULTS / "violations.json"
Row = tuple[Any, ...]


@dataclass
class Own:
    """Somebody's environment around another one: three facts and `play`, and nothing that a learner could look up."""

    env: Environment
    at_once: int = 4_096  # episodes of one call

    def __post_init__(self) -> None:
        self.declared = richobs.Declared(at_once=self.at_once)
        self.horizon, self.n_actions, self.reward_range = self.env.horizon, self.env.n_actions, self.env.reward_range

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        return self.env.play(policy, n, rng, levels)


class Reseeding(Own):
    """An environment that seeds its generator anew in every call, so that calls repeat each other."""

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes, the same in every call but for what the policy does."""
        return self.env.play(policy, n, np.random.default_rng(0), levels)


@dataclass
class Drift:
    """A world that turns from one process into another: an episode's draws come from the second with a growing chance."""

    first: TabularProcess
    second: TabularProcess  # of the same shapes, with the same observations
    turn: Callable[[Ints], Floats]  # `[n]` numbers of episodes -> `[n]` chances of the second
    episodes: int = 0  # begun so far
    chance: Floats = field(default_factory=lambda: np.zeros(0))  # [n] of the episodes that are being played
    reward_range: tuple[float, float] = (0.0, 1.0)
    is_deterministic: bool = False

    def __post_init__(self) -> None:
        self.horizon, self.n_actions = self.first.horizon, self.first.n_actions
        self._worlds = TabularWorld(self.first), TabularWorld(self.second)

    def now(self) -> TabularProcess:
        """Returns the process of the last episode."""
        w = float(self.turn(np.array([max(self.episodes - 1, 0)]))[0])
        one, two = self.first, self.second

        def mixed(a: Floats, b: Floats) -> Floats:
            return (1 - w) * a + w * b

        def pays(a: Rewards, b: Rewards) -> Rewards:
            values = np.concatenate([a.values, b.values], axis=-1)
            return Rewards.finite(values, np.concatenate([(1 - w) * a.probs, w * b.probs], axis=-1))

        return TabularProcess(
            start=mixed(one.start, two.start),
            transitions=tuple(map(mixed, one.transitions, two.transitions)),
            emissions=tuple(map(mixed, one.emissions, two.emissions)),
            rewards=tuple(map(pays, one.rewards, two.rewards)),
        )

    def _either(self, rng: np.random.Generator, one: Any, two: Any) -> Any:
        return np.where(rng.random(len(one)) < self.chance, two, one)

    def start(self, n: int, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` first states."""
        self.chance = self.turn(self.episodes + np.arange(n))
        self.episodes += n
        return np.asarray(self._either(rng, *(w.start(n, rng) for w in self._worlds)))

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n]` what the states show."""
        return np.asarray(self._either(rng, *(w.observe(level, states, rng) for w in self._worlds)))

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` what the actions earn."""
        return np.asarray(self._either(rng, *(w.reward(level, states, x, actions, rng) for w in self._worlds)))

    def move(self, level: int, states: Ints, actions: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the next states."""
        return np.asarray(self._either(rng, *(w.move(level, states, actions, rng) for w in self._worlds)))

    def labels(self, level: int, /) -> tuple[str, ...]:
        """Returns the names of the states."""
        return self.first.labels[level]

    def space(self) -> Any:
        """Returns the space of one observation."""
        return self._worlds[0].space()


class Case(NamedTuple):
    """One violation: a fresh environment, the class, and the process that claims are judged by after the run."""

    env: Environment
    functions: FunctionClass
    judge: Callable[[], TabularProcess]


def case_of(problem: Problem, functions: FunctionClass | None = None) -> Case:
    """Returns a built-in problem as one of one's own."""
    process = problem.process
    assert process is not None
    return Case(Own(problem.env), functions or problem.functions, lambda: process)


def shape(rng: np.random.Generator) -> dict[str, Any]:
    """Returns the size of a random problem."""
    return {
        "horizon": int(rng.integers(2, 6)),
        "n_states": int(rng.integers(2, 5)),
        "n_actions": int(rng.integers(2, 4)),
        "n_observations": int(rng.integers(0, 5)),
        "class_size": int(rng.integers(5, 40)),
    }


def listed(problem: Problem, rng: np.random.Generator) -> Listed:
    """Returns a list of functions put together from the members of a product class, Q* first where it is in the class."""
    functions = problem.functions
    assert isinstance(functions, Layered)
    size = max(c.size for c in functions.levels)
    levels = []
    for h, c in enumerate(functions.levels):
        assert isinstance(c, TableLevel)
        chosen = rng.integers(c.size, size=2 * size)
        if isinstance(problem.optimal_function, tuple):
            chosen[0] = problem.optimal_function[h]
        levels.append(TableLevel(c.tables[chosen], c.codebook))
    return Listed(levels)


def all_random(seed: int, rng: np.random.Generator) -> Case:
    """All transitions and the start are random; Q* is in the class, a product or a list."""
    problem = richobs.make("random", seed=seed, stochastic=True, **shape(rng))
    return case_of(problem, listed(problem, rng) if seed % 2 else None)


def some_random(seed: int, rng: np.random.Generator) -> Case:
    """One transition, or the start, is random; Q* is in the class, a product or a list."""
    problem = richobs.make("random", seed=seed, violate="deterministic", **shape(rng))
    return case_of(problem, listed(problem, rng) if seed % 2 else None)


def missing(seed: int, rng: np.random.Generator) -> Case:
    """Q* is missing at one level of a product; other functions of the level may be as good where it matters."""
    return case_of(richobs.make("random", seed=seed, violate="realizable", **shape(rng)))


def missing_in_list(seed: int, rng: np.random.Generator) -> Case:
    """A list of functions put together from levels that lack Q* at one level; the first is Q* at all other levels."""
    problem = richobs.make("random", seed=seed, violate="realizable", **shape(rng))
    process, functions = problem.process, problem.functions
    assert process is not None
    assert isinstance(functions, Layered)
    levels = []
    for c, q in zip(functions.levels, process.q_tables, strict=True):
        assert isinstance(c, TableLevel)
        chosen = rng.integers(c.size, size=2 * max(c.size for c in functions.levels))
        chosen[0] = int(np.abs(c.tables - q).max(axis=(1, 2)).argmin())  # the nearest at every level: Q* but for one
        levels.append(TableLevel(c.tables[chosen], c.codebook))
    return case_of(problem, Listed(levels))


def pessimists(seed: int, rng: np.random.Generator) -> Case:
    """All functions are right about one policy and too low about all other actions, each in its own way.

    The policy is more than 2 epsilon worse than the best. All functions play it, and no episode of it contradicts them.
    """
    problem, process, own, acts = poor_policy(seed, rng)
    levels = []
    for q, worth, act in zip(process.q_tables, own, acts, strict=True):
        tables = np.minimum(q, rng.uniform(0, 0.9, (20, *q.shape)) * worth)  # [N, X, K]
        np.put_along_axis(tables, np.broadcast_to(act[:, None], (20, len(act), 1)), worth[None], axis=2)
        levels.append(tables)
    return case_of(problem, table_class(process, levels))


def pessimist_among_others(seed: int, rng: np.random.Generator) -> Case:
    """One function as in `pessimists`, among permuted copies of it, whose policies try other actions too."""
    problem, process, own, acts = poor_policy(seed, rng)
    levels = []
    for q, worth, act in zip(process.q_tables, own, acts, strict=True):
        table = np.minimum(q, rng.uniform(0, 0.9, q.shape) * worth)
        np.put_along_axis(table, act[:, None], worth, axis=1)
        levels.append(
            np.stack([table, *(table[rng.permutation(len(q))][:, rng.permutation(q.shape[1])] for _ in range(19))])
        )
    return case_of(problem, table_class(process, levels))


def poor_policy(seed: int, rng: np.random.Generator) -> tuple[Problem, TabularProcess, list[Floats], list[Ints]]:
    """Returns a process whose states own their observations, and a policy that is more than 2 epsilon below V*.

    The policy is given by `[X, 1]` what it earns from an observation on, and `[X]` its actions, per level.
    """
    for attempt in itertools.count():
        sizes = {**shape(rng), "overlap": 0.0, "stochastic": seed % 2 == 1}
        problem = richobs.make("random", seed=10_000 * seed + attempt, **sizes)
        process = problem.process
        assert process is not None
        acts: list[Ints] = [np.asarray(rng.integers(process.n_actions, size=e.shape[1])) for e in process.emissions]
        own: list[Floats] = []
        values = np.zeros(0)
        for h in reversed(range(process.horizon)):
            states = len(process.emissions[h])
            future = process.transitions[h] @ values if own else np.zeros((states, process.n_actions))
            q = process.rewards[h].mean + future[:, None, :]  # [S, X, K]
            mine = np.where(process.emissions[h] > 0, np.take_along_axis(q, acts[h][None, :, None], axis=2)[:, :, 0], 0)
            own.insert(0, mine.max(axis=0)[:, None])
            values = (process.emissions[h] * mine).sum(axis=1)
        if process.optimum.value - float(process.start @ values) > 2 * EPSILON:
            return problem, process, own, acts
    raise AssertionError("the loop has no end")


def table_class(process: TabularProcess, levels: list[Floats]) -> Layered:
    """Returns the product of tables `[N, X, K]`."""
    return Layered([TableLevel(np.clip(t, 0, 1), b) for t, b in zip(levels, process.codebooks, strict=True)])


def aliased(seed: int, rng: np.random.Generator) -> Case:
    """Two states show the same observation and differ in Q* there; transitions are deterministic."""
    return case_of(richobs.make("random", seed=seed, violate="reactive", **shape(rng)))


def overpaying(seed: int, rng: np.random.Generator) -> Case:
    """Rewards or totals exceed the declared range now and then; means, and so Q*, are as declared."""
    return case_of(richobs.make("random", seed=seed, violate="reward range", **shape(rng)))


def smooth_process(
    rng: np.random.Generator, owner: Ints, n_states: int, horizon: int, n_actions: int
) -> TabularProcess:
    """Returns a process with random transitions, given which state owns which observation."""
    emission = np.where(owner == np.arange(n_states)[:, None], rng.gamma(2.0, size=(n_states, len(owner))), 0.0)
    moves = rng.dirichlet([0.5] * n_states, size=(n_states, n_actions))
    pays = Rewards.bernoulli(rng.random((n_states, 1, n_actions)), 1 / horizon)
    start = rng.dirichlet([1.0] * n_states)
    return TabularProcess.from_flat(horizon, start, moves, emission / emission.sum(axis=1, keepdims=True), pays)


def drifting(seed: int, rng: np.random.Generator) -> Case:
    """The process becomes another one, at once or gradually, within 20 to 300 episodes; the class is made for the first."""
    S, H, K = int(rng.integers(2, 5)), int(rng.integers(2, 5)), int(rng.integers(2, 4))
    owner = np.concatenate([np.arange(S), rng.integers(S, size=int(rng.integers(0, 5)))])
    one, two = (smooth_process(rng, owner, S, H, K) for _ in range(2))
    at = float(np.exp(rng.uniform(np.log(20), np.log(300))))
    sudden = bool(seed % 2)

    def turn(episode: Ints) -> Floats:
        return (episode >= at).astype(np.float64) if sudden else np.minimum(episode / at, 1.0)

    world = Drift(one, two, turn)
    tables, _ = hidden_tables(one, int(rng.integers(5, 40)), rng)
    return Case(Own(WorldEnvironment(world)), table_class(one, tables), world.now)


def repeating(seed: int, rng: np.random.Generator) -> Case:
    """Every call of `play` draws the same episodes again; Q* is in the class, and 8 episodes are played at once."""
    problem = richobs.make("random", seed=seed, **shape(rng))
    case = case_of(problem)
    return case._replace(env=Reseeding(problem.env, at_once=8))


def random_lock(seed: int, rng: np.random.Generator) -> Case:
    """A lock whose good states swap and whose right actions fail by chance; 3 noise bits hide the states."""
    chances = {"swap": float(rng.choice([0.2, 0.5])), "fail": float(rng.choice([0.1, 0.3]))}
    return case_of(richobs.make("lock", seed=seed, horizon=int(rng.integers(3, 6)), noise_bits=3, **chances))


def lake(seed: int, rng: np.random.Generator) -> Case:
    """Slippery FrozenLake, 4x4, 30 moves, with the Q functions of 100 maps."""
    return case_of(richobs.make("frozen-lake", seed=seed))


class Kind(NamedTuple):
    """A kind of violation."""

    words: str
    make: Callable[[int, np.random.Generator], Case]
    runs: int
    needed_by: tuple[str, ...] = LEARNERS  # who needs the assumption
    before: int | None = None  # runs of the learner of before, where they take long
    limit: int = LIMIT


KINDS = (
    Kind("all transitions random", all_random, 100, ("certified",)),
    Kind("some transitions random", some_random, 100, ("certified",)),
    Kind("locks with random transitions", random_lock, 50, ("certified",)),
    Kind("slippery FrozenLake", lake, 100, ("certified",), before=4, limit=300_000),
    Kind("Q* missing at one level, product", missing, 50),
    Kind("Q* missing at one level, list", missing_in_list, 50),
    Kind("only consistent pessimists", pessimists, 50),
    Kind("a pessimist among wrong functions", pessimist_among_others, 50),
    Kind("values not reactive", aliased, 50),
    Kind("rewards out of range", overpaying, 50),
    Kind("environment drifts", drifting, 50),
    Kind("episodes repeat", repeating, 50),
)


def false_part(outcome: Outcome, process: TabularProcess) -> str:
    """Returns what an outcome claims falsely, or ""."""
    best, value = process.optimum.value, process.value(outcome.policy)
    assert outcome.upper is not None
    assert outcome.lower is not None
    parts = {
        "gap": best - value > outcome.epsilon + TOLERANCE,
        "U": best > outcome.upper + TOLERANCE,
        "W": value < outcome.lower - TOLERANCE,
    }
    return " and ".join(name for name, wrong in parts.items() if wrong)


def episodes_to_tell(f: ValueFunction, process: TabularProcess) -> float:
    """Returns after how many episodes of its own policy a function that is wrong could be told from Q*, with 95%.

    Infinite for a function that is right about all that its policy meets: no number of them speaks against it. Q* has mean
    errors of 0 at every observation. Bets of 1 + s (y - f), y and f in [0, 1], against one of mean m and variance v grow by
    s |m| - s^2 (m^2 + v)/2, nearly, with the best s that no y ruins. This is log 20 over what that sums to in an episode:
    what somebody needs who knows where to look.
    """
    told, states = 0.0, process.start  # [S] how likely each is
    last = process.horizon - 1
    for h, emission in enumerate(process.emissions):
        values = np.asarray(f.values(h, process.observations[h]))  # [X, K]
        seen, each, acts = states[:, None] * emission, np.arange(len(values)), greedy_actions(values)
        pays = process.rewards[h]
        one, two = (np.einsum("sxkr,sxkr->sxk", pays.values**k, pays.probs)[:, each, acts] for k in (1, 2))  # [S, X]
        if h < last:
            later = np.asarray(f.values(h + 1, process.observations[h + 1])).max(axis=1)
            moves = process.transitions[h][:, acts]  # [S, X, S']
            mean, square = (moves @ (process.emissions[h + 1] @ later**k) for k in (1, 2))
            one, two = one + mean, two + 2 * one * mean + square
            states = np.einsum("sx,sxt->t", seen, moves)
        chance, f_x = np.maximum(seen.sum(axis=0), TINY), values[each, acts]  # [X]
        one, two = (seen * one).sum(axis=0) / chance, (seen * two).sum(axis=0) / chance
        error, square = np.abs(one - f_x), np.maximum(two - 2 * one * f_x + f_x**2, TINY)
        most = 1 / np.maximum(np.where(one > f_x, f_x, 1 - f_x), TINY)  # stake
        stake = np.minimum(error / square, most)
        growth = np.where(error > TOLERANCE, stake * error - stake**2 * square / 2, 0.0)
        told += float(seen.sum(axis=0) @ growth)
    return float(np.log(20) / told) if told > TINY else np.inf


def verdict(kind: Kind, learner: str, seed: int) -> tuple[str, str]:
    """Runs one violation, and returns what became of it, and how it was noticed or closed."""
    case = kind.make(seed, keyed_generator(seed, "violations", kind.words))
    try:
        outcome = richobs.learn(
            *(case.env, case.functions),
            learner=learner,
            epsilon=EPSILON,
            delta=DELTA,
            seed=seed,
            max_episodes=kind.limit,
            progress=False,
        )
    except (BrokenPromise, Rejected) as stopped:
        return "noticed", BY_CHECKS if "not part of delta" in str(stopped) else type(stopped).__name__
    except EpisodeLimit:
        return "no claim", "EpisodeLimit"
    how, wrong = outcome.reason.name, false_part(outcome, case.judge())
    if wrong:
        needed = episodes_to_tell(cast(LearnedPolicy, outcome.policy).f, case.judge())
        when = WHEN_TOLD[(needed < np.inf) + (needed <= outcome.episodes)]
        return "silent and false", f"{wrong} by {how}, told {when}"
    return ("silent and true" if learner in kind.needed_by else "handled"), how


def measured(kind: Kind, learner: str, share: float) -> Row:
    """Returns what became of the runs of one kind with one learner."""
    runs = max(1, round(share * (kind.before if kind.before is not None and learner == LEARNERS[0] else kind.runs)))
    begin = time.process_time()
    found = [verdict(kind, learner, seed) for seed in range(runs)]
    spent = time.process_time() - begin
    counts = Counter(what for what, _ in found)
    by_checks = sum(why == BY_CHECKS for _, why in found)
    detail = ", ".join(f"{what} ({why}): {n}" for (what, why), n in Counter(found).most_common())
    print(f"{kind.words}, {learner}: {detail}; {spent:.0f} CPU s", flush=True)
    fine = interval_words(counts["noticed"] + counts["handled"], runs)
    wrong = interval_words(counts["silent and false"], runs)
    numbers = (counts["noticed"], by_checks, *(counts[v] for v in VERDICTS[1:]))
    return (kind.words, learner, runs, *numbers, fine, wrong, detail, round(spent, 1))


def with_and_without_doubt(kind: Kind, first: int, runs: int) -> Row:
    """Returns how many claims of betting are silent and false, with claims tested and without, on the same seeds."""
    row: list[Any] = [kind.words, first, runs]
    for tested in (doubted, lambda *_: None):
        with mock.patch("richobs.learners.betting.search.doubted", tested):
            found = [verdict(kind, "betting", seed) for seed in range(first, first + runs)]
        counts = Counter(what for what, _ in found)
        row += [counts["noticed"], counts["silent and false"], interval_words(counts["silent and false"], runs)]
        row += [sum(how.endswith(f"told {when}") for _, how in found) for when in WHEN_TOLD]
    print(*row, sep="; ", flush=True)
    return tuple(row)


def interval_words(successes: int, trials: int) -> str:
    """Returns the exact 95% interval of a share in words."""
    low, high = binomial_interval(successes, trials, 0.95)
    return f"[{low:.3f}, {high:.3f}]"


def stored() -> dict[tuple[str, str], Row]:
    """Returns the rows of earlier measurements, by violation and learner."""
    if not FILE.exists():
        return {}
    rows = json.loads(FILE.read_text())["rows"]
    return {(row["violation"], row["learner"]): tuple(row[c] for c in COLUMNS) for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="What becomes of claims where an assumption is false.")
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of every kind")
    parser.add_argument("--kind", default="", help="measure only kinds whose words contain this; other rows stay")
    parser.add_argument("--learner", default="", help="measure only this learner; rows of the other stay")
    parser.add_argument("--doubt", type=int, default=0, help="instead: so many seeds, with claims tested and without")
    parser.add_argument("--first", type=int, default=2000, help="the first of these seeds")
    given = parser.parse_args()
    if given.doubt:
        parts = ("noticed", "silent and false", "95%", *(f"of these told {when}" for when in WHEN_TOLD))
        columns = (
            "violation",
            "first seed",
            "runs",
            *(f"{what}{how}" for how in ("", " without doubt") for what in parts),
        )
        target = RESULTS / "violations_doubt.json"
        before = json.loads(target.read_text())["rows"] if target.exists() else []
        rows = {(row["violation"], row["first seed"]): tuple(row.get(c, "") for c in columns) for row in before}
        for kind in KINDS:
            if given.kind in kind.words:
                rows[kind.words, given.first] = with_and_without_doubt(kind, given.first, given.doubt)
        publish(
            "violations_doubt",
            "Betting where an assumption is false: claims that are tested before they are made, and claims that are not",
            columns,
            list(rows.values()),
            "The same seeds and the same code; without doubt no claim waits. Epsilon 0.1, delta 0.05. Told never: the "
            "function is right about all that its policy meets. Later, by then: that it is wrong could be told, with 95%, "
            "from more episodes of its policy than all that were spent, or from fewer.",
        )
        return
    known = stored()
    for kind in KINDS:
        if given.kind in kind.words:
            some = [learner for learner in LEARNERS if given.learner in learner]
            known.update({(kind.words, learner): measured(kind, learner, given.share) for learner in some})
    publish(
        "violations",
        "Runs whose assumptions are false: what was noticed, what was claimed",
        COLUMNS,
        [known[kind.words, learner] for kind in KINDS for learner in LEARNERS if (kind.words, learner) in known],
        "certified is the default of before, betting the default now; epsilon 0.1, delta 0.05, at most 100,000 episodes "
        "(300,000 on the lake). Where transitions are random, Q* is in the class.",
    )


if __name__ == "__main__":
    main()
