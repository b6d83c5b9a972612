"""Checks of a job by the log of its table, made where it is submitted: a mistake is found before Spark is started.

Only what the log and the installed package can tell is refused, with the error that the app would raise. Whatever only
Spark knows, such as the columns of a query or of a source as it is now, is left to the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spark_apps.layout.partitions import canonical
from spark_apps.maintenance.native_calls import call_of, source_of
from spark_apps.storage.errors import InvalidPredicate
from spark_apps.storage.names import check_name
from spark_apps.timeline.hudi_indexes import KINDS as HUDI_KINDS
from spark_apps.timeline.model import HUDI, IndexDefinition, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from spark_apps.sql.syntax import Token

_QUERIES = (
    *("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "("),
    *("SHOW", "DESCRIBE", "DESC", "EXPLAIN"),
)
"""What a query of Spark's may begin with, or a statement that has rows and changes nothing."""

_UNFINISHED = frozenset(
    ("AND", "OR", "NOT", "IN", "LIKE", "IS", "BETWEEN", "=", "<", ">", "!", "+", "-", "*", "/", ",")
)
"""What a predicate cannot end with."""


def check_job(program: str, arguments: Mapping[str, Any], state: State, *, here: bool = True) -> None:
    """Check the arguments of a job on a table that is there.

    :param program: name of the app.
    :param arguments: of the app, as JSON types.
    :param state: of the table's log.
    :param here: whether the app runs by this machine's Python. Another may have packages with kinds of index that
        this one lacks.
    :raises LakeIndexError: for what the app would refuse, by the log alone.
    """
    from spark_apps.indexes.registry import available

    check = _CHECKS.get(program)
    unknown = not here and program == "build_index" and available(arguments["kind"]) is None
    if check is not None and not unknown:
        check(arguments, state)


def check_query(text: str) -> None:
    """Check that a text can be a query of Spark's: its first word, quotations, parentheses.

    :raises InvalidStatement: with line and column.
    """
    from spark_apps.sql.syntax import Refused, Token, refusal, tokens_of

    statements = list(tokens_of(text))
    if len(statements) != 1:
        count = len(statements) or "no"
        token = statements[1][0] if len(statements) > 1 else Token("END", "", 0)
        raise refusal(text, Refused(token, f"sql is to be one query, and holds {count} statements."))
    [tokens] = statements
    if (wrong := _unbalanced(tokens)) is not None:
        raise refusal(text, Refused(wrong, f"{wrong.text!r} has no counterpart."))
    if tokens[0].says not in _QUERIES:
        hint = "Statements that change something are run by IndexSQLOperator."
        raise refusal(text, Refused(tokens[0], f"A query does not begin with {tokens[0].text!r}.", hint))


def _unbalanced(tokens: Iterable[Token]) -> Token | None:
    """Return what opens a quotation or parenthesis that nothing closes, or closes one that is not open."""
    opened: list[Token] = []
    for token in tokens:
        if token.type == "UNCLOSED":
            return token
        if token.says == "(":
            opened.append(token)
        elif token.says == ")":
            if not opened:
                return token
            opened.pop()
    return opened[-1] if opened else None


# --- by program -------------------------------------------------------------------------------------------------------


def _check_build(arguments: Mapping[str, Any], state: State) -> None:
    from spark_apps.indexes.included_columns import IncludedColumns
    from spark_apps.indexes.registry import find

    name, table = arguments["name"], state.table
    check_name("index", name)
    if arguments["kind"] in HUDI_KINDS and table.source is not None and table.source.format == HUDI:
        return  # Hudi itself knows what it takes
    handler, columns = find(arguments["kind"]), tuple(arguments.get("columns") or ())
    if table.source is not None:
        return  # whose columns may be others by now
    included = arguments.get("included")
    given = IndexDefinition(
        name=name,
        kind=arguments["kind"],
        columns=columns,
        index_id="checked",
        included=()
        if included is None
        else IncludedColumns(**included).of([field.name for field in table.fields], columns),
        deferred=bool(arguments.get("deferred")),
        shards=1,
        properties=dict(arguments.get("properties") or {}),
    )
    handler.validate(table, given)


def _check_index(arguments: Mapping[str, Any], state: State) -> None:
    if arguments.get("name") is not None and not _has_own(state):
        state.index(arguments["name"])
    _check_partitions(arguments.get("partitions"), state)
    if arguments.get("where") is not None:
        check_where(arguments["where"], state.table)


def _check_indexes(arguments: Mapping[str, Any], state: State) -> None:
    for name in () if _has_own(state) else arguments.get("names") or ():
        state.index(name)


def _has_own(state: State) -> bool:
    """Return whether the table may have indexes of its own, which the log does not know."""
    return state.table.source is not None and state.table.source.format == HUDI


def _check_native(arguments: Mapping[str, Any], state: State) -> None:
    for name in arguments["native"]:
        source_of(state.table, call_of(name))


def _check_write(arguments: Mapping[str, Any], state: State) -> None:
    for batch in arguments.get("batches") or ():
        _check_partitions(batch.get("partitions"), state)
        if batch.get("where") is not None and batch.get("operation") == "delete":
            check_where(batch["where"], state.table)


def check_where(text: str, table: TableDefinition) -> None:
    """Check a predicate by the columns that a table has.

    :raises InvalidPredicate: if it is not one predicate.
    :raises UnknownColumn: if it names a column that the table lacks.
    """
    from spark_apps.query.parsing import parse_predicate
    from spark_apps.sql.syntax import tokens_of

    if not text.strip():
        raise InvalidPredicate("The predicate is empty.", hint="To act on all rows, write 'true'.")
    try:
        parse_predicate(text, {field.name: field.type for field in table.fields})
    except InvalidPredicate:
        tokens = [token for statement in tokens_of(text) for token in statement]
        last = next((token.says for token in reversed(tokens) if token.type != "END"), "")
        if _unbalanced(tokens) is not None or last in _UNFINISHED:
            raise
        # Spark may read what the parser library cannot.


def _check_partitions(paths: Iterable[str] | None, state: State) -> None:
    for path in paths or ():
        canonical(state.table, path)


# A drop is not among them: that an index is gone may be an earlier round's own doing.
_CHECKS: Mapping[str, Callable[[Mapping[str, Any], State], None]] = {
    "build_index": _check_build,
    "refresh_index": _check_index,
    "compact_index": _check_index,
    "verify_index": _check_indexes,
    "write_table": _check_write,
    "native_maintenance": _check_native,
}
