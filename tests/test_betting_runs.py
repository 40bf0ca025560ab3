"""Whole runs of the betting search: golden traces, and an instance that needs averages."""

import math
from pathlib import Path

import numpy as np
import pytest

import richobs
from richobs.classes import Layered, Listed, TableLevel
from richobs.core.ledger import Ledger
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners.betting import Tuning
from richobs.learners.betting.search import BettingSearch
from richobs.learners.betting.search import run as run_search
from richobs.learners.betting.values import Cells
from richobs.runs.session import run
from richobs.stats import bets
from richobs.worlds.simulator import TabularWorld, WorldEnvironment

GOLDEN = Path(__file__).parent / "golden"
PRODUCT = "lock/5,swap=0.5,fail=0.1"


def asked(**given: object) -> Settings:
    return Settings(**{"learner": "betting", "engine": "stream", "seed": 1, **given})


# Golden traces.


def golden_trace(outcome: Outcome) -> str:
    """A run as text, one line per event; a batch also tells its candidate, who lives, and its largest wealth."""
    lines = []
    for e in outcome.trace:
        size = e.log_size_after / math.log(10)
        line = f"{e.kind:9} {e.said().verdict:13} {e.said().statistic:9.4g} {e.said().threshold:9.4g} {e.n:3} 10^{size:.2f}"
        if e.kind == "batch":
            wealth = f"{max(e.wealth):.2f} of {e.limit:.2f}" if e.wealth else "none"
            line += f"  {e.drawn}: {e.refuted} refuted, living {'-'.join(map(str, e.living))}, wealth {wealth}"
        lines.append(line)
    last = f"{outcome.reason.value}: {outcome.episodes} episodes, {outcome.lower:.4f} to {outcome.upper:.4f}"
    return "\n".join([*lines, last]) + "\n"


@pytest.mark.parametrize(
    ("world", "epsilon", "file"),
    [(PRODUCT, 0.1, "betting-lock.txt"), ("frozen-lake,n_maps=10,horizon=12", 0.2, "betting-frozen-lake.txt")],
)
def test_the_golden_search(world: str, epsilon: float, file: str) -> None:
    """To renew a file, print golden_trace(outcome), and read it before you store it."""
    outcome = run(richobs.make(world), asked(seed=0, epsilon=epsilon))
    assert golden_trace(outcome) == (GOLDEN / file).read_text()


# Where forecasts have no power.


def ten_observations(is_product: bool) -> Problem:
    """An instance on which the bets of forecasts alone do not end [B2].

    Ten observations are seen at level 0 and again at level 1, where action 0 pays `low` and action 1 pays `high`. The wrong
    function knows `low` alone, so its policy makes no error at level 1. At level 0 it promises 0.2 more than `low`. The mean
    of its own y is `low`, which is no member of level 0: the wrong member is off by 0.2, and Q* by 0.6 at three places.
    So the forecast of its y is its own promise, and no bet is made against it. It promises 0.6, and Q* 0.58.
    """
    low = np.array([0.05] * 5 + [0.75] * 5)
    high = np.where(np.arange(10) < 3, 0.65, low)
    moves = np.zeros((10, 2, 11))
    moves[np.arange(10), 0, np.arange(10)] = 1
    moves[:, 1, 10] = 1  # action 1 leads to where nothing is paid
    pays = np.vstack([np.stack([low, high], axis=1), np.zeros(2)])
    process = TabularProcess(
        start=np.full(10, 0.1),
        transitions=(moves,),
        emissions=(np.eye(10), np.eye(11)),
        rewards=(Rewards.deterministic(np.zeros((10, 1, 2))), Rewards.deterministic(pays[:, None, :])),
    )
    wrong = np.stack([low + 0.2, np.zeros(10)], axis=1), np.vstack([np.stack([low, 0 * low], axis=1), np.zeros(2)])
    truth = process.q_tables
    levels = [TableLevel(np.stack([q, f]), book) for q, f, book in zip(truth, wrong, process.codebooks, strict=True)]
    return Problem(WorldEnvironment(TabularWorld(process)), (Layered if is_product else Listed)(levels), process)


@pytest.mark.parametrize(("is_product", "seed"), [(True, 0), (False, 0)])
def test_averages_end_a_search_that_forecasts_do_not(
    is_product: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default batches. The seed is one whose first batch shows what the wrong function promises more for."""
    problem, episodes = ten_observations(is_product), 400
    # Observations come again here, so that forecasts of what followed them would do without averages.
    monkeypatch.setattr(Cells, "serve_better", property(lambda cells: np.zeros(len(cells.missed), dtype=bool)))

    def search() -> tuple[BettingSearch, list[str]]:
        kinds: list[str] = []
        engine = StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(episodes))
        asked_for = (engine, problem.functions, 0.1, 0.05, seed)
        return BettingSearch(*asked_for, lambda p: kinds.append(p.event.kind), Tuning()), kinds

    assert problem.optimal_value == pytest.approx(0.58)
    with_averages, kinds = search()
    found = run_search(with_averages)
    assert found.by == "one survivor"
    assert found.member == ((0, 0) if is_product else 0)
    assert kinds.count("average") == 1
    assert with_averages.engine.ledger.total <= 160  # 16 of them of the policy itself, before anything is claimed
    monkeypatch.setattr(bets, "average_bets", lambda smallest: np.zeros(2))  # bets of 0 never win
    without, kinds = search()
    stuck = run_search(without)
    assert stuck.by == "nothing"
    assert stuck.member == ((1, 1) if is_product else 1)
    assert (without.rounds, kinds.count("average")) == (1, 0)
    assert stuck.gap > 0.2
    assert with_averages.engine.ledger.total - 16 < 0.35 * without.engine.ledger.total
