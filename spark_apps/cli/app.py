"""The command line as a process: its commands, exit codes, and errors without a traceback."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

# Importing these makes their functions commands.
from spark_apps.cli import doctor, log_commands, row_commands  # noqa: F401
from spark_apps.cli.command import (
    FAILED,
    INTERRUPTED,
    LOG_DAMAGED,
    MISUSED,
    NOT_FOUND,
    PIPE_CLOSED,
    STORE_FAILED,
    Run,
    app,
)
from spark_apps.cli.lake import hidden, with_nearest
from spark_apps.cli.output import Output, encode
from spark_apps.storage.errors import AlreadyExists, InvalidInput, LakeIndexError, LogDamaged, NotFound, StorageError
from spark_apps.storage.printing import printable

PROGRAM = "lakeindex"
COMPLETE = "_LAKEINDEX_COMPLETE"
"""The variable by which a shell asks for completions."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: those of the process if ``None``.
    """
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
        return _report(error, _run_of(context, given))
    except click.ClickException as error:
        return _report(_of_click(error), _run_of(context, given))
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _closed()


def _run_of(context: click.Context | None, given: list[str]) -> Run:
    noted = None if context is None else context.obj
    return noted if isinstance(noted, Run) else Run(Output("--json" in given, False if "--no-color" in given else None))


def _of_click(error: click.ClickException) -> LakeIndexError:
    """Return an error of the options' parser as one of ours."""
    message = error.format_message().strip()
    message = message if message.endswith((".", "?")) else f"{message}."
    context = getattr(error, "ctx", None)
    return InvalidInput(message, hint=f"See `{context.command_path} --help`." if context is not None else "")


def _report(error: LakeIndexError, noted: Run) -> int:
    """Write an error to the error output, without its traceback; return the exit code."""
    message, hint = hidden(error.message, noted.lake), hidden(with_nearest(error, noted.state), noted.lake)
    outcome = "" if error.outcome == LakeIndexError.outcome else error.outcome  # no command changes a table
    try:
        sys.stdout.flush()
        if noted.output.as_json:
            fields = {"type": type(error).__name__, "message": message, "outcome": outcome, "hint": hint}
            click.echo(encode({"error": fields}).decode(), err=True)
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
