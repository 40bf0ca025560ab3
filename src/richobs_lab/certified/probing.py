"""Plays a path that a failed candidate takes, and eliminates what is inconsistent with it, at every level at once."""

from typing import NamedTuple

import numpy as np

from richobs import BrokenPromise
from richobs.core.errors import PrecisionError
from richobs.core.moments import Moments
from richobs.core.queries import Query
from richobs.core.types import Floats, Ints, Member, Path
from richobs.stats.shares import Spendable, Supposed
from richobs_lab.certified.events import PairTested, StageDoubled
from richobs_lab.certified.seals import Opened, Sealed
from richobs_lab.certified.state import LARGEST, PHASE, RELATIVE, CertifiedSearch
from richobs_lab.certified.survivors import ActionRisk
from richobs_lab.lsvee.elimination import risk_rounding
from richobs_lab.lsvee.spaces import largest_surviving_risk

LEAST_SLACK = 1e-13  # moments that a class computes in its own way round at about 1e-15


def freshest(search: CertifiedSearch, paths: Ints) -> Path:
    """Returns the path with most (node, action) pairs that were not tested at this stage; of equals the most frequent."""
    counts: dict[Path, int] = {}
    for row in paths.tolist():
        counts[tuple(row)] = counts.get(tuple(row), 0) + 1

    return max(counts, key=lambda path: (untested_pairs(search, path), counts[path]))


def untested_pairs(search: CertifiedSearch, path: Path) -> int:
    """Returns how many (node, action) pairs of a path no batch of this stage's size has tested."""
    return sum(search.tested.get((path[:h], a), 0) < search.stage for h, a in enumerate(path))


class Guess(NamedTuple):
    """What a pilot says about one level of a path."""

    reference: tuple[int, int]  # g: two kinds of members
    needed: int | None  # batch that should drop the candidate here; None: no batch of this stage
    drops: bool  # whether some survivor looks droppable


class LivingKinds(NamedTuple):
    """The living members of one level, grouped into kinds: equal under one action, with equal largest values."""

    members: Ints  # the living
    kind: Ints  # of each
    some: Ints  # one member of each kind

    def of(self, member: int) -> int:
        """Returns the kind of a living member."""
        return int(self.kind[np.searchsorted(self.members, member)])


class Fixed(NamedTuple):
    """What is fixed before a batch is drawn."""

    path: Path  # that is played
    n: int  # size of the batch
    levels: tuple[int, ...]  # that are judged, the last first
    references: tuple[tuple[int, int], ...]  # per level of the path: the reference's kinds


def probe(search: CertifiedSearch, member: Member, path: Path) -> None:
    """Plays a path that the candidate takes, and drops what is inconsistent with what was seen, at every level."""
    H = search.functions.horizon
    chain = (member,) * H if isinstance(member, int) else member
    living = []
    for h, a in enumerate(path):
        members = np.flatnonzero(search.space.alive(h))
        some, kind = search.functions.kinds(h, members, a)
        living.append(LivingKinds(members, kind, some))
    shown = [kinds.some for kinds in living]
    query = Query.along(path, search.tuning.pilot, shown, purpose="pilot", phase=PHASE)
    pilot = search.engine.ask(query).moments
    guesses = [_guess(search, path, living, pilot, h, chain) for h in range(H)]
    n, chosen = search.stage, list(range(H))
    sizes = [g.needed for g in guesses if g.needed is not None]
    if sizes and not search.fruitless:  # a pilot that misled is not believed twice
        n, chosen = min(sizes), [h for h in range(H) if guesses[h].drops or guesses[h].needed is not None]
    fixed = Fixed(path, n, tuple(reversed(chosen)), tuple(g.reference for g in guesses))
    batch: Sealed[Fixed] = Sealed(Query.along(path, n, shown, purpose="batch", phase=PHASE))
    opened = batch.open(search.engine, fixed)
    dropped = [_eliminate(search, living, opened, h) for h in fixed.levels]
    for h in fixed.levels:
        pair = path[:h], path[h]
        search.tested[pair] = max(n, search.tested.get(pair, 0))
    search.root_guess[living[0].members] = opened.answer.moments[0].v_mean[living[0].kind]
    search.probes += 1
    search.fruitless = 0 if any(dropped) else search.fruitless + 1
    search.stuck += not any(dropped)


def next_stage(search: CertifiedSearch, path: Path) -> None:
    """Allows batches twice as large, because every pair of the freshest path was tested at this stage's size."""
    size, before = search.space.log_bound, search.stage
    search.stage = min(2 * search.stage, LARGEST)
    search.tell(
        StageDoubled(
            phase=PHASE, path=path, log_size_before=size, log_size_after=size, batch=before, largest=search.stage
        )
    )


def _risk(
    search: CertifiedSearch, path: Path, living: list[LivingKinds], moments: tuple[Moments, ...], h: int
) -> ActionRisk:
    """Returns the risks of all survivors at level h under the path's action."""
    a, last = path[h], h == len(path) - 1
    future = np.zeros(1) if last else moments[h + 1].v_mean
    row = living[h].kind[search.space.alive(h)[living[h].members]]
    column = np.zeros(len(row), dtype=np.int64)
    if not last:
        column = living[h + 1].kind[search.space.alive(h + 1)[living[h + 1].members]]
    return ActionRisk(h, moments[h].u_var[:, a], moments[h].u_mean[:, a], future, row, column)


def _guess(
    search: CertifiedSearch,
    path: Path,
    living: list[LivingKinds],
    pilot: tuple[Moments, ...],
    h: int,
    chain: tuple[int, ...],
) -> Guess:
    """Chooses a reference from the pilot, and the size of the batch that should drop the candidate."""
    last = h == len(path) - 1
    risk = _risk(search, path, living, pilot, h)
    least, i, j = search.space.least(risk)
    mine, next_ = living[h].of(chain[h]), 0 if last else living[h + 1].of(chain[h + 1])
    excess = float(risk.noise[mine] + (risk.gain[mine] - risk.future[next_]) ** 2 - least)
    share = search.eliminations.suppose(ahead=2)

    def slack(n: Ints | int, places: Ints) -> Floats:
        e = np.zeros(1) if last else _radius(search, h + 1, living[h + 1].some, pilot[h + 1], n, share, places)
        return search.bounds.elimination_slack(e, n, Supposed(RELATIVE * share.amount))

    sizes = search.sizes()
    enough = sizes[slack(sizes, np.full(len(sizes), next_)) <= search.tuning.margin * excess]
    needed = int(enough[0]) if len(enough) else None
    order = np.argsort(risk.future)
    nearest = order[np.clip(np.searchsorted(risk.future[order], risk.gain), 0, len(order) - 1)]
    gaps = risk.noise + (risk.gain - risk.future[nearest]) ** 2 - least
    drops = bool((gaps > slack(needed or search.stage, nearest)).any())
    return Guess((i, j), needed, drops)


def _check_precision(bar: float, slack: float) -> None:
    """Refuses to let rounding decide who survives.

    Raises:
        PrecisionError: the slack is below the rounding of risks or moments.
    """
    if slack < LEAST_SLACK:
        raise PrecisionError(
            f"risks are known to about {LEAST_SLACK:g}, and the threshold adds {slack:.3g} to one. Rounding would decide "
            "which functions survive. Use a larger epsilon."
        )
    largest_surviving_risk(bar, slack)


def _radius(
    search: CertifiedSearch,
    level: int,
    members: Ints,
    moments: Moments,
    n: Ints | int,
    share: Spendable,
    places: Ints,
) -> Floats:
    """Returns the radii of the values at a node, for some places among the members that were played."""
    low, high = search.low[level][members[places]], search.high[level][members[places]]
    mean, variance = moments.v_mean[places], moments.v_var[places]
    return search.bounds.value_radius(mean, variance, n, low, high, share, rounding=moments.rounding)


def _eliminate(search: CertifiedSearch, living: list[LivingKinds], batch: Opened[Fixed], h: int) -> bool:
    """Makes two claims at one level: the child's radius for f* [E2], and that f* passes both tests [E1].

    Returns whether anything was dropped.
    """
    path, n, moments = batch.fixed.path, batch.fixed.n, batch.answer.moments
    last, a, node = h == len(path) - 1, path[h], path[:h]
    risk = _risk(search, path, living, moments, h)
    e = np.zeros(1)
    if not last:
        share = search.eliminations.next()
        e = _radius(search, h + 1, living[h + 1].some, moments[h + 1], n, share, np.arange(len(risk.future)))
        share.claim("the child's value is within its radius", path[: h + 1], n, float(e[risk.column].max()))
    share = search.eliminations.next()
    relative, absolute = share.split(RELATIVE, 1 - RELATIVE)
    i, j = batch.fixed.references[h]
    bar = float(risk.noise[i] + (risk.gain[i] - risk.future[j]) ** 2)
    slack = search.bounds.elimination_slack(e, n, relative)
    _check_precision(bar, float(slack.min()))
    here, there = moments[h].rounding, 0.0 if last else moments[h + 1].rounding
    slack = slack + risk_rounding(risk.noise, risk.gain, risk.future, here, there)
    reach = e + search.bounds.residual_radius(n, search.b, absolute) + here
    size = search.space.log_bound
    share.claim("Q* passes the elimination", (*node, a), n, bar)
    dropped = search.space.restrict(risk, bar + slack, reach)
    if not search.space.alive(h).any():
        raise BrokenPromise(
            f"no function is consistent with what action {a} at path {node} showed in {n} episodes: Q* is not in the class, "
            f"values depend on what was seen before, or transitions are random. {search.chance}"
        )
    search.tell(
        PairTested(
            phase=PHASE,
            path=(*node, a),
            n=n if h == batch.fixed.levels[0] else 0,
            log_size_before=size,
            log_size_after=search.space.log_bound,
            dropped=dropped,
            bar=bar,
            cutoff=bar + float(slack.min()),
        )
    )
    return dropped
