"""The frame of a command: the options that all commands have, and the :class:`Lake` that they speak of.

What a command answers is in :mod:`spark_apps.cli.log_commands` and :mod:`spark_apps.cli.row_commands`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from spark_apps.cli.lake import CONNECTION, STORAGE_OPTIONS, WAREHOUSE, Lake, nearest, table_names, warehouse_of
from spark_apps.cli.output import Output
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.state import State
from spark_apps.version import __version__

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


class Run:
    """The part of a command that ran, as far as an error asks for it."""

    def __init__(self, output: Output, lake: Lake | None = None) -> None:
        self.output = output
        self.lake = lake
        self.state: State | None = None


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
            context.find_root().obj = Run(output)
            on_line = context.get_parameter_source("storage_options") is ParameterSource.COMMANDLINE
            lake = Lake(warehouse_of(warehouse, connection, storage_options, option, on_line), output)
            context.find_root().obj = Run(output, lake)
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
    """Remember the state that a command looks at, so that an error can name what is nearest to a misspelt name."""
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
