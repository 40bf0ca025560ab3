"""The command line: parse, call, print; no mathematics."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import json
import math
import pathlib
import sys
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import richobs
from richobs.assumptions import Report, audit, check_assumptions
from richobs.certificate import Certificate, verify
from richobs.display import listing, number, statements_watched, summary, watched
from richobs.envs.registry import WORLDS, config_class, configure, make
from richobs.envs.world import Problem
from richobs.errors import InvalidInput, RichObsError, RunStopped
from richobs.learning import Settings, check
from richobs.outcome import Callback, Progress
from richobs.paper import Scale
from richobs.paper import runner as paper
from richobs.planning import CertifiedPlan, plan, plan_certified
from richobs.policy import LearnedPolicy
from richobs.report import write_report
from richobs.store import (
    CERTIFICATE,
    CONFIG,
    MAY_CHANGE,
    POLICY,
    REPORT,
    StoredRun,
    discard,
    find_runs,
    keep_verification,
    run_in,
)
from richobs.tensorboard import TensorBoard

MOST_STREAMED = 10**11  # episodes per request that are streamed without being asked twice: some hours

HINT = "A world is given as `lock --horizon 10` or as `lock/10`. `--version` prints the version."
WIDE = 200  # columns of a listing that nobody looks at on a terminal

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
        ahead = plan_certified(problem, Settings(epsilon=self.epsilon, delta=self.delta, n_states=self.n_states))
        if self.json:
            certified = {"suffices": ahead.suffices, "similar": [m._asdict() for m in ahead.similar]}
            console.print_json(json.dumps({"id": problem.id, **sizes.as_json(), "certified": certified}))
            return 0
        console.print(_headline(problem))
        console.print(_ahead(ahead))
        console.print("\n[bold]the paper's schedule[/] (`--schedule paper`), every size fixed in advance")
        table = Table(box=None, pad_edge=False)
        for column in ("", "", "unit", "formula"):
            table.add_column(column, style="dim" if column == "formula" else "")
        section = ""
        for row in sizes.rows():
            if row.section != section:
                section = row.section
                table.add_row(f"[bold]{section}[/]")
            table.add_row(f"  {row.name}", number(row.value), row.unit, row.where)
        console.print(table)
        return 0


@dataclasses.dataclass(frozen=True)
class Learn:
    """Learn a near-optimal policy, with a certificate."""

    world: World
    """Which world."""
    settings: Settings
    out: pathlib.Path | None = None
    """Folder that keeps the run; by default one under `runs/` named after it. An unfinished run there goes on."""
    json: bool = False
    """Print the certificate instead of a summary."""
    quiet: bool = False
    """Print nothing while it runs, and only the claim at the end."""
    no_report: bool = False
    """Leave the page `report.html` out."""
    overwrite: bool = False
    """Start anew where the folder holds a run already."""
    tensorboard: pathlib.Path | None = None
    """Also write what happens to this folder for TensorBoard (needs the extra `tensorboard`)."""

    def run(self, console: Console) -> int:
        """Learns, writes certificate and policy, prints the claim."""
        problem = _build(self.world)
        asked = self.settings
        sizes = None
        if asked.schedule == "paper":
            sizes = plan(problem, epsilon=asked.epsilon, delta=asked.delta, n_states=asked.n_states)
        folder = self.out or _default_folder(problem, self.settings)
        streams = asked.engine == "stream" or (asked.engine == "auto" and problem.process is None)
        if sizes and streams and asked.max_episodes is None and sizes.constants.search.n_train > MOST_STREAMED:
            raise InvalidInput(
                f"the paper's schedule asks for {number(sizes.constants.search.n_train)} episodes per elimination here, "
                "and the streaming engine plays them one by one, some ten million a second. Set --max-episodes to start "
                "anyway."
            )
        check(problem, asked)  # before anything is removed
        if self.overwrite and folder.exists():
            discard(folder)
        return _learn_in(console, folder, problem, asked, self)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run that was killed or interrupted, or that spent the episodes it was allowed."""

    folder: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    max_episodes: int | None = None
    """Allow this many episodes in all; by default as many as before."""
    workers: int | None = None
    """Threads that share the episodes; by default as many as before."""
    json: bool = False
    """Print the certificate instead of a summary."""
    quiet: bool = False
    """Print nothing while it runs, and only the claim at the end."""
    no_report: bool = False
    """Leave the page `report.html` out."""
    tensorboard: pathlib.Path | None = None
    """Also write what happens to this folder for TensorBoard (needs the extra `tensorboard`)."""

    def run(self, console: Console) -> int:
        """Goes on and prints the claim."""
        stored = StoredRun.read(self.folder)
        if stored.world is None:
            raise InvalidInput(
                f"the run in {self.folder} plays an environment that is not one of richobs's worlds, so it cannot be built "
                "here. Call richobs.learn(env, functions, ..., out=folder) from Python again."
            )
        settings = stored.settings
        if self.max_episodes is not None:
            settings = dataclasses.replace(settings, max_episodes=self.max_episodes)
        if self.workers is not None:
            settings = dataclasses.replace(settings, workers=self.workers)
        return _learn_in(console, self.folder, make(stored.world), settings, self)


def _learn_in(
    console: Console, folder: pathlib.Path, problem: Problem, settings: Settings, asked: "Learn | Resume"
) -> int:
    """Learns in a folder, going on where it stopped, and says what was found."""
    if getattr(problem.world, "is_deterministic", True) is False:
        Console(stderr=True, soft_wrap=True).print(
            "warning: transitions of this world are random (Assumption 3 is false), so a claim about it means nothing.",
            style="yellow",
        )
    expected = settings.max_episodes
    if expected is None and settings.schedule == "paper":
        expected = plan(
            problem, epsilon=settings.epsilon, delta=settings.delta, n_states=settings.n_states
        ).max_episodes
    with contextlib.ExitStack() as stack:
        show = watched(problem.id, problem.functions.log_size, expected, quiet=asked.quiet or asked.json)
        listeners: list[Callback] = [stack.enter_context(show)]
        if asked.tensorboard is not None:
            listeners.append(stack.enter_context(TensorBoard(asked.tensorboard)))

        def tell(progress: Progress) -> None:
            for listener in listeners:
                listener(progress)

        try:
            played = problem.env.episodes
            outcome = run_in(folder, problem, settings, tell)
        except KeyboardInterrupt:
            stack.close()
            Console(stderr=True, soft_wrap=True).print(
                f"stopped; what was drawn is kept. Go on: richobs resume {folder}"
            )
            raise
    stored = StoredRun.read(folder)
    assert stored.certificate is not None, "a run that ended well has a certificate"
    written = [folder / CERTIFICATE, folder / POLICY]
    if not asked.no_report:
        written += write_report([stored], folder / REPORT, figures=False)
    if asked.json:
        console.file.write(stored.certificate.to_json())
        return 0
    wider = outcome.epsilon > settings.epsilon
    console.print(f"[bold {'yellow' if wider else 'green'}]{outcome.claim}[/]")
    if asked.quiet:
        return 0
    console.print(summary(stored))
    if outcome.episodes and problem.env.episodes == played and settings.engine != "counted":
        console.print("\nnothing was played: the folder held this run already", style="dim")
    console.print(f"\nwrote {', '.join(map(str, written[:-1]))} and {written[-1]}")
    if wider:
        console.print(f"asked for was {settings.epsilon:g}; go on: richobs resume {folder} --max-episodes N")
    console.print(f"check it again: richobs verify {folder / CERTIFICATE}", style="dim")
    return 0


@dataclasses.dataclass(frozen=True)
class Runs:
    """List stored runs with their state."""

    folder: tyro.conf.Positional[pathlib.Path] = pathlib.Path("runs")
    """Where to look, sub-folders included."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints one line per run."""
        if not self.folder.is_dir():
            raise InvalidInput(f"there is no folder {self.folder}; `richobs learn` makes one.")
        found: list[tuple[str, StoredRun | str]] = []
        for place in find_runs(self.folder):
            try:
                found.append((str(place), StoredRun.read(place)))
            except RichObsError as error:
                found.append((str(place), str(error)))
        if self.json:
            console.print_json(json.dumps([_listed(name, run) for name, run in found]))
        elif found:
            console.width = console.width if console.is_terminal else WIDE
            console.print(listing(found))
        else:
            console.print(f"no runs in {self.folder}")
        return 0


def _listed(name: str, run: StoredRun | str) -> dict[str, Any]:
    """Returns a stored run in plain values."""
    if isinstance(run, str):
        return {"folder": name, "error": run}
    return {
        "folder": name,
        "world": run.world,
        "settings": dataclasses.asdict(run.settings),
        "state": run.state,
        "message": run.message,
        "episodes": run.ledger.total,
        "tests": len(run.steps),
    }


@dataclasses.dataclass(frozen=True)
class Show:
    """Print the summary of a stored run again, finished or not."""

    folder: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the claim and what it rests on, or how far the run is."""
        stored = StoredRun.read(self.folder)
        if self.json:
            certificate = None if stored.certificate is None else stored.certificate.content
            console.print_json(json.dumps({**_listed(str(self.folder), stored), "certificate": certificate}))
            return 0
        if stored.certificate is not None:
            console.print(f"[bold green]{escape(stored.certificate.claim)}[/]")
        console.print(summary(stored))
        limited = stored.state == "stopped" and "--max-episodes" in stored.message
        if (stored.state == "unfinished" or limited) and stored.world is not None:
            console.print(f"go on: richobs resume {self.folder}", style="dim")
        return 0


@dataclasses.dataclass(frozen=True)
class WriteReport:
    """Write one page about one or several stored runs, with figures beside it."""

    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]] = (pathlib.Path("runs"),)
    """Run folders, or folders that hold some."""
    out: pathlib.Path | None = None
    """The page; by default report.html in the run's folder, or in the first folder given."""

    def run(self, console: Console) -> int:
        """Writes the page."""
        places = [place for folder in self.folders for place in (find_runs(folder) if folder.is_dir() else [folder])]
        if not places:
            raise InvalidInput(f"no runs in {', '.join(map(str, self.folders))}.")
        runs = []
        for place in dict.fromkeys(places):
            try:
                runs.append(StoredRun.read(place))
            except RichObsError as error:
                if len(places) == 1:
                    raise
                Console(stderr=True, soft_wrap=True).print(f"left out {place}: {error}", markup=False)
        written = write_report(runs, self.out or self.folders[0] / REPORT)
        console.print(f"wrote {written[0]}" + (f" and {len(written) - 1} figures beside it" if written[1:] else ""))
        return 0


@dataclasses.dataclass(frozen=True)
class Verify:
    """Derive a certificate's constants again, run its draws again, and say whether every byte agrees."""

    file: tyro.conf.Positional[pathlib.Path]
    """The certificate, or the folder it is in; a policy.npz beside it is checked too."""
    json: bool = False
    """Print JSON instead of a table."""
    quiet: bool = False
    """Print nothing while it runs."""

    def run(self, console: Console) -> int:
        """Prints what agrees; the exit status is 1 if anything does not."""
        file = self.file / CERTIFICATE if self.file.is_dir() else self.file
        if not file.exists():
            raise InvalidInput(f"there is no certificate {file}; `richobs learn` writes one.")
        certificate = Certificate.load(file)
        if certificate.environment is None:
            raise InvalidInput(
                f"{file} is about an environment that is not one of richobs's worlds, so it cannot be built again "
                "here. Call richobs.verify(certificate, problem) from Python."
            )
        problem = make(certificate.environment)
        beside = file.with_name(POLICY)
        policy = LearnedPolicy.load(beside) if beside.exists() else None
        with watched(problem.id, problem.functions.log_size, quiet=self.quiet or self.json) as callback:
            checked = verify(certificate, problem, policy=policy, callback=callback)
        if file.name == CERTIFICATE and file.with_name(CONFIG).exists():
            keep_verification(file.parent, checked)
            if file.with_name(REPORT).exists():
                write_report([StoredRun.read(file.parent)], file.with_name(REPORT), figures=False)
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
    """Which statements, by name (docs/paper-map.md lists them); none means all."""
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
            with statements_watched(quiet=self.quiet or self.json) as watch:
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
                for c in report.conclusion.checks:
                    detail = "" if self.quiet else f" [dim]({escape(c.detail.rstrip('.'))})[/]"
                    console.print(f"  {marks[c.holds]}: {escape(c.what)}{detail}")
            console.print(f"\nwrote {self.out / 'index.html'}")
        return 0 if all(r.conclusion.holds for r in reports) else 1


COMMANDS = {
    "plan": Plan,
    "learn": Learn,
    "resume": Resume,
    "runs": Runs,
    "show": Show,
    "report": WriteReport,
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
            description=f"{inspect.getdoc(richobs)}\n\n{HINT}",
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
    world = given.partition(",")[0].partition("/")[0] or given
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


def _ahead(ahead: CertifiedPlan) -> Table:
    """Returns what is known in advance of the certified schedule, as a table."""
    table = Table(
        title="[bold]the certified schedule[/] (the default), which fixes no size in advance",
        title_justify="left",
        title_style="",
        box=None,
        pad_edge=False,
    )
    table.add_column("  similar worlds needed", no_wrap=True)
    for column in ("episodes", "range", "epsilon", "functions"):
        table.add_column(column, justify="right", no_wrap=True)
    for m in ahead.similar:
        least, median, most = m.episodes
        size = f"10^{m.log_size / math.log(10):.0f}"
        table.add_row(f"  {m.world}", f"{median:,}", f"{least:,} to {most:,}", f"{m.epsilon:g}", size)
    if ahead.suffices is not None:
        table.add_row("  surely enough", number(ahead.suffices))
    return table


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


def _default_folder(problem: Problem, settings: Settings) -> pathlib.Path:
    asked = dataclasses.asdict(settings)
    plain = dataclasses.asdict(Settings())
    named = [f"{k}={v}" for k, v in asked.items() if v != plain[k] and k not in MAY_CHANGE]
    return pathlib.Path("runs") / ",".join([problem.id.replace("/", "-"), *named])


def _about(world: str) -> str:
    return (inspect.getdoc(config_class(world)) or "").partition("\n")[0]
