"""From the tree of a script to its statements: quotes are taken off, clauses that exclude each other are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lark import Token, Transformer, Tree, v_args
from lark.tree import Meta

from spark_apps.sql import statements as s
from spark_apps.sql.calls import read_call
from spark_apps.sql.clauses import (
    Clause,
    Columns,
    Flag,
    Pairs,
    ats,
    clauses_of,
    flagged,
    has,
    names_in,
    once,
    pairs_in,
    pairs_of,
    text_of,
)
from spark_apps.sql.places import At, Refused
from spark_apps.sql.quoting import as_text, literal_of, unquoted, without_comments
from spark_apps.sql.reading_tables import TableReader

KINDS = {
    "secondary_index": "secondary",
    "record_index": "record",
    "record_level_index": "record",
    "covering_index": "covering",
    "compact_index": "compact",
    "org.apache.hadoop.hive.ql.index.compact.compactindexhandler": "compact",
}
"""Other names of kinds, in the documents; any case."""

_OWN_KINDS = ("record", "secondary", "compact", "covering")
_MODES = ("incremental", "full", "quick")


def _clause(about: str) -> Any:
    """A method that reads a clause whose last part is what it says."""

    def clause(self: Reader, children: list[Any]) -> Clause:
        return Clause(about, children[-1], children[0])

    return clause


class Reader(TableReader, Transformer[Token, tuple[s.Statement, ...]]):
    """Makes the statements of a script from its tree."""

    def __init__(self, script: str) -> None:
        super().__init__(visit_tokens=False)
        self._script = script

    def script(self, children: list[Any]) -> tuple[s.Statement, ...]:
        return tuple(
            replace(child, source=replace(child.source, number=number)) for number, child in enumerate(children, 1)
        )

    @v_args(meta=True)
    def statement(self, meta: Meta, children: list[Any]) -> s.Statement:
        text = self._script[meta.start_pos : meta.end_pos]
        return replace(children[0], source=s.Source(1, meta.line, meta.column, text))

    # --- parts ------------------------------------------------------------------------------------------------

    def name(self, children: list[Token]) -> At[str]:
        return At(unquoted(children[0]), children[0])

    text = name

    def table_part(self, children: list[Token]) -> At[str]:
        at = self.name(children)
        if not at.value.strip():
            raise Refused(at.token, "The name of a table is not blank.")
        return at

    def names(self, children: list[At[str]]) -> list[At[str]]:
        once(children, "The column")
        return children

    def dotted(self, children: list[At[str]]) -> At[str]:
        return At(".".join(child.value for child in children), children[0].token)

    def table(self, children: list[At[str]]) -> At[str]:
        return At(_table(children), children[0].token)

    def kind(self, children: list[Any]) -> At[str]:
        [child] = children
        return child if isinstance(child, At) else At(unquoted(child), child)

    def literal(self, children: list[Token]) -> At[s.Value]:
        [token] = children
        return At(literal_of(token), token)

    def typed_text(self, children: list[Any]) -> At[s.Value]:
        return At(children[1].value, children[1].token)

    def property_key(self, children: list[Any]) -> At[str]:
        return self.kind(children)

    def property(self, children: list[At[Any]]) -> tuple[At[str], At[str]]:
        key, value = children
        if value.value is None:
            raise Refused(value.token, f"The property {key.value!r} cannot be NULL.", "Leave it out.")
        return key, At(as_text(value), value.token)

    def properties(self, children: Pairs) -> Pairs:
        once([key for key, _ in children], "The property")
        return children

    def partition_value(self, children: list[At[Any]]) -> tuple[At[str], s.Value]:
        return children[0], children[1].value

    def partition(self, children: list[Any]) -> At[s.PartitionSpec]:
        token, *values = children
        once([key for key, _ in values], "The partition column")
        return At(tuple((key.value, value) for key, value in values), token)

    def if_exists(self, children: list[Token]) -> Flag:
        return Flag(children[0])

    if_not_exists = if_exists

    def on_table(self, children: list[Any]) -> At[str]:
        table: At[str] = children[-1]
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
        return Clause("CLUSTERED BY", (columns, At(str(count), count)), children[0])

    partitioned_by = _clause("PARTITIONED BY")
    include, exclude = _clause("INCLUDE"), _clause("EXCLUDE")
    idxproperties, in_table = _clause("IDXPROPERTIES"), _clause("IN TABLE")
    location, comment = _clause("LOCATION"), _clause("COMMENT")
    mode, schema = _clause("mode"), _clause("SCHEMA")

    def table_options(self, children: list[Any]) -> Clause:
        return Clause(str(children[0]).upper(), children[1], children[0])

    # --- indexes ----------------------------------------------------------------------------------------------

    def create_index(self, children: list[Any]) -> s.CreateIndex:
        name, table = ats(children)
        columns: list[At[str]] | None = next((child for child in children if isinstance(child, list)), None)
        clauses = clauses_of(children)
        kind: At[str] | None = None
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
            if_not_exists=flagged(children),
        )

    def drop_index(self, children: list[Any]) -> s.DropIndex:
        name, *table = ats(children)
        return s.DropIndex(name.value, table[0].value if table else None, flagged(children))

    def rebuild_index(self, children: list[Any]) -> s.RebuildIndex:
        name, table, *partition = ats(children)
        return s.RebuildIndex(name.value, table.value, partition[0].value if partition else None)

    def set_index_properties(self, children: list[Any]) -> s.SetIndexProperties:
        name, table, *partition = ats(children)
        if partition:
            raise Refused(partition[0].token, "Properties belong to the whole index.", "Leave PARTITION out.")
        return s.SetIndexProperties(name.value, table.value, pairs_of(children[-1]))

    def refresh_index(self, children: list[Any]) -> s.RefreshIndex:
        name, table, *partition = ats(children)
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
        table, *database = ats(children)
        name = f"{database[0].value}.{table.value}" if database else table.value
        return s.ShowIndexes(name, has(children, "FORMATTED"))

    def describe_index(self, children: list[Any]) -> s.DescribeIndex:
        name, table = ats(children)
        return s.DescribeIndex(name.value, table.value, has(children, "FORMATTED") or has(children, "EXTENDED"))

    # --- procedures -------------------------------------------------------------------------------------------

    def argument(self, children: list[Any]) -> tuple[Token | None, At[s.Value]]:
        return (children[0], children[1]) if len(children) > 1 else (None, children[0])

    def call(self, children: list[Any]) -> s.Statement:
        procedure, *arguments = children[1:]
        return read_call(procedure, arguments)


# --- what was said ----------------------------------------------------------------------------------------------


def _table(parts: Sequence[At[str]]) -> str:
    """``db.table`` as it is; of `` indexed.`path` `` the path."""
    located = [part for part in parts if "/" in part.value]
    if not located:
        return ".".join(part.value for part in parts)
    if len(parts) == 1:
        return parts[0].value
    if len(parts) != 2 or located != [parts[1]] or parts[0].value.lower() != "indexed":
        raise Refused(parts[0].token, "A table is named by db.table, by `path`, or by indexed.`path`.")
    return parts[1].value


def _kind(at: At[str]) -> str:
    lowered = at.value.lower()
    if lowered in ("bucket", "bucket_index"):
        raise Refused(
            at.token,
            "Buckets are the layout of the table itself, not an index of it.",
            "Give a count when the table is made, or CALL partition_bucket_index_manager(…).",
        )
    return KINDS.get(lowered, lowered if lowered in _OWN_KINDS else at.value)
