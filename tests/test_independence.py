"""What is noticed of episodes that a claim rests on: environments that drift, and episodes that repeat."""

import dataclasses
import itertools

import numpy as np
import pytest

import richobs
from richobs.classes.dynamics import Model
from richobs.classes.tables import Constants
from richobs.core.environment import Environment, Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.policies import Policy, Uniform
from richobs.engines import independence
from richobs.engines.independence import OneLaw, Repeats, Watch, observation_numbers
from richobs.learners.betting import search
from richobs.stats.shares import Share
from richobs_lab.intervals import binomial_interval


def one_law(seed: int = 0, share: float = 1e-3) -> OneLaw:
    return OneLaw(Share(share), np.random.default_rng(seed))


# One law.


def test_ranks_count_from_above_and_ties_are_broken_at_random() -> None:
    account = one_law()
    assert [account.rank(n, t) for n, t in ((5, 0.3), (7, 0.5), (5, 0.25), (9, 0.0), (5, 0.5))] == [
        0.3,  # alone
        0.25,  # above all: 0.5 of 1 of 2
        0.5,  # one of three is above, then 0.25 of two equal ones
        0.0,
        0.7,  # two of five are above, then half of three
    ]


def test_the_money_of_an_account_is_at_most_1() -> None:
    """At rank 1/2 no bet wins or loses, so the wealth is the money so far: 1/2 + 1/6 + 1/12 + 1/20 after 8 numbers."""
    account = one_law()
    for n in range(1, 9):
        account.rank(n, 0.0)
        account.bet(0.5)
    assert account.wealth == pytest.approx(0.8)


def test_one_rank_pays_back_what_it_costs_on_average() -> None:
    """The mean over ranks k/10 + 1/20, whose mean is 1/2, is the wealth before plus the money."""
    results = []
    for k in range(10):
        account = one_law()
        for rank in (0.9, 0.8, 0.1, k / 10 + 0.05):
            account.rank(0, 0.0)
            account.bet(rank)
            if len(account.numbers) == 3:
                before = account.wealth
        results.append(account.wealth)
    assert np.mean(results) == pytest.approx(before + 1 / 12)


@pytest.mark.parametrize("law", ["constant", "two values", "normal"])
def test_false_alarms_are_as_rare_as_was_said(law: str) -> None:
    """With a share of 0.2, at most a fifth of 200 sequences of one law may ever alarm."""
    draw = {
        "constant": lambda rng: np.full(60, 0.5),
        "two values": lambda rng: rng.integers(2, size=60).astype(float),
        "normal": lambda rng: rng.normal(size=60),
    }[law]
    alarms = 0
    for seed in range(200):
        account = one_law(seed, share=0.2)
        for part in np.split(draw(np.random.default_rng([seed, 1])), [4, 12, 20, 40]):
            account.add(part)
        alarms += account.is_refuted
    assert binomial_interval(alarms, 200, 0.999)[0] <= 0.2


def test_a_change_is_noticed_in_both_directions_and_after_a_long_time() -> None:
    for before, low, high in ((50, 0.2, 0.8), (50, 0.8, 0.2), (1_000, 0.2, 0.8)):
        account, rng = one_law(), np.random.default_rng(3)
        account.add((rng.random(before) < low).astype(float))
        assert not account.is_refuted
        account.add((rng.random(200) < high).astype(float))
        assert account.is_refuted
        assert (account.halves()[0] < account.halves()[1]) == (low < high)


def test_bets_that_a_batch_is_alike_follow_its_own_ranks() -> None:
    """After the ranks 0.9 and 0.8 the tilts are 12 * 0.7 / 3, cut to 1.8, and 12 * 0.7 / 10; a new batch starts at 0."""
    account = one_law()
    for rank in (0.9, 0.8):
        account.rank(0, 0.0)
        account.bet(rank)
    before = account._wealth
    account.rank(0, 0.0)
    account.bet(1.0)
    share = (0.01 * sum(before) + 0.0) / 7
    grown = [after / (0.99 * own + share) for own, after in zip(before, account._wealth, strict=True)]
    assert grown[5:] == pytest.approx([1.9, 1.42])
    account.add(np.zeros(0))
    before = account._wealth
    account.rank(0, 0.0)
    account.bet(1.0)  # the fourth number brings money: 1/12
    share = (0.01 * sum(before) + 1 / 12) / 7
    assert account._wealth[5:] == pytest.approx([0.99 * own + share for own in before[5:]])


def test_numbers_of_observations_do_not_depend_on_the_batch() -> None:
    x = np.random.default_rng(0).normal(size=(40, 7, 30)).astype(np.float32)
    together = observation_numbers(x)
    assert together.shape == (40,)
    assert [observation_numbers(row[None])[0] for row in x] == together.tolist()
    assert len(set(together.tolist())) == 40
    words = np.array(["left", "right", "left"])
    one, two, three = observation_numbers(words)
    assert one == three != two


# Repeats.


def test_given_a_batch_the_bet_on_repeats_is_fair() -> None:
    """The mean over all orders of a batch is 1, whatever was played before."""
    for before, batch in ((b"abcd", b"abcd"), (b"aab", b"abca"), (b"abcde", b"aab")):
        results = []
        for order in itertools.permutations(batch):
            account = Repeats(Share(0.1))
            account.add([bytes([k]) for k in before])
            account.add([bytes([k]) for k in order])
            results.append(account.wealth)
        assert np.mean(results) == pytest.approx(1.0)
        assert max(results) > 1


def test_repeated_batches_are_noticed_and_equal_episodes_are_not() -> None:
    """Of 8 different episodes 1 is expected in its place: a repetition multiplies by 1 + 0.5 (8 - 1) = 4.5."""
    account = Repeats(Share(0.01))
    keys = [bytes([k]) for k in range(8)]
    for _ in range(4):
        account.add(keys)
    assert account.wealth == pytest.approx(4.5**3)
    assert not account.is_refuted
    account.add(keys)
    assert account.is_refuted
    alike = Repeats(Share(0.01))
    for _ in range(50):
        alike.add([b"x"] * 8)
    assert alike.wealth == 1.0


@pytest.mark.parametrize(("contexts", "batch"), [(2, 4), (8, 4), (2, 16)])
def test_episodes_that_coincide_by_chance_stop_as_seldom_as_was_said(contexts: int, batch: int) -> None:
    """With a share of 0.1, at most a tenth of 150 runs may stop; two contexts and actions give 16 episodes of two steps."""
    alarms = 0
    for seed in range(150):
        rng, account = np.random.default_rng([seed, contexts, batch]), Repeats(Share(0.1))
        law = rng.dirichlet(np.ones((2 * contexts) ** 2))
        for _ in range(100):
            account.add([bytes([k]) for k in rng.choice(len(law), size=batch, p=law)])
            alarms += account.is_refuted
            if account.is_refuted:
                break
    assert alarms >= 1
    assert binomial_interval(alarms, 150, 0.999)[0] <= 0.1


def test_a_text_is_the_same_episode_whatever_is_beside_it() -> None:
    watch = Watch(0, (0.0, 1.0))
    for other in ("b", "corridor") * 4:
        watch.look(1, Episodes([np.array(["a", other])], [np.zeros(2, dtype=np.int64)], [np.zeros(2)]))
    assert [account.repeated for account in watch._repeats] == [7, 7]


# Whole runs.


class Strange:
    """An environment of one's own around a world: one that drifts, or draws the same episodes in every call."""

    def __init__(self, problem: richobs.Problem, kind: str):
        self._inner, self.kind = problem.env, kind
        self.horizon, self.n_actions, self.reward_range = problem.horizon, problem.n_actions, (0.0, 1.0)
        self.declared, self.played = richobs.Declared(at_once=8), 0

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        played = self._inner.play(policy, n, np.random.default_rng(7) if self.kind == "repeats" else rng, levels)
        self.played += n
        if self.kind == "starts drift" and self.played > 40:
            return dataclasses.replace(played, observations=(played.observations[0] + 1, *played.observations[1:]))
        if self.kind == "pay per call":
            return dataclasses.replace(
                played, rewards=(np.full(n, float(rng.integers(2))), *(0 * r for r in played.rewards[1:]))
            )
        if self.kind == "pay drifts" and self.played > 40:
            return dataclasses.replace(played, rewards=tuple(0 * r for r in played.rewards))
        return played


def look_often(watch: Watch, env: Environment, rng: np.random.Generator) -> None:
    for _ in range(60):
        watch.look(1, env.play(Uniform(2), 8, rng))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("starts drift", "first observations changed in the course of"),
        ("pay drifts", "the same policy earned .* in the first half"),
        ("repeats", r"of \d+ episodes that were compared, \d+ are those of the batch before.* chance gives \d"),
        ("pay per call", "draws something once per call of `play` and not per episode"),
    ],
)
def test_a_strange_environment_stops_the_checks(kind: str, words: str) -> None:
    """The policy does not matter here: every batch is one of the same candidate."""
    problem = richobs.make("random", seed=2)
    env = Strange(problem, kind)
    watch = Watch(0, (0.0, 1.0))
    rng = np.random.default_rng(0)
    with pytest.raises(BrokenPromise, match=words):
        look_often(watch, env, rng)
    look_often(Watch(0, (0.0, 1.0)), problem.env, rng)


def test_learn_notices_an_environment_that_repeats_itself() -> None:
    problem = richobs.make("random", seed=2)
    with pytest.raises(BrokenPromise, match="`play` must take all randomness from the generator") as stopped:
        richobs.learn(Strange(problem, "repeats"), problem.functions, epsilon=0.02)
    assert stopped.value.ledger.total < 200
    assert "not part of delta" in str(stopped.value)


class OneDrawPerCall:
    """A coin that is tossed once per call of `play`: all episodes of a call pay the same, 1 or 0 in the mean 1/2."""

    horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)
    declared = richobs.Declared(at_once=16)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        x = np.zeros(n, dtype=np.int64)
        return Episodes([x], [policy.actions(0, x, rng)], [np.full(n, float(rng.integers(2)))])


class OneDrawPerEpisode(OneDrawPerCall):
    """The same coin, tossed for every episode."""

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        x = np.zeros(n, dtype=np.int64)
        return Episodes([x], [policy.actions(0, x, rng)], [rng.integers(2, size=n).astype(float)])


def coins(*chances: tuple[float, float]) -> richobs.Simulators:
    """Models in which the two actions pay 1 with the chances given, and else nothing."""
    lists = [[[[(c, 0, 1.0, False), (1 - c, 0, 0.0, False)] for c in chance]] for chance in chances]
    return richobs.Simulators([Model.of_lists(outcomes, 1, [1.0]) for outcomes in lists])


def learned(env: Environment, learner: str) -> richobs.Outcome:
    """Learns what to do with a coin; for the learner everything is as it declares it, but perhaps for independence."""
    if learner == "models":  # models that some hundred episodes tell apart
        asked = {"epsilon": 0.01, "delta": 1e-3, "tuning": {"batch": 16}}
        return richobs.learn(env, coins((0.5, 0.5), (0.5, 0.54), (0.54, 0.5)), learner="models", **asked)
    functions = richobs.Listed([Constants([[0.5, 0.5], [0.1, 0.1]])])
    return richobs.learn(env, functions, learner=learner, n_states=1, epsilon=0.4)


@pytest.mark.parametrize("learner", ["models", "olive", "lsvee"])
def test_every_learner_notices_what_is_drawn_once_per_call(learner: str) -> None:
    with pytest.raises(BrokenPromise, match="draws something once per call of `play` and not per episode") as stopped:
        learned(OneDrawPerCall(), learner)
    assert "probability at most 0.001, which is not part of delta" in str(stopped.value)
    if learner != "lsvee":  # it asks for 45 million episodes
        assert learned(OneDrawPerEpisode(), learner).claim


def test_what_takes_over_from_the_search_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Betting looks at its own episodes, here at none; OLIVE takes over at once, and asks for counts."""
    monkeypatch.setattr(search, "run", lambda state, fallback: search._hand_over(state, fallback))
    with pytest.raises(BrokenPromise, match="draws something once per call"):
        learned(OneDrawPerCall(), "betting")


def test_of_many_calls_some_episodes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[int, int]] = []
    monkeypatch.setattr(Watch, "look", lambda self, number, played: looked.append((number, played.n)))
    monkeypatch.setattr(independence, "ALL_CALLS", 4)
    watch, coin, rng = Watch(0, (0.0, 1.0)), OneDrawPerCall(), np.random.default_rng(0)
    one, other = Uniform(2), Uniform(2)
    watch.look_at_calls(one, [coin.play(one, 8, rng)])
    assert looked == []  # the learner gets these episodes
    watch.sees_calls = True
    watch.look_at_calls(one, [coin.play(one, 100, rng)] * 9)
    assert looked == [(1, 64)] * 6  # calls 1, 2, 3, 4, 6 and 8
    watch.look_at_calls(other, [coin.play(other, 3, rng)] * 4)
    assert looked[6:] == [(2, 3)]  # call 12


@pytest.mark.parametrize("learner", ["betting", "models", "olive"])
def test_nothing_changes_where_nothing_is_noticed(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = learned(OneDrawPerEpisode(), learner)
    monkeypatch.setattr(Watch, "look", lambda self, candidate, played: None)
    unwatched = learned(OneDrawPerEpisode(), learner)
    assert watched.trace == unwatched.trace
    assert (watched.claim, watched.claims) == (unwatched.claim, unwatched.claims)


def test_a_text_has_one_number_however_long_the_others_are() -> None:
    alone, beside = observation_numbers(np.array(["a"])), observation_numbers(np.array(["a", "corridor"]))
    assert alone[0] == beside[0] != beside[1]
    rows = np.array([["a", 1], ["b", 2]], dtype=object)
    assert observation_numbers(rows[:1])[0] == observation_numbers(rows)[0]


class ChangesLater(OneDrawPerEpisode):
    """What is seen has another law from some call on."""

    def __init__(self, calls: int):
        self.left = calls

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        self.left -= 1
        x = (rng.random(n) < (0.5 if self.left >= 0 else 0.99)).astype(np.int64)
        return Episodes([x], [policy.actions(0, x, rng)], [rng.integers(2, size=n).astype(float)])


def test_a_run_that_was_stopped_stays_stopped_in_its_folder(tmp_path) -> None:
    """OLIVE asks for counts, so what its watch saw is not in the log; a watch that begins anew would see one law."""
    functions = richobs.Listed([Constants([[0.5, 0.5], [0.1, 0.1]])])
    asked = {"learner": "olive", "n_states": 1, "epsilon": 0.4, "out": tmp_path, "progress": False}
    with pytest.raises(BrokenPromise, match="first observations changed"):
        richobs.learn(ChangesLater(40), functions, **asked)
    with pytest.raises(BrokenPromise, match=r"first observations changed.*was stopped for this: start anew"):
        richobs.learn(ChangesLater(0), functions, **asked)
    assert not (tmp_path / "certificate.json").exists()


def test_a_learner_that_does_not_look_at_its_episodes_is_watched() -> None:
    problem = richobs.make("random/2", seed=2)
    with pytest.raises(BrokenPromise, match="`play` must take all randomness from the generator"):
        richobs.learn(Strange(problem, "repeats"), problem.functions, learner="trajectory-trees", max_episodes=50_000)
