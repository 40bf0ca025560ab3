"""The accounts of a betting search on a tiny process, exactly: all outcomes of all episodes, weighted by their chances.

The process has two levels. Action a at level 0 pays 0.1 a and leads to observation 1 with chance `ONE[a]`, else to
observation 0; at level 1 action b at observation x pays 0.8 with chance `PAYS[x][b]`, else 0. So an episode has four
outcomes for given actions, and four episodes have 256. One test has rewards of any sign. Where a proof says that a wealth is
at most its money on average, the tests compute that average.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from richobs.classes import Layered, Listed, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Declared, Episodes
from richobs.learners.betting.candidate import Accounts, Candidate, Followed, followed, lost_sums
from richobs.learners.betting.certify import Roots
from richobs.learners.betting.survivors_listed import ListedSurvivors
from richobs.learners.betting.survivors_product import ProductSurvivors
from richobs.learners.betting.values import Ranges, samples_of
from richobs.stats import bets
from richobs.stats.shares import SQUARES, Share, Supposed

ONE = (0.3, 0.6)  # chance of observation 1 at level 1, by the action of level 0
PAYS = ((0.25, 0.5), (0.75, 0.0))  # chance of 0.8 at level 1, by observation and action
BEST = (0.4, 0.6)  # 0.8 max(PAYS[x])
Q = (
    [[0.7 * BEST[0] + 0.3 * BEST[1], 0.1 + 0.4 * BEST[0] + 0.6 * BEST[1]]],
    [[0.8 * p for p in row] for row in PAYS],
)  # Q* = 0.46, 0.62 at level 0
WRONG = ([[0.6, 0.3]], [[0.8, 0.1], [0.3, 0.2]])
ALSO_WRONG = ([[0.2, 0.75]], [[0.4, 0.4], [0.1, 0.6]])
SIZES = (1, 2, 1)  # of the batches: 4 episodes
MONEY = 0.5 + 1 / (3.3 * 4) + 1 / (3.3 * 9)  # put in before three batches

RANGES = Ranges.plain(Layered([TableLevel([Q[0]]), TableLevel([Q[1]])]))

Choice = Callable[[int, int], int]  # action at a level and an observation
Chosen = Callable[[int, int], Choice]  # what is played in batch t, where so many episodes paid before


def levels() -> list[TableLevel]:
    return [TableLevel([Q[h], WRONG[h], ALSO_WRONG[h]]) for h in range(2)]


class Signed:
    """The same process, except that action 1 of level 0 pays -0.5, and that level 1 pays 1 or -2."""

    horizon, n_actions, reward_range = 2, 2, (-2.5, 1.0)
    declared = Declared(step_range=(-2.0, 1.0))
    first, low, high = -0.5, -2.0, 1.0

    @classmethod
    def levels(cls) -> list[TableLevel]:
        """Q*, and two functions that are wrong; -1.25, -0.5 and -0.5, -2 are the values of level 1 under Q*."""
        last = [[[3 * p - 2 for p in row] for row in PAYS], [[-1.0, -2.0], [0.5, 0.5]], [[0.0, -1.5], [-2.0, 1.0]]]
        best = [max(row) for row in last[0]]
        root = [0.7 * best[0] + 0.3 * best[1], -0.5 + 0.4 * best[0] + 0.6 * best[1]]
        roots = [[root], [[-2.0, 0.5]], [[0.7, -1.0]]]
        return [TableLevel(np.array(tables), value_range=(-2.5, 1.0)) for tables in (roots, last)]


def every_run(
    chosen: Chosen, first: float = 0.1, low: float = 0.0, high: float = 0.8
) -> Iterator[tuple[float, list[Episodes]]]:
    """Yields the chance of everything that three batches may show, and the batches."""
    for outcomes in itertools.product(itertools.product((0, 1), repeat=2), repeat=sum(SIZES)):
        chance, batches, paid, left = 1.0, [], 0, list(outcomes)
        for t, size in enumerate(SIZES, 1):
            choice, mine, left = chosen(t, paid), left[:size], left[size:]
            a, rows = choice(0, 0), []
            for x, won in mine:
                b = choice(1, x)
                chance *= (ONE[a] if x else 1 - ONE[a]) * (PAYS[x][b] if won else 1 - PAYS[x][b])
                rows.append((x, b, high if won else low))
                paid += won
            xs, bs, last = (np.array(column) for column in zip(*rows, strict=True))
            here = np.zeros(size, dtype=np.int64)
            batches.append(Episodes([here, xs], [here + a, bs], [np.full(size, first * a), last]))
        yield chance, batches


def anything(t: int, paid: int) -> Choice:
    """Actions that depend on the past, and are neither those of Q* nor the same at both observations."""
    return lambda level, x: (t + paid + level * x) % 2


def some_batch(rng: np.random.Generator, n: int) -> Episodes:
    """Returns episodes of random actions."""
    a, b, zero = rng.integers(2, size=n), rng.integers(2, size=n), np.zeros(n, dtype=np.int64)
    x = (rng.random(n) < np.array(ONE)[a]).astype(np.int64)
    return Episodes([zero, x], [a, b], [0.1 * a, 0.8 * (rng.random(n) < np.array(PAYS)[x, b])])


def survivors(is_product: bool, share: float) -> ProductSurvivors | ListedSurvivors:
    if is_product:
        return ProductSurvivors(Layered(levels()), Share(share), RANGES)
    return ListedSurvivors(Listed(levels()), Share(share), RANGES)


@pytest.mark.parametrize("is_product", [True, False])
def test_bets_win_nothing_from_q_star_on_average_whatever_is_played(is_product: bool) -> None:
    """The mean wealth of its pairs is the money put in, less what is taken off for rounding; wrong pairs win."""
    check_mean_wealth(lambda: survivors(is_product, 1e-9), every_run(anything))


@pytest.mark.parametrize("is_product", [True, False])
def test_bets_win_nothing_from_q_star_where_rewards_have_any_sign(is_product: bool) -> None:
    functions = (Layered if is_product else Listed)(Signed.levels())
    ranges = Ranges.of(Signed(), functions)
    assert ranges.low.tolist() == [-2.5, -2.0]  # y is at its edges: no wider range is needed, and none is narrower
    kind = ProductSurvivors if is_product else ListedSurvivors
    runs = every_run(anything, Signed.first, Signed.low, Signed.high)
    check_mean_wealth(lambda: kind(functions, Share(1e-9), ranges), runs)


def check_mean_wealth(
    start: Callable[[], ProductSurvivors | ListedSurvivors], runs: Iterator[tuple[float, list[Episodes]]]
) -> None:
    mean, wrong, total = 0.0, 0.0, 0.0
    for chance, batches in runs:
        if not chance:
            continue
        space = start()
        is_product = isinstance(space, ProductSurvivors)
        truth, liar = ((0, 0), (1, 1)) if is_product else (0, 1)
        for t, played in enumerate(batches, 1):
            space.absorb(samples_of(played), t)
        mean = mean + chance * np.exp(space.log_wealth(truth))
        wrong = wrong + chance * np.exp(space.log_wealth(liar)) if liar in space else wrong
        total += chance
    assert total == pytest.approx(1.0)
    assert len(mean) == (2 if is_product else 1)
    assert (mean < MONEY * (1 - 1e-8)).all()
    assert mean == pytest.approx(MONEY, rel=1e-4)
    assert np.max(wrong) > 1.05 * MONEY


@pytest.mark.parametrize(("is_product", "share"), [(True, 0.04), (False, 0.1)])
def test_what_is_wrong_dies_at_the_limit_and_not_before_and_stays_dead(is_product: bool, share: float) -> None:
    """The limit is H over the share for a pair, and 1 over the share for a listed function."""
    rng = np.random.default_rng(3)
    batches = [some_batch(rng, 1) for _ in range(120)]
    rich, member = survivors(is_product, 1e-300), (1, 1) if is_product else 1
    most = []
    for t, played in enumerate(batches, 1):
        rich.absorb(samples_of(played), t)
        most.append(max(rich.log_wealth(member)))
    space, limit = survivors(is_product, share), 0.7 * (2 if is_product else 1) / share
    assert space.limit == pytest.approx(limit, rel=1e-5)
    for t, played in enumerate(batches, 1):
        space.absorb(samples_of(played), t)
        reached = max(most[:t]) >= math.log(limit * (1 + 1e-6))
        assert (member in space) != reached, t


def by_q_star(t: int, paid: int) -> Choice:
    """The greedy policy of Q*, except that batch 2 takes another action at level 0."""
    best = (1, (1, 0))
    return lambda level, x: best[1][x] if level else best[0] - (t == 2)


def candidate(functions: Layered | Listed, member: object) -> Candidate:
    shares = Share(0.3).split(0.3, 0.3, 0.3)
    accounts = Accounts.opened(1, 0.1, RANGES, *shares)
    return Candidate(1, member, LearnedPolicy(functions, member), accounts=accounts)


def test_averages_of_q_star_win_nothing_on_average_and_stop_where_its_policy_is_left() -> None:
    """Its accounts hold 1 on average at each level; the two episodes of batch 2 leave the policy and enter neither."""
    wealth, earned, n = np.zeros(2), 0.0, 0
    for chance, batches in every_run(by_q_star):
        player = candidate(Layered(levels()), (0, 0))
        for played in batches:
            trail, returns = followed(played, player.policy, RANGES)
            player.absorb(trail, returns)
        own = player.accounts
        assert own is not None
        wealth += chance * np.exp(bets.mixed(own.average_wealth))
        earned += chance * (own.returns[0] @ own.returns[1])
        n = own.n
        assert [len(batch[1].errors) for batch in own.trail] == [1, 0, 1]
    assert n == 4
    assert wealth == pytest.approx([1.0, 1.0], abs=1e-5)
    assert (wealth < 1 - 1e-9).all()
    assert earned == pytest.approx(2 * 0.62)  # the value of Q*, from the two episodes that followed it


def test_a_pair_of_a_candidate_is_refuted_at_its_limit_and_not_before() -> None:
    """Errors of -0.5 multiply the account of the bet -1/2 by 1.25 each; the limit is 2 levels over the share."""
    functions = Layered([TableLevel([[[0.5, 0.0]]]), TableLevel([[[0.0, 0.0]]])])
    player = candidate(functions, (0, 0))
    own = player.accounts
    assert own is not None
    assert own.average_limit == pytest.approx(2 / 0.09, rel=1e-5)
    zero, batches = np.zeros(1, dtype=np.int64), 0
    while True:
        trail, returns = followed(Episodes([zero] * 2, [zero] * 2, [np.zeros(1)] * 2), player.policy, RANGES)
        refuted = player.absorb(trail, returns)
        batches += 1
        held = math.fsum((1 - 0.5 * bet) ** batches for bet in own.average_bets) / len(own.average_bets)
        assert (refuted == [0]) == (held * (1 - 1e-6) >= 2 / 0.09), batches
        if refuted:
            break
    assert batches == 26


def lossy() -> tuple[Layered, LearnedPolicy]:
    """Q* as the first member of each level, and the policy of a function that is wrong at observation 1 of level 1."""
    functions = Layered([TableLevel([Q[0], Q[0]]), TableLevel([Q[1], [[0.2, 0.4], [0.0, 0.05]]])])
    return functions, LearnedPolicy(functions, (1, 1))


def test_agreement_wins_nothing_on_average_from_a_policy_that_loses_epsilon() -> None:
    """The policy earns 0 instead of 0.6 at observation 1, which it sees with chance 0.6."""
    functions, policy = lossy()
    epsilon = 0.36
    bet = bets.Agreement.of(epsilon, 0.62, 2)
    thetas, which = np.unique(bet.theta, return_inverse=True)
    loses, wealth = 0.0, 0.0
    for chance, batches in every_run(lambda t, paid: lambda level, x: 1):
        trail: list[list[Followed]] = []
        for played in batches:
            levels_, _ = followed(played, policy, RANGES)
            trail.append(levels_)
        taken = np.zeros(len(bet.bets))
        for h in range(2):
            gaps, jumps = lost_sums(functions, h, np.array([0]), trail, thetas, 0.0)
            taken += bet.per_gap * gaps[which, 0] + bet.per_jump * jumps[which, 0]
            loses += chance * (gaps[0, 0] + jumps[0, 0]) / 4
        wealth += chance * math.exp(bet.log_wealth(4, taken))
    assert loses == pytest.approx(0.36)
    assert 0.5 < wealth <= 1


@pytest.mark.parametrize("left", [0, 1])
def test_where_the_policy_is_left_every_survivor_loses_its_best_value(left: int) -> None:
    """Another action at a level counts as a stop there, and nothing later counts."""
    functions, policy = lossy()
    actions = [1 - (left == 0), 1 - (left == 1)]
    one = np.ones(1, dtype=np.int64)
    played = Episodes([0 * one, 0 * one], [actions[0] * one, actions[1] * one], [np.zeros(1), np.zeros(1)])
    trail, earned = followed(played, policy, RANGES)
    assert earned.tolist() == [0.0]
    thetas = np.array([1e-3])
    sums = [lost_sums(functions, h, np.array([0]), [trail], thetas, 0.0) for h in range(2)]
    stops = [float(jumps[0, 0]) for _, jumps in sums]
    assert stops == pytest.approx([0.62, 0.0] if left == 0 else [0.0, 0.4])
    assert sum(float(gaps[0, 0]) for gaps, _ in sums) == 0.0


# Coins: a sample is a number of heads, so all samples of a size are few.


def chances(n: int, p: float) -> np.ndarray:
    """Returns `[n + 1]` the chance of every number of heads."""
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def ever(sizes: tuple[int, ...], p: float, fails: Callable[[int, int], bool]) -> float:
    """Returns the chance that `fails(n, heads)` at one of the sizes, which grow, with a coin of chance p."""
    law, seen, failed = np.ones(1), 0, 0.0
    for n in sizes:
        law, seen = np.convolve(law, chances(n - seen, p)), n
        bad = np.array([fails(n, k) for k in range(n + 1)])
        failed, law = failed + float(law[bad].sum()), np.where(bad, 0.0, law)
    return failed


@pytest.mark.parametrize(("p", "least"), [(0.1, 0.02), (0.5, 0.01)])
def test_a_lower_bound_ever_exceeds_the_mean_with_at_most_the_chance_of_its_share(p: float, least: float) -> None:
    share = 0.2

    def fails(n: int, heads: int) -> bool:
        returns = np.repeat([1.0, 0.0], [heads, n - heads])
        return bets.lower_bound_of_mean(returns, 0.00625, bets.death(Supposed(share))) > p

    assert least <= ever((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48), p, fails) <= share


def test_u_is_ever_below_the_mean_with_at_most_the_chance_of_its_looks() -> None:
    """One root of value 0.2 or 0.9, observed with chances 0.6 and 0.4; looks at 32 and 48."""
    functions, share, p = Layered([TableLevel([[[0.2], [0.9]]])]), 0.4, 0.4
    mean, one = 0.2 + 0.7 * p, np.zeros(1, dtype=np.int64)
    uppers = {}

    def fails(n: int, heads: int) -> bool:
        roots = Roots(functions, Share(share), Ranges.plain(functions))
        roots.absorb(np.repeat([1, 0], [heads, n - heads]), one)
        uppers[n, heads] = float(roots.upper[0])
        return uppers[n, heads] < mean

    first = share / (SQUARES * 1.5**2)
    assert 0.005 * first <= ever((32,), p, fails) <= first
    # The bound at the first look, by hand: Chernoff with half of the share; n = 32 is too few for Bernstein.
    heads, bound = 12, uppers[32, 12]
    q = (bound - 0.2) / 0.7
    divergence = 0.375 * math.log(0.375 / q) + 0.625 * math.log(0.625 / (1 - q))
    assert 32 * divergence == pytest.approx(math.log(2 / first), rel=1e-6), heads


def test_agreement_ever_claims_too_much_with_at_most_the_chance_of_its_share() -> None:
    """The least favourable law of losses: 0 or the largest, with mean epsilon. There is little slack."""
    whole = bets.Agreement.of(0.1, 0.5, 5)
    mine = whole.theta == whole.theta[0]  # one threshold, with all of the money
    weights = whole.weights[mine] / whole.weights[mine].sum()
    bet = whole._replace(theta=whole.theta[mine], gaps=whole.gaps[mine], bets=whole.bets[mine], weights=weights)
    top, share = float(bet.gaps[0] + bet.jump), 0.1
    needed = math.log(bets.death(Supposed(share)))
    lost = bet.per_gap * bet.gaps + bet.per_jump * bet.jump  # by one episode
    most = 60  # losses after which nothing is claimed within these episodes
    assert bet.log_wealth(300, most * lost) < needed

    def claims(n: int, losses: int) -> bool:
        return losses < most and bet.log_wealth(n, losses * lost) >= needed

    assert 0.06 <= ever(tuple(range(1, 301)), 0.1 / top, claims) <= share
