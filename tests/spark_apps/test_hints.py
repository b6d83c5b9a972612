"""Every hint of an error, of the lake's side and of Airflow's, names only what is there: calls, arguments, statements.

Hints are taken from the code, with holes where values go. What looks like code in one is tried against the public API:
a call must bind to a public function of that name, a named argument must be one of a public function, an option of a
reader, a property or a setting, a command or an option one of the command line, a statement must parse.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import spark_apps
from airflow_provider_index import operators, sensors, triggers
from airflow_provider_index.maintenance import index_maintenance
from airflow_provider_index.operators.write import OPERATIONS
from airflow_provider_index.task_groups import index_transaction, stop_write_window
from spark_apps import IndexedTable, sql
from spark_apps.__main__ import app
from spark_apps.arrow_table import OpenTable
from spark_apps.cli import doctor, log_commands, row_commands  # noqa: F401 - they add the commands
from spark_apps.layout.hashing import bucket_id
from spark_apps.mergetree.buckets import compute_buckets
from spark_apps.sql.parser import parse
from tests.mutants.planting import ROOT

VALUE = "x"
"""What stands for a value in a hint."""

EXAMPLES = {"dt", "region", "orders", "aws_region", "city", "least"}
"""Names of examples: partition columns, parameters, a table's short name, an option of a store."""

SPARKS = {"withColumn", "col", "cast", "crc32", "minmax", "bloom", "values", "lower", "decimal", "load"}
"""Calls of Spark's own and of SQL, which are no methods of ours."""

SETTINGS = {"recursiveFileLookup", "mode", "lineage", "enabled"}
"""Options of readers, properties of indexes, and the ends of Spark's settings."""


SIDES = ("spark_apps", "airflow_provider_index")

CONSTANTS = re.compile(r"_?\w*(HINT|AGAIN|RESTORE|ANEW|BY_SPARK|INSTEAD|INSTALL)")
"""Names of constants that are hints."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of each hint, and of each constant that is one."""
    for path in sorted(file for side in SIDES for file in (ROOT / side).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            value = node.value if isinstance(node, ast.keyword) and node.arg == "hint" else None
            if isinstance(node, ast.Assign) and CONSTANTS.match(ast.unparse(node.targets[0])):
                value = node.value
            for text in [] if value is None else spelled(value):
                yield f"{path.relative_to(ROOT)}:{value.lineno}", text  # type: ignore[union-attr]


def spelled(node: ast.expr) -> list[str]:
    """Return the texts that an expression can be, each value of it as :data:`VALUE`."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr():
            return ["".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)]  # type: ignore[misc]
        case ast.BinOp():
            return [left + right for left in spelled(node.left) for right in spelled(node.right)]
        case ast.IfExp():
            return [*spelled(node.body), *spelled(node.orelse)]
        case _:
            return []


def functions() -> dict[str, list[inspect.Signature]]:
    """Name -> the signatures of the public functions and methods of that name."""
    found: dict[str, list[inspect.Signature]] = {}
    public = [getattr(spark_apps, name) for name in spark_apps.__all__]
    owners: list[Any] = [IndexedTable, OpenTable, *filter(callable, public)]
    named = [member for owner in owners for member in inspect.getmembers(owner)]
    for name, member in [*named, *((each.__name__, each) for each in (*owners, sql.run, bucket_id, compute_buckets))]:
        if callable(member) and not name.startswith("_"):
            with_it = found.setdefault(name, [])
            try:
                with_it.append(inspect.signature(member))
            except (TypeError, ValueError):
                continue
    for kind in (getattr(module, name) for module in (operators, sensors, triggers) for name in module.__all__):
        found.setdefault(kind.__name__, []).append(arguments_of(kind))
    for group in (stop_write_window, index_transaction, index_maintenance):
        found.setdefault(group.__name__, []).append(inspect.signature(group))
    return found


def arguments_of(kind: type) -> inspect.Signature:
    """Return all arguments that an operator, sensor or trigger takes, also those of the classes above it."""
    taken = {name: parameter for one in reversed(kind.__mro__) if "__init__" in one.__dict__
             for name, parameter in inspect.signature(one.__init__).parameters.items()}  # fmt: skip
    return inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in taken.values() if one.name != "self"])


FUNCTIONS = functions()
ARGUMENTS = {name for some in FUNCTIONS.values() for one in some for name in one.parameters} | EXAMPLES | SETTINGS
HINTS = list(texts())
COMMANDS = set(app.commands)
LEAVABLE = ARGUMENTS | {"argument", "runner"}
QUOTABLE = ARGUMENTS | {*OPERATIONS, "spark", "index_table_store", "client", "cluster", "spark-binary", "active", VALUE}
"""Of operators, of connections, and types of connections."""
OPTIONS = {
    option for command in (app, *app.commands.values())
    for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts
} | {"--help"}  # fmt: skip


NAMED = re.compile(r"(?:with|give|Give|without) (?:a |an )?([a-z]+_[a-z_]+)\b(?![(.=])")
LEFT_OUT = re.compile(r"[Ll]eave (?:the |one another )?'?([a-z_]+)'? out")
QUOTED = re.compile(r"(?<![\w=])'([a-z]+(?:[_-][a-z]+)*)'")
STATEMENTS = re.compile(r"\b(?:DROP INDEX|ALTER INDEX|REFRESH INDEX|SHOW INDEXES)\b [^.,;:]*\bON\b \S+")


def faults(text: str) -> list[str]:
    """Return what a hint names that is not there."""
    found = []
    for call in re.finditer(r"\b(\w+)(\((?:[^()]|\([^()]*\))*\))", text):
        name, arguments = call.groups()
        if name in SPARKS or not re.fullmatch(r"[a-z_]+|[A-Z]\w*(?:Operator|Sensor|Columns)", name):
            continue
        if name not in FUNCTIONS:
            found.append(f"no public function {name}")
        elif not any(binds(arguments, one) for one in FUNCTIONS[name]):
            found.append(f"{name} takes no {arguments}")
    found += [
        f"no argument {name}" for name in re.findall(r"(?<![\w.-])([a-z]\w*)=(?![=>])", text) if name not in ARGUMENTS
    ]
    named = re.findall(r"(?<![\w.-])([a-z]\w*)=(?![=>])", text)
    found += [f"no argument {name}" for name in named if name not in ARGUMENTS]
    found += [f"no argument {name}" for name in NAMED.findall(text) if name not in ARGUMENTS | FUNCTIONS.keys()]
    found += [
        f"no command {name}"
        for name in re.findall(r"(?<!newer )(?<!version of )lakeindex ([a-z-]+)", text)
        if name not in COMMANDS
    ]
    found += [f"no option {name}" for name in re.findall(r"(?<!\S)(--[a-z-]+)", text) if name not in OPTIONS]
    classes = re.findall(r"\b[A-Z][A-Za-z]+(?:Operator|Sensor)\b", text)
    found += [f"no operator {name}" for name in classes if name not in FUNCTIONS]
    for name in re.findall(r"IndexedTable\.(\w+)", text):
        if not hasattr(IndexedTable, name):
            found.append(f"no IndexedTable.{name}")
    return found


def faults_on_airflow(text: str) -> list[str]:
    """Return what a hint of Airflow's side names that is not there: also arguments in quotes, or to be left out."""
    left_out = [f"nothing {name} to leave out" for name in LEFT_OUT.findall(text) if name not in LEAVABLE]
    return [*faults(text), *left_out, *(f"no {name}" for name in QUOTED.findall(text) if name not in QUOTABLE)]


def binds(arguments: str, signature: inspect.Signature) -> bool:
    """Tell whether a call with these arguments, as a hint writes them, can be one of a function."""
    written = arguments.replace("…", "...")
    try:
        call = ast.parse(f"f{written}", mode="eval").body
    except SyntaxError:
        return True  # it is shortened in words
    assert isinstance(call, ast.Call)
    names = {keyword.arg for keyword in call.keywords}
    taken = signature.parameters
    return names <= taken.keys() and (len(call.args) + len(names) <= len(taken))


def test_what_the_hints_name_is_there() -> None:
    wrong = {f"{place}: {text}": found for place, text in HINTS
             if (found := (faults if place.startswith("spark_apps") else faults_on_airflow)(text))}  # fmt: skip
    assert not wrong, wrong


def test_the_walk_finds_what_is_not_there() -> None:
    assert len(HINTS) > 500
    for wrong in (
        "Wait longer, or drain with then_abort=True.", "Call refresh(name).", "refresh_index(name, how='full')",
        "WriteTableOperator(until=…, how='x')", "See `lakeindex tabels`.",
        "Give --ware-house.", "Use CleanTablesOperator.", "Use IndexedTable.vacuum.",
    ):  # fmt: skip
        assert faults(wrong), wrong
    assert faults_on_airflow("Leave postponable out.") and faults_on_airflow("Give it with the operation 'merge'.")
    assert not faults("refresh_index(name, mode='full'), or IndexedTable.load(spark, uri, version=…).read().")


@pytest.mark.parametrize(
    "statement",
    sorted({statement for _, text in HINTS for statement in STATEMENTS.findall(text)}),
)
def test_a_statement_in_a_hint_parses(statement: str) -> None:
    parse(statement.replace(" the one that is meant", " t").replace(" the table", " t").replace(" the", " t"))


def test_the_pages_that_hints_name_are_there() -> None:
    pages = {page for _, text in HINTS for page in re.findall(r"docs/[\w-]+\.md", text)}
    assert all(Path(ROOT, page).exists() for page in pages)
