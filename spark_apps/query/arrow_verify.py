"""The comparison of an index with the rows of its table in this process, without Spark.

It finds what a comparison in Spark finds, of kinds that tell how their entries are read as Arrow tables
(:meth:`~spark_apps.indexes.handler.IndexHandler.comparison`). Rows and entries are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_apps.indexes.comparison import HELD, verify
from spark_apps.indexes.handler import PARTITION, IndexContext, VerificationReport
from spark_apps.indexes.lineage import LINEAGE
from spark_apps.indexes.registry import check_columns, find
from spark_apps.layout.types import nested_arrow_type
from spark_apps.mergetree.blocks import BLOCK, access_options, read_footers
from spark_apps.mergetree.read import with_kept_tombstones
from spark_apps.mergetree.reader_settings import rebase_of
from spark_apps.mergetree.tree import GROUP_ID, FileGroups, Snapshot, Tree
from spark_apps.query.arrow_reading import check_readable, described_file, text_format_of
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.storage.parquet.seals import check_seal
from spark_apps.storage.store import open_key
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE

_CONSTANTS = {PARTITION: "string", GROUP_ID: "string", HELD: "string", LINEAGE: "bigint", BLOCK: "int"}
"""Columns that are the same in all rows of a file group, file or block -> their types."""


def verify_entries(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compare an index with the rows that it covers.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: if only Spark can compare it.
    :raises InvalidSchema: if it is over a column that the table does not have.
    :raises UnsupportedSource: naming a file of a source that only Spark can read.
    :raises StorageError: if a file of the table is gone or damaged.
    """
    definition = snapshot.state.index(name).definition
    check_columns(snapshot.table, definition)
    handler = find(definition.kind)
    if snapshot.external is not None:
        snapshot.external.check(())
    check_readable(snapshot)
    report = verify(handler, IndexContext(snapshot, definition, ""), _Reader(snapshot))
    if report is not None:
        return report
    what = f"of kind {definition.kind}" if snapshot.table.source is None else "of a registered source"
    what = "over expressions" if handler.expressions(snapshot.table, definition) else what
    raise InvalidInput(
        f"The index {name!r} {what} is compared with the rows by Spark alone.",
        hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
    )


class _Reader:
    """Reads the rows of a table and of its indexes; see :class:`~spark_apps.indexes.comparison.ArrowReader`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def merged(self, tree: Tree, groups: FileGroups, columns: Sequence[str]) -> Any:
        table, own = self._snapshot.table, tree.name == DATA_TREE
        ordering = table.ordering_column if own and table.merge_by == "ordering" else None
        stored, constants = _split(tree, columns)
        read = self._rows(ArrowShape(stored, _types(tree), tree.key, ordering, dict(tree.stored_names)))

        def tables() -> Iterator[Any]:
            for group, files in (with_kept_tombstones(self._snapshot, groups) if own else groups).items():
                values = {PARTITION: group[0], GROUP_ID: group[1], HELD: group[1]}
                described = [ArrowFile(file, self._snapshot.store.spark_path(file.path), "parquet") for file in files]
                yield from _with_constants(read(described), constants, values)

        return _joined(tables(), tree, columns)

    def unmerged(
        self,
        tree: Tree,
        files: Sequence[DataFile],
        columns: Sequence[str],
        held: Callable[[DataFile], Sequence[str]] | None = None,
    ) -> Any:
        return _joined(self._unmerged(tree, files, columns, held), tree, columns)

    def _unmerged(
        self,
        tree: Tree,
        files: Sequence[DataFile],
        columns: Sequence[str],
        held: Callable[[DataFile], Sequence[str]] | None,
    ) -> Iterator[Any]:
        snapshot, own = self._snapshot, tree.name == DATA_TREE
        stored, constants = _split(tree, columns)
        blocks = {}
        if BLOCK in constants:
            blocks = {footer.file.lineage: footer.blocks for footer in read_footers(snapshot, files)}
        for file in files:
            known = [name for name in stored if held is None or name == LINEAGE or name in held(file)]
            shape = ArrowShape(
                tuple(known), _types(tree), (), stored=dict(tree.stored_names),
                text=text_format_of(snapshot) if own else None, external=own and snapshot.table.source is not None,
                rebase=rebase_of(snapshot.table.source),
            )  # fmt: skip
            read = self._rows(shape)
            if own:
                described = described_file(snapshot, file)
            else:
                self._check_seal(file)
                described = ArrowFile(file, snapshot.store.spark_path(file.path), "parquet")
            for number in range(blocks.get(file.lineage, 1)):
                piece = replace(described, blocks=frozenset((number,))) if file.lineage in blocks else described
                values = {LINEAGE: file.lineage, GROUP_ID: file.group, BLOCK: number}
                yield from _with_constants(read([piece]), constants, values)

    def _rows(self, shape: ArrowShape) -> Callable[[Sequence[ArrowFile]], Iterator[Any]]:
        import pyarrow as pa

        schema = pa.schema([pa.field(name, nested_arrow_type(shape.types[name])) for name in shape.columns])
        return ArrowRows(shape, schema, access_options(self._snapshot)).read

    def _check_seal(self, file: DataFile) -> None:
        """Check that a file of an index is as it was written.

        :raises StorageError: naming it.
        """
        try:
            check_seal(open_key(self._snapshot.store, file.path, file.bytes), file.extra)
        except OSError as error:
            raise StorageError(f"The index file {file.path} cannot be read: {error}.") from error


def _types(tree: Tree) -> Mapping[str, str]:
    return {field.name: field.type for field in tree.fields}


def _split(tree: Tree, columns: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Split columns into those of a tree and those that are the same in many rows."""
    return tuple(n for n in columns if n in tree.columns), [name for name in columns if name not in tree.columns]


def _with_constants(batches: Iterator[Any], names: Sequence[str], values: Mapping[str, Any]) -> Iterator[Any]:
    """Yield batches as tables, with columns of one value each."""
    import pyarrow as pa

    for batch in batches:
        table = pa.Table.from_batches([batch])
        for name in names:
            value = pa.scalar(values[name], nested_arrow_type(_CONSTANTS[name]))
            table = table.append_column(name, pa.repeat(value, len(table)))
        yield table


def _joined(tables: Iterator[Any], tree: Tree, columns: Sequence[str]) -> Any:
    """Return tables as one; columns that one lacks are null there."""
    import pyarrow as pa

    types = {**_CONSTANTS, **_types(tree)}
    empty = pa.schema([pa.field(name, nested_arrow_type(types[name])) for name in columns]).empty_table()
    return pa.concat_tables([empty, *tables], promote_options="default")
