"""The command line: parse, call, print; no mathematics."""

import ast
import dataclasses
import inspect
import itertools
import json
import math
import pathlib
import sys
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

import richobs
from richobs.assumptions import Report, audit, check_assumptions
from richobs.certificate import Certificate, certify, verify
from richobs.envs.registry import WORLDS, config_class, configure, make
from richobs.envs.world import Problem
from richobs.errors import InvalidInput, RichObsError, RunStopped
from richobs.learning import Settings, run
from richobs.outcome import Callback, Outcome, Progress
from richobs.paper import Scale
from richobs.paper import runner as paper
from richobs.planning import SamplePlan, plan
from richobs.policy import LearnedPolicy

Result = TypeVar("Result")
SECONDS_BETWEEN_LINES = 10.0  # of progress where there is no terminal
MOST_STREAMED = 10**11  # episodes per request that are streamed without being asked twice: some hours

TAKEN = {f.name for f in dataclasses.fields(Settings)}  # options of a run; a world's own are then called world_...


def _field_docs(config: type[Any]) -> dict[str, str]:
    """Returns what the string under each field of a config says."""
    body = typing.cast("ast.ClassDef", ast.parse(inspect.getsource(config)).body[0]).body
    return {
        ast.unparse(line.target): str(ast.literal_eval(text.value))
        for line, text in itertools.pairwise(body)
        if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _option(field_name: str) -> str:
    """Returns the command-line option of a world's parameter."""
    return "--" + _option_name(field_name).replace("_", "-")


def _option_name(field_name: str) -> str:
    return f"world_{field_name}" if field_name in TAKEN else field_name


def _world_options(world: str) -> type[Any]:
    """Returns a world's Config as a sub-command: the same fields and help texts, but for names that runs use too."""
    config = config_class(world)
    docs, kinds = _field_docs(config), typing.get_type_hints(config)
    fields = [
        (
            _option_name(f.name),
            Annotated[kinds[f.name], tyro.conf.arg(help=docs.get(f.name, ""))],
            dataclasses.field(default=f.default),
        )
        for f in dataclasses.fields(config)
    ]
    names = {"__doc__": inspect.getdoc(config), "world_name": world}
    return dataclasses.make_dataclass(config.__name__, fields, frozen=True, namespace=names)


def _build(options: Any) -> Problem:
    """Returns the problem that a world's options describe."""
    names = [f.name for f in dataclasses.fields(config_class(options.world_name))]
    params = {name: getattr(options, _option_name(name)) for name in names}
    return make(options.world_name, **params)


if TYPE_CHECKING:
    World = Any
else:
    World = typing.Union[  # noqa: UP007 (built at run time)
        tuple(Annotated[_world_options(w), tyro.conf.subcommand(w, prefix_name=False)] for w in WORLDS)
    ]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Print every sample size of a run and the worst case, before anything runs."""

    world: World
    """Which world."""
    epsilon: float = 0.1
    """How far from optimal the policy may be."""
    delta: float = 0.05
    """How often it may be farther."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the world says."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the plan."""
        problem = _build(self.world)
        sizes = plan(problem, epsilon=self.epsilon, delta=self.delta, n_states=self.n_states)
        if self.json:
            console.print_json(json.dumps({"id": problem.id, **sizes.as_json()}))
            return 0
        console.print(_headline(problem))
        table = Table(box=None, pad_edge=False)
        for column in ("", "", "unit", "formula"):
            table.add_column(column, style="dim" if column == "formula" else "")
        section = ""
        for row in sizes.rows():
            if row.section != section:
                section = row.section
                table.add_row(f"[bold]{section}[/]")
            table.add_row(f"  {row.name}", _number(row.value), row.unit, row.where)
        console.print(table)
        console.print(
            "These are the sizes of `--schedule paper`; the certified schedule fixes none in advance.", style="dim"
        )
        return 0


@dataclasses.dataclass(frozen=True)
class Learn:
    """Learn a near-optimal policy, with a certificate."""

    world: World
    """Which world."""
    settings: Settings
    out: pathlib.Path | None = None
    """Folder for certificate and policy; by default one under `runs/` named after the run."""
    json: bool = False
    """Print the certificate instead of a summary."""
    quiet: bool = False
    """Print nothing while it runs, and only the claim at the end."""

    def run(self, console: Console) -> int:
        """Learns, writes certificate and policy, prints the claim."""
        problem = _build(self.world)
        asked = self.settings
        sizes = None
        if asked.schedule == "paper":
            sizes = plan(problem, epsilon=asked.epsilon, delta=asked.delta, n_states=asked.n_states)
        folder = self.out or _default_folder(problem, self.settings)
        folder.mkdir(parents=True, exist_ok=True)  # before the run: what it finds must have a place to go
        streams = self.settings.engine == "stream" or (self.settings.engine == "auto" and problem.process is None)
        if sizes and streams and self.settings.max_episodes is None and sizes.constants.search.n_train > MOST_STREAMED:
            raise InvalidInput(
                f"the paper's schedule asks for {_number(sizes.constants.search.n_train)} episodes per elimination here, "
                "and the streaming engine plays them one by one, some ten million a second. Set --max-episodes to start "
                "anyway."
            )
        outcome = _watched(
            lambda callback: run(problem, self.settings, callback),
            sizes.max_episodes if sizes else self.settings.max_episodes,
            quiet=self.quiet or self.json,
        )
        certificate = certify(outcome, problem)
        certificate.save(folder / "certificate.json")
        outcome.policy.save(folder / "policy.npz")
        if self.json:
            console.file.write(certificate.to_json())
            return 0
        console.print(f"[bold green]{outcome.claim}[/]")
        if self.quiet:
            return 0
        console.print(_summary(problem, outcome, sizes))
        console.print(_spending(outcome))
        console.print(f"\nwrote {folder / 'certificate.json'} and {folder / 'policy.npz'}")
        console.print(f"check it again: richobs verify {folder / 'certificate.json'}", style="dim")
        return 0


@dataclasses.dataclass(frozen=True)
class Verify:
    """Derive a certificate's constants again, run its draws again, and say whether every byte agrees."""

    file: tyro.conf.Positional[pathlib.Path]
    """The certificate; a policy.npz beside it is checked too."""
    json: bool = False
    """Print JSON instead of a table."""
    quiet: bool = False
    """Print nothing while it runs."""

    def run(self, console: Console) -> int:
        """Prints what agrees; the exit status is 1 if anything does not."""
        certificate = Certificate.load(self.file)
        if certificate.environment is None:
            raise InvalidInput(
                f"{self.file} is about an environment that is not one of richobs's worlds, so it cannot be built again "
                "here. Call richobs.verify(certificate, problem) from Python."
            )
        problem = make(certificate.environment)
        beside = self.file.with_name("policy.npz")
        policy = LearnedPolicy.load(beside) if beside.exists() else None
        checked = _watched(
            lambda callback: verify(certificate, problem, policy=policy, callback=callback),
            None,
            quiet=self.quiet or self.json,
        )
        if self.json:
            findings = [dataclasses.asdict(f) for f in checked.findings]
            console.print_json(json.dumps({"agrees": checked.agrees, "findings": findings}))
        else:
            console.print(f"[bold]{escape(certificate.claim)}[/]")
            marks = {True: "[green]agrees[/]", False: "[bold red]differs[/]"}
            _print_rows(console, [(f.what, marks[f.agrees], f.detail) for f in checked.findings])
        return 0 if checked.agrees else 1


@dataclasses.dataclass(frozen=True)
class Check:
    """Judge the paper's assumptions exactly, with a counterexample for each that fails."""

    world: World
    """Which world."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the report; the exit status is 1 if anything fails."""
        problem = _build(self.world)
        if problem.process is None:
            raise InvalidInput(
                f"{problem.id} has too many observations to list, so its assumptions cannot be checked exactly. "
                "`richobs audit` tests what can be tested from outside."
            )
        return _print_report(console, problem, check_assumptions(problem.process, problem.functions), self.json)


@dataclasses.dataclass(frozen=True)
class Audit:
    """Test from outside whether a world is consistent with deterministic transitions and fresh noise."""

    world: World
    """Which world."""
    sequences: int = 32
    """How many random action sequences to replay."""
    episodes: int = 256
    """How often to replay each."""
    error_rate: float = 0.01
    """Probability of reporting a failure where there is none, over the whole report."""
    audit_seed: int = 0
    """Seed of the plays (a world's own seed chooses its secret)."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the report; the exit status is 1 if anything fails."""
        problem = _build(self.world)
        with Console(stderr=True).status(f"playing {2 * self.sequences * self.episodes:,} episodes and testing them"):
            report = audit(
                problem.env,
                sequences=self.sequences,
                episodes=self.episodes,
                error_rate=self.error_rate,
                seed=self.audit_seed,
            )
        return _print_report(console, problem, report, self.json)


@dataclasses.dataclass(frozen=True)
class Worlds:
    """List the worlds and their parameters."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints every world with its parameters, their defaults and what they mean."""
        if self.json:
            listing = {
                w: {"about": _about(w), "parameters": {f.name: f.default for f in dataclasses.fields(config_class(w))}}
                for w in WORLDS
            }
            console.print_json(json.dumps(listing))
            return 0
        for world in WORLDS:
            table = Table(title=f"[bold]{world}[/]: {_about(world)}", title_justify="left", box=None, pad_edge=False)
            for heading in ("parameter", "default", "meaning"):
                table.add_column(heading, style="dim" if heading == "default" else "")
            meanings = _field_docs(config_class(world))
            for f in dataclasses.fields(config_class(world)):
                table.add_row(f"  {_option(f.name)}", str(f.default), meanings.get(f.name, ""))
            console.print(table)
            console.print()
        return 0


@dataclasses.dataclass(frozen=True)
class Paper:
    """Run statements of the paper: measure, draw, and write a page. What was measured before is not measured again."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which statements, by name; none means all."""
    fast: bool = False
    """The small versions that the tests run, in seconds instead of minutes."""
    out: pathlib.Path = pathlib.Path("runs/paper")
    """Folder for figures, results and the page."""
    workers: int = 2
    """Processes that measure; they never change a byte of the results."""
    quiet: bool = False
    """Print nothing while it runs, and only verdicts at the end."""
    json: bool = False
    """Print JSON instead of verdicts."""

    def run(self, console: Console) -> int:
        """Prints which checks hold; the exit status is 1 if any does not."""
        if self.workers < 1:
            raise InvalidInput(f"--workers must be at least 1; got {self.workers}.")
        scale: Scale = "fast" if self.fast else "full"
        try:
            with _statements_watched(quiet=self.quiet or self.json) as watch:
                reports = paper.run(self.names, scale=scale, out=self.out, workers=self.workers, watch=watch)
        except KeyboardInterrupt:
            Console(stderr=True).print(f"stopped; what was finished is in {self.out}, and the same command goes on.")
            raise
        if self.json:
            console.print_json(json.dumps([r.as_json() for r in reports]))
        else:
            marks = {True: "[green]holds[/]", False: "[bold red]does not hold as printed[/]"}
            for report in reports:
                console.print(f"[bold]{report.name}[/]: {escape(report.title)}")
                for check in report.conclusion.checks:
                    detail = "" if self.quiet else f" [dim]{escape(check.detail)}[/]"
                    console.print(f"  {marks[check.holds]}: {escape(check.what)}{detail}")
            console.print(f"\nwrote {self.out / 'index.html'}")
        return 0 if all(r.conclusion.holds for r in reports) else 1


COMMANDS = {
    "plan": Plan,
    "learn": Learn,
    "verify": Verify,
    "check": Check,
    "audit": Audit,
    "worlds": Worlds,
    "paper": Paper,
}


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 1 the answer is no, 2 it could not be done."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments == ["--version"]:
        print(f"richobs {richobs.__version__}")
        return 0
    console = Console(soft_wrap=True, highlight=False)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        command: Any = tyro.cli(
            _command_type(),
            prog="richobs",
            description=inspect.getdoc(richobs),
            args=_expanded(arguments),
            config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )
        return int(command.run(console))
    except RunStopped as error:
        spent = error.ledger.total if error.ledger is not None else 0
        errors.print(f"[bold red]richobs:[/] {escape(str(error))}")
        errors.print(f"{spent:,} episodes were spent in {len(error.trace):,} tests until then.", style="dim")
        return 2
    except (RichObsError, OSError) as error:
        errors.print(f"[bold red]richobs:[/] {escape(str(error))}")
        return 2
    except KeyboardInterrupt:
        return 130


def _command_type() -> Any:
    return typing.Union[tuple(Annotated[c, tyro.conf.subcommand(name)] for name, c in COMMANDS.items())]  # noqa: UP007


def _expanded(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with a world written as `lock/10,seed=3` spelt out: `lock --horizon 10 --world-seed 3`."""
    takes_world = [n for n, c in COMMANDS.items() if "world" in {f.name for f in dataclasses.fields(c)}]
    if len(arguments) < 2 or arguments[0] not in takes_world or arguments[1].startswith("-"):
        return list(arguments)
    given = arguments[1]
    world = given.partition(",")[0].partition("/")[0]
    fields = dataclasses.fields(
        config_class(world)
    )  # refuses a world that does not exist, with the list of those that do
    if world == given:
        return list(arguments)
    config = configure(given)
    options = {a.partition("=")[0].replace("_", "-") for a in arguments[2:]}
    named = {pair.partition("=")[0] for pair in given.split(",")[1:]} | ({"horizon"} if "/" in given else set())
    result = [arguments[0], world]
    for f in fields:
        value = getattr(config, f.name)
        if f.name in named and _option(f.name) in options:
            raise InvalidInput(f"{_option(f.name)}: given in {given!r} and again as an option.")
        if value != f.default:
            result += [_option(f.name)] + ([] if value is True else [str(value)])
    return [*result, *arguments[2:]]


def _headline(problem: Problem) -> str:
    size = problem.functions.log_size / math.log(10)
    return (
        f"[bold]{problem.id}[/]: {problem.horizon} levels, {problem.n_actions} actions, at most {problem.n_states} hidden "
        f"states a level, a class of 10^{size:.1f} functions"
    )


def _print_report(console: Console, problem: Problem, report: Report, as_json: bool) -> int:
    if as_json:
        checks = {c.name: {"holds": c.holds, "finding": c.finding} for c in report.checks}
        console.print_json(json.dumps({"id": problem.id, "holds": report.holds, "checks": checks}))
    else:
        console.print(_headline(problem))
        marks = {True: "[green]holds[/]", False: "[bold red]fails[/]", None: "[yellow]not judged[/]"}
        _print_rows(console, [(c.name, marks[c.holds], c.finding) for c in report.checks])
    return 0 if report.holds else 1


def _print_rows(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """Prints (name, mark, words) as a table without lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, mark, words in rows:
        table.add_row(f"  {name}", mark, escape(words))
    console.print(table)


def _watched(work: Callable[[Callback], Result], expected: int | None, *, quiet: bool) -> Result:
    """Calls `work` with a callback that keeps one line of progress on the terminal."""
    if quiet:
        return work(lambda progress: None)
    most = f" of at most {_number(expected)}" if expected is not None else ""
    with Console(stderr=True, highlight=False).status("starting") as status:

        def show(progress: Progress) -> None:
            event = progress.event
            bounds = ""
            if progress.upper is not None and progress.lower is not None:
                bounds = f", V* at most {progress.upper:.3f}, policy at least {progress.lower:.3f}"
            status.update(
                f"{event.kind} at path {event.path}, survivors 10^{event.log_size_after / math.log(10):.1f}, "
                f"{_number(progress.episodes)} episodes{most}{bounds}"
            )

        return work(show)


@contextmanager
def _statements_watched(*, quiet: bool) -> Iterator[paper.Watch]:
    """Yields what shows how far the statements are: bars with the time left on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda step: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=console, transient=True) as bars:
            rows: dict[str, TaskID] = {}

            def show(step: paper.Step) -> None:
                if step.statement not in rows:
                    rows[step.statement] = bars.add_task(step.statement, total=step.total)
                bars.update(rows[step.statement], completed=step.done)

            yield show
    else:
        begin = last = time.monotonic()
        first: dict[str, int] = {}  # pieces found done when the run began
        now: dict[str, paper.Step] = {}

        def tell(step: paper.Step) -> None:
            nonlocal last
            first.setdefault(step.statement, step.done)
            now[step.statement] = step
            clock = time.monotonic()
            if step.report is None and clock - last < SECONDS_BETWEEN_LINES:
                return
            last = clock
            new = sum(s.done - first[n] for n, s in now.items())
            left = sum(s.total - s.done for s in now.values())
            eta = f", about {math.ceil(left * (clock - begin) / new)} s left" if new and left else ""
            console.print(
                f"{step.statement}: {step.done} of {step.total} pieces{' (done)' if step.report else ''}{eta}"
            )

        yield tell


def _summary(problem: Problem, outcome: Outcome, sizes: SamplePlan | None) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    kept, whole = (size / math.log(10) for size in (outcome.log_size, problem.functions.log_size))
    rows = [("world", _headline(problem))]
    if sizes is not None:
        rows += [
            ("episodes", f"{_number(outcome.episodes)} of at most {_number(sizes.max_episodes)} planned"),
            ("repeats left out", f"{_number(outcome.ledger.skipped)} episodes or more, on paths learned before"),
            ("best value V*", f"{outcome.v_star_hat:.6g} (estimate)"),
            ("policy's value", f"{outcome.value_hat:.6g} (estimate)"),
        ]
    else:
        rows += [
            ("episodes", f"{_number(outcome.episodes)}, {outcome.rounds} candidates tried"),
            ("best value V*", f"at most {outcome.upper:.6g}"),
            ("policy's value", f"at least {outcome.lower:.6g} (estimate {outcome.value_hat:.6g})"),
            ("rests on", f"{len(outcome.claims)} claims, each with its share of delta in the certificate"),
        ]
    rows += [("survivors", f"10^{kept:.1f} of 10^{whole:.1f} functions"), ("stopped because", outcome.reason.value)]
    for name, value in rows:
        table.add_row(f"  {name}", value)
    return table


def _spending(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("  episodes went to", "requests", "episodes", "share"):
        table.add_column(column, justify="left" if column.startswith("  ") else "right")
    for (phase, purpose), (requests, episodes) in outcome.ledger.by("phase", "purpose").items():
        share = f"{episodes / outcome.episodes:.1%}"
        table.add_row(f"  {phase}: {purpose}", f"{requests:,}", _number(episodes), share)
    return table


def _number(value: float) -> str:
    """Returns a number as a person would write it."""
    if isinstance(value, int):
        return f"{value:,}" if value < 10**9 else f"{value:.3e}"
    return f"{value:.4g}"


def _default_folder(problem: Problem, settings: Settings) -> pathlib.Path:
    asked = dataclasses.asdict(settings)
    plain = dataclasses.asdict(Settings())
    named = [f"{k}={v}" for k, v in asked.items() if v != plain[k] and k != "workers"]
    return pathlib.Path("runs") / ",".join([problem.id.replace("/", "-"), *named])


def _about(world: str) -> str:
    return (inspect.getdoc(config_class(world)) or "").partition("\n")[0]
