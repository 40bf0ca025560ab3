"""Learning in a family of models: weigh the models by everything seen, and plan in those that are left.

What is claimed rests on one event: the likelihood never refutes the true model [B4]. Then a policy that loses at most
epsilon in every living model loses at most epsilon in the true one [B5]. Labels are those of `docs/models.md`. Which policy
is played may depend on everything seen before.

One round: plan the optimal policies of the most likely models in every living model, and take the one whose largest loss is
the smallest. If that exceeds epsilon, play a few episodes: in turn of a model drawn by its likelihood, of the model in which
the best policy loses most, and of the best policy itself.
"""

import bisect
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit, InvalidInput
from richobs.core.events import Callback, nobody
from richobs.core.functions import FunctionClass, ModelFamily
from richobs.core.outcome import Outcome
from richobs.core.queries import Engine, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Ints, Mask, Observations
from richobs.learners.models.closing import outcome
from richobs.learners.models.events import ModelsWeighed, RegretPlanned
from richobs.learners.models.regrets import Judged
from richobs.learners.models.state import PHASE, ModelSearch, Tuning
from richobs.stats.seals import Sealed

RECORDED = "played before the run"
TURNS = ("drawn by its likelihood", "it disputes the best policy", "its policy is the best so far")


class Fixed(NamedTuple):
    """What is fixed before a batch is drawn, beside the living models and their weights."""

    member: int  # the model whose optimal policy is played
    why: str
    size: int


class Tolerant:
    """A policy that takes action 0 at observations that its class does not know.

    The policy itself would stop the run with an error. This one plays on, so that the models are asked about what was seen:
    all of them hold it impossible, and the run ends with the words for that.
    """

    def __init__(self, policy: LearnedPolicy):
        self.policy = policy
        self.unknown = ""  # what the class said about the last such observation

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the policy's actions, and 0 where it has none."""
        try:
            return self.policy.actions(level, x, rng)
        except InvalidInput:
            return np.array([self._action(level, x[i : i + 1], rng) for i in range(len(x))], dtype=np.int64)

    def never_takes(self, level: int, x: Observations, actions: Ints, /) -> Mask:
        """Returns `[n]` where an action is another one: none of them is random."""
        return self.actions(level, x, keyed_generator(0, "not used")) != actions

    def _action(self, level: int, x: Observations, rng: np.random.Generator) -> int:
        try:
            return int(self.policy.actions(level, x, rng)[0])
        except InvalidInput as error:
            self.unknown = str(error)
            return 0


def models(
    engine: Engine,
    functions: FunctionClass,
    family: ModelFamily,
    *,
    reward_range: tuple[float, float],
    step_range: tuple[float, float] | None = None,
    epsilon: float,
    delta: float,
    seed: int = 0,
    notify: Callback = nobody,
    tuning: Tuning | None = None,
    recorded: Episodes | None = None,
) -> Outcome:
    """Learns a policy with V* - V(policy) <= epsilon with probability at least 1 - delta, if the truth is in the family.

    If the episodes run out first, the largest loss in a living model is claimed: an honest, wider epsilon.

    Args:
        engine: plays the episodes; its ledger may limit them.
        functions: the class whose member i is Q* of model i.
        family: the same, as models.
        reward_range: smallest and largest possible sum of an episode's rewards.
        step_range: smallest and largest possible reward of one level; by default what `reward_range` implies.
        epsilon: largest allowed gap between the policy's value and V*, in units of the rewards.
        delta: probability that the claim is false.
        seed: of the choice among models.
        notify: told about every event.
        tuning: how eager the search is.
        recorded: episodes that were played before, by any policies.
    """
    search = ModelSearch(
        engine, functions, family, reward_range, epsilon, delta, seed, notify, tuning or Tuning(), step_range
    )
    found = run(search, recorded)
    return outcome(search, found)


def run(search: ModelSearch, recorded: Episodes | None = None) -> Judged:
    """Plays and plans until a policy is certified, or until the episodes are spent."""
    if recorded is not None:
        search.recorded = recorded.n
        _weigh(search, recorded, None, RECORDED)
    while True:
        best = _plan(search)
        if best.lowest is not None and search.gap(best) <= search.epsilon:
            return best
        try:
            _play(search, best)
        except EpisodeLimit:
            search.best = search.regrets.judged(best.member)
            return search.best


def _plan(search: ModelSearch) -> Judged:
    """Finds the policy that loses least [B5]."""
    search.best = best = search.regrets.best(search.epsilon - 2 * search.error)
    size = search.log_size
    search.tell(
        RegretPlanned(
            phase=PHASE,
            log_size_before=size,
            log_size_after=size,
            model=best.member,
            worst=best.worst,
            regret=search.gap(best),
            epsilon=search.epsilon,
        )
    )
    return best


def _play(search: ModelSearch, best: Judged) -> None:
    """Plays a batch of one model's optimal policy and weighs it."""
    turn = search.rounds % len(TURNS)
    if turn == 0:
        rng = keyed_generator(search.seed, "model", search.rounds)
        member = int(search.living.models[rng.choice(len(search.living.models), p=search.living.weights)])
    else:
        member = best.worst if turn == 1 else best.member
    n = search.next_size
    policy = Tolerant(LearnedPolicy(search.functions, member))
    batch: Sealed[Fixed] = Sealed(Query(policy, n, "play", PHASE, episodes=True))
    opened = batch.open(search.engine, Fixed(member, TURNS[turn], n))
    played = opened.answer.episodes
    assert played is not None, "the query wants episodes"
    search.watch.look(member, played)
    search.rounds += 1
    _weigh(
        search, played, opened.fixed.member, opened.fixed.why, policy.unknown and f" The class says: {policy.unknown}"
    )


def _weigh(search: ModelSearch, played: Episodes, member: int | None, why: str, detail: str = "") -> None:
    """Weighs episodes by every living model and drops those that are refuted [B4].

    Args:
        search: the search.
        played: the episodes.
        member: the model whose policy was played; None for episodes from before the run.
        why: why that one was played.
        detail: what the class says about something in them that no model shows.
    """
    living, size = search.living, search.log_size
    before = len(living.models)
    likelihood = search.family.log_likelihood(played, living.models)
    try:
        refuted = living.absorb(likelihood, played.n * (played.levels + 1))
    except BrokenPromise as broken:
        where = _first_impossible(search, played)
        raise BrokenPromise(
            f"{broken}: the real system is none of the {search.family.n_models:,} models. {where}{detail} If it were one of "
            f"them, this would happen with probability at most {search.delta:g}."
        ) from None
    search.regrets.keep(refuted.kept)
    search.tell(
        ModelsWeighed(
            phase=PHASE,
            n=played.n if member is not None else 0,
            log_size_before=size,
            log_size_after=search.log_size,
            model=member,
            why=why,
            earned=float(played.returns.mean()),
            promised=None if member is None else search.regrets.optimal(member),
            before=before,
            impossible=refuted.impossible,
            outweighed=refuted.outweighed,
        )
    )


def _first_impossible(search: ModelSearch, played: Episodes) -> str:
    """Returns, in words, the first step at which no living model is left that explains the episodes until then."""
    family, models = search.family, search.living.models

    def explained(first: int, last: int, levels: int, by: Ints) -> Ints:
        """Returns the models that hold the first levels of episodes `first` to `last` possible."""
        return by[family.log_likelihood(_part(played, first, last, levels), by) > -np.inf] if last > first else by

    n = bisect.bisect_left(
        range(played.n), True, key=lambda k: not len(explained(0, k + 1, played.levels, models))
    )  # the episode with which the last model goes
    left = explained(0, n, played.levels, models)
    h = bisect.bisect_left(range(played.levels), True, key=lambda k: not len(explained(n, n + 1, k + 1, left)))
    if played.ended and played.ended[h][n]:
        what = f"it ended after level {h - 1}"
    else:
        x, a, r = np.asarray(played.observations[h][n]), played.actions[h][n], played.rewards[h][n]
        what = f"level {h} showed {np.array2string(x, threshold=8)}, and action {a} paid {r:g}"
    number = search.recorded + search.engine.ledger.total - played.n + n + 1
    return f"What no model that was left explains is in episode {number:,}: {what}."


def _part(played: Episodes, first: int, last: int, levels: int) -> Episodes:
    """Returns the first levels of some episodes."""
    some = slice(first, last)
    return Episodes(
        [x[some] for x in played.observations[:levels]],
        [a[some] for a in played.actions[:levels]],
        [r[some] for r in played.rewards[:levels]],
        [e[some] for e in played.ended[:levels]],
    )
