"""The command line: parse, call, print; no mathematics."""

import dataclasses
import inspect
import itertools
import json
import math
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
from richobs.envs.registry import WORLDS, build, config_class, configure
from richobs.envs.world import Problem
from richobs.errors import InvalidInput, RichObsError
from richobs.randomness import keyed_generator

if TYPE_CHECKING:
    World = Any
else:  # each world's Config is its own sub-command
    World = typing.Union[  # noqa: UP007 (built at run time)
        tuple(Annotated[config_class(w), tyro.conf.subcommand(w, prefix_name=False)] for w in WORLDS)
    ]


@dataclasses.dataclass(frozen=True)
class Learn:
    """Plan a world's exact optimum and play it."""

    world: World
    """Which world."""
    episodes: int = 10_000
    """How many episodes to play."""
    play_seed: int = 0
    """Seed of the play (a world's own seed chooses its secret)."""

    def run(self, console: Console) -> int:
        """Prints V* and what the optimal policy earned."""
        if self.episodes < 1:
            raise InvalidInput(f"--episodes must be at least 1; got {self.episodes}.")
        problem = build(self.world)
        policy = problem.optimal_policy()
        played = problem.env.rollout(policy, self.episodes, keyed_generator(self.play_seed, "learn", problem.id))
        console.print(_headline(problem))
        console.print(f"Best possible value V*: {problem.optimal_value:.6g}")
        console.print(f"Value of the optimal policy: {problem.value(policy)}")
        console.print(f"Played {self.episodes:,} episodes of it: {played.returns.mean():.4f} on average")
        console.print(
            "\nThis is planned with the hidden process in view. `richobs check` judges what learning without it rests on.",
            style="dim",
        )
        return 0


@dataclasses.dataclass(frozen=True)
class Check:
    """Judge the paper's assumptions exactly, with a counterexample for each that fails."""

    world: World
    """Which world."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the report; the exit status is 1 if anything fails."""
        problem = build(self.world)
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
        problem = build(self.world)
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
                table.add_row(f"  --{f.name.replace('_', '-')}", str(f.default), meanings.get(f.name, ""))
            console.print(table)
            console.print()
        return 0


COMMANDS = {"learn": Learn, "check": Check, "audit": Audit, "worlds": Worlds}


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 1 the answer is no, 2 it could not be done."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments == ["--version"]:
        print(f"richobs {richobs.__version__}")
        return 0
    console = Console(soft_wrap=True, highlight=False)
    try:
        command: Any = tyro.cli(
            _command_type(),
            prog="richobs",
            description=inspect.getdoc(richobs),
            args=[part for a in arguments for part in _expanded(a)],
            config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )
        return int(command.run(console))
    except RichObsError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]richobs:[/] {escape(str(error))}")
        return 2
    except KeyboardInterrupt:
        return 130


def _command_type() -> Any:
    return typing.Union[tuple(Annotated[c, tyro.conf.subcommand(name)] for name, c in COMMANDS.items())]  # noqa: UP007


def _expanded(argument: str) -> list[str]:
    """Returns `lock/10,seed=3` as `lock --horizon 10 --seed 3`, and anything else as it is."""
    world = argument.partition(",")[0].partition("/")[0]
    if world not in WORLDS or world == argument:
        return [argument]
    parts = [world]
    for f in dataclasses.fields(config := configure(argument)):
        value = getattr(config, f.name)
        if value != f.default:
            parts += [f"--{f.name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return parts


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
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        marks = {True: "[green]holds[/]", False: "[bold red]fails[/]", None: "[yellow]not judged[/]"}
        for c in report.checks:
            table.add_row(f"  {c.name}", marks[c.holds], escape(c.finding))
        console.print(table)
    return 0 if report.holds else 1


def _about(world: str) -> str:
    return (inspect.getdoc(config_class(world)) or "").partition("\n")[0]


def _field_docs(config: type[Any]) -> dict[str, str]:
    """Returns what the string under each field of a config says."""
    import ast

    body = typing.cast("ast.ClassDef", ast.parse(inspect.getsource(config)).body[0]).body
    docs = {}
    for line, following in itertools.pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(following, ast.Expr):
            docs[ast.unparse(line.target)] = str(ast.literal_eval(following.value))
    return docs
