"""From arguments to a command: their order, parsing, and what is said when a command cannot be done."""

import dataclasses
import functools
import inspect
import operator
import os
import re
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape

import richobs
from richobs.cli.options import GYMNASIUM, HELP, LOCAL, option, with_worlds, world_in, world_options
from richobs.core.arguments import file_path
from richobs.core.errors import InvalidInput, RichObsError, RunStopped
from richobs.core.registry import Registry
from richobs.show.summary import plain_console
from richobs.worlds.gymnasium_in.spec import PREFIX
from richobs.worlds.registry import WORLDS, config_class, configure, is_gymnasium_id

HINT = "A world is given as `lock --horizon 10` or as `lock/10`. `--version` prints the version."
COMMANDS = Registry(
    "richobs.commands",
    {
        "plan": "richobs.cli.listing:PlanCommand",
        "learn": "richobs.cli.learn:LearnCommand",
        "resume": "richobs.cli.learn:ResumeCommand",
        "show": "richobs.cli.stored:ShowCommand",
        "report": "richobs.cli.stored:ReportCommand",
        "verify": "richobs.cli.stored:VerifyCommand",
        "value": "richobs.cli.judging:ValueCommand",
        "compare": "richobs.cli.judging:CompareCommand",
        "worlds": "richobs.cli.listing:WorldsCommand",
        "learners": "richobs.cli.listing:LearnersCommand",
        "doctor": "richobs.cli.doctor:DoctorCommand",
    },
)
INTERRUPTED = 130  # exit status that shells give to Ctrl-C
Takes = Literal["nothing", "one value", "two values", "many values"]
REPEATED = {"--env-arg"}  # options that the parser wants once for each value
RAY = "--ray"  # an option whose value may be left out
ADDRESS = re.compile(rf"auto|{LOCAL}|ray://.*|.+:\d+")  # what its value looks like


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 1 the answer is no, 2 it could not be done, 3 undecided."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments == ["--version"]:
        print(f"richobs {richobs.__version__}")
        return 0
    console, errors = plain_console(), plain_console(stderr=True)
    try:
        for argument in arguments:
            file_path(argument, "an argument")  # refuses what can be no name of a file and no text
        known = bool(arguments) and arguments[0] in COMMANDS  # the others are not even imported then
        about = (
            f"{_first_line(richobs)}\n\n{HINT}" if not known else _help(arguments[0]) if HELP & set(arguments) else None
        )
        command: Any = tyro.cli(
            with_worlds(COMMANDS.load(arguments[0]), arguments[1:]) if known else _command_type(),
            prog=f"richobs {arguments[0]}" if known else "richobs",
            description=about,
            args=in_order(arguments, COMMANDS)[known:],
            config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )
        return int(command.run(console))
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RichObsError, OSError) as error:
        errors.print(f"[bold red]richobs:[/] {escape(str(error))}")
        if isinstance(error, RunStopped):
            spent = error.ledger.total if error.ledger is not None else 0
            errors.print(f"{spent:,} episodes were spent in {len(error.trace):,} tests until then.", style="dim")
        return 2
    except RecursionError:  # only files from elsewhere are nested so deeply
        errors.print("[bold red]richobs:[/] a file that was read is nested too deeply; richobs did not write it.")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def _command_type() -> Any:
    """Returns all commands as one type for the parser, those of other packages included."""
    kinds = (Annotated[with_worlds(kind, ()), tyro.conf.subcommand(name)] for name, kind in COMMANDS.loadable())
    return functools.reduce(operator.or_, kinds)


def _help(command: str) -> str | None:
    """Returns the text of a command's help; `more_help` of a command, a function, says its end."""
    kind = COMMANDS.load(command)
    return f"{_first_line(kind)}\n\n{kind.more_help()}" if hasattr(kind, "more_help") else None


def in_order(arguments: Sequence[str], commands: Registry) -> list[str]:
    """Returns the same command line with everything that is not an option right behind the command.

    Args:
        arguments: as typed; the first is the command.
        commands: where the dataclass of each command is defined.

    Raises:
        InvalidInput: a world that does not exist, or a parameter that is given twice.
    """
    if not arguments or arguments[0] not in commands or "--" in arguments:
        return list(arguments)
    name, *rest = arguments
    command = commands.load(name)
    has_world = any(f.name == "world" for f in dataclasses.fields(command))
    takes = _options([command, *(world_options(rest).values() if has_world else ())])
    named, options = _separated(rest, takes)
    if has_world and named:
        named = [*_spelt_out(named[0], options), *named[1:]]
    return [name, *named, *options]


def _options(kinds: Iterable[type[Any]]) -> dict[str, Takes]:
    """Returns what each option of some dataclasses takes, those of nested dataclasses included."""
    found: dict[str, Takes] = dict.fromkeys(HELP, "nothing")
    for kind in kinds:
        hints = typing.get_type_hints(kind)
        for f in dataclasses.fields(kind):
            hint = hints[f.name]
            if dataclasses.is_dataclass(hint):
                found |= _options([typing.cast("type[Any]", hint)])
            else:
                found[f"--{f.name}".replace("_", "-")] = _taken_by(hint)
    return found


def _taken_by(hint: Any) -> Takes:
    """Returns what an option of a type takes."""
    if hint is bool:
        return "nothing"
    if typing.get_origin(hint) is tuple:
        return "many values"
    pair = any(typing.get_origin(part) is tuple for part in typing.get_args(hint))  # tuple[float, float] | None
    return "two values" if pair else "one value"


def _separated(rest: Sequence[str], takes: Mapping[str, Takes]) -> tuple[list[str], list[str]]:
    """Returns what is not an option, and the options with their values."""
    named: list[str] = []
    options: list[str] = []
    left = list(rest)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            named.append(word)
            continue
        flag, equals, value = word.partition("=")
        options.append(f"{flag}{equals}{value}")
        if equals:
            continue
        if flag == RAY and not (left and ADDRESS.fullmatch(left[0])):
            options.append(LOCAL)
            continue
        name = flag.replace("_", "-")
        kind = takes.get(name, "one value")
        for _ in range({"one value": 1, "two values": 2}.get(kind, 0)):
            options += left[:1]
            left = left[1:]
        while kind == "many values" and left and not left[0].startswith("-") and not _is_world(left[0]):
            again = [flag] if name in REPEATED and options[-1] != flag else []
            options += [*again, left.pop(0)]
    return named, options


def _spelt_out(given: str, options: Sequence[str]) -> list[str]:
    """Returns a world written as `lock/10,seed=3` as `lock --horizon 10 --world-seed 3`; `gym:ID` as `gym ID`."""
    if is_gymnasium_id(given):
        return [GYMNASIUM, given.removeprefix(PREFIX)]
    if given == GYMNASIUM:
        return [given]
    world = world_in(given) or given
    fields = dataclasses.fields(config_class(world))  # refuses a world that does not exist, and lists those that do
    if world == given:
        return [given]
    config = configure(given)
    typed = {word.partition("=")[0].replace("_", "-") for word in options}
    in_name = {pair.partition("=")[0] for pair in given.split(",")[1:]} | ({"horizon"} if "/" in given else set())
    result = [world]
    for f in fields:
        value = getattr(config, f.name)
        if f.name in in_name and option(f.name) in typed:
            raise InvalidInput(f"{option(f.name)}: given in {given!r} and again as an option.")
        if value != f.default:
            result += [option(f.name)] + ([] if value is True else [str(value)])
    return result


def _is_world(word: str) -> bool:
    """Whether a word names a world."""
    return is_gymnasium_id(word) or world_in(word) in WORLDS
