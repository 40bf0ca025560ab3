"""docs/paper-notes.md: what it alleges, computed again from the paper's formulas alone; nothing here imports richobs."""

import functools
import itertools
import math
import pathlib
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from statistics import NormalDist

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTES = (ROOT / "docs/paper-notes.md").read_text(encoding="utf-8")


def phi(H, K, epsilon=1.0):
    return epsilon / (320 * H**2 * math.sqrt(K))


class TestThatEveryNoteWasCheckedAgain:
    """The last table of the page."""

    @pytest.fixture
    def table(self):
        part = NOTES.partition("## Checked again")[2]
        part = part.replace("\\|", "¦")
        rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", part, flags=re.MULTILINE)
        return {note.replace("¦", "|"): checked for note, checked in rows}

    def test_no_note_is_left_out(self, table):
        headings = re.findall(r"^## (.+)$", NOTES, flags=re.MULTILINE)
        assert [h for h in headings if not h.startswith("Checked again") and h not in table] == []
        assert set(table) - set(headings) - {"note", "---"} == set()

    def test_what_it_names_exists(self, table):
        here = set(
            re.findall(r"^def (test_\w+)", pathlib.Path(__file__).read_text(encoding="utf-8"), flags=re.MULTILINE)
        )
        named = {name for checked in table.values() for name in re.findall(r"`(test_\w+)`", checked)}
        assert named <= here
        assert here <= named
        elsewhere = {name for checked in table.values() for name in re.findall(r"`(test_\w+\.py)::([\w:]+)`", checked)}
        for file, test in elsewhere:
            assert f"def {test.split('::')[-1]}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test
        statements = {name for checked in table.values() for name in re.findall(r"`([a-z]+(?:-[a-z]+)*)`", checked)}
        known = set(re.findall(r"`richobs paper ([a-z-]+)`", (ROOT / "docs/paper-map.md").read_text(encoding="utf-8")))
        assert statements <= known
        assert statements


def test_the_tolerance_at_terminal_children_is_negative():
    """20 (H - |p| - 5/4) sqrt(K) phi at |p| = H - 1 is -5 sqrt(K) phi; one level above it is 15 sqrt(K) phi."""
    for H in range(1, 30):
        assert 20 * (H - (H - 1) - Fraction(5, 4)) == -5
        assert 20 * (H - (H - 2) - Fraction(5, 4)) == 15


def test_a_class_without_q_star_keeps_what_is_wrong():
    """One function alone has the least risk, so TD-Elim keeps it: reward 0, f = 1, no children. Its value is off by 1."""
    risks = {"f": Fraction(1) ** 2}
    kept = [name for name, risk in risks.items() if risk <= min(risks.values())]
    assert kept == ["f"]
    assert abs(1 - 0) > 8 * phi(1, 1) + 2 * phi(1, 1)  # the bias bound against Q* = 0, tau_1 = 0


def test_progress_given_accurate_estimates():
    """From the law of n_1 coins alone: given that the test fails 0.116, given an accurate estimate 10^-70; printed 0.0208.

    In general P(fails and misses | accurate) <= (1 - q)^n_2 / P(accurate). A test that fails with an accurate estimate has
    regret above epsilon/4, and regret is at most q + epsilon/16 (half of the margin), so q > 3 epsilon/16. With u =
    delta/(6 M H) <= 1/6 that gives at most exp(-epsilon n_2/8) sqrt(u) / (1 - u), which is below the printed number.
    """
    epsilon = delta = 0.5
    worth, M, H = 0.395, 2, 2
    q = epsilon / 4 / worth + 0.01 * epsilon
    n1 = math.ceil(32 * math.log(12 * M * H / delta) / epsilon**2)
    n2 = math.ceil(8 * math.log(6 * M * H / delta) / epsilon)
    v_star, value = worth + q * (1 - worth), worth * (1 - q) + q * (1 - worth)
    fail = both = accurate = Fraction(0)
    odds = Fraction(q) / (1 - Fraction(q))
    for hits in range(n1 + 1):
        mean = worth + (1 - 2 * worth) * hits / n1
        weight = math.comb(n1, hits) * odds**hits
        if abs(mean - value) <= epsilon / 8:
            accurate += weight
            if abs(mean - v_star - epsilon / 8) > epsilon / 2:
                fail += weight
                both += weight * Fraction(math.comb(n1 - n2, hits), math.comb(n1, hits))  # hits after the first n_2
    promised = math.exp(-epsilon * n2 / 8)
    assert v_star - value > epsilon / 4  # else an accurate test could not fail
    assert float(both / fail) == pytest.approx(0.116, abs=5e-4)
    assert promised == pytest.approx(0.0208, abs=5e-5)
    assert math.log10(both) - math.log10(accurate) == pytest.approx(-70, abs=1)
    known = float(accurate / (1 + odds) ** n1)
    assert both / accurate <= (1 - q) ** n2 / known <= promised
    for u in (Fraction(1, 6), Fraction(1, 100)):
        assert math.sqrt(u) / (1 - u) < 1
    for M, H, epsilon, delta in itertools.product((1, 4), (1, 6), (0.05, 0.9), (0.01, 0.99)):
        n2 = math.ceil(8 * math.log(6 * M * H / delta) / epsilon)
        inaccurate = 2 * math.exp(-2 * math.ceil(32 * math.log(12 * M * H / delta) / epsilon**2) * (epsilon / 8) ** 2)
        assert (1 - 3 * epsilon / 16) ** n2 / (1 - inaccurate) <= math.exp(-epsilon * n2 / 8)


def test_a_round_without_the_root_learns_nothing():
    """Explore-on-Demand as a loop, means exact: actions pay 0.9 and 0.1 at the first level, then 0; V*-hat = V* = 0.9.

    F holds f, which swaps the two, and Q*. "Fix a regressor" takes the first survivor. DFS-Learn at a prefix of length 0 is
    TD-Elim at the root; at longer ones all functions predict 0 and get 0, so that none has more risk than another.
    """
    pay, epsilon, delta, K = (0.9, 0.1), 0.4, 0.5, 2
    swapped, q_star = (0.1, 0.9), pay

    def rounds(H, lengths, most):
        M, F = 1, [swapped, q_star]
        n_train = 24 * math.log(8 * M * H * len(F) / delta) / phi(H, K, epsilon) ** 2
        slack = 2 * phi(H, K, epsilon) ** 2 + 22 * math.log(4 * M * H * len(F) / delta) / n_train
        for done in range(1, most + 1):
            earned = pay[F[0].index(max(F[0]))]
            if abs(earned - 0.9) <= epsilon / 2:
                return done, F
            risks = [sum((g[a] - pay[a]) ** 2 for a in range(K)) / K for g in F]
            if 0 in lengths:
                F = [g for g, risk in zip(F, risks, strict=True) if risk <= min(risks) + slack]
        return most + 1, F

    for H in (1, 2):
        box, proof = range(1, H), range(H)  # H - 1 prefixes, and H
        assert rounds(H, box, 1000 * H) == (1000 * H + 1, [swapped, q_star])  # M H = H rounds are allowed
        assert rounds(H, proof, 1000 * H) == (2, [q_star])
        assert rounds(H, [0, *box], 1000 * H) == (2, [q_star])


def test_an_elimination_may_keep_what_errs():
    """Coins of means 0.7 and 0.3; the first shows 0 and the second 1 in every sample: f = (0.3, 0.7) stays, Q* goes."""
    q_star, f, shown = (Fraction(7, 10), Fraction(3, 10)), (Fraction(3, 10), Fraction(7, 10)), (0, 1)
    risks = [sum((g[a] - shown[a]) ** 2 for a in range(2)) / 2 for g in (q_star, f)]
    assert risks == [Fraction(49, 100), Fraction(9, 100)]
    for epsilon in (0.1, 0.9):  # the threshold is 2 phi^2 + 22 log(4N/delta)/n_train < 3 phi^2 at M = H = 1
        assert risks[0] > risks[1] + 3 * phi(1, 2, epsilon) ** 2
        assert q_star[0] - q_star[f.index(max(f))] == Fraction(4, 10) > epsilon / 8
    assert min((1 - q_star[0]), q_star[1]) > 0  # so that such samples have a positive probability


def test_the_printed_intersections_do_not_cover_the_union():
    """A'_i = A_i and all earlier A_j, as printed, against complements of the earlier ones."""
    events = [{0}, {1}, {0, 2}]
    everything = set(range(4))
    printed = [set.intersection(*events[: i + 1]) for i in range(3)]
    meant = [events[i] - set().union(*events[:i]) for i in range(3)]
    assert set().union(*printed) == {0} != set().union(*events)
    assert set().union(*meant) == set().union(*events) == {0, 1, 2} < everything
    assert all(not a & b for a, b in itertools.combinations(meant, 2))


def test_the_order_vanishes_as_delta_goes_to_1():
    """log(N/delta) log(1/delta) against the logarithms of n_1, n_2 and n_train at M = 2, H = 3, N = 5."""
    M, H, N = 2, 3, 5

    def order(delta):
        return math.log(N / delta) * math.log(1 / delta)

    def sizes(delta):
        return [math.log(12 * M * H / delta), math.log(6 * M * H / delta), math.log(8 * M * H * N / delta)]

    assert math.log(1 / 0.999999) < 1e-5  # the proof's own log(MH/delta) at M = H = 1 vanishes as well
    assert math.log(6 / 0.999999) > 1.7  # the logarithm of n_2 does not, at M = H = 1
    for m, h, n, k in itertools.product((1, 2), repeat=4):  # Theorem 5 and Corollary 1: log(N M K H/delta)
        assert (math.log(n * m * k * h / 0.999999) < 1e-5) == (m == h == n == k == 1)
        assert min(math.log(8 * n * m * h / 0.999999), math.log(4 * n * m * k * h / 0.999999)) > math.log(4)
        displayed = 3e6 / k * math.log(16 * n * m * h) + 3e5 * math.log(8 * n * m * k * h)  # at delta = 1/2
        assert displayed <= 1.3e7 * math.log(2 * n * m * k * h)
    assert order(0.999999) / order(0.5) < 1e-5
    assert all(late / early > 0.8 for late, early in zip(sizes(0.999999), sizes(0.5), strict=True))


def test_the_share_of_calls_grows_with_the_horizon():
    """Calls of a run on the staircase over those of the proof, in episodes, at K = M + 1 = 4 and n_train = 12 n_test."""

    def share(H, M=3, K=4):
        rounds = Fraction((M - 1) * (H - 1) + 1, M * H)
        return rounds * ((H - 1) * 12 + (H - 2) * K) / Fraction(H * (12 + K))

    shares = [share(H) for H in range(2, 60)]
    assert shares == sorted(shares)
    assert share(4) == Fraction(7, 12) * Fraction(44, 64)
    extra = math.log(share(10) / share(4)) / math.log(10 / 4)  # what it adds to an exponent fitted between 4 and 10
    assert extra == pytest.approx(0.353, abs=0.001)
    assert share(10**6, M=10**6) == pytest.approx(1, abs=1e-5)


def test_there_are_fewer_rounds_than_m_h():
    """(M-1)(H-1) + 2 <= M H for H >= 2, with equality at M + H = 3 only."""
    for M, H in itertools.product(range(1, 20), range(2, 20)):
        assert ((M - 1) * (H - 1) + 2 == M * H) == (M + H == 3)
        assert (M - 1) * (H - 1) + 2 <= M * H


def test_the_policy_risk_takes_half_of_its_margin():
    """Tolerances of L summed over the levels, as a share of 40 sqrt(K) phi H^2, at K = 4: 17% at H = 1, then up to 50%."""

    def share(H, K):
        levels = [4 * math.sqrt(2 * K) + 2 + 40 * (H - h) * math.sqrt(K) for h in range(1, H + 1)]
        return sum(levels) / (40 * math.sqrt(K) * H**2)

    shares = [share(H, 4) for H in range(1, 200)]
    assert shares[0] == pytest.approx(0.1664, abs=1e-4)
    assert shares == sorted(shares)
    assert shares[-1] < 0.5 < shares[-1] + 0.01
    assert max(share(H, K) for H in range(1, 50) for K in range(1, 50)) < 0.5


def test_sizes_in_double_precision_come_one_short():
    """24 log(8 M H N/(delta/2))/phi^2 at H = 5, K = 3, M = 7, log N = 100, epsilon = 0.01, delta = 0.001."""
    H, K, M, log_n = 5, 3, 7, 100
    with localcontext(prec=60):
        per = Decimal(320) ** 2 * H**4 * K / Decimal("0.01") ** 2
        exact = math.ceil(24 * per * ((8 * M * H / (Decimal("0.001") / 2)).ln() + log_n))
    double = math.ceil(24 * (320**2 * H**4 * K / 0.01**2) * (math.log(8 * M * H / 0.0005) + log_n))
    assert exact == 5_217_900_690_249_739
    assert double == exact - 1


def test_bandits_take_k_over_epsilon_squared():
    """n_train + n_1 at M = H = 1 and N = 50: the episodes that the note quotes, to two digits."""

    def episodes(K, epsilon, delta=0.05):
        n_train = 24 * 320**2 * K / epsilon**2 * math.log(8 * 50 / (delta / 2))
        return n_train + 32 * math.log(12 / delta) / epsilon**2

    assert [f"{episodes(K, 0.1):.1e}" for K in (2, 4, 8, 16)] == ["4.8e+09", "9.5e+09", "1.9e+10", "3.8e+10"]
    assert [f"{episodes(4, e):.1e}" for e in (0.2, 0.1, 0.05)] == ["2.4e+09", "9.5e+09", "3.8e+10"]


def test_constants_have_room():
    """2 sqrt(12) < 8 and sqrt(24) < 4 sqrt(2), from 7 + 120/24 = 12; n_test is four times Hoeffding's; 3/4 of epsilon."""
    assert 7 + Fraction(120, 24) == 12
    assert round(2 * math.sqrt(12), 2) == 6.93 < 8
    assert round(math.sqrt(2 * 12), 2) == 4.90 < 4 * math.sqrt(2)
    hoeffding = Fraction(1, 2)  # log(2N/delta)/phi^2 of values in [0, 1]
    assert 2 / hoeffding == 4
    assert Fraction(1, 8) + Fraction(1, 2) + Fraction(1, 8) == Fraction(3, 4)


def test_one_deterministic_policy_is_good():
    """Of K^H action sequences one earns more than 1/2 = max V - epsilon; a mixture does too, but not by epsilon/2."""
    for H, K, epsilon in ((4, 2, Fraction(1, 5)), (2, 3, Fraction(1, 20))):
        secret = (0,) * H
        earned = [Fraction(1, 2) + epsilon * (path == secret) for path in itertools.product(range(K), repeat=H)]
        assert sum(v > max(earned) - epsilon for v in earned) == 1
        mean = sum(earned) / K**H
        assert mean == Fraction(1, 2) + epsilon / K**H > max(earned) - epsilon
        assert mean < max(earned) - epsilon / 2  # with epsilon/2 the statement is about the secret again
    assert Fraction(1, 2) + Fraction(1, 5) / 16 == Fraction(5125, 10000)


def test_the_problem_is_chosen_for_each_t():
    """Arm T mod n, guessed: with c = 1/72 every problem is hit for small epsilon; with T = 0 alone one in n is."""
    n = 16
    for epsilon, hit in ((Fraction(1, 10), n), (Fraction(7, 20), 2)):
        budget = math.floor(n / (72 * epsilon**2))
        assert len({T % n for T in range(budget + 1)}) == hit
    assert math.floor(n * (epsilon**2 / 2) / epsilon**2) < n  # c below epsilon^2 leaves a problem that is never guessed
    for guess in ((1.0, 0.0), (0.3, 0.7), (0.25,) * 4):  # T = 0: any distribution of the answer, K^H >= 2 problems
        assert min(guess) <= 1 / len(guess) <= 2 / 3


def test_a_search_off_the_good_event_visits_the_tree():
    """Where every test fails, DFS-Learn eliminates at all 1 + K + ... + K^(H-1) nodes, more than M H."""

    def eliminations(to_go, K=2):
        return 1 + K * eliminations(to_go - 1, K) if to_go > 1 else 1

    assert [eliminations(H) for H in (1, 3, 5)] == [1, 7, 31]
    assert eliminations(5) > 1 * 5


def test_equation_1_is_the_value_of_an_agent_that_knows_the_state():
    """Two start states, one observation, opposite actions pay 1: the maximum inside the mean is 1, outside it 1/2."""
    pay = {0: (1, 0), 1: (0, 1)}
    assert Fraction(sum(max(pay[s]) for s in pay), 2) == 1
    assert max(Fraction(sum(pay[s][a] for s in pay), 2) for a in (0, 1)) == Fraction(1, 2)


def test_policies_may_be_fewer_than_functions():
    """1000 functions that all prefer action 0: log|Pi| = 0, and log(8 M H N/delta) grows with N all the same."""
    functions = [(0.5 + i / 2000, 0.0) for i in range(1000)]
    assert len({f.index(max(f)) for f in functions}) == 1
    assert math.log(8 * 1000 / 0.05) / math.log(8 / 0.05) > 2


def test_no_algorithm_avoids_log_n():
    """2^d problems, d contexts, each seen or guessed: (1 - 1/d)^T / 2 is lost in the mean; T = 2 and d = 3 enumerated."""
    d, T = 3, 2
    lost = Fraction(0)
    for seen in itertools.product(range(d), repeat=T):
        lost += Fraction(d - len(set(seen)), d) / 2
    assert lost / d**T == (1 - Fraction(1, d)) ** T / 2
    needed = [math.ceil(math.log(2 * 0.2) / math.log(1 - 1 / d)) for d in (64, 1024)]
    assert [n / d for n, d in zip(needed, (64, 1024), strict=True)] == pytest.approx([-math.log(0.4)] * 2, rel=0.02)


def test_distinct_paths_to_one_state():
    """M = 1, K = 2, H = 16: the distinct prefixes of n_2 random paths, learned once each, times n_train: 2.8 to 2.9."""
    H, delta = 16, 0.05

    def episodes(epsilon):
        n2 = math.ceil(8 * math.log(6 * H / delta) / epsilon)
        distinct = sum(2**h * (1 - (1 - 2.0**-h) ** n2) for h in range(1, H))
        return distinct * math.log(8 * H * 2 * 6 * H * H * n2 / delta) / epsilon**2

    assert math.log(episodes(0.1) / episodes(0.4)) / math.log(4) == pytest.approx(2.85, abs=0.05)


def test_eq_10_holds_as_printed():
    """log(N/delta) in Eq. (10) is a slip in the proof; with n_train the inequality holds all the same, for N >= 2.

    A survivor has X^2 <= (4C + sqrt(4 n phi^2 + 44 C^2))^2 with C^2 = log(2N/delta), and E Y + phi^2 = X^2/n - phi^2.
    """
    for N, delta in itertools.product((2, 3, 1000), (1e-6, 0.1, 0.999)):
        c2, n = math.log(2 * N / delta), 24 * math.log(4 * N / delta)  # n in units of 1/phi^2
        largest = (4 * math.sqrt(c2) + math.sqrt(4 * n + 44 * c2)) ** 2
        assert largest / n - 1 <= 7 + 120 * math.log(N / delta) / n


def test_the_wall_and_what_the_best_algorithm_needs():
    """1/2 + sqrt(8/72)/2 is 2/3. With two arms, by recursion: 4.4, 5.8 and 6.5 times the wall, and 6.68 in the limit."""
    assert Fraction(1, 2) + Fraction(1, 2) * Fraction(1, 3) == Fraction(2, 3)
    assert Fraction(8, 72) == Fraction(1, 3) ** 2
    assert Fraction(8, 36) > Fraction(1, 3) ** 2  # with 36 the bound is above 2/3

    def first_success(epsilon):
        """Returns the least T with which some algorithm is right with probability above 2/3, as a multiple of the wall."""
        up, down = 1 + 2 * epsilon, 1 - 2 * epsilon

        @functools.cache
        def best(a, b, c, d, left):  # wins and losses of both arms; likelihood ratios against fair coins
            if left == 0:
                return max(up**a * down**b, up**c * down**d) / 2
            first = best(a + 1, b, c, d, left - 1) + best(a, b + 1, c, d, left - 1)
            second = best(a, b, c + 1, d, left - 1) + best(a, b, c, d + 1, left - 1)
            return max(first, second) / 2

        wall = math.floor(2 / (72 * epsilon**2))
        assert best(0, 0, 0, 0, wall) <= 0.8484 * 2 / 3  # Theorem 2, with 72 and an arm for an answer
        T = next(T for T in itertools.count() if best(0, 0, 0, 0, T) > Fraction(2, 3))
        return T / (2 / (72 * epsilon**2))

    assert float(first_success(Fraction(7, 20))) == pytest.approx(4.41, abs=0.005)
    assert float(first_success(Fraction(1, 5))) == pytest.approx(5.76, abs=0.005)
    assert first_success(0.1) == pytest.approx(6.48, abs=0.005)
    # With one arm played T times and small epsilon the answer is right with probability Phi(epsilon sqrt(T)).
    assert 36 * NormalDist().inv_cdf(2 / 3) ** 2 == pytest.approx(6.68, abs=0.005)


def test_one_step_of_the_risk_lemma_counts_an_action_twice():
    """K = 2, both policies take action 0, all of the error there: 1/2 is not at least 1; what is used, 1/2 >= 0, holds."""
    errors, K, of_f, of_star = (Fraction(1), Fraction(0)), 2, 0, 0
    left = sum(e**2 for e in errors) / K
    middle = (errors[of_f] ** 2 + errors[of_star] ** 2) / K
    right = (errors[of_star] - errors[of_f]) ** 2 / (2 * K)
    assert (left, middle, right) == (Fraction(1, 2), 1, 0)
    assert left < middle
    for other in ((a, b) for a, b in itertools.product((-1, 0, 1), repeat=2)):  # left >= right whatever is played
        for f, star in itertools.product(range(2), repeat=2):
            assert Fraction(sum(e**2 for e in other), K) >= Fraction((other[star] - other[f]) ** 2, 2 * K)


def test_the_variance_bound_survives_estimates_outside():
    """Y's second factor is at most 3 + 2 phi where estimates may leave [0, 1] by phi, so at most 4 for phi <= 1/2."""
    for wide in (Fraction(0), Fraction(1, 4), Fraction(1, 2)):
        largest = max(
            abs(f - v_hat + (mean + e) - 2 * r)
            for f in (0, 1)
            for v_hat in (-wide, 1 + wide)
            for mean in (0, Fraction(1, 2), 1)  # of the reward: f* less its child value, which is not negative
            for e in (-wide, wide)
            for r in (0, 1)
        )
        assert largest == 3 + 2 * wide <= 4


def test_hoeffding_with_twice_the_range():
    """2,000 fair coins, N = 1, delta = 0.1: beyond the printed error with probability below 10^-6, beyond half 0.014."""
    n, delta = 2000, 0.1
    row = [1]
    for k in range(n):
        row.append(row[-1] * (n - k) // (k + 1))  # n over k + 1

    def beyond(error):
        return float(Fraction(sum(row[k] for k in range(n + 1) if abs(k / n - 0.5) > error), 2**n))

    printed = math.sqrt(2 * math.log(2 / delta) / n)
    assert beyond(printed) < 1e-6
    assert beyond(printed / 2) == pytest.approx(0.014, abs=0.001)
    assert beyond(printed / 2) <= delta  # half of it is Hoeffding's inequality for a range of length 1


def test_searches_are_fewer_than_m_h():
    """One state at the first level, M at the others: 1 + M (H-1), which is 11 at M = 2, H = 6."""
    assert 1 + 2 * (6 - 1) == 11
    assert all(1 + M * (H - 1) <= M * H for M in range(1, 30) for H in range(1, 30))


def test_v_star_is_known_better():
    """phi/sqrt(12) + 8 phi sqrt(K) + 2 phi + 20 (H-1) sqrt(K) phi is below epsilon/(16 H), and at most 0.0322 epsilon."""

    def added(H, K):
        root = math.sqrt(K)
        return phi(H, K) * (1 / math.sqrt(12) + 8 * root + 2 + 20 * (H - 1) * root)

    sums = {(H, K): added(H, K) for H in range(1, 101) for K in range(1, 51)}
    assert all(s < 1 / (16 * H) for (H, _), s in sums.items())
    assert max(sums.values()) == pytest.approx(0.0322, abs=5e-5)
    for K in (1, 7, 10**6):  # in general: 20 H < 320 H / 16 leaves 20 for what does not grow with H
        assert 1 / math.sqrt(12 * K) + 8 + 2 / math.sqrt(K) < 20


def test_typos_by_their_arithmetic():
    """The policy risk's inductive step, and 7 + 5 = 12 in the bias lemma.

    With eta actions to go a state adds 4 sqrt(2) + 2/sqrt(K) + 40 (eta - 1), in units of sqrt(K) phi. With 40 (eta - 1)^2
    for what comes after the sum is at most 40 eta^2; with 40 (h - 1)^2, h being the level H - eta + 1, it is not.
    """
    for H, K in ((3, 1), (10, 2), (10, 50)):
        own = [4 * math.sqrt(2) + 2 / math.sqrt(K) + 40 * (eta - 1) for eta in range(1, H + 1)]
        meant = [own[eta - 1] + 40 * (eta - 1) ** 2 <= 40 * eta**2 for eta in range(1, H + 1)]
        printed = [own[eta - 1] + 40 * (H - eta) ** 2 <= 40 * eta**2 for eta in range(1, H + 1)]
        assert all(meant)
        assert not all(printed)
    for N, delta in ((2, 0.1), (1000, 1e-6)):
        n_train = 24 * math.log(4 * N / delta)  # times 1/phi^2
        assert 7 + 120 * math.log(2 * N / delta) / n_train <= 12
