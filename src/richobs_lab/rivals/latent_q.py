"""Optimistic Q-learning that is shown the latent states: a line to compare with, which sees what nobody sees.

After the rival "oracle Q-learning" of Du et al. 2019 (Provably efficient RL with rich observations via latent state
decoding, Section 5): the update of Jin, Allen-Zhu, Bubeck and Jordan 2018, Algorithm 1, with a constant step and the bonus
c sqrt(H/t), over pairs of latent state and action, values cut at 1. The authors choose step and c per horizon, out of
powers of ten. Shapes: H levels, S states of a level, K actions.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs import InvalidInput, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.latent_states import LATENT_STATES, StateReader, reader_of
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import random_argmax


class LatentQTables:
    """Values of (level, latent state, action), which start at 1."""

    def __init__(self, sizes: tuple[int, ...], n_actions: int, step: float, c: float):
        """Makes the tables.

        Args:
            sizes: number of states of every level; smaller levels have rows that nobody visits.
            n_actions: K.
            step: share by which a value moves.
            c: scale of the bonus.
        """
        self.q: Floats = np.ones((len(sizes), max(sizes), n_actions))
        self.visits: Floats = np.zeros_like(self.q)
        self._step, self._bonus = step, c * math.sqrt(len(sizes))

    def actions(self, rng: np.random.Generator) -> Ints:
        """Returns `[H, S]` the best action of every state, ties broken at random."""
        H, S, K = self.q.shape
        return random_argmax(self.q.reshape(H * S, K), rng).reshape(H, S)

    def learn(self, states: Ints, actions: Ints, rewards: Floats) -> None:
        """Moves the value of every step towards reward, next value and bonus, first step first.

        Args:
            states: `[H]` that one episode passed.
            actions: `[H]` that it took.
            rewards: `[H]` that it earned.
        """
        levels = np.arange(len(states))
        at = (levels, states, actions)
        self.visits[at] += 1
        future = np.append(self.q[levels[1:], states[1:]].max(axis=1), 0.0)  # a level is read before it is changed
        goal = rewards + future + self._bonus / np.sqrt(self.visits[at])
        self.q[at] = np.minimum((1 - self._step) * self.q[at] + self._step * goal, 1.0)


def latent_q(
    engine: Engine,
    reader: StateReader,
    tables: LatentQTables,
    episodes: int,
    *,
    seed: int = 0,
    notify: Callback = tell_nobody,
) -> int:
    """Plays one episode after the other and learns from each; returns how many were played.

    Args:
        engine: plays; where its ledger allows no more episodes, the values so far are the answer.
        reader: tells the latent states.
        tables: what is learned.
        episodes: to play.
        seed: of ties.
        notify: told about rounds.
    """
    rounds = Rounds(engine, notify, lambda: reader.saved(list(tables.q.argmax(axis=2))))
    pairs = sum(reader.sizes) * tables.q.shape[2]

    def words() -> str:
        return f"tried {int((tables.visits > 0).sum()):,} of {pairs:,} pairs of latent state and action"

    for t in range(episodes):
        policy = reader.acting(list(tables.actions(keyed_generator(seed, "latent-q", t))))
        try:
            played = engine.ask(Query(policy, 1, "episode", episodes=True)).episodes
        except EpisodeLimit:
            return t
        assert played is not None
        states = np.array([int(s[0]) for s in reader.states(played)])
        tables.learn(states, played.paths[0], np.array([float(r[0]) for r in played.rewards]))
        rounds.add(1, float(played.returns[0]), words)
    rounds.close(words())
    return episodes


@dataclass(frozen=True)
class LatentQTuning:
    """The numbers of Q-learning on latent states that can be chosen."""

    step: float = 0.1
    """Share by which a value moves towards what was seen."""
    c: float = 0.01
    """Scale of the bonus c sqrt(H/t)."""
    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule."""

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InvalidInput(f"tuning: step must be above 0 and at most 1; got {self.step}.")
        require_at_least(0, c=self.c)
        require_at_least(1, episodes=self.episodes)


class LatentQ(Rival):
    """Q-learning on latent states as a learner."""

    name = "latent-q"
    about = "Optimistic Q-learning that is SHOWN THE LATENT STATES: not a rival, but a line to be under."
    cites = "Du, Krishnamurthy, Jiang, Agarwal, Dudik and Langford 2019, Section 5; Jin et al. 2018, Algorithm 1"
    given = (
        "THE LATENT STATE OF EVERY STEP, which nobody sees",
        "number of states",
        "horizon",
        "number of episodes",
        "tuned step and bonus",
    )
    needs = (unit_rewards, LATENT_STATES)
    promises = Promise("Nothing with a constant step and a tuned bonus.")
    costs = "As many episodes as it is told to play (tuning `episodes`); on locks the policy is good after far fewer."
    Tuning = LatentQTuning
    traits = Traits(claims=False, level_work=200)
    reads_episodes = "learns after every episode"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        tuning: LatentQTuning = self.tuning(settings)
        title = "Q-learning on latent states"
        step = PlanRow(title, "step", tuning.step, "", "tuning")
        bonus = PlanRow(title, "c", tuning.c, "", "b_t = c sqrt(H / t)")
        return plan_of_episodes(title, tuning.episodes, step, bonus)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        reader, tuning = reader_of(problem), self.tuning(settings)
        tables = LatentQTables(reader.sizes, problem.n_actions, tuning.step, tuning.c)
        latent_q(engine, reader, tables, tuning.episodes, seed=settings.seed, notify=notify)
        why = "Q-learning on latent states promises nothing with a constant step and a tuned bonus."
        return self.answer(reader.saved(list(tables.q.argmax(axis=2))), settings, why)
