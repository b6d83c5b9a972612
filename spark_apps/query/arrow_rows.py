"""The rows of file groups as Arrow record batches, merged, without Spark: for readers that run where there is none.

Gives what :func:`spark_apps.mergetree.read.scan` gives. One group at a time: of a group with deltas these are
held in memory, the base passes through row group by row group. Rows that a predicate rules out by a file's own
statistics, or by single values, may be left out; the caller applies the predicate again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spark_apps.indexes.ranges import Range, range_of
from spark_apps.layout.partitions import value_of
from spark_apps.layout.types import arrow_type, parse_type
from spark_apps.mergetree.blocks import BlockFile, etag_of, is_of_one_calendar, match_column_name, open_blocks
from spark_apps.mergetree.read import merge_files
from spark_apps.mergetree.reader_settings import TEXTS
from spark_apps.mergetree.times import may_be_inexact
from spark_apps.mergetree.tree import DELETED
from spark_apps.query.arrow_filter import satisfying
from spark_apps.query.arrow_text import NotPlain, TextFormat, read_text
from spark_apps.query.limits import BATCH_ROWS, MAX_PAGED_NODES, MAX_SINGLE_VALUES, MIN_PAGED_ROWS
from spark_apps.query.predicates import And, KeySet, Predicate, columns_of, keys_for, may_match, of_columns, walk
from spark_apps.query.wanted_keys import WantedKeys
from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.storage.file_faults import fault_of
from spark_apps.storage.parquet.statistics import Bounds
from spark_apps.storage.store import Rewritten, open_by_address
from spark_apps.timeline.files import DataFile

_EXACT_KINDS = ("string", "date", "boolean")
_BY_SPARK = "Use IndexedTable.load(spark, …).read(where), or a view made with create_view."
_LEGACY = (b"org.apache.spark.legacyINT96", b"org.apache.spark.legacyDateTime")


@dataclass(frozen=True)
class ArrowFile:
    """A data file, described so that any machine can read it.

    :param address: as :func:`~spark_apps.storage.store.opened` takes it.
    :param attached: column -> value as text, of columns that the file does not hold.
    :param blocks: the row groups (stripes) to read, ``None`` for all.
    :param block_count: how many it has for this to be so, ``None`` if that is not known.
    """

    file: DataFile
    address: str
    form: str
    attached: Mapping[str, str | None] = field(default_factory=dict)
    blocks: frozenset[int] | None = None
    block_count: int | None = None

    @property
    def delta(self) -> bool:
        return self.file.kind == "delta"


@dataclass(frozen=True)
class ArrowShape:
    """The columns to read of every file, and the rule by which files are merged.

    :param columns: wanted columns with their Spark types, in order; :param stored: column -> name in files, where that
        is another. :param key: the record key; :param types: Spark types of all these columns.
    :param ordering: the column that decides across commits, if one does.
    :param external: whether the files are another writer's, so that some can be read by Spark alone.
    :param rebase: how Spark's reader takes old days and times of writers that say nothing of their calendar.
    :param predicate: what the rows are wanted for: others may be left out. :param exact: without these all others are
        left out; understood in every part. :param wanted: record keys: rows with others are left out. :param text: how
        files of lines are read.
    """

    columns: tuple[str, ...]
    types: Mapping[str, str]
    key: tuple[str, ...]
    ordering: str | None = None
    stored: Mapping[str, str] = field(default_factory=dict)
    external: bool = False
    rebase: str | None = None
    predicate: Predicate | None = None
    exact: Predicate | None = None
    wanted: WantedKeys | None = None
    text: TextFormat | None = None

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read where nothing is merged."""
        judged = () if self.exact is None else sorted(columns_of(self.exact))
        return tuple(dict.fromkeys([*self.columns, *judged]))


class ArrowRows:
    """Reads groups of files.

    :param schema: the Arrow schema of the rows: ``shape.columns`` in order, with their types.
    :param options: of the store that holds the files; may hold secrets.
    :param threaded: whether the columns of a row group are read side by side.
    """

    def __init__(self, shape: ArrowShape, schema: Any, options: Mapping[str, Any], threaded: bool = False) -> None:
        self._shape = shape
        self._threaded = threaded
        self._schema = schema
        self._given = {one.name: one.type for one in schema}
        self._options = options
        self._judged = False
        self._needed = tuple(dict.fromkeys([*shape.read, *shape.key, *([shape.ordering] if shape.ordering else [])]))
        self._wanted = shape.wanted
        self._single_values = {} if shape.wanted is not None else _single_values(shape)

    def read(
        self, files: Sequence[ArrowFile], keys: Predicate | None = None, wanted: WantedKeys | None = None
    ) -> Iterator[Any]:
        """Yield the record batches of one file group.

        :param files: in merge order. :param keys: what the record keys of its rows that are wanted satisfy, if known.
        :param wanted: those of the shape's record keys that these files can hold, if that is known.
        :raises StorageError: naming a file that is gone or damaged.
        :raises UnsupportedSource: naming one whose values Arrow would not read as Spark does, and what to use instead.
        """
        self._wanted = self._shape.wanted if wanted is None else wanted
        if len(files) == 1 and not files[0].file.tombstones:
            tables = self._tables(files[0], self._shape.read, self._shape.predicate, True, self._wanted)
        else:
            tables = merge_files(
                files, self._shape.key, self._shape.ordering,
                partial(self._entries, of_keys=self._of_keys(keys)), self._needed,
            )  # fmt: skip
        for table in tables:
            yield from self._batches(self._filtered(table))

    def keys(self, file: ArrowFile) -> Iterator[Any]:
        """Yield the columns of the shape of all rows and tombstones of a delta, as tables."""
        for table in self._tables(file, self._shape.columns, None, False):
            yield table.select(list(self._shape.columns)).cast(self._schema)

    def _of_keys(self, keys: Predicate | None) -> Predicate | None:
        """Return what record keys satisfy of which rows are wanted: entries of others need not be merged."""
        wanted = [] if keys is None else [keys]
        if self._shape.predicate is not None:
            wanted.append(of_columns(self._shape.predicate, self._shape.key))
        return And(tuple(wanted)) if any(map(columns_of, wanted)) else None

    def _entries(
        self, source_file: ArrowFile, names: Sequence[str], prune: bool, of_keys: Predicate | None
    ) -> Iterator[Any]:
        """Yield the entries of a file that is merged with others, without those of keys that are not wanted."""
        judged = self._shape.predicate if prune else of_keys
        for table in self._tables(source_file, names, judged, prune, self._wanted):
            yield table if of_keys is None else table.filter(satisfying(of_keys, table, self._shape.types))

    def _batches(self, table: Any) -> Iterator[Any]:
        import pyarrow as pa

        columns = [(table.column(name), kind) for name, kind in self._given.items()]
        arrays = [column if column.type == kind else column.cast(kind) for column, kind in columns]
        whole = pa.Table.from_arrays(arrays, schema=self._schema)
        yield from (batch for batch in whole.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows)

    def _filtered(self, table: Any) -> Any:
        """Return a table without the rows whose single values rule them out."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, values in self._single_values.items():
            column = table.column(name)
            table = table.filter(pc.is_in(column, value_set=pa.array(values, type=column.type)))
        if self._shape.exact is None:
            return table
        return table.filter(satisfying(self._shape.exact, table, self._shape.types))

    # --- one file ---------------------------------------------------------------------------------------------

    def _tables(
        self,
        source_file: ArrowFile,
        names: Sequence[str],
        judged: Predicate | None,
        prune: bool,
        wanted: WantedKeys | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a file, a row group at a time; those of a delta with the column that tells tombstones.

        :param judged: leave out row groups, and pages, that hold no row which this predicate can match.
        :param prune: leave out row groups that an index has ruled out.
        :param wanted: leave out rows with other record keys.
        """
        import pyarrow as pa

        path = source_file.file.path
        try:
            if source_file.form in TEXTS:
                yield from self._lines(source_file, names)
                return
            file, own = source_file.file, not self._shape.external
            opened = open_blocks(
                source_file.form, source_file.address, file.bytes, self._options, etag_of(file),
                rows=file.rows, keep=own,
            )  # fmt: skip
            footer = BlockFile.of(file, source_file.address, opened)
            self._check(source_file, footer, names)
            self._judged = not own and not (footer.format == "parquet" and footer.names_calendar)
            columns = [*names, DELETED] if source_file.delta else list(names)
            for block in self._blocks(source_file, footer, judged, prune):
                group = _RowGroup(source_file, opened, footer, block)
                if wanted is not None:  # of tables of this package alone record keys are asked for
                    if self._can_hold(footer, block, wanted):
                        table = self._table_of_keys(group, columns, wanted)
                        if table is not None:
                            yield table
                    continue
                rows = self._rows_left(group, judged) if own and judged is not None else None
                if rows is None or len(rows):
                    yield self._table(group, columns, rows)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError):
                what = "is gone"
            elif isinstance(error, Rewritten):
                what = "was rewritten after it was listed"
            else:
                what = f"cannot be read: {str(error).strip().splitlines()[0] if str(error).strip() else error!r}"
                fault = fault_of(str(error))
                if self._shape.external and fault.sort == "damage" and isinstance(error, pa.ArrowNotImplementedError):
                    raise _only_by_spark(source_file, names, str(error).strip().splitlines()[0]) from error
                if self._shape.external and fault.sort != "damage":
                    raise StorageError(f"{path} {fault.what}: {what}.", hint=fault.hint) from error
            raise StorageError(
                f"{path} {what}.", hint="Load the table again; if it happens again, bring the file back from a backup."
            ) from error

    def _lines(self, source_file: ArrowFile, names: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a file of lines, some megabytes at a time."""
        import pyarrow as pa

        file = source_file.file
        ranged = open_by_address(source_file.address, file.bytes, self._options, etag_of(file))
        held = {name: kind for name, kind in self._shape.types.items() if name not in source_file.attached}
        assert self._shape.text is not None
        try:
            for rows in read_text(self._shape.text, ranged, file.path, held, [name for name in names if name in held]):
                yield pa.table([self._array(source_file, name, name, rows) for name in names], names=list(names))
        except NotPlain as error:
            raise UnsupportedSource(f"{file.path} cannot be read without Spark: {error}.", hint=_BY_SPARK) from error

    def _check(self, source_file: ArrowFile, footer: BlockFile, names: Sequence[str]) -> None:
        """Check that Arrow reads the values of a file as Spark does.

        :raises UnsupportedSource: if Spark would read another value.
        """
        if not self._shape.external:
            if any(mark in (footer.parsed.metadata or {}) for mark in _LEGACY):
                said = "they were written by the calendar of Spark 2, which only Spark's own reader reads rightly"
                raise _only_by_spark(source_file, names, said)
            return
        rebase = self._shape.rebase
        for name in names:
            if name in source_file.attached:
                continue
            why = footer.why_unreadable(self._stored(name), self._shape.types[name], rebase)
            if why is not None:
                raise _only_by_spark(source_file, [name], why)

    def _blocks(
        self, source_file: ArrowFile, footer: BlockFile, judged: Predicate | None, prune: bool
    ) -> Iterator[int]:
        known = prune and source_file.blocks is not None and source_file.block_count in (None, footer.blocks)
        blocks = sorted(source_file.blocks or ()) if known else range(footer.blocks)
        yield from (block for block in blocks if self._can_match(source_file, footer, block, judged))

    def _can_match(self, source_file: ArrowFile, footer: BlockFile, block: int, predicate: Predicate | None) -> bool:
        if predicate is None or footer.format != "parquet":
            return True
        ranges: dict[str, Range] = {}
        for name in columns_of(predicate):
            text = self._shape.types[name]
            if name not in source_file.attached and footer.exact({self._stored(name): text}):
                values = range_of(footer.statistics(block, self._stored(name)), parse_type(text))
                if values is not None:
                    ranges[name] = values
        return may_match(predicate, ranges)

    def _can_hold(self, footer: BlockFile, block: int, wanted: WantedKeys) -> bool:
        """Tell whether a row group can hold one of some record keys, by its statistics."""
        if not wanted.rules_pages_out:
            return True
        [name] = wanted.names
        text, stored = self._shape.types[name], self._stored(name)
        if not footer.exact({stored: text}):
            return True
        values = range_of(footer.statistics(block, stored), parse_type(text))
        if values is None:
            return True
        return wanted.may_be_within(Bounds(None, None, values.low, values.high) if values.values else Bounds(None, 0))

    def _rows_left(self, group: _RowGroup, predicate: Predicate) -> Any:
        """Return the rows of a row group that its pages do not rule out; ``None`` to read it as a whole."""
        if sum(1 for _ in walk(predicate)) > MAX_PAGED_NODES:
            return None
        names = {self._stored(name): name for name in columns_of(predicate)}
        return self._candidates(
            group, names, lambda stored, bounds: may_match(predicate, {names[stored]: _range_within(bounds)})
        )

    def _candidates(self, group: _RowGroup, names: Mapping[str, str], may_match: Callable[[str, Bounds], bool]) -> Any:
        """Return the rows of a row group that its pages do not rule out; ``None`` to read it as a whole.

        :param names: name in the file -> column, of those that are looked at.
        """
        if group.rows < MIN_PAGED_ROWS:
            return None
        kinds = {stored: parse_type(self._shape.types[name]).kind for stored, name in names.items()}
        return group.opened.footer.pages.candidates(group.opened.source, group.block, kinds, may_match)

    def _table_of_keys(self, group: _RowGroup, columns: Sequence[str], wanted: WantedKeys) -> Any:
        """Return the rows of a row group that have one of some keys, as a table; ``None`` if there are none.

        The columns of the key are read first, and of the others the pages that hold such rows, where these are few.
        """
        import pyarrow as pa

        within = None
        if wanted.rules_pages_out:
            [name] = wanted.names
            may_hold = {self._stored(name): name}
            within = self._candidates(group, may_hold, lambda _, bounds: wanted.may_be_within(bounds))
        if within is not None and not len(within):
            return None
        of_key = self._table(group, wanted.names, within)
        positions = wanted.positions(of_key)
        if not len(positions):
            return None
        found, others = of_key.take(positions), [name for name in columns if name not in wanted.names]
        if not others:
            return found.select(list(columns))
        rest = self._table(group, others, positions if within is None else within[positions])
        return pa.table([(rest if name in others else found).column(name) for name in columns], names=list(columns))

    def _table(self, group: _RowGroup, requested: Sequence[str], rows: Any = None) -> Any:
        """Return columns of a row group as a table. :param rows: those that are wanted, if not all."""
        import pyarrow as pa

        source_file, file_columns = group.file, group.footer.schema.names
        stored = {
            name: match_column_name(file_columns, self._stored(name))
            for name in requested
            if name not in source_file.attached
        }
        # A table without columns has no number of rows.
        columns = [name for name in dict.fromkeys(stored.values()) if name is not None] or list(file_columns[:1])
        table = group.opened.read_group(group.block, columns, rows, self._threaded)
        arrays = [self._array(source_file, name, stored.get(name), table) for name in requested]
        return pa.table(arrays, names=list(requested))

    def _array(self, source_file: ArrowFile, name: str, stored: str | None, table: Any) -> Any:
        import pyarrow as pa

        rows = table.num_rows
        if name == DELETED:
            kind = pa.bool_()
        else:
            kind = self._given.get(name) or arrow_type(parse_type(self._shape.types[name]))
        if name in source_file.attached:
            text = source_file.attached[name]
            value = None if text is None else value_of(text, parse_type(self._shape.types[name]), name)
            return pa.chunked_array([pa.repeat(pa.scalar(value, kind), rows)])
        if stored is None:
            return pa.chunked_array([pa.nulls(rows, kind)])
        column = table.column(stored)
        moments = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        if moments and self._judged and self._shape.rebase != "CORRECTED" and not is_of_one_calendar(column):
            raise _only_by_spark(source_file, [name], "it holds days or times before 1900, of an unknown calendar")
        if column.type == kind:
            return column
        # A column without a zone whose type has none was returned above.
        if may_be_inexact(column):
            raise UnsupportedSource(
                f"{source_file.file.path} holds times outside of the years 1 to 9999 in its column {name!r}, as INT96, "
                "which Arrow may take for others.",
                hint=_BY_SPARK,
            )
        return _cast(source_file, name, column, kind)

    def _stored(self, name: str) -> str:
        return self._shape.stored.get(name, name)


def _cast(source_file: ArrowFile, name: str, column: Any, kind: Any) -> Any:
    """Return a column in the type in which Spark exchanges it."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        said = str(error).strip().splitlines()[0][:200]
        raise _only_by_spark(source_file, [name], f"a value of it is none of the type {kind}: {said}") from error


def _only_by_spark(source_file: ArrowFile, names: Sequence[str], why: str) -> UnsupportedSource:
    which = ", ".join(map(repr, names))
    return UnsupportedSource(
        f"The column{'s' * (len(names) > 1)} {which} of {source_file.file.path} cannot be read without Spark: {why}.",
        hint=f"Ask for other columns, or: {_BY_SPARK}",
    )


# --- rows by pages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RowGroup:
    """A row group, or stripe, of a file that is open."""

    file: ArrowFile
    opened: Any
    footer: BlockFile
    block: int

    @property
    def rows(self) -> int:
        return self.footer.rows[self.block]


def _range_within(bounds: Bounds) -> Range:
    return Range(values=False) if bounds.only_nulls else Range(bounds.low, bounds.high)


def _single_values(shape: ArrowShape) -> dict[str, list[Any]]:
    """Return the values that columns of plain types must have for the predicate, where these are few."""
    points: dict[str, list[Any]] = {}
    if shape.predicate is None:
        return points
    for name in shape.read:
        kind = parse_type(shape.types[name])
        if kind.is_integer or kind.kind in _EXACT_KINDS:
            keys = keys_for(shape.predicate, (name,), MAX_SINGLE_VALUES)
            if isinstance(keys, KeySet):
                points[name] = [key[0] for key in keys.keys]
    return points
