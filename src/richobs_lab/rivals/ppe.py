"""PPE (Efroni, Misra, Krishnamurthy, Agarwal and Langford 2021): predictive path elimination.

Provable RL with exogenous distractors via multistep inverse dynamics, ICLR 2022. Where the same actions lead to the same
state, a state is reached by action sequences. A classifier predicts from what is seen which sequence was played; of two that
it cannot tell apart one is eliminated. Shapes: P action sequences of one length, K actions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from richobs import Episodes, LearnedPolicy, OpenLoop, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations, Path
from richobs.learners.base import PlanRow, Promise, ShortPlan, deterministic_transitions
from richobs_lab.rivals.base import require_at_least
from richobs_lab.rivals.decoding import (
    DecodingRival,
    Regression,
    fit,
    play,
    softmax,
    steps_at,
    tell,
)
from richobs_lab.rivals.embeddings import Embedding
from richobs_lab.rivals.rival_events import tell_nobody


class Extension(NamedTuple):
    """What is known of all extensions of the kept sequences of one length by one action; P of them, K at most for each."""

    paths: tuple[Path, ...]  # [P] kept sequence by kept sequence, action by action
    rewards: Floats  # [P] mean reward of the last action
    kept: Ints  # [P] which kept sequence of the next length each is equal to, by its place; itself included
    classifier: Embedding | None  # predicts the sequence from what is seen behind it; None at the last level

    @property
    def cover(self) -> tuple[Path, ...]:
        """The sequences that were kept: one for each learned state."""
        return tuple(self.paths[int(np.flatnonzero(self.kept == i)[0])] for i in range(int(self.kept.max()) + 1))


def probabilities(classifier: Embedding, x: Observations, how: Regression) -> Floats:
    """Returns `[n, P]` the probability that each sequence led to each observation."""
    z = classifier(x)
    return softmax(z) if how == "logistic" else z


def decoded(extension: Extension, x: Observations, how: Regression) -> Ints:
    """Returns `[n]` the learned state of each observation: the kept sequence that most probably led there."""
    assert extension.classifier is not None
    p = probabilities(extension.classifier, x, how)
    return np.asarray((p @ np.eye(int(extension.kept.max()) + 1)[extension.kept]).argmax(axis=1))


def eliminate(p: Floats) -> Ints:
    """Returns `[P]` to which kept sequence each belongs: two are one where their probabilities hardly differ (Algorithm 1).

    The distance of sequences i and j is the mean of |p_i - p_j| over all observations, and 5/(8 P) the threshold. Of a pair
    below it the later sequence is eliminated.

    Args:
        p: `[n, P]` the probability of each sequence given each observation.
    """
    P = p.shape[1]
    kept, group = [0], np.zeros(P, dtype=np.int64)
    for j in range(1, P):
        gaps = np.abs(p[:, kept] - p[:, [j]]).mean(axis=0)
        same = np.flatnonzero(gaps < 5 / (8 * P))
        if len(same):
            group[j] = same[0]
        else:
            group[j] = len(kept)
            kept.append(j)
    return group


@dataclass(frozen=True)
class PpeTuning:
    """The numbers of PPE that can be chosen."""

    samples: int = 250
    """Episodes of each action sequence; the authors play 5,000 for up to 20 sequences."""
    decoder: Regression = "logistic"
    """How the sequence is predicted from what is seen: least-squares, logistic, or network (one hidden layer)."""
    units: int = 32
    """Hidden units of the network."""
    paths: int = 400
    """Sequences of one length that are played at most; with more, it stops and says so."""

    def __post_init__(self) -> None:
        require_at_least(1, samples=self.samples, units=self.units, paths=self.paths)


class Ppe(DecodingRival):
    """PPE as a learner."""

    name = "ppe"
    about = "PPE: predicts from what is seen which actions led there, and keeps one action sequence for each state."
    cites = "Efroni, Misra, Krishnamurthy, Agarwal and Langford 2021, Algorithm 1"
    given = ("horizon", "deterministic transitions", "tuned sample size")
    needs = (deterministic_transitions,)
    promises = Promise(
        "With the paper's sample sizes, an action sequence for every state with probability 1 - delta; with a tuned sample "
        "size nothing.",
        (
            "each observation tells its state, apart from noise that actions do not change",
            "the same actions lead to the same state",
            "rewards depend on state and action alone, and the classifier can express the probabilities",
        ),
    )
    costs = "H S K times the tuned sample size of an action sequence, for S states of a level and K actions."
    Tuning = PpeTuning
    theorem = "the theorem on PPE asks for other sample sizes than the tuned one that was played"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes of each action sequence; how many sequences there will be is not known in advance."""
        tuning: PpeTuning = self.tuning(settings)
        lines = (
            PlanRow("PPE", "samples", tuning.samples, "episodes", "of each action sequence: tuned"),
            PlanRow("PPE", "paths", tuning.paths, "sequences", "of one length at most: tuned"),
        )
        return ShortPlan("PPE", tuning.samples * tuning.paths * problem.horizon, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        known, stopped = ppe(
            engine,
            problem.horizon,
            problem.n_actions,
            self.tuning(settings),
            seed=settings.seed,
            notify=notify,
        )
        path, worth = best_path(known, problem.horizon, problem.n_actions)
        policy, value = LearnedPolicy.open_loop(path, problem.n_actions), None if stopped else worth
        return self.decoded(policy, settings, finished=stopped != SPENT, value_hat=value, stopped=stopped)


SPENT = "the episodes allowed were spent"


def ppe(
    engine: Engine,
    horizon: int,
    n_actions: int,
    tuning: PpeTuning,
    *,
    seed: int = 0,
    notify: Callback = tell_nobody,
) -> tuple[list[Extension], str]:
    """Learns which action sequences lead to the same state, level by level (Algorithm 1).

    Args:
        engine: plays; where its ledger allows no more episodes, what is known so far is the answer.
        horizon: number of levels H.
        n_actions: K.
        tuning: sample size and classifier.
        seed: of a network's first weights.
        notify: told about every level.

    Returns:
        One extension for each level, and in words why levels are missing; empty where none is.
    """
    known: list[Extension] = []
    cover: tuple[Path, ...] = ((),)
    for length in range(1, horizon + 1):
        paths = tuple((*path, action) for path in cover for action in range(n_actions))  # every extension by one action
        if len(paths) > tuning.paths:
            return known, (
                f"{len(paths):,} action sequences of length {length} could not be told to be the same, and {tuning.paths:,} "
                "are allowed; more samples may help"
            )
        try:
            parts = [
                play(engine, OpenLoop(path), tuning.samples, f"length {length}", min(length + 1, horizon))
                for path in paths
            ]
        except EpisodeLimit:
            return known, SPENT
        batch = steps_at(length - 1, Episodes.concatenate(parts))
        label = np.repeat(np.arange(len(paths)), tuning.samples)
        rewards = batch.rewards.reshape(len(paths), -1).mean(axis=1)
        kept, classifier = np.arange(len(paths)), None
        if batch.next_x is not None:
            rng = keyed_generator(seed, "ppe", length)
            classifier = fit(batch.next_x, label, len(paths), tuning.decoder, tuning.units, rng)
            kept = eliminate(probabilities(classifier, batch.next_x, tuning.decoder))
        known.append(Extension(paths, rewards, kept, classifier))
        cover = known[-1].cover
        what = f"kept {len(cover)} of {len(paths)} action sequences of length {length}"
        tell(
            notify,
            engine,
            len(label),
            batch.earned,
            what if classifier else f"rewards of {len(paths)} action sequences",
        )
    return known, ""


def best_path(known: list[Extension], horizon: int, n_actions: int) -> tuple[Path, float]:
    """Plans in the deterministic model of kept sequences: returns the best action sequence and what it is worth there.

    Args:
        known: what was learned, level by level; action 0 is taken at levels that are missing.
        horizon: H.
        n_actions: K.
    """
    later = np.zeros(0)
    best: list[Ints] = []  # per level, the action of each kept sequence
    for extension in reversed(known):
        q = extension.rewards + (later[extension.kept] if len(later) else 0.0)
        table = q.reshape(-1, n_actions)
        best.insert(0, table.argmax(axis=1))
        later = table.max(axis=1)
    place, path = 0, []
    for extension, actions in zip(known, best, strict=True):
        path.append(int(actions[place]))
        place = int(extension.kept[place * n_actions + path[-1]])
    return (*path, *(0,) * (horizon - len(path))), float(later[0]) if known else 0.0
