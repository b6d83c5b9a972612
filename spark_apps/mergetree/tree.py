"""The definition of a merge tree: its columns, the key that rows are merged by, and how a row finds its file group.

The table's own rows are one tree (:func:`data_tree`), each index with storage of its own is another; readers,
writers and compaction know trees only. A :class:`Snapshot` is what they read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.pyspark_names import StructField, StructType
from spark_apps.mergetree.schema import column_types, struct_type
from spark_apps.storage.names import DELETED as DELETED
from spark_apps.timeline.files import DataFile, GroupKey, merge_order
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.storage.store import ObjectStore
    from spark_apps.timeline.state import State

GROUP_ID = "__index_group"
"""Column that names a row's file group, where groups are found by their id and not by a hash; readers add it on
demand, files do not hold it."""

LINEAGE = "__index_lineage"
"""Column that names a row's file by its lineage; files do not hold it."""

ROW = "__index_row"
"""Column with the number of a row within its file, from 0; files do not hold it."""

FileGroups = Mapping[GroupKey, Sequence[DataFile]]
"""(partition, group) -> its files in merge order."""


@dataclass(frozen=True)
class Tree:
    """A merge tree.

    :param name: "data", or :attr:`IndexDefinition.tree <spark_apps.timeline.model.IndexDefinition.tree>`.
    :param fields: columns of a row, without the tombstone's flag.
    :param key: columns that make a row unique within its partition; files are sorted by them; compared
        null-safe.
    :param partition_by: columns that are the same in all rows of a partition; empty for an index.
    :param hash_fields: columns whose hash, reduced to the partition's count, is the row's group; empty where rows are
        written with the id of their group (:data:`GROUP_ID`).
    :param ordering: column that decides among the rows of one key in one batch (and, with ``merge_by``
        "ordering", across commits): the highest wins, null is lowest.
    :param unique: columns that are written without a dictionary, since their values hardly repeat.
    :param stored_names: column -> its name in files, where that is another.
    :param row_group_bytes: size of row groups, where readers on the driver look single keys up and can skip
        by nothing finer; Spark's own if ``None``.
    :param compressed: whether files are compressed, by the codec of the session that writes them; keys that are
        searched in their pages' own bytes are not.
    """

    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    hash_fields: tuple[str, ...]
    hash_function: str = "xxhash64"
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None
    merge_by: Literal["commit", "ordering"] = "commit"
    unique: tuple[str, ...] = ()
    row_group_bytes: int | None = None
    compressed: bool = True
    stored_names: Mapping[str, str] = field(default_factory=dict)

    def stored(self, name: str) -> str:
        """Return the name of a column in files."""
        return self.stored_names.get(name, name)

    @property
    def by_id(self) -> bool:
        """True if a row's file group is known by its id only."""
        return not self.hash_fields

    @property
    def given(self) -> tuple[str, ...]:
        """The columns that rows must have to be written."""
        return (*self.columns, GROUP_ID) if self.by_id else self.columns

    @property
    def tombstone_columns(self) -> tuple[str, ...]:
        """Columns that a tombstone must have: those of the identity, and the file group where no hash gives it."""
        return (*self.identity, GROUP_ID) if self.by_id else self.identity

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that make a row unique in the whole tree: partition columns, then key."""
        return (*self.partition_by, *(name for name in self.key if name not in self.partition_by))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def schema(self) -> StructType:
        """The columns of a row as Spark's types."""
        return struct_type(self.fields)

    def type_of(self, name: str) -> str:
        """Return the Spark type of a column, as text.

        :raises KeyError: if there is none of that name.
        """
        return self.types[name]

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark types of the columns, as text."""
        return column_types(self.fields)

    def field(self, name: str) -> StructField:
        """Return a column of the schema.

        :raises KeyError: if there is none of that name.
        """
        return self.schema[name]


def data_tree(table: TableDefinition) -> Tree:
    """Return the merge tree of a table's own rows."""
    return Tree(
        name=DATA_TREE,
        fields=table.fields,
        key=table.record_key,
        hash_fields=(table.hash_fields or table.record_key) if table.bucketed else (),
        hash_function=table.hash_function,
        partition_by=table.partition_by,
        ordering=table.ordering_column,
        merge_by=table.merge_by,
        unique=table.record_key if len(table.record_key) == 1 else (),
        stored_names=stored_names(table.fields),
    )


def stored_names(fields: Iterable[Field]) -> dict[str, str]:
    """Return column -> its name in files, of columns where that is another."""
    return {field.name: field.stored for field in fields if field.stored is not None}


class ExternalFiles(Protocol):
    """Access to the files of a registered table, which another writer owns."""

    def check(self, files: Sequence[DataFile]) -> None:
        """Compare files with how they were listed.

        :raises ObjectNotFound: if a file is gone.
        :raises StorageError: if a file was rewritten since it was listed.
        """

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Return the rows of a file that Spark cannot read rightly by itself.

        An Arrow table with the columns of ``schema``.
        """


@dataclass(frozen=True)
class ConnectorRows:
    """Rows of files as their format's own connector reads them.

    :param frame: with the columns that were asked for, and one with the location of a row's file.
    :param location: the name of that column. :param spellings: returns how it may write the path of a file.
    """

    frame: DataFrame
    location: str
    spellings: Callable[[str], Iterable[str]]


@runtime_checkable
class ReadByConnector(Protocol):
    """Files of a registered table that its format's own connector of Spark can read."""

    def connector_rows(
        self, spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str]
    ) -> ConnectorRows | None:
        """Return the rows of files with some columns.

        :return: ``None`` where the session has no such connector, or it cannot read them as they were listed.
        :raises StorageError: if the table has a file no more as it was listed.
        """


@runtime_checkable
class ProtectedRows(Protocol):
    """Files of a registered table whose format or catalog may keep readers off."""

    def why_protected(self) -> str | None:
        """Return by what its rows are protected, in words; ``None`` if by nothing that is known."""


@runtime_checkable
class FilesOfScan(ExternalFiles, Protocol):
    """Access to the files of a registered table that a scan of Spark's has listed."""

    def scan(self, files: Sequence[DataFile], columns: Sequence[str]) -> Any:
        """Return the rows of files as the scan reads them, a DataFrame with some columns at least."""


_FEW_GROUPS = 64
"""Groups up to which each is looked for by itself, and not among all of the tree."""


@dataclass(frozen=True)
class Snapshot:
    """A table at one version, together with the Spark session and the store to read it with.

    ``intact`` holds the paths of files that were found to be as the log says; ``external`` gives access to the files of
    a registered source. ``by_query`` is set where rows are read for a query: of damaged records of text files these are
    the rows that Spark's own reading gives, which depend on the query. ``partial`` is set where the data files are some
    of the table's only, so that it is not known how many others an index covers.
    """

    spark: SparkSession
    store: ObjectStore
    state: State
    intact: set[str] = field(default_factory=set, compare=False, repr=False)
    external: ExternalFiles | None = field(default=None, compare=False, repr=False)
    by_query: bool = field(default=False, compare=False, repr=False)
    partial: bool = field(default=False, compare=False, repr=False)

    @property
    def has_spark(self) -> bool:
        """True if there is a session; without one only what the driver can do by itself is possible."""
        return self.spark is not NO_SPARK

    @property
    def table(self) -> TableDefinition:
        return self.state.table

    @property
    def data(self) -> Tree:
        """The merge tree of the table's own rows."""
        return data_tree(self.state.table)

    def groups(self, tree: str = DATA_TREE, only: Iterable[GroupKey] | None = None) -> dict[GroupKey, list[DataFile]]:
        """Return (partition, group) -> live files in merge order.

        With ``only``, of those of these groups that have files.
        """
        if only is None:
            return self.state.groups(tree)
        keys = sorted(set(only))
        if len(keys) > _FEW_GROUPS:
            groups = self.state.groups(tree)
            return {key: groups[key] for key in keys if key in groups}
        groups = {key: sorted(self.state.files(tree, *key), key=merge_order) for key in keys}
        return {key: files for key, files in groups.items() if files}
