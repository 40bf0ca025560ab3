"""From arguments to a command: parsing, and what is said when a command cannot be done."""

import functools
import inspect
import operator
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.markup import escape

import richobs
from richobs.cli.arguments import in_order
from richobs.core.errors import InvalidInput, RichObsError, RunStopped
from richobs.core.registry import Registry
from richobs.show.summary import plain_console

HINT = "A world is given as `lock --horizon 10` or as `lock/10`. `--version` prints the version."
COMMANDS = Registry(
    "richobs.commands",
    {
        "plan": "richobs.cli.plan:PlanCommand",
        "learn": "richobs.cli.learn:LearnCommand",
        "resume": "richobs.cli.resume:ResumeCommand",
        "sweep": "richobs.cli.sweep:SweepCommand",
        "runs": "richobs.cli.runs:RunsCommand",
        "show": "richobs.cli.show:ShowCommand",
        "report": "richobs.cli.report:ReportCommand",
        "verify": "richobs.cli.verify:VerifyCommand",
        "value": "richobs.cli.value:ValueCommand",
        "worlds": "richobs.cli.worlds:WorldsCommand",
        "learners": "richobs.cli.learners:LearnersCommand",
        "doctor": "richobs.cli.doctor:DoctorCommand",
    },
)
INTERRUPTED = 130  # exit status that shells give to Ctrl-C


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 1 the answer is no, 2 it could not be done."""
    arguments = list(sys.argv[1:] if args is None else args)
    if arguments == ["--version"]:
        print(f"richobs {richobs.__version__}")
        return 0
    console, errors = plain_console(), plain_console(stderr=True)
    try:
        _check_texts(arguments)
        command: Any = tyro.cli(
            _command_type(arguments),
            prog="richobs",
            description=f"{_first_line(richobs)}\n\n{HINT}",
            args=in_order(arguments, COMMANDS),
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


def _check_texts(arguments: Sequence[str]) -> None:
    """Refuses arguments that can be no name of a file and no text."""
    for argument in arguments:
        try:
            is_name = b"\0" not in os.fsencode(argument)
        except UnicodeEncodeError:
            is_name = False
        if not is_name:
            raise InvalidInput(f"an argument holds characters that no name of a file can hold: {argument!a}.")


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def _command_type(arguments: Sequence[str]) -> Any:
    """Returns all commands as one type for the parser; those of other packages only where none of ours is asked for.

    A command may have `more_help`, a function without arguments: the text that its help ends with.
    """
    asked = arguments[0] if arguments else ""
    if asked in COMMANDS:
        COMMANDS.load(asked)  # says why, where that cannot be done
    kinds = []
    for name, kind in COMMANDS.loadable(own=COMMANDS.is_own(asked)):
        text = None
        if name == asked and hasattr(kind, "more_help") and {"-h", "--help"} & set(arguments):
            text = f"{_first_line(kind)}\n\n{kind.more_help()}"
        kinds.append(Annotated[kind, tyro.conf.subcommand(name, description=text)])
    return functools.reduce(operator.or_, kinds)
