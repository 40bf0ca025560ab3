"""What several commands share: options for worlds, Gymnasium environments and who does the work, and what is printed."""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import operator
import os
import pathlib
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core import words
from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem
from richobs.core.settings import Settings, field_docs
from richobs.runs.store import POLICY, StoredRun
from richobs.show.summary import summary
from richobs.worlds.gymnasium_in import GymnasiumSpec, environment_from_spec
from richobs.worlds.gymnasium_in.spec import OWN, PREFIX, read_value
from richobs.worlds.registry import WORLDS, config_class, is_gymnasium_id, make

GYMNASIUM = "gym"  # what the sub-command is called
TRUST = "RICHOBS_TRUST"  # the environment variable that stands for --trust
LOCAL = "local"  # what `--ray` without an address means
TAKEN = {f.name for f in dataclasses.fields(Settings)}  # options of a run; a world's own are then called world_...
HELP = {"-h", "--help"}
World = Any  # what a command annotates its world with; `with_worlds` says which there are
LONGEST = 60  # characters of a folder's name
WIDE = 200  # columns of a table that is not printed on a terminal


@dataclasses.dataclass(frozen=True)
class WorkOptions:
    """Who does the work."""

    ray: str | None = None
    """Let Ray work: `--ray` here, `--ray auto` or `--ray HOST:PORT` on a cluster (extra `ray`). A world is no address."""

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """Yields the executor that was asked for, connected while the block lasts; None where none was."""
        if self.ray is None:
            yield None
            return
        from richobs.ray import RayExecutor  # needed here only

        with RayExecutor(None if self.ray == LOCAL else self.ray) as executor:
            yield executor


@dataclasses.dataclass(frozen=True)
class GymnasiumOptions:
    """An environment of Gymnasium, given as gym:ID, with a class of your own (docs/gymnasium.md)."""

    world_name: ClassVar[str] = GYMNASIUM

    environment: tyro.conf.Positional[str]
    """Its id, for instance FrozenLake-v1; further arguments may follow, as in FrozenLake-v1?horizon=12."""
    horizon: int | None = None
    """Number of levels H of an episode."""
    functions: str | None = None
    """The class: module:name of a function that takes the environment and returns a function class."""
    env_arg: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An argument of the environment, as name=value; may be repeated."""
    reward_range: tuple[float, float] | None = None
    """Smallest and largest possible total of an episode."""
    step_range: tuple[float, float] | None = None
    """Smallest and largest possible reward of one step."""
    env_seed: int | None = None
    """Seed of every reset; by default each episode has a fresh one."""
    observation: str | None = None
    """module:name of a function of one observation, whose result is what is seen."""
    deterministic: bool = False
    """Declare that the same actions always show and pay the same: each action sequence is then played once."""

    def spec(self, *, with_class: bool) -> GymnasiumSpec:
        """Returns what the options describe; `with_class` says whether `--functions` is needed."""
        arguments: dict[str, Any] = {}
        for pair in self.env_arg:
            name, equals, text = pair.partition("=")
            if not equals or not name or name in arguments:
                raise InvalidInput(f"--env-arg {pair}: it should read name=value, each name once.")
            if name in OWN:
                raise InvalidInput(f"--env-arg {pair}: this is an option of its own, or part of the id after a `?`.")
            arguments[name] = read_value(name, text)
        own = {name: getattr(self, name) for name in OWN if hasattr(self, name)}
        own |= {"seed": self.env_seed, "deterministic": self.deterministic or None}
        spec = GymnasiumSpec.read(f"{PREFIX}{self.environment}", {**arguments, **own})
        if spec.horizon is None:
            raise InvalidInput(f"gym:{self.environment} needs --horizon, the number of levels of an episode.")
        if with_class and spec.functions is None:
            raise InvalidInput(
                f"gym:{self.environment} needs --functions module:name, a function that takes the environment and returns a "
                "class of candidate value functions (docs/gymnasium.md)."
            )
        return spec


def make_stored(id: str, file: pathlib.Path, trust: bool) -> Problem:
    """Returns the problem that a file names, if the modules that it names may be imported.

    Args:
        id: as the file has it.
        file: where it stands, for the message.
        trust: whether the caller trusts the file.

    Raises:
        InvalidInput: it names modules, and nobody said that the file can be trusted.
    """
    if is_gymnasium_id(id):
        if not (trust or os.environ.get(TRUST) == "1"):
            raise InvalidInput(
                f"{file} is about {id}. To build this problem, the modules that it names are imported, which runs their "
                f"code. If you trust the file, say --trust (or set {TRUST}=1)."
            )
        import_from_here()
    return make(id)


def trusting(id: str | None) -> str:
    """Returns what a command about a stored run must end with: ` --trust` where it imports modules, else nothing."""
    return " --trust" if is_gymnasium_id(id) else ""


def import_from_here() -> None:
    """Lets modules of the working folder be imported; those that are installed come first."""
    with contextlib.suppress(FileNotFoundError):  # the working folder was deleted: there is nothing to import
        here = os.getcwd()
        if here not in sys.path and "" not in sys.path:
            sys.path.append(here)


def option_name(field_name: str) -> str:
    """Returns what a world's parameter is called among the options."""
    return f"world_{field_name}" if field_name in TAKEN else field_name


def option(field_name: str) -> str:
    """Returns the command-line option of a world's parameter."""
    return "--" + option_name(field_name).replace("_", "-")


def about(world: str) -> str:
    """Returns a world in one sentence."""
    return (inspect.getdoc(config_class(world)) or "").partition("\n")[0]


def build(options: Any) -> Problem:
    """Returns the problem that the options of a world describe; modules that they name may lie in the working folder."""
    if isinstance(options, GymnasiumOptions):
        spec = options.spec(with_class=True)
        import_from_here()
        return make(spec.id)
    names = [f.name for f in dataclasses.fields(config_class(options.world_name))]
    return make(options.world_name, **{name: getattr(options, option_name(name)) for name in names})


def build_playable(options: Any) -> Problem | Environment:
    """Returns what can be played: a problem, or an environment of Gymnasium without a class."""
    if not isinstance(options, GymnasiumOptions):
        return build(options)
    spec = options.spec(with_class=False)
    import_from_here()
    return environment_from_spec(spec)


@functools.cache
def _options_of(world: str) -> type[Any]:
    """Returns a world's Config as a sub-command: the same fields and help texts, but for names that runs use too."""
    if world == GYMNASIUM:
        return GymnasiumOptions
    config = config_class(world)
    docs, kinds = field_docs(config), typing.get_type_hints(config)
    fields = [
        (
            option_name(f.name),
            Annotated[kinds[f.name], tyro.conf.arg(help=docs.get(f.name, ""))],
            dataclasses.field(default=f.default),
        )
        for f in dataclasses.fields(config)
    ]
    names = {"__doc__": inspect.getdoc(config), "world_name": world}
    return dataclasses.make_dataclass(config.__name__, fields, frozen=True, namespace=names)


def world_options(arguments: Sequence[str] = ()) -> dict[str, type[Any]]:
    """Returns the options of the worlds that some arguments name, or of all worlds where they name none; and Gymnasium's."""
    named = [word for word in map(world_in, arguments) if word[:1].isalpha() and word in WORLDS]
    worlds = named if named and not HELP & set(arguments) else [world for world, _ in WORLDS.loadable()]
    return {world: _options_of(world) for world in (*worlds, GYMNASIUM)}


def world_in(word: str) -> str:
    """Returns the part of an id that names the world."""
    return word.partition(",")[0].partition("/")[0]


def with_worlds(command: type[Any], arguments: Sequence[str]) -> type[Any]:
    """Returns a command whose `world` is one of those that the arguments name; the others are not even imported."""
    if "world" not in command.__dataclass_fields__:
        return command
    options = world_options(arguments).items()
    kinds = (Annotated[kind, tyro.conf.subcommand(world, prefix_name=False)] for world, kind in options)
    fields, names = [("world", functools.reduce(operator.or_, kinds))], {"__doc__": command.__doc__}
    return dataclasses.make_dataclass(command.__name__, fields, bases=(command,), namespace=names, frozen=True)


def folder_name(whole: str) -> str:
    """Returns a short name for a folder: other marks than those of plain names are left out, long ones end with a digest."""
    name = re.sub(r"[^A-Za-z0-9._=+-]+", "-", whole)
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def widened(console: Console) -> Console:
    """Returns a console with room for wide tables where the output is not a terminal."""
    if not console.is_terminal:
        console.width = WIDE
    return console


class Trimmed:
    """A table or a text without the spaces at the ends of its lines."""

    def __init__(self, content: RenderableType):
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the lines."""
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), *line[-1][1:])
            yield from line
            yield Segment.line()


def headline(problem: Problem) -> str:
    """Returns a sentence about a problem, as markup."""
    size = words.problem_size(problem.horizon, problem.n_actions, problem.n_states, problem.functions.log_size)
    return f"[bold]{escape(problem.name)}[/]: {size}"


def print_claim(console: Console, claim: Text) -> None:
    """Prints a claim on as many lines as it needs, without breaking a word."""
    console.print(Trimmed(claim), soft_wrap=False)


def print_summary(console: Console, stored: StoredRun) -> None:
    """Prints what is known of a stored run.

    Some learners do not estimate the value of their policy. It is then computed, where the world is written down.
    """
    console.print(Trimmed(summary(stored)))
    if stored.certificate is None or stored.world is None or is_gymnasium_id(stored.world):
        return
    result = stored.certificate.content["result"]
    problem = make(stored.world) if result["value_hat"] is None and result["lower"] is None else None
    if problem is not None and problem.process is not None:
        worth = problem.value(LearnedPolicy.load(stored.folder / POLICY))
        best = f"; V* is {problem.optimal_value:.6g}" if problem.knows_optimum else ""
        console.print(Text(f"\nthe policy's value, computed from the world itself: {worth:.6g}{best}"))


def print_findings(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """Prints (name, mark as markup, words) as a table without lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, mark, found in rows:
        table.add_row(Text(f"  {name}"), mark, Text(found, overflow="fold"))
    console.print(Trimmed(table))
