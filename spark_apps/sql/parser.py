"""The parser of scripts: from text, through the grammar's tree, to statements; clauses that exclude each other fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, Tree, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from spark_apps.sql import statements as s
from spark_apps.sql.options import TableOptions, count_of, read_call, read_options, read_source_options
from spark_apps.sql.row_parser import STATEMENTS, Segment, read_query, read_row_statement, split
from spark_apps.sql.statements import Statement
from spark_apps.sql.syntax import (
    GRAMMAR,
    Positioned,
    Refused,
    as_text,
    called,
    literal_of,
    refusal,
    table_name,
    unquoted,
    without_comments,
)
from spark_apps.storage.errors import InvalidStatement
from spark_apps.storage.parameters import Parameters, bind
from spark_apps.timeline.allowed_sources import FORMATS


@dataclass(frozen=True)
class Clause:
    """A clause: what it is about, what it says, and the token that it begins with."""

    about: str
    value: Any
    token: Token


@dataclass(frozen=True)
class Flag:
    """``IF EXISTS`` or ``IF NOT EXISTS``."""

    token: Token


@dataclass(frozen=True)
class Columns:
    """The text of a column list, or of a type, and its tokens."""

    text: str
    tokens: tuple[Token, ...] = ()


Pairs = list[tuple[Positioned[str], Positioned[str]]]


def positioned_values(children: Iterable[Any]) -> list[Positioned[Any]]:
    """Return the values with a position, in order."""
    return [child for child in children if isinstance(child, Positioned)]


def has_keyword(children: Iterable[Any], keyword: str) -> bool:
    """Return whether a keyword stands there."""
    return any(isinstance(child, Token) and child.type == keyword for child in children)


def has_exists_flag(children: Iterable[Any]) -> bool:
    """Return whether ``IF [NOT] EXISTS`` was said."""
    return any(isinstance(child, Flag) for child in children)


def clauses_of(children: Iterable[Any]) -> dict[str, Clause]:
    """Return the clauses by what they are about.

    :raises Refused: if one is given twice.
    """
    clauses: dict[str, Clause] = {}
    for child in children:
        if isinstance(child, Clause) and clauses.setdefault(child.about, child) is not child:
            what = "The kind of the index" if child.about == "kind" else child.about
            raise Refused(child.token, f"{what} is given twice.", "Keep one.")
    return clauses


def text_of(clauses: dict[str, Clause], about: str) -> str | None:
    """Return the text of a clause, if there is one."""
    return clauses[about].value.value if about in clauses else None


def names_in(clauses: dict[str, Clause], about: str) -> tuple[str, ...] | None:
    """Return the names of a clause, if there is one."""
    return tuple(at.value for at in clauses[about].value) if about in clauses else None


def pairs_of(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Return keys and values without their positions."""
    return tuple((key.value, value.value) for key, value in pairs)


def pairs_in(clause: Clause | None) -> tuple[tuple[str, str], ...]:
    """Return the keys and values of a clause, or none."""
    return () if clause is None else pairs_of(clause.value)


def check_no_duplicates(names: Iterable[Positioned[str]], what: str) -> None:
    """Refuse names that differ in nothing, or in case only.

    :raises Refused: if two names differ in nothing, or in case only.
    """
    seen: set[str] = set()
    for at in names:
        if at.value.lower() in seen:
            raise Refused(at.token, f"{what} {at.value!r} is given twice.", "Keep one.")
        seen.add(at.value.lower())


def refuse_purge(children: Iterable[Any]) -> None:
    """Refuse PURGE.

    :raises Refused: if PURGE was said.
    """
    for child in children:
        if isinstance(child, Token) and child.type == "PURGE":
            raise Refused(
                child,
                "PURGE cannot be had: files stay as long as a version that can be read needs them.",
                "Leave it out, and let the table be cleaned.",
            )


# --- The statements on tables ---------------------------------------------------------------------------------------


class TableReader:
    """The part of the reader for tables: a method a rule of the grammar."""

    def create_table(self, children: list[Any]) -> s.Statement:
        clauses, columns = clauses_of(children), _columns(children)
        using = clauses.get("USING")
        if using is not None and using.value.value.lower() in FORMATS:
            return _source(children, clauses, columns, using.value.value.lower())
        return _table_statement(children, clauses, columns)

    def drop_table(self, children: list[Any]) -> s.DropTable:
        refuse_purge(children)
        [table] = positioned_values(children)
        return s.DropTable(table.value, has_exists_flag(children))

    def drop_partition(self, children: list[Any]) -> s.DropPartition:
        refuse_purge(children)
        table, *partitions = positioned_values(children)
        return s.DropPartition(table.value, tuple(at.value for at in partitions), has_exists_flag(children))

    # --- columns ----------------------------------------------------------------------------------------------

    def add_columns(self, children: list[Any]) -> s.AddColumns:
        [table], columns = positioned_values(children), _columns(children)
        assert columns is not None
        for before, token in zip(columns.tokens, columns.tokens[1:], strict=False):
            if token.type == "NAME" and token.lower() in ("first", "after") and before not in (",", "<"):
                raise Refused(
                    token,
                    "New columns stand at the end.",
                    f"Leave {token.upper()} out; a query names its columns in whatever order it wants them.",
                )
        return s.AddColumns(table.value, columns.text)

    def alter_column_type(self, children: list[Any]) -> s.AlterColumnType:
        [table, column], new_type = positioned_values(children), _columns(children)
        assert new_type is not None
        return s.AlterColumnType(table.value, column.value, new_type.text)

    def rename_column(self, children: list[Any]) -> s.RenameColumn:
        table, column, to = positioned_values(children)
        return s.RenameColumn(table.value, column.value, to.value)

    def set_table_properties(self, children: list[Any]) -> s.SetTableProperties:
        (table,) = positioned_values(children)
        return s.SetTableProperties(table.value, pairs_of(children[-1]))

    def drop_columns(self, children: list[Any]) -> s.DropColumns:
        table, *names = positioned_values(children)
        names = next((child for child in children if isinstance(child, list)), names)
        check_no_duplicates(names, "The column")
        return s.DropColumns(table.value, tuple(at.value for at in names), has_exists_flag(children))


def _columns(children: list[Any]) -> Columns | None:
    return next((child for child in children if isinstance(child, Columns)), None)


# --- CREATE TABLE … USING indexed -------------------------------------------------------------------------------


def _table_statement(children: list[Any], clauses: dict[str, Clause], columns: Columns | None) -> s.CreateTable:
    begin, [table] = children[0], positioned_values(children)
    options = TableOptions()
    for about in ("TBLPROPERTIES", "OPTIONS", "WITH"):
        if about in clauses:
            read_options(clauses[about].value, options)
    _check_format(clauses.get("USING"), options, begin)
    made_from = next((child for child in children if isinstance(child, Token) and child.type == "AS"), None)
    if columns is None and made_from is None:
        raise Refused(begin, "The table has no columns.", "Write them behind its name: (id bigint, …).")
    if columns is not None and made_from is not None:
        raise Refused(
            made_from, "The columns are given, and the query behind AS has its own.", "Leave one of them out."
        )
    if "CLUSTERED BY" in clauses:
        fields, count = clauses["CLUSTERED BY"].value
        token = clauses["CLUSTERED BY"].token
        options.put("hash_fields", tuple(at.value for at in fields), Positioned("", token))
        options.put("buckets", count_of(count), Positioned("", token))
    if "record_key" not in options.arguments:
        raise Refused(begin, "The table has no record key.", "Add TBLPROPERTIES (primaryKey = 'id').")
    return s.CreateTable(
        table=table.value,
        columns="" if columns is None else columns.text,
        partition_by=names_in(clauses, "PARTITIONED BY") or (),
        arguments=tuple(options.arguments.items()),
        properties=tuple(options.properties.items()),
        location=_location(clauses, options),
        comment=text_of(clauses, "COMMENT"),
        if_not_exists=has_exists_flag(children),
        query=None if made_from is None else "",
    )


def _check_format(using: Clause | None, options: TableOptions, begin: Token) -> None:
    format = using.value.value if using is not None else options.format
    if format is None:
        raise Refused(begin, "The statement does not say USING indexed.", "Other tables are made by Spark itself.")
    if format.lower() != "indexed" or (options.format or "indexed").lower() != "indexed":
        raise Refused(
            using.value.token if using is not None else begin,
            f"Tables of the format {format!r} are not made here.",
            f"Write USING indexed; to register what others write, USING {', '.join(FORMATS)}.",
        )


def _location(clauses: dict[str, Clause], options: TableOptions) -> str | None:
    location = text_of(clauses, "LOCATION")
    if location is not None and options.location not in (None, location):
        raise Refused(clauses["LOCATION"].token, f"The location is given twice, also as {options.location!r}.")
    return location or options.location


# --- CREATE TABLE … USING parquet and the like ------------------------------------------------------------------

_NOT_OF_A_SOURCE = {
    "PARTITIONED BY": "Partition columns of a source are those of its folders, or of its own log.",
    "CLUSTERED BY": "Buckets are a layout of this package's own tables.",
}


def _source(children: list[Any], clauses: dict[str, Clause], columns: Columns | None, form: str) -> s.RegisterSource:
    [table] = positioned_values(children)
    for child in children:
        if isinstance(child, Token) and child.type == "AS":
            raise Refused(child, f"A table of the format {form} is not made from a query here.", "Write USING indexed.")
    for about, why in _NOT_OF_A_SOURCE.items():
        if about in clauses:
            raise Refused(clauses[about].token, f"{about} cannot be given: {why}", "Leave the clause out.")
    options = TableOptions()
    for about in ("TBLPROPERTIES", "WITH"):
        if about in clauses:
            read_source_options(clauses[about].value, options)
    read = dict(pairs_in(clauses.get("OPTIONS")))
    path = next((name for name in read if name.lower() == "path"), None)
    if path is not None:
        options.location = read.pop(path)
    return s.RegisterSource(
        table=table.value,
        format=form,
        columns=None if columns is None else columns.text,
        options=tuple(read.items()),
        record_key=options.arguments.get("record_key", ()),  # type: ignore[arg-type]
        properties=tuple(options.properties.items()),
        location=_location(clauses, options),
        comment=text_of(clauses, "COMMENT"),
        if_not_exists=has_exists_flag(children),
    )


# --- From the tree of a script to its statements --------------------------------------------------------------------


KINDS = {
    "secondary_index": "secondary",
    "record_index": "record",
    "record_level_index": "record",
    "covering_index": "covering",
    "compact_index": "compact",
    "org.apache.hadoop.hive.ql.index.compact.compactindexhandler": "compact",
}
"""Other names of kinds, in the documents; any case."""

_OWN_KINDS = ("record", "secondary", "compact", "covering", "skipping")
_MODES = ("incremental", "full", "quick")


def _clause(about: str) -> Any:
    """Return a method that reads a clause whose last part is what it says."""

    def clause(self: Reader, children: list[Any]) -> Clause:
        return Clause(about, children[-1], children[0])

    return clause


class Reader(TableReader, Transformer[Token, tuple[s.Statement, ...]]):
    """Makes the statements of a script from its tree."""

    def __init__(self, script: str, segments: Sequence[Segment]) -> None:
        super().__init__(visit_tokens=False)
        self._script = script
        self._segments = segments

    def script(self, children: list[Any]) -> tuple[s.Statement, ...]:
        return tuple(children)

    @v_args(meta=True)
    def statement(self, meta: Meta, children: list[Any]) -> s.Statement:
        statement, end = children[0], meta.end_pos
        if isinstance(statement, s.CreateTable) and statement.query is not None:
            segment = next(one for one in self._segments if one.start <= meta.start_pos < one.end)
            if segment.query is None:
                raise refusal(self._script, meta.end_pos - 2, 2, "no query stands behind AS.", "Write AS SELECT ….")
            statement, end = replace(statement, query=read_query(self._script, segment)), segment.end
        text = self._script[meta.start_pos : end].rstrip()
        return replace(statement, source=s.Source(1, meta.line, meta.column, text))

    # --- parts ------------------------------------------------------------------------------------------------

    def name(self, children: list[Token]) -> Positioned[str]:
        return Positioned(unquoted(children[0]), children[0])

    text = name

    def table_part(self, children: list[Token]) -> Positioned[str]:
        at = self.name(children)
        if not at.value.strip():
            raise Refused(at.token, "The name of a table is not blank.")
        return at

    def names(self, children: list[Positioned[str]]) -> list[Positioned[str]]:
        check_no_duplicates(children, "The column")
        return children

    def dotted(self, children: list[Positioned[str]]) -> Positioned[str]:
        return Positioned(".".join(child.value for child in children), children[0].token)

    def table(self, children: list[Positioned[str]]) -> Positioned[str]:
        return Positioned(table_name(children), children[0].token)

    def kind(self, children: list[Any]) -> Positioned[str]:
        [child] = children
        return child if isinstance(child, Positioned) else Positioned(unquoted(child), child)

    def literal(self, children: list[Token]) -> Positioned[s.Value]:
        [token] = children
        return Positioned(literal_of(token), token)

    def typed_text(self, children: list[Any]) -> Positioned[s.Value]:
        return Positioned(children[1].value, children[1].token)

    def property_key(self, children: list[Any]) -> Positioned[str]:
        return self.kind(children)

    def property(self, children: list[Positioned[Any]]) -> tuple[Positioned[str], Positioned[str]]:
        key, value = children
        if value.value is None:
            raise Refused(value.token, f"The property {key.value!r} cannot be NULL.", "Leave it out.")
        return key, Positioned(as_text(value), value.token)

    def properties(self, children: Pairs) -> Pairs:
        check_no_duplicates([key for key, _ in children], "The property")
        return children

    def partition_value(self, children: list[Positioned[Any]]) -> tuple[Positioned[str], s.Value]:
        return children[0], children[1].value

    def partition(self, children: list[Any]) -> Positioned[s.PartitionSpec]:
        token, *values = children
        check_no_duplicates([key for key, _ in values], "The partition column")
        return Positioned(tuple((key.value, value) for key, value in values), token)

    def if_exists(self, children: list[Token]) -> Flag:
        return Flag(children[0])

    if_not_exists = if_exists

    def on_table(self, children: list[Any]) -> Positioned[str]:
        table: Positioned[str] = children[-1]
        return table

    @v_args(meta=True)
    def column_text(self, meta: Meta, children: list[Any]) -> Columns:
        tokens = [
            token
            for child in children
            for token in (child.scan_values(lambda _: True) if isinstance(child, Tree) else [child])
        ]
        return Columns(without_comments(self._script[meta.start_pos : meta.end_pos]), tuple(tokens))

    type_text = column_text

    index_columns = names

    @v_args(meta=True)
    def summary(self, meta: Meta, children: list[Any]) -> Positioned[str]:
        return Positioned(without_comments(self._script[meta.start_pos : meta.end_pos]), children[0])

    @v_args(meta=True)
    def field(self, meta: Meta, children: list[Any]) -> Positioned[str]:
        return Positioned(without_comments(self._script[meta.start_pos : meta.end_pos]), children[0].token)

    @v_args(meta=True)
    def grouped(self, meta: Meta, children: list[Any]) -> Positioned[str]:
        first = next(children[0].scan_values(lambda _: True))
        return Positioned(without_comments(self._script[meta.start_pos : meta.end_pos]), first)

    # --- clauses ----------------------------------------------------------------------------------------------

    def using(self, children: list[Any]) -> Clause:
        return Clause("kind", (children[1], children[2] if len(children) > 2 else None), children[0])

    def as_handler(self, children: list[Any]) -> Clause:
        return Clause("kind", (children[1], None), children[0])

    def deferred(self, children: list[Any]) -> Clause:
        return Clause("WITH DEFERRED REBUILD", True, children[0])

    def stored_as(self, children: list[Any]) -> Clause:
        words = [token for token in children[2].children if isinstance(token, Token)]
        if len(words) != 1 or unquoted(words[0]).lower() != "parquet":
            raise Refused(words[0], "Index files are Parquet.", "Write STORED AS PARQUET, or leave the clause out.")
        return Clause("STORED AS", "parquet", children[0])

    def tblproperties(self, children: list[Any]) -> Clause:
        raise Refused(
            children[0],
            "TBLPROPERTIES cannot be given: an index has no table of its own that could have properties.",
            "Give the properties of the index: IDXPROPERTIES (…).",
        )

    def table_using(self, children: list[Any]) -> Clause:
        return Clause("USING", children[1], children[0])

    def clustered_by(self, children: list[Any]) -> Clause:
        columns, count = children[2], children[4]
        return Clause("CLUSTERED BY", (columns, Positioned(str(count), count)), children[0])

    partitioned_by = _clause("PARTITIONED BY")
    include, exclude = _clause("INCLUDE"), _clause("EXCLUDE")
    idxproperties, in_table = _clause("IDXPROPERTIES"), _clause("IN TABLE")
    location, comment = _clause("LOCATION"), _clause("COMMENT")
    mode, schema = _clause("mode"), _clause("SCHEMA")

    def table_options(self, children: list[Any]) -> Clause:
        return Clause(str(children[0]).upper(), children[1], children[0])

    # --- indexes ----------------------------------------------------------------------------------------------

    def create_index(self, children: list[Any]) -> s.CreateIndex:
        name, table = positioned_values(children)
        columns: list[Positioned[str]] | None = next((child for child in children if isinstance(child, list)), None)
        clauses = clauses_of(children)
        kind: Positioned[str] | None = None
        if "kind" in clauses:
            kind, inner = clauses["kind"].value
            if inner is not None and columns is not None:
                raise Refused(clauses["kind"].token, "The columns are given twice, before and after USING.")
            columns = columns if inner is None else inner
        return s.CreateIndex(
            index=name.value,
            table=table.value,
            kind="secondary" if kind is None else _kind(kind),
            columns=tuple(at.value for at in columns or ()),
            include=names_in(clauses, "INCLUDE"),
            exclude=names_in(clauses, "EXCLUDE"),
            deferred="WITH DEFERRED REBUILD" in clauses,
            properties=pairs_in(clauses.get("IDXPROPERTIES")),
            index_table=text_of(clauses, "IN TABLE"),
            partition_by=names_in(clauses, "PARTITIONED BY"),
            location=text_of(clauses, "LOCATION"),
            comment=text_of(clauses, "COMMENT"),
            if_not_exists=has_exists_flag(children),
        )

    def drop_index(self, children: list[Any]) -> s.DropIndex:
        name, *table = positioned_values(children)
        return s.DropIndex(name.value, table[0].value if table else None, has_exists_flag(children))

    def rebuild_index(self, children: list[Any]) -> s.RebuildIndex:
        name, table, *partition = positioned_values(children)
        return s.RebuildIndex(name.value, table.value, partition[0].value if partition else None)

    def set_index_properties(self, children: list[Any]) -> s.SetIndexProperties:
        name, table, *partition = positioned_values(children)
        if partition:
            raise Refused(partition[0].token, "Properties belong to the whole index.", "Leave PARTITION out.")
        return s.SetIndexProperties(name.value, table.value, pairs_of(children[-1]))

    def refresh_index(self, children: list[Any]) -> s.RefreshIndex:
        name, table, *partition = positioned_values(children)
        if len(partition) > 1:
            raise Refused(
                partition[1].token, "One PARTITION can be given.", "Refresh the others by statements of theirs."
            )
        clauses = clauses_of(children)
        mode = str(clauses["mode"].value).lower() if "mode" in clauses else "incremental"
        assert mode in _MODES
        return s.RefreshIndex(
            index=name.value,
            table=table.value,
            mode=mode,  # type: ignore[arg-type]
            partition=partition[0].value if partition else None,
            include=names_in(clauses, "INCLUDE"),
            exclude=names_in(clauses, "EXCLUDE"),
            schema=clauses["SCHEMA"].value.text if "SCHEMA" in clauses else None,
        )

    def show_indexes(self, children: list[Any]) -> s.ShowIndexes:
        table, *database = positioned_values(children)
        name = f"{database[0].value}.{table.value}" if database else table.value
        return s.ShowIndexes(name, has_keyword(children, "FORMATTED"))

    def describe_index(self, children: list[Any]) -> s.DescribeIndex:
        name, table = positioned_values(children)
        return s.DescribeIndex(
            name.value, table.value, has_keyword(children, "FORMATTED") or has_keyword(children, "EXTENDED")
        )

    # --- procedures -------------------------------------------------------------------------------------------

    def argument(self, children: list[Any]) -> tuple[Token | None, Positioned[s.Value]]:
        return (children[0], children[1]) if len(children) > 1 else (None, children[0])

    def call(self, children: list[Any]) -> s.Statement:
        procedure, *arguments = children[1:]
        return read_call(procedure, arguments)


# --- what was said ----------------------------------------------------------------------------------------------


def _kind(at: Positioned[str]) -> str:
    lowered = at.value.lower()
    if lowered in ("bucket", "bucket_index"):
        raise Refused(
            at.token,
            "Buckets are the layout of the table itself, not an index of it.",
            "Give a count when the table is made, or CALL partition_bucket_index_manager(…).",
        )
    return KINDS.get(lowered, lowered if lowered in _OWN_KINDS else at.value)


# --- From the text of a script to its statements --------------------------------------------------------------------


_REFUSED_WORDS = {
    "ROW": (
        "ROW FORMAT cannot be given: index files are Parquet, whose rows have no format of their own.",
        "Leave the clause out.",
    ),
    "STORED_BY": (
        "STORED BY cannot be given: what stores an index is the handler of its kind.",
        "Name the handler instead: AS 'kind or class'.",
    ),
}
"""Keywords that are refused as soon as they are read, whatever follows them."""

_TRUNCATE = re.compile(r"(?i)truncate\b")

_WIDEST_TOKEN = 60

_OPENINGS = {"'": "A quotation", '"': "A quotation", "`": "A quoted name", "/*": "A comment"}


def parse(script: str, parameters: Parameters | None = None) -> tuple[Statement, ...]:
    """Return the statements of a script, in order.

    Statements end with ``;``, the last one may go without.

    :param parameters: name -> value, bound to the script's ``:name``; see :func:`spark_apps.storage.parameters.bind`.
    :raises InvalidInput: for a parameter that is missing or unknown.
    :raises InvalidStatement: with line, column, the text there and what was expected. Nothing was run.
    """
    if parameters is not None:
        script = bind(script, parameters)
    segments = split(script)
    rows = [segment for segment in segments if segment.of_rows]
    queries = [(one.start, one.end) for one in rows] + [
        (one.query, one.end) for one in segments if one.query is not None
    ]
    try:
        tree = _parser().parse(_blanked(script, queries))
        on_indexes: tuple[Statement, ...] = Reader(script, segments).transform(tree)
        on_rows = [read_row_statement(script, segment) for segment in rows]
    except UnexpectedInput as error:
        raise _unexpected(script, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, RecursionError):
            raise _too_deep(script) from None
        if not isinstance(error.orig_exc, Refused):
            raise error.orig_exc from None
        raise _refused(script, error.orig_exc) from None
    except Refused as error:
        raise _refused(script, error) from None
    except RecursionError:
        raise _too_deep(script) from None
    statements = sorted([*on_indexes, *on_rows], key=lambda one: (one.source.line, one.source.column))
    if not statements:
        raise refusal(script, 0, 1, "the script holds no statement.")
    return tuple(replace(one, source=replace(one.source, number=number)) for number, one in enumerate(statements, 1))


def _blanked(script: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the script with blanks where other readers read."""
    for start, end in spans:
        script = script[:start] + re.sub(r"\S", " ", script[start:end]) + script[end:]
    return script


def _too_deep(script: str) -> InvalidStatement:
    return refusal(script, 0, 1, "the script is nested too deeply to be read.")


def _refused(script: str, error: Refused) -> InvalidStatement:
    return refusal(script, error.token.start_pos or 0, len(error.token), error.message, error.hint)


def _unexpected(script: str, error: UnexpectedInput) -> InvalidStatement:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        start, length, read = error.token.start_pos or 0, len(error.token), f"found {_short(error.token)}"
        if script.startswith("/*", start):  # a comment that is closed is no token
            return refusal(script, start, length, f"{_OPENINGS['/*']} that begins here is not closed.")
    elif isinstance(error, UnexpectedCharacters):
        start, length = error.pos_in_stream or 0, 1
        unclosed = next((what for sign, what in _OPENINGS.items() if script.startswith(sign, start)), None)
        if unclosed:
            return refusal(script, start, length, f"{unclosed} that begins here is not closed.")
        read = f"found {script[start]!r}"
    else:
        start, length, read = len(script.rstrip()), 1, "the script ends here"
    return refusal(script, start, length, f"expected {_expected(error)}, {read}.", _advice(script, start))


def _short(token: Token) -> str:
    return repr(str(token)) if len(token) <= _WIDEST_TOKEN else f"{str(token)[:_WIDEST_TOKEN]!r} …"


def _expected(error: UnexpectedInput) -> str:
    # What the parser itself can go on with; the tables of an LALR parser name more.
    state = getattr(error, "interactive_parser", None)
    words = called(state.accepts()) if state is not None else []
    if not words:
        return "a statement"
    if {"ALTER", "SHOW"} <= set(words):  # at the beginning of a statement
        words = sorted({*words, *STATEMENTS} - {"WITH", "VALUES"})
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _advice(script: str, start: int) -> str:
    if script.startswith("-", start):
        return "A name with a hyphen is written in back-ticks."
    if _TRUNCATE.match(script, start):
        return "DELETE FROM the table removes all its rows."
    return ""


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        start="script",
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
        lexer_callbacks=dict.fromkeys(_REFUSED_WORDS, _refuse_word),
    )


def _refuse_word(token: Token) -> Token:
    raise Refused(token, *_REFUSED_WORDS[token.type])
