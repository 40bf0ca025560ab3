"""What the text of [KAL16] says beside its numbered statements: about |X|, M, N, trees, histories, and equation (1).

The number of observations does not enter; states count as different only where learning one leaves the other unlearned; work
grows with N, and log N cannot be avoided; sampling a tree takes K^H; with deterministic transitions a history tells Q*; and
equation (1) is what an agent earns that knows the state. Everything is exact or counted; nothing is timed.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from richobs import FunctionClass, Layered, Problem, Rewards, Settings, Tables, TabularProcess, Truth, make
from richobs.classes import TableLevel
from richobs.core.ledger import Ledger
from richobs.core.queries import Answer, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.runs.session import run
from richobs.show.palette import BLUE, GREEN, ORANGE, RED
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine
from richobs_lab.lsvee.constants import PaperConstants
from richobs_lab.lsvee.dfs import LsveeSearch, learn_from
from richobs_lab.lsvee.spaces import td_space
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale, of_kind
from richobs_lab.paper.rigs.asked import printed_episodes
from richobs_lab.paper.rigs.corners import NUDGE
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.rivals.sparse_sampling import sparse_sampling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "remarks"
TITLE = "What the text says beside its theorems"
SAYS = (
    "Episodes do not depend on |X|; M may be read as the number of states that differ in value; time may be O(N), and "
    "log N is believed to be unavoidable; sparse sampling takes K^H samples; with deterministic transitions Q* is a "
    "function of the history."
)
EPSILON, DELTA = 0.2, 0.1
SAMPLES = 5  # of every node of the tree
SMALL = 1e-12


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns the work, one piece per point."""
    full = scale == "full"
    work: list[Plain] = [{"kind": "observations", "size": 10**i} for i in range(1, 7 if full else 5)]
    work += [
        {"kind": "states", "n_states": m, "copies": c}
        for c in (True, False)
        for m in ((1, 2, 4, 8) if full else (2, 4))
    ]
    work += [
        {"kind": "work", "members": n, "product": b}
        for b in (False, True)
        for n in ((10, 100, 1000) if full else (10, 100))
    ]
    work += [{"kind": "log N", "contexts": d} for d in (2, 3, 8, 16, 64, 256, 1024)]
    work += [{"kind": "tree", "horizon": H, "n_actions": 2} for H in ((2, 4, 6, 8, 10) if full else (2, 4, 6))]
    work += [{"kind": "history", "seed": seed} for seed in range(20 if full else 5)]
    return [*work, {"kind": "achievable"}, {"kind": "policies", "functions": 1000}]


def measure(piece: Plain, /) -> Plain:
    """Returns what one piece measured."""
    by_kind: dict[str, Callable[..., Plain]] = {
        "observations": measure_observations,
        "states": measure_states,
        "work": measure_work,
        "log N": measure_log_n,
        "tree": measure_tree,
        "history": measure_history,
        "achievable": measure_achievable,
        "policies": measure_policies,
    }
    return by_kind[piece["kind"]](**{k: v for k, v in piece.items() if k != "kind"})


def measure_observations(size: int) -> Plain:
    """Runs LSVEE, repeats counted, where a level shows `size` observations, half of them in each of two states."""
    x = np.arange(size)
    worth, good = np.where(x < size // 2, 0.8, 0.4), np.eye(2)[x % 2]  # [X], [X, K]
    own = np.kron(np.eye(2), np.full(size // 2, 2 / size))  # [S, X]
    last = worth[:, None] * good  # [X, K] the action that pays follows from what is seen
    process = TabularProcess(
        start=np.ones(1),
        transitions=(np.array([[0, 1]]),),
        emissions=(np.full((1, size), 1 / size), own),
        rewards=(Rewards.deterministic(0.0), Rewards.deterministic(np.stack([last, last]))),
    )
    first = np.broadcast_to([0.8, 0.4], (size, 2))
    liked = worth[:, None] + NUDGE * good[:, ::-1]  # right about values, wrong about actions
    tables = [(first, liked), (first[:, ::-1], last), (first, last)]
    functions = Tables([np.stack(level) for level in zip(*tables, strict=True)])
    world = TabularWorld(process)
    truth = Truth(process.optimum.value, 2, world)
    problem = Problem(WorldEnvironment(world), functions, process, process.n_states, truth)
    outcome = run(problem, Settings(epsilon=EPSILON, delta=DELTA, learner="lsvee"))
    gap = problem.optimal_value - problem.value(outcome.policy)
    return {"episodes": printed_episodes(outcome), "rounds": outcome.rounds, "right": bool(gap <= EPSILON)}


def measure_states(n_states: int, copies: bool) -> Plain:
    """Counts eliminations of a search among m states a level that differ in what they show, or do not.

    Every state pays 1/2. A function of a level is wrong about one of m observations. States that show one observation each
    have values of their own under such functions; states that show all of them alike have the same.
    """
    H, m = 3, n_states
    shows = np.full((m, m), 1 / m) if copies else np.eye(m)
    process = TabularProcess(
        start=np.ones(1),
        transitions=(np.arange(m)[None], *(np.tile(np.arange(m), (m, 1)),) * (H - 2)),
        emissions=(np.ones((1, 1)), *(shows,) * (H - 1)),
        rewards=(*(Rewards.deterministic(0.0),) * (H - 1), Rewards.deterministic(0.5)),
    )
    wrong = np.concatenate([np.zeros((1, m)), 0.2 * np.eye(m)])  # [1 + m, X] which observation, for each function
    later = np.broadcast_to(0.5 + wrong[:, :, None], (1 + m, m, m))
    functions = Layered([TableLevel(np.full((1, 1, m), 0.5)), *(TableLevel(later) for _ in range(H - 1))])
    numbers = constants(H, m, m, functions)
    engine = CountedEngine(process, functions, seed=0, ledger=Ledger())
    search = LsveeSearch(engine, td_space(functions), numbers)
    learn_from(search, (), numbers.search)
    return {"eliminations": search.eliminations, "levels": H, "states": 1 + m * (H - 1)}


def constants(H: int, K: int, M: int, functions: FunctionClass) -> PaperConstants:
    """Returns the paper's numbers for a class."""
    return PaperConstants.of(
        horizon=H, n_actions=K, n_states=M, log_size=functions.log_size, epsilon=EPSILON, delta=DELTA
    )


class Counting:
    """An engine that counts the functions whose values it is asked for."""

    name = "counting"

    def __init__(self, inner: CountedEngine):
        self.inner, self.ledger = inner, inner.ledger
        self.queries = self.values = 0

    def ask(self, query: Query, /) -> Answer:
        """Passes the query on."""
        answer = self.inner.ask(query)
        self.queries += 1
        self.values += sum(len(m.v_mean) for m in answer.moments)
        return answer


def measure_work(members: int, product: bool) -> Plain:
    """Counts values of functions that the tests and eliminations of one search look at: a list, or a product of levels."""
    H = 2
    process = make("random", seed=0, horizon=H, n_states=2, n_actions=2).process
    assert process is not None
    tables = [np.clip(q + 0.1 * np.arange(members)[:, None, None] / members, 0, 1) for q in process.q_tables]
    functions: FunctionClass = Layered([TableLevel(t) for t in tables]) if product else Tables(tables)
    numbers = constants(H, 2, 2, functions)
    engine = Counting(CountedEngine(process, functions, seed=0, ledger=Ledger()))
    learn_from(LsveeSearch(engine, td_space(functions), numbers), (), numbers.search)
    return {"each": engine.values / engine.queries, "size": round(math.exp(functions.log_size)), "members": members}


def measure_log_n(contexts: int) -> Plain:
    """Computes the least T with which an algorithm can be within epsilon in the mean over N = 2^d contextual bandits.

    d contexts, equally likely; in each of them one of two actions pays 1, the other 0, and all 2^d ways are equally likely.
    A context that was seen is known, one that was not is guessed: the best algorithm loses (1 - 1/d)^T / 2 in the mean.
    """
    d, T = contexts, 0
    while (1 - 1 / d) ** T / 2 > EPSILON:
        T += 1
    small = [(t, enumerated_loss(d, t)) for t in range(4)] if d <= 3 else []
    return {"episodes": T, "off": max((abs(loss - (1 - 1 / d) ** t / 2) for t, loss in small), default=0.0)}


def enumerated_loss(d: int, T: int) -> float:
    """Returns the smallest mean loss of any answer after T episodes, over all problems, contexts and histories."""
    problems = list(itertools.product((0, 1), repeat=d))
    loss = 0.0
    for seen in itertools.product(range(d), repeat=T):
        alike: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for problem in problems:
            alike.setdefault(tuple(problem[x] for x in seen), []).append(problem)
        for group in alike.values():  # problems that this history does not tell apart: answer what most of them say
            ones = np.sum(group, axis=0)
            loss += float(np.minimum(ones, len(group) - ones).sum()) / d / len(problems) / d**T
    return loss


def measure_tree(horizon: int, n_actions: int) -> Plain:
    """Counts episodes of sparse sampling with a fixed number of samples of a node."""
    process = TabularProcess(
        start=np.ones(1),
        transitions=(np.zeros((1, n_actions), dtype=np.int64),) * (horizon - 1),
        emissions=(np.ones((1, 1)),) * horizon,
        rewards=(Rewards.deterministic(1 / horizon),) * horizon,
    )
    engine = CountedEngine(process, Tables([q[None] for q in process.q_tables]), seed=0, ledger=Ledger())
    sparse_sampling(engine, horizon, n_actions, SAMPLES)
    return {"episodes": engine.ledger.total}


def measure_history(seed: int) -> Plain:
    """Computes how far Q* differs between states that one history leads to, and again where moves are random.

    Two states a level show the same two observations and pay what they like, so that Assumption 1 does not hold.
    """
    rng, H = keyed_generator(seed, NAME, "history"), 3

    def world(moves: list[Floats]) -> TabularProcess:
        return TabularProcess(np.eye(2)[0], tuple(moves), tuple(shown), tuple(paid))

    shown = [rng.dirichlet(np.ones(2), size=2) for _ in range(H)]
    paid = [Rewards.deterministic(rng.random((2, 2, 2)) / H) for _ in range(H)]
    moves = [np.eye(2)[rng.integers(2, size=(2, 2))] for _ in range(H - 1)]
    mixed = [rng.dirichlet(np.ones(2), size=(2, 2)) for _ in range(H - 1)]
    return {"deterministic": history_spread(world(moves)), "random": history_spread(world(mixed))}


def history_spread(process: TabularProcess) -> float:
    """Returns the widest range of Q* over the states that one history (x_1, a_1, ..., x_h) may have led to."""
    worst = 0.0
    beliefs = [set(np.flatnonzero(process.start).tolist())]  # states that a history so far may have led to
    for h, emission in enumerate(process.emissions):
        after = []
        for belief, x in itertools.product(beliefs, range(emission.shape[1])):
            here = [s for s in belief if emission[s, x] > 0]
            if here:
                worst = max(worst, float(np.ptp(process.optimum.q[h][here, x], axis=0).max()))
                if h < process.horizon - 1:
                    reached = process.transitions[h][here] > 0  # [states, K, S']
                    after += [set(np.flatnonzero(reached[:, a].any(axis=0)).tolist()) for a in range(process.n_actions)]
        beliefs = list({frozenset(b): b for b in after}.values())
    return worst


def measure_achievable() -> Plain:
    """Computes equation (1) and the best that an agent earns: two start states, one observation, opposite actions pay."""
    pay = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    process = TabularProcess(np.full(2, 0.5), (), (np.ones((2, 1)),), (Rewards.deterministic(pay),))
    return {"defined": process.optimum.value, "achieved": float((process.start[:, None] * pay[:, 0]).sum(axis=0).max())}


def measure_policies(functions: int) -> Plain:
    """Computes an elimination's size for N functions with one greedy policy among them all, and for one function."""
    many, one = (Printed(2, 2, 2, math.log(n), EPSILON, DELTA).root.n_train for n in (functions, 1))
    values = 0.5 + 0.4 * np.arange(functions) / functions  # of action 0; action 1 is worth 0 to all of them
    policies = len(np.unique(np.stack([values, np.zeros(functions)], axis=1).argmax(axis=1)))
    return {"policies": policies, "ratio": many / one}


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Returns what follows."""
    seen, states, work, logs, trees, histories, achieved, policies = (
        list(of_kind(kind, pieces, results))
        for kind in ("observations", "states", "work", "log N", "tree", "history", "achievable", "policies")
    )
    episodes = {r["episodes"] for _, r in seen}
    grown = [r["episodes"] / p["contexts"] for p, r in logs if p["contexts"] >= 8]
    nodes = {p["horizon"]: sum(p["n_actions"] ** h for h in range(1, p["horizon"] + 1)) for p, _ in trees}
    (eq, one) = achieved[0][1], policies[0][1]
    checks = (
        Check(
            "|X| does not enter: the same number of episodes, whatever the number of observations",
            len(episodes) == 1 and all(r["right"] and r["rounds"] == 2 for _, r in seen),
            f"{max(episodes):,} episodes at |X| = "
            + ", ".join(f"{p['size']:,}" for p, _ in seen)
            + "; one failed round each, all epsilon-optimal",
        ),
        Check(
            "the refined notion of M, in the search: one elimination a level where states differ in no value, one a state "
            "where they do",
            all(r["eliminations"] == (r["levels"] if p["copies"] else r["states"]) for p, r in states),
            "; ".join(
                f"{p['n_states']} {'copies' if p['copies'] else 'states that differ'} a level: {r['eliminations']}"
                for p, r in states
            )
            + ". Counted in the search at the root; on demand every collected path is learned",
        ),
        Check(
            "O(N) time: a test or an elimination looks at N values of a list, and at those of a level of a product",
            all(r["each"] == r["members"] and (p["product"] or r["size"] == r["members"]) for p, r in work),
            "; ".join(f"{'product' if p['product'] else 'list'} of N = {r['size']:,}: {r['each']:g}" for p, r in work)
            + ". The paper says that it may be O(N)",
        ),
        Check(
            "log N cannot be avoided: over N = 2^d bandits no algorithm is within epsilon in the mean before d log(1/(2 "
            "epsilon)) episodes, nearly",
            max(r["off"] for _, r in logs) < SMALL and all(0.8 <= g / -math.log(2 * EPSILON) <= 1.2 for g in grown),
            "exact, checked by enumeration for d = 2 and 3: "
            + "; ".join(f"d = {p['contexts']}: {r['episodes']}" for p, r in logs)
            + ". Here |X| = d = log_2 N: the example shows that log N is needed where there are that many observations, and "
            "not that |X| enters. The paper says that it believes so",
        ),
        Check(
            "sparse sampling takes K + ... + K^H times its samples of a node",
            all(r["episodes"] == SAMPLES * nodes[p["horizon"]] >= p["n_actions"] ** p["horizon"] for p, r in trees),
            "; ".join(f"H = {p['horizon']}: {r['episodes']:,}" for p, r in trees)
            + f", K = 2, {SAMPLES} samples. Counted of our own code, "
            "which goes to every node by construction, as the published method does; no code of others was run",
        ),
        Check(
            "Q* is a function of the history where transitions are deterministic, and not where they are random",
            all(r["deterministic"] < SMALL for _, r in histories) and max(r["random"] for _, r in histories) > 0.01,
            f"{len(histories)} worlds without Assumption 1; widest range of Q* after one history "
            f"{max(r['deterministic'] for _, r in histories):.1g}, and {max(r['random'] for _, r in histories):.2g} where "
            "moves are random",
        ),
        Check(
            "equation (1) is what can be achieved where Assumption 1 or 3 holds: it is the value of an agent that is told "
            "the state",
            eq["defined"] == 1 and eq["achieved"] == 0.5,
            f"two start states, one observation: V* is {eq['defined']:g}, the best policy earns {eq['achieved']:g}",
            reading="Assumption 1, under which a reactive policy attains it, or Assumption 3, under which actions tell the "
            "state",
        ),
        Check(
            "log|Pi| in the abstract and the introduction: sizes go with log N",
            one["policies"] == 1 and one["ratio"] > 1.2,
            f"{policies[0][0]['functions']} functions with one policy: n_train is {one['ratio']:.2f} times that of one "
            "function, log|Pi| is 0",
            reading="each function counts as a policy of its own, |Pi| = N, delta is fixed, and O is O~: other logarithms "
            "are left out",
        ),
    )
    rows = [
        (p["kind"], str({k: v for k, v in p.items() if k != "kind"}), str(r))
        for p, r in zip(pieces, results, strict=True)
    ]
    sample = f"epsilon {EPSILON}, delta {DELTA}; counted or exact, seeds from 0."
    return Conclusion(checks, ("remark", "where", "found"), tuple(rows), sample)


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the sweep of |X|, eliminations against states, episodes against log N, and the tree."""
    figure.set_size_inches(10, 6.4)
    axes = figure.subplots(2, 2)
    seen = list(of_kind("observations", pieces, results))
    axes[0, 0].plot([p["size"] for p, _ in seen], [r["episodes"] for _, r in seen], "o-", color=BLUE)
    low = min(r["episodes"] for _, r in seen)
    axes[0, 0].set(xscale="log", yscale="log", ylim=(low / 10, low * 10), xlabel="observations |X|", ylabel="episodes")
    axes[0, 0].set_title("|X| does not enter")
    for copies, colour, label in ((True, GREEN, "copies"), (False, ORANGE, "states that differ in value")):
        mine = [
            (p["n_states"], r["eliminations"]) for p, r in of_kind("states", pieces, results) if p["copies"] == copies
        ]
        axes[0, 1].plot(*zip(*mine, strict=True), "o-", color=colour, label=label)
    axes[0, 1].set(xlabel="states a level", ylabel="eliminations, H = 3", ylim=(0, None))
    axes[0, 1].set_title("What counts as a state")
    axes[0, 1].legend()
    logs = [(p["contexts"], r["episodes"]) for p, r in of_kind("log N", pieces, results)]
    axes[1, 0].plot(*zip(*logs, strict=True), "o-", color=RED)
    axes[1, 0].set(xscale="log", yscale="log", xlabel="$\\log_2 N$", ylabel="episodes that any algorithm needs")
    axes[1, 0].set_title("log N cannot be avoided")
    trees = [(p["horizon"], r["episodes"]) for p, r in of_kind("tree", pieces, results)]
    axes[1, 1].plot(*zip(*trees, strict=True), "o-", color=BLUE, label="sparse sampling")
    axes[1, 1].plot([H for H, _ in trees], [2**H for H, _ in trees], color=ORANGE, linestyle="--", label="$K^H$")
    axes[1, 1].set(yscale="log", xlabel="horizon H, K = 2", ylabel="episodes")
    axes[1, 1].set_title("A tree takes $K^H$")
    axes[1, 1].legend()
