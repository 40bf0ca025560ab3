"""Claims in words: two sentences that rest on different things, and numbers that never promise more than was shown."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

import richobs
from richobs.classes.tables import Constants
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.events import Progress
from richobs.core.outcome import StopReason, claim_words
from richobs.core.units import UnitsChosen
from richobs.core.words import at_least, at_most, exact_words, number_words
from richobs.show.terminal import Watch


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (0.1, "0.1", "0.1"),
        (np.float32(0.5), "0.5", "0.5"),
        (0.40602799999, "0.406", "0.4061"),
        (-13.0, "-13", "-13"),
        (-2 / 3, "-0.6667", "-0.6666"),
        (0.50004, "0.5", "0.5001"),
        (0.99996, "0.9999", "1"),
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (1234567.0, "1.23·10^6", "1.24·10^6"),
        (1.2345e-7, "1.23·10^-7", "1.24·10^-7"),
        (999999.5, "999900", "10^6"),
        (math.inf, "∞", "∞"),
    ],
)
def test_lower_bounds_are_rounded_down_and_upper_bounds_up(value, down, up):
    assert (number_words(value, up=False), number_words(value, up=True)) == (down, up)
    assert (at_least(value), at_most(value)) == (down, up)


def test_a_narrow_range_has_more_digits():
    assert at_least(1000.2537, (1000.0, 1001.0)) == "1000.253"
    assert at_most(-399.87654, (-400.0, 0.0)) == "-399.8"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((0.1, "0.1"), (500.0, "500"), (-0.0, "0"), (1e-9, "1E-9")),
        *((0.12345678901, "0.12345678901"), (1e6 + 0.5, "1000000.5")),
    ],
)
def test_what_was_asked_or_declared_keeps_its_digits(value, words):
    assert exact_words(value) == words


def test_bounds_that_are_shown_while_a_run_goes_are_rounded_to_their_side():
    console = Console(file=io.StringIO(), width=200, record=True)
    watch = Watch("a run", 3.0, None, console, plain=False)
    watch(Progress(UnitsChosen(phase="search", shift=0.0, scale=2.0), 10, 0.50004, 0.49996))
    console.print(watch)
    assert "policy at least 0.4999, V* at most 0.5001" in console.export_text()


ALWAYS = "This needs: episodes are independent; rewards and their totals lie in the declared ranges"
FIRST = "With probability at least 0.95: (1) the policy earns at least 0.41 in expectation. " + ALWAYS
SHARPER = " (2) is sharper than (1) because all surviving functions agree about this policy."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"lower": 0.41, "upper": 0.5},
            f"{FIRST}. (2) It loses at most 0.1 to the best policy, and no policy earns more than 0.5. This also needs: a; "
            "b.",
        ),
        (
            {"lower": 0.41, "upper": 0.6, "sampling": ["it is so"]},
            f"{FIRST}; it is so. (2) It loses at most 0.1 to the best policy, and no policy earns more than 0.6. This also "
            f"needs: a; b.{SHARPER}",
        ),
        (
            {"lower": 0.41, "upper": 1.0},  # the end of the range is no finding
            f"{FIRST}. (2) It loses at most 0.1 to the best policy. This also needs: a; b.{SHARPER}",
        ),
        (
            {"lower": 0.0, "upper": 0.5},
            "With probability at least 0.95 the policy loses at most 0.1 to the best policy in expectation, and no policy "
            f"earns more than 0.5. {ALWAYS}; a; b.",
        ),
        (
            {},
            "With probability at least 0.95 the policy loses at most 0.1 to the best policy in expectation. "
            f"{ALWAYS}; a; b.",
        ),
        (
            {"lower": 0.41, "upper": 0.5, "from_models": True},
            "With probability at least 0.95 the policy earns at least 0.41 in expectation, loses at most 0.1 to the best "
            f"policy, and no policy earns more than 0.5. {ALWAYS}; a; b.",
        ),
        (
            {"epsilon": 1.0000001, "lower": 0.0, "upper": 1.0},
            "Nothing is shown: the episodes say no more of the policy than the declared range does.",
        ),
    ],
)
def test_a_claim_says_once_what_was_found_and_what_it_needs(given, said):
    common = {"epsilon": 0.1, "sampling": (), "reward_range": (0.0, 1.0), "reason": StopReason.AGREEMENT}
    assert claim_words(0.05, assumptions=["a", "b"], **(common | given)) == said


@pytest.mark.parametrize("seed", [11, 15])
def test_the_bound_and_the_policy_of_a_progress_belong_together(seed):
    """A candidate is replaced by a worse one here, after its W was looked at."""
    means = np.array([0.5, 0.6, 0.4, 0.3])

    class Arms:
        horizon, n_actions, reward_range = 1, 4, (0.0, 1.0)

        def play(self, policy, n, rng, levels=None):
            x = np.zeros((n, 1))
            a = np.asarray(policy.actions(0, x, rng))
            return Episodes((x,), (a,), ((rng.random(n) < means[a]).astype(float),))

    others = np.random.default_rng(0).choice(np.linspace(0.1, 0.9, 9), size=(60, 4))
    functions = richobs.Layered([Constants(np.concatenate([means[None], others]))])
    pairs = []

    def listen(progress):
        if progress.policy is not None:
            pairs.append((progress.lower, means[progress.policy().actions(0, np.zeros((1, 1)))[0]]))

    asked = {"epsilon": 0.05, "threshold": 0.55, "max_episodes": 1500, "tuning": {"first": 4}}
    richobs.learn(Arms(), functions, seed=seed, callback=listen, **asked)
    assert all(lower <= value for lower, value in pairs)
    assert max(lower for lower, _ in pairs) > 0.3


class Copying:
    """Action x pays 1 at observation x."""

    horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        x = rng.integers(2, size=(n, 1)).astype(float)
        a = np.asarray(policy.actions(0, x, rng))
        return Episodes((x,), (a,), ((a == x[:, 0]).astype(float),))


def copied(level, x):
    return np.eye(2)[x[:, 0].astype(int)]


def normalised(level, x):
    """As batch normalisation that is still learning: observations are compared with the mean of the batch."""
    return np.eye(2)[(x[:, 0] > x[:, 0].mean()).astype(int)]


def divided(level, x):
    return copied(level, x) * (1.0 if len(x) > 1 else 0.5)


@pytest.mark.parametrize(("wrong", "apart"), [(normalised, "1"), (divided, "0.5")])
@pytest.mark.parametrize("others", [[], [copied]])
def test_values_that_depend_on_the_batch_are_refused_before_a_policy_is_handed_out(wrong, apart, others):
    functions = richobs.Callables([wrong, *others, lambda level, x: np.zeros((len(x), 2))], 1, 2)
    with pytest.raises(
        InvalidInput, match=f"for an observation alone than for the same one among 8.*differ by {apart}"
    ):
        richobs.learn(Copying(), functions)


def test_rounding_may_depend_on_the_batch():
    def rounded(level, x):
        return copied(level, x) * np.float64(1 - (len(x) > 1) * 2.0**-24)

    outcome = richobs.learn(Copying(), richobs.Callables([rounded, lambda level, x: np.zeros((len(x), 2))], 1, 2))
    assert outcome.policy.actions(0, np.array([[1.0]])).tolist() == [1]
