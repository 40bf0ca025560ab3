"""Theorem (guarantee for DFS-Learn): what holds at every node that it learned, how often it calls what, and its episodes.

Searches over random processes whose classes hold functions on the scale of the thresholds: some exactly as far apart as a
consensus test lets pass, some just beyond, some that drift by what an elimination lets pass at every level. A witness beside
the search compares everything with exact values while it runs.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from richobs import BrokenPromise, FunctionClass, Layered, Progress, Rewards, TabularProcess, make
from richobs.classes import TableLevel, listed_product
from richobs.core.ledger import Ledger
from richobs.core.moments import Moments
from richobs.core.queries import Answer, Query
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Member, Path
from richobs.learners.version_space import Elimination
from richobs.show.palette import BLUE, GREEN, GREY, ORANGE
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.lsvee.constants import PaperConstants, SearchConstants
from richobs_lab.lsvee.dfs import ConsensusTested, LsveeSearch, NodeEliminated, learn_from
from richobs_lab.lsvee.spaces import NodeRisk, TdSpace, td_space
from richobs_lab.paper.base import Check, Conclusion, Plain, Scale
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.paper.rigs.watched import state_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "dfs-learn"
TITLE = "Theorem (guarantee for DFS-Learn)"
SAYS = (
    "With probability at least 1 - delta the conclusions of the theorem for TD-Elim hold with tau_1 = 20 (H - "
    "h) sqrt(K) phi "
    "at every node of level h on which DFS-Learn called it. It calls TD-Elim T <= M H times, Consensus at most M K H times, "
    "and plays at most 3*10^6 T H^4 K/eps^2 log(8NMH/delta) + 3*10^5 T H^4 K^2/eps^2 log(4NMKH/delta) episodes."
)
DELTA, CONFIDENCE = 0.1, 0.99
WIDE = (0.2, 0.5, 0.8, 0.97, 1.2)  # how far apart, of what a consensus test lets pass
DIVISORS = (4, 1024, 10**6)  # of the sample sizes, to measure the margin
LEFT_OUT: tuple[list[int], ...] = ([], [0, 1], [1, 2, 3])  # of the middle level of "paired" classes
KINDS = ("", "", "", "mixed", "beyond", "sparse")
ORDER = (
    3e6 * 4 + 3e5 * 3
)  # log 16 and log 8 over log 2: the displayed bound over its order where all else is 1, delta 1/2
DRIFT = (0.5, 1.0, 1.4, 1.6, 3.0)  # TD error at every level, in phi; eliminations let about 1.7 pass


def pieces(scale: Scale, /) -> list[Plain]:
    """Returns searches over processes of every small shape, some of them verbatim and some from below the root."""
    searches = 60 if scale == "fast" else 1500
    rng = keyed_generator(0, "shapes of searches")
    work: list[Plain] = [
        {
            "seed": seed,
            "class": ("wide", "beyond", "mixed", "sparse")[seed % 4],
            "horizon": int(rng.integers(1, 7)),
            "states": int(rng.integers(1, 5)),
            "actions": int(rng.integers(1, 5)),
            "overlap": float(rng.integers(2)) / 2,
            "verbatim": bool(rng.random() < 0.2),
            "below": bool(rng.random() < 0.1),
            "epsilon": float(rng.choice([0.1, 0.9])),
            "delta": DELTA,
        }
        for seed in range(searches)
    ]
    hard = [p for p in work if p["class"] == "beyond" and p["horizon"] > 2 and p["states"] > 1 and not p["below"]]
    sparse = [p for p in work if p["class"] == "sparse" and p["horizon"] > 2 and p["states"] > 1 and not p["below"]]
    work += [
        {**hard[i % len(hard)], "seed": 10_000 + i, "divided": d, "verbatim": False}
        for d in DIVISORS
        for i in range(12 if scale == "fast" else 100)
    ]
    work += [
        {**p, "cap": True, "bound": 1, "overlap": 0.0, "verbatim": False}
        for p in sparse[: 4 if scale == "fast" else 20]
    ]
    work += [
        {"twin": True, "seed": seed, "class": "paired", "left_out": [], "horizon": 3, "overlap": 0.0}
        | {"states": 2, "actions": 2, "epsilon": 0.9, "delta": DELTA}
        | ({"left_out": LEFT_OUT[seed % 6]} if seed % 6 < len(LEFT_OUT) else {"class": KINDS[seed % 6], "horizon": 2})
        for seed in range(12 if scale == "fast" else 60)
    ]
    return work


class Witness:
    """An engine that plays what it is asked and compares estimates and preconditions with exact values."""

    name = "witness"

    def __init__(self, inner: CountedEngine, process: TabularProcess, tables: list[Floats], phi: float):
        self.inner, self.ledger = inner, inner.ledger
        self.process, self.phi, self.K = process, phi, process.n_actions
        self.heads = [t.max(axis=2) @ e.T for t, e in zip(tables, process.emissions, strict=True)]  # per level [N, S]
        self.losses = [_losses(process, h, t) for h, t in enumerate(tables)]  # per level [N, S]
        self.search: LsveeSearch | None = None
        self.worst = dict.fromkeys(("estimation", "consensus", "precondition", "bias", "risk"), 0.0)  # over bounds
        self.claim: dict[int, float] = {}  # actions to go -> largest disagreement at an accessed path / (sqrt(K) phi)
        self.learned: set[tuple[int, int]] = set()  # states on which TD-Elim was called
        self.tests = self.twice = self.again = self.lost = self.fed = 0
        self.latest: dict[Path, Floats] = {}  # path -> [N] estimates of its last test or elimination
        self.path: Path = ()  # where the last elimination drew its samples

    def state(self, path: Path) -> int:
        """Returns the state that a path leads to."""
        return state_at(self.process, path)

    def ask(self, query: Query, /) -> Answer:
        """Passes the query on and looks at the answer: samples of an elimination have actions, those of a test have none."""
        answer = self.inner.ask(query)
        (moments,), (wanted,) = answer.moments, query.moments
        self.latest[query.path] = moments.v_mean
        if wanted.rewards:
            self._see_elimination(query.path, moments)
        else:
            self._note(
                "consensus", self._error(query.path, moments), self.phi
            )  # event (i) of the theorem for Consensus
        return answer

    def _see_elimination(self, path: Path, moments: Moments) -> None:
        """Notes how far estimates are off, and the bias precondition, just before an elimination."""
        self.path = path
        self._note("estimation", self._error(path, moments), self.phi / math.sqrt(12))
        here, h = self.state(path), len(path)
        self.twice += (h, here) in self.learned
        self.learned.add((h, here))
        if h < self.process.horizon - 1:
            tau = self.tau(h)
            for a in range(self.K):
                self._note("precondition", self.spread((*path, a)), tau)

    def see_risk(self, risk: NodeRisk) -> None:
        """Counts child values that are not those of the child's own elimination or, where it agreed, of its test."""
        if risk.future is not None:
            self.fed += sum(not np.array_equal(risk.future[:, a], self.latest[(*self.path, a)]) for a in range(self.K))

    def tau(self, h: int) -> float:
        """tau_1 at level h, counted from 0: 20 (eta - 1) sqrt(K) phi with eta = H - h actions to go."""
        return 20 * (self.process.horizon - h - 1) * math.sqrt(self.K) * self.phi

    def spread(self, path: Path) -> float:
        """Returns how far two survivors are apart on the value of a path, exactly."""
        assert self.search is not None
        return float(np.ptp(self.heads[len(path)][self.search.space.alive(len(path)), self.state(path)]))

    def see_event(self, progress: Progress) -> None:
        """Looks at the survivors after every test."""
        event, phi, root = progress.event, self.phi, math.sqrt(self.K) * self.phi
        h = len(event.path)
        if isinstance(event, ConsensusTested):
            self.tests += 1
            if not event.agree:
                self.again += (h, self.state(event.path)) in self.learned
                return
        to_go = self.process.horizon - h  # the path is accessed now
        self.claim[to_go] = max(self.claim.get(to_go, 0.0), self.spread(event.path) / root)
        if isinstance(event, NodeEliminated):
            assert self.search is not None
            alive = self.search.space.alive(h)
            risk = float(self.losses[h][alive, self.state(event.path)].max())
            self._note("bias", self.spread(event.path), 8 * root + 2 * phi + self.tau(h))
            self._note("risk", risk, 4 * math.sqrt(2) * root + 2 * phi + 2 * self.tau(h))
            self.lost += (0,) * self.process.horizon not in self.search.space

    def _error(self, path: Path, moments: Moments) -> float:
        assert self.search is not None
        alive = self.search.space.alive(len(path))
        return float(np.abs(moments.v_mean - self.heads[len(path)][:, self.state(path)])[alive].max())

    def _note(self, name: str, value: float, bound: float) -> None:
        self.worst[name] = max(self.worst[name], value / bound)


class SeenSpace:
    """A version space that shows a witness what every elimination rests on."""

    def __init__(self, space: TdSpace, witness: Witness):
        self._space, self._witness = space, witness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def __contains__(self, member: Member, /) -> bool:
        return member in self._space

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Passes the elimination on."""
        self._witness.see_risk(risk)
        return self._space.eliminate(risk, slack)


def _losses(process: TabularProcess, h: int, tables: Floats) -> Floats:
    """Returns `[N, S]` what one action of each function's policy loses: V*(s) - V^f*(s, pi_f)."""
    chosen = tables.argmax(axis=2)  # [N, X]
    q = np.take_along_axis(process.q_tables[h][None], chosen[..., None], axis=2)[..., 0]
    return (process.q_tables[h].max(axis=1) - q) @ process.emissions[h].T


def close_class(process: TabularProcess, phi: float, kind: str, seed: int) -> list[Floats]:
    """Returns per level `[N, X, K]` functions around Q* (the first) on the scale of the thresholds.

    Args:
        process: whose Q*.
        phi: the scale.
        kind: "wide" functions may all pass every consensus test; of those "beyond", some just do not; "mixed" ones also
            drift, are noisy, or are far from Q*; "sparse" ones are each wrong about one state only, so that every state
            has to be learned. Of "paired" ones some fit together in one state and not in another.
        seed: of the noise.
    """
    rng = keyed_generator(seed, "close class")
    H, root = process.horizon, math.sqrt(process.n_actions) * phi
    levels = []
    for h, q in enumerate(process.q_tables):
        to_go = H - h
        best = np.eye(q.shape[1])[q.argmax(axis=1)]
        parts = WIDE if kind in ("beyond", "mixed") else WIDE[:-1]
        members = [q, *(q + sign * part * 10 * (to_go - 0.25) * root for part in parts for sign in (1.0, -1.0))]
        members += [q + scale * root * rng.normal(size=q.shape) for scale in (0.3, 1.0, 3.0)]
        if kind == "mixed":
            members += [q + sign * step * root * (to_go - 1 + best) for step in DRIFT for sign in (1.0, -1.0)]
            members += [q + scale * root * rng.normal(size=q.shape) for scale in (10.0, 30.0, 100.0)]
            members += [rng.permutation(q.ravel()).reshape(q.shape), rng.random(q.shape)]
        if kind == "paired":
            shown, far = process.seen[h][:, :, None], 10 * root
            members = [q, q + far, *(q + far * shown), *((q + 0.2 * shown) if 0 < h < H - 1 else ())]
        if kind == "sparse":
            members += [q + 0.2 * shown[:, None] for shown in process.seen[h]]
        levels.append(np.clip(np.stack(members), 0, 1))
    return levels


def measure(piece: Plain, /) -> Plain:
    """Runs one search under a witness, or the same one twice: with a product class and with its list."""
    if piece.get("twin"):
        return measure_twin(piece)
    H, K = piece["horizon"], piece["actions"]
    shape = {"horizon": H, "n_states": piece["states"], "n_actions": K, "overlap": piece["overlap"]}
    process = make("random", seed=piece["seed"], **shape).process
    assert process is not None
    asked = {
        "horizon": H,
        "n_actions": K,
        "n_states": piece.get("bound", process.n_states),
        "epsilon": piece["epsilon"],
        "delta": 2 * piece["delta"],  # half of which is the share of the search at the root
    }
    M = asked["n_states"]
    phi = Printed(H, K, M, 0.0, piece["epsilon"], asked["delta"]).phi  # the same for every class
    tables = close_class(process, phi, piece["class"], piece["seed"])
    functions = Layered([TableLevel(t) for t in tables])
    constants = PaperConstants.of(**asked, log_size=functions.log_size)
    used = dataclasses.replace(constants, phi=constants.phi * piece.get("tolerance", 1.0))
    numbers = fewer(constants.search, piece.get("divided", 1))
    printed = Printed(H, K, M, functions.log_size, piece["epsilon"], asked["delta"])
    sizes = printed.search(piece["delta"])
    witness = Witness(CountedEngine(process, functions, seed=piece["seed"], ledger=Ledger()), process, tables, phi)
    space = cast("TdSpace", SeenSpace(td_space(functions), witness))
    search = LsveeSearch(witness, space, used, verbatim=piece["verbatim"], notify=witness.see_event)
    witness.search = search
    start = (0,) * (H // 2) if piece["below"] else ()
    stopped = ""
    try:
        learn_from(search, start, numbers)
    except BrokenPromise as error:
        stopped = str(error)
    T = search.eliminations
    values = search.learned[start][search.space.alive(len(start))] if start in search.learned else np.zeros(1)
    v_star = float(process.optimum.state_values[len(start)][witness.state(start)])
    return {
        "H": H,
        "K": K,
        "M": M,
        "T": T,
        "tests": witness.tests,
        "states": int(sum(r.sum() for r in process.reachable)),
        "worst": witness.worst,
        "claim": sorted([to_go, value] for to_go, value in witness.claim.items()),
        "lost": witness.lost,
        "twice": witness.twice,
        "again": witness.again,
        "fed": witness.fed,
        "episodes": search.engine.ledger.total,
        "off": search.engine.ledger.total - T * sizes.n_train - witness.tests * sizes.n_test,
        "displayed": printed.displayed(T, piece["delta"]),
        "with_bound": printed.displayed(M * H, piece["delta"]),
        "log_size": functions.log_size,
        "v_star_error": float(np.abs(values - v_star).max()),
        "stopped": stopped,
    }


def tree(H: int, K: int) -> TabularProcess:
    """Returns a process in which action a leads to state a, which shows itself; all pay 1/2 at the end."""
    return TabularProcess(
        start=np.ones(1),
        transitions=(np.arange(K)[None], *(np.tile(np.arange(K), (K, 1)),) * (H - 2)),
        emissions=(np.ones((1, 1)), *(np.eye(K),) * (H - 1)),
        rewards=(*(Rewards.deterministic(0.0),) * (H - 1), Rewards.deterministic(0.5)),
    )


def measure_twin(piece: Plain) -> Plain:
    """Runs one search with a product class and with the list of its functions, whose draws are the same."""
    H, K = piece["horizon"], piece["actions"]
    shape = {"horizon": H, "n_states": piece["states"], "n_actions": K, "overlap": piece["overlap"]}
    process = tree(H, K) if piece["class"] == "paired" else make("random", seed=piece["seed"], **shape).process
    assert process is not None
    asked = {"horizon": H, "n_actions": K, "n_states": process.n_states}
    phi = Printed(H, K, process.n_states, 0.0, piece["epsilon"], 2 * piece["delta"]).phi
    tables = [t[::-1] for t in close_class(process, phi, piece["class"], piece["seed"])]  # Q* comes last
    tables[1] = np.delete(tables[1], [len(tables[1]) - 1 - i for i in piece["left_out"]], axis=0)
    product = Layered([TableLevel(t) for t in tables])
    numbers = PaperConstants.of(**asked, log_size=product.log_size, epsilon=piece["epsilon"], delta=2 * piece["delta"])
    counts = [product.level_size(h) for h in range(H)]

    def survivors(functions: FunctionClass) -> tuple[list[float], list[list[int]], Member | None]:
        """Returns how many are left after every event, which members of each level, and the first function."""
        space, sizes = td_space(functions), list[float]()
        engine = CountedEngine(process, functions, seed=piece["seed"], ledger=Ledger())
        learn_from(
            LsveeSearch(engine, space, numbers, notify=lambda _: sizes.append(space.log_size)), (), numbers.search
        )
        first = space.pick()
        if functions is product:
            return sizes, [np.flatnonzero(space.alive(h)).tolist() for h in range(H)], first
        chains = np.unravel_index(np.flatnonzero(space.alive(0)), counts)
        assert isinstance(first, int)
        return sizes, [np.unique(c).tolist() for c in chains], tuple(int(i) for i in np.unravel_index(first, counts))

    (sizes, members, first), (listed, other, also) = survivors(product), survivors(listed_product(product))
    same = len(sizes) == len(listed) and np.allclose(sizes, listed, atol=1e-9) and members == other and first == also
    return {"same": bool(same), "dropped": product.log_size - sizes[-1]}


def fewer(numbers: SearchConstants, divided: int) -> SearchConstants:
    """Returns the numbers of a search with sample sizes divided, and thresholds as they are."""
    n_train, n_test = math.ceil(numbers.n_train / divided), math.ceil(numbers.n_test / divided)
    return dataclasses.replace(numbers, n_train=n_train, n_test=n_test)


def claim_ratio(result: Plain) -> float:
    """Returns the largest disagreement at an accessed path, as a part of the inductive claim's 20 eta sqrt(K) phi."""
    return max((value / (20 * to_go) for to_go, value in result["claim"]), default=0.0)


def order(piece: Plain, result: Plain) -> float:
    """Returns T H^4 K^2/epsilon^2 log(N M K H/delta), what Theorem 5 prints inside its O."""
    T, H, K, M = (result[name] for name in ("T", "H", "K", "M"))
    return float(T * H**4 * K**2 / piece["epsilon"] ** 2 * (result["log_size"] + math.log(M * K * H / piece["delta"])))


def broke(result: Plain) -> bool:
    """Whether a search broke any promise of the theorem."""
    worst = max(result["worst"].values())
    return bool(max(worst, claim_ratio(result)) > 1 + 1e-9 or result["lost"] or result["twice"] or result["stopped"])


def conclude(pieces: Sequence[Plain], results: Sequence[Plain], /) -> Conclusion:
    """Checks the conclusions, the inductive claim, the counts and the episodes over all searches."""
    capped = [r for p, r in zip(pieces, results, strict=True) if p.get("cap") and r["states"] > r["H"]]
    divided = {d: [r for p, r in zip(pieces, results, strict=True) if p.get("divided") == d] for d in DIVISORS}
    twins = [r for p, r in zip(pieces, results, strict=True) if p.get("twin")]
    pieces, results = _as_promised(pieces, results)
    searches, delta = len(results), pieces[0]["delta"]
    failed = sum(broke(r) for r in results)
    end = binomial_interval(failed, searches, CONFIDENCE)[1]
    worst = {name: max(r["worst"][name] for r in results) for name in results[0]["worst"]}
    eliminations = sum(r["T"] for r in results)
    claim = max(claim_ratio(r) for r in results)
    orders = [r["displayed"] / order(p, r) for p, r in zip(pieces, results, strict=True)]
    return Conclusion(
        checks=(
            Check(
                "at every node learned the conclusions of the theorem for TD-Elim hold, with probability at least 1 - delta",
                end <= delta,
                f"Broken in {failed} of {searches} searches with {eliminations:,} eliminations (exact "
                f"{CONFIDENCE:.0%} interval "
                f"up to {end:.4f}). Largest parts of the bounds: bias {worst['bias']:.2f}, risk "
                f"{worst['risk']:.2f}, estimates "
                f"{worst['estimation']:.3f}.",
                tightness=max(worst["bias"], worst["risk"]),
            ),
            Check(
                f"the margin: with {DIVISORS[0]} times fewer samples every search still keeps the promise, with "
                f"{DIVISORS[-1]:.0e} times fewer most do not",
                not any(broke(r) for r in divided[DIVISORS[0]])
                and sum(broke(r) for r in divided[DIVISORS[-1]]) > len(divided[DIVISORS[-1]]) / 2,
                "Broken in "
                + ", ".join(f"{sum(map(broke, mine))} of {len(mine)} with sizes / {d}" for d, mine in divided.items())
                + ".",
            ),
            Check(
                "the preconditions are met at every call",
                max(worst["precondition"], worst["consensus"]) <= 1,
                f"Children were at most {worst['precondition']:.3f} tau_1 apart, their estimates off by at most "
                f"{worst['consensus']:.3f} phi.",
            ),
            Check(
                "TD-Elim is fed a learned child's own estimates, and those of its test where a child agreed",
                not any(r["fed"] for r in results),
                f"{eliminations:,} eliminations, {sum(r['fed'] for r in results)} children with other estimates. The paper "
                "reuses those of the tests and does not say what a failed test leaves.",
                reading="where a test failed, the estimates of the elimination that followed, which are the better ones",
            ),
            Check(
                "survivors of a product class are those of its list, after every test and elimination",
                all(r["same"] for r in twins) and (not twins or max(r["dropped"] for r in twins) > 0),
                f"{len(twins)} searches, each run with both.",
            ),
            Check(
                "inductive claim: survivors differ by at most 20 eta sqrt(K) phi on every accessed path",
                claim <= 1,
                f"At most {claim:.3f} of it.",
                tightness=claim,
            ),
            Check(
                "T <= M H calls of TD-Elim, never twice on a state, and at most M K H of Consensus",
                all(
                    r["T"] <= r["M"] * r["H"] and r["tests"] <= r["M"] * r["K"] * r["H"] and not r["twice"]
                    for r in results
                ),
                f"T is at most {max(r['T'] / (1 + r['M'] * (r['H'] - 1)) for r in results):.2f} (1 + M (H-1)), tests are at "
                "most "
                f"{max(r['tests'] / (r['M'] * r['K'] * r['H']) for r in results):.2f} M K H; Consensus "
                "disagreed on a learned "
                f"state {sum(r['again'] for r in results)} times. Tightness is that of searches with M > 1; at M = H "
                "= 1 every search has T = M H.",
                reading="with probability 1 - delta, not for any execution: the count rests on calls that succeed; and "
                "children of length H are terminal and not tested, since the printed tolerance is negative there",
                tightness=max((r["T"] / (r["M"] * r["H"]) for r in results if r["M"] > 1), default=None),
            ),
            Check(
                "where more states are hidden than M says, a search stops at M H eliminations",
                bool(capped) and all(r["stopped"] and r["T"] == r["M"] * r["H"] + 1 for r in capped),
                f"{len(capped)} searches with M = 1 claimed; the next elimination was refused in "
                f"{sum(bool(r['stopped']) for r in capped)}.",
            ),
            Check(
                "episodes are the printed sizes times the calls, computed a second time",
                all(r["off"] == 0 for r in results),
                f"Largest difference {max(abs(r['off']) for r in results)}.",
            ),
            Check(
                "episodes are at most the displayed bound",
                all(r["episodes"] <= r["displayed"] for r in results),
                f"At most {max(r['episodes'] / r['displayed'] for r in results):.4f} of it: 24*320^2 = 2.46*10^6 and "
                "2*320^2 = 2.05*10^5 are rounded up to 3*10^6 and 3*10^5.",
                tightness=max(r["episodes"] / r["displayed"] for r in results),
            ),
            Check(
                "the displayed bound is at most 1.3*10^7 times the order T H^4 K^2/eps^2 log(N M K H/delta)",
                max(orders) <= ORDER,
                f"Between {min(orders):.2g} and {max(orders):.2g} times; {ORDER:.2g}, the largest, is at "
                "N = M = K = H = 1 and delta = 1/2.",
                reading="delta at most 1/2 where N = M = K = H = 1: log(1/delta) then vanishes as delta goes to 1, and "
                "episodes do not; elsewhere the logarithm is at least log 2",
            ),
        ),
        columns=("class", "H", "searches", "T / M H", "tests / M K H", "claim", "bias", "risk", "episodes / displayed"),
        rows=tuple(
            (kind, H, len(mine), *(max(column) for column in zip(*mine, strict=True)))
            for (kind, H), mine in sorted(_by_class(pieces, results).items())
        ),
        sample=f"{searches} searches over random processes, seeds 0 to {searches - 1}, epsilon = 0.1 or 0.9, "
        f"delta = {DELTA:g}; "
        "values of functions and policies are exact.",
    )


def _as_promised(pieces: Sequence[Plain], results: Sequence[Plain]) -> tuple[list[Plain], list[Plain]]:
    """Returns the searches that run with the printed sizes, and with as many states as were promised."""
    special = ("divided", "cap", "twin")
    kept = [(p, r) for p, r in zip(pieces, results, strict=True) if not any(p.get(k) for k in special)]
    return [p for p, _ in kept], [r for _, r in kept]


def _by_class(pieces: Sequence[Plain], results: Sequence[Plain]) -> dict[tuple[str, int], list[tuple[float, ...]]]:
    """Returns what the table shows the largest of, for each class and horizon."""
    table: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for p, r in zip(pieces, results, strict=True):
        calls, tests = r["T"] / (r["M"] * r["H"]), r["tests"] / (r["M"] * r["K"] * r["H"])
        parts = (calls, tests, claim_ratio(r), r["worst"]["bias"], r["worst"]["risk"], r["episodes"] / r["displayed"])
        table.setdefault((p["class"], r["H"]), []).append(parts)
    return table


def draw(figure: "Figure", pieces: Sequence[Plain], results: Sequence[Plain], /) -> None:
    """Draws the inductive claim, the calls against M H, and the episodes against the displayed bound."""
    pieces, results = _as_promised(pieces, results)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.2, 1, 1])
    rng = keyed_generator(0, "jitter")
    points = [(to_go, value) for r in results for to_go, value in r["claim"]]
    x = np.array([to_go for to_go, _ in points])
    left.scatter(
        x + rng.uniform(-0.22, 0.22, len(x)),
        [v for _, v in points],
        s=6,
        color=BLUE,
        alpha=0.5,
        linewidths=0,
        rasterized=True,
    )
    to_go = np.array([0.5, x.max() + 0.5])
    left.plot(to_go, 20 * to_go, color=ORANGE, label="$20\\,\\eta$, the inductive claim")
    left.plot(to_go, 20 * to_go - 5, color=GREY, linestyle="--", linewidth=1, label="a consensus test's tolerance")
    left.set(xlabel="actions to go $\\eta$", ylabel="survivors' disagreement ($\\sqrt{K}\\,\\varphi$)", ylim=(0, None))
    left.set_title("Accessed paths")
    left.legend(loc="upper left")
    calls = {(r["M"] * r["H"], r["T"]) for r in results}
    counts = [sum((r["M"] * r["H"], r["T"]) == c for r in results) for c in calls]
    middle.scatter(
        *zip(*calls, strict=True),
        s=[12 * math.sqrt(c) for c in counts],
        color=GREEN,
        alpha=0.7,
        linewidths=0,
        rasterized=True,
    )
    top = max(m for m, _ in calls) + 1
    middle.plot([0, top], [0, top], color=ORANGE, label="T = M H")
    middle.set(xlabel="M H", ylabel="calls of TD-Elim, T", xlim=(0, top), ylim=(0, top))
    middle.set_title("Never more than M H calls")
    middle.legend(loc="upper left")
    right.scatter(
        [r["displayed"] for r in results],
        [r["episodes"] for r in results],
        s=9,
        color=BLUE,
        alpha=0.6,
        linewidths=0,
        rasterized=True,
    )
    ends = [min(r["displayed"] for r in results) / 2, max(r["displayed"] for r in results) * 2]
    right.plot(ends, ends, color=ORANGE, label="equal")
    right.set(xscale="log", yscale="log", xlabel="displayed bound", ylabel="episodes")
    right.set_title("Episodes")
    right.legend(loc="upper left")
