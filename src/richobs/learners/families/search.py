"""Learning in a family: weigh the whole box by everything seen, and cover what is left of it with cells.

What is claimed rests on one event: the true parameters live for ever [F1]. Then a policy that loses at most epsilon in every
cell that may hold a living point loses at most epsilon in the real system [F4]. Labels are those of `docs/models.md`.

One round: find the most likely parameters, choose the policy that loses least in points that live, and if it loses at most
epsilon in all of them, try to cover everything that lives. Otherwise play a few episodes: of the policy that tells the most
likely parameters best from those at which the chosen policy loses too much, and in every fourth round of a draw.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from richobs.classes.parametric import Family
from richobs.classes.taylor import Taylor
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit
from richobs.core.events import ChartKind, Event, Progress, Reading, Said, event
from richobs.core.outcome import LOWER, Outcome, StopReason, ToleranceCurve, ToleranceRow, claim_words
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints
from richobs.core.words import number_words
from richobs.learners.base import at_least_one
from richobs.learners.families.cells import LARGEST, Cover, Evidence, Tables, cover, ellipsoid, loss_at, regret_over
from richobs.learners.families.confirm import CONFIRM, FEW, LEAST_DRAWN, PHASE, Confirming, LossBounded
from richobs.learners.families.evidence import Nodes, Seen
from richobs.learners.models.living import ZETA
from richobs.learners.stopping import FEWEST, Patience

LIVES = "the true parameters live for ever"
WIDTHS = ChartKind(
    "widths",
    "What is left of each interval",
    "About how wide, relative to the box: 1 is all of it. Parameters are numbered as theta lists them.",
    "parameter",
)
POINTS = 128  # that live, in which policies are compared
NODES = 64  # of a forecast for each parameter, spread over the box, and as many near the maximum
LIKELY = 16  # structures in which parameters are fitted
CAREFUL = 0.85  # of epsilon: with three parameters or more cells are tried once points lose no more
SPREAD = 1.2  # variance of the nodes near the maximum, relative to the inverse information
WIDEST = 1.0  # half the width of the widest cell that is looked at, in radii of the set that lives
MOST_KL = 20.0  # that one step counts for where something is impossible
HULL_CELLS = 20_000  # that look for the ends of intervals
HULL_SCALES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0)  # of these, relative to the set that lives
ROUNDED = (
    1e-13  # of a parameter's size: ends of cells that are so close to those of the box are these, but for rounding
)
LEAST_RUNG = 12  # the tolerance curve begins at 2^-12
NEWTON = 30  # steps of a maximisation


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    batch: int = 2
    """Episodes of one policy before parameters are weighed again; a long search allows an eighth of its episodes."""
    cells: int = 1500
    """Cells of the box in which one attempt to certify a policy bounds its loss."""

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "cells")


class Fit(NamedTuple):
    """The most likely parameters of one structure."""

    structure: int
    theta: Floats  # [d]
    log_likelihood: float
    fisher: Floats  # [d, d] information, with a little for the box
    root: Floats  # [d, d] root root' is its inverse


class Points(NamedTuple):
    """Parameters of one structure that live."""

    structure: int
    theta: Floats  # [d, P]
    log_likelihood: Floats  # [P]
    law: Floats  # [E, P]
    best: Floats  # [P] V*


class Chosen(NamedTuple):
    """A policy, and what it loses in points that live."""

    structure: int
    theta: Floats  # [d] where it was planned
    actions: Ints  # [H, O]
    regret: float  # the largest
    witness: tuple[int, Floats] | None  # the most likely point at which it loses more than epsilon
    rival: tuple[int, Floats] | None  # the point that the next episodes tell from the most likely one


@dataclass
class FamilySearch(Confirming):
    """What was seen, what lives, and what of delta was spent."""

    alpha: float = 0.0  # how far the real laws may be from those of the true parameters, in total variation
    seen: Seen = field(init=False)
    chosen: Chosen | None = None
    covered: Cover | None = None  # of the chosen policy, by what was seen so far
    patience: Patience = field(default_factory=Patience)
    gave_up: bool = False  # the tolerance keeps the loss where it is

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = Seen(self.family, self._likelihood, self.alpha)
        self._tables: dict[int, Tables] = {}
        self._tried = 0  # episodes at the last attempt that did not end
        self.fits: list[Fit] = []
        self._even = _even_points(len(self.family.names))

    @property
    def family(self) -> Family:
        """The class."""
        family: Family = self.functions
        return family

    def tables(self, structure: int) -> Tables:
        """Returns the outcomes of a structure."""
        if structure not in self._tables:
            self._tables[structure] = Tables(self.family, structure)
        return self._tables[structure]

    def tell(self, event: Event) -> None:
        """Tells whoever listens."""
        chosen = self.chosen
        policy = None if chosen is None else partial(self.policy, chosen.actions)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, self.lower, policy))


def run(search: FamilySearch) -> tuple[Chosen, bool]:
    """Plays and plans until a policy is certified and confirmed; returns it, and whether it is."""
    nodes = place_nodes(search)
    for played in search.earlier():
        nodes = weigh(search, nodes, played)
    while True:
        chosen = look(search)
        try:
            if not search.gave_up and (search.covered is None or not search.covered.complete):
                nodes = play(search, nodes, *next_policy(search, chosen, nodes), search.next_size)
                continue
            nodes = play(search, nodes, "the policy that is to be claimed", chosen.actions, CONFIRM, confirms=True)
        except EpisodeLimit:
            return chosen, False
        if search.gave_up:
            return chosen, False
        search.covered = certify(search, chosen)  # what was seen since counts too
        if search.covered.complete:
            search.doubt(search.covered.low, search.covered.upper)
            search.upper = min(search.upper, search.covered.upper)
            tell_loss(search, chosen, search.covered.regret, search.covered)
            return chosen, True
        search.forget_earned()


def look(search: FamilySearch) -> Chosen:
    """Finds what lives, chooses a policy, and tries to cover what lives [F4]."""
    search.covered = None
    points = living_points(search)
    chosen = search.chosen = choose(search, points)
    d, total = len(search.family.names), search.engine.ledger.total
    regret, witness = chosen.regret, chosen.witness
    if chosen.regret + 2 * search.error <= search.epsilon * (1 if d < 3 else CAREFUL) and total >= search._tried:
        search.covered = found = certify(search, chosen)
        if found.complete:
            regret = found.regret
            search.shown_at = total if search.shown_at is None else search.shown_at
        elif found.witness is None:
            search._tried = total + max(1, total // (10 if d < 3 else 6))
        else:
            witness = (chosen.structure, found.witness)
    if search.alpha:
        search.gave_up = search.patience.ends(max(regret, search.epsilon), total)
    if witness is not chosen.witness:
        chosen = chosen._replace(witness=witness, rival=witness)
    search.chosen = chosen
    tell_loss(search, chosen, regret, search.covered)
    return chosen


def tell_loss(search: FamilySearch, chosen: Chosen, regret: float, covered: Cover | None) -> None:
    """Tells what the chosen policy loses."""
    search.tell(
        LossBounded(
            phase=PHASE,
            regret=float(regret),
            proved=covered is not None and covered.complete,
            epsilon=search.epsilon,
            cells=0 if covered is None else covered.cells,
            planned_at=tuple(chosen.theta.tolist()),
            witness=() if chosen.witness is None else tuple(chosen.witness[1].tolist()),
        )
    )


def certify(
    search: FamilySearch, chosen: Chosen, allowed: float | None = None, evidence: dict[int, Evidence] | None = None
) -> Cover:
    """Covers everything that lives, of all structures, with cells in which the policy loses little [F4].

    Raises:
        BrokenPromise: nothing lives by the evidence of the run, where none is given.
    """
    found = cover_all(
        search.family,
        evidence or {int(k): search.seen.evidence(int(k)) for k in np.flatnonzero(search.seen.possible)},
        chosen.actions,
        search.epsilon if allowed is None else allowed,
        {fit.structure: fit.theta for fit in search.fits},
        search.tuning.cells,
        search.error,
        search.tables,
    )
    if evidence is None and found.complete and found.regret == -math.inf:
        raise no_parameter(search)
    return found


def cover_all(
    family: Family,
    evidence_of: dict[int, Evidence],
    actions: Ints,
    allowed: float,
    fits: dict[int, Floats],
    budget: int,
    error: float,
    tables_of: Any = None,
) -> Cover:
    """Covers everything that lives: each structure by one ellipsoid where that is enough, else by cells.

    Args:
        family: the family.
        evidence_of: each structure that holds everything seen possible.
        actions: `[H, O]` the policy.
        allowed: largest loss.
        fits: the most likely parameters of some structures; they decide how cells are cut, not what is true.
        budget: most cells of each structure.
        error: of a value.
        tables_of: returns the outcomes of a structure.
    """
    d = len(family.names)
    whole = Cover(True, -math.inf, math.inf, -math.inf, np.array([[math.inf, -math.inf]] * d), None, 0)
    for k, evidence in evidence_of.items():
        tables = tables_of(k) if tables_of is not None else Tables(family, k)
        found, region = None, None
        if k in fits and not evidence.alpha:
            found, region = by_ellipsoid(family, tables, evidence, actions, allowed, fits[k], error)
        if found is None:
            scale = cell_scale(family, evidence, fits.get(k)) / (1 if d < 3 else 2)
            found = cover(family, tables, evidence, actions, allowed, scale, budget, error, region)
        whole = Cover(
            whole.complete and found.complete,
            max(whole.regret, found.regret),
            min(whole.low, found.low),
            max(whole.upper, found.upper),
            np.stack(
                [np.minimum(whole.hull[:, 0], found.hull[:, 0]), np.maximum(whole.hull[:, 1], found.hull[:, 1])], axis=1
            ),
            found.witness,
            whole.cells + found.cells,
        )
        if not found.complete:
            return whole
    return whole


def by_ellipsoid(
    family: Family, tables: Tables, evidence: Evidence, actions: Ints, allowed: float, point: Floats, error: float
) -> tuple[Cover | None, Floats | None]:
    """Returns the cover by one ellipsoid, and intervals `[d, 2]` that hold the ellipsoid (Lemma F5).

    The first is None where the policy may lose more than allowed in it, both where there is none.
    """
    parameters = ellipsoid(family, evidence, point)
    if parameters is None:
        return None, None
    hull = around(family, parameters)
    bounds = regret_over(tables, family.program.over(parameters), actions)
    totals = family.reward_range[1] - family.reward_range[0]
    regret = float(bounds.regret[0]) + 2 * error
    if not (regret <= allowed and bounds.size[0] <= LARGEST * totals):
        return None, hull
    return Cover(True, regret, float(bounds.low[0]) - error, float(bounds.high[0]) + regret, hull, None, 1), hull


def around(family: Family, parameters: Taylor) -> Floats:
    """Returns `[d, 2]` intervals of the box that hold an ellipsoid of parameters."""
    centre, half = parameters.c[:, 0], (parameters.linear[:, 0] + parameters.r[:, 0]) * (1 + 1e-9)
    return np.clip(np.stack([centre - half, centre + half], axis=1), family.low[:, None], family.high[:, None])


def cell_scale(family: Family, evidence: Evidence, point: Floats | None) -> Floats:
    """Returns `[d]` the half width of the widest cells that are worth a look: that of the set that lives, about."""
    span = family.high - family.low
    if point is None:
        return span / 2
    fisher = information(family, evidence.counts, point)[1]
    law = family.program.at(point[:, None])
    reach = math.sqrt(2 * max(float(evidence.log_likelihood(law)[0]) - evidence.threshold, 0.5))
    return np.minimum(WIDEST * reach / np.sqrt(np.diag(fisher)), span / 2)


def information(family: Family, counts: Floats, point: Floats) -> tuple[Floats, Floats]:
    """Returns `[d]` the score at a point and `[d, d]` the information, with that of a uniform law on the box."""
    span = family.high - family.low
    step = 1e-6 * span
    model = family.program.over(Taylor.cells(point[:, None], step[:, None]))
    seen = np.flatnonzero(counts)
    e = np.maximum(model.c[seen, 0], 1e-12)
    slope = model.g[:, seen, 0] / step[:, None]  # [d, e]
    score = slope @ (counts[seen] / e)
    return score, (slope * (counts[seen] / e**2)) @ slope.T + np.diag(12 / span**2)


def maximise(search: FamilySearch, structure: int, start: Floats) -> Fit:
    """Returns the most likely parameters near a start, by Newton's method with steps that stay in the box."""
    family, evidence = search.family, Evidence(search.seen.counts[structure], 0.0)
    theta = start
    best = float(evidence.log_likelihood(family.program.at(theta[:, None]))[0])
    lengths = 0.5 ** np.arange(8)
    for _ in range(NEWTON):
        score, fisher = information(family, evidence.counts, theta)
        edge = ((theta <= family.low) & (score < 0)) | ((theta >= family.high) & (score > 0))
        free = ~edge
        step = np.zeros_like(theta)
        if free.any():
            step[free] = np.linalg.solve(fisher[np.ix_(free, free)], score[free])
        tried = np.clip(theta[:, None] + step[:, None] * lengths, family.low[:, None], family.high[:, None])
        logs = evidence.log_likelihood(family.program.at(tried))
        place = int(np.nan_to_num(logs, nan=-np.inf).argmax())
        gained = float(logs[place]) - best
        if not gained > 0:
            break
        theta, best = tried[:, place], float(logs[place])
        if gained < 1e-10:
            break
    _, fisher = information(family, evidence.counts, theta)
    if search.alpha:
        best = float(search.seen.evidence(structure).log_likelihood(family.program.at(theta[:, None]))[0])
    return Fit(structure, theta, best, fisher, np.linalg.inv(np.linalg.cholesky(fisher)).T)


def living_points(search: FamilySearch) -> list[Points]:
    """Fits the likely structures, and returns points of each that live; without any the family is refuted.

    Raises:
        BrokenPromise: no parameter of the box lives.
    """
    seen, family = search.seen, search.family
    threshold = seen.threshold
    rng = keyed_generator(search.seed, "living points", search.rounds)
    rest = sorted(search.fits, key=lambda fit: -fit.log_likelihood)
    found: list[Points] = []
    each = max(4, POINTS // max(1, len(rest)))
    for fit in rest:
        reach = math.sqrt(2 * max(fit.log_likelihood - threshold, 0.5))
        z = rng.normal(size=(len(fit.theta), each))
        z *= np.where(np.arange(each) % 2, 0.97, rng.random(each) ** (1 / len(z))) / np.linalg.norm(z, axis=0)
        if search.alpha:  # what lives is wider than the information says
            z *= 4.0 ** (np.arange(each) % 3 / 2)
        near = fit.theta[:, None] + reach * fit.root @ z
        far = _in_box(family, search._even[:, : each // 4 + 1])
        theta = np.concatenate([fit.theta[:, None], near, far], axis=1)
        theta = np.clip(theta, family.low[:, None], family.high[:, None])
        law = np.maximum(family.program.at(theta), 0.0)
        own = seen.evidence(fit.structure)
        logs = own.log_likelihood(law)
        alive = logs > own.threshold
        if alive.any():
            law = law[:, alive]
            best = search.tables(fit.structure).plan(law)[0]
            found.append(Points(fit.structure, theta[:, alive], logs[alive], law, best))
    if found:
        return found
    for k in np.flatnonzero(seen.possible):
        hull = cover(
            family,
            search.tables(int(k)),
            seen.evidence(int(k)),
            None,
            0.0,
            (family.high - family.low) / 1e3,
            10**5,
            0.0,
        )
        if not hull.complete or math.isfinite(hull.hull[0, 0]):  # something may live that was not found
            fit = rest[0]
            law = np.maximum(family.program.at(fit.theta[:, None]), 0.0)
            best = search.tables(fit.structure).plan(law)[0]
            return [Points(fit.structure, fit.theta[:, None], np.array([fit.log_likelihood]), law, best)]
    raise no_parameter(search)


def no_parameter(search: FamilySearch) -> BrokenPromise:
    """Returns that nothing of the family lives, with what its most likely parameters explain least."""
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    words = search.seen.misfit(fit.structure, search.family.program.at(fit.theta[:, None])[:, 0])
    return BrokenPromise(
        f"no parameter of the family explains what was seen: the real system is none of its simulators. The most likely, "
        f"{named(search.family, fit.theta)}, explain this least: {words}. If one of them were right, this would happen with "
        f"probability at most {search.delta:g}."
    )


def choose(search: FamilySearch, points: list[Points]) -> Chosen:
    """Returns the policy that loses least in the points: planned at the maximum, at their mean, or the last one.

    Where it loses too much at the maximum itself, nothing can be told from the maximum there: the next episodes are against
    the most likely point at which the policy planned at the maximum loses too much.
    """
    first = points[0]
    weight = np.exp(first.log_likelihood - first.log_likelihood.max())
    plans = [
        first.theta[:, int(first.log_likelihood.argmax())],
        first.theta.mean(axis=1),
        first.theta @ weight / weight.sum(),
    ]
    law = np.maximum(search.family.program.at(np.stack(plans, axis=1)), 0.0)
    _, best = search.tables(first.structure).plan(law)
    candidates = [(first.structure, theta, best[:, :, i]) for i, theta in enumerate(plans)]
    if search.chosen is not None:
        candidates.append((search.chosen.structure, search.chosen.theta, search.chosen.actions))
    found: Chosen | None = None
    rival: tuple[int, Floats] | None = None  # of the first candidate
    for structure, theta, actions in candidates:
        if found is not None and np.array_equal(actions, found.actions):
            continue
        losses = [losses_of(search, p, actions) for p in points]
        regret = max(float(loss.max()) for loss in losses)
        if found is None or regret < found.regret - search.error:
            witness, likely = None, -math.inf
            for p, loss in zip(points, losses, strict=True):
                bad = np.flatnonzero(loss > search.epsilon - 2 * search.error)
                if len(bad) and p.log_likelihood[bad].max() > likely:
                    place = int(bad[p.log_likelihood[bad].argmax()])
                    witness, likely = (p.structure, p.theta[:, place]), float(p.log_likelihood[place])
            rival = witness if found is None else rival
            found = Chosen(structure, theta, actions, regret, witness, witness)
    assert found is not None
    if found.witness is not None and found.witness[0] == first.structure and np.array_equal(found.witness[1], plans[0]):
        return found._replace(rival=rival)
    return found


def losses_of(search: FamilySearch, points: Points, actions: Ints) -> Floats:
    """Returns `[P]` what a policy loses in points, the tolerance included."""
    tables = search.tables(points.structure)
    if search.alpha:
        return loss_at(search.family, tables, actions, points.theta, points.law, search.alpha)
    return points.best - tables.values(points.law, actions)


def next_policy(search: FamilySearch, chosen: Chosen, nodes: Nodes) -> tuple[str, Ints]:
    """Returns what is played next, in words, and its actions `[H, O]` [F6]."""
    if search.rounds % 4 == 3 or chosen.rival is None:
        rng = keyed_generator(search.seed, "draw", search.rounds)
        i = int(rng.choice(len(nodes.weight), p=nodes.weight))
        _, best = search.tables(int(nodes.structure[i])).plan(np.maximum(nodes.law[:, [i]], 0.0))
        return "the best policy of a draw by likelihood", best[:, :, 0]
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    structure, theta = chosen.rival
    own, other = search.tables(fit.structure), search.tables(structure)
    law = np.maximum(search.family.program.at(np.stack([fit.theta, theta], axis=1)), 0.0)
    p, q = law[own.events, 0], law[other.events, 1]  # [B, n]
    unknown = np.zeros(q.shape[1], dtype=bool)  # rows whose observation the other structure does not know
    if structure != fit.structure:
        K = own.n_actions
        state = search.family.state_of[structure][own.shows]  # [S] the other structure's, by what is seen
        rows = (np.maximum(state, 0)[:, None] * K + np.arange(K)).ravel()
        unknown = np.repeat(state < 0, K)
        seen, shown = (np.append(tables.shows, -1)[tables.next] for tables in (own, other))
        same = (seen[:, None] == shown[:, rows]) & (own.reward[:, None] == other.reward[:, rows])  # [B, B, n]
        q = (same * q[:, rows]).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(p > 0, p * np.minimum(np.log(p / q), MOST_KL), 0.0).sum(axis=0)
    kl[unknown] = MOST_KL
    _, best = own.plan(law[:, :1], kl[:, None])
    return "the policy that tells the likely parameters from the witness", best[:, :, 0]


def play(search: FamilySearch, nodes: Nodes, why: str, actions: Ints, n: int, confirms: bool = False) -> Nodes:
    """Plays a batch and weighs it by the forecast that was fixed before; returns the forecast of the next one [F1]."""
    played = search.play(actions, n, confirms)
    nodes, seen = weigh(search, nodes, played), search.seen
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    search.tell(
        ThetaWeighed(
            phase=PHASE,
            n=n,
            why=why,
            earned=float(played.returns.mean()),
            radius=float(fit.log_likelihood - seen.threshold),
            likely=tuple(fit.theta.tolist()),
            widths=tuple(widths(search, fit).tolist()),
            structures=int(seen.possible.sum()),
        )
    )
    return nodes


def weigh(search: FamilySearch, nodes: Nodes, played: Episodes) -> Nodes:
    """Weighs episodes by the forecast that was fixed before; returns the forecast of the next ones."""
    try:
        search.seen.absorb(search.seen.read(played), nodes)
    except BrokenPromise as broken:
        raise BrokenPromise(f"the real system is none of the family's simulators: {broken}") from None
    return place_nodes(search)


def widths(search: FamilySearch, fit: Fit) -> Floats:
    """Returns `[d]` about how much of each interval is left, for whoever watches: nothing claimed depends on it."""
    span = search.family.high - search.family.low
    reach = math.sqrt(2 * max(fit.log_likelihood - search.seen.threshold, 0.0))
    return np.minimum(2 * reach * np.sqrt((fit.root**2).sum(axis=1)) / span, 1.0)


def place_nodes(search: FamilySearch) -> Nodes:
    """Fits the likely structures and places the forecast of the next batch: a mixture near the posterior [F1]."""
    seen, family = search.seen, search.family
    d = len(family.names)
    alive = np.flatnonzero(seen.possible)
    each = max(8, min(NODES * d, 8192 // len(alive)))
    even = _in_box(family, search._even[:, :each])
    law = family.program.at(even)
    with np.errstate(divide="ignore"):
        logs = seen.counts[alive] @ np.log(np.maximum(law, 1e-300))  # [n, each]
    order = np.argsort(-logs.max(axis=1), kind="stable")[:LIKELY]
    before = {fit.structure: fit.theta for fit in search.fits}
    search.fits = []
    for place in order:
        k = int(alive[place])
        starts = [even[:, int(logs[place].argmax())]] + ([before[k]] if k in before else [])
        values = seen.evidence(k).log_likelihood(family.program.at(np.stack(starts, axis=1)))
        search.fits.append(maximise(search, k, starts[int(values.argmax())]))
    structure = [np.repeat(alive, each)]
    theta, log_weight = [np.tile(even, len(alive))], [(logs - math.log(each)).ravel()]
    rng = keyed_generator(search.seed, "nodes", search.rounds)
    for fit in search.fits:
        near = fit.theta[:, None] + math.sqrt(SPREAD) * fit.root @ rng.normal(size=(d, each))
        near = near[:, ((near >= family.low[:, None]) & (near <= family.high[:, None])).all(axis=0)]
        if not near.shape[1]:
            continue
        place = int(np.flatnonzero(alive == fit.structure)[0])
        own = seen.evidence(fit.structure).log_likelihood(np.maximum(family.program.at(near), 1e-300))
        for i, (points, values) in enumerate(((even, logs[place]), (near, own))):
            off = np.linalg.solve(math.sqrt(SPREAD) * fit.root, points - fit.theta[:, None])
            scale = float(np.prod(family.high - family.low) / abs(np.linalg.det(math.sqrt(SPREAD) * fit.root)))
            density = 1 + (2 * math.pi) ** (-d / 2) * np.exp(-(off**2).sum(axis=0) / 2) * scale  # of both placements
            weighed = values - np.log(density) - math.log(each)
            if i == 0:
                log_weight[0][place * each : (place + 1) * each] = weighed
            else:
                structure.append(np.full(points.shape[1], fit.structure))
                theta.append(points)
                log_weight.append(weighed)
    which = np.concatenate(structure)
    logs_all = np.concatenate(log_weight) + seen.log_first[which]
    weight = np.exp(logs_all - logs_all.max())
    points = np.concatenate(theta, axis=1)
    return Nodes(which, points, family.forecast(which, points), weight / weight.sum())


def _even_points(d: int, n: int = 8192) -> Floats:
    """Returns `[d, n]` points spread evenly over the unit box: multiples of powers of one irrational number."""
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (d + 1))
    return np.mod(0.5 + np.outer(root ** -np.arange(1.0, d + 1), np.arange(n)), 1.0)


def points_in(family: Family, n: int) -> Floats:
    """Returns `[d, n]` points spread evenly over the box."""
    return _in_box(family, _even_points(len(family.names), n))


def _in_box(family: Family, unit: Floats) -> Floats:
    return family.low[:, None] + (family.high - family.low)[:, None] * unit


def named(family: Family, theta: Floats) -> str:
    """Returns parameters in words."""
    return ", ".join(f"{name} = {value:.4g}" for name, value in zip(family.names, theta, strict=True))


@dataclass(frozen=True)
class FamilyConstants:
    """What a search in a family began with, and what its claim rests on."""

    tuning: dict[str, Any]
    names: list[str]
    box: list[list[float]]  # [d][2]
    zeta: float  # declared relative error of one probability
    error: float  # of a value: rounding, and rewards that count as equal
    log_numerator: float  # logarithm of what the forecasts gave to what was seen
    threshold: float  # log-likelihoods above it live
    steps: list[list[float]]  # that were seen: kind, observation, action, next one, reward, and how often
    fits: list[list[Any]]  # structures and their most likely parameters, which decide how cells are cut
    structure: int  # of the policy
    planned_at: list[float]  # parameters whose best policy it is
    allowed: float  # loss with which cells were accepted: epsilon, or more where the episodes ran out
    cells: int
    gap: float  # the largest bound of a cell, errors included
    alpha: float  # tolerance: total variation between the real laws and those of the true parameters
    terms: list[list[Any]]  # with a tolerance: row, forecast and counts of outcomes, batch by batch
    looked: int  # policies that were to be claimed so far
    returns: list[float]  # totals of the episodes that confirmed the last of them
    earns: list[float]  # interval of the policy's value, from its own episodes
    shown_at: int | None  # episodes after which the policy was covered for the first time
    theta: dict[str, list[float]]  # of each parameter: low, high, most likely
    pictures: list[dict[str, Any]]  # for the page: what is left, and what the policy loses there


def outcome(search: FamilySearch, chosen: Chosen, certified: bool) -> Outcome:
    """Returns the answer: the policy, the claim in words, and the shares of delta that were spent."""
    family, seen, total = search.family, search.seen, search.engine.ledger.total
    covered, allowed = search.covered, search.epsilon
    if not certified:
        if not search.gave_up:
            search.forget_earned()
        covered, allowed = widened(search, chosen) if search.is_confirmed(chosen.actions) else (None, search.epsilon)
        if search.gave_up and covered is not None:
            search.doubt(covered.low, covered.upper)
    guaranteed = covered is not None and covered.complete
    gap = covered.regret if covered is not None and guaranteed else math.inf
    claimed = search.epsilon if gap <= search.epsilon else gap
    if guaranteed and covered is not None:
        search.upper = min(search.reward_range[1], covered.upper)
        search._likelihood.claim(LIVES, (), total, seen.log_numerator - seen.threshold)
        if search.looked:  # also of a policy that is not claimed
            search._earned.claim(LOWER, (), CONFIRM, search.lower)
    intervals = theta_intervals(search)
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    law = np.maximum(family.program.at(fit.theta[:, None]), 0.0)
    spent = StopReason.TOLERANCE if search.gave_up else StopReason.EPISODES_SPENT
    reason = StopReason.EVERY_MODEL if certified else spent if guaranteed else StopReason.BUDGET_SPENT
    words = partial(
        claim_words,
        search.delta,
        assumptions=[assumption(family, search.alpha), *search.recorded_words],
        sampling=search.engine.ledger.assumes,
        reward_range=search.reward_range,
        reason=reason,
    )
    answer = Outcome(
        policy=search.policy(chosen.actions),
        claim=words(epsilon=claimed, lower=search.lower, upper=search.upper) if guaranteed else no_claim(search, total),
        learner="families",
        epsilon=claimed if guaranteed else search.epsilon,
        delta=search.delta,
        reason=reason,
        guaranteed=guaranteed,
        value_hat=float(search.tables(fit.structure).values(law, chosen.actions)[0]),
        v_star_hat=float(search.tables(fit.structure).plan(law)[0][0]),
        upper=search.upper if guaranteed else None,
        lower=search.lower if guaranteed else None,
        rounds=search.rounds,
        claims=search.share.claims() if guaranteed else (),
        theta={name: (low_, high_, likely) for name, (low_, high_, likely) in intervals.items()},
        remarks=()
        if certified
        else (f"the policy loses {number_words(chosen.regret, up=True)} or more at parameters that are left",),
        constants=FamilyConstants(
            tuning=asdict(search.tuning),
            names=list(family.names),
            box=np.stack([family.low, family.high], axis=1).tolist(),
            zeta=ZETA,
            error=search.error,
            log_numerator=seen.log_numerator,
            threshold=seen.threshold,
            steps=[[*step, seen.n[place]] for step, place in seen.steps.items()],
            fits=[[one.structure, one.theta.tolist()] for one in search.fits],
            structure=chosen.structure,
            planned_at=chosen.theta.tolist(),
            allowed=allowed,
            cells=0 if covered is None else covered.cells,
            gap=gap if guaranteed else -1.0,
            alpha=search.alpha,
            terms=[[list(row), q.tolist(), n.tolist()] for row, q, n in seen.stepwise.terms] if search.alpha else [],
            looked=search.looked,
            returns=search.confirmation,
            earns=[search.lower, search.earns_at_most],
            shown_at=search.shown_at,
            theta={name: list(ends) for name, ends in intervals.items()},
            pictures=pictures(search, chosen, intervals),
        ),
    )
    return replace(answer, replay=partial(tolerance_curve, search, chosen, answer))


def no_claim(search: FamilySearch, total: int) -> str:
    """Returns why nothing is claimed: with a tolerance, epsilon is given up for a wider claim only after some episodes."""
    if not search.alpha or total >= FEWEST + CONFIRM:
        return FEW
    return (
        f"No guarantee: {total:,} episodes were played. With a tolerance a claim wider than epsilon is made after "
        f"{FEWEST} episodes at the earliest, and {CONFIRM} of its policy: allow {FEWEST + CONFIRM} or more."
    )


def assumption(family: Family, alpha: float = 0.0) -> str:
    """Returns what the claim rests on, in words that can follow "that"."""
    ends = zip(family.names, family.low, family.high, strict=True)
    where = " and ".join(f"{name} in [{low:g}, {high:g}]" for name, low, high in ends)
    items = "".join(f" and one of {len(items):,} items for {name}" for name, items in family.lists.items())
    if family.is_declared_affine:  # which was compared at some points alone
        items += f"; its probabilities are affine in {' and '.join(family.names)}"
    if alpha:
        return (
            f"the laws of the real system, at the start and at every state and action, are within "
            f"{number_words(alpha, up=False)} of the given simulator's in total variation, on the same outcomes, for some "
            f"{where}{items}"
        )
    return f"the real system is the given simulator for some {where}{items}"


def widened(
    search: FamilySearch, chosen: Chosen, least: float | None = None, evidence: dict[int, Evidence] | None = None
) -> tuple[Cover | None, float]:
    """Returns a cover with the smallest loss that can be shown, in growing steps, and that loss; None where none can."""
    allowed = max(search.epsilon, chosen.regret + 2 * search.error) if least is None else least
    step = 1.5 if not search.alpha and evidence is None else 1.1
    while allowed < search.reward_range[1] - search.reward_range[0]:
        found = certify(search, chosen, allowed, evidence)
        if found.complete:
            return found, allowed
        allowed, step = step * allowed, min(1.5, step * 1.1)
    return None, allowed


def tolerance_curve(search: FamilySearch, chosen: Chosen, answer: Outcome) -> ToleranceCurve:
    """Returns what the same episodes say of the policy for wider and wider tolerances [F7].

    A row says no less than the rows before it. What cannot be covered is the whole range of totals.
    """
    low, high = search.reward_range
    why = "" if answer.guaranteed else "nothing was claimed"
    if not search.seen.has_history:
        why = (
            why or f"the family has too many {'structures' if search.family.is_read else 'ways to read an observation'}"
        )
    if why:
        return ToleranceCurve((), answer.epsilon, why)
    gap, upper, left = answer.epsilon, high if answer.upper is None else answer.upper, math.nan
    rows = [ToleranceRow(search.alpha, gap, upper, left)]
    for alpha in (2.0**-i for i in range(LEAST_RUNG, 0, -1) if 2.0**-i > search.alpha):
        if gap < high - low:
            evidence = search.seen.nearly(alpha)
            found, _ = widened(search, chosen, max(gap, lost_at_points(search, chosen, evidence)), evidence)
            if found is None or found.regret == -math.inf:  # nothing is shown, or nothing lives
                gap, upper = high - low, high
            else:
                gap, upper = max(gap, found.regret), max(upper, found.upper)
        rows.append(ToleranceRow(alpha, gap, min(upper, high), left))
    return ToleranceCurve(tuple(rows), answer.epsilon)


def lost_at_points(search: FamilySearch, chosen: Chosen, evidence: dict[int, Evidence]) -> float:
    """Returns the largest loss at some points that live, for whoever looks for a bound above it."""
    lost = 0.0
    for fit in search.fits:
        own = evidence[fit.structure]
        z = keyed_generator(search.seed, "curve", fit.structure).normal(size=(len(fit.theta), 96))
        z *= 2.0 ** (np.arange(96) % 4) / np.linalg.norm(z, axis=0)
        points = np.concatenate([fit.theta[:, None], fit.theta[:, None] + 2 * fit.root @ z], axis=1)
        points = np.clip(points, search.family.low[:, None], search.family.high[:, None])
        law = np.maximum(search.family.program.at(points), 0.0)
        alive = own.log_likelihood(law) > own.threshold
        if alive.any():
            tables = search.tables(fit.structure)
            losses = loss_at(search.family, tables, chosen.actions, points[:, alive], law[:, alive], own.alpha)
            lost = max(lost, float(losses.max()) + 2 * search.error)
    return lost


def theta_intervals(search: FamilySearch) -> dict[str, tuple[float, float, float]]:
    """Returns for each parameter an interval that holds it where it lives, and its most likely value."""
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    evidence = {int(k): search.seen.evidence(int(k)) for k in np.flatnonzero(search.seen.possible)}
    ends = hull_of(search.family, evidence, {one.structure: one.theta for one in search.fits}, search.tables)
    return {
        name: (float(low), float(high), float(likely))
        for name, (low, high), likely in zip(search.family.names, ends, fit.theta, strict=True)
    }


def hull_of(family: Family, evidence_of: dict[int, Evidence], fits: dict[int, Floats], tables_of: Any = None) -> Floats:
    """Returns `[d, 2]` an interval of each parameter that holds everything that lives; `cover_all` has the arguments."""
    d, box = len(family.names), np.stack([family.low, family.high], axis=1)
    ends = np.array([[math.inf, -math.inf]] * d)
    for k, evidence in evidence_of.items():
        tables = tables_of(k) if tables_of is not None else Tables(family, k)
        scale, hull = cell_scale(family, evidence, fits.get(k)), box
        if k in fits and not evidence.alpha and (known := ellipsoid(family, evidence, fits[k])) is not None:
            hull = around(family, known)
        for finer in HULL_SCALES[-1:] if d < 3 else HULL_SCALES:  # many parameters: first what wide cells leave
            found = cover(family, tables, evidence, None, 0.0, scale / finer, HULL_CELLS, 0.0, hull)
            if not found.complete:
                break
            hull = found.hull
            if not np.isfinite(hull).all():  # nothing lives here
                break
        ends = np.stack([np.minimum(ends[:, 0], hull[:, 0]), np.maximum(ends[:, 1], hull[:, 1])], axis=1)
    if not np.isfinite(ends).all():
        return box  # where nothing lives the next look would say so
    return np.where(np.abs(ends - box) <= ROUNDED * np.abs(box).max(axis=1, keepdims=True), box, ends)


def pictures(
    search: FamilySearch, chosen: Chosen, intervals: dict[str, tuple[float, float, float]]
) -> list[dict[str, Any]]:
    """Returns what the page draws of one or two parameters: which are left, and what the policy loses there."""
    family, d = search.family, len(search.family.names)
    if d > 2:
        return []
    fit = max(search.fits, key=lambda one: one.log_likelihood)
    tables = search.tables(fit.structure)
    axes = []
    for i, (low, high, _) in enumerate(intervals.values()):
        more = 0.25 * (high - low)
        axes.append(
            np.linspace(max(low - more, family.low[i]), min(high + more, family.high[i]), 101 if d == 1 else 49)
        )
    shape = tuple(map(len, axes))
    law = np.maximum(family.program.at(np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")])), 0.0)
    evidence = search.seen.evidence(fit.structure)
    logs = (evidence.log_likelihood(law) - evidence.threshold).reshape(shape)
    loss = (tables.plan(law)[0] - tables.values(law, chosen.actions)).reshape(shape)
    x, names = axes[0], family.names

    def curve(name: str, style: str, xs: Floats, ys: Floats) -> list[Any]:
        return [name, style, [[float(f"{a:.6g}"), float(f"{b:.6g}")] for a, b in zip(xs, ys, strict=True)]]

    rest = "; ".join(f"{name} in [{low:.4g}, {high:.4g}]" for name, (low, high, _) in intervals.items())
    summary = f"Not ruled out: {rest}. Most likely: {named(family, fit.theta)}."
    if chosen.witness is not None:
        summary += f" The policy loses too much at the witness, {named(family, chosen.witness[1])}."
    if d == 1:
        title, summary = "Log-likelihood above the threshold", f"Above 0 nothing is ruled out. {summary}"
        kept = [curve("log-likelihood", "a", x, np.maximum(logs, -10.0)), curve("threshold", "b", x, 0 * x)]
    else:
        title, kept = f"Not ruled out: {names[1]}", []
        alive = (logs > 0).any(axis=1) | ~(logs > 0).any()
        x, loss = x[alive], np.where(logs > 0, loss, 0.0).max(axis=1)[alive]
        for name, style, part in (("not ruled out", "a", 0.0), ("half the evidence", "c", 0.5)):
            kept.append(curve(name, style, *outline(axes[0], axes[1], logs - part * float(logs.max()))))
        for name, style, at in (
            ("most likely", "a", fit.theta),
            ("witness", "c", chosen.witness and chosen.witness[1]),
        ):
            if at is not None:
                arms = 0.02 * np.array([[1, -1, 0, 0, 0], [0, 0, 0, 1, -1]]) * [[np.ptp(axis)] for axis in axes]
                kept.append(curve(name, style, *(at[:, None] + arms)))
    where = f"where {names[0]} is" if d == 1 else f"at the worst {names[1]} that is"
    lost = [curve("loss of the policy", "a", x, loss), curve("epsilon", "b", x, np.full(len(x), search.epsilon))]
    return [
        {"title": title, "x": names[0], "curves": [c for c in kept if c[2]], "summary": summary},
        {
            "title": "What the policy loses",
            "x": names[0],
            "curves": lost,
            "summary": f"It counts {where} not ruled out.",
        },
    ]


def outline(x: Floats, y: Floats, height: Floats) -> tuple[Floats, Floats]:
    """Returns a closed curve around the places of a grid `[x, y]` at which a height is above 0: to the right and back."""
    some = np.flatnonzero((height > 0).any(axis=1))
    ends = []
    for flip in (1, -1):  # the largest y of every x, then the smallest
        tall, axis = height[some][:, ::-flip], y[::-flip]
        place = (tall > 0).argmax(axis=1)
        here, out = tall[np.arange(len(some)), place], tall[np.arange(len(some)), np.maximum(place - 1, 0)]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(place > 0, here / (here - out), 0.0)  # straight lines between places of the grid
        ends.append(axis[place] + part * (axis[np.maximum(place - 1, 0)] - axis[place]))
    around = np.concatenate([some, some[::-1], some[:1]])
    return x[around], np.concatenate([ends[0], ends[1][::-1], ends[0][:1]])


@event(
    "families",
    "weighing",
    "which parameters hold what was seen too unlikely?",
    "log-likelihood of the most likely ones, above the threshold",
)
class ThetaWeighed(Event):
    """Episodes were weighed by every parameter of the box."""

    why: str  # what was played
    earned: float  # mean total
    radius: float  # log-likelihood of the most likely parameters less the threshold
    likely: tuple[float, ...]  # the most likely ones
    widths: tuple[float, ...]  # about what is left of each interval, relative to the box
    structures: int  # combinations of listed items that are left

    def said(self) -> Said:
        """Returns what the episodes did."""
        left = ", ".join(f"{100 * width:.3g}%" for width in self.widths)
        which = "the intervals are" if len(self.widths) > 1 else "the interval is"
        sentence = f"{self.n:,} episodes of {self.why} earned {self.earned:.3g}; about {left} of {which} left"
        reading = Reading(WIDTHS, tuple(math.log(max(width, LEAST_DRAWN)) for width in self.widths))
        return Said(f"{left} left", sentence, self.radius, readings=(reading,))
