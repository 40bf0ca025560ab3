"""Stored runs on a terminal: the claim, what it rests on, tables of runs. Answers in a notebook: the same with a picture."""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from richobs.core import words
from richobs.core.outcome import Outcome, estimate_words
from richobs.learners.base import Plan
from richobs.runs.certificate import Certificate
from richobs.runs.store import VERIFICATION, StoredRun
from richobs.show.chart import Picture, bounds_picture, page
from richobs.show.tree import Candidates

STATES = {"finished": "green", "running": "cyan", "stopped": "red", "unfinished": "yellow"}
NOTHING = Picture("", "")


CONTROLS = {  # what a terminal would obey, or an encoding refuse -> how it is shown
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))},
}


class PlainConsole(Console):
    """A console that shows control characters in names and texts instead of obeying them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields what is printed; styles become escape sequences only after this."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or (text.isascii() and text.isprintable()):
                yield segment
            else:
                yield Segment(text.translate(CONTROLS), segment.style)


def plain_console(*, stderr: bool = False) -> Console:
    """Returns a console that prints names and paths as they were typed: nothing is wrapped, highlighted or replaced.

    Control characters alone are replaced: they are shown by their code.
    """
    return PlainConsole(stderr=stderr, soft_wrap=True, highlight=False, emoji=False)


def named_rows(rows: list[tuple[str, str]]) -> Table:
    """Returns (name, words) as a table without lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows:
        table.add_row(Text(f"  {name}"), Text(value, overflow="fold"))  # an id may be longer than a line
    return table


def claim_text(run: StoredRun) -> Text:
    """Returns the claim of a finished run, in colour."""
    return Text("") if run.certificate is None else coloured(run.certificate.claim, gives_what_was_asked(run))


def coloured(claim: str, as_asked: bool) -> Text:
    """Returns a claim: green where it is what was asked for, yellow where it is wider or none."""
    return Text(claim, style=f"bold {'green' if as_asked else 'yellow'}")


def gives_what_was_asked(run: StoredRun) -> bool:
    """Whether a run ended with a guarantee, and one that is not wider than asked."""
    if run.certificate is None:
        return False
    result = run.certificate.content["result"]
    return bool(result["guaranteed"]) and result["epsilon"] <= run.settings.epsilon


def summary(run: StoredRun) -> RenderableType:
    """Returns what is known of a stored run, finished or not."""
    rows = [("world", headline(run))]
    rows += _so_far(run) if run.certificate is None else _found(run, run.certificate.content)
    return Group(named_rows(rows), spending(run))


def headline(run: StoredRun) -> str:
    """Returns a sentence about a run's problem."""
    return f"{run.world or words.OWN}: {words.problem_size(run.horizon, run.n_actions, run.n_states, run.log_size)}"


def _found(run: StoredRun, content: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns what a finished run found, by name."""
    result = content["result"]
    candidates = Candidates.of(run.steps).fates
    tried = result["rounds"] and not candidates
    told = f", {words.several(result['rounds'], 'candidate')} tried" if tried else ""
    real = result["real_episodes"]
    played = "" if real is None else f" asked for, {words.count(real)} really played"
    rows = [("learner", run.settings.learner), ("episodes", f"{words.count(result['episodes'])}{played}{told}")]
    if candidates:
        rows.append(("candidates", candidates))
    if result["skipped"]:
        rows.append(("repeats left out", f"{words.count(result['skipped'])} episodes or more, on paths learned before"))
    if result["upper"] is None and result["v_star_hat"] is not None:
        rows.append(("best value V*", f"{words.value(result['v_star_hat'])} by estimate"))
    if result["value_hat"] is not None:
        rows.append(("policy's value", estimate_words(result["value_hat"], result["lower"], result["upper"])))
    if content["claims"]:
        rows.append(
            (
                "rests on",
                f"{words.several(len(content['claims']), 'statement')}; shares of delta are in the certificate",
            )
        )
    if content.get("units") is not None:
        rows.append(("rescaled", content["units"]["words"]))
    if result["log_size"] is not None:
        rows.append(
            ("survivors", f"{words.functions(result['log_size'])} of {words.functions(run.log_size)} functions")
        )
    rows.append(("stopped because", str(result["reason"])))
    rows += [("struggled", remark) for remark in result["remarks"]]
    if run.verification is not None:
        found = run.verification
        rows.append((VERIFICATION, f"says, made {found.made}, that {found.said}; `richobs verify` checks it again"))
    return rows


def _so_far(run: StoredRun) -> list[tuple[str, str]]:
    """Returns where a run without an end stands, by name."""
    rows = [("learner", run.settings.learner)]
    rows.append(("state", f"{run.state}: {run.message}" if run.message else run.state))
    rows.append(("episodes", f"{words.count(run.ledger.total)} so far, {len(run.steps):,} tests"))
    candidates = Candidates.of(run.steps)
    if candidates.known:
        rows.append(("candidates", candidates.fates))
    if candidates.outlook:
        rows.append(("outlook", candidates.outlook))
    if run.steps:
        last = run.steps[-1]
        if last.upper is not None and last.lower is not None:
            upper, lower = words.at_most(last.upper), words.at_least(last.lower)
            rows.append(("bounds so far", f"V* at most {upper}, policy at least {lower}"))
        if not math.isnan(size := last.event.log_size_after):
            rows.append(("survivors", f"{words.functions(size)} of {words.functions(run.log_size)} functions"))
    return rows


def spending(run: StoredRun) -> Table:
    """Returns where the episodes of a run went."""
    table = Table(box=None, pad_edge=False)
    for column in ("  episodes went to", "requests", "episodes", "share"):
        table.add_column(column, justify="left" if column.startswith("  ") else "right")
    for (phase, purpose), (requests, episodes) in run.ledger.by("phase", "purpose").items():
        share = f"{episodes / run.ledger.total:.1%}"
        table.add_row(Text(f"  {phase}: {purpose}"), f"{requests:,}", words.count(episodes), share)
    return table


def runs_table(runs: list[tuple[str, StoredRun | str]]) -> Table:
    """Returns runs as a table, one line each; a folder that cannot be read has its fault in words."""
    table = Table(box=None, pad_edge=False)
    for column in ("folder", "world", "learner", "state", "episodes", "policy >=", "V* <=", "last stored"):
        right = column in ("episodes", "policy >=", "V* <=")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for name, run in runs:
        if isinstance(run, str):
            table.add_row(Text(name), Text(run, style="red"))
            continue
        last = run.steps[-1] if run.steps else None
        least = "" if last is None or last.lower is None else words.at_least(last.lower)
        most = "" if last is None or last.upper is None else words.at_most(last.upper)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.last)) if run.last else ""
        state = Text(run.state, style=STATES.get(run.state, ""))
        asked = (Text(run.world or "(own)"), Text(run.settings.learner))
        table.add_row(Text(name), *asked, state, words.count(run.ledger.total), least, most, when)
    return table


def outcome_html(outcome: Outcome) -> str:
    """Returns what `learn` answered."""
    names = ("lower", "upper", "value_hat", "guaranteed", "episodes", "remarks")
    result = {name: getattr(outcome, name) for name in names} | {"reason": outcome.reason.value}
    return _html(outcome.claim, outcome.learner, result, outcome.reward_range)


def certificate_html(certificate: Certificate) -> str:
    """Returns what a certificate states."""
    content = certificate.content
    return _html(certificate.claim, content["learner"], content["result"], content["environment"]["reward_range"])


def plan_html(plan: Plan) -> str:
    """Returns a plan line by line."""
    most = "not known" if plan.max_episodes is None else f"{words.count(plan.max_episodes)} episodes"
    rows = [(row.name, f"{words.number(row.value)} {row.unit}") for row in plan.rows()]
    return page(plan.title, NOTHING, [*rows, ("worst case", most)], whole=False)


def _html(claim: str, learner: str, result: Mapping[str, Any], span: tuple[float, float] | None) -> str:
    lower, upper, value = (result[name] for name in ("lower", "upper", "value_hat"))
    picture = NOTHING
    if span is not None and None not in (lower, upper) and result["guaranteed"]:
        picture = bounds_picture((span[0], span[1]), lower, upper, value)
    rows = [("learner", learner), ("episodes", words.count(result["episodes"]))]
    rows += [] if value is None else [("policy's value", estimate_words(value, lower, upper))]
    rows += [("stopped because", result["reason"]), *(("struggled", remark) for remark in result["remarks"])]
    return page(claim, picture, rows, whole=False)
