"""The parser of scripts: statements on tables and indexes, and calls; those on rows are read by ``row_parser``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from spark_apps.sql import statements as s
from spark_apps.sql.options import TableOptions, count_of, read_call, read_options, read_source_options
from spark_apps.sql.row_parser import ROW_STATEMENTS, RowReader
from spark_apps.sql.statements import Statement
from spark_apps.sql.syntax import (
    TEXTS,
    Clause,
    Positioned,
    Refused,
    Token,
    check_no_duplicates,
    refusal,
    tokens_of,
    unquoted,
    without_comments,
)
from spark_apps.storage.parameters import Parameters, bind
from spark_apps.timeline.allowed_sources import FORMATS

Clauses = dict[str, Clause]
Pairs = tuple[tuple[str, str], ...]


def parse(script: str, parameters: Parameters | None = None) -> tuple[Statement, ...]:
    """Return the statements of a script, in order.

    Statements end with ``;``, the last one may go without.

    :param parameters: name -> value, bound to the script's ``:name``; see :func:`spark_apps.storage.parameters.bind`.
    :raises InvalidInput: for a parameter that is missing or unknown.
    :raises InvalidStatement: with line, column, the text there and what was expected. Nothing was run.
    """
    if parameters is not None:
        script = bind(script, parameters)
    try:
        statements = tuple(_read(script, tokens, number) for number, tokens in enumerate(tokens_of(script), 1))
    except Refused as error:
        raise refusal(script, error) from None
    if not statements:
        raise refusal(script, Refused(Token("END", "", 0), "the script holds no statement."))
    return statements


def _read(script: str, tokens: Sequence[Token], number: int) -> Statement:
    reader = _Reader(script, tokens)
    statement = reader.statement()
    reader.end()
    start = tokens[0].start
    line, column = script.count("\n", 0, start) + 1, start - script.rfind("\n", 0, start)
    return replace(statement, source=s.Source(number, line, column, script[start : tokens[-2].end]))


# --- What clauses say -----------------------------------------------------------------------------------------------


def _text_of(clauses: Clauses, about: str) -> str | None:
    return clauses[about].value.value if about in clauses else None


def _names_in(clauses: Clauses, about: str) -> tuple[str, ...] | None:
    return tuple(at.value for at in clauses[about].value) if about in clauses else None


def _pairs_in(clauses: Clauses, about: str) -> Pairs:
    return _pairs(clauses[about].value) if about in clauses else ()


def _pairs(properties: Sequence[tuple[Positioned[str], Positioned[str]]]) -> Pairs:
    return tuple((key.value, value.value) for key, value in properties)


# --- Statements -----------------------------------------------------------------------------------------------------


class _Reader(RowReader):
    """Reads any statement."""

    def statement(self) -> Statement:
        first = self.current
        if first.says in (*ROW_STATEMENTS, "WITH", "VALUES", "("):
            return self.row_statement()
        if first.says not in _READERS:
            self.fail(*_READERS, *ROW_STATEMENTS)
        self.advance()
        return _READERS[first.says](self)

    def _create(self) -> Statement:
        return self._create_table() if self.take("TABLE", "INDEX").says == "TABLE" else self._create_index()

    def _drop(self) -> Statement:
        return self._drop_table() if self.take("TABLE", "INDEX").says == "TABLE" else self._drop_index()

    def _alter(self) -> Statement:
        if self.take("TABLE", "INDEX").says == "INDEX":
            return self._alter_index()
        table = self.table().value
        return _ALTERATIONS[self.take(*_ALTERATIONS).says](self, table)

    def _if_exists(self) -> bool:
        return self.phrase("IF EXISTS") is not None

    # --- tables -----------------------------------------------------------------------------------------------

    def _create_table(self) -> Statement:
        if_not_exists = self.phrase("IF NOT EXISTS") is not None
        table = self.table().value
        columns = None
        if self.skip("("):
            columns, _tokens = self.columns()
            self.take(")")
        clauses = self.clauses(_TABLE_CLAUSES)
        made_from, query = self.skip("AS"), None
        if made_from is None:
            self.end()
        elif self.current.type == "END":
            raise Refused(made_from, "no query follows AS.", "Write AS SELECT ….")
        else:
            query = self.query()
        if (_text_of(clauses, "USING") or "").lower() in FORMATS:
            return _source(table, columns, clauses, made_from, if_not_exists)
        statement = _table_statement(self._tokens[0], table, columns, clauses, made_from, if_not_exists)
        return replace(statement, query=query)

    def _clustered(self) -> tuple[list[Positioned[str]], Positioned[str]]:
        columns = self.names()
        self.take("INTO")
        count = self.one_of("NUMBER")
        self.take("BUCKETS")
        return columns, Positioned(count.text, count)

    def _drop_table(self) -> Statement:
        if_exists = self._if_exists()
        table = self.table().value
        self._refuse_purge()
        return s.DropTable(table, if_exists)

    def _refuse_purge(self) -> None:
        if token := self.skip("PURGE"):
            raise Refused(
                token,
                "PURGE cannot be had: files stay as long as a version that can be read needs them.",
                "Leave it out, and let the table be cleaned.",
            )

    def _add_columns(self, table: str) -> Statement:
        self.take("COLUMN", "COLUMNS")
        if self.skip("("):
            text, tokens = self.columns()
            self.take(")")
        else:
            text, tokens = self.columns(begin_with_name=True)
        for before, token in pairwise(tokens):
            if token.says in ("FIRST", "AFTER") and before.says not in (",", "<"):
                raise Refused(
                    token,
                    "New columns are added at the end.",
                    f"Leave {token.says} out; a query names its columns in whatever order it wants them.",
                )
        return s.AddColumns(table, text)

    def _alter_column(self, table: str) -> Statement:
        self.skip("COLUMN")
        column = self.name().value
        self.take("TYPE")
        return s.AlterColumnType(table, column, self.columns(begin_with_name=True, may_end=True)[0])

    def _rename_column(self, table: str) -> Statement:
        self.take("COLUMN")
        column = self.name().value
        self.take("TO")
        return s.RenameColumn(table, column, self.name().value)

    def _set_table_properties(self, table: str) -> Statement:
        self.take("TBLPROPERTIES")
        return s.SetTableProperties(table, _pairs(self.properties()))

    def _drop_of_table(self, table: str) -> Statement:
        if self.skip("COLUMN", "COLUMNS"):
            if_exists = self._if_exists()
            names = self.names() if self.at("(") else [self.name()]
            while self.previous.says != ")" and self.skip(","):
                names.append(self.name())
            check_no_duplicates(names, "The column")
            return s.DropColumns(table, tuple(at.value for at in names), if_exists)
        if_exists = self._if_exists()
        self.take("PARTITION")
        partitions = [self._partition()]
        while self.skip(","):
            self.take("PARTITION")
            partitions.append(self._partition())
        self._refuse_purge()
        return s.DropPartition(table, tuple(partitions), if_exists)

    def _partition(self) -> s.PartitionSpec:
        return self.partition()[0]

    # --- indexes ----------------------------------------------------------------------------------------------

    def _index_on_table(self) -> tuple[str, str]:
        index = self.name().value
        self.take("ON")
        self.skip("TABLE")
        return index, self.table().value

    def _create_index(self) -> Statement:
        if_not_exists = self.phrase("IF NOT EXISTS") is not None
        index, table = self._index_on_table()
        columns = self._index_columns()
        clauses = self.clauses(_INDEX_CLAUSES)
        self.end()
        kind, inner = clauses[_KIND].value if _KIND in clauses else ("secondary", None)
        if inner is not None and columns is not None:
            raise Refused(clauses[_KIND].token, "The columns are given twice, before and after USING.")
        return s.CreateIndex(
            index=index,
            table=table,
            kind=kind,
            columns=tuple(at.value for at in columns or inner or ()),
            include=_names_in(clauses, "INCLUDE"),
            exclude=_names_in(clauses, "EXCLUDE"),
            deferred="WITH DEFERRED REBUILD" in clauses,
            properties=_pairs_in(clauses, "IDXPROPERTIES"),
            index_table=_text_of(clauses, "IN TABLE"),
            partition_by=_names_in(clauses, "PARTITIONED BY"),
            location=_text_of(clauses, "LOCATION"),
            comment=_text_of(clauses, "COMMENT"),
            if_not_exists=if_not_exists,
        )

    def _using(self) -> tuple[str, list[Positioned[str]] | None]:
        quoted = self.current.type in ("SINGLE_QUOTED", "RAW_QUOTED")
        return _kind(self.text() if quoted else self.name()), self._index_columns()

    def _as_handler(self) -> tuple[str, None]:
        return _kind(self.text()), None

    def _index_columns(self) -> list[Positioned[str]] | None:
        if not self.at("("):
            return None
        columns = self.listed(self._index_column, may_be_empty=True)
        check_no_duplicates(columns, "The column")
        return columns

    def _index_column(self) -> Positioned[str]:
        """Read a column, a field of one, or an expression, whose text is read with the index."""
        begin, first = self._next, self.current
        if self.skip("("):
            self.nested(_SIGNS, *_OPERANDS)
            self.take(")")
        else:
            column = self.name()
            if first.type == "NAME" and self.skip("("):
                self.nested(_SIGNS, *_OPERANDS, may_be_empty=True)
                self.take(")")
            elif self.at("."):
                while self.skip("."):
                    self.name()
            else:
                return column
        return Positioned(without_comments(self.text_between(begin, self._next)), first)

    def _stored(self) -> str:
        if self.is_next("BY"):
            self._refuse_clause()
        self.take("AS")
        form = self.one_of("NAME", *TEXTS)
        if unquoted(form).lower() != "parquet":
            raise Refused(form, "Index files are Parquet.", "Write STORED AS PARQUET, or leave the clause out.")
        return form.text

    def _refuse_clause(self) -> None:
        raise Refused(self.previous, *_REFUSED_CLAUSES[self.previous.says])

    def _drop_index(self) -> Statement:
        if_exists = self._if_exists()
        index, table = self.name().value, None
        if self.skip("ON"):
            self.skip("TABLE")
            table = self.table().value
        return s.DropIndex(index, table, if_exists)

    def _alter_index(self) -> Statement:
        index, table = self._index_on_table()
        of_partition = self.skip("PARTITION")
        partition = self._partition() if of_partition else None
        if self.take("REBUILD", "SET").says == "REBUILD":
            return s.RebuildIndex(index, table, partition)
        self.take("IDXPROPERTIES", "OPTIONS")
        properties = _pairs(self.properties())
        self.end()
        if of_partition:
            raise Refused(of_partition, "Properties belong to the whole index.", "Leave PARTITION out.")
        return s.SetIndexProperties(index, table, properties)

    def _refresh(self) -> Statement:
        self.take("INDEX")
        index, table = self._index_on_table()
        clauses = self.clauses(_REFRESH_CLAUSES)
        return s.RefreshIndex(
            index=index,
            table=table,
            mode=clauses["mode"].token.says.lower() if "mode" in clauses else "incremental",  # type: ignore[arg-type]
            partition=clauses["PARTITION"].value if "PARTITION" in clauses else None,
            include=_names_in(clauses, "INCLUDE"),
            exclude=_names_in(clauses, "EXCLUDE"),
            schema=clauses["SCHEMA"].value if "SCHEMA" in clauses else None,
        )

    def _schema(self) -> str:
        self.take("(")
        text, _tokens = self.columns()
        self.take(")")
        return text

    def _show(self) -> Statement:
        formatted = self.skip("FORMATTED") is not None
        self.take("INDEX", "INDEXES")
        self.take("ON", "FROM", "IN")
        self.skip("TABLE")
        table = self.table().value
        if self.skip("FROM", "IN"):
            table = f"{self.name().value}.{table}"
        return s.ShowIndexes(table, formatted)

    def _describe(self) -> Statement:
        formatted = self.skip("FORMATTED", "EXTENDED") is not None
        self.take("INDEX")
        return s.DescribeIndex(*self._index_on_table(), formatted)

    # --- procedures -------------------------------------------------------------------------------------------

    def _call(self) -> Statement:
        procedure, arguments = self.dotted(), self.listed(self._argument, may_be_empty=True)
        self.end()
        return read_call(procedure, arguments)

    def _argument(self) -> tuple[Positioned[str] | None, Positioned[s.Value]]:
        """Read ``name => value``, whose name may have hyphens, or a value."""
        self._wanted.add("name => value")
        named = _NAMED.match(self._script, self.current.start)
        if named is None:
            return None, self.literal()
        name = Token("NAME", named[1], self.current.start)
        while self.current.start < named.end():
            self.advance()
        return Positioned(name.text, name), self.literal()


_NAMED = re.compile(r"([^\W\d][\w-]*)\s*=>")

# Of the expression of an index.
_SIGNS = "-+*/%.|&^~<>=!:[]"
_OPERANDS = ("a name", "a quoted text", "a number", "(", ")", ",")

_READERS: dict[str, Callable[[_Reader], Statement]] = {
    "ALTER": _Reader._alter,
    "CALL": _Reader._call,
    "CREATE": _Reader._create,
    "DESC": _Reader._describe,
    "DESCRIBE": _Reader._describe,
    "DROP": _Reader._drop,
    "REFRESH": _Reader._refresh,
    "SHOW": _Reader._show,
}
"""First word of a statement -> what reads the rest; those on rows are not among them."""

_ALTERATIONS: dict[str, Callable[[_Reader, str], Statement]] = {
    "ADD": _Reader._add_columns,
    "ALTER": _Reader._alter_column,
    "CHANGE": _Reader._alter_column,
    "DROP": _Reader._drop_of_table,
    "RENAME": _Reader._rename_column,
    "SET": _Reader._set_table_properties,
}
"""What comes behind ``ALTER TABLE t`` -> what reads the rest."""

_KIND = "The kind of the index"

_TABLE_CLAUSES = {
    "USING": ("USING", _Reader.name),
    "PARTITIONED BY": ("PARTITIONED BY", _Reader.names),
    "CLUSTERED BY": ("CLUSTERED BY", _Reader._clustered),
    "TBLPROPERTIES": ("TBLPROPERTIES", _Reader.properties),
    "OPTIONS": ("OPTIONS", _Reader.properties),
    "WITH": ("WITH", _Reader.properties),
    "LOCATION": ("LOCATION", _Reader.text),
    "COMMENT": ("COMMENT", _Reader.text),
}
"""Words of a clause of ``CREATE TABLE`` -> what it is about, and what reads the rest."""

_INDEX_CLAUSES = {
    "USING": (_KIND, _Reader._using),
    "AS": (_KIND, _Reader._as_handler),
    "WITH DEFERRED REBUILD": ("WITH DEFERRED REBUILD", lambda _reader: True),
    "PARTITIONED BY": ("PARTITIONED BY", _Reader.names),
    "INCLUDE": ("INCLUDE", _Reader.names),
    "EXCLUDE": ("EXCLUDE", _Reader.names),
    "IDXPROPERTIES": ("IDXPROPERTIES", _Reader.properties),
    "OPTIONS": ("IDXPROPERTIES", _Reader.properties),
    "IN TABLE": ("IN TABLE", _Reader.table),
    "STORED": ("STORED AS", _Reader._stored),
    "LOCATION": ("LOCATION", _Reader.text),
    "COMMENT": ("COMMENT", _Reader.text),
    "ROW": ("ROW", _Reader._refuse_clause),
    "TBLPROPERTIES": ("TBLPROPERTIES", _Reader._refuse_clause),
}
"""The same of ``CREATE INDEX``."""

_REFRESH_CLAUSES = {
    "FULL": ("mode", lambda _reader: None),
    "INCREMENTAL": ("mode", lambda _reader: None),
    "QUICK": ("mode", lambda _reader: None),
    "PARTITION": ("PARTITION", _Reader._partition),
    "INCLUDE": ("INCLUDE", _Reader.names),
    "EXCLUDE": ("EXCLUDE", _Reader.names),
    "SCHEMA": ("SCHEMA", _Reader._schema),
}
"""The same of ``REFRESH INDEX``."""

_REFUSED_CLAUSES = {
    "ROW": (
        "ROW FORMAT cannot be given: index files are Parquet, whose rows have no format of their own.",
        "Leave the clause out.",
    ),
    "STORED": (
        "STORED BY cannot be given: what stores an index is the handler of its kind.",
        "Name the handler instead: AS 'kind or class'.",
    ),
    "TBLPROPERTIES": (
        "TBLPROPERTIES cannot be given: an index has no table of its own that could have properties.",
        "Give the properties of the index: IDXPROPERTIES (…).",
    ),
}


# --- The kind of an index -------------------------------------------------------------------------------------------


KINDS = {
    **{kind: kind for kind in ("record", "secondary", "compact", "covering", "skipping")},
    "secondary_index": "secondary",
    "record_index": "record",
    "record_level_index": "record",
    "covering_index": "covering",
    "compact_index": "compact",
    "org.apache.hadoop.hive.ql.index.compact.compactindexhandler": "compact",
}
"""Kinds by their names in this package and in the documents; any case."""


def _kind(at: Positioned[str]) -> str:
    lowered = at.value.lower()
    if lowered in ("bucket", "bucket_index"):
        raise Refused(
            at.token,
            "Buckets are the layout of the table itself, not an index of it.",
            "Give a count when the table is made, or CALL partition_bucket_index_manager(…).",
        )
    return KINDS.get(lowered, at.value)


# --- CREATE TABLE … USING indexed -----------------------------------------------------------------------------------


def _table_statement(
    begin: Token, table: str, columns: str | None, clauses: Clauses, made_from: Token | None, if_not_exists: bool
) -> s.CreateTable:
    options = TableOptions()
    for about in ("TBLPROPERTIES", "OPTIONS", "WITH"):
        if about in clauses:
            read_options(clauses[about].value, options)
    _check_format(clauses, options, begin)
    if columns is None and made_from is None:
        raise Refused(begin, "The table has no columns.", "Write them behind its name: (id bigint, …).")
    if columns is not None and made_from is not None:
        raise Refused(
            made_from, "The columns are given, and the query behind AS has its own.", "Leave one of them out."
        )
    if "CLUSTERED BY" in clauses:
        fields, count = clauses["CLUSTERED BY"].value
        at = Positioned("", clauses["CLUSTERED BY"].token)
        options.put("hash_fields", tuple(field.value for field in fields), at)
        options.put("buckets", count_of(count), at)
    if "record_key" not in options.arguments:
        raise Refused(begin, "The table has no record key.", "Add TBLPROPERTIES (primaryKey = 'id').")
    return s.CreateTable(
        table=table,
        columns=columns or "",
        partition_by=_names_in(clauses, "PARTITIONED BY") or (),
        arguments=tuple(options.arguments.items()),
        properties=tuple(options.properties.items()),
        location=_location(clauses, options),
        comment=_text_of(clauses, "COMMENT"),
        if_not_exists=if_not_exists,
    )


def _check_format(clauses: Clauses, options: TableOptions, begin: Token) -> None:
    format = _text_of(clauses, "USING") or options.format
    if format is None:
        raise Refused(begin, "The statement does not say USING indexed.", "Other tables are made by Spark itself.")
    if format.lower() != "indexed" or (options.format or "indexed").lower() != "indexed":
        raise Refused(
            clauses["USING"].value.token if "USING" in clauses else begin,
            f"Tables of the format {format!r} are not made here.",
            f"Write USING indexed; to register what others write, USING {', '.join(FORMATS)}.",
        )


def _location(clauses: Clauses, options: TableOptions) -> str | None:
    location = _text_of(clauses, "LOCATION")
    if location is not None and options.location not in (None, location):
        raise Refused(clauses["LOCATION"].token, f"The location is given twice, also as {options.location!r}.")
    return location or options.location


# --- CREATE TABLE … USING parquet and the like ----------------------------------------------------------------------


_NOT_OF_A_SOURCE = {
    "PARTITIONED BY": "Partition columns of a source are those of its folders, or of its own log.",
    "CLUSTERED BY": "Buckets are a layout of this package's own tables.",
}


def _source(
    table: str, columns: str | None, clauses: Clauses, made_from: Token | None, if_not_exists: bool
) -> s.RegisterSource:
    form = clauses["USING"].value.value.lower()
    if made_from is not None:
        raise Refused(made_from, f"A table of the format {form} is not made from a query here.", "Write USING indexed.")
    for about, why in _NOT_OF_A_SOURCE.items():
        if about in clauses:
            raise Refused(clauses[about].token, f"{about} cannot be given: {why}", "Leave the clause out.")
    options = TableOptions()
    for about in ("TBLPROPERTIES", "WITH"):
        if about in clauses:
            read_source_options(clauses[about].value, options)
    read = dict(_pairs_in(clauses, "OPTIONS"))
    path = next((name for name in read if name.lower() == "path"), None)
    if path is not None:
        options.location = read.pop(path)
    return s.RegisterSource(
        table=table,
        format=form,
        columns=columns,
        options=tuple(read.items()),
        record_key=options.arguments.get("record_key", ()),  # type: ignore[arg-type]
        properties=tuple(options.properties.items()),
        location=_location(clauses, options),
        comment=_text_of(clauses, "COMMENT"),
        if_not_exists=if_not_exists,
    )
