"""Bounds over cells of parameters: likelihood [F3], regret [F2], and the search that covers what lives with cells [F4].

Pure functions of arrays. Labels are those of `docs/models.md`. Shapes: d parameters, q products of two, S states, K actions,
n = S K rows, B outcomes of a row at most, O observations, E events, P points, C cells, H levels.
"""

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from richobs.classes import taylor
from richobs.classes.parametric import Family
from richobs.classes.taylor import Taylor, linear_size, pairs, products, quadratic_above, quadratic_size
from richobs.core.policies import TIE
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.families.steps import Within

FLOOR = 1e-12  # added to a probability of which likelihood is bounded from above: sums that cancel are off by less
LARGEST = 1e4  # times the range of totals: a cell whose Taylor models have larger parts is halved, not believed
AT_ONCE = 400_000  # numbers [d, B, n, C] that a level of a look at cells holds
MOST_AT_ONCE = 64  # cells of one look
WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # of log-likelihood, with which a loss is bounded at points that live
CHEAP = 16  # cells whose likelihood alone is bounded cost as much as one whose loss is bounded, about
SHRINKS = 0.3  # halving all d sides of a cell makes its bound of the loss 2^(1 / SHRINKS) times smaller, about
HOPELESS = 1  # times the budget: a cover of three parameters or more that seems to need more cells is given up
TRIED = 8  # centres of failed cells in which the loss is planned exactly


class Tables:
    """The outcomes of one structure, by rows (state, action)."""

    def __init__(self, family: Family, structure: int):
        arrays = family.arrays
        B, S, K = len(family.events), family.n_states, family.n_actions
        self.n_states, self.n_actions, self.horizon = S, K, family.horizon
        self.start: Floats = arrays.start[structure]
        self.events: Ints = family.events[:, structure].reshape(B, S * K)
        done = arrays.done[:, structure].reshape(B, S * K)
        self.reward: Floats = arrays.reward[:, structure].reshape(B, S * K)
        self.next: Ints = np.where(done, S, arrays.next[:, structure].reshape(B, S * K)).astype(np.int64)
        self.real: Mask = ~family.padding[:, structure].reshape(B, S * K)  # [B, n] outcomes that are listed
        self.shows: Ints = family.shows[structure]  # [S] the number of what each state shows
        self.n_shown = family.state_of.shape[1]  # O
        self.first: Ints = np.arange(S) * K  # the row of action 0 of each state

    @cached_property
    def reachable(self) -> "Tables":
        """The outcomes of states that an episode can reach: whatever is bounded from the start on depends on no others."""
        S, K = self.n_states, self.n_actions
        reached, before = np.append(self.start > 0, True), 0  # [S + 1]
        while before < (before := int(reached.sum())):
            reached[self.next[self.real & np.repeat(reached[:S], K)]] = True
        kept = np.flatnonzero(reached[:S])
        rows = (kept[:, None] * K + np.arange(K)).ravel()
        small = copy(self)
        small.n_states, small.start = len(kept), self.start[kept]
        small.shows, small.first = self.shows[kept], self.first[: len(kept)]
        small.events, small.reward, small.real = self.events[:, rows], self.reward[:, rows], self.real[:, rows]
        small.next = np.where(reached, np.cumsum(reached) - 1, len(kept))[self.next[:, rows]]
        return small

    def plan(self, law: Floats, pay: Floats | None = None) -> tuple[Floats, Ints]:
        """Returns `[P]` V* and `[H, O, P]` best actions at observations, at points with probabilities `[E, P]`.

        Of actions that differ by no more than rounding the first is best, so that another processor plans the same.

        Args:
            law: of every event.
            pay: `[n, P]` mean rewards of rows, in the place of those of the outcomes.
        """
        S, K, n = self.n_states, self.n_actions, law.shape[1]
        p = law[self.events]
        if pay is None:
            pay = np.einsum("bnp,bn->np", p, self.reward)
        value, best = np.zeros((S + 1, n)), np.zeros((self.horizon, self.n_shown, n), dtype=np.int64)
        for h in reversed(range(self.horizon)):
            q = (pay + np.einsum("bnp,bnp->np", p, value[self.next])).reshape(S, K, n)
            top = q.max(axis=1)
            best[h, self.shows] = (q >= (top - TIE * np.abs(q).max(axis=(0, 1)))[:, None]).argmax(axis=1)
            value[:S] = top
        return self.start @ value[:S], best

    def values(self, law: Floats, policy: Ints) -> Floats:
        """Returns `[P]` the value of a policy `[H, O]` at points with probabilities `[E, P]`."""
        value = np.zeros((self.n_states + 1, law.shape[1]))
        p = law[self.events]
        pay = np.einsum("bnp,bn->np", p, self.reward)
        for h in reversed(range(self.horizon)):
            rows = self.first + policy[h, self.shows]
            value[:-1] = pay[rows] + np.einsum("bnp,bnp->np", p[:, rows], value[self.next[:, rows]])
        return self.start @ value[:-1]


class Regret(NamedTuple):
    """What is surely true at every point of each cell; shapes [C]."""

    regret: Floats  # V* - V(policy) is at most this
    low: Floats  # V(policy) is at least this
    high: Floats  # and at most this
    size: Floats  # largest part of a Taylor model of a value; with what rounding grows
    plane: Taylor  # V* - V(policy) is at most this function of the point


class Slopes(NamedTuple):
    """How the outcomes of rows depend on parameters: of k that a row depends on, the linear parts."""

    g: Floats  # [k, B, n, C]
    own: Ints | None  # [k, n] which parameters these are; None: all, in their order

    @classmethod
    def of(cls, g: Floats, all_of_them: bool) -> "Slopes":
        """Returns the slopes of outcomes `[d, B, n, C]`, without parameters on which no outcome of a row depends."""
        depends: Mask = np.asarray(g.any(axis=(1, 3)))  # [d, n]
        k = max(1, int(depends.sum(axis=0).max(initial=0)))
        if all_of_them or k == len(g):
            return cls(g, None)
        own = np.argsort(~depends, axis=0, kind="stable")[:k]
        return cls(np.take_along_axis(g, own[:, None, :, None], axis=0), own)

    def mean(self, x: Floats) -> Floats:
        """Returns `[k, n, C]` the linear parts of the sum of outcomes times numbers `[B, n, C]`."""
        return np.einsum("kbnc,bnc->knc", self.g, x)

    def add_mean(self, to: Floats, x: Floats) -> None:
        """Adds `mean` to linear parts `[d, n, C]`."""
        if self.own is None:
            to += self.mean(x)
            return
        for own, part in zip(self.own, self.mean(x), strict=True):
            to[own, np.arange(len(own))] += part

    def add_products(self, to: Floats, f: Floats) -> None:
        """Adds the sums of outcomes times linear forms `[d, B, n, C]` to quadratic parts `[q, n, C]`."""
        if self.own is None:
            to += products(self.g, f).sum(axis=1)
            return
        number = np.zeros((len(f), len(f)), dtype=np.int64)
        for i, (one, two) in enumerate(pairs(len(f))):
            number[one, two] = number[two, one] = i
        for own, g in zip(self.own, self.g, strict=True):
            for j, part in enumerate(np.einsum("bnc,dbnc->dnc", g, f)):
                to[number[own, j], np.arange(len(own))] += part


@np.errstate(all="ignore")  # nothing may be known of an event
def regret_over(tables: Tables, events: Taylor, policy: Ints, alpha: float = 0.0) -> Regret:
    """Bounds the loss of a policy `[H, O]` over cells on which the events are Taylor models `[E, C]` (Theorem F2).

    The Taylor model of V is carried backwards; outcomes of a row sum to 1 at every point, so that only differences of next
    values count. D, the regret from a state on, is at most a linear function of the point: the mean of D afterwards where
    the policy goes on, and that plus the advantage where another action is taken.

    With a tolerance alpha the bounds are those of every system whose laws are within alpha of the cell's (Theorem F7).
    Then W is how far the value of the policy may be from V, and Z how far V* may be above V; D is a number.
    """
    tables = tables.reachable
    S, K, ball = tables.n_states, tables.n_actions, events.ball
    d, C = len(events.g), events.c.shape[1]
    q = len(events.m)
    p, r = events.c[tables.events], events.r[tables.events]  # [B, n, C]
    curved = bool(events.m.any())
    slopes = Slopes.of(events.g[:, tables.events], curved or ball)
    m = events.m[:, tables.events] if curved else None
    curvature = quadratic_size(events.m, ball)[tables.events]
    reward = tables.reward[:, :, None]
    c, G, M, T = np.zeros((S + 1, C)), np.zeros((d, S + 1, C)), np.zeros((q, S + 1, C)), np.zeros((S + 1, C))
    D, size, W, Z = np.zeros((S + 1, C)), np.zeros(C), np.zeros((S + 1, C)), np.zeros((S + 1, C))
    slope = np.zeros((d, S + 1, C))  # of D
    real = tables.real[:, :, None]
    of = np.repeat(np.arange(S), K)  # the state of each row
    # Probabilities e_b sum to 1 at every point, and the middles p_b of their ranges need not: for any v the mean of u is
    # v + sum e_b (u_b - v), and with v = sum p_b u_b its middle is v (2 - sum p_b).
    rest_of_one = 2 - p.sum(axis=0)  # [n, C]

    def mean_above(x: Floats) -> Floats:
        """Returns `[n, C]` at least the mean of numbers `[B, n, C]` by the outcomes' probabilities, all over the cell."""
        mean = np.einsum("bnc,bnc->nc", p, x)
        off = x - mean
        above = mean * rest_of_one
        above += linear_size(slopes.mean(off), ball) + np.einsum("bnc,bnc->nc", r, np.abs(off))
        if m is not None:
            above += quadratic_size(np.einsum("qbnc,bnc->qnc", m, off), ball)
        return above

    def most(x: Floats) -> Floats:
        """Returns `[n, C]` at least the mean of numbers `[B, n, C]` under every law within alpha of the outcomes'."""
        return mean_above(x) + alpha * _span(x, x, real) if alpha else mean_above(x)

    def add_mean_of_planes(to: Taylor) -> None:
        """Adds to functions of rows `[n, C]` at least the mean of D by the outcomes' probabilities."""
        x, y = D[tables.next], slope[:, tables.next]
        mean = np.einsum("bnc,bnc->nc", p, x)
        off = x - mean
        to.c[:] += mean * rest_of_one
        to.g[:] += np.einsum("bnc,dbnc->dnc", p, y)
        slopes.add_mean(to.g, off)
        slopes.add_products(to.m, y)
        to.r[:] += np.einsum("bnc,bnc->nc", r, np.abs(off) + linear_size(slope, ball)[tables.next])
        if m is not None:
            to.m[:] += np.einsum("qbnc,bnc->qnc", m, off)
            to.r[:] += linear_size(quadratic_size(np.einsum("qbnc,dbnc->qdnc", m, y), ball), ball)

    for h in reversed(range(tables.horizon)):
        u = reward + c[tables.next]
        Qc = np.einsum("bnc,bnc->nc", p, u)
        off = u - Qc
        Qc *= rest_of_one
        Gb, Mb = G[:, tables.next], M[:, tables.next]
        Qg, Qm = np.einsum("bnc,dbnc->dnc", p, Gb), np.einsum("bnc,qbnc->qnc", p, Mb)
        slopes.add_mean(Qg, off)
        slopes.add_products(Qm, Gb)
        cubic = np.einsum("kbnc,qbnc->qknc", slopes.g, Mb)
        linear, quadratic = linear_size(G, ball)[tables.next], quadratic_size(M, ball)[tables.next]
        rest = np.einsum("bnc,bnc->nc", r, np.abs(off) + linear + quadratic)
        if m is not None:
            Qm += np.einsum("qbnc,bnc->qnc", m, off)
            cubic += np.einsum("qbnc,dbnc->qdnc", m, Gb)
            rest += np.einsum("bnc,bnc->nc", curvature, quadratic)
        rest += linear_size(quadratic_size(cubic, ball), ball)
        T_before = T[tables.next]
        QT = rest + mean_above(T_before)
        rows = tables.first + policy[h, tables.shows]
        c[:S], G[:, :S], M[:, :S], T[:S] = Qc[rows], Qg[:, rows], Qm[:, rows], QT[rows]
        advantage = Taylor(Qc - c[of], Qg - G[:, of], Qm - M[:, of], QT + T[of], ball)
        if alpha:
            gained = advantage.high
            gained[rows] = 0.0
            later = Taylor(u, Gb, Mb, T_before, ball)
            moved = alpha * _span(later.high, later.low, real)  # (P - p) u is at most this
            apart = moved + most(W[tables.next])  # of Q in the real system, from Q here
            Z[:S] = (gained + moved + most(Z[tables.next])).reshape(S, K, C).max(axis=1)
            W[:S] = apart[rows]
            gained += apart + W[of]
            gained[rows] = 0.0
            D[:S] = (gained + most(D[tables.next])).reshape(S, K, C).max(axis=1)
            D[:S] = np.minimum(D[:S], Z[:S] + W[:S])
        else:
            for part in (advantage.c, advantage.g.swapaxes(0, 1), advantage.m.swapaxes(0, 1), advantage.r):
                part[rows] = 0.0
            add_mean_of_planes(advantage)
            D[:S], slope[:, :S] = largest_plane(advantage, S, rows - tables.first)
        size = np.maximum(size, (np.abs(c) + linear_size(G, ball) + quadratic_size(M, ball) + T).max(axis=0))
    first = tables.start
    V = Taylor(
        first @ c[:S],
        np.einsum("s,dsc->dc", first, G[:, :S]),
        np.einsum("s,qsc->qc", first, M[:, :S]),
        first @ T[:S],
        ball,
    )
    lost, slope, off = first @ D[:S], np.einsum("s,dsc->dc", first, slope[:, :S]), np.zeros(C)
    if alpha:
        begins = (first > 0)[:, None]
        value = Taylor(c[:S], G[:, :S], M[:, :S], T[:S], ball)
        lost = lost + alpha * _span(D[:S], D[:S], begins)
        off = first @ W[:S] + alpha * (_span(W[:S], W[:S], begins) + _span(value.high, value.low, begins))
    worst = lost + linear_size(slope, ball)
    known = np.isfinite(size + V.r + worst + off)
    regret, lost, low, high, size = (
        np.where(known, x, bad)
        for x, bad in ((worst, np.inf), (lost, np.inf), (V.low - off, -np.inf), (V.high + off, np.inf), (size, np.inf))
    )
    slope = np.where(known, slope, 0.0)
    return Regret(regret, low, high, size, Taylor(lost, slope, np.zeros((q, C)), np.zeros(C), ball))


@np.errstate(all="ignore")
def largest_plane(rows: Taylor, S: int, first: Ints) -> tuple[Floats, Floats]:
    """Returns `[S, C]` c and `[d, S, C]` g with c + g.z at least every function of a state's rows, all over the cell.

    Curvature goes into c. Planes are then taken together one by one: where neither x nor y is the larger one everywhere
    and y - x goes from l to u, max(x, y) = x + max(y - x, 0) is at most x + (y - x - l) u / (u - l).

    Args:
        rows: `[n, C]` functions of S states times K actions.
        S: states.
        first: `[S]` the action of each state with which to begin.
    """
    ball, C, every = rows.ball, rows.c.shape[1], np.arange(S)
    c = (rows.c + quadratic_above(rows.m, ball) + rows.r).reshape(S, -1, C)
    g = rows.g.reshape(len(rows.g), *c.shape)
    top = (c + linear_size(g, ball)).max(axis=1)
    most, slope = c[every, first], g[:, every, first]
    for a in range(c.shape[1]):
        off, tilt = c[:, a] - most, g[:, :, a] - slope
        reach = linear_size(tilt, ball)
        low, high = off - reach, off + reach
        part = np.clip(np.where(reach > 0, high / (2 * reach), off > 0), 0.0, 1.0)
        most = most + part * off + np.where((low < 0) & (high > 0), -part * low, 0.0)
        slope = slope + part * tilt
    flat = ~(most <= top)
    return np.where(flat, top, most), np.where(flat, 0.0, slope)


def _span(most: Floats, least: Floats, real: Mask) -> Floats:
    """Returns the largest of `most` less the smallest of `least` along the first axis, where `real`."""
    return np.asarray(np.where(real, most, -np.inf).max(axis=0) - np.where(real, least, np.inf).min(axis=0))


@np.errstate(all="ignore")
def likelihood_over(events: Taylor, counts: Floats, cap: Floats | None = None) -> tuple[Floats, Taylor | None]:
    """Returns `[C]` at least the largest log-likelihood over each cell, and a Taylor model of it without a cap [F3].

    Args:
        events: `[E, C]`.
        counts: `[E]` how often each was seen.
        cap: `[E]` probabilities below it count as it, where there is a tolerance [F7].
    """
    seen = np.flatnonzero(counts)
    n = counts[seen]
    e = events[seen]
    high = np.minimum(e.high + FLOOR, 1.0 + FLOOR)
    log = taylor.log(Taylor(e.c + FLOOR, e.g, e.m, e.r, e.ball))
    model = None
    if cap is not None:
        high = np.maximum(high, cap[seen, None])
        free = e.low >= cap[seen, None]  # the cap does not matter anywhere in the cell
        c, g, m, r = (np.einsum("e,...ec->...c", n, np.where(free, x, 0.0)) for x in (log.c, log.g, log.m, log.r))
        curve = Taylor(c, g, m, r, e.ball).high + np.where(free, 0.0, n[:, None] * np.log(high)).sum(axis=0)
    else:
        model = Taylor(n @ log.c, np.einsum("e,dec->dc", n, log.g), np.einsum("e,qec->qc", n, log.m), n @ log.r, e.ball)
        curve = model.high
    natural = np.where(high > 0, n[:, None] * np.log(np.maximum(high, 1e-300)), -np.inf).sum(axis=0)
    return np.minimum(natural, np.where(np.isfinite(curve), curve, np.inf)), model


@np.errstate(all="ignore")
def loss_of_living(loss: Taylor, log_likelihood: Taylor, threshold: float, scale: float, largest: float) -> Floats:
    """Returns `[C]` at least the loss at every point of a cell that lives (Lemma F3).

    There log L exceeds the threshold, so that for every weight w >= 0 the loss is at most that of
    loss + w (log L - threshold), whose largest value over the cell may be smaller than that of the loss.

    Args:
        loss: `[C]` at least what is lost.
        log_likelihood: `[C]` Taylor models.
        threshold: a point lives while its log-likelihood exceeds this.
        scale: of the losses that matter; weights are multiples of it.
        largest: sums with larger parts are not believed, because of rounding.
    """
    best = loss.high
    above = log_likelihood + -threshold
    for weight in WEIGHTS:
        sum_ = loss + above * (weight * scale)
        best = np.where(sum_.size + sum_.r <= largest, np.fmin(best, sum_.high), best)
    return best


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the data say of one structure: how often each event was seen, and which likelihood is too small."""

    counts: Floats  # [E]
    threshold: float  # a point lives while its log-likelihood exceeds this
    within: Within | None = None  # what a tolerance adds to likelihoods [F7]

    @property
    def alpha(self) -> float:
        """The tolerance."""
        return 0.0 if self.within is None else self.within.alpha

    def log_likelihood(self, law: Floats) -> Floats:
        """Returns `[P]` at points with probabilities `[E, P]`, what a tolerance allows included."""
        seen, law = np.flatnonzero(self.counts), np.maximum(law, 0.0)
        with np.errstate(divide="ignore"):
            if self.within is None:
                return np.asarray(self.counts[seen] @ np.log(law[seen]))
            capped = np.maximum(law, self.within.cap[:, None])[seen]
            return np.asarray(self.counts[seen] @ np.log(capped) + self.within.allowed(law, law))

    def over(self, events: Taylor) -> tuple[Floats, Taylor | None]:
        """Returns `[C]` at least the largest log-likelihood over cells, what a tolerance allows included [F3, F7].

        Without a tolerance, a Taylor model of the log-likelihood too.
        """
        if self.within is None:
            return likelihood_over(events, self.counts)
        known = np.isfinite(events.r)
        low, high = np.where(known, events.low, 0.0) - FLOOR, np.where(known, events.high, 1.0) + FLOOR
        above, _ = likelihood_over(events, self.counts, self.within.cap)
        return above + self.within.allowed(low, high), None


class Cover(NamedTuple):
    """What a search over the cells of one structure found."""

    complete: bool  # whether every point that lives lies in an accepted cell
    regret: float  # largest bound of an accepted cell; -inf where nothing lives
    low: float  # V(policy) is at least this at every point that lives
    upper: float  # V* is at most this at every point that lives
    hull: Floats  # [d, 2] an interval of each parameter that holds every point that lives
    witness: Floats | None  # [d] a point that lives and at which the policy loses more than allowed
    cells: int  # that were looked at


def cover(
    family: Family,
    tables: Tables,
    evidence: Evidence,
    policy: Ints | None,
    allowed: float,
    scale: Floats,
    budget: int,
    error: float,
    region: Floats | None = None,
) -> Cover:
    """Covers every point that lives with cells in which a policy loses at most `allowed` (Theorem F4).

    A cell is dropped if its likelihood bound is at most the threshold, accepted if its regret bound is at most `allowed`,
    and halved otherwise. Without a policy, cells narrower than `scale` are accepted: only what lives is looked for.

    Args:
        family: the family.
        tables: of one structure.
        evidence: of it.
        policy: `[H, O]` actions.
        allowed: largest loss.
        scale: `[d]` cells wider than that are halved before they are looked at.
        budget: most cells.
        error: by which a value may be wrong for other reasons than the cell: rounding, and what counts as equal.
        region: `[d, 2]` intervals that surely hold every point that lives; by default the box.
    """
    found = Cover(True, -math.inf, math.inf, -math.inf, np.array([[math.inf, -math.inf]] * len(scale)), None, 0)
    regret, low, upper, hull, looked = found.regret, found.low, found.upper, found.hull.copy(), 0
    d, totals = len(scale), family.reward_range[1] - family.reward_range[0]
    at_once = max(1, min(MOST_AT_ONCE, AT_ONCE // (tables.next.size * d)))
    first = np.stack([family.low, family.high], axis=1) if region is None else region
    centre, width = first.mean(axis=1)[:, None], ((first[:, 1] - first[:, 0]) / 2)[:, None]
    centre, width = _alive(family, evidence, centre, width)
    most = budget if policy is None else CHEAP * budget
    while (wide := (width > scale[:, None]).any(axis=0)).any():
        looked += 2 * int(wide.sum())
        if looked > most:
            return found._replace(complete=False, cells=looked if policy is None else 0)
        halves = _alive(family, evidence, *_halves(centre[:, wide], width[:, wide], scale))
        centre, width = (np.concatenate([x[:, ~wide], y], axis=1) for x, y in zip((centre, width), halves, strict=True))
    need, looked = (
        np.ones(centre.shape[1]),
        0 if policy is not None else looked,
    )  # [C] cells that each is thought to need
    while centre.shape[1]:
        chunk = np.arange(centre.shape[1]) if policy is None else np.argsort(-need, kind="stable")[:at_once]
        now, half = centre[:, chunk], width[:, chunk]
        centre, width, need = (np.delete(x, chunk, axis=-1) for x in (centre, width, need))
        accepted = np.ones(len(chunk), dtype=bool)
        if policy is not None:
            looked += len(chunk)
            bounds, bound = loss_over(family, tables, evidence, policy, allowed, now, half)
            bound = bound + 2 * error
            accepted = np.asarray((bound <= allowed) & (bounds.size <= LARGEST * totals))
            if not accepted.all():
                worst = np.flatnonzero(~accepted)[np.argsort(-bound[~accepted])[:TRIED]]
                witness = _losing(family, tables, evidence, policy, allowed, now[:, worst])
                if witness is not None:
                    return found._replace(complete=False, witness=witness, cells=looked)
            regret = max(regret, float(bound[accepted].max(initial=-math.inf)))
            low = min(low, float(bounds.low[accepted].min(initial=math.inf)) - error)
            upper = max(upper, float((bounds.high + bound)[accepted].max(initial=-math.inf)))
            still = np.minimum(bound[~accepted] / allowed, 1e4) ** (d * SHRINKS)
            if looked > budget or (d > 2 and looked + need.sum() + still.sum() > HOPELESS * budget):
                return found._replace(complete=False, cells=looked)
        good = np.flatnonzero(accepted)
        hull[:, 0] = np.minimum(hull[:, 0], (now - half)[:, good].min(axis=1, initial=math.inf))
        hull[:, 1] = np.maximum(hull[:, 1], (now + half)[:, good].max(axis=1, initial=-math.inf))
        if not accepted.all():
            parts = _halves(now[:, ~accepted], half[:, ~accepted], scale)
            kept = _living(family, evidence, *parts)
            centre, width = (
                np.concatenate([x, y[:, kept]], axis=1) for x, y in zip((centre, width), parts, strict=True)
            )
            need = np.concatenate([need, np.maximum(np.tile(still / 2, 2), 1.0)[kept]])
    inside = np.clip(hull, family.low[:, None], family.high[:, None]) if math.isfinite(hull[0, 0]) else hull
    return Cover(True, regret, low, upper, inside, None, looked)


def _living(family: Family, evidence: Evidence, centre: Floats, width: Floats) -> Ints:
    """Returns which cells may hold a point that lives."""
    each = 16 * MOST_AT_ONCE
    parts = [slice(i, i + each) for i in range(0, centre.shape[1], each)]
    over = [evidence.over(family.program.over(Taylor.cells(centre[:, at], width[:, at])))[0] for at in parts]
    return np.flatnonzero(~(np.concatenate([*over, np.zeros(0)]) <= evidence.threshold))


def _alive(family: Family, evidence: Evidence, centre: Floats, width: Floats) -> tuple[Floats, Floats]:
    kept = _living(family, evidence, centre, width)
    return centre[:, kept], width[:, kept]


def loss_over(
    family: Family, tables: Tables, evidence: Evidence, policy: Ints, allowed: float, centre: Floats, width: Floats
) -> tuple[Regret, Floats]:
    """Returns bounds over cells, and `[C]` at least what the policy loses at points that live."""
    events = family.program.over(Taylor.cells(centre, width))
    bounds, (_, model) = regret_over(tables, events, policy, evidence.alpha), evidence.over(events)
    if model is None:
        return bounds, bounds.regret
    largest = LARGEST * (family.reward_range[1] - family.reward_range[0])
    return bounds, loss_of_living(bounds.plane, model, evidence.threshold, allowed, largest)


def _halves(centre: Floats, width: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """Returns both halves of every cell, cut across the side that is longest relative to `scale`."""
    side = (width / scale[:, None]).argmax(axis=0)
    cut = np.arange(len(width))[:, None] == side
    half = np.where(cut, width / 2, width)
    shift = np.where(cut, half, 0.0)
    return np.concatenate([centre - shift, centre + shift], axis=1), np.concatenate([half, half], axis=1)


def _losing(
    family: Family, tables: Tables, evidence: Evidence, policy: Ints, allowed: float, points: Floats
) -> Floats | None:
    """Returns one of the points `[d, P]` that lives and at which the policy loses more than allowed; None: there is none."""
    law = np.maximum(family.program.at(points), 0.0)
    loss = loss_at(family, tables, policy, points, law, evidence.alpha)
    bad = np.flatnonzero((loss > allowed) & (evidence.log_likelihood(law) > evidence.threshold))
    return points[:, bad[loss[bad].argmax()]] if len(bad) else None


def loss_at(family: Family, tables: Tables, policy: Ints, points: Floats, law: Floats, alpha: float) -> Floats:
    """Returns `[P]` what the policy loses at points `[d, P]` with probabilities `[E, P]`; within a tolerance, its bound."""
    if not alpha:
        return tables.plan(law)[0] - tables.values(law, policy)
    each = max(1, AT_ONCE // (tables.next.size * len(points)))
    parts = (points[:, i : i + each] for i in range(0, points.shape[1], each))
    over = (family.program.over(Taylor.cells(part, np.zeros_like(part))) for part in parts)
    return np.concatenate([regret_over(tables, events, policy, alpha).regret for events in over])


def ellipsoid(family: Family, evidence: Evidence, point: Floats) -> Taylor | None:
    """Returns the parameters `[d, 1]` on an ellipsoid that holds all that lives; None where there is none (Lemma F5).

    Args:
        family: the family; probabilities of what was seen must be affine.
        evidence: of one structure.
        point: `[d]` near the maximum of the likelihood; what it misses is added.
    """
    seen = np.flatnonzero(evidence.counts)
    if not len(seen) or not family.program.is_affine[seen].all():
        return None
    n = evidence.counts[seen]
    slope = family.program.coefficients[family.program.wanted[seen], 1:]  # [e, d]
    law = family.program.at(point[:, None])[seen]
    e = law[:, 0]
    here = float(evidence.log_likelihood(family.program.at(point[:, None]))[0])
    if not (e > 1e-9).all() or here <= evidence.threshold:
        return None
    score = (n / e) @ slope
    missed = float(np.maximum(score * (family.high - point), score * (family.low - point)).sum())
    missed += 5 * float(n.sum()) * FLOOR / float(e.min())  # the cubic of log(1 + t) rises by at most 5 a unit
    fisher = (slope.T * (n / e**2)) @ slope
    try:
        root = np.linalg.inv(np.linalg.cholesky(fisher)).T  # root root' = fisher^-1
    except np.linalg.LinAlgError:
        return None
    least = float(np.linalg.eigvalsh(root.T @ fisher @ root).min())  # 1 but for rounding
    steep = float(np.sqrt(((slope @ root) ** 2).sum(axis=1) / e**2).max())
    needed = (here + missed - evidence.threshold) * (1 + 1e-6) / least if least > 0.5 else math.inf
    rho = radius(needed, steep)
    return None if rho is None else Taylor.ellipsoid(point, rho * root)


def radius(needed: float, steep: float) -> float | None:
    """Returns a rho with rho^2/2 - steep rho^3/3 >= needed, near the smallest; None where there is none (Lemma F5)."""
    top = math.inf if steep == 0 else 1 / steep

    def gain(rho: float) -> float:
        return rho * rho / 2 - steep * rho**3 / 3

    if not math.isfinite(needed) or (math.isfinite(top) and gain(top) < needed):
        return None
    low, high = 0.0, min(top, 2 * math.sqrt(2 * needed) + 1)
    if gain(high) < needed:
        high = top
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) >= needed else (middle, high)
    return high
