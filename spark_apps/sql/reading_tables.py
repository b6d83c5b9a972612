"""The statements on tables: those of this package, those of others that are registered, and their columns."""

from __future__ import annotations

from typing import Any

from lark import Token

from spark_apps.sources.options import FORMATS
from spark_apps.sql import statements as s
from spark_apps.sql.clauses import (
    Clause,
    Columns,
    ats,
    clauses_of,
    flagged,
    names_in,
    no_purge,
    once,
    pairs_in,
    text_of,
)
from spark_apps.sql.places import At, Refused
from spark_apps.sql.table_options import TableOptions, count_of, read_options, read_source_options


class TableReader:
    """The part of the reader for tables: a method a rule of the grammar."""

    def create_table(self, children: list[Any]) -> s.Statement:
        clauses, columns = clauses_of(children), _columns(children)
        using = clauses.get("USING")
        if using is not None and using.value.value.lower() in FORMATS:
            return _source(children, clauses, columns, using.value.value.lower())
        return _table(children, clauses, columns)

    def drop_table(self, children: list[Any]) -> s.DropTable:
        no_purge(children)
        [table] = ats(children)
        return s.DropTable(table.value, flagged(children))

    def drop_partition(self, children: list[Any]) -> s.DropPartition:
        no_purge(children)
        table, *partitions = ats(children)
        return s.DropPartition(table.value, tuple(at.value for at in partitions), flagged(children))

    # --- columns ----------------------------------------------------------------------------------------------

    def add_columns(self, children: list[Any]) -> s.AddColumns:
        [table], columns = ats(children), _columns(children)
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
        [table, column], wanted = ats(children), _columns(children)
        assert wanted is not None
        return s.AlterColumnType(table.value, column.value, wanted.text)

    def rename_column(self, children: list[Any]) -> s.RenameColumn:
        table, column, to = ats(children)
        return s.RenameColumn(table.value, column.value, to.value)

    def drop_columns(self, children: list[Any]) -> s.DropColumns:
        table, *names = ats(children)
        names = next((child for child in children if isinstance(child, list)), names)
        once(names, "The column")
        return s.DropColumns(table.value, tuple(at.value for at in names), flagged(children))


def _columns(children: list[Any]) -> Columns | None:
    return next((child for child in children if isinstance(child, Columns)), None)


# --- CREATE TABLE … USING indexed -------------------------------------------------------------------------------


def _table(children: list[Any], clauses: dict[str, Clause], columns: Columns | None) -> s.CreateTable:
    begin, [table] = children[0], ats(children)
    options = TableOptions()
    for about in ("TBLPROPERTIES", "OPTIONS", "WITH"):
        if about in clauses:
            read_options(clauses[about].value, options)
    _check_format(clauses.get("USING"), options, begin)
    if columns is None:
        raise Refused(begin, "The table has no columns.", "Write them behind its name: (id bigint, …).")
    if "CLUSTERED BY" in clauses:
        fields, count = clauses["CLUSTERED BY"].value
        token = clauses["CLUSTERED BY"].token
        options.put("hash_fields", tuple(at.value for at in fields), At("", token))
        options.put("buckets", count_of(count), At("", token))
    if "record_key" not in options.arguments:
        raise Refused(begin, "The table has no record key.", "Add TBLPROPERTIES (primaryKey = 'id').")
    return s.CreateTable(
        table=table.value,
        columns=columns.text,
        partition_by=names_in(clauses, "PARTITIONED BY") or (),
        arguments=tuple(options.arguments.items()),
        properties=tuple(options.properties.items()),
        location=_location(clauses, options),
        comment=text_of(clauses, "COMMENT"),
        if_not_exists=flagged(children),
    )


def _check_format(using: Clause | None, options: TableOptions, begin: Token) -> None:
    found = using.value.value if using is not None else options.format
    if found is None:
        raise Refused(begin, "The statement does not say USING indexed.", "Other tables are made by Spark itself.")
    if found.lower() != "indexed" or (options.format or "indexed").lower() != "indexed":
        raise Refused(
            using.value.token if using is not None else begin,
            f"Tables of the format {found!r} are not made here.",
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
    [table] = ats(children)
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
        if_not_exists=flagged(children),
    )
