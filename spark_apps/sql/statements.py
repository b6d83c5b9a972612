"""Statements as plain values: no Spark, no table, no position but the one of their first word.

Names of tables are kept as they were written (``db.table``, a path or a URI); what they mean, and whether they exist,
is found out when a statement is run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Value = str | int | float | bool | None
"""A literal."""

PartitionSpec = tuple[tuple[str, Value], ...]
"""``PARTITION (dt = '2024-11-11', …)``: some of the partition columns with their values."""


@dataclass(frozen=True)
class Source:
    """The position of a statement in its script: its number from 1, its first line and column from 1, its text."""

    number: int = 1
    line: int = 1
    column: int = 1
    text: str = ""


@dataclass(frozen=True)
class Statement:
    """A statement. ``words`` are those that it is known by."""

    words: ClassVar[str] = ""
    source: Source = field(default_factory=Source, compare=False, repr=False, kw_only=True)

    @property
    def commits(self) -> bool:
        """True if the statement can change a table."""
        return not isinstance(self, ShowIndexes | DescribeIndex | Query)

    @property
    def of_rows(self) -> bool:
        """True if the statement runs a query, or changes rows."""
        made_from_query = isinstance(self, CreateTable) and self.query is not None
        return made_from_query or isinstance(self, Query | InsertInto | Update | DeleteFrom | Merge)


@dataclass(frozen=True)
class CreateTable(Statement):
    """``CREATE TABLE [IF NOT EXISTS] t (columns) USING indexed …``.

    :param columns: the text between the parentheses, for Spark's own parser of column lists.
    :param arguments: what ``IndexedTable.create`` takes beside the schema, from the options.
    :param query: the text behind ``AS``, whose rows the table begins with, and whose columns it has.
    """

    words: ClassVar[str] = "CREATE TABLE"
    table: str
    columns: str
    partition_by: tuple[str, ...] = ()
    arguments: tuple[tuple[str, object], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    location: str | None = None
    comment: str | None = None
    if_not_exists: bool = False
    query: str | None = None


@dataclass(frozen=True)
class RegisterSource(Statement):
    """``CREATE TABLE [IF NOT EXISTS] t [(columns)] USING parquet | … [LOCATION …]``: rows of another writer.

    :param columns: the text between the parentheses; ``None`` where they are read from the files.
    :param options: of the format's reader.
    :param location: of the source, where it is not what the name means.
    """

    words: ClassVar[str] = "CREATE TABLE"
    table: str
    format: str
    columns: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    record_key: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    location: str | None = None
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class AddColumns(Statement):
    """``ALTER TABLE t ADD COLUMNS (c int COMMENT '…', …)``; the text between the parentheses is Spark's to read."""

    words: ClassVar[str] = "ALTER TABLE … ADD COLUMNS"
    table: str
    columns: str


@dataclass(frozen=True)
class AlterColumnType(Statement):
    """``ALTER TABLE t ALTER COLUMN c TYPE bigint``."""

    words: ClassVar[str] = "ALTER TABLE … ALTER COLUMN"
    table: str
    column: str
    type: str


@dataclass(frozen=True)
class SetTableProperties(Statement):
    """``ALTER TABLE t SET TBLPROPERTIES ('query_log' = 'on')``."""

    words: ClassVar[str] = "ALTER TABLE … SET TBLPROPERTIES"
    table: str
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RenameColumn(Statement):
    """``ALTER TABLE t RENAME COLUMN a TO b``."""

    words: ClassVar[str] = "ALTER TABLE … RENAME COLUMN"
    table: str
    column: str
    to: str


@dataclass(frozen=True)
class DropColumns(Statement):
    """``ALTER TABLE t DROP COLUMNS [IF EXISTS] (a, b)``."""

    words: ClassVar[str] = "ALTER TABLE … DROP COLUMNS"
    table: str
    columns: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class DropTable(Statement):
    """``DROP TABLE [IF EXISTS] t``."""

    words: ClassVar[str] = "DROP TABLE"
    table: str
    if_exists: bool = False


@dataclass(frozen=True)
class DropPartition(Statement):
    """``ALTER TABLE t DROP [IF EXISTS] PARTITION (…), …``."""

    words: ClassVar[str] = "ALTER TABLE … DROP PARTITION"
    table: str
    partitions: tuple[PartitionSpec, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class CreateIndex(Statement):
    """``CREATE INDEX [IF NOT EXISTS] x ON t …``.

    :param include: columns to carry beside the indexed ones, ``()`` for none; :param exclude: all but these.
    :param partition_by: ``None`` where nothing was said, ``()`` for an index that spans all partitions.
    """

    words: ClassVar[str] = "CREATE INDEX"
    index: str
    table: str
    kind: str
    columns: tuple[str, ...] = ()
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    deferred: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    index_table: str | None = None
    partition_by: tuple[str, ...] | None = None
    location: str | None = None
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropIndex(Statement):
    """``DROP INDEX [IF EXISTS] x [ON t]``; without a table where one table of the warehouse has such an index."""

    words: ClassVar[str] = "DROP INDEX"
    index: str
    table: str | None = None
    if_exists: bool = False


@dataclass(frozen=True)
class RebuildIndex(Statement):
    """``ALTER INDEX x ON t [PARTITION (…)] REBUILD``: from the rows alone, in one commit."""

    words: ClassVar[str] = "ALTER INDEX … REBUILD"
    index: str
    table: str
    partition: PartitionSpec | None = None


@dataclass(frozen=True)
class SetIndexProperties(Statement):
    """``ALTER INDEX x ON t SET IDXPROPERTIES (…)``."""

    words: ClassVar[str] = "ALTER INDEX … SET IDXPROPERTIES"
    index: str
    table: str
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RefreshIndex(Statement):
    """``REFRESH INDEX x ON t [mode] [PARTITION (…)] [INCLUDE (…)] [EXCLUDE (…)] [SCHEMA (…)]``."""

    words: ClassVar[str] = "REFRESH INDEX"
    index: str
    table: str
    mode: Literal["incremental", "full", "quick"] = "incremental"
    partition: PartitionSpec | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    schema: str | None = None


@dataclass(frozen=True)
class ShowIndexes(Statement):
    """``SHOW [FORMATTED] INDEXES ON t``."""

    words: ClassVar[str] = "SHOW INDEXES"
    table: str
    formatted: bool = False


@dataclass(frozen=True)
class DescribeIndex(Statement):
    """``DESCRIBE [FORMATTED] INDEX x ON t``."""

    words: ClassVar[str] = "DESCRIBE INDEX"
    index: str
    table: str
    formatted: bool = False


NEWEST = "newest"
"""As the argument of a rollback: the last change of the rules, whatever its instant."""


@dataclass(frozen=True)
class ManageBuckets(Statement):
    """``CALL partition_bucket_index_manager(table => …, …)``: one of overwrite, add, rollback, show_config.

    :param dry_run: of overwrite and add, true unless given otherwise, as the document has it.
    :param rule: the engine's name; ``None``: the one in force.
    """

    words: ClassVar[str] = "CALL partition_bucket_index_manager"
    table: str
    operation: Literal["overwrite", "add", "rollback", "show_config"]
    argument: str = ""
    bucket_number: int | None = None
    dry_run: bool = True
    rule: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def commits(self) -> bool:
        """True if the call changes the table."""
        return self.operation != "show_config" and not self.dry_run


@dataclass(frozen=True)
class Query(Statement):
    """``SELECT …``, ``WITH …``, ``VALUES …``: rows, for the caller."""

    words: ClassVar[str] = "SELECT"
    query: str


@dataclass(frozen=True)
class InsertInto(Statement):
    """``INSERT INTO t [PARTITION (…)] [(columns) | BY NAME] query``.

    :param columns: those that the query gives, in its order; all of the table's if not given.
    :param values: partition columns with one value each. :param dynamic: partition columns that the query gives, last.
    """

    words: ClassVar[str] = "INSERT INTO"
    table: str
    query: str
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    values: PartitionSpec = ()
    dynamic: tuple[str, ...] = ()


@dataclass(frozen=True)
class InsertOverwrite(InsertInto):
    """``INSERT OVERWRITE t [PARTITION (…)] [(columns) | BY NAME] query``."""

    words: ClassVar[str] = "INSERT OVERWRITE"


@dataclass(frozen=True)
class Update(Statement):
    """``UPDATE t [AS alias] SET column = value, … [WHERE condition]``; values and condition as they were written."""

    words: ClassVar[str] = "UPDATE"
    table: str
    alias: str | None
    assignments: tuple[tuple[str, str], ...]
    where: str | None = None


@dataclass(frozen=True)
class DeleteFrom(Statement):
    """``DELETE FROM t [AS alias] [WHERE condition]``."""

    words: ClassVar[str] = "DELETE"
    table: str
    alias: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class MergeClause:
    """``WHEN … THEN …`` of a merge.

    :param assignments: column and value of each; ``None``: ``*``, all columns of the source.
    """

    of: Literal["matched", "not matched", "not matched by source"]
    condition: str | None
    action: Literal["update", "delete", "insert"]
    assignments: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True)
class Merge(Statement):
    """``MERGE INTO t [AS alias] USING source ON condition WHEN … THEN …``.

    :param using: what follows ``USING``, with its alias; ``source_alias`` the name by which it is called.
    """

    words: ClassVar[str] = "MERGE"
    table: str
    alias: str | None
    using: str
    source_alias: str | None
    on: str
    clauses: tuple[MergeClause, ...]


def transaction_of(txn_id: str, statement: Statement) -> str:
    """Return the transaction under which a statement of a script commits."""
    return f"{txn_id}.{statement.source.number:03d}"


def of_one_script(first: str, second: str) -> bool:
    """Return whether two transactions are of statements of the same script."""
    return first.rpartition(".")[0] == second.rpartition(".")[0]
