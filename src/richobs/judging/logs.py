"""Episodes that somebody logged: with the probabilities of their actions, or only what each of them earned.

A weight is the product over an episode's actions of (probability under the policy) / (probability in the log). Given the
past it has mean 1, and weight times total has the mean of the policy, whatever the logging policy was [V7].
Shapes: n episodes, P policies.
"""

import csv
import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from richobs.core.arguments import file_path
from richobs.core.environment import TOLERANCE, Episodes, declared_by, implied_step_range
from richobs.core.errors import InvalidFile, InvalidInput, RewardOutOfRange
from richobs.core.files import read_json, reading
from richobs.core.policies import RandomPolicy
from richobs.core.problem import ENVIRONMENT_NAMES
from richobs.core.types import Floats, Ints
from richobs.judging.players import policy_of

NEEDED, KNOWN = ("episode", "reward", "propensity"), ("episode", "step", "action", "reward", "propensity", "target")
RETURNS = ("return", "returns", "total", "reward", "rewards", "r", "sum_reward", "score", "success", "episode_rewards")
LISTS = ("per_episode", "episodes")  # keys of JSON under which evaluation tools list episodes
SUM = 1e-6  # by how much probabilities in single precision may miss 1
MINARI = ("propensity", "propensities", "action_probability")  # keys of a Minari episode's infos


@dataclass(frozen=True)
class Log:
    """Logged episodes in the order in which they were made, with the weights of one policy or of two."""

    weights: Floats  # [P, n]
    below: Floats  # [k, n] nonnegative, of mean m: the value, or half of 1 plus the difference, in units of the range
    above: Floats  # [n] nonnegative, of mean 1 - m

    @property
    def n(self) -> int:
        """Number of episodes."""
        return self.weights.shape[1]

    def draw(self, look: int, n: int, before: int) -> list[Floats]:
        """Returns the next n observations of both sides."""
        return [*self.below[:, before : before + n], self.above[before : before + n]]

    def means(self, n: int) -> float:
        """Returns the mean of the first n observations."""
        return float(self.below[0, :n].mean())


def effective_size(weights: Floats) -> float:
    """Returns how many episodes of its own the logged ones `[P, n]` are worth to a policy, the least of all policies."""
    squares = (weights**2).sum(axis=1)
    return float(np.min(np.where(squares > 0, weights.sum(axis=1) ** 2 / np.where(squares > 0, squares, 1.0), 0.0)))


def as_log(
    given: Any, policy: Any, env: Any, reward_range: tuple[float, float], rng: np.random.Generator, other: Any = None
) -> Log:
    """Returns logged episodes as what is bet on.

    Args:
        given: a log, as `certify_policy` takes them.
        policy: whose value is asked for; None where the log says what it would have done (`target`).
        env: says which rewards there are; or None.
        reward_range: of an episode's total.
        rng: for policies that act at random without telling their probabilities.
        other: a second policy, where the difference is asked for.

    Raises:
        InvalidInput: there are no propensities, or one is not a probability above 0, or something does not fit.
        RewardOutOfRange: a total outside the range, or a negative reward where there can be none.
    """
    episodes, targets = _read(given)
    if targets is not None and policy is not None:
        raise InvalidInput(
            "the log has a column `target`, the probability of its action under a policy, and a policy is given too. They "
            "may be different ones: leave out the column, or give None as the policy."
        )
    if targets is not None and other is not None:
        raise InvalidInput(
            "a log with a column `target` is of one policy; two are compared by what they do themselves."
        )
    own = env is not None and all(hasattr(env, name) for name in ENVIRONMENT_NAMES)
    episodes = dataclasses.replace(
        episodes,
        propensities=[np.asarray(p, float) for p in episodes.propensities],
        actions=_checked_actions(episodes, int(env.n_actions) if own else None),
    )
    low, high = reward_range
    least = _least_reward(env) if own else -math.inf
    _check(episodes, reward_range, least)
    r = np.clip((episodes.returns - low) / (high - low), 0.0, 1.0)
    steps = _ratios(episodes, policy, targets, rng)  # [levels, n]
    w = steps.prod(axis=0)
    if other is not None:
        v = _ratios(episodes, other, None, rng).prod(axis=0)
        return Log(np.stack([w, v]), ((w * r + v * (1 - r)) / 2)[None], (v * r + w * (1 - r)) / 2)
    below = [w * r]
    if least >= 0 and low <= 0 and episodes.levels > 1:  # every step's reward with the weight of its own past
        decisions = (np.cumprod(steps, axis=0) * np.maximum(np.stack(list(episodes.rewards)), 0.0)).sum(axis=0)
        below.append((decisions - low) / (high - low))
    return Log(w[None], np.stack(below), w * (1 - r))


def _least_reward(env: Any) -> float:
    """Returns the smallest reward of a step that an environment declares; -infinity where only its totals are declared.

    A range of steps that totals imply is taken for none: totals in [0, 1] may be sums of negative rewards too.
    """
    declared = declared_by(env).step_range
    return -math.inf if declared is None or declared == implied_step_range(env.reward_range) else float(declared[0])


def _checked_actions(episodes: Episodes, n_actions: int | None) -> list[Ints]:
    """Returns logged actions as whole numbers from 0 on, once they are."""
    checked = []
    for level, given in enumerate(episodes.actions):
        a = np.asarray(given)
        if a.shape != (episodes.n,):
            raise InvalidInput(
                f"step {level} of the log has actions of shape {a.shape}; it needs one number for each of the "
                f"{episodes.n:,} episodes."
            )
        live = ~np.asarray(episodes.ended[level]) if episodes.ended else np.ones(episodes.n, dtype=bool)
        right = (a >= 0) & (a == np.floor(a)) & (a < (math.inf if n_actions is None else n_actions))  # NaN is not
        if (live & ~right).any():
            i = int((live & ~right).argmax())
            most = "" if n_actions is None else f" to {n_actions - 1}"
            raise InvalidInput(
                f"episode {i} of the log, step {level}, has action {a[i]}; actions are whole numbers from 0{most or ' on'}."
            )
        checked.append(np.where(live, a, 0).astype(np.int64))
    return checked


def _ratios(episodes: Episodes, policy: Any, targets: Any, rng: np.random.Generator) -> Floats:
    """Returns `[levels, n]` how much likelier an action is under the policy than in the log; 1 after an episode's end."""
    if targets is None and policy is None:
        raise InvalidInput(
            "a log needs a policy, or a column `target`: the probability of its action under the policy."
        )
    acting = None if targets is not None else policy_of(policy)
    rows = []
    for level, (x, a, p) in enumerate(zip(episodes.observations, episodes.actions, episodes.propensities, strict=True)):
        if targets is not None:
            likely = targets[level]
            if not ((likely >= 0) & (likely <= 1)).all():
                raise InvalidInput(
                    f"a target of the log at step {level} is no probability: {likely.min()}, {likely.max()}."
                )
        elif isinstance(acting, RandomPolicy):
            law = np.asarray(acting.probabilities(level, x), dtype=np.float64)
            if law.ndim != 2 or not ((law >= 0).all() and np.allclose(law.sum(axis=1), 1.0, rtol=0.0, atol=SUM)):
                raise InvalidInput(
                    f"the policy's probabilities at step {level}, of shape {law.shape}, are not a law for each observation: "
                    "numbers from 0 on that sum to 1."
                )
            if law.shape[1] <= a.max():
                raise InvalidInput(
                    f"the log has action {a.max()} at step {level}; the policy knows {law.shape[1]} actions."
                )
            likely = law[np.arange(len(a)), a]
        else:  # an action that is drawn from the policy agrees with the logged one as often as the policy takes it
            chosen = np.asarray(acting.actions(level, x, rng)) if acting is not None else a
            if chosen.shape != a.shape:
                raise InvalidInput(
                    f"the policy chose actions of shape {chosen.shape} for {len(a):,} observations; one number for each is "
                    "needed."
                )
            likely = (chosen == a).astype(np.float64)
        rows.append(np.where(episodes.ended[level], 1.0, likely / p) if episodes.ended else likely / p)
    return np.stack(rows)


def _check(episodes: Episodes, reward_range: tuple[float, float], least: float) -> None:
    """Refuses episodes whose propensities or rewards cannot be."""
    if len(episodes.propensities) != episodes.levels:
        raise InvalidInput(
            "logged episodes need the probability of each action that was taken: richobs.Episodes(..., propensities=...), "
            "or a column `propensity`. These have none."
        )
    low, high = reward_range
    for level, p in enumerate(episodes.propensities):
        if p.shape != (episodes.n,):
            raise InvalidInput(
                f"step {level} of the log has propensities of shape {p.shape}, and {episodes.n:,} episodes."
            )
        live = ~np.asarray(episodes.ended[level]) if episodes.ended else np.ones(episodes.n, dtype=bool)
        wrong = live & ~((p > 0) & (p <= 1))
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidInput(
                f"episode {i} of the log, step {level}, has propensity {p[i]}; an action that was taken has a probability "
                "above 0, at most 1, and no interval is valid without it."
            )
        late = ~live & (np.asarray(episodes.rewards[level]) != 0)
        if late.any():
            i = int(late.argmax())
            raise InvalidInput(
                f"episode {i} of the log pays {episodes.rewards[level][i]} at step {level}, after its end (`ended`); "
                "nothing is earned there. Give 0, or say when the episode really ended."
            )
        short = live & ~(np.asarray(episodes.rewards[level]) >= least - TOLERANCE)
        if short.any():
            i = int(short.argmax())
            raise RewardOutOfRange(
                f"episode {i} of the log, step {level}, paid {episodes.rewards[level][i]}; the environment declares that "
                f"no reward is below {least:g}."
            )
    totals = episodes.returns
    if not ((totals >= low - TOLERANCE) & (totals <= high + TOLERANCE)).all():
        i = int((~((totals >= low - TOLERANCE) & (totals <= high + TOLERANCE))).argmax())
        raise RewardOutOfRange(
            f"episode {i} of the log earned {totals[i]:.6g}; the declared range of the total is [{low:g}, {high:g}]. "
            "Declare the range that totals can really have (reward_range)."
        )


def _read(given: Any) -> tuple[Episodes, list[Floats] | None]:
    """Returns the episodes of a log, and per level the probabilities of their actions under the policy, where given."""
    if isinstance(given, Episodes):
        return given, None
    if hasattr(given, "iterate_episodes"):
        return _from_minari(given), None
    if isinstance(given, str) and given.startswith("minari:"):
        try:
            import minari
        except ImportError as error:
            raise InvalidInput("a Minari dataset needs Minari: pip install 'richobs[minari]'.") from error
        return _from_minari(minari.load_dataset(given.removeprefix("minari:"))), None
    if not isinstance(given, str | os.PathLike):
        raise InvalidInput(
            "a log is a richobs.Episodes with propensities, the name of a file (.csv, or .npz of Episodes.save), or a "
            f"Minari dataset; a {type(given).__name__} arrived."
        )
    file = file_path(given)
    return _from_csv(file) if file.suffix == ".csv" else (Episodes.load(file), None)


def _table(file: FilePath) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a CSV file; lines that begin with # are left out."""
    with reading(file), open(file, newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(line for line in stream if not line.startswith("#")) if row]
    if not rows:
        raise InvalidFile(f"{file} has no rows.")
    return [name.strip() for name in rows[0]], rows[1:]


def _number(text: str, file: FilePath, row: int, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidFile(f"{file}, row {row}: {name} is {text[:40]!r}, which is no number.") from None


def _from_csv(file: FilePath) -> tuple[Episodes, list[Floats] | None]:
    """Returns the episodes of a CSV file: one row per step, episodes one after the other."""
    header, rows = _table(file)
    needed = NEEDED if "target" in header else (*NEEDED, "action")
    if missing := [name for name in needed if name not in header]:
        raise InvalidFile(
            f"{file} lacks the column {missing[0]!r}. A log has one row per step, with columns {', '.join(NEEDED)}, action "
            "and what was observed, or target instead of these: the probability of the action under the policy."
        )
    seen = [i for i, name in enumerate(header) if name not in KNOWN]
    steps: dict[str, list[tuple[list[float], float, float, float, float]]] = {}
    last = None
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise InvalidFile(f"{file}, row {number}, has {len(row)} values; the header has {len(header)}.")
        cell = dict(zip(header, row, strict=True))
        if cell["episode"] != last and cell["episode"] in steps:
            raise InvalidFile(f"{file}, row {number}: episode {cell['episode'][:40]} goes on after another began.")
        last = cell["episode"]
        read = {k: _number(cell[k], file, number, k) for k in KNOWN[1:] if k in cell}
        if "step" in cell and read["step"] != len(steps.get(last, ())):
            raise InvalidFile(
                f"{file}, row {number}: step is {read['step']:g}, and {len(steps.get(last, ()))} is next in its episode. "
                "Steps count 0, 1, 2, ... in the order in which they were taken."
            )
        if "action" in cell and not (read["action"] >= 0 and read["action"].is_integer()):
            raise InvalidFile(
                f"{file}, row {number}, has action {read['action']:g}; actions are whole numbers from 0 on."
            )
        if not 0 < read["propensity"] <= 1:
            raise InvalidFile(
                f"{file}, row {number}, has propensity {read['propensity']:g}; an action that was taken has a probability "
                "above 0, at most 1."
            )
        x = [_number(row[i], file, number, header[i]) for i in seen]
        values = (read["reward"], read["propensity"], read.get("action", 0.0), read.get("target", math.nan))
        steps.setdefault(last, []).append((x, *values))
    return _columns(list(steps.values()), "target" in header)


def _from_minari(dataset: Any) -> Episodes:
    """Returns the episodes of a Minari dataset whose infos hold the probabilities of the actions."""
    listed = []
    for number, episode in enumerate(dataset.iterate_episodes()):
        key = next((key for key in MINARI if key in (episode.infos or {})), None)
        if key is None:
            raise InvalidInput(
                f"episode {number} of the Minari dataset has no propensities: its infos need one of {', '.join(MINARI)}, "
                "the probability of each action that was taken."
            )
        n = len(episode.rewards)
        x, p = np.asarray(episode.observations)[:n].reshape(n, -1), np.asarray(episode.infos[key], dtype=np.float64)
        p = p.reshape(len(p), -1)
        if p.shape[1] != 1:
            raise InvalidInput(
                f"episode {number} of the Minari dataset has {p.shape[1]} numbers for each step in its infos {key!r}; one "
                "is needed, the probability of the action that was taken."
            )
        p = p[-n:, 0]  # infos begin with that of the reset
        listed.append(
            [
                (x[i].tolist(), float(episode.rewards[i]), float(p[i]), float(episode.actions[i]), math.nan)
                for i in range(n)
            ]
        )
    return _columns(listed, False)[0]


def _columns(listed: Sequence[Sequence[Any]], has_target: bool) -> tuple[Episodes, list[Floats] | None]:
    """Returns episodes that were given step by step, as columns by level; what follows an episode's end is padding."""
    if not listed:
        raise InvalidInput("the log holds no episode.")
    levels, width = max(map(len, listed)), len(listed[0][0][0])
    padding = ([0.0] * width, 0.0, 1.0, 0.0, 1.0)
    x, r, p, a, target, ended = ([] for _ in range(6))
    for level in range(levels):
        rows = [episode[level] if level < len(episode) else padding for episode in listed]
        x.append(np.array([row[0] for row in rows]))
        r.append(np.array([row[1] for row in rows]))
        p.append(np.array([row[2] for row in rows]))
        a.append(np.array([row[3] for row in rows]))
        target.append(np.array([row[4] for row in rows]))
        ended.append(np.array([level >= len(episode) for episode in listed]))
    return Episodes(x, a, r, ended, p), target if has_target else None


def read_returns(file: str | os.PathLike[str]) -> Floats:
    """Returns `[n]` what episodes earned, from a CSV or JSON file of an evaluation, in its order.

    A CSV file has one column, or one of the names in RETURNS, as the files of Stable-Baselines3's Monitor do. JSON is a list
    of numbers, or has one under such a name, or a list of episodes each with such a name.

    Raises:
        InvalidFile: there is nothing of the kind in it.
    """
    place = file_path(file)
    if place.suffix == ".json":
        with reading(place):
            values = _listed(read_json(place), place)
    else:
        header, rows = _table(place)
        name = next((name for name in RETURNS if name in header), None)
        if name is None and len(header) == 1:
            rows = [header, *rows]
        elif name is None:
            raise InvalidFile(
                f"{place} has columns {', '.join(header)[:80]}; none of them is one of {', '.join(RETURNS)}."
            )
        if "episode" in header:
            seen = [row[header.index("episode")] for row in rows if len(row) == len(header)]
            if len(set(seen)) < len(seen):
                raise InvalidFile(
                    f"{place} names an episode twice: it has a row per step, and a row per episode is needed."
                )
        column = 0 if name is None else header.index(name)
        values = [_number(row[column], place, i, name or "the return") for i, row in enumerate(rows, start=2)]
    returns = np.array(values, dtype=np.float64)
    if returns.ndim != 1 or not len(returns):
        raise InvalidFile(f"{place} holds no returns of episodes.")
    return returns


def _listed(content: Any, file: FilePath) -> list[float]:
    """Returns the numbers in JSON."""
    if isinstance(content, dict):
        key = next((key for key in (*LISTS, *RETURNS) if isinstance(content.get(key), list)), None)
        if key is None:
            raise InvalidFile(f"{file} has no list under one of {', '.join((*LISTS, *RETURNS))}.")
        return _listed(content[key], file)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        key = next((key for key in RETURNS if key in content[0]), None)
        content = content if key is None else [row[key] for row in content]
    return [float(value) for value in _numbers(content, file)]


def _numbers(content: Any, file: FilePath) -> Iterable[Any]:
    """Refuses what is no list of numbers."""
    if not isinstance(content, list) or not all(isinstance(value, int | float) for value in content):
        raise InvalidFile(f"{file} holds no list of numbers.")
    return content
