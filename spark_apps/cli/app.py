"""The frame of the command line: the options that all commands have, exit codes, and errors without a traceback.

What a command answers stands in :mod:`spark_apps.cli.log_commands` and :mod:`spark_apps.cli.row_commands`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import get_completion_class

from spark_apps.cli.lake import (
    CONNECTION,
    STORAGE_OPTIONS,
    WAREHOUSE,
    Lake,
    hidden,
    nearest,
    table_names,
    warehouse_of,
    with_nearest,
)
from spark_apps.cli.output import Output, encode
from spark_apps.storage.errors import AlreadyExists, InvalidInput, LakeIndexError, LogDamaged, NotFound, StorageError
from spark_apps.storage.printing import printable
from spark_apps.timeline.state import State
from spark_apps.version import __version__

PROGRAM = "lakeindex"
COMPLETE = "_LAKEINDEX_COMPLETE"
"""The variable by which a shell asks for completions."""

NO = 1
"""The answer is no: an index differs from the rows, a check failed."""
MISUSED = 2
NOT_FOUND = 3
STORE_FAILED = 4
LOG_DAMAGED = 5
FAILED = 6
INTERRUPTED = 130
PIPE_CLOSED = 141

EPILOG = (
    "Exit codes: 0 done; 1 the answer is no (no such key, a check failed); 2 a mistake in the arguments; "
    "3 no such table, index or version; 4 the store failed, or a file is missing; 5 the log is damaged, or was written "
    "by a newer version of this package; 6 any other error."
)


class Commands(click.Group):
    """A group that says which command a misspelt one was meant to be."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], self.list_commands(ctx))
            hint = f"Did you mean {near}?" if near else f"See `{ctx.command_path} --help`."
            raise InvalidInput(f"There is no command {args[0]}.", hint=hint)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, message="lakeindex %(version)s")
def app() -> None:
    """Look at the tables of a lake, their indexes and their rows, without Spark and without a JVM.

    Give a table by its name below the warehouse (sales.orders), or by its address.
    """


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function a command: its first argument is the :class:`Lake` that the options speak of.

    What the function returns is the exit code.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run_with_lake(
            warehouse: str | None,
            connection: str | None,
            storage_options: str | None,
            option: tuple[str, ...],
            as_json: bool,
            colour: bool | None,
            **given: Any,
        ) -> None:
            context = click.get_current_context()
            output = Output(as_json, colour)
            context.find_root().obj = _Run(output)
            on_line = context.get_parameter_source("storage_options") is ParameterSource.COMMANDLINE
            lake = Lake(warehouse_of(warehouse, connection, storage_options, option, on_line), output)
            context.find_root().obj = _Run(output, lake)
            code = function(lake, **given)
            if code:
                context.exit(code)

        made: Any = run_with_lake
        for add in reversed(_COMMON):
            made = add(made)
        return app.command(name, **settings)(made)

    return decorate


def table_argument(function: Any) -> Any:
    """Give a command the argument ``table``."""
    return click.argument("table", shell_complete=table_names)(function)


def version_options(function: Any) -> Any:
    """Give a command the options for an earlier version."""
    as_of = click.option("--as-of", metavar="INSTANT", help="The table as of this instant: 2026-11-20T00:00Z.")
    version = click.option(
        "--version", "version", type=click.IntRange(0), metavar="N", help="The table as of this version."
    )
    return version(as_of(function))


def time_zone_option(function: Any) -> Any:
    """Give a command the option for times that are written without a zone."""
    return click.option(
        "--time-zone", metavar="ZONE", help="Time zone of times in the predicate that have none: Europe/Berlin, +02:00."
    )(function)


def parameters_option(function: Any) -> Any:
    """Give a command the option for values that its predicate asks for by name."""
    return click.option(
        "--parameter",
        "parameters",
        multiple=True,
        metavar="NAME=TEXT|NAME:=JSON",
        callback=_parameters,
        help="A value for :NAME in the predicate, never read as SQL: a text, or by := a number, true, false, null.",
    )(function)


def _parameters(_context: Any, _option: Any, given: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the parameters of a command line. :raises InvalidInput: for one that is not written as name and value."""
    values: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        as_json = name.endswith(":")
        name = name.removesuffix(":")
        try:
            values[name] = json.loads(value) if as_json else value
        except ValueError:
            sign = ""
        if not sign:
            raise InvalidInput(f"--parameter {one!r} is no parameter.", hint="Write it as city=sfo, or as least:=3.")
    return values or None


def note_state(state: State) -> State:
    """Remember the state that a command looks at, so that a misspelt name of it can be told from the others."""
    run = click.get_current_context().find_root().obj
    run.state = state
    return state


_COMMON: list[Any] = [
    click.option(
        "-w", "--warehouse", envvar=WAREHOUSE, metavar="URI", show_envvar=True,
        help="The folder below which tables have names.",
    ),
    click.option(
        "--connection", envvar=CONNECTION, metavar="ID", show_envvar=True,
        help="Take all of this from an Airflow connection in the environment (AIRFLOW_CONN_<ID>, as JSON).",
    ),
    click.option(
        "--storage-options", envvar=STORAGE_OPTIONS, metavar="FILE", show_envvar=True,
        help="How to reach the store: a file with a JSON object; the variable may also contain the object itself.",
    ),
    click.option("--option", multiple=True, metavar="NAME=VALUE", help="One more storage option; not for secrets."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
    click.option("--color/--no-color", "colour", default=None, help="Print colours; by default on a terminal."),
]  # fmt: skip


# --- running ----------------------------------------------------------------------------------------------------------


class _Run:
    """The part of a command that ran, as far as an error asks for it."""

    def __init__(self, output: Output, lake: Lake | None = None) -> None:
        self.output = output
        self.lake = lake
        self.state: State | None = None


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: those of the process if ``None``.
    """
    # Imported here: they are made commands of the frame above.
    from spark_apps.cli import doctor, log_commands, row_commands  # noqa: F401

    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETE in os.environ:
        app.main(given, prog_name=PROGRAM, complete_var=COMPLETE)  # answers the shell, and ends
    context: click.Context | None = None
    try:
        module = Path(sys.argv[0]).name == "__main__.py"
        with app.make_context("python -m spark_apps" if module else PROGRAM, given) as context:
            app.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as ended:
        return _flushed(ended.exit_code)
    except LakeIndexError as error:
        return _told(error, _run_of(context, given))
    except click.ClickException as error:
        return _told(_of_click(error), _run_of(context, given))
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _closed()


def _run_of(context: click.Context | None, given: list[str]) -> _Run:
    noted = None if context is None else context.obj
    return (
        noted if isinstance(noted, _Run) else _Run(Output("--json" in given, False if "--no-color" in given else None))
    )


def _of_click(error: click.ClickException) -> LakeIndexError:
    """Return an error of the options' parser as one of ours."""
    message = error.format_message().strip()
    message = message if message.endswith((".", "?")) else f"{message}."
    context = getattr(error, "ctx", None)
    return InvalidInput(message, hint=f"See `{context.command_path} --help`." if context is not None else "")


def _told(error: LakeIndexError, noted: _Run) -> int:
    """Tell an error on the error output, without its traceback; return the exit code."""
    message, hint = hidden(error.message, noted.lake), hidden(with_nearest(error, noted.state), noted.lake)
    outcome = "" if error.outcome == LakeIndexError.outcome else error.outcome  # nothing here changes a table
    try:
        sys.stdout.flush()
        if noted.output.as_json:
            told = {"type": type(error).__name__, "message": message, "outcome": outcome, "hint": hint}
            click.echo(encode({"error": told}).decode(), err=True)
        else:
            said = _obeyed_by_none(" ".join(filter(None, (message, outcome))))
            lines = [f"{click.style('Error:', fg='red', bold=True)} {said}"]
            lines += [f"{click.style('Hint:', bold=True)} {_obeyed_by_none(hint)}"] if hint else []
            click.echo("\n".join(lines), err=True, color=noted.output.colour)
    except BrokenPipeError:
        return _closed()
    return _exit_code(error)


def _obeyed_by_none(text: str) -> str:
    """Return the text of an error without what a terminal would obey: names in it are input."""
    return "\n".join(map(printable, text.split("\n")))


def _exit_code(error: LakeIndexError) -> int:
    # The first that fits: an object that is missing is the store's, and no table that is not there.
    codes = (
        (StorageError, STORE_FAILED),
        (LogDamaged, LOG_DAMAGED),
        (NotFound, NOT_FOUND),
        (InvalidInput, MISUSED),
        (AlreadyExists, MISUSED),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), FAILED)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed()
    return code


def _closed() -> int:
    """Return the exit code for a reader that went away, as `head` does; Python is not to flush into its pipe again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # no file is behind it, as in a test
        return PIPE_CLOSED
    return PIPE_CLOSED


@app.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    In ~/.bashrc: eval "$(lakeindex completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None  # or the argument was refused
    click.echo(kind(app, {}, PROGRAM, COMPLETE).source())
